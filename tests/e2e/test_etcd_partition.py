"""The client of etcd while a member is cut off from the others: `crates/plimsoll-etcd/examples/follow.rs`."""

import os
import pathlib
import time
from collections.abc import Iterator

import pytest

from harness.etcd import VERSIONS, Etcd
from harness.fleet import ROOT
from harness.networks import Networks
from harness.process import Process, find_program, run, wait_until

TARGET = pathlib.Path(os.environ.get("CARGO_TARGET_DIR", ROOT / "target"))
FOLLOW = TARGET / "debug/examples/follow"
PREFIX = "/plimsoll/v1/services/web/"


class Partitioned:
    """Three members in networks of their own, and a client of all."""

    def __init__(self, directory: pathlib.Path, version: str):
        assert FOLLOW.exists(), f"{FOLLOW} does not exist; run cargo build -p plimsoll-etcd --example follow"
        self.networks = Networks(directory, 3)
        self.etcd = Etcd(directory, version=version, hosts=self.networks.hosts)
        self.client: Process | None = None

    def start(self) -> "Partitioned":
        self.etcd.start()
        self.etcd.put(f"{PREFIX}a", "before")
        command = [str(FOLLOW), ",".join(self.etcd.endpoints), "services/web/"]
        self.client = Process("follow", command, self.etcd.directory.parent)
        self.wait_for("put a before")
        wait_until("a lease", lambda: "lease " in self.client.output())
        return self

    def wait_for(self, line: str, seconds: float = 20) -> None:
        wait_until(f"the client prints {line!r}", lambda: line in self.client.output().splitlines(), seconds)

    def in_use(self) -> int:
        """The member that the client is connected with, once all of its streams are there."""

        def used() -> tuple[int] | None:
            rows = run([find_program("ss"), "-Htnp", "state", "established"]).stdout.splitlines()
            peers = {row.split()[3] for row in rows if f"pid={self.client.pid}," in row}
            members = tuple(number for number, endpoint in enumerate(self.etcd.endpoints) if endpoint in peers)
            return members if len(members) == 1 else None

        (member,) = wait_until("one member is used", used, 20)
        return member

    def puts(self) -> list[str]:
        """The values that the client has seen, in order."""
        return [line.removeprefix("put a ") for line in self.client.output().splitlines() if line.startswith("put a ")]

    def stop(self) -> None:
        if self.client is not None:
            self.client.kill()
        self.etcd.stop()
        self.networks.close()


@pytest.fixture(params=VERSIONS)
def partitioned(request: pytest.FixtureRequest, tmp_path: pathlib.Path) -> Iterator[Partitioned]:
    partitioned = Partitioned(tmp_path, request.param)
    try:
        yield partitioned.start()
    finally:
        partitioned.stop()


def test_client_leaves_a_member_that_is_cut_off(partitioned: Partitioned) -> None:
    etcd = partitioned.etcd
    lease = etcd.leases()
    assert len(lease) == 1
    for number in range(2):
        cut_off = partitioned.in_use()
        partitioned.networks.isolate(cut_off)
        began = time.monotonic()
        # The client's connection itself is whole. The others may have to elect a leader.
        etcd.leave_out(cut_off)
        etcd.put(f"{PREFIX}a", f"during {number}")
        partitioned.wait_for(f"put a during {number}")
        took = time.monotonic() - began
        # 3 s to know that there is no leader, or 4.5 s of silence; an election beside it.
        assert took < 12, f"{took:.1f} s"
        assert partitioned.in_use() != cut_off
        partitioned.networks.heal()
        etcd.include(cut_off)
        etcd.start()
        etcd.put(f"{PREFIX}a", f"after {number}")
        partitioned.wait_for(f"put a after {number}")
    # Its lease never ended, and no change was lost. One whose answer came late was done twice, and in any order.
    assert etcd.leases() == lease
    changes = [change.value for change in etcd.history(f"{PREFIX}a")]
    assert set(changes) == {"before", "during 0", "after 0", "during 1", "after 1"}
    wait_until("the client has seen all changes", lambda: len(partitioned.puts()) >= len(changes))
    assert partitioned.puts() == changes
    assert sum(line.startswith("listed") for line in partitioned.client.output().splitlines()) == 1
