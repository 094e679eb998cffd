"""`plimsoll answer` beside a Python server: the client of docs/probes.md hears the state and the load of a process."""

import pathlib
import signal
import socket
import sys
import threading
import time
from collections.abc import Iterator

import pytest

from harness import single
from harness.fleet import PLIMSOLL, http
from harness.probes import ANSWER, HAS_LOAD, HEALTHY, LAME_DUCK, NO_SUCH_PORT, NOTICE, STARTING, UNKNOWN, Datagram, ProbeClient
from harness.process import Process, free_port, run, wait_until


class Beside:
    """A Python server, `plimsoll answer` for it, and a client of both."""

    def __init__(self, directory: pathlib.Path) -> None:
        self._directory = directory
        self._running: list[Process] = []
        self.port = free_port()
        self.address = f"127.0.0.1:{self.port}"
        self.ready = ("--ready", f"http://{self.address}/healthz")
        self.client = ProbeClient("127.0.0.1", self.port)
        self._number = 0

    def start_process(self) -> Process:
        process = self._start("process", [sys.executable, str(single.__file__), "wsgiref", str(self.port)])
        process.wait_for_port(self.port)
        return process

    def answer(self, *arguments: str) -> Process:
        command = [PLIMSOLL, "answer", "--for", self.address, "--interval", "50ms", *arguments]
        answer = self._start(f"answer-{len(self._running)}", command)

        def answers() -> bool:
            assert answer.exit_code is None, answer.output()
            return "answering probes at UDP" in answer.output()

        wait_until("it answers", answers)
        return answer

    def _start(self, name: str, command: list[str]) -> Process:
        self._running.append(Process(name, command, self._directory))
        return self._running[-1]

    def get(self, path: str) -> None:
        assert http(f"http://{self.address}{path}")[0] == 200

    def ask(self, nonce: int = 1, lease: int = 0, port: int | None = None) -> Datagram:
        """The answer. Notices before it were sent again on the way."""
        self.client.send(nonce=nonce, lease=lease, port=port)
        while (answer := self.client.receive()).kind != ANSWER or answer.nonce != nonce:
            pass
        self.client.cookie = answer.cookie
        return answer

    def wait_for(self, state: int) -> Datagram:
        return wait_until(f"state {state}", lambda: next((a for a in [self.ask()] if a.state == state), None))

    def take_lease(self) -> None:
        self._number = self.ask().number
        assert self.ask(2, lease=60).lease == 60

    def wait_for_notice(self) -> Datagram:
        """The next one: an earlier one may be sent again before its acknowledgement arrives."""
        while (notice := self.client.receive()).number <= self._number:
            pass
        assert (notice.kind, notice.nonce) == (NOTICE, 2)
        self._number = notice.number
        self.client.acknowledge(notice)
        return notice

    def stop(self) -> None:
        self.client.close()
        for process in self._running:
            process.kill()


@pytest.fixture
def beside(tmp_path: pathlib.Path) -> Iterator[Beside]:
    beside = Beside(tmp_path)
    try:
        yield beside
    finally:
        beside.stop()


def test_process_is_starting_until_it_is_ready(beside: Beside) -> None:
    beside.answer(*beside.ready)
    time.sleep(0.3)
    answer = beside.ask()
    assert (answer.state, answer.number, answer.port) == (STARTING, 1, beside.port)
    beside.start_process()
    answer = beside.wait_for(HEALTHY)
    assert (answer.number, answer.flags) == (2, 0), "no load is known"
    assert beside.ask(port=beside.port + 1).state == NO_SUCH_PORT


def test_client_with_a_lease_hears_of_503_and_of_the_recovery(beside: Beside) -> None:
    beside.start_process()
    beside.answer(*beside.ready)
    beside.wait_for(HEALTHY)
    beside.take_lease()
    beside.get("/out")
    assert beside.wait_for_notice().state == LAME_DUCK
    beside.get("/back")
    assert beside.wait_for_notice().state == HEALTHY


def test_sigterm_is_told_at_once_and_the_end_waits_for_the_process(beside: Beside) -> None:
    process = beside.start_process()
    answer = beside.answer(*beside.ready, "--announce", "200ms")
    beside.wait_for(HEALTHY)
    beside.take_lease()
    answer.signal(signal.SIGTERM)
    assert beside.wait_for_notice().state == LAME_DUCK
    time.sleep(0.5)
    assert beside.ask(3).state == LAME_DUCK, "checks still pass, and are no invitation"
    assert answer.exit_code is None, "the process still accepts connections"
    process.kill()
    assert answer.wait(5) == 0


