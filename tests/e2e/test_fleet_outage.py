"""All leases of a fleet expire at once, because etcd was gone for longer: nothing is removed, and nothing moves."""

import os
import pathlib
import time
from collections.abc import Iterator

import pytest

from harness.etcd import Etcd
from harness.etcd_fleet import EtcdFleet, warnings
from harness.fleet import Fleet
from harness.process import wait_until

LEASE_SECONDS = 10
# Longer than all leases; more by hand.
OUTAGE_SECONDS = float(os.environ.get("PLIMSOLL_OUTAGE_SECONDS", "15"))


@pytest.fixture
def etcd(request: pytest.FixtureRequest, tmp_path: pathlib.Path) -> Iterator[Etcd]:
    with Etcd(tmp_path, members=3, version=request.param) as etcd:
        yield etcd


def pause(etcd: Etcd) -> None:
    etcd.pause_all()
    time.sleep(OUTAGE_SECONDS)
    etcd.resume_all()


def restart(etcd: Etcd) -> None:
    etcd.kill_all()
    time.sleep(OUTAGE_SECONDS)
    etcd.start()


@pytest.mark.timeout(int(120 + OUTAGE_SECONDS))
@pytest.mark.parametrize(("etcd", "outage"), [("3.5", pause), ("3.4", restart)], indirect=["etcd"], ids=["3.5-paused", "3.4-killed"])
def test_all_leases_expire_and_nothing_is_removed(fleet: Fleet, etcd: Etcd, outage) -> None:  # noqa: ANN001
    plimsoll = EtcdFleet(fleet, etcd, size=3, slots=True)
    backends = plimsoll.add_backends(8)
    plimsoll.add_proxies("p1", "p2", "p3", "p4")
    plimsoll.add_load(20)
    plimsoll.settle("started")
    time.sleep(2 * LEASE_SECONDS)
    assert set(plimsoll.slots_of_backends()) == set(range(8))
    before = plimsoll.assignments(), plimsoll.slots_of_backends()
    processes = [each.proxy for each in plimsoll.proxies] + [each.register for each in backends[:-1]]
    warned = [len(warnings(process)) for process in processes]
    leases = set(etcd.leases())

    # One backend ends meanwhile, and with it the process that would have told.
    backends[-1].register.kill()
    backends[-1].backend.kill()
    outage(etcd)
    back = time.monotonic()
    # The leases of an etcd that was killed begin anew with it; one that was paused ends them.
    if outage is pause:
        wait_until("all leases are new", lambda: not leases & set(etcd.leases()), 30, every=0.2)
    wait_until("all come back", lambda: {each.address for each in backends[:-1]} <= plimsoll.ready(), 30, every=0.2)
    while time.monotonic() < back + 2 * LEASE_SECONDS - 0.5:
        for each in plimsoll.proxies:
            assert plimsoll.known(each) == 8, f"{each.id} believed a removal after {time.monotonic() - back:.1f} s"
        assert (plimsoll.assignments(), plimsoll.slots_of_backends()) == before
        time.sleep(0.5)
    wait_until("the removal is believed", lambda: all(plimsoll.known(each) == 7 for each in plimsoll.proxies), 20)
    plimsoll.settle("one backend less")
    assert plimsoll.slots_of_backends() == before[1], "the slot of a backend that is gone waits for it"

    for process, count in zip(processes, warned, strict=True):
        (warning,) = [text for text in warnings(process)[count:] if "etcd" in text or "discovery" in text]
        assert warning.startswith("etcd unreachable"), warning
    history = plimsoll.history()
    assert history.violations == []
    assert [moves.events for moves in history.all_moves()] == [1]
    results = plimsoll.finish()
    assert {id: failed for id, (_, failed) in results.items() if failed} == {}, results
