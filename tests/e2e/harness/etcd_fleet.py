"""A whole fleet on etcd, of real processes: backends that `plimsoll register` keeps in the registry, and proxies of one group."""

import json
import pathlib
import re
import time
from collections import Counter
from dataclasses import dataclass

from .etcd import Etcd
from .fleet import PLIMSOLL, UNTIL_FINISHED, Backend, Fleet, Proxy, RunningLoad
from .fleet_history import QUIET, History, Keys, Quiet, addresses, ready
from .process import Process, find_program, free_port, run, wait_until

# A backend waits a little, so that some requests are in flight at each moment.
BACKEND = ("--cost", "fixed:100us", "--wait", "fixed:5ms")


class Register(Process):
    """`plimsoll register`."""

    def __init__(self, name: str, arguments: list[str], directory: pathlib.Path):
        super().__init__(name, [PLIMSOLL, "register", *arguments], directory)


@dataclass
class Registered:
    """A backend and the process that registers it."""

    backend: Backend
    register: Register

    @property
    def address(self) -> str:
        return self.backend.address


@dataclass
class LoadedProxy:
    """A proxy, its id in the group, and the load on it."""

    id: str
    proxy: Proxy
    file: pathlib.Path
    load: RunningLoad | None = None


class EtcdFleet:
    """Processes of one fleet on one etcd; `fleet` ends those of Plimsoll."""

    def __init__(
        self, fleet: Fleet, etcd: Etcd, size: int = 4, subset: str = "", discovery: str = "", further: str = "", slots: bool = False
    ):
        self.fleet, self.etcd, self.size = fleet, etcd, size
        self.subset, self.discovery, self.further, self.slots = subset, discovery, further, slots
        self.keys = Keys()
        self.backends: list[Registered] = []
        self.proxies: list[LoadedProxy] = []
        self.lost: dict[str, LoadedProxy] = {}
        self._registers = 0

    # Processes.

    def add_backends(self, count: int) -> list[Registered]:
        """Backends that are ready in the registry."""
        backends = [self.fleet.backend(*BACKEND) for _ in range(count)]
        added = [Registered(backend, self.register(backend)) for backend in backends]
        self.backends += added
        wait_until("all backends are ready", lambda: {each.address for each in added} <= self.ready(), 30)
        return added

    def register(self, backend: Backend, *arguments: str) -> Register:
        self._registers += 1
        ports = ["--etcd", ",".join(self.etcd.endpoints), "--service", self.keys.service, "--address", backend.address]
        slot = ["--slot"] if self.slots else []
        name = f"register-{self._registers}"
        register = Register(name, [*ports, "--pid", str(backend.pid), *slot, *arguments], self.fleet.directory)
        self.fleet.processes.append(register)
        return register

    def config(self, id: str, port: int, admin: int) -> str:
        endpoints = ", ".join(f'"{endpoint}"' for endpoint in self.etcd.endpoints)
        return f"""
threads = 1
[admin]
listen = "127.0.0.1:{admin}"
[etcd]
endpoints = [{endpoints}]
[client]
group = "{self.keys.group}"
id = "{id}"
[[listeners]]
address = "127.0.0.1:{port}"
max_connections = 1000
[[routes]]
cluster = "{self.keys.cluster}"
[clusters.{self.keys.cluster}]
subset.size = {self.size}
{self.subset}
[clusters.{self.keys.cluster}.discovery]
etcd = "{self.keys.service}"
{self.discovery}
{self.further}
"""

    def add_proxies(self, *ids: str) -> list[LoadedProxy]:
        """Proxies that serve. Two of one id are told apart by their ports."""
        started = []
        for id in ids:
            port, admin = free_port(), free_port()
            path = self.fleet.directory / f"{id}-{port}.toml"
            path.write_text(self.config(id, port, admin))
            proxy = Proxy(f"proxy-{id}-{port}", ["-c", str(path)], port, admin, self.fleet.directory)
            self.fleet.processes.append(proxy)
            started.append(LoadedProxy(id, proxy, path))
        for each in started:
            each.proxy.wait_for_port(each.proxy.port, 30)
        self.proxies += started
        return started

    def start_proxy(self, id: str) -> None:
        """Starts a lost proxy once more, with its file and ports. Does not wait."""
        proxy = Proxy(f"proxy-{self.lost[id].file.stem}", ["-c", str(self.lost[id].file)], self.lost[id].proxy.port, self.lost[id].proxy.admin.port, self.fleet.directory)
        self.fleet.processes.append(proxy)
        self.proxies.append(LoadedProxy(id, proxy, self.lost.pop(id).file))

    def restart(self, each: Registered) -> None:
        """Starts a killed backend once more, and registers it."""
        each.backend = self.fleet.again(each.backend)
        each.register.wait(15)
        each.register = self.register(each.backend)

    def add_load(self, rate: int) -> None:
        """Load on each proxy that has none, of clients that try a request once."""
        for each in self.proxies:
            if each.load is None:
                each.load = self.fleet.load(each.proxy.url, "--rate", str(rate), "--duration", UNTIL_FINISHED, "--connections", "4")

    def lose(self, each: LoadedProxy) -> None:
        """Kills a proxy, and with it the load on it."""
        if each.load is not None:
            each.load.kill()
        each.proxy.kill()
        self.proxies.remove(each)
        self.lost[each.id] = each

    def proxy(self, id: str) -> LoadedProxy:
        return next(each for each in self.proxies if each.id == id)

    # What they made of it.

    def ready(self) -> set[str]:
        """Addresses that are ready in the registry."""
        return ready(self.etcd.values(self.keys.backends).values())

    def assignments(self) -> dict[str, set[str]]:
        values = self.etcd.values(self.keys.assignments)
        return {key.removeprefix(self.keys.assignments): set(addresses(value) or ()) for key, value in values.items()}

    def numbers(self) -> dict[int, str]:
        values = self.etcd.values(self.keys.numbers)
        return {int(key.removeprefix(self.keys.numbers)): value for key, value in values.items()}

    def slots_of_backends(self) -> dict[int, str]:
        values = self.etcd.values(self.keys.slots)
        return {int(key.removeprefix(self.keys.slots)): value for key, value in values.items()}

    def known(self, each: LoadedProxy) -> int:
        """The backends that a proxy knows of, in its subset or not."""
        return int(each.proxy.admin.metric("plimsoll_discovery_backends", cluster=self.keys.cluster))

    def leader(self) -> str | None:
        return self.etcd.get(self.keys.leader)

    def is_settled(self) -> bool:
        """Whether each proxy has as many of the ready backends as it should, equally many proxies each, and all know it."""
        ready, assigned = self.ready(), self.assignments()
        if {each.id for each in self.proxies} != assigned.keys() or self.leader() not in assigned:
            return False
        wanted = min(self.size, len(ready))
        if any(len(backends) != wanted or backends - ready for backends in assigned.values()):
            return False
        counts = Counter(dict.fromkeys(ready, 0))
        for backends in assigned.values():
            counts.update(backends)
        return max(counts.values()) - min(counts.values()) <= 1

    def connected(self) -> dict[str, set[str]]:
        """The backends that each proxy has an established connection with, as the kernel tells."""
        rows = run([find_program("ss"), "-Htnp", "state", "established"]).stdout.splitlines()
        addresses = {each.address for each in self.backends}
        ids = {each.proxy.pid: each.id for each in self.proxies}
        found: dict[str, set[str]] = {each.id: set() for each in self.proxies}
        for row in rows:
            peer, process = row.split()[3], re.search(r"pid=(\d+),", row)
            if peer in addresses and process is not None and int(process[1]) in ids:
                found[ids[int(process[1])]].add(peer)
        return found

    def settle(self, name: str, seconds: float = 60) -> Quiet:
        """Waits for a quiet moment, in which the connections are those of the assignments, and notes it in the log."""
        wait_until(f"assignments settle: {name}", self.is_settled, seconds, every=0.2)
        if all(each.load is not None for each in self.proxies):
            wait_until(f"connections settle: {name}", lambda: self.connected() == self.assignments(), 20, every=0.5)
        # Nothing more is to come: longer than the time that the leader gathers and settles.
        before = self.assignments()
        time.sleep(3)
        assert self.assignments() == before, f"assignments changed in quiet: {name}"
        self.etcd.put(QUIET, name)
        return self.history().quiet[-1]

    def history(self) -> History:
        """The log until now, read by the rules."""
        return History(self.etcd.history("/"), self.size, self.keys)

    def finish(self) -> dict[str, tuple[int, int]]:
        """Ends the loads. Requests and failures of each, by the id of its proxy."""
        loads = [each for each in self.proxies if each.load is not None]
        time.sleep(1)
        for each in loads:
            assert each.load.running(), f"{each.load.name} ended before the test: {each.load.output()}"
            each.load.interrupt()
        results = {each.id: each.load.result() for each in loads}
        return {id: (load.requests, load.failed) for id, load in results.items()}


def warnings(process: Process) -> list[str]:
    """Messages of a process's log that are warnings or worse, but for that of the machine's limits."""
    lines = [json.loads(line) for line in process.output().splitlines() if line.startswith("{")]
    return [f"{line['message']} {line.get('error', '')}" for line in lines if line["level"] in ("WARN", "ERROR") and "descriptors" not in line["target"]]
