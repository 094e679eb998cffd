"""TLS towards clients and towards backends, looked at by openssl, sslyze and Python's ssl."""

import json
import signal
import socket
import ssl
import sys
import time
from collections.abc import Iterator

import pytest

from harness import http2
from harness.certificates import Authority, Certificate
from harness.exchange import Backend, serve_http2
from harness.fleet import PLIMSOLL, Fleet, Proxy, config
from harness.http1 import Closed, Connection, Handler, Message, answer
from harness.process import find_program, free_port, run, wait_until

SPIFFE = "spiffe://example.com/web"


def who(name: str) -> Handler:
    """A handler that answers with its own name."""

    def handler(connection: Connection, request: Message) -> None:
        connection.read_body(request, to_close=False)
        answer(connection, name.encode())

    return handler


class Site:
    """A proxy with two certificates, that asks clients for theirs and knows one of them."""

    def __init__(self, fleet: Fleet):
        self.fleet = fleet
        self.authority = Authority(fleet.directory)
        self.stranger = Authority(fleet.directory, "stranger")
        self.clients = Authority(fleet.directory, "clients")
        first = self.authority.issue("first", "DNS:a.example", "IP:127.0.0.1")
        second = self.authority.issue("second", "DNS:b.example", "DNS:*.b.example")
        self.client = self.clients.issue("web", f"URI:{SPIFFE}", "DNS:web.example.com")
        self.other_client = self.clients.issue("batch", "URI:spiffe://example.com/batch")
        self.unknown_client = self.stranger.issue("unknown", f"URI:{SPIFFE}")
        tls = f"""header_read_timeout = "1s"
[listeners.tls]
certificates = [{first.toml()}, {second.toml()}]
client_ca = "{self.clients.certificate}"
client_certificate = "optional"
"""
        routes = f"""
[[routes]]
client_names = ["{SPIFFE}"]
cluster = "known"

[clusters.known]
backends = ["{fleet.origin(who("known"))}"]
"""
        self.proxy = fleet.proxy([fleet.origin(who("public"))], listener=tls, further=routes)
        wait_until("ready", lambda: self.proxy.admin.get("/readyz")[0] == 200)

    def connect(
        self, name: str | None = "a.example", client: Certificate | None = None, alpn: tuple[str, ...] = ()
    ) -> Connection:
        return Connection.secure(self.proxy.port, self.authority.client_context(client, alpn), name)


@pytest.fixture(scope="module")
def site(module_fleet: Fleet) -> Iterator[Site]:
    yield Site(module_fleet)


def s_client(port: int, *arguments: str) -> tuple[int, str]:
    command = [find_program("openssl"), "s_client", "-connect", f"127.0.0.1:{port}", "-brief", *arguments]
    done = run(["sh", "-c", 'exec "$@" </dev/null', "sh", *command], 20)
    return done.returncode, done.stdout + done.stderr


@pytest.mark.parametrize("version", ["-tls1", "-tls1_1"])
def test_old_versions_are_refused(site: Site, version: str) -> None:
    code, said = s_client(site.proxy.port, version, "-cipher", "ALL:@SECLEVEL=0")
    assert code != 0, said


@pytest.mark.parametrize(("version", "name"), [("-tls1_2", "TLSv1.2"), ("-tls1_3", "TLSv1.3")])
def test_current_versions_are_spoken(site: Site, version: str, name: str) -> None:
    code, said = s_client(site.proxy.port, version, "-CAfile", str(site.authority.certificate), "-verify_return_error")
    assert code == 0, said
    assert f"Protocol version: {name}" in said, said


def test_only_sound_ciphers_are_offered(site: Site) -> None:
    result = site.fleet.directory / "sslyze.json"
    scans = [
        "--sslv2",
        "--sslv3",
        "--tlsv1",
        "--tlsv1_1",
        "--tlsv1_2",
        "--tlsv1_3",
        "--compression",
        "--heartbleed",
        "--openssl_ccs",
        "--reneg",
    ]
    done = run([sys.executable, "-m", "sslyze", *scans, f"--json_out={result}", f"127.0.0.1:{site.proxy.port}"], 90)
    found = json.loads(result.read_text())["server_scan_results"][0]
    assert found["scan_status"] == "COMPLETED", done.stdout
    scan = {name: entry["result"] for name, entry in found["scan_result"].items() if entry and entry["result"]}
    for old in ("ssl_2_0", "ssl_3_0", "tls_1_0", "tls_1_1"):
        assert scan[f"{old}_cipher_suites"]["accepted_cipher_suites"] == [], old
    for current in ("tls_1_2", "tls_1_3"):
        accepted = [suite["cipher_suite"]["name"] for suite in scan[f"{current}_cipher_suites"]["accepted_cipher_suites"]]
        assert accepted
        for name in accepted:
            assert "GCM" in name or "CHACHA20" in name, name
            assert current == "tls_1_3" or "_ECDHE_" in name, name
    assert not scan["tls_compression"]["supports_compression"]
    assert not scan["heartbleed"]["is_vulnerable_to_heartbleed"]
    assert not scan["openssl_ccs_injection"]["is_vulnerable_to_ccs_injection"]
    assert not scan["session_renegotiation"]["is_vulnerable_to_client_renegotiation_dos"]


