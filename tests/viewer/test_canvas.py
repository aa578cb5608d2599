from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from runferry.viewer.canvas import Canvas, Cell, style_named

PLACES = st.floats(-40, 40) | st.sampled_from([-1e300, 1e300, -0.5, 0.5])


def shown(canvas):
    cells = canvas.cells()
    return [
        "".join(cells[row, column].char if (row, column) in cells else " " for column in range(canvas.columns))
        for row in range(canvas.rows)
    ]


def dots_of(canvas):
    """The dots that are set, by the characters: braille only."""
    places = ((0, 0), (0, 1), (0, 2), (1, 0), (1, 1), (1, 2), (0, 3), (1, 3))
    found = set()
    for (row, column), cell in canvas.cells().items():
        mask = ord(cell.char) - 0x2800
        found |= {(column * 2 + x, row * 4 + y) for bit, (x, y) in enumerate(places) if mask >> bit & 1}
    return found


@pytest.mark.parametrize(
    ("style", "rows"),
    [("braille", ["⠑⢄"]), ("half", ["▀▄  ", "  ▀▄"]), ("ascii", ["'-. ", "   '"])],
)
def test_a_falling_line_in_each_style(style, rows):
    """A diagonal becomes the characters of the style, one dot below the other."""
    canvas = Canvas(len(rows[0]), len(rows), style)
    canvas.line(0, 0, 0, 3, 3)
    assert shown(canvas) == rows


def test_runs_of_dots_over_several_cells():
    """A vertical run fills every cell between its ends, and its own dots of those at the ends."""
    canvas = Canvas(1, 3)
    canvas.vertical(0, 0, 2, 9)
    assert dots_of(canvas) == {(0, y) for y in range(2, 10)}


def test_series_with_most_dots_gives_the_colour():
    """Of two series in a cell the one with more dots colours it, with as many the later one; the dots are those of both."""
    canvas = Canvas(2, 1)
    canvas.vertical(0, 0, 0, 2)
    canvas.vertical(1, 1, 0, 0)
    canvas.vertical(0, 2, 0, 0)
    canvas.vertical(1, 3, 0, 0)
    assert canvas.cells() == {(0, 0): Cell("⠏", 0), (0, 1): Cell("⠉", 1)}


def test_bright_dots_hide_dim_ones():
    """In a cell with bright dots only these are shown; elsewhere the dim ones."""
    canvas = Canvas(1, 2)
    canvas.vertical(0, 0, 0, 7, bright=False)
    canvas.vertical(1, 1, 1, 1)
    assert canvas.cells() == {(0, 0): Cell("⠐", 1), (1, 0): Cell("⡇", 0, bright=False)}


def test_unknown_styles_are_refused():
    """A style that is none is an error that names those there are."""
    with pytest.raises(ValueError, match="braille, half, ascii"):
        style_named("sixel")


@settings(max_examples=150, deadline=None)
@given(PLACES, PLACES, PLACES, PLACES)
def test_lines_are_cut_at_the_edges_exactly(x0, y0, x1, y1):
    """What is seen of a line is what a canvas so large that it needs no cutting shows at that place."""
    small, large = Canvas(5, 4), Canvas(60, 30)
    ends = [min(max(at, -40.0), 40.0) for at in (x0, y0, x1, y1)]
    small.line(0, *ends)
    large.line(0, ends[0] + 50, ends[1] + 50, ends[2] + 50, ends[3] + 50)
    window = {(x - 50, y - 50) for x, y in dots_of(large) if 50 <= x < 60 and 50 <= y < 66}
    seen = dots_of(small)
    assert all(0 <= x < 10 and 0 <= y < 16 for x, y in seen)
    # The cut end of a line may round to the other of two dots that it passes between.
    for one, other in ((seen, window), (window, seen)):
        assert all(
            any((x + dx, y + dy) in other for dx in (-1, 0, 1) for dy in (-1, 0, 1))
            for x, y in one
            if 0 < x < 9 and 0 < y < 15
        )


@settings(max_examples=150, deadline=None)
@given(st.integers(0, 9), st.integers(0, 15), st.integers(0, 9), st.integers(0, 15))
def test_lines_have_no_holes(x0, y0, x1, y1):
    """The dots of a line are one piece from one end to the other."""
    canvas = Canvas(5, 4)
    canvas.line(0, x0, y0, x1, y1)
    dots = dots_of(canvas)
    assert {(x0, y0), (x1, y1)} <= dots
    reached, edge = {(x0, y0)}, [(x0, y0)]
    while edge:
        x, y = edge.pop()
        near = {(x + dx, y + dy) for dx in (-1, 0, 1) for dy in (-1, 0, 1)} & dots - reached
        reached |= near
        edge += near
    assert reached == dots


@settings(max_examples=150, deadline=None)
@given(st.integers(-20, 40), st.integers(-20, 40))
def test_neighbours_are_joined_without_holes(before, at):
    """Between two neighbouring columns every row is in one of them, and no dot in both."""
    canvas = Canvas(1, 4)
    canvas.join(0, 1, before, at)
    dots = dots_of(canvas)
    between = set(range(min(before, at), max(before, at) + 1)) & set(range(16))
    assert {y for _, y in dots} == between
    assert {(0, before), (1, at)} & {(x, y) for x in (0, 1) for y in range(16)} <= dots
    assert len(dots) == len(between) + (before == at and 0 <= at < 16)


@settings(max_examples=50, deadline=None)
@given(st.floats(allow_nan=False), st.floats(allow_nan=False), st.floats(allow_nan=False), st.floats(allow_nan=False))
def test_no_line_is_too_far_away(x0, y0, x1, y1):
    """Ends at any double, even infinite ones, are drawn or not, and never raise."""
    canvas = Canvas(3, 2)
    canvas.line(0, x0, y0, x1, y1)
    canvas.vertical(0, 1, y0, y1)
    assert all(0 <= x < 6 and 0 <= y < 8 for x, y in dots_of(canvas))
