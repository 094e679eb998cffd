"""gRPC between grpcio, the proxy and `plimsoll backend`, each pair of them."""

import itertools
import signal
import threading
import time
from collections import Counter
from collections.abc import Iterator

import grpc
import pytest
from grpc_health.v1 import health_pb2, health_pb2_grpc

from harness.certificates import Authority
from harness.fleet import Fleet
from harness.http1 import Connection
from harness.process import free_port, wait_until
from harness.rpc import REPORT_KEY, Server, backend_of, report, stream, work

# Reports of the same rate at these utilizations make capacities of 4:2:1.
UTILIZATIONS = (0.2, 0.4, 0.8)
SHARES = (4 / 7, 2 / 7, 1 / 7)
TOLERANCE = 0.05
REQUESTS = 3_500

WRR = """{"loadBalancingConfig": [{"weighted_round_robin": {
    "enableOobLoadReport": %s, "oobReportingPeriod": "0.1s",
    "blackoutPeriod": "0.1s", "weightUpdatePeriod": "0.1s", "weightExpirationPeriod": "60s"}}]}"""


def assert_split(counts: Counter[str], addresses: list[str]) -> None:
    total = sum(counts.values())
    for address, share in zip(addresses, SHARES, strict=True):
        got = counts[address] / total
        assert abs(got / share - 1) < TOLERANCE, f"{address} got {got:.3f}, expected {share:.3f}: {counts}"


def count(channel: grpc.Channel, requests: int) -> Counter[str]:
    call = work(channel)
    counts: Counter[str] = Counter()
    for _ in range(requests):
        _, answered = call.with_call(b"x", timeout=5)
        counts[backend_of(answered)] += 1
    return counts


@pytest.mark.parametrize("out_of_band", [False, True], ids=["in-trailers", "out-of-band"])
def test_grpcio_weighted_round_robin_reads_our_reports(fleet: Fleet, out_of_band: bool) -> None:
    addresses = [
        fleet.backend("--cost", "fixed:10us", "--report", f"utilization={utilization},rps=100").address
        for utilization in UTILIZATIONS
    ]
    # Of a target that lists addresses grpcio makes an authority that lists them too, which is not one (RFC 3986).
    options = [("grpc.service_config", WRR % str(out_of_band).lower()), ("grpc.default_authority", "backends")]
    with grpc.insecure_channel("ipv4:" + ",".join(addresses), options=options) as channel:
        # Until each has reported and the first blackout is over, grpcio spreads evenly.
        wait_until("weights in grpcio", lambda: count(channel, 70)[addresses[2]] <= 12, 15)
        assert_split(count(channel, REQUESTS), addresses)


def test_proxy_reads_reports_of_grpcio_servers_in_trailers(fleet: Fleet) -> None:
    servers = []
    for utilization in UTILIZATIONS:
        own = report(utilization, rps=100)

        def handle(message: bytes, context: grpc.ServicerContext, own: bytes = own) -> bytes:
            context.set_trailing_metadata(((REPORT_KEY, own),))
            return message

        servers.append(Server(handle))
    try:
        addresses = [server.address for server in servers]
        proxy = fleet.proxy(
            addresses,
            cluster='policy = "weighted"',
            health='check = "grpc"\ninterval = "500ms"\ntimeout = "400ms"',
            further='[clusters.main.weighted]\nblackout = "off"\nupdate = "200ms"\n[clusters.main.slow_start]\nwindow = "off"',
        )
        proxy.admin.wait_for_healthy(3)
        fleet.load_now(proxy.url, "--protocol", "grpc", "--rate", "200", "--duration", "5s")
        before = {address: row["requests"] for address, row in proxy.admin.backends().items()}
        counted = fleet.load_now(proxy.url, "--protocol", "grpc", "--concurrency", "4", "--requests", str(REQUESTS))
        assert counted.failed == 0, counted.raw
        after = proxy.admin.backends()
        assert_split(Counter({address: row["requests"] - before[address] for address, row in after.items()}), addresses)
    finally:
        for server in servers:
            server.stop()


