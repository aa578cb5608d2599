"""Histograms over steps as a heatmap: a column for each, lighter where more values were."""

from __future__ import annotations

import datetime as dt
import math
from bisect import bisect_right
from collections.abc import Sequence
from itertools import pairwise
from typing import NamedTuple

from .canvas import BLANK, Cell, style_named
from .frame import Grid, Surround, write
from .scale import Scale, widened

_BLOCK_SHADES = " ·░░▒▒▓▓██"
_ASCII_SHADES = " .:-=+*#%@"
"""Ten levels, without colours."""


class Histogram(NamedTuple):
    """One histogram at a place of the x axis."""

    x: float
    edges: Sequence[float]
    """Of the bins, ascending: one more than there are counts."""
    counts: Sequence[float]


def heat(
    histograms: Sequence[Histogram],
    width: int,
    height: int,
    *,
    title: str = "",
    x: tuple[float, float] | None = None,
    y: tuple[float, float] | None = None,
    style: str = "braille",
    x_kind: str = "step",
    zone: dt.tzinfo | None = None,
    signs: bool = False,
) -> Grid:
    """Histograms, ascending by x, as exactly `height` rows of `width` columns.

    Each one stands from its place to that of the next one; where several share a column, the last is shown. Levels
    are parts of the fullest row of the same column, so that histograms of few values can be read beside others.
    What is no histogram (counts that are negative or not finite, edges out of order) is left out and counted.
    `signs` shades with characters instead of colours. Raises ValueError of a style or kind of x that is none.
    """
    style_named(style)
    width, height, ascii_only = max(width, 0), max(height, 0), style == "ascii"
    sound = [histogram for histogram in histograms if _is_sound(histogram)]
    x0, x1 = x or ((sound[0].x, sound[-1].x) if sound else (0.0, 1.0))
    low, high = y or (
        min((histogram.edges[0] for histogram in sound), default=0.0),
        max((histogram.edges[-1] for histogram in sound), default=1.0),
    )
    x_scale, y_scale = Scale(*widened(x0, x1, by=1e-3)), Scale(*widened(low, high, by=0.1))
    surround = Surround(width, height, y_scale, x_scale, x_kind=x_kind, zone=zone, ascii_only=ascii_only)
    grid, layout = surround.grid, surround.layout
    left_out = len(histograms) - len(sound)
    surround.title([(title, "title")], f"{left_out:,} unreadable" if left_out else "")
    if not sound:
        surround.say("no histograms")
        return grid
    places = [x_scale.column(histogram.x, layout.columns) for histogram in sound if x0 <= histogram.x <= x1]
    first = next((number for number, histogram in enumerate(sound) if histogram.x >= x0), 0)
    shades = _ASCII_SHADES if ascii_only else _BLOCK_SHADES if signs else ""
    shown, levels = -1, [0] * layout.rows
    for column in range(layout.columns):
        at = first + bisect_right(places, column) - 1
        if at < 0:
            continue
        if at != shown:
            shown, levels = at, _levels(sound[at], y_scale, layout.rows)
        for row, level in enumerate(levels):
            cell = Cell(shades[level] if shades else "█", f"heat{level}") if level else BLANK
            write(grid, layout.titles + layout.rows - 1 - row, layout.left + column, [cell])
    return grid


def _is_sound(histogram: Histogram) -> bool:
    edges, counts = histogram.edges, histogram.counts
    return (
        0 < len(counts) == len(edges) - 1
        and math.isfinite(histogram.x)
        and all(math.isfinite(edge) for edge in edges)
        and all(before <= after for before, after in pairwise(edges))
        and all(0 <= count < math.inf for count in counts)
    )


def _levels(histogram: Histogram, y: Scale, rows: int) -> list[int]:
    """For each row, the lowest first: 0 for nothing, 1 to 9 by what it has beside the fullest row."""
    amounts = [0.0] * rows
    most = max(histogram.counts)
    at = [y.fraction(edge) * rows for edge in histogram.edges]
    for (start, stop), count in zip(pairwise(at), histogram.counts, strict=True):
        if not count or stop < 0 or start > rows:
            continue
        first, last = max(math.floor(start), 0), min(math.floor(stop), rows - 1)
        for row in range(min(first, last), last + 1):
            # A bin is spread evenly over the rows that it touches.
            part = (min(stop, row + 1) - max(start, row)) / (stop - start) if stop > start else 1.0
            amounts[row] += count / most * max(part, 0.0)
    fullest = max(amounts, default=0.0)
    return [math.ceil(amount / fullest * 9) if amount else 0 for amount in amounts]
