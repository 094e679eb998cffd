"""A mixed load over a proxy while backends are restarted and killed, the configuration is reloaded, and clients are slow.

Every answer is checked: what comes with 200 has to be the right bytes, all of them. Errors are counted beside; a killed
backend takes with it what it had. Memory is watched from the end of the warm-up on.
"""

import contextlib
import hashlib
import pathlib
import random
import signal
import socket
import ssl
import statistics
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field

from websockets.exceptions import WebSocketException
from websockets.sync.client import connect
from websockets.sync.server import ServerConnection, serve

from . import http2
from .certificates import Authority
from .fleet import Fleet, Proxy
from .http1 import Closed, Connection
from .process import Process, free_port
from .soak_backend import made

BACKEND_PROGRAM = pathlib.Path(__file__).with_name("soak_backend.py")
BACKENDS = 4
SEED = 41
# Sizes of bodies: mostly small, some that fill every buffer on the way.
SIZES = (0, 1, 100, 1_000, 10_000, 100_000, 1_000_000)
SIZE_WEIGHTS = (5, 5, 40, 25, 15, 8, 2)
SECONDS_BETWEEN_EVENTS = 3.0
# Buffers grow to what the load needs in this part of a run; only later growth says something.
WARM_UP = 0.4


@dataclass
class Report:
    """What a run came to."""

    seconds: float
    right: Counter[str] = field(default_factory=Counter)
    errors: Counter[str] = field(default_factory=Counter)
    wrong: list[str] = field(default_factory=list)
    events: Counter[str] = field(default_factory=Counter)
    memory: list[tuple[float, int]] = field(default_factory=list)

    @property
    def error_share(self) -> float:
        failed = sum(self.errors.values())
        return failed / max(1, failed + sum(self.right.values()))

    @property
    def growth(self) -> tuple[float, float]:
        """Median memory in bytes in the first and in the last quarter of what comes after the warm-up, or as yet of all."""
        late = [held for at, held in self.memory if at > self.seconds * WARM_UP] or [held for _, held in self.memory]
        quarter = max(1, len(late) // 4)
        return statistics.median(late[:quarter]), statistics.median(late[-quarter:])

    def __str__(self) -> str:
        first, last = self.growth
        return (
            f"{self.seconds:.0f} s, right {dict(self.right)}, errors {dict(self.errors)} ({self.error_share:.2%}), "
            f"wrong {len(self.wrong)}, events {dict(self.events)}, memory {first / 2**20:.1f} -> {last / 2**20:.1f} MiB"
        )


def _echo(connection: ServerConnection) -> None:
    with contextlib.suppress(WebSocketException):
        for message in connection:
            connection.send(message)


class Soak:
    """`run` does it all; everything it starts ends with the fleet."""

    def __init__(self, fleet: Fleet, seconds: float):
        self.fleet = fleet
        self.seconds = seconds
        self.report = Report(seconds)
        self.over = threading.Event()
        self.random = random.Random(SEED)
        self.backends = [self._backend(free_port()) for _ in range(BACKENDS)]
        self.websockets = serve(_echo, "127.0.0.1", free_port())
        threading.Thread(target=self.websockets.serve_forever, daemon=True).start()
        self.authority = Authority(fleet.directory)
        self.certificate = self.authority.issue("site", "DNS:site.example")
        self.tls_port = free_port()
        self.proxy = self._proxy()

    def _backend(self, port: int) -> Process:
        backend = Process(f"soak-{port}", [sys.executable, str(BACKEND_PROGRAM), str(port)], self.fleet.directory)
        self.fleet.processes.append(backend)
        backend.wait_for_port(port)
        return backend

    def _proxy(self) -> Proxy:
        self.grpc = self.fleet.backend("--cost", "fixed:100us")
        proxy = self.fleet.proxy(
            [f"127.0.0.1:{backend.command[-1]}" for backend in self.backends],
            listener='header_read_timeout = "2s"\nidle_timeout = "5s"',
            cluster='policy = "least-loaded"',
            health='check = "http"\npath = "/ready"\ninterval = "250ms"\ntimeout = "250ms"',
            further=f"""
[[routes]]
path_prefix = "/plimsoll.backend.v1.Backend"
cluster = "grpc"

[clusters.grpc]
backends = ["{self.grpc.address}"]

[[routes]]
path_prefix = "/websocket"
cluster = "websockets"

[clusters.websockets]
backends = ["127.0.0.1:{self.websockets.socket.getsockname()[1]}"]

[[listeners]]
address = "127.0.0.1:{self.tls_port}"
[listeners.tls]
certificates = [{self.certificate.toml()}]
""",
        )
        proxy.admin.wait_for_healthy(BACKENDS, cluster="main")
        self.file = self.fleet.directory / "plimsoll-1.toml"
        return proxy

    # Clients. Each runs until the soak is over, and begins anew where a connection ended.

    def _until_over(self, kind: str, session: Callable[[random.Random], None], seed: int) -> None:
        drawn = random.Random(SEED + seed)
        while not self.over.is_set():
            try:
                session(drawn)
            except (Closed, http2.Closed, OSError, EOFError, WebSocketException) as problem:
                if not self.over.is_set():
                    self.report.errors[f"{kind}: {type(problem).__name__}"] += 1
                    self.over.wait(0.02)
            except (ValueError, IndexError, AssertionError) as problem:
                self.report.wrong.append(f"{kind}: {problem!r}")

    def _size(self, drawn: random.Random) -> int:
        return drawn.choices(SIZES, SIZE_WEIGHTS)[0]

    def _judge(self, kind: str, status: int, got: bytes, wanted: bytes) -> None:
        if status != 200:
            self.report.errors[f"{kind}: {status}"] += 1
        elif got != wanted:
            self.report.wrong.append(f"{kind}: {len(got)} bytes {got[:40]!r} instead of {len(wanted)} {wanted[:40]!r}")
        else:
            self.report.right[kind] += 1

    def _http1(self, drawn: random.Random, connection: Connection, kind: str) -> None:
        with connection as client:
            for _ in range(drawn.randint(1, 200)):
                if self.over.is_set():
                    return
                size, seed = self._size(drawn), drawn.randint(0, 1_000_000)
                if drawn.random() < 0.6:
                    response = client.request(f"/bytes/{seed}/{size}")
                    self._judge(kind, response.status, response.body, made(seed, size))
                else:
                    body = made(seed, size)
                    response = client.request("/sum", method="POST", body=body)
                    self._judge(kind, response.status, response.body, hashlib.sha256(body).hexdigest().encode())
                if (response.get("connection") or "").lower() == "close":
                    return

    def plain(self, drawn: random.Random) -> None:
        self._http1(drawn, Connection.to(self.proxy.port), "http1")

    def secure(self, drawn: random.Random) -> None:
        self._http1(drawn, Connection.secure(self.tls_port, self.authority.client_context(), "site.example"), "tls")

    def http2(self, drawn: random.Random) -> None:
        with http2.Connection.to(self.proxy.port) as client:
            for stream in range(1, 2 * drawn.randint(1, 200), 2):
                if self.over.is_set() or client.goaway is not None:
                    return
                size, seed = min(self._size(drawn), 50_000), drawn.randint(0, 1_000_000)
                if drawn.random() < 0.6:
                    answer, wanted = client.fetch(stream, http2.request(path=b"/bytes/%d/%d" % (seed, size))), made(seed, size)
                else:
                    body = made(seed, min(size, 10_000))
                    answer = client.fetch(stream, http2.request(b"POST", b"/sum"), body)
                    wanted = hashlib.sha256(body).hexdigest().encode()
                whole = answer.ended and answer.reset is None
                self._judge("http2", answer.status if whole and answer.status else 0, answer.body, wanted)
                if client.closed:
                    raise http2.Closed

    def websocket(self, drawn: random.Random) -> None:
        with connect(f"ws://127.0.0.1:{self.proxy.port}/websocket", max_size=None) as client:
            for _ in range(drawn.randint(1, 300)):
                if self.over.is_set():
                    return
                message = made(drawn.randint(0, 1_000_000), min(self._size(drawn), 100_000))
                client.send(message)
                self._judge("websocket", 200, bytes(client.recv(timeout=20)), message)

    def slow(self, drawn: random.Random) -> None:
        """One that dawdles: in its head, in its body, in reading; or goes away in the midst of it."""
        with Connection.to(self.proxy.port) as client:
            way = drawn.choice(("head", "body", "reading", "vanish", "nothing"))
            with contextlib.suppress(OSError, Closed, ssl.SSLError):
                if way == "head":
                    for byte in b"GET /bytes/1/1 HTTP/1.1\r\nx-a: ":
                        client.send(bytes([byte]))
                        self.over.wait(0.1)
                elif way == "body":
                    client.send("POST /sum HTTP/1.1\r\nhost: a\r\ncontent-length: 100000\r\n\r\n")
                    for _ in range(40):
                        client.send(b"x")
                        self.over.wait(0.1)
                elif way == "reading":
                    client.sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
                    client.send("GET /bytes/1/1000000 HTTP/1.1\r\nhost: a\r\n\r\n")
                    for _ in range(40):
                        client.sock.recv(100)
                        self.over.wait(0.1)
                elif way == "vanish":
                    client.send("GET /bytes/1/1000000 HTTP/1.1\r\nhost: a\r\n\r\n")
                    client.sock.recv(1000)
                    client.sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\x01\x00\x00\x00\x00\x00\x00\x00")
                else:
                    self.over.wait(3)
        self.report.events["slow clients"] += 1
        self.over.wait(0.05)

    # What befalls the fleet.

    def reload(self) -> None:
        policies = ("least-loaded", "round-robin", "p2c", "weighted")
        text = self.file.read_text()
        at = next(policy for policy in policies if f'policy = "{policy}"' in text)
        following = policies[(policies.index(at) + 1) % len(policies)]
        self.file.write_text(text.replace(f'policy = "{at}"', f'policy = "{following}"'))
        self.proxy.signal(signal.SIGHUP)

    def renew_certificate(self) -> None:
        self.authority.issue("site", "DNS:site.example")
        self.proxy.signal(signal.SIGHUP)

    def _again(self, number: int) -> None:
        port = int(self.backends[number].command[-1])
        self.backends[number] = self._backend(port)
        self.proxy.admin.wait_for_state(f"127.0.0.1:{port}", "healthy", 20, cluster="main")

    def restart(self) -> None:
        number = self.random.randrange(BACKENDS)
        self.backends[number].signal(signal.SIGTERM)
        self.backends[number].wait(10)
        self._again(number)

    def kill(self) -> None:
        number = self.random.randrange(BACKENDS)
        self.backends[number].kill()
        self.over.wait(0.5)
        self._again(number)

    def events(self) -> None:
        ways = (self.reload, self.restart, self.renew_certificate, self.kill)
        turn = 0
        while not self.over.wait(SECONDS_BETWEEN_EVENTS):
            event = ways[turn % len(ways)]
            turn += 1
            try:
                event()
                self.report.events[event.__name__] += 1
            except AssertionError as problem:
                if not self.over.is_set():
                    self.report.wrong.append(f"{event.__name__}: {problem}")

    def watch(self) -> None:
        began = time.monotonic()
        while not self.over.wait(0.25):
            self.report.memory.append((time.monotonic() - began, self.proxy.resident_bytes()))

    def run(self, progress: Callable[[Report], None] | None = None) -> Report:
        kinds = [self.plain] * 5 + [self.secure] * 2 + [self.http2] * 2 + [self.websocket] * 2 + [self.slow] * 20
        threads = [
            threading.Thread(target=self._until_over, args=(kind.__name__, kind, number), daemon=True)
            for number, kind in enumerate(kinds)
        ]
        threads += [threading.Thread(target=target, daemon=True) for target in (self.events, self.watch)]
        load = self.fleet.load(self.proxy.url, "--protocol", "grpc", "--rate", "100", "--duration", f"{int(self.seconds)}s")
        for thread in threads:
            thread.start()
        deadline = time.monotonic() + self.seconds
        while (left := deadline - time.monotonic()) > 0 and self.proxy.exit_code is None:
            time.sleep(min(left, 60.0))
            if progress is not None:
                progress(self.report)
        if self.proxy.exit_code is not None:
            self.report.wrong.append(f"the proxy ended with {self.proxy.exit_code}")
        counted = load.result(60)
        self.report.right["grpc"] += counted.requests - counted.failed
        told = {**counted.raw["failures"], **{f"status {code}": n for code, n in counted.raw["grpc_statuses"].items() if code != "0"}}
        for reason, count in told.items():
            self.report.errors[f"grpc: {reason}"] += count
        self.over.set()
        for thread in threads:
            thread.join(30)
        self.websockets.shutdown()
        return self.report


def verdict(report: Report) -> str | None:
    """What is wrong with a run, if anything is."""
    # Kills take with them what was in flight, and requests that were already on their way.
    errors_at_most = 0.02
    first, last = report.growth
    # Allocators keep pages back, and sizes are drawn at random.
    grown_at_most = max(8 * 2**20, first * 0.1)
    if report.wrong:
        return f"{len(report.wrong)} wrong, such as {report.wrong[:3]}"
    if report.error_share > errors_at_most:
        return f"{report.error_share:.1%} errors"
    if last - first > grown_at_most:
        return f"memory grew from {first / 2**20:.1f} to {last / 2**20:.1f} MiB"
    for kind in ("http1", "tls", "http2", "websocket", "grpc"):
        if not report.right[kind]:
            return f"nothing was served over {kind}"
    return None


def soak(directory: pathlib.Path, seconds: float, progress: Callable[[Report], None] | None = None) -> Report:
    fleet = Fleet(directory)
    try:
        return Soak(fleet, seconds).run(progress)
    finally:
        fleet.stop()
