"""`plimsoll quota` beyond one machine: TLS, and rights by the names in certificates."""

import json
import pathlib
import signal
import socket
import ssl
import urllib.error
import urllib.request
from collections.abc import Iterator

import grpc
import pytest

from harness.certificates import Authority, Certificate
from harness.fleet import PLIMSOLL, UNTIL_FINISHED, Backend, Fleet, Proxy, finish
from harness.process import run, wait_until

# Rates follow the load within some tens of milliseconds, which need a free core.
pytestmark = pytest.mark.alone

JOIN = "/plimsoll.quota.v1.Quota/Join"
SHOP, OTHER, SRE = "spiffe://td/shop/a", "spiffe://td/other", "spiffe://td/sre"


class Site:
    """A quota server with TLS for the service `shop`, and certificates for each role.

    `service` are further settings of the service.
    """

    def __init__(self, fleet: Fleet, limit: float = 0, service: str = ""):
        self.fleet, self.service = fleet, service
        self.authority = Authority(fleet.directory, "fleet")
        # The one that vouches for the server.
        self.trusted = self.authority
        self.stranger = Authority(fleet.directory, "stranger")
        self.server_files = self.issue_server()
        self.shop = self.authority.issue("shop", f"URI:{SHOP}", "DNS:a.shop.internal")
        self.other = self.authority.issue("other", f"URI:{OTHER}")
        self.sre = self.authority.issue("sre", f"URI:{SRE}")
        self.unknown = self.stranger.issue("unknown", f"URI:{SHOP}")

        self.server, self.path = fleet.quota_with(lambda port, admin: self.text(port, admin, limit))

    def issue_server(self) -> Certificate:
        return self.authority.issue("quota", "DNS:localhost", "IP:127.0.0.1")

    def text(self, port: int, admin: int, limit: float, reporters: str = "spiffe://td/shop/*") -> str:
        return f"""
listen = "0.0.0.0:{port}"
[admin]
listen = "0.0.0.0:{admin}"
operators = ["{SRE}"]
[tls]
certificates = [{self.server_files.toml()}]
client_ca = "{self.authority.certificate}"
client_certificate = "required"
[services.shop]
reporters = ["{reporters}"]
{self.service}
[services.shop.customers.acme]
hard_limit = {limit}
"""

    def backend(self, client: Certificate | None, *more: str) -> Backend:
        files = [] if client is None else self.flags(client)
        arguments = ["--emulate", "fcfs", "--cost", "fixed:1ms", "--protect", "--quota", self.server.address]
        return self.fleet.backend(*arguments, "--quota-service", "shop", *files, *more)

    def flags(self, client: Certificate) -> list[str]:
        names = {"ca": self.authority.certificate, "cert": client.certificate, "key": client.key}
        return [word for name, path in names.items() for word in (f"--quota-tls-{name}", str(path))]

    def refused(self, backend: Backend | Proxy, customers: str = "acme=1") -> float:
        """The part of the requests of a second that is refused."""
        url = f"http://127.0.0.1:{backend.port}/"
        done = self.fleet.load_now(url, "--rate", "100", "--duration", "1s", "--customers", customers)
        return done.failed / done.requests

    def get(
        self, path: str, client: Certificate | None, method: str = "GET", body: dict | None = None
    ) -> tuple[int, str]:
        url = f"https://127.0.0.1:{self.server.admin.port}{path}"
        data = None if body is None else json.dumps(body).encode()
        asked = urllib.request.Request(url, data=data, method=method)
        try:
            with urllib.request.urlopen(asked, timeout=5, context=self.trusted.client_context(client)) as answer:
                return answer.status, answer.read().decode()
        except urllib.error.HTTPError as error:
            return error.code, error.read().decode()

    def metric(self, name: str, *labels: str) -> float:
        lines = self.get("/metrics", self.other)[1].splitlines()
        found = [line for line in lines if line.startswith(name) and all(label in line for label in labels)]
        return sum(float(line.rsplit(" ", 1)[1]) for line in found)

    def streams(self, result: str) -> float:
        return self.metric("plimsoll_quota_streams_total{", 'service="shop"', f'result="{result}"')

    def failed(self, reason: str) -> float:
        return self.metric("plimsoll_quota_failed_handshakes_total{", f'reason="{reason}"')

    def tasks(self) -> int:
        state = json.loads(self.get("/api/v1/quota/shop", self.other)[1])
        return sum(task["connected"] for task in state["instances"])

    def wait_for_tasks(self, count: int) -> None:
        wait_until(f"{count} tasks", lambda: self.tasks() == count, 15)

    def reload(self, text: str) -> None:
        before = self.server.output().count("config reloaded")
        self.path.write_text(text)
        self.server.signal(signal.SIGHUP)
        wait_until("the reload", lambda: self.server.output().count("config reloaded") > before)


