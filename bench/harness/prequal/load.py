"""Open-loop load through many proxies, with a record of each request.

A generator of its own, since percentiles over all proxies need the latencies of all of them in one place.
Each request goes to a proxy at random, so each proxy has independent arrivals. The latency runs from the
intended time of sending. A request without an answer in time counts as a failure, with that time as its
latency.
"""

import asyncio
import gc
import random
import re
import time
from collections import Counter, deque

TIMEOUT_S = 5.0
_TICK_S = 0.0005
_REQUEST = b"GET / HTTP/1.1\r\nhost: web\r\n\r\n"
_STATUS = re.compile(rb"HTTP/1\.1 (\d{3})")
_LENGTH = re.compile(rb"\r\ncontent-length: *(\d+)", re.IGNORECASE)
_BACKEND = re.compile(rb"\r\nx-backend: *(\S+)", re.IGNORECASE)


class Connection(asyncio.Protocol):
    """One HTTP/1.1 connection to a proxy; one request at a time."""

    def __init__(self, load: "Load", proxy: int):
        self.load, self.proxy = load, proxy
        self.buffer = b""
        self.meant_at: float | None = None
        self.transport: asyncio.Transport | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self.transport = transport

    def send(self, meant_at: float) -> None:
        assert self.transport is not None
        self.meant_at = meant_at
        self.load.pending.add(self)
        self.transport.write(_REQUEST)

    def data_received(self, data: bytes) -> None:
        self.buffer += data
        end = self.buffer.find(b"\r\n\r\n")
        if end < 0:
            return
        head = self.buffer[: end + 2]
        length = _LENGTH.search(head)
        if len(self.buffer) < end + 4 + (int(length[1]) if length else 0):
            return
        self.buffer = b""
        status, backend = _STATUS.match(head), _BACKEND.search(head)
        assert status is not None, head
        if status[1] == b"200":
            self.end("ok", backend[1].decode() if backend else "")
        else:
            self.end(f"status {status[1].decode()}")
        self.load.idle[self.proxy].append(self)

    def end(self, outcome: str, backend: str = "") -> None:
        if self.meant_at is not None:
            self.load.note(self.meant_at, outcome, backend)
            self.meant_at = None
            self.load.pending.discard(self)

    def connection_lost(self, error: Exception | None) -> None:
        self.end("closed")
        idle = self.load.idle[self.proxy]
        if self in idle:
            idle.remove(self)


class Load:
    """Requests that begin between two times count."""

    def __init__(self, ports: list[int], rate: float, seed: int):
        self.ports, self.rate = ports, rate
        self.rng = random.Random(seed)
        self.idle: list[deque[Connection]] = [deque() for _ in ports]
        self.pending: set[Connection] = set()
        self.counted = (0.0, 0.0)
        self.latencies: list[float] = []
        self.lags: list[float] = []
        self.outcomes: Counter[str] = Counter()
        self.backends: Counter[str] = Counter()
        self.connecting: set[asyncio.Task] = set()

    def note(self, meant_at: float, outcome: str, backend: str = "") -> None:
        if self.counted[0] <= meant_at < self.counted[1]:
            failed_at = TIMEOUT_S if outcome == "timeout" else 0.0
            self.latencies.append(max(time.monotonic() - meant_at, failed_at))
            self.outcomes[outcome] += 1
            if backend:
                self.backends[backend] += 1

    async def run(self, begin: float, end: float) -> None:
        """Sends from now until `end`, and counts from `begin` on, by the monotonic clock."""
        self.counted = (begin, end)
        due = swept = time.monotonic()
        while due < end:
            now = time.monotonic()
            while due <= now:
                self.send(due, now)
                due += self.rng.expovariate(self.rate)
            if now - swept > 0.1:
                swept = now
                self.sweep(now)
            await asyncio.sleep(max(due - time.monotonic(), _TICK_S))
        while self.pending or self.connecting:
            self.sweep(time.monotonic())
            await asyncio.sleep(0.01)

    def send(self, meant_at: float, now: float) -> None:
        proxy = self.rng.randrange(len(self.ports))
        if self.counted[0] <= meant_at < self.counted[1]:
            self.lags.append(now - meant_at)
        while self.idle[proxy]:
            connection = self.idle[proxy].pop()
            if connection.transport is not None and not connection.transport.is_closing():
                connection.send(meant_at)
                return
        task = asyncio.get_running_loop().create_task(self.connect(proxy, meant_at))
        self.connecting.add(task)
        task.add_done_callback(self.connecting.discard)

    async def connect(self, proxy: int, meant_at: float) -> None:
        loop = asyncio.get_running_loop()
        try:
            _, connection = await loop.create_connection(lambda: Connection(self, proxy), "127.0.0.1", self.ports[proxy])
        except OSError:
            self.note(meant_at, "connect")
            return
        connection.send(meant_at)

    def sweep(self, now: float) -> None:
        """Ends requests without a response in time."""
        for connection in list(self.pending):
            assert connection.meant_at is not None and connection.transport is not None
            if now - connection.meant_at > TIMEOUT_S:
                connection.end("timeout")
                connection.transport.abort()


def quantile(ordered: list[float], part: float) -> float:
    return ordered[min(int(part * len(ordered)), len(ordered) - 1)] if ordered else 0.0


def run(ports: list[int], rate: float, begin: float, end: float, seed: int) -> dict:
    """Counts and percentiles of the requests that were meant to be sent between `begin` and `end`."""
    gc.disable()
    load = Load(ports, rate, seed)
    asyncio.run(load.run(begin, end))
    latencies, lags = sorted(load.latencies), sorted(load.lags)
    return {
        "requests": len(latencies),
        "failed": sum(count for outcome, count in load.outcomes.items() if outcome != "ok"),
        "outcomes": dict(load.outcomes),
        "p50_ms": 1e3 * quantile(latencies, 0.5),
        "p99_ms": 1e3 * quantile(latencies, 0.99),
        "p99.9_ms": 1e3 * quantile(latencies, 0.999),
        "send_lag_p99_ms": 1e3 * quantile(lags, 0.99),
        "backends": dict(load.backends),
        "load_cpu_s": time.process_time(),
    }
