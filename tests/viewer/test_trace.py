from __future__ import annotations

from runferry.viewer.canvas import Canvas
from runferry.viewer.curves import Curve
from runferry.viewer.scale import Scale
from runferry.viewer.trace import View, trace


def chars(xs, ys, x, *, breaks=(), columns=4, rows=1):
    """The characters of a curve whose y is from 0 to 1, and the cells of lone points."""
    curve = Curve(xs, ys)
    curve.breaks = list(breaks)
    view = View(Canvas(columns, rows), Scale(*x), Scale(0.0, 1.0))
    trace(view, 0, curve)
    cells = view.canvas.cells()
    return "".join(cells[0, at].char if (0, at) in cells else " " for at in range(columns)), view.lone


def test_joins_go_to_the_nearest_point_of_a_column():
    """From a column to one that has a point of the same height nothing is added to either."""
    assert chars([0, 1, 1.1], [0, 0, 1], (0.0, 2.0), columns=1)[0] == "⣸"


def test_windows_within_a_loss_are_empty():
    """Where all of a window was lost, no line passes through it; where nothing was lost, one does."""
    assert chars([0, 10], [0, 0], (2.0, 8.0), breaks=[(0.0, 10.0)])[0] == "    "
    assert chars([0, 10], [0, 0], (2.0, 8.0))[0] == "⣀⣀⣀⣀"


def test_lines_from_outside_end_at_a_loss():
    """A line comes in from the point left of the window and none goes out to the right, over lost rows."""
    shown, lone = chars([0, 4, 8], [0, 0, 0], (2.0, 6.0), breaks=[(4.0, 8.0)])
    assert shown == "⣀⣀⡀ "
    assert not lone


def test_losses_before_the_window_cut_the_line_into_it():
    """A loss that ends before the window begins still parts the point left of it from the first one within."""
    assert chars([0, 4], [0, 0], (2.0, 4.0), breaks=[(0.5, 1.0)])[0] == "   ⢀"
    assert chars([0, 4], [0, 0], (2.0, 4.0))[0] == "⣀⣀⣀⣀"


def test_losses_that_end_together_are_one():
    """Of two losses that end in the same column the longer one cuts the line, in whatever order they are."""
    long, short = (1.0, 7.0), (7.0, 7.01)
    for breaks in ([long, short], [short, long]):
        assert chars([0, 1, 7, 8], [0, 0, 0, 0], (0.0, 8.0), breaks=breaks)[0] == "⣀  ⢀"


def test_the_only_point_of_a_curve_stands_alone():
    """A curve of one point has a cell for it; a point beside others that are not in the window has none."""
    assert chars([1], [0], (0.0, 2.0))[1] == {(0, 2): 0}
    assert chars([0, 1, 2], [0, 0, 0], (0.5, 1.5), breaks=[(0, 1), (1, 2)])[1] == {}
