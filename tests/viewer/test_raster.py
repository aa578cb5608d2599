from __future__ import annotations

import datetime as dt
import math

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from runferry.viewer.canvas import Cell
from runferry.viewer.colour import to_text
from runferry.viewer.curves import Curve
from runferry.viewer.frame import columns_of
from runferry.viewer.raster import draw

FINITE = st.floats(allow_nan=False, allow_infinity=False)
ANY = st.floats(allow_nan=True, allow_infinity=True)


def curve(ys, xs=None, breaks=()):
    made = Curve(range(len(ys)) if xs is None else xs, ys)
    made.breaks = list(breaks)
    return made


def shown(*curves, width=24, height=8, **options):
    return to_text(draw(curves, width, height, **options)).split("\n")


def widths(grid):
    return [sum(columns_of(cell.char) for cell in row) for row in grid]


def plot_of(grid):
    """The rows of a chart right of its axis."""
    rows = []
    for row in grid:
        axis = next((place for place, cell in enumerate(row) if cell.colour == "axis" and cell.char in "│┤|+"), None)
        if axis is not None and not any(cell.colour == "axis" for cell in row[axis + 1 :]):
            rows.append(row[axis + 1 :])
    return rows


def test_a_rising_line():
    """A chart has its name and last value, ticks of y with their labels, the line, and ticks of x."""
    assert shown((curve([0, 1, 2, 3, 4]), "loss")) == [
        "loss  4",
        "4 ┤                 ⣀⠤⠒⠉",
        "  │             ⣀⠤⠒⠉",
        "2 ┤        ⢀⡠⠤⠒⠉",
        "  │    ⣀⠤⠒⠊⠁",
        "0 ┤⣀⠤⠒⠉",
        "  └┬─────────┬─────────┬",
        "   0         2         4",
    ]


def test_the_same_in_ascii():
    """The ASCII style has no other characters, whatever the names have."""
    assert shown((curve([4, 0, 4]), "löss"), style="ascii", height=7) == [
        "l?ss  4",
        "4 +'..               ..'",
        "  |  ''..         ..''",
        "2 +     ''..   ..''",
        "0 +        ''.''",
        "  ++---------+---------+",
        "   0         1         2",
    ]


def test_spikes_are_never_lost():
    """One point in a million that is higher reaches the top of the chart in its column."""
    ys = [0.0] * 100_000
    ys[70_000] = 1.0
    rows = plot_of(draw([(curve(ys), "s")], 60, 12))
    assert [column for column, cell in enumerate(rows[0]) if cell.char != " "] == [int(70_000 / 99_999 * len(rows[0]))]


def test_lines_stop_at_lost_rows():
    """Over a range in which rows were lost there is a grey column and no line."""
    xs = [*range(10), *range(30, 40)]
    rows = plot_of(draw([(curve([1.0] * 20, xs, [(9.0, 30.0)]), "s")], 44, 8))
    middle = next(row for row in rows if any(isinstance(cell.colour, int) for cell in row))
    lost = [column for column, cell in enumerate(middle) if cell.colour == "gap"]
    assert lost
    assert lost == list(range(lost[0], lost[-1] + 1))
    assert all(isinstance(cell.colour, int) for column, cell in enumerate(middle) if column not in lost)
    joined = plot_of(draw([(curve([1.0] * 20, xs), "s")], 44, 8))
    assert sum(isinstance(cell.colour, int) for row in joined for cell in row) == len(middle)


def test_a_narrow_loss_has_a_column():
    """A loss that is narrower than a column is grey over all of its rows that have no dots."""
    rows = plot_of(draw([(curve([0.0] * 1000, breaks=[(500.0, 501.0)]), "s")], 44, 8))
    assert sum(cell.colour == "gap" for row in rows for cell in row) == len(rows) - 1


def test_what_is_not_finite_is_marked_and_counted():
    """NaN and infinities stand on the axis below their place, and in the title by number and kind."""
    made = curve([1.0, 2.0, math.nan, 1.0, math.inf, -math.inf, 2.0, math.nan, 1.0])
    grid = draw([(made, "loss")], 40, 8)
    assert to_text(grid[:1]).endswith("2 NaN 1 Inf 1 -Inf")
    assert [cell.char for cell in grid[6] if cell.colour == "mark"] == list("×↑↓×")  # noqa: RUF001 - the mark
    assert (
        "".join(cell.char for cell in draw([(made, "loss")], 40, 8, style="ascii")[6] if cell.colour == "mark")
        == "N^vN"
    )
    assert "NaN" in shown((curve([math.nan] * 3), "loss"), width=40)[0]


def test_axes_reach_the_last_value_that_is_not_finite():
    """Where the last values are NaN, the axis goes on to them."""
    grid = draw([(curve([1.0, 1.0, math.nan, math.nan]), "s")], 40, 8)
    assert grid[6][-1].colour == "mark"
    assert to_text(grid[-1:]).split() == ["0", "1", "2", "3"]


