"""Machines of two speeds in real processes: the same request has the same cost on both, and a customer the same limit.

`plimsoll backend --speed 2` burns half the CPU for a request, as a machine of twice the speed does. A debug build spends more CPU
on HTTP itself, which no emulation makes faster: hence requests of 20 ms, beside which it is small.
"""

import base64
import json
import pathlib
import statistics
from collections.abc import Iterator

import pytest

from harness.fleet import Backend, Fleet, Proxy, config, http
from harness.http1 import Connection
from harness.orca import OrcaLoadReport
from harness.process import free_port, wait_until

pytestmark = pytest.mark.alone

SPEEDS = (1.0, 2.0)
COST_S = 0.020
COST = ("--cost", "fixed:20ms", "--seed", "1")


@pytest.fixture(autouse=True)
def end_at_once(fleet: Fleet) -> Iterator[None]:
    """Ends the processes of a test without a drain: nobody sends to them any more."""
    yield
    for process in fleet.processes:
        if process.exit_code is None:
            process.kill()


def machine(fleet: Fleet, speed: float, *arguments: str) -> Backend:
    return fleet.backend(*COST, "--speed", str(speed), *arguments)


def reports(backend: Backend, requests: int) -> list[OrcaLoadReport]:
    """The load reports of as many requests, one after the other."""
    found = []
    with Connection.to(backend.port) as connection:
        for _ in range(requests):
            encoded = connection.request("/").get("endpoint-load-metrics-bin")
            assert encoded is not None
            found.append(OrcaLoadReport.FromString(base64.b64decode(encoded + "=" * (-len(encoded) % 4))))
    return found


