"""One metric of one run as something to draw: finite points in order of x, over a pyramid of lowest and highest values.

Each level of the pyramid has one pair for 64 of the level below, so that what a pixel column shows of however many points
costs a few slices, and a spike of one point is never lost.
"""

from __future__ import annotations

import math
from array import array
from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

GROUP = 64
"""Points, or pairs of the level below, that one pair of the pyramid stands for."""
_PIECE = 128 * GROUP
_SAMPLE = 16_384
"""Points by which the robust range of a long window is judged."""


class Bin(NamedTuple):
    """The points of one pixel column."""

    points: int
    lowest: float
    highest: float
    last: float
    """Of the greatest x."""


class Curve:
    """The points of a metric over an axis. Points of equal x keep the order in which they came."""

    __slots__ = ("_levels", "breaks", "odd", "unplaced", "x", "y")

    def __init__(self, xs: Iterable[float] = (), ys: Iterable[float] = (), *, copies: bool = True) -> None:
        """Takes points in any order; what is appended later may come in any order, too, but is cheap only behind the others.

        Args:
            xs: where they are.
            ys: what they are.
            copies: whether arrays of doubles are copied; else the caller leaves them to the curve.

        Raises:
            ValueError: there are more or fewer `xs` than `ys`.
        """
        self.x: array[float] = array("d", xs) if copies or not isinstance(xs, array) else xs
        """Ascending. Not to be changed."""
        self.y: array[float] = array("d", ys) if copies or not isinstance(ys, array) else ys
        """Finite. Not to be changed."""
        self.odd: list[tuple[float, str]] = []
        """Where it is not finite: x, and `nan`, `inf` or `-inf`. Ascending."""
        self.breaks: list[tuple[float, float]] = []
        """Ranges of x in which rows were lost, or nothing was logged between two sessions."""
        self.unplaced = 0
        """Points left out because their x is not finite."""
        if len(self.x) != len(self.y):
            raise ValueError(f"{len(self.x)} xs and {len(self.y)} ys")
        if not (_is_finite(self.x) and _is_finite(self.y)):
            self._sort_out()
        if not _is_ascending(self.x):
            order = sorted(range(len(self.x)), key=self.x.__getitem__)
            self.x = array("d", map(self.x.__getitem__, order))
            self.y = array("d", map(self.y.__getitem__, order))
        self._levels: list[tuple[array[float], array[float]]] = []
        self._build()

    def __len__(self) -> int:
        return len(self.x)

    def __repr__(self) -> str:
        return f"<Curve of {len(self.x)} points>"

    # -- growing -----------------------------------------------------------------------------------------------------

    def append(self, x: float, y: float) -> None:
        """Add a point: amortised O(1) behind all others, else as slow as building what stands behind it."""
        if not math.isfinite(x):
            self.unplaced += 1
        elif not math.isfinite(y):
            at = bisect_right(self.odd, x, key=_first)
            self.odd.insert(at, (float(x), _word(y)))
        elif not self.x or x >= self.x[-1]:
            self.x.append(x)
            self.y.append(y)
            self._grow()
        else:
            at = bisect_right(self.x, x)
            self.x.insert(at, x)
            self.y.insert(at, y)
            self._build(at)

    def extend(self, xs: Sequence[float], ys: Sequence[float]) -> None:
        """As `append` for many points."""
        for x, y in zip(xs, ys, strict=True):
            self.append(x, y)

    # -- reading -----------------------------------------------------------------------------------------------------

    def columns(self, x0: float, x1: float, n: int) -> list[Bin | None]:
        """What each of `n` equally wide columns between `x0` and `x1`, both included, shows; None where it has no point.

        A point on the edge of two columns is of the right one. With `x0 == x1` everything is in the last column.
        """
        edges = [_between(x0, x1, i / n) for i in range(1, n)]
        stops = []
        at = start = bisect_left(self.x, x0)
        for edge in edges:
            at = bisect_left(self.x, edge, at)
            stops.append(at)
        stops.append(bisect_right(self.x, x1, at))
        bins: list[Bin | None] = []
        for stop in stops:
            bins.append(Bin(stop - start, *self._extremes(start, stop), self.y[stop - 1]) if stop > start else None)
            start = max(start, stop)
        return bins

    def range(self, x0: float, x1: float) -> tuple[float, float] | None:
        """Lowest and highest y between two x, both included; None if there is no point."""
        start, stop = bisect_left(self.x, x0), bisect_right(self.x, x1)
        return self._extremes(start, stop) if stop > start else None

    def robust_range(self, x0: float, x1: float, share: float = 0.01) -> tuple[float, float] | None:
        """As `range`, without the lowest and the highest `share` of the points.

        Of windows of more than 16,384 points every k-th is looked at, so that it costs the same at any length.
        """
        start, stop = bisect_left(self.x, x0), bisect_right(self.x, x1)
        if stop <= start:
            return None
        values = sorted(self.y[start : stop : max(1, -(-(stop - start) // _SAMPLE))])
        cut = min(int(len(values) * share), (len(values) - 1) // 2)
        return values[cut], values[-1 - cut]

    def nearest(self, x: float) -> tuple[float, float] | None:
        """The point whose x is nearest: of equally near ones the left, of those with the same x the latest; None without points."""
        if not self.x:
            return None
        right = bisect_left(self.x, x)
        left = right - 1
        if right == len(self.x) or (left >= 0 and x - self.x[left] <= self.x[right] - x):
            at = left
        else:
            at = bisect_right(self.x, self.x[right], right) - 1
        return self.x[at], self.y[at]

    def smoothed(self, alpha: float) -> Curve:
        """The exponential moving average, each point the weighted mean of itself and those before it.

        The weight of a point is `alpha` times that of the one behind it, so 0 changes nothing and 0.99 smooths strongly. It is
        divided by the sum of the weights, so that the first points are not drawn to zero.

        Raises:
            ValueError: `alpha` is not in [0, 1).
        """
        if not 0 <= alpha < 1:
            raise ValueError(f"a weight from 0 up to below 1, not {alpha}")
        mean, weight = 0.0, 0.0
        ys = array("d")
        for y in self.y:
            weight = alpha * weight + 1
            # In this form, a mean never leaves the range of what it is of, and differences of huge values don't overflow.
            share = 1 / weight
            mean = mean * (1 - share) + y * share
            ys.append(mean)
        smooth = Curve(self.x[:], ys, copies=False)
        smooth.odd, smooth.breaks, smooth.unplaced = list(self.odd), list(self.breaks), self.unplaced
        return smooth

    # -- the pyramid -------------------------------------------------------------------------------------------------

    def _extremes(self, start: int, stop: int) -> tuple[float, float]:
        """Lowest and highest of a slice that is not empty: ends by themselves, and what lies between by the level above."""
        lows = highs = self.y
        low, high = math.inf, -math.inf
        for above in self._levels:
            first, last = -(-start // GROUP), stop // GROUP
            if first >= last:
                break
            if start < first * GROUP:
                low, high = min(low, *lows[start : first * GROUP]), max(high, *highs[start : first * GROUP])
            if last * GROUP < stop:
                low, high = min(low, *lows[last * GROUP : stop]), max(high, *highs[last * GROUP : stop])
            (lows, highs), start, stop = above, first, last
        return min(low, *lows[start:stop]), max(high, *highs[start:stop])

    def _build(self, begin: int = 0) -> None:
        """Make the pyramid anew for the points from `begin` on: complete groups only."""
        lows, highs, level = self.y, self.y, 0
        while len(lows) >= GROUP:
            begin //= GROUP
            if level == len(self._levels):
                self._levels.append((array("d"), array("d")))
            above = self._levels[level]
            del above[0][begin:], above[1][begin:]
            first, stop = begin * GROUP, len(lows) // GROUP * GROUP
            if level == 0:
                for part in _pieces(lows, first, stop):
                    groups = [part[i : i + GROUP] for i in range(0, len(part), GROUP)]
                    above[0].extend(map(min, groups))
                    above[1].extend(map(max, groups))
            else:
                above[0].extend([min(lows[i : i + GROUP]) for i in range(first, stop, GROUP)])
                above[1].extend([max(highs[i : i + GROUP]) for i in range(first, stop, GROUP)])
            (lows, highs), level = above, level + 1

    def _grow(self) -> None:
        """Put the last group into the levels above, where it is complete by its last member."""
        lows, highs, level = self.y, self.y, 0
        while len(lows) % GROUP == 0:
            if level == len(self._levels):
                self._levels.append((array("d"), array("d")))
            above = self._levels[level]
            above[0].append(min(lows[-GROUP:]))
            above[1].append(max(highs[-GROUP:]))
            (lows, highs), level = above, level + 1

    def _sort_out(self) -> None:
        """Take the points that are not finite from the others."""
        xs, ys = self.x, self.y
        self.x, self.y = array("d"), array("d")
        for x, y in zip(xs, ys, strict=True):
            if not math.isfinite(x):
                self.unplaced += 1
            elif math.isfinite(y):
                self.x.append(x)
                self.y.append(y)
            else:
                self.odd.append((x, _word(y)))
        self.odd.sort(key=_first)


def _pieces(values: array[float], first: int, stop: int) -> Iterator[list[float]]:
    """A range of an array in lists that stay in the processor's cache: what is made of them by C is several times as fast."""
    for begin in range(first, stop, _PIECE):
        yield values[begin : min(begin + _PIECE, stop)].tolist()


def _is_finite(values: array[float]) -> bool:
    """Whether all are; if not sure, False: a sum is finite only if all its parts are."""
    return all(math.isfinite(sum(part)) for part in _pieces(values, 0, len(values)))


def _is_ascending(values: array[float]) -> bool:
    """Whether none is less than the one before it."""
    last = -math.inf
    for part in _pieces(values, 0, len(values)):
        if part[0] < last or part != sorted(part):  # sorting what is sorted is one pass
            return False
        last = part[-1]
    return True


def _word(y: float) -> str:
    return "nan" if math.isnan(y) else "inf" if y > 0 else "-inf"


def _first(point: tuple[float, str]) -> float:
    return point[0]


def _between(x0: float, x1: float, part: float) -> float:
    """The point so far on the way from `x0` to `x1`."""
    width = x1 - x0
    return x0 + width * part if math.isfinite(width) else x0 * (1 - part) + x1 * part
