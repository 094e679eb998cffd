"""Costs of a request on machines of two speeds that burn CPU: by the library's reports, and by the kernel.

Each backend is a process with a core to burn. Both get the same requests, one after the other, by
turns: the cost of a request is the same on any machine, in reference CPU-seconds.
"""

import base64
import http.client
import statistics
import struct

from ..peers import Plimsoll
from ..processes import Process, Site, cpu_of_threads, free_port

COST_MS = 10.0
SPEEDS = (1.0, 2.0)
# Requests in a row, so that ticks of the kernel's count are small beside them.
BLOCK = 50
# Threads that burn the cost of requests.
_BURNS = "core"


def reported(header: str) -> float:
    """`request_cost.cpu` of an ORCA load report, in seconds: an entry of a map of doubles."""
    encoded = base64.b64decode(header + "=" * (-len(header) % 4))
    at = encoded.index(b"\x0a\x03cpu\x11") + 6
    return struct.unpack_from("<d", encoded, at)[0]


class Machine:
    def __init__(self, site: Site, speed: float):
        self.speed, self.port = speed, free_port()
        command = [Plimsoll.program, "backend", "--listen", f"127.0.0.1:{self.port}", "--cost", f"fixed:{COST_MS}ms"]
        command += ["--speed", str(speed), "--protect"]
        self.process = Process(f"burns-{speed}", command, site.directory, site.load_cores)
        self.process.wait_for_port(self.port)
        self.connection = http.client.HTTPConnection("127.0.0.1", self.port)
        self.reports: list[float] = []
        self.used: list[float] = []

    def ask(self, requests: int) -> None:
        """Sends requests one after the other; keeps their reported costs, and the CPU that they used."""
        begun = cpu_of_threads(self.process.pid, _BURNS)
        for _ in range(requests):
            self.connection.request("GET", "/")
            response = self.connection.getresponse()
            response.read()
            header = response.getheader("endpoint-load-metrics-bin")
            assert response.status == 200 and header is not None, response.status
            self.reports.append(reported(header))
        self.used.append((cpu_of_threads(self.process.pid, _BURNS) - begun) / requests)


def run(site: Site, blocks: int) -> dict:
    machines = [Machine(site, speed) for speed in SPEEDS]
    try:
        for machine in machines:
            machine.ask(5)
            machine.reports.clear()
            machine.used.clear()
        for _ in range(blocks):
            for machine in machines:
                machine.ask(BLOCK)
    finally:
        for machine in machines:
            machine.process.kill()
    return {str(machine.speed): summary(machine) for machine in machines}


def summary(machine: Machine) -> dict:
    mean_used = statistics.mean(machine.used)
    return {
        "requests": len(machine.reports),
        "used_ms": 1e3 * mean_used,
        "used_reference_ms": 1e3 * mean_used * machine.speed,
        "reported_mean_ms": 1e3 * statistics.mean(machine.reports),
        "reported_p5_ms": 1e3 * statistics.quantiles(machine.reports, n=20)[0],
        "reported_p95_ms": 1e3 * statistics.quantiles(machine.reports, n=20)[-1],
    }
