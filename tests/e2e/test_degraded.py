"""What is given without a backend: to isolated customers, to nobody, and in place of errors."""

import json
import signal
import threading

import grpc
import pytest

from harness import rpc
from harness.fleet import Backend, Fleet, Proxy
from harness.http1 import Connection, Message, answer
from harness.http2 import Connection as Http2
from harness.http2 import request as http2_request
from harness.process import wait_until

ISOLATED = """
[access_log]
path = "{directory}/access.log"

[[routes]]
path_prefix = "/api"
cluster = "main"

[[routes]]
customers = ["noisy", "loud"]
cluster = "sacrificial"

[[routes]]
customers = ["banned"]
answer = {{ status = 429, body = "come back later", retry_after = "10m" }}

[[routes]]
customers = ["scraper"]
black_hole = true

[clusters.sacrificial]
backends = ["{sacrificial}"]
"""


def of(customer: str) -> str:
    return f"x-customer: {customer}\r\n"


def ask(proxy: Proxy, target: str = "/", method: str = "GET", fields: str = "") -> Message:
    with Connection.to(proxy.port) as client:
        return client.request(target, method, fields)


def lines(fleet: Fleet) -> list[dict]:
    return [json.loads(line) for line in (fleet.directory / "access.log").read_text().splitlines()]


def isolating(fleet: Fleet, backend: str, sacrificial: str) -> Proxy:
    further = ISOLATED.format(directory=fleet.directory, sacrificial=sacrificial)
    proxy = fleet.proxy([backend], listener='customer_header = "x-customer"', further=further)
    for cluster in ("main", "sacrificial"):
        proxy.admin.wait_for_healthy(1, cluster=cluster)
    return proxy


def test_one_route_takes_a_customer_out_of_all_others(fleet: Fleet) -> None:
    usual, sacrificial = fleet.nginx(), fleet.nginx()
    proxy = isolating(fleet, usual, sacrificial)
    said = proxy.output()
    for target in ("/", "/api/v1"):
        assert ask(proxy, target).get("x-backend") == usual
        assert ask(proxy, target, fields=of("acme")).get("x-backend") == usual
        for customer in ("noisy", "loud"):
            assert ask(proxy, target, fields=of(customer)).get("x-backend") == sacrificial, (target, customer)
        told = ask(proxy, target, fields=of("banned"))
        assert (told.status, told.body, told.get("retry-after")) == (429, b"come back later", "600")
    assert proxy.admin.metric("plimsoll_refused_requests_total", reason="route-answer") == 2
    wait_until("all are logged", lambda: len(lines(fleet)) == 10)
    assert [line["status"] for line in lines(fleet) if line.get("reason") == "route-answer"] == [429, 429]
    assert proxy.output() == said, "it is nothing to write home about"


def test_a_black_hole_ends_the_connection_or_the_stream_without_an_answer(fleet: Fleet) -> None:
    proxy = isolating(fleet, fleet.nginx(), fleet.nginx())
    with Connection.to(proxy.port) as client:
        # Of the body not a byte is waited for.
        client.send("POST /api HTTP/1.1\r\nhost: a\r\ncontent-length: 1000\r\n" + of("scraper") + "\r\n")
        assert client.at_end()
    with Http2.to(proxy.port) as client:
        dropped = client.fetch(1, http2_request(b"GET", b"/api", (b"x-customer", b"scraper")))
        assert (dropped.fields, dropped.reset) == ([], 8), "CANCEL"
        assert client.fetch(3, http2_request(b"GET", b"/api")).status == 200, "other requests go on"
    assert proxy.admin.metric("plimsoll_refused_requests_total", reason="black-hole") == 2
    wait_until("all are logged", lambda: len(lines(fleet)) == 3)
    logged = [line for line in lines(fleet) if line.get("reason") == "black-hole"]
    assert len(logged) == 2 and not any("status" in line or "backend" in line for line in logged), logged


def test_grpc_calls_of_an_isolated_customer_get_a_code(fleet: Fleet) -> None:
    proxy = isolating(fleet, fleet.backend().address, fleet.backend().address)
    with grpc.insecure_channel(f"127.0.0.1:{proxy.port}") as channel:
        call = rpc.work(channel)
        call(b"", timeout=5, metadata=[("x-customer", "acme")])
        with pytest.raises(grpc.RpcError) as told:
            call(b"", timeout=5, metadata=[("x-customer", "banned")])
        assert told.value.code() == grpc.StatusCode.RESOURCE_EXHAUSTED
        with pytest.raises(grpc.RpcError) as dropped:
            call(b"", timeout=5, metadata=[("x-customer", "scraper")])
        assert dropped.value.code() == grpc.StatusCode.CANCELLED


class Shop:
    """An origin whose page can change, and that can have too much to do."""

    def __init__(self, fleet: Fleet):
        self.page = b"as of today"
        self.fields = ""
        self.busy = threading.Event()
        self.address = fleet.origin(self.handle)

    def handle(self, connection: Connection, message: Message) -> None:
        connection.read_body(message, to_close=False)
        if self.busy.is_set():
            answer(connection, b"busy", "503 Service Unavailable", "x-plimsoll-shed: reason=overloaded, retry=elsewhere\r\n")
        else:
            answer(connection, self.page, fields=self.fields)


DEGRADED = '[routes.degraded]\n{settings}\n[access_log]\npath = "{directory}/access.log"\n'
# A route's tables have to follow it.
ROUTE = '[[routes]]\npath_prefix = "/shop"\ncluster = "main"\n'
NEVER_EJECTED = '[clusters.main.outlier]\nconsecutive_failures = "off"\n'