def names_of(connection: Connection) -> set[str]:
    certificate = connection.sock.getpeercert()  # type: ignore[attr-defined]
    return {value for kind, value in certificate["subjectAltName"] if kind == "DNS"}


@pytest.mark.parametrize(
    ("asked", "got"),
    [("a.example", "a.example"), ("b.example", "b.example"), ("x.b.example", "b.example"), ("127.0.0.1", "a.example")],
)
def test_name_that_is_asked_for_picks_the_certificate(site: Site, asked: str, got: str) -> None:
    with site.connect(asked) as client:
        assert got in names_of(client)
        assert client.request("/").body == b"public"


def test_client_of_an_unknown_name_gets_the_first_certificate(site: Site) -> None:
    context = site.authority.client_context()
    context.check_hostname = False
    with Connection.secure(site.proxy.port, context, "unknown.example") as client:
        assert "a.example" in names_of(client)


@pytest.mark.parametrize(
    ("offered", "chosen"), [(("h2", "http/1.1"), "h2"), (("http/1.1", "h2"), "h2"), (("http/1.1",), "http/1.1"), ((), None)]
)
def test_protocol_is_settled_in_the_handshake(site: Site, offered: tuple[str, ...], chosen: str | None) -> None:
    with site.connect(alpn=offered) as client:
        assert client.sock.selected_alpn_protocol() == chosen  # type: ignore[attr-defined]
        if chosen != "h2":
            assert client.request("/").status == 200


def test_http2_is_spoken_over_tls(site: Site) -> None:
    client = http2.Connection(site.connect(alpn=("h2",)).sock)
    with client:
        fields = [(b":method", b"GET"), (b":scheme", b"https"), (b":authority", b"a.example"), (b":path", b"/")]
        answered = client.fetch(1, fields)
        assert (answered.status, answered.body) == (200, b"public")


def test_certificate_of_a_client_chooses_its_route(site: Site) -> None:
    for client, body in ((None, b"public"), (site.client, b"known"), (site.other_client, b"public")):
        with site.connect(client=client) as connection:
            assert connection.request("/").body == body


def test_client_of_a_strange_authority_is_refused_and_counted(site: Site) -> None:
    before = site.proxy.admin.metric("plimsoll_failed_handshakes_total", reason="client-certificate")
    with pytest.raises((ssl.SSLError, ConnectionError, Closed)):
        with site.connect(client=site.unknown_client) as client:
            client.request("/")  # in TLS 1.3 the client learns of it with the first answer
    wait_until(
        "it is counted",
        lambda: site.proxy.admin.metric("plimsoll_failed_handshakes_total", reason="client-certificate") == before + 1,
    )


@pytest.mark.parametrize("version", [ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3])
def test_sessions_are_resumed_on_every_thread(fleet: Fleet, version: ssl.TLSVersion) -> None:
    authority = Authority(fleet.directory)
    listener = f"[listeners.tls]\ncertificates = [{authority.issue('site', 'DNS:a.example').toml()}]\n"
    proxy = fleet.proxy([fleet.origin(who("public"))], listener=listener)
    proxy.admin.wait_for_healthy(1)
    assert resumptions(proxy, authority.client_context(), version) == 8
    assert proxy.admin.metric("plimsoll_tls_handshakes_total", kind="resumed") == 8


@pytest.mark.parametrize("version", [ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3])
def test_no_session_stands_for_the_certificate_of_a_client(site: Site, version: ssl.TLSVersion) -> None:
    assert resumptions(site.proxy, site.authority.client_context(site.client), version) == 0


