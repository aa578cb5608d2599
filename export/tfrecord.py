"""TFRecord files and the protobuf bytes of TensorBoard's events, as far as exports need them.

    file   = record*
    record = length u64 | masked crc of these 8 bytes u32 | data[length] | masked crc of the data u32     little-endian

The checksum is CRC-32C (Castagnoli); masked, it is rotated right by 15 bits, plus 0xa282ead8.
"""

from __future__ import annotations

import struct
from functools import cache, lru_cache
from typing import BinaryIO

from ..logformat.wire import BYTES, FIXED32, FIXED64, VARINT, write_varint

_POLYNOMIAL = 0x82F63B78  # of CRC-32C, reflected
_MASK = 0xA282EAD8
_FOUR_PAIRS = struct.Struct("<4H")
_LENGTH = struct.Struct("<Q")
_CRC = struct.Struct("<I")
_DOUBLE = struct.Struct("<d")
_FLOAT = struct.Struct("<f")


def write_record(file: BinaryIO, data: bytes) -> None:
    """Append one record."""
    file.write(b"".join((_head(len(data)), data, _masked(data))))


@lru_cache(4096)
def _head(size: int) -> bytes:
    length = _LENGTH.pack(size)
    return length + _masked(length)


def crc32c(data: bytes) -> int:
    """CRC-32C, eight bytes at a time: by what each pair of bytes amounts to so many pairs before the end."""
    bytewise, at_end, one_on, two_on, three_on = _tables()
    crc = 0xFFFF_FFFF
    even = len(data) & ~7
    for first, second, third, fourth in _FOUR_PAIRS.iter_unpack(memoryview(data)[:even]):
        crc = three_on[first ^ crc & 0xFFFF] ^ two_on[second ^ crc >> 16] ^ one_on[third] ^ at_end[fourth]
    for byte in data[even:]:
        crc = bytewise[crc & 0xFF ^ byte] ^ crc >> 8
    return crc ^ 0xFFFF_FFFF


def _masked(data: bytes) -> bytes:
    crc = crc32c(data)
    return _CRC.pack((crc >> 15 | crc << 17) + _MASK & 0xFFFF_FFFF)


@cache
def _tables() -> tuple[list[int], ...]:
    """By a byte, and by pairs of bytes that stand at the end, and one, two and three pairs before it."""
    bytewise = [_byte(value) for value in range(256)]
    first = [bytewise[value & 0xFF] ^ value >> 8 for value in range(1 << 16)]
    pairs = [bytewise[crc & 0xFF] ^ crc >> 8 for crc in first]
    tables = [pairs]
    for _ in range(3):
        tables.append([pairs[crc & 0xFFFF] ^ crc >> 16 for crc in tables[-1]])
    return bytewise, *tables


def _byte(crc: int) -> int:
    for _ in range(8):
        crc = crc >> 1 ^ (_POLYNOMIAL if crc & 1 else 0)
    return crc


# -- protobuf --------------------------------------------------------------------------------------------------------


def inner(number: int, *parts: bytes) -> bytes:
    """A field that holds bytes, a text or a message."""
    body = b"".join(parts)
    return b"".join((write_varint(number << 3 | BYTES), write_varint(len(body)), body))


def text(number: int, value: str) -> bytes:
    """A field that holds a text."""
    return inner(number, value.encode("utf-8", "replace"))


def whole(number: int, value: int) -> bytes:
    """A field that holds an integer, a bool or an enum."""
    return write_varint(number << 3 | VARINT) + write_varint(value)


def double(number: int, value: float) -> bytes:
    """A field that holds a double."""
    return write_varint(number << 3 | FIXED64) + _DOUBLE.pack(value)


def float32(number: int, value: float) -> bytes:
    """A field that holds a float of 32 bits. Raises OverflowError if the value is beyond them."""
    return write_varint(number << 3 | FIXED32) + _FLOAT.pack(value)