def test_statuses_metadata_and_large_messages_pass_unchanged(fleet: Fleet) -> None:
    def handle(message: bytes, context: grpc.ServicerContext) -> bytes:
        asked = dict(context.invocation_metadata())
        context.send_initial_metadata((("x-initial", asked["x-asked"]),))
        context.set_trailing_metadata((("x-blob-bin", asked["x-blob-bin"]),))
        if message == b"fail":
            context.abort(grpc.StatusCode.FAILED_PRECONDITION, "niet nu: ünlucky 100%")
        return message

    server = Server(handle)
    try:
        proxy = fleet.proxy_to([server.address])
        with grpc.insecure_channel(f"127.0.0.1:{proxy.port}") as channel:
            metadata = (("x-asked", "yes"), ("x-blob-bin", bytes(range(256))))
            large = bytes(range(256)) * (3 << 12)
            got, call = work(channel).with_call(large, metadata=metadata, timeout=10)
            assert got == large
            assert dict(call.initial_metadata())["x-initial"] == "yes"
            assert dict(call.trailing_metadata())["x-blob-bin"] == bytes(range(256))
            with pytest.raises(grpc.RpcError) as failure:
                work(channel)(b"fail", metadata=metadata, timeout=10)
            assert failure.value.code() == grpc.StatusCode.FAILED_PRECONDITION
            assert failure.value.details() == "niet nu: ünlucky 100%"
    finally:
        server.stop()


def test_streams_go_both_ways_at_once(fleet: Fleet) -> None:
    def echo(messages: Iterator[bytes], context: grpc.ServicerContext) -> Iterator[bytes]:
        del context
        for message in messages:
            yield message + b"!"

    server = Server(handle_stream=echo)
    try:
        proxy = fleet.proxy_to([server.address])
        with grpc.insecure_channel(f"127.0.0.1:{proxy.port}") as channel:
            turn = threading.Semaphore(1)

            def questions() -> Iterator[bytes]:
                for number in range(50):
                    # The next question only after the last answer: nothing may be held back on the way.
                    assert turn.acquire(timeout=5)
                    yield str(number).encode()

            answers = []
            for message in stream(channel)(questions(), timeout=20):
                answers.append(message)
                turn.release()
            assert answers == [f"{number}!".encode() for number in range(50)]
    finally:
        server.stop()


def test_slow_reader_of_a_stream_slows_the_server(fleet: Fleet) -> None:
    produced = itertools.count()
    last = 0

    def firehose(messages: Iterator[bytes], context: grpc.ServicerContext) -> Iterator[bytes]:
        nonlocal last
        del messages
        while context.is_active():
            last = next(produced)
            yield bytes(1 << 20)

    server = Server(handle_stream=firehose)
    try:
        proxy = fleet.proxy_to([server.address])
        with grpc.insecure_channel(f"127.0.0.1:{proxy.port}") as channel:
            call = stream(channel)(iter([b"go"]), timeout=60)
            assert len(next(call)) == 1 << 20
            seen, since = -1, time.monotonic()

            def stands_still() -> bool:
                nonlocal seen, since
                if last != seen:
                    seen, since = last, time.monotonic()
                assert last < 40, f"{last} MiB produced for a reader that took one"
                return time.monotonic() - since > 1

            wait_until("the stream stands still", stands_still, 20)
            assert proxy.resident_bytes() < 64 << 20
            call.cancel()
    finally:
        server.stop()


