"""An xDS control plane: EDS, state of the world over ADS, by grpcio. And an Envoy that follows it.

The messages are written as descriptors with the fields that the tests use, since the PyPI package with their code also
installs old files of OpenTelemetry. A field of an enumeration is an integer here: on the wire they are the same.
"""

import json
import os
import queue
import threading
from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field

import grpc
from google.protobuf import any_pb2, descriptor_pb2, descriptor_pool, message_factory, wrappers_pb2

from .envoy import ENVOY
from .fleet import Admin, Fleet
from .process import Process, free_port, wait_until

_FIELD = descriptor_pb2.FieldDescriptorProto
_SCALARS = {"string": _FIELD.TYPE_STRING, "int32": _FIELD.TYPE_INT32, "uint32": _FIELD.TYPE_UINT32}
_DISCOVERY, _ENDPOINT, _CORE = "envoy.service.discovery.v3", "envoy.config.endpoint.v3", "envoy.config.core.v3"
_U32, _ANY = "google.protobuf.UInt32Value", "google.protobuf.Any"
_MESSAGES: dict[str, dict[str, tuple[int, str]]] = {
    "google.rpc.Status": {"code": (1, "int32"), "message": (2, "string")},
    f"{_CORE}.Node": {"id": (1, "string"), "cluster": (2, "string"), "user_agent_name": (6, "string")},
    f"{_CORE}.Locality": {"region": (1, "string"), "zone": (2, "string"), "sub_zone": (3, "string")},
    f"{_CORE}.SocketAddress": {"address": (2, "string"), "port_value": (3, "uint32")},
    f"{_CORE}.Address": {"socket_address": (1, f"{_CORE}.SocketAddress")},
    f"{_ENDPOINT}.Endpoint": {"address": (1, f"{_CORE}.Address"), "hostname": (3, "string")},
    f"{_ENDPOINT}.LbEndpoint": {
        "endpoint": (1, f"{_ENDPOINT}.Endpoint"),
        "health_status": (2, "int32"),
        "load_balancing_weight": (4, _U32),
    },
    f"{_ENDPOINT}.LocalityLbEndpoints": {
        "locality": (1, f"{_CORE}.Locality"),
        "lb_endpoints": (2, f"*{_ENDPOINT}.LbEndpoint"),
        "load_balancing_weight": (3, _U32),
        "priority": (5, "uint32"),
    },
    f"{_ENDPOINT}.ClusterLoadAssignment": {
        "cluster_name": (1, "string"),
        "endpoints": (2, f"*{_ENDPOINT}.LocalityLbEndpoints"),
    },
    f"{_DISCOVERY}.DiscoveryRequest": {
        "version_info": (1, "string"),
        "node": (2, f"{_CORE}.Node"),
        "resource_names": (3, "*string"),
        "type_url": (4, "string"),
        "response_nonce": (5, "string"),
        "error_detail": (6, "google.rpc.Status"),
    },
    f"{_DISCOVERY}.DiscoveryResponse": {
        "version_info": (1, "string"),
        "resources": (2, f"*{_ANY}"),
        "type_url": (4, "string"),
        "nonce": (5, "string"),
    },
}


def _pool() -> descriptor_pool.DescriptorPool:
    pool = descriptor_pool.DescriptorPool()
    for known in (any_pb2, wrappers_pb2):
        pool.AddSerializedFile(known.DESCRIPTOR.serialized_pb)
    for package in dict.fromkeys(name.rpartition(".")[0] for name in _MESSAGES):
        file = descriptor_pb2.FileDescriptorProto(name=f"{package}.proto", package=package, syntax="proto3")
        imports = set()
        for name, fields in _MESSAGES.items():
            if name.rpartition(".")[0] != package:
                continue
            message = file.message_type.add(name=name.rpartition(".")[2])
            for key, (number, kind) in fields.items():
                label = _FIELD.LABEL_REPEATED if kind.startswith("*") else _FIELD.LABEL_OPTIONAL
                kind = kind.removeprefix("*")
                added = message.field.add(name=key, number=number, label=label)
                if kind in _SCALARS:
                    added.type = _SCALARS[kind]
                    continue
                added.type, added.type_name = _FIELD.TYPE_MESSAGE, f".{kind}"
                well_known = {_U32: wrappers_pb2, _ANY: any_pb2}.get(kind)
                imports.add(well_known.DESCRIPTOR.name if well_known else f"{kind.rpartition('.')[0]}.proto")
        file.dependency.extend(sorted(imports - {file.name}))
        pool.Add(file)
    return pool


_TYPES = _pool()
_CLASSES = {name: message_factory.GetMessageClass(_TYPES.FindMessageTypeByName(name)) for name in _MESSAGES}
DiscoveryRequest = _CLASSES[f"{_DISCOVERY}.DiscoveryRequest"]
DiscoveryResponse = _CLASSES[f"{_DISCOVERY}.DiscoveryResponse"]
ClusterLoadAssignment = _CLASSES[f"{_ENDPOINT}.ClusterLoadAssignment"]
TYPE = f"type.googleapis.com/{_ENDPOINT}.ClusterLoadAssignment"
HEALTHY, UNHEALTHY, DRAINING, TIMEOUT, DEGRADED = 1, 2, 3, 4, 5


