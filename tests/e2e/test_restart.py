"""Change without loss: rolling restarts, reloads, draining, each under load and each without a single failed request."""

import pathlib
import signal
import threading
import time

import grpc
import pytest

from harness.fleet import PLIMSOLL, UNTIL_FINISHED, Backend, Fleet, Proxy, config, finish
from harness.http1 import Connection, Message, answer
from harness.process import Process, accepts, find_program, free_port, run, wait_until
from harness.rpc import work

PROTOCOLS = ("http1", "h2c", "grpc")
# Requests wait for a while in the backend, so that at each moment some are in flight everywhere.
BACKEND = ("--cost", "fixed:200us", "--wait", "fixed:10ms")


def restart(fleet: Fleet, proxy: Proxy, backend: Backend) -> Backend:
    """SIGTERM, wait for its end, start again, wait until the proxy sends to it again."""
    backend.signal(signal.SIGTERM)
    assert backend.wait(20) == 0
    backend = fleet.again(backend)
    proxy.admin.wait_for_state(backend.address, "healthy", 20)
    before = proxy.admin.backends()[backend.address]["requests"]
    wait_until("requests come back", lambda: proxy.admin.backends()[backend.address]["requests"] > before + 10)
    return backend


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_rolling_restart_loses_no_request(fleet: Fleet, protocol: str) -> None:
    backends = [fleet.backend(*BACKEND) for _ in range(4)]
    proxy = fleet.proxy_to([backend.address for backend in backends])
    proxy.admin.wait_for_healthy(4)
    load = fleet.load(proxy.url, "--protocol", protocol, "--rate", "400", "--duration", UNTIL_FINISHED, "--connections", "8")
    for backend in backends:
        restart(fleet, proxy, backend)
    (counted,) = finish(proxy, load)
    assert counted.failed == 0, counted.raw
    assert counted.requests > 1_000
    for backend in backends:
        assert counted.share(backend.address) > 0.05, counted.by_backend


def reload(proxy: Proxy) -> None:
    proxy.signal(signal.SIGHUP)


def write_config(fleet: Fleet, proxy: Proxy, addresses: list[str], policy: str) -> None:
    admin_port = int(proxy.admin.url.rpartition(":")[2])
    text = config(proxy.port, admin_port, addresses, cluster=f'policy = "{policy}"')
    (fleet.directory / "plimsoll-1.toml").write_text(text)


def test_twenty_reloads_lose_no_request(fleet: Fleet) -> None:
    backends = [fleet.backend(*BACKEND) for _ in range(4)]
    addresses = [backend.address for backend in backends]
    proxy = fleet.proxy(addresses)
    proxy.admin.wait_for_healthy(4)
    loads = [
        fleet.load(proxy.url, "--protocol", protocol, "--rate", "150", "--duration", UNTIL_FINISHED, "--connections", "4")
        for protocol in PROTOCOLS
    ]
    policies = ("weighted", "round-robin", "p2c", "least-loaded", "peak-ewma", "random")
    for number in range(20):
        # Each time other backends and another policy; three of the four stay.
        wanted = addresses[: number % 4] + addresses[number % 4 + 1 :]
        write_config(fleet, proxy, wanted, policies[number % len(policies)])
        reload(proxy)
        wait_until(f"reload {number} is in force", lambda wanted=wanted: set(proxy.admin.backends()) == set(wanted), 5)
        wait_until("requests at all", lambda: all(row["requests"] for row in proxy.admin.backends().values()), 5)
    for counted in finish(proxy, *loads):
        assert counted.failed == 0, counted.raw
        assert counted.requests > 100


def test_backends_that_stay_keep_their_state_over_a_reload(fleet: Fleet) -> None:
    addresses = [fleet.backend().address for _ in range(2)]
    proxy = fleet.proxy(addresses)
    proxy.admin.wait_for_healthy(2)
    fleet.load_now(proxy.url, "--requests", "200")
    before = proxy.admin.backends()
    third = fleet.backend().address
    write_config(fleet, proxy, [*addresses, third], "weighted")
    reload(proxy)
    proxy.admin.wait_for_healthy(3)
    after = proxy.admin.backends()
    for address in addresses:
        assert after[address]["requests"] >= before[address]["requests"] > 0


def settings_of(proxy: Proxy) -> list[tuple]:
    return sorted((address, row["state"]) for address, row in proxy.admin.backends().items())


