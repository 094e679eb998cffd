"""Two localities of real backends: the nearest is filled, the rest goes on, and what nobody can take is shed."""

import signal
import time
from dataclasses import dataclass

import pytest

from harness.fleet import Backend, Fleet, Proxy, http
from harness.process import wait_until

pytestmark = pytest.mark.alone

BACKENDS = 5
# A machine has few CPUs, and ten backends share them: so they are said to be full early. Five then serve what costs 0.35 CPUs.
TARGET = 0.07
COST = 0.004
RATE = 120
PARTS = {"critical-plus": 10, "critical": 35, "sheddable-plus": 25, "sheddable": 30}
MIX = ",".join(f"{level}={part}" for level, part in PARTS.items())
NEAR_AND_FAR = 'localities = ["near", "far"]'


@dataclass
class Sites:
    proxy: Proxy
    near: list[Backend]
    far: list[Backend]

    def total(self, locality: str) -> float:
        return self.proxy.admin.metric("plimsoll_locality_requests_total", cluster="main", locality=locality)

    def shed(self) -> dict[str, float]:
        name = "plimsoll_spill_shed_requests_total"
        return {level: self.proxy.admin.metric(name, criticality=level) for level in PARTS}

    def settle(self) -> None:
        """Waits until nothing has been shed for three seconds: how long rooms take to be known depends on what requests really cost."""
        last, since = self.shed(), time.monotonic()

        def is_quiet() -> bool:
            nonlocal last, since
            if (now := self.shed()) != last:
                last, since = now, time.monotonic()
            return time.monotonic() - since > 3

        wait_until("nothing is shed any more", is_quiet, 30)

    def views(self) -> dict[str, dict]:
        (cluster,) = self.proxy.admin.clusters()
        return {view["name"]: view for view in cluster["localities"]}

    def watch(self, seconds: int) -> "Watched":
        """What near and far were sent in each of some seconds, in requests a second, and how full they were."""
        watched = Watched([], [])
        at, before = time.monotonic(), (self.total("near"), self.total("far"))
        for _ in range(seconds):
            time.sleep(1)  # what a rate is measured over
            now, totals, views = time.monotonic(), (self.total("near"), self.total("far")), self.views()
            watched.rates.append(tuple((new - old) / (now - at) for old, new in zip(before, totals, strict=True)))
            watched.utilizations.append(tuple(views[name]["utilization"] or 0 for name in ("near", "far")))
            at, before = now, totals
        return watched


@dataclass
class Watched:
    """A pair for each second: near, far."""

    rates: list[tuple[float, float]]
    utilizations: list[tuple[float, float]]


def located(near: list[str], far: list[str]) -> str:
    rows = [(address, name) for name, addresses in (("near", near), ("far", far)) for address in addresses]
    backends = ", ".join(f'{{ address = "{address}", locality = "{name}" }}' for address, name in rows)
    return f"[{backends}]"


def sites(fleet: Fleet, *arguments: str, target: float = TARGET, backends: int = BACKENDS) -> Sites:
    near, far = [[fleet.backend(*arguments) for _ in range(backends)] for _ in range(2)]
    proxy = fleet.proxy(
        [],
        listener='trust_criticality = "critical-plus"',
        cluster=NEAR_AND_FAR,
        health='interval = "1s"\ncheck = "http"\npath = "/readyz"',
        further=f"[clusters.main.spill]\ntarget = {target}\n[explain]\nsample = 1\n",
        backends=located([each.address for each in near], [each.address for each in far]),
    )
    proxy.admin.wait_for_healthy(2 * backends)
    found = Sites(proxy, near, far)
    wait_until("no locality is drained", lambda: not any(view["drained"] for view in found.views().values()))
    return found


def mean(pairs: list[tuple[float, float]], which: int) -> float:
    return sum(pair[which] for pair in pairs) / len(pairs)


def share(rate: tuple[float, float]) -> float:
    return rate[0] / sum(rate)


