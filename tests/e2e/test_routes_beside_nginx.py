"""The same task for plimsoll and nginx before the same backends: exact paths, conditions, redirects, rewritten paths and changed fields.
Their responses, and the requests that backends see, are compared over HTTP/1 and HTTP/2."""

from collections.abc import Iterator
from dataclasses import dataclass

import pytest

from harness.echo import Seen, ask, ask_http2, echo, nginx
from harness.fleet import Fleet, Proxy

PLIMSOLL = """
[admin]
listen = "127.0.0.1:{admin}"

[[listeners]]
address = "127.0.0.1:{port}"

[[routes]]
cluster = "one"
path_prefix = "/"

[[routes]]
path = "/exact"
cluster = "two"

[[routes]]
path_prefix = "/beta"
cluster = "one"

[[routes]]
path_prefix = "/beta"
headers = {{ "x-beta" = "1" }}
cluster = "two"

[[routes]]
path_prefix = "/beta"
query = {{ version = "2" }}
cluster = "two"

[[routes]]
path_prefix = "/beta"
cookies = {{ canary = "yes" }}
cluster = "two"

[[routes]]
path_prefix = "/old"
redirect = {{ prefix = "/new", status = 301 }}

[[routes]]
path_prefix = "/secure"
redirect = "https"

[[routes]]
path = "/moved"
redirect = {{ scheme = "https", host = "www.site.example", path = "/welcome", status = 302 }}

[[routes]]
path_prefix = "/api"
prefix_rewrite = "/v2"
cluster = "two"

[[routes]]
path_prefix = "/strip"
prefix_rewrite = "/"
cluster = "two"

[[routes]]
path_prefix = "/app"
path_rewrite = "/index.html"
cluster = "two"

[[routes]]
path_prefix = "/fields"
cluster = "one"

[routes.request_headers]
set = {{ "x-env" = "prod", "authorization" = "Basic ZWRnZTplZGdl" }}
remove = ["x-internal", "accept-encoding"]

[routes.response_headers]
set = {{ "x-frame-options" = "deny", "server" = "edge" }}
add = {{ "set-cookie" = "edge=1" }}
remove = ["x-powered-by"]

[[routes]]
path_prefix = "/denied"
answer = {{ status = 403, body = "no" }}

[routes.response_headers]
set = {{ "x-frame-options" = "deny" }}

[clusters.one]
backends = ["{one}"]

[clusters.two]
backends = ["{two}"]
"""

NGINX_HTTP = """
upstream one {{ server {one}; }}
upstream two {{ server {two}; }}
map $http_x_beta $by_header {{ 1 two; default one; }}
map $arg_version $by_query {{ 2 two; default $by_header; }}
map $cookie_canary $beta {{ yes two; default $by_query; }}
"""

NGINX_SERVER = """
port_in_redirect on;
location / { proxy_pass http://one; }
location = /exact { proxy_pass http://two; }
location /beta { proxy_pass http://$beta; }
location /old { rewrite ^/old(.*)$ $scheme://$http_host/new$1 permanent; }
location /secure { return 308 https://$host$request_uri; }
location = /moved { return 302 https://www.site.example/welcome$is_args$args; }
location /api { proxy_pass http://two/v2; }
location = /strip { proxy_pass http://two/; }
location /strip/ { proxy_pass http://two/; }
location /app { rewrite ^ /index.html break; proxy_pass http://two; }
location /fields {
    proxy_set_header x-env prod;
    proxy_set_header authorization "Basic ZWRnZTplZGdl";
    proxy_set_header x-internal "";
    proxy_set_header accept-encoding "";
    proxy_hide_header server;
    proxy_hide_header x-powered-by;
    add_header server edge always;
    add_header x-frame-options deny always;
    add_header set-cookie edge=1 always;
    proxy_pass http://one;
}
location /denied { add_header x-frame-options deny always; return 403 "no"; }
"""


@dataclass
class Both:
    """The two proxies."""

    proxy: Proxy
    nginx: tuple[int, int]

    def ask(self, target: str, method: str = "GET", fields: str = "") -> list[tuple[Seen, Seen]]:
        """What plimsoll and nginx give, on HTTP/1 and on HTTP/2."""
        # nginx tells of a host with the port, where HTTP/1 has one.
        host = "site.example"
        one = [ask(port, target, method, fields, host) for port in (self.proxy.port, self.nginx[0])]
        two = [ask_http2(port, target, method, fields, host) for port in (self.proxy.port, self.nginx[1])]
        return [(one[0], one[1]), (two[0], two[1])]


@pytest.fixture(scope="module")
def both(module_fleet: Fleet) -> Iterator[Both]:
    addresses = {name: echo(module_fleet, name) for name in ("one", "two")}
    proxy = module_fleet.proxy_of(lambda port, admin: PLIMSOLL.format(port=port, admin=admin, **addresses))
    for name in addresses:
        proxy.admin.wait_for_healthy(1, cluster=name)
    ports = nginx(module_fleet, NGINX_HTTP.format(**addresses), NGINX_SERVER)
    yield Both(proxy, ports)


