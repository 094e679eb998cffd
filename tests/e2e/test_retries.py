"""Requests that are sent again, and requests that are not sent at all: what backends get to see, and what clients do."""

import json
import signal
import threading
import time
from collections.abc import Callable

import grpc
import pytest

from harness.fleet import PLIMSOLL, Fleet, Proxy, http
from harness.http1 import Connection, Message
from harness.process import run, wait_until
from harness.rpc import Server, work

pytestmark = pytest.mark.alone

OVERLOADED = "x-plimsoll-shed: reason=overloaded, retry=elsewhere\r\n"
# Origins are threads of this process: no check of theirs is to be taken for a request.
CHECK = 'check = "none"'
UNTHROTTLED = '[clusters.main.throttle]\npolicy = "off"\n'


class Origin:
    """An origin that answers as it is told, and keeps what it was asked."""

    def __init__(self, fleet: Fleet, answer: Callable[[int, Message], str | None]):
        """`answer` gets the number of the request, from 1, and the request; `None` closes without a word."""
        self.seen: list[Message] = []
        self._lock = threading.Lock()
        self._answer = answer
        self.address = fleet.origin(self._handle)

    def _handle(self, connection: Connection, request: Message) -> None:
        connection.read_body(request, to_close=False)
        with self._lock:
            self.seen.append(request)
            number = len(self.seen)
        if (answer := self._answer(number, request)) is None:
            connection.close()
        else:
            connection.send(answer)


def answer(status: str, fields: str = "", body: str = "") -> str:
    return f"HTTP/1.1 {status}\r\ncontent-length: {len(body)}\r\n{fields}\r\n{body}"


def always(status: str, fields: str = "", body: str = "") -> Callable[[int, Message], str | None]:
    return lambda _number, _request: answer(status, fields, body)


def total(proxy: Proxy, name: str, **labels: str) -> float:
    return proxy.admin.metric(f"plimsoll_{name}_total", **labels)


def ask(proxy: Proxy, method: str = "GET", body: bytes = b"", fields: str = "") -> Message:
    with Connection.to(proxy.port) as connection:
        return connection.request("/", method, fields, body)


def test_one_overloaded_backend_of_four_is_seen_by_no_client(fleet: Fleet) -> None:
    full = fleet.backend("--protect", "--cost", "fixed:100ms", "--cores", "1")
    well = [fleet.backend("--cost", "fixed:100us") for _ in range(3)]
    cluster = 'policy = "round-robin"'
    proxy = fleet.proxy([full.address, *(backend.address for backend in well)], cluster=cluster)
    proxy.admin.wait_for_healthy(4)
    # Its share is 50 a second, and it can do ten.
    load = fleet.load_now(proxy.url, "--rate", "200", "--duration", "4s")
    assert load.failed == 0, load.raw
    assert total(proxy, "retries", reason="overloaded", outcome="answered") > 0
    assert total(proxy, "retries_denied") == 0


def test_a_total_failure_adds_a_tenth_to_the_load(fleet: Fleet) -> None:
    origins = [Origin(fleet, always("503 Service Unavailable", OVERLOADED)) for _ in range(4)]
    proxy = fleet.proxy([origin.address for origin in origins], health=CHECK, further=UNTHROTTLED)
    requests = 600
    with Connection.to(proxy.port) as connection:
        answers = [connection.request("/") for _ in range(requests)]
    assert {answer.status for answer in answers} == {503}
    told = {answer.get("x-plimsoll-shed") for answer in answers}
    assert told == {"reason=overloaded-no-retry, retry=never"}, "nobody above is to try again"
    attempts = sum(len(origin.seen) for origin in origins)
    # Ten are what a new proxy may have before it has a history.
    assert requests < attempts <= 1.1 * requests + 10, attempts
    assert total(proxy, "retries_denied", reason="budget") > 0.9 * requests
    assert proxy.admin.metric("plimsoll_retry_budget_used_ratio", cluster="main") > 0.9
    again = [origin_request.get("x-envoy-attempt-count") for origin in origins for origin_request in origin.seen]
    assert set(again) <= {None, "2", "3"} and sum(number is not None for number in again) == attempts - requests


