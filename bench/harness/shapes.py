"""The shapes of traffic, one entry each: what is behind the proxy, what it is asked to do, and who asks.

A goal is the most that plimsoll may cost, in multiples of what another costs in the same round.
"""

from collections.abc import Callable
from dataclasses import dataclass, field

from .backends import PROCESSES, Backend, GrpcBackend, NginxBackend, NginxHttp2Backend, SinkBackend, start, start_thousand
from .load import H2load, Handshakes, Load, Wrk
from .processes import Site


@dataclass(frozen=True)
class Shape:
    """One shape of traffic, in which the proxies' CPU per request is compared."""

    name: str
    title: str
    load: Load
    goals: dict[str, float] = field(default_factory=dict)
    backends: Callable[[Site], list[Backend]] = lambda site: start(NginxBackend, site)
    tls: bool = False
    http2_clients: bool = False
    http2_backends: bool = False
    grpc: bool = False
    # Each message fits into one read.
    short_messages: bool = False
    # Every proxy adds the fields that plimsoll adds unasked.
    forwarding_fields: bool = False
    # Each proxy is measured once with all backends and once with so few, named "PROXY, N backends".
    also_with: int | None = None
    # So many of the backends are enough for a proxy that can choose some for itself; who cannot has no part.
    subset: int | None = None
    note: str = ""


SHAPES = [
    Shape(
        "http1",
        "HTTP/1.1 keep-alive, small",
        Wrk(),
        goals={"nginx": 1.1, "haproxy": 1.0},
        short_messages=True,
        note="Each as its documentation sets it up: plimsoll adds `X-Forwarded-*` and `Via`, nginx and HAProxy add nothing.",
    ),
    Shape(
        "http1-forwarding",
        "HTTP/1.1 keep-alive, small, the same fields added by all",
        Wrk(),
        goals={"nginx": 1.1, "haproxy": 1.0},
        short_messages=True,
        forwarding_fields=True,
        note="`X-Forwarded-For`, `-Proto`, `-Host` and `-Port` to requests, and `Via` to requests and responses.",
    ),
    Shape(
        "connections",
        "HTTP/1.1, a connection for each request",
        Wrk(headers={"Connection": "close"}),
        note="The client asks for it with `Connection: close`. Connections to backends are kept.",
    ),
    Shape(
        "http2",
        "HTTP/2 from clients, HTTP/1.1 to backends",
        H2load(),
        goals={"envoy": 0.6},
        http2_clients=True,
        note="Without TLS, by prior knowledge, so that it shows what HTTP/2 costs and nothing else.",
    ),
    Shape(
        "http2-to-http2",
        "HTTP/2 from clients and to backends",
        H2load(),
        goals={"envoy": 0.6},
        backends=lambda site: start(NginxHttp2Backend, site),
        http2_clients=True,
        http2_backends=True,
    ),
    Shape(
        "grpc",
        "gRPC, unary",
        H2load(grpc=True),
        goals={"envoy": 0.6},
        backends=lambda site: start(GrpcBackend, site),
        http2_clients=True,
        http2_backends=True,
        grpc=True,
        note="Backends are four `plimsoll backend`, which answer the message they got, with trailers and a load report.",
    ),
    Shape(
        "tls",
        "HTTPS keep-alive, HTTP/1.1",
        Wrk(),
        goals={"nginx": 1.1},
        tls=True,
    ),
    Shape(
        "tls-full",
        "A full TLS handshake for each request",
        Handshakes(resumed=False),
        goals={"nginx": 1.1},
        tls=True,
        note="`openssl s_time -new`, HTTP/1.0; the run is refused if any handshake was resumed.",
    ),
    Shape(
        "tls-resumed",
        "A resumed TLS handshake for each request",
        Handshakes(resumed=True),
        goals={"nginx": 1.1},
        tls=True,
        note="`openssl s_time -reuse`, HTTP/1.0; the run is refused if any but a client's first handshake was full.",
    ),
    Shape(
        "body-10k",
        "Bodies of 10 kB down",
        Wrk(path="/10k", body_bytes=10_000),
        goals={"haproxy": 1.1},
    ),
    Shape(
        "body-1m",
        "Bodies of 1 MB down",
        Wrk(connections=16, path="/1m", body_bytes=1_000_000),
        goals={"haproxy": 1.1},
    ),
    Shape(
        "upload-1m",
        "Bodies of 1 MB up",
        Wrk(connections=16, upload_bytes=1_000_000),
        goals={"haproxy": 1.1},
        backends=lambda site: start(SinkBackend, site),
        note="Backends are four small Python servers that read the body to its end before they answer.",
    ),
    Shape(
        "backends-1000",
        "1,000 backends beside 4",
        Wrk(),
        goals={f"plimsoll, {PROCESSES} backends": 1.05},
        backends=start_thousand,
        short_messages=True,
        also_with=PROCESSES,
        note="The same four nginx processes, each at 250 loopback addresses; or the first address of each.",
    ),
    Shape(
        "backends-1000-subset",
        "1,000 backends, of which a proxy takes 50, beside 4",
        Wrk(),
        goals={f"plimsoll, {PROCESSES} backends": 1.05},
        backends=start_thousand,
        short_messages=True,
        also_with=PROCESSES,
        subset=50,
        note="As each proxy of many in front of a thousand backends does (docs/subsets.md).",
    ),
]
