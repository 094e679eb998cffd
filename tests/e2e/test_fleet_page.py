"""`plimsoll page`: several real proxies on one page, while one of them is killed and comes back."""

import json
import os
import pathlib
import signal
import subprocess
import time

import pytest

from harness.fleet import PLIMSOLL, UNTIL_FINISHED, Admin, Backend, Fleet, Proxy, config, http
from harness.process import Process, free_port, run, wait_until

pytestmark = pytest.mark.alone

PAGE_TESTS = pathlib.Path(__file__).parent.parent / "page"
# One core is full at 200 requests a second.
COST = ("--cost", "fixed:5ms", "--cores", "1")
OVERLOAD = ("--rate", "400", "--criticality", "critical=20,sheddable=80", "--duration", UNTIL_FINISHED)
# The mildest first.
VERDICTS = ["fine", "as-intended", "capacity-short", "users-affected"]
LIGHT = ("--rate", "50", "--duration", UNTIL_FINISHED)


def admin_of(proxy: Proxy) -> str:
    return f"127.0.0.1:{proxy.admin.port}"


class Page(Process):
    """`plimsoll page` in front of these addresses."""

    def __init__(self, fleet: Fleet, *addresses: str):
        port = free_port()
        command = [PLIMSOLL, "page", *addresses, "--listen", f"127.0.0.1:{port}", "--no-open"]
        super().__init__(f"page-{port}", command, fleet.directory)
        fleet._keep(self)
        self.admin = Admin(port)
        self.wait_for_port(port)

    def live(self, query: str = "") -> dict:
        return self.admin.json(f"/api/v1/live{query}")

    def until(self, what: str, holds: "callable", seconds: float = 20) -> dict:
        found = {}

        def is_so() -> bool:
            found["live"] = self.live()
            return holds(found["live"])

        wait_until(what, is_so, seconds)
        return found["live"]


def sidecar(fleet: Fleet, backend: Backend, port: int, admin_port: int, others: tuple[str, ...] = ()) -> Proxy:
    """A proxy that protects a backend, and has seen it."""
    inbound = f"[clusters.main.inbound]\npid = {backend.pid}\ncpus = 1.0\n"
    text = config(port, admin_port, [backend.address, *others], 'trust_criticality = "critical-plus"', further=inbound)
    proxy = fleet.proxy_with(text, port, admin_port)
    proxy.admin.wait_for_healthy(1 + len(others))
    wait_until("the process is seen", lambda: proxy.admin.metric("plimsoll_inbound_process_seen", cluster="main") == 1)
    return proxy


def answering(live: dict) -> int:
    return sum(row["answers"] for row in live["proxies"])


def offered(live: dict) -> float:
    return sum(row["offered_qps"] for row in live["cluster"]["demand"])


