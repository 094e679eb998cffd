"""One endpoint that fails, at one and at ten times the honest load: the other endpoints of its cluster are served.

Both endpoints are on the same backends. The faulty one fails on all of them, so the fault says nothing about a backend, and
nothing about the capacity of the cluster.
"""

import time

import pytest

from harness.fleet import Fleet, Proxy
from harness.http1 import Connection, Handler, Message, answer
from harness.process import wait_until

FAULTY, HONEST = "/report/build", "/account"
HONEST_RATE = 20
SECONDS = 5
# Long enough for ten times the honest load to hold each slot of two backends (200) within the first seconds.
SLOW_S = 3.0
OVERLOADED = "x-plimsoll-shed: reason=overloaded, retry=elsewhere\r\n"
TWO_ROUTES = f"""
[[routes]]
path_prefix = "{FAULTY}"
cluster = "main"
"""


def drop(connection: Connection, request: Message) -> None:
    del request
    connection.close()


def error(connection: Connection, request: Message) -> None:
    del request
    answer(connection, b"no", status="500 Internal Server Error")


def overloaded(connection: Connection, request: Message) -> None:
    del request
    answer(connection, status="503 Service Unavailable", fields=OVERLOADED)


def hang(connection: Connection, request: Message) -> None:
    del request
    # Until the other side closes.
    connection.sock.recv(1)
    connection.close()


def slow(connection: Connection, request: Message) -> None:
    time.sleep(SLOW_S)
    answer(connection)


def garbage(connection: Connection, request: Message) -> None:
    del request
    connection.send(b"\x00\x01 this is no response\r\n\r\n")
    connection.close()


FAULTS: dict[str, Handler] = {
    "drop": drop,
    "error": error,
    "overloaded": overloaded,
    "hang": hang,
    "slow": slow,
    "garbage": garbage,
}


def failing(fault: Handler) -> Handler:
    """An application of which one endpoint fails."""

    def serve(connection: Connection, request: Message) -> None:
        if request.start.split()[1].startswith(FAULTY):
            fault(connection, request)
        else:
            answer(connection)

    return serve


def proxies(fleet: Fleet, fault: Handler) -> dict[str, Proxy]:
    """A proxy for each case, before backends of its own: one without a file, and one with a route for each endpoint."""
    made = {}
    for times in (1, 10):
        for config in ("default", "two-routes"):
            addresses = [fleet.origin(failing(fault)) for _ in range(2)]
            proxy = fleet.proxy_to(addresses) if config == "default" else fleet.proxy(addresses, further=TWO_ROUTES)
            made[f"{config}, {times} times"] = proxy
    for proxy in made.values():
        wait_until("ready", lambda proxy=proxy: proxy.admin.get("/readyz")[0] == 200)
    return made


@pytest.mark.parametrize("fault", FAULTS)
def test_faulty_endpoint_leaves_the_others_served(fleet: Fleet, fault: str) -> None:
    running = []
    for case, proxy in proxies(fleet, FAULTS[fault]).items():
        rate = HONEST_RATE * int(case.split()[-2])
        fleet.load(proxy.url + FAULTY, "--rate", str(rate), "--duration", f"{SECONDS}s")
        honest = fleet.load(proxy.url + HONEST, "--rate", str(HONEST_RATE), "--duration", f"{SECONDS}s")
        running.append((case, proxy, honest))
    for case, proxy, honest in running:
        counted = honest.result()
        # A hundred requests or so, so that a single one is too many.
        assert counted.failed <= 0.005 * counted.requests, f"{case}: {counted.raw}"
        # Backends that answer others are not to blame.
        assert set(proxy.admin.states().values()) == {"healthy"}, case
