"""The parts of a fleet as objects: nginx, origins, `plimsoll backend`, `plimsoll proxy` and its admin port, load."""

import json
import os
import pathlib
import re
import signal
import ssl
import time
import urllib.error
import urllib.request
from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeVar

from prometheus_client.parser import text_string_to_metric_families

from .certificates import Certificate
from .http1 import Handler, Origin
from .process import Process, find_program, free_port, run, wait_until
from .relay import Relay

ROOT = pathlib.Path(__file__).resolve().parents[3]
PLIMSOLL = os.environ.get("PLIMSOLL_BIN", str(ROOT / "target/release/plimsoll"))

P = TypeVar("P", bound=Process)
# Load after the last step of a test: a failure that the step causes shows in this time.
SETTLE_SECONDS = 1.0
# Of a load that `finish` ends: longer than any test.
UNTIL_FINISHED = "3m"


def http(
    url: str,
    method: str = "GET",
    body: bytes | None = None,
    timeout: float = 5,
    headers: dict[str, str] | None = None,
) -> tuple[int, str]:
    """Status and text of one request by an ordinary client."""
    request = urllib.request.Request(url, data=body, method=method, headers=headers or {})
    try:
        with urllib.request.urlopen(request, timeout=timeout) as response:
            return response.status, response.read().decode()
    except urllib.error.HTTPError as answer:
        return answer.code, answer.read().decode()


class Admin:
    """The admin port of a proxy."""

    def __init__(self, port: int):
        self.port = port
        self.url = f"http://127.0.0.1:{port}"

    def get(self, path: str) -> tuple[int, str]:
        return http(self.url + path)

    def post(self, path: str) -> tuple[int, str]:
        return http(self.url + path, method="POST", body=b"")

    def metric(self, name: str, **labels: str) -> float:
        """The sum of the samples of a metric that carry these labels."""
        families = text_string_to_metric_families(self.get("/metrics")[1])
        return sum(
            sample.value
            for family in families
            for sample in family.samples
            if sample.name == name and labels.items() <= sample.labels.items()
        )

    def json(self, path: str) -> dict | list:
        status, text = self.get(path)
        assert status == 200, f"GET {path}: {status} {text}"
        return json.loads(text)

    def clusters(self) -> list[dict]:
        answer = self.json("/api/v1/clusters")
        return answer["clusters"] if isinstance(answer, dict) else answer

    def only_cluster(self) -> str:
        """The name of the one cluster there is."""
        (cluster,) = self.clusters()
        return cluster["name"]

    def backends(self, cluster: str | None = None) -> dict[str, dict]:
        """The backends of a cluster by address; of the only one, without a name."""
        cluster = cluster or self.only_cluster()
        answer = self.json(f"/api/v1/clusters/{cluster}/backends")
        rows = answer["backends"] if isinstance(answer, dict) else answer
        return {row["address"]: row for row in rows}

    def states(self, cluster: str | None = None) -> dict[str, str]:
        return {address: row["state"] for address, row in self.backends(cluster).items()}

    def wait_for_state(self, address: str, state: str, seconds: float = 10, cluster: str | None = None) -> None:
        wait_until(f"{address} is {state}", lambda: self.states(cluster).get(address) == state, seconds)

    def wait_for_healthy(self, count: int, seconds: float = 10, cluster: str | None = None) -> None:
        def healthy() -> bool:
            return list(self.states(cluster).values()).count("healthy") == count

        wait_until(f"{count} healthy backends", healthy, seconds)


class Proxy(Process):
    """`plimsoll proxy`."""

    def __init__(self, name: str, arguments: list[str], port: int, admin_port: int, directory: pathlib.Path):
        super().__init__(name, [PLIMSOLL, "proxy", *arguments], directory)
        self.port = port
        self.admin = Admin(admin_port)
        self.url = f"http://127.0.0.1:{port}"


class Backend(Process):
    """`plimsoll backend`, which comes back on its own port when started again."""

    def __init__(self, name: str, arguments: list[str], port: int, directory: pathlib.Path):
        super().__init__(name, [PLIMSOLL, "backend", "--listen", f"127.0.0.1:{port}", *arguments], directory)
        self.port = port
        self.address = f"127.0.0.1:{port}"
        self.arguments = arguments
        self.wait_for_port(port)


