"""Sends a row of frames to a proxy and says what came of it, on both sides."""

from dataclasses import dataclass

from harness.http2 import PING, Answer, Connection, frame, headers, request

from .backend import Record, RecordingBackend
from .drive import OURS, SENTINEL, _same_fields
from .http2 import Fate, Row

PATIENCE_SECONDS = 3.0
# A stream that neither row uses.
LATER = 101


@dataclass
class Observed:
    answer: Answer
    ended: bool
    goaway: int | None
    record: Record

    def __str__(self) -> str:
        seen = ", ".join(f"{r.method[:20]} {r.target[:40]} +{len(r.body)}" for r in self.record.requests) or "nothing"
        return (
            f"status {self.answer.status}, reset {self.answer.reset}, {'ended' if self.ended else 'open'}, "
            f"goaway {self.goaway}, backend saw {seen} {self.record.ambiguous or ''}"
        )


def observe(port: int, backend: RecordingBackend, row: Row) -> Observed:
    """Runs a row, then a PING and one more request, so that what came of the row is known without waiting."""
    backend.take()
    client = Connection.to(port, PATIENCE_SECONDS, row.preface)
    with client:
        try:
            client.send(row.sent)
            if row.fate is not Fate.CONNECTION_ENDS:
                client.reading(lambda: client.answer(1).ended or client.answer(1).reset is not None, PATIENCE_SECONDS)
            if row.fate is not Fate.SERVED and not client.closed:
                # What has been answered by the time that a later request is, is answered; the rest was taken for good.
                client.send(frame(PING, 0, 0, b"sentinel"))
                if row.fate is not Fate.CONNECTION_ENDS:
                    client.send(headers(LATER, request(path=SENTINEL.encode())))
        except OSError:
            pass
        if row.fate is Fate.STREAM_ENDS:
            client.reading(lambda: client.answer(LATER).ended or client.goaway is not None, PATIENCE_SECONDS)
        elif row.fate is Fate.CONNECTION_ENDS:
            client.reading(lambda: client.closed or client.goaway is not None, PATIENCE_SECONDS)
    backend.settle()
    record = backend.take()
    sentinels = [request for request in record.requests if request.target == SENTINEL]
    record.requests = [request for request in record.requests if request.target != SENTINEL]
    record.begun -= len(sentinels)
    return Observed(client.answer(1), client.closed or client.goaway not in (None, 0), client.goaway, record)


def verdict(row: Row, observed: Observed) -> str | None:
    """`None` if it came as it has to, else why not."""
    if observed.record.ambiguous:
        return f"the backend got what can be read in two ways: {observed}"
    if row.fate is Fate.SERVED:
        return _served(row, observed)
    # Requests that are complete before the fault comes may be served; with one stream that is its own first request.
    harmless = row.sent.startswith(headers(1, request()))
    empty = row.by_length and [request.body for request in observed.record.requests] == [b""]
    if observed.record.requests and not (harmless or empty):
        return f"it reached the backend: {observed}"
    refused = observed.answer.reset is not None or (observed.answer.status or 0) >= 400
    if row.fate is Fate.STREAM_ENDS and not refused and not observed.ended:
        return f"neither the stream nor the connection ended: {observed}"
    if row.fate is Fate.CONNECTION_ENDS and not observed.ended:
        return f"the connection did not end: {observed}"
    return None


def _served(row: Row, observed: Observed) -> str | None:
    assert row.seen is not None, "a row that is served says what the backend sees"
    if observed.answer.status != 200 or len(observed.record.requests) != 1:
        return f"not served: {observed}"
    (got,) = observed.record.requests
    if (got.method, got.target, got.body) != (row.seen.method, row.seen.target, row.seen.body):
        return f"served as another request: {observed}"
    for name, _ in got.fields + got.trailers:
        if name not in OURS and name.encode() not in row.sent:
            return f"{name} was never sent"
    return _same_fields(row.seen.fields, got.fields) or _same_fields(row.seen.trailers, got.trailers)
