"""Requests and responses as a parser read them."""

from dataclasses import dataclass, field

Fields = list[tuple[bytes, bytes]]


class Malformed(Exception):
    """Bytes that are no message, or that have more than one reading."""


@dataclass
class Request:
    """A request. Names of fields are in lower case, values without blanks around them."""

    method: bytes
    target: bytes
    """In origin form, or `*`."""
    host: bytes | None
    """From the target if that is absolute; `None` in HTTP/1.0 without a host."""
    fields: Fields
    body: bytes = b""
    trailers: Fields = field(default_factory=list)
    complete: bool = False
    length: int | None = None
    """The announced length of the body."""

    def all(self, name: bytes) -> list[bytes]:
        return [value for key, value in self.fields if key == name]

    def key(self) -> tuple[bytes, bytes, bytes | None, bytes]:
        return (self.method, self.target, self.host, self.body)


@dataclass
class Response:
    """A response, with the interim ones before it."""

    status: int
    fields: Fields
    body: bytes = b""
    trailers: Fields = field(default_factory=list)
    complete: bool = False
    interim: list[tuple[int, Fields]] = field(default_factory=list)

    def get(self, name: bytes) -> bytes | None:
        return next((value for key, value in self.fields if key == name), None)


@dataclass
class Reading:
    """What a connection's bytes contain, in order; `partial` is a message that began and is not complete."""

    messages: list = field(default_factory=list)
    partial: Request | Response | None = None
    fault: str | None = None
    """Why nothing after the last message can be read."""
    rest: bytes = b""
    """Bytes after the last complete message."""


def short(data: bytes, most: int = 1500) -> str:
    """Bytes for a person."""
    return repr(bytes(data)) if len(data) <= most else f"{bytes(data[:most])!r}... ({len(data)} bytes)"