def test_bad_file_changes_nothing(fleet: Fleet) -> None:
    backends = [fleet.backend(*BACKEND) for _ in range(2)]
    addresses = [backend.address for backend in backends]
    proxy = fleet.proxy(addresses)
    proxy.admin.wait_for_healthy(2)
    before = settings_of(proxy)
    path = fleet.directory / "plimsoll-1.toml"
    good = path.read_text()
    load = fleet.load(proxy.url, "--rate", "200", "--duration", UNTIL_FINISHED)
    for bad in (
        "not toml at all [",
        good.replace('cluster = "main"', 'cluster = "other"'),
        good.replace("backends", "bakends"),
        "",
    ):
        said = proxy.output()
        path.write_text(bad)
        reload(proxy)
        wait_until("the proxy says that the file is bad", lambda said=said: path.name in proxy.output()[len(said) :], 5)
        assert settings_of(proxy) == before
    assert finish(proxy, load)[0].failed == 0
    assert proxy.exit_code is None
    # And the next good file counts again.
    write_config(fleet, proxy, addresses[:1], "weighted")
    reload(proxy)
    wait_until("the good file is in force", lambda: list(proxy.admin.backends()) == addresses[:1], 5)


def test_drained_backend_gets_nothing_until_undrained(fleet: Fleet) -> None:
    backends = [fleet.backend(*BACKEND) for _ in range(3)]
    proxy = fleet.proxy_to([backend.address for backend in backends])
    proxy.admin.wait_for_healthy(3)
    cluster = proxy.admin.only_cluster()
    drained = backends[0].address
    whole = fleet.load(proxy.url, "--rate", "300", "--duration", UNTIL_FINISHED)

    status, text = proxy.admin.post(f"/api/v1/clusters/{cluster}/backends/{drained}/drain")
    assert status < 300, text
    proxy.admin.wait_for_state(drained, "lame-duck")
    while_drained = fleet.load_now(proxy.url, "--rate", "100", "--duration", "1s")
    assert while_drained.failed == 0
    assert drained not in while_drained.by_backend

    status, text = proxy.admin.post(f"/api/v1/clusters/{cluster}/backends/{drained}/undrain")
    assert status < 300, text
    proxy.admin.wait_for_state(drained, "healthy")
    afterwards = fleet.load_now(proxy.url, "--rate", "100", "--duration", "1s")
    assert afterwards.failed == 0 and afterwards.by_backend.get(drained, 0) > 0
    assert finish(proxy, whole)[0].failed == 0


def test_proxy_told_to_end_finishes_what_is_in_flight(fleet: Fleet) -> None:
    asked = threading.Semaphore(0)
    release = threading.Event()

    def handler(connection: Connection, request: Message) -> None:
        if "/slow" in request.start:
            asked.release()
            assert release.wait(20)
        answer(connection, b"whole")

    proxy = fleet.proxy_to([fleet.origin(handler)])
    clients = [Connection.to(proxy.port, timeout=30) for _ in range(5)]
    for client in clients:
        client.send("GET /slow HTTP/1.1\r\nhost: a\r\n\r\n")
        assert asked.acquire(timeout=5)
    proxy.signal(signal.SIGTERM)
    wait_until("not ready any more", lambda: proxy.admin.get("/readyz")[0] == 503, 5)
    assert proxy.admin.get("/healthz")[0] == 200
    assert proxy.exit_code is None
    release.set()
    for client in clients:
        response = client.read_response()
        assert (response.status, response.body) == (200, b"whole")
        assert (response.get("connection") or "").lower() == "close"
        client.close()
    assert proxy.wait(10) == 0
    assert not accepts(proxy.port)


def test_proxy_told_to_end_finishes_grpc_calls(fleet: Fleet) -> None:
    backend = fleet.backend("--wait", "fixed:1500ms")
    proxy = fleet.proxy_to([backend.address])
    proxy.admin.wait_for_healthy(1)
    with grpc.insecure_channel(f"127.0.0.1:{proxy.port}") as channel:
        calls = [work(channel).future(b"x", timeout=10, wait_for_ready=True) for _ in range(5)]
        wait_until("five calls in flight", lambda: proxy.admin.backends()[backend.address]["in_flight"] == 5)
        proxy.signal(signal.SIGTERM)
        assert [call.code() for call in calls] == [grpc.StatusCode.OK] * 5
    assert proxy.wait(10) == 0


