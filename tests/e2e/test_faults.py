"""Things that break around the proxy: each gives the documented answer, a metric, a line in the log, and the proxy goes on."""

import contextlib
import json
import os
import pathlib
import resource
import signal
import socket
import subprocess
import time
from collections.abc import Callable, Iterator

import pytest

from harness.fleet import PLIMSOLL, Fleet, Proxy, config, http, wrk
from harness.http1 import Closed, Connection, Message, answer
from harness.process import accepts, find_program, free_port, run, wait_until

pytestmark = pytest.mark.alone

OUTLIERS_OFF = '[clusters.main.outlier]\nconsecutive_failures = "off"\nsuccess_rate_stdev = "off"'


def log_lines(proxy: Proxy) -> list[dict]:
    return [json.loads(line) for line in proxy.output().splitlines() if line.startswith("{")]


def warned(proxy: Proxy, *words: str) -> bool:
    """Whether a line at WARN or ERROR holds all of these words."""
    return any(
        entry.get("level") in ("WARN", "ERROR") and all(word in json.dumps(entry) for word in words) for entry in log_lines(proxy)
    )


# Descriptors.


def limit_descriptors(proxy: Proxy, count: int) -> None:
    done = run([find_program("prlimit"), "--pid", str(proxy.pid), f"--nofile={count}:{count}"])
    assert done.returncode == 0, done.stderr


def open_descriptors(proxy: Proxy) -> int:
    return len(os.listdir(f"/proc/{proxy.pid}/fd"))


def test_proxy_without_descriptors_goes_on_and_recovers(fleet: Fleet) -> None:
    proxy = fleet.proxy([fleet.nginx()])
    proxy.admin.wait_for_healthy(1)
    # Held as a scraper holds it: with no descriptor left there is none for whoever asks anew.
    with Connection.to(proxy.port) as before, Connection.to(int(proxy.admin.url.rpartition(":")[2])) as scraper:
        assert before.request("/").status == 200

        def turned_away() -> int:
            answer = scraper.request("/metrics", host="127.0.0.1")
            assert answer.status == 200, answer.body
            lines = answer.body.decode().splitlines()
            counts = [
                line for line in lines if line.startswith("plimsoll_refused_connections_total{") and '"descriptors"' in line
            ]
            return sum(int(line.split()[-1]) for line in counts)

        assert turned_away() == 0
        limit_descriptors(proxy, open_descriptors(proxy) + 20)
        crowd: list[socket.socket] = []
        for _ in range(100):
            with contextlib.suppress(OSError):
                crowd.append(socket.create_connection(("127.0.0.1", proxy.port), timeout=1))
        wait_until("turned away and counted", lambda: turned_away() > 0)
        used = proxy_cpu(proxy)
        time.sleep(1)
        assert proxy_cpu(proxy) - used < 0.5, "it spins"
        assert warned(proxy, "descriptor"), proxy.output()[-2000:]
        for sock in crowd:
            sock.close()
    wait_until("it serves again", lambda: serves(proxy), 10)
    assert wrk(proxy.url, 1, connections=4).errors == ""
    assert proxy.exit_code is None


