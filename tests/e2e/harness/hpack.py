"""HPACK (RFC 7541) as any client may write it: each field in one of all its forms, drawn by a random number generator.

A client's library has one form for a field, and a reader that fails at another is never found out.
"""

import random
from dataclasses import dataclass

from hpack.huffman_constants import REQUEST_CODES, REQUEST_CODES_LENGTH

from .http2 import CONTINUATION, END_HEADERS, END_STREAM, HEADERS, PADDED, PRIORITIZED, Fields, frame

TABLE_SIZE = 4096
ENTRY_OVERHEAD = 32
# With padding and a priority it fits the smallest size that a peer can allow for frames, 16 KiB.
LONGEST_PIECE = 16_000

# Appendix A: names, with the values that stand beside them.
STATIC: Fields = [
    (name.encode(), value.encode())
    for name, _, value in (
        line.partition(" ")
        for line in (
            ":authority|:method GET|:method POST|:path /|:path /index.html|:scheme http|:scheme https|:status 200|:status 204|"
            ":status 206|:status 304|:status 400|:status 404|:status 500|accept-charset|accept-encoding gzip, deflate|"
            "accept-language|accept-ranges|accept|access-control-allow-origin|age|allow|authorization|cache-control|"
            "content-disposition|content-encoding|content-language|content-length|content-location|content-range|content-type|"
            "cookie|date|etag|expect|expires|from|host|if-match|if-modified-since|if-none-match|if-range|if-unmodified-since|"
            "last-modified|link|location|max-forwards|proxy-authenticate|proxy-authorization|range|referer|refresh|retry-after|"
            "server|set-cookie|strict-transport-security|transfer-encoding|user-agent|vary|via|www-authenticate"
        ).split("|")
    )
]


def integer(value: int, prefix: int, first: int = 0, zeros: int = 0) -> bytes:
    """5.1, after the bits of `first`. With `zeros` it is longer than it has to be by so many bytes, where it is long at all."""
    most = (1 << prefix) - 1
    if value < most:
        return bytes([first | value])
    value -= most
    out = [first | most]
    while value >= 128:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out += [value | 0x80, *[0x80] * (zeros - 1), 0] if zeros else [value]
    return bytes(out)


