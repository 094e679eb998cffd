"""The model responders of examples/ keep the rules of docs/probes.md, asked by a client written from that page."""

import contextlib
import json
import os
import pathlib
import signal
import socket
import struct
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator

import pytest

from harness.pages import ROOT
from harness.probes import HAS_LOAD, HEALTHY, LAME_DUCK, NO_SUCH_PORT, NOTICE, OTHER_VERSION, ProbeClient, client
from harness.process import Process, find_program, free_port, run, wait_until

SECRET, NEXT = (7, bytes(range(32))), (8, b"the next key of the same fleet")
KEYLESS = (0, b"")
VECTORS = json.loads((ROOT / "tests" / "probe-vectors.json").read_text())
# Those of tests/probe-vectors.json that a responder with the keys 7 and 8 answers.
KNOWN_KEYS = (7, 8)

Start = Callable[..., tuple[int, Process]]


def node() -> list[str]:
    return [find_program("node"), str(ROOT / "examples" / "probe-responder.mjs")]


def python() -> list[str]:
    return [sys.executable, str(ROOT / "examples" / "probe-responder.py")]


@pytest.fixture(params=[python, node])
def command(request: pytest.FixtureRequest) -> list[str]:
    return request.param()


@pytest.fixture
def start(command: list[str], tmp_path: pathlib.Path) -> Iterator[Start]:
    """Starts a responder with these keys. Gives its port and its process, once it is healthy."""
    with contextlib.ExitStack() as stack:

        def started(*keys: tuple[int, bytes]) -> tuple[int, Process]:
            port = free_port()
            arguments = [f"127.0.0.1:{port}", *([str(key_file(tmp_path, *keys))] if keys else [])]
            responder = Process("responder", command + arguments, tmp_path)
            stack.callback(responder.kill)
            with client(port, keys[0] if keys else KEYLESS) as probes:
                wait_until("it is healthy", lambda: is_healthy(probes))
            return port, responder

        yield started


def key_file(directory: pathlib.Path, *keys: tuple[int, bytes]) -> pathlib.Path:
    file = directory / "probe-keys"
    file.write_text("# id secret\n" + "".join(f"{number} {secret.hex()} # a key\n" for number, secret in keys))
    return file


def is_healthy(probes: ProbeClient) -> bool:
    try:
        return probes.ask(1).state == HEALTHY
    except ConnectionRefusedError:
        return False


def hold_lease(probes: ProbeClient, nonce: int, round_trip_us: int = 0) -> int:
    """Takes a lease. Returns the number of the present state."""
    probes.ask(nonce)
    answer = probes.ask(nonce, lease=60, round_trip_us=round_trip_us)
    assert answer.lease == 60
    return answer.number


def assert_silent(probes: ProbeClient, seconds: float = 0.3) -> None:
    with pytest.raises(TimeoutError):
        probes.receive(seconds)


@pytest.mark.parametrize("key", [KEYLESS, SECRET])
def test_responder_answers_and_tells_of_sigterm(key: tuple[int, bytes], start: Start) -> None:
    port, responder = start(*([key] if key[0] else []))
    with client(port, key) as probes, client(port, (7, NEXT[1])) as forger, client(port, key) as leaver:
        assert probes.ask(2, port=port + 1).state == NO_SUCH_PORT
        assert probes.ask(3, lease=60).lease == 0, "no lease without a valid cookie"
        number = hold_lease(probes, 4)
        assert probes.ask(5, lease=65_535).lease == 120
        hold_lease(leaver, 1)
        assert leaver.ask(2).lease == 0, "a query that requests none ends the lease"
        forger.send(nonce=1)
        responder.signal(signal.SIGTERM)
        notice = probes.receive()
        assert (notice.kind, notice.state, notice.number, notice.nonce) == (NOTICE, LAME_DUCK, number + 1, 5)
        assert probes.receive() == notice, "sent again without an acknowledgement"
        probes.acknowledge(notice)
        assert probes.ask_after_notices(6).state == LAME_DUCK
        for each in (probes, leaver, forger):
            assert_silent(each, 0.2)
        assert responder.wait(10) == 0


