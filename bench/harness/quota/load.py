"""Open-loop load of the customers, directly to the backends, with a record of each request.

A generator of its own, since `plimsoll load` counts a whole run, and the use over any ten seconds needs the
time of each cost. It reads the cost of a request from the response.
"""

import asyncio
import random
import re
import time
from collections import deque
from dataclasses import dataclass

from .fleet import CUSTOMERS, parts

CRITICALITIES = {"critical-plus": 10, "critical": 15, "sheddable-plus": 25, "sheddable": 50}
TIMEOUT_S = 5.0
_TICK_S = 0.001
_STATUS = re.compile(rb"HTTP/1\.1 (\d{3})")
_LENGTH = re.compile(rb"\r\ncontent-length: *(\d+)", re.IGNORECASE)
_COST = re.compile(rb"\r\nx-plimsoll-cost-us: *(\d+)", re.IGNORECASE)
_REASON = re.compile(rb"\r\nx-plimsoll-shed: *reason=([a-z-]+)", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class Ended:
    """A request: the time of its end, its outcome (`ok`, `shed: REASON`, or a failure), its CPU seconds."""

    at: float
    customer: int
    criticality: int
    outcome: str
    cost: float


class Connection(asyncio.Protocol):
    """One HTTP/1.1 connection to a backend; one request at a time."""

    def __init__(self, load: "Load", backend: int):
        self.load, self.backend = load, backend
        self.buffer = b""
        self.request: tuple[int, int, float] | None = None
        self.transport: asyncio.Transport | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self.transport = transport

    def send(self, customer: int, criticality: int) -> None:
        assert self.transport is not None
        self.request = (customer, criticality, time.monotonic())
        self.load.pending.add(self)
        self.transport.write(self.load.messages[customer][criticality])

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
        status = _STATUS.match(head)
        assert status is not None and self.request is not None, head
        cost, reason = _COST.search(head), _REASON.search(head)
        if status[1] == b"200":
            self.end("ok", int(cost[1]) / 1e6 if cost else 0.0)
        else:
            self.end(f"shed: {reason[1].decode()}" if reason else f"status {status[1].decode()}", 0.0)
        self.load.idle[self.backend].append(self)

    def end(self, outcome: str, cost: float) -> None:
        if self.request is not None:
            customer, criticality, _ = self.request
            self.load.ended.append(Ended(time.monotonic(), customer, criticality, outcome, cost))
            self.request = None
            self.load.pending.discard(self)

    def connection_lost(self, error: Exception | None) -> None:
        self.end("closed", 0.0)
        idle = self.load.idle[self.backend]
        if self in idle:
            idle.remove(self)


class Load:
    """Requests of all customers, at rates that may change while it runs."""

    def __init__(self, ports: list[int], seed: int):
        self.ports = ports
        self.rates = [0.0] * len(CUSTOMERS)
        self.ended: list[Ended] = []
        self.idle: list[deque[Connection]] = [deque() for _ in ports]
        self.pending: set[Connection] = set()
        self.late = 0.0
        self.rng = random.Random(seed)
        self.names = list(CRITICALITIES)
        self.messages = [
            [
                f"GET / HTTP/1.1\r\nhost: fleet\r\nx-customer: {customer.name}\r\nx-criticality: {name}\r\n\r\n".encode()
                for name in self.names
            ]
            for customer in CUSTOMERS
        ]

    async def run(self) -> None:
        """Sends until it is cancelled."""
        due = time.monotonic()
        swept = due
        while True:
            now = time.monotonic()
            self.late = max(self.late, now - due)
            while due <= now:
                self.send()
                due += self.rng.expovariate(sum(self.rates))
            if now - swept > 1:
                swept = now
                self.sweep(now)
            await asyncio.sleep(max(due - time.monotonic(), _TICK_S))

    def send(self) -> None:
        (customer,) = self.rng.choices(range(len(CUSTOMERS)), self.rates)
        (criticality,) = self.rng.choices(range(len(self.names)), list(CRITICALITIES.values()))
        (backend,) = self.rng.choices(range(len(self.ports)), parts(customer))
        while self.idle[backend]:
            connection = self.idle[backend].pop()
            if connection.transport is not None and not connection.transport.is_closing():
                connection.send(customer, criticality)
                return
        asyncio.get_running_loop().create_task(self.connect(backend, customer, criticality))

    async def connect(self, backend: int, customer: int, criticality: int) -> None:
        loop = asyncio.get_running_loop()
        try:
            _, connection = await loop.create_connection(lambda: Connection(self, backend), "127.0.0.1", self.ports[backend])
        except OSError:
            self.ended.append(Ended(time.monotonic(), customer, criticality, "connect", 0.0))
            return
        connection.send(customer, criticality)

    def sweep(self, now: float) -> None:
        """Ends requests without a response in time."""
        for connection in list(self.pending):
            assert connection.request is not None and connection.transport is not None
            if now - connection.request[2] > TIMEOUT_S:
                connection.end("timeout", 0.0)
                connection.transport.abort()
