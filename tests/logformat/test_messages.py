"""The schema, its classes, and the envelope read without them."""

from __future__ import annotations

import contextlib

import pytest
from hypothesis import given
from hypothesis import strategies as st
from runferry.logformat import WireError, messages
from runferry.logformat.record import parse_record
from runferry.logformat.schema import KINDS
from runferry.logformat.wire import fields, read_varint, set_flags, write_varint


def parse(payload):
    return parse_record(payload, 0, len(payload))


@pytest.mark.parametrize(("number", "kind"), KINDS.items())
def test_each_kind_is_known_by_its_field_number(number, kind):
    """The envelope is read to the same kind that protobuf finds."""
    body = write_varint(number << 3 | 2) + b"\x00"
    record = messages.Record.FromString(b"\x08\x05" + body)

    assert parse(b"\x08\x05" + body).kind == kind == record.WhichOneof("record_type")
    assert parse(b"\x08\x05" + body).num == 5


@given(st.integers(0, 2**31), st.text(max_size=300), st.sampled_from(["front", "back", "none"]))
def test_the_envelope_is_read_in_any_order(num, title, info):
    """Number and body are found wherever the writer's library put them."""
    number = messages.Record(num=num).SerializeToString()
    extra = messages.Record(_info=messages.RecordInfo(stream_id="x")).SerializeToString()
    body = messages.Record(alert=messages.AlertRecord(title=title)).SerializeToString()
    payload = {"front": extra + number + body, "back": body + number + extra, "none": number + body}[info]
    record = parse(payload)

    assert (record.num, record.kind) == (num, "alert")
    assert record.message().title == title


def test_a_kind_from_the_future_is_unknown_and_survives():
    """A record type that nobody has heard of is counted, not refused."""
    record = parse(b"\x08\x05" + write_varint(900 << 3 | 2) + b"\x03abc")

    assert (record.kind, record.body, record.message()) == ("unknown", b"abc", None)


def test_unknown_fields_survive_a_round_trip():
    """A message with fields of a later version is written back whole."""
    body = messages.AlertRecord(title="t").SerializeToString() + write_varint(900 << 3 | 2) + b"\x03abc"

    assert messages.AlertRecord.FromString(body).SerializeToString() == body


def test_a_broken_body_is_an_error_that_names_its_place():
    """The message of a record says which record it was."""
    record = parse(b"\x08\x05\x52\x02\x0a\x7f")

    with pytest.raises(WireError, match=r"record 5 \(alert\) at offset 0"):
        record.message()


@pytest.mark.parametrize(
    "payload",
    [b"\x08", b"\x52\x7f", b"\x00\x01", b"\x0b", b"\xff" * 11, b"\x52\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01"],
)
def test_bytes_that_are_no_message_are_refused(payload):
    """Truncated varints, lengths past the end, group types and field 0 are errors, never a record."""
    with pytest.raises(WireError):
        parse(payload)


@given(st.integers(0, 2**64 - 1))
def test_varints_round_trip(value):
    """Any unsigned 64-bit number."""
    data = write_varint(value)

    assert read_varint(data, 0) == (value, len(data))


@given(st.binary(max_size=200))
def test_the_walk_never_reads_past_the_end(data):
    """Random bytes are fields or an error."""
    with contextlib.suppress(WireError):
        assert all(start <= stop <= len(data) for _, _, start, stop in fields(data))


def test_switches_are_read_by_number():
    """A message of bools that is kept as bytes gives the numbers that are on."""
    assert set_flags(b"\x20\x01\x18\x00\xe0\x04\x01") == [4, 76]


def test_presence_is_kept_where_the_format_has_it():
    """A step of zero is there, and a namespace that was never set is not."""
    history = messages.HistoryRecord(step=messages.HistoryStep(num=0))

    assert history.SerializeToString() == b"\x12\x00"
    assert not messages.TBRecord().HasField("namespace")
