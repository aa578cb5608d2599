"""Batches of records into a run's state: plain rows many at once, everything else record by record, to the same effect."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import orjson

from .history import Path
from .metricsummaries import Column
from .plainrows import Block, Gathered, Made, PlainRows, Splitter, Taker, in_blocks
from .record import Batch, Entry, Record
from .values import glance

if TYPE_CHECKING:
    from .runstate import RunState

Cells = tuple[Path, "range | list[int]", list[Any], list[bytes]]
"""A key, the rows that have it, counted from the first one of a block, and their values, also as JSON texts."""
_TURNING = frozenset({"metric", "run"})
_HIDDEN: Entry = ("", b"", 0, 0, 0, 0)
"""In place of a summary record that is looked at by itself."""
_INT64_LIMIT = 2**63
_NUMBERS = frozenset({int, float})
_SCALARS = _NUMBERS | {str, bool}


@dataclass
class FoldBlock(Block):
    """Rows that stand one behind the other, with the values of those metrics that have summaries of their own."""

    defined: list[Column] = field(default_factory=list)
    is_spoken_for: bool = False
    """A summary record before each row says what it leaves, also of those metrics."""


@dataclass
class CellBlock(FoldBlock):
    """The same with the values of all keys."""

    cells: list[Cells] = field(default_factory=list)


@dataclass
class SpokenRows(Gathered):
    """The rows of a batch, where metrics have summaries of their own: `announced` are those of the step that the record before says."""

    words: Gathered = field(default_factory=Gathered)
    """Those summary records that stand right before a row, as if they were rows."""
    word_of: list[int] = field(default_factory=list)
    """By row, which one of them is the one before; -1 for none."""

    def reach(self, first: int, end: int, before: bytes | None, spoken: bytes) -> tuple[int, bytes]:
        """See `Gathered`. The rows of a block are announced, or none is."""
        others = (row for row in range(first, end) if self.announced[row] is not self.announced[first])
        return super().reach(first, next(others, end), before, spoken)


class FoldRows(PlainRows):
    """Makes blocks of rows for states that keep none."""

    def __init__(self, state: RunState) -> None:
        """`state`: which metrics are defined in it does not change between `gather` and `block`: see `fold_in_blocks`."""
        super().__init__(folds=True)
        self._state, self._metrics = state, state.metric_summaries
        self._words = PlainRows(folds=True)

    def gather(self, entries: list[Entry], base: int) -> Gathered:
        """See `PlainRows`."""
        if not self._metrics.has_rules:
            return super().gather(entries, base)
        # The peer's summary records hold what its own fold of such metrics gave: they stand for their rows if they say their steps.
        rows = SpokenRows(
            **vars(super().gather([_HIDDEN if entry[0] == "summary" else entry for entry in entries], base))
        )
        words = [place - 1 for place in rows.places if place and entries[place - 1][0] == "summary"]
        rows.words = self._words.gather([("history", *entries[place][1:]) for place in words], base)
        number = dict(zip(words, range(len(words)), strict=True))
        rows.word_of = [number.get(place - 1, -1) for place in rows.places]
        odd = {sign for sign, path in self._path_of.items() if self._metrics.opens(path)}
        for row, (step, word) in enumerate(zip(rows.steps, rows.word_of, strict=True)):
            if step is not None and not odd.isdisjoint(rows.signs[row]):
                rows.steps[row] = None
            elif word >= 0 and step is not None and step == rows.words.steps[word] and not self._state.is_later:
                rows.announced[row] = True
        silent = {place - 1 for place, announced in zip(rows.places, rows.announced, strict=True) if announced}
        rows.breaks = [place for place in rows.breaks if place not in silent]
        return rows

    def block(self, rows: Gathered, first: int, end: int, place: int, spoken: bytes) -> FoldBlock:
        """See `PlainRows`."""
        block = FoldBlock(**vars(super().block(rows, first, end, place, spoken)))
        if isinstance(rows, SpokenRows):
            for path, having, items in self.cells(rows, first, end):
                if self._metrics.defines(path):
                    texts = [rows.values[item] for item in items]
                    block.defined.append((path, texts, having[-1] == end - 1 - first))
                    block.leaves.pop(path, None)
            block.is_spoken_for = rows.announced[first]
            if block.is_spoken_for:
                block.leaves = self._words.leaves(rows.words, rows.word_of[first], rows.word_of[end - 1] + 1)
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
        self._rows = (CellRows if keep_rows else FoldRows)(state)

    def add(self, batch: Batch) -> None:
        """Take the next batch into account."""
        fold_in_blocks(batch, batch.entries, self._rows, self)

    def begin_block(self) -> tuple[bytes | None, bytes] | None:
        """See `Taker`."""
        state = self._state
        return (state.row_step, state.summary_step) if state.takes_blocks else None

    def take_block(self, block: FoldBlock) -> None:
        """See `Taker`."""
        self._state.add_block(block, block.defined, is_spoken_for=block.is_spoken_for)
        if isinstance(block, CellBlock):
            self._state.rows.extend(len(block.offsets), block.cells)

    def take_record(self, record: Record) -> None:
        """See `Taker`."""
        self._state.add(record)


def fold_in_blocks(batch: Batch, entries: list[Entry], plain: Splitter[Made], taker: Taker[Made]) -> None:
    """As `in_blocks`, up to each record that changes how rows behind it are folded."""
    begin = 0
    for end in [at + 1 for at, entry in enumerate(entries) if entry[0] in _TURNING] + [len(entries)]:
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
