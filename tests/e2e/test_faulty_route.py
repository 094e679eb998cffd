"""One endpoint that fails, at one and at ten times the honest load: the other endpoints of its cluster are served.

Both endpoints are on the same backends. The faulty one fails on all of them, so the fault says nothing about a backend, and
nothing about the capacity of the cluster.
"""

import time

import pytest

from harness.fleet import Fleet, Proxy, RunningLoad
from harness.http1 import Connection, Handler, Message, answer
from harness.process import wait_until

pytestmark = pytest.mark.alone

FAULTY, HONEST = "/report/build", "/account"
HONEST_RATE = 20
SECONDS = 5
# Faults at a time.
AT_A_TIME = 3
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


Running = tuple[str, Proxy, RunningLoad]


class Groups:
    """Starts the loads of some faults at once, which together use half a core."""

    def __init__(self, fleet: Fleet):
        self.fleet = fleet
        self._by_fault: dict[str, list[Running]] = {}

    def running(self, fault: str) -> list[Running]:
        if fault not in self._by_fault:
            names = list(FAULTS)
            at = names.index(fault) // AT_A_TIME * AT_A_TIME
            started = {name: proxies(self.fleet, FAULTS[name]) for name in names[at : at + AT_A_TIME]}
            self._by_fault |= {name: [self._load(case, proxy) for case, proxy in made.items()] for name, made in started.items()}
        return self._by_fault[fault]

    def _load(self, case: str, proxy: Proxy) -> Running:
        rate = HONEST_RATE * int(case.split()[-2])
        self.fleet.load(proxy.url + FAULTY, "--rate", str(rate), "--duration", f"{SECONDS}s")
        honest = self.fleet.load(proxy.url + HONEST, "--rate", str(HONEST_RATE), "--duration", f"{SECONDS}s")
        return case, proxy, honest


@pytest.fixture(scope="module")
def groups(module_fleet: Fleet) -> Groups:
    return Groups(module_fleet)


@pytest.mark.parametrize("fault", FAULTS)
def test_faulty_endpoint_leaves_the_others_served(groups: Groups, fault: str) -> None:
    for case, proxy, honest in groups.running(fault):
        counted = honest.result()
        # A hundred requests or so, so that a single one is too many.
        assert counted.failed <= 0.005 * counted.requests, f"{case}: {counted.raw}"
        # Backends that answer others are not to blame.
        assert set(proxy.admin.states().values()) == {"healthy"}, case