@pytest.fixture
def site(fleet: Fleet) -> Iterator[Site]:
    yield Site(fleet)


def test_task_with_the_right_name_is_limited_and_others_are_refused(site: Site) -> None:
    shop = site.backend(site.shop)
    site.wait_for_tasks(1)
    assert "quota server connected" in shop.output()
    wait_until("all are refused", lambda: site.refused(shop) == 1, 20)

    wrong = site.backend(site.other)
    denied = f"the certificate has the names (SAN) {OTHER}, and services.shop.reporters of the quota server has none of it"
    wait_until("the error is logged", lambda: denied in wrong.output())
    wait_until("it is counted", lambda: site.streams("denied") >= 1)
    assert denied in site.server.output()

    unknown = site.backend(site.unknown)
    wait_until("the error is logged", lambda: "received fatal alert: " in unknown.output())
    wait_until("it is counted", lambda: site.failed("client-certificate") >= 1)

    plain = site.backend(None)
    wait_until("the error is logged", lambda: "the server speaks TLS, and this task does not" in plain.output())
    wait_until("it is counted", lambda: site.failed("plain-http") >= 1)

    # They refuse nothing, and the task of the service notices nothing.
    assert [site.refused(each) for each in (wrong, unknown, plain)] == [0, 0, 0]
    assert site.tasks() == 1 and site.refused(shop) == 1 and site.refused(shop, "web=1") == 0
    assert shop.output().count("quota server connected") == 1 and site.streams("joined") == 1


def test_task_without_a_certificate_is_refused(site: Site) -> None:
    credentials = grpc.ssl_channel_credentials(site.authority.certificate.read_bytes())
    with grpc.secure_channel(f"localhost:{site.server.port}", credentials) as channel:
        join = channel.stream_stream(JOIN, request_serializer=lambda it: it, response_deserializer=lambda it: it)
        with pytest.raises(grpc.RpcError) as raised:
            list(join(iter([]), timeout=10))
    assert raised.value.code() == grpc.StatusCode.UNAVAILABLE
    assert site.failed("client-certificate") >= 1


def test_other_client_gets_permission_denied(site: Site) -> None:
    credentials = grpc.ssl_channel_credentials(
        site.authority.certificate.read_bytes(), site.other.key.read_bytes(), site.other.certificate.read_bytes()
    )
    # ToOwner { hello { service, instance, cpus, speed } }
    one = b"\x00\x00\x00\x00\x00\x00\xf0\x3f"
    fields = b"\x0a\x04shop\x12\x01x\x19" + one + b"\x21" + one
    hello = b"\x0a" + bytes([len(fields)]) + fields
    with grpc.secure_channel(f"localhost:{site.server.port}", credentials) as channel:
        join = channel.stream_stream(JOIN, request_serializer=lambda it: it, response_deserializer=lambda it: it)
        with pytest.raises(grpc.RpcError) as raised:
            list(join(iter([hello]), timeout=10))
    assert raised.value.code() == grpc.StatusCode.PERMISSION_DENIED, raised.value
    assert OTHER in raised.value.details() and "services.shop.reporters" in raised.value.details()
    assert site.streams("denied") == 1


