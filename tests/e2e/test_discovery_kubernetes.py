"""Backends from the EndpointSlices of a Kubernetes service: under load, and against servers that others wrote."""

import json
import pathlib
import sys
import threading
import time
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from harness.certificates import Authority
from harness.fleet import PLIMSOLL, Fleet, Load, Proxy, config, http
from harness.kubernetes import GROUP, NAMESPACE, ApiServer, slice_of
from harness.process import Process, find_program, free_port, wait_until

# An event is there at once; changes gather for 200 ms.
SEEN = 5


@pytest.fixture
def api() -> Iterator[ApiServer]:
    server = ApiServer()
    try:
        yield server
    finally:
        server.stop()


def pods(fleet: Fleet) -> int:
    """The port of a backend that answers at each address of 127.0.0.0/8, as many pods."""
    port = free_port()
    command = [PLIMSOLL, "backend", "--listen", f"0.0.0.0:{port}", "--cost", "fixed:200us", "--wait", "fixed:5ms"]
    process = Process("pods", command, fleet.directory)
    fleet.processes.append(process)
    process.wait_for_port(port)
    return port


def ips(first: int, count: int) -> list[str]:
    return [f"127.1.{number // 250}.{number % 250 + 1}" for number in range(first, first + count)]


def start(fleet: Fleet, server: str, discovery: str = "", static: tuple[str, ...] = ()) -> Proxy:
    kubernetes = f'kubernetes = {{ service = "web", port = "http", {server} }}'
    further = f"[clusters.main.discovery]\n{kubernetes}\n{discovery}\n"
    return fleet.proxy_of(lambda port, admin: config(port, admin, list(static), further=further))


def followed(fleet: Fleet, url: str, discovery: str = "", static: tuple[str, ...] = ()) -> Proxy:
    return start(fleet, f'server = "{url}", namespace = "{NAMESPACE}"', discovery, static)


def wait_for_members(proxy: Proxy, addresses: list[str], port: int, seconds: float = SEEN) -> None:
    expected = {f"{address}:{port}" for address in addresses}
    wait_until(f"there are these {len(expected)} members", lambda: set(proxy.admin.backends()) == expected, seconds)


class Steady:
    """Load until the test is over with it."""

    def __init__(self, fleet: Fleet, proxy: Proxy):
        self._load = fleet.load(proxy.url, "--rate", "200", "--duration", "100s", "--connections", "8")

    def assert_none_failed(self) -> Load:
        wait_until("the load runs", self._load.running, 1)
        time.sleep(0.5)
        self._load.interrupt()
        counted = self._load.result()
        assert counted.failed == 0, counted.raw
        assert counted.requests >= 100, counted.raw
        return counted


def test_slices_come_and_go_under_load_and_a_sudden_loss_is_held(fleet: Fleet, api: ApiServer) -> None:
    port = pods(fleet)
    first, second = ips(0, 100), ips(100, 10)
    large, small = slice_of("web-a", first, port), slice_of("web-b", second, port)
    # The slices of other services have no effect.
    api.apply(large, small, slice_of("api-a", ["127.9.9.9"], port, service="api"))
    # A list of two pages.
    api.page = 1
    proxy = followed(fleet, api.url, 'hold = "4s"')
    wait_for_members(proxy, first + second, port, 15)
    load = Steady(fleet, proxy)
    api.delete("web-b")
    wait_for_members(proxy, first, port)
    api.apply(small)
    wait_for_members(proxy, first + second, port)
    # 100 of 110 are missing at once: they stay for `hold`.
    api.delete("web-a")
    wait_until("the loss is held", lambda: "lost most backends" in proxy.output(), SEEN)
    lost = time.monotonic()
    assert len(proxy.admin.backends()) == 110
    wait_for_members(proxy, second, port, 10)
    assert time.monotonic() - lost > 2.5
    # All slices are missing: an empty list is not believed.
    api.delete("web-b")
    wait_until("the empty list is seen", lambda: "discovery lists no backend" in proxy.output(), SEEN)
    wait_for_members(proxy, second, port)
    api.apply(large, small)
    wait_for_members(proxy, first + second, port)
    load.assert_none_failed()
    assert api.count("watch 200") == 1


def test_expired_version_is_followed_by_a_list_without_a_lost_backend(fleet: Fleet, api: ApiServer) -> None:
    port = pods(fleet)
    addresses = ips(0, 6)
    api.apply(slice_of("web-a", addresses, port))
    proxy = followed(fleet, api.url)
    wait_for_members(proxy, addresses, port, 15)
    load = Steady(fleet, proxy)
    api.wait_for_watch()
    # The changes while the watch is away are in no event.
    api.end_watches()
    api.delete("web-a")
    api.apply(slice_of("web-b", addresses[1:], port), slice_of("web-c", ips(6, 3), port))
    api.compact()
    seen: list[int] = []
    until = time.monotonic() + 20
    expected = {f"{address}:{port}" for address in addresses[1:] + ips(6, 3)}
    while set(members := proxy.admin.backends()) != expected:
        assert time.monotonic() < until, (sorted(members), api.answers)
        seen.append(len(members))
        time.sleep(0.02)
    assert min(seen, default=6) >= 5, seen
    assert api.count("watch 410") >= 1
    assert api.count("list 200") >= 2
    # And the watch goes on from the new list.
    api.wait_for_watch()
    api.delete("web-c")
    wait_for_members(proxy, addresses[1:], port)
    load.assert_none_failed()