def test_a_total_failure_is_answered_without_asking(fleet: Fleet) -> None:
    bad = answer("503 Service Unavailable", OVERLOADED)
    origin = Origin(fleet, lambda _number, request: bad if " /bad " in request.start else answer("200 OK"))
    proxy = fleet.proxy([origin.address], health=CHECK, listener='trust_criticality = "critical-plus"')
    with Connection.to(proxy.port) as connection:
        told = [connection.request("/bad", fields="x-criticality: sheddable\r\n") for _ in range(200)]
        held = [answer for answer in told if answer.get("x-plimsoll-shed") == "reason=throttled, retry=never"]
        assert len(held) > 100 and len(held) + len(origin.seen) == 200
        assert all(answer.status == 503 for answer in told)
        assert connection.request("/good").status == 200, "what is more critical is not held back for it"
    assert total(proxy, "throttled_requests", criticality="sheddable") == len(held)
    assert proxy.admin.metric("plimsoll_throttle_held_ratio", criticality="sheddable") > 0.5
    assert proxy.admin.metric("plimsoll_throttle_held_ratio", criticality="critical") == 0


def test_a_backend_that_stalls_is_overtaken_by_a_hedge(fleet: Fleet) -> None:
    stall = 0.6

    def stalling(number: int, _request: Message) -> str:
        if number > 20 and number % 8 == 0:
            time.sleep(stall)  # its garbage collector, say
        return answer("200 OK")

    def slowest_of_a_hundred(requests: int, method: str, retry: str) -> tuple[float, Proxy, list[Origin]]:
        origins = [Origin(fleet, stalling), *(Origin(fleet, always("200 OK")) for _ in range(2))]
        addresses = [origin.address for origin in origins]
        further = f"[clusters.main.retry]\n{retry}\n"
        proxy = fleet.proxy(addresses, health=CHECK, cluster='policy = "round-robin"', further=further)
        took = []
        with Connection.to(proxy.port) as connection:
            for _ in range(requests):
                begun = time.monotonic()
                assert connection.request("/", method).status == 200
                took.append(time.monotonic() - begun)
        return sorted(took)[int(0.99 * requests)], proxy, origins

    hedge = 'hedge = { quantile = "95%", at_least = "50ms" }'
    requests = 300
    slowest, proxy, origins = slowest_of_a_hundred(requests, "GET", hedge)
    assert slowest < stall / 2
    sent = total(proxy, "hedges")
    assert 5 <= sent <= 0.1 * requests + 10 and total(proxy, "hedges_won") >= sent - 2
    assert total(proxy, "hedges_denied") == 0 == total(proxy, "failures")
    marked = [origin_request.get("x-envoy-attempt-count") for origin in origins for origin_request in origin.seen]
    assert marked.count("2") == sent == len(marked) - requests

    for method, retry in (("GET", ""), ("POST", hedge)):
        slowest, proxy, _ = slowest_of_a_hundred(120, method, retry)
        assert slowest >= stall, "nothing is hedged by default, nor what may not be carried out twice"
        assert total(proxy, "hedges") == 0


def test_it_is_well_again_seconds_after_an_outage(fleet: Fleet) -> None:
    state = {"is_up": True}
    answers = {True: answer("200 OK"), False: answer("503 Service Unavailable", OVERLOADED)}
    origin = Origin(fleet, lambda _number, _request: answers[state["is_up"]])
    proxy = fleet.proxy([origin.address], health=CHECK)

    def goodput(seconds: float) -> float:
        good = asked = 0
        end = time.monotonic() + seconds
        with Connection.to(proxy.port) as connection:
            while time.monotonic() < end:
                good += connection.request("/").status == 200
                asked += 1
                time.sleep(0.01)  # the rate that is asked for
        return good / asked

    assert goodput(1) == 1
    state["is_up"] = False
    assert goodput(5) == 0
    before = len(origin.seen)
    assert goodput(3) == 0
    assert len(origin.seen) - before <= 12, "some two a second go through to see"
    state["is_up"] = True
    wait_until("nearly all is served again", lambda: goodput(0.5) > 0.9, 8)


@pytest.mark.parametrize(("method", "attempts"), [("GET", 3), ("PUT", 3), ("POST", 1)])
def test_what_may_have_been_carried_out_is_repeated_only_if_idempotent(fleet: Fleet, method: str, attempts: int) -> None:
    # Each closes its first connection after it has read a request, and serves the others.
    done = answer("200 OK", body="done")
    origins = [Origin(fleet, lambda number, _request: done if number > 1 else None) for _ in range(2)]
    proxy = fleet.proxy([origin.address for origin in origins], health=CHECK, cluster="min_connections = 0")
    body = b"" if method == "GET" else b"some of it"
    said = ask(proxy, method, body)
    seen = [request for origin in origins for request in origin.seen]
    if attempts == 1:
        assert (said.status, len(seen)) == (502, 1)
        assert total(proxy, "retries_denied", reason="unsafe") == 1
    else:
        # Both close their first, and either serves then.
        assert (said.status, sorted(len(origin.seen) for origin in origins)) == (200, [1, 2])
        assert all(request.body == body for request in seen)
        outcomes = [total(proxy, "retries", reason="closed", outcome=outcome) for outcome in ("failed", "answered")]
        assert outcomes == [1, 1]