def test_only_an_operator_changes_a_limit_over_tls(site: Site) -> None:
    shop = site.backend(site.shop)
    site.wait_for_tasks(1)
    wait_until("all are refused", lambda: site.refused(shop) == 1, 20)
    path = "/api/v1/quota/shop/customers/acme/limit"
    for client in (site.shop, site.other):
        for method, body in (("PUT", {"hard_limit": 5}), ("DELETE", None)):
            status, answer = site.get(path, client, method, body)
            assert status == 403 and "admin.operators of the quota server has none of it" in answer, answer
    status, answer = site.get(path, site.sre, "PUT", {"hard_limit": 5})
    assert status == 200 and json.loads(answer)["limit_cpus"] == 5, answer
    wait_until("none is refused", lambda: site.refused(shop) == 0, 20)
    assert site.get(path, site.sre, "DELETE")[0] == 200
    # Without a certificate, or with one of another authority, nothing is read.
    for stranger in (None, site.unknown):
        with pytest.raises((urllib.error.URLError, ConnectionError, ssl.SSLError)):
            site.get("/api/v1/quota", stranger)


def test_renewed_certificates_and_rights_are_taken_by_sighup(site: Site) -> None:
    shop = site.backend(site.shop)
    site.wait_for_tasks(1)

    def serial(port: int) -> str:
        context = site.authority.client_context(site.shop)
        with socket.create_connection(("127.0.0.1", port), timeout=5) as plain:
            with context.wrap_socket(plain, server_hostname="localhost") as client:
                return client.getpeercert()["serialNumber"]

    ports = (site.server.port, site.server.admin.port)
    before = [serial(port) for port in ports]
    site.issue_server()
    assert [serial(port) for port in ports] == before
    text = site.text(*ports, 0)
    site.reload(text)
    after = [serial(port) for port in ports]
    assert all(old != new for old, new in zip(before, after))
    assert site.tasks() == 1 and shop.output().count("quota server connected") == 1, "the stream lived on"

    # A key that is none changes nothing.
    good = site.server_files.key.read_text()
    site.server_files.key.write_text("no key\n")
    site.server.signal(signal.SIGHUP)
    wait_until("the refusal", lambda: "nothing has changed" in site.server.output())
    assert [serial(port) for port in ports] == after
    site.server_files.key.write_text(good)

    # A task without the right loses its stream, and has it back with the right.
    site.reload(site.text(*ports, 0, reporters="spiffe://td/nobody"))
    site.wait_for_tasks(0)
    wait_until("the task knows why", lambda: "services.shop.reporters" in shop.output())
    site.reload(text)
    site.wait_for_tasks(1)


def test_task_takes_its_renewed_certificate_with_the_next_connection(site: Site) -> None:
    files = site.authority.issue("task", f"URI:{OTHER}")
    task = site.backend(files)
    wait_until("it is refused", lambda: "services.shop.reporters" in task.output())
    site.authority.issue("task", f"URI:{SHOP}")
    wait_until("it joins", lambda: site.tasks() == 1, 20)


def test_silent_handshakes_are_bounded_and_tasks_notice_nothing(site: Site) -> None:
    shop = site.backend(site.shop)
    site.wait_for_tasks(1)
    silent = [socket.create_connection(("127.0.0.1", site.server.port), timeout=10) for _ in range(300)]
    halves = [socket.create_connection(("127.0.0.1", site.server.admin.port), timeout=10) for _ in range(20)]
    for each in halves:
        each.sendall(b"\x16\x03\x01\x02\x00\x01")
    # 256 at a time: the oldest end at once.
    for each in silent[:44]:
        assert each.recv(1) == b""
    another = site.backend(site.shop)
    site.wait_for_tasks(2)
    wait_until("all are refused", lambda: site.refused(another) == 1, 20)
    for each in silent + halves:
        assert each.recv(1) == b"", "the time is over"
        each.close()
    assert site.failed("crowded") >= 44 and site.failed("timeout") >= 200
    assert site.refused(shop) == 1 and shop.output().count("quota server connected") == 1


def test_proxy_joins_over_tls(site: Site) -> None:
    backend = site.fleet.backend("--cost", "fixed:1ms")
    further = f"""
[clusters.main.inbound]
pid = {backend.pid}
cpus = 1.0
[quota]
servers = ["localhost:{site.server.port}"]
service = "shop"
[quota.tls]
ca = "{site.authority.certificate}"
certificate = "{site.shop.certificate}"
key = "{site.shop.key}"
"""
    proxy = site.fleet.proxy([backend.address], listener='customer_header = "x-customer"', further=further)
    proxy.admin.wait_for_healthy(1)
    wait_until("the process is seen", lambda: proxy.admin.metric("plimsoll_inbound_process_seen", cluster="main") == 1)
    site.wait_for_tasks(1)
    wait_until("all are refused", lambda: site.refused(proxy) == 1, 20)
    assert site.refused(proxy, "web=1") == 0


