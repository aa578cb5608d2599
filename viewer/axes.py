"""Where rows stand on an axis: by step, by the time that the run had taken, by the clock, or by another metric of the row."""

from __future__ import annotations

import math
from array import array
from collections.abc import Sequence
from typing import Any, NamedTuple

from ..export.report_series import path_of
from ..logformat import RunState
from ..logformat.column import Column
from ..logformat.history import RUNTIME, TIMESTAMP, Path
from ..logformat.history import STEP as STEP_PATH


class Axis(NamedTuple):
    """What x is."""

    kind: str
    """`step`, `relative` (seconds of the run's own time), `wall` (epoch seconds) or `metric`."""
    metric: str = ""
    """Of the kind `metric`: its name, as a definition or `Rows.names` has it."""


STEP, RELATIVE, WALL = Axis("step"), Axis("relative"), Axis("wall")


class RowAxes:
    """The places of a run's rows on any axis, brought up to date whenever they are asked for."""

    def __init__(self, state: RunState) -> None:
        self._state = state
        self._known: dict[Axis, array[float]] = {}

    def of(self, axis: Axis) -> array[float]:
        """A number for each row, NaN for those that have none. Not to be changed.

        A row that does not say its step follows the row before it, from 0 on. The last row may still get parts, so its place
        is looked up anew each time.
        """
        values = self._known.setdefault(axis, array("d"))
        first, count = max(0, len(values) - 1), len(self._state.rows)
        del values[first:]
        values.extend(array("d", [math.nan]) * (count - first))
        start = self._fill(axis, values, first)
        if axis == STEP:
            step = values[first - 1] if first else -1.0
            for row in range(start, count):
                if math.isnan(values[row]):
                    values[row] = step + 1
                step = values[row]
        return values

    def has(self, axis: Axis) -> bool:
        """Whether any row may have a place there."""
        return axis == STEP or self._column(axis) is not None

    def _column(self, axis: Axis) -> Column | None:
        rows = self._state.rows
        if axis.kind == "metric":
            paths: Sequence[Path | str] = ((axis.metric,), path_of(axis.metric), axis.metric)
        else:
            paths = ({"step": STEP_PATH, "relative": RUNTIME, "wall": TIMESTAMP}[axis.kind],)
        for path in paths:
            try:
                return rows.column(path)
            except KeyError:
                continue
        return None

    def _fill(self, axis: Axis, values: array[float], first: int) -> int:
        """Set what the rows from `first` on say; the first row behind which one may lack it."""
        column = self._column(axis)
        if column is None:
            return first
        rows, numbers = numbers_of(column, column.place(first))
        if isinstance(rows, range):
            values[rows.start : rows.stop] = numbers
            return len(values) if (rows.start, rows.stop) == (first, len(values)) and _all_finite(numbers) else first
        for row, number in zip(rows, numbers, strict=True):
            values[row] = number
        return first


def numbers_of(column: Column, place: int = 0) -> tuple[Sequence[int], array[float]]:
    """The numbers among a column's values from that place on, and their rows; nulls, booleans, texts and objects are none."""
    if column.kind in {"int", "float"} and not column.nulls:
        part = column.values[place:]
        return column.rows[place:], part if column.kind == "float" else array("d", part)  # type: ignore[return-value]  # of doubles
    rows, numbers = array("q"), array("d")
    if column.kind in {"number", "int", "float", "json"}:
        for row, value in zip(column.rows[place:], column.slice(place, len(column)), strict=True):
            number = as_number(value)
            if number is not None:
                rows.append(row)
                numbers.append(number)
    return rows, numbers


def as_number(value: Any) -> float | None:
    """A number as a double, infinite where a double has no room for it; None for anything else."""
    if not isinstance(value, (int, float)) or isinstance(value, bool):
        return None
    try:
        return float(value)
    except OverflowError:
        return math.inf if value > 0 else -math.inf


def _all_finite(numbers: array[float]) -> bool:
    return math.isfinite(sum(numbers))
