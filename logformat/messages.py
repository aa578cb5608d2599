"""The classes of the log's messages, built from `schema` at run time.

They live in a descriptor pool of their own: another copy of these messages in the same process never collides, and no
generated code pins a protobuf version (4.25 to 7 work).
"""

from __future__ import annotations

from typing import Any

from google.protobuf import descriptor_pb2, descriptor_pool, message_factory

from .schema import SCHEMA

_PACKAGE = "runferry.log"
_Field = descriptor_pb2.FieldDescriptorProto
_SCALARS = {
    "bool": _Field.TYPE_BOOL,
    "bytes": _Field.TYPE_BYTES,
    "double": _Field.TYPE_DOUBLE,
    "int32": _Field.TYPE_INT32,
    "int64": _Field.TYPE_INT64,
    "sint64": _Field.TYPE_SINT64,
    "string": _Field.TYPE_STRING,
    "uint32": _Field.TYPE_UINT32,
    "uint64": _Field.TYPE_UINT64,
}


def _set_type(field: Any, kind: str) -> None:
    if kind in _SCALARS:
        field.type = _SCALARS[kind]
    else:
        field.type, field.type_name = _Field.TYPE_MESSAGE, f".{_PACKAGE}.{kind}"


def _add_map(message: Any, field: Any, value_kind: str) -> None:
    """A map is a repeated nested message of key 1 and value 2 that carries the map option."""
    entry = message.nested_type.add(name=f"{field.name.title().replace('_', '')}Entry")
    entry.options.map_entry = True
    for number, name, kind in ((1, "key", "string"), (2, "value", value_kind)):
        _set_type(entry.field.add(name=name, number=number, label=_Field.LABEL_OPTIONAL), kind)
    field.label = _Field.LABEL_REPEATED
    field.type, field.type_name = _Field.TYPE_MESSAGE, f".{_PACKAGE}.{message.name}.{entry.name}"


def _add_field(message: Any, line: str) -> None:
    number, name, kind, *more = line.split()
    field = message.field.add(name=name, number=int(number), label=_Field.LABEL_OPTIONAL)
    if kind.startswith("map:"):
        _add_map(message, field, kind.removeprefix("map:"))
        return
    if kind.endswith("*"):
        field.label = _Field.LABEL_REPEATED
    if more and more[0].startswith("json="):
        field.json_name = more[0].removeprefix("json=")
    elif more:
        names = [declared.name for declared in message.oneof_decl]
        if more[1] not in names:
            message.oneof_decl.add(name=more[1])
            names.append(more[1])
        field.oneof_index = names.index(more[1])
    _set_type(field, kind.rstrip("*?"))


def _add_presence(message: Any, line: str) -> None:
    """Explicit presence is a oneof of one member, declared behind all real ones."""
    field = next(field for field in message.field if field.name == line.split()[1])
    message.oneof_decl.add(name=f"_{field.name}")
    field.proto3_optional = True
    field.oneof_index = len(message.oneof_decl) - 1


def _file_descriptor(schema: str) -> Any:
    file = descriptor_pb2.FileDescriptorProto(name="runferry/log.proto", package=_PACKAGE, syntax="proto3")
    for block in schema.split("message ")[1:]:
        name, *lines = (line.strip() for line in block.splitlines())
        message = file.message_type.add(name=name)
        lines = [line for line in lines if line and not line.startswith("#")]
        for line in lines:
            _add_field(message, line)
        for line in lines:
            if line.split()[2].endswith("?"):
                _add_presence(message, line)
    return file


def _build() -> dict[str, Any]:
    pool = descriptor_pool.DescriptorPool()
    file = _file_descriptor(SCHEMA)
    pool.AddSerializedFile(file.SerializeToString())
    return {
        message.name: message_factory.GetMessageClass(pool.FindMessageTypeByName(f"{_PACKAGE}.{message.name}"))
        for message in file.message_type
    }


_CLASSES = _build()
BODIES: dict[str, Any] = {
    field.name: _CLASSES[field.message_type.name]
    for field in _CLASSES["Record"].DESCRIPTOR.oneofs_by_name["record_type"].fields
    if field.message_type is not None
}
"""Name of the record type -> the class of its message."""


def __getattr__(name: str) -> Any:
    """`messages.RunRecord` and the others: the classes of the table."""
    try:
        return _CLASSES[name]
    except KeyError:
        raise AttributeError(f"the log has no message {name!r}") from None
