"""Axes of charts: which range is shown, where the ticks stand and what they are called, for any doubles whatever."""

from __future__ import annotations

import math
import sys
from collections.abc import Iterable
from dataclasses import dataclass

_QUARTER = 0.25
"""Doubles of a quarter of their size can be subtracted and padded without becoming infinite."""
_FINEST = 1e-12
"""The smallest span, as a part of the largest value, in which doubles and labels tell ticks apart."""
_LARGEST = sys.float_info.max
_PREFIXES = ((1e12, "T"), (1e9, "G"), (1e6, "M"), (1e3, "k"))


@dataclass(frozen=True, slots=True)
class Axis:
    """A range of values, low < high, along so many pixels; `is_log` lays it out by powers of ten (low > 0)."""

    low: float
    high: float
    pixels: float
    is_log: bool = False
    is_whole: bool = False
    """Only whole numbers stand on it, such as steps: so do ticks."""

    def place(self, value: float) -> float:
        """Pixels from the low end; finite for every finite value (of a logarithmic axis: above 0)."""
        if self.is_log:
            low, high, at = math.log10(self.low), math.log10(self.high), math.log10(value)
        else:
            low, high, at = self.low * _QUARTER, self.high * _QUARTER, value * _QUARTER
        # Subnormal numbers have no quarters that differ; they are enlarged instead.
        if high - low < 1e-290:
            low, high, at = (number * 1e290 for number in (self.low, self.high, value))
        return (at - low) / (high - low) * self.pixels

    def ticks(self, count: int) -> list[tuple[float, str]]:
        """At most about `count` round values of the range with their labels, at distances of 1, 2 or 5 times a power of ten."""
        if self.is_log:
            return self._powers(count)
        step = _round_step(self.low, self.high, count)
        if self.is_whole:
            step = max(step, 1.0)
        if not step:
            return [(self.low, label(self.low)), (self.high, label(self.high))]
        first, last = math.ceil(self.low / step - 1e-9), math.floor(self.high / step + 1e-9)
        values = [n * step for n in range(first, min(last, first + 3 * count) + 1)]
        return [(value, label(value, step)) for value in values if math.isfinite(value)]

    def _powers(self, count: int) -> list[tuple[float, str]]:
        first = math.ceil(math.log10(self.low) - 1e-9)
        last = math.floor(math.log10(self.high) + 1e-9)
        stride = max(1, math.ceil((last - first + 1) / count))
        exponents = range(first, last + 1, stride)
        values = [float(f"1e{exponent}") for exponent in exponents]
        return [(value, label(value)) for value in values if 0 < value <= self.high * (1 + 1e-9)]


def value_axis(values: Iterable[float], pixels: float, *, may_be_log: bool = True) -> Axis:
    """An axis on which all of these finite values have room, with a little air; 0 to 1 if there are none.

    It is logarithmic where all are above 0 and the largest is more than a thousand times the smallest.
    """
    known = list(values)
    low, high = min(known, default=0.0), max(known, default=1.0)
    if may_be_log and low > 0 and high * _QUARTER > low * 1e3 * _QUARTER:
        decades = math.log10(high) - math.log10(low)
        air = 10 ** min(decades * 0.03, 1)
        return Axis(max(low / air, math.ulp(0.0)), min(high * air, _LARGEST), pixels, is_log=True)
    least = max(abs(low), abs(high)) * _FINEST
    if high * _QUARTER - low * _QUARTER <= least * _QUARTER:
        air = max(abs(low), abs(high)) * 0.1 or 1.0
        return Axis(_clamped(low - air), _clamped(high + air), pixels)
    air = (high * _QUARTER - low * _QUARTER) * 0.16
    return Axis(_clamped(low - air), _clamped(high + air), pixels)


def range_axis(low: float, high: float, pixels: float, *, is_whole: bool = False) -> Axis:
    """An axis from `low` to `high` without air, but never of no length."""
    if high > low:
        return Axis(low, high, pixels, is_whole=is_whole)
    air = abs(low) * 1e-3 or 1.0
    air = max(air, 0.5) if abs(low) < 1e15 else air
    return Axis(_clamped(low - air), _clamped(high + air), pixels)


def _clamped(value: float) -> float:
    return min(max(value, -_LARGEST), _LARGEST)


def _round_step(low: float, high: float, count: int) -> float:
    """The smallest of 1, 2, 5 times a power of ten that cuts the range into at most `count` parts; 0 if none is a double."""
    raw = (high * _QUARTER - low * _QUARTER) / count / _QUARTER
    if not raw or not math.isfinite(raw):
        return 0.0
    exponent = math.floor(math.log10(raw))
    for power in (exponent, exponent + 1):
        for factor in (1, 2, 5):
            step = float(f"{factor}e{power}")
            if step >= raw * 0.999 and step > 0:
                return step if math.isfinite(step) and math.isfinite(low / step) else 0.0
    return 0.0


def label(value: float, step: float = 0.0) -> str:
    """A tick's label: as many digits as tell it from its neighbours `step` away (else what it takes, up to six)."""
    size = abs(value)
    if step and size < step * 1e-6:
        return "0"
    if size and (size >= 1e15 or size < 1e-3):
        digits = math.floor(math.log10(size)) - math.floor(math.log10(step)) if step else 5
        mantissa, _, exponent = f"{value:.{min(max(digits, 0), 15)}e}".partition("e")
        return f"{_trimmed(mantissa)}e{int(exponent)}"
    for unit, prefix in _PREFIXES:
        # From 10,000 on a prefix reads better, unless ticks then differ in digits that nobody can read.
        if size >= unit and (size >= 1e4) and (not step or step >= unit * 1e-3):
            return f"{_trimmed(f'{value / unit:.{_decimals(step / unit)}f}')}{prefix}"
    return _trimmed(f"{value:.{_decimals(step)}f}") if step else f"{value:.6g}"


def _decimals(step: float) -> int:
    return min(max(0, -math.floor(math.log10(step) + 1e-9)), 15) if step else 3


def _trimmed(number: str) -> str:
    return number.rstrip("0").rstrip(".") if "." in number else number


def place(value: float) -> str:
    """A place on an axis for people: whole numbers with all of their digits."""
    return f"{int(value):,}" if float(value).is_integer() and abs(value) < 1e15 else short(value)


def short(value: float) -> str:
    """A value for people to read: integers and large numbers whole, others with six digits, NaN and infinities by name."""
    if isinstance(value, int):
        if abs(value) < 10**21:
            return f"{value:,}"
        return f"{value:.6e}" if abs(value) < 10**300 else "a very large integer"
    if not math.isfinite(value):
        return "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"
    return f"{value:,.0f}" if 1e6 <= abs(value) < 1e15 else f"{value:.6g}"
