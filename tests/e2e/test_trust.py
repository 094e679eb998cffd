"""What a client is believed: by default nothing that harms others, and more where the configuration says so in a word. A row
for each row of the table in docs/trust.md."""

import os
import threading

import pytest

from harness.fleet import Fleet, Proxy
from harness.http1 import Connection, Message, answer
from harness.http2 import Connection as Http2
from harness.http2 import request as http2_request
from harness.process import free_port

BELIEVED = """trust_criticality = "critical-plus"
trusted_proxies = ["127.0.0.1"]
customer_header = "x-customer"
cohort_header = "x-session"
"""
# Another listener, whose senders name customers and cohorts, and a gate that reads these.
INNER = """
[[listeners]]
name = "inner"
address = "127.0.0.1:{port}"
{believed}

[[routes]]
path_prefix = "/gate"
listeners = ["inner"]
cluster = "gated"

[clusters.gated]
backends = ["127.0.0.1:9"]

[clusters.gated.inbound]
pid = {pid}
"""
# The fields of a request, what a backend gets of them by default, and what it gets of a client that is believed in everything.
ROWS: dict[str, tuple[str, dict[str, str | None], dict[str, str | None]]] = {
    "criticality": (
        "x-criticality: critical-plus",
        {"x-criticality": "critical"},
        {"x-criticality": "critical-plus"},
    ),
    "lower-criticality": (
        "x-criticality: sheddable",
        {"x-criticality": "sheddable"},
        {"x-criticality": "sheddable"},
    ),
    "unreadable-criticality": (
        "x-criticality: CRITICAL-PLUS\r\nx-criticality: critical-plus",
        {"x-criticality": "critical"},
        {"x-criticality": "critical"},
    ),
    "baggage": (
        "baggage: user=7,criticality=critical-plus",
        {"baggage": "user=7,criticality=critical", "x-criticality": "critical"},
        {"baggage": "user=7,criticality=critical-plus", "x-criticality": "critical-plus"},
    ),
    "load-report": (
        "endpoint-load-metrics-format: text",
        {"endpoint-load-metrics-format": None},
        {"endpoint-load-metrics-format": None},
    ),
    "customer": ("x-customer: ann", {"x-customer": None}, {"x-customer": "ann"}),
    "cohort": ("x-session: 7", {"x-session": None}, {"x-session": "7"}),
    "http-deadline": (
        "x-envoy-expected-rq-timeout-ms: 5000",
        {"x-envoy-expected-rq-timeout-ms": "5000"},
        {"x-envoy-expected-rq-timeout-ms": "5000"},
    ),
    "grpc-deadline": ("grpc-timeout: 5S", {"grpc-timeout": "5S"}, {"grpc-timeout": "5S"}),
    "http-attempts": (
        "x-envoy-attempt-count: 3",
        {"x-envoy-attempt-count": None},
        {"x-envoy-attempt-count": "3"},
    ),
    "grpc-attempts": (
        "grpc-previous-rpc-attempts: 2",
        {"grpc-previous-rpc-attempts": None},
        {"grpc-previous-rpc-attempts": "2"},
    ),
    "client-address": (
        "x-forwarded-for: 192.0.2.7\r\nx-real-ip: 192.0.2.7\r\nforwarded: for=192.0.2.7",
        {"x-forwarded-for": "127.0.0.1", "x-real-ip": None, "forwarded": None},
        {"x-forwarded-for": "192.0.2.7, 127.0.0.1", "x-real-ip": "192.0.2.7", "forwarded": None},
    ),
    "scheme-and-host": (
        "x-forwarded-proto: https\r\nx-forwarded-host: bank.example",
        {"x-forwarded-proto": "http", "x-forwarded-host": "site.example"},
        {"x-forwarded-proto": "https", "x-forwarded-host": "bank.example"},
    ),
    "request-id": ("x-request-id: mine/7", {"x-request-id": "mine/7"}, {"x-request-id": "mine/7"}),
}


class Seen:
    """A backend that remembers the heads of requests, by their field `x-row`."""

    def __init__(self, fleet: Fleet) -> None:
        self.heads: dict[str | None, Message] = {}
        self.address = fleet.origin(self.handle)

    def handle(self, connection: Connection, message: Message) -> None:
        self.heads[message.get("x-row")] = message
        answer(connection)


def set_up(fleet: Fleet, listener: str, further: str = "", cluster: str = "") -> tuple[Seen, Proxy]:
    backend = Seen(fleet)
    proxy = fleet.proxy([backend.address], listener=listener, further=further, cluster=cluster)
    proxy.admin.wait_for_healthy(1, cluster="main")
    return backend, proxy