def proxy_cpu(proxy: Proxy) -> float:
    fields = pathlib.Path(f"/proc/{proxy.pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def serves(proxy: Proxy) -> bool:
    try:
        with Connection.to(proxy.port, timeout=2) as client:
            return client.request("/").status == 200
    except (Closed, OSError):
        return False


def test_limit_too_low_for_the_configuration_is_said_at_start(fleet: Fleet) -> None:
    port, admin_port = free_port(), free_port()
    path = fleet.directory / "many.toml"
    path.write_text(config(port, admin_port, [fleet.nginx()], listener="max_connections = 100000"))
    proxy = fleet._ready(Proxy("many", ["-c", str(path)], port, admin_port, fleet.directory))
    if resource.getrlimit(resource.RLIMIT_NOFILE)[1] < 200_000:
        wait_until("a warning", lambda: warned(proxy, "max_connections"), 3)


# Backends.


def test_backend_that_refuses_is_left_out(fleet: Fleet) -> None:
    gone = f"127.0.0.1:{free_port()}"
    proxy = fleet.proxy([fleet.nginx(), gone], cluster="min_connections = 1")
    proxy.admin.wait_for_state(gone, "refusing")
    assert wrk(proxy.url, 1).errors == ""
    assert proxy.admin.metric("plimsoll_backend_connections_failed_total", backend=gone) > 0
    assert any(gone in json.dumps(entry) and "refusing" in json.dumps(entry) for entry in log_lines(proxy))


# What a backend says instead of an answer, once it was asked.
GARBAGE = {
    "nothing": b"",
    "words": b"hello\r\n\r\n",
    "zeros": bytes(100),
    "random": bytes(range(128, 256)) + b"\r\n\r\n",
    "http2": b"\x00\x00\x12\x04\x00\x00\x00\x00\x00" + bytes(18),
    "tls-alert": b"\x15\x03\x01\x00\x02\x02\x28",
    "ssh": b"SSH-2.0-OpenSSH_9.2\r\n",
    "version": b"HTTP/3.1 200 OK\r\ncontent-length: 0\r\n\r\n",
    "status": b"HTTP/1.1 2x0 OK\r\ncontent-length: 0\r\n\r\n",
    "status-of-two-digits": b"HTTP/1.1 99 OK\r\ncontent-length: 0\r\n\r\n",
    "field-without-colon": b"HTTP/1.1 200 OK\r\nhello\r\n\r\n",
    "nul-in-a-field": b"HTTP/1.1 200 OK\r\nx-a: 1\x002\r\ncontent-length: 0\r\n\r\n",
    "two-lengths": b"HTTP/1.1 200 OK\r\ncontent-length: 1\r\ncontent-length: 2\r\n\r\nab",
    "length-of-junk": b"HTTP/1.1 200 OK\r\ncontent-length: 1x\r\n\r\nab",
    "negative-length": b"HTTP/1.1 200 OK\r\ncontent-length: -1\r\n\r\nab",
    "length-and-coding": b"HTTP/1.1 200 OK\r\ncontent-length: 3\r\ntransfer-encoding: chunked\r\n\r\n0\r\n\r\n",
    "endless-head": b"HTTP/1.1 200 OK\r\n" + b"x-a: 1\r\n" * 100_000,
    "endless-interim": b"HTTP/1.1 103 Early Hints\r\n\r\n" * 10_000,
    "switching-unasked": b"HTTP/1.1 101 Switching Protocols\r\nconnection: upgrade\r\nupgrade: x\r\n\r\n",
}


def scripted(said: Callable[[str], bytes | None]) -> Callable[[Connection, Message], None]:
    """A handler that says what the path names and closes, and answers all else."""

    def handler(connection: Connection, request: Message) -> None:
        text = said(request.start.split()[1])
        if text is None:
            answer(connection)
            return
        connection.send(text)
        # Closed with what is unread read, so that the end is an end and no reset.
        connection.sock.shutdown(socket.SHUT_WR)
        raise Closed

    return handler


def test_garbage_instead_of_an_answer_is_a_502(fleet: Fleet) -> None:
    address = fleet.origin(scripted(lambda path: GARBAGE.get(path[1:])))
    proxy = fleet.proxy([address], further=OUTLIERS_OFF)
    proxy.admin.wait_for_healthy(1)
    wrong = {}
    for name in GARBAGE:
        with Connection.to(proxy.port) as client:
            # With a body nothing is sent twice: one answer for one attempt.
            response = client.request(f"/{name}", method="POST", body=b"once")
            if response.status != 502:
                wrong[name] = response
            if client.request("/fine").status != 200:
                wrong[name] = "the client's connection is of no use any more"
    # Length and coding at once can be taken by the coding (RFC 9112, 6.3); from a backend that was chosen it may be.
    wrong.pop("length-and-coding", None)
    assert not wrong, wrong
    assert (
        proxy.admin.metric("plimsoll_requests_total", backend=address, result="broken")
        + proxy.admin.metric("plimsoll_failures_total", backend=address)
        >= len(GARBAGE) - 2
    )
    assert proxy.exit_code is None


# Head and body.
ANSWERS = {
    "length": (b"HTTP/1.1 200 OK\r\ncontent-length: 10\r\nx-a: b\r\n\r\n", b"0123456789"),
    "chunked": (
        b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n",
        b"5\r\n01234\r\n5;x=y\r\n56789\r\n0\r\nx-sum: 1\r\n\r\n",
    ),
    "interim": (b"HTTP/1.1 103 Early Hints\r\nlink: </a>\r\n\r\nHTTP/1.1 200 OK\r\ncontent-length: 10\r\n\r\n", b"0123456789"),
}


@pytest.mark.parametrize("kind", ANSWERS)
def test_answer_that_ends_at_any_byte_is_never_passed_off_as_whole(fleet: Fleet, kind: str) -> None:
    head, body = ANSWERS[kind]
    whole = head + body

    def said(path: str) -> bytes | None:
        return whole[: int(path[5:])] if path.startswith("/cut-") else None

    # Nearly all answers are cut off, and each is to be seen.
    unthrottled = '[clusters.main.throttle]\npolicy = "off"\n'
    proxy = fleet.proxy([fleet.origin(scripted(said))], further=OUTLIERS_OFF + "\n" + unthrottled)
    proxy.admin.wait_for_healthy(1)
    for cut in range(len(whole) + 1):
        with Connection.to(proxy.port) as client:
            outcome: Message | None
            try:
                outcome = client.request(f"/cut-{cut}", method="POST", body=b"once")
            except (Closed, ConnectionError):
                outcome = None
        if cut == len(whole):
            assert outcome is not None and (outcome.status, outcome.body) == (200, b"0123456789"), cut
        elif outcome is not None:
            # An answer is an error of the proxy's own; none is as good, once the head was on its way.
            assert outcome.status == 502, f"cut at {cut}: {outcome}"
        else:
            assert cut >= len(head), f"cut at {cut}, no answer"
    assert serves(proxy)


def test_backend_that_resets_is_a_502(fleet: Fleet) -> None:
    def handler(connection: Connection, request: Message) -> None:
        if "/reset" not in request.start:
            answer(connection)
            return
        connection.sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\x01\x00\x00\x00\x00\x00\x00\x00")
        connection.close()
        raise Closed

    proxy = fleet.proxy([fleet.origin(handler)], further=OUTLIERS_OFF)
    proxy.admin.wait_for_healthy(1)
    for _ in range(20):
        with Connection.to(proxy.port) as client:
            assert client.request("/reset", method="POST", body=b"once").status == 502
            assert client.request("/").status == 200


def test_race_with_a_backend_that_closes_idle_connections_is_not_seen(fleet: Fleet) -> None:
    """Each connection is closed right after its answer, without a word: what is on its way then was not served."""

    def handler(connection: Connection, request: Message) -> None:
        connection.read_body(request, to_close=False)
        answer(connection)
        connection.close()
        raise Closed

    proxy = fleet.proxy([fleet.origin(handler)], further=OUTLIERS_OFF)
    proxy.admin.wait_for_healthy(1)
    with Connection.to(proxy.port) as client:
        for number in range(500):
            assert client.request(f"/{number}").status == 200


# Names.


def test_name_that_cannot_be_looked_up_at_start_fails_its_cluster_only(fleet: Fleet) -> None:
    good = fleet.nginx()
    other = '[[routes]]\nhost = "other.test"\ncluster = "other"\n[clusters.other]\nbackends = ["no-such-host.invalid:80"]\n'
    proxy = fleet.proxy([good], further=other)
    proxy.admin.wait_for_healthy(1, cluster="main")
    wait_until("the name is named", lambda: "no-such-host.invalid" in proxy.admin.get("/readyz")[1], 30)
    status, text = proxy.admin.get("/readyz")
    assert status == 200 and 'warning: cluster "other" has no backend: ' in text, text
    assert "clusters.other.backends[0]" in text and "correct the name" in text, text
    assert http(proxy.url)[0] == 200
    status, text = http(proxy.url, headers={"host": "other.test"})
    assert (status, "no backend" in text) == (503, True), text
    assert sum("no-such-host.invalid" in line for line in proxy.output().splitlines()) == 1, proxy.output()
    assert proxy.admin.metric("plimsoll_discovery_failing", cluster="other") == 1


def test_name_that_cannot_be_looked_up_on_reload_is_left_out(fleet: Fleet) -> None:
    good = fleet.nginx()
    proxy = fleet.proxy([good])
    proxy.admin.wait_for_healthy(1)
    path = fleet.directory / "plimsoll-1.toml"
    text = path.read_text()
    path.write_text(text.replace(f'"{good}"', f'"{good}", "no-such-host.invalid:80"'))
    proxy.signal(signal.SIGHUP)
    wait_until("it is taken", lambda: proxy.admin.metric("plimsoll_reloads_total", result="taken") == 1, 30)
    wait_until("it is named", lambda: any("no-such-host.invalid" in json.dumps(entry) for entry in log_lines(proxy)))
    assert set(proxy.admin.backends()) == {good}
    assert proxy.admin.get("/readyz") == (200, "ready\n"), "its cluster has another backend"
    assert wrk(proxy.url, 1).errors == ""
    path.write_text(text)
    proxy.signal(signal.SIGHUP)
    wait_until("it is taken", lambda: proxy.admin.metric("plimsoll_reloads_total", result="taken") == 2)
    assert proxy.admin.metric("plimsoll_discovery_failing") == 0


# Logs.


@contextlib.contextmanager
def small_disk(directory: pathlib.Path) -> Iterator[pathlib.Path]:
    """A file system of 64 KiB; skips the test where none can be mounted."""
    directory.mkdir()
    if os.geteuid() != 0:
        pytest.skip("only root mounts a file system")
    done = run(["mount", "-t", "tmpfs", "-o", "size=64k", "tmpfs", str(directory)])
    if done.returncode != 0:
        pytest.skip(f"no tmpfs here: {done.stderr}")
    try:
        yield directory
    finally:
        run(["umount", "-l", str(directory)])


def dropped(proxy: Proxy) -> float:
    return proxy.admin.metric("plimsoll_access_log_dropped_total")


def test_access_log_on_a_full_disk_drops_lines_and_recovers(fleet: Fleet) -> None:
    with small_disk(fleet.directory / "disk") as disk:
        log = disk / "access.log"
        proxy = fleet.proxy([fleet.nginx()], further=f'[access_log]\npath = "{log}"')
        proxy.admin.wait_for_healthy(1)
        assert wrk(proxy.url, 2).errors == ""
        wait_until("lines are dropped and counted", lambda: dropped(proxy) > 0)
        assert warned(proxy, "access log"), proxy.output()[-2000:]
        assert proxy.exit_code is None
        # Moved away as logrotate does, and there is room again.
        log.unlink()
        proxy.signal(signal.SIGUSR1)
        wait_until("a new file", log.exists)

        def written() -> bool:
            serves(proxy)
            return log.stat().st_size > 0

        wait_until("lines are written again", written, 15)
        for line in log.read_text().splitlines()[:-1]:
            json.loads(line)
        proxy.stop()


def test_access_log_on_a_device_that_is_always_full_hurts_nobody(fleet: Fleet) -> None:
    proxy = fleet.proxy([fleet.nginx()], further='[access_log]\npath = "/dev/full"')
    proxy.admin.wait_for_healthy(1)
    before = proxy.resident_bytes()
    assert wrk(proxy.url, 2).errors == ""
    assert dropped(proxy) > 0
    assert proxy.resident_bytes() - before < 32 << 20
    assert serves(proxy)


def test_own_log_that_nobody_can_write_hurts_nobody(fleet: Fleet) -> None:
    """The proxy's own messages, on a full device and on a pipe that nobody reads any more."""
    for target in ("/dev/full", "pipe"):
        port, admin_port = free_port(), free_port()
        path = fleet.directory / f"log-{port}.toml"
        gone = f"127.0.0.1:{free_port()}"
        path.write_text(config(port, admin_port, [fleet.nginx(), gone]))
        command = [PLIMSOLL, "proxy", "-c", str(path)]
        if target == "pipe":
            child = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
            assert child.stdout is not None and child.stderr is not None
            child.stdout.close()
            child.stderr.close()
        else:
            with open(target, "wb") as full:
                child = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=full, stderr=full)
        try:
            wait_until("it listens", lambda: child.poll() is not None or accepts(port))
            assert child.poll() is None, f"ended with {child.poll()} on {target}"
            with Connection.to(port) as client:
                wait_until("it serves", lambda: client.request("/").status == 200)
            child.send_signal(signal.SIGHUP)
            with Connection.to(port) as client:
                assert client.request("/").status == 200
        finally:
            child.terminate()
            assert child.wait(10) in (0, -signal.SIGTERM)


