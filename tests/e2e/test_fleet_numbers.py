"""Indices of proxies and slots of backends in etcd, for subset algorithms that number both."""

import pathlib
import time
from collections.abc import Iterator

import pytest

from harness.etcd import Etcd
from harness.etcd_fleet import EtcdFleet
from harness.fleet import Fleet
from harness.process import wait_until

LEASE_SECONDS = 10
# A number waits so long for the member that left it.
HOLE_SECONDS = 60
PROXIES = [f"p{number}" for number in range(5)]


@pytest.fixture
def etcd(tmp_path: pathlib.Path) -> Iterator[Etcd]:
    with Etcd(tmp_path) as etcd:
        yield etcd


@pytest.mark.timeout(240)
def test_index_outlives_its_process_and_a_hole_is_filled_from_the_top(fleet: Fleet, etcd: Etcd) -> None:
    plimsoll = EtcdFleet(fleet, etcd, size=2, subset='subset.algorithm = "rocksteadier"', discovery="ordinals = true", slots=True)
    plimsoll.add_backends(5)
    plimsoll.add_proxies(*PROXIES)
    wait_until("each has an index", lambda: sorted(plimsoll.numbers()) == list(range(5)), 20)
    numbers = plimsoll.numbers()
    assert sorted(numbers.values()) == PROXIES
    assert sorted(plimsoll.slots_of_backends()) == list(range(5))
    plimsoll.add_load(20)
    wait_until("each has two backends", lambda: {len(of) for of in plimsoll.connected().values()} == {2}, 20, every=0.2)
    backends = {number: plimsoll.connected()[id] for number, id in numbers.items()}
    assert len(set(map(frozenset, backends.values()))) > 1, "they depend on the index"

    # One comes back after its lease has ended: nothing is written but the sign that it lives.
    plimsoll.lose(plimsoll.proxy(numbers[1]))
    wait_until("its lease has ended", lambda: f"{plimsoll.keys.members}{numbers[1]}" not in etcd.values("/"), 20)
    plimsoll.add_proxies(numbers[1])
    plimsoll.add_load(20)
    wait_until("it has its backends again", lambda: plimsoll.connected()[numbers[1]] == backends[1], 20, every=0.2)
    assert plimsoll.numbers() == numbers

    # One stays away: the highest takes its number.
    plimsoll.lose(plimsoll.proxy(numbers[1]))
    gone = time.monotonic()
    filled = {0: numbers[0], 1: numbers[4], 2: numbers[2], 3: numbers[3]}
    wait_until("the hole is filled", lambda: plimsoll.numbers() == filled, LEASE_SECONDS + HOLE_SECONDS + 30, every=0.2)
    waited = time.monotonic() - gone
    assert waited >= HOLE_SECONDS, f"{waited:.1f} s"
    wait_until("the index has the same backends", lambda: plimsoll.connected()[numbers[4]] == backends[1], 20, every=0.2)
    assert plimsoll.history().violations == []
    results = plimsoll.finish()
    assert {id: failed for id, (_, failed) in results.items() if failed} == {}, results
