"""One faulty backend of three, in every way that a response can be faulty and under every policy.

It gets at most its fair share of the requests, as it counts them itself, and the logs name it with the right reason.
"""

import asyncio
import itertools
import json
import math
import pathlib
import time
from dataclasses import dataclass, field

import pytest

from harness import http1, http2
from harness.faulty import FAULTS, OK, Fault, answers, faulty_backends
from harness.fleet import Fleet

pytestmark = pytest.mark.alone

POLICIES = ("random", "round-robin", "least-loaded", "weighted", "p2c", "peak-ewma", "prequal")
# Who a request is for, at each of these; a fault that answers at once is asked again at once.
CONCURRENCY = 4
# Faults at a time: more would only share the processor.
AT_A_TIME = 26
# The chance that none of them goes to one backend of three: 3e-11.
UNSAFE_FIRST = 60
WARM_UP_S, MEASURED_S, PATIENCE_S = 1.0, 1.2, 20.0
# Requests after the first second.
ENOUGH = 60
GRPC_CALL = b"\0\0\0\0\0"


@dataclass
class Sent:
    """What the clients of one fault did."""

    stop: float
    done: int = 0
    at_warm: int = 0

    def goes_on(self) -> bool:
        """On a loaded machine it takes longer until there is enough to compare."""
        now = time.monotonic()
        return now < self.stop or now < self.stop + PATIENCE_S and self.done < self.at_warm + ENOUGH


async def read_response(reader: asyncio.StreamReader) -> None:
    head = (await reader.readuntil(b"\r\n\r\n")).lower()
    lines = head.split(b"\r\n")
    length = next((int(line[15:]) for line in lines if line.startswith(b"content-length:")), None)
    if length is not None:
        await reader.readexactly(length)
    elif b"transfer-encoding: chunked" in lines:
        while size := int(await reader.readline(), 16):
            await reader.readexactly(size + 2)
        while await reader.readline() not in (b"\r\n", b""):
            pass
    if b"connection: close" in lines:
        raise ConnectionError


def request(name: str, fault: Fault, number: int) -> bytes:
    """Most are safe to repeat. The first are not, and every fourth: their first failure is their answer, and stands in the log."""
    host = f"host: {name}.test\r\n".encode()
    if fault.protocol == "grpc":
        fields = b"content-type: application/grpc\r\nte: trailers\r\ncontent-length: %d\r\n\r\n" % len(GRPC_CALL)
        return b"POST /plimsoll.backend.v1.Backend/Work HTTP/1.1\r\n" + host + fields + GRPC_CALL
    if number < UNSAFE_FIRST or number % 4 == 0:
        return b"POST / HTTP/1.1\r\n" + host + b"content-length: 1\r\n\r\nx"
    return b"GET / HTTP/1.1\r\n" + host + b"\r\n"


async def client(port: int, name: str, fault: Fault, sent: Sent, numbers: "itertools.count[int]") -> None:
    writer = None
    while sent.goes_on():
        try:
            if writer is None:
                reader, writer = await asyncio.open_connection("127.0.0.1", port)
            writer.write(request(name, fault, next(numbers)))
            await read_response(reader)
        except (OSError, asyncio.IncompleteReadError, ValueError):
            if writer is not None:
                writer.close()
            writer = None
        sent.done += 1
    if writer is not None:
        writer.close()


@dataclass
class Measured:
    """What was seen of one fault after the first second."""

    seen: int
    sent: int


async def drive(port: int, backends: dict[str, object]) -> dict[str, Measured]:
    measured: dict[str, Measured] = {}
    names = list(backends)
    for at in range(0, len(names), AT_A_TIME):
        batch = names[at : at + AT_A_TIME]
        sents = {name: Sent(stop=time.monotonic() + WARM_UP_S + MEASURED_S) for name in batch}
        clients = [
            asyncio.create_task(client(port, name, backends[name].fault, sents[name], numbers))
            for name in batch
            for numbers in [itertools.count()]
            for _ in range(CONCURRENCY)
        ]
        await asyncio.sleep(WARM_UP_S)
        before = {name: backends[name].requests for name in batch}
        for sent in sents.values():
            sent.at_warm = sent.done
        await asyncio.gather(*clients)
        for name in batch:
            sent = sents[name]
            measured[name] = Measured(backends[name].requests - before[name], sent.done - sent.at_warm)
    return measured


