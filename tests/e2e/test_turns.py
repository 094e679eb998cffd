"""Long bodies take turns on a thread: a crowd of them is complete, and a client that reads in tiny pieces wakes nobody."""

import hashlib
import pathlib
import random
import socket

import pytest

from harness.fleet import Fleet, Proxy, config
from harness.http1 import Connection, Message, answer
from harness.process import free_port, run, wait_until

# Several steps of a connection, with a content that shows a piece that is lost, doubled or in another's place.
LONG = random.Random(1).randbytes(4 << 20)
CROWD = 40
READERS, READS, READ_BYTES = 20, 50, 10


def digest(connection: Connection, request: Message) -> None:
    connection.read_body(request, to_close=False)
    answer(connection, hashlib.sha256(request.body).hexdigest().encode())


def proxy_of_one_thread(fleet: Fleet, backend: str) -> Proxy:
    port, admin_port = free_port(), free_port()
    text = config(port, admin_port, [backend])
    return fleet.proxy_with(f"threads = 1\n{text}", port, admin_port)


@pytest.mark.parametrize("protocol", ["--http1.1", "--http2-prior-knowledge"])
def test_crowd_of_long_answers_is_complete(fleet: Fleet, tmp_path: pathlib.Path, protocol: str) -> None:
    proxy = proxy_of_one_thread(fleet, fleet.nginx(files={"/long": LONG}))
    command = ["curl", "--no-progress-meter", protocol, "--parallel", "--parallel-max", str(CROWD), "--parallel-immediate"]
    for number in range(CROWD):
        command += ["--output", str(tmp_path / str(number)), f"{proxy.url}/long"]
    assert run(command, 60).returncode == 0
    whole = hashlib.sha256(LONG).digest()
    assert all(hashlib.sha256((tmp_path / str(number)).read_bytes()).digest() == whole for number in range(CROWD))


def test_crowd_of_long_requests_is_complete(fleet: Fleet, tmp_path: pathlib.Path) -> None:
    proxy = proxy_of_one_thread(fleet, fleet.origin(digest))
    (tmp_path / "long").write_bytes(LONG)
    command = ["curl", "--no-progress-meter", "--parallel", "--parallel-max", str(CROWD), "--parallel-immediate"]
    for _ in range(CROWD):
        command += ["--upload-file", str(tmp_path / "long"), f"{proxy.url}/"]
    assert run(command, 60).stdout == hashlib.sha256(LONG).hexdigest() * CROWD


def sleeps(proxy: Proxy) -> int:
    """How often the thread that serves has waited so far: each of its wakes is followed by a wait."""
    (worker,) = (task for task in pathlib.Path(f"/proc/{proxy.pid}/task").iterdir() if (task / "comm").read_text() == "worker-0\n")
    lines = dict(line.split(":") for line in (worker / "status").read_text().splitlines())
    return int(lines["voluntary_ctxt_switches"])


def test_client_that_reads_in_tiny_pieces_wakes_nobody(fleet: Fleet) -> None:
    proxy = proxy_of_one_thread(fleet, fleet.nginx(files={"/long": LONG}))
    clients = []
    for _ in range(READERS):
        client = socket.socket()
        client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1)
        client.connect(("127.0.0.1", proxy.port))
        client.sendall(b"GET /long HTTP/1.1\r\nhost: site.example\r\n\r\n")
        clients.append(client)
    seen = [0]

    def is_quiet() -> bool:
        seen.append(sleeps(proxy))
        return seen[-1] - seen[-2] < 2

    wait_until("the answers fill the sockets", is_quiet, every=0.2)
    before = sleeps(proxy)
    for _ in range(READS):
        for client in clients:
            assert client.recv(READ_BYTES)
    # A look at each connection for its time limits, and some for the proxy's own.
    assert sleeps(proxy) - before < READERS * READS / 10
    for client in clients:
        client.close()
