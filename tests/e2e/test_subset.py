"""Subsets with real processes: who connects to whom, what a failure costs, and what a reload keeps."""

import os
import pathlib
import re
import signal
from collections import Counter
from collections.abc import Iterable, Iterator

import pytest

from harness.fleet import PLIMSOLL, UNTIL_FINISHED, Fleet, Proxy, config, finish
from harness.process import free_port, run, wait_until

# Requests wait for a while in the backend, so that at each moment some are in flight everywhere.
BACKEND = ("--cost", "fixed:200us", "--wait", "fixed:10ms")
NUMBERED = ("deterministic", "ringsteady", "rocksteadier")
NAMED = ("rendezvous", "random")


def subset(algorithm: str, size: int | str, index: int | None = None, count: int | None = None) -> str:
    """The tables about subsets, for `config`'s `further`."""
    client = [f"{key} = {value}" for key, value in (("index", index), ("count", count)) if value is not None]
    size = size if isinstance(size, int) else f'"{size}"'
    return "\n".join(["[client]", *client, "[clusters.main.subset]", f'algorithm = "{algorithm}"', f"size = {size}"])


@pytest.fixture(autouse=True)
def end_at_once(fleet: Fleet) -> Iterator[None]:
    """Ends what a test started without the seconds in which each says goodbye, since nobody sends to it any more."""
    yield
    for process in fleet.processes:
        if process.exit_code is None:
            process.kill()


def reload(fleet: Fleet, proxy: Proxy, addresses: list[str], **settings: str) -> None:
    """Gives the fleet's only proxy another file."""
    admin_port = int(proxy.admin.url.rpartition(":")[2])
    (fleet.directory / "plimsoll-1.toml").write_text(config(proxy.port, admin_port, addresses, **settings))
    proxy.signal(signal.SIGHUP)


def members(proxy: Proxy) -> set[str]:
    return set(proxy.admin.backends())


def healthy(proxy: Proxy) -> set[str]:
    return {address for address, state in proxy.admin.states().items() if state == "healthy"}


def connected_to(proxy: Proxy, addresses: Iterable[str]) -> set[str]:
    """Those of `addresses` that the process has an open connection to, as the kernel sees it."""
    folder = pathlib.Path(f"/proc/{proxy.pid}/fd")
    sockets = set()
    for descriptor in folder.iterdir():
        try:
            sockets.add(os.readlink(descriptor))
        except FileNotFoundError:
            continue  # closed meanwhile
    ports = set()
    for line in pathlib.Path("/proc/net/tcp").read_text().splitlines()[1:]:
        fields = line.split()
        remote, state, inode = fields[2], fields[3], fields[9]
        if state == "01" and f"socket:[{inode}]" in sockets:
            ports.add(int(remote.rpartition(":")[2], 16))
    return {address for address in addresses if int(address.rpartition(":")[2]) in ports}


def known_backends(proxy: Proxy) -> int:
    status, text = proxy.admin.get("/metrics")
    assert status == 200
    (value,) = re.findall(r'^plimsoll_known_backends\{cluster="main"\} (\S+)$', text, re.MULTILINE)
    return int(float(value))


def proxies(fleet: Fleet, addresses: list[str], algorithm: str, size: int, count: int) -> list[Proxy]:
    def start(index: int) -> Proxy:
        # One connection each from the start, so that members can be told by connections.
        cluster = 'policy = "round-robin"\nmin_connections = 1'
        return fleet.proxy(addresses, cluster=cluster, further=subset(algorithm, size, index, count))

    started = [start(index) for index in range(count)]
    for proxy in started:
        proxy.admin.wait_for_healthy(size)
    return started


