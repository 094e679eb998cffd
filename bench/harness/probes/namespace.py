"""Network namespaces: a network of its own for the processes of a measurement.

Sockets in TIME_WAIT, TCP counters and firewall rules of a namespace belong to the measurement alone.
They need root.
"""

import contextlib
import ctypes
import os
import pathlib
import subprocess
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

from ..processes import find_program

_CLONE_NEWNET = 0x4000_0000
_libc = ctypes.CDLL(None, use_errno=True)
Result = TypeVar("Result")


def missing() -> str | None:
    """Why there can be no namespaces here."""
    return None if os.geteuid() == 0 else "network namespaces need root; run it with sudo"


def ip(*arguments: str) -> None:
    """Runs `ip` of iproute2."""
    subprocess.run([find_program("ip"), *arguments], check=True)


def _enter(name: str) -> None:
    """Moves the calling thread, and it alone, into a namespace."""
    with pathlib.Path(f"/var/run/netns/{name}").open("rb") as namespace:
        if _libc.setns(namespace.fileno(), _CLONE_NEWNET):
            raise OSError(ctypes.get_errno(), f"cannot enter the namespace {name}")


class Namespace:
    """A network namespace with a loopback interface, until `stop`."""

    def __init__(self, name: str):
        self.name = f"plimsoll-bench-{os.getpid()}-{name}"
        ip("netns", "add", self.name)
        try:
            ip("-n", self.name, "link", "set", "lo", "up")
        except subprocess.CalledProcessError:
            ip("netns", "delete", self.name)
            raise
        self._thread = ThreadPoolExecutor(1, initializer=_enter, initargs=(self.name,))

    def command(self, command: list[str]) -> list[str]:
        """The command that runs another one inside, with the same process id."""
        return [find_program("ip"), "netns", "exec", self.name, *command]

    def call(self, function: Callable[..., Result], *arguments: object) -> Result:
        """Runs a function on a thread inside: its sockets belong to the namespace."""
        return self._thread.submit(function, *arguments).result()

    def nft(self, rules: str) -> None:
        """Gives rules to nftables."""
        subprocess.run(self.command([find_program("nft"), "-f", "-"]), input=rules, text=True, check=True)

    def stop(self) -> None:
        self._thread.shutdown()
        ip("netns", "delete", self.name)


@contextlib.contextmanager
def namespace(name: str) -> Iterator[Namespace]:
    """A namespace that is deleted after its use, and after a failure."""
    made = Namespace(name)
    try:
        yield made
    finally:
        made.stop()