def test_cut_watch_goes_on_from_its_last_event(fleet: Fleet, api: ApiServer) -> None:
    port = pods(fleet)
    addresses = ips(0, 8)
    api.apply(slice_of("web-a", addresses[:4], port))
    proxy = followed(fleet, api.url)
    wait_for_members(proxy, addresses[:4], port, 15)
    load = Steady(fleet, proxy)
    # A watch that ends within a second of its begin, and without an event, would be an error.
    api.wait_for_watch()
    api.bookmark()
    for count in (5, 6, 7):
        api.wait_for_watch()
        api.cut_next_event()
        api.apply(slice_of("web-a", addresses[:count], port))
        wait_for_members(proxy, addresses[:count], port)
    api.wait_for_watch()
    # After a bookmark the old version may be forgotten.
    api.bookmark()
    api.wait_for_watch()
    api.compact()
    api.end_watches()
    api.apply(slice_of("web-a", addresses, port))
    wait_for_members(proxy, addresses, port)
    load.assert_none_failed()
    assert proxy.output().count("discovery failed") == 0


def test_terminating_pod_gets_no_request_after_a_second(fleet: Fleet, api: ApiServer) -> None:
    origins, port = [Origin(f"127.1.0.{last}") for last in (1, 2, 3)], free_port()
    try:
        for origin in origins:
            origin.listen(port)
        addresses = [origin.address for origin in origins]
        api.apply(slice_of("web-a", addresses, port))
        proxy = followed(fleet, api.url)
        wait_for_members(proxy, addresses, port, 15)
        proxy.admin.wait_for_healthy(3)
        load = Steady(fleet, proxy)
        wait_until("each has requests", lambda: all(len(origin.times) > 10 for origin in origins), 10)
        ending = slice_of("web-a", addresses, port)
        # As a pod that has a preStop hook: it serves, and ends.
        ending["endpoints"][0]["conditions"] = {"ready": False, "serving": True, "terminating": True}
        api.apply(ending)
        stated = time.monotonic()
        wait_until("the others go on", lambda: origins[1].times[-1] > stated + 3, 10)
        late = [at - stated for at in origins[0].times if at > stated + 1]
        assert late == [], late
        load.assert_none_failed()
    finally:
        for origin in origins:
            origin.stop()


class Origin:
    """A pod that notes the time of each request. Health checks are connections only."""

    def __init__(self, address: str):
        self.address, self.times = address, [0.0]
        self._server: ThreadingHTTPServer | None = None

    def listen(self, port: int) -> None:
        times = self.times

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_GET(self) -> None:
                times.append(time.monotonic())
                self.send_response(200)
                self.send_header("Content-Length", "0")
                self.end_headers()

            def log_message(self, *_: object) -> None:
                pass

        self._server = ThreadingHTTPServer((self.address, port), Handler)
        threading.Thread(target=self._server.serve_forever, daemon=True).start()

    def stop(self) -> None:
        if self._server is not None:
            self._server.shutdown()
            self._server.server_close()


def test_pod_follows_its_cluster_by_tls_and_a_rotated_token(fleet: Fleet, monkeypatch: pytest.MonkeyPatch) -> None:
    """As in a pod: the environment names the server, and the folder of the service account has the rest."""
    authority = Authority(fleet.directory)
    context = authority.server_context(authority.issue("kubernetes", "IP:127.0.0.1"))
    account = fleet.directory / "account"
    account.mkdir()
    (account / "ca.crt").write_text(authority.certificate.read_text())
    (account / "namespace").write_text(NAMESPACE)
    rotate(account, "token-1")
    api = ApiServer(context)
    try:
        api.tokens = {"token-1"}
        monkeypatch.setenv("KUBERNETES_SERVICE_HOST", "127.0.0.1")
        monkeypatch.setenv("KUBERNETES_SERVICE_PORT", str(api.port))
        port = pods(fleet)
        addresses = ips(0, 5)
        api.apply(slice_of("web-a", addresses[:3], port))
        proxy = start(fleet, f'service_account = "{account}"')
        wait_for_members(proxy, addresses[:3], port, 15)
        load = Steady(fleet, proxy)
        api.wait_for_watch()
        # The new token is there before the old one ends.
        rotate(account, "token-2")
        api.tokens = {"token-2"}
        api.end_watches()
        api.apply(slice_of("web-a", addresses[:4], port))
        wait_for_members(proxy, addresses[:4], port)
        assert api.answers.count("watch 401") == 0
        # The old one ends first: an error, and the backends stay.
        api.wait_for_watch()
        api.tokens = {"token-3"}
        api.end_watches()
        wait_until("the error is seen", lambda: "401 Unauthorized for" in proxy.output(), SEEN)
        wait_for_members(proxy, addresses[:4], port)
        rotate(account, "token-3")
        api.apply(slice_of("web-a", addresses, port))
        wait_for_members(proxy, addresses, port, 15)
        assert "discovery works again" in proxy.output()
        load.assert_none_failed()
        assert "token-" not in proxy.output()
    finally:
        api.stop()