@pytest.mark.parametrize(
    ("target", "fields", "backend"),
    [
        ("/", "", "one"),
        ("/exact", "", "two"),
        ("/exact?x=1", "", "two"),
        ("/exact/", "", "one"),
        ("/exactly", "", "one"),
        ("/Exact", "", "one"),
        ("/%65xact", "", "two"),
        ("/beta", "", "one"),
        ("/beta", "x-beta: 1\r\n", "two"),
        ("/beta", "X-Beta: 1\r\n", "two"),
        ("/beta", "x-beta: 10\r\n", "one"),
        ("/beta/x?a=b&version=2", "", "two"),
        ("/beta?version=1", "", "one"),
        ("/beta?version=22", "", "one"),
        ("/beta?xversion=2", "", "one"),
        ("/beta", "cookie: a=1; canary=yes; b=2\r\n", "two"),
        ("/beta", "cookie: a=1\r\ncookie: canary=yes\r\n", "two"),
        ("/beta", "cookie: canary=yesterday\r\n", "one"),
        ("/beta", "cookie: xcanary=yes\r\n", "one"),
    ],
)
def test_same_backend_is_asked_for_the_same_target(both: Both, target: str, fields: str, backend: str) -> None:
    for ours, theirs in both.ask(target, fields=fields):
        assert (ours.status, ours.backend, ours.target) == (200, backend, target)
        assert (theirs.status, theirs.backend, theirs.target) == (200, backend, target)


@pytest.mark.parametrize(
    ("target", "status", "location"),
    [
        ("/old", 301, "http://site.example/new"),
        ("/old/x/y?a=/old&b", 301, "http://site.example/new/x/y?a=/old&b"),
        ("/secure", 308, "https://site.example/secure"),
        ("/secure/x?a=%20b", 308, "https://site.example/secure/x?a=%20b"),
        ("/moved", 302, "https://www.site.example/welcome"),
        ("/moved?x=y", 302, "https://www.site.example/welcome?x=y"),
    ],
)
@pytest.mark.parametrize("method", ["GET", "HEAD", "POST"])
def test_same_redirect_is_given(both: Both, target: str, status: int, location: str, method: str) -> None:
    for ours, theirs in both.ask(target, method):
        assert (ours.status, ours.get("location")) == (status, location)
        assert (theirs.status, theirs.get("location")) == (status, location)


@pytest.mark.parametrize(
    ("target", "asked"),
    [
        ("/api", "/v2"),
        ("/api/", "/v2/"),
        ("/api/x?y=/api", "/v2/x?y=/api"),
        ("/api/x%20y/%C3%A9", "/v2/x%20y/%C3%A9"),
        ("/api/x/../y", "/v2/y"),
        ("//api/x", "/v2/x"),
        ("/strip", "/"),
        ("/strip/x", "/x"),
        ("/strip//evil.example/x", "/evil.example/x"),
        ("/app", "/index.html"),
        ("/app/x/y?z=1", "/index.html?z=1"),
    ],
)
def test_same_path_is_sent_to_backends(both: Both, target: str, asked: str) -> None:
    for ours, theirs in both.ask(target):
        assert (ours.status, ours.backend, ours.target) == (200, "two", asked)
        # nginx decodes a path that it rewrites, and encodes it again.
        assert (theirs.status, theirs.backend, theirs.target.lower()) == (200, "two", asked.lower())


def test_same_fields_are_changed(both: Both) -> None:
    fields = "x-internal: 1\r\nx-internal: 2\r\naccept-encoding: gzip\r\nx-env: client\r\nx-env: dev\r\nauthorization: Bearer x\r\nx-kept: 1\r\n"
    for pair in both.ask("/fields/x", fields=fields):
        for seen in pair:
            assert (seen.status, seen.backend, seen.target) == (200, "one", "/fields/x")
            asked = {name: seen.sent(name) for name in ("x-env", "authorization", "x-internal", "accept-encoding", "x-kept")}
            assert asked == {
                "x-env": ["prod"],
                "authorization": ["Basic ZWRnZTplZGdl"],
                "x-internal": [],
                "accept-encoding": [],
                "x-kept": ["1"],
            }
            assert seen.get("x-frame-options") == "deny" and seen.get("x-powered-by") is None
            assert seen.all("set-cookie") == ["origin=1", "edge=1"]
        assert pair[0].all("server") == ["edge"]
    for pair in both.ask("/denied"):
        for seen in pair:
            assert (seen.status, seen.body, seen.get("x-frame-options")) == (403, b"no", "deny")
    for pair in both.ask("/"):
        for seen in pair:
            assert seen.get("x-frame-options") is None and seen.get("x-powered-by") == "origin"
