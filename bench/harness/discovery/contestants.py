"""The proxies, each with a source of names, set up as its documentation advises for DNS.

All check the health of backends over HTTP, but one Envoy, and all retry a request whose connection
failed. plimsoll has its defaults: a check every 10 s, the retries of `docs/retries.md`, `hold` of
30 s. HAProxy and Envoy check every 2 s, HAProxy's default.
"""

from dataclasses import dataclass

from ..peers import Envoy, HAProxy, Peer, Plimsoll, Setup
from ..processes import find_program, free_port
from .names import NAME, SERVICE

CHECK_SECONDS = 2
# Backends that HAProxy has slots for.
SLOTS = 30
_CARES = "type.googleapis.com/envoy.extensions.network.dns_resolver.cares.v3.CaresDnsResolverConfig"


@dataclass(frozen=True)
class Source(Setup):
    """Where a proxy finds its backends."""

    port: int = 0
    resolver: int = 0
    file: str = ""


class DnsPlimsoll(Plimsoll):
    """Addresses of a name; every other setting is a default."""

    policy = ""

    def discovery(self) -> str:
        return f'dns = "{NAME}.:{self.setup.port}"\nresolver = "127.0.0.1:{self.setup.resolver}"'

    def command(self) -> list[str]:
        self.admin_port = free_port()
        config = self.write(
            "plimsoll.toml",
            f"""
[admin]
listen = "127.0.0.1:{self.admin_port}"
[[listeners]]
address = "127.0.0.1:{self.port}"
[[routes]]
cluster = "web"
[clusters.web]
{self.policy}
[clusters.web.discovery]
{self.discovery()}
[clusters.web.health]
check = "http"
path = "/"
""",
        )
        return [self.program, "proxy", "-c", config]


class SrvPlimsoll(DnsPlimsoll):
    def discovery(self) -> str:
        return f'srv = "{SERVICE}."\nresolver = "127.0.0.1:{self.setup.resolver}"'


class FilePlimsoll(DnsPlimsoll):
    """`round-robin`: `weighted`, the default, uses a listed weight only until load reports arrive."""

    policy = 'policy = "round-robin"'

    def discovery(self) -> str:
        return f'file = "{self.setup.file}"'


class DnsHAProxy(HAProxy):
    """`server-template` with a `resolvers` section."""

    # hold: 10s for valid, 0s for obsolete, 30s for all others.
    holds = ""

    def question(self) -> str:
        return f"{NAME}:{self.setup.port}"

    def command(self) -> list[str]:
        config = self.write(
            "haproxy.cfg",
            f"""
global
    nbthread 1
    no strict-limits
resolvers names
    nameserver dns 127.0.0.1:{self.setup.resolver}
    accepted_payload_size 8192
    resolve_retries 3
    timeout resolve 1s
    timeout retry 1s
    {self.holds}
defaults
    mode http
    timeout connect 1s
    timeout client 1h
    timeout server 1h
    retries 3
    option redispatch 1
    retry-on conn-failure empty-response
frontend front
    bind 127.0.0.1:{self.port}
    default_backend backends
backend backends
    balance leastconn
    option httpchk GET /
    server-template b {SLOTS} {self.question()} check inter {CHECK_SECONDS}s resolvers names resolve-prefer ipv4 init-addr none
""",
        )
        return [find_program("haproxy"), "-db", "-f", config]


class LongHoldHAProxy(DnsHAProxy):
    holds = "\n    ".join(f"hold {status} {time}" for status, time in
                          [("nx", "1h"), ("refused", "1h"), ("timeout", "1h"), ("other", "1h"), ("obsolete", "30s")])  # fmt: skip


class SrvHAProxy(DnsHAProxy):
    def question(self) -> str:
        return SERVICE


class DnsEnvoy(Envoy):
    """STRICT_DNS with c-ares, the TTL of the answer as refresh rate, and active health checks."""

    is_checked = True

    def _listener(self) -> dict:
        listener = super()._listener()
        manager = listener["filter_chains"][0]["filters"][0]["typed_config"]
        manager["route_config"]["virtual_hosts"][0]["routes"][0]["route"]["retry_policy"] = {
            "retry_on": "connect-failure,refused-stream,reset-before-request",
            "num_retries": 2,
            "retry_host_predicate": [
                {
                    "name": "envoy.retry_host_predicates.previous_hosts",
                    "typed_config": {
                        "@type": "type.googleapis.com/envoy.extensions.retry.host.previous_hosts.v3.PreviousHostsPredicate"
                    },
                }
            ],
            "host_selection_retry_max_attempts": 3,
        }
        return listener

    def _cluster(self) -> dict:
        cluster = super()._cluster()
        resolver = {"socket_address": {"address": "127.0.0.1", "port_value": self.setup.resolver}}
        place = {"socket_address": {"address": f"{NAME}.", "port_value": self.setup.port}}
        cluster |= {
            "type": "STRICT_DNS",
            "dns_lookup_family": "V4_ONLY",
            "respect_dns_ttl": True,
            "dns_refresh_rate": "5s",
            "dns_failure_refresh_rate": {"base_interval": "1s", "max_interval": "5s"},
            "typed_dns_resolver_config": {
                "name": "envoy.network.dns_resolver.cares",
                "typed_config": {"@type": _CARES, "resolvers": [resolver], "dns_resolver_options": {"no_default_search_domain": True}},
            },
            "load_assignment": {"cluster_name": "backends", "endpoints": [{"lb_endpoints": [{"endpoint": {"address": place}}]}]},
        }
        every = f"{CHECK_SECONDS}s"
        cluster["health_checks"][0] |= {"interval": every, "no_traffic_interval": every}
        if not self.is_checked:
            del cluster["health_checks"]
        return cluster


class UncheckedEnvoy(DnsEnvoy):
    is_checked = False


@dataclass(frozen=True)
class Contestant:
    name: str
    proxy: type[Peer]
    says: str

    @property
    def is_ours(self) -> bool:
        return issubclass(self.proxy, Plimsoll)


FILE = Contestant("plimsoll, file", FilePlimsoll, "source `file`, policy `round-robin`, which obeys weights; else defaults")
DNS = [
    Contestant("plimsoll, A", DnsPlimsoll, "source `dns`, all defaults, HTTP checks every 10 s"),
    Contestant("plimsoll, SRV", SrvPlimsoll, "source `srv`, all defaults, HTTP checks every 10 s"),
    Contestant("HAProxy, A", DnsHAProxy, f"`server-template {SLOTS}`, `resolvers` with default `hold`, `init-addr none`, checks every 2 s"),
    Contestant("HAProxy, SRV", SrvHAProxy, "the same with SRV"),
    Contestant("HAProxy, A, long holds", LongHoldHAProxy, "`hold` of 1h for nx, refused, timeout and other, 30s for obsolete"),
    Contestant("Envoy, checks", DnsEnvoy, "`STRICT_DNS`, c-ares, `respect_dns_ttl`, HTTP checks every 2 s"),
    Contestant("Envoy, no checks", UncheckedEnvoy, "the same without health checks"),
]
