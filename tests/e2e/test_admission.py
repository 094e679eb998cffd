"""Backends that protect themselves: `plimsoll backend --protect`, asked for more than it can do."""

import json
import pathlib
import time

import grpc
import pytest

from harness.fleet import Backend, Fleet, http
from harness.process import wait_until
from harness.rpc import work

pytestmark = pytest.mark.alone

MIX = "critical-plus=10,critical=30,sheddable-plus=30,sheddable=30"
SHEDDABLE = (("x-criticality", "sheddable"),)
# Longer than any retry that is asked for at once takes, and shorter than one that waits by the client's own policy.
AT_ONCE = 10.0
RETRIES = {
    "methodConfig": [
        {
            "name": [{}],
            "retryPolicy": {
                "maxAttempts": 5,
                "initialBackoff": "60s",
                "maxBackoff": "60s",
                "backoffMultiplier": 1,
                "retryableStatusCodes": ["UNAVAILABLE"],
            },
        }
    ]
}


@pytest.fixture
def backend(fleet: Fleet) -> Backend:
    """At most 100 requests a second."""
    return fleet.backend("--protect", "--cost", "fixed:10ms", "--cores", "1")


def ask(backend: Backend, **headers: str) -> tuple[int, str]:
    return http(f"http://{backend.address}/", headers={name.replace("_", "-"): value for name, value in headers.items()})


def overload(fleet: Fleet, backend: Backend, *arguments: str) -> None:
    """More `critical` requests than can be served, until the end of the test."""
    fleet.load(f"http://{backend.address}/", "--rate", "400", "--duration", "2m", "-H", "x-criticality: critical", *arguments)

    def is_full() -> bool:
        return all(ask(backend, x_criticality="sheddable")[0] == 503 for _ in range(5))

    wait_until("sheddable requests are turned away", is_full, 20)


def waited_for_cpu(pid: int) -> float:
    """Seconds in which a thread of the process could have run and another process had the core."""
    tasks = pathlib.Path(f"/proc/{pid}/task").glob("*/schedstat")
    return sum(int(task.read_text().split()[1]) for task in tasks) / 1e9


def test_the_least_critical_go_first_and_the_most_critical_do_not_notice(fleet: Fleet, backend: Backend) -> None:
    waited, began = waited_for_cpu(backend.pid), time.monotonic()
    arguments = ["--rate", "400", "--criticality", MIX, "--useful-within", "1s", "--timeout", "2s"]
    counted = fleet.load_now(f"http://{backend.address}/", *arguments, "--warmup", "5s", "--duration", "6s")
    groups = counted.raw["groups"]["by_criticality"]
    useful = {name: group["useful"] / group["requests"] for name, group in groups.items()}
    # The share of a core that the backend could have: other processes of the machine use the rest.
    available = 1 - (waited_for_cpu(backend.pid) - waited) / (time.monotonic() - began)
    # A tenth of the requests, which need 0.4 of a core.
    assert useful["critical-plus"] > 0.95 * min(1, available / 0.5), (available, groups)
    assert useful["sheddable"] < 0.05 and useful["sheddable-plus"] < 0.1, groups
    assert useful["critical"] >= useful["sheddable-plus"], groups
    # Whoever is not served is told so: 503, and nothing else fails.
    assert all(group["failed_otherwise"] <= 0.02 * group["requests"] for group in groups.values()), groups
    total = sum(group["useful"] for group in groups.values())
    assert total > 0.7 * 100 * 6 * available, f"useful work fills the core: {total} with {available:.2f} of it"


def test_health_checks_and_controls_are_served_whatever_the_load(fleet: Fleet, backend: Backend) -> None:
    overload(fleet, backend)
    for path in ("readyz", "control"):
        assert all(http(f"http://{backend.address}/{path}")[0] == 200 for _ in range(20)), path


def test_who_is_turned_away_is_told_why(fleet: Fleet, backend: Backend) -> None:
    overload(fleet, backend)
    answers = [ask(backend, x_criticality="sheddable") for _ in range(20)]
    assert (503, "overloaded: this backend has more work than it can do") in answers
    status, text = ask(backend, x_criticality="critical-plus", x_envoy_expected_rq_timeout_ms="1")
    assert (status, text) == (504, "deadline: no answer came in time")


def turned_away(fleet: Fleet, backend: Backend) -> tuple[int, float]:
    """A gRPC call of a client that retries, which failed: how many attempts arrived, and how many seconds it took."""
    proxy = fleet.proxy([backend.address], cluster='protocol = "http2"')
    options = [("grpc.service_config", json.dumps(RETRIES))]
    with grpc.insecure_channel(f"127.0.0.1:{proxy.port}", options=options) as channel:
        # Now and then there is room for one by chance.
        for _ in range(50):
            before = proxy.admin.metric("plimsoll_requests_total")
            began = time.monotonic()
            try:
                work(channel)(b"x", timeout=30, metadata=SHEDDABLE)
            except grpc.RpcError as error:
                took = time.monotonic() - began
                assert error.code() == grpc.StatusCode.UNAVAILABLE, error
                seen = wait_until("it is counted", lambda: proxy.admin.metric("plimsoll_requests_total") - before)
                return int(seen), took
    pytest.fail("each of fifty sheddable calls was served")


def test_grpcio_retries_at_once_where_it_is_told_to(fleet: Fleet, backend: Backend) -> None:
    overload(fleet, backend)
    attempts, seconds = turned_away(fleet, backend)
    assert attempts == 5 and seconds < AT_ONCE


def test_grpcio_does_not_retry_where_it_is_told_not_to(fleet: Fleet, backend: Backend) -> None:
    # Many have been turned away before, so that elsewhere is no better.
    overload(fleet, backend, "-H", "x-envoy-attempt-count: 2")
    attempts, seconds = turned_away(fleet, backend)
    assert attempts == 1 and seconds < AT_ONCE


@pytest.mark.parametrize(
    "headers",
    [
        {"x_criticality": "extremely"},
        {"x_criticality": ""},
        {"baggage": "criticality=,=,;;,criticality"},
        {"grpc_timeout": "999999999999H"},
        {"grpc_timeout": "-1S"},
        {"x_envoy_expected_rq_timeout_ms": "0x10"},
        {"x_envoy_expected_rq_timeout_ms": "99999999999999999999999"},
        {"x_envoy_attempt_count": "0"},
        {"grpc_previous_rpc_attempts": "many"},
        {"x_customer": "\u00ff" * 1000},
    ],
    ids=str,
)
def test_metadata_that_makes_no_sense_fails_no_request(backend: Backend, headers: dict[str, str]) -> None:
    assert ask(backend, **headers)[0] == 200
