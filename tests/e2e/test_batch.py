"""A listener for batch work: what many workers get, what backends see of them, and what users notice."""

import asyncio
import pathlib
import signal
import socket
import threading
import time
from collections.abc import Callable

import pytest

from harness.fleet import Fleet, Proxy, http
from harness.http1 import Connection, Message
from harness.process import free_port, wait_until

pytestmark = pytest.mark.alone

OVERLOADED = "HTTP/1.1 503 Service Unavailable\r\nx-plimsoll-shed: reason=overloaded, retry=elsewhere\r\ncontent-length: 0\r\n\r\n"
DONE = "HTTP/1.1 200 OK\r\ncontent-length: 4\r\n\r\ndone"
ESTABLISHED = "01"


def batch(port: int, settings: str = "") -> str:
    """A further listener, whose requests are batch work and go where all others go."""
    address = f'address = "127.0.0.1:{port}"\nname = "batch"\nmax_connections_per_client = "off"'
    return f"[[listeners]]\n{address}\n[listeners.batch]\n{settings}\n"


def gate(proxy: Proxy) -> dict:
    answer = proxy.admin.json("/api/v1/batch")
    assert isinstance(answer, dict)
    (listener,) = answer["listeners"]
    return listener


def queued(proxy: Proxy) -> int:
    return sum(gate(proxy)["queued"].values())


def connections_to(ports: set[int]) -> int:
    """Connections that are open to these ports of loopback, by their servers' ends."""
    lines = pathlib.Path("/proc/net/tcp").read_text().splitlines()[1:]
    ends = (line.split()[1:4] for line in lines)
    return sum(state == ESTABLISHED and int(local.rpartition(":")[2], 16) in ports for local, _remote, state in ends)


class Peak:
    """Looks at a number again and again, and remembers the highest."""

    def __init__(self, look: Callable[[], int]):
        self.highest = 0
        self._look = look
        self._done = threading.Event()
        self._thread = threading.Thread(target=self._watch)
        self._thread.start()

    def _watch(self) -> None:
        while not self._done.wait(0.02):
            self.highest = max(self.highest, self._look())

    def stop(self) -> int:
        self._done.set()
        self._thread.join()
        return self.highest


