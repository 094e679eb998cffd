"""Somebody puts wrong values into etcd by hand, at each kind of key: all goes on, each is named in a log, and is set right."""

import pathlib
from collections.abc import Iterator

import pytest

from harness.etcd import Etcd
from harness.etcd_fleet import EtcdFleet, warnings
from harness.fleet import Fleet
from harness.process import wait_until

# The leader looks at all assignments once a minute.
LOOK_SECONDS = 60
HUGE = "x" * 1_000_000


@pytest.fixture
def etcd(tmp_path: pathlib.Path) -> Iterator[Etcd]:
    with Etcd(tmp_path) as etcd:
        yield etcd


def is_led(plimsoll: EtcdFleet) -> bool:
    """Whether a process leads: its key ends with its lease."""
    record = plimsoll.etcd.records(plimsoll.keys.leader).get(plimsoll.keys.leader)
    return record is not None and record.lease != 0


@pytest.mark.timeout(240)
def test_wrong_values_affect_nobody_and_are_set_right(fleet: Fleet, etcd: Etcd) -> None:
    plimsoll = EtcdFleet(fleet, etcd, size=2, slots=True)
    backends = plimsoll.add_backends(4)
    plimsoll.add_proxies("p1", "p2", "p3")
    plimsoll.add_load(30)
    plimsoll.settle("started")
    keys = plimsoll.keys
    before = plimsoll.assignments()

    # Backends: none of these is one, and a live one keeps its last good record until it is written again.
    wrong = ["", "[]", "not JSON", '{"address": "web:80"}', '{"address": "0.0.0.0:0"}', '{"address": 1}', HUGE]
    for number, value in enumerate(wrong):
        etcd.put(f"{keys.backends}wrong-{number}", value)
    etcd.put(f"{keys.backends}{'k' * 10_000}", "{}")
    etcd.put(f"{keys.backends}a/b/c", "{}")
    etcd.put(f"{keys.backends}{backends[0].address}", "stolen")
    # Slots and numbers: a stranger's, one of another spelling, numbers that are none, and the last there is.
    for folder in (keys.slots, keys.numbers):
        for number in ("00", "+1", "-1", "x", "", "4294967295", "4294967296", "7/7"):
            etcd.put(f"{folder}{number}", "stranger")
    etcd.put(f"{keys.slots}0", HUGE)
    # Clients that are none.
    for client in ("ghost", "a/b", "", "k" * 10_000):
        etcd.put(f"{keys.members}{client}", "x")
    etcd.put(f"{keys.members}p2", "put over that of a live client")
    # Assignments: of clients that are none, and wrong ones.
    etcd.put(f"{keys.assignments}ghost", '["127.0.0.1:1"]')
    for client, value in (("p1", "not JSON"), ("p2", '["x", "127.0.0.1:1"]'), ("p3", f'["{HUGE}"]')):
        etcd.put(f"{keys.assignments}{client}", value)
    etcd.put(f"{keys.prefix}ledger/{keys.cluster}/{keys.group}/leaderless", "x")

    wait_until("assignments are those of before", lambda: plimsoll.assignments() == before, LOOK_SECONDS + 20, every=0.5)
    wait_until("the stolen record is written again", lambda: backends[0].address in etcd.get(f"{keys.backends}{backends[0].address}"), 40, every=0.5)

    # A leader for ever, though the present one lives.
    etcd.put(keys.leader, "nobody")
    wait_until("somebody leads", lambda: is_led(plimsoll), 20, every=0.2)
    assert plimsoll.assignments() == before

    # A newcomer takes a slot and works, with all of this around.
    (new,) = plimsoll.add_backends(1)
    wait_until("the newcomer has a slot", lambda: new.address in etcd.values(keys.slots).values(), 20)
    plimsoll.add_proxies("p4")
    wait_until("the newcomer is assigned", lambda: len(plimsoll.assignments().get("p4", ())) == 2, 20)

    # A leader for ever after the leader's end.
    leader = plimsoll.leader()
    plimsoll.lose(plimsoll.proxy(leader))
    etcd.put(keys.leader, "nobody")
    wait_until("another leads", lambda: is_led(plimsoll), 30, every=0.2)
    assert plimsoll.leader() != leader

    # Also by the leader that was killed: it may be the one with a wrong assignment.
    told = [warning for each in (*plimsoll.proxies, *plimsoll.lost.values()) for warning in warnings(each.proxy)]
    for text in (
        "record in the registry is none of a backend",
        "assignment is no list of addresses",
        "the ledger's leader has no lease",
        "key of a client without a lease",
    ):
        assert any(text in warning for warning in told), text
    for process in [each.proxy for each in plimsoll.proxies] + [each.register for each in plimsoll.backends]:
        assert process.exit_code is None and "panicked" not in process.output(), process.name
        assert len(process.output()) < 1_000_000, f"{process.name} logs too much"
    results = [each.load for each in plimsoll.proxies if each.load is not None]
    assert results and all(load.running() for load in results)
    for each in list(plimsoll.proxies):
        if each.load is None:
            plimsoll.proxies.remove(each)
    counted = plimsoll.finish()
    assert {id: failed for id, (_, failed) in counted.items() if failed} == {}, counted
