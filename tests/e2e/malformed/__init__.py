"""Malformed and ambiguous requests: a table of them, and what drives a proxy with it.

Each row is one connection's worth of bytes, what has to come of it, and the section of the RFC that says so, in words
of our own. Where the RFC leaves a choice the row takes the strict one; where strictness would gain nothing a row allows
more than one outcome. `request_line`, `fields`, `lengths`, `chunks`, `limits`, `sequences` are HTTP/1, `http2` and
`http2_frames` HTTP/2. `differential` runs the HTTP/1 rows through other proxies.
"""

from . import chunks, fields, lengths, limits, request_line, sequences
from .row import Row

HTTP1: tuple[Row, ...] = (
    *request_line.ROWS,
    *fields.ROWS,
    *lengths.ROWS,
    *chunks.ROWS,
    *limits.ROWS,
    *sequences.ROWS,
)