def test_page_sums_proxies_and_outlives_the_end_of_one(fleet: Fleet) -> None:
    backends = [fleet.backend(*COST) for _ in range(3)]
    ports = [(free_port(), free_port()) for _ in range(3)]
    proxies = [sidecar(fleet, backend, *port) for backend, port in zip(backends, ports, strict=True)]
    loads = [fleet.load(proxies[0].url, *OVERLOAD), *(fleet.load(proxy.url, *LIGHT) for proxy in proxies[1:])]
    page = Page(fleet, *(admin_of(proxy) for proxy in proxies))

    live = page.until("three proxies and shedding", lambda live: answering(live) == 3 and live["cluster"]["demand"][3]["shed_qps"] > 50)
    assert live["process"]["name"] == "3 of 3 proxies"
    time.sleep(11)
    live, each = page.live(), [proxy.admin.json("/api/v1/live") for proxy in proxies]
    assert offered(live) == pytest.approx(sum(offered(one) for one in each), rel=0.1)
    gate = live["cluster"]["gate"]
    assert gate["capacity_cpus"] == pytest.approx(3.0)
    verdicts = [one["cluster"]["gate"]["verdict"] for one in each]
    assert [row["load"]["verdict"] for row in live["proxies"]] == verdicts
    assert gate["verdict"] == max(verdicts, key=VERDICTS.index) != "fine"
    assert live["cluster"]["backends"]["total"] == 3

    # Killed: its figures leave, and the others stay.
    proxies[2].kill()
    live = page.until("one is lost", lambda live: answering(live) == 2, 8)
    lost = live["proxies"][2]
    assert lost["load"] is None and lost["problem"] and lost["name"] == lost["address"], lost
    assert live["cluster"]["gate"]["capacity_cpus"] == pytest.approx(2.0)
    assert live["process"]["name"] == "2 of 3 proxies"
    change = next(change for change in live["changes"] if change["kind"] == "connection")
    assert change["text"].startswith("does not answer"), change
    assert offered(live) > 300

    # It comes back at the same address.
    proxies[2] = sidecar(fleet, backends[2], *ports[2])
    live = page.until("it answers again", lambda live: answering(live) == 3)
    assert live["cluster"]["gate"]["capacity_cpus"] == pytest.approx(3.0)
    assert any(change["text"] == "answers again" for change in live["changes"])

    # Frozen, not ended: its socket accepts, and nothing comes.
    proxies[1].signal(signal.SIGSTOP)
    live = page.until("one is silent", lambda live: answering(live) == 2, 12)
    assert not live["proxies"][1]["answers"]
    begin = time.monotonic()
    page.live()
    assert time.monotonic() - begin < 3, "a silent proxy holds up no answer"
    proxies[1].signal(signal.SIGCONT)
    page.until("it goes on", lambda live: answering(live) == 3)
    for load in loads[:2]:
        load.interrupt()
    page.signal(signal.SIGTERM)
    assert page.wait(10) == 0


def test_stream_has_the_past_of_all_proxies(fleet: Fleet) -> None:
    backend = fleet.backend()
    proxies = [fleet.proxy([backend.address]) for _ in range(2)]
    for proxy in proxies:
        proxy.admin.wait_for_healthy(1)
        fleet.load(proxy.url, *LIGHT)
    time.sleep(6)
    page = Page(fleet, *(admin_of(proxy) for proxy in proxies))
    read = run(["curl", "-sN", "-m", "4", f"{page.admin.url}/api/v1/live/stream"], 10).stdout
    events = [event.split("\ndata: ") for event in read.split("\n\n") if event.startswith("event: ")]
    assert events[0][0] == "event: history"
    assert [name for name, _ in events[1:]] == ["event: live"] * (len(events) - 1) and len(events) > 3
    past = json.loads(events[0][1])
    requests = [value for value in past["series"]["requests_qps"] if value is not None]
    assert past["samples"] >= 5 and max(requests) == pytest.approx(100, rel=0.35), requests
    # Nobody watches any more: the streams of the proxies end, and their places are free again.
    time.sleep(13)
    viewers = [subprocess.Popen(["curl", "-sN", f"{proxies[0].admin.url}/api/v1/live/stream"], stdout=subprocess.DEVNULL) for _ in range(16)]
    time.sleep(1)
    status = http(f"{proxies[0].admin.url}/api/v1/live/stream")[0]
    for viewer in viewers:
        viewer.kill()
        viewer.wait()
    assert status == 503, "all 16 places were free"