def test_second_signal_ends_at_once(fleet: Fleet) -> None:
    backend = fleet.backend("--wait", "fixed:20s")
    proxy = fleet.proxy_to([backend.address])
    with Connection.to(proxy.port) as client:
        client.send("GET / HTTP/1.1\r\nhost: a\r\n\r\n")
        wait_until("one in flight", lambda: proxy.admin.backends()[backend.address]["in_flight"] == 1)
        proxy.signal(signal.SIGTERM)
        wait_until("draining", lambda: proxy.admin.get("/readyz")[0] == 503)
        # Signals that come together are one wish: `timeout` sends one to a process and one to its group.
        time.sleep(0.2)
        proxy.signal(signal.SIGTERM)
        assert proxy.wait(2) == 1


def test_signal_to_a_process_and_its_group_is_heard_once(fleet: Fleet) -> None:
    backend = fleet.backend("--wait", "fixed:500ms")
    proxy = fleet.proxy_to([backend.address])
    with Connection.to(proxy.port) as client:
        client.send("GET / HTTP/1.1\r\nhost: a\r\n\r\n")
        wait_until("one in flight", lambda: proxy.admin.backends()[backend.address]["in_flight"] == 1)
        proxy.signal(signal.SIGTERM)
        proxy.signal(signal.SIGTERM)
        assert client.read_head().start.startswith("HTTP/1.1 200")
    assert proxy.wait(10) == 0


def test_proxies_hand_over_a_port_without_loss(fleet: Fleet) -> None:
    """A new proxy starts on the port of the old one, which then ends: the way a proxy itself is upgraded."""
    backends = [fleet.backend(*BACKEND) for _ in range(2)]
    addresses = [backend.address for backend in backends]
    old = fleet.proxy(addresses)
    old.admin.wait_for_healthy(2)
    load = fleet.load(old.url, "--rate", "200", "--duration", UNTIL_FINISHED, "--connections", "8")
    admin_port = free_port()
    path = fleet.directory / "successor.toml"
    path.write_text(config(old.port, admin_port, addresses, listener="share_port = true"))
    new = Proxy("successor", ["-c", str(path)], old.port, admin_port, fleet.directory)
    fleet.processes.append(new)
    wait_until("the successor is ready", lambda: accepts(admin_port) and new.admin.get("/readyz")[0] == 200, 5)
    old.signal(signal.SIGTERM)
    assert old.wait(10) == 0
    (counted,) = finish(new, load)
    assert counted.failed == 0, counted.raw


def never_finding_names(directory: pathlib.Path) -> tuple[str, pathlib.Path]:
    """A library that, loaded before all others, never comes back from a look-up of a name; and a file that is there once
    one has begun."""
    source, library, begun = directory / "names.c", directory / "names.so", directory / "begun"
    source.write_text(f'''
        #include <fcntl.h>
        #include <unistd.h>
        int getaddrinfo(void) {{ for (open("{begun}", O_CREAT | O_WRONLY, 0600);;) pause(); }}
    ''')
    done = run([find_program("cc"), "-shared", "-fPIC", "-o", str(library), str(source)])
    assert done.returncode == 0, done.stderr
    return str(library), begun


@pytest.mark.parametrize("moment", ["start", "reload"])
def test_proxy_told_to_end_waits_for_no_name(fleet: Fleet, monkeypatch: pytest.MonkeyPatch, moment: str) -> None:
    backend = fleet.backend(*BACKEND)
    port = free_port()
    path = fleet.directory / "names.toml"
    named = config(port, free_port(), ["slow.test:80"])
    path.write_text(named if moment == "start" else config(port, free_port(), [backend.address]))
    library, begun = never_finding_names(fleet.directory)
    monkeypatch.setenv("LD_PRELOAD", library)
    proxy = Process("proxy", [PLIMSOLL, "proxy", "-c", str(path)], fleet.directory)
    fleet.processes.append(proxy)
    if moment == "reload":
        proxy.wait_for_port(port)
        path.write_text(named)
        proxy.signal(signal.SIGHUP)
    wait_until("it looks the name up", begun.exists)
    proxy.signal(signal.SIGTERM)
    assert proxy.wait(10) == 0
