"""One row of the table: the bytes, and what may come of them."""

from dataclasses import dataclass, field

Fields = dict[str, str | None]


@dataclass(frozen=True)
class Seen:
    """A request as the backend has to see it. `fields` are those that matter, `None` for one that must not be there."""

    method: str
    target: str
    body: bytes = b""
    fields: Fields = field(default_factory=dict)
    trailers: Fields = field(default_factory=dict)


@dataclass(frozen=True)
class Outcome:
    """What may come of a row: an allowed set of statuses per answer, the end of the connection, what the backend saw.

    `ends` is `None` where it does not matter. With `begun` the backend may see the beginning of a request that never
    becomes whole: a body that turns out to be malformed when its head is long passed on.
    """

    answers: tuple[tuple[int, ...], ...]
    ends: bool | None
    seen: tuple[Seen, ...] = ()
    begun: bool = False


@dataclass(frozen=True)
class Row:
    """`half_close`: the client closes its side after the last byte."""

    name: str
    sent: bytes
    section: str
    outcomes: tuple[Outcome, ...]
    half_close: bool = False


def refused(*statuses: int) -> Outcome:
    """One answer of these (400 if none is named), the connection's end, and nothing at the backend."""
    return Outcome((statuses or (400,),), ends=True)


def refused_open(*statuses: int) -> Outcome:
    """A well-formed request that is refused: the connection may stay."""
    return Outcome((statuses,), ends=None)


def broken_body(*statuses: int) -> Outcome:
    """As `refused`, but the head may have gone on before the body showed what it is."""
    return Outcome((statuses or (400,),), ends=True, begun=True)


def silence() -> Outcome:
    """The connection ends without an answer."""
    return Outcome((), ends=True, begun=True)


def passed(
    method: str = "GET",
    target: str = "/",
    body: bytes = b"",
    ends: bool | None = False,
    trailers: Fields | None = None,
    **fields: str | None,
) -> Outcome:
    """Reaches the backend once, in this shape, and is answered with 200. Underscores in names of fields are hyphens."""
    named = {name.replace("_", "-"): value for name, value in fields.items()}
    return Outcome(((200,),), ends, (Seen(method, target, body, named, trailers or {}),))


def in_turn(*outcomes: Outcome) -> Outcome:
    """Several requests on one connection: what each comes to, one after the other."""
    return Outcome(
        tuple(answer for outcome in outcomes for answer in outcome.answers),
        outcomes[-1].ends,
        tuple(seen for outcome in outcomes for seen in outcome.seen),
        any(outcome.begun for outcome in outcomes),
    )


def row(name: str, sent: bytes, section: str, *outcomes: Outcome, half_close: bool = False) -> Row:
    return Row(name, sent, section, outcomes, half_close)


HOST = b"Host: site.example"


def message(*lines: bytes, body: bytes = b"") -> bytes:
    """Lines joined by CRLF, the empty line, the body."""
    return b"\r\n".join(lines) + b"\r\n\r\n" + body


def get(*lines: bytes, body: bytes = b"") -> bytes:
    """`GET /` with a host and these further lines."""
    return message(b"GET / HTTP/1.1", HOST, *lines, body=body)


def post(*lines: bytes, body: bytes = b"") -> bytes:
    """`POST /` with a host and these further lines."""
    return message(b"POST / HTTP/1.1", HOST, *lines, body=body)