def rotate(account: pathlib.Path, token: str) -> None:
    """As the kubelet: by a new file and a rename."""
    new = account / "token.new"
    new.write_text(token)
    new.rename(account / "token")


def test_missing_role_is_an_error_that_names_it(fleet: Fleet, api: ApiServer) -> None:
    port = pods(fleet)
    static, listed = ips(0, 1), ips(1, 1)
    api.apply(slice_of("web-a", listed, port))
    api.is_forbidden = True
    # Without a static backend the proxy would wait for a list before it listens.
    proxy = followed(fleet, api.url, static=(f"{static[0]}:{port}",))
    wait_until("the error is seen", lambda: "endpointslices.discovery.k8s.io is forbidden" in proxy.output(), SEEN)
    assert "bind a Role with apiGroups" in proxy.output()
    wait_for_members(proxy, static, port)
    proxy.admin.wait_for_healthy(1)
    assert http(proxy.url)[0] == 200
    api.is_forbidden = False
    # After the back-off of a few errors.
    wait_for_members(proxy, static + listed, port, 40)


def test_kubectl_reads_the_lists_and_watches_of_the_fake_server(fleet: Fleet, api: ApiServer) -> None:
    """An independent client understands the server that these tests use."""
    api.apply(slice_of("web-a", ips(0, 1), 80))
    process = kubectl(fleet, api, "get", "endpointslices", "-n", NAMESPACE, "--watch", "-o", "name")
    wait_until("kubectl lists", lambda: "web-a" in process.output(), 15)
    api.apply(slice_of("web-b", ips(1, 1), 80))
    wait_until("kubectl watches", lambda: "web-b" in process.output(), 15)


def test_kubectl_proxy_between_needs_no_token(fleet: Fleet, api: ApiServer) -> None:
    port, between = pods(fleet), free_port()
    addresses = ips(0, 4)
    api.apply(slice_of("web-a", addresses[:3], port))
    kubectl(fleet, api, "proxy", f"--port={between}").wait_for_port(between)
    proxy = followed(fleet, f"http://127.0.0.1:{between}")
    wait_for_members(proxy, addresses[:3], port, 15)
    load = Steady(fleet, proxy)
    api.apply(slice_of("web-a", addresses, port))
    wait_for_members(proxy, addresses, port)
    api.end_watches()
    api.apply(slice_of("web-a", addresses[1:], port))
    wait_for_members(proxy, addresses[1:], port, 15)
    load.assert_none_failed()


def kubectl(fleet: Fleet, api: ApiServer, *arguments: str) -> Process:
    empty = fleet.directory / "kubeconfig"
    empty.write_text("apiVersion: v1\nkind: Config\n")
    cache = ["--cache-dir", str(fleet.directory / "kubectl-cache")]
    command = [find_program("kubectl"), "--kubeconfig", str(empty), *cache, "--server", api.url, *arguments]
    process = Process(f"kubectl-{arguments[0]}", command, fleet.directory)
    fleet.processes.append(process)
    return process


def test_slices_of_kmock_are_followed(fleet: Fleet) -> None:
    """A server that others wrote: it ignores the selector and has no versions, so each watch begins with all slices."""
    server, port = free_port(), pods(fleet)
    here = pathlib.Path(__file__).parent
    command = ["env", f"PYTHONPATH={here}", sys.executable, "-m", "harness.kmock_server", str(server)]
    kmock = Process("kmock", command, fleet.directory)
    fleet.processes.append(kmock)
    kmock.wait_for_port(server, 20)
    url = f"http://127.0.0.1:{server}{GROUP}/namespaces/{NAMESPACE}/endpointslices"

    def request(method: str, each: dict | None = None, name: str = "") -> None:
        body = json.dumps(each).encode() if each is not None else None
        code, text = http(f"{url}{name}", method, body, headers={"content-type": "application/json"})
        assert code == 200, text

    addresses = ips(0, 7)
    request("POST", slice_of("web-a", addresses[:4], port))
    request("POST", slice_of("api-a", ips(50, 3), port, service="api"))
    proxy = followed(fleet, f"http://127.0.0.1:{server}")
    wait_for_members(proxy, addresses[:4], port, 15)
    load = Steady(fleet, proxy)
    request("POST", slice_of("web-b", addresses[4:], port))
    wait_for_members(proxy, addresses, port)
    request("PATCH", {"endpoints": slice_of("web-a", addresses[1:4], port)["endpoints"]}, "/web-a")
    wait_for_members(proxy, addresses[1:], port)
    request("DELETE", name="/web-b")
    wait_for_members(proxy, addresses[1:4], port)
    load.assert_none_failed()
