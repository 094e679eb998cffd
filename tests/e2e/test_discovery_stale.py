"""A restart while every source is down: saved lists serve, are shown as stale, and end with the first answer of each source."""

import json
import pathlib
from collections.abc import Iterator

import pytest

from harness.dns import A, SRV, DnsServer, address, srv
from harness.fleet import Fleet, Proxy, config, http
from harness.kubernetes import NAMESPACE, ApiServer, slice_of
from harness.process import wait_until
from test_discovery import write
from test_discovery_kubernetes import pods

CLUSTERS = ("main", "names", "records", "pods")
# The longest wait between two attempts at a source is 30 s, with jitter.
RETRIED = 40
SRV_NAME = "_http._tcp.web.internal"


class Sources:
    """A source of each kind. All of them list the same backends, but for the DNS name: it has one port, and lists addresses."""

    def __init__(self, folder: pathlib.Path, named: int):
        self.file, self.named = folder / "web.json", named
        self.dns: DnsServer | None = None
        self.api: ApiServer | None = None
        self._ports: tuple[int, int] | None = None

    def serve(self, backends: list[str], hosts: list[str]) -> None:
        """Starts all, on the ports that they had before."""
        dns_port, api_port = self._ports or (None, None)
        self.dns, self.api = DnsServer(dns_port), ApiServer(port=api_port)
        self._ports = (self.dns.port, self.api.port)
        ports = [int(backend.rpartition(":")[2]) for backend in backends]
        self.dns.records[("web.internal", A)] = [address(host) for host in hosts]
        self.dns.records[("target.internal", A)] = [address("127.0.0.1")]
        self.dns.records[(SRV_NAME, SRV)] = [srv(port, "target.internal") for port in ports]
        self.api.apply(*(slice_of(f"web-{port}", ["127.0.0.1"], port) for port in ports))
        write(self.file, backends)

    def stop(self) -> None:
        self.file.unlink(missing_ok=True)
        for server in (self.dns, self.api):
            if server is not None:
                server.stop()
        self.dns = self.api = None

    def text(self, state: pathlib.Path, port: int, admin: int) -> str:
        assert self.dns is not None and self.api is not None
        routes = "".join(f'[[routes]]\nhost = "{cluster}.test"\ncluster = "{cluster}"\n' for cluster in CLUSTERS[1:])
        server = f'server = "{self.api.url}", namespace = "{NAMESPACE}"'
        further = f"""{routes}
[clusters.main.discovery]
file = "{self.file}"
[clusters.names.discovery]
dns = "web.internal:{self.named}"
resolver = "{self.dns.address}"
[clusters.records.discovery]
srv = "{SRV_NAME}"
resolver = "{self.dns.address}"
[clusters.pods.discovery]
kubernetes = {{ service = "web", port = "http", {server} }}
"""
        return f'state_dir = "{state}"\n' + config(port, admin, [], further=further)


@pytest.fixture
def sources(fleet: Fleet) -> Iterator[Sources]:
    # It listens at all addresses of this machine, so that each is a backend of the DNS name.
    sources = Sources(fleet.directory, pods(fleet))
    try:
        yield sources
    finally:
        sources.stop()


def discovery(proxy: Proxy, cluster: str) -> dict:
    answer = proxy.admin.json(f"/api/v1/clusters/{cluster}")
    assert isinstance(answer, dict)
    return answer["discovery"]


def statuses(proxy: Proxy) -> dict[str, int]:
    return {cluster: http(proxy.url, headers={"host": f"{cluster}.test"})[0] for cluster in CLUSTERS}