def test_notices_are_sent_again_after_two_round_trips(start: Start) -> None:
    port, responder = start()
    with client(port) as near, client(port) as far:
        hold_lease(near, 1, round_trip_us=100)
        hold_lease(far, 1, round_trip_us=100_000)
        began = time.monotonic()
        responder.signal(signal.SIGTERM)
        assert far.receive() == far.receive()
        assert time.monotonic() - began >= 0.2
        for _ in range(4):  # after 0, 10, 30 and 70 ms
            assert near.receive(0.05).kind == NOTICE


def test_responder_answers_valid_vectors_and_drops_invalid_ones(start: Start) -> None:
    port, _ = start(SECRET, NEXT)
    valid = [each for each in VECTORS["valid"] if each["kind"] == "query" and each["acknowledges"] is None]
    accepted = [each for each in valid if each["key"]["id"] in KNOWN_KEYS]
    dropped = [each for each in VECTORS["valid"] if each not in accepted]
    # A query that a client has to drop is a valid one.
    invalid = [each for each in VECTORS["invalid"] if each["name"] != "query to a client"]
    assert len(accepted) >= 5 and len(dropped) >= 10 and len(invalid) >= 40
    for vector in accepted:
        with client(port, (vector["key"]["id"], bytes.fromhex(vector["key"]["secret"]))) as probes:
            probes.send_bytes(bytes.fromhex(vector["bytes"]))
            answer = probes.receive()
            assert (f"{answer.nonce:016x}", answer.port) == (vector["nonce"], vector["port"]), vector["name"]
            assert (answer.state, answer.lease, answer.cookie) == (NO_SUCH_PORT, 0, 0), vector["name"]
    with client(port, SECRET) as probes:
        for vector in dropped + invalid:
            probes.send_bytes(bytes.fromhex(vector["bytes"]))
        # Answers come in the order of the queries.
        probes.send_bytes(bytes.fromhex(VECTORS["other_version"]["bytes"]))
        answer = probes.receive()
        assert (answer.state, answer.flags, f"{answer.nonce:016x}") == (OTHER_VERSION, 0, VECTORS["other_version"]["nonce"])
        assert_silent(probes)


def test_source_gets_its_rate_and_acknowledgements_do_not_count(start: Start) -> None:
    port, responder = start()
    with client(port) as probes, client(port) as flood, client(port, source="127.0.0.2") as other:
        hold_lease(probes, 1)
        began = time.monotonic()
        answers = 0
        for nonce in range(1, 1_001):
            flood.send(nonce=nonce)
            if nonce % 100 == 0:  # A socket holds some 270 datagrams.
                assert other.ask(nonce).state == HEALTHY
                with contextlib.suppress(TimeoutError):
                    while flood.receive(0.01):
                        answers += 1
        seconds = 2 + int(time.monotonic() - began)
        assert 100 <= answers <= 200 * seconds
        responder.signal(signal.SIGTERM)
        notice = probes.receive()
        for nonce in range(1, 401):
            flood.send(nonce=nonce)
            if nonce % 100 == 0:
                assert other.ask(nonce).state == LAME_DUCK
        probes.acknowledge(notice)
        with contextlib.suppress(TimeoutError):
            while probes.receive(0.05) == notice:  # on its way before the acknowledgement
                pass
        assert_silent(probes, 0.5)


def test_responder_knows_the_old_key_and_the_new_one(start: Start) -> None:
    port, _ = start(SECRET, NEXT)
    for key in (SECRET, NEXT):
        with client(port, key) as probes:
            assert probes.ask(1).state == HEALTHY, "signed by the key of the query"
    with client(port) as keyless, client(port, (9, SECRET[1])) as stranger:
        for probes in (keyless, stranger):
            probes.send(nonce=1)
            assert_silent(probes)