def configuration(port: int, admin: int, policy: str, good: list[str], faulty: dict[str, str], log: pathlib.Path) -> str:
    text = f"""
[admin]
listen = "127.0.0.1:{admin}"
[access_log]
path = "{log}"
[[listeners]]
address = "127.0.0.1:{port}"
"""
    for name in faulty:
        text += f'[[routes]]\nhost = "{name}.test"\ncluster = "{name}"\n'
    for name, address in faulty.items():
        protocol = FAULTS[name].protocol
        quoted = ", ".join(f'"{address}"' for address in [*good, address])
        text += f"""
[clusters."{name}"]
backends = [{quoted}]
policy = "{policy}"
protocol = "{"auto" if protocol == "grpc" else protocol}"
request_timeout = "300ms"
body_idle_timeout = "300ms"
[clusters."{name}".throttle]
policy = "off"
"""
    return text


ODD_ANSWERS_TO_HEAD = {
    "body": Fault("http2", answers(body=b"abc"), ""),
    "length": Fault("http2", answers((b"content-length", b"5")), ""),
    "open-stream": Fault("http2", lambda stream: http2.headers(stream, [OK], end=False), ""),
    "body-http1": Fault("http1", b"HTTP/1.1 200 OK\r\ncontent-length: 3\r\n\r\nabc", ""),
    "no-length-http1": Fault("http1", b"HTTP/1.1 200 OK\r\n\r\n", ""),
}


@pytest.mark.parametrize("kind", ODD_ANSWERS_TO_HEAD)
def test_answer_to_head_ends_with_its_head(fleet: Fleet, kind: str) -> None:
    fault = ODD_ANSWERS_TO_HEAD[kind]
    with faulty_backends() as backends:
        proxy = fleet.proxy([backends.start(fault).address], cluster=f'protocol = "{fault.protocol}"')
        proxy.admin.wait_for_healthy(1)
        with http1.Connection.to(proxy.port, timeout=5) as client:
            for _ in range(3):
                assert client.request("/", method="HEAD").status == 200
        with http2.Connection.to(proxy.port) as client:
            for stream in (1, 3, 5):
                answer = client.fetch(stream, http2.request(b"HEAD"), seconds=5)
                assert (answer.status, answer.body, answer.ended, answer.reset) == (200, b"", True, None), answer


def log_entries(path: pathlib.Path) -> list[dict]:
    return [json.loads(line) for line in path.read_text().splitlines() if line.startswith("{")]


def says(entry: dict, reason: str) -> bool:
    if reason == "retried":
        return entry.get("attempts", 1) > 1
    if reason == "incomplete":
        return not entry.get("complete", True)
    return reason in (entry.get("reason"), entry.get("cause"), str(entry.get("status")))


@pytest.mark.parametrize("policy", POLICIES)
def test_faulty_backend_gets_at_most_its_share(fleet: Fleet, policy: str) -> None:
    good = [fleet.backend("--cost", "fixed:50us", "--wait", "fixed:5ms").address for _ in range(2)]
    log = fleet.directory / "access.jsonl"
    with faulty_backends() as all_faulty:
        backends = {name: all_faulty.start(fault) for name, fault in FAULTS.items()}
        addresses = {name: backend.address for name, backend in backends.items()}
        proxy = fleet.proxy_of(lambda port, admin: configuration(port, admin, policy, good, addresses, log))
        measured = asyncio.run(drive(proxy.port, backends))
        wrong = {}
        for name, (seen, sent) in ((name, (m.seen, m.sent)) for name, m in measured.items()):
            # A third, and five standard deviations of a random choice. All but the rate limited are ejected before, so three rows
            # have requests at all: a false alarm in fewer than one of a million runs.
            most = sent / 3 + 5 * math.sqrt(sent * 2 / 9)
            if sent < ENOUGH or seen > most:
                wrong[name] = f"{seen} of {sent} requests, at most {most:.0f}"
        entries = log_entries(log)
        for name, fault in FAULTS.items():
            # The backend is named, but where the request went elsewhere: there it is the one that served it.
            where = ("cluster", name) if fault.reason == "retried" else ("backend", addresses[name])
            mine = [entry for entry in entries if entry.get(where[0]) == where[1]]
            if not any(says(entry, fault.reason) for entry in mine):
                kinds = sorted({(entry.get("reason"), entry.get("status"), entry.get("complete")) for entry in mine}, key=str)
                wrong[f"{name}: log"] = f"{fault.reason} expected, found {kinds}"
        print(json.dumps({name: (m.seen, m.sent) for name, m in measured.items()}))
        assert not wrong, "\n".join(f"{name}: {text}" for name, text in wrong.items())
        assert proxy.exit_code is None