def test_the_nearest_fills_to_its_target_and_what_nobody_can_take_is_shed_from_below(fleet: Fleet) -> None:
    at = sites(fleet, "--cost", f"fixed:{round(COST * 1e6)}us")
    arguments = ["--rate", str(RATE), "--duration", "3m", "--criticality", MIX, "--arrival", "uniform"]
    load = fleet.load(at.proxy.url, *arguments)
    wait_until("it spills", lambda: at.views()["far"]["sent_qps"] > 0.15 * RATE, 15)
    at.settle()
    before, watched = at.shed(), at.watch(8)
    # It comes near from below, as rooms are smoothed.
    assert 0.6 * TARGET < mean(watched.utilizations, 0) < 1.3 * TARGET, watched
    assert mean(watched.utilizations, 1) < 0.9 * TARGET, watched
    # What fits costs no less than it is said to: requests have some cost beside it.
    assert 0.5 * BACKENDS * TARGET / COST < mean(watched.rates, 0) < 1.2 * BACKENDS * TARGET / COST, watched
    assert at.shed() == before, "the far one has room"
    # A second shows chance of √(120 · 0.65 · 0.35) = 5, which is 4%, and reports move it by some more.
    usual = mean(watched.rates, 0) / (mean(watched.rates, 0) + mean(watched.rates, 1))
    assert all(abs(share(rate) - usual) < 0.2 for rate in watched.rates), f"nothing flaps: {watched}"

    for backend in at.near[1:]:
        backend.kill()
    wait_until("it is drained", lambda: at.views()["near"]["drained"])
    wait_until("something is shed", lambda: sum(at.shed().values()) > 0, 10)
    time.sleep(4)  # two half-lives of what the client knows
    before, watched = at.shed(), at.watch(5)
    shed = {level: count - before[level] for level, count in at.shed().items()}
    assert mean(watched.rates, 0) == 0, watched
    assert mean(watched.utilizations, 1) < 1.3 * TARGET, watched
    assert 0.5 * BACKENDS * TARGET / COST < mean(watched.rates, 1) < 1.3 * BACKENDS * TARGET / COST, watched
    # The lowest goes first: nearly all of it, then of the next.
    came = {level: 5 * RATE * part / 100 for level, part in PARTS.items()}
    assert shed["critical-plus"] == 0 and shed["critical"] <= 0.05 * came["critical"], shed
    assert shed["sheddable"] > 0.6 * came["sheddable"], shed
    assert shed["sheddable"] / came["sheddable"] > shed["sheddable-plus"] / came["sheddable-plus"], shed
    load.interrupt()
    groups = load.result().raw["groups"]["by_criticality"]
    assert groups["critical-plus"]["ok"] == groups["critical-plus"]["requests"], groups


def test_shed_says_not_to_retry_and_explain_says_where_a_request_was(fleet: Fleet) -> None:
    at = sites(fleet, "--cost", "fixed:1us", target=0.8, backends=1)
    status, _ = http(at.proxy.url, headers={"x-request-id": "where"})
    assert status == 200
    told = at.proxy.admin.json("/api/v1/explain/where")
    assert told["requests"][0]["locality"] == "near", told
    assert {row["locality"] for row in at.proxy.admin.backends().values()} == {"near", "far"}
    for backend in [*at.near, *at.far]:
        http(f"http://{backend.address}/control", "POST", b'{"report": "utilization=3,rps=9"}')
    fleet.load(at.proxy.url, "--rate", "50", "--duration", "20s", "--criticality", "sheddable=1")
    wait_until("nobody has room", lambda: at.shed()["sheddable"] > 0, 10)

    def is_shed() -> bool:
        status, text = http(at.proxy.url, headers={"x-criticality": "sheddable"})
        return status == 503 and "as a whole" in text

    wait_until("a request finds no room", is_shed, 8)
    refused = at.proxy.admin.json("/api/v1/explain?reason=overloaded-no-retry")["requests"]
    assert refused and refused[0]["backend"] is None, refused


def test_a_reload_that_turns_the_order_round_loses_no_request(fleet: Fleet) -> None:
    # Far below the target, so that no request spills: a busy machine takes backends above a small one.
    at = sites(fleet, "--cost", "fixed:100us", target=0.8, backends=2)
    load = fleet.load(at.proxy.url, "--rate", "100", "--duration", "3s")
    wait_until("the nearest is used", lambda: at.total("near") > 50)
    changes = at.proxy.admin.metric("plimsoll_backend_transitions_total")
    path = fleet.directory / "plimsoll-1.toml"
    path.write_text(path.read_text().replace(NEAR_AND_FAR, 'localities = ["far", "near"]'))
    at.proxy.signal(signal.SIGHUP)
    wait_until("it is in force", lambda: list(at.views()) == ["far", "near"])
    before = at.total("near")
    wait_until("the other is used", lambda: at.total("far") > 50)
    assert at.total("near") - before <= 5
    assert load.result().failed == 0
    assert at.proxy.admin.metric("plimsoll_backend_transitions_total") == changes, "backends stay as they are"
