"""The processes under test: a quota server, and backends that share its limits."""

import json
import time
import urllib.error
import urllib.request
from dataclasses import dataclass

from ..peers import Plimsoll
from ..processes import Process, Site, StartFailed, cpu_of_threads, cpu_of_tree, free_port

BACKENDS = 8
# CPU of a request, in the mean. Requests differ, sigma of the logarithm.
COST_MS = 1.0
COST = f"lognormal:{COST_MS * 1e3:.0f}us,0.3"
# Threads of a backend that burn the cost of requests.
_BURNS = "core"


@dataclass(frozen=True)
class Customer:
    """A customer, its limit in CPUs, and its demand as a part of it."""

    name: str
    limit: float
    demand: float

    def rate(self, demand: float | None = None) -> float:
        """Requests a second of this demand."""
        return (self.demand if demand is None else demand) * self.limit * 1e3 / COST_MS


CUSTOMERS = (
    Customer("acme", 0.5, 3.0),
    Customer("globex", 0.3, 0.75),
    Customer("initech", 0.3, 0.6),
    Customer("umbrella", 0.2, 0.3),
)
GREEDY = CUSTOMERS[0]
# Demand of the greedy customer before it becomes greedy.
MODEST = 0.6
# Parts of the requests of a customer at the backends. Those of the next customer begin two backends later.
PARTS = (12, 6, 3, 1, 0.5, 0.5, 0.5, 0.5)


def parts(customer: int) -> list[float]:
    """The parts of a customer by backend, in sum 1."""
    return [PARTS[(at - 2 * customer) % len(PARTS)] / sum(PARTS) for at in range(BACKENDS)]


def use_of_even_parts(customer: int) -> float:
    """The part of its limit that a customer can use if each backend has an even part of the limit."""
    demand = CUSTOMERS[customer].demand
    return sum(min(1 / BACKENDS, demand * part) for part in parts(customer))


class QuotaServer:
    """`plimsoll quota`, which can be killed and started again at its addresses."""

    def __init__(self, site: Site, limits: list[Customer]):
        self.site, self.limits = site, limits
        self.port, self.admin = free_port(), free_port()
        self.starts = 0
        self.start()

    def start(self) -> None:
        self.starts += 1
        command = [Plimsoll.program, "quota", "--listen", f"127.0.0.1:{self.port}", "--admin", f"127.0.0.1:{self.admin}"]
        for customer in self.limits:
            command += ["--limit", f"{customer.name}={customer.limit}"]
        self.process = Process(f"quota-{self.port}-{self.starts}", command, self.site.directory, self.site.proxy_cores)
        self.process.wait_for_port(self.admin)

    def state(self) -> dict:
        """The service with its customers and tasks."""
        with urllib.request.urlopen(f"http://127.0.0.1:{self.admin}/api/v1/quota/default", timeout=5) as answer:
            return json.load(answer)

    def metric(self, name: str) -> float:
        """The sum of a metric over its labels."""
        with urllib.request.urlopen(f"http://127.0.0.1:{self.admin}/metrics", timeout=5) as answer:
            lines = answer.read().decode().splitlines()
        return sum(float(line.split()[-1]) for line in lines if line.startswith((f"{name} ", f"{name}{{")))

    def wait_for_tasks(self, count: int, seconds: float) -> None:
        """Returns once so many tasks are connected, and their rates known."""
        deadline = time.monotonic() + seconds
        while True:
            state = self.state()
            connected = sum(task["connected"] for task in state["instances"])
            if connected == count and not state["unsure"]:
                return
            if time.monotonic() > deadline:
                raise StartFailed(f"{connected} of {count} tasks are connected after {seconds:g} s")
            time.sleep(0.1)


class Fleet:
    """A quota server and its backends."""

    def __init__(self, site: Site):
        self.server = QuotaServer(site, list(CUSTOMERS))
        self.backends: list[Process] = []
        self.ports = [free_port() for _ in range(BACKENDS)]
        for number, port in enumerate(self.ports):
            command = [Plimsoll.program, "backend", "--listen", f"127.0.0.1:{port}", "--cost", COST, "--protect", "--cost-header"]
            command += ["--quota", f"127.0.0.1:{self.server.port}"]
            self.backends.append(Process(f"backend-{self.server.port}-{number}", command, site.directory, site.load_cores))
        for process, port in zip(self.backends, self.ports, strict=True):
            process.wait_for_port(port)
        self.server.wait_for_tasks(BACKENDS, 20)

    def cpu(self) -> tuple[float, float]:
        """CPU seconds of the backends so far, by the kernel: all, and those of the threads that burn costs."""
        total = sum(cpu_of_tree(process.pid).total for process in self.backends)
        return total, sum(cpu_of_threads(process.pid, _BURNS) for process in self.backends)

    def charged(self) -> dict[str, float] | None:
        """Use by customer, as the quota server knows it; `None` without an answer."""
        try:
            return {of["customer"]: of["used_cpus"] for of in self.server.state()["customers"]}
        except (urllib.error.URLError, OSError, ValueError):
            return None

    def stop(self) -> None:
        self.server.process.kill()
        for process in self.backends:
            process.kill()
