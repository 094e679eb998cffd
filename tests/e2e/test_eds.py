"""Backends from an xDS control plane, beside an Envoy that follows the same control plane."""

import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import grpc
import pytest

from harness.certificates import Authority
from harness.fleet import PLIMSOLL, Fleet, Proxy, config
from harness.process import Process, free_port, run, wait_until
from harness.xds import (
    DEGRADED,
    DRAINING,
    TIMEOUT,
    UNHEALTHY,
    ClusterLoadAssignment,
    ControlPlane,
    Endpoint,
    EnvoyByAds,
    Group,
    assignment,
    group,
)

# A response is there at once; changes gather for 200 ms.
SEEN = 5
# The control plane knows the version of a client that is back: its silence for this time says that nothing changed.
CONFIRMED = 8


@pytest.fixture
def plane() -> Iterator[ControlPlane]:
    plane = ControlPlane()
    try:
        yield plane
    finally:
        plane.stop()


def backends(fleet: Fleet, count: int) -> list[str]:
    """Addresses of as many backends: one process that answers at each of them."""
    port = free_port()
    command = [PLIMSOLL, "backend", "--listen", f"0.0.0.0:{port}", "--cost", "fixed:100us", "--wait", "fixed:2ms"]
    process = Process("backends", command, fleet.directory)
    fleet.processes.append(process)
    process.wait_for_port(port)
    return [f"127.1.0.{last}:{port}" for last in range(1, count + 1)]


def apart(fleet: Fleet, count: int) -> list[str]:
    """Addresses of as many backends, each a process: their answers tell them apart."""
    return [fleet.backend("--cost", "fixed:100us").address for _ in range(count)]


def follow(fleet: Fleet, server: str, eds: str = "", discovery: str = "", cluster: str = "", top: str = "") -> Proxy:
    settings = f'eds = {{ server = "{server}", service = "web", {eds} }}'
    further = f"[clusters.main.discovery]\n{settings}\n{discovery}\n"
    return fleet.proxy_of(lambda port, admin: top + config(port, admin, [], cluster=cluster, further=further))


def wait_for(proxy: Proxy, addresses: list[str], seconds: float = SEEN) -> None:
    wait_until(f"the members are {addresses}", lambda: set(proxy.admin.backends()) == set(addresses), seconds)


def discovery(proxy: Proxy) -> dict:
    found = proxy.admin.json("/api/v1/clusters/main")
    assert isinstance(found, dict)
    return found["discovery"]


def check(fleet: Fleet, eds: str) -> tuple[int, str]:
    """`plimsoll check --resolve`: its exit code, and all that it prints."""
    path = fleet.directory / "check.toml"
    path.write_text(config(free_port(), free_port(), [], further=f"[clusters.main.discovery]\neds = {{ {eds} }}\n"))
    done = run([PLIMSOLL, "check", "-c", str(path), "--resolve"], 30)
    return done.returncode, done.stdout + done.stderr


def listed(fleet: Fleet, plane: ControlPlane, key: str) -> dict[str, str]:
    """A property of each backend in the answer of the source, by address; empty if it has none."""
    code, text = check(fleet, f'server = "{plane.address}", service = "web"')
    assert code == 0, text
    rows = [line.split() for line in text.splitlines() if line.startswith("  ")]
    return {row[0]: dict(zip(row[1::2], row[2::2], strict=False)).get(key, "") for row in rows}


class Both:
    """The proxy and the Envoy, and the control plane that they follow."""

    def __init__(self, fleet: Fleet, plane: ControlPlane):
        self.plane = plane
        self.envoy = EnvoyByAds(fleet, plane.address)
        self.proxy = follow(fleet, plane.address, 'node = { id = "proxy", cluster = "test" }')

    def agree_on(self, addresses: list[str], seconds: float = SEEN) -> None:
        wait_for(self.proxy, addresses, seconds)
        self.envoy.wait_for(addresses, seconds)

    def both_answered(self, version: str) -> list[str]:
        """The errors in the answers of the proxy and of Envoy to the response of a version."""
        answers = {}
        for node in ("proxy", "envoy"):
            answers[node] = wait_until(f"{node} answers {version}", lambda node=node: self.plane.answers(node, version), SEEN)
        assert [word.version for word in answers["proxy"]] == [word.version for word in answers["envoy"]], answers
        return [answers[node][0].error for node in ("proxy", "envoy")]