@pytest.mark.skipif(os.geteuid() != 0, reason="only root sends from port 0")
def test_query_from_port_zero_ends_nothing(start: Start) -> None:
    port, _ = start()
    with client(port) as probes, socket.socket(socket.AF_INET, socket.SOCK_RAW, socket.IPPROTO_UDP) as raw:
        query = b"\x0fPL\x01\x01" + bytes(3) + struct.pack("!QQH", 1, 5, port) + bytes(54)
        raw.sendto(struct.pack("!HHHH", 0, port, 8 + len(query), 0) + query, ("127.0.0.1", 0))
        assert probes.ask(1).state == HEALTHY


@pytest.mark.parametrize(
    ("address", "lines", "problem"),
    [
        ("192.0.2.1", None, "without a key at 192.0.2.1"),
        ("0.0.0.0", f"7 {'00' * 16}", "name one address"),
        ("127.0.0.1", f"7 {'00' * 15}", "line 1: expected"),
        ("127.0.0.1", "1 abc", "line 1: expected"),
        ("127.0.0.1", f"0 {'00' * 16}", "line 1: expected"),
        ("127.0.0.1", f"\n7 {'00' * 16}\n7 {'11' * 16}", "line 3:"),
        ("127.0.0.1", f"7 {'00' * 16}\n8 {'11' * 16}\n9 {'22' * 16}", "line 3:"),
        ("127.0.0.1", "# no key", "no key"),
    ],
)
def test_unsafe_start_is_refused(
    address: str, lines: str | None, problem: str, command: list[str], tmp_path: pathlib.Path
) -> None:
    keys = tmp_path / "probe-keys"
    keys.write_text(lines or "")
    ended = run([*command, f"{address}:{free_port()}", *([str(keys)] if lines is not None else [])], seconds=10)
    assert ended.returncode != 0
    assert problem in ended.stderr and "Traceback" not in ended.stderr


@pytest.mark.parametrize("command", [node], indirect=True)
def test_node_responder_reads_its_keys_anew_on_sighup(start: Start, tmp_path: pathlib.Path) -> None:
    port, responder = start(SECRET)
    with client(port, SECRET) as old, client(port, NEXT) as new:
        hold_lease(old, 1)
        key_file(tmp_path, NEXT, SECRET)
        responder.signal(signal.SIGHUP)
        wait_until("it knows the new key", lambda: is_answered(new))
        (tmp_path / "probe-keys").write_text("nonsense\n")
        responder.signal(signal.SIGHUP)
        wait_until("it names the fault", lambda: "line 1: expected an id" in responder.output())
        assert old.ask(2).state == HEALTHY, "a file that cannot be read changes nothing"
        key_file(tmp_path, NEXT)
        responder.signal(signal.SIGHUP)
        wait_until("it has dropped the old key", lambda: not is_answered(old))
        assert new.ask(3).state == HEALTHY


def is_answered(probes: ProbeClient) -> bool:
    probes.send(nonce=1)
    try:
        return probes.receive(0.2).state == HEALTHY
    except TimeoutError:
        return False


@pytest.mark.parametrize("command", [node], indirect=True)
def test_node_service_reports_its_load_and_refuses_after_the_notices(start: Start) -> None:
    port, responder = start()
    with client(port) as probes:
        for _ in range(50):
            assert get(port, "/") == (200, "hello\n")
        assert get(port, "/healthz")[0] == 200
        answer = wait_until("it has counted", lambda: next((a for a in [probes.ask(1)] if a.utilization > 0), None))
        assert (answer.flags, answer.in_flight) == (HAS_LOAD, 0)
        hold_lease(probes, 2)
        assert json.loads(get(port, "/probes")[1]) == {"leases": 1, "limited": 0}
        responder.signal(signal.SIGTERM)
        probes.acknowledge(probes.receive())
        assert get(port, "/healthz")[0] == 503, "the port stays open for the clients that do not know yet"
        assert responder.wait(10) == 0


def get(port: int, path: str) -> tuple[int, str]:
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}{path}", timeout=5) as response:
            return response.status, response.read().decode()
    except urllib.error.HTTPError as error:
        return error.code, error.read().decode()
