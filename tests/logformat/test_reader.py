"""One table of damage, read whole and read while it grows."""

from __future__ import annotations

import io
import random
import struct
import zlib

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from runferry.logformat import (
    BLOCK_SIZE,
    FILE_HEADER,
    Framer,
    Gap,
    GapReason,
    Healed,
    LogReader,
    open_reader,
    read_records,
)
from support.frames import alert, console, gaps, log_of, payloads, read_all, read_live


def many(count: int = 1500) -> list[bytes]:
    """Records over three blocks, some of them longer than a block."""
    return [console(i, 40_000) if i == 700 else alert(i, f"record {i} " + "." * (i % 40)) for i in range(1, count + 1)]


RECORDS = many()
LOG = log_of(*RECORDS)
ITEMS = read_all(LOG)
ENDS = [item.end for item in ITEMS]
ALL = set(RECORDS)


def damaged(log: bytes, at: int, patch: bytes) -> bytes:
    return log[:at] + patch + log[at + len(patch) :]


def start_of(index: int) -> int:
    """Offset of the chunk that holds record `index`."""
    return ITEMS[index].offset


def chunk(kind: int, payload: bytes) -> bytes:
    return struct.pack("<IHB", zlib.crc32(payload, zlib.crc32(bytes([kind]))), len(payload), kind) + payload


def case(name, log, lost, reason, offset=None, known=True):
    return pytest.param(log, lost, reason, offset, known, id=name)


FIRST_BLOCK = [i for i, end in enumerate(ENDS) if end <= BLOCK_SIZE]
DANGLING = log_of(*RECORDS[:3], console(4, 40_000))[:BLOCK_SIZE]
GLUED = DANGLING + log_of(alert(5), alert(6))[7:]


CASES = [
    case("flipped byte in a payload", damaged(LOG, start_of(9) + 12, b"\xff"), {10}, GapReason.BAD_CRC, start_of(9)),
    case("flipped checksum", damaged(LOG, start_of(9), b"\xff\xff"), {10}, GapReason.BAD_CRC, start_of(9)),
    case("type that does not exist", damaged(LOG, start_of(9) + 6, b"\x0e"), {10}, GapReason.BAD_CRC, start_of(9)),
    case(
        "length beyond the block, and a type that does not exist",
        damaged(LOG, start_of(9) + 4, b"\xff\xff\x0e"),
        {10},
        GapReason.BAD_LENGTH,
        start_of(9),
    ),
    case(
        "length short of the record, and its checksum gone",
        damaged(LOG, start_of(9), b"\0\0\0\0\x05"),
        {10},
        GapReason.BAD_CRC,
        start_of(9),
    ),
    case("zeros where a chunk starts", damaged(LOG, start_of(9), bytes(7)), {10}, GapReason.ZEROED, start_of(9)),
    case("zeros over three records", damaged(LOG, start_of(9), bytes(70)), {10, 11, 12}, GapReason.ZEROED, start_of(9)),
    case(
        "all but the end of a block",
        damaged(LOG, 7, bytes(BLOCK_SIZE - 107)),
        set(range(1, FIRST_BLOCK[-1] + 3)),
        GapReason.ZEROED,
        7,
    ),
    case("FIRST without LAST", GLUED, {4}, GapReason.BAD_SEQUENCE, None),
    case("no message", log_of(alert(1), b"\x52\x7fshort", alert(3)), {2}, GapReason.BAD_PROTO, None),
    case("cut in a payload", log_of(alert(1), alert(2))[:-1], {2}, GapReason.TORN_TAIL, None, False),
    case("cut in a chunk header", log_of(alert(1), alert(2))[:-18], {2}, GapReason.TORN_TAIL, None, False),
    case("cut behind a FIRST", DANGLING, {4}, GapReason.TORN_TAIL, None, False),
    case("zeros behind the last record", log_of(alert(1)) + bytes(100), set(), GapReason.ZEROED, None, False),
    case(
        "flipped byte in the last record", log_of(alert(1), alert(2))[:-1] + b"\0", {2}, GapReason.BAD_CRC, None, False
    ),
]


