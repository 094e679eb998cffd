"""Groups, endpoints of etcd and whole processes change under load: no request fails, and a member stays itself."""

import os
import pathlib
import signal
import time
from collections.abc import Callable, Iterator
from dataclasses import replace

import pytest

from harness.etcd import Etcd
from harness.etcd_fleet import EtcdFleet, LoadedProxy, warnings
from harness.fleet import Fleet
from harness.process import wait_until
from test_upgrade import is_running, successors, upgrade


@pytest.fixture
def etcd(tmp_path: pathlib.Path) -> Iterator[Etcd]:
    with Etcd(tmp_path, members=3) as etcd:
        yield etcd


def reload(each: LoadedProxy, change: Callable[[str], str]) -> None:
    text = each.file.read_text()
    changed = change(text)
    assert changed != text
    each.file.write_text(changed)
    before = each.proxy.output().count("config reloaded")
    each.proxy.signal(signal.SIGHUP)
    wait_until("config reloaded", lambda: each.proxy.output().count("config reloaded") > before)


@pytest.mark.timeout(180)
def test_reloads_and_upgrades_fail_no_request(fleet: Fleet, etcd: Etcd) -> None:
    plimsoll = EtcdFleet(fleet, etcd, size=2)
    plimsoll.add_backends(4)
    proxies = plimsoll.add_proxies("p1", "p2", "p3")
    plimsoll.add_load(50)
    plimsoll.settle("started")
    try:
        check(plimsoll, etcd, proxies)
    finally:
        for each in proxies:
            for pid in successors(each.proxy):
                if is_running(pid):
                    os.kill(pid, signal.SIGKILL)


@pytest.mark.timeout(120)
def test_lead_goes_to_another_when_a_reload_ends_the_ledger(fleet: Fleet, etcd: Etcd) -> None:
    plimsoll = EtcdFleet(fleet, etcd, size=2)
    plimsoll.add_backends(4)
    plimsoll.add_proxies("p1", "p2", "p3")
    plimsoll.add_load(20)
    plimsoll.settle("started")
    first = plimsoll.leader()
    assert first is not None
    others = {"p1", "p2", "p3"} - {first}
    reload(plimsoll.proxy(first), lambda text: text.replace("subset.size = 2", 'subset.size = "off"'))
    wait_until("another leads", lambda: plimsoll.leader() in others, 30, every=0.2)
    assert others <= plimsoll.assignments().keys()
    results = plimsoll.finish()
    assert {id: failed for id, (_, failed) in results.items() if failed} == {}, results


@pytest.mark.timeout(120)
def test_proxy_with_an_empty_source_leaves_the_lead_to_another(fleet: Fleet, etcd: Etcd) -> None:
    plimsoll = EtcdFleet(fleet, etcd, size=2)
    plimsoll.add_backends(4)
    keys = plimsoll.keys
    plimsoll.keys = replace(keys, service="nothing-there")
    plimsoll.add_proxies("empty")
    plimsoll.keys = keys
    wait_until("it is a member", lambda: "empty" in "".join(etcd.records(keys.members)))
    plimsoll.add_proxies("p1")
    wait_until("the one with backends leads", lambda: plimsoll.leader() == "p1", 30, every=0.2)
    wait_until("it has its backends", lambda: len(plimsoll.assignments().get("p1", ())) == 2, 10, every=0.2)


def check(plimsoll: EtcdFleet, etcd: Etcd, proxies: list[LoadedProxy]) -> None:
    before = plimsoll.assignments()
    group = f'group = "{plimsoll.keys.group}"'

    # Other endpoints: the same member by another lease, with the same backends.
    members = etcd.records(plimsoll.keys.members)
    endpoints = [f'"{endpoint}"' for endpoint in etcd.endpoints]
    for each in proxies:
        reload(each, lambda text: text.replace(", ".join(endpoints), endpoints[-1]))
    old = {record.lease for record in members.values()}
    wait_until(
        "all have another lease",
        lambda: len(now := etcd.records(plimsoll.keys.members)) == 3 and not old & {record.lease for record in now.values()},
    )
    plimsoll.settle("other endpoints")
    assert plimsoll.assignments() == before

    # Without a group, and with it again.
    one = proxies[0]
    reload(one, lambda text: text.replace(group, ""))
    wait_until("it has left", lambda: plimsoll.assignments().keys() == {"p2", "p3"}, 40, every=0.2)
    reload(one, lambda text: text.replace("[client]\n", f"[client]\n{group}\n"))
    plimsoll.settle("back in the group")

    # In another group it leads itself.
    reload(one, lambda text: text.replace(group, 'group = "other"'))
    other = f"{plimsoll.keys.prefix}ledger/{plimsoll.keys.cluster}/other/"
    wait_until("it leads the other group", lambda: etcd.get(f"{other}leader") == "p1", 20, every=0.2)
    wait_until("it has backends there", lambda: etcd.get(f"{other}of/p1"), 10, every=0.2)
    reload(one, lambda text: text.replace('group = "other"', group))
    plimsoll.settle("back from the other group")

    # A successor is the same member, with the same backends. The one that leads hands over the lead, too.
    before = plimsoll.assignments()
    for each in proxies:
        upgrade(each.proxy, each.proxy.pid)
    wait_until("a successor leads", lambda: plimsoll.leader() is not None, 20)
    time.sleep(15)
    assert plimsoll.assignments() == before
    assert sorted(key.removeprefix(plimsoll.keys.members) for key in etcd.values(plimsoll.keys.members)) == ["p1", "p2", "p3"]
    for each in proxies:
        assert not any("another process" in warning or "deleted or taken" in warning for warning in warnings(each.proxy))
    results = plimsoll.finish()
    assert {id: failed for id, (_, failed) in results.items() if failed} == {}, results
    assert [each for each in plimsoll.history().violations if each.rule in ("number", "writer", "order")] == []
