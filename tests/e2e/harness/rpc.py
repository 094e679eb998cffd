"""gRPC by grpcio: the one method of `plimsoll backend`, called and served without generated code."""

from collections.abc import Callable, Iterator
from concurrent import futures

import grpc
from grpc_health.v1 import health, health_pb2, health_pb2_grpc

from .orca import OrcaLoadReport
from .process import free_port

SERVICE = "plimsoll.backend.v1.Backend"
WORK = f"/{SERVICE}/Work"
REPORT_KEY = "endpoint-load-metrics-bin"

Work = Callable[[bytes, grpc.ServicerContext], bytes]
Stream = Callable[[Iterator[bytes], grpc.ServicerContext], Iterator[bytes]]


def _as_is(message: bytes) -> bytes:
    return message


def work(channel: grpc.Channel) -> grpc.UnaryUnaryMultiCallable:
    """The method as a callable of bytes."""
    return channel.unary_unary(WORK, request_serializer=_as_is, response_deserializer=_as_is)


def stream(channel: grpc.Channel) -> grpc.StreamStreamMultiCallable:
    """The streaming method of `Server`."""
    return channel.stream_stream(f"/{SERVICE}/Stream", request_serializer=_as_is, response_deserializer=_as_is)


def backend_of(call: grpc.Call) -> str:
    """Which backend answered, by the `x-backend` that each sends."""
    return str(dict(call.initial_metadata())["x-backend"])


def report(utilization: float, rps: float) -> bytes:
    """A load report as a backend sends it in its trailers."""
    return OrcaLoadReport(
        application_utilization=utilization, cpu_utilization=utilization, rps_fractional=rps
    ).SerializeToString()


class Server:
    """A grpcio server on a free port with health checking."""

    def __init__(self, handle: Work | None = None, handle_stream: Stream | None = None):
        self.port = free_port()
        self.address = f"127.0.0.1:{self.port}"
        self._server = grpc.server(futures.ThreadPoolExecutor(max_workers=16))
        methods = {}
        if handle is not None:
            methods["Work"] = grpc.unary_unary_rpc_method_handler(handle)
        if handle_stream is not None:
            methods["Stream"] = grpc.stream_stream_rpc_method_handler(handle_stream)
        self._server.add_generic_rpc_handlers([grpc.method_handlers_generic_handler(SERVICE, methods)])
        self._health = health.HealthServicer()
        health_pb2_grpc.add_HealthServicer_to_server(self._health, self._server)
        assert self._server.add_insecure_port(self.address) == self.port
        self._server.start()

    def set_serving(self, serving: bool) -> None:
        status = health_pb2.HealthCheckResponse.SERVING if serving else health_pb2.HealthCheckResponse.NOT_SERVING
        self._health.set("", status)

    def stop(self) -> None:
        self._server.stop(grace=None)