def test_drain_has_an_end_and_a_second_signal_ends_it(beside: Beside) -> None:
    beside.start_process()
    short, long = ("--announce", "0s", "--drain", "300ms"), ("--drain", "1h")
    first = beside.answer(*beside.ready, *short)
    beside.wait_for(HEALTHY)
    first.signal(signal.SIGTERM)
    assert first.wait(5) == 0
    second = beside.answer(*beside.ready, *long)
    beside.wait_for(HEALTHY)
    second.signal(signal.SIGINT)
    beside.wait_for(LAME_DUCK)
    second.signal(signal.SIGINT)
    assert second.wait(5) == 0


def test_restart_of_either_is_told(beside: Beside) -> None:
    process = beside.start_process()
    answer = beside.answer()
    first = beside.wait_for(HEALTHY)
    beside.take_lease()
    process.kill()
    assert beside.wait_for_notice().state == LAME_DUCK, "three connections in a row were refused"
    process = beside.start_process()
    notice = beside.wait_for_notice()
    assert (notice.state, notice.number, notice.instance) == (HEALTHY, 4, first.instance)
    process.kill()
    answer.stop()
    beside.start_process()
    beside.answer()
    restarted = beside.wait_for(HEALTHY)
    assert restarted.instance != first.instance and restarted.number == 2


class Group:
    """A folder like that of a control group whose processes use half a CPU of a quota of 0.8."""

    def __init__(self, folder: pathlib.Path) -> None:
        self.folder = folder
        self._begun = time.monotonic()
        folder.mkdir()
        (folder / "cpu.max").write_text("80000 100000\n")
        self._write()

    def _write(self) -> None:
        used = int((time.monotonic() - self._begun) * 500_000)
        fresh = self.folder / "cpu.stat.new"
        fresh.write_text(f"usage_usec {used}\nuser_usec {used}\nsystem_usec 0\n")
        fresh.rename(self.folder / "cpu.stat")

    def run_for(self, seconds: float) -> threading.Thread:
        until = time.monotonic() + seconds

        def keep() -> None:
            while time.monotonic() < until:
                self._write()
                time.sleep(0.005)

        thread = threading.Thread(target=keep)
        thread.start()
        return thread


@pytest.mark.parametrize(("arguments", "expected"), [((), 0.625), (("--cpus", "2"), 0.25)])
def test_load_is_the_cpu_usage_of_the_control_group(
    beside: Beside, tmp_path: pathlib.Path, arguments: tuple[str, ...], expected: float
) -> None:
    group = Group(tmp_path / "group")
    beside.start_process()
    using = group.run_for(2.5)
    beside.answer(*beside.ready, "--cgroup", str(group.folder), *arguments)
    beside.wait_for(HEALTHY)
    time.sleep(1.5)
    answer = beside.ask()
    using.join()
    assert answer.flags == HAS_LOAD and answer.in_flight == UNKNOWN
    assert answer.utilization == pytest.approx(expected, rel=0.2)
    (group.folder / "cpu.stat").unlink()
    wait_until("its load is unknown", lambda: beside.ask().flags == 0)


def refused(*arguments: str) -> tuple[int, str]:
    done = run([PLIMSOLL, "answer", *arguments])
    return done.returncode, done.stderr


def test_arguments_that_cannot_work_are_refused_with_the_fix(tmp_path: pathlib.Path) -> None:
    port = free_port()
    at = ("--for", f"127.0.0.1:{port}")
    code, text = refused("--for", f":{port}")
    assert code == 2 and "--for: probes beyond loopback need a key" in text
    assert "--probe-keys FILE" in text and "--for 127.0.0.1:PORT" in text
    for url, fix in [("https://127.0.0.1/", "https is not supported"), ("localhost", "http://HOST:PORT/PATH")]:
        code, text = refused(*at, "--ready", url)
        assert code == 2 and fix in text, text
    code, text = refused("--for", "127.0.0.1:0")
    assert code == 2 and "name the TCP port of the process" in text
    code, text = refused(*at, "--cgroup", str(tmp_path))
    assert code == 1 and f"--cgroup: {tmp_path}/cpu.stat cannot be read" in text
    (tmp_path / "cpu.stat").write_text("nr_periods 0\n")
    code, text = refused(*at, "--cgroup", str(tmp_path))
    assert code == 1 and "not a control group of version 2" in text
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as other:
        other.bind(("127.0.0.1", port))
        code, text = refused(*at)
        assert code == 1 and f"cannot answer probes at UDP 127.0.0.1:{port}: Address already in use" in text
        assert "ss -ulpn" in text
