"""What stands between the load and the CPU: one entry each, as its documentation advises against overload.

All have the same backend, `plimsoll backend` with one core. A proxy runs on that core too, as the sidecar of a pod of one CPU
does: whatever it costs to turn requests away is missing where they are served; not with `--proxy-core`. Nobody is told the capacity. A limit that its documentation
leaves to the operator is found by trying (`limits`), at the highest load asked for.
"""

import subprocess
from dataclasses import dataclass

from ..peers import Envoy, HAProxy, Nginx, Peer, Plimsoll, Setup

# A class that is over the capacity by itself is served at the end of this wait. Shorter than the deadline by as much as the work
# may take when it is dear; long enough that the queue does not run empty.
_LONGEST_IN_QUEUE_MS = 100
_ADAPTIVE = "type.googleapis.com/envoy.extensions.filters.http.adaptive_concurrency.v3.AdaptiveConcurrency"


@dataclass(frozen=True)
class LimitedSetup(Setup):
    """With what those need that protect a backend."""

    # The limit that is being tried, for those that have one.
    limit: int | None = None
    # The number of the process.
    backend: int | None = None


class LimitingNginx(Nginx):
    """`limit_conn` over all clients together: so many requests at the backend, 503 for others. Counts and does not queue."""

    def further(self) -> tuple[str, str]:
        # A line of log for each rejection would be most of its cost.
        return (
            "limit_conn_zone $server_name zone=all:1m; limit_conn_status 503; limit_conn_log_level info;",
            f"limit_conn all {self.setup.limit};",
        )


class QueueingHAProxy(HAProxy):
    """`maxconn` at the server; others queue by class, until `timeout queue` or their client has gone."""

    def further(self) -> tuple[str, str, str]:
        classes = ("critical-plus", "critical", "sheddable-plus", "sheddable")
        front = "\n".join(
            f"    http-request set-priority-class int({place}) if {{ req.hdr(x-criticality) -m str {name} }}"
            for place, name in enumerate(classes)
        )
        back = f"    timeout queue {_LONGEST_IN_QUEUE_MS}ms\n    option abortonclose"
        return front, back, f"maxconn {self.setup.limit}"


class AdaptiveEnvoy(Envoy):
    """The gradient controller with the values of its documentation's example; deadlines that clients tell are obeyed."""

    def further_filters(self) -> list[dict]:
        controller = {
            "sample_aggregate_percentile": {"value": 90},
            "concurrency_limit_params": {"concurrency_update_interval": "0.1s"},
            "min_rtt_calc_params": {"jitter": {"value": 10}, "interval": "60s", "request_count": 50},
        }
        config = {"@type": _ADAPTIVE, "gradient_controller_config": controller, "enabled": {"default_value": True}}
        config["enabled"]["runtime_key"] = "adaptive_concurrency.enabled"
        return [{"name": "envoy.filters.http.adaptive_concurrency", "typed_config": config}]

    def router_options(self) -> dict:
        return {"respect_expected_rq_timeout": True}


class Sidecar(Plimsoll):
    """Watches the backend's CPU."""

    def further(self) -> tuple[str, str]:
        return (
            'trust_criticality = "critical-plus"\ncustomer_header = "x-customer"',
            f"[clusters.backends.inbound]\npid = {self.setup.backend}\ncpus = 1",
        )


@dataclass(frozen=True)
class Contestant:
    """One way to meet overload."""

    name: str
    says: str
    proxy: type[Peer] | None = None
    # Of `plimsoll backend`, which protects itself by them.
    backend_options: tuple[str, ...] = ()
    # What `says` has as LIMIT; the one with the most useful work is kept.
    limits: tuple[int, ...] = ()

    def missing(self) -> str | None:
        """Why it cannot run here."""
        known = subprocess.run([Plimsoll.program, "backend", "--help"], capture_output=True, text=True, check=True).stdout
        for option in self.backend_options:
            if option.startswith("--") and option not in known:
                return f"this plimsoll has no `backend {option}`"
        return self.proxy.missing() if self.proxy else None

    def version(self) -> str:
        return (self.proxy or Plimsoll).version()

    def described(self, limit: int | None) -> str:
        """How it is set up, with its limit put in."""
        return self.says.replace("LIMIT", str(limit))


UNPROTECTED = Contestant("unprotected", "The backend alone, first come, first served")
_ALL = [
    UNPROTECTED,
    Contestant(
        "nginx",
        "`limit_conn LIMIT` over all clients, 503 beyond; knows no classes",
        proxy=LimitingNginx,
        limits=(4, 16, 64),
    ),
    Contestant(
        "haproxy",
        f"`maxconn LIMIT` at the server, a queue by `set-priority-class`, `timeout queue {_LONGEST_IN_QUEUE_MS}ms`, `abortonclose`",
        proxy=QueueingHAProxy,
        limits=(1, 3, 10),
    ),
    Contestant(
        "envoy",
        "`adaptive_concurrency`, gradient controller as in its documentation, `respect_expected_rq_timeout`; knows no classes",
        proxy=AdaptiveEnvoy,
    ),
    Contestant(
        "plimsoll-library",
        "The backend protects itself with the library's layer, by class and customer",
        backend_options=("--protect",),
    ),
    Contestant(
        "plimsoll-sidecar",
        "The proxy watches the CPU of the backend, which knows nothing of it, and turns away by class and customer",
        proxy=Sidecar,
    ),
]
CONTESTANTS = {each.name: each for each in _ALL}
# Those whose goals count.
SUBJECTS = ("plimsoll-library", "plimsoll-sidecar")
