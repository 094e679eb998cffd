"""Traces: spans in a real collector, whole over three tiers; and what becomes of requests without one."""

import pathlib
import signal
import socket
import time
from collections.abc import Iterator

import pytest
from opentelemetry import context, propagate, trace
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor

from harness.certificates import Authority
from harness.collector import CLIENT, SERVER, Collector, Receiver, Span
from harness.fleet import Fleet, Proxy, http
from harness.http1 import Connection, Message, answer
from harness.process import free_port, wait_until

TRUST = 'trust_criticality = "critical-plus"'
# Origins are threads of this process: no check of theirs is to be taken for a request.
CHECK = 'check = "none"'
OVERLOADED = "x-plimsoll-shed: reason=overloaded, retry=elsewhere\r\n"
TRACE, PARENT = "4bf92f3577b34da6a3ce929d0e0e4736", "00f067aa0ba902b7"
SAMPLED, NOT_SAMPLED = f"00-{TRACE}-{PARENT}-01", f"00-{TRACE}-{PARENT}-00"


@pytest.fixture
def receiver() -> Iterator[Receiver]:
    receiver = Receiver()
    yield receiver
    receiver.stop()


def tracing(url: str, sample: float = 1.0, further: str = "") -> str:
    return f'[tracing]\nendpoint = "{url}"\nsample = {sample}\nmax_per_second = 10000\nmax_per_client = 10000\n{further}\n'


class Echo:
    """An origin that keeps the heads of its requests."""

    def __init__(self, fleet: Fleet, status: str = "200 OK", fields: str = "", delay: float = 0) -> None:
        self.seen: list[Message] = []
        self._reply = status, fields, delay
        self.address = fleet.origin(self._handle)

    def _handle(self, connection: Connection, request: Message) -> None:
        connection.read_body(request, to_close=False)
        self.seen.append(request)
        status, fields, delay = self._reply
        time.sleep(delay)
        answer(connection, status=status, fields=fields)

    def parents(self) -> list[list[str]]:
        """The fields `traceparent` of each request."""
        return [request.all("traceparent") for request in self.seen]


def ask(proxy: Proxy, path: str = "/", *fields: str) -> Message:
    with Connection.to(proxy.port) as connection:
        return connection.request(path, fields="".join(f"{field}\r\n" for field in fields))


def sdk(service: str, collector: Collector) -> TracerProvider:
    provider = TracerProvider(resource=Resource.create({"service.name": service}))
    exporter = OTLPSpanExporter(endpoint=f"{collector.url}/v1/traces")
    provider.add_span_processor(BatchSpanProcessor(exporter, schedule_delay_millis=100))
    return provider


class Service:
    """A service with OpenTelemetry's own SDK, which asks the one behind it, if there is one."""

    def __init__(self, fleet: Fleet, name: str, collector: Collector, behind: Proxy | None = None) -> None:
        self.provider, self._behind = sdk(name, collector), behind
        self.address = fleet.origin(self._handle)

    def _handle(self, connection: Connection, request: Message) -> None:
        connection.read_body(request, to_close=False)
        carrier = {name.lower(): value for name, value in request.fields}
        tracer = self.provider.get_tracer("test")
        parent = propagate.extract(carrier)
        with tracer.start_as_current_span("handle", context=parent, kind=trace.SpanKind.SERVER):
            if self._behind is not None:
                headers: dict[str, str] = {}
                propagate.inject(headers, context.get_current())
                assert http(self._behind.url + "/inner", headers=headers)[0] == 200
        answer(connection)


