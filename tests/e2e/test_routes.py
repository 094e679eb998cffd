"""Which cluster answers: by host, path and method, over HTTP/1 and HTTP/2 alike."""

import pathlib

from harness.fleet import Fleet, Proxy
from harness.http1 import Connection
from harness.process import find_program, free_port, run


def send(proxy: Proxy, host: str, target: str, method: str = "GET") -> tuple[int, str | None]:
    with Connection.to(proxy.port) as client:
        client.send(f"{method} {target} HTTP/1.1\r\nhost: {host}\r\n\r\n")
        response = client.read_response(method)
        return response.status, response.get("x-backend")


def routed(fleet: Fleet, path: pathlib.Path) -> tuple[Proxy, dict[str, str]]:
    homes = {name: fleet.nginx() for name in ("web", "api", "upload", "tenant")}
    port, admin_port = free_port(), free_port()
    clusters = "\n".join(f'[clusters.{name}]\nbackends = ["{address}"]' for name, address in homes.items())
    path.write_text(f"""
[admin]
listen = "127.0.0.1:{admin_port}"

[[listeners]]
address = "127.0.0.1:{port}"

[[routes]]
host = "*.tenants.example"
cluster = "tenant"

[[routes]]
host = "www.example"
path_prefix = "/api"
cluster = "api"

[[routes]]
host = "www.example"
path_prefix = "/api"
methods = ["PUT"]
cluster = "upload"

[[routes]]
host = "www.example"
cluster = "web"

{clusters}
""")
    proxy = Proxy("proxy", ["-c", str(path)], port, admin_port, fleet.directory)
    fleet.processes.append(proxy)
    proxy.wait_for_port(port)
    for name in homes:
        proxy.admin.wait_for_healthy(1, cluster=name)
    return proxy, homes


def test_requests_reach_the_cluster_of_their_route(fleet: Fleet, tmp_path: pathlib.Path) -> None:
    proxy, homes = routed(fleet, tmp_path / "routes.toml")
    assert send(proxy, "www.example", "/") == (200, homes["web"])
    assert send(proxy, "WWW.Example:8080", "/index?x=/api") == (200, homes["web"])
    assert send(proxy, "www.example", "/api") == (200, homes["api"])
    assert send(proxy, "www.example", "/api/v1?x=1") == (200, homes["api"])
    assert send(proxy, "www.example", "/apis") == (200, homes["web"])
    # nginx answers PUT with its `return` all the same.
    assert send(proxy, "www.example", "/api/v1", "PUT") == (200, homes["upload"])
    assert send(proxy, "a.b.tenants.example", "/api") == (200, homes["tenant"])
    assert send(proxy, "www.example", "http://www.example/api/x") == (200, homes["api"])


def test_request_without_a_route_is_a_404(fleet: Fleet, tmp_path: pathlib.Path) -> None:
    proxy, _ = routed(fleet, tmp_path / "routes.toml")
    for host in ("other.example", "tenants.example"):
        assert send(proxy, host, "/") == (404, None)


def test_http2_authority_is_the_host(fleet: Fleet, tmp_path: pathlib.Path) -> None:
    proxy, homes = routed(fleet, tmp_path / "routes.toml")
    # nghttp is h2load's sibling, from the same package.
    command = [find_program("nghttp"), "-v", "-H", ":authority: www.example", f"{proxy.url}/api"]
    done = run(command, 10)
    assert homes["api"] in done.stdout, done.stdout + done.stderr
