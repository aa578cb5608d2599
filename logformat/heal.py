"""Bits that flipped in a chunk, found by its checksum.

A CRC is linear: what the stored and the computed checksum differ in depends on the flipped bits alone, not on the data. Of
one flipped bit it tells the place, because no two places in a chunk give the same difference. Two flipped bits
never look like one in up to 91,607 bits of data, for which this polynomial keeps any two valid messages four bits apart;
longer chunks are left as they are. More flipped bits do, once in 2**32 / bits: what was mended counts only if it is also
a message of the schema, in its place among the numbers of its neighbours (`is_sound`, and the reader).
"""

from __future__ import annotations

from typing import NamedTuple
from zlib import crc32

from .constants import CHUNK_HEADER_SIZE
from .record import Record
from .values import loads

MAX_MENDED = 91_607 // 8 - 1
"""Bytes of payload; with the type, which the checksum covers too, the length up to which the proof holds (P. Koopman,
"32-bit cyclic redundancy codes for Internet applications", 2002)."""

_AFTER = [crc32(bytes([byte ^ 0xFF])) ^ 0xFF00_0000 for byte in range(256)]  # of a register: one byte further
_BEFORE = [0] * 256  # by the highest byte of a register: which of those it came from
for _byte, _register in enumerate(_AFTER):
    _BEFORE[_register >> 24] = _byte
_ONE_BIT = {_AFTER[1 << bit]: bit for bit in range(8)}


class Healed(NamedTuple):
    """A bit that was mended in memory; the file has it as it was found."""

    offset: int
    """Of its byte in the file."""
    bit: int
    """0 is the lowest."""


def flipped_bit(difference: int, size: int) -> tuple[int, int] | None:
    """The one flipped bit that makes checksums differ so, for a chunk with `size` bytes of payload.

    Returns:
        Offset of its byte from the beginning of the chunk, and the bit; None if more than one bit must have flipped.
    """
    if difference.bit_count() == 1:  # in the checksum itself: what it covers is as it was
        bit = difference.bit_length() - 1
        return bit // 8, bit % 8
    if size > MAX_MENDED:
        return None
    register = difference
    for behind in range(size + 1):  # so many bytes lie behind the one that is looked at; the first is the type
        bit = _ONE_BIT.get(register, -1)
        if bit >= 0:
            return CHUNK_HEADER_SIZE - 1 + size - behind, bit
        index = _BEFORE[register >> 24]
        register = (register ^ _AFTER[index]) << 8 & 0xFFFF_FFFF | index
    return None


def flipped_bits(found: bytes, right: bytes, offset: int) -> tuple[Healed, ...]:
    """What differs between bytes found at `offset` in the file and what they have to be."""
    differing = ((at, one ^ other) for at, (one, other) in enumerate(zip(found, right, strict=True)))
    return tuple(Healed(offset + at, bit) for at, bits in differing for bit in range(8) if bits >> bit & 1)


def is_sound(record: Record) -> bool:
    """Whether a record is a message of the schema, whose values are JSON: what a wrong bit hardly ever leaves whole."""
    try:
        message = record.message()
        if message is None:
            return False
        for name in ("item", "update"):
            for item in getattr(message, name, ()):
                if item.value_json:  # values of later versions stand in fields of their own types
                    loads(item.value_json.encode())
    except ValueError:  # what raises for bytes that are no message is one
        return False
    return True