def resumptions(proxy: Proxy, context: ssl.SSLContext, version: ssl.TLSVersion) -> int:
    """How many of eight connections go on with the session of the one before."""
    context.minimum_version = context.maximum_version = version
    with Connection.secure(proxy.port, context, "a.example") as client:
        client.request("/")
        session = client.sock.session  # type: ignore[attr-defined]
    resumed = 0
    for _ in range(8):
        plain = socket.create_connection(("127.0.0.1", proxy.port), timeout=10)
        with Connection(context.wrap_socket(plain, server_hostname="a.example", session=session)) as client:
            assert client.request("/").status == 200
            resumed += client.sock.session_reused  # type: ignore[attr-defined]
            session = client.sock.session  # type: ignore[attr-defined]
    return resumed


def test_proxy_header_comes_before_the_handshake(fleet: Fleet) -> None:
    seen: list[Message] = []

    def handler(connection: Connection, request: Message) -> None:
        seen.append(request)
        answer(connection)

    authority = Authority(fleet.directory)
    listener = f"""trusted_proxies = ["127.0.0.1"]
proxy_protocol = "any"
[listeners.tls]
certificates = [{authority.issue("site", "DNS:site.example").toml()}]
"""
    proxy = fleet.proxy([fleet.origin(handler)], listener=listener)
    proxy.admin.wait_for_healthy(1)
    plain = socket.create_connection(("127.0.0.1", proxy.port), timeout=10)
    plain.sendall(b"PROXY TCP4 192.0.2.7 192.0.2.1 5000 443\r\n")
    with Connection(authority.client_context().wrap_socket(plain, server_hostname="site.example")) as client:
        assert client.request("/").status == 200
    assert (seen[-1].get("x-forwarded-for"), seen[-1].get("x-forwarded-proto")) == ("192.0.2.7", "https")


def test_plain_http_on_a_tls_port_is_answered_plainly_or_closed(site: Site) -> None:
    with Connection.to(site.proxy.port) as client:
        client.send("GET / HTTP/1.1\r\nhost: a.example\r\n\r\n")
        try:
            assert client.read_response().status == 400
        except (Closed, ConnectionError):
            pass
    wait_until("it is counted", lambda: site.proxy.admin.metric("plimsoll_failed_handshakes_total", reason="plain-http") >= 1)


@pytest.mark.parametrize("sent", [b"", b"\x16", b"\x16\x03\x01\x02\x00\x01\x00"])
def test_client_that_never_ends_its_handshake_is_let_go(site: Site, sent: bytes) -> None:
    before = site.proxy.admin.metric("plimsoll_failed_handshakes_total", reason="timeout")
    with Connection.to(site.proxy.port) as client:
        began = time.monotonic()
        client.send(sent)
        assert client.at_end()
        assert time.monotonic() - began < 4
    wait_until(
        "it is counted", lambda: site.proxy.admin.metric("plimsoll_failed_handshakes_total", reason="timeout") == before + 1
    )


@pytest.mark.parametrize("name", ["site.example:8443", "not a host\nWARN forged"], ids=["port", "text"])
def test_server_name_that_is_no_host_is_counted_and_not_logged(site: Site, name: str) -> None:
    before = site.proxy.admin.metric("plimsoll_failed_handshakes_total", reason="server-name")
    context = site.authority.client_context()
    incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
    # A name without its port is as long, so that the lengths around it stay right.
    plain = "x" * len(name.encode())
    handshake = context.wrap_bio(incoming, outgoing, server_hostname=plain)
    with pytest.raises(ssl.SSLWantReadError):
        handshake.do_handshake()
    hello = outgoing.read()
    assert hello.count(plain.encode()) == 1
    with Connection.to(site.proxy.port) as client:
        client.send(hello.replace(plain.encode(), name.encode()))
        # An alert, and the end.
        assert client.sock.recv(1 << 16)[:1] == b"\x15"
    wait_until(
        "it is counted",
        lambda: site.proxy.admin.metric("plimsoll_failed_handshakes_total", reason="server-name") == before + 1,
    )
    assert name.split(":")[0] not in site.proxy.output() and "rustls" not in site.proxy.output()


def test_junk_instead_of_a_handshake_is_refused(site: Site) -> None:
    before = site.proxy.admin.metric("plimsoll_failed_handshakes_total")
    for junk in (bytes(100), b"\x16\x03\x01\xff\xff" + bytes(100), b"SSH-2.0-x\r\n", b"\x80\x2e\x01\x03\x01"):
        with Connection.to(site.proxy.port) as client:
            client.send(junk)
            try:
                while client.sock.recv(1 << 16):
                    pass  # an alert
            except ConnectionError:
                pass
    wait_until("they are counted", lambda: site.proxy.admin.metric("plimsoll_failed_handshakes_total") >= before + 4)
    with site.connect() as client:
        assert client.request("/").status == 200


