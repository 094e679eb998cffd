"""The live page of a real proxy: its figures are those of the metrics, and its stream follows what happens."""

import http.client
import json
import os
import pathlib
import signal
import subprocess
import time
from collections.abc import Iterator

import pytest

from harness.fleet import UNTIL_FINISHED, Backend, Fleet, Proxy
from harness.process import wait_until

pytestmark = pytest.mark.alone

PAGE_TESTS = pathlib.Path(__file__).parent.parent / "page"
# One core is full at 200 requests a second.
COST = ("--cost", "fixed:5ms", "--cores", "1")
OVERLOAD = ("--rate", "600", "--criticality", "critical-plus=5,critical=15,sheddable-plus=30,sheddable=50")


def protected(fleet: Fleet, backend: Backend) -> Proxy:
    file = fleet.directory / "backend.pid"
    file.write_text(f"{backend.pid}\n")
    inbound = f'[clusters.main.inbound]\npid_file = "{file}"\ncpus = 1.0\n'
    proxy = fleet.proxy([backend.address], listener='trust_criticality = "critical-plus"', further=inbound)
    proxy.admin.wait_for_healthy(1)
    seen = lambda: proxy.admin.metric("plimsoll_inbound_process_seen", cluster="main") == 1  # noqa: E731
    wait_until("the process is seen", seen)
    return proxy


class Stream:
    """The events of `/api/v1/live/stream`, one after the other."""

    def __init__(self, proxy: Proxy, query: str = ""):
        self.connection = http.client.HTTPConnection("127.0.0.1", proxy.admin.port, timeout=20)
        self.connection.request("GET", f"/api/v1/live/stream{query}")
        self.response = self.connection.getresponse()
        assert self.response.status == 200, self.response.read()
        self.events = self._read()

    def _read(self) -> Iterator[tuple[str, dict, int]]:
        name = ""
        while line := self.response.readline():
            text = line.decode().rstrip("\n")
            if text.startswith("event: "):
                name = text.removeprefix("event: ")
            elif text.startswith("data: "):
                yield name, json.loads(text.removeprefix("data: ")), len(text)

    def until(self, what: str, holds: "callable", seconds: float = 30) -> dict:
        deadline = time.monotonic() + seconds
        for name, event, _ in self.events:
            if name == "live" and holds(event):
                return event
            assert time.monotonic() < deadline, f"{what} within {seconds} s: {event}"
        raise AssertionError(f"the stream ended before {what}")


def test_page_and_metrics_agree_in_an_overload(fleet: Fleet) -> None:
    proxy = protected(fleet, fleet.backend(*COST))
    load = fleet.load(proxy.url, *OVERLOAD, "--duration", UNTIL_FINISHED)
    stream = Stream(proxy)
    assert next(stream.events)[0] == "history"
    # Rates over ten seconds of the same load.
    stream.until("shedding", lambda live: live["cluster"]["demand"][3]["shed_qps"] > 0)
    stream.until("ten seconds", lambda live, begin=time.time(): live["at"] > begin + 12, 20)

    def counters() -> dict[str, float]:
        names = ["critical-plus", "critical", "sheddable-plus", "sheddable"]
        requests = {
            name: proxy.admin.metric("plimsoll_admission_requests_total", cluster="main", criticality=name)
            for name in names
        }
        cost = {
            f"cost of {name}": proxy.admin.metric("plimsoll_offered_cost_seconds_total", cluster="main", criticality=name)
            for name in names
        }
        return requests | cost

    begin, before = time.monotonic(), counters()
    time.sleep(10)
    spent, after = time.monotonic() - begin, counters()
    live = json.loads(proxy.admin.get("/api/v1/live")[1])
    gate, cluster = live["cluster"]["gate"], live["cluster"]
    for demand in cluster["demand"]:
        name = demand["criticality"]
        rate = (after[name] - before[name]) / spent
        cpus = (after[f"cost of {name}"] - before[f"cost of {name}"]) / spent
        # The two tens of seconds begin at most two seconds apart; Poisson arrivals of 30 to 300 a second.
        assert demand["offered_qps"] == pytest.approx(rate, rel=0.25, abs=5), (demand, rate)
        assert demand["offered_cpus"] == pytest.approx(cpus, rel=0.25, abs=0.05), (demand, cpus)
        assert demand["admitted_qps"] + demand["shed_qps"] == pytest.approx(demand["offered_qps"], rel=0.1, abs=2), demand
    assert proxy.admin.metric("plimsoll_throttling_verdict", cluster="main", verdict=gate["verdict"]) == 1
    assert proxy.admin.metric("plimsoll_inbound_capacity_cpus", cluster="main") == pytest.approx(gate["capacity_cpus"])
    shown = subprocess.run(
        [os.environ.get("PLIMSOLL_BIN", "target/release/plimsoll"), "top", "--once", "--json", "--admin", f"127.0.0.1:{proxy.admin.port}"],
        capture_output=True,
        text=True,
        timeout=20,
        check=True,
    )
    top = json.loads(shown.stdout)
    assert top["cluster"]["gate"]["capacity_cpus"] == gate["capacity_cpus"]
    for of_top, of_page in zip(top["cluster"]["demand"], cluster["demand"], strict=True):
        assert of_top["offered_qps"] == pytest.approx(of_page["offered_qps"], rel=0.25, abs=5), (of_top, of_page)
    load.interrupt()
    load.result()