def test_several_curves_have_a_legend():
    """With several curves, names and last values stand below, and the title above."""
    rows = shown((curve([0, 1]), "alpha"), (curve([1, 0]), "beta"), title="loss", width=40, height=9)
    assert rows[0] == "loss"
    assert rows[-1] == "━ alpha 1  ━ beta 0"


def test_a_legend_tells_what_it_leaves_out():
    """Where not all names have room, their number is told."""
    many = [(curve([0, number]), f"run-{number}") for number in range(40)]
    rows = shown(*many, width=40, height=12)
    assert rows[-1].endswith("more")
    assert int(rows[-1].split("+")[1].split()[0]) + sum(row.count("run-") for row in rows[-3:]) == 40


def test_the_cursor_reads_out_each_curve():
    """At a cursor stand a line, its x below the axis, and the values of the nearest points instead of the last ones."""
    rows = shown((curve([5, 6, 7]), "a"), (curve([1, 2, 3]), "b"), width=40, height=10, cursor=1.0)
    assert rows[-1] == "━ a 6  ━ b 2"
    assert "│" in rows[4][3:]
    assert rows[-2].split()[rows[-2].split().index("1")] == "1"


def test_signs_tell_series_apart():
    """Without colours each curve bears its letter, in ASCII in every cell."""
    curves = [(curve([0.0] * 50), "a"), (curve([1.0] * 50), "b")]
    lettered = shown(*curves, width=40, height=10, signs=True)
    assert lettered[-1] == "o a 0  x b 1"
    assert "x" in lettered[1]
    rows = plot_of(draw(curves, 40, 10, style="ascii"))
    assert {cell.char for cell in rows[0] if isinstance(cell.colour, int)} == {"x"}


def test_letters_where_colours_repeat():
    """A series whose colour an earlier one has bears a letter, on the curve and in the legend."""
    curves = [(curve([float(number)] * 50), f"r{number}") for number in range(7)]
    grid = draw(curves, 60, 20)
    assert to_text(grid[-1:]).endswith("% r6 6")
    letters = [cell for row in plot_of(grid) for cell in row if isinstance(cell.colour, int) and cell.char.isascii()]
    assert {(cell.char, cell.colour) for cell in letters} == {("%", 6)}


def test_bands_are_dim_under_a_bright_line():
    """As a band, what is between lowest and highest is dim and the line through the last values bright."""
    noisy = curve([(-1.0) ** number for number in range(1000)])
    cells = [
        cell for row in plot_of(draw([(noisy, "s")], 40, 12, band=True)) for cell in row if isinstance(cell.colour, int)
    ]
    assert {cell.bright for cell in cells} == {True, False}
    ghost = draw([(noisy, "s")], 40, 12, smoothed=[noisy.smoothed(0.99)])
    assert to_text(ghost[:1]).startswith("s  -1 (-0.00")
    bright = [cell for row in plot_of(ghost) for cell in row if isinstance(cell.colour, int) and cell.bright]
    assert 0 < len(bright) < 100


def test_points_beyond_the_range_are_marked():
    """Points above or below a range that was asked for have marks at its edge."""
    rows = plot_of(draw([(curve([0, 9, 0, -9, 0]), "s")], 40, 10, y=(-1, 1)))
    assert sum(cell.char == "▲" for cell in rows[0]) == 1
    assert sum(cell.char == "▼" for cell in rows[-1]) == 1


def test_logarithmic_axes_mark_what_they_cannot_show():
    """On a logarithmic axis decades are equally high, and values at or below zero are marked at the lower edge."""
    grid = draw([(curve([1, 10, 100, 1000, 0]), "s")], 40, 12, log_y=True)
    text = to_text(grid)
    assert all(f"{10**power} ┤" in text for power in range(4))
    assert "▼" in text
    assert "▲" not in to_text(draw([(curve([-1, -2]), "s")], 40, 12, log_y=True))


def test_a_zoom_between_two_points_shows_the_line():
    """A window without points shows the line that passes through it."""
    rows = plot_of(draw([(curve([0, 0, 0]), "s")], 40, 8, x=(0.2, 0.8)))
    assert max(sum(isinstance(cell.colour, int) for cell in row) for row in rows) == len(rows[0])


def test_robust_ranges_leave_outliers_out():
    """One outlier among a thousand points does not flatten the rest."""
    ys = [number % 2 for number in range(1000)]
    ys[500] = 1e6
    assert "1000k" not in (robust := to_text(draw([(curve(ys), "s")], 40, 12, robust=True)))
    assert "0.5" in robust
    assert "▲" in robust


@pytest.mark.parametrize(("guides", "count"), [("off", 0), ("dots", 7), ("lines", 27)])
def test_guides(guides, count):
    """Guides are rows of dots, or lines, at the ticks."""
    grid = draw([(curve([0, 1]), "s")], 32, 8, guides=guides, y=(5, 6))
    assert max(sum(cell.colour == "guide" for cell in row) for row in grid) == count


