"""Sends a row to a proxy and says what came of it, on both sides."""

import socket
import time
from dataclasses import dataclass

from harness.http1 import Closed, Connection

from .backend import Received, Record, RecordingBackend
from .row import Outcome, Row, Seen

SENTINEL = "/sentinel"
# A proxy that waits for more says nothing for so long; only where that is not what the row hopes for.
QUIET_SECONDS = 0.4
PATIENCE_SECONDS = 3.0
# Fields that a proxy may add, or write anew; all others have to come from the client.
OURS = {
    "host", "connection", "content-length", "transfer-encoding", "te", "via", "forwarded", "keep-alive", "x-real-ip",
    "x-forwarded-for", "x-forwarded-proto", "x-forwarded-host", "x-forwarded-port", "x-forwarded-server",
}  # fmt: skip


@dataclass
class Observed:
    """What one row led to."""

    answers: list[int]
    ends: bool
    record: Record

    def __str__(self) -> str:
        answers = " ".join(map(str, self.answers)) or "no answer"
        seen = ", ".join(f"{r.method[:20]} {r.target[:40]} +{len(r.body)}" for r in self.record.requests) or "nothing"
        problems = f", ambiguous: {'; '.join(self.record.ambiguous)}" if self.record.ambiguous else ""
        return f"{answers}, {'closed' if self.ends else 'open'}, backend saw {seen}{problems}"


def _send(client: Connection, row: Row, pieces: int) -> None:
    """In one go, or in pieces that each make a segment of their own."""
    step = max(1, -(-len(row.sent) // pieces))
    try:
        for start in range(0, len(row.sent), step):
            client.send(row.sent[start : start + step])
        if row.half_close:
            client.sock.shutdown(socket.SHUT_WR)
    except OSError:
        pass  # refused before all was sent; the answer is still to be read


def _statuses(client: Connection, hoped_for: set[int]) -> tuple[list[int], bool]:
    """The final statuses that come, and whether the connection ended. With as many as `hoped_for` it need not fall quiet."""
    statuses: list[int] = []
    deadline = time.monotonic() + PATIENCE_SECONDS
    while time.monotonic() < deadline:
        client.sock.settimeout(PATIENCE_SECONDS if not statuses else QUIET_SECONDS)
        if len(statuses) in hoped_for and statuses:
            return statuses, False
        try:
            statuses.append(client.read_response().status)
        except TimeoutError:
            return statuses, False
        except (Closed, OSError):
            return statuses, True
        except (ValueError, IndexError):
            return [*statuses, 0], True  # not a response
    return statuses, False


def _still_good(client: Connection) -> bool:
    """Whether the connection serves one more request, in step: the answer is the one to this request."""
    client.sock.settimeout(PATIENCE_SECONDS)
    try:
        return client.request(SENTINEL).body == f"GET {SENTINEL}".encode()
    except (Closed, OSError, ValueError, IndexError):
        return False


def observe(port: int, backend: RecordingBackend, row: Row, pieces: int = 1, quiet: float = PATIENCE_SECONDS) -> Observed:
    """Runs a row against the proxy on `port`, whose only backend this is."""
    backend.take()
    # Where no outcome leaves the connection open, its end is waited for.
    open_after = {len(outcome.answers) for outcome in row.outcomes if outcome.ends is not True}
    with Connection.to(port, timeout=quiet) as client:
        client.sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        _send(client, row, pieces)
        answers, ended = _statuses(client, open_after)
        if not ended and not row.half_close:
            ended = not _still_good(client)
    backend.settle()
    record = backend.take()
    sentinels = [request for request in record.requests if request.target == SENTINEL]
    record.requests = [request for request in record.requests if request.target != SENTINEL]
    record.begun -= len(sentinels)
    return Observed(answers, ended, record)


def _same_fields(wanted: dict[str, str | None], got: list[tuple[str, str]]) -> str | None:
    for name, value in wanted.items():
        values = [v for k, v in got if k == name]
        if "\n".join(values) != (value or "") or (value is None) != (not values):
            return f"{name}: {values} instead of {value!r}"
    return None


def _differs(wanted: Seen, got: Received, sent: bytes) -> str | None:
    """In what the backend's request is not what it has to be."""
    if (wanted.method, wanted.target) != (got.method, got.target):
        return f"{got.method[:40]} {got.target[:80]} instead of {wanted.method[:40]} {wanted.target[:80]}"
    if wanted.body != got.body:
        return f"body {got.body[:80]!r} instead of {wanted.body[:80]!r}"
    problem = _same_fields(wanted.fields, got.fields) or _same_fields(wanted.trailers, got.trailers)
    if problem:
        return problem
    for name, value in got.fields + got.trailers:
        if name not in OURS and (name.encode("latin-1") not in sent.lower() or value.encode("latin-1") not in sent):
            return f"{name}: {value[:80]!r} was never sent"
    return None


def mismatch(outcome: Outcome, observed: Observed, sent: bytes) -> str | None:
    """Why this is not that outcome."""
    if observed.record.ambiguous:
        return f"the backend got what can be read in two ways: {observed.record.ambiguous}"
    if len(observed.answers) != len(outcome.answers) or any(
        got not in allowed for got, allowed in zip(observed.answers, outcome.answers, strict=False)
    ):
        return f"answers {observed.answers} instead of {outcome.answers}"
    if outcome.ends is not None and observed.ends != outcome.ends:
        return "the connection ended" if observed.ends else "the connection stayed, or was not in step any more"
    got = observed.record.requests
    if len(got) != len(outcome.seen):
        return f"{len(got)} requests at the backend instead of {len(outcome.seen)}"
    if not outcome.begun and observed.record.begun > len(outcome.seen):
        return "a refused request reached the backend in part"
    return next((why for seen, received in zip(outcome.seen, got, strict=True) if (why := _differs(seen, received, sent))), None)


def verdict(row: Row, observed: Observed) -> str | None:
    """`None` if it is one of the allowed outcomes, else why it is none of them."""
    problems = []
    for outcome in row.outcomes:
        problem = mismatch(outcome, observed, row.sent)
        if problem is None:
            return None
        problems.append(problem)
    return " / ".join(problems) + f" ({observed})"
