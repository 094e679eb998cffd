"""Plimsoll: one thread, `weighted`, metrics served, health checks on; all else as it comes."""

from ..processes import first_line, free_port
from .base import HEALTH_INTERVAL_SECONDS, MAX_CONNECTIONS, Peer


class Plimsoll(Peer):
    name = "plimsoll"
    has_subsets = True
    # Set from the command line before the first use.
    program = "target/release/plimsoll"

    @classmethod
    def version(cls) -> str:
        return first_line(cls.program, "--version")

    def command(self) -> list[str]:
        setup = self.setup
        self.admin_port = free_port()
        backends = ", ".join(f'"{address}"' for address in setup.backends)
        tls = ""
        if setup.certificate:
            pair = f'{{ certificate = "{setup.certificate.chain}", key = "{setup.certificate.key}" }}'
            tls = f"[listeners.tls]\ncertificates = [{pair}]"
        subset = f"[clusters.backends.subset]\nsize = {setup.subset}" if setup.subset else ""
        listener, tables = self.further()
        config = self.write(
            "plimsoll.toml",
            f"""
threads = 1

[admin]
listen = "127.0.0.1:{self.admin_port}"

[[listeners]]
address = "127.0.0.1:{self.port}"
max_connections = {MAX_CONNECTIONS}
idle_timeout = "1h"
{listener}
{tls}

[[routes]]
cluster = "backends"

[clusters.backends]
policy = "weighted"
{'protocol = "http2"' if setup.http2_backends else ""}
backends = [{backends}]

[clusters.backends.health]
{'check = "grpc"' if setup.grpc else 'check = "http"'}
interval = "{HEALTH_INTERVAL_SECONDS}s"
{subset}
{tables}
""",
        )
        return [self.program, "proxy", "-c", config]

    def further(self) -> tuple[str, str]:
        """Lines of the listener, and tables."""
        return "", ""
