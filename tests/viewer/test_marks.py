from __future__ import annotations

import math

import pytest
from runferry.viewer.curves import Curve
from runferry.viewer.marks import odd_marks, odd_text, sign, spark
from runferry.viewer.scale import Scale


def text(cells):
    return "".join(cell.char for cell in cells)


def test_a_sparkline():
    """A sparkline has a step for each column, in its style."""
    curve = Curve(range(8), range(8))
    assert text(spark(curve, 8)) == "▁▂▃▄▅▆▇█"
    assert text(spark(curve, 8, style="ascii")) == "__..--''"


def test_sparklines_keep_the_highest_point():
    """The highest of ten thousand points is seen, wherever it is."""
    ys = [0.0] * 10_000
    ys[5_432] = 1.0
    assert text(spark(Curve(range(10_000), ys), 10)) == "▁▁▁▁▁█▁▁▁▁"


@pytest.mark.parametrize("width", [0, 1, 5])
def test_sparklines_of_nothing_are_blank(width):
    """Without points, or in a window without them, a sparkline is as wide as asked for, and blank."""
    assert text(spark(Curve(), width)) == " " * width
    assert text(spark(Curve([1.0], [1.0]), width, x=(5, 6))) == " " * width


def test_sparklines_of_one_point_and_of_unknown_style():
    """One point is one step; a style that is none is refused."""
    assert text(spark(Curve([1.0], [2.0]), 3)).count(" ") == 2
    with pytest.raises(ValueError, match="one of"):
        spark(Curve(), 3, style="sixel")


def test_odd_values_in_view_are_counted():
    """Only what lies in the range is counted, by kind; crowds are one number."""
    curve = Curve(range(6), [math.nan, 1, math.inf, math.nan, -math.inf, math.nan])
    assert odd_text([curve], 0, 5) == "3 NaN 1 Inf 1 -Inf"
    assert odd_text([curve, curve], 2, 3) == "2 NaN 2 Inf"
    assert odd_text([curve], 1, 1) == ""
    assert odd_text([Curve(range(20_000), [math.nan] * 20_000)], 0, 1e9) == "20,000 not finite"


def test_marks_of_crowds_cover_all_of_their_columns():
    """However many odd values there are, each column that has some has a mark."""
    curve = Curve(range(50_000), [math.nan] * 50_000)
    assert sorted(odd_marks(curve, Scale(0.0, 49_999.0), 80, ascii_only=False)) == list(range(80))


def test_nan_is_the_mark_of_a_shared_column():
    """Where NaN and infinities share a column, NaN is shown, whichever came first."""
    curve = Curve(range(4), [math.inf, math.nan, math.nan, -math.inf])
    marks = odd_marks(curve, Scale(0.0, 3.0), 2, ascii_only=True)
    assert [marks[column].char for column in (0, 1)] == ["N", "N"]


def test_signs_repeat_after_eight():
    """Eight series have letters of their own."""
    assert len({sign(number) for number in range(8)}) == 8
    assert sign(8) == sign(0)