def test_one_point():
    """The only point is a large dot, in the middle of both axes."""
    assert shown((curve([1.5]), "s"), height=7) == [
        "s  1.5",
        "1.6 ┤",
        "    │",
        "    │         ●",
        "1.4 ┤",
        "    └┬────────┬────────┬",
        "     -1       0        1",
    ]


def test_a_constant():
    """A constant is a level line, with room above and below."""
    assert shown((curve([3.0] * 9), "s"), height=8)[1:6] == [
        "3.2 ┤",
        "    │",
        "  3 ┤⠤⠤⠤⠤⠤⠤⠤⠤⠤⠤⠤⠤⠤⠤⠤⠤⠤⠤⠤",
        "    │",
        "2.8 ┤",
    ]


def test_nothing_is_said_to_be_nothing():
    """A chart without points says so, and so does a window without them."""
    assert any("no points" in row for row in shown((curve([]), "s")))
    assert any("no points" in row for row in shown())
    assert any("no points here" in row for row in shown((curve([1, 2]), "s"), x=(7, 9), guides="lines"))


def test_wall_clocks_are_those_of_the_zone():
    """Ticks of a wall clock stand at round times of the zone; the first one tells the day, as does midnight."""
    day = [1796026800.0 + 60 * minute for minute in range(24 * 60)]
    zone = dt.timezone(dt.timedelta(hours=5, minutes=30))
    rows = shown((curve([0.0] * len(day), day), "s"), width=70, x_kind="wall", zone=zone)
    assert rows[-1].split() == ["Nov", "30", "18:00", "Dec", "01", "06:00", "12:00"]


@pytest.mark.parametrize("options", [{"style": "sixel"}, {"x_kind": "mile"}, {"guides": "many"}])
def test_what_is_no_option_is_refused(options):
    """Options that are none are errors, not another chart."""
    with pytest.raises(ValueError, match="one of"):
        draw([(curve([1, 2]), "s")], 40, 10, **options)


def test_names_cannot_move_the_terminal():
    """Control characters of a name are shown as such, wide ones keep the width of the row."""
    grid = draw(
        [(curve([1, 2]), "a\x1b[31m\n\u202e日本語の名前"), (curve([1, 2]), "é\u0301\u200b")],
        30,
        10,
        title="\x1b]0;x\x07名",
    )
    assert widths(grid) == [30] * 10
    assert not any(ord(char) < 32 or char == "\u202e" for row in grid for cell in row for char in cell.char)


@settings(max_examples=120, deadline=None)
@given(
    st.lists(st.tuples(st.lists(st.tuples(FINITE, ANY), max_size=30), st.text(max_size=12)), max_size=4),
    st.integers(-1, 70),
    st.integers(-1, 20),
    st.fixed_dictionaries(
        {},
        optional={
            "x": st.tuples(FINITE, FINITE).map(sorted),
            "y": st.tuples(FINITE, FINITE).map(sorted),
            "log_y": st.booleans(),
            "style": st.sampled_from(["braille", "half", "ascii"]),
            "x_kind": st.sampled_from(["step", "number", "relative", "wall"]),
            "cursor": FINITE,
            "band": st.booleans(),
            "robust": st.booleans(),
            "guides": st.sampled_from(["off", "dots", "lines"]),
            "signs": st.booleans(),
            "title": st.text(max_size=8),
        },
    ),
    st.lists(st.tuples(FINITE, FINITE).map(sorted), max_size=3),
)
def test_any_curve_at_any_size(points, width, height, options, breaks):
    """Whatever is drawn, nothing raises and every row has exactly the width that was asked for."""
    curves = [(curve([y for _, y in some], [x for x, _ in some], breaks), name) for some, name in points]
    grid = draw(curves, width, height, zone=dt.timezone.utc, **options)
    assert widths(grid) == [max(width, 0)] * max(height, 0)


@settings(max_examples=120, deadline=None)
@given(
    st.lists(st.floats(-1e6, 1e6), min_size=2, max_size=40),
    st.sampled_from([("braille", 4), ("half", 2), ("ascii", 3)]),
)
def test_every_point_is_in_its_cell(ys, style):
    """A point of the range has dots in the cell in whose column its x lies and in whose row its y lies."""
    rows = plot_of(draw([(curve(ys), "s")], 50, 14, style=style[0]))
    low, high = min(ys), max(ys)
    if high - low <= 1e-9:
        return
    for x, y in enumerate(ys):
        column = min(int(x / (len(ys) - 1) * len(rows[0])), len(rows[0]) - 1)
        dot = (high - y) / (high - low) * (len(rows) * style[1] - 1) + 0.5
        # Rounding may go either way where a point is between two dots.
        cells = {int(dot + nudge) // style[1] for nudge in (-1e-6, 1e-6)}
        columns = {min(int(x / (len(ys) - 1) * len(rows[0]) + nudge), len(rows[0]) - 1) for nudge in (-1e-6, 1e-6)} | {
            column
        }
        assert any(rows[row][at].colour == 0 for row in cells for at in columns)


def test_cells_are_plain_values():
    """A cell is a character, a colour by number or role, and whether it is bright."""
    assert Cell("x", "axis") == ("x", "axis", True)
