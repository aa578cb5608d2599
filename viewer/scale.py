"""Ticks of the axes of a chart in a terminal, and the places of values in dots and cells."""

from __future__ import annotations

import datetime as dt
import math
import sys

from ..export.chart_axis import Axis, label

_TIME_STEPS = (
    *(1, 2, 5, 10, 15, 30),
    *(60 * minutes for minutes in (1, 2, 5, 10, 15, 30)),
    *(3600 * hours for hours in (1, 2, 3, 6, 12)),
)
"""Seconds between ticks, below a day."""
_DAY = 86400
_FAR = 1e9
_FINEST = 1e-12
"""The smallest span of an axis as a part of its values: doubles and labels tell no finer ticks apart."""
_LARGEST = sys.float_info.max

X_KINDS = ("number", "step", "relative", "wall")
"""What x is: any number, whole numbers, seconds since the start, or seconds since 1970."""


class Scale:
    """A range of values over which something is laid out, evenly or by powers of ten."""

    def __init__(self, low: float, high: float, *, is_log: bool = False) -> None:
        """`low` < `high`; of a logarithmic scale, above 0."""
        self.low, self.high, self.is_log = low, high, is_log
        self._axis = Axis(low, high, 1.0, is_log=is_log)

    def fraction(self, value: float) -> float:
        """0 at the low end, 1 at the high end; beyond them as far as 1e9, for every finite value."""
        if self.is_log and value <= 0:
            return -_FAR
        return min(max(self._axis.place(value), -_FAR), _FAR)

    def column(self, value: float, columns: int) -> int:
        """Which of so many equal parts a value of the range lies in; the high end is in the last one."""
        return min(max(math.floor(self.fraction(value) * columns), 0), columns - 1)


def widened(low: float, high: float, *, by: float, is_log: bool = False) -> tuple[float, float]:
    """The range itself, or one around it where it has no length: `by` of its size to either side."""
    least = max(abs(low), abs(high)) * _FINEST
    if high / 4 - low / 4 > least / 4:
        return low, high
    if is_log:
        return max(low / 2, 5e-324), min(high * 2, _LARGEST)
    air = max(abs(low), abs(high)) * by or 1.0
    return max(low - air, -_LARGEST), min(high + air, _LARGEST)


def value_ticks(scale: Scale, most: int) -> list[tuple[float, str]]:
    """Ticks in the range, at most `most` of 1 and up: at 1, 2 or 5 times a power of ten, of a logarithmic scale at powers.

    Where these would be fewer than two, finer ones are taken.
    """
    found: list[tuple[float, str]] = []
    axes = [Axis(scale.low, scale.high, 1.0, is_log=scale.is_log), Axis(scale.low, scale.high, 1.0)]
    for axis in axes[0 if scale.is_log else 1 :]:
        for count in range(max(most // 2, 1), most + 2):
            ticks = [(value, text) for value, text in axis.ticks(count) if scale.low <= value <= scale.high]
            if len(ticks) > (most if len(found) >= 2 else most + 2):
                break
            if len(ticks) > len(found):
                found = ticks
        if len(found) >= 2:
            break
    return found


def x_ticks(scale: Scale, count: int, kind: str, zone: dt.tzinfo | None) -> list[tuple[float, str]]:
    """At most about `count` ticks of an x axis; `zone` is that of wall clocks (None: where the reader is).

    Raises ValueError for a kind that is none.
    """
    if kind not in X_KINDS:
        raise ValueError(f"x axis {kind!r}: one of {', '.join(X_KINDS)}")
    numbers = Axis(scale.low, scale.high, 1.0, is_whole=kind == "step")
    if kind in {"number", "step"}:
        return numbers.ticks(count)
    least = (scale.high - scale.low) / count
    step = _time_step(least)
    if kind == "relative":
        if step is None:
            return [(value, f"{text}s" if text != "0" else text) for value, text in numbers.ticks(count)]
        return [(value, duration(value)) for value in _multiples(scale, step, 0.0)]
    if step is None and least > 1:
        return numbers.ticks(count)
    try:
        start = dt.datetime.fromtimestamp(scale.low, zone).astimezone(zone)
        offset = start.utcoffset()
        assert offset is not None  # noqa: S101 - astimezone gives aware times only
        return _wall_ticks(scale, step or 1.0, offset.total_seconds(), zone)
    except (OverflowError, OSError, ValueError):  # no date of the calendar
        return numbers.ticks(count)


def _time_step(least: float) -> float | None:
    """The seconds between ticks that are at least so many apart; None for less than a second, or no time at all."""
    if not 0.5 < least < 1e12:
        return None
    for step in _TIME_STEPS:
        if step >= least:
            return float(step)
    days = least / _DAY
    power = 10.0 ** math.floor(math.log10(max(days, 1.0)))
    return next(factor * power for factor in (1, 2, 5, 10) if factor * power >= days) * _DAY


def _multiples(scale: Scale, step: float, offset: float) -> list[float]:
    first = math.ceil((scale.low + offset) / step - 1e-9)
    last = math.floor((scale.high + offset) / step + 1e-9)
    return [n * step - offset for n in range(first, min(last, first + 1000) + 1)]


def _wall_ticks(scale: Scale, step: float, offset: float, zone: dt.tzinfo | None) -> list[tuple[float, str]]:
    """Ticks at round times of that zone; the first one and those at midnight tell the day."""
    ticks, day = [], None
    for value in _multiples(scale, step, offset):
        moment = dt.datetime.fromtimestamp(value, zone)
        text = moment.strftime("%H:%M" if step >= 60 else "%H:%M:%S")
        if step >= _DAY or (day is not None and moment.date() != day and moment.hour == 0 and moment.minute == 0):
            text = moment.strftime("%b %d" if step < 300 * _DAY else "%b %Y")
        elif day is None:
            text = moment.strftime("%b %d ") + text
        day = moment.date()
        ticks.append((value, text))
    return ticks


def duration(seconds: float) -> str:
    """A time for people, by its two largest units: 1h30m, 2d, 45s, 1.5s. Long ones as a number of days."""
    sign, left = ("-" if seconds < 0 else ""), abs(seconds)
    if left < 60:
        return f"{sign}{left:.3g}s" if left else "0"
    if left >= 1000 * _DAY:
        days = left / _DAY
        return f"{sign}{round(days)}d" if days < 1e6 else f"{sign}{label(days)}d"
    whole = round(left)
    units = [("d", whole // _DAY), ("h", whole // 3600 % 24), ("m", whole // 60 % 60), ("s", whole % 60)]
    first = next(number for number, (_, amount) in enumerate(units) if amount)
    return sign + "".join(f"{amount}{unit}" for unit, amount in units[first : first + 2] if amount)


def x_place(value: float, kind: str, zone: dt.tzinfo | None) -> str:
    """A place on an x axis for people, with all that tells it from its neighbours."""
    if kind == "relative":
        return duration(value)
    if kind == "wall":
        try:
            return dt.datetime.fromtimestamp(value, zone).strftime("%b %d %H:%M:%S")
        except (OverflowError, OSError, ValueError):
            pass
    return f"{int(value):,}" if value.is_integer() and abs(value) < 1e15 else f"{value:.6g}"
