"""Generators of load, each closed: a fixed number of connections, each sending its next request when
the last is answered.

wrk for HTTP/1, h2load for HTTP/2 and gRPC, `openssl s_time` where each request is a TLS handshake of its own, because
it alone can be told to resume sessions or not, and says of every connection which it was. A run in which anything went
wrong is no run: a refused or cut request costs a proxy less than a served one.
"""

import os
import re
import socket
import ssl
import subprocess
import tempfile
from dataclasses import dataclass, field
from typing import ClassVar

from .certificate import client_environment
from .processes import Site, find_program

# 34 bytes, so that the body costs nothing and the heads cost everything.
BODY = "the quick brown fox jumps over it\n"
# What `plimsoll backend` serves as gRPC: any message in, the same out.
GRPC_PATH = "/plimsoll.backend.v1.Backend/Work"
# A gRPC frame: not compressed, length in four bytes, message.
GRPC_FRAME = b"\0" + len(BODY).to_bytes(4, "big") + BODY.encode()

_UNITS_MS = {"us": 1e-3, "ms": 1.0, "s": 1e3, "m": 60e3}
_UNITS_BYTES = {"": 1, "K": 2**10, "M": 2**20, "G": 2**30}
# Requests still under way when the time is up lack part of their bytes; if more is missing, something else is wrong.
_LEAST_BYTES = 0.97


class LoadFailed(Exception):
    """Some request was not answered as it should, so the run says nothing about cost."""


@dataclass
class Target:
    """Where the load goes."""

    port: int
    tls: bool = False

    def url(self, path: str) -> str:
        return f"{'https' if self.tls else 'http'}://127.0.0.1:{self.port}{path}"


@dataclass
class Run:
    """What the load generator counted. Latencies are of a closed loop: good for comparing, not for promising."""

    requests: int
    seconds: float
    p50_ms: float | None = None
    p99_ms: float | None = None


def _environment(site: Site) -> dict[str, str]:
    return os.environ | client_environment(site.directory)


def _run(site: Site, command: list[str]) -> subprocess.CompletedProcess[str]:
    return subprocess.run(command, capture_output=True, text=True, check=False, env=_environment(site))


@dataclass(frozen=True)
class Wrk:
    """HTTP/1.1 by wrk, one thread."""

    tool: ClassVar[str] = "wrk"

    connections: int = 50
    path: str = "/"
    headers: dict[str, str] = field(default_factory=dict)
    body_bytes: int = len(BODY)
    upload_bytes: int = 0

    def run(self, target: Target, seconds: int, site: Site) -> Run:
        url = target.url(self.path)
        command = [find_program("wrk"), "-t1", f"-c{self.connections}", f"-d{seconds}s", "--latency", "--timeout", "10s"]
        for name, value in self.headers.items():
            command += ["-H", f"{name}: {value}"]
        with tempfile.NamedTemporaryFile("w", suffix=".lua", dir=site.directory) as script:
            if self.upload_bytes:
                script.write(f'wrk.method = "POST"\nwrk.body = string.rep("x", {self.upload_bytes})\n')
                script.flush()
                command += ["-s", script.name]
            done = _run(site, [*command, url])
        output = done.stdout
        counted = re.search(r"(\d+) requests in ([\d.]+)(s|m), ([\d.]+)([KMG]?)B read", output)
        if done.returncode != 0 or counted is None:
            raise LoadFailed(f"wrk ended with {done.returncode}:\n{output}{done.stderr}")
        requests = int(counted[1])
        if requests == 0:
            raise LoadFailed(f"no request to {url} was answered within {seconds} s")
        if "Non-2xx" in output or "Socket errors" in output:
            raise LoadFailed(f"failed requests against {url}:\n{output}")
        if float(counted[4]) * _UNITS_BYTES[counted[5]] < requests * self.body_bytes * _LEAST_BYTES:
            raise LoadFailed(f"answers from {url} shorter than {self.body_bytes} bytes:\n{output}")
        return Run(
            requests=requests,
            seconds=float(counted[2]) * (60 if counted[3] == "m" else 1),
            p50_ms=_milliseconds(output, "50"),
            p99_ms=_milliseconds(output, "99"),
        )

    def __str__(self) -> str:
        return f"wrk, {self.connections} connections"


def _milliseconds(output: str, percentile: str) -> float:
    found = re.search(rf"^\s+{percentile}%\s+([\d.]+)(us|ms|s|m)\s*$", output, re.MULTILINE)
    if found is None:
        raise LoadFailed(f"no {percentile}% line in what wrk printed:\n{output}")
    return float(found[1]) * _UNITS_MS[found[2]]