def test_call_over_three_tiers_is_one_trace_in_the_collector(fleet: Fleet, receiver: Receiver) -> None:
    collector = Collector(fleet, receiver)
    # client -> edge -> service a -> mesh -> service b
    last = Service(fleet, "b", collector)
    named = 'service_name = "{}"'
    mesh = fleet.proxy([last.address], listener=TRUST, health=CHECK, further=tracing(collector.url, 0, named.format("mesh")))
    first = Service(fleet, "a", collector, behind=mesh)
    edge = fleet.proxy([first.address], listener=TRUST, health=CHECK, further=tracing(collector.url, 0, named.format("edge")))
    client = sdk("client", collector)
    with client.get_tracer("test").start_as_current_span("buy", kind=trace.SpanKind.CLIENT) as span:
        headers: dict[str, str] = {}
        propagate.inject(headers)
        assert http(edge.url + "/outer", headers=headers)[0] == 200
        id = f"{span.get_span_context().trace_id:032x}"
    for provider in (client, first.provider, last.provider):
        provider.force_flush()
    spans = receiver.trace(id, 7)
    assert len(spans) == 7, spans
    (at,) = [span for span in spans if span.parent == ""]
    chain = [at]
    while below := [span for span in spans if span.parent == chain[-1].id]:
        chain += below
    assert [(span.service, span.kind) for span in chain] == [
        ("client", CLIENT),
        ("edge", SERVER),
        ("edge", CLIENT),
        ("a", SERVER),
        ("mesh", SERVER),
        ("mesh", CLIENT),
        ("b", SERVER),
    ]
    for outer, inner in zip(chain, chain[1:]):
        assert outer.began <= inner.began + 10_000_000 and inner.ended <= outer.ended + 10_000_000, (outer, inner)
    server, attempt = chain[1:3]
    expected = {
        "http.request.method": "GET",
        "url.scheme": "http",
        "url.path": "/outer",
        "server.address": "127.0.0.1",
        "server.port": edge.port,
        "client.address": "127.0.0.1",
        "network.protocol.version": "1.1",
        "http.response.status_code": 200,
        "plimsoll.cluster": "main",
        "plimsoll.criticality": "critical",
        "plimsoll.attempts": 1,
    }
    assert expected.items() <= server.facts.items(), server
    address, port = first.address.split(":")
    expected = {"server.address": address, "server.port": int(port), "http.response.status_code": 200}
    assert expected.items() <= attempt.facts.items(), attempt
    assert server.name == attempt.name == "GET" and not server.is_error and not attempt.is_error


def test_retry_and_shed_attempt_are_siblings_with_their_reasons(fleet: Fleet, receiver: Receiver) -> None:
    full, well = Echo(fleet, "503 Service Unavailable", OVERLOADED), Echo(fleet)
    unthrottled = '[clusters.main.throttle]\npolicy = "off"\n'
    text = unthrottled + tracing(receiver.url)
    proxy = fleet.proxy([full.address, well.address], cluster='policy = "round-robin"', health=CHECK, further=text)
    for path in ("/1", "/2"):
        assert ask(proxy, path).status == 200
    retried = wait_until("a retry", lambda: receiver.of(plimsoll__attempts=2, url__path="/1") + receiver.of(plimsoll__attempts=2, url__path="/2"))[0]
    attempts = sorted((span for span in receiver.trace(retried.trace, 3) if span.kind == CLIENT), key=lambda span: span.began)
    assert [span.parent for span in attempts] == [retried.id] * 2
    shed, served = attempts
    assert shed.is_error and shed.facts["plimsoll.reason"] == "overloaded" == shed.facts["error.type"], shed
    assert "http.request.resend_count" not in shed.facts
    assert served.facts["http.request.resend_count"] == 1 and not served.is_error, served
    # Each backend continues the span of its own attempt.
    (at_full,) = [parent for (parent,) in full.parents() if retried.trace in parent]
    (at_well,) = [parent for (parent,) in well.parents() if retried.trace in parent]
    assert at_full == f"00-{retried.trace}-{shed.id}-03" and at_well == f"00-{retried.trace}-{served.id}-03"


def test_hedge_is_a_sibling_and_the_slow_attempt_is_withdrawn(fleet: Fleet, receiver: Receiver) -> None:
    slow, quick = Echo(fleet, delay=1), Echo(fleet)
    hedge = '[clusters.main.retry.hedge]\nat_least = "20ms"\nquantile = 0.5\n'
    proxy = fleet.proxy([slow.address, quick.address], cluster='policy = "round-robin"', health=CHECK, further=hedge + tracing(receiver.url))

    def hedged() -> list[Span]:
        ask(proxy)
        return receiver.of(plimsoll__hedge=True)

    second = wait_until("a hedge", hedged, 40)[0]
    spans = receiver.trace(second.trace, 3)
    (first,) = [span for span in spans if span.kind == CLIENT and span.id != second.id]
    assert first.parent == second.parent and second.facts["http.request.resend_count"] == 1
    assert first.facts["plimsoll.end"] == "withdrawn" and not first.is_error, first
    assert first.began < second.began < first.ended


def test_request_without_a_backend_has_a_span_with_the_reason(fleet: Fleet, receiver: Receiver) -> None:
    further = '[[routes]]\npath_prefix = "/none"\nanswer = { status = 410 }\n' + tracing(receiver.url)
    proxy = fleet.proxy([f"127.0.0.1:{free_port()}"], health=CHECK, further=further)
    assert ask(proxy, "/down").status == 503
    assert ask(proxy, "/none").status == 410
    down = receiver.at_path("/down")
    assert down.is_error and down.facts["plimsoll.reason"] == "no-backend" == down.facts["error.type"], down
    attempts = [span for span in receiver.trace(down.trace, 2) if span.kind == CLIENT]
    assert attempts and all(span.is_error and span.parent == down.id for span in attempts), attempts
    fixed = receiver.at_path("/none")
    assert fixed.facts["plimsoll.reason"] == "route-answer" and not fixed.is_error, fixed
    # Without its own decision the first has begun the trace.
    assert down.parent == "" and fixed.parent == "" and down.trace != fixed.trace


