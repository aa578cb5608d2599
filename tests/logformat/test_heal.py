"""Bits are turned back where the checksum proves it, and nowhere else."""

from __future__ import annotations

import io
import random
import zlib

import pytest
from hypothesis import given
from hypothesis import strategies as st
from runferry.logformat import Batch, Gap, GapReason, Healed, LogReader, messages, open_reader
from runferry.logformat.heal import MAX_MENDED, flipped_bit, is_sound
from runferry.logformat.record import parse_record
from support.damage import Damage, records
from support.frames import alert, console, gaps, log_of, payloads, read_all, read_live

SOUND = Damage(records(60_000, seed=2, large=0))


def flip(log: bytes, *bits: int) -> bytes:
    data = bytearray(log)
    for bit in bits:
        data[bit // 8] ^= 1 << bit % 8
    return bytes(data)


def difference(chunk: bytes, bits: list[int]) -> int:
    """How far the checksum is off if these bits of a chunk (its checksum, then its type and payload) flip."""
    body = chunk[:4] + chunk[6:]
    found = flip(body, *bits)
    return (
        zlib.crc32(found[4:])
        ^ zlib.crc32(body[4:])
        ^ int.from_bytes(found[:4], "little")
        ^ int.from_bytes(body[:4], "little")
    )


@given(st.binary(max_size=300), st.data())
def test_every_bit_of_a_chunk_is_found(payload, data):
    """In the checksum, the type, and the payload."""
    bit = data.draw(st.integers(0, (len(payload) + 5) * 8 - 1))
    place = bit // 8 if bit < 32 else bit // 8 + 2

    assert flipped_bit(difference(bytes(6) + b"\1" + payload, [bit]), len(payload)) == (place, bit % 8)


def test_the_longest_chunk_that_is_mended_is_mended_to_its_first_bit():
    """And a longer one only in its checksum."""
    for size, found in ((MAX_MENDED, (6, 0)), (MAX_MENDED + 1, None)):
        assert flipped_bit(difference(bytes(6) + b"\1" + bytes(size), [32]), size) == found
        assert flipped_bit(1 << 31, size) == (3, 7)


def test_two_flipped_bits_never_look_like_one():
    """In no chunk up to the bound: a sample of pairs, near and far, for the longest."""
    rng = random.Random(1)
    for size in (20, 400, MAX_MENDED):
        chunk = bytes(6) + b"\1" + rng.randbytes(size)
        for _ in range(300 if size < 1000 else 60):
            assert flipped_bit(difference(chunk, rng.sample(range((size + 5) * 8), 2)), size) is None


@pytest.mark.parametrize("live", [False, True], ids=["batch", "live"])
def test_what_is_healed_is_told(live):
    """The record, the batch and the reader say so, with the place; the record is the one that was written."""
    item = SOUND.items[4]
    data = flip(SOUND.log, (item.offset + 30) * 8 + 5)
    found = read_live(data, [300, 900]) if live else read_all(data)

    assert payloads(found) == SOUND.payloads
    assert [record.num for record in found if record.healed] == [item.num]
    with open_reader(io.BytesIO(data)) as reader:
        batches = [batch for batch in reader.batches() if isinstance(batch, Batch)]
        assert reader.healed == [Healed(item.offset + 30, 5)]
    assert [record.healed for batch in batches for record in batch.records()] == [record.healed for record in found]


def test_what_is_read_again_is_not_told_again():
    """A caller that stops behind a healed record, and goes on, gets one place per flipped bit."""
    items = SOUND.items
    data = flip(SOUND.log, *((items[at].offset + 12) * 8 for at in (3, 6, 9)))
    reader = LogReader(io.BytesIO(data))
    found = []
    while (record := next(iter(reader.poll()), None)) is not None:
        found.append(record)

    assert payloads(found) == SOUND.payloads
    assert reader.healed == [Healed(items[at].offset + 12, 0) for at in (3, 6, 9)]


@pytest.mark.parametrize("damage", [b"\xff\xff", b"\0\0", b"\x01\x80", b"\xff\x7f"])
def test_a_length_is_healed_whatever_it_became(damage):
    """The checksum tells where the payload ends: at the next good chunk."""
    item = SOUND.items[5]
    data = bytearray(SOUND.log)
    data[item.offset + 4 : item.offset + 6] = damage
    found = read_all(bytes(data))

    assert payloads(found) == SOUND.payloads
    assert [record.num for record in found if record.healed] == [item.num]


def test_the_length_of_the_last_chunk_and_of_one_at_an_edge_is_healed():
    """No chunk follows there, but an edge or the end."""
    joined = next(item for item in SOUND.items if item.end - item.offset > len(item.payload) + 7)
    for at in (SOUND.items[-1].offset, joined.offset):
        for bit in range(8 * (at + 4), 8 * (at + 6)):
            assert payloads(read_all(flip(SOUND.log, bit))) == SOUND.payloads


def test_a_part_of_a_record_is_healed_as_a_whole_one_is():
    """FIRST and LAST alike; the record counts the bits of all its parts."""
    short = Damage([*(alert(num, "." * 200) for num in range(1, 140)), console(140, 9_000), alert(141)])
    item = next(item for item in short.items if item.end - item.offset > len(item.payload) + 7)
    found = read_all(flip(short.log, (item.offset + 9) * 8, (item.end - 3) * 8))

    assert payloads(found) == short.payloads
    assert [record.healed for record in found if record.healed] == [2]


def test_a_false_alarm_of_the_checksum_is_seen_through():
    """A chunk whose checksum was chosen so that one bit would heal it to another record: its number gives it away."""
    right, wrong = alert(3, "right"), alert(7, "wrong")
    log = log_of(alert(1), alert(2), right, alert(4))
    at = log.index(right)
    stored = zlib.crc32(wrong, zlib.crc32(b"\1"))
    off = flip(wrong, 45)
    data = log[: at - 7] + stored.to_bytes(4, "little") + log[at - 3 : at] + off + log[at + len(right) :]
    found = read_all(data)

    assert payloads(found) == [alert(1), alert(2), alert(4)]
    assert gaps(found) == [Gap(at - 7, len(right) + 7, GapReason.BAD_CRC, 1)]


@pytest.mark.parametrize(
    ("payload", "sound"),
    [
        (alert(1), True),
        (b"\x08\x01\xfa\x06\x00", False),
        (b"\x08\x01", False),
        (b"\x08\x01\x12\x03\x0a\x09\x01", False),
        (b"\x08\x01\x52\x03\x0a\x01\xff", False),
    ],
    ids=["a record", "of no known kind", "of no kind", "no message within", "a title that is no text"],
)
def test_a_mended_record_has_to_be_one_of_the_schema(payload, sound):
    """Known kind, a message, text that is text."""
    assert is_sound(parse_record(payload, 7, 7)) == sound


@pytest.mark.parametrize(
    ("text", "sound"), [("0.5", True), ("", True), ("NaN", True), ("0.5}", False), ("0.\x01", False)]
)
def test_a_mended_row_has_to_hold_json(text, sound):
    """Where a later version left the text away, there is none to judge."""
    history = messages.HistoryRecord()
    history.item.add(nested_key=["a"], value_json=text)
    record = messages.Record(num=1, history=history).SerializeToString()

    assert is_sound(parse_record(record, 7, 7)) == sound
