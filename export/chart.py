"""Series as a line chart: SVG text that is complete by itself, and small however long the series are."""

from __future__ import annotations

import math
from collections.abc import Sequence

from .chart_axis import Axis, place, range_axis, short, value_axis
from .chart_points import Series, Thinned, finite_range, ordered, thinned
from .chart_style import CHART_CSS, COLOURS
from .markup import text

__all__ = ["Series", "line_chart"]

Ranges = Sequence[tuple[float, float]]

_TOP, _BOTTOM, _RIGHT = 12, 34, 16  # pixels around the plot; on its left is as much as the labels need
_DIGIT = 6.3  # pixels of a character of a label
_FEW = 12  # whole numbers that may get ticks between them
_HOVER = 60  # series of so few points have a dot with its values for each
_SIGNS = {"nan": "NaN", "inf": "Infinity", "-inf": "-Infinity"}


def line_chart(
    series: Sequence[Series],
    *,
    title: str,
    x_label: str = "step",
    unit: str = "",
    colours: Sequence[int] = (),
    lost: Ranges = (),
    x_range: tuple[float, float] | None = None,
    may_be_log: bool = True,
    from_zero: bool = False,
    standalone: bool = False,
    width: int = 420,
    height: int = 190,
) -> str:
    """An `<svg>` of up to any number of series over one pair of axes, each in a colour and, from the seventh on, dashes.

    No point's value is changed, and of each column of pixels the first, least, greatest and last one are drawn. The value
    axis is logarithmic, and says so, where all values are above 0 and the largest is over a thousand times the smallest.
    NaN and infinities end the line and get a mark at the edge.

    Args:
        series: what is drawn; places need not be ascending.
        title: what the chart is called; shown only if `standalone`, else told to who cannot see it.
        x_label: what the places are.
        unit: of the values.
        colours: numbers of the series' colours; those of their places by default.
        lost: ranges of places within which values may have been lost, ascending: shaded, and no line crosses them.
        x_range: the places shown; all that the series have by default.
        may_be_log: whether the value axis may be logarithmic.
        from_zero: whether the value axis has room for zero, whatever the values are.
        standalone: bring style, title and legend along, for a file of its own.
        width: pixels.
        height: pixels, without the legend.
    """
    ready = [ordered(one) for one in series]
    values = finite_range(ready)
    left_out = () if values else ("no finite value",)
    top = _TOP + (20 if standalone else 0)
    shown = (*values, 0.0) if values and from_zero else values or ()
    y_axis = value_axis(shown, height - top - _BOTTOM, may_be_log=may_be_log)
    y_ticks = [tick for tick in y_axis.ticks(4) if y_axis.low <= tick[0] <= y_axis.high] if values else []
    left = 14 + round(_DIGIT * max((len(name) for _, name in y_ticks), default=1))
    x_axis = _places(ready, x_range, width - left - _RIGHT)
    frame = _Frame(left, top, x_axis, y_axis)

    parts = [_shaded(frame, lost), _grid(frame, y_ticks), _x_ticks(frame, x_label)]
    numbers = colours or range(len(ready))
    for number, one in zip(numbers, ready, strict=True):
        parts.append(_curve(frame, one, number, thinned(one, x_axis.low, x_axis.high, round(x_axis.pixels), lost)))
    if y_axis.is_log:
        parts.append(f'<text x="2" y="{top + y_axis.pixels + 29:g}">log scale</text>')
    parts += [
        f'<text class="note" x="{left + x_axis.pixels / 2:g}" y="{top + y_axis.pixels / 2:g}" text-anchor="middle">'
        f"{text(note)}</text>"
        for note in left_out
    ]
    total = height
    if standalone:
        name = f"{title} ({unit})" if unit else title
        parts.append(f'<text class="name" x="{left}" y="18">{text(name, 80)}</text>')
        if len(ready) > 1:
            parts.append(_legend(ready, numbers, left, height))
            total += 18 * len(ready) + 4
    described = "".join(parts)
    style = f"<style>{CHART_CSS}</style>" if standalone else ""
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" class="chart" viewBox="0 0 {width} {total}" role="img" '
        f'aria-label="{text(_spoken(title, unit, x_label, ready, values), 1000)}">{style}{described}</svg>'
    )


class _Frame:
    """Where things stand in the picture."""

    def __init__(self, left: float, top: float, x_axis: Axis, y_axis: Axis) -> None:
        self.left, self.top = left, top
        self.right, self.bottom = left + x_axis.pixels, top + y_axis.pixels
        self.x_axis, self.y_axis = x_axis, y_axis

    def x(self, at: float) -> float:
        return self.left + min(max(self.x_axis.place(at), 0.0), self.x_axis.pixels)

    def y(self, value: float) -> float:
        return self.bottom - self.y_axis.place(value)


def _places(series: Sequence[Series], given: tuple[float, float] | None, pixels: float) -> Axis:
    if given is not None:
        return range_axis(*given, pixels)
    ends = [end for one in series if len(one.x) for end in (one.x[0], one.x[-1])]
    low, high = float(min(ends, default=0)), float(max(ends, default=1))
    # Of long ranges no tick has a fraction anyhow.
    is_whole = high - low < _FEW and all(float(at).is_integer() for one in series for at in one.x)
    return range_axis(low, high, pixels, is_whole=is_whole)


