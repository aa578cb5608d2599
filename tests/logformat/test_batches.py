"""Many records at once are the same records as one by one."""

from __future__ import annotations

import io
import itertools

from hypothesis import example, given, settings
from hypothesis import strategies as st
from runferry.logformat import BLOCK_SIZE, Batch, Gap, LogReader, Record, WireError
from runferry.logformat.record import parse_record
from support.frames import alert, console, log_of

HEADS = st.sampled_from(
    [b"", b"\x08\x01", b"\x08\x80\x01", b"\x08\x80\x80\x01", b"\x08\x80\x80\x80\x01", b"\x08\x81\x00"]
)
TAGS = st.sampled_from([b"\x12", b"\x1a", b"\x3a", b"\x52", b"\x8a\x01", b"\x10", b"\x7a", b"\xfa\x01", b""])
SIZES = st.one_of(st.just(None), st.binary(max_size=3))


@st.composite
def payloads(draw: st.DrawFn) -> bytes:
    """What looks like a record, or nearly: number, tag, size and body, any of which may be wrong."""
    body = draw(st.one_of(st.binary(max_size=20), st.sampled_from([b"\x80" * 200, b"\0" * 130, b"x" * 20_000])))
    size = draw(SIZES)
    if size is None:
        size = bytes([len(body)]) if len(body) < 0x80 else bytes([len(body) & 0x7F | 0x80, len(body) >> 7 & 0x7F])
    return draw(HEADS) + draw(TAGS) + size + body + draw(st.sampled_from([b"", b"", b"", b"\x10\x01", b"\x08\x07"]))


@settings(max_examples=400, deadline=None)
@given(st.lists(payloads(), max_size=6))
@example([b"\x08\x01\x12\x01a"])
def test_an_entry_says_what_the_record_says(found: list[bytes]) -> None:
    """Kind, body and place of each, for payloads of every shape; what is no message is a gap."""
    log = log_of(*found)
    expected = []
    for payload in found:
        try:
            expected.append(parse_record(payload, 0, 0))
        except WireError:
            continue

    batches = [item for item in LogReader(io.BytesIO(log)).batches() if isinstance(item, Batch)]
    records = [item for item in LogReader(io.BytesIO(log)).finish() if isinstance(item, Record)]

    assert [record.payload for record in records] == [record.payload for record in expected]
    entries = [(batch, entry) for batch in batches for entry in batch.entries]
    for (batch, entry), record in zip(entries, records, strict=True):
        kind, data, start, stop, offset, end = entry
        assert batch.record_of(entry) == record
        assert (kind, data[start:stop], batch.base + offset, batch.base + end) == (
            record.kind,
            record.body,
            record.offset,
            record.end,
        )


def test_who_stops_at_a_record_finds_the_next_one_again() -> None:
    """At any record, within a batch and behind it, also where the next one began in the block before, or a gap follows."""
    log = bytearray(log_of(*(console(i, 9_000) if i % 7 == 0 else alert(i, "x" * 50) for i in range(1, 600))))
    log[BLOCK_SIZE + 20_000] ^= 0xFF
    whole = list(LogReader(io.BytesIO(log)).finish())
    assert any(isinstance(item, Gap) for item in whole)

    for count in range(1, len(whole), 13):
        reader = LogReader(io.BytesIO(log))
        first = list(itertools.islice(reader.poll(), count))
        found = [*first, *reader.finish()]
        assert [(item.offset, item.end) for item in found] == [(item.offset, item.end) for item in whole]


def test_a_batch_ends_at_a_gap() -> None:
    """Batches and gaps come in the order of the file, and each record is in one of them."""
    log = bytearray(log_of(*(alert(i, "x" * 50) for i in range(1, 900))))
    log[1_000] ^= 0xFF

    items = list(LogReader(io.BytesIO(log)).batches())

    assert [type(item) for item in items[:3]] == [Batch, Gap, Batch]
    ends = [item.base + item.entries[0][4] if isinstance(item, Batch) else item.offset for item in items]
    assert ends == sorted(ends)
    assert sum(len(item.entries) for item in items if isinstance(item, Batch)) == 898
