"""Which rows and keys of a run are wanted."""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from itertools import compress

from ..logformat.column import Column
from ..logformat.columns import Rows
from ..logformat.history import RUNTIME, STEP, TIMESTAMP

PLACE = (STEP, RUNTIME, TIMESTAMP)
"""The keys that say where in a run a row stands."""


@dataclass(frozen=True)
class Selection:
    """Keys, steps, and how many rows of them. Without arguments: everything."""

    keys: tuple[str, ...] = ()
    """Patterns of flat names (`*`, `?`, `[..]`); `*` matches dots and slashes, too. None: all keys."""
    first_step: int | None = None
    end_step: int | None = None
    """The first step that is not wanted any more, as in a slice."""
    every: int = 1
    """Of the rows that are left, and of the samples, each so-manieth from the first one on."""

    def wants(self, name: str) -> bool:
        """Whether a key of that flat name is wanted."""
        return not self.keys or any(fnmatchcase(name, pattern) for pattern in self.keys)

    def columns(self, columns: Iterable[Column]) -> list[Column]:
        """Those of wanted keys; `_step` is always among them, so that rows have a place, and place comes first."""
        found = [column for column in columns if column.path == STEP or self.wants(column.name)]
        rank = {path: number for number, path in enumerate(PLACE)}
        return sorted(found, key=lambda column: rank.get(column.path, len(rank)))

    def rows(self, rows: Rows, columns: Sequence[Column]) -> range | array[int]:
        """Numbers of the rows that are wanted, ascending: with chosen keys only those that have one of them."""
        found: range | array[int] = range(len(rows))
        if self.keys:
            found = _having(
                [column for column in columns if column.path not in PLACE or self._names(column)], len(rows)
            )
        if self.first_step is not None or self.end_step is not None:
            found = self._between(found, rows)
        return found[:: self.every]

    def _names(self, column: Column) -> bool:
        """Whether a key of a row's place is wanted by its own name, as in `--keys _step`."""
        return any(fnmatchcase(column.name, pattern) for pattern in self.keys)

    def _between(self, found: range | array[int], rows: Rows) -> range | array[int]:
        if STEP not in rows.paths:
            return range(0)
        column = rows.column(STEP)
        low = -(2**63) if self.first_step is None else self.first_step
        high = 2**63 if self.end_step is None else self.end_step
        fits = bytearray(len(rows))
        for row, step in zip(column.rows, column.values, strict=True):
            fits[row] = type(step) is int and low <= step < high
        return _packed(compress(found, map(fits.__getitem__, found)))


def _having(columns: Iterable[Column], count: int) -> range | array[int]:
    """The rows that have a value in one of the columns."""
    has = bytearray(count)
    for column in columns:
        numbers = column.rows
        if isinstance(numbers, range):
            has[numbers.start : numbers.stop] = b"\1" * len(numbers)
        else:
            for row in numbers:
                has[row] = 1
    return _packed(compress(range(count), has))


def _packed(numbers: Iterable[int]) -> range | array[int]:
    """Row numbers as a range where they are one."""
    found = array("q", numbers)
    if found and found[-1] - found[0] == len(found) - 1:
        return range(found[0], found[-1] + 1)
    return found
