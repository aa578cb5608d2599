"""Draws long series down to few points without losing their spikes."""

from __future__ import annotations

import math
from array import array
from collections.abc import Iterable, Iterator
from typing import Any

import orjson

from .jsontext import parse

MAX_KEYS = 400  # series in one answer; a filter reaches the others
MAX_DEPTH = 8


class Series:
    """The values of one metric in the order they were logged: `xs` (steps or seconds) and `ys`."""

    def __init__(self) -> None:
        self.xs = array("d")
        self.ys = array("d")


def parse_row(text: str) -> dict[str, Any] | None:
    """The row, bare NaN and Infinity included; None where the text is no JSON object."""
    try:
        row = orjson.loads(text)
    except orjson.JSONDecodeError:
        try:
            row = parse(text)
        except ValueError:
            return None
    return row if isinstance(row, dict) else None


def step_of(text: str) -> float | None:
    """A row's `_step`."""
    step = (parse_row(text) or {}).get("_step")
    return step if isinstance(step, int | float) else None


def numbers(row: dict[str, Any], prefix: str = "", depth: int = 0) -> Iterator[tuple[str, float]]:
    """The numbers of a row, nested keys joined by dots; media and other typed objects are no metrics."""
    for key, value in row.items():
        if isinstance(value, bool) or (not depth and key.startswith("_")):
            continue
        if isinstance(value, int | float):
            yield prefix + key, _double(value)
        elif isinstance(value, dict) and "_type" not in value and depth < MAX_DEPTH:
            yield from numbers(value, f"{prefix}{key}.", depth + 1)


def _double(value: float) -> float:
    try:
        return float(value)
    except OverflowError:
        return math.inf if value > 0 else -math.inf


def charts(pages: Iterable[list[tuple[int, str]]], *, x: str, points: int, wanted: str = "") -> dict[str, Any]:
    """All series whose name contains `wanted`, drawn down to about `points` points each.

    A point is `[x, y]`; y is null where the value was not finite, which a chart shows as a gap. `x` is the row's own
    value of that name, or its line number where that is not finite.
    """
    series: dict[str, Series] = {}
    names: set[str] = set()
    unreadable = 0
    for page in pages:
        for line, text in page:
            row = parse_row(text)
            if row is None:
                unreadable += 1
                continue
            at = row.get(x)
            position = _double(at) if isinstance(at, int | float) else math.nan
            if not math.isfinite(position):
                position = float(line)
            for name, value in numbers(row):
                found = series.get(name)
                if found is None:
                    names.add(name)
                    if wanted.lower() not in name.lower() or len(series) >= MAX_KEYS:
                        continue
                    found = series[name] = Series()
                found.xs.append(position)
                found.ys.append(value)
    return {
        "x": x,
        "unreadable_rows": unreadable,
        "metrics": len(names),
        "left_out": sum(wanted.lower() in name.lower() for name in names) - len(series),
        "series": [_drawn(name, series[name], points) for name in sorted(series)],
    }


def _drawn(name: str, series: Series, points: int) -> dict[str, Any]:
    finite = [value for value in series.ys if math.isfinite(value)]
    last = series.ys[-1]
    return {
        "name": name,
        "count": len(series.ys),
        "not_finite": len(series.ys) - len(finite),
        "min": min(finite, default=None),
        "max": max(finite, default=None),
        "last": last if math.isfinite(last) else None,
        "points": downsample(series.xs, series.ys, points),
        "means": means(series.xs, series.ys, points),
    }


def _stretches(count: int, points: int) -> list[tuple[int, int]]:
    """Equal parts of `count` values, two points for each."""
    parts = max(1, points // 2)
    return [(part * count // parts, (part + 1) * count // parts) for part in range(parts)]


def means(xs: array[float], ys: array[float], points: int) -> list[list[float | None]]:
    """The mean of the finite values of each stretch that `downsample` drew down; empty where it drew every value."""
    drawn: list[list[float | None]] = []
    if len(ys) > points:
        for first, end in _stretches(len(ys), points):
            finite = [value for value in ys[first:end] if math.isfinite(value)]
            mean = math.fsum(value / len(finite) for value in finite) if finite else None
            drawn.append([xs[(first + end) // 2], mean])
    return drawn


def downsample(xs: array[float], ys: array[float], points: int) -> list[list[float | None]]:
    """The least and the greatest value of each of `points / 2` equal stretches, in the order they came.

    A stretch with a value that is not finite also keeps the first such place, as a gap. A series that is short enough
    stays as it is.
    """
    count = len(ys)
    if count <= points:
        return [[x, y if math.isfinite(y) else None] for x, y in zip(xs, ys, strict=True)]
    drawn: list[list[float | None]] = []
    for first, end in _stretches(count, points):
        stretch = ys[first:end]
        lowest = highest = gap = None
        if all(map(math.isfinite, stretch)):
            lowest, highest = stretch.index(min(stretch)), stretch.index(max(stretch))
        else:
            for index, value in enumerate(stretch):
                if not math.isfinite(value):
                    gap = index if gap is None else gap
                elif lowest is None or highest is None:
                    lowest = highest = index
                elif value < stretch[lowest]:
                    lowest = index
                elif value > stretch[highest]:
                    highest = index
        keep = sorted({index for index in (lowest, highest, gap) if index is not None})
        drawn.extend([xs[first + index], None if index == gap else stretch[index]] for index in keep)
    return drawn
