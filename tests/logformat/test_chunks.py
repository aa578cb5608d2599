"""A log chunk by chunk: the same places and the same judgement as reading has."""

from __future__ import annotations

import io
import random

import pytest
from runferry.logformat import BLOCK_SIZE, FILE_HEADER, Chunk, Gap, GapReason, Healed, Record, walk_chunks
from support.damage import Damage, patches, records
from support.frames import read_all

SOUND = Damage(records(70_000, seed=3))


def walked(data: bytes) -> list[Chunk | Gap]:
    return list(walk_chunks(io.BytesIO(data)))


def test_a_sound_log_is_chunks_from_end_to_end():
    """Each begins where the one before ends, but for trailers, and the types make up the records."""
    chunks = walked(SOUND.log)
    ends = [7, *(chunk.end for chunk in chunks)]

    assert all(0 <= chunk.offset - end < 7 for chunk, end in zip(chunks, ends, strict=False))
    assert all(chunk.ok and chunk.crc == chunk.crc_is and not chunk.healed for chunk in chunks)
    assert [chunk.offset for chunk in chunks if chunk.kind in {1, 2}] == [item.offset for item in SOUND.items]
    assert {chunk.kind for chunk in chunks} >= {1, 2, 4}
    assert ends[-1] == len(SOUND.log)


def test_a_chunk_says_what_the_file_has_and_what_was_mended():
    """A flipped bit, a lost payload, a wrong length."""
    data = bytearray(SOUND.log)
    flipped, lost, length = SOUND.items[3], SOUND.items[6], SOUND.items[9]
    data[flipped.offset + 20] ^= 4
    data[lost.offset + 20] ^= 0xFF
    data[length.offset + 4] ^= 0x21
    found = {chunk.offset: chunk for chunk in walked(bytes(data))}
    mended, bad, long = found[flipped.offset], found[lost.offset], found[length.offset]

    assert (mended.ok, mended.healed) == (True, (Healed(flipped.offset + 20, 2),))
    assert mended.crc != mended.crc_is
    assert (bad.ok, bad.healed, bad.end) == (False, (), lost.end)
    assert (long.ok, long.healed) == (True, (Healed(length.offset + 4, 0), Healed(length.offset + 4, 5)))
    assert long.end == length.end


@pytest.mark.parametrize(
    ("data", "gap"),
    [
        (b"", None),
        (FILE_HEADER[:3], Gap(0, 3, GapReason.TORN_TAIL)),
        (FILE_HEADER, None),
        (b"<html>", Gap(0, 6, GapReason.BAD_HEADER)),
        (bytes(100), Gap(0, 7, GapReason.BAD_HEADER)),
        (b"\xff\xff" + SOUND.log[2:], Gap(0, 7, GapReason.BAD_HEADER)),
        (SOUND.log[:300], Gap(SOUND.items[2].end, 300 - SOUND.items[2].end, GapReason.TORN_TAIL)),
    ],
)
def test_what_is_no_chunk_is_a_gap(data, gap):
    """From the file header to the torn end."""
    assert next((item for item in walked(data) if isinstance(item, Gap)), None) == gap


def test_damaged_logs_are_covered_and_their_records_lie_in_good_chunks():
    """Nothing is given twice, nothing left out, and what reading gives begins with a chunk that is whole."""
    rng = random.Random(5)
    for _, (_, data) in zip(range(60), patches(rng, SOUND.log), strict=False):
        found = walked(data)
        at = 7
        for item in found:
            assert at <= item.offset < at + 7
            at = item.end
        assert at <= len(data) < at + 7
        whole = {item.offset for item in found if isinstance(item, Chunk) and item.ok}
        assert {item.offset for item in read_all(data) if isinstance(item, Record)} <= whole


def test_memory_is_that_of_a_window():
    """Chunks come while the file is read, not at its end."""

    class Counting(io.BytesIO):
        furthest = 0

        def read(self, size=-1):
            data = super().read(size)
            self.furthest = max(self.furthest, self.tell())
            return data

    file = Counting(Damage(records(900_000, seed=4, large=0)).log)
    next(iter(walk_chunks(file)))

    assert file.furthest <= 2 * BLOCK_SIZE