class QuotaServer(Process):
    """`plimsoll quota`, which comes back on its own ports when started again."""

    def __init__(self, name: str, arguments: list[str], port: int, admin_port: int, directory: pathlib.Path):
        super().__init__(name, [PLIMSOLL, "quota", *arguments], directory)
        self.arguments, self.port = arguments, port
        self.address = f"127.0.0.1:{port}"
        self.admin = Admin(admin_port)
        self.wait_for_port(port)

    def service(self, name: str = "default") -> dict:
        """The state of a service, with its tasks."""
        return self.admin.json(f"/api/v1/quota/{name}")

    def customer(self, customer: str, service: str = "default") -> dict:
        """The state of a customer."""
        return self.admin.json(f"/api/v1/quota/{service}/customers/{customer}")

    def wait_for_tasks(self, count: int, service: str = "default", seconds: float = 15) -> None:
        """Waits until so many tasks are connected, and the server knows what they hold."""

        def joined() -> bool:
            state = self.service(service)
            return sum(task["connected"] for task in state["instances"]) == count and not state["unsure"]

        wait_until(f"{count} tasks", joined, seconds)


@dataclass
class Load:
    """What `plimsoll load --json` counted."""

    raw: dict

    @property
    def requests(self) -> int:
        return self.raw["requests"]

    @property
    def failed(self) -> int:
        return self.raw["failed"]

    @property
    def by_backend(self) -> dict[str, int]:
        return self.raw["backends"]

    def share(self, address: str) -> float:
        """The part of the answered requests that this backend answered."""
        return self.by_backend.get(address, 0) / sum(self.by_backend.values())


class RunningLoad(Process):
    """`plimsoll load` in the background."""

    def __init__(self, name: str, arguments: list[str], directory: pathlib.Path):
        self.result_file = directory / f"{name}.json"
        shell = 'out=$1; shift; exec "$@" >"$out"'
        command = ["sh", "-c", shell, "sh", str(self.result_file), PLIMSOLL, "load", "--json", *arguments]
        super().__init__(name, command, directory)

    def result(self, seconds: float = 40) -> Load:
        """Waits for the end of the run."""
        code = self.wait(seconds)
        assert code == 0, f"{self.name} ended with {code}:\n{self.output()}"
        return Load(json.loads(self.result_file.read_text()))

    def interrupt(self) -> None:
        """Ends the run now; what it counted so far is its result."""
        self.signal(signal.SIGINT)

    def running(self) -> bool:
        return self.exit_code is None


def finish(proxy: Proxy, *loads: RunningLoad) -> list[Load]:
    """Ends loads that run for longer than a test needs, and returns their results.

    An interrupted load does not count the requests that it still waits for. So the loads pause first, until the proxy has no
    request in flight: a request that hangs fails the test here.
    """
    time.sleep(SETTLE_SECONDS)
    for load in loads:
        assert load.running(), f"{load.name} ended before the test: {load.output()}"
        load.signal(signal.SIGSTOP)
    wait_until("no request hangs", lambda: is_idle(proxy), 15)
    for load in loads:
        load.interrupt()
        load.signal(signal.SIGCONT)
    return [load.result() for load in loads]


def is_idle(proxy: Proxy) -> bool:
    """Whether no request waits in the proxy or at a backend."""
    clusters = proxy.admin.clusters()
    waiting = sum(cluster["waiting"] for cluster in clusters)
    return waiting == 0 and all(row["in_flight"] == 0 for cluster in clusters for row in proxy.admin.backends(cluster["name"]).values())


