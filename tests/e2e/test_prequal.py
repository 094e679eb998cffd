"""The policy `prequal` with real processes: it goes by what backends report of themselves, and failing fast is no merit."""

import base64
import math
import threading
from collections.abc import Iterator

import pytest

from harness.fleet import UNTIL_FINISHED, Fleet, finish
from harness.http1 import Connection
from harness.orca import OrcaLoadReport
from harness.process import wait_until

pytestmark = pytest.mark.alone

PREQUAL = 'policy = "prequal"'
OUTLIERS_OFF = '[clusters.main.outlier]\nconsecutive_failures = "off"\nsuccess_rate_stdev = "off"'
QUICK = ("--cost", "fixed:100us", "--wait", "fixed:4ms", "--cores", "64")
SLOW = ("--cost", "fixed:100us", "--wait", "fixed:60ms", "--cores", "64")


@pytest.fixture(autouse=True)
def end_at_once(fleet: Fleet) -> Iterator[None]:
    """Ends what a test started without the seconds in which each says goodbye, since nobody sends to it any more."""
    yield
    for process in fleet.processes:
        if process.exit_code is None:
            process.kill()


def report_of(connection: Connection) -> OrcaLoadReport:
    encoded = connection.request("/").get("endpoint-load-metrics-bin")
    assert encoded is not None
    return OrcaLoadReport.FromString(base64.b64decode(encoded + "=" * (-len(encoded) % 4)))


def test_load_reports_carry_active_requests_and_latency(fleet: Fleet) -> None:
    backend = fleet.backend("--cost", "fixed:100us", "--wait", "fixed:300ms", "--cores", "64")
    reports: list[OrcaLoadReport] = []

    def ask() -> None:
        with Connection.to(backend.port) as connection:
            reports.append(report_of(connection))

    callers = [threading.Thread(target=ask) for _ in range(6)]
    for caller in callers:
        caller.start()
    for caller in callers:
        caller.join()
    ask()
    active = [report.named_metrics["plimsoll.active_requests"] for report in reports]
    # Each stays for 300 ms, so that the first answer is given in the presence of most; and the last was there alone.
    assert len(active) == 7 and max(active) >= 5 and active[-1] == 1, active
    latencies = [report.named_metrics["plimsoll.latency_seconds"] for report in reports]
    assert 0.29 <= latencies[-1] <= 0.6, latencies


@pytest.mark.parametrize("protocol", ["http1", "grpc"])
def test_quick_backends_are_preferred_and_nothing_fails(fleet: Fleet, protocol: str) -> None:
    quick = [fleet.backend(*QUICK).address for _ in range(2)]
    slow = [fleet.backend(*SLOW).address for _ in range(2)]
    proxy = fleet.proxy([*slow, *quick], cluster=PREQUAL)
    proxy.admin.wait_for_healthy(4)
    (cluster,) = proxy.admin.clusters()
    assert cluster["policy"] == "prequal"
    counted = fleet.load_now(proxy.url, "--protocol", protocol, "--rate", "300", "--warmup", "2s", "--duration", "3s")
    assert counted.failed == 0, counted.raw
    # Equal shares would be a quarter each. How the quick ones share the rest is another matter: of two that are equally
    # quick, whoever seems a trifle quicker at the time gets more.
    for address in slow:
        assert counted.share(address) < 0.10, counted.by_backend
    assert sum(counted.share(address) for address in quick) > 0.85, counted.by_backend


def test_backend_that_becomes_slow_is_left_and_found_again(fleet: Fleet) -> None:
    moody = fleet.backend(*QUICK)
    # Slower than it at its best and quicker than at its worst, so that who should get most is never a tie.
    others = [fleet.backend("--cost", "fixed:100us", "--wait", "fixed:25ms", "--cores", "64").address for _ in range(2)]
    proxy = fleet.proxy([moody.address, *others], cluster=PREQUAL)
    proxy.admin.wait_for_healthy(3)

    def share(wait: str, warmup: str) -> float:
        with Connection.to(moody.port) as connection:
            assert connection.request("/control", "POST", body=f'{{"wait": "{wait}"}}'.encode()).status == 200
        counted = fleet.load_now(proxy.url, "--rate", "200", "--warmup", warmup, "--duration", "2s")
        assert counted.failed == 0, counted.raw
        return counted.share(moody.address)

    # A third would be equal.
    assert share("fixed:4ms", "2s") > 0.5
    assert share("fixed:120ms", "2s") < 0.15
    # What it says of its latency is a median over up to 5 s, and the few requests that it still gets are all that bring news.
    assert share("fixed:4ms", "8s") > 0.5, "a backend that is well again has to be found"


@pytest.mark.parametrize("ejection", ["ejection", "no-ejection"])
def test_backend_that_fails_fast_draws_no_more_than_its_share(fleet: Fleet, ejection: str) -> None:
    good = [fleet.backend("--cost", "fixed:200us", "--wait", "fixed:5ms").address for _ in range(3)]
    bad = fleet.backend("--fail-fast").address
    proxy = fleet.proxy([*good, bad], cluster=PREQUAL, further=OUTLIERS_OFF if ejection == "no-ejection" else "")
    proxy.admin.wait_for_healthy(4)
    requests = 3_000
    # A closed loop is the trap: who answers at once is asked again at once.
    counted = fleet.load_now(proxy.url, "--concurrency", "24", "--requests", str(requests))
    got = proxy.admin.backends()[bad]["requests"]
    # A quarter, and four standard deviations of chance: false alarm below 1 in 30,000 for one that takes its whole share.
    allowed = requests / 4 + 4 * math.sqrt(requests * 0.25 * 0.75)
    assert got <= allowed, f"{got} of {requests} went to the backend that fails at once; fair is {requests // 4}"
    assert counted.failed <= got


def test_killed_backend_costs_only_what_was_in_flight_there(fleet: Fleet) -> None:
    backends = [fleet.backend("--cost", "fixed:100us", "--wait", "fixed:20ms", "--cores", "64") for _ in range(3)]
    proxy = fleet.proxy([backend.address for backend in backends], cluster=PREQUAL)
    proxy.admin.wait_for_healthy(3)
    victim = backends[0]
    load = fleet.load(proxy.url, "--concurrency", "24", "--duration", UNTIL_FINISHED)
    wait_until("traffic at the victim", lambda: proxy.admin.backends()[victim.address]["requests"] > 200)
    victim.kill()
    wait_until("the victim is known to be gone", lambda: proxy.admin.states()[victim.address] != "healthy", 2)
    later = fleet.load_now(proxy.url, "--rate", "300", "--duration", "2s")
    assert later.failed == 0 and victim.address not in later.by_backend
    (counted,) = finish(proxy, load)
    assert counted.failed <= 24, counted.raw
