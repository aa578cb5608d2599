"""Whatever bytes come, in whatever order: no exception, no wrong record, and every byte told of.

`benchmarks/fuzz_reader.py` does the same by mutation, as often as it is told.
"""

from __future__ import annotations

import io
import random

from hypothesis import given, settings
from hypothesis import strategies as st
from runferry.logformat import BLOCK_SIZE, FILE_HEADER, Record, read_records, walk_chunks
from support.damage import Damage, alike, records
from support.frames import alert, log_of, payloads, read_all

SMALL = [alert(num, "." * (num * 7 % 50)) for num in range(1, 12)]
PIECES = st.one_of(
    st.binary(max_size=40),
    st.sampled_from([FILE_HEADER, bytes(7), b"\1" * 9, b"\xff" * 8, bytes(600)]),
    st.builds(lambda count, cut: log_of(*SMALL[:count])[cut:], st.integers(1, 11), st.integers(0, 60)),
)


@settings(max_examples=300, deadline=None)
@given(st.lists(PIECES, max_size=6), st.booleans(), st.randoms(use_true_random=False))
def test_pieces_of_anything(pieces, headed, rng):
    """Records are among those that were written, all ways of reading agree, and nothing is left out."""
    data = (FILE_HEADER if headed else b"") + b"".join(pieces)
    found = read_all(data)

    assert set(payloads(found)) <= set(SMALL)
    Damage.tiles(data, found)
    alike(data, rng)
    assert {item.offset for item in found if isinstance(item, Record)} <= {
        chunk.offset for chunk in walk_chunks(io.BytesIO(data))
    }


@settings(max_examples=100, deadline=None)
@given(st.integers(0, 60), st.lists(st.tuples(st.integers(0, 600), PIECES), min_size=1, max_size=3))
def test_edits_around_the_edge_of_a_block(left, edits):
    """The same where records lie across it."""
    known = [alert(1, "x" * (BLOCK_SIZE - 300 - left)), *(alert(num, "." * (num * 13 % 90)) for num in range(2, 9))]
    data = bytearray(log_of(*known))
    for place, piece in edits:
        at = BLOCK_SIZE - 300 + place
        data[at : at + len(piece)] = piece
    found = read_all(bytes(data))

    assert set(payloads(found)) <= {*known, *SMALL}
    Damage.tiles(bytes(data), found)


def test_a_log_is_read_from_any_byte_without_an_exception():
    """Not only from where records begin: what is given are records of the log, behind at most one gap."""
    damage = Damage(records(60_000, seed=6))
    rng = random.Random(7)
    for start in rng.sample(range(1, len(damage.log)), 150):
        found = list(read_records(io.BytesIO(damage.log), start=start))
        there = [damage.index[payload] for payload in payloads(found)]

        assert there == list(range(len(damage.payloads) - len(there), len(damage.payloads)))
        assert len(found) - len(there) <= 1