def test_a_post_that_was_turned_away_is_sent_elsewhere_with_its_body(fleet: Fleet) -> None:
    full = Origin(fleet, always("503 Service Unavailable", OVERLOADED))
    well = Origin(fleet, always("200 OK", body="done"))
    proxy = fleet.proxy([full.address, well.address], health=CHECK, cluster='policy = "round-robin"')
    for size in (1, 4_000, 60_000):
        for _ in range(2):
            assert ask(proxy, "POST", b"x" * size).status == 200
    assert [len(request.body) for request in well.seen] == [1, 1, 4_000, 4_000, 60_000, 60_000]
    assert full.seen


def test_a_large_body_is_sent_once(fleet: Fleet) -> None:
    full = Origin(fleet, always("503 Service Unavailable", OVERLOADED))
    well = Origin(fleet, always("200 OK"))
    proxy = fleet.proxy([full.address, well.address], health=CHECK, cluster='policy = "round-robin"')
    statuses = [ask(proxy, "PUT", b"x" * 200_000).status for _ in range(4)]
    # One that was turned away gets less from then on.
    refused = statuses.count(503)
    assert 0 < refused == len(full.seen) and statuses.count(200) == 4 - refused, statuses
    assert total(proxy, "retries_denied", reason="impossible") == refused


def test_the_time_that_a_backend_names_is_waited_for(fleet: Fleet) -> None:
    first = answer("503 Service Unavailable", "retry-after: 1\r\n")
    long = answer("503 Service Unavailable", "retry-after: 3600\r\n")
    origin = Origin(fleet, lambda number, _request: {1: first, 2: answer("200 OK")}.get(number, long))
    proxy = fleet.proxy([origin.address], health=CHECK)
    begun = time.monotonic()
    assert ask(proxy).status == 200
    assert time.monotonic() - begun >= 1.0
    begun = time.monotonic()
    said = ask(proxy)
    assert (said.status, said.get("retry-after"), len(origin.seen)) == (503, "3600", 3)
    assert time.monotonic() - begun < 1.0
    # Nor if the sender does not wait so long.
    origin = Origin(fleet, always("503 Service Unavailable", "retry-after: 1\r\n"))
    proxy = fleet.proxy([origin.address], health=CHECK)
    assert ask(proxy, fields="x-envoy-expected-rq-timeout-ms: 900\r\n").status == 503
    assert len(origin.seen) == 1 and total(proxy, "retries_denied", reason="deadline") == 1


def test_less_time_is_left_for_a_further_attempt_and_its_number_goes_on(fleet: Fleet) -> None:
    def slow(_number: int, _request: Message) -> str:
        time.sleep(0.2)  # what the first attempt takes
        return answer("503 Service Unavailable", OVERLOADED)

    full, well = Origin(fleet, slow), Origin(fleet, always("200 OK"))
    proxy = fleet.proxy(
        [full.address, well.address],
        health=CHECK,
        cluster='policy = "round-robin"',
        listener='trust_criticality = "critical-plus"',
    )
    fields = "x-envoy-expected-rq-timeout-ms: 5000\r\nx-envoy-attempt-count: 3\r\n"
    for _ in range(2):
        assert ask(proxy, fields=fields).status == 200
    again = [request for request in well.seen if request.get("x-envoy-attempt-count") == "4"]
    assert again and 3_000 < int(again[0].get("x-envoy-expected-rq-timeout-ms") or 0) <= 4_800
    assert all(request.get("x-envoy-attempt-count") == "3" for request in full.seen), "its sender tries again"