def test_fields_pass_unchanged_where_tracing_is_off(fleet: Fleet) -> None:
    echo = Echo(fleet)
    proxy = fleet.proxy([echo.address], health=CHECK)
    ask(proxy, "/", f"traceparent: {SAMPLED}", "tracestate: a=1", "tracestate: b=2")
    ask(proxy, "/", f"traceparent: {SAMPLED}", f"traceparent: {NOT_SAMPLED}")
    ask(proxy, "/", "traceparent: junk")
    ask(proxy)
    assert echo.parents() == [[SAMPLED], [SAMPLED, NOT_SAMPLED], ["junk"], []]
    assert echo.seen[0].all("tracestate") == ["a=1", "b=2"]


def test_decision_of_a_trusted_sender_stands(fleet: Fleet, receiver: Receiver) -> None:
    echo = Echo(fleet)
    proxy = fleet.proxy([echo.address], listener=TRUST, health=CHECK, further=tracing(receiver.url, 1.0))
    ask(proxy, "/not", f"traceparent: {NOT_SAMPLED}", "tracestate: a=1")
    ask(proxy, "/yes", f"traceparent: {SAMPLED}", "tracestate: a=1,b=2")
    span = receiver.at_path("/yes")
    assert (span.trace, span.parent, span.state) == (TRACE, PARENT, "a=1,b=2")
    (attempt,) = [other for other in receiver.trace(TRACE, 2) if other.kind == CLIENT]
    assert attempt.parent == span.id
    # No span is made for the first, so its parent is still the caller.
    assert echo.parents() == [[NOT_SAMPLED], [f"00-{TRACE}-{attempt.id}-01"]]
    assert [request.all("tracestate") for request in echo.seen] == [["a=1"], ["a=1,b=2"]]
    assert receiver.of(url__path="/not") == []


def test_stranger_cannot_have_its_requests_recorded(fleet: Fleet, receiver: Receiver) -> None:
    echo = Echo(fleet)
    proxy = fleet.proxy([echo.address], health=CHECK, further=tracing(receiver.url, 0))
    ask(proxy, "/", f"traceparent: {SAMPLED}", "tracestate: a=1")
    # It names the field as one of its connection: then it has none.
    ask(proxy, "/", f"traceparent: {SAMPLED}", "connection: traceparent")
    ((parent,), none) = echo.parents()
    version, id, span, flags = parent.split("-")
    assert (version, id, flags) == ("00", TRACE, "00") and span != PARENT and none == [], parent
    assert echo.seen[0].all("tracestate") == ["a=1"]
    proxy.signal(signal.SIGTERM)
    assert proxy.wait(20) == 0 and receiver.spans == []


@pytest.mark.parametrize(
    "fields",
    [
        [f"traceparent: {SAMPLED}", f"traceparent: {SAMPLED}"],
        [f"traceparent: {SAMPLED.upper()}"],
        [f"traceparent: ff{SAMPLED[2:]}"],
        [f"traceparent: {SAMPLED.replace(TRACE, '0' * 32)}"],
        [f"traceparent: {SAMPLED}-more"],
        [f"traceparent: {SAMPLED}, {SAMPLED}"],
        ["tracestate: a=1"],
        [],
    ],
    ids=["twice", "upper-case", "version-ff", "zeros", "long", "list", "state-alone", "none"],
)
@pytest.mark.parametrize("sample", [0.0, 1.0], ids=["unsampled", "sampled"])
def test_unreadable_trace_is_removed_or_begun_anew(fleet: Fleet, receiver: Receiver, sample: float, fields: list[str]) -> None:
    echo = Echo(fleet)
    proxy = fleet.proxy([echo.address], listener=TRUST, health=CHECK, further=tracing(receiver.url, sample))
    ask(proxy, "/", *fields, "tracestate: a=1")
    (parents,) = echo.parents()
    if not sample:
        assert parents == []
        return
    version, id, span, flags = parents[0].split("-")
    assert len(parents) == 1 and id != TRACE and span != PARENT and len(id) == 32 and len(span) == 16
    assert (version, flags) == ("00", "03"), parents
    assert echo.seen[0].all("tracestate") == []
    assert receiver.at_path("/").parent == ""


def test_rates_bound_the_recorded_requests(fleet: Fleet, receiver: Receiver) -> None:
    limits = "max_per_second = 20\nmax_per_client = 5\n"
    text = f'[tracing]\nendpoint = "{receiver.url}"\nsample = 1.0\n{limits}'
    proxy = fleet.proxy([Echo(fleet).address], listener=TRUST, health=CHECK, further=text)
    with Connection.to(proxy.port) as connection:
        began = time.monotonic()
        for _ in range(200):
            assert connection.request("/", fields=f"traceparent: {SAMPLED}\r\n").status == 200
        took = time.monotonic() - began
    limited = proxy.admin.metric("plimsoll_trace_limited_requests_total")
    assert 200 - 5 * (took + 1) - 1 <= limited <= 195, (limited, took)