def test_proxy_and_envoy_have_the_same_backends_after_each_change(fleet: Fleet, plane: ControlPlane) -> None:
    a, b, c, d, e, f = all_ = backends(fleet, 6)
    plane.set("web", group(a, b, zone="one"), group(c, d, e, zone="two"))
    plane.set("other", group("127.9.9.9:1"))
    both = Both(fleet, plane)
    both.agree_on([a, b, c, d, e])
    assert {node[0]: node[1:] for node in plane.nodes()}["proxy"] == ("test", "plimsoll")
    zones = {address: host["zone"] for address, host in both.envoy.hosts().items()}
    assert listed(fleet, plane, "zone") == zones
    load = fleet.load(both.proxy.url, "--rate", "200", "--duration", "100s", "--connections", "8")

    # Added, removed.
    version = plane.set("web", group(a, b, zone="one"), group(c, d, e, f, zone="two"))
    both.agree_on(all_)
    assert both.both_answered(version) == ["", ""]
    plane.set("web", group(b, zone="one"), group(c, d, e, f, zone="two"))
    both.agree_on([b, c, d, e, f])
    plane.set("web", group(*all_))
    both.agree_on(all_)

    # Weights, in place.
    plane.set("web", Group([Endpoint(address, weight=1 + number) for number, address in enumerate(all_)]))
    expected = {address: 1 + number for number, address in enumerate(all_)}
    weights = lambda: {address: host["weight"] for address, host in both.envoy.hosts().items()}  # noqa: E731
    wait_until("the weights of Envoy", lambda: weights() == expected, SEEN)
    assert {address: int(weight or 1) for address, weight in listed(fleet, plane, "weight").items()} == expected
    # The backend that was removed came back in between, and all lost their zone.
    wait_until("the weights are changes", lambda: discovery(both.proxy)["changes"]["changed"] >= 5 + 5, SEEN)
    assert discovery(both.proxy)["changes"]["removed"] == 1

    # Drained, and unfit: Envoy knows them, and so does the proxy, which sends them nothing.
    plane.set("web", Group([Endpoint(a, DRAINING), Endpoint(b, UNHEALTHY), Endpoint(c, TIMEOUT)]), group(d, e, f))
    wait_for(both.proxy, [d, e, f])
    both.envoy.wait_for([d, e, f])
    assert set(both.envoy.hosts()) == set(all_)
    counts = discovery(both.proxy)["backends"]
    assert (counts["ready"], counts["draining"], counts["starting"]) == (3, 1, 2), counts
    plane.set("web", group(*all_))
    both.agree_on(all_)

    # A response without the service removes nothing.
    plane.remove("web")
    assert both.both_answered(str(plane.version)) == ["", ""]
    time.sleep(1)
    both.agree_on(all_)

    # A wrong resource is rejected by the version of the last good one, and its list stays.
    broken = plane.set_raw("web", assignment("web", [group(a, "web.internal:80")]))
    errors = both.both_answered(broken)
    assert "endpoints[0].lb_endpoints[1]: `web.internal` is no IP address" in errors[0], errors
    assert "malformed IP address" in errors[1], errors
    wait_until("it fails", lambda: discovery(both.proxy)["state"] == "failing", SEEN)
    assert "its ClusterLoadAssignment is rejected" in discovery(both.proxy)["last_error"]["error"]
    both.agree_on(all_)
    # So is a weight of zero, which the protocol forbids.
    errors = both.both_answered(plane.set_raw("web", of_weight_zero(a)))
    assert "load_balancing_weight is 0" in errors[0] and "LoadBalancingWeight" in errors[1], errors
    both.agree_on(all_)
    plane.set("web", group(*all_[:5]))
    both.agree_on(all_[:5])
    assert discovery(both.proxy)["state"] == "ok"

    # The list without an endpoint: Envoy obeys it. The proxy keeps its backends, unless `on_empty` is "obey".
    plane.set("web")
    both.envoy.wait_for([])
    wait_until("the empty list is seen", lambda: discovery(both.proxy)["empty_lists"] == 1, SEEN)
    wait_for(both.proxy, all_[:5])
    plane.set("web", group(*all_))
    both.agree_on(all_)

    load.interrupt()
    counted = load.result()
    assert counted.failed == 0 and counted.requests > 500, counted.raw


def of_weight_zero(address: str) -> bytes:
    message = ClusterLoadAssignment.FromString(assignment("web", [group(address)]))
    message.endpoints[0].lb_endpoints[0].load_balancing_weight.value = 0
    return message.SerializeToString()