def cpu_s(backend: Backend) -> float:
    """CPU seconds of the process so far, by the kernel: in ticks of 10 ms."""
    fields = pathlib.Path(f"/proc/{backend.pid}/stat").read_text().rsplit(") ", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / 100


def sidecar(fleet: Fleet, backend: Backend, speed: str) -> Proxy:
    """A proxy that protects a backend, and has seen it."""
    inbound = f"[clusters.main.inbound]\npid = {backend.pid}\ncpus = 1\n{speed}\n"
    proxy = fleet.proxy([backend.address], further=inbound)
    proxy.admin.wait_for_healthy(1)
    seen = lambda: proxy.admin.metric("plimsoll_inbound_process_seen", cluster="main") == 1
    wait_until("the process is seen", seen)
    return proxy


def gate(proxy: Proxy) -> dict:
    (cluster,) = proxy.admin.json("/api/v1/throttling")["clusters"]
    return cluster


def test_reported_costs_of_fast_and_slow_machines_agree(fleet: Fleet) -> None:
    costs, used = {}, {}
    for speed in SPEEDS:
        backend = machine(fleet, speed, "--protect")
        reports(backend, 5)
        begun = cpu_s(backend)
        found = reports(backend, 50)
        used[speed] = cpu_s(backend) - begun
        assert {report.named_metrics["plimsoll.speed"] for report in found} == {speed}
        costs[speed] = statistics.median(report.request_cost["cpu"] for report in found)
    slow, fast = (costs[speed] for speed in SPEEDS)
    assert abs(fast / slow - 1) < 0.05, costs
    assert abs(slow / COST_S - 1) < 0.05, costs
    # The kernel's account shows that the fast one really used half.
    assert 1.7 < used[1.0] / used[2.0] < 2.2, used


def test_learned_costs_of_fast_and_slow_machines_agree(fleet: Fleet) -> None:
    # Without --protect the backend reports no cost: the sidecar learns it from the CPU of the process.
    proxies = {speed: sidecar(fleet, machine(fleet, speed), f"speed = {speed}") for speed in SPEEDS}

    def loaded() -> None:
        """Both at once: together they need three quarters of a core."""
        for load in [fleet.load(proxy.url, "--rate", "25", "--duration", "6s") for proxy in proxies.values()]:
            counted = load.result()
            assert counted.failed == 0, counted.raw

    def offered(proxy: Proxy) -> tuple[float, float]:
        return (
            proxy.admin.metric("plimsoll_offered_cost_seconds_total", cluster="main"),
            proxy.admin.metric("plimsoll_admission_requests_total", cluster="main", decision="admitted"),
        )

    loaded()
    before = {speed: offered(proxy) for speed, proxy in proxies.items()}
    loaded()
    costs = {}
    for speed, proxy in proxies.items():
        cost, requests = (now - old for now, old in zip(offered(proxy), before[speed], strict=True))
        assert requests > 100
        costs[speed] = cost / requests
        # The backend's word, in the proxy's list.
        (row,) = proxy.admin.backends().values()
        assert row["speed"] == speed
        assert proxy.admin.metric("plimsoll_backend_speed_ratio", cluster="main") == speed
    slow, fast = (costs[speed] for speed in SPEEDS)
    # HTTP in a debug build, and the health checks of the proxy, cost the emulated fast machine as much as the slow one.
    assert abs(fast / slow - 1) < 0.15, costs
    assert abs(slow / COST_S - 1) < 0.15, costs


def test_customer_gets_the_same_on_fast_and_slow_machines(fleet: Fleet) -> None:
    backends = {speed: machine(fleet, speed, "--protect", "--customer-limit", "ann=0.2") for speed in SPEEDS}
    # Both at once: together they use a third of a core.
    asked = ("-H", "x-customer: ann", "--rate", "40", "--warmup", "2s", "--duration", "8s")
    loads = {speed: fleet.load(f"http://{backend.address}", *asked) for speed, backend in backends.items()}
    served = {}
    for speed, load in loads.items():
        counted = load.result()
        served[speed] = (counted.requests - counted.failed) / 8
    slow, fast = (served[speed] for speed in SPEEDS)
    # A fifth of a reference CPU is ten such requests a second. Without the speed, the fast machine would serve 20.
    assert 7 < slow < 12 and abs(fast / slow - 1) < 0.3, served


@pytest.mark.parametrize("setting", ["calibrate", "configured", "default"])
def test_sidecar_shows_the_speed_and_its_origin(fleet: Fleet, setting: str) -> None:
    line = {"calibrate": 'speed = "calibrate"', "configured": "speed = 1.5", "default": ""}[setting]
    proxy = sidecar(fleet, fleet.backend(*COST), line)
    shown = gate(proxy)
    speed = proxy.admin.metric("plimsoll_inbound_machine_speed_ratio", cluster="main")
    # The report rounds to three digits.
    assert shown["speed"] == pytest.approx(speed, rel=0.005)
    assert shown["capacity_cpus"] == pytest.approx(speed, rel=0.005), "one CPU of this machine"
    if setting == "calibrate":
        assert shown["speed_origin"] == "calibrated"
        # Servers differ by a factor of five, and a debug build on a busy machine is rough.
        assert 0.1 < speed < 10, speed
        assert f"{speed:.3f} (calibrated)" in proxy.output()
    else:
        expected = {"configured": 1.5, "default": 1.0}[setting]
        assert (shown["speed_origin"], speed) == (setting, expected)


def test_calibrations_of_one_machine_agree(fleet: Fleet) -> None:
    backend = fleet.backend(*COST)
    speeds = []
    for _ in range(3):
        proxy = sidecar(fleet, backend, 'speed = "calibrate"')
        speeds.append(gate(proxy)["speed"])
        proxy.kill()
    # Some percent beside other work; a wrong clock or a mean of all runs would be off by much more.
    assert max(speeds) / min(speeds) < 1.2, speeds


def test_speed_of_a_source_changes_in_place(fleet: Fleet) -> None:
    # Static answers: this backend states no speed of its own.
    address = fleet.nginx()
    path = fleet.directory / "web.json"

    def write(speed: float | None) -> None:
        entry = {"address": address} | ({} if speed is None else {"speed": speed})
        new = path.with_name("web.json.new")
        new.write_text(json.dumps({"backends": [entry]}))
        new.rename(path)

    write(1.25)
    proxy = fleet.proxy([], further=f'[clusters.main.discovery]\nfile = "{path}"\n')
    proxy.admin.wait_for_healthy(1)
    assert fleet.load_now(proxy.url, "--requests", "50", "--concurrency", "2").failed == 0
    before = proxy.admin.backends()[address]
    assert before["speed"] == 1.25
    for speed in (2.5, None):
        write(speed)
        wait_until(f"the speed is {speed}", lambda speed=speed: proxy.admin.backends()[address]["speed"] == speed)
    after = proxy.admin.backends()[address]
    assert after["requests"] == before["requests"] == 50 and after["since_s"] > before["since_s"], "the same backend"


def test_speed_of_a_static_backend_is_shown_and_changes_in_place(fleet: Fleet) -> None:
    # Without load reports: the word of a report would count.
    address = fleet.nginx()
    text = lambda port, admin, speed: config(port, admin, [], backends=f'[{{ address = "{address}", speed = {speed} }}]')  # noqa: E731
    port, admin = free_port(), free_port()
    proxy = fleet.proxy_with(text(port, admin, 1.5), port, admin)
    proxy.admin.wait_for_healthy(1)
    assert http(proxy.url)[0] == 200
    before = proxy.admin.backends()[address]
    assert (before["speed"], proxy.admin.metric("plimsoll_backend_speed_ratio", backend=address)) == (1.5, 1.5)
    (file,) = fleet.directory.glob("plimsoll*.toml")
    file.write_text(text(port, admin, 2))
    assert proxy.admin.post("/api/v1/process/reload")[0] == 200
    after = proxy.admin.backends()[address]
    assert (after["speed"], after["state"], after["requests"]) == (2, "healthy", before["requests"])
    assert after["since_s"] >= before["since_s"]
