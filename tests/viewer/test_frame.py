from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from runferry.viewer.canvas import Cell
from runferry.viewer.frame import Entry, Surround, columns_of, legend_rows, text_cells
from runferry.viewer.scale import Scale


def text(cells):
    return "".join(cell.char for cell in cells)


def width_of(cells):
    return sum(columns_of(cell.char) for cell in cells)


@pytest.mark.parametrize(
    ("name", "width", "expected"),
    [
        ("loss", 4, "loss"),
        ("losses", 4, "los…"),
        ("日本語", 6, "日本語"),
        ("日本語", 5, "日本…"),
        ("日本語", 4, "日 …"),
        ("a\tb\x1b[0m", 20, "a?b?[0m"),
        ("e\u0301\u200d\u202ex", 9, "ex"),
        ("loss", 0, ""),
    ],
)
def test_texts_are_cut_to_their_width(name, width, expected):
    """A text is cut with an ellipsis, never in the middle of a wide character, and has nothing that moves the cursor."""
    cells = text_cells(name, width, "text")
    assert text(cells) == expected
    assert len(cells) == width_of(cells) <= width


@settings(max_examples=150, deadline=None)
@given(st.text(max_size=20), st.integers(0, 12), st.booleans())
def test_any_text(name, width, ascii_only):
    """Any text becomes as many cells as it has columns, at most those that there are."""
    cells = text_cells(name, width, 0, ascii_only=ascii_only)
    assert len(cells) == width_of(cells) <= width
    assert not ascii_only or text(cells).isascii()


@pytest.mark.parametrize(
    ("height", "parts"), [(1, (0, 0, 0)), (3, (1, 0, 0)), (5, (1, 1, 0)), (6, (1, 2, 0)), (8, (1, 2, 2))]
)
def test_what_has_no_room_is_left_out(height, parts):
    """With less height the legend goes first, then the labels of x, its axis and the title; the plot stays."""
    layout = Surround(40, height, Scale(0.0, 1.0), Scale(0.0, 1.0), legends=2).layout
    assert (layout.titles, layout.axes, layout.legends) == parts
    assert layout.rows == height - sum(parts) > 0


def test_narrow_charts_have_no_labels():
    """Labels of y need 16 columns, the axis 4."""
    lefts = [Surround(width, 8, Scale(0.0, 1.0), Scale(0.0, 1.0)).layout.left for width in (3, 4, 15, 16)]
    assert lefts == [0, 1, 1, 5]


def test_titles_keep_the_mark_and_the_value():
    """Of a title that is too long the name is cut, not the value behind it nor the mark at the right."""
    surround = Surround(30, 8, Scale(0.0, 1.0), Scale(0.0, 1.0))
    surround.title([("a/very/long/name", "title"), ("0.125", 0)], "12 NaN")
    assert text(surround.grid[0]) == "a/very/long/na…  0.125  12 NaN"


def test_a_narrow_title_keeps_a_part_of_the_name():
    """Where even the mark has no room, a third of the row is the name's."""
    surround = Surround(15, 8, Scale(0.0, 1.0), Scale(0.0, 1.0))
    surround.title([("train/loss", "title")], "2 NaN 1 Inf")
    assert text(surround.grid[0]) == "trai…  2 NaN 1…"


def test_labels_of_x_never_touch():
    """A label that would touch another is left out, the cursor's never."""
    surround = Surround(24, 8, Scale(0.0, 1.0), Scale(0.0, 1e6), cursor=480_000.0)
    assert text(surround.grid[-1]).split() == ["0", "480,000", "1M"]
    for place in range(0, 1_000_001, 20_000):
        surround = Surround(24, 8, Scale(0.0, 1.0), Scale(0.0, 1e6), cursor=float(place))
        assert set(text(surround.grid[-1]).split()) <= {"0", "500k", "1M", f"{place:,}"}


def test_a_legend_fills_its_rows():
    """Entries stand beside each other as long as there is room; names are cut before values."""
    entries = [Entry(0, "━", "alpha", "1"), Entry(1, "━", "beta", "2"), Entry(2, "━", "a-name-without-end", "3")]
    rows = legend_rows(entries, 20, 3, ascii_only=False)
    assert [text(row) for row in rows] == ["━ alpha 1  ━ beta 2", "━ a-name-without-… 3"]
    assert rows[0][0] == Cell("━", 0)
