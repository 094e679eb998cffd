"""Backends from DNS: they come and go under load, and wrong answers change nothing."""

import json
import pathlib
from collections.abc import Iterator

import pytest

from harness.dns import A, SERVFAIL, SRV, DnsServer, address, srv
from harness.fleet import PLIMSOLL, UNTIL_FINISHED, Admin, Fleet, Proxy, config, finish, http
from harness.process import Process, find_program, free_port, wait_until

BACKEND = ("--cost", "fixed:200us", "--wait", "fixed:10ms")
# TTL of a second, the question that confirms an absence, and 200 ms until it is in force.
SEEN = 6


@pytest.fixture
def dns() -> Iterator[DnsServer]:
    server = DnsServer()
    try:
        yield server
    finally:
        server.stop()


def start(fleet: Fleet, discovery: str) -> Proxy:
    further = f"[clusters.main.discovery]\n{discovery}\n"
    return fleet.proxy_of(lambda port, admin: config(port, admin, [], further=further))


def wait_for_members(proxy: Proxy, addresses: list[str], seconds: float = SEEN) -> None:
    wait_until(f"members are {addresses}", lambda: set(proxy.admin.backends()) == set(addresses), seconds)


class Dnsmasq:
    """dnsmasq with the SRV records of one service, which it reads again after a restart on the same port."""

    def __init__(self, fleet: Fleet):
        self.fleet, self.port, self.runs = fleet, free_port(), 0
        self.process: Process | None = None

    def serve(self, ports: list[int]) -> None:
        self.stop()
        self.runs += 1
        command = [find_program("dnsmasq"), "--keep-in-foreground", f"--port={self.port}", "--listen-address=127.0.0.1"]
        command += ["--bind-interfaces", "--conf-file=/dev/null", "--no-resolv", "--no-hosts", "--user=", "--group="]
        command += ["--pid-file", "--local-ttl=1", "--local=/internal/", "--host-record=target.internal,127.0.0.1,1"]
        command += [f"--srv-host=_http._tcp.web.internal,target.internal,{port},1,1" for port in ports]
        self.process = Process(f"dnsmasq-{self.runs}", command, self.fleet.directory)
        self.fleet.processes.append(self.process)
        self.process.wait_for_port(self.port)

    def stop(self) -> None:
        if self.process is not None:
            self.process.kill()
            self.process = None


def test_dnsmasq_lists_3_then_30_then_3_backends_without_a_failed_request(fleet: Fleet) -> None:
    backends = [fleet.backend(*BACKEND) for _ in range(30)]
    addresses = [backend.address for backend in backends]
    ports = [backend.port for backend in backends]
    dnsmasq = Dnsmasq(fleet)
    dnsmasq.serve(ports[:3])
    proxy = start(fleet, f'srv = "_http._tcp.web.internal"\nresolver = "127.0.0.1:{dnsmasq.port}"\nhold = "2s"')
    proxy.admin.wait_for_healthy(3)
    load = fleet.load(proxy.url, "--rate", "200", "--duration", UNTIL_FINISHED, "--connections", "8")
    # Thirty records are more than a datagram: dnsmasq truncates, and they come by TCP.
    dnsmasq.serve(ports)
    wait_for_members(proxy, addresses, 12)
    # The server is away for a while.
    dnsmasq.stop()
    wait_until("the failure is seen", lambda: "discovery failed" in proxy.output(), SEEN)
    assert set(proxy.admin.backends()) == set(addresses)
    dnsmasq.serve(ports[:3])
    wait_for_members(proxy, addresses[:3], 12)
    (counted,) = finish(proxy, load)
    assert counted.failed == 0, counted.raw


