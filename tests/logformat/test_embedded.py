"""A record that holds another log is one record, whatever part of it is damaged: what it holds is never taken for the log's own."""

from __future__ import annotations

import random

import pytest
from runferry.logformat import BLOCK_SIZE, Record, messages
from support.frames import alert, gaps, log_of, payloads, read_all, read_live

BEFORE, BEHIND = 20, 60
SIZES = {"a few": 5, "more than the outer one has read": 100, "over several blocks": 600}


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
    """Each byte of the record's header, its first ones and last ones, and three of it anywhere."""
    rng = random.Random(item.end)
    places = [[item.offset + at] for at in range(20)] + [[item.end - at] for at in range(1, 5)]
    for at in [*places, *([rng.randrange(item.offset, item.end) for _ in range(3)] for _ in range(20))]:
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


@pytest.mark.parametrize("pad", [0, 33])
def test_numbers_from_far_ahead_are_those_of_another_log(pad):
    """More records than fit into what is lost cannot be between."""
    check(outer(inner(20, first=5_000), pad))


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