class Sidecar:
    """A proxy as a task of the service, with a load of a customer without a limit that runs through all reloads."""

    def __init__(self, site: Site):
        self.site = site
        backend = site.fleet.backend("--cost", "fixed:2ms")
        inbound = f"[clusters.main.inbound]\npid = {backend.pid}\ncpus = 1.0\n"
        self.proxy = site.fleet.proxy([backend.address], listener='customer_header = "x-customer"', further=inbound)
        self.path = next(site.fleet.directory.glob("plimsoll-*.toml"))
        self.text = self.path.read_text()
        self.proxy.admin.wait_for_healthy(1)
        seen = "plimsoll_inbound_process_seen"
        wait_until("the process is seen", lambda: self.proxy.admin.metric(seen, cluster="main") == 1)
        arguments = ["--rate", "50", "--duration", UNTIL_FINISHED, "--customers", "web=1"]
        self.web = site.fleet.load(self.proxy.url, *arguments)

    def reload(self, authority: pathlib.Path) -> None:
        """Has the proxy trust this authority."""
        before = self.proxy.output().count("config reloaded")
        self.path.write_text(f"""{self.text}
[quota]
servers = ["localhost:{self.site.server.port}"]
service = "shop"
[quota.tls]
ca = "{authority}"
certificate = "{self.site.shop.certificate}"
key = "{self.site.shop.key}"
""")
        self.proxy.signal(signal.SIGHUP)
        wait_until("the reload", lambda: self.proxy.output().count("config reloaded") > before)

    def connected(self) -> int:
        return self.proxy.output().count("quota server connected")

    def refused(self) -> float:
        """The part of a second's requests of acme that is refused; it asks for four times its limit."""
        arguments = ["--rate", "100", "--arrival", "uniform", "--duration", "1s", "--customers", "acme=1"]
        done = self.site.fleet.load_now(self.proxy.url, *arguments)
        return done.failed / done.requests


def test_proxy_joins_anew_when_a_reload_changes_its_trust(site: Site) -> None:
    ports = (site.server.port, site.server.admin.port)
    site.reload(site.text(*ports, 0.05))
    sidecar = Sidecar(site)
    assert sidecar.refused() == 0
    sidecar.reload(site.authority.certificate)
    site.wait_for_tasks(1)
    wait_until("the limit is in force", lambda: sidecar.refused() > 0.5, 20)
    assert (site.streams("joined"), sidecar.connected()) == (1, 1)

    # The same authority at another path is no other trust: the stream lives on.
    moved = site.fleet.directory / "moved.pem"
    moved.write_bytes(site.authority.certificate.read_bytes())
    sidecar.reload(moved)
    assert sidecar.refused() > 0.5

    # Another authority vouches for the server from now on. Its open streams go on until the trust of the proxy changes.
    second = Authority(site.fleet.directory, "second")
    site.server_files = second.issue("quota-of-second", "DNS:localhost", "IP:127.0.0.1")
    site.reload(site.text(*ports, 0.05))
    site.trusted = second
    assert (site.streams("joined"), sidecar.connected(), site.tasks()) == (1, 1, 1)
    sidecar.reload(second.certificate)
    wait_until("it joins anew", lambda: site.streams("joined") == 2)
    wait_until("it knows", lambda: sidecar.connected() == 2)
    assert site.tasks() == 1, "the former stream has ended"
    # At once, since the gate keeps its rates.
    assert sidecar.refused() > 0.5

    # A wrong authority: no stream, and the limit holds by the lease.
    sidecar.reload(site.stranger.certificate)
    cause = "no TLS with the server: invalid peer certificate: UnknownIssuer"
    wait_until("the cause is logged", lambda: cause in sidecar.proxy.output())
    assert "quota server unreachable: limits hold by leases" in sidecar.proxy.output()
    wait_until("the server knows", lambda: site.tasks() == 0)
    assert sidecar.refused() > 0.5
    assert site.failed("client-certificate") == 0 and site.streams("joined") == 2

    sidecar.reload(second.certificate)
    wait_until("it joins again", lambda: site.tasks() == 1)
    assert sidecar.refused() > 0.5
    (web,) = finish(sidecar.proxy, sidecar.web)
    assert web.failed == 0 and web.requests > 300, web.raw["groups"]["by_customer"]