@pytest.mark.parametrize("believed", [False, True], ids=["by-default", "believed"])
def test_backend_gets_what_the_client_is_believed(fleet: Fleet, believed: bool) -> None:
    inner = INNER.format(port=free_port(), believed=BELIEVED, pid=os.getpid())
    backend, proxy = set_up(fleet, BELIEVED if believed else "", inner)
    for name, (fields, by_default, trusted) in ROWS.items():
        with Connection.to(proxy.port) as client:
            assert client.request("/", fields=f"{fields}\r\nx-row: {name} by HTTP/1\r\n").status == 200, name
        pairs = [field.partition(": ") for field in [*fields.split("\r\n"), f"x-row: {name} by HTTP/2"]]
        with Http2.to(proxy.port) as client:
            lines = [(field.encode(), value.encode()) for field, _, value in pairs]
            assert client.fetch(1, http2_request(b"GET", b"/", *lines)).status == 200, name
        for version in (1, 2):
            head = backend.heads[f"{name} by HTTP/{version}"]
            got = {field: ", ".join(head.all(field)) or None for field in by_default}
            assert got == (trusted if believed else by_default), f"{name} by HTTP/{version}"


def test_command_line_says_in_a_word_that_clients_are_believed(fleet: Fleet) -> None:
    backend = Seen(fleet)
    for word, goes_on in [((), "critical"), (("--trust-criticality", "critical-plus"), "critical-plus")]:
        proxy = fleet.proxy_to([backend.address], *word)
        proxy.admin.wait_for_healthy(1)
        with Connection.to(proxy.port) as client:
            client.request("/", fields="x-criticality: critical-plus\r\nx-row: 1\r\n")
        assert backend.heads["1"].all("x-criticality") == [goes_on]


def test_longest_deadline_of_a_client_is_the_timeout_of_its_route(fleet: Fleet) -> None:
    """A client that allows an hour waits no longer than others."""
    go_on = threading.Event()
    address = fleet.origin(lambda _connection, _message: (go_on.wait(20), None)[1])
    proxy = fleet.proxy([address], cluster='request_timeout = "300ms"')
    try:
        for field in ("x-envoy-expected-rq-timeout-ms: 3600000", "grpc-timeout: 1H"):
            with Connection.to(proxy.port) as client:
                assert client.request("/", fields=field + "\r\n").status == 504, field
    finally:
        go_on.set()


@pytest.mark.parametrize("second", ["ann", "bob"])
def test_request_that_names_two_customers_is_refused(fleet: Fleet, second: str) -> None:
    isolated = '[[routes]]\ncustomers = ["isolated"]\nanswer = { status = 429 }'
    backend, proxy = set_up(fleet, 'customer_header = "x-customer"', isolated)
    fields = f"x-customer: ann\r\nx-customer: {second}\r\nx-row: 1\r\n"
    with Connection.to(proxy.port) as client:
        told = client.request("/", fields=fields)
        assert (told.status, told.body) == (400, b"customers: the customer is named more than once\n")
        assert client.request("/", fields="x-customer: ann\r\n").status == 200, "the connection goes on"
    with Http2.to(proxy.port) as http2:
        names = [(b"x-customer", b"ann"), (b"x-customer", second.encode()), (b"x-row", b"1")]
        assert http2.fetch(1, http2_request(b"GET", b"/", *names)).status == 400
    assert "1" not in backend.heads
    assert proxy.admin.metric("plimsoll_refused_requests_total", reason="customers") == 2


def test_request_that_goes_in_circles_is_refused_after_some_passes(fleet: Fleet) -> None:
    back = free_port()
    proxy = fleet.proxy_to([f"127.0.0.1:{back}"])
    other = fleet.proxy([f"127.0.0.1:{proxy.port}"], listener=f'[[listeners]]\naddress = "127.0.0.1:{back}"')
    for at in (proxy, other):
        at.admin.wait_for_healthy(1)
    with Connection.to(proxy.port) as client:
        told = client.request("/")
    assert told.status == 508 and told.body.startswith(b"loop: ")
    refused = [at.admin.metric("plimsoll_refused_requests_total", reason="loop") for at in (proxy, other)]
    assert sorted(refused) == [0, 1], "once, and not once for each retry"
    chain = ", ".join(["1.1 plimsoll"] * 8 + ["1.1 other"] * 20)
    backend, proxy = set_up(fleet, "")
    with Connection.to(proxy.port) as client:
        assert client.request("/", fields=f"via: {chain}\r\n").status == 200, "a chain is no loop"
    del backend


def test_malformed_body_is_answered_with_the_end_of_the_connection(fleet: Fleet) -> None:
    backend, proxy = set_up(fleet, "")
    for body in ("5\r\nhelloX", "zz\r\n", "5\r\nhello\r\n0\r\nbad trailer\r\n\r\n"):
        with Connection.to(proxy.port) as client:
            client.send(f"POST / HTTP/1.1\r\nhost: a\r\ntransfer-encoding: chunked\r\n\r\n{body}")
            told = client.read_response()
            assert (told.status, told.get("connection")) == (400, "close"), body
            assert client.at_end()
    del backend
