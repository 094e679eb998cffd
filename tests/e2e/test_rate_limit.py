"""Requests per second by address, key, host and path, beside nginx and HAProxy; and slots per client."""

import concurrent.futures
import hashlib
import pathlib
import signal
import socket
import threading
import time

import pytest

from harness.certificates import Authority
from harness.fleet import Fleet, Proxy
from harness.http1 import Connection, Message, answer
from harness.process import Process, find_program, free_port, wait_until

RATE, BURST = 10, 20


def connect(port: int, source: str = "127.0.0.1") -> Connection:
    """A connection from this address of the loopback network."""
    return Connection(socket.create_connection(("127.0.0.1", port), timeout=10, source_address=(source, 0)))


def statuses(port: int, count: int, source: str = "127.0.0.1", fields: str = "") -> list[int]:
    """The statuses of so many requests, one after another."""
    with connect(port, source) as connection:
        return [connection.request("/", fields=fields).status for _ in range(count)]


def served(port: int, count: int, source: str = "127.0.0.1", fields: str = "") -> tuple[int, float]:
    """The number of requests of `count` that were served, the others refused with 429; and the seconds that they took."""
    begun = time.monotonic()
    got = statuses(port, count, source, fields)
    assert set(got) <= {200, 429}, got
    return got.count(200), time.monotonic() - begun


def plimsoll(fleet: Fleet, customer: str = 'customer = "address"', further: str = "", limit: str = "") -> Proxy:
    limit = limit or f"requests_per_second = {RATE}\nburst = {BURST}"
    proxy = fleet.proxy([fleet.nginx()], listener=customer, further=f"[other_customers]\n{limit}\n{further}")
    proxy.admin.wait_for_healthy(1)
    return proxy


def nginx(fleet: Fleet, backend: str) -> int:
    """An nginx with the same limit. Its burst does not count the request that has a token."""
    port = free_port()
    home = fleet.directory / "limiting-nginx"
    home.mkdir()
    paths = "\n".join(f"{kind}_temp_path {home}/{kind};" for kind in ("client_body", "proxy", "fastcgi", "uwsgi", "scgi"))
    (home / "nginx.conf").write_text(f"""
        daemon off; master_process off; pid {home}/nginx.pid; error_log stderr crit;
        events {{ worker_connections 1024; }}
        http {{
            access_log off; {paths}
            limit_req_zone $binary_remote_addr zone=each:1m rate={RATE}r/s;
            limit_req_status 429;
            server {{
                listen 127.0.0.1:{port};
                keepalive_requests 100000;
                location / {{ limit_req zone=each burst={BURST - 1} nodelay; proxy_pass http://{backend}; }}
            }}
        }}
    """)
    command = [find_program("nginx"), "-e", "stderr", "-p", str(home), "-c", str(home / "nginx.conf")]
    fleet._keep(Process("limiting-nginx", command, fleet.directory)).wait_for_port(port)
    return port


def haproxy(fleet: Fleet, backend: str) -> int:
    """A HAProxy that admits as many requests of an address in two seconds as the others admit at once."""
    port = free_port()
    path = fleet.directory / "haproxy.cfg"
    path.write_text(f"""
global
    maxconn 1000
defaults
    mode http
    timeout connect 5s
    timeout client 30s
    timeout server 30s
frontend in
    bind 127.0.0.1:{port}
    stick-table type ip size 100k expire 1m store http_req_rate(2s)
    http-request track-sc0 src
    http-request deny deny_status 429 if {{ sc_http_req_rate(0) gt {BURST} }}
    default_backend out
backend out
    server one {backend}
""")
    fleet._keep(Process("haproxy", [find_program("haproxy"), "-db", "-f", str(path)], fleet.directory)).wait_for_port(port)
    return port


