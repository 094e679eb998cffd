"""HTTP/1.1 byte by byte, both ends: what ordinary libraries hide is what these tests look at."""

import socket
import ssl
import threading
from collections.abc import Callable
from dataclasses import dataclass, field


@dataclass
class Message:
    """A request or response: start line, fields in order with their names as sent, body, trailers."""

    start: str
    fields: list[tuple[str, str]]
    body: bytes = b""
    trailers: list[tuple[str, str]] = field(default_factory=list)

    @property
    def status(self) -> int:
        return int(self.start.split()[1])

    def all(self, name: str) -> list[str]:
        return [value for key, value in self.fields if key.lower() == name.lower()]

    def get(self, name: str) -> str | None:
        values = self.all(name)
        return values[0] if values else None


class Closed(Exception):
    """The peer closed the connection where more was expected."""


class Connection:
    """A TCP connection with a reader for HTTP/1.1 messages."""

    def __init__(self, sock: socket.socket):
        self.sock = sock
        self._pending = b""

    @classmethod
    def to(cls, port: int, timeout: float = 10) -> "Connection":
        return cls(socket.create_connection(("127.0.0.1", port), timeout=timeout))

    @classmethod
    def secure(cls, port: int, context: ssl.SSLContext, name: str | None, timeout: float = 10) -> "Connection":
        """By TLS, to the server of this name (SNI)."""
        plain = socket.create_connection(("127.0.0.1", port), timeout=timeout)
        return cls(context.wrap_socket(plain, server_hostname=name))

    def __enter__(self) -> "Connection":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        self.sock.close()

    def send(self, data: bytes | str) -> None:
        self.sock.sendall(data.encode() if isinstance(data, str) else data)

    def request(
        self, target: str, method: str = "GET", fields: str = "", body: bytes = b"", host: str = "site.example"
    ) -> Message:
        """Sends one request and reads its response. `fields` are further lines, each ending in CRLF."""
        length = f"content-length: {len(body)}\r\n" if body else ""
        self.send(f"{method} {target} HTTP/1.1\r\nhost: {host}\r\n{length}{fields}\r\n".encode() + body)
        return self.read_response(method)

    def _fill(self) -> None:
        received = self.sock.recv(1 << 18)
        if not received:
            raise Closed(f"closed with {self._pending[:200]!r} pending")
        self._pending += received

    def read_line(self) -> str:
        while b"\r\n" not in self._pending:
            self._fill()
        line, _, self._pending = self._pending.partition(b"\r\n")
        return line.decode("latin-1")

    def read_exactly(self, count: int) -> bytes:
        pieces = []
        while count:
            if not self._pending:
                self._fill()
            piece, self._pending = self._pending[:count], self._pending[count:]
            pieces.append(piece)
            count -= len(piece)
        return b"".join(pieces)

    def _read_to_close(self) -> bytes:
        try:
            while True:
                self._fill()
        except Closed:
            body, self._pending = self._pending, b""
            return body

    def _read_fields(self) -> list[tuple[str, str]]:
        fields = []
        while line := self.read_line():
            name, _, value = line.partition(":")
            fields.append((name, value.strip()))
        return fields

    def read_head(self) -> Message:
        return Message(self.read_line(), self._read_fields())

    def read_chunk(self) -> bytes:
        """The data of the next chunk; empty for the last one, whose trailers are still to be read."""
        size = int(self.read_line().partition(";")[0], 16)
        if size == 0:
            return b""
        data = self.read_exactly(size)
        assert self.read_line() == "", "a chunk ends with CRLF"
        return data

    def read_body(self, message: Message, to_close: bool) -> None:
        """Reads the body and trailers that the head announces into the message."""
        if (message.get("transfer-encoding") or "").lower() == "chunked":
            while chunk := self.read_chunk():
                message.body += chunk
            message.trailers = self._read_fields()
        elif (length := message.get("content-length")) is not None:
            message.body = self.read_exactly(int(length))
        elif to_close:
            message.body = self._read_to_close()

    def read_response(self, method: str = "GET") -> Message:
        """The next final response; interim ones (1xx) are passed over."""
        message = self.read_head()
        while 100 <= message.status < 200:
            message = self.read_head()
        if method != "HEAD" and message.status not in (204, 304):
            self.read_body(message, to_close=True)
        return message

    def at_end(self) -> bool:
        """Whether the peer has closed, with nothing left to read."""
        try:
            return not self._pending and self.sock.recv(1) == b""
        except ConnectionError:
            return True


Handler = Callable[[Connection, Message], None]


class Origin:
    """An HTTP/1.1 server whose handler gets the connection and the head, and writes the answer's bytes itself.

    With a `context` it speaks TLS.
    """

    def __init__(self, handler: Handler, port: int, context: ssl.SSLContext | None = None):
        self._handler = handler
        self._context = context
        self.port = port
        self._open: list[socket.socket] = []
        self._listener = socket.create_server(("127.0.0.1", port), backlog=256)
        threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self) -> None:
        while True:
            try:
                sock, _ = self._listener.accept()
            except OSError:
                return
            self._open.append(sock)
            threading.Thread(target=self._serve, args=(sock,), daemon=True).start()

    def _serve(self, sock: socket.socket) -> None:
        connection = Connection(sock)
        try:
            if self._context is not None:
                connection.sock = self._context.wrap_socket(sock, server_side=True)
            while True:
                self._handler(connection, connection.read_head())
        except (Closed, OSError, ValueError):
            connection.close()

    def stop(self) -> None:
        self._listener.close()
        for sock in self._open:
            sock.close()


def answer(connection: Connection, body: bytes = b"ok", status: str = "200 OK", fields: str = "") -> None:
    """Writes a response with a length. `fields` are further lines, each ending in CRLF."""
    connection.send(f"HTTP/1.1 {status}\r\ncontent-length: {len(body)}\r\n{fields}\r\n".encode() + body)
