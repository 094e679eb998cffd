"""Throttling as a signal: what the proxy says of requests that it turns away, and why it turned one away."""

import json
import subprocess
import urllib.error
import urllib.request

import pytest

from harness.fleet import PLIMSOLL, Fleet, Proxy, http
from harness.process import free_port, run, wait_until

pytestmark = pytest.mark.alone

# One core is full at 500 requests a second.
COST = ("--cost", "fixed:2ms", "--cores", "1")
CUSTOMERS = 'trust_criticality = "critical-plus"\ncustomer_header = "x-customer"'


def sidecar(fleet: Fleet, cpus: float = 1.0) -> Proxy:
    """A proxy that protects a backend, and has seen it."""
    backend = fleet.backend(*COST)
    inbound = f"[clusters.main.inbound]\npid = {backend.pid}\ncpus = {cpus}\n"
    proxy = fleet.proxy([backend.address], listener=CUSTOMERS, further=inbound)
    proxy.admin.wait_for_healthy(1)
    seen = lambda: proxy.admin.metric("plimsoll_inbound_process_seen", cluster="main") == 1
    wait_until("the process is seen", seen)
    return proxy


def account(proxy: Proxy) -> dict:
    (cluster,) = proxy.admin.json("/api/v1/throttling")["clusters"]
    assert cluster["cluster"] == "main"
    return cluster


def explain(proxy: Proxy, *arguments: str) -> subprocess.CompletedProcess:
    return run([PLIMSOLL, "explain", "--admin", proxy.admin.url.removeprefix("http://"), *arguments], 20)


def refused(proxy: Proxy, headers: dict[str, str]) -> urllib.error.HTTPError:
    """The answer to one of many such requests that was turned away."""
    for _ in range(10_000):
        try:
            urllib.request.urlopen(urllib.request.Request(proxy.url + "/search?key=secret", headers=headers), timeout=5).read()
        except urllib.error.HTTPError as answer:
            return answer
    raise AssertionError("none was turned away")


def failed(url: str, method: str = "GET") -> urllib.error.HTTPError:
    try:
        urllib.request.urlopen(urllib.request.Request(url, method=method), timeout=5).read()
    except urllib.error.HTTPError as answer:
        return answer
    raise AssertionError("it was served")


def test_the_verdict_tells_batch_that_waits_from_users_that_lose(fleet: Fleet) -> None:
    proxy = sidecar(fleet)
    assert account(proxy)["verdict"] == "fine"
    batch = ("--rate", "1000", "--criticality", "critical-plus=5,sheddable=95")
    fleet.load_now(proxy.url, *batch, "--duration", "6s")
    said = account(proxy)
    assert said["verdict"] in ("as-intended", "users-affected"), said
    minute = said["windows"][0]
    cheap, dear = (minute["by_criticality"][name] for name in ("sheddable", "critical-plus"))
    assert sum(shed["requests"] for shed in cheap["shed"].values()) > 500, minute
    lost = sum(shed["requests"] for shed in dear["shed"].values())
    assert (said["verdict"] == "users-affected") == (lost >= 0.001 * dear["offered"]["requests"]), said
    assert cheap["admitted"]["requests"] > 0 and cheap["offered"]["cpus"] > 0
    assert said["capacity_cpus"] == 1.0 and said["throttled_for_s"] > 0
    assert said["routes"][0]["name"].startswith("GET ")

    # All are users now, and there is room for half of them.
    fleet.load_now(proxy.url, "--rate", "1000", "--criticality", "critical=1", "--duration", "4s")
    said = account(proxy)
    assert said["verdict"] == "users-affected"
    # Seconds into an incident: a mean that includes the calm before would be below the capacity.
    assert said["enough_cpus"] is None and "is not known yet" in said["meaning"], said
    assert 'plimsoll_inbound_enough_cpus{cluster="main"}' not in proxy.admin.get("/metrics")[1]
    verdicts = [proxy.admin.metric("plimsoll_throttling_verdict", verdict=v) for v in ("users-affected", "fine")]
    assert verdicts == [1, 0]
    assert proxy.admin.metric("plimsoll_throttled_seconds", cluster="main") > 0
    assert proxy.admin.metric("plimsoll_offered_cost_seconds_total", cluster="main", criticality="critical") > 0


