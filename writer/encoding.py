"""Text and numbers as the log's bytes: what rows and rare records share. Light to import: a run's start needs it."""

from __future__ import annotations

from typing import Any

from ..logformat.wire import write_varint
from .values import Path

_ONE_BYTE = [bytes([n]) for n in range(128)]


def varint(value: int) -> bytes:
    """`value` as a protobuf varint; a negative int64 as its two's complement."""
    if 0 <= value < 0x80:
        return _ONE_BYTE[value]
    if 0 <= value < 0x4000:
        return bytes((value & 0x7F | 0x80, value >> 7))
    if 0 <= value < 0x20_0000:
        return bytes((value & 0x7F | 0x80, value >> 7 & 0x7F | 0x80, value >> 14))
    return write_varint(value)


def utf8(text: str) -> bytes:
    """`text` in UTF-8; lone surrogates become U+FFFD, because no reader takes a record with them."""
    try:
        return text.encode()
    except UnicodeEncodeError:
        return text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace").encode()


def to_json(value: Any) -> bytes:
    """A plain value's JSON as the log has it: NaN and infinities bare, integers exact, text unescaped.

    Raises:
        ValueError: an integer with more digits than the interpreter converts (4,300).
    """
    import json  # a row of numbers needs it as little as a run's start does

    return utf8(json.dumps(value, ensure_ascii=False, separators=(",", ":")))


def nested_key(path: Path) -> bytes:
    """The repeated field `nested_key` (2) of an item."""
    return b"".join(b"\x12" + varint(len(name)) + name for name in map(utf8, path))
