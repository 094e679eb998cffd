"""`plimsoll backend` and `plimsoll load`, by themselves: what the other tests measure with has to be right."""

import base64
import json

import pytest

from harness.fleet import PLIMSOLL, Fleet, http
from harness.http1 import Connection, Message, answer
from harness.orca import OrcaLoadReport
from harness.process import run

pytestmark = pytest.mark.alone


def test_backend_names_itself_and_reports_in_a_form_that_others_read(fleet: Fleet) -> None:
    backend = fleet.backend("--report", "utilization=.25,rps=80,eps=2")
    with Connection.to(backend.port) as client:
        response = client.request("/any/path")
    assert response.status == 200
    assert response.get("x-backend") == backend.address
    encoded = response.get("endpoint-load-metrics-bin") or ""
    report = OrcaLoadReport.FromString(base64.b64decode(encoded + "=" * (-len(encoded) % 4)))
    assert report.application_utilization == 0.25
    assert report.rps_fractional == 80
    assert report.eps == 2


def test_backend_echoes_what_is_posted(fleet: Fleet) -> None:
    backend = fleet.backend()
    with Connection.to(backend.port) as client:
        body = bytes(range(256)) * 100
        assert client.request("/echo", method="POST", body=body).body == body


def test_backend_changes_while_it_runs(fleet: Fleet) -> None:
    backend = fleet.backend()
    url = f"http://{backend.address}"
    assert http(f"{url}/")[0] == 200
    status, text = http(f"{url}/control", method="POST", body=b'{"fail_fast": true}')
    assert status == 200, text
    assert http(f"{url}/")[0] == 500
    assert json.loads(http(f"{url}/control")[1])["fail_fast"] is True
    status, text = http(f"{url}/control", method="POST", body=b'{"error_rate": 7}')
    assert status == 400 and "error_rate" in text
    http(f"{url}/control", method="POST", body=b'{"fail_fast": false}')
    assert http(f"{url}/")[0] == 200


def test_open_loop_sends_at_its_rate_and_counts_from_the_intended_time(fleet: Fleet) -> None:
    backend = fleet.backend("--cost", "fixed:10us", "--wait", "fixed:50ms")
    counted = fleet.load_now(f"http://{backend.address}/", "--rate", "200", "--arrival", "uniform", "--duration", "3s")
    assert 590 <= counted.requests <= 610
    assert counted.failed == 0
    assert 50 <= counted.raw["latency_ms"]["p50"] < 70
    assert counted.by_backend == {backend.address: counted.requests}


def test_a_mix_is_sent_and_told_by_group(fleet: Fleet) -> None:
    def unless_sheddable(connection: Connection, request: Message) -> None:
        assert request.get("x-customer") in ("web", "batch")
        assert 0 < int(request.get("x-envoy-expected-rq-timeout-ms") or 0) <= 5_000
        shed = request.get("x-criticality") == "sheddable"
        answer(connection, status="503 Service Unavailable" if shed else "200 OK")

    url = f"http://{fleet.origin(unless_sheddable)}/"
    mix = ["--criticality", "sheddable=1,critical-plus=1", "--customers", "web=3,batch=1"]
    counted = fleet.load_now(url, *mix, "--useful-within", "5s", "--tell-deadline", "--requests", "200", "--concurrency", "2")
    groups = counted.raw["groups"]
    assert groups["useful_within_ms"] == 5_000
    assert list(groups["by_criticality"]) == ["critical-plus", "sheddable"]
    served, shed = groups["by_criticality"].values()
    assert served["useful"] == served["ok"] == served["requests"] and served["useful_p99_ms"] > 0
    assert shed["shed"] == shed["requests"] and shed["useful_p99_ms"] is None
    # n = 200 at one half: 60 is 5.7 standard deviations away (two-sided 2e-8); by the default seed it is always the same.
    assert 60 < served["requests"] < 140
    assert served["requests"] + shed["requests"] == sum(row["requests"] for row in groups["by_customer"].values()) == 200


def test_failures_are_counted_and_exit_1_where_asked(fleet: Fleet) -> None:
    def half(connection: Connection, request: Message) -> None:
        del request
        half.count += 1
        answer(connection, status="200 OK" if half.count % 2 else "500 Internal Server Error")

    half.count = 0
    url = f"http://{fleet.origin(half)}/"
    common = [PLIMSOLL, "load", url, "--json", "--requests", "100", "--concurrency", "1"]
    tolerant = run(common)
    assert tolerant.returncode == 0
    assert json.loads(tolerant.stdout)["failed"] == 50
    assert run([*common, "--fail-on-error"]).returncode == 1
