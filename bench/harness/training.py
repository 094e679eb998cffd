"""The work that an instrumented binary does so that the compiler learns which of its code runs often (`scripts/release`).

What an operator's proxy and a protected backend do, a few seconds each: HTTP/1.1, HTTP/2, gRPC, TLS on both sides, bodies, and
being offered ten times what can be served. Only the process of each part that is to be optimised writes a profile; load and
plain backends are the same binary, and what they do often would count as well.
"""

import contextlib
import os
import pathlib
import subprocess
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from .certificate import Certificate
from .overload.contestants import LimitedSetup, Sidecar
from .overload.measure import COST, overload_command
from .peers import Plimsoll, Setup
from .processes import Process, Site, StartFailed, free_port

# Where LLVM's runtime writes counts when a process ends; %p is the process, %m the binary.
_PROFILE = "LLVM_PROFILE_FILE"
# What each part works for. Longer makes the profile no better: what counts is which code runs often beside other code.
_SECONDS = 4
_MANY = ("--concurrency", "50", "--fail-on-error")
# Of the capacity.
_OVERLOAD = 10


@dataclass(frozen=True)
class _SecuredSetup(Setup):
    # The authority of the backends' certificates.
    ca: pathlib.Path | None = None


class _Secured(Plimsoll):
    """Speaks TLS to its backends."""

    def further(self) -> tuple[str, str]:
        return "", f'[clusters.backends.tls]\nca = "{self.setup.ca}"\nserver_name = "localhost"'


class Training:
    """Starts what each part needs, and ends it, by which it writes its profile."""

    def __init__(self, program: pathlib.Path, profiles: pathlib.Path, directory: pathlib.Path, seconds: float):
        self.program = str(program)
        self.profiles = str(profiles / "%p-%m.profraw")
        self.directory = directory
        self.seconds = seconds
        self.cores = os.sched_getaffinity(0)
        self.certificate = Certificate(directory)
        self.proxies = 0
        Plimsoll.program = self.program

    @contextlib.contextmanager
    def _recorded(self, recorded: bool) -> Iterator[None]:
        """What is started within leaves a profile, or none."""
        os.environ[_PROFILE] = self.profiles if recorded else os.devnull
        try:
            yield
        finally:
            os.environ.pop(_PROFILE)

    def _backend(self, running: contextlib.ExitStack, *options: str, recorded: bool = False) -> tuple[Process, int]:
        port = free_port()
        command = [self.program, "backend", "--listen", f"127.0.0.1:{port}", *options]
        with self._recorded(recorded):
            backend = Process(f"backend-{port}", command, self.directory, self.cores)
        # Only an end in good order leaves a profile, and takes a second.
        running.callback(backend.stop if recorded else backend.kill)
        backend.wait_for_port(port)
        return backend, port

    def _proxy(self, running: contextlib.ExitStack, kind: type[Plimsoll], setup: Setup) -> int:
        self.proxies += 1
        with self._recorded(True):
            proxy = kind(Site(self.directory, self.cores, self.cores), setup, f"proxy-{self.proxies}")
        running.callback(proxy.process.stop)
        return proxy.port

    def _load(self, port: int, *options: str) -> None:
        duration = ("--duration", f"{self.seconds}s")
        self._run([self.program, "load", f"http://127.0.0.1:{port}/", *duration, *_MANY, *options])

    def _run(self, command: list[str]) -> None:
        with self._recorded(False):
            done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode != 0:
            raise StartFailed(f"{' '.join(command)} ended with {done.returncode}:\n{done.stdout}{done.stderr}")

    def plain(self, *load: str, backend: tuple[str, ...] = (), **setup: bool) -> None:
        """Four backends that cost little, the proxy, and as much load as it takes."""
        with contextlib.ExitStack() as running:
            backends = [self._backend(running, "--cost", "fixed:0ms", *backend)[1] for _ in range(4)]
            addresses = tuple(f"127.0.0.1:{port}" for port in backends)
            self._load(self._proxy(running, Plimsoll, Setup(addresses, **setup)), *load)

    def encrypted(self) -> None:
        """A proxy that speaks TLS to another, which has the certificate."""
        with contextlib.ExitStack() as running:
            _, backend = self._backend(running, "--cost", "fixed:0ms")
            inner = self._proxy(running, Plimsoll, Setup((f"127.0.0.1:{backend}",), certificate=self.certificate))
            secured = _SecuredSetup((f"127.0.0.1:{inner}",), ca=self.certificate.chain)
            self._load(self._proxy(running, _Secured, secured))

    def overloaded(self, protects_itself: bool) -> None:
        """A backend that is asked ten times what it can do, and what turns the rest away."""
        with contextlib.ExitStack() as running:
            protection = ["--protect"] if protects_itself else []
            backend, port = self._backend(running, "--cost", COST, *protection, recorded=protects_itself)
            if not protects_itself:
                port = self._proxy(running, Sidecar, LimitedSetup((f"127.0.0.1:{port}",), backend=backend.pid))
            self._run(overload_command(port, _OVERLOAD, 0, self.seconds, 1))

    def all(self) -> dict[str, Callable[[], None]]:
        """The parts by name."""
        http2 = {"http2_clients": True, "http2_backends": True}
        return {
            "HTTP/1.1": self.plain,
            "HTTP/1.1, a connection for each request": lambda: self.plain("-H", "Connection: close"),
            "bodies down": lambda: self.plain(backend=("--body-size", "100000")),
            "bodies up": lambda: self.plain("--body-size", "100000"),
            "HTTP/2 to HTTP/1.1": lambda: self.plain("--protocol", "h2c", "--connections", "10", http2_clients=True),
            "HTTP/2": lambda: self.plain("--protocol", "h2c", "--connections", "10", **http2),
            "gRPC": lambda: self.plain("--protocol", "grpc", "--connections", "10", grpc=True, **http2),
            "TLS": self.encrypted,
            "a sidecar under overload": lambda: self.overloaded(protects_itself=False),
            "the library under overload": lambda: self.overloaded(protects_itself=True),
        }


def train(program: pathlib.Path, profiles: pathlib.Path, say: Callable[[str], None], seconds: float = _SECONDS) -> None:
    """Runs every part with an instrumented `program`, which leaves its profiles in `profiles`. `StartFailed` if one fails."""
    with tempfile.TemporaryDirectory(prefix="plimsoll-training-") as directory:
        for name, part in Training(program, profiles, pathlib.Path(directory), seconds).all().items():
            say(name)
            part()
