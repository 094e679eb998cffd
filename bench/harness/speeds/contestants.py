"""Ways to balance requests over machines of two speeds, each with its settings."""

from dataclasses import dataclass

from ..peers import HAProxy, Peer, Plimsoll, Setup
from ..processes import find_program, free_port


@dataclass(frozen=True)
class Speeds(Setup):
    """Backends with the speeds of their machines."""

    speeds: tuple[float, ...] = ()


class BalancedPlimsoll(Plimsoll):
    """Checks by connections only; every other setting is a default."""

    policy = ""
    weighs = False

    def command(self) -> list[str]:
        setup = self.setup
        self.admin_port = free_port()
        weights = [f", weight = {speed}" if self.weighs else "" for speed in setup.speeds]
        backends = ", ".join(
            f'{{ address = "{address}", speed = {speed}{weight} }}'
            for address, speed, weight in zip(setup.backends, setup.speeds, weights, strict=True)
        )
        config = self.write(
            "plimsoll.toml",
            f"""
threads = 1
[admin]
listen = "127.0.0.1:{self.admin_port}"
[[listeners]]
address = "127.0.0.1:{self.port}"
[[routes]]
cluster = "web"
[clusters.web]
backends = [{backends}]
{self.policy}
""",
        )
        return [self.program, "proxy", "-c", config]


class WeighedPlimsoll(BalancedPlimsoll):
    policy = 'policy = "round-robin"'
    weighs = True


class UnweighedPlimsoll(BalancedPlimsoll):
    policy = 'policy = "round-robin"'


class BalancedHAProxy(HAProxy):
    """Checks by connections only, connections to backends shared by all clients."""

    balance = "roundrobin"
    weighs = False

    def command(self) -> list[str]:
        setup = self.setup
        servers = "\n".join(
            f"    server b{number} {address} check{f' weight {round(100 * speed)}' if self.weighs else ''}"
            for number, (address, speed) in enumerate(zip(setup.backends, setup.speeds, strict=True))
        )
        config = self.write(
            "haproxy.cfg",
            f"""
global
    nbthread 1
    no strict-limits
defaults
    mode http
    timeout connect 1s
    timeout client 1h
    timeout server 1h
    http-reuse always
frontend front
    bind 127.0.0.1:{self.port}
    default_backend backends
backend backends
    balance {self.balance}
{servers}
""",
        )
        return [find_program("haproxy"), "-db", "-f", config]


class LeastHAProxy(BalancedHAProxy):
    balance = "leastconn"


class WeighedHAProxy(BalancedHAProxy):
    weighs = True


@dataclass(frozen=True)
class Contestant:
    name: str
    says: str
    proxy: type[Peer]


CONTESTANTS = (
    Contestant("plimsoll", "all defaults: `weighted`, by load reports; no weight is configured", BalancedPlimsoll),
    Contestant("plimsoll, round-robin", "`round-robin` without weights", UnweighedPlimsoll),
    Contestant("plimsoll, weights", "`round-robin` with the speeds as weights", WeighedPlimsoll),
    Contestant("HAProxy, roundrobin", "`balance roundrobin` without weights", BalancedHAProxy),
    Contestant("HAProxy, leastconn", "`balance leastconn` without weights", LeastHAProxy),
    Contestant("HAProxy, weights", "`balance roundrobin` with the speeds as weights", WeighedHAProxy),
)
