"""The etcd of the tests: real processes of both versions, their store and their faults."""

import pathlib
from collections.abc import Iterator

import pytest

from harness.etcd import VERSIONS, Change, Etcd
from harness.process import wait_until


@pytest.fixture(params=VERSIONS)
def etcd(request: pytest.FixtureRequest, tmp_path: pathlib.Path) -> Iterator[Etcd]:
    with Etcd(tmp_path, members=3, version=request.param) as etcd:
        yield etcd


def test_store_tells_its_whole_history(etcd: Etcd) -> None:
    first = etcd.put("/a/1", "one")
    lease = etcd.grant(60)
    etcd.put("/a/2", "two", lease)
    etcd.put("/b", "other")
    etcd.put("/a/1", "uno")
    etcd.delete("/a/1")
    assert etcd.get("/a/1") is None and etcd.get("/a/2") == "two"
    assert etcd.values("/a/") == {"/a/2": "two"}
    assert etcd.records("/a/")["/a/2"].lease == lease and lease in etcd.leases()
    etcd.revoke(lease)
    assert etcd.values("/a/") == {}
    assert etcd.history("/a/") == [
        Change(first, "/a/1", "one", None),
        Change(first + 1, "/a/2", "two", None, lease),
        Change(first + 3, "/a/1", "uno", "one"),
        Change(first + 4, "/a/1", None, "uno"),
        Change(first + 5, "/a/2", None, "two"),
    ]


def test_cluster_lives_on_without_its_leader(etcd: Etcd) -> None:
    watch = etcd.watch("/n/")
    wanted = []
    for number, fault in enumerate((etcd.kill, etcd.pause, etcd.kill)):
        wanted.append(f"/n/{number}")
        etcd.put(wanted[-1], "before")
        leader = etcd.leader()
        fault(leader)
        assert etcd.leader() != leader
        wanted.append(f"/n/{number}-after")
        etcd.put(wanted[-1], "after")
        watch.until(etcd.revision())
        etcd.resume(leader) if fault == etcd.pause else etcd.restart(leader)
        etcd.start()
    etcd.kill_all()
    etcd.start()
    assert sorted(etcd.values("/n/")) == sorted(wanted)
    assert [change.key for change in watch.until(etcd.revision())] == wanted


def test_compaction_and_an_erased_store_are_seen(tmp_path: pathlib.Path) -> None:
    etcd = Etcd(tmp_path).start()
    try:
        etcd.put("/a", "1")
        assert etcd.put("/a", "2") == etcd.compact()
        with pytest.raises(AssertionError, match="were compacted, 1 was next"):
            etcd.history("/")
        assert "/a\n2\n" in etcd.etcdctl("get", "/a")
        etcd.kill(0)
        etcd.erase(0)
        etcd.start()
        wait_until("the new store is empty", lambda: etcd.values("/") == {})
    finally:
        etcd.stop()