class Fleet:
    """Everything one test starts. `stop` ends it all, the last started first."""

    def __init__(self, directory: pathlib.Path):
        self.directory = directory
        self.processes: list[Process] = []
        self._origins: list[Origin] = []
        self._names: dict[str, int] = {}

    def _name(self, kind: str) -> str:
        self._names[kind] = self._names.get(kind, 0) + 1
        return f"{kind}-{self._names[kind]}"

    def _keep(self, process: P) -> P:
        self.processes.append(process)
        return process

    def stop(self) -> None:
        # What a proxy and a backend do when they are told to end takes seconds, and is looked at in tests of its own.
        for process in reversed(self.processes):
            process.kill()
        for origin in self._origins:
            origin.stop()

    def nginx(self, certificate: Certificate | None = None, files: dict[str, bytes] | None = None) -> str:
        """An nginx with one worker that answers every request with its own address; below `/upload` only after it has read the
        whole body; at the paths of `files`, which are without directories, with these. By TLS with a `certificate`, and in any
        case by HTTP/1 only. Returns that address."""
        name, port = self._name("nginx"), free_port()
        home = self.directory / name
        home.mkdir()
        for path, content in (files or {}).items():
            (home / path.lstrip("/")).write_bytes(content)
        locations = "\n".join(f"location = {path} {{ root {home}; }}" for path in files or {})
        tls = f"ssl_certificate {certificate.certificate}; ssl_certificate_key {certificate.key};" if certificate else ""
        http = f"""
            server {{
                listen 127.0.0.1:{port}{" ssl" if certificate else ""};
                {tls}
                add_header x-backend 127.0.0.1:{port} always;
                location / {{ return 200 "127.0.0.1:{port}\\n"; }}
                location /upload {{ proxy_pass http://127.0.0.1:{port}/; }}
                {locations}
            }}
        """
        self.nginx_with(name, http, port)
        return f"127.0.0.1:{port}"

    def nginx_server(self, name: str, lines: str, http: str = "") -> int:
        """An nginx with a server of these lines, and these lines in its `http`. Returns the server's port."""
        port = free_port()
        self.nginx_with(name, f"{http} server {{ listen 127.0.0.1:{port}; {lines} }}", port)
        return port

    def nginx_with(self, name: str, http: str, *ports: int) -> None:
        """An nginx with one worker and these lines in its `http`, which listens on these ports."""
        home = self.directory / name
        home.mkdir(exist_ok=True)
        paths = "\n".join(f"{kind}_temp_path {home}/{kind};" for kind in ("client_body", "proxy", "fastcgi", "uwsgi", "scgi"))
        (home / "nginx.conf").write_text(f"""
            daemon off;
            master_process off;
            pid {home}/nginx.pid;
            error_log stderr warn;
            events {{ worker_connections 1024; }}
            http {{
                access_log off;
                {paths}
                {http}
            }}
        """)
        command = [find_program("nginx"), "-e", "stderr", "-p", str(home), "-c", str(home / "nginx.conf")]
        process = self._keep(Process(name, command, self.directory))
        for port in ports:
            process.wait_for_port(port)

    def origin(self, handler: Handler, context: ssl.SSLContext | None = None) -> str:
        """A server in this process that answers byte by byte, by TLS with a `context`. Returns its address."""
        port = free_port()
        self._origins.append(Origin(handler, port, context))
        return f"127.0.0.1:{port}"

    def backend(self, *arguments: str) -> Backend:
        """A `plimsoll backend` that accepts connections."""
        return self._keep(Backend(self._name("backend"), list(arguments), free_port(), self.directory))

    def again(self, backend: Backend) -> Backend:
        """Starts an ended backend once more, on the same port with the same arguments."""
        assert backend.exit_code is not None, f"{backend.name} still runs"
        return self._keep(Backend(backend.name, backend.arguments, backend.port, self.directory))

    def quota(self, *arguments: str) -> QuotaServer:
        """A quota server with these limits."""
        port, admin_port = free_port(), free_port()
        command = ["--listen", f"127.0.0.1:{port}", "--admin", f"127.0.0.1:{admin_port}", *arguments]
        return self._keep(QuotaServer(self._name("quota"), command, port, admin_port, self.directory))

    def quota_with(self, text: Callable[[int, int], str]) -> tuple[QuotaServer, pathlib.Path]:
        """A quota server with the file that `text` makes of its two ports."""
        port, admin_port = free_port(), free_port()
        path = self.directory / f"{self._name('quota')}.toml"
        path.write_text(text(port, admin_port))
        return self._keep(QuotaServer(self._name("quota"), ["-c", str(path)], port, admin_port, self.directory)), path

    def quota_again(self, server: QuotaServer) -> QuotaServer:
        """Starts an ended quota server once more, on the same ports with the same arguments."""
        assert server.exit_code is not None, f"{server.name} still runs"
        again = QuotaServer(server.name, server.arguments, server.port, server.admin.port, self.directory)
        return self._keep(again)

    def relay(self, to: str) -> Relay:
        """A relay to an address of this machine, which accepts connections."""
        return self._keep(Relay(self._name("relay"), to, self.directory))

    def proxy_to(self, addresses: list[str], *arguments: str) -> Proxy:
        """A proxy without a file: every setting at its default."""
        port, admin_port = free_port(), free_port()
        command = ["--from", f"127.0.0.1:{port}", "--admin", f"127.0.0.1:{admin_port}", *arguments]
        for address in addresses:
            command += ["--to", address]
        return self._ready(Proxy(self._name("proxy"), command, port, admin_port, self.directory))

    def proxy(self, addresses: list[str], **settings: str) -> Proxy:
        """A proxy with a file of one cluster named `main`; see `config` for the settings."""
        port, admin_port = free_port(), free_port()
        return self.proxy_with(config(port, admin_port, addresses, **settings), port, admin_port)

    def proxy_with(self, text: str, port: int, admin_port: int) -> Proxy:
        """A proxy with this file, which listens on these ports."""
        path = self.directory / f"{self._name('plimsoll')}.toml"
        path.write_text(text)
        return self._ready(Proxy(self._name("proxy"), ["-c", str(path)], port, admin_port, self.directory))

    def proxy_of(self, text: Callable[[int, int], str]) -> Proxy:
        """A proxy with the file that `text` makes of its port and that of its admin."""
        port, admin_port = free_port(), free_port()
        return self.proxy_with(text(port, admin_port), port, admin_port)

    def proxy_by(self, tables: str, healthy: dict[str, int]) -> Proxy:
        """A proxy with one listener and these tables of routes and clusters, once that many backends of each cluster in
        `healthy` are."""
        proxy = self.proxy_of(lambda port, admin: one_listener(port, admin, tables))
        for cluster, count in healthy.items():
            proxy.admin.wait_for_healthy(count, cluster=cluster)
        return proxy

    def _ready(self, proxy: Proxy) -> Proxy:
        self._keep(proxy).wait_for_port(proxy.port)
        return proxy

    def load(self, url: str, *arguments: str) -> RunningLoad:
        """`plimsoll load` in the background."""
        return self._keep(RunningLoad(self._name("load"), [*arguments, url], self.directory))

    def load_now(self, url: str, *arguments: str, seconds: float = 40) -> Load:
        """`plimsoll load`, waited for."""
        return self.load(url, *arguments).result(seconds)


