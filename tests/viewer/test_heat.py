from __future__ import annotations

import math

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from runferry.viewer.colour import to_text
from runferry.viewer.heat import Histogram, heat

ANY = st.floats()


def test_a_heatmap():
    """Each histogram stands from its place to that of the next; the fullest row of each column is the lightest."""
    histograms = [
        Histogram(0.0, [0, 1, 2], [9, 1]),
        Histogram(1.0, [0, 1, 2], [0, 5]),
        Histogram(2.0, [0, 1, 2], [1, 1]),
    ]
    assert to_text(heat(histograms, 24, 7, title="w", style="ascii")).split("\n") == [
        "w",
        "2 +..........@@@@@@@@@@@",
        "  |..........@@@@@@@@@@@",
        "  |@@@@@@@@@@          @",
        "0 +@@@@@@@@@@          @",
        "  ++---------+---------+",
        "   0         1         2",
    ]


def test_colours_of_levels():
    """With colours, cells are full blocks whose role is their level."""
    grid = heat([Histogram(0.0, [0, 1, 2], [9, 1])], 20, 7)
    assert {cell.colour for row in grid for cell in row if cell.char == "█"} == {"heat9", "heat1"}


def test_what_is_no_histogram_is_counted():
    """Edges out of order, counts below zero and values that are not finite are left out, and the title tells how many."""
    bad = [
        Histogram(0.0, [1, 0], [1]),
        Histogram(0.0, [0, 1], [-1]),
        Histogram(0.0, [0, math.inf], [1]),
        Histogram(0.0, [0], []),
        Histogram(math.nan, [0, 1], [1]),
    ]
    rows = to_text(heat(bad, 30, 8)).split("\n")
    assert rows[0].endswith("5 unreadable")
    assert any("no histograms" in row for row in rows)


def test_a_window_begins_with_the_histogram_before_it():
    """A window between two histograms shows the one before it."""
    histograms = [Histogram(0.0, [0, 1, 2], [9, 1]), Histogram(10.0, [0, 1, 2], [1, 9])]
    rows = to_text(heat(histograms, 24, 7, style="ascii", x=(4, 6))).split("\n")
    assert rows[4] == "0 +@@@@@@@@@@@@@@@@@@@@@"


@settings(max_examples=80, deadline=None)
@given(
    st.lists(st.tuples(ANY, st.lists(ANY, max_size=5), st.lists(ANY, max_size=5)), max_size=5),
    st.integers(-1, 50),
    st.integers(-1, 14),
    st.sampled_from(["braille", "ascii"]),
    st.booleans(),
)
def test_any_histogram_at_any_size(parts, width, height, style, signs):
    """Whatever a log has for histograms, nothing raises and every row has the width that was asked for."""
    histograms = sorted((Histogram(x, sorted(edges), counts) for x, edges, counts in parts), key=lambda one: one.x)
    grid = heat(histograms, width, height, style=style, signs=signs)
    assert [len(row) for row in grid] == [max(width, 0)] * max(height, 0)


def test_unknown_styles_are_refused():
    """A style that is none is an error."""
    with pytest.raises(ValueError, match="one of"):
        heat([], 20, 8, style="sixel")
