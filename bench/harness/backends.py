"""The servers behind the proxies. They must cost little, so that the core of the load can keep up with the proxy's."""

import pathlib
import sys

from .load import BODY
from .processes import Process, Site, find_program, first_line, free_port

PROCESSES = 4
# Bodies that nginx has as files: path and bytes.
FILES = {"10k": 10_000, "1m": 1_000_000}


class Backend:
    """One process, and the addresses at which it answers."""

    def __init__(self, site: Site, number: int, hosts: list[str] | None = None):
        self.port = free_port()
        self.hosts = hosts or ["127.0.0.1"]
        self.home = site.directory / f"backend-{number}"
        self.home.mkdir(exist_ok=True)
        self.process = Process(f"backend-{number}", self.command(), site.directory, site.load_cores)
        self.process.wait_for_port(self.port, host=self.hosts[0])

    @property
    def addresses(self) -> list[str]:
        return [f"{host}:{self.port}" for host in self.hosts]

    def command(self) -> list[str]:
        raise NotImplementedError


class NginxBackend(Backend):
    """nginx that answers `BODY` at `/`, and the files of `FILES`."""

    listen_options = ""

    def command(self) -> list[str]:
        files = self.home / "files"
        files.mkdir(exist_ok=True)
        for name, size in FILES.items():
            (files / name).write_bytes(b"x" * size)
        listen = "\n".join(f"listen {address} {self.listen_options} backlog=4096;" for address in self.addresses)
        config = self.home / "nginx.conf"
        config.write_text(f"""
            daemon off;
            worker_processes 1;
            master_process off;
            pid {self.home}/nginx.pid;
            error_log stderr error;
            events {{ worker_connections 8192; }}
            http {{
                access_log off;
                keepalive_timeout 1h;
                keepalive_requests 1000000000;
                sendfile on;
                open_file_cache max=10;
                default_type application/octet-stream;
                client_body_temp_path {self.home}/body;
                proxy_temp_path {self.home}/proxy;
                fastcgi_temp_path {self.home}/fastcgi;
                uwsgi_temp_path {self.home}/uwsgi;
                scgi_temp_path {self.home}/scgi;
                server {{
                    {listen}
                    root {files};
                    location = / {{ return 200 "{BODY.strip()}\\n"; }}
                }}
            }}
        """)
        return [find_program("nginx"), "-p", str(self.home), "-c", str(config)]

    @staticmethod
    def version() -> str:
        return first_line(find_program("nginx"), "-v").removeprefix("nginx version: ")


class NginxHttp2Backend(NginxBackend):
    """The same in HTTP/2 with prior knowledge."""

    listen_options = "http2"


class GrpcBackend(Backend):
    """`plimsoll backend`: gRPC, any message in, the same out, with trailers and a load report."""

    # Set from the command line before the first use.
    program = "target/release/plimsoll"

    def command(self) -> list[str]:
        return [self.program, "backend", "--listen", f"127.0.0.1:{self.port}", "--cost", "fixed:0ms"]


class SinkBackend(Backend):
    """`sink.py`: swallows what is sent to it, and sends as many bytes as it is asked for."""

    def command(self) -> list[str]:
        return [sys.executable, str(pathlib.Path(__file__).with_name("sink.py")), str(self.port)]


def start(kind: type[Backend], site: Site) -> list[Backend]:
    return [kind(site, number) for number in range(PROCESSES)]


def start_thousand(site: Site) -> list[Backend]:
    """The same few nginx processes, each at 250 loopback addresses."""
    each = 1_000 // PROCESSES
    return [
        NginxBackend(site, number, [f"127.0.{number + 1}.{host}" for host in range(1, each + 1)])
        for number in range(PROCESSES)
    ]