def test_stream_follows_changes_and_ends_with_the_proxy(fleet: Fleet) -> None:
    first, second = fleet.backend(), fleet.backend()
    proxy = fleet.proxy([first.address, second.address])
    proxy.admin.wait_for_healthy(2)
    stream = Stream(proxy, "?cluster=main")
    proxy.admin.post(f"/api/v1/clusters/main/backends/{first.address}/drain")
    drained = stream.until("a drain", lambda live: live["changes"])
    change = drained["changes"][0]
    assert (change["kind"], change["subject"], change["text"]) == ("backend", first.address, "lame-duck: drained")
    assert drained["cluster"]["backends"]["by_state"]["lame-duck"] == 1
    begin = time.monotonic()
    proxy.signal(signal.SIGTERM)
    assert list(stream.events) is not None, "it ends"
    proxy.wait(10)
    # Streams are no requests in progress: the drain does not wait for their readers.
    assert time.monotonic() - begin < 8, "the end of the proxy"


def test_ten_thousand_backends_make_small_events_and_few_metrics(fleet: Fleet) -> None:
    backend = fleet.backend()
    host, port = backend.address.rsplit(":", 1)
    assert host == "127.0.0.1"
    many = [f"127.1.{i // 250}.{i % 250 + 1}:{port}" for i in range(10_000)]
    proxy = fleet.proxy(many, admin='backend_metrics = "aggregate"', health='check = "none"')
    stream = Stream(proxy)
    for _, (name, event, size) in zip(range(5), stream.events):
        if name == "live":
            assert size <= 20 << 10, size
            assert event["cluster"]["backends"]["known"] == 10_000
            assert len(event["cluster"]["backends"]["rows"]) <= 40
    text = proxy.admin.get("/metrics")[1]
    assert len(text) < 100_000 and 'backend="' not in text
    unhealthy = json.loads(proxy.admin.get("/api/v1/clusters/main/backends?state=unhealthy&limit=3")[1])
    assert len(unhealthy["backends"]) <= 3 and unhealthy["matching"] <= 10_000


def test_browser_shows_the_overload_of_a_real_proxy(fleet: Fleet) -> None:
    proxy = protected(fleet, fleet.backend(*COST))
    load = fleet.load(proxy.url, *OVERLOAD, "--duration", UNTIL_FINISHED)
    Stream(proxy).until("shedding", lambda live: live["cluster"]["demand"][3]["shed_qps"] > 0)
    address = f"http://127.0.0.1:{proxy.admin.port}/live/"
    ran = subprocess.run(
        ["npm", "run", "--silent", "proxy"],
        cwd=PAGE_TESTS,
        env=os.environ | {"PLIMSOLL_PAGE_URL": address},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert ran.returncode == 0, ran.stdout[-6_000:] + ran.stderr[-2_000:]
    load.interrupt()
    load.result()
