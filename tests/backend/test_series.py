"""Drawing long series down: few points, no lost spike, gaps where values were not finite."""

from __future__ import annotations

import json
import math
from array import array

import pytest
from hypothesis import given
from hypothesis import strategies as st
from runferry.backend.series import MAX_KEYS, charts, downsample, means, numbers


def drawn(rows, **options):
    pages = [[(line, row if isinstance(row, str) else json.dumps(row)) for line, row in enumerate(rows)]]
    answer = charts(pages, **{"x": "_step", "points": 100, **options})
    return answer | {"series": {series["name"]: series for series in answer["series"]}}


def test_short_series_are_drawn_whole():
    """Below the number of points every value is drawn where it was logged."""
    answer = drawn([{"_step": 10, "a": 1}, {"_step": 20, "b": 5}, {"_step": 30, "a": 0.5}])

    assert answer["series"]["a"]["points"] == [[10, 1], [30, 0.5]]
    assert (answer["series"]["a"]["last"], answer["series"]["a"]["means"]) == (0.5, [])
    assert answer["series"]["b"]["points"] == [[20, 5]]


def test_a_spike_stays():
    """One odd value among 100,000 is drawn at its place."""
    rows = [{"_step": step, "a": 1e6 if step == 77_777 else 0.0} for step in range(100_000)]

    series = drawn(rows)["series"]["a"]

    assert [77_777, 1e6] in series["points"]
    assert len(series["points"]) <= 101
    assert (series["count"], series["max"]) == (100_000, 1e6)


def test_values_that_are_not_finite_are_gaps():
    """NaN and infinities are counted and drawn as null, in a short series and in a long one."""
    rows = ['{"_step":0,"a":1}', '{"_step":1,"a":NaN}', '{"_step":2,"a":-Infinity}', '{"_step":3,"a":2}']
    long = [f'{{"_step":{step},"a":{"NaN" if 400 <= step < 600 else step}}}' for step in range(1000)]

    short_series, long_series = drawn(rows)["series"]["a"], drawn(long)["series"]["a"]

    assert short_series["points"] == [[0, 1], [1, None], [2, None], [3, 2]]
    assert (short_series["not_finite"], short_series["max"]) == (2, 2)
    assert [x for x, y in long_series["points"] if y is None] == list(range(400, 600, 20))
    assert None in [y for _, y in long_series["means"]]


def test_only_numbers_are_metrics():
    """Nested numbers are joined by dots; text, flags, media and the client's own keys are left out."""
    row = {
        "a": {"b": {"c": 1}},
        "t": "x",
        "f": True,
        "img": {"_type": "image-file", "size": 3},
        "_runtime": 4,
        "d.e": 2,
    }

    assert dict(numbers(row)) == {"a.b.c": 1, "d.e": 2}


def test_huge_integers_are_drawn_as_infinite():
    """An integer beyond every double is not a crash."""
    assert dict(numbers({"a": 10**400, "b": -(10**400)})) == {"a": math.inf, "b": -math.inf}


def test_a_row_without_the_axis_stands_at_its_line():
    """Rows that do not say where they belong are drawn by line number."""
    assert drawn([{"a": 1}, {"a": 2}])["series"]["a"]["points"] == [[0, 1], [1, 2]]


def test_unreadable_rows_are_counted():
    """Text that is no JSON object is told, and the other rows are drawn."""
    answer = drawn([{"a": 1}, "{", "[]", {"a": 2}])

    assert answer["unreadable_rows"] == 2
    assert answer["series"]["a"]["count"] == 2


def test_many_metrics():
    """No answer holds more series than its cap; what is left out is counted and can be filtered for."""
    row = {f"layer{n}/norm": n for n in range(MAX_KEYS + 100)}

    answer, filtered = drawn([row]), drawn([row], wanted="LAYER499")

    assert (len(answer["series"]), answer["left_out"], answer["metrics"]) == (MAX_KEYS, 100, MAX_KEYS + 100)
    assert list(filtered["series"]) == ["layer499/norm"]
    assert filtered["left_out"] == 0


@given(
    ys=st.lists(st.floats(width=64), min_size=1, max_size=300),
    points=st.integers(min_value=2, max_value=50),
)
def test_extremes_always_survive(ys, points):
    """Whatever the series: least and greatest value are drawn, points keep their order, and there are few of them."""
    xs = array("d", range(len(ys)))

    result = downsample(xs, array("d", ys), points)

    finite = [y for y in ys if math.isfinite(y)]
    kept = [y for _, y in result if y is not None]
    assert (min(kept, default=None), max(kept, default=None)) == (min(finite, default=None), max(finite, default=None))
    assert [x for x, _ in result] == sorted({x for x, _ in result})
    assert len(result) <= max(points, 3 * (points // 2))
    assert all(y is None or (math.isfinite(y) and y == ys[int(x)]) for x, y in result)


@pytest.mark.parametrize("count", [100, 101, 1000])
def test_means_follow_the_curve(count):
    """The mean of each stretch lies within it, and is only given where values were left out."""
    xs = array("d", range(count))

    result = means(xs, xs, 100)

    assert bool(result) == (count > 100)
    assert all(abs(x - mean) <= count / 50 for x, mean in result)