@pytest.mark.parametrize(
    ("backends", "size", "count"),
    [
        (6, 3, 4),  # two whole rounds: 12 connections, two each
        (7, 3, 7),  # the size does not divide; three each
        (7, 3, 5),  # and a part of a round: 15 connections, two or three each
    ],
)
def test_deterministic_subsets_reach_all_backends_evenly(fleet: Fleet, backends: int, size: int, count: int) -> None:
    addresses = [fleet.backend().address for _ in range(backends)]
    reached: Counter[str] = Counter()
    started = proxies(fleet, addresses, "deterministic", size, count)
    for proxy in started:
        (cluster,) = proxy.admin.clusters()
        assert (cluster["known"], cluster["backends"]["total"], known_backends(proxy)) == (backends, size, backends)
        assert connected_to(proxy, addresses) == members(proxy)
        counted = fleet.load_now(proxy.url, "--requests", "30", "--concurrency", "1")
        assert counted.failed == 0
        # In turn, so all of them were asked, and nobody else.
        assert counted.by_backend == dict.fromkeys(members(proxy), 30 // size)
        reached.update(counted.by_backend.keys())
    least, rest = divmod(size * count, backends)
    assert sorted(reached[address] for address in addresses) == [least] * (backends - rest) + [least + 1] * rest


@pytest.mark.parametrize("algorithm", [*NUMBERED, *NAMED])
def test_each_algorithm_connects_to_as_many_as_are_asked_for(fleet: Fleet, algorithm: str) -> None:
    addresses = [fleet.backend().address for _ in range(5)]
    started = proxies(fleet, addresses, algorithm, 2, 3)
    for proxy in started:
        assert len(connected_to(proxy, addresses)) == 2
        assert fleet.load_now(proxy.url, "--requests", "20").failed == 0
        # Members only: health checks do not connect to the others either.
        assert connected_to(proxy, addresses) == members(proxy)
    # The same proxy, started again, is where it was.
    again = fleet.proxy(addresses, further=subset(algorithm, 2, 1, 3))
    assert members(again) == members(started[1])


def test_without_a_number_proxies_of_other_names_take_other_subsets(fleet: Fleet) -> None:
    addresses = [fleet.backend().address for _ in range(8)]

    def start(name: str) -> Proxy:
        tables = f'[client]\nid = "{name}"\n[clusters.main.subset]\nsize = 3'
        return fleet.proxy(addresses, further=tables)

    started = [start(f"proxy-{i}") for i in (0, 1, 2, 3, 0)]
    taken = [frozenset(members(proxy)) for proxy in started]
    assert all(len(subset) == 3 for subset in taken)
    # The ports are drawn, so this is chance: four alike, of 56 possible subsets, once in 175,000 runs.
    assert len(set(taken)) > 1
    assert taken[4] == taken[0]


def test_more_wanted_than_there_are_is_all(fleet: Fleet) -> None:
    addresses = [fleet.backend().address for _ in range(3)]
    proxy = fleet.proxy(addresses, further=subset("rocksteadier", 20, 4))
    proxy.admin.wait_for_healthy(3)
    assert members(proxy) == set(addresses)


@pytest.mark.parametrize("algorithm", ["rocksteadier", "rendezvous"])
def test_killed_member_is_replaced_at_once_and_given_back_on_return(fleet: Fleet, algorithm: str) -> None:
    backends = [fleet.backend(*BACKEND) for _ in range(6)]
    addresses = [backend.address for backend in backends]
    proxy = fleet.proxy(addresses, further=subset(algorithm, 3, 0))
    proxy.admin.wait_for_healthy(3)
    before = members(proxy)
    victim = next(backend for backend in backends if backend.address in before)
    # A closed loop of 16: at each moment some five requests wait in each member, and no more than 16.
    load = fleet.load(proxy.url, "--concurrency", "16", "--duration", UNTIL_FINISHED)
    wait_until("traffic at the victim", lambda: proxy.admin.backends()[victim.address]["requests"] > 100)
    victim.kill()
    wait_until("a fourth member in its place", lambda: len(healthy(proxy) - {victim.address}) == 3, 2)
    # It stays a member, since somebody has to see it return.
    assert members(proxy) > before and len(members(proxy)) == 4
    while_gone = fleet.load_now(proxy.url, "--rate", "200", "--duration", "1s")
    assert while_gone.failed == 0 and victim.address not in while_gone.by_backend
    fleet.again(victim)
    wait_until("the first subset", lambda: members(proxy) == before and healthy(proxy) == before, 10)
    afterwards = fleet.load_now(proxy.url, "--requests", "300")
    assert afterwards.failed == 0 and set(afterwards.by_backend) <= before
    (counted,) = finish(proxy, load)
    assert counted.failed <= 16, f"more failed than were in flight: {counted.raw}"


def test_lame_duck_member_is_replaced_without_loss(fleet: Fleet) -> None:
    backends = [fleet.backend(*BACKEND) for _ in range(5)]
    proxy = fleet.proxy([backend.address for backend in backends], further=subset("rocksteadier", 2, 1))
    proxy.admin.wait_for_healthy(2)
    before = members(proxy)
    load = fleet.load(proxy.url, "--rate", "200", "--duration", UNTIL_FINISHED, "--connections", "8")
    for backend in [backend for backend in backends if backend.address in before]:
        backend.signal(signal.SIGTERM)
        assert backend.wait(20) == 0
        wait_until("two that work", lambda: len(healthy(proxy)) == 2, 3)
        fleet.again(backend)
        wait_until("the first two", lambda: members(proxy) == healthy(proxy) == before, 10)
    (counted,) = finish(proxy, load)
    assert counted.failed == 0, counted.raw


def test_reloads_keep_what_stays_and_lose_no_request(fleet: Fleet) -> None:
    addresses = [fleet.backend(*BACKEND).address for _ in range(8)]
    proxy = fleet.proxy(addresses, further=subset("rocksteadier", 3, 2))
    proxy.admin.wait_for_healthy(3)
    loads = [
        fleet.load(proxy.url, "--protocol", protocol, "--rate", "100", "--duration", UNTIL_FINISHED, "--connections", "4")
        for protocol in ("http1", "grpc")
    ]
    steps = [
        ("rocksteadier", 5),
        ("rocksteadier", 2),
        ("deterministic", 4),
        ("rendezvous", 4),
        ("rocksteadier", "off"),
        ("rocksteadier", 3),
    ]
    first = members(proxy)
    for algorithm, size in steps:
        wait_until("requests at all members", lambda: all(row["requests"] for row in proxy.admin.backends().values()), 5)
        before = proxy.admin.backends()
        reload(fleet, proxy, addresses, further=subset(algorithm, size, 2) if size != "off" else "[client]\nindex = 2")
        wanted = 8 if size == "off" else size
        wait_until(f"{algorithm} of {size}", lambda wanted=wanted: len(members(proxy)) == len(healthy(proxy)) == wanted, 5)
        after = proxy.admin.backends()
        for address in set(before) & set(after):
            assert after[address]["requests"] >= before[address]["requests"] > 0, "what stays keeps what is known of it"
        if algorithm == "rocksteadier":
            # Of one order it is always the head.
            assert set(after) <= set(before) or set(before) <= set(after)
    assert members(proxy) == first
    for counted in finish(proxy, *loads):
        assert counted.failed == 0, counted.raw


def test_another_backend_moves_at_most_one_member(fleet: Fleet) -> None:
    addresses = [fleet.backend(*BACKEND).address for _ in range(8)]
    proxy = fleet.proxy(addresses[:7], further=subset("rocksteadier", 3, 1))
    proxy.admin.wait_for_healthy(3)
    before = members(proxy)
    load = fleet.load(proxy.url, "--rate", "200", "--duration", UNTIL_FINISHED)
    reload(fleet, proxy, addresses, further=subset("rocksteadier", 3, 1))
    wait_until("eight are known", lambda: known_backends(proxy) == 8, 5)
    assert members(proxy) - before <= {addresses[7]}
    assert finish(proxy, load)[0].failed == 0


def test_subset_has_its_share_of_each_zone_and_outlives_one(fleet: Fleet) -> None:
    backends = [fleet.backend(*BACKEND) for _ in range(9)]
    zone = {backend.address: "abc"[i // 3] for i, backend in enumerate(backends)}
    tables = ", ".join(f'{{ address = "{address}", zone = "{name}" }}' for address, name in zone.items())
    started = []
    for index in range(3):
        port, admin_port = free_port(), free_port()
        text = config(port, admin_port, [], further=subset("rocksteadier", 3, index))
        file = fleet.directory / f"zones-{index}.toml"
        file.write_text(text.replace("backends = []", f"backends = [{tables}]"))
        proxy = Proxy(f"zones-{index}", ["-c", str(file)], port, admin_port, fleet.directory)
        fleet.processes.append(proxy)
        started.append(proxy)
        proxy.wait_for_port(port)
        proxy.admin.wait_for_healthy(3)
        assert sorted(zone[address] for address in members(proxy)) == ["a", "b", "c"]
    proxy = started[-1]
    load = fleet.load(proxy.url, "--concurrency", "8", "--duration", UNTIL_FINISHED)
    wait_until("traffic in zone a", lambda: proxy.admin.clusters()[0]["requests"] > 100)
    for backend in backends[:3]:
        backend.kill()

    def of_other_zones() -> bool:
        zones = sorted(zone[address] for address in healthy(proxy))
        return len(zones) == 3 and "a" not in zones

    wait_until("three of the other zones", of_other_zones, 4)
    assert fleet.load_now(proxy.url, "--requests", "200").failed == 0
    (counted,) = finish(proxy, load)
    assert counted.failed <= 8, f"more failed than were in flight: {counted.raw}"


@pytest.mark.parametrize(
    ("tables", "place", "fix"),
    [
        *[(subset(algorithm, 2), "clusters.main.subset.algorithm", "index = 0") for algorithm in NUMBERED],
        (subset("ledger", 2, 0), "clusters.main.subset.algorithm", "group"),
        (subset("rocksteady", 2, 0), "clusters.main.subset.algorithm", "ringsteady"),
        (subset("rocksteadier", 0, 0), "clusters.main.subset.size", "at least 1"),
        (subset("rocksteadier", 2, 4, 4), "client.index", "0 to 3"),
        ("[client]\nindx = 0\n[clusters.main.subset]\nsize = 2", "client", "index"),
    ],
)
def test_bad_subset_is_refused_with_place_and_fix(fleet: Fleet, tables: str, place: str, fix: str) -> None:
    addresses = [f"127.0.0.1:{free_port()}" for _ in range(3)]
    file = fleet.directory / "bad.toml"
    file.write_text(config(free_port(), free_port(), addresses, further=tables))
    for command in (["check", "-c"], ["proxy", "-c"]):
        done = run([PLIMSOLL, *command, str(file)], 20)
        said = done.stdout + done.stderr
        assert done.returncode == 1, f"{command}: {done.returncode}: {said}"
        assert re.search(rf"bad\.toml:\d+:\d+: {re.escape(place)}\b", said), said
        assert "help: " in said and fix in said, said


def test_bad_subset_in_a_reload_changes_nothing(fleet: Fleet) -> None:
    addresses = [fleet.backend().address for _ in range(3)]
    proxy = fleet.proxy(addresses, further=subset("rocksteadier", 2, 0))
    proxy.admin.wait_for_healthy(2)
    before = members(proxy)
    reload(fleet, proxy, addresses, further=subset("deterministic", 2))
    wait_until("the proxy says that the file is bad", lambda: "clusters.main.subset.algorithm" in proxy.output(), 5)
    assert members(proxy) == before
    assert fleet.load_now(proxy.url, "--requests", "50").failed == 0
