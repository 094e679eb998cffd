"""A client of probes by UDP, written from docs/probes.md alone."""

import contextlib
import hmac
import os
import socket
import struct
from collections.abc import Iterator
from dataclasses import dataclass

QUERY, ANSWER, NOTICE = 1, 2, 3
STARTING, HEALTHY, LAME_DUCK, NO_SUCH_PORT, OTHER_VERSION = 1, 2, 3, 4, 255
ACKNOWLEDGES, HAS_LOAD = 1, 2
UNKNOWN = 0xFFFFFFFF
_HEAD = struct.Struct("!3sBBBBBQQHHIQIIfffI")


@dataclass(frozen=True)
class Datagram:
    kind: int
    flags: int
    state: int
    nonce: int
    instance: int
    port: int
    lease: int
    number: int
    cookie: int
    in_flight: int
    utilization: float


class ProbeClient:
    """Asks the responder at one address. `key`: its id and its bytes. `source`: the client's own address."""

    def __init__(self, host: str, port: int, key: tuple[int, bytes] = (0, b""), source: str = "") -> None:
        self._socket = socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET, socket.SOCK_DGRAM)
        self._socket.bind((source, 0))
        self._socket.connect((host, port))
        self._port, self._key, self._instance = port, key, int.from_bytes(os.urandom(8)) | 1
        self.cookie = 0

    def close(self) -> None:
        self._socket.close()

    def send(self, *, nonce: int, flags: int = 0, lease: int = 0, number: int = 0, port: int | None = None) -> None:
        head = (b"\x0fPL", 1, QUERY, flags, self._key[0], 0, nonce, self._instance, port or self._port)
        content = _HEAD.pack(*head, lease, number, self.cookie, 0, 0, 0.0, 0.0, 0.0, 0)
        self.send_bytes(content + self._mac(content))

    def send_bytes(self, datagram: bytes) -> None:
        self._socket.send(datagram)

    def receive(self, timeout: float = 10) -> Datagram:
        """The next datagram. Raises TimeoutError, and ConnectionRefusedError when the port is closed."""
        self._socket.settimeout(timeout)
        datagram = self._socket.recv(2048)
        assert len(datagram) == 80, "no longer than a query"
        content, mac = datagram[:-16], datagram[-16:]
        assert hmac.compare_digest(mac, self._mac(content))
        magic, version, kind, flags, key_id, state, nonce, instance, port, lease, number, cookie, *load = (
            _HEAD.unpack(content)
        )
        in_flight, _, utilization, _, _, _ = load
        assert (magic, version, key_id) == (b"\x0fPL", 1, self._key[0])
        return Datagram(kind, flags, state, nonce, instance, port, lease, number, cookie, in_flight, utilization)

    def ask(self, nonce: int, lease: int = 0, port: int | None = None, round_trip_us: int = 0) -> Datagram:
        self.send(nonce=nonce, lease=lease, port=port, number=round_trip_us)
        answer = self.receive()
        assert (answer.kind, answer.nonce) == (ANSWER, nonce)
        self.cookie = answer.cookie
        return answer

    def ask_after_notices(self, nonce: int) -> Datagram:
        """Asks, and skips the notices that were on their way before an acknowledgement."""
        self.send(nonce=nonce)
        answer = self.receive()
        while answer.kind == NOTICE:
            answer = self.receive()
        return answer

    def acknowledge(self, notice: Datagram) -> None:
        self.send(nonce=notice.nonce, flags=ACKNOWLEDGES, number=notice.number)

    def _mac(self, content: bytes) -> bytes:
        key_id, secret = self._key
        return hmac.digest(secret, content, "sha256")[:16] if key_id else bytes(16)


@contextlib.contextmanager
def client(port: int, key: tuple[int, bytes] = (0, b""), source: str = "") -> Iterator[ProbeClient]:
    """A client of the responder at a port of loopback."""
    client = ProbeClient("127.0.0.1", port, key, source)
    try:
        yield client
    finally:
        client.close()
