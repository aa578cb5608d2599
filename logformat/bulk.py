"""Batches of records into a run's state: plain rows many at once, everything else record by record, to the same effect."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import orjson

from .history import Path
from .plainrows import Block, Gathered, Made, PlainRows, Splitter, Taker, in_blocks
from .record import Batch, Entry, Record
from .summary import Column, MetricSummaries
from .values import glance

if TYPE_CHECKING:
    from .runstate import RunState

Cells = tuple[Path, "range | list[int]", list[Any], list[bytes]]
"""A key, the rows that have it, counted from the first one of a block, and their values, also as JSON texts."""
_INT64_LIMIT = 2**63
_NUMBERS = frozenset({int, float})
_SCALARS = _NUMBERS | {str, bool}


@dataclass
class FoldBlock(Block):
    """Rows that stand one behind the other, with the values of those metrics that have summaries of their own."""

    defined: list[Column] = field(default_factory=list)


@dataclass
class CellBlock(FoldBlock):
    """The same with the values of all keys."""

    cells: list[Cells] = field(default_factory=list)


class FoldRows(PlainRows):
    """Makes blocks of rows for states that keep none."""

    def __init__(self, metrics: MetricSummaries) -> None:
        """`metrics`: what is defined; that does not change between `gather` and `block`."""
        super().__init__(folds=True)
        self._metrics = metrics

    def gather(self, entries: list[Entry], base: int) -> Gathered:
        """See `PlainRows`. Where metrics have summaries of their own, what summary records say of rows takes the long way."""
        rows = super().gather(entries, base)
        if self._metrics.has_rules:
            rows.breaks = sorted([*rows.breaks, *(place for place, _ in rows.smalls)])
            rows.smalls = []
            odd = {sign for sign, path in self._path_of.items() if self._metrics.opens(path)}
            rows.steps = [
                None if rows.announced[row] or (step is not None and not odd.isdisjoint(rows.signs[row])) else step
                for row, step in enumerate(rows.steps)
            ]
        return rows

    def block(self, rows: Gathered, first: int, end: int, place: int, spoken: bytes) -> FoldBlock:
        """See `PlainRows`."""
        block = FoldBlock(**vars(super().block(rows, first, end, place, spoken)))
        if self._metrics.has_rules:
            for path, having, items in self.cells(rows, first, end):
                if self._metrics.defines(path):
                    texts = [rows.values[item] for item in items]
                    block.defined.append((path, texts, having[-1] == end - 1 - first))
                    block.leaves.pop(path, None)
        return block


class CellRows(FoldRows):
    """Makes blocks of rows with their values."""

    def block(self, rows: Gathered, first: int, end: int, place: int, spoken: bytes) -> CellBlock:
        """See `PlainRows`."""
        block = super().block(rows, first, end, place, spoken)
        where = rows.items(first, end - 1)
        texts = rows.values[where]
        values = _values(texts)
        are_exact = _are_exact(values)
        cells: list[Cells] = []
        for path, numbers, items in self.cells(rows, first, end):
            having = numbers
            if isinstance(items, range):
                part = slice(items.start - where.start, items.stop - where.start, items.step)
                mine, mine_as_text = values[part], list(texts[part])
            else:
                mine = [values[item - where.start] for item in items]
                mine_as_text = [texts[item - where.start] for item in items]
            if not are_exact and not _are_exact(mine):
                having, mine, mine_as_text = _readable(having, mine_as_text)
            if having:
                cells.append((path, having, mine, mine_as_text))
        return CellBlock(**vars(block), cells=cells)


class BatchFold:
    """Takes batches for a state that keeps rows, or does not."""

    def __init__(self, state: RunState, *, keep_rows: bool) -> None:
        self._state = state
        self._rows = (CellRows if keep_rows else FoldRows)(state.metric_summaries)

    def add(self, batch: Batch) -> None:
        """Take the next batch into account."""
        fold_in_blocks(batch, batch.entries, self._rows, self)

    def begin_block(self) -> tuple[bytes | None, bytes] | None:
        """See `Taker`."""
        state = self._state
        return (state.row_step, state.summary_step) if state.takes_blocks else None

    def take_block(self, block: FoldBlock) -> None:
        """See `Taker`."""
        self._state.add_block(block, block.defined)
        if isinstance(block, CellBlock):
            self._state.rows.extend(len(block.offsets), block.cells)

    def take_record(self, record: Record) -> None:
        """See `Taker`."""
        self._state.add(record)


def fold_in_blocks(batch: Batch, entries: list[Entry], plain: Splitter[Made], taker: Taker[Made]) -> None:
    """As `in_blocks`, up to each definition of a metric: rows behind it are folded otherwise."""
    begin = 0
    for end in [at + 1 for at, entry in enumerate(entries) if entry[0] == "metric"] + [len(entries)]:
        in_blocks(batch, entries[begin:end], plain, taker)
        begin = end


def _values(texts: Sequence[bytes]) -> list[Any]:
    """The values of texts that are one JSON value each; floats may stand for large integers: see `_are_exact`."""
    try:
        values: list[Any] = orjson.loads(b"[%b]" % b",".join(texts))
    except orjson.JSONDecodeError:  # NaN or Infinity among them
        return list(map(_glance_or_list, texts))
    return values


def _glance_or_list(text: bytes) -> Any:
    """As `glance`; a list, of which `_are_exact` tells that it has to be looked at, for what that refuses."""
    try:
        return glance(text)
    except ValueError:
        return []


def _readable(rows: range | list[int], texts: list[bytes]) -> tuple[range | list[int], list[Any], list[bytes]]:
    """The values of a key by `glance`, with their rows and texts; those that nest too deep are left out."""
    try:
        return rows, list(map(glance, texts)), texts
    except ValueError:
        pass
    having: list[int] = []
    values: list[Any] = []
    readable: list[bytes] = []
    for row, text in zip(rows, texts, strict=True):
        with suppress(ValueError):
            values.append(glance(text))
            having.append(row)
            readable.append(text)
    return having, values, readable


def _are_exact(values: list[Any]) -> bool:
    """Whether none of these values may be another one than its text says: no large number, list or object is among them."""
    kinds = set(map(type, values))
    if not kinds <= _SCALARS:
        return False
    numbers = values if kinds <= _NUMBERS else [value for value in values if type(value) in _NUMBERS]
    return not numbers or -_INT64_LIMIT < min(numbers) <= max(numbers) < _INT64_LIMIT
