"""Curves: what a chart of any width is drawn from."""

from __future__ import annotations

import math
from array import array
from bisect import bisect_left, bisect_right

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from runferry.viewer.curves import GROUP, Curve

finite = st.floats(allow_nan=False, allow_infinity=False)
small = st.floats(-1e6, 1e6)
anything = st.floats()


def plain_columns(points, x0, x1, n):
    """The same as `Curve.columns`, point by point."""
    xs = [x for x, _ in points]
    edges = [x0 + (x1 - x0) * (i / n) for i in range(1, n)]
    stops = [bisect_left(xs, edge) for edge in edges] + [bisect_right(xs, x1)]
    start, found = bisect_left(xs, x0), []
    for stop in stops:
        ys = [y for _, y in points[start:stop]]
        found.append((len(ys), min(ys), max(ys), ys[-1]) if ys else None)
        start = max(start, stop)
    return found


@given(st.lists(st.tuples(small, finite), max_size=300), st.integers(1, 40), small, small)
@settings(max_examples=60, deadline=None)
def test_a_column_shows_what_its_points_show(points, n, one, other):
    """Count, lowest, highest and last of each column are those of the points in it, in any order they came."""
    x0, x1 = sorted((one, other))
    points = points * 3
    curve = Curve(*zip(*points, strict=True)) if points else Curve()
    assert curve.columns(x0, x1, n) == plain_columns(sorted(points, key=lambda point: point[0]), x0, x1, n)


@given(st.integers(0, 3 * GROUP**2), st.data())
@settings(max_examples=40, deadline=None)
def test_extremes_of_any_window_are_exact_over_all_levels(count, data):
    """A window that begins and ends anywhere in a pyramid of several levels has the extremes of its points."""
    ys = [((i * 7919) % 10_007) - 5000.0 for i in range(count)]
    curve = Curve(range(count), ys)
    start = data.draw(st.integers(0, max(count - 1, 0)))
    stop = data.draw(st.integers(start, max(count - 1, start)))
    window = ys[start : stop + 1]
    assert curve.range(start, stop) == ((min(window), max(window)) if window else None)


@given(st.lists(st.tuples(anything, anything), max_size=200), st.integers(0, 200))
@settings(max_examples=60, deadline=None)
def test_appended_and_built_are_the_same(points, split):
    """A curve that grew point by point is the one that was made at once, whatever the order and the values are."""
    whole = Curve([x for x, _ in points], [y for _, y in points])
    grown = Curve([x for x, _ in points[:split]], [y for _, y in points[:split]])
    for x, y in points[split:]:
        grown.append(x, y)
    assert (grown.x, grown.y, grown.odd, grown.unplaced) == (whole.x, whole.y, whole.odd, whole.unplaced)
    assert grown._levels == whole._levels


def test_a_pyramid_grows_with_its_points():
    """Points appended one by one, and one put between the others, leave the pyramid that building makes."""
    count = GROUP**2 + 3 * GROUP + 5
    grown = Curve()
    for i in range(count):
        grown.append(i, (i * 31) % 101)
    grown.append(70.5, 1e9)
    built = Curve([*range(71), 70.5, *range(71, count)], grown.y)
    assert grown.x == built.x
    assert grown._levels == built._levels
    assert len(built._levels) == 2


def test_a_spike_of_one_point_is_kept():
    """One point among half a million shows in its column."""
    ys = [0.0] * 500_000
    ys[123_456] = 9.0
    columns = Curve(range(500_000), ys).columns(0, 499_999, 200)
    assert [i for i, found in enumerate(columns) if found.highest == 9.0] == [49]
    assert sum(found.points for found in columns) == 500_000


def test_what_is_not_finite_stands_beside_the_points():
    """NaN and infinities are told by x, and points without a place are counted."""
    curve = Curve([3, 1, 2, math.nan, 4], [math.nan, 1.0, math.inf, 5.0, -math.inf])
    curve.append(0.5, math.nan)
    assert list(curve.x) == [1.0]
    assert curve.odd == [(0.5, "nan"), (2.0, "inf"), (3.0, "nan"), (4.0, "-inf")]
    assert curve.unplaced == 1


def test_uneven_lists_are_refused():
    """A curve needs a y for each x."""
    with pytest.raises(ValueError, match="2 xs and 1 ys"):
        Curve([1, 2], [1])


@pytest.mark.parametrize(
    ("x", "point"), [(-5, (0, 1)), (0.4, (0, 1)), (0.5, (0, 1)), (0.6, (1, 3)), (1, (1, 3)), (9, (4, 4))]
)
def test_the_nearest_point_is_found(x, point):
    """Left of the first, between, at equal distance (the left one), at equal x (the latest), behind the last."""
    assert Curve([0, 1, 1, 4], [1, 2, 3, 4]).nearest(x) == point


def test_arrays_are_copied_unless_they_are_given_away():
    """A curve that grows changes no array of its maker, but those that were left to it."""
    xs, ys = array("d", [0, 1]), array("d", [5, 6])
    Curve(xs, ys).append(2, 7)
    assert len(xs) == len(ys) == 2
    curve = Curve(xs, ys, copies=False)
    assert curve.x is xs
    assert curve.y is ys


def test_an_empty_curve_has_nothing_to_show():
    """No point: no range, nothing near, empty columns."""
    curve = Curve()
    assert (curve.range(0, 1), curve.robust_range(0, 1), curve.nearest(0)) == (None, None, None)
    assert curve.columns(0, 1, 2) == [None, None]


def test_smoothing_is_debiased():
    """The first point stays, the second is the mean weighted 1 : alpha, a constant stays constant; odd points and breaks go along."""
    curve = Curve([0, 1, 2], [1.0, 2.0, math.nan])
    curve.breaks.append((0.2, 0.8))
    smooth = curve.smoothed(0.5)
    assert list(smooth.y) == pytest.approx([1.0, (2 + 0.5) / 1.5])
    assert (smooth.odd, smooth.breaks) == (curve.odd, curve.breaks)
    assert list(Curve(range(100), [3.25] * 100).smoothed(0.99).y) == pytest.approx([3.25] * 100)
    with pytest.raises(ValueError, match="below 1"):
        curve.smoothed(1.0)


@given(st.lists(finite, min_size=1, max_size=100), st.floats(0, 0.999))
@settings(max_examples=60, deadline=None)
def test_smoothing_stays_finite(ys, alpha):
    """The mean of finite values is finite, also at the ends of what doubles hold."""
    assert all(map(math.isfinite, Curve(range(len(ys)), ys).smoothed(alpha).y))
    assert list(Curve(range(len(ys)), ys).smoothed(0).y) == ys


def test_a_robust_range_leaves_outliers_out():
    """One percent at each end is left out, of short and of long windows; one point is its own range."""
    ys = [float(i) for i in range(1000)]
    ys[500], ys[501] = 1e9, -1e9
    low, high = Curve(range(1000), ys).robust_range(0, 999)
    assert 0 <= low <= 20
    assert 979 <= high <= 999
    assert Curve([1], [5.0]).robust_range(0, 2) == (5.0, 5.0)
    long = Curve(range(100_000), [float(i % 1000) for i in range(100_000)])
    low, high = long.robust_range(0, 1e9)
    assert abs(low - 10) < 5
    assert abs(high - 989) < 5
