"""`plimsoll reload`, `upgrade`, `drain`, `status`: each commands one proxy, and its exit code tells the outcome."""

import json
import os
import pathlib
import re
import shutil
import signal
import subprocess
import tempfile
import threading

import pytest

from harness.fleet import PLIMSOLL, ROOT, Fleet, Proxy, config, http
from harness.http1 import Connection, Message, answer
from harness.process import find_program, free_port, run, wait_until
from test_upgrade import BACKEND, is_running, log_lines, upgrading  # noqa: F401

LIMITS = "max_connections = 500"


def command(*arguments: str, seconds: float = 60) -> subprocess.CompletedProcess[str]:
    return run([PLIMSOLL, *arguments], seconds)


def admin(proxy: Proxy) -> str:
    return proxy.admin.url.removeprefix("http://")


def on(proxy: Proxy, name: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    """A command to this proxy by its admin address."""
    return command(name, "--admin", admin(proxy), *arguments)


def status(proxy: Proxy) -> dict:
    done = on(proxy, "status", "--json")
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def config_of(fleet: Fleet, number: int = 1) -> pathlib.Path:
    return fleet.directory / f"plimsoll-{number}.toml"


class Slow:
    """A backend that answers `/slow` when it is released."""

    def __init__(self, fleet: Fleet):
        self.asked, self.released = threading.Semaphore(0), threading.Event()
        self.address = fleet.origin(self._handle)

    def _handle(self, connection: Connection, request: Message) -> None:
        if "/slow" in request.start:
            self.asked.release()
            assert self.released.wait(30)
        answer(connection, b"whole")

    def ask(self, port: int) -> Connection:
        """A client whose request is at the backend."""
        client = Connection.to(port, timeout=30)
        client.send("GET /slow HTTP/1.1\r\nhost: a\r\n\r\n")
        assert self.asked.acquire(timeout=10)
        return client


def test_reload_prints_the_changes_of_the_one_proxy_it_addresses(fleet: Fleet) -> None:
    backend = fleet.backend(*BACKEND)
    proxies = [fleet.proxy([backend.address]) for _ in range(2)]
    for number, proxy in enumerate(proxies, 1):
        path = config_of(fleet, number)
        path.write_text(path.read_text().replace("[[routes]]", f"{LIMITS}\n[[routes]]"))
    done = on(proxies[0], "reload")
    assert done.returncode == 0, done.stderr
    assert "max_connections 10000 -> 500: open connections stay" in done.stdout
    assert f"reloaded {config_of(fleet)}" in done.stdout
    assert [(status(proxy)["last_reload"] or {}).get("result") for proxy in proxies] == ["taken", None]
    again = on(proxies[0], "reload")
    assert again.returncode == 0 and "nothing changed" in again.stdout


def test_refused_reload_prints_the_problems_as_check_does(fleet: Fleet) -> None:
    proxy = fleet.proxy([fleet.backend(*BACKEND).address])
    path = config_of(fleet)
    path.write_text(path.read_text().replace('cluster = "main"', 'cluster = "man"') + "\nthreads = 'many'\n")
    done, checked = on(proxy, "reload"), command("check", "-c", str(path))
    assert done.returncode == 1
    assert done.stderr.startswith(checked.stderr), f"{done.stderr}\n--- by check:\n{checked.stderr}"
    assert "nothing has changed" in done.stderr and done.stdout == ""
    last = status(proxy)["last_reload"]
    assert last["result"] == "refused" and "man" in last["error"]
    table = on(proxy, "status")
    assert table.returncode == 0 and re.search(r"^  reload +refused .* ago: ", table.stdout, re.MULTILINE), table.stdout


def test_refused_reload_logs_one_line_per_problem(fleet: Fleet) -> None:
    proxy = fleet.proxy([fleet.backend(*BACKEND).address])
    path = config_of(fleet)
    path.write_text(path.read_text().replace('cluster = "main"', 'cluster = "man"').replace("backends =", "bakends ="))
    proxy.signal(signal.SIGHUP)
    wait_until("it is refused", lambda: "config refused" in proxy.output())
    lines = [line for line in log_lines(proxy) if line["message"] == "config problem"]
    problems = json.loads(json.dumps(lines))
    count = command("check", "-c", str(path)).stderr.strip().splitlines()[-1]
    assert count == f"{len(problems)} problems" and len(problems) >= 2
    for line in problems:
        assert line["file"] == str(path) and line["reason"] and line["help"], line
        assert "\n" not in line["reason"] + line["help"]
    assert any(line["place"].endswith("routes[0].cluster") for line in problems), problems
    (last,) = [line for line in log_lines(proxy) if line["message"].startswith("config refused")]
    assert last["problems"] == len(problems) and "error" not in last


def test_reload_of_a_proxy_without_a_file_fails_with_the_reason(fleet: Fleet) -> None:
    proxy = fleet.proxy_to([fleet.backend(*BACKEND).address])
    done = on(proxy, "reload")
    assert done.returncode == 1
    assert "--from and --to" in done.stderr and "help: start it with -c FILE" in done.stderr


@pytest.mark.parametrize("name", ["reload", "upgrade", "drain", "status"])
def test_command_exits_2_where_no_proxy_is(name: str, tmp_path: pathlib.Path) -> None:
    done = command(name, "--admin", f"127.0.0.1:{free_port()}")
    assert done.returncode == 2 and "error: no proxy at 127.0.0.1:" in done.stderr and "help: " in done.stderr
    missing = command(name, "--pid-file", str(tmp_path / "none.pid"))
    assert missing.returncode == 2 and "none.pid" in missing.stderr and "help: " in missing.stderr
    both = command(name, "--pid-file", "a", "--admin", ":1")
    assert both.returncode == 2


def test_stale_pid_file_is_an_error_and_signals_nobody(tmp_path: pathlib.Path) -> None:
    bystander = subprocess.Popen([find_program("sleep"), "60"])
    ended = subprocess.Popen([find_program("true")])
    ended.wait()
    file = tmp_path / "proxy.pid"
    try:
        # Within `exec` a process has no arguments for a moment.
        wait_until("the bystander runs", lambda: pathlib.Path(f"/proc/{bystander.pid}/cmdline").read_bytes())
        for content, reason in (
            (f"{bystander.pid}\n", f"process {bystander.pid} is `sleep`, not `plimsoll proxy`"),
            (f"{ended.pid}\n", f"no process {ended.pid} runs"),
            ("no number\n", "is no pid file"),
            ("-1\n", "is no pid file"),
        ):
            file.write_text(content)
            for name in ("reload", "upgrade", "drain", "status"):
                done = command(name, "--pid-file", str(file))
                assert done.returncode == 2 and reason in done.stderr and "help: " in done.stderr, done.stderr
        assert bystander.poll() is None
    finally:
        bystander.kill()
        bystander.wait()


def test_upgrade_ends_when_the_successor_serves(upgrading: Fleet) -> None:  # noqa: F811
    proxy = upgrading.proxy([upgrading.backend(*BACKEND).address])
    proxy.admin.wait_for_healthy(1)
    done = on(proxy, "upgrade")
    assert done.returncode == 0, done.stderr
    after = status(proxy)
    assert done.stdout == f"process {after['pid']} serves, in place of {proxy.pid}\n"
    assert after["pid"] != proxy.pid and after["state"] == "ready"
    assert proxy.wait(40) == 0
    assert on(proxy, "drain").returncode == 0
    assert not is_running(after["pid"])


def test_upgrade_is_answered_by_a_proxy_without_clients(upgrading: Fleet) -> None:  # noqa: F811
    proxy = upgrading.proxy([upgrading.backend(*BACKEND).address])
    proxy.admin.wait_for_healthy(1)
    # A proxy without clients leaves within a millisecond. It did not wait until its answer was written, and one upgrade in
    # six got none on a busy machine, one in thirty on a quiet one.
    for _ in range(40):
        done = on(proxy, "upgrade")
        assert done.returncode == 0, done.stderr


def test_upgrade_that_is_given_up_says_why(upgrading: Fleet) -> None:  # noqa: F811
    proxy = upgrading.proxy([upgrading.backend(*BACKEND).address])
    proxy.admin.wait_for_healthy(1)
    path = config_of(upgrading)
    good = path.read_text()
    path.write_text("threads = 'many'\n" + good)
    done = on(proxy, "upgrade")
    assert done.returncode == 1
    assert f"no upgrade, process {proxy.pid} goes on" in done.stderr
    assert "threads" in done.stderr and "help: " in done.stderr, done.stderr
    now = status(proxy)
    assert now["pid"] == proxy.pid and "threads" in now["last_failed_upgrade"]["error"]
    path.write_text(good)
    assert on(proxy, "upgrade").returncode == 0


def test_drain_waits_for_the_end_and_a_second_one_cuts_nothing_off(fleet: Fleet) -> None:
    slow = Slow(fleet)
    proxy = fleet.proxy([slow.address])
    client = slow.ask(proxy.port)
    first = on(proxy, "drain", "--timeout", "500ms")
    assert first.returncode == 1
    assert f"draining process {proxy.pid}: 1 request in flight" in first.stderr
    assert f"process {proxy.pid} still drains: 1 request in flight" in first.stderr
    now = status(proxy)
    assert now["state"] == "draining" and now["requests_in_flight"] == 1 and now["draining_for_s"] > 0
    second = subprocess.Popen([PLIMSOLL, "drain", "--admin", admin(proxy)], stdout=subprocess.PIPE, text=True)
    slow.released.set()
    assert client.read_response().body == b"whole"
    client.close()
    assert second.communicate(timeout=30)[0] == f"process {proxy.pid} has ended\n"
    assert second.returncode == 0
    assert proxy.wait(1) == 0, "the command ended with it"


def test_drain_that_cuts_requests_off_exits_1(fleet: Fleet) -> None:
    slow = Slow(fleet)
    proxy = fleet.proxy([slow.address], further='[drain]\ntimeout = "1s"\nannounce = "50ms"')
    client = slow.ask(proxy.port)
    done = on(proxy, "drain")
    assert done.returncode == 1
    assert "drain timed out" in done.stderr and "cut 1 request off after 1s" in done.stderr, done.stderr
    proxy.wait(10)
    slow.released.set()
    client.close()


def test_status_tells_what_a_person_asks_first(fleet: Fleet) -> None:
    backend = fleet.backend(*BACKEND)
    proxy = fleet.proxy([backend.address])
    proxy.admin.wait_for_healthy(1)
    done = on(proxy, "status")
    assert done.returncode == 0
    for line in (
        rf"plimsoll [\d.]+, process {proxy.pid}: ready, up \w+",
        rf"  config +{config_of(fleet)}",
        r"  reload +none since the start",
        r"  requests +0 in flight",
        rf"  listener +127.0.0.1:{proxy.port}: 0 connections",
        r"  cluster +main: 1 of 1 backends healthy",
    ):
        assert re.search(f"^{line}$", done.stdout, re.MULTILINE), done.stdout
    told = status(proxy)
    assert told["clusters"] == [{"name": "main", "backends": 1, "healthy": 1}]
    assert told["uptime_s"] > 0 and told["drain_timeout_s"] == 30


def test_browser_page_of_another_site_commands_nothing(fleet: Fleet) -> None:
    proxy = fleet.proxy([fleet.backend(*BACKEND).address])
    for path in ("reload", "upgrade", "drain"):
        url = f"{proxy.admin.url}/api/v1/process/{path}"
        assert http(url)[0] == 405, "a link changes nothing"
        for headers in (
            {"origin": "http://evil.example"},
            {"origin": "null"},
            {"sec-fetch-site": "cross-site"},
            {"sec-fetch-site": "same-site"},
            {"host": "evil.example"},
        ):
            assert http(url, method="POST", body=b"", headers=headers)[0] == 403, (path, headers)
    now = status(proxy)
    assert now["pid"] == proxy.pid and now["state"] != "draining" and now["last_reload"] is None


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can be another user")
def test_command_of_another_user_is_refused(fleet: Fleet) -> None:
    """As a signal would be."""
    proxy = fleet.proxy([fleet.backend(*BACKEND).address])
    other = [find_program("setpriv"), "--reuid", "65534", "--regid", "65534", "--clear-groups", "--"]
    with tempfile.TemporaryDirectory() as folder:
        # The directories of a test are closed to other users.
        pathlib.Path(folder).chmod(0o755)
        program = shutil.copy(PLIMSOLL, folder)
        for name in ("reload", "upgrade", "drain"):
            done = run([*other, program, name, "--admin", admin(proxy)])
            assert done.returncode == 1 and "its own user and from root only" in done.stderr, done.stderr
            assert "help: run the command as the user of the proxy, or as root" in done.stderr
        assert run([*other, program, "status", "--admin", admin(proxy)]).returncode == 0, "anybody may read"
    now = status(proxy)
    assert now["state"] != "draining" and now["last_reload"] is None
    assert on(proxy, "reload").returncode == 0, "the same user may"


def with_pid_file(fleet: Fleet, text: str, port: int, admin_port: int) -> tuple[Proxy, pathlib.Path]:
    """A proxy that writes a pid file; its file is `pid.toml`."""
    path, pid_file = fleet.directory / "pid.toml", fleet.directory / "proxy.pid"
    path.write_text(text)
    proxy = Proxy("pid", ["-c", str(path), "--pid-file", str(pid_file)], port, admin_port, fleet.directory)
    fleet.processes.append(proxy)
    proxy.wait_for_port(port)
    wait_until("the pid file is there", pid_file.exists)
    return proxy, pid_file


def test_pid_file_leads_to_the_admin_api(upgrading: Fleet) -> None:  # noqa: F811
    port, admin_port = free_port(), free_port()
    text = config(port, admin_port, [upgrading.backend(*BACKEND).address])
    proxy, pid_file = with_pid_file(upgrading, text, port, admin_port)
    proxy.admin.wait_for_healthy(1)
    by_file = ["--pid-file", str(pid_file)]
    assert pid_file.read_text() == f"{proxy.pid}\n"
    (upgrading.directory / "pid.toml").write_text(text.replace("[[routes]]", f"{LIMITS}\n[[routes]]"))
    reloaded = command("reload", *by_file)
    assert reloaded.returncode == 0 and "max_connections 10000 -> 500" in reloaded.stdout, reloaded.stderr
    upgraded = command("upgrade", *by_file)
    assert upgraded.returncode == 0, upgraded.stderr
    successor = int(pid_file.read_text())
    assert upgraded.stdout == f"process {successor} serves, in place of {proxy.pid}\n"
    assert proxy.wait(40) == 0
    assert int(pid_file.read_text()) == successor, "it is the successor's now"
    drained = command("drain", *by_file)
    assert drained.returncode == 0, drained.stderr
    assert not is_running(successor) and not pid_file.exists()


def test_proxy_without_an_admin_api_is_commanded_by_signals(upgrading: Fleet) -> None:  # noqa: F811
    port = free_port()
    text = config(port, 0, [upgrading.backend(*BACKEND).address]).replace('"127.0.0.1:0"', '"off"')
    proxy, pid_file = with_pid_file(upgrading, text, port, 0)
    by_file, path = ["--pid-file", str(pid_file)], upgrading.directory / "pid.toml"
    told = command("status", *by_file)
    assert told.returncode == 1 and f"process {proxy.pid} runs" in told.stderr
    path.write_text("threads = 'many'\n" + text)
    refused = command("reload", *by_file)
    assert refused.returncode == 1 and "threads" in refused.stderr
    assert "config refused" not in proxy.output(), "it was not signalled"
    path.write_text(text)
    reloaded = command("reload", *by_file)
    assert reloaded.returncode == 0 and f"SIGHUP sent to process {proxy.pid}" in reloaded.stdout, reloaded.stderr
    wait_until("it has reloaded", lambda: "config reloaded" in proxy.output())
    upgraded = command("upgrade", *by_file)
    successor = int(pid_file.read_text())
    assert upgraded.returncode == 0, upgraded.stderr
    assert upgraded.stdout == f"process {successor} serves, in place of {proxy.pid}\n" and successor != proxy.pid
    drained = command("drain", *by_file)
    assert drained.returncode == 0 and not is_running(successor) and not pid_file.exists(), drained.stderr


def test_pid_file_that_cannot_be_written_is_found_before_serving(fleet: Fleet) -> None:
    port = free_port()
    arguments = ["--from", f"127.0.0.1:{port}", "--to", "127.0.0.1:9", "--admin", "off"]
    done = command("proxy", *arguments, "--pid-file", "/nonexistent/proxy.pid")
    assert done.returncode == 1 and "cannot write the pid file /nonexistent/proxy.pid" in done.stderr
    assert '"listening"' not in done.stderr


def test_unit_reloads_by_a_command_that_reports_the_outcome() -> None:
    unit = (ROOT / "examples" / "plimsoll.service").read_text()
    (reload,) = re.findall(r"^ExecReload=(.*)$", unit, re.MULTILINE)
    program, *arguments = reload.split()
    assert program.endswith("/plimsoll") and arguments[0] == "reload"
    assert "kill -" not in unit.replace("systemctl kill -s USR1", "")
    for line in re.findall(r"/plimsoll ([a-z]+)", unit):
        assert command(line, "--help").returncode == 0, line


def test_bash_completes_scenarios_and_commands() -> None:
    def completed(*words: str) -> list[str]:
        script = (
            f'source <("{PLIMSOLL}" completions bash); COMP_WORDS=(plimsoll "$@"); COMP_CWORD=$#; '
            '_plimsoll plimsoll "${COMP_WORDS[COMP_CWORD]}" "${COMP_WORDS[COMP_CWORD - 1]}"; printf "%s\\n" "${COMPREPLY[@]}"'
        )
        done = run([find_program("bash"), "-c", script, "bash", *words])
        assert done.returncode == 0, done.stderr
        return done.stdout.split()

    assert "two-speeds" in completed("sim", "run", "two")
    assert "two-speeds" in completed("sim", "report", "two")
    assert completed("rel") == ["reload"]
    assert {"--admin", "--pid-file", "--timeout"} <= set(completed("drain", "--"))


def test_drain_of_a_backend_waits_for_its_requests_and_undrain_for_its_health(fleet: Fleet) -> None:
    slow, other = Slow(fleet), fleet.backend(*BACKEND)
    proxy = fleet.proxy([slow.address, other.address], cluster='policy = "round-robin"')
    proxy.admin.wait_for_healthy(2)
    clients = []
    while not clients:
        client = Connection.to(proxy.port, timeout=30)
        client.send("GET /slow HTTP/1.1\r\nhost: a\r\n\r\n")
        if slow.asked.acquire(timeout=1):
            clients.append(client)
    name = f"backend {slow.address} of cluster main"
    late = on(proxy, "drain", "--backend", slow.address, "--timeout", "500ms")
    assert late.returncode == 1 and late.stdout == ""
    assert f"{name}: 1 request in flight after 500ms\n  help: it stays drained; wait longer with --timeout" in late.stderr
    assert proxy.admin.states()[slow.address] == "lame-duck"
    waiting = subprocess.Popen(
        [PLIMSOLL, "drain", "--admin", admin(proxy), "--backend", slow.address], stdout=subprocess.PIPE, text=True
    )
    slow.released.set()
    assert clients[0].read_response().body == b"whole"
    assert waiting.communicate(timeout=30)[0] == f"{name}: drained, no request in flight\n"
    assert waiting.returncode == 0
    with Connection.to(proxy.port) as client:
        for _ in range(4):
            assert client.request("/").body != b"whole", "it gets no new request"
    back = on(proxy, "undrain", "--backend", slow.address)
    assert (back.returncode, back.stdout) == (0, f"{name}: healthy\n"), back.stderr
    assert proxy.admin.states()[slow.address] == "healthy"


def test_undrain_of_a_backend_that_stays_away_exits_1(fleet: Fleet) -> None:
    backend = fleet.backend(*BACKEND)
    proxy = fleet.proxy([backend.address])
    proxy.admin.wait_for_healthy(1)
    drained = on(proxy, "drain", "--backend", backend.address)
    assert drained.returncode == 0 and "warning: cluster main has no healthy backend left" in drained.stderr
    backend.kill()
    back = on(proxy, "undrain", "--backend", backend.address, "--timeout", "1s")
    assert back.returncode == 1 and f"error: backend {backend.address} of cluster main: " in back.stderr
    assert "after 1s\n  help: look at its process and at the health check" in back.stderr, back.stderr


def test_drain_of_a_backend_names_what_is_missing_or_ambiguous(fleet: Fleet) -> None:
    address, alone = fleet.backend(*BACKEND).address, fleet.backend(*BACKEND).address
    second = f'[clusters.second]\nbackends = ["{address}", "{alone}"]\n[[routes]]\npath_prefix = "/second"\ncluster = "second"\n'
    proxy = fleet.proxy([address], further=second)
    proxy.admin.wait_for_healthy(1, cluster="main")
    both = on(proxy, "drain", "--backend", address)
    assert both.returncode == 1
    assert f"several clusters have the backend {address}\n  help: name one with --cluster: main, second" in both.stderr
    assert set(proxy.admin.states("main").values()) == {"healthy"}, "nothing is drained"
    named = on(proxy, "drain", "--backend", address, "--cluster", "second")
    assert named.returncode == 0 and named.stdout == f"backend {address} of cluster second: drained, no request in flight\n"
    assert proxy.admin.states("second")[address] == "lame-duck" and proxy.admin.states("main")[address] == "healthy"
    only = on(proxy, "drain", "--backend", alone)
    assert only.returncode == 0 and " of cluster second: " in only.stdout, "the one cluster that has it"
    for arguments, expected in [
        (["--backend", "127.0.0.1:9"], "no cluster has the backend 127.0.0.1:9\n  help: the clusters are main, second"),
        (["--backend", address, "--cluster", "x"], 'there is no cluster "x"\n  help: use one of: main, second'),
        (["--backend", "127.0.0.1:9", "--cluster", "main"], f'"main"\n  help: use one of: {address}'),
    ]:
        for name in ("drain", "undrain"):
            done = on(proxy, name, *arguments)
            assert done.returncode == 1 and expected in done.stderr, done.stderr
    for arguments in (["drain", "--cluster", "main"], ["drain", "--backend", "main"], ["undrain"]):
        assert command(*arguments).returncode == 2, arguments
    assert command("undrain", "--backend", address, "--admin", f"127.0.0.1:{free_port()}").returncode == 2
    assert proxy.exit_code is None, "the proxy itself goes on"
