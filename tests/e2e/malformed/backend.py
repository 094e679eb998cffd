"""A backend that keeps the bytes it gets and reads them strictly: whoever sends it something ambiguous is found out."""

import re
import socket
import threading
import time
from dataclasses import dataclass, field

_START = re.compile(rb"[!#$%&'*+.^_`|~0-9A-Za-z-]+ [^\x00-\x20\x7f]+ HTTP/1\.[01]")
_FIELD = re.compile(rb"[!#$%&'*+.^_`|~0-9A-Za-z-]+:[^\x00-\x08\x0a-\x1f\x7f]*")


class Ambiguous(Exception):
    """Bytes that two readers could take for two different requests."""


@dataclass
class Received:
    """One whole request, with its bytes."""

    method: str
    target: str
    fields: list[tuple[str, str]]
    body: bytes
    trailers: list[tuple[str, str]]
    raw: bytes

    def all(self, name: str) -> list[str]:
        return [value for key, value in self.fields if key == name]


@dataclass
class Record:
    """What came since the last look: whole requests, how many began, and what could not be read."""

    requests: list[Received] = field(default_factory=list)
    begun: int = 0
    ambiguous: list[str] = field(default_factory=list)


class _Reader:
    def __init__(self, sock: socket.socket):
        self.sock = sock
        self.pending = b""
        self.taken = b""

    def fill(self) -> None:
        piece = self.sock.recv(1 << 16)
        if not piece:
            raise ConnectionError
        self.pending += piece

    def line(self) -> bytes:
        while b"\n" not in self.pending:
            self.fill()
        line, end, self.pending = self.pending.partition(b"\n")
        self.taken += line + end
        if not line.endswith(b"\r"):
            raise Ambiguous(f"line without CR: {line[:80]!r}")
        return line[:-1]

    def exactly(self, count: int) -> bytes:
        while len(self.pending) < count:
            self.fill()
        piece, self.pending = self.pending[:count], self.pending[count:]
        self.taken += piece
        return piece

    def fields(self) -> list[tuple[str, str]]:
        fields = []
        while line := self.line():
            if not _FIELD.fullmatch(line):
                raise Ambiguous(f"field line {line[:80]!r}")
            name, _, value = line.partition(b":")
            fields.append((name.decode("latin-1").lower(), value.strip(b" \t").decode("latin-1")))
        return fields

    def request(self) -> Received:
        self.taken = b""
        start = self.line()
        if not _START.fullmatch(start):
            raise Ambiguous(f"request line {start[:80]!r}")
        method, target, version = start.decode("latin-1").split(" ")
        fields = self.fields()
        lengths = [value for name, value in fields if name == "content-length"]
        codings = [value.lower() for name, value in fields if name == "transfer-encoding"]
        if len(lengths) + len(codings) > 1 or codings not in ([], ["chunked"]):
            raise Ambiguous(f"framing {lengths} {codings}")
        hosts = [name for name, _ in fields].count("host")
        if hosts > 1 or (hosts == 0 and version != "HTTP/1.0"):
            raise Ambiguous("not one host")
        body, trailers = b"", []
        if codings:
            while size := self.size():
                body += self.exactly(size)
                if self.line():
                    raise Ambiguous("chunk longer than its size")
            trailers = self.fields()
        elif lengths:
            if not re.fullmatch("[0-9]+", lengths[0]):
                raise Ambiguous(f"length {lengths[0]!r}")
            body = self.exactly(int(lengths[0]))
        return Received(method, target, fields, body, trailers, self.taken)

    def size(self) -> int:
        line = self.line()
        if not re.fullmatch(rb"[0-9A-Fa-f]{1,16}", line):
            raise Ambiguous(f"chunk size {line[:80]!r}")
        return int(line, 16)


class RecordingBackend:
    """Answers each whole request with 200 and `METHOD TARGET` as the body."""

    def __init__(self, port: int):
        self.port = port
        self.address = f"127.0.0.1:{port}"
        self._record = Record()
        self._lock = threading.Lock()
        self._listener = socket.create_server(("127.0.0.1", port), backlog=256)
        threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self) -> None:
        while True:
            try:
                sock, _ = self._listener.accept()
            except OSError:
                return
            threading.Thread(target=self._serve, args=(sock,), daemon=True).start()

    def _serve(self, sock: socket.socket) -> None:
        reader = _Reader(sock)
        try:
            while True:
                if not reader.pending:
                    reader.fill()
                with self._lock:
                    self._record.begun += 1
                request = reader.request()
                with self._lock:
                    self._record.requests.append(request)
                body = f"{request.method} {request.target}".encode("latin-1")
                length = len(body)
                sock.sendall(
                    b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % length + (b"" if request.method == "HEAD" else body)
                )
        except Ambiguous as problem:
            with self._lock:
                self._record.ambiguous.append(str(problem))
            sock.close()
        except OSError:
            sock.close()

    def take(self) -> Record:
        """What came since the last call."""
        with self._lock:
            record, self._record = self._record, Record()
        return record

    def settle(self) -> None:
        """Waits until a moment passes in which nothing comes."""
        before = -1
        while before != self._record.begun:
            before = self._record.begun
            time.sleep(0.005)

    def stop(self) -> None:
        self._listener.close()
