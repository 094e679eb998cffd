"""One busy proxy: the CPU of a request where nearly all backends have reports of the last second.

Each contestant has the same ten backends, which answer at once. The load is open loop, so that all contestants
have the same. The proxy is alone on its core; the load and the backends share the others.
"""

import json
import subprocess
import sys

from ..load import LoadFailed
from ..peers import Plimsoll, Setup
from ..processes import Process, Site, free_port
from .contestants import PROBED, RESPONSES, WEIGHTED, cpu_seconds

CONTESTANTS = (PROBED, RESPONSES, WEIGHTED)
BACKENDS = 10
RATE = 2_000
_WARMUP_S = 2.0


def _load(port: int, seconds: float) -> dict:
    options = ["--rate", str(RATE), "--duration", f"{seconds}s", "--json"]
    command = [Plimsoll.program, "load", *options, f"http://127.0.0.1:{port}/"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise LoadFailed(f"plimsoll load ended with {done.returncode}:\n{done.stderr}")
    return json.loads(done.stdout)


def measure(site: Site, rounds: int, seconds: float) -> dict:
    """A list of rounds by contestant."""
    started: list[Process] = []
    made: dict[str, list[dict]] = {each.name: [] for each in CONTESTANTS}
    try:
        ports = [free_port() for _ in range(BACKENDS)]
        for number, port in enumerate(ports):
            command = [Plimsoll.program, "backend", "--listen", f"127.0.0.1:{port}", "--cost", "fixed:0ms"]
            started.append(Process(f"busy-backend-{number}", command, site.directory, site.load_cores))
            started[-1].wait_for_port(port)
        setup = Setup(backends=tuple(f"127.0.0.1:{port}" for port in ports))
        proxies = {}
        for each in CONTESTANTS:
            proxies[each.name] = each.proxy(site, setup, f"busy {each.name}")
            started.append(proxies[each.name].process)
            _load(proxies[each.name].port, _WARMUP_S)
        for number in range(rounds):
            turn = number % len(CONTESTANTS)
            for each in CONTESTANTS[turn:] + CONTESTANTS[:turn]:
                proxy = proxies[each.name]
                probes, cpu = proxy.probes(), cpu_seconds(proxy.process.pid)
                counts = _load(proxy.port, seconds)
                used = cpu_seconds(proxy.process.pid) - cpu
                requests = counts["requests"]
                made[each.name].append(
                    {
                        "requests": requests,
                        "failed": counts["failed"] + counts["dropped"],
                        "proxy_us_per_request": 1e6 * used / requests,
                        "core_share": used / counts["seconds"],
                        "p50_ms": counts["latency_ms"]["p50"],
                        "p99_ms": counts["latency_ms"]["p99"],
                        "probes": {key: count - probes[key] for key, count in proxy.probes().items()},
                    }
                )
            costs = "  ".join(f"{name} {runs[-1]['proxy_us_per_request']:.2f}" for name, runs in made.items())
            print(f"busy {number + 1}/{rounds}, µs of CPU per request: {costs}", file=sys.stderr)
    finally:
        for process in reversed(started):
            process.stop()
    return {"backends": BACKENDS, "rate": RATE, "seconds": seconds, "contestants": made}
