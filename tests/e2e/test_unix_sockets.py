"""Unix sockets both ways, beside nginx with the same task: listeners, backends, their files, and their end."""

import json
import os
import pathlib
import shutil
import signal
import socket
import ssl
import stat
import subprocess
import sys
import tempfile
from collections.abc import Iterator

import pytest

from harness import http2, unix
from harness.certificates import Authority
from harness.fleet import PLIMSOLL, Fleet, Proxy
from harness.http1 import Connection, Message, answer
from harness.process import free_port, run, wait_until


@pytest.fixture
def folder() -> Iterator[pathlib.Path]:
    """A folder with a short name: those of pytest are too long for sockets."""
    path = pathlib.Path(tempfile.mkdtemp(prefix="pl-"))
    yield path
    shutil.rmtree(path)


@pytest.fixture
def upgrading(fleet: Fleet) -> Iterator[Fleet]:
    """A fleet whose proxies' successors are ended as well."""
    yield fleet
    for process in fleet.processes:
        if isinstance(process, Proxy):
            for pid in successors(process):
                try:
                    os.kill(pid, signal.SIGKILL)
                except ProcessLookupError:
                    pass


def echo(connection: Connection, request: Message) -> None:
    """Answers with the head that it got, and keeps the connection."""
    connection.read_body(request, to_close=False)
    head = "\n".join([request.start, *sorted(f"{name.lower()}: {value}" for name, value in request.fields)])
    answer(connection, f"{head}\n\n".encode() + request.body)


def fields_of(response: Message) -> dict[str, str]:
    """The fields that the echo got."""
    lines = response.body.decode().partition("\n\n")[0].splitlines()[1:]
    return dict(line.split(": ", 1) for line in lines)


def config(admin: int, address: str, backends: list[str], listener: str = "", cluster: str = "", further: str = "") -> str:
    return f"""
[admin]
listen = "127.0.0.1:{admin}"
[[listeners]]
address = "{address}"
{listener}
[[routes]]
cluster = "main"
[clusters.main]
backends = [{", ".join(f'"{backend}"' for backend in backends)}]
{cluster}
[clusters.main.health]
interval = "200ms"
{further}
"""


def start(fleet: Fleet, text: str, admin: int) -> Proxy:
    """A proxy with this file, which may fail."""
    path = fleet.directory / f"{fleet._name('unix')}.toml"
    path.write_text(text)
    proxy = Proxy(fleet._name("proxy"), ["-c", str(path)], 0, admin, fleet.directory)
    fleet.processes.append(proxy)
    return proxy


def started(fleet: Fleet, path: str, backends: list[str], **settings: str) -> Proxy:
    """A proxy at a Unix socket that serves."""
    admin = free_port()
    proxy = start(fleet, config(admin, f"unix:{path}", backends, **settings), admin)
    wait_until("it listens", lambda: unix.is_listening(path) or proxy.exit_code is not None)
    assert proxy.exit_code is None, proxy.output()
    proxy.admin.wait_for_healthy(len(backends))
    return proxy


def mode_of(path: str | pathlib.Path) -> int:
    return stat.S_IMODE(os.stat(path).st_mode)


def successors(proxy: Proxy) -> list[int]:
    lines = [json.loads(line) for line in proxy.output().splitlines() if line.startswith("{")]
    return [line["pid"] for line in lines if line["message"] == "successor started"]


def upgrade(proxy: Proxy, process: int) -> int:
    """Has `process` hand over; gives the successor's process id once it serves."""
    before = proxy.output().count("handed over to the successor")
    os.kill(process, signal.SIGUSR2)
    wait_until("handed over", lambda: proxy.output().count("handed over to the successor") > before, 20)
    return successors(proxy)[-1]


