"""A fleet under faults drawn by chance: what its log must never show, and that it is well again after them.

One seed among the other tests. More, and for longer:

    PLIMSOLL_FAULT_SEEDS=1-20 PLIMSOLL_FAULT_SECONDS=120 pytest test_fleet_faults.py
"""

import os
import pathlib
import random
import signal
import time
from collections.abc import Callable, Iterator

import pytest

from harness.etcd import Etcd
from harness.etcd_fleet import EtcdFleet
from harness.fleet import Fleet

FIRST, _, LAST = os.environ.get("PLIMSOLL_FAULT_SEEDS", "1").partition("-")
SEEDS = range(int(FIRST), int(LAST or FIRST) + 1)
SECONDS = float(os.environ.get("PLIMSOLL_FAULT_SECONDS", "45"))
# Shorter and longer than a lease of 10 s.
TIMES = (0.5, 3, 12)
# A second cluster, so that each proxy has an index beside its assignment.
NUMBERED = """
[[routes]]
path_prefix = "/numbered"
cluster = "numbered"
[clusters.numbered.subset]
size = 2
algorithm = "rocksteadier"
[clusters.numbered.discovery]
etcd = "web"
ordinals = true
"""


@pytest.fixture
def etcd(tmp_path: pathlib.Path) -> Iterator[Etcd]:
    with Etcd(tmp_path, members=3) as etcd:
        yield etcd


class Faults:
    """Draws faults, and ends each after its time."""

    def __init__(self, plimsoll: EtcdFleet, seed: int):
        self.plimsoll, self.etcd, self.rng = plimsoll, plimsoll.etcd, random.Random(seed)
        self.due: list[tuple[float, Callable[[], object]]] = []
        self.told: list[str] = []
        # What is under a fault now: never more than one etcd member, unless all are.
        self.busy: set[str] = set()

    def later(self, name: str, end: Callable[[], object]) -> None:
        self.busy.add(name)

        def end_all() -> None:
            self.busy.discard(name)
            end()

        self.due.append((time.monotonic() + self.rng.choice(TIMES), end_all))

    def end(self, until: float) -> None:
        for entry in [entry for entry in self.due if entry[0] <= until]:
            self.due.remove(entry)
            entry[1]()

    def begin(self) -> None:
        fault = self.rng.choice([self.kill_proxy, self.stop_proxy, self.kill_leader, self.stop_leader, self.kill_backend, self.stop_register, self.one_etcd, self.all_etcd])
        self.told.append(f"{time.strftime('%H:%M:%S')} {fault.__name__}")
        fault()

    def kill_proxy(self, chosen: str | None = None) -> None:
        free = [each.id for each in self.plimsoll.proxies if each.id not in self.busy]
        id = chosen or self.rng.choice(free or [""])
        if id in free and len(free) > 2:
            self.plimsoll.lose(self.plimsoll.proxy(id))
            self.later(id, lambda: self.plimsoll.start_proxy(id))

    def stop_proxy(self, chosen: str | None = None) -> None:
        free = [each.id for each in self.plimsoll.proxies if each.id not in self.busy]
        id = chosen or self.rng.choice(free or [""])
        if id in free and len(free) > 2:
            proxy = self.plimsoll.proxy(id).proxy
            proxy.signal(signal.SIGSTOP)
            self.later(id, lambda: proxy.signal(signal.SIGCONT))

    def kill_leader(self) -> None:
        if not self.busy & {"etcd", "member"}:
            self.kill_proxy(self.plimsoll.leader())

    def stop_leader(self) -> None:
        if not self.busy & {"etcd", "member"}:
            self.stop_proxy(self.plimsoll.leader())

    def kill_backend(self) -> None:
        each = self.rng.choice(self.plimsoll.backends)
        if each.address not in self.busy and not self.busy & {"etcd"}:
            each.backend.kill()
            self.later(each.address, lambda: self.plimsoll.restart(each))

    def stop_register(self) -> None:
        each = self.rng.choice(self.plimsoll.backends)
        if each.address not in self.busy:
            each.register.signal(signal.SIGSTOP)
            self.later(each.address, lambda: each.register.signal(signal.SIGCONT))

    def one_etcd(self) -> None:
        if not self.busy & {"etcd", "member"}:
            member = self.rng.randrange(3)
            if self.rng.random() < 0.5:
                self.etcd.pause(member)
                self.later("member", lambda: self.etcd.resume(member))
            else:
                self.etcd.kill(member)
                self.later("member", lambda: self.etcd.restart(member))

    def all_etcd(self) -> None:
        if not self.busy & {"etcd", "member"}:
            self.etcd.pause_all()
            self.later("etcd", self.etcd.resume_all)


@pytest.mark.timeout(int(SECONDS + 200))
@pytest.mark.parametrize("seed", SEEDS)
def test_faults_by_chance_break_no_rule(fleet: Fleet, etcd: Etcd, seed: int) -> None:
    plimsoll = EtcdFleet(fleet, etcd, size=3, further=NUMBERED, slots=True)
    plimsoll.add_backends(7)
    plimsoll.add_proxies(*(f"p{number}" for number in range(5)))
    plimsoll.settle("started")
    faults = Faults(plimsoll, seed)
    end = time.monotonic() + SECONDS
    while time.monotonic() < end:
        faults.end(time.monotonic())
        faults.begin()
        time.sleep(faults.rng.random() * 3)
    faults.end(float("inf"))
    etcd.start()
    # A lease and the distrust after it.
    time.sleep(32)
    plimsoll.settle("after the faults")
    for process in [each.proxy for each in plimsoll.proxies] + [each.register for each in plimsoll.backends]:
        assert process.exit_code is None and "panicked" not in process.output(), process.name
    numbers = plimsoll.numbers()
    assert sorted(numbers.values()) == sorted(each.id for each in plimsoll.proxies), "each has one number"
    slots = plimsoll.slots_of_backends()
    assert sorted(slots.values()) == sorted(each.address for each in plimsoll.backends), "each has one slot"
    # Between the two quiet moments were so many events that moves are not counted.
    violations = [violation for violation in plimsoll.history().violations if violation.rule != "moves"]
    assert violations == [], "\n".join(faults.told)
