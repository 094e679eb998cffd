"""One child process: starting it, knowing when it answers, ending it by its id, keeping its log."""

import json
import os
import pathlib
import random
import shutil
import signal
import socket
import subprocess
import time
from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")
# Below the range from which the kernel takes ports for outgoing connections: a client elsewhere on
# the machine could otherwise get the port of a backend that is being restarted.
PORTS = range(20_000, 32_000)
# A lock for each port given out, held to the end of this process. The Rust tests take the same
# locks (plimsoll-testkit, `ports`), so that no two tests of the machine share a port.
_locks: list[socket.socket] = []


def free_port() -> int:
    """A loopback port on which nothing listens. No other test gets it while this process lives."""
    for port in random.sample(PORTS, len(PORTS)):
        if (lock := _lock(port)) is None:
            continue
        with socket.socket() as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                probe.bind(("127.0.0.1", port))
            except OSError:
                lock.close()
                continue
        _locks.append(lock)
        return port
    raise RuntimeError("no free port between 20000 and 32000")


def _lock(port: int) -> socket.socket | None:
    """The lock of a port: a Unix socket with an abstract name, which ends with its process."""
    lock = socket.socket(socket.AF_UNIX)
    try:
        lock.bind(f"\0plimsoll-test-port-{port}")
    except OSError:
        lock.close()
        return None
    return lock


def find_program(name: str) -> str:
    """The path of a program; /usr/sbin too, which is not on every user's path."""
    found = shutil.which(name, path=os.environ.get("PATH", "") + ":/usr/sbin:/sbin")
    assert found is not None, f"{name} is not installed; scripts/test installs what these tests use"
    return found


def wait_until(what: str, condition: Callable[[], T], seconds: float = 10, every: float = 0.02) -> T:
    """The first true value of `condition`, asked again and again; fails with `what` when there is none in time."""
    deadline = time.monotonic() + seconds
    while True:
        value = condition()
        if value:
            return value
        assert time.monotonic() < deadline, f"not within {seconds} s: {what} (last: {value!r})"
        time.sleep(every)


def accepts(port: int) -> bool:
    """Whether a connection to the port succeeds now."""
    try:
        socket.create_connection(("127.0.0.1", port), timeout=1).close()
        return True
    except OSError:
        return False


class Process:
    """A child whose output goes into a file, and which dies with this process."""

    def __init__(self, name: str, command: list[str], directory: pathlib.Path):
        self.name = name
        self.log = directory / f"{name}.log"
        self.command = command
        with self.log.open("ab") as log:
            self._child = subprocess.Popen(
                # setpriv and not preexec_fn: Python code between fork and exec can hang when threads are running.
                [find_program("setpriv"), "--pdeathsig", "KILL", "--", *command],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
            )

    @property
    def pid(self) -> int:
        return self._child.pid

    @property
    def exit_code(self) -> int | None:
        return self._child.poll()

    def output(self) -> str:
        return self.log.read_text(errors="replace")

    def wait_for_port(self, port: int, seconds: float = 10) -> None:
        def ready() -> bool:
            assert self.exit_code is None, f"{self.name} ended with {self.exit_code}:\n{self.output()}"
            return accepts(port)

        wait_until(f"{self.name} listens on port {port}", ready, seconds)

    def signal(self, number: signal.Signals) -> None:
        self._child.send_signal(number)

    def wait(self, seconds: float) -> int:
        """The exit code, once it has ended by itself."""
        try:
            return self._child.wait(seconds)
        except subprocess.TimeoutExpired:
            raise AssertionError(f"{self.name} still runs after {seconds} s:\n{self.output()[-2000:]}") from None

    def kill(self) -> None:
        self._child.kill()
        self._child.wait()

    def stop(self) -> None:
        """SIGTERM, then SIGKILL if it is still there three seconds later."""
        if self._child.poll() is None:
            self._child.terminate()
            try:
                self._child.wait(3)
            except subprocess.TimeoutExpired:
                self.kill()

    def resident_bytes(self) -> int:
        pages = int(pathlib.Path(f"/proc/{self.pid}/statm").read_text().split()[1])
        return pages * os.sysconf("SC_PAGE_SIZE")


def run(command: list[str], seconds: float = 60, stdin: str | None = None) -> subprocess.CompletedProcess[str]:
    """Runs a command to its end and returns what it printed, whatever its exit code."""
    return subprocess.run(command, capture_output=True, text=True, timeout=seconds, check=False, input=stdin)


def run_json(command: list[str], seconds: float = 60) -> dict:
    """Runs a command that has to succeed and print JSON."""
    done = run(command, seconds)
    assert done.returncode == 0, f"{' '.join(command)} ended with {done.returncode}:\n{done.stdout}{done.stderr}"
    return json.loads(done.stdout)
