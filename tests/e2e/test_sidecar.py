"""The proxy beside a backend that has too much to do: whom it turns away, and whom it does not."""

import json
import pathlib

import pytest

from harness.fleet import UNTIL_FINISHED, Backend, Fleet, Proxy, http
from harness.process import wait_until

pytestmark = pytest.mark.alone

# One core is full at 500 requests a second.
COST = ("--cost", "fixed:2ms", "--cores", "1")
FOUR_TIMES = ("--rate", "2000", "--criticality", "critical-plus=5,sheddable=95")
EXEMPT = '[[routes]]\npath_prefix = "/healthz"\nexempt = true\ncluster = "main"\n'


def note_pid(backend: Backend, directory: pathlib.Path) -> pathlib.Path:
    file = directory / "backend.pid"
    file.write_text(f"{backend.pid}\n")
    return file


def sidecar(fleet: Fleet, backend: Backend, dry_run: bool = False) -> Proxy:
    """A proxy that protects `backend`, and has seen it."""
    inbound = f"""
        [access_log]
        path = "{fleet.directory}/access.log"

        [clusters.main.inbound]
        pid_file = "{note_pid(backend, fleet.directory)}"
        cpus = 1.0
        dry_run = {str(dry_run).lower()}
    """
    proxy = fleet.proxy([backend.address], listener='trust_criticality = "critical-plus"', further=EXEMPT + inbound)
    proxy.admin.wait_for_healthy(1)
    wait_until("the process is seen", lambda: is_seen(proxy))
    return proxy


def is_seen(proxy: Proxy) -> bool:
    return proxy.admin.metric("plimsoll_inbound_process_seen", cluster="main") == 1


def decided(proxy: Proxy, **labels: str) -> float:
    return proxy.admin.metric("plimsoll_admission_requests_total", cluster="main", **labels)


@pytest.mark.parametrize("protocol", ["http1", "grpc"])
def test_the_least_important_are_turned_away_at_four_times_the_load(fleet: Fleet, protocol: str) -> None:
    backend = fleet.backend(*COST)
    proxy = sidecar(fleet, backend)
    counted = fleet.load_now(proxy.url, "--protocol", protocol, *FOUR_TIMES, "--warmup", "4s", "--duration", "5s")
    groups = counted.raw["groups"]["by_criticality"]
    dear, cheap = groups["critical-plus"], groups["sheddable"]
    # A quarter of all could be served on a core of its own, and on a busy machine less: a fifth of that are the dear ones.
    assert cheap["shed"] > 0.5 * cheap["requests"] and cheap["ok"] > 0, groups
    assert dear["ok"] > 0.85 * dear["requests"], groups
    assert decided(proxy, criticality="sheddable", decision="admitted") > 0
    turned_away = decided(proxy, criticality="sheddable") - decided(proxy, criticality="sheddable", decision="admitted")
    assert turned_away >= cheap["shed"]
    assert proxy.admin.metric("plimsoll_inbound_process_cpus", cluster="main") > 0


def test_exempt_requests_are_served_whatever_the_load(fleet: Fleet) -> None:
    proxy = sidecar(fleet, fleet.backend(*COST))
    load = fleet.load(proxy.url, *FOUR_TIMES, "--duration", UNTIL_FINISHED)
    wait_until("requests are turned away", lambda: decided(proxy, decision="overloaded") > 0)
    answers = [http(f"{proxy.url}/healthz")[0] for _ in range(20)]
    assert load.running() and answers == [200] * 20
    load.interrupt()
    load.result()

    def shed_lines() -> list[dict]:
        text = (fleet.directory / "access.log").read_text()
        lines = [json.loads(line) for line in text.splitlines(keepends=True) if line.endswith("\n")]
        return [line for line in lines if line.get("reason") == "overloaded"]

    line, *_ = wait_until("the log has one", shed_lines)
    assert (line["status"], line["cluster"], line.get("backend")) == (503, "main", None)


def test_a_dry_run_turns_nobody_away_and_says_whom_it_would(fleet: Fleet) -> None:
    proxy = sidecar(fleet, fleet.backend(*COST), dry_run=True)
    counted = fleet.load_now(proxy.url, "--concurrency", "80", "--requests", "2000", "--criticality", "sheddable=1")
    assert counted.failed == 0, counted.raw
    assert decided(proxy, decision="overloaded") + decided(proxy, decision="overloaded-no-retry") > 0
    assert decided(proxy, decision="admitted") == 2_000


def test_a_process_that_starts_anew_is_found_by_its_file(fleet: Fleet) -> None:
    backend = fleet.backend(*COST)
    proxy = sidecar(fleet, backend)
    backend.kill()
    wait_until("the process is gone", lambda: not is_seen(proxy))
    note_pid(fleet.again(backend), fleet.directory)
    wait_until("the new one is seen", lambda: is_seen(proxy))
    assert "process lost: requests are admitted by" in proxy.output()


def test_missing_process_is_named_in_the_log_at_start(fleet: Fleet) -> None:
    missing = fleet.directory / "missing.pid"
    inbound = f'[clusters.main.inbound]\npid_file = "{missing}"\n'
    proxy = fleet.proxy([fleet.backend(*COST).address], further=inbound)
    wait_until("the process is named", lambda: "process not found" in proxy.output())
    (line,) = (line for line in proxy.output().splitlines() if "process not found" in line)
    assert str(missing) in line and "correct pid_file" in line, line
