"""What a block costs to look through is bounded, whatever its bytes are made to look like."""

from __future__ import annotations

import io
import random
import struct
import zlib

import pytest
from runferry.logformat import BLOCK_SIZE, FILE_HEADER, LogReader, heal, look, reader
from support.frames import alert, log_of

BLOCKS = 4
SUMMED_PER_BLOCK = 3 * 17 * BLOCK_SIZE
"""Bytes that may be summed for one, which is looked at again when more of the file is there, and at its end."""
MENDED_PER_BLOCK = 3 * BLOCK_SIZE
"""Bytes through which a flipped bit may be followed back."""


def header(length: int, kind: int = 1, checksum: int = 0x01010101) -> bytes:
    return struct.pack("<IHB", checksum, length, kind)


def chunk(payload: bytes, kind: int = 1) -> bytes:
    return header(len(payload), kind, zlib.crc32(payload, zlib.crc32(bytes([kind])))) + payload


def blocks(piece: bytes) -> bytes:
    """Blocks full of a piece, again and again, behind a sound record."""
    log = log_of(alert(1))
    return (log + piece * (BLOCKS * BLOCK_SIZE // len(piece) + 1))[: BLOCKS * BLOCK_SIZE]


def waves() -> bytes:
    """Headers at every place, each of which fits and claims half a block."""
    return bytes([1, 1, 1, 0x3F, 1, 0x3F, 1])


HOSTILE = {
    "a header at every byte": blocks(b"\1"),
    "headers that claim half a block": blocks(waves()),
    "headers that claim all but nothing": blocks(header(0)),
    "long chunks that are all but good": blocks(chunk(b"\x08\x01R\x00" * 4_000)[:-1] + b"?"),
    "bad chunks with good ones behind": blocks(header(20) + bytes(20) + chunk(alert(7)) + chunk(alert(8))),
    "bad chunks that reach a good one at the end": blocks(header(0x3F00) + b"\1" * 11),
    "good chunks, each with a bad one": blocks(chunk(b"") + chunk(b"") + b"?" + header(30_000)),
    "file headers": blocks(FILE_HEADER),
    "file headers with logs": blocks(log_of(alert(1), alert(2))),
    "parts without end": blocks(chunk(b"\1" * 20, 2) + chunk(b"\1" * 20, 3)),
    "zeros": blocks(b"\0"),
    "zeros and headers": blocks(bytes(6) + header(0x0101)),
    "noise": blocks(random.Random(1).randbytes(4 * BLOCK_SIZE)),
    "letters": blocks(b"the quick brown fox jumps over the lazy dog "),
}


@pytest.mark.parametrize("name", HOSTILE)
def test_a_block_costs_what_it_costs(name, monkeypatch):
    """Counted in bytes that are summed, and in those of chunks in which a flipped bit is looked for; not in seconds."""
    summed = mended = 0

    def crc32(data, value=0):
        nonlocal summed
        summed += len(data)
        return zlib.crc32(data, value)

    def flipped_bit(difference, size):
        nonlocal mended
        mended += min(size, heal.MAX_MENDED)
        return heal.flipped_bit(difference, size)

    monkeypatch.setattr(look, "crc32", crc32)
    monkeypatch.setattr(reader, "crc32", crc32)
    monkeypatch.setattr(look, "flipped_bit", flipped_bit)
    list(LogReader(io.BytesIO(HOSTILE[name])).batches())

    assert summed <= BLOCKS * SUMMED_PER_BLOCK
    assert mended <= BLOCKS * MENDED_PER_BLOCK
