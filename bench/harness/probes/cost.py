"""The cost of idle backends: CPU, sockets, descriptors and memory of a proxy that sends no requests.

Each measurement has a network namespace of its own, with new processes. Twenty `plimsoll backend` are
all backends: each listens at a port of every address in 127.0.0.0/8, and an address with a port is a
backend. One responder would refuse 10,000 backends, as it answers one source address 200 times a second.
"""

import pathlib
import sys
import time
from dataclasses import dataclass

from ..peers import HAProxy
from ..processes import Process, Site, find_program, free_port
from .fleet import (
    HTTP_CHECKS,
    NO_CHECKS,
    READINESS_PATH,
    TCP_CHECKS,
    WITH_PROBES,
    Place,
    Proxy,
    Watch,
    ending,
    metric,
    start_backend,
    wait_until_inactive,
    write_keys,
)
from .namespace import namespace

INTERVAL_S = 10
PROBE_INTERVAL_S = 20
PROCESSES = 20
# Until the second checks have come, which follow the first ones by up to an interval.
_SETTLE_S = 12.0
# Backends that became inactive together send their queries 16 to 24 s later, and so on. A time that begins and
# ends between such waves has as many queries as it lasts intervals.
_SETTLE_PROBES_S = 10.0
# That sockets are in TIME_WAIT, by the kernel.
TIME_WAIT_S = 60


@dataclass(frozen=True)
class Contestant:
    name: str
    # Of plimsoll; `None` for HAProxy.
    watch: Watch | None
    # Of HAProxy, lines of its backend.
    haproxy: str = ""


BASELINE = "plimsoll, no checks"
SUBJECT = "plimsoll, probes"
CONTESTANTS = (
    Contestant(BASELINE, NO_CHECKS),
    Contestant(SUBJECT, WITH_PROBES),
    Contestant("plimsoll, TCP checks", TCP_CHECKS),
    Contestant("plimsoll, HTTP checks", HTTP_CHECKS),
    Contestant("HAProxy, TCP checks", None),
    Contestant("HAProxy, HTTP checks", None, f"option httpchk GET {READINESS_PATH}"),
)
NGINX = "The nginx of Debian is the open-source one, which has no active checks (`health_check` is part of the commercial one)."


def address(number: int, ports: list[int]) -> str:
    """A backend of its own: no two share address and port."""
    host = number // len(ports)
    return f"127.1.{host // 250}.{host % 250 + 1}:{ports[number % len(ports)]}"


def start_haproxy(place: Place, backends: list[str], lines: str) -> Process:
    port = free_port()
    servers = "\n".join(f"    server b{number} {each} check inter {INTERVAL_S}s" for number, each in enumerate(backends))
    path = place.site.directory / "haproxy.cfg"
    path.write_text(
        f"""
global
    nbthread 1
    maxconn 1000
defaults
    mode http
    timeout connect 1s
    timeout client 1m
    timeout server 1m
frontend front
    bind 127.0.0.1:{port}
    default_backend backends
backend backends
    {lines}
{servers}
"""
    )
    process = place.start("haproxy", [find_program("haproxy"), "-db", "-f", str(path)], place.site.proxy_cores)
    place.call(process.wait_for_port, port, 60)
    return process


def run_seconds(pid: int) -> float:
    """CPU time of a process so far, in s, to the ns."""
    tasks = pathlib.Path(f"/proc/{pid}/task").iterdir()
    return sum(int((task / "schedstat").read_text().split()[0]) for task in tasks) / 1e9


def anonymous_bytes(pid: int) -> int:
    """Resident memory of a process without its program and libraries."""
    lines = pathlib.Path(f"/proc/{pid}/status").read_text().splitlines()
    return 1024 * next(int(line.split()[1]) for line in lines if line.startswith("RssAnon:"))


def descriptors(pid: int) -> int:
    return len(list(pathlib.Path(f"/proc/{pid}/fd").iterdir()))


def connections_opened(pid: int) -> int:
    """Connections begun so far in the namespace of a process. HAProxy's check by TCP ends before one is accepted."""
    rows = [line.split() for line in pathlib.Path(f"/proc/{pid}/net/snmp").read_text().splitlines() if line.startswith("Tcp:")]
    return int(dict(zip(*rows, strict=True))["ActiveOpens"])


