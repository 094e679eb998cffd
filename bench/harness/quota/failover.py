"""Two quota servers with one etcd, under load: the owner is lost, or etcd is."""

import asyncio
import json
import os
import pathlib
import shutil
import signal
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Callable
from dataclasses import dataclass

from ..peers import Plimsoll
from ..processes import Process, Site, StartFailed, free_port
from .fleet import BACKENDS, COST, CUSTOMERS, GREEDY
from .load import Ended, Load
from .series import extremes, failed, overloaded, refused, refused_by_criticality, within

RELAY = pathlib.Path(__file__).resolve().parents[3] / "tests/e2e/harness/relay.py"
# Goals.
MOST_TAKEOVER_S = 7.0
MOST_USE = 1.04
# Under load before the fault; the last ten are the period `before`.
_WARMUP_S = 15.0
_BEFORE_S = 10.0
_AFTER_S = 30.0
FAULTS = ("killed", "silent", "cut off from etcd", "etcd paused")


class Server:
    """`plimsoll quota` with an etcd, behind a relay that can be paused."""

    def __init__(self, site: Site, name: str, etcd: str):
        self.port, self.admin, relay = free_port(), free_port(), free_port()
        self.relay = Process(f"relay-{name}", [sys.executable, str(RELAY), str(relay), etcd], site.directory, site.proxy_cores)
        self.relay.wait_for_port(relay)
        limits = "\n".join(f"[services.default.customers.{of.name}]\nhard_limit = {of.limit}" for of in CUSTOMERS)
        file = site.directory / f"quota-{name}.toml"
        file.write_text(
            f'listen = "127.0.0.1:{self.port}"\nadvertise = "127.0.0.1:{self.port}"\nadmin.listen = "127.0.0.1:{self.admin}"\n'
            f'[etcd]\nendpoints = ["127.0.0.1:{relay}"]\n{limits}\n'
        )
        self.process = Process(f"quota-{name}", [Plimsoll.program, "quota", "-c", str(file)], site.directory, site.proxy_cores)
        self.process.wait_for_port(self.admin)

    def get(self, path: str) -> dict:
        with urllib.request.urlopen(f"http://127.0.0.1:{self.admin}{path}", timeout=2) as answer:
            return json.load(answer)

    def owns(self) -> bool:
        """Whether it is sure to be the owner of the service."""
        try:
            (owner,) = self.get("/api/v1/quota")["owners"]
        except (urllib.error.URLError, OSError, ValueError):
            return False
        return owner["here"] and not owner["overdue"]

    def has_all(self) -> bool:
        """Whether it is the owner, with all tasks, and knows their rates."""
        if not self.owns():
            return False
        try:
            state = self.get("/api/v1/quota/default")
        except urllib.error.HTTPError:
            return False
        return sum(task["connected"] for task in state["instances"]) == BACKENDS and not state["unsure"]

    def stop(self) -> None:
        self.process.kill()
        self.relay.kill()


@dataclass
class Fleet:
    """An etcd, two servers and the backends."""

    etcd: Process
    servers: list[Server]
    backends: list[Process]
    ports: list[int]

    @classmethod
    def start(cls, site: Site) -> "Fleet":
        program = shutil.which("etcd")
        if program is None:
            raise StartFailed("etcd is not installed: apt-get install etcd-server")
        port, peer = free_port(), free_port()
        client, of_peer = f"http://127.0.0.1:{port}", f"http://127.0.0.1:{peer}"
        command = [program, "--data-dir", str(site.directory / f"etcd-{port}"), "--listen-client-urls", client]
        command += ["--advertise-client-urls", client, "--listen-peer-urls", of_peer, "--initial-advertise-peer-urls", of_peer]
        command += ["--initial-cluster", f"default={of_peer}"]
        etcd = Process(f"etcd-{port}", command, site.directory, site.proxy_cores)
        etcd.wait_for_port(port)
        servers = [Server(site, f"{port}-{number}", f"127.0.0.1:{port}") for number in (1, 2)]
        # Both have their part of the shards then: 10 s after the second has come.
        time.sleep(14)
        ports = [free_port() for _ in range(BACKENDS)]
        backends = []
        for number, at in enumerate(ports):
            command = [Plimsoll.program, "backend", "--listen", f"127.0.0.1:{at}", "--cost", COST, "--emulate", "fcfs"]
            command += ["--cores", "4", "--protect", "--cost-header"]
            command += [argument for server in servers for argument in ("--quota", f"127.0.0.1:{server.port}")]
            backends.append(Process(f"backend-{port}-{number}", command, site.directory, site.load_cores))
        for process, at in zip(backends, ports, strict=True):
            process.wait_for_port(at)
        fleet = cls(etcd, servers, backends, ports)
        fleet.wait(lambda: any(server.has_all() for server in servers), 30)
        return fleet

    @staticmethod
    def wait(condition: Callable[[], bool], seconds: float) -> float:
        begun = time.monotonic()
        while not condition():
            if time.monotonic() - begun > seconds:
                raise StartFailed(f"not within {seconds:g} s")
            time.sleep(0.02)
        return time.monotonic()

    def stop(self) -> None:
        for server in self.servers:
            server.stop()
        for process in [*self.backends, self.etcd]:
            process.kill()


