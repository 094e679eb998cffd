"""Backends that tell which of them was asked, and for what; and an nginx that routes to them."""

import json
from dataclasses import dataclass

from .fleet import Fleet
from .http1 import Connection, Message, answer
from .http2 import Connection as Http2
from .process import free_port

# Fields of a backend's response, beside its body.
SERVED_BY = "server: origin/1.0\r\nx-powered-by: origin\r\nset-cookie: origin=1\r\n"


@dataclass
class Seen:
    """A request as a backend got it, and the response as the client got it."""

    status: int
    fields: list[tuple[str, str]]
    body: bytes
    # Of the backend; empty for an answer of the proxy.
    backend: str
    target: str
    asked: list[tuple[str, str]]

    def get(self, name: str) -> str | None:
        """A field of the response."""
        return next(iter(self.all(name)), None)

    def all(self, name: str) -> list[str]:
        return [value for key, value in self.fields if key.lower() == name]

    def sent(self, name: str) -> list[str]:
        """The values of a field in the request at the backend."""
        return [value for key, value in self.asked if key.lower() == name]


def echo(fleet: Fleet, name: str) -> str:
    """A backend with this name. Returns its address."""

    def handle(connection: Connection, message: Message) -> None:
        told = {"backend": name, "target": message.start.split()[1], "fields": message.fields}
        answer(connection, json.dumps(told).encode(), fields=SERVED_BY)

    return fleet.origin(handle)


def _seen(status: int | None, fields: list[tuple[str, str]], body: bytes) -> Seen:
    told = json.loads(body) if body.startswith(b"{") else {"backend": "", "target": "", "fields": []}
    return Seen(status or 0, fields, body, told["backend"], told["target"], [(name, value) for name, value in told["fields"]])


def ask(port: int, target: str, method: str = "GET", fields: str = "", host: str = "site.example") -> Seen:
    """One request on HTTP/1. `fields` are lines, each ending in CRLF."""
    with Connection.to(port) as client:
        got = client.request(target, method, fields, host=host)
        return _seen(got.status, got.fields, got.body)


def ask_http2(port: int, target: str, method: str = "GET", fields: str = "", host: str = "site.example") -> Seen:
    """The same on HTTP/2."""
    pairs = [line.split(": ", 1) for line in fields.split("\r\n") if line]
    block = [
        (b":method", method.encode()),
        (b":scheme", b"http"),
        (b":authority", host.encode()),
        (b":path", target.encode()),
        *((name.lower().encode(), value.encode()) for name, value in pairs),
    ]
    with Http2.to(port) as client:
        got = client.fetch(1, block)
        return _seen(got.status, got.fields, got.body)


def nginx(fleet: Fleet, http: str, locations: str) -> tuple[int, int]:
    """An nginx with these lines of its `http` and of its server. Returns its ports for HTTP/1 and HTTP/2."""
    ports = free_port(), free_port()
    server = f"server {{ listen 127.0.0.1:{ports[0]}; listen 127.0.0.1:{ports[1]} http2; {locations} }}"
    fleet.nginx_with("router", http + server, *ports)
    return ports