@dataclass
class Endpoint:
    """An endpoint as a control plane lists it."""

    address: str
    health: int = 0
    weight: int = 0
    hostname: str = ""


@dataclass
class Group:
    """The endpoints of a locality at a priority."""

    endpoints: list[Endpoint]
    zone: str = ""
    region: str = ""
    priority: int = 0
    weight: int = 0


def group(*addresses: str, **settings: object) -> Group:
    return Group([Endpoint(address) for address in addresses], **settings)  # type: ignore[arg-type]


def assignment(service: str, groups: Iterable[Group]) -> bytes:
    """A `ClusterLoadAssignment`."""
    message = ClusterLoadAssignment(cluster_name=service)
    for of in groups:
        locality = message.endpoints.add(priority=of.priority)
        if of.region or of.zone:
            locality.locality.region, locality.locality.zone = of.region, of.zone
        if of.weight:
            locality.load_balancing_weight.value = of.weight
        for listed in of.endpoints:
            endpoint = locality.lb_endpoints.add(health_status=listed.health)
            host, _, port = listed.address.rpartition(":")
            endpoint.endpoint.address.socket_address.address = host
            endpoint.endpoint.address.socket_address.port_value = int(port)
            endpoint.endpoint.hostname = listed.hostname
            if listed.weight:
                endpoint.load_balancing_weight.value = listed.weight
    return message.SerializeToString()


@dataclass
class Word:
    """A request of a client that answers a response, or begins its stream."""

    node: str
    version: str
    nonce: str
    error: str


@dataclass
class _Stream:
    inbox: queue.SimpleQueue = field(default_factory=queue.SimpleQueue)
    node: str = ""
    user_agent: str = ""
    cluster: str = ""
    names: tuple[str, ...] = ()
    nonce: str = ""


class ControlPlane:
    """Serves the assignments that the test sets."""

    def __init__(self, credentials: grpc.ServerCredentials | None = None, former: "ControlPlane | None" = None):
        self.port = former.port if former else free_port()
        self.version = former.version if former else 0
        self._resources: dict[str, bytes] = dict(former._resources) if former else {}
        self._lock = threading.Lock()
        self._streams: list[_Stream] = []
        self.words: list[Word] = []
        self._server = grpc.server(ThreadPoolExecutor(16))
        method = grpc.stream_stream_rpc_method_handler(
            self._stream,
            request_deserializer=DiscoveryRequest.FromString,
            response_serializer=DiscoveryResponse.SerializeToString,
        )
        service = f"{_DISCOVERY}.AggregatedDiscoveryService"
        self._server.add_generic_rpc_handlers(
            [grpc.method_handlers_generic_handler(service, {"StreamAggregatedResources": method})]
        )
        address = f"127.0.0.1:{self.port}"
        bound = self._server.add_secure_port(address, credentials) if credentials else self._server.add_insecure_port(address)
        assert bound == self.port
        self._server.start()

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self.port}"

    def set(self, service: str, *groups: Group) -> str:
        """Sends another list to all clients of the service. Returns its version."""
        return self.set_raw(service, assignment(service, groups))

    def set_raw(self, service: str, resource: bytes) -> str:
        with self._lock:
            self.version += 1
            self._resources[service] = resource
            for stream in self._streams:
                stream.inbox.put("changed")
            return str(self.version)

    def remove(self, service: str) -> None:
        """Sends responses without this service."""
        with self._lock:
            self.version += 1
            del self._resources[service]
            for stream in self._streams:
                stream.inbox.put("changed")

    def nodes(self) -> list[tuple[str, str, str]]:
        """Id, cluster and program of the clients with a stream."""
        with self._lock:
            return [(stream.node, stream.cluster, stream.user_agent) for stream in self._streams]

    def answers(self, node: str, version: str) -> list[Word]:
        """The ACKs and NACKs of a node for the response of this version."""
        with self._lock:
            return [word for word in self.words if word.node == node and word.nonce == f"nonce-{version}"]

    def stop(self) -> None:
        """Ends all streams at once."""
        self._server.stop(None).wait()

    def again(self) -> "ControlPlane":
        """After its end, another process with the same lists at the same port."""
        return ControlPlane(former=self)

    def _stream(self, requests: Iterator, context: grpc.ServicerContext) -> Iterator:
        stream = _Stream()
        with self._lock:
            self._streams.append(stream)

        def read() -> None:
            try:
                for request in requests:
                    stream.inbox.put(request)
            except Exception:  # noqa: BLE001, S110
                # grpc raises a bare Exception when the stream ends.
                pass
            stream.inbox.put(None)

        threading.Thread(target=read, daemon=True).start()
        try:
            while (item := stream.inbox.get()) is not None:
                with self._lock:
                    response = self._response(stream, item)
                if response is not None:
                    yield response
        finally:
            with self._lock:
                self._streams.remove(stream)

    def _response(self, stream: _Stream, item: object) -> object | None:
        version = str(self.version)
        if item != "changed":
            request = item
            assert isinstance(request, DiscoveryRequest)
            if request.HasField("node"):
                stream.node, stream.cluster = request.node.id, request.node.cluster
                stream.user_agent = request.node.user_agent_name
            self.words.append(Word(stream.node, request.version_info, request.response_nonce, request.error_detail.message))
            # A stale request, or one for another type.
            if request.type_url != TYPE or request.response_nonce != stream.nonce:
                return None
            names, stream.names = stream.names, tuple(request.resource_names)
            is_first = not request.response_nonce
            # A client that has the version needs no response.
            if request.version_info == version or not (is_first or names != stream.names):
                return None
        elif not stream.names:
            return None
        stream.nonce = f"nonce-{version}"
        response = DiscoveryResponse(version_info=version, type_url=TYPE, nonce=stream.nonce)
        for name in stream.names:
            if name in self._resources:
                response.resources.add(type_url=TYPE, value=self._resources[name])
        return response


