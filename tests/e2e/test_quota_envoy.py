"""Limits of customers over several Envoys, by `plimsoll quota`: the files of examples/envoy with a real Envoy."""

import os
import pathlib
import sysconfig

import pytest

from harness.fleet import Fleet, Load, QuotaServer, RunningLoad
from harness.process import Process, free_port, wait_until

# A shift of the load is measured.
pytestmark = pytest.mark.alone

EXAMPLES = pathlib.Path(__file__).resolve().parents[2] / "examples" / "envoy"
ENVOY = pathlib.Path(sysconfig.get_path("purelib")) / "envoy" / "_bin" / "envoy"


class Envoy(Process):
    """An Envoy with a file of examples/envoy, at other ports."""

    def __init__(self, fleet: Fleet, name: str, file: str, backend: str, quota: str) -> None:
        self.port = free_port()
        text = (EXAMPLES / file).read_text()
        for before, after in [("8080", str(self.port)), ("9001", backend.split(":")[1]), ("9800", quota.split(":")[1])]:
            assert f"port_value: {before}" in text
            text = text.replace(f"port_value: {before}", f"port_value: {after}")
        path = fleet.directory / f"{name}.yaml"
        path.write_text(text)
        os.chmod(ENVOY, 0o755)
        command = [str(ENVOY), "-c", str(path), "--concurrency", "1", "--disable-hot-restart", "--log-level", "error"]
        super().__init__(name, command, fleet.directory)
        fleet.processes.append(self)
        self.wait_for_port(self.port)

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}/"


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
    one, two = (Envoy(fleet, name, "rlqs.yaml", backend.address, server.address) for name in ("one", "two"))
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
    envoy = Envoy(fleet, "one", "rls-cpu.yaml", backend.address, server.address)
    # 100 requests a second fit, and 200 come.
    warm = load(fleet, envoy, 200, 12)
    assert load(fleet, envoy, 20, 5, "stranger").result().failed == 0, "an unknown descriptor passes"
    warm.result()
    used = good(load(fleet, envoy, 200, 15).result()) * 0.002 / 15
    print("cpu", used)
    assert 0.19 < used < 0.21, used
