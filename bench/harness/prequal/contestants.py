"""Ways to choose a backend, each with its settings."""

import http.client
import re
import time
from dataclasses import dataclass

from ..peers import Envoy, Peer, Plimsoll
from ..processes import free_port

# Counters of probes, by the name in a result.
_PROBES = {
    "queries": "plimsoll_probe_queries_total",
    "answers": "plimsoll_probe_answers_total",
    "dropped": "plimsoll_probe_dropped_total",
}


class Balancing(Plimsoll):
    """Checks by connections only; every setting but the policy is a default."""

    policy = ""
    tables = ""

    def command(self) -> list[str]:
        self.admin_port = free_port()
        backends = ", ".join(f'"{address}"' for address in self.setup.backends)
        config = self.write(
            "plimsoll.toml",
            f"""
threads = 1
[admin]
listen = "127.0.0.1:{self.admin_port}"
[[listeners]]
address = "127.0.0.1:{self.port}"
idle_timeout = "1h"
[[routes]]
cluster = "web"
[clusters.web]
backends = [{backends}]
policy = "{self.policy}"
{self.tables}
""",
        )
        return [self.program, "proxy", "-c", config]

    def probes(self) -> dict[str, int]:
        """Counters of probes."""
        connection = http.client.HTTPConnection("127.0.0.1", self.admin_port, timeout=10)
        connection.request("GET", "/metrics")
        text = connection.getresponse().read().decode()
        connection.close()
        found = {name: re.findall(rf"^{metric}(?:{{.*}})? (\d+)", text, re.MULTILINE) for name, metric in _PROBES.items()}
        return {name: sum(map(int, values)) for name, values in found.items()}


class Weighted(Balancing):
    policy = "weighted"


class LeastLoaded(Balancing):
    policy = "least-loaded"


class PeakEwma(Balancing):
    policy = "peak-ewma"


class Prequal(Balancing):
    policy = "prequal"


class ProbedPrequal(Prequal):
    # The answers of backends at loopback need no keys.
    tables = '[clusters.web.prequal]\nsource = "probes"\n[clusters.web.probes]'


class UnansweredPrequal(ProbedPrequal):
    """With a key that the backends do not have: they drop all queries, as a firewall does."""

    def command(self) -> list[str]:
        keys = self.write("probe-keys", f"1 {'5a' * 32}\n")
        self.tables = f'{ProbedPrequal.tables}\nkeys = "{keys}"'
        return super().command()


class LeastEnvoy(Envoy):
    """Two choices, its default; checks by HTTP as in the other benchmarks."""

    def _cluster(self) -> dict:
        return super()._cluster() | {"lb_policy": "LEAST_REQUEST"}


@dataclass(frozen=True)
class Contestant:
    name: str
    says: str
    proxy: type[Peer]


PROBED = Contestant("prequal-live", '`prequal` with `source = "probes"` and `[clusters.web.probes]`', ProbedPrequal)
RESPONSES = Contestant("prequal", "`prequal` by load reports in responses", Prequal)
WEIGHTED = Contestant("weighted", "`weighted`, the default, by load reports", Weighted)
CONTESTANTS = (
    PROBED,
    RESPONSES,
    Contestant("prequal-unanswered", "the same as the first, but all queries are dropped, as by a firewall", UnansweredPrequal),
    WEIGHTED,
    Contestant("peak-ewma", "`peak-ewma`", PeakEwma),
    Contestant("least-loaded", "`least-loaded`", LeastLoaded),
    Contestant("Envoy", "`LEAST_REQUEST`, with its default of two choices; one worker", LeastEnvoy),
)


def cpu_seconds(pid: int) -> float:
    """CPU time of a process so far, to the microsecond: a proxy here uses less than a tick each second."""
    # The clock of another process, as clock_getcpuclockid(3) numbers it.
    return time.clock_gettime((~pid << 3) | 2)
