"""Histograms over steps as a heat map: the darker a cell, the larger the part of its step's values that lies there."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

from .chart_axis import range_axis, short
from .markup import text

_LEVELS = 8
_ROWS = 32
_MOST_BINS = 100_000


@dataclass(frozen=True, slots=True)
class Histogram:
    """Counts between ascending finite edges, of which there is one more."""

    edges: Sequence[float]
    counts: Sequence[float]

    @classmethod
    def of(cls, value: Any) -> Histogram | None:
        """What a row holds, `{"_type": "histogram", "bins": ..., "values": ...}` or with `packedBins`; None if it is none."""
        if not isinstance(value, dict) or value.get("_type") != "histogram":
            return None
        counts, edges = value.get("values"), value.get("bins")
        packed = value.get("packedBins")
        try:
            if isinstance(packed, dict) and not edges:
                low, size, count = float(packed["min"]), float(packed["size"]), int(packed["count"])
                if not 0 < count <= _MOST_BINS:
                    return None
                edges = [low + size * number for number in range(count + 1)]
            if not isinstance(counts, list) or not isinstance(edges, list) or len(counts) > _MOST_BINS:
                return None
            found = cls([float(edge) for edge in edges], [float(count) for count in counts])
        except (KeyError, TypeError, ValueError, OverflowError):
            return None
        return found if found.is_sound() else None

    def is_sound(self) -> bool:
        """Whether it can be drawn."""
        return (
            len(self.edges) == len(self.counts) + 1
            and len(self.counts) > 0
            and all(map(math.isfinite, self.edges))
            and all(low <= high for low, high in pairwise(self.edges))
            and all(math.isfinite(count) and count >= 0 for count in self.counts)
        )


def heat_map(
    columns: Sequence[tuple[float, Histogram]],
    *,
    title: str,
    x_label: str = "step",
    width: int = 420,
    height: int = 190,
) -> str:
    """An `<svg>` of histograms by ascending finite places, one column each: so choose few dozen.

    A column reaches to the next one; where others are missing between them, there is nothing.
    """
    low = min(one.edges[0] for _, one in columns)
    high = max(one.edges[-1] for _, one in columns)
    top, bottom, right = 12, 34, 16
    y_axis = range_axis(low, high, height - top - bottom)
    ticks = [tick for tick in y_axis.ticks(4) if y_axis.low <= tick[0] <= y_axis.high]
    left = 14 + round(6.3 * max((len(name) for _, name in ticks), default=1))
    ends = _ends([place for place, _ in columns])
    is_whole = all(float(place).is_integer() for place, _ in columns)
    x_axis = range_axis(columns[0][0], ends[-1], width - left - right, is_whole=is_whole)
    down = y_axis.pixels / _ROWS
    base = top + y_axis.pixels
    levels: list[list[str]] = [[] for _ in range(_LEVELS)]
    spread = [_spread(one, y_axis.low, y_axis.high) for _, one in columns]
    most = max(map(max, spread)) or 1.0
    for (place, _), end, cells in zip(columns, ends, spread, strict=True):
        begin = left + x_axis.place(place)
        across = left + x_axis.place(end) - begin + 0.2  # no seams
        for row, part in enumerate(cells):
            if part > 0:
                level = min(int(math.sqrt(part / most) * _LEVELS), _LEVELS - 1)
                at = f"M{begin:.1f} {base - (row + 1) * down:.1f}"
                levels[level].append(f"{at}h{across:.1f}v{down + 0.2:.1f}h-{across:.1f}z")
    cells_drawn = "".join(
        f'<path class="cell c0" fill-opacity="{(level + 1) / _LEVELS:.2f}" d="{"".join(found)}"/>'
        for level, found in enumerate(levels)
        if found
    )
    labels = "".join(
        f'<text x="{left - 6}" y="{base - y_axis.place(value) + 4:.1f}" text-anchor="end">{name}</text>'
        for value, name in ticks
    )
    steps = "".join(
        f'<text x="{left + x_axis.place(value):.1f}" y="{base + 15:g}" text-anchor="middle">{name}</text>'
        for value, name in x_axis.ticks(6)
        if x_axis.low <= value <= x_axis.high
    )
    said = f"{title}: {len(columns)} histograms by {x_label}, from {short(low)} to {short(high)}"
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" class="chart" viewBox="0 0 {width} {height}" role="img" '
        f'aria-label="{text(said, 1000)}">{cells_drawn}<path class="axis" d="M{left} {base:g}H{width - right}"/>{labels}{steps}'
        f'<text class="note" x="{(left + width - right) / 2:g}" y="{base + 29:g}" text-anchor="middle">{text(x_label, 60)}</text>'
        "</svg>"
    )


def _ends(places: Sequence[float]) -> list[float]:
    """Where each column ends: at the next one, unless that is so far away that others are missing between them."""
    distances = sorted(high - low for low, high in pairwise(places))
    usual = distances[len(distances) // 2] if distances else 1.0
    nexts = [*places[1:], places[-1] + usual]
    return [min(behind, place + 1.5 * usual) for place, behind in zip(places, nexts, strict=True)]


def _spread(histogram: Histogram, low: float, high: float) -> list[float]:
    """The part of the counts that falls into each of `_ROWS` equal rows from `low` to `high`."""
    total = sum(histogram.counts) or 1.0
    rows = [0.0] * _ROWS
    axis = range_axis(low, high, _ROWS)
    for begin, end, count in zip(histogram.edges, histogram.edges[1:], histogram.counts, strict=False):
        if not count:
            continue
        first, last = axis.place(begin), axis.place(end)
        if last - first < 1e-9:
            rows[min(max(int(first), 0), _ROWS - 1)] += count / total
            continue
        for row in range(max(int(first), 0), min(math.ceil(last), _ROWS)):
            rows[row] += count / total * (min(last, row + 1) - max(first, row)) / (last - first)
    return rows