def test_live_page_needs_a_certificate_as_the_api_does(site: Site) -> None:
    """Any certificate of the CA reads; what changes limits is for operators."""
    assert "quota-customers" in site.get("/live/", site.other)[1]
    live = json.loads(site.get("/api/v1/live?service=shop", site.other)[1])
    assert (live["process"]["kind"], live["service"]["customers"][0]["name"]) == ("quota", "acme")
    url = f"https://127.0.0.1:{site.server.admin.port}/api/v1/live/stream"
    with urllib.request.urlopen(url, timeout=5, context=site.authority.client_context(site.other)) as answer:
        events = [line.strip() for line, _ in zip(answer, range(12)) if line.startswith(b"event")]
        assert events[:3] == [b"event: history", b"event: live", b"event: live"]
    for nobody in (None, site.unknown):
        with pytest.raises((urllib.error.URLError, ssl.SSLError, ConnectionError)):
            site.get("/live/", nobody)


def test_probes_need_a_certificate(site: Site) -> None:
    for path, text in (("/readyz", "ready\n"), ("/healthz", "ok\n")):
        assert site.get(path, site.other) == (200, text)
        for stranger in (None, site.unknown):
            with pytest.raises((urllib.error.URLError, ConnectionError, ssl.SSLError)):
                site.get(path, stranger)
    # At the address for tasks too.
    with socket.create_connection(("127.0.0.1", site.server.port), timeout=5) as plain:
        context = site.authority.client_context(site.other, ("http/1.1",))
        with context.wrap_socket(plain, server_hostname="localhost") as client:
            client.sendall(b"GET /readyz HTTP/1.1\r\nhost: localhost\r\n\r\n")
            assert client.recv(1 << 12).startswith(b"HTTP/1.1 200 ")


def test_check_names_what_is_missing(site: Site) -> None:
    ports = (site.server.port, site.server.admin.port)
    text = site.text(*ports, 0)
    for old, new, problem in [
        ("[tls]", "[tsl]", "tsl"),
        ('client_certificate = "required"', "", "client_ca: has no effect"),
        ('client_certificate = "required"', 'client_certificate = "optional"', 'tls.client_certificate: is not "required"'),
        ('reporters = ["spiffe://td/shop/*"]', "", "has no reporters: no task may join"),
        (str(site.server_files.key), "/nonexistent.key", "tls.certificates[0].key: /nonexistent.key cannot be read"),
        (SRE, "not a name", "is not the name of a client"),
    ]:
        assert old in text
        path = site.fleet.directory / "bad.toml"
        path.write_text(text.replace(old, new))
        done = run([PLIMSOLL, "check", "-c", str(path)])
        assert done.returncode == 1 and problem in done.stderr, (problem, done.stderr)
    path.write_text('listen = "0.0.0.0:9800"\n[services.shop]\n')
    done = run([PLIMSOLL, "check", "-c", str(path)])
    assert "is open to the network, and callers are not authenticated without [tls]" in done.stderr, done.stderr
    assert "add [tls] with certificates and client_ca" in done.stderr, done.stderr
    assert run([PLIMSOLL, "check", "-c", str(site.path)]).returncode == 0


def test_server_stays_after_junk(site: Site) -> None:
    for junk in (b"\x16\x03\x01\xff\xff" + bytes(100), b"GET / HTTP/1.1\r\n\r\n", b"\x00" * 100, b""):
        with socket.create_connection(("127.0.0.1", site.server.port), timeout=10) as plain:
            plain.sendall(junk)
            plain.shutdown(socket.SHUT_WR)
            try:
                while plain.recv(1 << 16):
                    pass
            except ConnectionError:
                pass
    shop = site.backend(site.shop)
    site.wait_for_tasks(1)
    assert site.server.exit_code is None and shop.exit_code is None