async def worker(port: int, requests: int, size: int) -> list[int]:
    """The statuses of so many requests, one after another on one connection."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    statuses = []
    for _ in range(requests):
        writer.write(f"POST /work HTTP/1.1\r\nhost: batch\r\ncontent-length: {size}\r\n\r\n".encode() + b"x" * size)
        head = (await reader.readuntil(b"\r\n\r\n")).decode().lower()
        statuses.append(int(head.split()[1]))
        await reader.readexactly(int(head.split("content-length: ")[1].split("\r\n")[0]))
    writer.close()
    return statuses


def job(port: int, workers: int, requests: int = 1, size: int = 100, seconds: float = 60) -> list[int]:
    """What all workers of a job are answered, who all begin at once."""

    async def run() -> list[int]:
        all_of_them = asyncio.gather(*(worker(port, requests, size) for _ in range(workers)))
        return [status for each in await asyncio.wait_for(all_of_them, seconds) for status in each]

    return asyncio.run(run())


class Job(threading.Thread):
    """A job in the background."""

    def __init__(self, port: int, workers: int, requests: int = 1, size: int = 100):
        super().__init__()
        self.statuses: list[int] = []
        self._what = lambda: job(port, workers, requests, size)
        self.start()

    def run(self) -> None:
        self.statuses = self._what()

    def answered(self, seconds: float = 60) -> list[int]:
        self.join(seconds)
        assert not self.is_alive(), "the job has not come to its end"
        return self.statuses


def test_a_job_many_times_too_large_is_done_over_few_connections_and_users_are_served(fleet: Fleet) -> None:
    backends = [fleet.backend("--protect", "--cost", "fixed:1ms", "--wait", "fixed:10ms") for _ in range(2)]
    port, most = free_port(), 8
    proxy = fleet.proxy(
        [backend.address for backend in backends],
        cluster="min_connections = 0",
        health='check = "none"',
        further=batch(port, f"max_active = {most}"),
    )
    ports = {backend.port for backend in backends}
    with Connection.to(proxy.port) as user:
        assert user.request("/").status == 200
        peak, of_job = Peak(lambda: connections_to(ports)), Peak(lambda: gate(proxy)["connections"])
        work = Job(port, 300, requests=5)
        statuses = []
        while work.is_alive():
            statuses.append(user.request("/").status)
        answered = work.answered()
        highest, highest_of_job = peak.stop(), of_job.stop()
    assert len(answered) == 1500 and set(answered) == {200}, "each is answered, and served"
    assert len(statuses) > 20 and set(statuses) == {200}
    assert highest_of_job <= most, highest_of_job
    # The user's one connection may be to either backend, one after another. And the table of connections is read in pieces: one that is
    # closed and one that is opened meanwhile are both in it.
    assert 2 <= highest <= most + len(ports) + 3, highest
    after = gate(proxy)
    assert (after["active"], sum(after["queued"].values()), after["turned_away"]) == (0, 0, {"full": 0, "timeout": 0})
    assert proxy.admin.metric("plimsoll_throttled_requests_total") == 0
    assert proxy.admin.metric("plimsoll_retries_total") == 0


class Service:
    """An origin that can be told to turn everything away."""

    def __init__(self, fleet: Fleet, is_well: bool):
        self.is_well = is_well
        self.asked = 0
        self.bodies: list[bytes] = []
        self._lock = threading.Lock()
        self.address = fleet.origin(self._handle)

    def _handle(self, connection: Connection, request: Message) -> None:
        connection.read_body(request, to_close=False)
        with self._lock:
            is_well = self.is_well
            self.asked += 1
            if is_well:
                self.bodies.append(request.body)
        connection.send(DONE if is_well else OVERLOADED)


def test_a_service_that_has_no_room_is_asked_now_and_then_and_nothing_is_lost(fleet: Fleet) -> None:
    service, port = Service(fleet, is_well=False), free_port()
    proxy = fleet.proxy([service.address], health='check = "none"', further=batch(port, "max_active = 16"))
    work = Job(port, 100, size=1000)
    wait_until("all but one wait", lambda: queued(proxy) >= 99)
    wait_until("rests have become long", lambda: service.asked >= 6, 20)
    before, begun = service.asked, time.monotonic()
    wait_until("some time has passed", lambda: time.monotonic() - begun >= 4, 5)
    assert 1 <= service.asked - before <= 5, "each rest is one to three seconds"
    assert proxy.admin.metric("plimsoll_batch_credit") == 1
    service.is_well = True
    assert work.answered() == [200] * 100
    assert service.bodies == [b"x" * 1000] * 100, "each has its body, whichever attempt it was"
    assert proxy.admin.metric("plimsoll_batch_requeued_total", listener="batch") == service.asked - 100
    assert proxy.admin.metric("plimsoll_retry_budget_used_ratio") == 0
    assert proxy.admin.metric("plimsoll_throttle_held_ratio", criticality="sheddable-plus") == 0


def test_what_waits_too_long_is_answered_with_the_reason(fleet: Fleet) -> None:
    service, port = Service(fleet, is_well=False), free_port()
    further = batch(port, 'max_queue = 50\nqueue_timeout = "1s"')
    proxy = fleet.proxy([service.address], health='check = "none"', further=further)
    assert set(job(port, 100)) == {503}
    with Connection.to(port) as late:
        said = late.request("/")
    assert (said.status, said.get("x-plimsoll-shed")) == (503, "reason=overloaded, retry=after")
    assert int(said.get("retry-after") or 0) >= 1
    turned_away = gate(proxy)["turned_away"]
    assert turned_away["full"] > 0 and turned_away["timeout"] > 0 and sum(turned_away.values()) == 101
    # Of those who never waited nobody was asked.
    assert service.asked < 20


def test_a_worker_that_is_killed_leaves_the_queue(fleet: Fleet) -> None:
    service, port = Service(fleet, is_well=False), free_port()
    proxy = fleet.proxy([service.address], health='check = "none"', further=batch(port))
    workers = [socket.create_connection(("127.0.0.1", port)) for _ in range(20)]
    for each in workers:
        each.sendall(b"GET / HTTP/1.1\r\nhost: batch\r\n\r\n")
    wait_until("they wait", lambda: queued(proxy) + gate(proxy)["active"] == 20)
    for each in workers:
        each.close()
    wait_until("they have left", lambda: queued(proxy) + gate(proxy)["active"] == 0)


def test_a_reload_turns_an_ordinary_listener_into_one_for_batch_work(fleet: Fleet) -> None:
    service = Service(fleet, is_well=False)
    proxy = fleet.proxy([service.address], health='check = "none"')
    assert http(proxy.url)[0] == 503
    (path,) = fleet.directory.glob("plimsoll-*.toml")
    path.write_text(path.read_text().replace("\n[[routes]]", "\n[listeners.batch]\n\n[[routes]]", 1))
    proxy.signal(signal.SIGHUP)
    wait_until("the reload is taken", lambda: proxy.admin.metric("plimsoll_reloads_total", result="taken") == 1)
    work = Job(proxy.port, 5)
    wait_until("they wait", lambda: queued(proxy) + gate(proxy)["active"] == 5)
    service.is_well = True
    assert work.answered() == [200] * 5
