"""Routes on paths apply to every spelling of a path, and a backend gets no path that it could read as another route's."""

import pytest

from harness.fleet import Fleet, Proxy
from harness.http1 import Closed, Connection, Message, answer
from harness.http2 import Connection as Http2
from harness.http2 import request as http2_request

FURTHER = """
[[routes]]
path_prefix = "/admin"
answer = {{ status = 403 }}

[[routes]]
path_prefix = "/drop"
black_hole = true

[[routes]]
path_prefix = "/private"
methods = ["GET"]
answer = {{ status = 401 }}

[[routes]]
path_prefix = "/packages"
cluster = "main"
{packages}
"""

# Spellings of one path below a prefix.
SPELLINGS = [
    "{}",
    "/{}",
    "//{}/",
    "/.{}",
    "/././{}/x",
    "/x/..{}",
    "/x/y/../..{}/.",
    "{};a",
    "{};a=b/x",
    "/;a{}",
    "/%2e{}",
    "/x/%2E%2e{}",
]
# Paths that some servers read as one below `/admin`, and others not; what they are answered.
AMBIGUOUS = {
    "/x%2f..%2fadmin": 400,
    "/x%2F..%5cadmin": 400,
    "/x\\..\\admin": 400,
    "/admin/../x": 400,
    "/admin/%2e%2e/x": 400,
    "/admin/..;/x": 400,
    "/../admin/../x": 400,
    "/x%00/../admin/../y": 400,
    "/%u0061dmin": 400,
    "/100%": 400,
    "/..;/admin": 403,
    "/x/..;a=b/../admin": 403,
    "/../admin": 403,
}


class Seen:
    """A backend that remembers the targets of requests."""

    def __init__(self, fleet: Fleet) -> None:
        self.targets: list[str] = []
        self.address = fleet.origin(self.handle)

    def handle(self, connection: Connection, message: Message) -> None:
        self.targets.append(message.start.split()[1])
        answer(connection)


def routed(fleet: Fleet, packages: str = "") -> tuple[Seen, Proxy]:
    backend = Seen(fleet)
    proxy = fleet.proxy([backend.address], further=FURTHER.format(packages=packages))
    proxy.admin.wait_for_healthy(1)
    return backend, proxy


def statuses(proxy: Proxy, target: str) -> list[int | None]:
    """The status on HTTP/1 and HTTP/2; `None` for no answer."""
    found: list[int | None] = []
    with Connection.to(proxy.port) as client:
        try:
            found.append(client.request(target).status)
        except (Closed, ConnectionError):
            found.append(None)
    with Http2.to(proxy.port) as http2:
        told = http2.fetch(1, http2_request(b"GET", target.encode()))
        found.append(told.status if told.fields else None)
    return found


def test_route_on_a_path_applies_to_every_spelling(fleet: Fleet) -> None:
    backend, proxy = routed(fleet)
    for prefix, status in (("/admin", 403), ("/%61dm%69n", 403), ("/private", 401), ("/priv%61te", 401), ("/drop", None)):
        for spelling in SPELLINGS:
            target = spelling.format(prefix)
            assert statuses(proxy, target) == [status] * 2, target
    assert all(target == "/" for target in backend.targets), backend.targets


def test_ambiguous_path_is_refused_when_routes_look_at_paths(fleet: Fleet) -> None:
    backend, proxy = routed(fleet)
    for target, status in AMBIGUOUS.items():
        assert statuses(proxy, target) == [status] * 2, target
    assert backend.targets == []
    assert proxy.admin.metric("plimsoll_refused_requests_total", reason="ambiguous-path") == 20
    with Connection.to(proxy.port) as client:
        told = client.request("/x%2fy")
        assert told.body == b"ambiguous-path: servers may read this path in different ways, with different routes\n"
        assert client.request("/x").status == 200, "the connection goes on"


def test_path_goes_on_as_it_was_sent(fleet: Fleet) -> None:
    backend, proxy = routed(fleet)
    sent = ["//packages//x/./y", "/%70ackages/%7e?a=/../b", "/packages;v=1/x", "/packages/x/../y", "/caf%c3%a9/a%20b"]
    for target in sent:
        assert statuses(proxy, target) == [200, 200], target
    assert backend.targets == [target for target in sent for _ in range(2)]


@pytest.mark.parametrize("target", ["/packages/@a%2fb", "/packages/a%5cb", "/packages/100%", "/packages/a\\b"])
def test_route_may_take_ambiguous_paths(fleet: Fleet, target: str) -> None:
    backend, proxy = routed(fleet, "ambiguous_paths = true")
    assert statuses(proxy, target) == [200, 200]
    assert backend.targets == [target] * 2
    assert statuses(proxy, target.replace("/packages", "/other")) == [400, 400]


def test_no_path_is_refused_where_no_route_looks_at_paths(fleet: Fleet) -> None:
    backend = Seen(fleet)
    proxy = fleet.proxy_to([backend.address])
    proxy.admin.wait_for_healthy(1)
    for target in AMBIGUOUS:
        assert statuses(proxy, target) == [200, 200], target
    assert backend.targets == [target for target in AMBIGUOUS for _ in range(2)]
