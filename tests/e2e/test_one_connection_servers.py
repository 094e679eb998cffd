"""Servers of one connection per worker: a connection on which nothing is sent occupies their only worker, and every other
client waits behind it. gunicorn with sync workers, its default, is one; so are wsgiref and prefork servers.

The proxies have several threads, each with connections of its own, and each request here comes on a connection of its own,
so that requests are spread over the threads.
"""

import pathlib
import sys
import time
from collections.abc import Callable

import pytest

from harness.fleet import Fleet, Proxy, http
from harness.process import Process, free_port, wait_until

HARNESS = pathlib.Path(__file__).parent / "harness"
GUNICORN = pathlib.Path(sys.executable).with_name("gunicorn")
THREADS = 4
REQUESTS = 20
# A server answers in a few milliseconds. A worker that waits for a silent connection does so for 10 s and more.
PROMPT_SECONDS = 3.0


def start(fleet: Fleet, name: str, command: list[str], port: int) -> str:
    server = Process(name, command, fleet.directory)
    fleet.processes.append(server)
    server.wait_for_port(port)
    return f"127.0.0.1:{port}"


def gunicorn(fleet: Fleet) -> str:
    port = free_port()
    command = [str(GUNICORN), "--chdir", str(HARNESS), "--bind", f"127.0.0.1:{port}", "--no-control-socket", "single:app"]
    return start(fleet, "gunicorn", command, port)


def wsgiref(fleet: Fleet) -> str:
    port = free_port()
    return start(fleet, "wsgiref", [sys.executable, str(HARNESS / "single.py"), "wsgiref", str(port)], port)


def prefork(fleet: Fleet, idle_seconds: float = 20) -> str:
    port = free_port()
    command = [sys.executable, str(HARNESS / "single.py"), "prefork", str(port), str(idle_seconds)]
    return start(fleet, "prefork", command, port)


SERVERS: dict[str, Callable[[Fleet], str]] = {"gunicorn": gunicorn, "wsgiref": wsgiref}


def assert_serves(proxy: Proxy, requests: int = REQUESTS) -> None:
    """Every request is answered, promptly."""
    for number in range(requests):
        began = time.monotonic()
        status, text = http(proxy.url, timeout=PROMPT_SECONDS)
        took = time.monotonic() - began
        assert (status, text) == (200, "ok\n"), f"request {number}: {status} {text}"
        assert took < PROMPT_SECONDS, f"request {number} took {took:.1f} s"


@pytest.mark.parametrize("server", SERVERS)
def test_sync_worker_serves_every_request(fleet: Fleet, server: str) -> None:
    address = SERVERS[server](fleet)
    assert_serves(fleet.proxy_to([address], "--threads", str(THREADS)))


@pytest.mark.parametrize("server", SERVERS)
def test_sync_worker_serves_every_request_beside_http_checks(fleet: Fleet, server: str) -> None:
    address = SERVERS[server](fleet)
    proxy = fleet.proxy([address], cluster="min_connections = 0", health='check = "http"\ninterval = "100ms"')
    assert_serves(proxy)
    assert proxy.admin.states() == {address: "healthy"}


def test_prefork_server_serves_every_request_without_idle_connections(fleet: Fleet) -> None:
    address = prefork(fleet)
    assert_serves(fleet.proxy([address], cluster="max_idle_connections = 0"))


def test_prefork_worker_is_free_after_it_closed_an_idle_connection(fleet: Fleet) -> None:
    address = prefork(fleet, idle_seconds=0.2)
    proxy = fleet.proxy([address])
    assert_serves(proxy, 1)

    def connections() -> float:
        return proxy.admin.metric("plimsoll_backend_connections")

    wait_until("the idle connection is closed", lambda: connections() == 0, 5)
    # By another client, whom a connection of the proxy would hold up.
    assert http(f"http://{address}/", timeout=PROMPT_SECONDS) == (200, "ok\n")


@pytest.mark.parametrize("server", SERVERS)
def test_lame_duck_of_one_worker_is_not_occupied(fleet: Fleet, server: str) -> None:
    address = SERVERS[server](fleet)
    health = 'check = "http"\npath = "/healthz"\ninterval = "100ms"'
    proxy = fleet.proxy([address], cluster="min_connections = 0", health=health)
    proxy.admin.wait_for_healthy(1)
    http(f"http://{address}/out")
    proxy.admin.wait_for_state(address, "lame-duck")

    def checks() -> int:
        return int(http(f"http://{address}/checks", timeout=PROMPT_SECONDS)[1])

    # A watch over its end would be a silent connection, which is opened long before the next check.
    before = checks()
    wait_until("it is checked again", lambda: checks() >= before + 3)
    assert proxy.admin.states() == {address: "lame-duck"}
    assert http(f"http://{address}/back", timeout=PROMPT_SECONDS) == (200, "ok\n")
    proxy.admin.wait_for_healthy(1)
    assert_serves(proxy, 3)
