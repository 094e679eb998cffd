"""Limits of customers over several Envoys, by `plimsoll quota`: the files of examples/envoy with a real Envoy."""

import pytest

from harness.envoy import EXAMPLES, Envoy
from harness.fleet import Fleet, Load, QuotaServer, RunningLoad
from harness.process import wait_until

# A shift of the load is measured.
pytestmark = pytest.mark.alone

def server_of(fleet: Fleet) -> QuotaServer:
    body = (EXAMPLES / "quota.toml").read_text()
    server, _ = fleet.quota_with(
        lambda port, admin: f'listen = "127.0.0.1:{port}"\nadmin.listen = "127.0.0.1:{admin}"\n{body}'
    )
    return server


def load(fleet: Fleet, envoy: Envoy, rate: int, seconds: float, customer: str = "acme") -> RunningLoad:
    return fleet.load(envoy.url, "--rate", str(rate), "--duration", f"{seconds}s", "--customers", f"{customer}=1")


def good(*loads: Load) -> int:
    groups = [of.raw["groups"]["by_customer"] for of in loads]
    return sum(group["ok"] for of in groups for group in of.values())


def test_envoys_share_the_limit_and_follow_the_load(fleet: Fleet) -> None:
    server = server_of(fleet)
    backend = fleet.backend("--cost", "fixed:10us")
    one, two = (Envoy(fleet, name, "rlqs.yaml", [backend.address], server.address) for name in ("one", "two"))
    # 160 requests a second, four fifths at one, and 100 are the limit.
    first = [load(fleet, one, 128, 17), load(fleet, two, 32, 17)]
    [each.result() for each in first]
    steady = [load(fleet, one, 128, 30), load(fleet, two, 32, 30)]
    free = load(fleet, one, 20, 5, "stranger")
    assert free.result().failed == 0, "a customer without a limit"
    rates = [good(each.result()) / 30 for each in steady]
    print("steady", rates)
    assert 95 < sum(rates) < 105, rates
    assert rates[0] > 2.5 * rates[1], rates
    # The load moves to the other one, which has its part after 12 s.
    moved = [load(fleet, one, 32, 12), load(fleet, two, 128, 12)]
    during = sum(good(each.result()) for each in moved) / 12
    after = [load(fleet, one, 32, 8), load(fleet, two, 128, 8)]
    rates = [good(each.result()) / 8 for each in after]
    print("moved", during, rates)
    assert during < 105 and 93 < sum(rates) < 107, (during, rates)
    assert rates[1] > 2.5 * rates[0], rates

    # Without the server the limits hold; the next one goes on with them.
    server.kill()
    lost = [load(fleet, one, 32, 8), load(fleet, two, 128, 8)]
    rates = [good(each.result()) / 8 for each in lost]
    print("lost", rates)
    assert 90 < sum(rates) < 107, rates
    server = fleet.quota_again(server)
    lost = [load(fleet, one, 32, 15), load(fleet, two, 128, 15)]
    wait_until("both are back", lambda: server.service("shop")["tasks"] == 2, 20)
    rates = [good(each.result()) / 15 for each in lost]
    print("back", rates)
    assert 85 < sum(rates) < 107, rates
    assert not [line for line in one.output().splitlines() if "missing its id" in line]


def test_envoy_charges_the_cost_that_the_backend_tells(fleet: Fleet) -> None:
    server = fleet.quota("--service", "shop", "--limit", "acme=0.2")
    emulated = ["--emulate", "fcfs", "--cores", "4", "--cost", "fixed:2ms", "--protect", "--cost-header"]
    backend = fleet.backend(*emulated)
    envoy = Envoy(fleet, "one", "rls-cpu.yaml", [backend.address], server.address)
    # 100 requests a second fit, and 200 come.
    warm = load(fleet, envoy, 200, 12)
    assert load(fleet, envoy, 20, 5, "stranger").result().failed == 0, "an unknown descriptor passes"
    warm.result()
    used = good(load(fleet, envoy, 200, 15).result()) * 0.002 / 15
    print("cpu", used)
    assert 0.19 < used < 0.21, used


def test_limit_in_cpus_is_one_in_requests_by_the_mean_cost(fleet: Fleet) -> None:
    server = fleet.quota("--service", "shop", "--limit", "acme=2")
    emulated = ["--emulate", "fcfs", "--cores", "4", "--protect", "--quota", server.address, "--quota-service", "shop"]
    # Requests take turns at two backends, so one costs 20 ms on average: 100 requests a second fit, and 200 come.
    backends = [fleet.backend(*emulated, "--cost", cost) for cost in ("fixed:10ms", "fixed:30ms")]
    server.wait_for_tasks(2, "shop")
    envoy = Envoy(fleet, "one", "rlqs.yaml", [backend.address for backend in backends], server.address)
    warm = load(fleet, envoy, 200, 20)

    def envoys() -> list[dict]:
        of = server.service("shop").get("envoys") or {"customers": []}
        return [customer for customer in of["customers"] if customer["customer"] == "acme" and customer["cut"]]

    wait_until("the limit of the Envoy is in force", envoys, 20)
    warm.result()
    # What the Envoy admits reaches a backend, which may refuse it by its own part of the limit.
    sent = "cluster.backends.upstream_rq_total"
    before = envoy.stat(sent)
    counted = load(fleet, envoy, 200, 20).result()
    rate = (envoy.stat(sent) - before) / 20
    print("admitted", rate, "answered", counted.by_backend, envoys())
    assert 95 < rate < 104, rate
    assert set(counted.by_backend) == {backend.address for backend in backends}, counted.by_backend
    # The unknown cost of a customer is no limit.
    assert load(fleet, envoy, 20, 5, "stranger").result().failed == 0
