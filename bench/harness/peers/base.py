"""What every peer has, and what a shape of traffic asks of it."""

from dataclasses import dataclass

from ..certificate import Certificate
from ..processes import Process, Site, free_port

# Connections at the proxy: more than the idle clients of `memory.py`.
MAX_CONNECTIONS = 11_000
# Between two health checks of a backend, for every proxy that has them: plimsoll's default.
HEALTH_INTERVAL_SECONDS = 10
# Envoy has to look up nothing and still takes a second when there are a thousand backends and another build is going on.
_START_SECONDS = 20


@dataclass(frozen=True)
class Setup:
    """What a proxy is to do."""

    backends: tuple[str, ...]
    certificate: Certificate | None = None
    # Whether clients speak HTTP/2. With prior knowledge, as the load of these shapes has no TLS.
    http2_clients: bool = False
    http2_backends: bool = False
    grpc: bool = False
    # Whether each message fits into one read.
    short_messages: bool = False
    # Whether every proxy adds the fields that plimsoll adds unasked: X-Forwarded-For, -Proto, -Host and -Port to
    # requests, and Via to requests and responses.
    forwarding_fields: bool = False
    # To how many of the backends it connects; all if that is not said.
    subset: int | None = None

    @property
    def upstream_keepalive(self) -> int:
        """Idle connections that a proxy may keep to all backends: more than the load needs, and two for each backend."""
        return max(128, 2 * len(self.backends))


class Peer:
    """A proxy under test. Subclasses write the configuration and name the command."""

    name: str
    # Whether it can be told to connect to some of the backends only.
    has_subsets = False

    def __init__(self, site: Site, setup: Setup, label: str):
        self.port = free_port()
        self.setup = setup
        self.home = site.directory / label.replace(" ", "-")
        self.home.mkdir()
        self.process = Process(self.home.name, self.command(), site.directory, site.proxy_cores)
        self.process.wait_for_port(self.port, _START_SECONDS)

    def command(self) -> list[str]:
        """Writes what the proxy needs below `self.home`; the command that starts it in the foreground."""
        raise NotImplementedError

    @classmethod
    def version(cls) -> str:
        """What the program says about itself."""
        raise NotImplementedError

    @classmethod
    def missing(cls) -> str | None:
        """Why it cannot run here."""
        return None

    @classmethod
    def cannot(cls, setup: Setup) -> str | None:
        """Why it has no part in this shape."""
        return None

    def write(self, name: str, text: str) -> str:
        path = self.home / name
        path.write_text(text)
        return str(path)