def huffman(value: bytes) -> bytes:
    """5.2, without the length: codes one after the other, filled up with ones."""
    bits = size = 0
    for octet in value:
        bits = bits << REQUEST_CODES_LENGTH[octet] | REQUEST_CODES[octet]
        size += REQUEST_CODES_LENGTH[octet]
    fill = -size % 8
    return (bits << fill | (1 << fill) - 1).to_bytes((size + fill) // 8)


class Table:
    """The dynamic table (2.3.2, 4), the newest entry first."""

    def __init__(self, limit: int = TABLE_SIZE):
        self.entries: Fields = []
        self.limit = limit
        self.size = 0

    def resize(self, limit: int) -> None:
        self.limit = limit
        self._evict(limit)

    def add(self, name: bytes, value: bytes) -> None:
        size = len(name) + len(value) + ENTRY_OVERHEAD
        self._evict(self.limit - size)
        # One that is too large for the whole table empties it, and is no error.
        if size <= self.limit:
            self.entries.insert(0, (name, value))
            self.size += size

    def _evict(self, limit: int) -> None:
        while self.entries and self.size > limit:
            name, value = self.entries.pop()
            self.size -= len(name) + len(value) + ENTRY_OVERHEAD


@dataclass(frozen=True)
class Written:
    """How a field was written: `kind` is `indexed`, `incremental`, `without` or `never`; `name` is `static 4`, `dynamic`, `raw` or
    `huffman`, and `value` is `raw` or `huffman`, if not `indexed`. `length` is its bytes'."""

    field: tuple[bytes, bytes]
    kind: str
    name: str
    value: str
    length: int
    number: int = 0
    """The index, of the field or its name; 0 for none."""
    evicts_name: bool = False
    """Its name was taken from an entry that it evicts."""
    empties: bool = False
    """The table was emptied by it: it is larger than that."""

    def __str__(self) -> str:
        name, value = (text if len(text) <= 40 else text[:30] + b"..." + text[-7:] for text in self.field)
        how = ", ".join(part for part in (f"name {self.name}", self.value and f"value {self.value}") if part)
        return f"{name!r} {value!r}: {self.kind} {self.number or ''} ({how}), {self.length} bytes"


class Encoder:
    """One side of a connection. `written` says how the fields of the last block were written, `updates` what size the table was
    given before them. With a small `largest` most fields evict others."""

    def __init__(self, rng: random.Random, largest: int = TABLE_SIZE):
        self.rng = rng
        self.largest = largest
        self.table = Table()
        self.written: list[Written] = []
        self.updates: list[int] = []

    def _some(self, share: float) -> bool:
        return self.rng.random() < share

    def _integer(self, value: int, prefix: int, first: int = 0) -> bytes:
        return integer(value, prefix, first, self.rng.choice((1, 2)) if self._some(0.1) else 0)

    def _text(self, value: bytes) -> tuple[bytes, str]:
        if self._some(0.5):
            return self._integer(len(value), 7) + value, "raw"
        coded = huffman(value)
        return self._integer(len(coded), 7, 0x80) + coded, "huffman"

    def block(self, fields: Fields) -> bytes:
        self.written, self.updates = [], []
        out = self._resize() if self._some(0.12) or self.table.limit > self.largest else b""
        for name, value in fields:
            out += self._field(name, value)
        return out

    def _resize(self) -> bytes:
        """One new size, or the smallest in between and the last (4.2)."""
        smaller = (0, self.rng.randint(40, 300), self.rng.randint(300, TABLE_SIZE))
        final = self.largest if self._some(0.7) else min(self.rng.choice(smaller), self.largest)
        between = [self.rng.choice((0, self.rng.randint(0, final)))] if self._some(0.6) else []
        self.updates = [*between, final]
        for size in self.updates:
            self.table.resize(size)
        return b"".join(self._integer(size, 5, 0x20) for size in self.updates)

    def _field(self, name: bytes, value: bytes) -> bytes:
        all_entries = [*STATIC, *self.table.entries]
        same = [number for number, entry in enumerate(all_entries, 1) if entry == (name, value)]
        if same and self._some(0.65):
            number = self.rng.choice(same)
            out = self._integer(number, 7, 0x80)
            self.written.append(Written((name, value), "indexed", _place(number), "", len(out), number))
            return out

        kind, prefix, first = self.rng.choice(
            (("incremental", 6, 0x40), ("incremental", 6, 0x40), ("without", 4, 0x00), ("never", 4, 0x10))
        )
        named = [number for number, entry in enumerate(all_entries, 1) if entry[0] == name]
        static = [number for number in named if number <= len(STATIC)]
        if named and self._some(0.7):
            # There are more in the dynamic table, sooner or later; the oldest of them may be evicted by this very field.
            number = self.rng.choice(static) if static and self._some(0.4) else self.rng.choice((self.rng.choice(named), named[-1]))
            start, how = self._integer(number, prefix, first), _place(number)
        else:
            text, how = self._text(name)
            number, start = 0, bytes([first]) + text
        text, coding = self._text(value)
        before = len(self.table.entries)
        if kind == "incremental":
            self.table.add(name, value)
        # All but the one that was added.
        left = len(self.table.entries[1:]) if kind == "incremental" else before
        out = start + text
        self.written.append(
            Written(
                (name, value),
                kind,
                how,
                coding,
                len(out),
                number,
                evicts_name=number > len(STATIC) + left and how == "dynamic",
                empties=kind == "incremental" and before > 0 and not self.table.entries,
            )
        )
        return out


def _place(number: int) -> str:
    return f"static {number}" if number <= len(STATIC) else "dynamic"


def frames(rng: random.Random, stream: int, block: bytes, end: bool) -> list[bytes]:
    """A header block as HEADERS and up to four CONTINUATIONs, cut anywhere; now and then with padding and a priority."""
    cuts = sorted(rng.sample(range(1, len(block)), min(rng.choice((0, 0, 1, 2, 3, 4)), max(len(block) - 1, 0))))
    if cuts and rng.random() < 0.3:
        # What is left is short.
        cuts[-1] = max(cuts[-1], len(block) - rng.randint(1, 3))
    if cuts and rng.random() < 0.1:
        # Nothing comes with HEADERS.
        cuts[0] = 0
    cuts = sorted({*cuts, *range(LONGEST_PIECE, len(block), LONGEST_PIECE)})
    first, *further = [block[start:stop] for start, stop in zip([0, *cuts], [*cuts, len(block)], strict=True)]
    flags = END_STREAM if end else 0
    if rng.random() < 0.25:
        flags |= PRIORITIZED
        # On any stream but itself, which would be an error (RFC 7540, 5.3.1).
        on = rng.choice([other for other in (0, 1, stream - 2, stream + 2, 2**31 - 1) if other not in (stream, -1)])
        first = (on | rng.choice((0, 1 << 31))).to_bytes(4) + rng.randbytes(1) + first
    if rng.random() < 0.25:
        flags |= PADDED
        padding = rng.choice((0, 1, 35, 255))
        first = bytes([padding]) + first + bytes(padding)
    out = [frame(HEADERS, flags | (0 if further else END_HEADERS), stream, first)]
    for number, piece in enumerate(further, 1):
        out.append(frame(CONTINUATION, END_HEADERS if number == len(further) else 0, stream, piece))
    return out