def test_as_many_requests_pass_at_once_as_through_nginx_and_haproxy(fleet: Fleet) -> None:
    proxy = plimsoll(fleet)
    backend = next(iter(proxy.admin.backends()))
    ports = {"plimsoll": proxy.port, "nginx": nginx(fleet, backend), "haproxy": haproxy(fleet, backend)}
    for name, port in ports.items():
        for source in ("127.0.0.1", "127.0.0.2"):
            count, seconds = served(port, 3 * BURST, source)
            # A token is earned in a tenth of a second.
            assert BURST <= count <= BURST + RATE * seconds + 1, (name, source, count, seconds)


@pytest.mark.alone
@pytest.mark.parametrize("peer", ["plimsoll", "nginx"])
def test_rate_is_kept_over_seconds_as_through_nginx(fleet: Fleet, peer: str) -> None:
    proxy = plimsoll(fleet)
    port = proxy.port if peer == "plimsoll" else nginx(fleet, next(iter(proxy.admin.backends())))
    count, begun = 0, time.monotonic()
    with connect(port) as connection:
        while time.monotonic() < begun + 2:
            status = connection.request("/").status
            assert status in (200, 429)
            count += status == 200
    expected = BURST + RATE * (time.monotonic() - begun)
    # Three tokens are earned in 0.3 s: the client may be late by that on a busy machine.
    assert abs(count - expected) <= 3, (count, expected)


def test_refused_request_names_limit_and_time_in_http_and_grpc(fleet: Fleet) -> None:
    proxy = plimsoll(fleet, limit="requests_per_second = 0.5\nburst = 1")
    assert statuses(proxy.port, 1) == [200]
    with connect(proxy.port) as connection:
        refused = connection.request("/")
        assert refused.status == 429 and refused.get("x-plimsoll-shed") == "reason=rate-limit, retry=after"
        assert 1 <= int(refused.get("retry-after") or 0) <= 2
        assert refused.body.startswith(b"rate-limit: ")
        grpc = connection.request("/a.B/C", "POST", "content-type: application/grpc\r\nte: trailers\r\n", body=b"\0" * 5)
        assert grpc.status == 200 and grpc.get("grpc-status") == "8"
        assert 0 < int(grpc.get("grpc-retry-pushback-ms") or 0) <= 2000
    assert proxy.admin.metric("plimsoll_request_limit_decisions_total", customer="other", decision="admitted") == 1
    assert proxy.admin.metric("plimsoll_request_limit_decisions_total", customer="other", decision="rate-limit") == 2
    assert proxy.admin.metric("plimsoll_refused_requests_total", reason="rate-limit") == 2
    told = proxy.admin.json("/api/v1/explain?reason=rate-limit&last=1")["requests"][0]
    assert told["customer"] == "127.0.0.1"
    assert told["request_limit"].items() >= {"requests_per_second": 0.5, "burst": 1, "dry_run": False}.items()


def test_client_behind_a_trusted_proxy_counts_by_its_own_address(fleet: Fleet) -> None:
    few = "requests_per_second = 0.01\nburst = 2"
    proxy = plimsoll(fleet, 'customer = "address"\ntrusted_proxies = ["127.0.0.1"]', limit=few)
    of = lambda fields, source="127.0.0.1": statuses(proxy.port, 3, source, fields).count(200)  # noqa: E731
    assert of("x-forwarded-for: 192.0.2.1\r\n") == 2
    assert of("x-forwarded-for: 192.0.2.2\r\n") == 2
    # The client's own entry is worth nothing, and neither is that of a stranger.
    assert of("x-forwarded-for: 192.0.2.3, 192.0.2.1\r\n") == 0
    assert of("x-forwarded-for: 192.0.2.4\r\n", "127.0.0.9") == 2
    assert of("x-forwarded-for: 192.0.2.5\r\n", "127.0.0.9") == 0
    # One network of IPv6 is one client.
    assert of("x-forwarded-for: 2001:db8::1\r\n") == 2
    assert of("x-forwarded-for: 2001:db8::2:3:4\r\n") == 0
    assert of("x-forwarded-for: 2001:db8:0:1::1\r\n") == 2


