"""Two proxies have one id by mistake."""

import pathlib
import time
from collections.abc import Iterator

import pytest

from harness.etcd import Etcd
from harness.etcd_fleet import EtcdFleet, warnings
from harness.fleet import Fleet
from harness.process import wait_until

LEASE_SECONDS = 10
# A process looks so often whether its key is its own.
LOOK_SECONDS = 30


@pytest.fixture
def etcd(tmp_path: pathlib.Path) -> Iterator[Etcd]:
    with Etcd(tmp_path) as etcd:
        yield etcd


@pytest.mark.timeout(180)
def test_of_two_proxies_with_one_id_the_later_is_the_member(fleet: Fleet, etcd: Etcd) -> None:
    plimsoll = EtcdFleet(fleet, etcd, size=2)
    plimsoll.add_backends(4)
    (earlier, _) = plimsoll.add_proxies("p1", "p2")
    wait_until("both are assigned", lambda: plimsoll.assignments().keys() == {"p1", "p2"}, 20)
    member = f"{plimsoll.keys.members}p1"
    first = etcd.get(member)
    (later,) = plimsoll.add_proxies("p1")
    wait_until("the later is the member", lambda: etcd.get(member) != first, 10)
    second = etcd.get(member)

    def has_told() -> bool:
        return any("another process has this name" in warning for warning in warnings(earlier.proxy))

    wait_until("the earlier tells", has_told, LOOK_SECONDS + 10, every=0.2)
    # Both look once more, and leave it at that.
    time.sleep(LOOK_SECONDS + 5)
    assert etcd.get(member) == second
    assert [change.value for change in etcd.history(member)] == [first, second]
    told = [warning for warning in warnings(earlier.proxy) if "another process" in warning]
    assert len(told) == 1 and "give each its own" in told[0], told
    assert not any("another process" in warning for warning in warnings(later.proxy))
    # The later one ends: the earlier is the member again.
    later.proxy.kill()
    wait_until("the earlier is the member again", lambda: etcd.get(member) == first, LEASE_SECONDS + LOOK_SECONDS + 10, every=0.2)
