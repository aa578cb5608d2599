"""A look at a huge log within a fraction of a second: its beginning, its end, and blocks evenly spread between them.

Every block of 32 KiB begins with a chunk, so reading can begin at any of them, and what lies whole in a block is read. Of
those blocks only rows and samples are taken; config, metric definitions and the like stand at the beginning, and the newest
values, console lines and the exit at the end. What was read is right; what lies between is missing.
"""

from __future__ import annotations

import io
import os
from collections.abc import Sequence
from pathlib import Path
from typing import BinaryIO

from ..logformat import BLOCK_SIZE, LogReader, RunState
from ..logformat.history import STEP, decode_history, step_of
from ..logformat.record import Batch, Gap
from ..logformat.wire import WireError
from .reading import Identity, Reading, begin_log, end_log, read, stitch

HEAD_BLOCKS, TAIL_BLOCKS = 2, 8
BLOCKS = 96
"""Blocks between these: 96 of a log of 500,000 rows have some 6,000 of them, more than a terminal has columns of dots."""
SMALL = 8 << 20
"""Bytes; logs up to this are read whole in about the time that a preview takes."""
_ROWS_OF_A_BLOCK = 8  # rows that are wider than to let a block have so many are looked at in several blocks together
_HEAD_MOST = 4 << 20  # bytes in which to look for the first two rows
_KINDS = frozenset({"history", "stats"})


def preview(logs: Sequence[Path], *, blocks: int = BLOCKS, small: int = SMALL) -> Reading:
    """A run by parts of its logs, which are given in the order of their start; whole, if they are `small` together.

    The gaps that reading parts makes are not among those of the state: what is damaged an exact reading tells.

    Raises:
        OSError: a log cannot be opened or read.
    """
    sizes = [log.stat().st_size for log in logs]
    if sum(sizes) <= small:
        return read(logs)
    reading = Reading(list(logs), RunState(), [])
    stitching = stitch(logs)
    taken = 0
    for index, log in enumerate(logs):
        begin_log(reading, stitching, index)
        with log.open("rb", buffering=0) as file:
            identity = Identity.of(os.fstat(file.fileno()))
            reading.identities.append(identity)
            share = -(-blocks * sizes[index] // sum(sizes))
            taken += _sample(file, identity.size, share, reading.state)
        end_log(reading, stitching, index)
    reading.sampled = min(taken / max(sum(sizes), 1), 1 - 1e-9)
    return reading


def places(size: int, blocks: int, width: int = 1, head: int = HEAD_BLOCKS) -> list[tuple[int, int]]:
    """The ranges of a log of that size that are looked at, ascending: offset and end, each on block edges but the last end.

    Args:
        size: bytes.
        blocks: about how many lie between beginning and end.
        width: how many of them lie together.
        head: blocks of the beginning.
    """
    last = -(-size // BLOCK_SIZE)
    parts = max(4, blocks // width) if width > 1 else blocks
    first_of_tail = last - max(TAIL_BLOCKS, width)
    room = first_of_tail - head
    if room <= parts * width:
        return [(0, size)]
    # In the middle of equal shares, none of which is narrower than a part.
    chosen = [head + (room * (2 * i + 1) // parts - width) // 2 for i in range(parts)]
    middle = [(block * BLOCK_SIZE, (block + width) * BLOCK_SIZE) for block in chosen]
    return [(0, head * BLOCK_SIZE), *middle, (first_of_tail * BLOCK_SIZE, size)]


def _sample(file: BinaryIO, size: int, blocks: int, state: RunState) -> int:
    """Add the parts of one log to a state; how many bytes they have."""
    parts = places(size, blocks, *_extent_of_rows(file))
    for offset, end in parts:
        file.seek(offset)
        data = file.read(end - offset)
        is_last = end == size
        found = LogReader(_Part(data, offset), start=offset).poll_batches()  # type: ignore[arg-type]  # as much of a file as a reader needs
        _add(state, [item for item in found if not isinstance(item, Gap)], begins=offset == 0, ends=is_last)
    return sum(end - offset for offset, end in parts)


def _extent_of_rows(file: BinaryIO) -> tuple[int, int]:
    """How many blocks together have two whole rows, if rows are wide, and how many the first two end in."""
    ends: list[int] = []
    for item in LogReader(file).poll():
        if not isinstance(item, Gap) and item.kind == "history":
            ends.append(item.end)
        if len(ends) == 2 or (not isinstance(item, Gap) and item.end > _HEAD_MOST):
            break
    if len(ends) < 2:
        return 1, HEAD_BLOCKS
    row = ends[1] - ends[0]
    width = -(-3 * row // BLOCK_SIZE) if row > BLOCK_SIZE // _ROWS_OF_A_BLOCK else 1
    return width, max(HEAD_BLOCKS, -(-ends[1] // BLOCK_SIZE))


def _add(state: RunState, batches: list[Batch], *, begins: bool, ends: bool) -> None:
    """Add the records of one part, but its last row where it may go on behind it, and rows that don't say their step."""
    if not (begins or ends):
        for batch in batches:
            batch.entries[:] = [entry for entry in batch.entries if entry[0] in _KINDS]
    if not ends:
        _drop_last_row(batches)
    for batch in batches:
        if not begins:
            batch.entries[:] = [
                entry
                for place, entry in enumerate(batch.entries)
                if entry[0] != "history" or _step(batch, place) is not None
            ]
    state.add_batches(batches)


def _drop_last_row(batches: list[Batch]) -> None:
    """Take the last row away, with all of its parts, which have its step."""
    last: bytes | None = None
    for batch in reversed(batches):
        for place in range(len(batch.entries) - 1, -1, -1):
            if batch.entries[place][0] != "history":
                continue
            step = _step(batch, place)
            if last is not None and step != last:
                return
            del batch.entries[place]
            if step is None:
                return
            last = step


def _step(batch: Batch, place: int) -> bytes | None:
    """The text of a row's step; None where it has none that is a whole number."""
    entry = batch.entries[place]
    try:
        paths, texts = decode_history(entry[1][entry[2] : entry[3]])
    except WireError:
        return None
    text = texts[paths.index(STEP)] if STEP in paths else None
    return text if text is not None and step_of(text) is not None else None


class _Part(io.RawIOBase):
    """Some bytes of a file, at their offset."""

    def __init__(self, data: bytes, begin: int) -> None:
        self._data, self._begin, self._at = data, begin, begin

    def seek(self, offset: int, whence: int = os.SEEK_SET) -> int:
        self._at = self._begin + len(self._data) if whence == os.SEEK_END else offset
        return self._at

    def read(self, size: int = -1) -> bytes:
        begin = self._at - self._begin
        data = self._data[begin : begin + size if size >= 0 else len(self._data)]
        self._at += len(data)
        return data