def test_saved_lists_are_stale_until_their_sources_are_back(fleet: Fleet, sources: Sources) -> None:
    backends = [fleet.backend().address for _ in range(3)]
    state = fleet.directory / "state"
    state.mkdir()

    def members(listed: list[str], hosts: list[str]) -> dict[str, set[str]]:
        named = {f"{host}:{sources.named}" for host in hosts}
        return {cluster: named if cluster == "names" else set(listed) for cluster in CLUSTERS}

    def wait_for_members(proxy: Proxy, expected: dict[str, set[str]], seconds: float) -> None:
        for cluster, addresses in expected.items():
            known = lambda cluster=cluster, addresses=addresses: set(proxy.admin.backends(cluster)) == addresses  # noqa: E731
            wait_until(f"backends of {cluster} are {addresses}", known, seconds)

    sources.serve(backends[:2], ["127.0.0.1", "127.0.0.2"])
    before = members(backends[:2], ["127.0.0.1", "127.0.0.2"])
    first = fleet.proxy_of(lambda port, admin: sources.text(state, port, admin))
    wait_for_members(first, before, 10)
    assert [discovery(first, cluster)["stale"] for cluster in CLUSTERS] == [False] * 4
    saved = [state / f"list-{cluster}.json" for cluster in CLUSTERS]
    wait_until("all lists are saved", lambda: all(file.exists() for file in saved))
    # As with a crash, and while nothing lists backends any more.
    first.kill()
    texts = [file.read_text() for file in saved]
    sources_saved = {cluster: json.loads(text)["source"] for cluster, text in zip(CLUSTERS, texts)}
    file = next(fleet.directory.glob("plimsoll*.toml")).read_text()
    sources.stop()

    second = fleet.proxy_with(file, first.port, int(first.admin.url.rpartition(":")[2]))
    wait_until("all serve", lambda: set(statuses(second).values()) == {200}, 10)
    wait_for_members(second, before, 5)
    for cluster in CLUSTERS:
        wait_until("it fails", lambda cluster=cluster: discovery(second, cluster)["state"] == "failing", 15)
        view = discovery(second, cluster)
        assert (view["stale"], view["answer_age_s"]) == (True, None), (cluster, view)
        # One name of a source everywhere, with all that decides on its backends.
        assert f"{view['kind']} {view['source']}" == sources_saved[cluster]
        assert view["last_error"] is not None and view["backends"]["ready"] == 2, (cluster, view)
        assert second.admin.metric("plimsoll_discovery_stale", cluster=cluster) == 1, cluster
        assert second.admin.metric("plimsoll_discovery_failing", cluster=cluster) == 1, cluster
    assert second.output().count("the saved list is in force") == len(CLUSTERS), second.output()
    assert second.admin.get("/readyz") == (200, "ready\n")
    # A list that is not the source's word of today is not saved again as such.
    assert [file.read_text() for file in saved] == texts

    # Each source is back, with one backend in place of another.
    sources.serve([backends[0], backends[2]], ["127.0.0.1", "127.0.0.3"])
    after = members([backends[0], backends[2]], ["127.0.0.1", "127.0.0.3"])
    wait_for_members(second, after, RETRIED)
    for cluster in CLUSTERS:
        view = discovery(second, cluster)
        assert (view["state"], view["stale"]) == ("ok", False), (cluster, view)
        assert view["answer_age_s"] is not None, (cluster, view)
        assert second.admin.metric("plimsoll_discovery_stale", cluster=cluster) == 0, cluster
    assert set(statuses(second).values()) == {200}
    wait_until("the new lists are saved", lambda: all(file.read_text() != text for file, text in zip(saved, texts)), 5)


def test_saved_list_of_a_silent_server_is_stale_before_it_fails(fleet: Fleet, sources: Sources) -> None:
    backends = [fleet.backend().address for _ in range(2)]
    state = fleet.directory / "state"
    state.mkdir()
    sources.serve(backends, ["127.0.0.1", "127.0.0.2"])
    text = lambda port, admin: sources.text(state, port, admin)  # noqa: E731
    first = fleet.proxy_of(text)
    wait_until("the list is saved", (state / "list-records.json").exists)
    first.kill()
    assert sources.dns is not None
    # Questions arrive, and no answer comes back: each ends with a timeout, later than the saved list is in force.
    sources.dns.silent = True
    second = fleet.proxy_of(text)
    wait_until("the list is stale", lambda: discovery(second, "records")["stale"])
    assert http(second.url, headers={"host": "records.test"})[0] == 200
    sources.dns.silent = False
    wait_until("it is live", lambda: not discovery(second, "records")["stale"], RETRIED)
    assert set(second.admin.backends("records")) == set(backends)