def test_task_is_done_as_nginx_does_it_over_unix_sockets_both_ways(fleet: Fleet, folder: pathlib.Path) -> None:
    server = unix.Server(fleet, f"{folder}/app.sock", echo)
    fleet.nginx_with(
        "nginx-unix",
        f"""
        upstream app {{ server unix:{server.path}; keepalive 4; }}
        server {{
            listen unix:{folder}/nginx.sock;
            location / {{
                proxy_pass http://app;
                proxy_http_version 1.1;
                proxy_set_header Host $http_host;
                proxy_set_header Connection "";
            }}
        }}""",
    )
    started(fleet, f"{folder}/web.sock", [server.address], listener='forwarded = "off"\nvia = "off"')
    unix.wait_for(f"{folder}/nginx.sock")
    seen = []
    for name in ("nginx", "web"):
        with unix.client(f"{folder}/{name}.sock") as client:
            responses = [
                client.request("/a?b=1", fields="x-one: 1\r\n"),
                client.request("/upload", method="POST", body=b"x" * 100_000),
                client.request("/"),
            ]
            seen.append([(response.status, response.body) for response in responses])
    assert seen[0] == seen[1]
    assert seen[1][0][1].startswith(b"GET /a?b=1 HTTP/1.1\nhost: site.example\nx-one: 1")


def test_connections_to_a_unix_backend_are_reused(fleet: Fleet, folder: pathlib.Path) -> None:
    server = unix.Server(fleet, f"{folder}/app.sock", echo)
    proxy = started(fleet, f"{folder}/web.sock", [server.address])
    with unix.client(f"{folder}/web.sock") as client:
        client.request("/")
        before = server.connections
        for _ in range(20):
            assert client.request("/").status == 200
        # A health check may open one.
        assert server.connections - before <= 2
    assert proxy.admin.metric("plimsoll_requests_total", backend=server.address) >= 21


def test_client_without_address_is_named_plainly(fleet: Fleet, folder: pathlib.Path) -> None:
    server = unix.Server(fleet, f"{folder}/app.sock", echo)
    log = folder / "access.log"
    both = 'forwarded = "both"'
    started(fleet, f"{folder}/web.sock", [server.address], listener=both, further=f'[access_log]\npath = "{log}"\nformat = "combined"')
    with unix.client(f"{folder}/web.sock") as client:
        got = fields_of(client.request("/", fields="x-forwarded-for: 192.0.2.1\r\nx-real-ip: 192.0.2.1\r\n"))
    assert "x-forwarded-for" not in got and "x-real-ip" not in got and "x-forwarded-port" not in got
    assert (got["x-forwarded-proto"], got["forwarded"]) == ("http", "for=unknown;proto=http;host=site.example")
    wait_until("a line in the log", lambda: log.exists() and log.read_text().startswith("unix: - - ["))


def test_trusted_proxy_at_a_unix_socket_names_the_client(fleet: Fleet, folder: pathlib.Path) -> None:
    server = unix.Server(fleet, f"{folder}/app.sock", echo)
    trust = 'trusted_proxies = ["unix:"]'
    started(fleet, f"{folder}/web.sock", [server.address], listener=trust)
    with unix.client(f"{folder}/web.sock") as client:
        got = fields_of(client.request("/", fields="x-forwarded-for: 192.0.2.1\r\n"))
    assert got["x-forwarded-for"] == "192.0.2.1"
    protocol = trust + '\nproxy_protocol = "any"'
    started(fleet, f"{folder}/proxied.sock", [server.address], listener=protocol)
    client = Connection(unix.connect(f"{folder}/proxied.sock"))
    client.send("PROXY TCP4 192.0.2.7 192.0.2.1 5000 80\r\n")
    got = fields_of(client.request("/"))
    client.close()
    assert (got["x-forwarded-for"], got["x-forwarded-port"]) == ("192.0.2.7", "80")


def test_http2_goes_in_and_out_over_unix_sockets(fleet: Fleet, folder: pathlib.Path) -> None:
    backend = fleet.backend()
    # HTTP/2 at a Unix socket: a second proxy in front of a backend that speaks it.
    started(fleet, f"{folder}/inner.sock", [backend.address])
    started(fleet, f"{folder}/outer.sock", [f"unix:{folder}/inner.sock"], cluster='protocol = "http2"')
    with unix.client2(f"{folder}/outer.sock") as client:
        for stream in (1, 3, 5):
            assert client.fetch(stream, http2.request()).status == 200