def test_wrong_answers_change_nothing(fleet: Fleet, dns: DnsServer) -> None:
    backends = [fleet.backend(*BACKEND) for _ in range(4)]
    addresses = {backend.address for backend in backends}
    name = "_http._tcp.web.internal"
    dns.records[("target.internal", A)] = [address("127.0.0.1")]
    whole = [srv(backend.port, "target.internal") for backend in backends]
    dns.records[(name, SRV)] = whole
    proxy = start(fleet, f'srv = "{name}"\nresolver = "{dns.address}"')
    proxy.admin.wait_for_healthy(4)
    load = fleet.load(proxy.url, "--rate", "200", "--duration", UNTIL_FINISHED, "--connections", "8")

    def works_again(times: int) -> None:
        wait_until("it works again", lambda: proxy.output().count("discovery works again") == times, SEEN)

    dns.code = SERVFAIL
    wait_until("the failure is seen", lambda: "discovery failed" in proxy.output(), SEEN)
    assert set(proxy.admin.backends()) == addresses
    dns.code = 0
    works_again(1)
    # A part of the records, in each second answer.
    dns.records[(name, SRV)] = whole[:2]
    wait_until("the loss is held or not believed", lambda: set(proxy.admin.backends()) == addresses, SEEN)
    dns.records[(name, SRV)] = whole
    dns.truncates = True
    wait_until("it is asked by TCP", lambda: dns.by_tcp > 2, SEEN)
    assert set(proxy.admin.backends()) == addresses
    dns.truncates = False
    dns.records[(name, SRV)] = []
    wait_until("the empty list is seen", lambda: "discovery lists no backend" in proxy.output(), SEEN)
    assert set(proxy.admin.backends()) == addresses
    dns.records[(name, SRV)] = whole
    # The addresses of the targets fail.
    del dns.records[("target.internal", A)]
    assert http(proxy.url)[0] == 200
    dns.records[("target.internal", A)] = [address("127.0.0.1")]
    # Each TTL, for some more answers.
    before = dns.asked[(name, SRV)]
    wait_until("it is asked again", lambda: dns.asked[(name, SRV)] >= before + 2)
    (counted,) = finish(proxy, load)
    assert counted.failed == 0, counted.raw
    assert set(proxy.admin.backends()) == addresses


def test_name_that_does_not_exist_at_the_start_is_found_later(fleet: Fleet, dns: DnsServer) -> None:
    backend = fleet.backend(*BACKEND)
    proxy = start(fleet, f'dns = "web.internal:{backend.port}"\nresolver = "{dns.address}"')
    assert http(proxy.url)[0] == 503
    dns.records[("web.internal", A)] = [address("127.0.0.1")]
    # An empty answer is asked for again after 5 seconds.
    wait_for_members(proxy, [backend.address], 10)
    proxy.admin.wait_for_healthy(1)
    assert http(proxy.url)[0] == 200


def test_localhost_needs_no_server(fleet: Fleet) -> None:
    backend = fleet.backend(*BACKEND)
    proxy = start(fleet, f'dns = "localhost:{backend.port}"')
    proxy.admin.wait_for_state(backend.address, "healthy")
    assert http(proxy.url)[0] == 200


class NamedHosts(Process):
    """`plimsoll proxy` with an `/etc/hosts` of its own, in a mount namespace."""

    def __init__(self, hosts: pathlib.Path, file: pathlib.Path, directory: pathlib.Path):
        command = ["unshare", "--map-root-user", "--mount", "sh", "-c", 'mount --bind "$0" /etc/hosts && exec "$@"']
        super().__init__("proxy", [*command, str(hosts), PLIMSOLL, "proxy", "-c", str(file)], directory)


