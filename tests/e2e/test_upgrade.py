"""The binary is replaced, sockets are passed in, the config is compared and reloaded: nothing of it loses a connection."""

import json
import os
import pathlib
import re
import signal
import socket
import subprocess
import threading
import time
from collections.abc import Iterator

import pytest

from harness.fleet import PLIMSOLL, UNTIL_FINISHED, Admin, Fleet, Proxy, config, finish
from harness.http1 import Connection, Message, answer
from harness.process import Process, accepts, find_program, free_port, run, wait_until

# Requests wait for a while in the backend, so that at each moment some are in flight.
BACKEND = ("--cost", "fixed:200us", "--wait", "fixed:5ms")


class Knockers:
    """Clients that open a connection for each request, and count what goes wrong."""

    def __init__(self, port: int, threads: int = 4):
        self.port = port
        self.answered = 0
        self.failures: list[str] = []
        self._ended = threading.Event()
        self._threads = [threading.Thread(target=self._knock, daemon=True) for _ in range(threads)]
        for thread in self._threads:
            thread.start()

    def _knock(self) -> None:
        while not self._ended.is_set():
            try:
                with Connection.to(self.port) as client:
                    response = client.request("/", fields="connection: close\r\n")
                    assert response.status == 200, response.status
                self.answered += 1
            except Exception as error:  # noqa: BLE001
                self.failures.append(repr(error))

    def end(self) -> None:
        self._ended.set()
        for thread in self._threads:
            thread.join(15)


def log_lines(proxy: Process) -> list[dict]:
    return [json.loads(line) for line in proxy.output().splitlines() if line.startswith("{")]


def successors(proxy: Process) -> list[int]:
    """Process ids of the successors that were started, of successors, too: they share the log."""
    return [line["pid"] for line in log_lines(proxy) if line.get("message") == "successor started"]


def is_running(pid: int) -> bool:
    """Whether any thread is left: the first may have ended while others still hold the sockets open."""
    return any(thread_state(path) not in "ZX" for path in pathlib.Path(f"/proc/{pid}/task").glob("*/stat"))


def thread_state(stat: pathlib.Path) -> str:
    try:
        return stat.read_text().rpartition(")")[2].split()[0]
    except (FileNotFoundError, ProcessLookupError):
        return "X"


@pytest.fixture
def upgrading(fleet: Fleet) -> Iterator[Fleet]:
    """A fleet whose proxies' successors are ended as well."""
    try:
        yield fleet
    finally:
        for process in fleet.processes:
            if isinstance(process, Proxy):
                for pid in successors(process):
                    if is_running(pid):
                        os.kill(pid, signal.SIGKILL)


def upgrade(proxy: Proxy, process: int) -> int:
    """Has `process` hand over; gives the successor's process id once it serves."""
    before = len(successors(proxy))
    handed_over = proxy.output().count("handed over to the successor")
    os.kill(process, signal.SIGUSR2)
    wait_until("handed over", lambda: proxy.output().count("handed over to the successor") > handed_over, 20)
    return successors(proxy)[before]


def test_upgrades_under_load_lose_no_connection(upgrading: Fleet) -> None:
    backends = [upgrading.backend(*BACKEND) for _ in range(2)]
    addresses = [backend.address for backend in backends]
    proxy = upgrading.proxy(addresses, further='[drain]\ntimeout = "5s"')
    proxy.admin.wait_for_healthy(2)
    path = upgrading.directory / "plimsoll-1.toml"
    text = path.read_text()
    kept = [upgrading.load(proxy.url, "--rate", "200", "--duration", UNTIL_FINISHED, "--connections", "8")]
    kept.append(upgrading.load(proxy.url, "--protocol", "h2c", "--rate", "200", "--duration", UNTIL_FINISHED))
    knockers = Knockers(proxy.port)
    process = proxy.pid
    # The number of threads may be another each time: no queue is lost for it.
    for threads in (1, 3, 2):
        path.write_text(f"threads = {threads}\n{text}")
        successor = upgrade(proxy, process)
        assert proxy.admin.get("/readyz")[0] == 200, "the admin port is the successor's"
        wait_until("the predecessor has left", lambda old=process: not is_running(old), 10)
        process = successor
        before = knockers.answered
        wait_until("new connections are served", lambda before=before: knockers.answered > before + 150)
    assert proxy.exit_code == 0
    knockers.end()
    counted = finish(proxy, *kept)
    assert [load.failed for load in counted] == [0, 0], [load.raw for load in counted]
    assert all(load.requests > 100 for load in counted), [load.raw for load in counted]
    assert knockers.failures == []
    os.kill(process, signal.SIGTERM)
    wait_until("the last one has drained", lambda: not is_running(process), 10)
    assert not accepts(proxy.port)


