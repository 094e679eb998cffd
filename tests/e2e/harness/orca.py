"""`xds.data.orca.v3.OrcaLoadReport` as the cncf/xds repository publishes it.

Written as a descriptor, since the PyPI package with its code also installs old files of OpenTelemetry.
"""

from google.protobuf import descriptor_pb2, descriptor_pool, message_factory

_DOUBLE, _UINT64 = descriptor_pb2.FieldDescriptorProto.TYPE_DOUBLE, descriptor_pb2.FieldDescriptorProto.TYPE_UINT64
_PACKAGE = "xds.data.orca.v3"
_FIELDS = {
    "cpu_utilization": (1, _DOUBLE),
    "mem_utilization": (2, _DOUBLE),
    "rps": (3, _UINT64),
    "rps_fractional": (6, _DOUBLE),
    "eps": (7, _DOUBLE),
    "application_utilization": (9, _DOUBLE),
}
_MAPS = {"request_cost": 4, "utilization": 5, "named_metrics": 8}


def _file() -> descriptor_pb2.FileDescriptorProto:
    file = descriptor_pb2.FileDescriptorProto(
        name="xds/data/orca/v3/orca_load_report.proto", package=_PACKAGE, syntax="proto3"
    )
    report = file.message_type.add(name="OrcaLoadReport")
    optional = descriptor_pb2.FieldDescriptorProto.LABEL_OPTIONAL
    for name, (number, kind) in _FIELDS.items():
        report.field.add(name=name, number=number, type=kind, label=optional)
    for name, number in _MAPS.items():
        entry = report.nested_type.add(name=f"{name.title().replace('_', '')}Entry")
        entry.options.map_entry = True
        entry.field.add(
            name="key", number=1, type=descriptor_pb2.FieldDescriptorProto.TYPE_STRING, label=optional
        )
        entry.field.add(name="value", number=2, type=_DOUBLE, label=optional)
        report.field.add(
            name=name,
            number=number,
            type=descriptor_pb2.FieldDescriptorProto.TYPE_MESSAGE,
            type_name=f".{_PACKAGE}.OrcaLoadReport.{entry.name}",
            label=descriptor_pb2.FieldDescriptorProto.LABEL_REPEATED,
        )
    return file


_pool = descriptor_pool.DescriptorPool()
_pool.Add(_file())
OrcaLoadReport = message_factory.GetMessageClass(_pool.FindMessageTypeByName(f"{_PACKAGE}.OrcaLoadReport"))
