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
    def text(port: int, admin: int) -> str:
        return f"""
[admin]
listen = "127.0.0.1:{admin}"
[[listeners]]
address = "127.0.0.1:{port}"
[[routes]]
cluster = "web"
mirror = {{ cluster = "shadow"{settings} }}
[clusters.web]
backends = ["{main}"]
[clusters.shadow]
backends = ["{shadow}"]
"""

    proxy = fleet.proxy_of(text)
    proxy.admin.wait_for_healthy(1, cluster="web")
    return proxy


def nginx_mirror(fleet: Fleet, main: str, shadow: str) -> int:
    """nginx with the same task. Returns its port."""
    port = free_port()
    http = f"""
        server {{
            listen 127.0.0.1:{port};
            proxy_set_header Host $host;
            location / {{ mirror /copy; proxy_pass http://{main}; }}
            location = /copy {{ internal; proxy_pass http://{shadow}$request_uri; }}
        }}
    """
    fleet.nginx_with("nginx-mirror", http, port)
    return port


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
    wait_until("the copies", lambda: copies(proxy, "answered") >= 20, 10)
    assert len(shadow.requests) == 20


def test_http2_body_that_ends_by_an_empty_frame_is_copied(fleet: Fleet) -> None:
    main, shadow = Seen(fleet, b"main"), Seen(fleet, b"shadow")
    proxy = mirror_proxy(fleet, main.address, shadow.address, ', methods = ["POST"]')
    with http2.Connection.to(proxy.port) as client:
        for stream, length in ((1, [(b"content-length", b"%d" % len(BODY))]), (3, [])):
            head = http2.request(b"POST", b"/%d" % stream, *length)
            client.send(http2.headers(stream, head, end=False) + http2.frame(http2.DATA, 0, stream, BODY))
            # The end comes when the backend has all bytes.
            client.send(http2.frame(http2.DATA, http2.END_STREAM, stream))
            client.reading(lambda stream=stream: client.answer(stream).ended)
            assert client.answer(stream).status == 200
    wait_until("the copies", lambda: copies(proxy, "answered") == 2, 10)
    assert sorted(request[1:] for request in shadow.requests) == sorted(request[1:] for request in main.requests)
    assert copies(proxy, "body-incomplete") == 0