@pytest.mark.parametrize(("pushback", "calls"), [("-1", 1), ("1", 2), ("soon", 1)])
def test_pushback_is_obeyed(fleet: Fleet, pushback: str, calls: int) -> None:
    count = [0]

    def refuse(_message: bytes, context: grpc.ServicerContext) -> bytes:
        count[0] += 1
        context.set_trailing_metadata((("grpc-retry-pushback-ms", pushback),))
        context.abort(grpc.StatusCode.UNAVAILABLE, "no room")
        raise AssertionError("abort raises")

    servers = [Server(refuse), Server(refuse)]
    try:
        further = "[clusters.main.retry]\nmax_attempts = 2\n"
        proxy = fleet.proxy([server.address for server in servers], health='check = "grpc"', further=further)
        proxy.admin.wait_for_healthy(2)
        with grpc.insecure_channel(f"127.0.0.1:{proxy.port}", options=[("grpc.enable_retries", 0)]) as channel:
            with pytest.raises(grpc.RpcError) as raised:
                work(channel)(b"x", timeout=10)
        assert raised.value.code() == grpc.StatusCode.UNAVAILABLE
        assert count[0] == calls
    finally:
        for server in servers:
            server.stop()


def test_a_call_that_one_backend_turns_away_is_made_at_another(fleet: Fleet) -> None:
    seen: list[dict[str, str]] = []

    def refuse(_message: bytes, context: grpc.ServicerContext) -> bytes:
        context.set_trailing_metadata((("grpc-retry-pushback-ms", "1"),))
        context.abort(grpc.StatusCode.UNAVAILABLE, "no room")
        raise AssertionError("abort raises")

    def serve(message: bytes, context: grpc.ServicerContext) -> bytes:
        seen.append({key: str(value) for key, value in context.invocation_metadata()})
        return message

    servers = [Server(refuse), Server(serve)]
    try:
        addresses = [server.address for server in servers]
        proxy = fleet.proxy(addresses, health='check = "grpc"', cluster='policy = "round-robin"')
        proxy.admin.wait_for_healthy(2)
        with grpc.insecure_channel(f"127.0.0.1:{proxy.port}", options=[("grpc.enable_retries", 0)]) as channel:
            assert [work(channel)(b"x" * size, timeout=10) for size in (0, 1, 10_000, 60_000)] == [
                b"x" * size for size in (0, 1, 10_000, 60_000)
            ]
        assert any(metadata.get("grpc-previous-rpc-attempts") == "1" for metadata in seen), seen
    finally:
        for server in servers:
            server.stop()


def test_each_attempt_is_explained_and_why_there_was_no_further_one(fleet: Fleet) -> None:
    origins = [Origin(fleet, always("503 Service Unavailable", OVERLOADED)) for _ in range(2)]
    proxy = fleet.proxy([origin.address for origin in origins], health=CHECK)
    assert ask(proxy, fields="x-request-id: mine\r\n").status == 503
    command = [PLIMSOLL, "explain", "--admin", proxy.admin.url.removeprefix("http://"), "mine"]
    told = run(command, 20)
    assert told.returncode == 0, told.stderr
    assert told.stdout.count("answered with 503, overloaded") == 2, told.stdout
    assert "; retried" in told.stdout and "no other backend has headroom" in told.stdout, told.stdout
    (request,) = json.loads(run([*command, "--json"], 20).stdout)["requests"]
    assert [attempt["reason"] for attempt in request["failed_attempts"]] == ["overloaded", "overloaded"]
    assert {attempt["backend"] for attempt in request["failed_attempts"]} == {origin.address for origin in origins}


def test_both_can_be_switched_off_by_a_reload(fleet: Fleet) -> None:
    full = Origin(fleet, always("503 Service Unavailable", OVERLOADED))
    well = Origin(fleet, always("200 OK"))
    off = UNTHROTTLED + "[clusters.main.retry]\nmax_attempts = 1\n"
    proxy = fleet.proxy([full.address, well.address], health=CHECK, cluster='policy = "round-robin"', further=off)
    answers = [ask(proxy) for _ in range(6)]
    refused = [answer for answer in answers if answer.status == 503]
    assert len(refused) == len(full.seen) > 0
    assert {answer.get("x-plimsoll-shed") for answer in refused} == {"reason=overloaded, retry=elsewhere"}
    (path,) = fleet.directory.glob("plimsoll-*.toml")
    path.write_text(path.read_text().replace(off, ""))
    proxy.signal(signal.SIGHUP)
    wait_until("the reload is taken", lambda: proxy.admin.metric("plimsoll_reloads_total", result="taken") == 1)
    assert {ask(proxy).status for _ in range(6)} == {200}
    assert http(proxy.url)[0] == 200