def test_restart_of_the_control_plane_loses_no_backend(fleet: Fleet) -> None:
    all_ = backends(fleet, 4)
    plane = ControlPlane()
    try:
        plane.set("web", group(*all_[:3]))
        both = Both(fleet, plane)
        both.agree_on(all_[:3])
        load = fleet.load(both.proxy.url, "--rate", "200", "--duration", "100s", "--connections", "8")
        # At once with the same version: it is not sent again, and nobody notices.
        plane.stop()
        both.plane = plane = plane.again()
        wait_until("both are back", lambda: len(plane.nodes()) == 2, 20)
        with pytest.raises(AssertionError):
            wait_until("an answer", lambda: plane.answers("proxy", str(plane.version)), 1)
        assert [word.version for word in plane.words if word.node == "proxy"] == [str(plane.version)]
        time.sleep(CONFIRMED)
        assert discovery(both.proxy)["state"] == "ok"
        # Later than the next attempt of the proxy: that is an error, and backends stay.
        plane.stop()
        wait_until("it fails", lambda: discovery(both.proxy)["state"] == "failing", SEEN)
        error = discovery(both.proxy)["last_error"]["error"]
        assert error.startswith(f"EDS web at {plane.address}: cannot connect: "), error
        time.sleep(3)
        both.agree_on(all_[:3])
        both.plane = plane = plane.again()
        wait_until("it works again", lambda: discovery(both.proxy)["state"] == "ok", 30 + CONFIRMED)
        assert plane.answers("proxy", str(plane.version)) == [], "the version was known"
        wait_until("both are back", lambda: len(plane.nodes()) == 2, 30)
        both.agree_on(all_[:3])
        # And with another list.
        plane.stop()
        plane.set("web", group(*all_[1:]))
        both.plane = plane = plane.again()
        # Envoy waits for up to 30 s between its attempts.
        both.agree_on(all_[1:], 40)
        load.interrupt()
        counted = load.result()
        assert counted.failed == 0 and counted.requests > 500, counted.raw
    finally:
        plane.stop()


# The endpoints by level, each with its health; the numbers of those that get requests.
PLACES = [
    ("higher levels are a standby", [[0, 0], [0, 0]], {0, 1}),
    ("a level that is unfit is left", [[UNHEALTHY, TIMEOUT], [0, 0]], {2, 3}),
    ("an empty level is skipped", [[], [0, 0]], {0, 1}),
    ("degraded ones wait", [[0, 0, 0, DEGRADED]], {0, 1, 2}),
    ("degraded ones help", [[0, UNHEALTHY, UNHEALTHY, DEGRADED]], {0, 3}),
    ("degraded ones come before the next level", [[DEGRADED, DEGRADED], [UNHEALTHY, UNHEALTHY]], {0, 1}),
    ("checks that fail everywhere are not believed", [[UNHEALTHY, UNHEALTHY], [UNHEALTHY, UNHEALTHY]], {0, 1}),
]


@pytest.mark.alone
def test_requests_go_where_envoy_sends_them(fleet: Fleet, plane: ControlPlane) -> None:
    addresses = apart(fleet, 4)
    plane.set("web", group(*addresses))
    envoy = EnvoyByAds(fleet, plane.address)
    proxy = follow(fleet, plane.address, discovery='hold = "off"', cluster='policy = "round-robin"')

    def answered(by: str) -> dict[str, int]:
        counted = fleet.load_now(by, "--rate", "300", "--duration", "2s", "--connections", "4")
        assert counted.failed == 0, counted.raw
        return counted.by_backend

    for name, levels, expected in PLACES:
        groups, number = [], 0
        for priority, of in enumerate(levels):
            listed = [Endpoint(addresses[number + place], health) for place, health in enumerate(of)]
            groups.append(Group(listed, priority=priority))
            number += len(of)
        used = {addresses[number] for number in expected}
        plane.set("web", *groups)
        wait_for(proxy, sorted(used))
        listed = {endpoint.address for of in groups for endpoint in of.endpoints}
        wait_until("Envoy has the list", lambda listed=listed: set(envoy.hosts()) == listed, SEEN)
        # The health of a host that Envoy knew is in force with the same response.
        time.sleep(0.2)
        assert set(answered(proxy.url)) == used, name
        theirs = answered(envoy.url)
        # Envoy moves a level's load bit by bit; of the endpoints that get some, these get nearly all.
        share = sum(theirs.get(address, 0) for address in used) / sum(theirs.values())
        assert share > (0.45 if "everywhere" in name else 0.9), (name, theirs)
        if "everywhere" not in name:
            assert set(theirs) >= used, (name, theirs)