def time_wait(pid: int) -> int:
    """Sockets in TIME_WAIT in the namespace of a process."""
    for line in pathlib.Path(f"/proc/{pid}/net/sockstat").read_text().splitlines():
        fields = line.split()
        if fields[0] == "TCP:":
            return int(fields[fields.index("tw") + 1])
    raise RuntimeError("/proc/PID/net/sockstat has no line of TCP")


@dataclass
class Sample:
    """Counts so far."""

    at: float
    proxy_cpu: float
    backend_cpu: float
    connections: int

    @classmethod
    def take(cls, proxy: int, backends: list[Process]) -> "Sample":
        return cls(time.monotonic(), run_seconds(proxy), sum(run_seconds(each.pid) for each in backends), connections_opened(proxy))


def measure_one(site: Site, contestant: Contestant, count: int, seconds: float) -> dict:
    """A proxy with as many idle backends, over some seconds."""
    with namespace("cost") as network:
        place, processes = Place(site, network), []
        with ending(processes):
            keys = write_keys(site.directory)
            ports = [free_port() for _ in range(PROCESSES)]
            backends = []
            for port in ports:
                backends.append(start_backend(place, f"0.0.0.0:{port}", keys))
                processes.append(backends[-1])
            for port, process in zip(ports, backends, strict=True):
                place.call(process.wait_for_port, port)
            addresses = [address(number, ports) for number in range(count)]
            proxy = None
            if contestant.watch is None:
                process = start_haproxy(place, addresses, contestant.haproxy)
                processes.append(process)
            else:
                proxy = Proxy(place, "proxy", addresses, contestant.watch, "2s", keys)
                process = proxy.process
                processes.append(process)
                proxy.wait()
            if contestant.watch is WITH_PROBES:
                wait_until_inactive(proxy, count)
                time.sleep(_SETTLE_PROBES_S)
            else:
                time.sleep(_SETTLE_S)
            counts = probe_counts(proxy) if proxy else {}
            before = Sample.take(process.pid, backends)
            time.sleep(seconds)
            after = Sample.take(process.pid, backends)
            waiting = time_wait(process.pid)
            ended = probe_counts(proxy) if proxy else {}
            span = after.at - before.at
            connections = after.connections - before.connections
            made = {
                "seconds": span,
                "connections": connections,
                "proxy_cpu_us_per_s": 1e6 * (after.proxy_cpu - before.proxy_cpu) / span,
                "backend_cpu_us_per_s": 1e6 * (after.backend_cpu - before.backend_cpu) / span,
                "time_wait": waiting,
                "descriptors": descriptors(process.pid),
                "anonymous_bytes": anonymous_bytes(process.pid),
            }
            if contestant.watch is WITH_PROBES:
                made |= {name: ended[name] - counts[name] for name in ("queries", "answers")}
                made["inactive"] = ended["inactive"]
            made["checks"] = made.get("queries", connections)
            return made


def probe_counts(proxy: Proxy) -> dict[str, float]:
    text = proxy.metrics()
    names = {
        "queries": "plimsoll_probe_queries_total",
        "answers": "plimsoll_probe_answers_total",
        "inactive": "plimsoll_probe_inactive_backends",
    }
    return {key: metric(text, name) for key, name in names.items()}


def measure(site: Site, sizes: list[int], seconds: float) -> dict:
    """By size and contestant."""
    made: dict = {"seconds": seconds, "processes": PROCESSES, "sizes": {}}
    for size in sizes:
        made["sizes"][str(size)] = {}
        for contestant in CONTESTANTS:
            print(f"{size} idle backends, {contestant.name}, {seconds:g} s", file=sys.stderr)
            home = site.directory / f"cost-{size}-{contestant.name.replace(', ', '-').replace(' ', '-')}"
            home.mkdir()
            made["sizes"][str(size)][contestant.name] = measure_one(
                Site(home, site.proxy_cores, site.load_cores), contestant, size, seconds
            )
    return made