@dataclass(frozen=True)
class H2load:
    """HTTP/2 with prior knowledge by h2load, one thread. It prints no percentiles."""

    tool: ClassVar[str] = "h2load"

    connections: int = 10
    streams: int = 10
    grpc: bool = False

    def run(self, target: Target, seconds: int, site: Site) -> Run:
        command = [find_program("h2load"), "-t1", f"-c{self.connections}", f"-m{self.streams}", f"-D{seconds}"]
        path, answer = "/", len(BODY)
        if self.grpc:
            path, answer = GRPC_PATH, len(GRPC_FRAME)
            message = site.directory / "grpc-message"
            message.write_bytes(GRPC_FRAME)
            command += ["-d", str(message), "-H", "content-type: application/grpc", "-H", "te: trailers"]
        url = target.url(path)
        done = _run(site, [*command, url])
        output = done.stdout
        finished = re.search(r"finished in ([\d.]+)(us|ms|s|m)", output)
        counted = re.search(r"(\d+) succeeded, (\d+) failed, (\d+) errored, (\d+) timeout", output)
        codes = re.search(r"status codes: (\d+) 2xx, (\d+) 3xx, (\d+) 4xx, (\d+) 5xx", output)
        data = re.search(r"\((\d+)\) data", output)
        if done.returncode != 0 or not (finished and counted and codes and data):
            raise LoadFailed(f"h2load ended with {done.returncode}:\n{output}{done.stderr}")
        requests = int(counted[1])
        if requests == 0 or any(int(count) for count in counted.groups()[1:]) or any(int(c) for c in codes.groups()[1:]):
            raise LoadFailed(f"failed requests against {url}:\n{output}")
        # A gRPC error has status 200 too, but no message.
        if int(data[1]) < requests * answer * _LEAST_BYTES:
            raise LoadFailed(f"answers from {url} shorter than {answer} bytes:\n{output}")
        return Run(requests=requests, seconds=float(finished[1]) * _UNITS_MS[finished[2]] / 1e3)

    def __str__(self) -> str:
        return f"h2load, {self.connections} connections, {self.streams} streams on each"


@dataclass(frozen=True)
class Handshakes:
    """A TLS connection for each request, by several `openssl s_time`, which ask for `/` in HTTP/1.0."""

    tool: ClassVar[str] = "openssl"

    resumed: bool
    clients: int = 4

    def run(self, target: Target, seconds: int, site: Site) -> Run:
        answer = self._answer_bytes(target)
        command = [find_program("openssl"), "s_time", "-connect", f"127.0.0.1:{target.port}", "-www", "/"]
        command += ["-reuse" if self.resumed else "-new", "-time", str(seconds)]
        pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
        running = [subprocess.Popen(command, text=True, env=_environment(site), **pipes) for _ in range(self.clients)]
        requests, longest = 0, 0.0
        for child in running:
            output, errors = child.communicate()
            counted = re.findall(r"(\d+) connections in (\d+) real seconds, (\d+) bytes read per connection", output)
            if child.returncode != 0 or not counted:
                raise LoadFailed(f"s_time ended with {child.returncode}:\n{output[-2000:]}{errors}")
            connections, real_seconds, bytes_each = map(int, counted[-1])
            if bytes_each != answer:
                raise LoadFailed(f"{bytes_each} bytes an answer and not {answer}:\n{output[-2000:]}")
            self._check_kind(output, connections)
            requests += connections
            longest = max(longest, float(real_seconds))
        return Run(requests=requests, seconds=longest)

    def _check_kind(self, output: str, connections: int) -> None:
        # One letter for each connection: r for resumed, another for full. The first of a client has nothing to resume.
        letters = max(re.findall(r"^[rt*0-9]+$", output, re.MULTILINE), key=len, default="")
        resumed = letters.count("r")
        wrong = connections - resumed > 2 if self.resumed else resumed > 0
        if wrong:
            raise LoadFailed(f"{resumed} of {connections} handshakes were resumed")

    def _answer_bytes(self, target: Target) -> int:
        context = ssl.create_default_context()
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
        with socket.create_connection(("127.0.0.1", target.port), timeout=5) as tcp, context.wrap_socket(tcp) as stream:
            stream.sendall(b"GET / HTTP/1.0\r\n\r\n")
            answer = b""
            while piece := stream.recv(65536):
                answer += piece
        if b" 200 " not in answer[:20] or not answer.endswith(BODY.encode()):
            raise LoadFailed(f"not the answer wanted: {answer[:200]!r}")
        return len(answer)

    def __str__(self) -> str:
        return f"{self.clients} × openssl s_time {'-reuse' if self.resumed else '-new'}"


Load = Wrk | H2load | Handshakes