def test_names_of_static_backends_are_followed(fleet: Fleet) -> None:
    port, admin_port, server = free_port(), free_port(), free_port()
    backends = [f"127.60.0.{number}:{server}" for number in (1, 2, 3)]
    for number, at in enumerate(backends):
        command = [PLIMSOLL, "backend", "--listen", at, *BACKEND]
        backend = Process(f"named-{number}", command, fleet.directory)
        fleet.processes.append(backend)
        wait_until("it listens", lambda backend=backend: "listening" in backend.output())
    hosts, file = fleet.directory / "hosts", fleet.directory / "names.toml"
    hosts.write_text("127.60.0.1 web.internal\n127.60.0.3 fixed.internal\n")
    file.write_text(config(port, admin_port, [f"web.internal:{server}", f"fixed.internal:{server}"]))
    proxy = NamedHosts(hosts, file, fleet.directory)
    fleet.processes.append(proxy)
    proxy.wait_for_port(port)
    admin = Admin(admin_port)
    admin.wait_for_healthy(2)
    since = admin.backends()[backends[2]]["since_s"]
    load = fleet.load(f"http://127.0.0.1:{port}", "--rate", "200", "--duration", "60s", "--connections", "8")

    def is_listed(*numbers: int) -> None:
        wanted = {backends[number] for number in numbers}
        wait_until(f"backends are {wanted}", lambda: set(admin.backends()) == wanted, 15)

    # The file is read every five seconds, and twice before an address is left out.
    hosts.write_text("127.60.0.2 web.internal\n127.60.0.3 fixed.internal\n")
    is_listed(1, 2)
    # A name that is lost keeps its address.
    hosts.write_text("127.60.0.3 fixed.internal\n")
    wait_until("the failure is seen", lambda: "discovery failed" in proxy.output(), 30)
    assert set(admin.backends()) == {backends[1], backends[2]}
    assert admin.backends()[backends[2]]["since_s"] > since, "it goes on with its state"
    load.interrupt()
    counted = load.result()
    assert counted.failed == 0 and counted.requests > 500, counted.raw


def test_names_beside_a_source_are_asked_at_their_resolver(fleet: Fleet, dns: DnsServer) -> None:
    server = free_port()
    named = [f"127.61.0.{number}:{server}" for number in (1, 2)]
    for number, at in enumerate(named):
        backend = Process(f"named-{number}", [PLIMSOLL, "backend", "--listen", at, *BACKEND], fleet.directory)
        fleet.processes.append(backend)
        wait_until("it listens", lambda backend=backend: "listening" in backend.output())
    listed = fleet.backend(*BACKEND)
    source = fleet.directory / "list.json"
    source.write_text(json.dumps({"backends": [{"address": listed.address}]}))
    dns.records[("web.internal", A)] = [address("127.61.0.1")]
    cluster = f'resolver = "{dns.address}"'
    further = f'[clusters.main.discovery]\nfile = "{source}"\n'
    proxy = fleet.proxy_of(
        lambda port, admin: config(port, admin, [f"web.internal:{server}"], cluster=cluster, further=further)
    )
    # The answer of the start.
    assert set(proxy.admin.backends()) == {listed.address, named[0]}
    proxy.admin.wait_for_healthy(2)
    since = proxy.admin.backends()[listed.address]["since_s"]
    load = fleet.load(proxy.url, "--rate", "200", "--duration", UNTIL_FINISHED, "--connections", "8")
    dns.records[("web.internal", A)] = [address("127.61.0.2")]
    wait_for_members(proxy, [listed.address, named[1]])
    # A name that fails is no failure of the source, and keeps its address.
    dns.code = SERVFAIL
    wait_until("the failure is seen", lambda: discovery(proxy)["static_error"] is not None, SEEN + 4)
    seen = discovery(proxy)
    assert "Server Failure" in seen["static_error"]["error"] and (seen["kind"], seen["state"]) == ("file", "ok"), seen
    assert proxy.admin.metric("plimsoll_discovery_static_failing") == 1
    assert f'"source":"static at {dns.address}"' in proxy.output()
    # Nor is a failure of the source one of the name; a reload asks the server once more, without an answer.
    source.unlink()
    wait_until("the source fails", lambda: discovery(proxy)["state"] == "failing", SEEN + 4)
    assert proxy.admin.post("/api/v1/process/reload")[0] == 200
    assert set(proxy.admin.backends()) == {listed.address, named[1]}
    dns.code = 0
    wait_until("it works again", lambda: discovery(proxy)["static_error"] is None, 15)
    assert discovery(proxy)["state"] == "failing"
    assert proxy.admin.backends()[listed.address]["since_s"] > since, "it goes on with its state"
    (counted,) = finish(proxy, load)
    assert counted.failed == 0, counted.raw


def discovery(proxy: Proxy) -> dict:
    answer = proxy.admin.json("/api/v1/clusters/main")
    assert isinstance(answer, dict)
    return answer["discovery"]
