"""What somebody tries first: the demo, and the proxy from the command line in front of servers that know nothing of it."""

import json
import pathlib
import signal
import time

import pytest

from harness.fleet import PLIMSOLL, Fleet, Proxy, h2load, wrk
from harness.http1 import Connection
from harness.process import Process, free_port, run, wait_until

pytestmark = pytest.mark.alone

# Backends differ by 4:1, and round-robin gives each the same work: its most loaded backend is far
# over the mean.
DEMO_SPREAD = 1.10


def test_demo_evens_out_cpu_and_serves_the_important_in_overload() -> None:
    done = run([PLIMSOLL, "demo", "--for", "40s", "--json"], seconds=90)
    assert done.returncode == 0, f"{done.stdout}{done.stderr}"
    phases = {phase["phase"]: phase for phase in json.loads(done.stdout)["phases"]}
    assert list(phases) == ["round-robin", "weighted", "overload-unprotected", "overload"]
    assert phases["weighted"]["max_over_mean"] <= DEMO_SPREAD, phases
    assert phases["round-robin"]["max_over_mean"] > 1.3, phases
    for name in ("round-robin", "weighted"):
        assert phases[name]["requests"] > 0 and phases[name]["failed"] == 0, phases

    def in_time(name: str) -> dict[str, float]:
        return {group["name"]: group["in_time"] for group in phases[name]["criticalities"]}

    unprotected, protected = in_time("overload-unprotected"), in_time("overload")
    # The service was measured before. Where other work then takes its CPU, less is served.
    assert min(protected["critical-plus"], protected["critical"]) > protected["sheddable"] <= 0.2, phases
    assert protected["critical-plus"] >= 0.4 > unprotected["critical-plus"], phases
    assert protected["critical-plus"] >= 2 * max(unprotected["critical-plus"], protected["sheddable"]), phases


def marked(mark: str) -> list[str]:
    """The processes that were started with this mark in their environment."""
    here = []
    for entry in pathlib.Path("/proc").glob("[0-9]*/environ"):
        try:
            if f"PLIMSOLL_E2E_MARK={mark}\0".encode() in entry.read_bytes() + b"\0":
                here.append(entry.parent.name)
        except (PermissionError, FileNotFoundError, ProcessLookupError):
            continue
    return here


def test_demo_ends_everything_it_started() -> None:
    done = run(["env", "PLIMSOLL_E2E_MARK=demo", PLIMSOLL, "demo", "--for", "4s", "--json"], seconds=30)
    assert done.returncode == 0, f"{done.stdout}{done.stderr}"
    wait_until("nothing of the demo runs any more", lambda: not marked("demo"), seconds=2)


def test_demo_of_quotas_cuts_one_customer_and_others_notice_nothing() -> None:
    command = ["env", "PLIMSOLL_E2E_MARK=quota-demo", PLIMSOLL, "demo", "--scene", "quota", "--for", "24s", "--json"]
    done = run(command, seconds=60)
    assert done.returncode == 0, f"{done.stdout}{done.stderr}"
    assert not marked("quota-demo")
    phases = {phase["phase"]: phase for phase in json.loads(done.stdout)["phases"]}
    assert list(phases) == ["below-limits", "three-times", "server-lost", "back"]
    for name, phase in phases.items():
        acme, *others = phase["customers"]
        assert acme["name"] == "acme" and len(others) == 3 and len(phase["held_cpus"]) == 8, phase
        assert phase["failed"] == 0 and sum(phase["held_cpus"]) <= acme["limit_cpus"] * 1.001, phase
        # Costs of the requests, beside all CPU of the processes that serve them.
        assert 0.5 < phase["requests_cpus"] / phase["backends_cpus"] < 1.02, phase
        requests = sum(other["requests"] for other in others)
        refused = sum(other["requests"] * other["refused"] for other in others) / requests
        # Without the server nobody lends to a burst at one backend.
        assert refused < (0.02 if name == "server-lost" else 0.005), phase
        assert all(other["cut"] is None for other in others), phase
    for name in ("three-times", "server-lost"):
        acme = phases[name]["customers"][0]
        # Three standard deviations of 3,600 requests of different costs are 6%. Costs leave out an estimate of
        # the HTTP beside a request, some 3%, that limits count.
        # Backends that other work keeps from the cores shed requests by themselves.
        overloaded = phases[name]["overloaded"] / sum(of["requests"] for of in phases[name]["customers"])
        assert 0.84 - overloaded < acme["used_cpus"] / acme["limit_cpus"] < 1.04, phases[name]
        assert acme["offered_cpus"] > 2.5 * acme["limit_cpus"] and 0.6 - overloaded < acme["refused"] < 0.8, acme
        by_criticality = acme["refused_by_criticality"]
        assert list(by_criticality) == ["critical-plus", "critical", "sheddable-plus", "sheddable"]
        assert by_criticality["critical-plus"] < 0.05 and by_criticality["critical"] < 0.1, acme
        assert by_criticality["sheddable-plus"] > 0.4 - overloaded, acme
        assert by_criticality["sheddable"] > 0.95 - 2 * overloaded, acme
    assert phases["three-times"]["customers"][0]["cut"]["criticality"] == "sheddable-plus", phases
    # The largest part of the limit is where most of the requests are.
    held = phases["three-times"]["held_cpus"]
    assert held[0] > 2 * min(held) > 0, held


