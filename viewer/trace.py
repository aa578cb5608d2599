"""The dots of one curve: every column from its lowest to its highest point, joined unless rows were lost between."""

from __future__ import annotations

import math
from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from dataclasses import dataclass, field

from .canvas import Canvas, Cell
from .curves import Curve
from .scale import Scale

Plot = dict[tuple[int, int], Cell]
"""(row, column) of the plot -> what stands there."""


@dataclass
class View:
    """The plot of a chart while it is drawn."""

    canvas: Canvas
    x: Scale
    """Of as many dots as the canvas is wide."""
    y: Scale
    beyond: dict[tuple[bool, int], int] = field(default_factory=dict)
    """(is above, column of cells) -> the series that has points beyond that edge."""
    lone: dict[tuple[int, int], int] = field(default_factory=dict)
    """Cell -> the series of which it shows the only point."""

    def across(self, x: float) -> float:
        """Dots from the left edge; those of column n are n to n + 1."""
        return self.x.fraction(x) * self.canvas.width

    def dot(self, x: float) -> int:
        """The column of dots of an x; outside of the canvas, some number that is not on it."""
        at = math.floor(self.across(x))
        return self.canvas.width - 1 if x == self.x.high else at

    def row(self, y: float) -> float:
        """Dots from the middle of the top row."""
        return (1 - self.y.fraction(y)) * (self.canvas.height - 1)

    def cell(self, column: int, row: float) -> tuple[int, int]:
        """The (row, column) of the cell of a dot."""
        return (
            math.floor(row + 0.5) * self.canvas.rows // self.canvas.height,
            column * self.canvas.columns // self.canvas.width,
        )


def trace(view: View, series: int, curve: Curve, *, bright: bool = True, band: bool = False) -> None:
    """Draw one curve. As a band it is dim, under a bright line through the last point of every column."""
    canvas, x0, x1 = view.canvas, view.x.low, view.x.high
    first, stop = bisect_left(curve.x, x0), bisect_right(curve.x, x1)
    gaps = _gaps(view, curve)
    previous: tuple[float, float] | None = None  # the dot from which a line comes
    if 0 < first < len(curve.x) and not _is_lost(curve, curve.x[first - 1], curve.x[first]):
        previous = view.across(curve.x[first - 1]) - 0.5, view.row(curve.y[first - 1])
    earliest = canvas.width  # where the first gap began that ended behind `previous`
    for x, column in enumerate(curve.columns(x0, x1, canvas.width)):
        earliest = min(earliest, gaps.get(x, canvas.width))
        if column is None:
            continue
        _, lowest, highest, last = column
        top, bottom, end = view.row(highest), view.row(lowest), view.row(last)
        canvas.vertical(series, x, top, bottom, bright=bright and not band)
        if highest > view.y.high:
            view.beyond[True, view.cell(x, 0)[1]] = series
        if lowest < view.y.low:
            view.beyond[False, view.cell(x, 0)[1]] = series
        if previous is not None and earliest >= x:
            target = end if band else min(max(previous[1], top), bottom)
            if x - previous[0] == 1:
                if band or target != previous[1]:
                    canvas.join(series, x, previous[1], target, bright=bright)
            else:
                canvas.line(series, *previous, x, target, bright=bright)
        elif band:
            canvas.vertical(series, x, end, end)
        previous, earliest = (x, end), canvas.width
    if previous is not None and 0 < stop < len(curve.x) and not _is_lost(curve, curve.x[stop - 1], curve.x[stop]):
        canvas.line(series, *previous, view.across(curve.x[stop]) - 0.5, view.row(curve.y[stop]), bright=bright)
    elif previous is not None and stop - first == 1 == len(curve.x) and -0.5 <= previous[1] < canvas.height - 0.5:
        view.lone[view.cell(math.floor(previous[0]), previous[1])] = series


def _gaps(view: View, curve: Curve) -> dict[int, int]:
    """Column of dots in which gaps end -> the one in which the earliest of them begins."""
    gaps: dict[int, int] = {}
    for begin, end in curve.breaks:
        if end > view.x.low and begin < view.x.high:
            start, stop = view.dot(begin), view.dot(end)
            gaps[stop] = min(start, gaps.get(stop, start))
    return gaps


def _is_lost(curve: Curve, x0: float, x1: float) -> bool:
    return any(begin < x1 and end > x0 for begin, end in curve.breaks)


def shade_gaps(plot: Plot, view: View, curves: Sequence[Curve], char: str) -> None:
    """Put `char` over the ranges in which rows were lost, a column at least for each."""
    for curve in curves:
        for begin, end in curve.breaks:
            if end < view.x.low or begin > view.x.high:
                continue
            first = view.cell(max(view.dot(begin), 0), 0)[1]
            last = view.cell(min(view.dot(end), view.canvas.width - 1), 0)[1]
            for column in range(first, last + 1):
                for row in range(view.canvas.rows):
                    plot[row, column] = Cell(char, "gap", bright=False)