def test_drain_and_explain_go_to_all_proxies(fleet: Fleet) -> None:
    first, second = fleet.backend(), fleet.backend()
    both = fleet.proxy([first.address, second.address])
    one = fleet.proxy([second.address])
    both.admin.wait_for_healthy(2)
    one.admin.wait_for_healthy(1)
    page = Page(fleet, admin_of(both), admin_of(one))
    live = page.until("both", lambda live: answering(live) == 2)
    rows = {row["address"]: row for row in live["cluster"]["backends"]["rows"]}
    assert rows[first.address]["seen"] == {"proxies": 1, "in_state": 1}
    assert rows[second.address]["seen"] == {"proxies": 2, "in_state": 2}

    path = f"/api/v1/clusters/main/backends/{first.address}"
    status, text = page.admin.post(f"{path}/drain")
    answers = json.loads(text)["proxies"]
    assert status == 200 and [answer["is_ok"] for answer in answers] == [True, False], text
    assert "no backend" in answers[1]["error"]
    assert both.admin.states()[first.address] == "lame-duck"
    live = page.until("the drain is seen", lambda live: live["cluster"]["backends"]["by_state"]["lame-duck"] == 1)
    drained = next(row for row in live["cluster"]["backends"]["rows"] if row["address"] == first.address)
    assert drained["reason"] == "drained", drained
    assert page.admin.post(f"{path}/undrain")[0] == 200
    both.admin.wait_for_healthy(2)
    # A page of another site, and a name that leads here, change nothing.
    for headers in ({"Origin": "http://evil.example"}, {"Sec-Fetch-Site": "cross-site"}, {"Host": "evil.example"}):
        status, text = http(f"{page.admin.url}{path}/drain", method="POST", body=b"", headers=headers)
        assert status == 403, (headers, text)
    assert http(f"{page.admin.url}/live/", headers={"Host": "evil.example"})[0] == 403
    assert page.admin.post("/api/v1/process/drain")[0] == 404
    assert both.admin.states()[first.address] == "healthy"

    for backend in (first, second):
        backend.kill()
    ids = set()
    for place, proxy in enumerate((both, one)):
        ids.add(f"request-{place}")
        assert http(proxy.url, headers={"x-request-id": f"request-{place}"})[0] >= 500
    told = page.admin.json("/api/v1/explain?last=20")
    assert ids <= {request["id"] for request in told["requests"]}, told
    assert [answer["is_ok"] for answer in told["proxies"]] == [True, True]
    status, text = page.admin.get("/api/v1/explain/request-0")
    assert status == 200 and len(json.loads(text)["requests"]) >= 1, text
    assert page.admin.get("/api/v1/explain/no-such-request")[0] == 404
    assert page.admin.get("/api/v1/explain?reasons=quota")[0] == 400


def test_addresses_of_other_programs_are_refused_and_missing_ones_are_told(fleet: Fleet) -> None:
    backend = fleet.backend()
    proxy, quota, nobody = fleet.proxy([backend.address]), fleet.quota("--limit", "acme=2"), free_port()
    # An address that does not answer yet is no mistake, and the page would wait for it.
    quota.wait_for_port(quota.admin.port)
    proxy.wait_for_port(proxy.admin.port)

    def page(*addresses: str) -> subprocess.CompletedProcess[str]:
        return run([PLIMSOLL, "page", *addresses, "--listen", f"127.0.0.1:{free_port()}", "--no-open"], 20)

    refused = page(admin_of(proxy), f"127.0.0.1:{quota.admin.port}")
    assert refused.returncode == 2 and "it is a quota server, not a proxy" in refused.stderr, refused.stderr
    refused = page(backend.address)
    assert refused.returncode == 2 and f"no proxy at {backend.address}" in refused.stderr, refused.stderr
    refused = page(admin_of(proxy), admin_of(proxy))
    assert refused.returncode == 2 and "named twice" in refused.stderr, refused.stderr
    started = Page(fleet, admin_of(proxy), f"127.0.0.1:{nobody}")
    wait_until("the warning", lambda: f"no answer from 127.0.0.1:{nobody}" in started.output())
    live = started.until("the other one", lambda live: answering(live) == 1)
    assert live["process"]["name"] == "1 of 2 proxies"
    refused = page(started.admin.url.removeprefix("http://"))
    assert refused.returncode == 2 and "name those proxies" in refused.stderr, refused.stderr
    shown = run([PLIMSOLL, "top", "--once", "--admin", started.admin.url.removeprefix("http://")], 20)
    assert shown.returncode == 0 and "1 of 2 proxies" in shown.stdout, shown


def test_browser_shows_real_proxies(fleet: Fleet) -> None:
    backend = fleet.backend()
    proxies = [fleet.proxy([backend.address]) for _ in range(2)]
    for proxy in proxies:
        proxy.admin.wait_for_healthy(1)
        fleet.load(proxy.url, *LIGHT)
    page = Page(fleet, *(admin_of(proxy) for proxy in proxies), f"127.0.0.1:{free_port()}")
    ran = subprocess.run(
        ["npm", "run", "--silent", "proxy"],
        cwd=PAGE_TESTS,
        env=os.environ | {"PLIMSOLL_PAGE_URL": f"{page.admin.url}/live/"},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert ran.returncode == 0, ran.stdout[-6_000:] + ran.stderr[-2_000:]