def test_requests_and_idle_connections_of_the_predecessor_live_on(upgrading: Fleet) -> None:
    asked, release = threading.Semaphore(0), threading.Event()

    def handler(connection: Connection, request: Message) -> None:
        if "/slow" in request.start:
            asked.release()
            assert release.wait(20)
        answer(connection, b"whole")

    proxy = upgrading.proxy([upgrading.origin(handler)])
    proxy.admin.wait_for_healthy(1)
    slow, idle = Connection.to(proxy.port), Connection.to(proxy.port)
    assert idle.request("/").status == 200
    slow.send("GET /slow HTTP/1.1\r\nhost: a\r\n\r\n")
    assert asked.acquire(timeout=5)
    upgrade(proxy, proxy.pid)
    assert Connection.to(proxy.port).request("/").status == 200
    time.sleep(1)
    last = idle.request("/")
    assert (last.status, (last.get("connection") or "").lower()) == (200, "close")
    assert proxy.exit_code is None
    release.set()
    response = slow.read_response()
    assert (response.status, response.body) == (200, b"whole")
    slow.close()
    assert proxy.wait(10) == 0


def test_successor_that_cannot_start_changes_nothing(upgrading: Fleet) -> None:
    backend = upgrading.backend(*BACKEND)
    proxy = upgrading.proxy([backend.address])
    proxy.admin.wait_for_healthy(1)
    path = upgrading.directory / "plimsoll-1.toml"
    good = path.read_text()
    knockers = Knockers(proxy.port, threads=2)
    path.write_text("threads = 'many'\n" + good)
    proxy.signal(signal.SIGUSR2)
    wait_until("it says so", lambda: "no upgrade" in proxy.output(), 10)
    path.write_text(good)
    successor = upgrade(proxy, proxy.pid)
    knockers.end()
    assert knockers.failures == []
    assert is_running(successor)


def test_admin_port_answers_for_one_process_at_a_time(upgrading: Fleet) -> None:
    proxy = upgrading.proxy([upgrading.backend(*BACKEND).address])
    proxy.admin.wait_for_healthy(1)
    upgrade(proxy, proxy.pid)
    wait_until("the successor's admin port", lambda: proxy.output().count("admin listening") == 2)
    _, _, of_successor = proxy.output().partition("successor started")
    assert of_successor.index("took over") < of_successor.index("admin listening")
    assert proxy.admin.get("/readyz")[0] == 200


def test_proxy_told_to_end_during_an_upgrade_answers_what_it_has_accepted(upgrading: Fleet) -> None:
    asked, release = threading.Semaphore(0), threading.Event()

    def handler(connection: Connection, request: Message) -> None:
        if "/health" in request.start:
            answer(connection, b"", "500 Internal Server Error")
            return
        asked.release()
        assert release.wait(20)
        answer(connection, b"whole")

    # Nothing is healthy, so the successor waits for a while before it serves.
    health = 'check = "http"\npath = "/health"\ninterval = "100ms"'
    proxy = upgrading.proxy([upgrading.origin(handler)], health=health)
    proxy.signal(signal.SIGUSR2)
    wait_until("it waits", lambda: "waiting for healthy backends" in proxy.output(), 20)
    clients = [Connection.to(proxy.port) for _ in range(12)]
    for client in clients:
        client.send("GET /slow HTTP/1.1\r\nhost: a\r\n\r\n")
    for _ in clients:
        assert asked.acquire(timeout=5)
    proxy.signal(signal.SIGTERM)
    (successor,) = successors(proxy)
    wait_until("the successor has ended", lambda: not is_running(successor), 10)
    assert "ended before it served" in proxy.output()
    release.set()
    assert [client.read_response().body for client in clients] == [b"whole"] * len(clients)
    for client in clients:
        client.close()
    assert proxy.wait(10) == 0