def test_interrupted_demo_of_quotas_leaves_nothing_behind(fleet: Fleet) -> None:
    command = ["env", "PLIMSOLL_E2E_MARK=quota-interrupt", PLIMSOLL, "demo", "--scene", "quota"]
    demo = Process("demo", command, fleet.directory)
    fleet.processes.append(demo)
    wait_until("nine children run", lambda: len(marked("quota-interrupt")) == 10, seconds=10)
    demo.signal(signal.SIGINT)
    assert demo.wait(5) == 1 and "error: interrupted" in demo.output()
    wait_until("nothing of the demo runs any more", lambda: not marked("quota-interrupt"), seconds=2)


def test_demo_names_its_scenes() -> None:
    done = run([PLIMSOLL, "demo", "--scene", "quotas"])
    assert done.returncode == 2 and "possible values: fleet, balance, overload, restart, quota" in done.stderr, done
    done = run([PLIMSOLL, "demo", "--scene", "quota", "--speeds", "1,2"])
    assert done.returncode == 2 and "--speeds has no effect with --scene quota" in done.stderr, done
    for shell in ("bash", "zsh", "fish"):
        assert "--scene" in (script := run([PLIMSOLL, "completions", shell]).stdout) or "-l scene" in script, shell
        assert "quota" in script.split("scene", 1)[1], shell


def test_first_request_is_balanced_within_a_second_of_start(fleet: Fleet) -> None:
    addresses = [fleet.nginx(), fleet.nginx()]
    port, admin_port = free_port(), free_port()
    arguments = ["--from", f"127.0.0.1:{port}", "--admin", f"127.0.0.1:{admin_port}"]
    for address in addresses:
        arguments += ["--to", address]
    began = time.monotonic()
    proxy = Proxy("proxy", arguments, port, admin_port, fleet.directory)
    fleet.processes.append(proxy)

    def first_answer() -> str | None:
        try:
            with Connection.to(port) as client:
                answer = client.request("/")
        except OSError:
            return None
        assert answer.status == 200, answer
        return answer.get("x-backend")

    answered = wait_until("a first answer", first_answer, seconds=5)
    assert time.monotonic() - began < 1.0
    assert answered in addresses


def test_wrk_sees_no_error_over_two_nginx(fleet: Fleet) -> None:
    addresses = [fleet.nginx(), fleet.nginx()]
    proxy = fleet.proxy_to(addresses)
    result = wrk(proxy.url, seconds=3)
    assert result.errors == ""
    assert result.requests > 1000
    served = {address: row["requests"] for address, row in proxy.admin.backends().items()}
    for address in addresses:
        assert served[address] > 0.3 * result.requests, served


def test_http2_clients_are_served_by_http1_backends(fleet: Fleet) -> None:
    proxy = fleet.proxy_to([fleet.nginx(), fleet.nginx()])
    counts = h2load(proxy.url, requests=20_000)
    assert "20000 succeeded, 0 failed, 0 errored" in counts, counts


def test_wrong_usage_exits_2_and_says_what_is_right(fleet: Fleet) -> None:
    del fleet
    for wrong in (
        ["proxy"],
        ["proxy", "--from", "127.0.0.1:1"],
        ["check"],
        ["load"],
        ["backend", "--cost", "often"],
        ["nothing"],
    ):
        done = run([PLIMSOLL, *wrong])
        assert done.returncode == 2, f"{wrong}: {done.returncode} {done.stderr}"
        assert done.stderr.strip(), f"{wrong} says nothing"


def test_help_has_examples_and_version_names_the_program() -> None:
    for command in ("proxy", "check", "backend", "load", "demo"):
        done = run([PLIMSOLL, command, "--help"])
        assert done.returncode == 0 and f"plimsoll {command}" in done.stdout, done.stdout
    assert run([PLIMSOLL, "--version"]).stdout.startswith("plimsoll ")