def _shaded(frame: _Frame, lost: Ranges) -> str:
    """Bands over what was lost. One that is narrower than two pixels is drawn so wide."""
    bands: list[tuple[float, float]] = []
    for low, high in lost:
        if high < frame.x_axis.low or low > frame.x_axis.high:
            continue
        if bands and frame.x(low) - frame.x(bands[-1][1]) < 1:
            bands[-1] = (bands[-1][0], max(high, bands[-1][1]))
        else:
            bands.append((low, high))
    return "".join(
        f'<rect class="lost" x="{frame.x(low):.1f}" y="{frame.top}" width="{max(frame.x(high) - frame.x(low), 2):.1f}" '
        f'height="{frame.y_axis.pixels:g}"><title>the log is damaged between {place(low)} and {place(high)}</title></rect>'
        for low, high in bands
    )


def _grid(frame: _Frame, ticks: Sequence[tuple[float, str]]) -> str:
    lines = "".join(f"M{frame.left} {frame.y(value):.1f}H{frame.right:g}" for value, _ in ticks)
    labels = "".join(
        f'<text x="{frame.left - 6}" y="{frame.y(value) + 4:.1f}" text-anchor="end">{name}</text>'
        for value, name in ticks
    )
    axis = f"M{frame.left} {frame.bottom:g}H{frame.right:g}"
    return (
        f'<path class="grid" d="{lines}"/><path class="axis" d="{axis}"/>{labels}'
        if lines
        else (f'<path class="axis" d="{axis}"/>')
    )


def _x_ticks(frame: _Frame, name: str) -> str:
    ticks = [tick for tick in frame.x_axis.ticks(6) if frame.x_axis.low <= tick[0] <= frame.x_axis.high]
    labels = []
    for value, shown in ticks:
        half = len(shown) * _DIGIT / 2
        at = min(frame.x(value), frame.right + _RIGHT - half)
        labels.append(f'<text x="{at:.1f}" y="{frame.bottom + 15:g}" text-anchor="middle">{shown}</text>')
    marks = "".join(f"M{frame.x(value):.1f} {frame.bottom:g}v4" for value, _ in ticks)
    middle = (frame.left + frame.right) / 2
    return (
        f'<path class="axis" d="{marks}"/>{"".join(labels)}'
        f'<text class="note" x="{middle:g}" y="{frame.bottom + 29:g}" text-anchor="middle">{text(name, 60)}</text>'
    )


def _curve(frame: _Frame, series: Series, number: int, drawn: Thinned) -> str:
    colour = f"c{number % COLOURS} d{number // COLOURS % 3}"
    lines, dots = [], []
    for line in drawn.lines:
        points = [f"{_number(frame.x(x))} {_number(frame.y(y))}" for x, y in line]
        if len(points) == 1:
            dots.append(f"M{points[0]}h0")
        else:
            lines.append("M" + " ".join(points))
    parts = [f'<path class="{colour}" d="{"".join(lines)}"/>'] if lines else []
    if len(series.x) <= _HOVER:
        parts += [
            f'<circle class="{colour}" cx="{frame.x(x):.1f}" cy="{frame.y(y):.1f}" r="2.5">'
            f"<title>{place(x)}: {short(y)}</title></circle>"
            for line in drawn.lines
            for x, y in line
        ]
    elif dots:
        parts.append(f'<path class="dots {colour}" d="{"".join(dots)}"/>')
    return "".join(parts) + _odd(frame, drawn, colour)


def _odd(frame: _Frame, drawn: Thinned, colour: str) -> str:
    """Marks of values that are no numbers: a triangle at the lower edge, for Infinity at the upper one."""
    places: dict[str, list[float]] = {}
    for x, value in drawn.odd:
        places.setdefault(str(value), []).append(x)
    parts = []
    for kind, found in places.items():
        edge, tip = (frame.top, 7) if kind == "inf" else (frame.bottom, -7)
        marks = "".join(f"M{_number(frame.x(x) - 4)} {edge:g}h8l-4 {tip}z" for x in found)
        first = f"{_SIGNS[kind]} at {place(found[0])}" + (f" and {len(found) - 1} more places" if found[1:] else "")
        parts.append(f'<path class="odd {colour}" d="{marks}"><title>{first}</title></path>')
    return "".join(parts)


def _legend(series: Sequence[Series], numbers: Sequence[int], left: float, top: float) -> str:
    return "".join(
        f'<path class="c{number % COLOURS} d{number // COLOURS % 3}" d="M{left} {top + 18 * line + 4:g}h24"/>'
        f'<text x="{left + 30}" y="{top + 18 * line + 8:g}">{text(one.name, 80)}</text>'
        for line, (number, one) in enumerate(zip(numbers, series, strict=True))
    )


def _number(value: float) -> str:
    return f"{value:.1f}".removesuffix(".0")


def _spoken(title: str, unit: str, x_label: str, series: Sequence[Series], values: tuple[float, float] | None) -> str:
    """The chart in a sentence."""
    count = sum(len(one.y) for one in series)
    odd = count - sum(sum(map(math.isfinite, one.y)) for one in series)
    spoken = f"{title}: {count:,} values by {x_label}"
    if values:
        spoken += f", from {short(values[0])} to {short(values[1])}{f' {unit}' if unit else ''}"
    return f"{spoken}, {odd:,} of them no finite numbers" if odd else spoken
