"""Records to bytes: the writer's half of the format."""

from __future__ import annotations

import struct
from zlib import crc32

from .constants import BLOCK_SIZE, CHUNK_HEADER_SIZE, FILE_HEADER, ChunkType

_HEADER = struct.Struct("<IHB")
_PAYLOAD_PER_CHUNK = BLOCK_SIZE - CHUNK_HEADER_SIZE
# The CRC covers the type byte and then the payload: start each sum with the type's own.
_TYPE_CRC = {kind: crc32(bytes([kind])) for kind in ChunkType}
_FULL_CRC = _TYPE_CRC[ChunkType.FULL]
_FULL = int(ChunkType.FULL)


class Framer:
    """Frames records behind `position`, the file offset at which the next byte will land.

    The framer writes nothing: it appends to the caller's buffer, and the caller's write decides what is durable.
    """

    __slots__ = ("position",)

    def __init__(self, position: int = len(FILE_HEADER)) -> None:
        self.position = position

    def append(self, payload: bytes | bytearray, out: bytearray) -> None:
        """Append `payload` to `out` as one record and advance `position` by the bytes added."""
        size = len(payload)
        room = BLOCK_SIZE - self.position % BLOCK_SIZE
        if CHUNK_HEADER_SIZE + size <= room:  # nearly always: one FULL chunk
            out += _HEADER.pack(crc32(payload, _FULL_CRC), size, _FULL)
            out += payload
            self.position += CHUNK_HEADER_SIZE + size
            return
        self._append_split(payload, room, out)

    def _append_split(self, payload: bytes | bytearray, room: int, out: bytearray) -> None:
        start = len(out)
        if room < CHUNK_HEADER_SIZE:
            out += bytes(room)
            room = BLOCK_SIZE
        at, size, first = 0, len(payload), True
        while True:
            # Invariant: a chunk header fits in the room left.
            taken = min(room - CHUNK_HEADER_SIZE, size - at)
            last = at + taken == size
            kind = (
                (ChunkType.FULL if last else ChunkType.FIRST)
                if first
                else (ChunkType.LAST if last else ChunkType.MIDDLE)
            )
            chunk = payload[at : at + taken]
            out += _HEADER.pack(crc32(chunk, _TYPE_CRC[kind]), taken, kind)
            out += chunk
            at += taken
            if last:
                break
            room, first = BLOCK_SIZE, False
        self.position += len(out) - start


def framed_size(size: int, position: int) -> int:
    """Bytes that a record of `size` takes in a file at `position`, headers and padding included."""
    room = BLOCK_SIZE - position % BLOCK_SIZE
    padding = room if room < CHUNK_HEADER_SIZE else 0
    room = BLOCK_SIZE if padding else room
    behind = max(0, size - (room - CHUNK_HEADER_SIZE))
    chunks = 1 + -(-behind // _PAYLOAD_PER_CHUNK)
    return padding + chunks * CHUNK_HEADER_SIZE + size
