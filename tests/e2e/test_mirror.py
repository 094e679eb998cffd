"""Copies of requests for another cluster: the same as those of nginx's `mirror`, and harmless to the request."""

import threading

from harness.fleet import Fleet, Proxy
from harness import http2
from harness.http1 import Connection, Handler, Message, answer
from harness.process import free_port, wait_until

BODY = b"a body of some length" * 10


class Seen:
    """A server that notes its requests."""

    def __init__(self, fleet: Fleet, name: bytes):
        self.requests: list[tuple[str, str, str | None, bytes]] = []
        self.marks: list[str | None] = []
        self._lock = threading.Lock()
        self.address = fleet.origin(self._handler(name))

    def _handler(self, name: bytes) -> Handler:
        def handle(connection: Connection, head: Message) -> None:
            method, target, _ = head.start.split(" ", 2)
            connection.read_body(head, to_close=False)
            with self._lock:
                self.requests.append((method, target, head.get("host"), head.body))
                self.marks.append(head.get("x-plimsoll-mirror"))
            answer(connection, name)

        return handle


def mirror_proxy(fleet: Fleet, main: str, shadow: str, settings: str) -> Proxy:
    tables = f"""
[[routes]]
cluster = "web"
mirror = {{ cluster = "shadow"{settings} }}
[clusters.web]
backends = ["{main}"]
[clusters.shadow]
backends = ["{shadow}"]
"""
    return fleet.proxy_by(tables, {"web": 1})


def nginx_mirror(fleet: Fleet, main: str, shadow: str) -> int:
    """nginx with the same task. Returns its port."""
    lines = f"""
        proxy_set_header Host $host;
        location / {{ mirror /copy; proxy_pass http://{main}; }}
        location = /copy {{ internal; proxy_pass http://{shadow}$request_uri; }}
    """
    return fleet.nginx_server("nginx-mirror", lines)


def copies(proxy: Proxy, result: str) -> float:
    return proxy.admin.metric("plimsoll_mirror_requests_total", route="/", cluster="shadow", result=result)


def test_copies_are_those_of_nginx(fleet: Fleet) -> None:
    asked = [("GET", "/a?x=1", b""), ("POST", "/b", BODY), ("GET", "/c", b"")]
    seen = []
    for of_nginx in (True, False):
        main, shadow = Seen(fleet, b"main"), Seen(fleet, b"shadow")
        if of_nginx:
            port = nginx_mirror(fleet, main.address, shadow.address)
        else:
            port = mirror_proxy(fleet, main.address, shadow.address, ', methods = ["GET", "POST"]').port
        with Connection.to(port) as client:
            bodies = [client.request(target, method, body=body).body for method, target, body in asked]
        assert bodies == [b"main"] * len(asked)
        wait_until("all copies", lambda shadow=shadow: len(shadow.requests) == len(asked), 10)
        assert sorted(shadow.requests) == sorted(main.requests)
        seen.append(sorted(shadow.requests))
        if not of_nginx:
            assert (set(main.marks), set(shadow.marks)) == ({None}, {"1"})
    assert seen[0] == seen[1]


def test_only_safe_methods_and_short_bodies_are_copied(fleet: Fleet) -> None:
    main, shadow = Seen(fleet, b"main"), Seen(fleet, b"shadow")
    proxy = mirror_proxy(fleet, main.address, shadow.address, ', methods = ["PUT", "GET"], max_body = "1KiB"')
    with Connection.to(proxy.port) as client:
        client.request("/post", "POST", body=BODY)
        client.request("/long", "PUT", body=b"x" * 2000)
        client.request("/short", "PUT", body=b"x" * 1000)
        client.request("/copy", fields="x-plimsoll-mirror: 1\r\n")
    wait_until("the copy", lambda: copies(proxy, "answered") == 1, 10)
    assert [(method, target) for method, target, _, _ in shadow.requests] == [("PUT", "/short")]
    assert (copies(proxy, "body-too-long"), copies(proxy, "copy")) == (1, 1)
    assert len(main.requests) == 4


def test_slow_or_dead_shadow_neither_delays_nor_fails_requests(fleet: Fleet) -> None:
    release = threading.Event()

    def stuck(connection: Connection, _: Message) -> None:
        release.wait(30)
        answer(connection)

    main = Seen(fleet, b"main")
    proxy = mirror_proxy(fleet, main.address, fleet.origin(stuck), ", max_active = 3")
    with Connection.to(proxy.port, timeout=5) as client:
        for _ in range(20):
            assert client.request("/").status == 200
    # Three copies wait; the others were not made.
    assert copies(proxy, "busy") == 17
    assert proxy.admin.metric("plimsoll_mirror_active_requests", route="/", cluster="shadow") == 3
    release.set()
    wait_until("the copies end", lambda: copies(proxy, "answered") == 3, 10)

    dead = mirror_proxy(fleet, main.address, f"127.0.0.1:{free_port()}", "")
    with Connection.to(dead.port, timeout=5) as client:
        for _ in range(5):
            assert client.request("/").status == 200
    wait_until("failed copies", lambda: copies(dead, "failed") == 5, 20)


def test_share_of_the_requests_is_copied(fleet: Fleet) -> None:
    main, shadow = Seen(fleet, b"main"), Seen(fleet, b"shadow")
    proxy = mirror_proxy(fleet, main.address, shadow.address, ', share = "10%"')
    with Connection.to(proxy.port) as client:
        for _ in range(200):
            client.request("/")
    wait_until("the copies", lambda: copies(proxy, "answered") >= 19, 10)
    assert 19 <= len(shadow.requests) <= 21


