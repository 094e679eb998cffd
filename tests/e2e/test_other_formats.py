"""Fields of other systems: an integer priority as in 5G and Envoy, and the wait before a retry as in AWS."""

import time

import pytest

from harness.fleet import Fleet
from harness.http1 import Connection, Message, answer
from harness.process import free_port

PRIORITY = """
[listeners.priority]
header = "x-message-priority"
critical_plus = "0-7"
critical = "8-15"
sheddable = "24-31"
"""
OTHER = """
[[listeners]]
name = "other"
address = "127.0.0.1:{port}"
trust_criticality = "critical-plus"
"""


class Heads:
    """A backend that keeps the heads of requests."""

    def __init__(self, fleet: Fleet):
        self.seen: list[Message] = []
        self.address = fleet.origin(self.handle)

    def handle(self, connection: Connection, message: Message) -> None:
        self.seen.append(message)
        answer(connection)


@pytest.mark.parametrize("trusts", [False, True])
def test_integer_priority_is_a_claim_of_criticality(fleet: Fleet, trusts: bool) -> None:
    backend = Heads(fleet)
    trust = 'trust_criticality = "critical-plus"' if trusts else ""
    proxy = fleet.proxy([backend.address], listener=trust + PRIORITY)
    for fields, trusted, capped in [
        ("x-message-priority: 0", "critical-plus", "critical"),
        ("x-message-priority: 9", "critical", "critical"),
        ("x-message-priority: 31", "sheddable", "sheddable"),
        ("x-message-priority: 20", "critical", "critical"),
        ("x-message-priority: -1", "critical", "critical"),
        ("x-message-priority: 31\r\nx-message-priority: 0", "sheddable", "sheddable"),
        ("x-message-priority: 0\r\nx-criticality: sheddable-plus", "sheddable-plus", "sheddable-plus"),
    ]:
        with Connection.to(proxy.port) as client:
            assert client.request("/", fields=fields + "\r\n").status == 200
        head = backend.seen[-1]
        assert head.all("x-criticality") == [trusted if trusts else capped], fields
        # A backend that reads the integer must not believe more than this proxy.
        assert bool(head.all("x-message-priority")) == trusts, fields


def test_priority_header_does_not_pass_a_listener_that_ignores_it(fleet: Fleet) -> None:
    backend = Heads(fleet)
    other = free_port()
    proxy = fleet.proxy([backend.address], listener=PRIORITY, further=OTHER.format(port=other))
    proxy.wait_for_port(other)
    with Connection.to(other) as client:
        assert client.request("/", fields="x-message-priority: 0\r\n").status == 200
    assert backend.seen[-1].all("x-message-priority") == []


class Refusing:
    """A backend that refuses the first request with these fields, and serves the others."""

    def __init__(self, fleet: Fleet, fields: str):
        self.fields = fields
        self.times: list[float] = []
        self.address = fleet.origin(self.handle)

    def handle(self, connection: Connection, message: Message) -> None:
        del message
        self.times.append(time.monotonic())
        if len(self.times) == 1:
            answer(connection, b"later", "503 Service Unavailable", self.fields)
        else:
            answer(connection)


def test_wait_in_milliseconds_is_kept_before_a_retry(fleet: Fleet) -> None:
    # A second of Retry-After is the same wait, less exact.
    backend = Refusing(fleet, "x-amz-retry-after: 300\r\nretry-after: 1\r\n")
    proxy = fleet.proxy([backend.address])
    with Connection.to(proxy.port) as client:
        assert client.request("/").status == 200
    first, second = backend.times
    assert 0.3 <= second - first < 1.0, second - first


def test_long_wait_goes_to_the_client(fleet: Fleet) -> None:
    backend = Refusing(fleet, "x-amz-retry-after: 20000\r\n")
    proxy = fleet.proxy([backend.address])
    with Connection.to(proxy.port) as client:
        response = client.request("/")
    assert (response.status, response.get("x-amz-retry-after"), len(backend.times)) == (503, "20000", 1)


def test_unreadable_wait_has_no_effect(fleet: Fleet) -> None:
    backend, other = Refusing(fleet, "x-amz-retry-after: soon\r\n"), Heads(fleet)
    proxy = fleet.proxy([backend.address, other.address], cluster='policy = "round-robin"')
    with Connection.to(proxy.port) as client:
        while not backend.times:
            assert client.request("/").status == 200
    assert (len(backend.times), len(other.seen) > 0) == (1, True), "the retry went elsewhere at once"
