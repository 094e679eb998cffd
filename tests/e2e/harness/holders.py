"""Attackers that hold what a proxy has for all of its clients, at next to no cost: `python -m harness.holders ATTACK PORT SECONDS`.

All of an attack comes from one address, `127.0.0.2`. A connection or stream that the proxy ends is made again after half a
second. When everything has been sent once, `holding` is printed.
"""

import asyncio
import contextlib
import pathlib
import socket
import sys
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from . import http2
from .process import Process

ADDRESS = "127.0.0.2"
CONNECTIONS = 200
HTTP2_CONNECTIONS = 2
STREAMS = 100
PAUSE_SECONDS = 0.5
# What a read takes at a time where an answer is read slowly, each second.
READ_BYTES = 600
# What a stream of `trickling_streams` sends at a time: just above the rate at which the proxy ends bodies by default.
TRICKLE_BYTES, TRICKLE_SECONDS = 2_400, 10.0
_SMALL_BUFFER = 4_096
_HOST = b"host: site.example\r\n"


async def _connect(port: int, receive_buffer: int = 0) -> socket.socket:
    sock = socket.socket()
    sock.setblocking(False)
    if receive_buffer:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_buffer)
    sock.bind((ADDRESS, 0))
    await asyncio.get_running_loop().sock_connect(sock, ("127.0.0.1", port))
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return sock


class Attack:
    """One attack under way."""

    def __init__(self, port: int, holders: int):
        self.port = port
        self._begun = asyncio.Semaphore(0)
        self._holders = holders

    def begun(self) -> None:
        """One holder has sent all that it sends at first."""
        self._begun.release()

    async def all_begun(self) -> None:
        for _ in range(self._holders):
            await self._begun.acquire()


Hold = Callable[[Attack], Awaitable[None]]


async def _send_and_wait(attack: Attack, data: bytes) -> None:
    """Sends `data` on a connection and waits for its end, whatever is answered."""
    loop = asyncio.get_running_loop()
    with contextlib.closing(await _connect(attack.port)) as sock:
        await loop.sock_sendall(sock, data)
        attack.begun()
        while await loop.sock_recv(sock, 1 << 16):
            pass


async def endless_chunks(attack: Attack) -> None:
    """A chunked body: one chunk, then silence."""
    await _send_and_wait(attack, b"POST / HTTP/1.1\r\n" + _HOST + b"transfer-encoding: chunked\r\n\r\n1\r\na\r\n")


async def unfinished_body(attack: Attack) -> None:
    """A body of a known length: the first 16 KiB of it, then silence."""
    await _send_and_wait(attack, b"POST / HTTP/1.1\r\n" + _HOST + b"content-length: 1000000\r\n\r\n" + bytes(16_384))


async def slow_reader(attack: Attack) -> None:
    """A response of 10 MB, read at 600 bytes a second."""
    loop = asyncio.get_running_loop()
    with contextlib.closing(await _connect(attack.port, _SMALL_BUFFER)) as sock:
        await loop.sock_sendall(sock, b"GET /big HTTP/1.1\r\n" + _HOST + b"\r\n")
        attack.begun()
        while await loop.sock_recv(sock, READ_BYTES):
            await asyncio.sleep(1)


async def idle_websocket(attack: Attack) -> None:
    """An upgrade, and nothing after it."""
    key = b"sec-websocket-version: 13\r\nsec-websocket-key: AAAAAAAAAAAAAAAAAAAAAA==\r\n"
    await _send_and_wait(
        attack, b"GET /ws HTTP/1.1\r\n" + _HOST + b"connection: upgrade\r\nupgrade: websocket\r\n" + key + b"\r\n"
    )


async def slow_head(attack: Attack) -> None:
    """A request whose head never ends."""
    await _send_and_wait(attack, b"GET / HTTP/1.1\r\n" + _HOST)


async def idle_connection(attack: Attack) -> None:
    """A request, and nothing after its response."""
    await _send_and_wait(attack, b"GET / HTTP/1.1\r\n" + _HOST + b"\r\n")