@pytest.mark.alone
def test_localities_get_the_shares_that_envoy_gives_them(fleet: Fleet, plane: ControlPlane) -> None:
    a, b, c, d = addresses = apart(fleet, 4)
    one = Group([Endpoint(a, weight=1), Endpoint(b, weight=3)], zone="one", region="east", weight=1)
    two = Group([Endpoint(c, weight=1)], zone="two", region="east", weight=3)
    # No request without a weight, beside localities that have one.
    plane.set("web", one, two, Group([Endpoint(d)], zone="three", region="east"))
    weighted = "common_lb_config: { locality_weighted_lb_config: {} }"
    envoy = EnvoyByAds(fleet, plane.address, weighted)
    proxy = follow(fleet, plane.address, cluster='policy = "round-robin"')
    wait_for(proxy, [a, b, c])
    envoy.wait_for(addresses)
    for by in (proxy, envoy):
        counted = fleet.load_now(by.url, "--rate", "500", "--duration", "4s", "--connections", "4")
        assert counted.failed == 0, counted.raw
        shares = {address: counted.share(address) for address in addresses}
        print(by.name, shares)
        # Of 2,000 requests in turn; at random 0.04 would be four standard deviations.
        for address, expected in {a: 1 / 16, b: 3 / 16, c: 3 / 4, d: 0}.items():
            assert abs(shares[address] - expected) < 0.04, (by.name, shares)


def test_levels_are_localities_and_the_second_serves_when_the_first_is_dead(fleet: Fleet, plane: ControlPlane) -> None:
    first, second = [fleet.backend() for _ in range(2)], [fleet.backend() for _ in range(2)]
    addresses = [[of.address for of in level] for level in (first, second)]
    plane.set("web", *[group(*level, priority=number) for number, level in enumerate(addresses)])
    proxy = follow(fleet, plane.address, 'locality = "priority"', cluster='localities = ["0", "1"]')
    wait_for(proxy, addresses[0] + addresses[1])
    counted = fleet.load_now(proxy.url, "--rate", "100", "--duration", "2s")
    assert set(counted.by_backend) == set(addresses[0]), counted.raw
    # No word of the control plane: the proxy's own health checks find it.
    for backend in first:
        backend.kill()
    states = lambda: proxy.admin.states()  # noqa: E731
    wait_until("they are unhealthy", lambda: all(states()[address] != "healthy" for address in addresses[0]), 10)
    counted = fleet.load_now(proxy.url, "--rate", "100", "--duration", "2s")
    assert counted.failed == 0 and set(counted.by_backend) == set(addresses[1]), counted.raw


def test_drained_backend_gets_no_request_after_a_second(fleet: Fleet, plane: ControlPlane) -> None:
    addresses = apart(fleet, 3)
    plane.set("web", group(*addresses))
    proxy = follow(fleet, plane.address)
    wait_for(proxy, addresses)
    load = fleet.load(proxy.url, "--rate", "200", "--duration", "100s")
    time.sleep(1)
    plane.set("web", Group([Endpoint(addresses[0], DRAINING)]), group(*addresses[1:]))
    wait_for(proxy, addresses[1:], 1)
    load.interrupt()
    assert load.result().failed == 0
    counted = fleet.load_now(proxy.url, "--rate", "200", "--duration", "1s")
    assert set(counted.by_backend) == set(addresses[1:]), counted.raw


