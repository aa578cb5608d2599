"""Curves as characters: a chart for a terminal of any size, at a cost that depends on its size alone."""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterable, Sequence

from ..export.chart_axis import short
from ..export.chart_style import COLOURS
from .canvas import Canvas, Cell, style_named
from .curves import Curve
from .frame import Entry, Grid, Surround, legend_rows, write
from .marks import odd_marks, odd_text, put_signs, sign
from .scale import Scale, widened
from .trace import Plot, View, shade_gaps, trace

__all__ = ["GUIDES", "Cell", "draw"]

GUIDES = ("off", "dots", "lines")
_ROBUST = 0.01
"""The part of the points at either end that a robust range leaves out."""


def draw(
    curves: Sequence[tuple[Curve, str]],
    width: int,
    height: int,
    *,
    title: str = "",
    x: tuple[float, float] | None = None,
    y: tuple[float, float] | None = None,
    log_y: bool = False,
    style: str = "braille",
    x_kind: str = "step",
    zone: dt.tzinfo | None = None,
    cursor: float | None = None,
    band: bool = False,
    smoothed: Sequence[Curve] = (),
    robust: bool = False,
    guides: str = "off",
    signs: bool = False,
    series: Sequence[int] = (),
) -> Grid:
    """A chart of exactly `height` rows of `width` columns; parts without room are left out, the legend first.

    Args:
        curves: what is drawn, later ones above earlier ones, with their names.
        width: in columns.
        height: in rows.
        title: stands above; without one, the name of the only curve.
        x: the range that is shown; without one, all of it.
        y: likewise; without one, that of the points in the range of x. Points beyond are marked at the edge.
        log_y: by powers of ten; points at or below zero are marked at the lower edge.
        style: braille (2 by 4 dots a cell), half (1 by 2) or ascii.
        x_kind: what x is: step, number, relative (seconds) or wall (seconds since 1970).
        zone: the zone of wall clocks; None is that of the reader.
        cursor: an x to be marked; values are then those of the points nearest to it, not the last ones.
        band: lowest to highest of each column dim, under the last value of each.
        smoothed: a curve for each of `curves` that is drawn bright, and they dim.
        robust: the range of y leaves out the most extreme points, one in a hundred at either end.
        guides: off, dots or lines, at the ticks of y.
        signs: tell series apart by letters; without, those alone whose colour another one has.
        series: the number of each curve, which is its colour; without them, its place.

    Raises:
        ValueError: of a style, kind of x or guide that is none.
    """
    dots = style_named(style)
    if guides not in GUIDES:
        raise ValueError(f"guides {guides!r}: one of {', '.join(GUIDES)}")
    width, height, ascii_only = max(width, 0), max(height, 0), style == "ascii"
    numbers = [series[place] if place < len(series) else place for place in range(len(curves))]
    drawn = [curve for curve, _ in curves]
    x_scale = Scale(*widened(*(x or _x_range(drawn)), by=1e-3))
    y_scale = _y_scale([*drawn, *smoothed], x_scale, y, log_y=log_y, robust=robust)

    # Colours begin anew behind the last one: from there on, letters tell which is which.
    first_sign = 0 if signs or ascii_only else COLOURS
    entries = [
        Entry(number, sign(number) if number >= first_sign else "━", name, _read_out(curve, smooth, cursor))
        for (curve, name), smooth, number in zip(curves, [*smoothed, *[None] * len(curves)], numbers)  # noqa: B905 - padded
    ]
    wanted = legend_rows(entries, width, height, ascii_only=ascii_only) if len(curves) > 1 else []
    surround = Surround(
        width,
        height,
        y_scale,
        x_scale,
        x_kind=x_kind,
        zone=zone,
        ascii_only=ascii_only,
        legends=len(wanted),
        dots=dots.down,
        cursor=cursor,
    )
    grid, layout = surround.grid, surround.layout
    for number, cells in enumerate(legend_rows(entries, width, layout.legends, ascii_only=ascii_only)):
        write(grid, height - layout.legends + number, 0, cells)
    heading: list[tuple[str, int | str]] = [(title or " ".join(name for _, name in curves[:1]), "title")]
    if len(entries) == 1 and len(drawn[0]):
        heading.append((entries[0].value, numbers[0]))
    surround.title(heading, odd_text(drawn, x_scale.low, x_scale.high))
    if layout.columns < 1 or layout.rows < 1:
        return grid

    view = View(Canvas(layout.columns, layout.rows, style), x_scale, y_scale)
    plot: Plot = {}
    _lay_guides(plot, layout.columns, surround.tick_rows, guides, ascii_only=ascii_only)
    shade_gaps(plot, view, drawn, "/" if ascii_only else "░")
    if surround.cursor is not None:
        plot.update({(row, surround.cursor): Cell("|" if ascii_only else "│", "cursor") for row in range(layout.rows)})
    for place, (curve, number) in enumerate(zip(drawn, numbers, strict=True)):
        ghost = place < len(smoothed)
        trace(view, number, curve, bright=not ghost, band=band and not ghost)
        if ghost:
            trace(view, number, smoothed[place])
    cells_drawn = view.canvas.cells()
    if len(curves) > 1:
        put_signs(cells_drawn, first_sign, everywhere=ascii_only)
    plot.update(cells_drawn)
    _mark_ends(plot, view, ascii_only=ascii_only)
    for (row, column), cell in plot.items():
        grid[layout.titles + row][layout.left + column] = cell
    if layout.axes:
        for curve in drawn:
            for column, cell in odd_marks(curve, x_scale, layout.columns, ascii_only=ascii_only).items():
                grid[layout.titles + layout.rows][layout.left + column] = cell
    if not cells_drawn and not view.beyond:
        surround.say("no points here" if any(len(curve) for curve in drawn) else "no points")
    return grid