async def _streams(attack: Attack, trickle: bool) -> None:
    """As many open streams as the peer allows, `STREAMS` at most; one that ends is replaced after the pause."""
    loop = asyncio.get_running_loop()
    with contextlib.closing(await _connect(attack.port)) as sock:
        await loop.sock_sendall(sock, http2.PREFACE + http2.settings())
        is_over = asyncio.Event()
        open_streams: set[int] = set()
        made = 0

        async def keep_open() -> None:
            nonlocal made
            while not is_over.is_set():
                missing = range(STREAMS - len(open_streams))
                fresh = [2 * (made + at) + 1 for at in missing]
                made += len(fresh)
                open_streams.update(fresh)
                start = http2.request(b"POST")
                frames = (http2.headers(each, start, end=False) + http2.frame(http2.DATA, 0, each, b"a") for each in fresh)
                await loop.sock_sendall(sock, b"".join(frames))
                if fresh and made == len(fresh):
                    attack.begun()
                await asyncio.sleep(PAUSE_SECONDS)

        async def keep_sending() -> None:
            while trickle and not is_over.is_set():
                await asyncio.sleep(TRICKLE_SECONDS)
                body = bytes(TRICKLE_BYTES)
                for each in sorted(open_streams):
                    # The proxy gives a window of 64 KiB at least to begin with, and more as it reads.
                    await loop.sock_sendall(sock, http2.frame(http2.DATA, 0, each, body))

        tasks = [asyncio.create_task(keep_open()), asyncio.create_task(keep_sending())]
        try:
            pending = b""
            while received := await loop.sock_recv(sock, 1 << 16):
                pending += received
                while len(pending) >= 9 and len(pending) >= (size := 9 + int.from_bytes(pending[:3])):
                    kind, flags, stream = pending[3], pending[4], int.from_bytes(pending[5:9]) & 0x7FFFFFFF
                    payload, pending = pending[9:size], pending[size:]
                    is_end = kind in (http2.HEADERS, http2.DATA) and flags & http2.END_STREAM
                    if kind == http2.SETTINGS and not flags & http2.ACK:
                        await loop.sock_sendall(sock, http2.frame(http2.SETTINGS, http2.ACK, 0))
                    elif kind == http2.PING and not flags & http2.ACK:
                        await loop.sock_sendall(sock, http2.frame(http2.PING, http2.ACK, 0, payload))
                    elif kind == http2.GOAWAY:
                        return
                    elif kind == http2.RST_STREAM or is_end:
                        open_streams.discard(stream)
        finally:
            is_over.set()
            for task in tasks:
                task.cancel()


async def silent_streams(attack: Attack) -> None:
    """HTTP/2 streams with a `POST` without length: one byte each, then silence."""
    await _streams(attack, trickle=False)


async def trickling_streams(attack: Attack) -> None:
    """The same, with 2.4 kB a stream every 10 s."""
    await _streams(attack, trickle=True)


@dataclass(frozen=True)
class Kind:
    """How an attack is made."""

    hold: Hold
    connections: int
    is_http2: bool = False

    @property
    def says(self) -> str:
        return (self.hold.__doc__ or "").strip()


# The six that take slots at backends.
SLOT_ATTACKS: dict[str, Kind] = {
    "silent_streams": Kind(silent_streams, HTTP2_CONNECTIONS, is_http2=True),
    "trickling_streams": Kind(trickling_streams, HTTP2_CONNECTIONS, is_http2=True),
    "endless_chunks": Kind(endless_chunks, CONNECTIONS),
    "unfinished_body": Kind(unfinished_body, CONNECTIONS),
    "slow_reader": Kind(slow_reader, CONNECTIONS),
    "idle_websocket": Kind(idle_websocket, CONNECTIONS),
}
ATTACKS: dict[str, Kind] = {
    **SLOT_ATTACKS,
    "slow_head": Kind(slow_head, CONNECTIONS),
    "idle_connection": Kind(idle_connection, CONNECTIONS),
}


async def _again_and_again(attack: Attack, hold: Hold) -> None:
    while True:
        with contextlib.suppress(OSError):
            await hold(attack)
        await asyncio.sleep(PAUSE_SECONDS)


async def run(name: str, port: int, seconds: float) -> None:
    kind = ATTACKS[name]
    deadline = time.monotonic() + seconds
    attack = Attack(port, kind.connections)
    tasks = [asyncio.create_task(_again_and_again(attack, kind.hold)) for _ in range(kind.connections)]
    with contextlib.suppress(TimeoutError):
        await asyncio.wait_for(attack.all_begun(), seconds)
        print("holding", flush=True)
        await asyncio.sleep(max(0.0, deadline - time.monotonic()))
    for task in tasks:
        task.cancel()


def command(module: str, *arguments: str) -> list[str]:
    """A module of this package as a program."""
    root = pathlib.Path(__file__).resolve().parents[1]
    return ["env", f"PYTHONPATH={root}", "PYTHONDONTWRITEBYTECODE=1", sys.executable, "-m", f"harness.{module}", *arguments]


class Holders(Process):
    """An attack in the background, for `seconds`."""

    def __init__(self, attack: str, port: int, seconds: float, directory: pathlib.Path, name: str = ""):
        super().__init__(name or f"holders-{attack}", command("holders", attack, str(port), str(seconds)), directory)

    def holds(self) -> bool:
        """Whether all that it holds was asked for."""
        return "holding" in self.output()


if __name__ == "__main__":
    asyncio.run(run(sys.argv[1], int(sys.argv[2]), float(sys.argv[3])))