@pytest.mark.parametrize("live", [False, True], ids=["batch", "live"])
@pytest.mark.parametrize(("log", "lost", "reason", "offset", "known"), CASES)
def test_damage_costs_what_it_touched(log, lost, reason, offset, known, live):
    """Each kind of damage gives one gap with its reason and count, and every record outside it."""
    found = read_live(log, [10, 20, BLOCK_SIZE - 3, len(log) // 2]) if live else read_all(log)
    (gap,) = gaps(found)

    assert gap.reason is reason
    assert offset is None or gap.offset == offset
    assert gap.records_lost == (len(lost) if known else None)
    nums = [item.num for item in found if not isinstance(item, Gap)]
    assert nums == [num for num in range(1, max([*nums, *lost]) + 1) if num not in lost]


@pytest.mark.parametrize("live", [False, True], ids=["batch", "live"])
def test_a_zeroed_block_is_a_hole_and_not_the_end(live):
    """Records before and behind a block of zeros are read, and the gap says how many are gone."""
    log = damaged(LOG, BLOCK_SIZE, bytes(BLOCK_SIZE))
    found = read_live(log, [BLOCK_SIZE + 100]) if live else read_all(log)
    (gap,) = gaps(found)

    assert gap.reason in {GapReason.ZEROED, GapReason.BAD_SEQUENCE}
    assert len(payloads(found)) + gap.records_lost == len(RECORDS)
    assert gap.offset <= BLOCK_SIZE
    assert gap.end >= 2 * BLOCK_SIZE


@pytest.mark.parametrize("size", range(len(FILE_HEADER) + 1))
def test_a_log_without_records_is_empty_or_torn(size):
    """A run that died before its first record is no damage beyond its own header."""
    found = read_all(FILE_HEADER[:size])

    assert found == ([] if size in {0, 7} else [Gap(0, size, GapReason.TORN_TAIL)])


@pytest.mark.parametrize(
    "data", [b"version https://git-lfs", b"<html>", b":SWL\xd6\xe1\x02", b"\0" * 64, b"\xffnothing", b"\xff"]
)
def test_a_foreign_file_is_refused_as_a_whole(data):
    """What does not begin like a log is one gap, and nothing of it is taken for a record."""
    assert read_all(data) == [Gap(0, len(data), GapReason.BAD_HEADER)]


def test_every_truncation_gives_the_records_before_the_cut():
    """Cut anywhere: all whole records, at most one gap, which reaches to the end."""
    for cut in [
        *range(400),
        *range(BLOCK_SIZE - 40, BLOCK_SIZE + 40),
        *random.Random(1).sample(range(len(LOG)), 60),
    ]:
        found = read_all(LOG[:cut])
        whole = sum(end <= cut for end in ENDS)

        assert payloads(found) == RECORDS[:whole]
        assert all(gap.end == cut and gap.reason is GapReason.TORN_TAIL for gap in gaps(found))
        assert len(gaps(found)) <= 1


@settings(max_examples=40, deadline=None)
@given(st.lists(st.integers(0, len(LOG)), max_size=12))
def test_live_reading_gives_what_batch_reading_gives(cuts):
    """However the file grows, all records come once, in order, and no gap."""
    assert read_live(LOG, cuts) == ITEMS


@settings(max_examples=30, deadline=None)
@given(st.integers(0, len(RECORDS) - 1))
def test_reading_may_start_at_any_record(index):
    """A seek to a record gives the rest of a scan."""
    assert list(read_records(io.BytesIO(LOG), start=ITEMS[index].offset)) == ITEMS[index:]


@pytest.mark.parametrize(
    "shown", [200, start_of(9), start_of(9) + 7], ids=["within a payload", "chunk edge", "header only"]
)
def test_zeros_at_the_end_of_a_growing_file_may_turn_into_data(shown):
    """A network file system shows zeros before it shows the bytes: nothing is given up while the block is open."""
    log = log_of(*RECORDS[:20])
    file = io.BytesIO(log[:shown] + bytes(len(log) - shown))
    reader = LogReader(file)
    found = list(reader.poll())
    file.seek(0)
    file.write(log)
    found += list(reader.poll())

    assert payloads(found) == RECORDS[:20]
    assert list(reader.finish()) == []


def test_position_is_where_reading_may_go_on():
    """After any poll, a new reader from `position` gives exactly the rest."""
    for cut in random.Random(3).sample(range(7, len(LOG)), 40):
        reader = LogReader(io.BytesIO(LOG[:cut]))
        before = list(reader.poll())

        assert before + list(read_records(io.BytesIO(LOG), start=reader.position)) == ITEMS


def test_damage_is_never_an_exception():
    """Random bytes, random patches: records or gaps, and each byte in at most one gap."""
    rng = random.Random(4)
    for _ in range(60):
        log = bytearray(LOG[: rng.randrange(len(LOG))])
        for _ in range(rng.randrange(1, 6)):
            at = rng.randrange(len(log) or 1)
            log[at : at + rng.randrange(1, 600)] = rng.randbytes(rng.randrange(1, 600))
        found = read_all(bytes(log))
        last = 0
        for item in found:
            end = item.end
            assert item.offset >= last or isinstance(item, Gap)
            last = end

        assert set(payloads(found)) <= ALL


def test_a_record_that_never_ends_is_capped(monkeypatch):
    """A chain of MIDDLE chunks beyond the cap is given up as a bad length, before memory is."""
    from runferry.logformat import reader

    monkeypatch.setattr(reader, "MAX_RECORD_SIZE", 2 * BLOCK_SIZE)
    found = read_all(log_of(alert(1), console(2, 5 * BLOCK_SIZE), alert(3)))
    (gap,) = gaps(found)

    assert gap.reason is GapReason.BAD_LENGTH
    assert gap.records_lost == 1
    assert [item.num for item in found if not isinstance(item, Gap)] == [1, 3]


@pytest.mark.parametrize("live", [False, True], ids=["batch", "live"])
def test_a_chunk_across_the_edge_of_a_block_is_no_chunk(live):
    """Not even with a good checksum: no writer makes one, and what it covers begins another chunk."""
    first = console(1, BLOCK_SIZE - 100)
    payload = alert(2, "x" * 200)
    log = log_of(first) + chunk(1, payload) + bytes(1_000)
    found = read_live(log, [BLOCK_SIZE - 50]) if live else read_all(log)

    assert payloads(found) == [first]
    assert [gap.reason for gap in gaps(found)] == [GapReason.BAD_LENGTH]


def test_the_trailer_of_a_block_belongs_to_no_gap():
    """Reading goes on behind it, as far as the file has it, and a gap begins with the chunk that was lost."""
    log = log_of(console(1, BLOCK_SIZE - 14 - 3), alert(2), alert(3))
    for size in range(BLOCK_SIZE - 3, BLOCK_SIZE + 7):
        reader = LogReader(io.BytesIO(log[:size]))
        assert payloads(list(reader.poll())) == payloads(read_all(log))[:1]
        assert reader.position == min(size, BLOCK_SIZE)

    (gap,) = gaps(read_all(damaged(log, BLOCK_SIZE + 8, b"\xff")))
    assert (gap.offset, gap.records_lost) == (BLOCK_SIZE, 1)


@pytest.mark.parametrize("kind", [0, 5, 255])
def test_a_type_that_does_not_exist_ends_the_record_it_stands_in(kind):
    """Its checksum is good and its bytes are no part of any record."""
    text = alert(1)
    log = FILE_HEADER + chunk(2, text[:5]) + chunk(kind, b"x") + chunk(4, text[5:]) + chunk(1, alert(2))
    found = read_all(log)

    assert payloads(found) == [alert(2)]
    assert gaps(found) == [Gap(7, len(log) - 7 - len(chunk(1, alert(2))), GapReason.BAD_SEQUENCE, 1)]


def test_small_pieces_of_one_record_are_joined():
    """A writer may split anywhere."""
    text = alert(1)
    log = FILE_HEADER + chunk(2, text[:5]) + chunk(3, b"") + chunk(3, text[5:6]) + chunk(4, text[6:])

    assert payloads(read_all(log)) == [text]


@pytest.mark.parametrize("nums", [(1, 2, 1), (5, 6, 5), (3, 4, 0), (0, 1, 2)])
def test_numbers_that_do_not_rise_count_nothing(nums):
    """Records without numbers, or with those of another log, leave open how many are lost between them."""
    log = log_of(*(alert(num, "t") for num in nums))
    second = read_all(log)[1].offset
    (gap,) = gaps(read_all(damaged(log, second + 9, b"\xff")))

    assert gap.records_lost is None


def test_from_the_middle_of_a_log_the_first_loss_is_not_counted():
    """The record before it was not read; the next loss is counted again."""
    log = LOG
    for index in (10, 20):
        log = damaged(log, start_of(index) + 12, b"\xff")
    found = list(read_records(io.BytesIO(log), start=start_of(10)))

    assert [(gap.offset, gap.records_lost) for gap in gaps(found)] == [(start_of(10), None), (start_of(20), 1)]


def test_a_first_behind_a_first_begins_anew():
    """What was begun before it is lost, and said to be."""
    text = alert(2)
    log = FILE_HEADER + chunk(2, b"begun") + chunk(2, text[:5]) + chunk(4, text[5:])

    assert read_all(log)[0] == Gap(7, len(chunk(2, b"begun")), GapReason.BAD_SEQUENCE, 1)
    assert payloads(read_all(log)) == [text]


def test_zeros_that_turned_into_a_torn_record_are_a_torn_record():
    """What the end of the file is called depends on what it is, not on what it was."""
    file = io.BytesIO(DANGLING[: start_of(2)] + bytes(BLOCK_SIZE - start_of(2) - 1))
    reader = LogReader(file)
    list(reader.poll())
    file.seek(0)
    file.write(DANGLING)
    *_, gap = [*reader.poll(), *reader.finish()]

    assert gap.reason is GapReason.TORN_TAIL


class Trickle(io.BytesIO):
    """A file that gives at most 1,000 bytes per call, as pipes and network file systems may."""

    def read(self, size=-1):
        return super().read(min(size, 1_000))


def test_a_file_that_gives_less_than_asked_for_is_read_whole():
    """Records longer than one answer, and blocks of many answers."""
    assert list(read_records(Trickle(LOG))) == ITEMS


def test_a_log_that_grows_behind_its_end_is_read_on():
    """What was given up as lost stays given up, and is not told a second time."""
    log = log_of(alert(1), alert(2), alert(3))
    cut = len(log_of(alert(1), alert(2)))
    file = io.BytesIO(damaged(log[:cut], cut - 1, b"\0"))
    reader = LogReader(file)
    assert len(gaps(list(reader.finish()))) == 1
    file.seek(cut)
    file.write(log[cut:])

    assert payloads(list(reader.poll())) == [alert(3)]
    assert list(reader.finish()) == []


def test_a_record_that_was_given_up_does_not_take_the_next_one_with_it():
    """The same for a record of which only the beginning is there."""
    torn = FILE_HEADER + chunk(2, b"begun")
    file = io.BytesIO(torn)
    reader = LogReader(file)
    assert list(reader.finish()) == [Gap(7, len(torn) - 7, GapReason.TORN_TAIL)]
    file.seek(len(torn))
    file.write(chunk(1, alert(2)))

    assert [item.payload for item in reader.poll()] == [alert(2)]


def legacy(records: list[bytes]) -> bytes:
    """A log as cores up to 0.17.5 wrote them: blocks are counted from behind the file header."""
    out = bytearray()
    framer = Framer(0)
    for record in records:
        framer.append(record, out)
    return FILE_HEADER + bytes(out)


@pytest.mark.parametrize("size", [*range(32_700, 32_768), 70_000])
@pytest.mark.parametrize("live", [False, True], ids=["batch", "live"])
def test_a_log_whose_header_lies_outside_its_blocks_is_read_whole(size, live):
    """Whatever ends or begins at the edge of its first block, and of those behind it."""
    records = [
        console(1, size),
        *(alert(num, "." * (num % 90)) for num in range(2, 900)),
        console(900, 40_000),
        alert(901),
    ]
    log = legacy(records)
    found = read_live(log, [32_770, 40_000, 65_540]) if live else read_all(log)

    assert payloads(found) == records
    assert gaps(found) == []


def test_damage_in_a_log_of_that_kind_costs_what_it_touched():
    """At the edge of its blocks, where that is not known yet, too."""
    items = read_all(legacy(RECORDS))
    log = legacy(RECORDS)
    for at in [*range(32_700, 32_800, 3), *range(65_500, 65_600, 3), 20_000]:
        found = read_all(damaged(log, at, b"\xff\xff\xff"))
        touched = {item.payload for item in items if item.offset < at + 3 and at < item.end}
        there = set(payloads(found))

        assert ALL - there in ({*()}, touched)
        assert there <= ALL


def test_reading_a_log_of_that_kind_may_start_at_any_record():
    """And behind any, even where the zeros that end a block come next."""
    log = legacy(RECORDS)
    items = read_all(log)
    for index in [*range(0, len(items), 37), *(at for at, item in enumerate(items) if item.end % BLOCK_SIZE < 40)]:
        assert payloads(list(read_records(io.BytesIO(log), start=items[index].offset))) == RECORDS[index:]
        rest = list(read_records(io.BytesIO(log), start=items[index].end))
        assert (payloads(rest), gaps(rest)) == (RECORDS[index + 1 :], [])


@pytest.mark.parametrize("version", [1, 2, 7, 255])
def test_other_versions_of_the_format_are_read_like_ours(version):
    """Whoever reads is told which one it is."""
    log = damaged(LOG, 6, bytes([version]))
    with open_reader(io.BytesIO(log)) as reader:
        assert list(reader.finish()) == ITEMS
        assert reader.header_version == version


def test_the_version_is_not_known_before_the_header_is_read():
    """Nor where reading starts behind it."""
    reader = LogReader(io.BytesIO(LOG))
    assert reader.header_version is None
    next(reader.poll())
    assert reader.header_version == 0
    reader = LogReader(io.BytesIO(LOG), start=start_of(3))
    list(reader.poll())
    assert reader.header_version is None


@pytest.mark.parametrize("bit", range(48))
def test_a_flipped_bit_in_the_file_header_is_healed(bit):
    """All is read, and the place is told."""
    log = damaged(LOG, bit // 8, bytes([LOG[bit // 8] ^ 1 << bit % 8]))
    with open_reader(io.BytesIO(log)) as reader:
        assert list(reader.finish()) == ITEMS
        assert (reader.healed, reader.header_version) == ([Healed(bit // 8, bit % 8)], 0)


@pytest.mark.parametrize("live", [False, True], ids=["batch", "live"])
@pytest.mark.parametrize("size", [2, 7, 20, 512, 4096, BLOCK_SIZE])
def test_behind_a_lost_file_header_everything_that_chains_is_read(size, live):
    """Two bytes or the whole first block: one gap from the beginning of the file, and the records behind it."""
    log = b"\xff" * size + LOG[size:]
    found = read_live(log, [3, 10, 600, BLOCK_SIZE + 10]) if live else read_all(log)
    first = found[0]

    assert isinstance(first, Gap)
    assert (first.offset, first.reason, gaps(found)) == (0, GapReason.BAD_HEADER, [first])
    assert found[1:] == [item for item in ITEMS if item.offset >= max(7, size)]
    assert first.records_lost == len(ITEMS) - len(found[1:])


def test_a_gap_says_what_the_file_is_instead():
    """In words, where that is known."""
    assert "SwanLab" in gaps(read_all(b":SWL\xd6\xe1\x02"))[0].note
    assert "begins with b'\\xffnothin'" in gaps(read_all(b"\xffnothing"))[0].note


def test_a_file_header_that_is_on_its_way_is_waited_for():
    """A network file system shows zeros before it shows the bytes."""
    file = io.BytesIO(bytes(5))
    reader = LogReader(file)
    assert list(reader.poll()) == []
    for shown in (20, len(LOG)):
        file.seek(0)
        file.write(LOG[:shown])
    assert list(reader.finish()) == ITEMS


@pytest.mark.parametrize("cut", [0, 7, 8, 13, 14, 20])
def test_a_log_that_ends_in_a_bare_chunk_header_is_torn_there(cut):
    """As those of SDK below 0.18 do: a header, or a part of one, and no payload."""
    log = log_of(alert(1), alert(2))
    end = read_all(log)[0].end
    found = read_all(log[:end] + log[end : end + 7][: cut % 8])

    assert payloads(found) == [alert(1)]
    assert gaps(found) == ([Gap(end, cut % 8, GapReason.TORN_TAIL)] if cut % 8 else [])


def test_a_log_that_ends_at_the_edge_of_a_block_is_torn_in_its_record():
    """As those of later SDKs do; in a record of 45 chunks too, whose first one may be empty."""
    large = console(2, 45 * (BLOCK_SIZE - 7) - 20_000)
    for first in (console(1, 10_000), console(1, BLOCK_SIZE - 21)):
        log = log_of(first, large, alert(3))
        assert payloads(read_all(log)) == [first, large, alert(3)]
        start = read_all(log)[1].offset
        for blocks in (1, 2, 30, 44):
            found = read_all(log[: blocks * BLOCK_SIZE])
            assert payloads(found) == [first]
            assert gaps(found) == [Gap(start, blocks * BLOCK_SIZE - start, GapReason.TORN_TAIL)]


def test_a_log_twice_in_one_file_is_two_logs():
    """Where one was appended to another, each is counted by its own numbers and blocks."""
    found = read_all(LOG + LOG[:3_000] + b"x")

    assert found[: len(ITEMS)] == ITEMS
    assert gaps(found)[0] == Gap(len(LOG), 7, GapReason.BAD_SEQUENCE, 0)
    assert payloads(found)[len(ITEMS) :] == RECORDS[: sum(end <= 3_000 for end in ENDS)]


def test_a_sector_written_twice_gives_its_records_once():
    """Their numbers were there before, or come again behind it."""
    for begin, at in ((1024, 4096), (4096, 1024), (BLOCK_SIZE, 2 * BLOCK_SIZE), (2 * BLOCK_SIZE, BLOCK_SIZE), (0, 512)):
        found = payloads(read_all(damaged(LOG, at, LOG[begin : begin + 512])))
        assert len(found) == len(set(found))
        assert set(found) <= ALL


def test_two_halves_of_different_records_are_no_record():
    """Blocks in the wrong order, where the parts of two rows make up one of the right length."""
    rows = [
        alert(num, f"{num:04}" * 41 + ".") for num in range(128, 3_000)
    ]  # framed 181 bytes, of which blocks hold 181
    assert {len(row) for row in rows} == {181 - 7}
    log = log_of(alert(127, "." * 80), *rows)
    blocks = [log[at : at + BLOCK_SIZE] for at in range(0, len(log), BLOCK_SIZE)]
    known = {item.payload for item in read_all(log)}
    for one in range(1, len(blocks) - 1):
        for other in range(one + 1, len(blocks) - 1):
            order = [*blocks]
            order[one], order[other] = blocks[other], blocks[one]
            assert set(payloads(read_all(b"".join(order)))) <= known