def test_http2_bodies_are_copied_by_each_kind_of_end(fleet: Fleet) -> None:
    main, shadow = Seen(fleet, b"main"), Seen(fleet, b"shadow")
    proxy = mirror_proxy(fleet, main.address, shadow.address, ', methods = ["POST"]')
    known = [(b"content-length", b"%d" % len(BODY))]
    empty, trailers = http2.frame(http2.DATA, http2.END_STREAM, 0), http2.headers(0, [(b"x-sum", b"1")])

    def of_stream(frame: bytes, stream: int) -> bytes:
        return frame[:5] + stream.to_bytes(4, "big") + frame[9:]

    kinds = [(length, end) for length in (known, []) for end in (empty, trailers)]
    with http2.Connection.to(proxy.port) as client:
        for number, (length, end) in enumerate(kinds):
            stream = 2 * number + 1
            head = http2.request(b"POST", b"/%d" % stream, *length)
            client.send(http2.headers(stream, head, end=False) + http2.frame(http2.DATA, 0, stream, BODY))
            client.send(of_stream(end, stream))
            client.reading(lambda stream=stream: client.answer(stream).ended)
            assert client.answer(stream).status == 200
    wait_until("the copies", lambda: copies(proxy, "answered") == len(kinds), 10)
    assert sorted((target, body) for _, target, _, body in shadow.requests) == [(f"/{n}", BODY) for n in (1, 3, 5, 7)]


def test_copies_sample_both_sides_of_a_split(fleet: Fleet) -> None:
    main, canary, shadow = Seen(fleet, b"main"), Seen(fleet, b"canary"), Seen(fleet, b"shadow")
    tables = f"""
[[routes]]
split = [{{ cluster = "web", weight = 80 }}, {{ cluster = "canary", weight = 20 }}]
mirror = {{ cluster = "shadow", share = "20%" }}
[clusters.web]
backends = ["{main.address}"]
[clusters.canary]
backends = ["{canary.address}"]
[clusters.shadow]
backends = ["{shadow.address}"]
"""
    proxy = fleet.proxy_by(tables, {"web": 1, "canary": 1, "shadow": 1})
    with Connection.to(proxy.port) as client:
        for number in range(500):
            client.request(f"/{number}")
    wait_until("the copies", lambda: copies(proxy, "answered") >= 98, 10)
    copied = {target for _, target, _, _ in shadow.requests}
    of_canary = len(copied & {target for _, target, _, _ in canary.requests})
    # 20 of the canary's 100, and not all of them.
    assert 10 <= of_canary <= 30, of_canary


def keyed_proxy(fleet: Fleet, main: str, shadows: list[str], settings: str) -> Proxy:
    tables = f"""
[[routes]]
cluster = "web"
mirror = {{ cluster = "shadow" }}
[routes.request_headers]
remove = ["x-user"]
[clusters.web]
backends = ["{main}"]
[clusters.shadow]
backends = {shadows}
{settings}
"""
    return fleet.proxy_by(tables, {"shadow": len(shadows)})


def test_copies_of_a_user_go_to_the_backend_of_its_key(fleet: Fleet) -> None:
    main, shadows = Seen(fleet, b"main"), [Seen(fleet, b"shadow") for _ in range(4)]
    settings = 'policy = "hash"\n[clusters.shadow.hash]\nkey = ["header:x-user"]\nbound = "off"'
    proxy = keyed_proxy(fleet, main.address, [shadow.address for shadow in shadows], settings)
    with Connection.to(proxy.port) as client:
        for number in range(80):
            client.request(f"/{number % 8}", fields=f"x-user: {number % 8}\r\n")
    wait_until("the copies", lambda: copies(proxy, "answered") == 80, 10)
    for user in range(8):
        at = [shadow for shadow in shadows if any(target == f"/{user}" for _, target, _, _ in shadow.requests)]
        assert len(at) == 1, f"user {user} is at {len(at)} backends"
    assert sum(bool(shadow.requests) for shadow in shadows) > 1


def test_copies_tell_the_address_and_count_for_the_client(fleet: Fleet) -> None:
    headers, release = [], threading.Event()

    def handle(connection: Connection, message: Message) -> None:
        release.wait(30)
        answer(connection)

    def announced(connection: Connection, message: Message) -> None:
        # The header of the PROXY protocol comes before the first request.
        headers.append(message.start)

    main = Seen(fleet, b"main")
    proxy = keyed_proxy(fleet, main.address, [fleet.origin(handle)], 'max_active_requests_per_client = 2\nqueue_timeout = "30s"')
    with Connection.to(proxy.port) as client:
        for _ in range(6):
            assert client.request("/").status == 200

    def active() -> int:
        [backend] = proxy.admin.backends("shadow").values()
        return backend["in_flight"]

    wait_until("two copies in flight", lambda: active() == 2, 10)
    assert proxy.admin.metric("plimsoll_mirror_active_requests", route="/", cluster="shadow") == 6
    release.set()
    wait_until("all copies", lambda: copies(proxy, "answered") == 6, 10)

    proxied = keyed_proxy(fleet, main.address, [fleet.origin(announced)], 'proxy_protocol = "v1"')
    with Connection.to(proxied.port) as client:
        source = client.sock.getsockname()[1]
        assert client.request("/").status == 200
    expected = f"PROXY TCP4 127.0.0.1 127.0.0.1 {source} {proxied.port}"
    wait_until("the client's address", lambda: expected in headers, 10)