def measure(site: Site, fault: str, outage: float) -> dict:
    """One fault. `outage`: how long etcd is paused, if it is."""
    fleet = Fleet.start(site)
    owner, other = sorted(fleet.servers, key=lambda server: not server.has_all())
    takeover: float | None = None

    async def main() -> tuple[Load, float]:
        nonlocal takeover
        load = Load(fleet.ports, 7)
        load.rates = [of.rate() for of in CUSTOMERS]
        running = asyncio.create_task(load.run())
        await asyncio.sleep(_WARMUP_S)
        at = time.monotonic()
        match fault:
            case "killed":
                owner.process.kill()
            case "silent":
                os.kill(owner.process.pid, signal.SIGSTOP)
            case "cut off from etcd":
                os.kill(owner.relay.pid, signal.SIGSTOP)
            case _:
                os.kill(fleet.etcd.pid, signal.SIGSTOP)
                await asyncio.sleep(outage)
                os.kill(fleet.etcd.pid, signal.SIGCONT)
        if fault != "etcd paused":
            takeover = await asyncio.to_thread(Fleet.wait, other.has_all, 30) - at
        await asyncio.sleep(_AFTER_S)
        if running.done():
            running.result()
        running.cancel()
        return load, at

    try:
        load, at = asyncio.run(main())
    finally:
        fleet.stop()
    end = at + _AFTER_S + (outage if fault == "etcd paused" else takeover or 0.0)
    greedy = CUSTOMERS.index(GREEDY)
    costs = [(each.at, each.cost) for each in load.ended if each.customer == greedy]
    during = within(load.ended, at, end)
    before = within(load.ended, at - _BEFORE_S, at)
    spans = {"before": (at - _BEFORE_S - 0.05, at), "from": (at - _BEFORE_S, end)}
    any_ten = {name: extremes(costs, *span) for name, span in spans.items()}
    gap = within(load.ended, at, at + (outage if fault == "etcd paused" else takeover or 0.0))
    return {
        "fault": fault,
        "outage_s": outage if fault == "etcd paused" else None,
        "takeover_s": takeover,
        "any_10s": {name: of and [each / GREEDY.limit for each in of] for name, of in any_ten.items()},
        "refused_before": by_customer(before),
        "refused_in_the_gap": by_customer(gap),
        "refused": by_customer(during),
        "refused_by_criticality": refused_by_criticality([each for each in gap if each.customer == greedy]),
        "overloaded": overloaded(during),
        "failed": failed(during),
        "max_send_lag_ms": 1e3 * load.late,
    }


def by_customer(ended: list[Ended]) -> dict[str, float | None]:
    """The refused part of each customer's requests."""
    return {of.name: refused([each for each in ended if each.customer == at]) for at, of in enumerate(CUSTOMERS)}


def missed(result: dict) -> list[str]:
    """Goals that were missed."""
    made, name = [], result["fault"]
    if result["takeover_s"] is not None and result["takeover_s"] > MOST_TAKEOVER_S:
        made.append(f"{name}: takeover after {result['takeover_s']:.1f} s")
    most = result["any_10s"]["from"][1]
    if most > MOST_USE:
        made.append(f"{name}: {most:.1%} of the limit used over ten seconds")
    if result["failed"]:
        made.append(f"{name}: requests failed: {result['failed']}")
    return made
