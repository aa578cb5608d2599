"""A record that holds another log is one record, whatever part of it is damaged: what it holds is never taken for the log's own."""

from __future__ import annotations

import random

import pytest
from runferry.logformat import BLOCK_SIZE, GapReason, Record, messages
from support.frames import alert, gaps, log_of, payloads, read_all, read_live

BEFORE, BEHIND = 20, 60
SIZES = {"a few": 5, "more than the outer one has read": 100, "over several blocks": 1_500}


def holding(num: int, data: bytes) -> bytes:
    """A record with these bytes in it: a console line of a writer that does not look at them."""
    line = messages.Record(num=num, output_raw=messages.OutputRecord(line="x" * len(data))).SerializeToString()
    return line.replace(b"x" * len(data), data)


def outer(held: bytes, pad: int, behind: int = BEHIND) -> list[bytes]:
    """The records of a log of which one holds another log."""
    around = random.Random(pad).randbytes(pad)
    first = [alert(num, "." * (num % 20)) for num in range(1, BEFORE + 1)]
    last = [alert(num, "." * (num % 20)) for num in range(BEFORE + 2, BEFORE + 2 + behind)]
    return [*first, holding(BEFORE + 1, around + held + around), *last]


def inner(count: int, first: int = 1) -> bytes:
    return log_of(*(alert(num, "inner" + "." * (num % 30)) for num in range(first, first + count)))


def damages(log: bytes, item: Record):
    """Each byte of the record's header, its first ones and last ones, and three anywhere in one of a single chunk."""
    rng = random.Random(item.end)
    places = [[item.offset + at] for at in range(20)] + [[item.end - at] for at in range(1, 5)]
    if item.end < BLOCK_SIZE:
        places += [[rng.randrange(item.offset, item.end) for _ in range(3)] for _ in range(20)]
    for at in places:
        data = bytearray(log)
        for place in at:
            data[place] ^= 0xA5
        yield bytes(data)


def check(records: list[bytes], *, live: bool = False) -> None:
    log = log_of(*records)
    item = read_all(log)[BEFORE]
    assert isinstance(item, Record)
    for data in damages(log, item):
        found = read_live(data, [item.offset + 9, item.end - 3, item.end + BLOCK_SIZE]) if live else read_all(data)
        there = payloads(found)

        assert there in (records, [*records[:BEFORE], *records[BEFORE + 1 :]])
        assert all((gap.offset, gap.end, gap.records_lost) == (item.offset, item.end, 1) for gap in gaps(found))


@pytest.mark.parametrize("live", [False, True], ids=["batch", "live"])
@pytest.mark.parametrize("pad", [0, 33], ids=["alone", "among other bytes"])
@pytest.mark.parametrize("size", SIZES)
def test_a_log_that_a_record_holds_is_no_part_of_the_log(size, pad, live):
    """Its numbers were there before: the one record is lost, and those behind it are read."""
    check(outer(inner(SIZES[size]), pad), live=live)


@pytest.mark.parametrize("pad", [0, 33, 600])
def test_numbers_from_far_ahead_are_those_of_another_log(pad):
    """More records than fit into what is lost cannot be between."""
    check(outer(inner(20, first=BEFORE + 300), pad))


def test_the_lowest_number_that_fits_is_the_next_one():
    """Where the numbers of a log within might be the next ones, too, those of the log itself are lower behind it."""
    records = outer(inner(10, first=BEFORE + 3), 0)
    log = log_of(*records)
    item = read_all(log)[BEFORE]
    for byte in (4, 5):
        data = bytearray(log)
        data[item.offset + byte] ^= 0xA5
        assert payloads(read_all(bytes(data))) in (records, [*records[:BEFORE], *records[BEFORE + 1 :]])


def test_a_log_that_the_last_record_holds_is_no_part_of_the_log():
    """Behind it is nothing, but the end of the file is where its length says."""
    records = outer(inner(30), 33, behind=0)
    log = log_of(*records)
    item = read_all(log)[-1]
    data = bytearray(log)
    data[item.offset + 9] ^= 0xFF

    assert payloads(read_all(bytes(data))) == records[:-1]


def test_numbers_that_really_jump_behind_damage_are_read():
    """Nothing that fits better comes behind them."""
    records = [*(alert(num) for num in range(1, 30)), *(alert(num) for num in range(900, 2_900))]
    log = log_of(*records)
    item = read_all(log)[28]
    data = bytearray(log)
    data[item.offset : item.offset + 9] = b"\xff" * 9

    assert payloads(read_all(bytes(data))) == [*records[:28], *records[29:]]


@pytest.mark.parametrize("number", [lambda at: 0, lambda at: 5, lambda at: 4_000 - at], ids=["none", "one", "falling"])
def test_in_logs_whose_numbers_tell_nothing_damage_costs_what_it_touched(number):
    """All behind it in the block is read, though the next block begins with the rest of a record."""
    records = [alert(number(at), f"record {at}") for at in range(3_000)]
    log = log_of(*records)
    items = [item for item in read_all(log) if isinstance(item, Record)]
    assert [item.payload for item in items] == records
    assert any(item.offset < BLOCK_SIZE < item.end for item in items)
    data = bytearray(log)
    data[items[50].offset : items[50].offset + 9] = b"\xff" * 9

    assert payloads(read_all(bytes(data))) == [*records[:50], *records[51:]]


def test_a_record_between_damaged_ones_is_known_by_its_number():
    """Nothing chains with it: three before it are lost, so that its number may be three higher than the one that is due."""
    records = [alert(num, "." * 30) for num in range(1, 40)]
    items = [item for item in read_all(log_of(*records)) if isinstance(item, Record)]
    data = bytearray(log_of(*records))
    data[items[10].offset : items[13].offset] = b"\xff" * (items[13].offset - items[10].offset)
    data[items[14].offset : items[14].end] = b"\xff" * (items[14].end - items[14].offset)
    found = read_all(bytes(data))

    assert payloads(found) == [*records[:10], records[13], *records[15:]]
    assert [gap.records_lost for gap in gaps(found)] == [3, 1]


def test_a_length_beyond_the_end_of_the_file_with_records_behind_it_is_no_torn_end():
    """The gap's reason is that of damage."""
    records = [alert(num) for num in range(1, 10)]
    item = read_all(log_of(*records))[3]
    data = bytearray(log_of(*records))
    data[item.offset : item.offset + 6] = b"\xff\xff\xff\xff\x00\x70"

    assert [gap.reason for gap in gaps(read_all(bytes(data)))] == [GapReason.BAD_LENGTH]
