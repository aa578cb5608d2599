"""Bytes that the peer's reader was seen to accept."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st
from runferry.logformat import BLOCK_SIZE, FILE_HEADER, Framer, framed_size, messages
from support.frames import alert, console, log_of, payloads, read_all


def record(**fields) -> bytes:
    return messages.Record(**fields).SerializeToString()


def test_one_small_record_is_the_documented_twenty_bytes():
    """A log of one alert has the bytes of the worked example."""
    log = log_of(record(alert=messages.AlertRecord(title="hi")))

    assert log == bytes.fromhex("3a572642e1be00 afd7ae7a060001 52040a026869")


def test_an_empty_record_is_a_full_chunk_of_length_zero():
    """Even nothing is a record."""
    assert log_of(b"")[7:] == bytes.fromhex("1bdf05a5000001")


def test_six_bytes_left_in_a_block_are_zeros():
    """A chunk header that doesn't fit starts the next block."""
    log = log_of(
        record(output_logger=messages.OutputLoggerRecord(line="x" * 32739)),
        record(alert=messages.AlertRecord(title="n")),
    )

    assert log[32760:32768] == b"xx" + bytes(6)
    assert log[32768:] == bytes.fromhex("8bb97e94050001 52030a016e")


def test_seven_bytes_left_hold_an_empty_first():
    """A chunk header that just fits is used, with no payload."""
    log = log_of(
        record(output_logger=messages.OutputLoggerRecord(line="x" * 32738)),
        record(alert=messages.AlertRecord(title="n")),
    )

    assert log[32761:32768] == bytes.fromhex("a18e0c3c000002")
    assert log[32768:] == bytes.fromhex("3828b3c4050004 52030a016e")


def test_one_byte_too_long_splits_into_first_and_last():
    """The first chunk fills the block, the last holds one byte."""
    log = log_of(record(output_logger=messages.OutputLoggerRecord(line="x" * 32746)))

    assert log[7:14] == bytes.fromhex("36b4395cf27f02")
    assert log[32768:] == bytes.fromhex("f52e6b7b010004") + b"x"


def test_a_record_that_ends_on_the_edge_is_closed_there():
    """No empty LAST follows a payload that fills its block."""
    log = log_of(console(1, BLOCK_SIZE - 14), alert(2))

    assert log[13] == 1
    assert log[BLOCK_SIZE + 6] == 1


@given(st.lists(st.integers(0, 70_000), max_size=5), st.integers(0, 2 * BLOCK_SIZE))
def test_the_framer_knows_where_it_stands(sizes, position):
    """Position and predicted size agree with the bytes made, wherever in a block the framer starts."""
    framer = Framer(position)
    for size in sizes:
        out = bytearray()
        expected = framed_size(size, framer.position)
        before = framer.position
        framer.append(b"p" * size, out)

        assert len(out) == expected
        assert framer.position == before + expected


@given(st.lists(st.binary(max_size=40).map(lambda tail: b"\x52" + bytes([len(tail)]) + tail), max_size=20), st.data())
def test_what_is_framed_is_read_back(records, data):
    """Any payloads, padded to any edge, come back in order."""
    sizes = data.draw(st.lists(st.sampled_from([*range(32_700, 32_780), *range(65_480, 65_540)]), max_size=3))
    records = [*records, *(console(1, size) for size in sizes), *records]

    assert payloads(read_all(log_of(*records))) == records


def test_the_header_is_where_block_zero_begins():
    """The seven header bytes count as part of the first block."""
    out = bytearray(FILE_HEADER)
    Framer().append(b"", out)

    assert Framer().position == len(FILE_HEADER) == 7
    assert len(out) == 14


def test_an_empty_record_fits_where_only_a_chunk_header_does():
    """Seven bytes are room enough for nothing, and six are padding."""
    assert framed_size(0, BLOCK_SIZE - 7) == 7
    assert framed_size(0, BLOCK_SIZE - 6) == 13