def test_certificate_that_changes_comes_into_force_with_a_reload(site: Site) -> None:
    def serial() -> str:
        with site.connect() as client:
            return client.sock.getpeercert()["serialNumber"]  # type: ignore[attr-defined]

    proxy = site.proxy
    first = serial()
    with site.connect() as kept:
        assert kept.request("/").status == 200
        files = site.authority.issue("first", "DNS:a.example", "IP:127.0.0.1")
        assert serial() == first, "not before the reload"
        proxy.signal(signal.SIGHUP)
        wait_until("the certificate is another", lambda: serial() != first)
        second = serial()
        # What cannot be used changes nothing.
        good = files.key.read_text()
        files.key.write_text("no key\n")
        refused = proxy.admin.metric("plimsoll_reloads_total", result="refused")
        proxy.signal(signal.SIGHUP)
        wait_until("the reload is refused", lambda: proxy.admin.metric("plimsoll_reloads_total", result="refused") == refused + 1)
        assert serial() == second
        files.key.write_text(good)
        assert kept.request("/").status == 200, "the connection lived through all of it"


def test_bad_files_are_named_by_check(fleet: Fleet) -> None:
    authority = Authority(fleet.directory)
    one, other = authority.issue("one", "DNS:a.example"), authority.issue("other", "DNS:a.example")
    entries = {
        "no such file": f'{{ certificate = "/nonexistent.pem", key = "{one.key}" }}',
        "not PEM": f'{{ certificate = "/etc/hostname", key = "{one.key}" }}',
        "key of another": f'{{ certificate = "{one.certificate}", key = "{other.key}" }}',
    }
    for what, entry in entries.items():
        path = fleet.directory / "bad.toml"
        path.write_text(config(free_port(), free_port(), ["127.0.0.1:1"], listener=f"[listeners.tls]\ncertificates = [{entry}]"))
        done = run([PLIMSOLL, "check", "-c", str(path)])
        assert done.returncode == 1 and "tls" in done.stdout + done.stderr, f"{what}: {done.stdout}{done.stderr}"


# Towards backends.


class SecureBackend:
    """A backend that speaks TLS, and notes what it was asked for."""

    def __init__(self, fleet: Fleet, *names: str, ask_client: Authority | None = None):
        self.authority = Authority(fleet.directory, f"backends-{free_port()}")
        context = self.authority.server_context(self.authority.issue(f"backend-{free_port()}", *names))
        if ask_client is not None:
            context.verify_mode = ssl.CERT_REQUIRED
            context.load_verify_locations(ask_client.certificate)
        self.asked: list[str | None] = []
        self.clients: list[object] = []
        context.sni_callback = lambda _socket, name, _context: self.asked.append(name)
        self.address = fleet.origin(self.handle, context)

    def handle(self, connection: Connection, request: Message) -> None:
        connection.read_body(request, to_close=False)
        self.clients.append(connection.sock.getpeercert())  # type: ignore[attr-defined]
        answer(connection, b"secure")


def proxy_to(fleet: Fleet, backend: SecureBackend, tls: str, cluster: str = "") -> Proxy:
    return fleet.proxy([backend.address], cluster=cluster, further=f"[clusters.main.tls]\n{tls}")


def test_backend_is_verified_and_asked_for_by_name(fleet: Fleet) -> None:
    backend = SecureBackend(fleet, "DNS:backend.internal")
    proxy = proxy_to(fleet, backend, f'ca = "{backend.authority.certificate}"\nserver_name = "backend.internal"')
    proxy.admin.wait_for_healthy(1)
    with Connection.to(proxy.port) as client:
        for _ in range(3):
            assert client.request("/").body == b"secure"
        assert client.request("/", method="POST", body=bytes(1 << 20)).status == 200
    assert set(backend.asked) == {"backend.internal"}


def test_address_is_verified_where_no_name_is_given(fleet: Fleet) -> None:
    backend = SecureBackend(fleet, "IP:127.0.0.1")
    proxy = proxy_to(fleet, backend, f'ca = "{backend.authority.certificate}"')
    proxy.admin.wait_for_healthy(1)
    with Connection.to(proxy.port) as client:
        assert client.request("/").body == b"secure"