def test_tls_is_spoken_with_the_control_plane_and_its_faults_are_named(fleet: Fleet) -> None:
    authority, stranger = Authority(fleet.directory), Authority(fleet.directory, "stranger")
    server, client = authority.issue("xds", "IP:127.0.0.1", "DNS:xds.internal"), authority.issue("proxy", "URI:spiffe://td/proxy")
    credentials = grpc.ssl_server_credentials(
        [(server.key.read_bytes(), server.certificate.read_bytes())],
        root_certificates=authority.certificate.read_bytes(),
        require_client_auth=True,
    )
    plane = ControlPlane(credentials=credentials)
    try:
        (address,) = backends(fleet, 1)
        plane.set("web", group(address))
        where = f'server = "{plane.address}", service = "web"'
        own = f'certificate = "{client.certificate}", key = "{client.key}"'
        ca = f'ca = "{authority.certificate}"'
        for tls, code, text in [
            (f"{ca}, {own}", 0, f"eds web at {plane.address}: 1 backend\n  {address}\n"),
            (f'{ca}, {own}, server_name = "xds.internal"', 0, "1 backend\n"),
            (f'{ca}, {own}, server_name = "other.internal"', 1, "cannot connect: invalid peer certificate"),
            (f'ca = "{stranger.certificate}", {own}', 1, "cannot connect: invalid peer certificate: UnknownIssuer"),
            (ca, 1, "help: the control plane may want a certificate: set certificate and key in tls"),
        ]:
            found = check(fleet, f"{where}, tls = {{ {tls} }}")
            assert found[0] == code and text in found[1], (tls, found)
        code, text = check(fleet, where)
        assert code == 1 and "the connection broke without an answer: " in text, text
        assert "help: the control plane may speak TLS: set tls" in text, text
        proxy = follow(fleet, plane.address, f"tls = {{ {ca}, {own} }}")
        wait_for(proxy, [address])
    finally:
        plane.stop()


def test_check_names_the_fault_of_a_wrong_service_server_or_port(fleet: Fleet, plane: ControlPlane) -> None:
    plane.set("web", Group([Endpoint("10.0.0.1:80", weight=2, hostname="a.internal")], zone="a", region="east"))
    where = f'server = "{plane.address}"'
    code, text = check(fleet, f'{where}, service = "web", locality = "zone"')
    expected = f"eds web at {plane.address} by zone: 1 backend\n  10.0.0.1:80 weight 2 host a.internal zone a locality a\n"
    assert (code, expected in text) == (0, True), text
    code, text = check(fleet, f'{where}, service = "wbe", node = {{ id = "edge-1" }}')
    assert code == 1 and f"EDS wbe at {plane.address}: no endpoints of it within 8 s; help: look for" in text, text
    assert "for node edge-1" in text, text
    code, text = check(fleet, f'server = "127.0.0.1:{free_port()}", service = "web"')
    assert code == 1 and "cannot connect: connection refused" in text.lower(), text
    # A server of gRPC without xDS.
    server = grpc.server(ThreadPoolExecutor(1))
    port = server.add_insecure_port("127.0.0.1:0")
    server.start()
    try:
        code, text = check(fleet, f'server = "127.0.0.1:{port}", service = "web"')
    finally:
        server.stop(None)
    assert code == 1 and "answers Unimplemented: " in text and "no aggregated discovery service (ADS)" in text, text
    # A server of HTTP.
    backend = fleet.backend()
    code, text = check(fleet, f'server = "{backend.address}", service = "web"')
    assert code == 1 and f"EDS web at {backend.address}: " in text, text


def test_saved_list_serves_a_start_without_the_control_plane(fleet: Fleet, plane: ControlPlane) -> None:
    addresses = backends(fleet, 2)
    plane.set("web", group(*addresses))
    state = fleet.directory / "state"
    state.mkdir()
    proxy = follow(fleet, plane.address, top=f'state_dir = "{state}"\n')
    wait_for(proxy, addresses)
    wait_until("the list is saved", lambda: (state / "list-main.json").exists(), SEEN)
    proxy.stop()
    plane.stop()
    proxy = follow(fleet, plane.address, top=f'state_dir = "{state}"\n')
    wait_for(proxy, addresses)
    assert discovery(proxy)["stale"] is True


def test_large_list_is_followed(fleet: Fleet, plane: ControlPlane) -> None:
    """Of 20,000 endpoints, beyond the 4 MiB that gRPC's clients read by default with names of this length."""
    many = [Endpoint(f"10.{n // 65536}.{n // 256 % 256}.{n % 256}:80", hostname=f"{n}.{'x' * 200}") for n in range(20_000)]
    resource = assignment("web", [Group(many, zone="a")])
    assert len(resource) > 4 * 1024 * 1024
    plane.set_raw("web", resource)
    proxy = follow(fleet, plane.address)
    wait_until("all are known", lambda: discovery(proxy)["backends"]["known"] == len(many), 20)
    # One too many is an error, and the list stays.
    more = [Endpoint(f"10.{n // 65536}.{n // 256 % 256}.{n % 256}:80") for n in range(100_001)]
    version = plane.set("web", Group(more))
    (nack,) = wait_until("it is rejected", lambda: [word for word in plane.words if word.nonce == f"nonce-{version}"], 20)
    assert nack.error == "web: it has more than 100000 endpoints"
    assert discovery(proxy)["backends"]["known"] == len(many)
