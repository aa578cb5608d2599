"""The protobuf wire format, as much of it as reading a log's envelope needs.

A log holds one message per record and most of them are rows; walking the bytes here costs a fraction of building
message objects, and what nobody asks for is never decoded.
"""

from __future__ import annotations

from collections.abc import Iterator

VARINT, FIXED64, BYTES, FIXED32 = 0, 1, 2, 5


class WireError(ValueError):
    """The bytes are no protobuf message."""


def read_varint(data: bytes, at: int) -> tuple[int, int]:
    """The varint at `at`: its value (unsigned 64 bit) and the offset behind it."""
    value = shift = 0
    try:
        while True:
            byte = data[at]
            at += 1
            value |= (byte & 0x7F) << shift
            if byte < 0x80:
                return value & 0xFFFF_FFFF_FFFF_FFFF, at
            shift += 7
            if shift > 63:
                raise WireError("a varint is longer than 10 bytes")
    except IndexError:
        raise WireError("a varint runs past the end") from None


def write_varint(value: int) -> bytes:
    """`value` (0 <= value < 2**64; a negative int64 is passed as its two's complement) as a varint."""
    value &= 0xFFFF_FFFF_FFFF_FFFF
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


def fields(data: bytes, start: int = 0, end: int | None = None) -> Iterator[tuple[int, int, int, int]]:
    """Each field of a message as (number, wire type, value start, value end).

    For a varint the range holds the varint's bytes; for a length-delimited field, its content.

    Raises:
        WireError: the bytes are no message, or a value runs past `end`.
    """
    at, end = start, len(data) if end is None else end
    while at < end:
        key, at = read_varint(data, at)
        number, kind = key >> 3, key & 7
        if number == 0:
            raise WireError("field number 0")
        if kind == BYTES:
            size, at = read_varint(data, at)
            stop = at + size
        elif kind == VARINT:
            stop = read_varint(data, at)[1]
        elif kind == FIXED64:
            stop = at + 8
        elif kind == FIXED32:
            stop = at + 4
        else:
            raise WireError(f"wire type {kind}")
        if stop > end:
            raise WireError(f"field {number} runs past the end")
        yield number, kind, at, stop
        at = stop


def set_flags(message: bytes) -> list[int]:
    """The numbers of the true bool fields of a serialized message, in order of appearance."""
    flags: list[int] = []
    for number, kind, start, _ in fields(message):
        if kind == VARINT and read_varint(message, start)[0]:
            flags.append(number)
    return flags
