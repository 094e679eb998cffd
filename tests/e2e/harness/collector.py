"""A collector of traces: Rotel, which passes what it accepts on to a receiver in the test."""

import gzip
import http.server
import os
import pathlib
import ssl
import sysconfig
import threading
from collections.abc import Callable
from dataclasses import dataclass, field

from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.proto.common.v1.common_pb2 import AnyValue
from opentelemetry.proto.trace.v1 import trace_pb2

from .fleet import Fleet
from .process import Process, free_port, wait_until

ROTEL = pathlib.Path(sysconfig.get_path("purelib")) / "rotel" / "rotel-agent"
SERVER, CLIENT = trace_pb2.Span.SPAN_KIND_SERVER, trace_pb2.Span.SPAN_KIND_CLIENT
ERROR = trace_pb2.Status.STATUS_CODE_ERROR


@dataclass(frozen=True)
class Span:
    """A span, with ids in hexadecimal digits; `parent` is empty for the first of its trace."""

    service: str
    trace: str
    id: str
    parent: str
    name: str
    kind: int
    state: str
    is_error: bool
    began: int
    ended: int
    facts: dict[str, object] = field(hash=False)


def value(of: AnyValue) -> object:
    return getattr(of, of.WhichOneof("value"))


def spans_of(request: ExportTraceServiceRequest) -> list[Span]:
    return [
        Span(
            service=next(str(value(of.value)) for of in resource.resource.attributes if of.key == "service.name"),
            trace=span.trace_id.hex(),
            id=span.span_id.hex(),
            parent=span.parent_span_id.hex(),
            name=span.name,
            kind=span.kind,
            state=span.trace_state,
            is_error=span.status.code == ERROR,
            began=span.start_time_unix_nano,
            ended=span.end_time_unix_nano,
            facts={of.key: value(of.value) for of in span.attributes},
        )
        for resource in request.resource_spans
        for scope in resource.scope_spans
        for span in scope.spans
    ]


class Receiver:
    """Keeps the spans that it is sent. `answer` is its status for the request of this number, from 1. It speaks TLS with a `context`."""

    def __init__(self, answer: Callable[[int], int] = lambda _: 200, context: ssl.SSLContext | None = None) -> None:
        self.port = free_port()
        self.url = f"{'https' if context else 'http'}://127.0.0.1:{self.port}"
        self.spans: list[Span] = []
        self.requests = 0
        lock = threading.Lock()
        receiver = self

        class Handler(http.server.BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_POST(self) -> None:  # noqa: N802
                body = self.rfile.read(int(self.headers["content-length"]))
                assert self.path == "/v1/traces", self.path
                if self.headers["content-encoding"] == "gzip":
                    body = gzip.decompress(body)
                with lock:
                    receiver.requests += 1
                    status = answer(receiver.requests)
                    if status == 200:
                        receiver.spans += spans_of(ExportTraceServiceRequest.FromString(body))
                self.send_response(status)
                self.send_header("content-type", "application/x-protobuf")
                self.send_header("content-length", "0")
                self.end_headers()

            def log_message(self, *_: object) -> None:
                pass

        self._server = http.server.ThreadingHTTPServer(("127.0.0.1", self.port), Handler)
        self._server.daemon_threads = True
        if context is not None:
            self._server.socket = context.wrap_socket(self._server.socket, server_side=True)
        threading.Thread(target=self._server.serve_forever, daemon=True).start()

    def stop(self) -> None:
        self._server.shutdown()
        self._server.server_close()

    def of(self, **facts: object) -> list[Span]:
        """The spans with these attributes, where `__` stands for a dot."""
        wanted = {key.replace("__", "."): value for key, value in facts.items()}
        return [span for span in list(self.spans) if wanted.items() <= span.facts.items()]

    def at_path(self, path: str) -> Span:
        """Waits for the proxy's span of the request for this path."""
        found = wait_until(f"the span of {path}", lambda: self.of(url__path=path), 15)
        return found[0]

    def trace(self, trace: str, count: int) -> list[Span]:
        """Waits for so many spans of a trace."""

        def whole() -> list[Span] | None:
            found = [span for span in list(self.spans) if span.trace == trace]
            return found if len(found) >= count else None

        return wait_until(f"{count} spans of {trace}: {[span for span in self.spans if span.trace == trace]}", whole, 15)


class Collector(Process):
    """Rotel before a receiver."""

    def __init__(self, fleet: Fleet, receiver: Receiver) -> None:
        self.port = free_port()
        self.url = f"http://127.0.0.1:{self.port}"
        os.chmod(ROTEL, 0o755)
        command = [str(ROTEL), "start", "--exporter", "otlp", "--otlp-exporter-endpoint", receiver.url]
        command += ["--otlp-exporter-protocol", "http", "--batch-timeout", "100ms"]
        command += ["--otlp-http-endpoint", f"127.0.0.1:{self.port}"]
        command += ["--otlp-grpc-endpoint", f"127.0.0.1:{free_port()}"]
        super().__init__("collector", command, fleet.directory)
        fleet.processes.append(self)
        self.wait_for_port(self.port)