def test_customer_comes_from_key_host_or_path(fleet: Fleet) -> None:
    few = "requests_per_second = 0.01\nburst = 2"
    name = "key:" + hashlib.sha256(b"secret-of-acme").hexdigest()[:16]
    log = fleet.directory / "access.log"
    further = f'[customers."{name}"]\nrequests_per_second = 0.01\nburst = 4\n[access_log]\npath = "{log}"\n'
    keys = plimsoll(fleet, 'customer = [{ key = "x-api-key" }, "address"]', further, few)
    of_key = lambda key: statuses(keys.port, 6, fields=f"x-api-key: {key}\r\n").count(200)  # noqa: E731
    assert [of_key("secret-of-acme"), of_key("another"), of_key("third")] == [4, 2, 2]
    assert statuses(keys.port, 6).count(200) == 2, "without a key the address counts"
    wait_until("the log is written", lambda: log.exists() and log.read_text().count("\n") == 24)
    pages = [keys.admin.get(path)[1] for path in ("/metrics", "/api/v1/explain?last=100")]
    for text in [log.read_text(), *pages]:
        assert name in text and "secret-of-acme" not in text

    hosts = plimsoll(fleet, 'customer = "host"', limit=few)
    with connect(hosts.port) as connection:
        of = lambda host: [connection.request("/", host=host).status for _ in range(3)].count(200)  # noqa: E731
        assert [of("a.example"), of("A.Example.:80"), of("b.example")] == [2, 0, 2]

    paths = plimsoll(fleet, "customer = { path_segment = 2 }", limit=few)
    with connect(paths.port) as connection:
        of = lambda path: [connection.request(path).status for _ in range(3)].count(200)  # noqa: E731
        assert [of("/v1/acme/x"), of("/v1//%61cme;v=2/y"), of("/v1/shop")] == [2, 0, 2]
        assert connection.request("/v1/shop/../acme").status == 400, "servers read it in two ways"


def test_stranger_takes_no_limit_of_another_by_its_name(fleet: Fleet) -> None:
    log = fleet.directory / "access.log"
    named = '[customers."127.0.0.2"]\nrequests_per_second = 0.01\nburst = 4\n[customers."path:acme"]\nrequests_per_second = 0.01\nburst = 3\n'
    sources = 'customer = [{ path_segment = 1 }, "address"]'
    proxy = plimsoll(fleet, sources, f'{named}[access_log]\npath = "{log}"\n', "requests_per_second = 0.01\nburst = 2")
    with connect(proxy.port) as stranger:
        of = lambda path: [stranger.request(path).status for _ in range(6)].count(200)  # noqa: E731
        assert [of("/127.0.0.2"), of("/acme"), of("/path:acme")] == [2, 3, 2]
    assert statuses(proxy.port, 6, "127.0.0.2").count(200) == 4, "nobody took its requests"
    metric = lambda name: proxy.admin.metric("plimsoll_request_limit_decisions_total", customer=name, decision="admitted")  # noqa: E731
    assert [metric(name) for name in ("127.0.0.2", "path:acme", "other")] == [4, 3, 4]
    told = proxy.admin.json("/api/v1/explain?customer=path:127.0.0.2&last=1")["requests"]
    assert [request["path"] for request in told] == ["/127.0.0.2"]
    wait_until("the log is written", lambda: log.exists() and log.read_text().count('"customer":"path:path:acme"') == 6)


def test_names_in_certificates_are_customers(fleet: Fleet, tmp_path: pathlib.Path) -> None:
    authority = Authority(tmp_path)
    server = authority.issue("server", "DNS:localhost")
    tls = f'[listeners.tls]\ncertificates = [{server.toml()}]\nclient_ca = "{authority.certificate}"\nclient_certificate = "required"'
    further = '[customers."shop.internal"]\nrequests_per_second = 0.01\nburst = 3\n'
    proxy = plimsoll(fleet, f'customer = "certificate"\n{tls}', further, "requests_per_second = 0.01\nburst = 1")
    for client, count in [("shop.internal", 3), ("crawler.internal", 1), ("shop.internal", 0)]:
        context = authority.client_context(authority.issue(client, f"DNS:{client}"))
        with Connection.secure(proxy.port, context, "localhost") as connection:
            assert [connection.request("/").status for _ in range(4)].count(200) == count, client


