"""Envoys at a quota server with TLS: rights by the names in their certificates, and their fallback without the right."""

import pytest

from harness.certificates import Certificate
from harness.envoy import EXAMPLES, Envoy
from harness.fleet import Fleet, RunningLoad
from harness.process import wait_until
from test_quota_tls import OTHER, Site

# The load is measured.
pytestmark = pytest.mark.alone

RATE = 60
LIMIT = 20


class Envoys:
    """Envoys before one backend, at a quota server with TLS."""

    def __init__(self, site: Site, *emulated: str):
        self.site = site
        self.backend = site.fleet.backend(*emulated)

    def start(self, name: str, file: str, client: Certificate) -> Envoy:
        files = {"ca.pem": self.site.authority.certificate, "shop.pem": client.certificate, "shop.key": client.key}
        socket = (EXAMPLES / "transport-socket.yaml").read_text()
        for before, after in files.items():
            assert socket.count(before) == 1
            socket = socket.replace(before, str(after))
        cluster = "    - name: quota\n"
        replaced = {cluster: cluster + socket}
        return Envoy(self.site.fleet, name, file, [self.backend.address], self.site.server.address, replaced)

    def load(self, envoy: Envoy, seconds: int) -> RunningLoad:
        arguments = ["--rate", str(RATE), "--duration", f"{seconds}s", "--customers", "acme=1"]
        return self.site.fleet.load(envoy.url, *arguments)


def good(load: RunningLoad, seconds: int) -> float:
    """Good answers a second."""
    return load.result().raw["groups"]["by_customer"]["acme"]["ok"] / seconds


def denied(name: str) -> str:
    return f"the certificate has the names (SAN) {name}, and services.shop.reporters of the quota server has none of it"


def test_quota_stream_needs_a_certificate_with_the_right(fleet: Fleet) -> None:
    site = Site(fleet, LIMIT, 'unit = "requests"')
    envoys = Envoys(site, "--cost", "fixed:10us")
    shop, other, unknown = (
        envoys.start(name, "rlqs.yaml", client)
        for name, client in (("shop", site.shop), ("other", site.other), ("unknown", site.unknown))
    )
    all_three = (shop, other, unknown)
    [each.result() for each in [envoys.load(envoy, 12) for envoy in all_three]]
    assert site.streams("joined") == 1 and site.streams("denied") >= 1 and site.failed("client-certificate") >= 1
    wait_until("the denial is logged", lambda: denied(OTHER) in site.server.output())
    # Three times the limit comes, so the bucket of the first one is never full, and its rate is that of the limit. The
    # seed of the load is fixed. The others let all pass, by `no_assignment_behavior`.
    loads = [envoys.load(envoy, 15) for envoy in all_three]
    rates = [good(load, 15) for load in loads]
    print("with the right, without, unknown", rates)
    assert 0.93 * LIMIT < rates[0] < 1.08 * LIMIT, rates
    assert [load.result().failed for load in loads[1:]] == [0, 0], rates

    # The right goes to the other one. The first one keeps its last limit until the lease ends, so little is left. It loses
    # its stream with its next report, each 5 s, and the other one joins with its own: which comes first is chance. What
    # the other one passed until now is no rate of this server. If the first one is there, it gives up the part of the
    # demand of the other one, a quarter of the limit, and does not acknowledge it any more: that is nobody's for a lease.
    ports = (site.server.port, site.server.admin.port)
    site.reload(site.text(*ports, LIMIT, reporters=OTHER))
    moved = [envoys.load(envoy, 15) for envoy in (shop, other)]
    wait_until("the other one has joined", lambda: site.streams("joined") == 2, 15)
    wait_until("the first one is denied", lambda: denied("a.shop.internal, spiffe://td/shop/a") in site.server.output(), 15)
    [each.result() for each in moved]
    rates = [good(load, 12) for load in [envoys.load(envoy, 12) for envoy in (shop, other)]]
    print("moved", rates)
    assert 0.7 * LIMIT < sum(rates) < 1.08 * LIMIT, rates


def test_rate_limit_service_needs_a_certificate_with_the_right(fleet: Fleet) -> None:
    site = Site(fleet, 0)
    envoys = Envoys(site, "--cost", "fixed:10us", "--protect", "--cost-header")
    shop, other = (envoys.start(name, "rls-cpu.yaml", client) for name, client in (("shop", site.shop), ("other", site.other)))

    def refused(envoy: Envoy) -> float:
        counted = envoys.load(envoy, 1).result()
        return counted.failed / counted.requests

    # In its first 6 s it refuses nothing.
    wait_until("all are refused", lambda: refused(shop) == 1, 20)
    before = site.streams("denied")
    assert refused(other) == 0
    assert site.streams("denied") > before
    errors, passed = (other.stat(f"cluster.backends.ratelimit.{name}") for name in ("error", "failure_mode_allowed"))
    assert errors == passed > 0, (errors, passed)
    # With the right it is limited as well, on the same connection.
    site.reload(site.text(site.server.port, site.server.admin.port, 0, reporters="spiffe://td/*"))
    wait_until("all are refused", lambda: refused(other) == 1, 20)
    assert refused(shop) == 1
