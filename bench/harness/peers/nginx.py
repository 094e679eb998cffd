"""nginx: one worker, round robin (its default), upstream keep-alive.

Bodies are not held back, in memory or on disk, since no other peer does so either. It has no active health checks.
"""

from ..processes import find_program, first_line
from .base import MAX_CONNECTIONS, Peer, Setup

_PROXY_HTTP = """
                        proxy_pass http://backends;
                        proxy_http_version 1.1;
                        proxy_set_header Connection "";
                        proxy_set_header Host $host;
                        proxy_request_buffering off;
                        proxy_max_temp_file_size 0;
"""
_FORWARDING_FIELDS = """
                        proxy_set_header X-Forwarded-For $proxy_add_x_forwarded_for;
                        proxy_set_header X-Forwarded-Proto $scheme;
                        proxy_set_header X-Forwarded-Host $http_host;
                        proxy_set_header X-Forwarded-Port $server_port;
                        proxy_set_header Via "$server_protocol nginx";
                        add_header Via "$server_protocol nginx" always;
"""
_PROXY_GRPC = """
                        grpc_pass grpc://backends;
"""


class Nginx(Peer):
    name = "nginx"

    def further(self) -> tuple[str, str]:
        """Lines for `http`, and for `location`."""
        return "", ""

    @classmethod
    def version(cls) -> str:
        return first_line(find_program("nginx"), "-v").removeprefix("nginx version: ")

    @classmethod
    def cannot(cls, setup: Setup) -> str | None:
        if setup.http2_backends and not setup.grpc:
            return "speaks HTTP/2 with backends for gRPC only"
        return None

    def command(self) -> list[str]:
        setup = self.setup
        servers = "\n".join(f"server {address};" for address in setup.backends)
        http, location = self.further()
        listen, tls = "", ""
        if setup.http2_clients:
            listen = "http2"
        if setup.certificate:
            listen = "ssl http2"
            tls = f"""
                ssl_certificate {setup.certificate.chain};
                ssl_certificate_key {setup.certificate.key};
                ssl_protocols TLSv1.2 TLSv1.3;
                ssl_session_cache shared:bench:10m;
                ssl_session_timeout 1h;
            """
        config = self.write(
            "nginx.conf",
            f"""
            daemon off;
            worker_processes 1;
            pid {self.home}/nginx.pid;
            error_log stderr error;
            events {{ worker_connections {MAX_CONNECTIONS + 4096}; }}
            http {{
                access_log off;
                keepalive_timeout 1h;
                keepalive_requests 1000000000;
                client_max_body_size 0;
                client_body_temp_path {self.home}/body;
                proxy_temp_path {self.home}/proxy;
                fastcgi_temp_path {self.home}/fastcgi;
                uwsgi_temp_path {self.home}/uwsgi;
                scgi_temp_path {self.home}/scgi;
                {http}
                upstream backends {{
                    {servers}
                    keepalive {setup.upstream_keepalive};
                    keepalive_requests 1000000000;
                    keepalive_timeout 1h;
                }}
                server {{
                    listen 127.0.0.1:{self.port} {listen} backlog=4096;
                    server_name localhost;
                    {tls}
                    location / {{
                        {location}
                        {_PROXY_GRPC if setup.grpc else _PROXY_HTTP}
                        {_FORWARDING_FIELDS if setup.forwarding_fields else ""}
                    }}
                }}
            }}
        """,
        )
        return [find_program("nginx"), "-p", str(self.home), "-c", config]
