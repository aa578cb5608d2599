"""Parts of a log that can be read before what stands in front of them is known.

A region begins behind the second row that begins at or behind an edge, a multiple of `SIZE`, and ends where the next one
begins. Chunks begin at the edges of blocks, so a reader that starts at an edge finds the same records as one that
comes from the front; the first two rows tell what a row has to know of those before it. A region is used only if it begins
where the reading from the front has come to, behind a row like the one that it saw there.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, BinaryIO

from ..logformat import Batch, LogReader, Record, WireError, decode_history
from ..logformat.constants import BLOCK_SIZE
from ..logformat.history import STEP, place_of
from ..logformat.plainrows import Block, LatestRow, in_blocks, repeats
from .plainrows import LineBlock, LineRows

SIZE = 16 * BLOCK_SIZE
"""512 KiB from edge to edge: its lines fit into a pipe, and the processor's caches hold what is made of it."""
ROWS_BEHIND_EDGE = 2
_MARGINS = (
    2 * BLOCK_SIZE,
    32 * BLOCK_SIZE,
)  # bytes behind the second edge that two rows, and records beside them, may take
_ALWAYS_ALONE = {"history", "summary", "header", "run"}  # kinds of records that change what rows behind them mean


@dataclass
class Region:
    """Records that lie one behind the other in a log."""

    begin: int
    end: int
    before: bytes | None
    """The step of the row before, as it was taken for granted."""
    spoken: bytes
    """The step of which a summary record had spoken by then, likewise."""
    num: int
    """Of the last record."""
    items: list[LineBlock | Record]
    """Rows as blocks, everything else as it is."""

    def pack(self) -> tuple[Any, ...]:
        """It as what `marshal` writes; `unpack` reverses it."""
        items = [
            tuple(item)
            if isinstance(item, Record)
            else (
                item.text,
                item.offsets,
                item.last[:-1],
                item.leaves,
                item.highest,
                item.time_s,
                item.runtime_s,
                item.spoken,
                item.summaries,
            )
            for item in self.items
        ]
        return self.begin, self.end, self.before, self.spoken, self.num, items


def unpack(packed: tuple[Any, ...]) -> Region:
    """What `Region.pack` made a tuple of."""
    begin, end, before, spoken, num, items = packed
    found = [_block(*item) if isinstance(item[0], str) else Record(*item) for item in items]
    return Region(begin, end, before, spoken, num, found)


def _block(text: str, offsets: list[int], row: tuple[Any, Any, bytes, int], *rest: Any) -> LineBlock:
    return LineBlock(**vars(Block(offsets, LatestRow(*row, offset=offsets[-1]), *rest)), text=text)


class _Otherwise(Exception):  # noqa: N818 - not an error: the region is read from the front
    """A region holds what has to be seen with all that stands before it."""


class _Items:
    """Takes the records of a region."""

    def __init__(self, before: bytes | None, spoken: bytes) -> None:
        self.items: list[LineBlock | Record] = []
        self._rows = before, spoken

    def begin_block(self) -> tuple[bytes | None, bytes] | None:
        """See `Taker`."""
        return self._rows

    def take_block(self, block: LineBlock) -> None:
        """Keep a block."""
        self.items.append(block)
        self._rows = block.last.step, block.spoken

    def take_record(self, record: Record) -> None:
        """Keep a record that is no row."""
        if record.kind in _ALWAYS_ALONE:
            raise _Otherwise
        self.items.append(record)


def edge_behind(offset: int) -> int:
    """The first edge behind `offset`."""
    return offset - offset % SIZE + SIZE


class Regions:
    """Reads regions of an open log, in any order. Not for several threads at once."""

    def __init__(self, log: BinaryIO) -> None:
        self._log = log
        self._plain = LineRows(0, folds=True)
        self._margins = list(_MARGINS)  # those that were too small for rows of this log are left out

    def read(self, edge: int) -> Region | None:
        """The region that begins behind `edge`; None if it has to be read from the front.

        Raises:
            OSError: the log cannot be read.
        """
        while True:
            batch = self._batch_at(edge, SIZE + self._margins[0])
            rows = [at for at, entry in enumerate(batch.entries) if entry[0] == "history"] if batch is not None else []
            if batch is None or len(rows) < ROWS_BEHIND_EDGE:
                return None
            last = [at for at in rows if batch.base + batch.entries[at][4] >= edge + SIZE][:ROWS_BEHIND_EDGE]
            if len(last) == ROWS_BEHIND_EDGE:
                return _region(batch, rows[ROWS_BEHIND_EDGE - 1], last[-1], self._plain)
            if len(self._margins) == 1:
                return None
            del self._margins[0]

    def _batch_at(self, edge: int, size: int) -> Batch | None:
        """The records of the bytes behind an edge, without the one that began before it."""
        for found in LogReader(self._log, start=edge, at_once=size).poll_batches():
            if isinstance(found, Batch):
                return found
        return None


def _region(batch: Batch, first: int, last: int, plain: LineRows) -> Region | None:
    """The region of a batch behind the row at `first`, up to the row at `last`."""
    kind, data, start, stop, _, _ = batch.entries[first - 1]
    row = batch.record_of(batch.entries[first])
    announced = kind == "summary" and repeats(data[start:stop], row.body)
    try:
        paths, values = decode_history(row.body)
        step = values[place_of(STEP, paths)] if STEP in paths else None
    except WireError:
        return None
    items = _Items(step, step if announced and step is not None else b"")
    before, spoken = items.begin_block() or (None, b"")
    try:
        in_blocks(batch, batch.entries[first + 1 : last + 1], plain, items)
    except _Otherwise:
        return None
    end = batch.record_of(batch.entries[last])
    return Region(row.end, end.end, before, spoken, end.num, items.items)
