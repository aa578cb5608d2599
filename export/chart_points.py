"""Long series to few points: of each pixel column its first, least, greatest and last value, so that no spike is lost."""

from __future__ import annotations

import math
from array import array
from bisect import bisect_left
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import islice
from operator import gt

POINTS_PER_COLUMN = 4


@dataclass(frozen=True, slots=True)
class Series:
    """Values `y` at places `x` (of the same length). Values may be NaN or infinite; points whose place is, are not drawn."""

    name: str
    x: Sequence[float]
    y: Sequence[float]
    breaks: Sequence[tuple[float, float]] = ()
    """Ranges of places, ascending, within which points are missing: no line crosses them."""


@dataclass(slots=True)
class Thinned:
    """What is drawn of a series."""

    lines: list[list[tuple[float, float]]] = field(default_factory=list)
    """Points (x, y) that are joined; one point alone is a dot. Where a line ends, values are missing or are no numbers."""
    odd: list[tuple[float, float]] = field(default_factory=list)
    """Where values are NaN or infinite, at most one of each kind per column: x and the value."""


def ordered(series: Series) -> Series:
    """The series with ascending finite places; points of the same place stay in their order."""
    x, y = series.x, series.y
    if isinstance(x, range):
        return series
    if not all(map(math.isfinite, x)):
        kept = [index for index, place in enumerate(x) if math.isfinite(place)]
        x, y = array("d", [x[index] for index in kept]), array("d", [y[index] for index in kept])
    if any(map(gt, x, islice(x, 1, None))):
        order = sorted(range(len(x)), key=x.__getitem__)
        x, y = array("d", [x[index] for index in order]), array("d", [y[index] for index in order])
    return Series(series.name, x, y, series.breaks)


def finite_range(series: Sequence[Series]) -> tuple[float, float] | None:
    """Least and greatest finite value of all; None if there is none."""
    low, high = math.inf, -math.inf
    for one in series:
        y = one.y
        known = y if all(map(math.isfinite, y)) else [value for value in y if math.isfinite(value)]
        if known:
            least, greatest = min(known), max(known)
            low, high = min(low, least), max(high, greatest)
    return None if low > high else (low, high)


def thinned(series: Series, low: float, high: float, columns: int, lost: Sequence[tuple[float, float]] = ()) -> Thinned:
    """At most `POINTS_PER_COLUMN` points in each of `columns` equal parts of low..high, and in each part of a broken column.

    Each is a point of the series, in its order; of the least and the greatest value of a column the first. A line never
    crosses a break of the series, nor what was lost.

    Args:
        series: as `ordered` gives it.
        low: the place where the first column begins.
        high: the place where the last one ends.
        columns: how many.
        lost: further breaks, ascending.
    """
    drawn = Thinned()
    line: list[tuple[float, float]] = []
    for first, end, is_broken in _parts(series.x, low, high, columns, sorted({*lost, *series.breaks})):
        if is_broken and line:
            drawn.lines.append(line)
            line = []
        if end - first <= POINTS_PER_COLUMN:
            chosen: Sequence[int] = range(first, end)
        else:
            chosen = _extremes(series.y, first, end, drawn, series.x)
        for index in chosen:
            x, y = series.x[index], series.y[index]
            if math.isfinite(y):
                line.append((x, y))
                continue
            if line:
                drawn.lines.append(line)
                line = []
            _note(drawn, x, y, first, series.x)
    if line:
        drawn.lines.append(line)
    return drawn


def _extremes(y: Sequence[float], first: int, end: int, drawn: Thinned, x: Sequence[float]) -> list[int]:
    """Indices of the points of one column that are drawn, and those where the line ends."""
    part = y[first:end]
    if all(map(math.isfinite, part)):
        return sorted({first, first + part.index(min(part)), first + part.index(max(part)), end - 1})
    finite = [index for index in range(first, end) if math.isfinite(y[index])]
    odd: dict[str, int] = {}
    for index in range(first, end):
        if not math.isfinite(y[index]):
            odd.setdefault(str(y[index]), index)
    for index in odd.values():
        _note(drawn, x[index], y[index], first, x)
    if not finite:
        return [next(iter(odd.values()))]
    least, greatest = min(finite, key=y.__getitem__), max(finite, key=y.__getitem__)
    # The line breaks at the first value that is none, if it lies between others that are drawn.
    chosen = {finite[0], least, greatest, finite[-1], *odd.values()}
    return sorted(chosen)


def _note(drawn: Thinned, x: float, y: float, first: int, places: Sequence[float]) -> None:
    """Remember a value that is no number, once per column."""
    kind = str(y)
    for known_x, known in reversed(drawn.odd):
        if known_x < places[first]:
            break
        if str(known) == kind:
            return
    drawn.odd.append((x, y))


def _parts(
    x: Sequence[float], low: float, high: float, columns: int, breaks: Sequence[tuple[float, float]]
) -> Iterator[tuple[int, int, bool]]:
    """Spans of points, first and end: those of a column, or of a part of it; and whether points were lost before them."""
    count = len(x)
    cuts = _cuts(x, breaks)
    cut = 0
    first = bisect_left(x, low)
    last = count if not count or x[-1] <= high else bisect_left(x, math.nextafter(high, math.inf))
    width = high / columns - low / columns
    at, is_broken = first, False
    while at < last:
        while cut < len(cuts) and cuts[cut] <= at:
            is_broken = is_broken or cuts[cut] == at
            cut += 1
        column = (
            min(int((x[at] - low) / width), columns - 1) if width > 0 and math.isfinite(x[at] - low) else columns - 1
        )
        edge = low + (column + 1) * width
        end = last if column == columns - 1 else max(bisect_left(x, edge, at, last), at + 1)
        if cut < len(cuts):
            end = min(end, cuts[cut])
        yield at, end, is_broken
        at, is_broken = end, False


def _cuts(x: Sequence[float], breaks: Sequence[tuple[float, float]]) -> list[int]:
    """Indices of the points before which others were lost: those on both sides of a break."""
    cuts: list[int] = []
    for lower, upper in breaks:
        behind = bisect_left(x, upper)
        if 0 < behind < len(x) and x[behind - 1] <= lower and (not cuts or behind > cuts[-1]):
            cuts.append(behind)
    return cuts