def test_own_log_whose_reader_has_stopped_holds_nobody_up(fleet: Fleet) -> None:
    reader, writer = os.pipe()
    os.set_blocking(writer, False)
    with contextlib.suppress(BlockingIOError):
        while True:
            os.write(writer, b"x" * 512 + b"\n")
    os.set_blocking(writer, True)
    port, admin_port = free_port(), free_port()
    path = fleet.directory / "log.toml"
    path.write_text(config(port, admin_port, [fleet.nginx(), f"127.0.0.1:{free_port()}"]))
    child = subprocess.Popen([PLIMSOLL, "proxy", "-c", str(path)], stdin=subprocess.DEVNULL, stderr=writer)
    os.close(writer)
    try:
        wait_until("it listens", lambda: accepts(port))
        with Connection.to(port) as client:
            wait_until("it serves", lambda: client.request("/").status == 200)
            child.send_signal(signal.SIGHUP)
            assert client.request("/").status == 200
        child.terminate()
        assert child.wait(10) == 0
    finally:
        child.kill()
        os.close(reader)


def test_access_log_lines_cannot_be_forged(fleet: Fleet) -> None:
    log = fleet.directory / "access.jsonl"
    proxy = fleet.proxy([fleet.nginx()], further=f'[access_log]\npath = "{log}"')
    proxy.admin.wait_for_healthy(1)
    with Connection.to(proxy.port) as client:
        client.request("/first?status=200,'forged':1", fields='user-agent: x"}\\n{"forged":true} \xe9\x85\t\r\n')
        client.request("/second")

    def lines() -> list[str]:
        return log.read_text(encoding="utf-8").splitlines() if log.exists() else []

    wait_until("both lines", lambda: len(lines()) >= 2)
    entries = [json.loads(line) for line in lines()]
    assert len(entries) == 2
    assert not any("forged" in entry for entry in entries)
    assert all("/second" not in json.dumps(entry) for entry in entries[:1])
    assert find(entries[1], 200)


def find(value: object, wanted: object) -> bool:
    if isinstance(value, dict):
        return any(find(inner, wanted) for inner in value.values())
    return value == wanted
