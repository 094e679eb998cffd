"""The messages of etcd's API that the tests use, as `rpc.proto` and `kv.proto` of etcd 3.4 define them.

Written as descriptors: PyPI has no package with their code that fits the version of protobuf here.
"""

from google.protobuf import descriptor_pb2, descriptor_pool, message_factory

_PACKAGE = "etcdserverpb"
_Field = descriptor_pb2.FieldDescriptorProto
_SCALARS = {
    "bytes": _Field.TYPE_BYTES,
    "string": _Field.TYPE_STRING,
    "int64": _Field.TYPE_INT64,
    "uint64": _Field.TYPE_UINT64,
    "int32": _Field.TYPE_INT32,
    "bool": _Field.TYPE_BOOL,
}
# Name: number and type. `*` before a type: repeated. Enumerations are int32: the same on the wire.
_MESSAGES = {
    "Header": {"cluster_id": (1, "uint64"), "member_id": (2, "uint64"), "revision": (3, "int64")},
    "KeyValue": {
        "key": (1, "bytes"),
        "create_revision": (2, "int64"),
        "mod_revision": (3, "int64"),
        "version": (4, "int64"),
        "value": (5, "bytes"),
        "lease": (6, "int64"),
    },
    "RangeRequest": {"key": (1, "bytes"), "range_end": (2, "bytes")},
    "RangeResponse": {"header": (1, "Header"), "kvs": (2, "*KeyValue")},
    "PutRequest": {"key": (1, "bytes"), "value": (2, "bytes"), "lease": (3, "int64")},
    "PutResponse": {"header": (1, "Header")},
    "DeleteRangeRequest": {"key": (1, "bytes"), "range_end": (2, "bytes")},
    "DeleteRangeResponse": {"header": (1, "Header"), "deleted": (2, "int64")},
    "CompactionRequest": {"revision": (1, "int64"), "physical": (2, "bool")},
    "CompactionResponse": {"header": (1, "Header")},
    "LeaseGrantRequest": {"ttl": (1, "int64")},
    "LeaseGrantResponse": {"header": (1, "Header"), "id": (2, "int64"), "ttl": (3, "int64")},
    "LeaseRevokeRequest": {"id": (1, "int64")},
    "LeaseRevokeResponse": {"header": (1, "Header")},
    "LeaseStatus": {"id": (1, "int64")},
    "LeaseLeasesRequest": {},
    "LeaseLeasesResponse": {"header": (1, "Header"), "leases": (2, "*LeaseStatus")},
    "StatusRequest": {},
    "StatusResponse": {"header": (1, "Header"), "version": (2, "string"), "leader": (4, "uint64")},
    "WatchCreateRequest": {"key": (1, "bytes"), "range_end": (2, "bytes"), "start_revision": (3, "int64"), "prev_kv": (6, "bool")},
    # `create_request` is in a oneof, which makes no difference on the wire.
    "WatchRequest": {"create_request": (1, "WatchCreateRequest")},
    "Event": {"type": (1, "int32"), "kv": (2, "KeyValue"), "prev_kv": (3, "KeyValue")},
    "WatchResponse": {
        "header": (1, "Header"),
        "created": (3, "bool"),
        "canceled": (4, "bool"),
        "compact_revision": (5, "int64"),
        "cancel_reason": (6, "string"),
        "events": (11, "*Event"),
    },
}
# Method: its service and the names of its messages without their ends.
METHODS = {
    "Range": ("KV", "Range"),
    "Put": ("KV", "Put"),
    "DeleteRange": ("KV", "DeleteRange"),
    "Compact": ("KV", "Compaction"),
    "LeaseGrant": ("Lease", "LeaseGrant"),
    "LeaseRevoke": ("Lease", "LeaseRevoke"),
    "LeaseLeases": ("Lease", "LeaseLeases"),
    "Status": ("Maintenance", "Status"),
    "Watch": ("Watch", "Watch"),
}


def _file() -> descriptor_pb2.FileDescriptorProto:
    file = descriptor_pb2.FileDescriptorProto(name="etcd/rpc.proto", package=_PACKAGE, syntax="proto3")
    for name, fields in _MESSAGES.items():
        message = file.message_type.add(name=name)
        for field, (number, kind) in fields.items():
            label = _Field.LABEL_REPEATED if kind.startswith("*") else _Field.LABEL_OPTIONAL
            made = message.field.add(name=field, number=number, label=label)
            kind = kind.removeprefix("*")
            if kind in _SCALARS:
                made.type = _SCALARS[kind]
            else:
                made.type, made.type_name = _Field.TYPE_MESSAGE, f".{_PACKAGE}.{kind}"
    return file


_pool = descriptor_pool.DescriptorPool()
_pool.Add(_file())
_classes = {name: message_factory.GetMessageClass(_pool.FindMessageTypeByName(f"{_PACKAGE}.{name}")) for name in _MESSAGES}


def path(method: str) -> str:
    """The path of a method."""
    return f"/{_PACKAGE}.{METHODS[method][0]}/{method}"


def request_class(method: str) -> type:
    return _classes[f"{METHODS[method][1]}Request"]


def response_class(method: str) -> type:
    return _classes[f"{METHODS[method][1]}Response"]


WatchRequest, WatchCreateRequest = _classes["WatchRequest"], _classes["WatchCreateRequest"]