def test_successor_that_reaches_no_backend_changes_nothing(upgrading: Fleet) -> None:
    def handler(connection: Connection, request: Message) -> None:
        answer(connection, b"here", "500 Internal Server Error" if "/broken" in request.start else "200 OK")

    health = 'check = "http"\npath = "/well"\ninterval = "100ms"'
    proxy = upgrading.proxy([upgrading.origin(handler)], health=health)
    proxy.admin.wait_for_healthy(1)
    path = upgrading.directory / "plimsoll-1.toml"
    good = path.read_text()
    # More threads have sockets of their own, which must not get anybody yet.
    path.write_text("threads = 4\n" + good.replace("/well", "/broken"))
    knockers = Knockers(proxy.port, threads=2)
    proxy.signal(signal.SIGUSR2)
    wait_until("it says so", lambda: "no upgrade" in proxy.output(), 20)
    assert 'no takeover: cluster \\"main\\" has a healthy backend for the predecessor' in proxy.output()
    (successor,) = successors(proxy)
    wait_until("the successor has ended", lambda: not is_running(successor), 10)
    assert proxy.output().count('"message":"listening"') == 1, "it never listened"
    path.write_text(good)
    upgrade(proxy, proxy.pid)
    wait_until("the next one says that it does", lambda: proxy.output().count('"message":"listening"') == 2)
    knockers.end()
    assert knockers.failures == []

def slow_accept(directory: pathlib.Path, port: int) -> tuple[str, pathlib.Path, pathlib.Path]:
    """A library whose `accept4` keeps a connection at `port` to itself: its thread gets no CPU, as on a busy machine.

    Returns the library and two files. `accepted` appears when a thread holds a connection, and names the process. The
    thread goes on when `released` exists. One connection is held; later ones are not.
    """
    source, library = directory / "accept.c", directory / "accept.so"
    accepted, released = directory / "accepted", directory / "released"
    source.write_text(f'''
        #define _GNU_SOURCE
        #include <arpa/inet.h>
        #include <dlfcn.h>
        #include <fcntl.h>
        #include <netinet/in.h>
        #include <sys/socket.h>
        #include <unistd.h>
        typedef int accepting(int, struct sockaddr *, socklen_t *, int);
        int accept4(int listener, struct sockaddr *address, socklen_t *size, int flags) {{
            int connection = ((accepting *)dlsym(RTLD_NEXT, "accept4"))(listener, address, size, flags);
            struct sockaddr_in own = {{0}};
            socklen_t length = sizeof own;
            if (connection < 0 || getsockname(listener, (struct sockaddr *)&own, &length) != 0) return connection;
            if (ntohs(own.sin_port) != {port} || open("{accepted}", O_CREAT | O_EXCL | O_WRONLY, 0600) < 0) return connection;
            while (access("{released}", F_OK) != 0) usleep(1000);
            return connection;
        }}
    ''')
    done = run([find_program("cc"), "-shared", "-fPIC", "-o", str(library), str(source), "-ldl"])
    assert done.returncode == 0, done.stderr
    return str(library), accepted, released


