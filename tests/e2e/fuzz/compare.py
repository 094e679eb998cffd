"""Whether a message that was sent explains a message that was received."""

import hashlib
from collections import Counter

from .message import Fields, Reading, Request, Response

# What a proxy may add, or write anew for its own connection.
ADDED_TO_REQUESTS = {
    *(b"connection", b"content-length", b"expect", b"forwarded", b"host", b"te", b"transfer-encoding", b"upgrade", b"via"),
    *(b"x-forwarded-for", b"x-forwarded-host", b"x-forwarded-port", b"x-forwarded-proto", b"x-request-id", b"x-criticality"),
}
ADDED_TO_RESPONSES = {
    *(b"connection", b"content-length", b"date", b"keep-alive", b"transfer-encoding", b"via"),
}
# Fields of the answers that the proxy gives itself.
OWN = ADDED_TO_RESPONSES | {b"allow", b"content-type", b"grpc-message", b"grpc-status", b"retry-after", b"x-plimsoll-shed", b"x-request-id"}
ECHO = b"x-echo"


def echo(request: Request, body: bytes | None = None) -> bytes:
    """What a backend answers to this request: nothing else has the same answer."""
    parts = [request.method, request.target, request.body if body is None else body]
    return hashlib.sha1(b"\x00".join(parts)).hexdigest()[:16].encode()


def _among(got: Fields, sent: Fields, added: set[bytes]) -> str | None:
    """The first field that was not sent."""
    left = Counter(sent)
    # HTTP/2 may send a cookie in pieces, which are one field elsewhere (RFC 9113, 8.2.3).
    cookies = b"; ".join(value for name, value in sent if name == b"cookie")
    for item in got:
        if item[0] in added or item == (b"cookie", cookies):
            continue
        if not left[item]:
            return f"{item[0][:40]!r}: {item[1][:60]!r} was not sent"
        left[item] -= 1
    return None


def request_problem(sent: Request, seen: Request) -> str | None:
    """Why the request that a backend saw is not this one; `None` if it is, whole or in part."""
    if (sent.method, sent.target) != (seen.method, seen.target):
        return "another request"
    if sent.host is not None and sent.host != seen.host:
        return f"host {seen.host!r} instead of {sent.host!r}"
    body = sent.body
    if seen.complete and not sent.complete:
        # A body of known length is whole when that much has come (HTTP/2: even before END_STREAM).
        if sent.length is None or len(body) < sent.length:
            return "a request that never became complete"
        body = body[: sent.length]
    if seen.body != body if seen.complete else not body.startswith(seen.body):
        return f"body {seen.body[:60]!r} instead of {body[:60]!r}"
    problem = _among(seen.fields, sent.fields, ADDED_TO_REQUESTS)
    return problem or _among(seen.trailers, sent.trailers, set())


def is_own(got: Response) -> bool:
    """Whether the proxy may have given this answer itself."""
    return got.status >= 400 and all(name in OWN for name, _ in got.fields) or _is_own_grpc(got)


def _is_own_grpc(got: Response) -> bool:
    return got.get(b"grpc-status") not in (None, b"0") and not got.body and all(name in OWN for name, _ in got.fields)


def response_problem(sent: Response | None, got: Response, bodiless: bool) -> str | None:
    """Why a client's response is not the one that a backend sent; `None` if it is, whole or in part. `bodiless`: the client can
    see no body, so that the response is whole with its head."""
    if sent is None:
        return "the backend sent no response that can be read"
    if sent.status != got.status:
        return f"status {got.status} instead of {sent.status}"
    body = b"" if bodiless else sent.body
    if got.complete and not sent.complete and not bodiless:
        # A body of known length is whole when that much has come (HTTP/2: even before END_STREAM).
        length = sent.get(b"content-length")
        if length is None or len(body) < int(length):
            return "a truncated response looks complete"
        body = body[: int(length)]
    if got.body != body if got.complete else not body.startswith(got.body):
        return f"body {got.body[:60]!r} instead of {body[:60]!r}"
    problem = _among(got.fields, sent.fields, ADDED_TO_RESPONSES) or _among(got.trailers, sent.trailers, set())
    if problem:
        return problem
    interim = iter(sent.interim)
    for status, fields in got.interim:
        if status == 100 and not fields:
            continue
        if not any(status == other and _among(fields, of_other, ADDED_TO_RESPONSES) is None for other, of_other in interim):
            return f"an interim response {status} that was not sent"
    return None


def disagreement(ours: Reading, theirs: Reading, what: str) -> str | None:
    """In what two parsers differ on the same bytes."""
    for number, (one, other) in enumerate(zip(ours.messages, theirs.messages, strict=False)):
        if _plain(one) != _plain(other):
            return f"{what} {number}: {_plain(one)} or {_plain(other)}"
    if len(ours.messages) != len(theirs.messages):
        return f"{len(ours.messages)} or {len(theirs.messages)} {what}s (faults: {ours.fault!r}, {theirs.fault!r})"
    return None


def _plain(message: Request | Response) -> tuple:
    """Without the order of fields of different names, which means nothing (RFC 9110, 5.3), and with cookies in one piece."""
    start = (message.method, message.target) if isinstance(message, Request) else (message.status,)
    fields = [field for field in message.fields if field[0] != b"cookie"]
    cookies = b"; ".join(value for name, value in message.fields if name == b"cookie")
    return (*start, sorted(fields, key=lambda field: field[0]), cookies, message.body, message.trailers)
