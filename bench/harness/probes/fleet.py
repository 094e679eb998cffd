"""Idle proxies and their backends, with probes or with health checks."""

import contextlib
import json
import pathlib
import re
import time
import urllib.request
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from ..peers import Plimsoll
from ..processes import Process, Site, StartFailed, free_port
from .namespace import Namespace

# The path at which `plimsoll backend` tells its state.
READINESS_PATH = "/readyz"
# A key of the fleet, which backends beyond loopback and wildcard sockets require.
_KEY = bytes(range(32)).hex()
PROBES = "probes"


@dataclass(frozen=True)
class Watch:
    """The way in which a proxy learns of the state of its backends."""

    name: str
    # The table of checks.
    check: str
    # The lines of the table of probes; `None` without it.
    probes: str | None = None


WITH_PROBES = Watch("probes", 'check = "tcp"', "")
TCP_CHECKS = Watch("TCP checks", 'check = "tcp"')
HTTP_CHECKS = Watch("HTTP checks", f'check = "http"\npath = "{READINESS_PATH}"')
NO_CHECKS = Watch("no checks", 'check = "none"')


def write_keys(directory: pathlib.Path) -> str:
    """The path of a file of keys."""
    path = directory / "probe-keys"
    path.write_text(f"1 {_KEY}\n")
    path.chmod(0o600)
    return str(path)


@dataclass
class Place:
    """The network and the files of a group of processes."""

    site: Site
    namespace: Namespace | None = None

    def start(self, name: str, command: list[str], cores: set[int]) -> Process:
        if self.namespace:
            command = self.namespace.command(command)
        return Process(name, command, self.site.directory, cores)

    def call(self, function: Callable, *arguments: object):
        """Runs a function in this network."""
        return self.namespace.call(function, *arguments) if self.namespace else function(*arguments)


def start_backend(place: Place, listen: str, keys: str | None = None) -> Process:
    """A backend at IP:PORT that answers at once."""
    command = [Plimsoll.program, "backend", "--listen", listen, "--cost", "fixed:0ms"]
    command += ["--probe-keys", keys] if keys else []
    return place.start(f"backend-{listen.replace(':', '-')}", command, place.site.load_cores)


class Proxy:
    """A plimsoll proxy with one thread and one cluster."""

    def __init__(
        self, place: Place, name: str, backends: list[str], watch: Watch, inactive_after: str = "1s", keys: str | None = None
    ):
        self.place, self.port, self.admin_port = place, free_port(), free_port()
        probes = ""
        if watch.probes is not None:
            keys_line = f'keys = "{keys}"' if keys else ""
            probes = f"[clusters.web.probes]\n{keys_line}\n{watch.probes}"
        path = place.site.directory / f"{name}.toml"
        path.write_text(
            f"""
threads = 1
[admin]
listen = "127.0.0.1:{self.admin_port}"
backend_metrics = "aggregate"
[[listeners]]
address = "127.0.0.1:{self.port}"
[[routes]]
cluster = "web"
[clusters.web]
inactive_after = "{inactive_after}"
backends = {json.dumps(backends)}
[clusters.web.health]
{watch.check}
{probes}
"""
        )
        self.process = place.start(name, [Plimsoll.program, "proxy", "-c", str(path)], place.site.proxy_cores)

    def wait(self) -> None:
        """Returns once it serves."""
        self.place.call(self.process.wait_for_port, self.port, 60)

    def metrics(self) -> str:
        """The text of /metrics."""
        url = f"http://127.0.0.1:{self.admin_port}/metrics"

        def read() -> str:
            with urllib.request.urlopen(url, timeout=10) as response:
                return response.read().decode()

        return self.place.call(read)

    def log(self) -> list[dict]:
        """The lines of its log so far."""
        lines = self.process.log.read_text().splitlines()
        return [json.loads(line) for line in lines if line.startswith("{") and line.endswith("}")]


def metric(text: str, name: str, labels: str = "") -> float:
    """The sum of the series of a metric with these labels, of a page of metrics."""
    series = re.compile(rf"^{name}\{{[^}}]*{re.escape(labels)}[^}}]*\}} (\S+)$", re.MULTILINE)
    return sum(float(value) for value in series.findall(text))


def wait_until(says: str, is_so: Callable[[], bool], seconds: float, pause: float = 0.1) -> None:
    """Returns once something is so."""
    deadline = time.monotonic() + seconds
    while not is_so():
        if time.monotonic() > deadline:
            raise StartFailed(f"not after {seconds:g} s: {says}")
        time.sleep(pause)


def wait_until_inactive(proxy: Proxy, backends: int, seconds: float = 60) -> None:
    """Returns once all backends of a proxy are inactive."""
    inactive = "plimsoll_probe_inactive_backends"
    wait_until(f"{backends} inactive backends", lambda: metric(proxy.metrics(), inactive) == backends, seconds)


@contextlib.contextmanager
def ending(processes: list[Process]) -> Iterator[None]:
    """Ends processes after their use, those that were added meanwhile too."""
    try:
        yield
    finally:
        for process in processes:
            process.kill()