def test_a_request_that_was_turned_away_is_explained_by_its_id(fleet: Fleet) -> None:
    # The process takes more than its share by itself.
    proxy = sidecar(fleet, cpus=0.01)
    answer = refused(proxy, {"x-criticality": "sheddable", "x-customer": "ann"})
    told = explain(proxy, answer.headers["x-request-id"])
    assert told.returncode == 0, told.stderr
    for part in ("GET /search,", "sheddable: claimed in x-criticality", "ann", "overloaded; expected cost", "503"):
        assert part in told.stdout, told.stdout
    assert "secret" not in told.stdout
    mine = refused(proxy, {"x-criticality": "sheddable", "x-request-id": "mine/7"})
    assert mine.headers["x-request-id"] == "mine/7" and explain(proxy, "mine/7").stdout.startswith("mine/7, ")

    listed = explain(proxy, "--reason", "overloaded", "--customer", "ann", "--json")
    requests = json.loads(listed.stdout)["requests"]
    assert requests and all(request["customer"] == "ann" for request in requests), listed.stdout
    assert "remembered: " in explain(proxy).stdout
    assert proxy.output().count("request not served") >= 1


def test_attempts_at_backends_that_are_away_are_explained(fleet: Fleet) -> None:
    backends = [fleet.backend(), fleet.backend()]
    # No connection is open by which it would be noticed that one of them goes.
    proxy = fleet.proxy([backend.address for backend in backends], cluster="min_connections = 0")
    proxy.admin.wait_for_healthy(2)
    backends[0].kill()
    statuses = [http(proxy.url, headers={"x-request-id": f"r{n}"})[0] for n in range(50)]
    assert set(statuses) == {200}, statuses
    requests = json.loads(explain(proxy, "--outcome", "retried", "--json").stdout)["requests"]
    assert requests, explain(proxy).stdout
    (attempt,) = requests[-1]["failed_attempts"]
    assert (attempt["backend"], requests[-1]["backend"]) == (backends[0].address, backends[1].address)
    assert "sent to another backend" in explain(proxy, requests[-1]["id"]).stdout


def test_reason_in_a_response_finds_the_request_in_explain(fleet: Fleet) -> None:
    backend = fleet.backend("--wait", "fixed:10s")
    gone = free_port()
    tables = f"""
[[routes]]
path_prefix = "/slow"
cluster = "main"
request_timeout = "20ms"
[[routes]]
path_prefix = "/gone"
cluster = "gone"
[clusters.gone]
backends = ["127.0.0.1:{gone}"]
"""
    proxy = fleet.proxy([backend.address], further=tables)
    proxy.admin.wait_for_healthy(1, cluster="main")
    for method, path, status, word, cause in [
        ("GET", "/slow", 504, "deadline", "timeout"),
        ("GET", "/gone", 503, "no-backend", None),
        ("TRACE", "/", 405, "trace", None),
    ]:
        answer = failed(proxy.url + path, method)
        assert answer.code == status, (path, answer.code)
        said = answer.headers["x-plimsoll-shed"] or f"reason={answer.read().decode().split(':')[0]}"
        assert said.split(",")[0] == f"reason={word}", said
        for wanted in filter(None, (word, cause)):
            found = json.loads(explain(proxy, "--reason", wanted, "--json").stdout)["requests"]
            assert [request["id"] for request in found] == [answer.headers["x-request-id"]], (wanted, found)
    (timed_out,) = json.loads(explain(proxy, "--reason", "timeout", "--json").stdout)["requests"]
    assert "deadline (timeout)" in explain(proxy, timed_out["id"]).stdout
    only_counted = explain(proxy, "--reason", "slow-head").stdout
    assert 'plimsoll_refused_requests_total{reason="slow-head"}' in only_counted, only_counted


def test_what_is_not_there_is_told_with_the_mend(fleet: Fleet) -> None:
    proxy = fleet.proxy_to([fleet.backend().address])
    proxy.admin.wait_for_healthy(1)
    http(proxy.url)
    told = explain(proxy, "nobody")
    assert told.returncode == 1 and "help: remembered: " in told.stderr and "served" in told.stderr, told.stderr
    nowhere = run([PLIMSOLL, "explain", "--admin", f"127.0.0.1:{free_port()}"], 20)
    assert nowhere.returncode == 2 and "name its admin address" in nowhere.stderr, nowhere.stderr
