"""`plimsoll quota` begins, drains and comes back: its probes, and the tasks meanwhile."""

import signal
import time

import pytest

from harness.fleet import UNTIL_FINISHED, Backend, Fleet, Load, QuotaServer, RunningLoad, http
from harness.process import accepts, wait_until

# The load is measured.
pytestmark = pytest.mark.alone

EMULATED = ("--emulate", "fcfs", "--cores", "4", "--cost", "fixed:2ms", "--protect", "--quota")
# Limits are shared so long after the first start, and the drain takes so long (docs/quotas.md).
FIRST_SECONDS = 5
DRAIN_SECONDS = 2


def probes(server: QuotaServer) -> dict[str, tuple[int, str]]:
    """What the server answers to probes at both addresses."""
    tasks = http(f"http://{server.address}/readyz")
    return {"tasks": tasks} | {path: server.admin.get(f"/{path}") for path in ("readyz", "healthz")}


READY = {"tasks": (200, "serving"), "readyz": (200, "ready\n"), "healthz": (200, "ok\n")}
DRAINING = {"tasks": (503, "lame-duck"), "readyz": (503, "draining\n"), "healthz": (200, "ok\n")}


def even_load(fleet: Fleet, backend: Backend, rate: int, duration: str) -> RunningLoad:
    """Requests of one customer at equal distances: none is refused for a burst."""
    arguments = ["--rate", str(rate), "--arrival", "uniform", "--duration", duration, "--customers", "acme=1"]
    return fleet.load(f"http://{backend.address}/", *arguments)


def failed(fleet: Fleet, backend: Backend) -> float:
    """The part of the requests of a second that fails; half of the limit of acme is asked for."""
    counted = even_load(fleet, backend, 100, "1s").result()
    return counted.failed / counted.requests


def test_server_is_ready_before_limits_are_shared_and_drains_for_two_seconds(fleet: Fleet) -> None:
    begun = time.monotonic()
    server = fleet.quota("--limit", "acme=0.4")
    assert probes(server) == READY
    backend = fleet.backend(*EMULATED, server.address)
    wait_until("the task is there", lambda: any(task["connected"] for task in server.service()["instances"]))
    assert server.admin.metric("plimsoll_quota_unsure", service="default") == 1
    # 2% of its even part, which is all of the limit: 4 requests a second, and some to begin with.
    before = failed(fleet, backend)
    assert server.service()["unsure"] and probes(server) == READY and time.monotonic() < begun + FIRST_SECONDS
    assert before > 0.7, before
    server.wait_for_tasks(1)
    assert FIRST_SECONDS - 0.5 < time.monotonic() - begun < FIRST_SECONDS + 2
    assert server.admin.metric("plimsoll_quota_unsure", service="default") == 0
    assert probes(server) == READY
    wait_until("the task has its part", lambda: failed(fleet, backend) == 0)

    running = even_load(fleet, backend, 100, UNTIL_FINISHED)
    wait_until("the load has begun", lambda: server.customer("acme")["offered_cpus"] > 0.15)
    begun = time.monotonic()
    server.signal(signal.SIGTERM)
    wait_until("the server drains", lambda: probes(server) == DRAINING, every=0.01)
    assert server.service()["instances"][0]["connected"], "the stream lives on for a while"
    assert server.wait(10) == 0
    lasted = time.monotonic() - begun
    assert DRAIN_SECONDS - 0.5 < lasted < DRAIN_SECONDS + 2, lasted
    assert not accepts(server.port) and not accepts(server.admin.port)
    wait_until("the task knows", lambda: "quota server unreachable: limits hold by leases" in backend.output())
    assert "the server is ending" in backend.output()
    assert ended(running).failed == 0


def ended(load: RunningLoad) -> Load:
    """The result up to now, of a load that runs on for longer than the test."""
    assert load.running(), load.output()
    load.interrupt()
    return load.result()


def test_restart_fails_no_request_and_all_tasks_are_back(fleet: Fleet) -> None:
    limit = 0.5
    server = fleet.quota("--limit", f"acme={limit}")
    backends = [fleet.backend(*EMULATED, server.address) for _ in range(8)]
    server.wait_for_tasks(8)
    # The first one needs four times its even part, so it would refuse requests without the part that it has.
    rates = [120, *[10] * 7]
    offered = sum(rates) * 0.002
    warm = [even_load(fleet, backend, rate, "4s") for backend, rate in zip(backends, rates, strict=True)]
    [each.result() for each in warm]
    loads = [even_load(fleet, backend, rate, UNTIL_FINISHED) for backend, rate in zip(backends, rates, strict=True)]
    names = {task["instance"] for task in server.service()["instances"]}

    def held() -> float:
        state = server.customer("acme")
        assert state["held_cpus"] <= state["limit_cpus"] == limit, state
        assert sum(holder["held_cpus"] for holder in state["holders"]) == pytest.approx(state["held_cpus"], abs=1e-4), state
        return state["held_cpus"]

    wait_until("each has its part", lambda: held() > offered and server.customer("acme")["tasks"] == 8)
    for _ in range(2):
        server.signal(signal.SIGTERM)
        assert server.wait(10) == 0
        server = fleet.quota_again(server)
        begun = time.monotonic()

        def back() -> bool:
            held()
            state = server.service()
            return {task["instance"] for task in state["instances"] if task["connected"]} == names

        # A task that found no server tries again within 5 s.
        wait_until("all are back", back, 10)
        print("back after", time.monotonic() - begun)
        wait_until("each has its part", lambda: held() > offered and server.customer("acme")["tasks"] == 8)
        server.wait_for_tasks(8)
        assert held() > offered
    counted = [ended(load) for load in loads]
    assert [load.failed for load in counted] == [0] * 8, [load.raw["groups"]["by_customer"] for load in counted]
    assert all(load.requests > 25 for load in counted)