def degrading(fleet: Fleet, addresses: list[str], settings: str, cluster: str = "") -> Proxy:
    further = NEVER_EJECTED + ROUTE + DEGRADED.format(settings=settings, directory=fleet.directory)
    proxy = fleet.proxy(addresses, cluster=cluster, further=further)
    proxy.admin.wait_for_healthy(len(addresses))
    return proxy


def given(proxy: Proxy, **labels: str) -> float:
    return proxy.admin.metric("plimsoll_degraded_answers_total", **labels)


def test_a_page_of_a_while_ago_stands_in_for_an_overloaded_backend(fleet: Fleet) -> None:
    shop = Shop(fleet)
    proxy = degrading(fleet, [shop.address], 'max_stale = "10m"')
    assert ask(proxy, "/shop").body == b"as of today"
    shop.busy.set()
    stale = ask(proxy, "/shop")
    assert (stale.status, stale.body) == (200, b"as of today")
    assert stale.get("x-plimsoll-degraded") == "stale; reason=overloaded" and int(stale.get("age") or "-1") >= 0
    head = ask(proxy, "/shop", "HEAD")
    assert (head.status, head.get("content-length"), head.body) == (200, "11", b"")
    assert ask(proxy, "/").status == 503, "a route without it"
    assert ask(proxy, "/shop", fields="authorization: Basic bWU6aXQ=\r\n").status == 503
    shop.busy.clear()
    shop.page = b"of now"
    assert ask(proxy, "/shop").body == b"of now"
    assert given(proxy, kind="stale", reason="overloaded") == given(proxy) == 2
    assert proxy.admin.metric("plimsoll_stale_answers") == 1 and proxy.admin.metric("plimsoll_stale_answers_bytes") > 11
    wait_until("all are logged", lambda: len(lines(fleet)) == 6)
    logged = [(line["status"], line["reason"]) for line in lines(fleet) if line.get("degraded") == "stale"]
    assert logged == [(200, "overloaded")] * 2


@pytest.mark.parametrize("fields", ["cache-control: private\r\n", "cache-control: no-store\r\n", "set-cookie: a=b\r\n", "vary: *\r\n", "cache-control: private, x=é\r\n", "vary: x-user, é\r\n"])
def test_what_is_meant_for_one_client_is_never_given_again(fleet: Fleet, fields: str) -> None:
    shop = Shop(fleet)
    shop.fields = fields
    proxy = degrading(fleet, [shop.address], 'max_stale = "10m"')
    assert ask(proxy, "/shop").status == 200
    shop.busy.set()
    assert ask(proxy, "/shop").status == 503


def test_no_backend_at_all_is_stood_in_for_and_what_is_too_old_is_not(fleet: Fleet) -> None:
    backend: Backend = fleet.backend()
    proxy = degrading(fleet, [backend.address], 'max_stale = "3s"\nanswer = { body = "sorry", retry_after = "7s" }')
    page = ask(proxy, "/shop").body
    backend.kill()
    stale = ask(proxy, "/shop")
    assert (stale.status, stale.body) == (200, page) and (stale.get("x-plimsoll-degraded") or "").startswith("stale;")
    wait_until("it is too old", lambda: ask(proxy, "/shop").status != 200, 10)
    fixed = ask(proxy, "/shop")
    assert (fixed.status, fixed.body, fixed.get("retry-after")) == (503, b"sorry", "7")
    assert fixed.get("x-plimsoll-degraded") == "static; reason=no-backend"
    assert fixed.get("x-plimsoll-shed") == "reason=no-backend, retry=after", "callers act by it still"


def test_too_many_requests_at_once_get_the_page(fleet: Fleet) -> None:
    """One request holds the only place; the next one would have to wait for longer than it may."""
    going, go_on = threading.Event(), threading.Event()

    def slow(connection: Connection, message: Message) -> None:
        if "slow" in message.start:
            going.set()
            go_on.wait(20)
        answer(connection, b"page")

    limits = 'max_active_requests = 1\nqueue_timeout = "100ms"'
    proxy = degrading(fleet, [fleet.origin(slow)], 'max_stale = "10m"', limits)
    assert ask(proxy, "/shop").body == b"page"
    held = threading.Thread(target=ask, args=(proxy, "/shop/slow"))
    held.start()
    try:
        assert going.wait(10)
        stale = ask(proxy, "/shop")
        assert (stale.status, stale.get("x-plimsoll-degraded")) == (200, "stale; reason=saturated")
        assert ask(proxy, "/shop/other").status == 503
    finally:
        go_on.set()
        held.join(20)


def test_a_static_answer_comes_from_its_file_and_follows_it(fleet: Fleet) -> None:
    page = fleet.directory / "sorry.json"
    page.write_text("[1]")
    shop = Shop(fleet)
    shop.busy.set()
    proxy = degrading(fleet, [shop.address], 'answer = { status = 200, file = "sorry.json" }')
    fixed = ask(proxy, "/shop")
    assert (fixed.status, fixed.body, fixed.get("content-type")) == (200, b"[1]", "application/json")
    assert ask(proxy, "/shop", "POST").status == 503, "nothing was changed"
    page.write_text("[2]")
    proxy.signal(signal.SIGHUP)
    wait_until("it is read again", lambda: ask(proxy, "/shop").body == b"[2]")
    page.unlink()
    proxy.signal(signal.SIGHUP)
    wait_until("it is refused", lambda: proxy.admin.metric("plimsoll_reloads_total", result="refused") == 1)
    assert ask(proxy, "/shop").body == b"[2]"