def test_backend_of_another_name_gets_no_request(fleet: Fleet) -> None:
    backend = SecureBackend(fleet, "DNS:other.internal")
    proxy = proxy_to(fleet, backend, f'ca = "{backend.authority.certificate}"\nserver_name = "backend.internal"')
    refused_everything(proxy, backend)


def test_backend_of_an_unknown_authority_gets_no_request(fleet: Fleet) -> None:
    backend = SecureBackend(fleet, "DNS:backend.internal")
    stranger = Authority(fleet.directory, "unrelated")
    proxy = proxy_to(fleet, backend, f'ca = "{stranger.certificate}"\nserver_name = "backend.internal"')
    refused_everything(proxy, backend)


def test_plain_backend_behind_tls_gets_no_request(fleet: Fleet) -> None:
    seen: list[Message] = []

    def handler(connection: Connection, request: Message) -> None:
        seen.append(request)
        answer(connection)

    authority = Authority(fleet.directory)
    proxy = fleet.proxy([fleet.origin(handler)], further=f'[clusters.main.tls]\nca = "{authority.certificate}"')
    with Connection.to(proxy.port) as client:
        assert client.request("/").status in (502, 503)
    assert not seen


def refused_everything(proxy: Proxy, backend: SecureBackend) -> None:
    with Connection.to(proxy.port) as client:
        response = client.request("/")
        assert response.status in (502, 503), response
        assert "reason=" in (response.get("x-plimsoll-shed") or ""), response.fields
    assert list(proxy.admin.states().values()) != ["healthy"]
    assert not backend.clients
    assert proxy.admin.metric("plimsoll_backend_connections_failed_total") > 0


def test_any_certificate_is_believed_where_that_is_said(fleet: Fleet) -> None:
    backend = SecureBackend(fleet, "DNS:other.internal")
    proxy = proxy_to(fleet, backend, "insecure_accept_any_certificate = true")
    proxy.admin.wait_for_healthy(1)
    with Connection.to(proxy.port) as client:
        assert client.request("/").body == b"secure"


def test_proxy_shows_its_certificate_to_backends_that_ask(fleet: Fleet) -> None:
    ours = Authority(fleet.directory, "ours")
    mine = ours.issue("proxy", "URI:spiffe://example.com/proxy")
    backend = SecureBackend(fleet, "DNS:backend.internal", ask_client=ours)
    tls = f'ca = "{backend.authority.certificate}"\nserver_name = "backend.internal"\ncertificate = "{mine.certificate}"\nkey = "{mine.key}"'
    proxy = proxy_to(fleet, backend, tls)
    proxy.admin.wait_for_healthy(1)
    with Connection.to(proxy.port) as client:
        assert client.request("/").body == b"secure"
    assert ("URI", "spiffe://example.com/proxy") in backend.clients[-1]["subjectAltName"]  # type: ignore[index]


def test_http2_is_spoken_with_backends_over_tls(fleet: Fleet) -> None:
    authority = Authority(fleet.directory)
    context = authority.server_context(authority.issue("backend", "DNS:backend.internal"))
    context.set_alpn_protocols(["h2"])
    settled: list[str | None] = []

    def serve(backend: Backend, sock: socket.socket) -> None:
        secure = context.wrap_socket(sock, server_side=True)
        settled.append(secure.selected_alpn_protocol())
        serve_http2(backend, secure)

    backend = Backend(free_port(), serve)
    tls = f'[clusters.main.tls]\nca = "{authority.certificate}"\nserver_name = "backend.internal"'
    proxy = fleet.proxy([backend.address], cluster='protocol = "http2"', further=tls)
    proxy.admin.wait_for_healthy(1)
    with Connection.to(proxy.port) as client:
        assert client.request("/").status == 200
    assert set(settled) == {"h2"}
    backend.stop()


@pytest.mark.parametrize("check", ["tcp", "http"])
def test_health_checks_speak_tls(fleet: Fleet, check: str) -> None:
    backend = SecureBackend(fleet, "DNS:backend.internal")
    tls = f'[clusters.main.tls]\nca = "{backend.authority.certificate}"\nserver_name = "backend.internal"'
    proxy = fleet.proxy([backend.address], health=f'check = "{check}"\ninterval = "200ms"\ntimeout = "200ms"', further=tls)
    proxy.admin.wait_for_healthy(1)
    if check == "http":
        wait_until("checks arrive", lambda: len(backend.clients) >= 2)
