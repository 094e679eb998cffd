"""The proxies that are compared, each as a configuration and a command.

A peer is set up as its own documentation advises for this use: upstream keep-alive on, one worker or thread, logs of
single requests off. A further proxy, or a further shape of traffic, is one more small class here.
"""

import pathlib
import re
import subprocess
from dataclasses import dataclass

from .processes import Process, find_program, free_port

# 34 bytes, so that the body costs nothing and the heads cost everything.
BODY = "the quick brown fox jumps over it\n"
# Idle upstream connections a proxy may keep: more than the load ever needs at once.
UPSTREAM_KEEPALIVE = 128


@dataclass
class Site:
    """Where a benchmark puts its files, and on which cores."""

    directory: pathlib.Path
    proxy_cores: set[int]
    load_cores: set[int]


def _first_line(*command: str) -> str:
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    return (done.stdout or done.stderr).strip().splitlines()[0].removeprefix("nginx version: ")


class Backend:
    """One nginx process that answers every request with `BODY`."""

    def __init__(self, site: Site, number: int):
        self.port = free_port()
        home = site.directory / f"backend-{number}"
        home.mkdir()
        config = home / "nginx.conf"
        config.write_text(f"""
            daemon off;
            worker_processes 1;
            master_process off;
            pid {home}/nginx.pid;
            error_log stderr error;
            events {{ worker_connections 4096; }}
            http {{
                access_log off;
                keepalive_timeout 1h;
                keepalive_requests 1000000000;
                client_body_temp_path {home}/body;
                proxy_temp_path {home}/proxy;
                fastcgi_temp_path {home}/fastcgi;
                uwsgi_temp_path {home}/uwsgi;
                scgi_temp_path {home}/scgi;
                server {{
                    listen 127.0.0.1:{self.port} backlog=4096;
                    location / {{ return 200 "{BODY.strip()}\\n"; }}
                }}
            }}
        """)
        command = [find_program("nginx"), "-p", str(home), "-c", str(config)]
        self.process = Process(f"backend-{number}", command, site.directory, site.load_cores)
        self.process.wait_for_port(self.port)


class Peer:
    """A proxy under test. Subclasses write the configuration and name the command."""

    name: str

    def __init__(self, site: Site, backend_ports: list[int]):
        self.port = free_port()
        self.home = site.directory / self.name
        self.home.mkdir()
        self.process = Process(self.name, self.command(backend_ports), site.directory, site.proxy_cores)
        self.process.wait_for_port(self.port)

    def command(self, backend_ports: list[int]) -> list[str]:
        """Writes what the proxy needs below `self.home`; the command that starts it in the foreground."""
        raise NotImplementedError

    @classmethod
    def version(cls) -> str:
        """What the program says about itself."""
        raise NotImplementedError

    def write(self, name: str, text: str) -> str:
        path = self.home / name
        path.write_text(text)
        return str(path)


class Nginx(Peer):
    """nginx: one worker, round robin (its default), upstream keep-alive."""

    name = "nginx"

    @classmethod
    def version(cls) -> str:
        return _first_line(find_program("nginx"), "-v")

    def command(self, backend_ports: list[int]) -> list[str]:
        servers = "\n".join(f"server 127.0.0.1:{port};" for port in backend_ports)
        config = self.write(
            "nginx.conf",
            f"""
            daemon off;
            worker_processes 1;
            pid {self.home}/nginx.pid;
            error_log stderr error;
            events {{ worker_connections 8192; }}
            http {{
                access_log off;
                keepalive_timeout 1h;
                keepalive_requests 1000000000;
                client_body_temp_path {self.home}/body;
                proxy_temp_path {self.home}/proxy;
                fastcgi_temp_path {self.home}/fastcgi;
                uwsgi_temp_path {self.home}/uwsgi;
                scgi_temp_path {self.home}/scgi;
                upstream backends {{
                    {servers}
                    keepalive {UPSTREAM_KEEPALIVE};
                    keepalive_requests 1000000000;
                    keepalive_timeout 1h;
                }}
                server {{
                    listen 127.0.0.1:{self.port} backlog=4096;
                    location / {{
                        proxy_pass http://backends;
                        proxy_http_version 1.1;
                        proxy_set_header Connection "";
                        proxy_set_header Host $host;
                    }}
                }}
            }}
        """,
        )
        return [find_program("nginx"), "-p", str(self.home), "-c", config]


class HAProxy(Peer):
    """HAProxy: one thread, least connections, health checks on, connections to backends shared by all clients."""

    name = "haproxy"

    @classmethod
    def version(cls) -> str:
        return _first_line(find_program("haproxy"), "-v")

    def command(self, backend_ports: list[int]) -> list[str]:
        servers = "\n".join(
            f"    server b{number} 127.0.0.1:{port} check inter 2s pool-max-conn {UPSTREAM_KEEPALIVE}"
            for number, port in enumerate(backend_ports)
        )
        config = self.write(
            "haproxy.cfg",
            f"""
global
    nbthread 1
    maxconn 8192
defaults
    mode http
    timeout connect 1s
    timeout client 1h
    timeout server 1h
    timeout http-keep-alive 1h
    option http-keep-alive
    http-reuse always
frontend front
    bind 127.0.0.1:{self.port} backlog 4096
    default_backend backends
backend backends
    balance leastconn
    option httpchk GET /
{servers}
""",
        )
        return [find_program("haproxy"), "-db", "-f", config]


class Plimsoll(Peer):
    """Plimsoll: one thread, `weighted`, metrics served, health checks on."""

    name = "plimsoll"
    # Set from the command line before the first use.
    program = "target/release/plimsoll"

    @classmethod
    def version(cls) -> str:
        return _first_line(cls.program, "--version")

    def command(self, backend_ports: list[int]) -> list[str]:
        self.admin_port = free_port()
        backends = ", ".join(f'"127.0.0.1:{port}"' for port in backend_ports)
        config = self.write(
            "plimsoll.toml",
            f"""
threads = 1

[admin]
listen = "127.0.0.1:{self.admin_port}"

[[listeners]]
address = "127.0.0.1:{self.port}"

[[routes]]
cluster = "backends"

[clusters.backends]
policy = "weighted"
backends = [{backends}]

[clusters.backends.health]
check = "http"
path = "/"
interval = "2s"
""",
        )
        return [self.program, "proxy", "-c", config]


PEERS: dict[str, type[Peer]] = {peer.name: peer for peer in (Nginx, HAProxy, Plimsoll)}


def tool_version(name: str) -> str:
    """The version of a load generator; wrk prints it with its usage and exits 1."""
    done = subprocess.run([find_program(name), "--version"], capture_output=True, text=True, check=False)
    line = (done.stdout + done.stderr).strip().splitlines()[0]
    return re.sub(r"\s*Copyright.*", "", line)