@pytest.mark.parametrize("is_down", [True, False], ids=["down", "silent"])
def test_collector_that_never_answers_holds_up_no_request(fleet: Fleet, is_down: bool) -> None:
    echo, silent = Echo(fleet), socket.create_server(("127.0.0.1", 0))
    port = free_port() if is_down else silent.getsockname()[1]
    proxy = fleet.proxy([echo.address], health=CHECK, further=tracing(f"http://127.0.0.1:{port}"))
    began = time.monotonic()
    with Connection.to(proxy.port) as connection:
        for _ in range(9000):
            assert connection.request("/").status == 200
    assert time.monotonic() - began < 30
    dropped = lambda: proxy.admin.metric("plimsoll_trace_spans_total", result="queue-full")  # noqa: E731
    assert dropped() > 1000
    assert proxy.resident_bytes() < 200 << 20
    if is_down:
        assert "spans not exported" in proxy.output()
    # The process ends although the collector never came.
    began = time.monotonic()
    proxy.signal(signal.SIGTERM)
    assert proxy.wait(20) == 0 and time.monotonic() - began < 10


def test_spans_wait_for_a_collector_that_has_no_capacity(fleet: Fleet) -> None:
    receiver = Receiver(answer=lambda number: 503 if number <= 1 else 200)
    try:
        proxy = fleet.proxy([Echo(fleet).address], health=CHECK, further=tracing(receiver.url))
        ask(proxy, "/late")
        assert receiver.at_path("/late")
        assert receiver.requests == 2
        wait_until("both are counted", lambda: proxy.admin.metric("plimsoll_trace_spans_total", result="exported") == 2)
    finally:
        receiver.stop()


def test_spans_that_are_refused_are_dropped_and_counted(fleet: Fleet) -> None:
    receiver = Receiver(answer=lambda _: 400)
    try:
        proxy = fleet.proxy([Echo(fleet).address], health=CHECK, further=tracing(receiver.url))
        ask(proxy)
        wait_until("it is counted", lambda: proxy.admin.metric("plimsoll_trace_spans_total", result="refused") == 2)
        assert receiver.requests == 1
    finally:
        receiver.stop()


def test_collector_is_reached_by_tls_only_if_it_is_trusted(fleet: Fleet) -> None:
    authority = Authority(fleet.directory)
    receiver = Receiver(context=authority.server_context(authority.issue("collector", "IP:127.0.0.1")))
    try:
        echo = Echo(fleet)
        trusting = fleet.proxy([echo.address], health=CHECK, further=tracing(receiver.url, 1, f'[tracing.tls]\nca = "{authority.certificate}"'))
        ask(trusting, "/trusted")
        assert receiver.at_path("/trusted")
        # Without the table the authorities of the system count.
        other = fleet.proxy([echo.address], health=CHECK, further=tracing(receiver.url))
        ask(other, "/other")
        wait_until("it says so", lambda: "no TLS with the collector" in other.output())
        assert receiver.of(url__path="/other") == []
    finally:
        receiver.stop()


def test_drain_sends_the_last_spans(fleet: Fleet, receiver: Receiver) -> None:
    proxy = fleet.proxy([Echo(fleet).address], health=CHECK, further=tracing(receiver.url) + '[drain]\nannounce = "off"\n')
    ask(proxy, "/last")
    proxy.signal(signal.SIGTERM)
    assert proxy.wait(20) == 0
    assert len(receiver.of(url__path="/last")) == 1


def test_reload_turns_tracing_on_and_off(fleet: Fleet, receiver: Receiver) -> None:
    echo = Echo(fleet)
    proxy = fleet.proxy([echo.address], health=CHECK)
    (path,) = pathlib.Path(fleet.directory).glob("plimsoll-*.toml")
    plain = path.read_text()

    def reload(text: str) -> None:
        before = proxy.admin.metric("plimsoll_reloads_total", result="taken")
        path.write_text(text)
        proxy.signal(signal.SIGHUP)
        wait_until("the reload", lambda: proxy.admin.metric("plimsoll_reloads_total", result="taken") > before)

    ask(proxy, "/off")
    reload(plain + tracing(receiver.url))
    ask(proxy, "/on")
    receiver.at_path("/on")
    reload(plain)
    ask(proxy, "/off-again")
    assert [len(parents) for parents in echo.parents()] == [0, 1, 0]
    time.sleep(1.5)
    assert receiver.of(url__path="/off-again") == receiver.of(url__path="/off") == []
