"""Starts the processes of a benchmark, waits until they answer, reads the CPU they use, ends them by id.

CPU is user + system time of a process and all its descendants, from /proc/PID/stat. The kernel keeps the sum from exact
run times and only the split between the two by ticks, so over seconds the sum is good to one tick (10 ms).
Descendants matter: nginx works in a child of the process that was started.
"""

import ctypes
import os
import pathlib
import random
import resource
import shutil
import signal
import socket
import subprocess
import time
from dataclasses import dataclass

TICKS_PER_SECOND = os.sysconf("SC_CLK_TCK")
# Below the range that the kernel takes for outgoing connections, which a load test uses by the thousand.
PORTS = range(20_000, 32_000)
_PR_SET_PDEATHSIG = 1
_taken: set[int] = set()
_libc = ctypes.CDLL(None)


def free_port() -> int:
    """A loopback port nobody listens on, never given out twice by this process."""
    for port in random.sample(PORTS, len(PORTS)):
        if port in _taken:
            continue
        with socket.socket() as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                probe.bind(("127.0.0.1", port))
            except OSError:
                continue
        _taken.add(port)
        return port
    raise RuntimeError("no free port between 20000 and 32000; end what listens there")


def find_program(name: str) -> str:
    """The path of a program; /usr/sbin too, which is not on every user's path."""
    found = shutil.which(name, path=os.environ.get("PATH", "") + ":/usr/sbin:/sbin")
    if found is None:
        raise SystemExit(f"{name} is not installed; scripts/test installs what the benchmarks use")
    return found


def first_line(*command: str) -> str:
    """The first line a program prints, wherever it prints it: most often its version."""
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    return (done.stdout.strip() or done.stderr.strip() or "unknown").splitlines()[0]


def settle_on(cores: set[int]) -> None:
    """This process and all it starts: on these cores, and with as many descriptors as the system allows."""
    os.sched_setaffinity(0, cores)
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))


class StartFailed(Exception):
    """A process of the benchmark ended, or does not listen where it should."""


@dataclass
class Site:
    """Where a benchmark puts its files, and on which cores."""

    directory: pathlib.Path
    proxy_cores: set[int]
    load_cores: set[int]


def _die_with_parent() -> None:
    _libc.prctl(_PR_SET_PDEATHSIG, signal.SIGTERM)


@dataclass
class Cpu:
    """CPU time in seconds."""

    user: float
    system: float

    @property
    def total(self) -> float:
        return self.user + self.system

    def __sub__(self, earlier: "Cpu") -> "Cpu":
        return Cpu(self.user - earlier.user, self.system - earlier.system)


def descendants(pid: int) -> list[int]:
    """The process and all that it started and that still lives."""
    found, queue = [], [pid]
    while queue:
        current = queue.pop()
        found.append(current)
        for task in pathlib.Path(f"/proc/{current}/task").glob("*"):
            queue += [int(child) for child in (task / "children").read_text().split()]
    return found


def cpu_of_tree(pid: int) -> Cpu:
    """User and system time so far of a process and its living descendants, all threads."""
    user = system = 0
    for member in descendants(pid):
        # The name in parentheses may hold spaces; the fields after it do not.
        fields = pathlib.Path(f"/proc/{member}/stat").read_text().rpartition(")")[2].split()
        user += int(fields[11])
        system += int(fields[12])
    return Cpu(user / TICKS_PER_SECOND, system / TICKS_PER_SECOND)


def cpu_of_threads(pid: int, prefix: str) -> float:
    """Seconds of CPU so far of those threads of a process whose name begins so."""
    total = 0
    for task in pathlib.Path(f"/proc/{pid}/task").iterdir():
        head, _, fields = (task / "stat").read_text().rpartition(")")
        if head.partition("(")[2].startswith(prefix):
            total += sum(int(field) for field in fields.split()[11:13])
    return total / TICKS_PER_SECOND


def resident_bytes_of_tree(pid: int) -> int:
    """Resident memory of a process and its living descendants."""
    pages = sum(int(pathlib.Path(f"/proc/{member}/statm").read_text().split()[1]) for member in descendants(pid))
    return pages * os.sysconf("SC_PAGE_SIZE")


def forget_peak_of_tree(pid: int) -> None:
    """Makes the kernel count the peak of resident memory anew, from what is resident now."""
    for member in descendants(pid):
        pathlib.Path(f"/proc/{member}/clear_refs").write_text("5")


def peak_resident_bytes_of_tree(pid: int) -> int:
    """The most that was resident since `forget_peak_of_tree`; with several processes, as if all peaked at once."""
    total = 0
    for member in descendants(pid):
        for line in pathlib.Path(f"/proc/{member}/status").read_text().splitlines():
            if line.startswith("VmHWM:"):
                total += int(line.split()[1]) * 1024
    return total


class Process:
    """A child that lives on the given cores, logs into a file and ends with `stop`."""

    def __init__(self, name: str, command: list[str], directory: pathlib.Path, cores: set[int]):
        self.name = name
        self.log = directory / f"{name}.log"
        with self.log.open("wb") as log:
            self._child = subprocess.Popen(
                ["taskset", "--cpu-list", ",".join(map(str, sorted(cores))), *command],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                preexec_fn=_die_with_parent,
            )

    @property
    def pid(self) -> int:
        return self._child.pid

    def wait_for_port(self, port: int, seconds: float = 10, host: str = "127.0.0.1") -> None:
        """Returns once the port accepts a connection."""
        deadline = time.monotonic() + seconds
        while True:
            if self._child.poll() is not None:
                raise StartFailed(f"{self.name} ended with {self._child.returncode}:\n{self.log.read_text()}")
            try:
                socket.create_connection((host, port), timeout=1).close()
                return
            except OSError:
                if time.monotonic() > deadline:
                    raise StartFailed(
                        f"{self.name} does not listen on port {port} after {seconds} s:\n{self.log.read_text()}"
                    ) from None
                time.sleep(0.02)

    def stop(self) -> None:
        """SIGTERM, then SIGKILL if it is still there five seconds later."""
        if self._child.poll() is None:
            self._child.terminate()
            try:
                self._child.wait(5)
            except subprocess.TimeoutExpired:
                self.kill()

    def kill(self) -> None:
        """SIGKILL: for what has nothing to end in good order."""
        self._child.kill()
        self._child.wait()