def test_tls_is_spoken_over_unix_sockets_both_ways(fleet: Fleet, folder: pathlib.Path) -> None:
    authority = Authority(folder)
    certificate = authority.issue("site", "DNS:site.example")
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate.certificate, certificate.key)
    server = unix.Server(fleet, f"{folder}/app.sock", echo, context)
    tls = f'[clusters.main.tls]\nca = "{authority.certificate}"\nserver_name = "site.example"'
    listener = f"[listeners.tls]\ncertificates = [{certificate.toml()}]"
    proxy = started(fleet, f"{folder}/web.sock", [server.address], listener=listener, further=tls)
    with unix.secure(f"{folder}/web.sock", authority.client_context(), "site.example") as client:
        assert [client.request("/").status for _ in range(3)] == [200] * 3
    assert proxy.admin.states() == {server.address: "healthy"}


@pytest.mark.skipif(sys.platform != "linux", reason="abstract sockets are of Linux")
def test_abstract_sockets_serve_both_ways(fleet: Fleet, folder: pathlib.Path) -> None:
    server = unix.Server(fleet, f"@{folder.name}-app", echo)
    started(fleet, f"@{folder.name}-web", [server.address])
    with unix.client(f"@{folder.name}-web") as client:
        assert client.request("/").status == 200


def test_file_has_its_mode_and_ends_with_the_process(fleet: Fleet, folder: pathlib.Path) -> None:
    server = unix.Server(fleet, f"{folder}/app.sock", echo)
    path = f"{folder}/web.sock"
    first = started(fleet, path, [server.address])
    assert mode_of(path) == 0o660
    file = next(fleet.directory.glob("unix-1.toml"))
    text = file.read_text()
    file.write_text(text.replace(f'address = "unix:{path}"', f'address = "unix:{path}"\nmode = "0606"'))
    first.signal(signal.SIGHUP)
    wait_until("the mode is in force", lambda: mode_of(path) == 0o606)
    # A reload that moves the listener removes the file; the admin API names the new place.
    file.write_text(text.replace(path, f"{folder}/moved.sock"))
    first.signal(signal.SIGHUP)
    wait_until("the listener has moved", lambda: unix.is_listening(f"{folder}/moved.sock") and not os.path.exists(path))
    first.signal(signal.SIGTERM)
    assert first.wait(20) == 0
    assert not os.path.exists(f"{folder}/moved.sock")


def test_file_ends_with_a_process_that_is_told_twice_to_end(fleet: Fleet, folder: pathlib.Path) -> None:
    server = unix.Server(fleet, f"{folder}/app.sock", echo)
    path = f"{folder}/web.sock"
    proxy = started(fleet, path, [server.address], further='[drain]\nannounce = "20s"\ntimeout = "30s"')
    proxy.signal(signal.SIGTERM)
    wait_until("it drains", lambda: "a second signal ends at once" in proxy.output())
    assert unix.is_listening(path), "it accepts while it announces its end"

    def told_again() -> bool:
        """Two signals within 100 ms are one wish."""
        if proxy.exit_code is None:
            proxy.signal(signal.SIGTERM)
        return proxy.exit_code is not None

    wait_until("it ends at once", told_again, 10, every=0.2)
    assert not os.path.exists(path)


def test_stale_file_is_replaced_and_a_living_process_keeps_its_own(fleet: Fleet, folder: pathlib.Path) -> None:
    server = unix.Server(fleet, f"{folder}/app.sock", echo)
    path = f"{folder}/web.sock"
    first = started(fleet, path, [server.address])
    first.kill()
    assert os.path.exists(path) and not unix.is_listening(path)
    second = started(fleet, path, [server.address])
    assert "stale Unix socket replaced" in second.output()
    admin = free_port()
    late = start(fleet, config(admin, f"unix:{path}", [server.address]), admin)
    assert late.wait(10) == 1
    for part in ("listeners[0].address", f"cannot listen at unix:{path}", "another process listens there", "ss -xlp"):
        assert part in late.output(), late.output()
    with unix.client(path) as client:
        assert client.request("/").status == 200