def one_listener(port: int, admin_port: int, tables: str) -> str:
    """A configuration with one listener and these tables."""
    return f'[admin]\nlisten = "127.0.0.1:{admin_port}"\n[[listeners]]\naddress = "127.0.0.1:{port}"\n{tables}'


def config(
    port: int,
    admin_port: int,
    addresses: list[str],
    listener: str = "",
    cluster: str = "",
    health: str = "",
    further: str = "",
    backends: str = "",
    admin: str = "",
) -> str:
    """A configuration with one listener and one cluster named `main`.

    `listener`, `cluster`, `health`, `admin` are lines for those tables, `further` whole tables; `backends` stands for the list of addresses
    where more is to be said of each.
    """
    quoted = [f'"{address}"' for address in addresses]
    backends = backends or f"[{', '.join(quoted)}]"
    return f"""
[admin]
listen = "127.0.0.1:{admin_port}"
{admin}

[[listeners]]
address = "127.0.0.1:{port}"
{listener}

[[routes]]
cluster = "main"

[clusters.main]
backends = {backends}
{cluster}

[clusters.main.health]
{health}

{further}
"""


@dataclass
class Wrk:
    """What wrk counted."""

    requests: int
    errors: str


def wrk(url: str, seconds: int, connections: int = 16) -> Wrk:
    """A run of wrk; `errors` holds its lines about failed requests, empty when there were none."""
    done = run([find_program("wrk"), "-t1", f"-c{connections}", f"-d{seconds}s", url], seconds + 20)
    assert done.returncode == 0, f"{done.stdout}{done.stderr}"
    counted = re.search(r"(\d+) requests in", done.stdout)
    assert counted is not None, done.stdout
    errors = [line.strip() for line in done.stdout.splitlines() if "Non-2xx" in line or "Socket errors" in line]
    return Wrk(int(counted[1]), "; ".join(errors))


def h2load(url: str, requests: int, connections: int = 4, streams: int = 16) -> str:
    """A run of h2load over HTTP/2 without TLS; its line of counts."""
    command = [find_program("h2load"), f"-n{requests}", f"-c{connections}", f"-m{streams}", url]
    done = run(command, 60)
    assert done.returncode == 0, f"{done.stdout}{done.stderr}"
    return next(line for line in done.stdout.splitlines() if line.startswith("requests:"))