def test_connection_that_a_slow_thread_accepted_survives_an_upgrade(
    upgrading: Fleet, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The old process counts no connection: its thread has accepted one, and got no CPU since."""
    port, admin_port = free_port(), free_port()
    library, accepted, released = slow_accept(upgrading.directory, port)
    text = "threads = 1\n" + config(port, admin_port, [upgrading.backend(*BACKEND).address])
    monkeypatch.setenv("LD_PRELOAD", library)
    path = upgrading.directory / "slow.toml"
    path.write_text(text)
    proxy = Proxy("slow", ["-c", str(path)], port, admin_port, upgrading.directory)
    upgrading.processes.append(proxy)
    wait_until("it listens", lambda: '"message":"listening"' in proxy.output())
    proxy.admin.wait_for_healthy(1)
    client = Connection.to(port, timeout=30)
    client.send("GET / HTTP/1.1\r\nhost: a\r\nconnection: close\r\n\r\n")
    wait_until("the thread holds the connection", accepted.exists)
    upgrade(proxy, proxy.pid)
    for _ in range(50):
        with Connection.to(port) as another:
            assert another.request("/", fields="connection: close\r\n").status == 200
    assert proxy.exit_code is None, "it left while a thread held a connection"
    released.touch()
    assert client.read_response().status == 200
    client.close()
    assert proxy.wait(10) == 0


def test_sockets_that_systemd_passes_are_used(upgrading: Fleet) -> None:
    """One socket without SO_REUSEPORT, as systemd makes them, for all threads; what waits in its queue is served."""
    backend = upgrading.backend(*BACKEND)
    port, admin_port = free_port(), free_port()
    listener = socket.socket()
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    listener.bind(("127.0.0.1", port))
    listener.listen(64)
    early = Connection.to(port)
    early.send("GET / HTTP/1.1\r\nhost: a\r\n\r\n")
    path = upgrading.directory / "activated.toml"
    path.write_text("threads = 2\n" + config(port, admin_port, [backend.address]))
    log = (upgrading.directory / "activated.log").open("ab")
    # The shell puts the socket where systemd does, and its own process id, which exec keeps, where systemd puts it.
    shell = f'exec 3<&{listener.fileno()}; LISTEN_PID=$$ LISTEN_FDS=1 exec "$@"'
    # bash, as other shells know no descriptor above 9.
    command = [find_program("bash"), "-c", shell, "bash", PLIMSOLL, "proxy", "-c", str(path)]
    child = subprocess.Popen(command, pass_fds=[listener.fileno()], stdout=log, stderr=log)
    try:
        listener.close()
        assert early.read_response().status == 200
        assert [Connection.to(port).request("/").status for _ in range(20)] == [200] * 20
    finally:
        child.terminate()
        assert child.wait(10) == 0


def test_passed_socket_that_nothing_is_for_is_named_before_what_fails(fleet: Fleet) -> None:
    listener, taken = socket.socket(), socket.socket()
    for each in (listener, taken):
        each.bind(("127.0.0.1", 0))
        each.listen(1)
    path = fleet.directory / "elsewhere.toml"
    path.write_text(config(taken.getsockname()[1], free_port(), ["127.0.0.1:9"]))
    shell = f'exec 3<&{listener.fileno()}; LISTEN_PID=$$ LISTEN_FDS=1 exec "$@"'
    command = [find_program("bash"), "-c", shell, "bash", PLIMSOLL, "proxy", "-c", str(path)]
    fds = [listener.fileno()]
    done = subprocess.run(command, pass_fds=fds, capture_output=True, text=True, timeout=20, check=False)
    listener.close()
    taken.close()
    assert done.returncode == 1
    named, _, failed = done.stderr.partition("passed socket closed: no listener of the config has its address")
    assert failed and "cannot listen at" in failed and "cannot listen at" not in named, done.stderr


def test_service_manager_is_told(upgrading: Fleet, monkeypatch: pytest.MonkeyPatch) -> None:
    manager = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
    manager.settimeout(10)
    path = str(upgrading.directory / "notify")
    manager.bind(path)
    monkeypatch.setenv("NOTIFY_SOCKET", path)
    backend = upgrading.backend(*BACKEND)
    proxy = upgrading.proxy([backend.address])

    def told() -> str:
        return manager.recv(4096).decode()

    assert "READY=1" in told()
    proxy.signal(signal.SIGHUP)
    said = told()
    assert "RELOADING=1" in said and re.search(r"MONOTONIC_USEC=\d+", said), said
    assert "READY=1" in told()
    proxy.admin.wait_for_healthy(1)
    successor = upgrade(proxy, proxy.pid)
    said = told() + told()
    assert f"MAINPID={successor}" in said, said
    assert proxy.wait(40) == 0
    os.kill(successor, signal.SIGTERM)
    assert "STOPPING=1" in told()
    wait_until("it has drained", lambda: not is_running(successor), 10)
    manager.close()


def test_difference_is_told_before_a_reload_and_logged_after(fleet: Fleet) -> None:
    backends = [fleet.backend(*BACKEND) for _ in range(2)]
    proxy = fleet.proxy([backend.address for backend in backends])
    proxy.admin.wait_for_healthy(2)
    path = fleet.directory / "plimsoll-1.toml"
    old = fleet.directory / "old.toml"
    old.write_text(path.read_text())
    admin_port = free_port()
    new = config(proxy.port, admin_port, [backends[0].address], listener="max_connections = 500")
    path.write_text(new)
    done = run([PLIMSOLL, "check", "-c", str(path), "--diff", str(old)])
    assert done.returncode == 0, done.stdout + done.stderr
    assert f"listener 127.0.0.1:{proxy.port}: max_connections 10000 -> 500: open connections stay" in done.stdout
    assert f"cluster main: backend {backends[1].address} removed" in done.stdout
    assert "a reload applies all of it" in done.stdout
    proxy.signal(signal.SIGHUP)
    wait_until("the admin port has moved", lambda: accepts(admin_port))
    wait_until("the old one is closed", lambda: not accepts(int(proxy.admin.url.rpartition(":")[2])))
    # The log is written by a thread of its own.
    wait_until("it is logged", lambda: "max_connections 10000 -> 500" in proxy.output())

    path.write_text("threads = 7\n" + new)
    done = run([PLIMSOLL, "check", "-c", str(path), "--diff", str(old), "--json"])
    assert done.returncode == 1, "threads need a restart"
    told = json.loads(done.stdout)
    assert told["needs_restart"] and any(change["setting"] == "threads" for change in told["changes"])
    same = run([PLIMSOLL, "check", "-c", str(old), "--diff", str(old)])
    assert (same.returncode, same.stdout) == (0, "nothing changes\n")


def test_admin_port_is_widened_by_a_reload_and_narrowed_by_an_upgrade(upgrading: Fleet) -> None:
    proxy = upgrading.proxy([upgrading.backend(*BACKEND).address])
    proxy.admin.wait_for_healthy(1)
    port = proxy.admin.url.rpartition(":")[2]
    path = upgrading.directory / "plimsoll-1.toml"
    narrow = path.read_text()
    path.write_text(narrow.replace(f'listen = "127.0.0.1:{port}"', f'listen = "0.0.0.0:{port}"'))
    proxy.signal(signal.SIGHUP)
    moved = ("admin listening", f"0.0.0.0:{port}")
    wait_until("it has moved", lambda: moved in [(line.get("message"), line.get("address")) for line in log_lines(proxy)])
    assert proxy.admin.get("/readyz")[0] == 200
    path.write_text(narrow)
    successor = upgrade(proxy, proxy.pid)
    assert proxy.admin.get("/readyz")[0] == 200
    os.kill(successor, signal.SIGTERM)
    wait_until("it has drained", lambda: not is_running(successor), 10)


def test_admin_port_moves_to_the_port_of_a_listener_that_goes(fleet: Fleet) -> None:
    backend = fleet.backend(*BACKEND)
    proxy = fleet.proxy([backend.address])
    proxy.admin.wait_for_healthy(1)
    path = fleet.directory / "plimsoll-1.toml"
    listener_port, admin_port = free_port(), int(proxy.admin.url.rpartition(":")[2])
    with_two = path.read_text() + f'[[listeners]]\naddress = "127.0.0.1:{listener_port}"\n'
    path.write_text(with_two)
    proxy.signal(signal.SIGHUP)
    wait_until("the second listener is there", lambda: accepts(listener_port))
    knockers = Knockers(proxy.port, threads=2)
    path.write_text(config(proxy.port, listener_port, [backend.address]))
    proxy.signal(signal.SIGHUP)
    wait_until("the old one is closed", lambda: not accepts(admin_port))
    # The threads close their sockets in their own time.
    wait_until("it answers there", lambda: Admin(listener_port).get("/readyz")[1] == "ready\n")
    knockers.end()
    assert knockers.failures == []
    assert "config refused" not in proxy.output()


def test_access_log_is_written_moved_away_and_survives_a_full_disk(fleet: Fleet) -> None:
    backend = fleet.backend(*BACKEND)
    path = fleet.directory / "access.log"
    section = f'[access_log]\npath = "{path}"'
    proxy = fleet.proxy([backend.address], further=section)
    proxy.admin.wait_for_healthy(1)

    def lines(file: pathlib.Path) -> list[dict]:
        return [json.loads(line) for line in file.read_text().splitlines()] if file.exists() else []

    with Connection.to(proxy.port) as client:
        forged = 'user-agent: a" } \\n{"status": 200\r\n'
        assert client.request("/a?b=1", fields=forged).status == 200
        wait_until("one line", lambda: len(lines(path)) == 1)
        (line,) = lines(path)
        assert (line["method"], line["path"], line["status"], line["cluster"]) == ("GET", "/a?b=1", 200, "main")
        assert line["backend"] == backend.address and line["attempts"] == 1 and line["complete"]
        assert line["user_agent"] == 'a" } \\n{"status": 200'
        moved = fleet.directory / "access.log.1"
        path.rename(moved)
        proxy.signal(signal.SIGUSR1)
        wait_until("the file is there again", path.exists)
        assert client.request("/b").status == 200
        wait_until("the next line", lambda: [line["path"] for line in lines(path)] == ["/b"])
        assert len(lines(moved)) == 1

        config_file = fleet.directory / "plimsoll-1.toml"
        config_file.write_text(config_file.read_text().replace(str(path), "/dev/full"))
        proxy.signal(signal.SIGHUP)
        wait_until("reloaded", lambda: "config reloaded" in proxy.output())
        for _ in range(200):
            assert client.request("/c").status == 200
        wait_until("it says so", lambda: "access log cannot be written" in proxy.output())
        assert proxy.output().count("access log cannot be written") == 1
        config_file.write_text(config_file.read_text().replace("/dev/full", str(path)))
        proxy.signal(signal.SIGHUP)
        wait_until("written again", lambda: any(line["path"] == "/c" for line in lines(path)))