def test_wrong_places_are_refused_with_help(fleet: Fleet, folder: pathlib.Path) -> None:
    (folder / "file").write_text("precious")
    (folder / "closed").mkdir(mode=0o555)
    cases = {
        f"{folder}/file": ("a file that is no socket", "remove that file"),
        f"{folder}/none/web.sock": ("No such file or directory", f"make the folder {folder}/none"),
        f"{folder}/file/web.sock": ("Not a directory", "make the folder"),
    }
    if os.getuid() != 0:
        cases[f"{folder}/closed/web.sock"] = ("Permission denied", f"write to {folder}/closed")
    for path, parts in cases.items():
        admin = free_port()
        proxy = start(fleet, config(admin, f"unix:{path}", ["127.0.0.1:9"]), admin)
        assert proxy.wait(10) == 1, path
        for part in parts:
            assert part in proxy.output(), proxy.output()
    assert (folder / "file").read_text() == "precious"


def test_missing_folder_is_a_warning_of_check(fleet: Fleet, folder: pathlib.Path) -> None:
    path = folder / "plimsoll.toml"
    path.write_text(config(free_port(), f"unix:{folder}/none/web.sock", ["127.0.0.1:9"]))
    done = run([PLIMSOLL, "check", str(path)], 20)
    assert f"there is no folder {folder}/none" in done.stdout + done.stderr


def test_killed_backend_is_left_alone_until_it_comes_back(fleet: Fleet, folder: pathlib.Path) -> None:
    def named(name: bytes):
        def handler(connection: Connection, request: Message) -> None:
            connection.read_body(request, to_close=False)
            answer(connection, name)

        return handler

    one = unix.Server(fleet, f"{folder}/one.sock", named(b"one"))
    two = unix.Server(fleet, f"{folder}/two.sock", named(b"two"))
    path = f"{folder}/web.sock"
    proxy = started(fleet, path, [one.address, two.address], cluster='policy = "round-robin"')
    with unix.client(path) as client:
        assert {client.request("/").body for _ in range(8)} == {b"one", b"two"}
        one.stop()
        responses = [client.request("/") for _ in range(20)]
        assert {(response.status, response.body) for response in responses} <= {(200, b"one"), (200, b"two")}
        proxy.admin.wait_for_state(one.address, "refusing")
        assert {client.request("/").body for _ in range(8)} == {b"two"}
        one.again()
        proxy.admin.wait_for_state(one.address, "healthy")
        wait_until("it gets requests again", lambda: client.request("/").body == b"one")
    metric = proxy.admin.metric("plimsoll_requests_total", backend=one.address)
    assert metric > 0


def test_unix_backend_is_drained_and_explained_by_its_name(fleet: Fleet, folder: pathlib.Path) -> None:
    servers = [unix.Server(fleet, f"{folder}/{name}.sock", echo) for name in ("one", "two")]
    path = f"{folder}/web.sock"
    proxy = started(fleet, path, [server.address for server in servers])
    drained = servers[0].address
    admin = f"127.0.0.1:{proxy.admin.port}"
    done = run([PLIMSOLL, "drain", "--admin", admin, "--backend", drained], 40)
    assert done.returncode == 0, done.stdout + done.stderr
    assert proxy.admin.states()[drained] == "lame-duck"
    with unix.client(path) as client:
        assert client.request("/", fields="x-request-id: asked\r\n").status == 200
    explained = run([PLIMSOLL, "explain", "--admin", admin, "asked"], 20)
    assert servers[1].address in explained.stdout, explained.stdout + explained.stderr
    done = run([PLIMSOLL, "undrain", "--admin", admin, "--backend", drained], 40)
    assert done.returncode == 0, done.stdout + done.stderr
    top = run([PLIMSOLL, "top", "--once", "--json", "--admin", admin], 20)
    assert drained in top.stdout, top.stdout + top.stderr