def test_cancelled_call_is_cancelled_at_the_backend(fleet: Fleet) -> None:
    begun, ended = threading.Event(), threading.Event()

    def handle(message: bytes, context: grpc.ServicerContext) -> bytes:
        if message == b"wait":
            context.add_callback(ended.set)
            begun.set()
            ended.wait(20)
        return message

    server = Server(handle)
    try:
        proxy = fleet.proxy_to([server.address])
        with grpc.insecure_channel(f"127.0.0.1:{proxy.port}") as channel:
            call = work(channel).future(b"wait", timeout=20, wait_for_ready=True)
            assert begun.wait(5)
            call.cancel()
            assert ended.wait(3), "the backend goes on with a call nobody waits for"
            wait_until("nothing in flight", lambda: proxy.admin.backends()[server.address]["in_flight"] == 0, 3)
    finally:
        server.stop()


def test_without_any_backend_the_answer_is_grpc(fleet: Fleet) -> None:
    proxy = fleet.proxy_to([f"127.0.0.1:{free_port()}"])
    with grpc.insecure_channel(f"127.0.0.1:{proxy.port}") as channel, pytest.raises(grpc.RpcError) as failure:
        work(channel)(b"x", timeout=15)
    assert failure.value.code() == grpc.StatusCode.UNAVAILABLE
    assert "reason=" in str(dict(failure.value.trailing_metadata() or ()).get("x-plimsoll-shed", "")), failure.value


def test_not_serving_keeps_requests_away(fleet: Fleet) -> None:
    def handle(message: bytes, context: grpc.ServicerContext) -> bytes:
        del context
        return message

    servers = [Server(handle) for _ in range(2)]
    for server in servers:
        server.set_serving(True)
    try:
        proxy = fleet.proxy(
            [server.address for server in servers],
            health='check = "grpc"\ninterval = "200ms"\ntimeout = "150ms"',
        )
        proxy.admin.wait_for_healthy(2)
        servers[0].set_serving(False)
        proxy.admin.wait_for_state(servers[0].address, "lame-duck", 5)
        before = proxy.admin.backends()[servers[0].address]["requests"]
        assert fleet.load_now(proxy.url, "--protocol", "grpc", "--requests", "200").failed == 0
        assert proxy.admin.backends()[servers[0].address]["requests"] == before
        servers[0].set_serving(True)
        proxy.admin.wait_for_state(servers[0].address, "healthy", 5)
    finally:
        for server in servers:
            server.stop()


def test_backend_tells_health_watchers_before_it_goes(fleet: Fleet) -> None:
    backend = fleet.backend()
    with grpc.insecure_channel(backend.address) as channel:
        health = health_pb2_grpc.HealthStub(channel)
        request = health_pb2.HealthCheckRequest()
        serving, not_serving = health_pb2.HealthCheckResponse.SERVING, health_pb2.HealthCheckResponse.NOT_SERVING
        wait_until("serving", lambda: health.Check(request, timeout=2).status == serving)
        watch = health.Watch(request, timeout=20)
        assert next(watch).status == serving
        backend.signal(signal.SIGTERM)
        assert next(watch).status == not_serving
        watch.cancel()
    assert backend.wait(10) == 0


@pytest.mark.parametrize("is_secure", [False, True], ids=["plain", "tls"])
def test_a_backend_that_knows_no_http2_is_not_held_to_be_broken_for_what_a_client_calls_grpc(fleet: Fleet, is_secure: bool) -> None:
    certificate, further = None, ""
    if is_secure:
        authority = Authority(fleet.directory)
        certificate = authority.issue("backend", "DNS:backend.internal")
        further = f'[clusters.main.tls]\nca = "{authority.certificate}"\nserver_name = "backend.internal"'
    proxy = fleet.proxy([fleet.nginx(certificate) for _ in range(2)], further=further)
    proxy.admin.wait_for_healthy(2)
    with Connection.to(proxy.port) as client:
        for _ in range(20):
            answer = client.request("/", method="POST", fields="content-type: application/grpc\r\n", body=bytes(5))
            assert answer.get("grpc-status") == "14", answer
            assert client.request("/").status == 200
    assert proxy.admin.states() == dict.fromkeys(proxy.admin.states(), "healthy")
    assert proxy.admin.metric("plimsoll_failures_total") == 0
