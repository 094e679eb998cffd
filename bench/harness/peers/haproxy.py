"""HAProxy: one thread, least connections, health checks on, connections to backends shared by all clients."""

from ..processes import find_program, first_line
from .base import HEALTH_INTERVAL_SECONDS, MAX_CONNECTIONS, Peer


_FORWARDING_FIELDS = """
    option forwardfor
    http-request set-header X-Forwarded-Proto http
    http-request set-header X-Forwarded-Host %[req.hdr(host)]
    http-request set-header X-Forwarded-Port %[dst_port]
    http-request add-header Via "1.1 haproxy"
    http-response add-header Via "1.1 haproxy"
"""


class HAProxy(Peer):
    name = "haproxy"

    def further(self) -> tuple[str, str, str]:
        """Lines for the frontend, for the backend, and options of each server."""
        return "", "", ""

    @classmethod
    def version(cls) -> str:
        return first_line(find_program("haproxy"), "-v")

    def command(self) -> list[str]:
        setup = self.setup
        front, back, server = self.further()
        protocol = " proto h2" if setup.http2_backends else ""
        servers = "\n".join(
            f"    server b{number} {address} check inter {HEALTH_INTERVAL_SECONDS}s "
            f"pool-max-conn {setup.upstream_keepalive}{protocol} {server}"
            for number, address in enumerate(setup.backends)
        )
        bind = f"127.0.0.1:{self.port} backlog 4096"
        if setup.certificate:
            bind += f" ssl crt {setup.certificate.both} alpn h2,http/1.1 ssl-min-ver TLSv1.2"
        elif setup.http2_clients:
            bind += " proto h2"
        # `plimsoll backend` answers no plain request in gRPC's stead; that it takes connections is check enough.
        check = "" if setup.grpc else "option httpchk\n    http-check send meth GET uri / ver HTTP/1.1 hdr Host localhost"
        # Two descriptors for each connection may be more than the system allows; idle clients need but one.
        config = self.write(
            "haproxy.cfg",
            f"""
global
    nbthread 1
    maxconn {MAX_CONNECTIONS}
    no strict-limits
defaults
    mode http
    timeout connect 1s
    timeout client 1h
    timeout server 1h
    timeout http-keep-alive 1h
    option http-keep-alive
    http-reuse always
frontend front
    bind {bind}
{front}
{_FORWARDING_FIELDS if setup.forwarding_fields else ""}
    default_backend backends
backend backends
    balance leastconn
    {check}
{back}
{servers}
""",
        )
        return [find_program("haproxy"), "-db", "-f", config]