def test_upgrade_hands_the_socket_over_and_its_file_stays(upgrading: Fleet, folder: pathlib.Path) -> None:
    server = unix.Server(upgrading, f"{folder}/app.sock", echo)
    path = f"{folder}/web.sock"
    proxy = started(upgrading, path, [server.address])
    inode = os.stat(path).st_ino
    kept = unix.client(path)
    assert kept.request("/").status == 200
    successor = upgrade(proxy, proxy.pid)
    assert kept.request("/").status == 200, "a connection from before is answered once more"
    kept.close()
    assert proxy.wait(30) == 0
    assert os.stat(path).st_ino == inode, "the predecessor has left the file"
    with unix.client(path) as client:
        assert client.request("/").status == 200
    os.kill(successor, signal.SIGTERM)
    wait_until("the successor removes it", lambda: not os.path.exists(path), 20)


def test_upgrade_to_a_config_without_the_listener_removes_its_file(upgrading: Fleet, folder: pathlib.Path) -> None:
    server = unix.Server(upgrading, f"{folder}/app.sock", echo)
    path = f"{folder}/web.sock"
    proxy = started(upgrading, path, [server.address])
    file = next(upgrading.directory.glob("unix-1.toml"))
    file.write_text(file.read_text().replace(path, f"{folder}/other.sock"))
    upgrade(proxy, proxy.pid)
    wait_until("its file is gone", lambda: not os.path.exists(path))
    with unix.client(f"{folder}/other.sock") as client:
        assert client.request("/").status == 200


def test_successor_that_does_not_serve_leaves_the_file(upgrading: Fleet, folder: pathlib.Path) -> None:
    server = unix.Server(upgrading, f"{folder}/app.sock", echo)
    path = f"{folder}/web.sock"
    proxy = started(upgrading, path, [server.address])
    file = next(upgrading.directory.glob("unix-1.toml"))
    text = file.read_text()
    taken = socket.create_server(("127.0.0.1", 0))
    # Its second listener is at a port that another process has, after the socket was handed over.
    further = f'[[listeners]]\naddress = "127.0.0.1:{taken.getsockname()[1]}"\n[[routes]]'
    file.write_text(text.replace("[[routes]]", further, 1))
    proxy.signal(signal.SIGUSR2)
    wait_until("it says so", lambda: "no upgrade" in proxy.output(), 20)
    taken.close()
    with unix.client(path) as client:
        assert client.request("/").status == 200
    proxy.signal(signal.SIGTERM)
    assert proxy.wait(20) == 0
    assert not os.path.exists(path), "the file is the first process's again"


def test_socket_of_systemd_is_served_and_its_file_stays(fleet: Fleet, folder: pathlib.Path) -> None:
    server = unix.Server(fleet, f"{folder}/app.sock", echo)
    path, admin = f"{folder}/web.sock", free_port()
    file = fleet.directory / "systemd.toml"
    file.write_text(config(admin, f"unix:{path}", [server.address]))
    passed = socket.socket(socket.AF_UNIX)
    passed.bind(path)
    passed.listen(16)
    waiting = unix.client(path)
    # What systemd does: the socket at 3, and the process id of the one that is meant.
    script = (
        f"import os; os.dup2({passed.fileno()}, 3); os.environ.update(LISTEN_FDS='1', LISTEN_PID=str(os.getpid())); "
        f"os.set_inheritable(3, True); os.execv({PLIMSOLL!r}, ['plimsoll', 'proxy', '-c', {str(file)!r}])"
    )
    process = subprocess.Popen([sys.executable, "-c", script], pass_fds=[passed.fileno()])
    try:
        passed.close()
        assert waiting.request("/").status == 200, "it had connected before the process began"
        waiting.close()
        process.send_signal(signal.SIGTERM)
        assert process.wait(20) == 0
        assert os.path.exists(path), "the file is systemd's"
    finally:
        process.kill()
        process.wait()