class EnvoyByAds(Process):
    """An Envoy whose cluster `web` has its endpoints from a control plane."""

    def __init__(self, fleet: Fleet, server: str, cluster: str = "") -> None:
        self.port = free_port()
        self.admin = Admin(free_port())
        host, _, port = server.rpartition(":")
        path = fleet.directory / "envoy.yaml"
        path.write_text(f"""
node: {{ id: envoy, cluster: test }}
admin: {{ address: {{ socket_address: {{ address: 127.0.0.1, port_value: {self.admin.port} }} }} }}
dynamic_resources:
  ads_config:
    api_type: GRPC
    transport_api_version: V3
    grpc_services: [{{ envoy_grpc: {{ cluster_name: control }} }}]
static_resources:
  listeners:
  - address: {{ socket_address: {{ address: 127.0.0.1, port_value: {self.port} }} }}
    filter_chains:
    - filters:
      - name: http
        typed_config:
          "@type": type.googleapis.com/envoy.extensions.filters.network.http_connection_manager.v3.HttpConnectionManager
          stat_prefix: http
          route_config:
            virtual_hosts: [{{ name: all, domains: ["*"], routes: [{{ match: {{ prefix: / }}, route: {{ cluster: web }} }}] }}]
          http_filters:
          - name: router
            typed_config: {{ "@type": type.googleapis.com/envoy.extensions.filters.http.router.v3.Router }}
  clusters:
  - name: web
    type: EDS
    connect_timeout: 1s
    eds_cluster_config: {{ eds_config: {{ resource_api_version: V3, ads: {{}} }} }}
    {cluster}
  - name: control
    connect_timeout: 1s
    typed_extension_protocol_options:
      envoy.extensions.upstreams.http.v3.HttpProtocolOptions:
        "@type": type.googleapis.com/envoy.extensions.upstreams.http.v3.HttpProtocolOptions
        explicit_http_config: {{ http2_protocol_options: {{}} }}
    load_assignment:
      cluster_name: control
      endpoints: [{{ lb_endpoints: [{{ endpoint: {{ address: {{ socket_address: {{ address: "{host}", port_value: {port} }} }} }} }}] }}]
""")
        os.chmod(ENVOY, 0o755)
        command = [str(ENVOY), "-c", str(path), "--concurrency", "1", "--disable-hot-restart", "--log-level", "warning"]
        super().__init__("envoy", command, fleet.directory)
        fleet.processes.append(self)
        self.wait_for_port(self.port)

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}/"

    def hosts(self) -> dict[str, dict]:
        """The hosts of the cluster by address: `health` by EDS, `weight`, `priority`, `zone`."""
        status, text = self.admin.get("/clusters?format=json")
        assert status == 200, text
        (web,) = [of for of in json.loads(text)["cluster_statuses"] if of["name"] == "web"]
        found = {}
        for host in web.get("host_statuses", []):
            socket = host["address"]["socket_address"]
            found[f"{socket['address']}:{socket['port_value']}"] = {
                "health": host["health_status"].get("eds_health_status", "UNKNOWN"),
                "weight": host.get("weight", 1),
                "priority": host.get("priority", 0),
                "zone": host.get("locality", {}).get("zone", ""),
            }
        return found

    def usable(self) -> set[str]:
        """The addresses that EDS does not state as unfit."""
        return {address for address, host in self.hosts().items() if host["health"] in ("HEALTHY", "UNKNOWN")}

    def wait_for(self, addresses: Iterable[str], seconds: float = 10) -> None:
        expected = set(addresses)
        wait_until(f"Envoy has {sorted(expected)}", lambda: self.usable() == expected, seconds)