def _x_range(curves: Sequence[Curve]) -> tuple[float, float]:
    """From the first to the last thing that is known of any curve."""
    places: list[float] = []
    for curve in curves:
        places += [curve.x[0], curve.x[-1]] if len(curve.x) else []
        places += [curve.odd[0][0], curve.odd[-1][0]] if curve.odd else []
    return min(places, default=0.0), max(places, default=1.0)


def _y_scale(
    curves: Sequence[Curve], x: Scale, given: tuple[float, float] | None, *, log_y: bool, robust: bool
) -> Scale:
    """What was asked for, or room for the points in view; 0 to 1 if there are none. Linear where nothing is above 0."""
    ranges = [given] if given else []
    if not given:
        for curve in curves:
            found = curve.robust_range(x.low, x.high, _ROBUST) if robust else curve.range(x.low, x.high)
            ranges += [found] if found else []
    low, high = min((low for low, _ in ranges), default=0.0), max((high for _, high in ranges), default=1.0)
    if log_y and low <= 0 < high:
        low = _lowest_above_zero(curves, x, high)
    is_log = log_y and low > 0
    return Scale(*widened(low, high, by=0.1, is_log=is_log), is_log=is_log)


def _lowest_above_zero(curves: Sequence[Curve], x: Scale, default: float) -> float:
    """Of the columns of a wide chart: finer than that, what stands beside a zero or less is not looked for."""
    columns = (column for curve in curves for column in curve.columns(x.low, x.high, 256) if column is not None)
    return min((value for column in columns for value in column[1:] if 0 < value <= default), default=default)


def _read_out(curve: Curve, smooth: Curve | None, cursor: float | None) -> str:
    """The value at the cursor, or the last one; the smoothed one in brackets."""
    values = []
    for one in (curve, smooth):
        if one is not None and len(one):
            point = None if cursor is None else one.nearest(cursor)
            values.append(short(one.y[-1] if point is None else point[1]))
    return f"{values[0]} ({values[1]})" if len(values) == 2 else values[0] if values else "no points"


def _lay_guides(plot: Plot, columns: int, rows: Iterable[int], guides: str, *, ascii_only: bool) -> None:
    """Put lines, or dots in every fourth column, into the rows of ticks."""
    if guides == "off":
        return
    char = ("-" if ascii_only else "─") if guides == "lines" else ("." if ascii_only else "·")
    for row in rows:
        for column in range(0, columns, 1 if guides == "lines" else 4):
            plot[row, column] = Cell(char, "guide", bright=False)


def _mark_ends(plot: Plot, view: View, *, ascii_only: bool) -> None:
    """Put marks where points are beyond the edges, and where a point stands alone."""
    for (above, column), series in view.beyond.items():
        char = ("^" if above else "v") if ascii_only else ("▲" if above else "▼")
        plot[0 if above else view.canvas.rows - 1, column] = Cell(char, series, bright=False)
    for at, series in view.lone.items():
        plot[at] = Cell("o" if ascii_only else "●", series)
