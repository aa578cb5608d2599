"""Small marks: the signs of series, what is not finite, and sparklines."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Sequence

from .canvas import BLANK, Cell, style_named
from .curves import Curve
from .scale import Scale, widened
from .trace import Plot

SIGNS = "ox+*#@%&"
"""Letters that tell series apart without colours."""
_STEPS = "▁▂▃▄▅▆▇█"
_ASCII_STEPS = "_.-'"
_NAMES = {"nan": "NaN", "inf": "Inf", "-inf": "-Inf"}
_ODD_CHARS = {"nan": "×", "inf": "↑", "-inf": "↓"}  # noqa: RUF001 - the cross of a mark, not a letter
_ASCII_ODD_CHARS = {"nan": "N", "inf": "^", "-inf": "v"}
_COUNTED = 10_000
"""So many odd values are told apart by kind; more are only counted."""


def sign(series: int) -> str:
    """The letter of a series."""
    return SIGNS[series % len(SIGNS)]


def odd_text(curves: Sequence[Curve], x0: float, x1: float) -> str:
    """How many values of these curves between x0 and x1 are not finite: `2 NaN 1 Inf`; empty for none."""
    found = [(curve.odd, *_odd_slice(curve, x0, x1)) for curve in curves]
    total = sum(stop - start for _, start, stop in found)
    if total > _COUNTED:
        return f"{total:,} not finite"
    counts = dict.fromkeys(_NAMES, 0)
    for odd, start, stop in found:
        for _, kind in odd[start:stop]:
            counts[kind] += 1
    return " ".join(f"{count:,} {_NAMES[kind]}" for kind, count in counts.items() if count)


def odd_marks(curve: Curve, x: Scale, columns: int, *, ascii_only: bool) -> dict[int, Cell]:
    """Column -> the mark of what is not finite there; NaN, where several kinds share a column."""
    chars = _ASCII_ODD_CHARS if ascii_only else _ODD_CHARS
    marks: dict[int, Cell] = {}
    start, stop = _odd_slice(curve, x.low, x.high)
    # Of crowds, some of each column are looked at: the cost is that of the chart, not of the log.
    for at in range(start, stop, max((stop - start) // _COUNTED, 1)):
        place, kind = curve.odd[at]
        column = x.column(place, columns)
        if column not in marks or kind == "nan":
            marks[column] = Cell(chars[kind], "mark")
    return marks


def _odd_slice(curve: Curve, x0: float, x1: float) -> tuple[int, int]:
    return bisect_left(curve.odd, (x0, "")), bisect_right(curve.odd, (x1, "~"))


def put_signs(cells: Plot, first: int, *, everywhere: bool) -> None:
    """Put the letters of series from `first` on on their cells: on all, or in every twelfth column, each in another one."""
    if everywhere:
        for at, cell in cells.items():
            if isinstance(cell.colour, int) and cell.colour >= first:
                cells[at] = cell._replace(char=sign(cell.colour))
        return
    rows: dict[tuple[int, int], list[int]] = {}
    for (row, column), cell in cells.items():
        if (
            isinstance(cell.colour, int)
            and cell.colour >= first
            and cell.bright
            and (column - 3 * cell.colour) % 12 == 1
        ):
            rows.setdefault((cell.colour, column), []).append(row)
    for (series, column), found in rows.items():
        cells[sorted(found)[len(found) // 2], column] = Cell(sign(series), series)


def spark(
    curve: Curve, width: int, *, style: str = "braille", x: tuple[float, float] | None = None, series: int = 0
) -> list[Cell]:
    """A curve in one row of exactly `width` columns: the last value of each, its lowest and highest point never lost.

    Raises ValueError for a style that is none.
    """
    style_named(style)
    width = max(width, 0)
    x0, x1 = x or ((curve.x[0], curve.x[-1]) if len(curve.x) else (0.0, 1.0))
    x0, x1 = widened(x0, x1, by=1e-3)
    extent = curve.range(x0, x1)
    if not width or extent is None:
        return [BLANK] * width
    lowest, highest = extent
    steps = _ASCII_STEPS if style == "ascii" else _STEPS
    scale = Scale(*widened(lowest, highest, by=0.1))
    cells = [BLANK] * width
    for place, column in enumerate(curve.columns(x0, x1, width)):
        if column is not None:
            _, low, high, last = column
            value = high if high == highest else low if low == lowest else last
            cells[place] = Cell(steps[scale.column(value, len(steps))], series)
    return cells
