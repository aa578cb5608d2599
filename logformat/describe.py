"""A record as plain data, for people and for JSON: keys joined to paths, values decoded, times in seconds."""

from __future__ import annotations

from typing import Any

from .elapsed import in_seconds, nanoseconds
from .history import Path, decode_history
from .nested import row_of
from .record import Record
from .values import loads

_LEVELS = {0: "stderr", 1: "stdout"}


def describe(record: Record) -> dict[str, Any]:
    """What the record says, as a dict; rows and changes as nested values, the rest by the fields' names.

    Raises:
        WireError: the record's message cannot be parsed.
    """
    if record.kind == "history":
        return row_of(*decode_history(record.body))
    message = record.message()
    if message is None:
        return {}
    if record.kind in {"summary", "config"}:
        return _change(message)
    if record.kind == "stats":
        return {
            "timestamp": _seconds(message.timestamp),
            **{item.key: _value(item.value_json) for item in message.item},
        }
    if record.kind in {"output", "output_raw"}:
        stream = _LEVELS.get(message.output_type, "stdout")
        return {"stream": stream, "timestamp": _seconds(message.timestamp), "line": message.line}
    return plain_fields(message)


def _change(message: Any) -> dict[str, Any]:
    said: dict[str, Any] = {}
    for item in message.update:
        said[_name(item)] = _value(item.value_json)
    if message.remove:
        said["(removed)"] = [_name(item) for item in message.remove]
    return said


def plain_fields(message: Any) -> dict[str, Any]:
    """The fields that a message sets, by their names."""
    from google.protobuf.json_format import MessageToDict

    plain: dict[str, Any] = {}
    for field, value in message.ListFields():
        name = field.name
        if field.message_type is None:
            plain[name] = list(value) if isinstance(value, list) or hasattr(value, "append") else _readable(value)
        elif field.message_type.name == "Timestamp":
            plain[name] = _seconds(value)
        elif field.message_type.name in {"ConfigRecord", "SummaryRecord"}:
            plain[name] = _change(value)
        elif field.message_type.GetOptions().map_entry or hasattr(value, "append"):
            one = MessageToDict(message, preserving_proto_field_name=True)
            plain[name] = one.get(name, one.get(field.json_name))
        else:
            plain[name] = plain_fields(value)
    return plain


def _readable(value: Any) -> Any:
    return value.hex() if isinstance(value, bytes) else value


def _name(item: Any) -> str:
    path: Path = tuple(item.nested_key) or (item.key,)
    return "/".join(path) if len(path) > 1 else path[0]


def _value(text: str) -> Any:
    try:
        return loads(text.encode())
    except ValueError:
        return {"broken": text}


def _seconds(timestamp: Any) -> float:
    return in_seconds(nanoseconds(timestamp))
