"""A fleet on etcd whose subsets have memory, under load and faults: real processes, and the log of etcd as the witness.

A failed request is one that a client of a proxy saw fail. Its proxy retries by default, so a request that was in flight at a
killed backend counts if that did not help. Clients of a killed proxy are killed with it.
"""

import os
import pathlib
import time
from collections.abc import Iterator

import pytest

from harness.etcd import Etcd
from harness.etcd_fleet import EtcdFleet, warnings
from harness.fleet import Fleet

# Seventy processes: others would disturb them, and they others.
pytestmark = pytest.mark.alone

CLIENTS = 12
BACKENDS = 30
# Longer than all leases; more by hand.
OUTAGE_SECONDS = float(os.environ.get("PLIMSOLL_OUTAGE_SECONDS", "15"))
# Two lease times, after which removals are believed again.
DISTRUST_SECONDS = 21


@pytest.fixture
def etcd(tmp_path: pathlib.Path) -> Iterator[Etcd]:
    with Etcd(tmp_path, members=3, version=os.environ.get("PLIMSOLL_ETCD_VERSION", "3.5")) as etcd:
        yield etcd


@pytest.mark.timeout(int(300 + OUTAGE_SECONDS))
def test_deaths_move_few_connections_and_fail_no_request(fleet: Fleet, etcd: Etcd) -> None:
    plimsoll = EtcdFleet(fleet, etcd)
    backends = plimsoll.add_backends(BACKENDS)
    plimsoll.add_proxies(*(f"p{number:02}" for number in range(CLIENTS)))
    plimsoll.add_load(10)
    plimsoll.settle("started")

    backends[0].backend.kill()
    plimsoll.settle("backend killed")
    assert len(plimsoll.ready()) == BACKENDS - 1

    plimsoll.lose(next(each for each in plimsoll.proxies if each.id != plimsoll.leader()))
    plimsoll.settle("client killed")

    leader = plimsoll.leader()
    plimsoll.lose(plimsoll.proxy(leader))
    plimsoll.settle("leader killed")
    assert plimsoll.leader() != leader

    etcd.kill(etcd.leader())
    plimsoll.settle("leader of etcd killed")
    etcd.start()

    warned = {each.id: warnings(each.proxy) for each in plimsoll.proxies}
    assert not any("etcd" in warning for of in warned.values() for warning in of), "a member of etcd is not all of it"
    etcd.kill_all()
    time.sleep(OUTAGE_SECONDS)
    etcd.start()
    time.sleep(DISTRUST_SECONDS)
    plimsoll.settle("all of etcd killed")
    for each in plimsoll.proxies:
        (warning,) = warnings(each.proxy)[len(warned[each.id]) :]
        assert warning.startswith("etcd unreachable"), warning

    history = plimsoll.history()
    assert history.violations == []
    assert [moves.events for moves in history.all_moves()] == [1, 1, 1, 0, 0]
    print(*history.all_moves(), sep="\n")
    results = plimsoll.finish()
    print(results)
    assert len(results) == CLIENTS - 2
    assert all(requests > 200 for requests, _ in results.values()), results
    assert {id: failed for id, (_, failed) in results.items() if failed} == {}