def test_limit_is_one_for_all_threads_and_protocols(fleet: Fleet) -> None:
    proxy = plimsoll(fleet, limit="requests_per_second = 0.01\nburst = 40")
    with concurrent.futures.ThreadPoolExecutor(16) as pool:
        counts = [count for count, _ in pool.map(lambda _: served(proxy.port, 10), range(16))]
    assert sum(counts) == 40


def test_exempt_route_and_dry_run_refuse_nothing(fleet: Fleet) -> None:
    further = '[[routes]]\npath_prefix = "/healthz"\nexempt = true\ncluster = "main"\n'
    proxy = plimsoll(fleet, further=further, limit="requests_per_second = 0.01\nburst = 1")
    with connect(proxy.port) as connection:
        assert [connection.request("/healthz").status for _ in range(20)] == [200] * 20
        assert [connection.request("/").status for _ in range(3)] == [200, 429, 429]
    dry = plimsoll(fleet, limit="requests_per_second = 0.01\nburst = 1\ndry_run = true")
    assert statuses(dry.port, 5) == [200] * 5
    metric = lambda decision: dry.admin.metric("plimsoll_request_limit_decisions_total", decision=decision)  # noqa: E731
    assert (metric("admitted"), metric("rate-limit")) == (5, 4)


def test_reload_keeps_buckets_and_applies_new_limits_at_once(fleet: Fleet) -> None:
    proxy = plimsoll(fleet, limit="requests_per_second = 0.01\nburst = 5")
    file = next(fleet.directory.glob("plimsoll-*.toml"))

    def reload(old: str, new: str) -> None:
        before = proxy.admin.metric("plimsoll_reloads_total", result="taken")
        text = file.read_text()
        assert old in text
        file.write_text(text.replace(old, new))
        proxy.signal(signal.SIGHUP)
        wait_until("it is in force", lambda: proxy.admin.metric("plimsoll_reloads_total", result="taken") > before)

    assert statuses(proxy.port, 8).count(200) == 5
    reload("burst = 5", "burst = 10")
    assert statuses(proxy.port, 8).count(200) == 0, "an empty bucket stays empty"
    assert statuses(proxy.port, 12, "127.0.0.2").count(200) == 10
    reload("requests_per_second = 0.01", "requests_per_second = 1000")
    wait_until("tokens are earned at the new rate", lambda: statuses(proxy.port, 1) == [200], 2)


@pytest.mark.parametrize("customer", ["", 'customer = "address"', 'customer = { key = "x-api-key" }'])
def test_greedy_client_waits_at_its_slots_and_another_is_served_at_once(fleet: Fleet, customer: str) -> None:
    release, arrived = threading.Event(), threading.Semaphore(0)

    def hold(connection: Connection, request: Message) -> None:
        connection.read_body(request, to_close=False)
        if "/slow" in request.start:
            arrived.release()
            release.wait(30)
        answer(connection)

    limit = "max_active_requests_per_client = 3"
    few = "[other_customers]\nrequests_per_second = 1000\n" if customer else ""
    proxy = fleet.proxy([fleet.origin(hold)], listener=customer, cluster=limit, further=few)
    proxy.admin.wait_for_healthy(1)

    def slow(number: int) -> int:
        with connect(proxy.port, "127.0.0.2") as connection:
            # An invented key is worth no slot.
            return connection.request("/slow", fields=f"x-api-key: {number}\r\n").status

    with concurrent.futures.ThreadPoolExecutor(10) as pool:
        greedy = [pool.submit(slow, number) for number in range(10)]
        try:
            assert all(arrived.acquire(timeout=10) for _ in range(3))
            wait_until("the others wait", lambda: proxy.admin.clusters()[0]["waiting"] == 7)
            assert statuses(proxy.port, 50) == [200] * 50
            assert not arrived.acquire(blocking=False), "no more than its slots"
        finally:
            release.set()
        assert [request.result(30) for request in greedy] == [200] * 10
