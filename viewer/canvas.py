"""A grid of dots over the cells of a terminal: what a chart is drawn on before it becomes characters."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import NamedTuple


class Cell(NamedTuple):
    """What stands in one column of one row of a terminal."""

    char: str
    """One character; nothing in the second column of a character that is two columns wide."""
    colour: int | str
    """The number of a series, or a role: axis, text, title, guide, gap, mark, cursor, heat0 to heat9."""
    bright: bool = True


BLANK = Cell(" ", "text", bright=False)


@dataclass(frozen=True, slots=True)
class Style:
    """How the dots of one cell become a character."""

    across: int
    down: int
    chars: str
    """By the set of dots: bits column after column, from the top down."""


def _braille(dots: int) -> str:
    """Unicode counts the dots of a cell by columns, but the lowest row after all others."""
    bits = (0, 1, 2, 6, 3, 4, 5, 7)
    return chr(0x2800 + sum(1 << bits[place] for place in range(8) if dots >> place & 1))


_STYLES = {
    "braille": Style(2, 4, "".join(map(_braille, range(256)))),
    "half": Style(1, 2, " ▀▄█"),
    "ascii": Style(1, 3, " '-'.:.|"),
}
_FAR = 1e9
"""Dots away from the canvas at which a place is as good as any further one."""


_Ends = tuple[float, float, float, float]
"""Of a line: x, y of its first point and of its last one."""


def style_named(name: str) -> Style:
    """The style of that name. Raises ValueError for another than braille, half and ascii."""
    if name not in _STYLES:
        raise ValueError(f"style {name!r}: one of {', '.join(_STYLES)}")
    return _STYLES[name]


class Canvas:
    """Dots of several series; (0, 0) is the top left one. What lies outside is cut off, to the dot."""

    def __init__(self, columns: int, rows: int, style: str = "braille") -> None:
        """A canvas of that many cells, both at least 0."""
        self._style = style_named(style)
        self.columns, self.rows = columns, rows
        self.width, self.height = columns * self._style.across, rows * self._style.down
        # A series' dots of a column are the bits of one number, the top one lowest: long runs cost no more than short ones.
        self._layers: dict[tuple[int, bool], list[int]] = {}

    def vertical(self, series: int, x: int, first: float, last: float, *, bright: bool = True) -> None:
        """Set the dots of column `x` from `first` down to `last`, rounded; the part of it that is on the canvas."""
        if not 0 <= x < self.width or first >= self.height or last < -0.5:
            return
        top = int(first + 0.5) if first > 0 else 0
        bottom = int(last + 0.5) if last < self.height - 1 else self.height - 1
        layer = self._layers.get((series, bright))
        if layer is None:
            layer = self._layers[series, bright] = [0] * self.width
        layer[x] |= (1 << bottom + 1) - (1 << top) if top <= bottom else 0

    def join(self, series: int, x: int, before: float, at: float, *, bright: bool = True) -> None:
        """Connect row `before` of column `x - 1` with row `at` of column `x`: `line` for neighbours, several times faster."""
        start, stop = math.floor(min(max(before, -_FAR), _FAR) + 0.5), math.floor(min(max(at, -_FAR), _FAR) + 0.5)
        middle = (start + stop) // 2
        if start <= stop:
            self.vertical(series, x - 1, start, max(middle, start), bright=bright)
            self.vertical(series, x, min(middle + 1, stop), stop, bright=bright)
        else:
            self.vertical(series, x - 1, min(middle + 1, start), start, bright=bright)
            self.vertical(series, x, stop, max(middle, stop), bright=bright)

    def line(self, series: int, x0: float, y0: float, x1: float, y1: float, *, bright: bool = True) -> None:
        """Set the dots of a straight line, without holes, however far outside its ends are."""
        x0, y0, x1, y1 = (min(max(at, -_FAR), _FAR) for at in (x0, y0, x1, y1))
        ends = _clipped((x0, y0, x1, y1), self.width, self.height)
        if ends is None:
            return
        x0, y0, x1, y1 = ends if ends[0] <= ends[2] else (*ends[2:], *ends[:2])
        first, last = math.floor(x0 + 0.5), math.floor(x1 + 0.5)
        slope = (y1 - y0) / (x1 - x0) if x1 > x0 else 0.0
        if abs(slope) <= 1 and last > first:
            for x in range(first, last + 1):
                y = y0 + (min(max(x, x0), x1) - x0) * slope
                self.vertical(series, x, y, y, bright=bright)
            return
        # Each column has what the line passes in its width; neighbours meet in rows beside each other.
        begin = math.floor(y0 + 0.5)
        for x in range(first, last + 1):
            end = math.floor((y0 + (x + 0.5 - x0) * slope if x < last else y1) + 0.5)
            self.vertical(series, x, min(begin, end), max(begin, end), bright=bright)
            begin = end

    def cells(self) -> dict[tuple[int, int], Cell]:
        """(row, column) -> the character there, of all cells that have dots.

        The series with most dots gives its colour, the later one of two with as many. Bright dots stand out by
        hiding the others of their cell.
        """
        cells: dict[tuple[int, int], Cell] = {}
        for level in (False, True):
            layers = [(series, layer) for (series, bright), layer in self._layers.items() if bright is level]
            for column in range(self.columns):
                x = column * self._style.across
                parts = [(series, layer[x : x + self._style.across]) for series, layer in layers]
                self._fill(cells, column, [part for part in parts if any(part[1])], level=level)
        return cells

    def _fill(
        self, cells: dict[tuple[int, int], Cell], column: int, parts: list[tuple[int, list[int]]], *, level: bool
    ) -> None:
        """Put the cells of one column: `parts` are the series that have dots there, and these, in the order of drawing."""
        chars, down = self._style.chars, self._style.down
        full, shift = (1 << down) - 1, down if self._style.across == 2 else 0
        dots = 0
        for _, bits in parts:
            dots |= bits[0] | bits[-1]
        if not dots:
            return
        rows = range(((dots & -dots).bit_length() - 1) // down, (dots.bit_length() - 1) // down + 1)
        masks = [
            (series, [(bits[0] >> row * down & full) | (bits[-1] >> row * down & full) << shift for row in rows])
            for series, bits in parts
        ]
        if len(masks) == 1:
            series, own = masks[0]
            for row, mask in zip(rows, own, strict=True):
                if mask:
                    cells[row, column] = Cell(chars[mask], series, level)
            return
        for at, row in enumerate(rows):
            union, winner, most = 0, 0, 0
            for series, own in masks:
                mask = own[at]
                union |= mask
                if mask and mask.bit_count() >= most:
                    winner, most = series, mask.bit_count()
            if union:
                cells[row, column] = Cell(chars[union], winner, level)


def _clipped(ends: _Ends, width: int, height: int) -> _Ends | None:
    """The part of a line that rounds to dots of the canvas (after Liang and Barsky, 1984); None if there is none."""
    x0, y0, x1, y1 = ends
    dx, dy = x1 - x0, y1 - y0
    enter, leave = 0.0, 1.0
    # Dots are half a dot wide to either side; the far edge belongs to the next dot.
    for delta, before, after in ((dx, x0 + 0.5, width - 0.5 - x0), (dy, y0 + 0.5, height - 0.5 - y0)):
        for speed, room in ((-delta, before), (delta, after)):
            if speed == 0:
                if room < 0:
                    return None
            elif speed < 0:
                enter = max(enter, room / speed)
            else:
                leave = min(leave, room / speed)
    if enter > leave:
        return None
    return x0 + enter * dx, y0 + enter * dy, x0 + leave * dx, y0 + leave * dy
