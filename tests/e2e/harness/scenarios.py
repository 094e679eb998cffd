"""All scenarios, run once for all tests that look at them, while other tests wait for their proxies.

They need minutes of CPU, and most tests need hardly any. So they begin with the session, two at a time, and take what nobody
else wants: a process of the class SCHED_IDLE gives way at once to any other. When a test waits for what is not there yet, the
rest is run like anything else: on a busy machine it would not come to its end.
"""

import contextlib
import os
import pathlib
import signal
import subprocess
import sys
import tempfile
import threading
import tomllib
from concurrent.futures import Future, ThreadPoolExecutor, wait
from dataclasses import dataclass
from typing import TypeVar

from .fleet import PLIMSOLL, ROOT
from .process import find_program

T = TypeVar("T")
NAMES = sorted(file.stem for file in (ROOT / "scenarios").glob("*.toml"))
# Seconds that a test may wait for all of them; they take some two minutes of two cores, if they have them.
WAIT = 900
# Of each kind, how many are run a second time, and up to how many seconds of CPU each: not a matter of minutes.
AGAIN = 5
AGAIN_CPU_SECONDS = 12


def kind(name: str) -> str:
    return tomllib.loads((ROOT / "scenarios" / f"{name}.toml").read_text())["kind"]


@dataclass
class Ran:
    """A process that has ended, and the seconds of CPU that it took, whatever else the machine did."""

    code: int
    out: str
    err: str
    cpu_seconds: float


class Scenarios:
    """By name the run of a scenario on one thread, `again` those that were repeated on two, `figures` what
    `scripts/figures --check` says. Each result is waited for."""

    def __init__(self, folder: pathlib.Path):
        # With each one's JSON and figures.
        self.folder = folder
        self._lock = threading.Lock()
        self._aside = True
        self._stopped = False
        self._running: set[int] = set()
        self._pool = ThreadPoolExecutor(2)
        # Those with most to say first.
        size = {name: (ROOT / "scenarios" / f"{name}.toml").stat().st_size for name in NAMES}
        self._runs: dict[str, Future[Ran]] = {
            name: self._pool.submit(self._sim, name, "1", "--out", str(folder))
            for name in sorted(NAMES, key=size.get, reverse=True)
        }
        # When one of these begins, nothing that it waits for is still in the queue.
        self._figures = self._pool.submit(self._check_figures)
        self._again = self._pool.submit(self._repeat)

    def __getitem__(self, name: str) -> Ran:
        return self._wait(self._runs[name])

    @property
    def again(self) -> dict[str, Ran]:
        return self._wait(self._again)

    @property
    def figures(self) -> Ran:
        return self._wait(self._figures)

    def stop(self) -> None:
        self._pool.shutdown(wait=False, cancel_futures=True)
        with self._lock:
            self._stopped = True
            self._kill()

    def _wait(self, future: Future[T]) -> T:
        if not future.done():
            with self._lock:
                if self._aside:
                    self._aside = False
                    # To be begun anew; an ordinary user may not give a process of SCHED_IDLE more.
                    self._kill()
        return future.result()

    def _kill(self) -> None:
        for pid in self._running:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(pid, signal.SIGKILL)

    def _sim(self, name: str, threads: str, *further: str) -> Ran:
        return self._run(PLIMSOLL, "sim", "run", name, "--threads", threads, "--json", *further)

    def _check_figures(self) -> Ran:
        wait(self._runs.values())
        return self._run(sys.executable, str(ROOT / "scripts/figures"), "--check", "--runs", str(self.folder))

    def _repeat(self) -> dict[str, Ran]:
        wait(self._runs.values())
        chosen: dict[str, list[str]] = {}
        used = {name: run.result().cpu_seconds for name, run in self._runs.items()}
        for name in sorted(NAMES, key=used.get, reverse=True):
            of_kind = chosen.setdefault(kind(name), [])
            if used[name] < AGAIN_CPU_SECONDS and len(of_kind) < AGAIN:
                of_kind.append(name)
        return {name: self._sim(name, "2") for of_kind in chosen.values() for name in of_kind}

    def _run(self, *command: str) -> Ran:
        while True:
            aside, ran = self._run_once(*command)
            is_to_hurry = aside and not self._aside and ran.code == -signal.SIGKILL
            if not is_to_hurry or self._stopped:
                return ran

    def _run_once(self, *command: str) -> tuple[bool, Ran]:
        """And whether it was run aside."""
        mortal = [find_program("setpriv"), "--pdeathsig", "KILL", "--"]
        idle = [find_program("chrt"), "--idle", "0"]
        environment = os.environ | {"PLIMSOLL_BIN": PLIMSOLL}
        with tempfile.TemporaryFile("w+") as out, tempfile.TemporaryFile("w+") as err:
            with self._lock:
                aside = self._aside
                child = subprocess.Popen(
                    [*mortal, *(idle if aside else []), *command],
                    stdin=subprocess.DEVNULL,
                    stdout=out,
                    stderr=err,
                    env=environment,
                    # Not a session: to one of its own the kernel gives as much as to this one, whatever the class (autogroup).
                    process_group=0,
                )
                self._running.add(child.pid)
            _, status, used = os.wait4(child.pid, 0)
            child.returncode = os.waitstatus_to_exitcode(status)
            with self._lock:
                self._running.remove(child.pid)
            out.seek(0)
            err.seek(0)
            return aside, Ran(child.returncode, out.read(), err.read(), used.ru_utime + used.ru_stime)
