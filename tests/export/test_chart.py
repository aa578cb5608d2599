"""Charts: what is drawn of a series, whatever it holds."""

from __future__ import annotations

import math
import re
from array import array
from itertools import pairwise
from xml.etree import ElementTree as ET

import pytest
from hypothesis import given
from hypothesis import strategies as st
from runferry.export.chart import Series, line_chart
from runferry.export.chart_axis import Axis, label, place, range_axis, short, value_axis
from runferry.export.chart_heatmap import Histogram, heat_map
from runferry.export.chart_points import POINTS_PER_COLUMN, ordered, thinned
from runferry.export.chart_style import COLOURS, DARK, LIGHT

SVG = "{http://www.w3.org/2000/svg}"
DOUBLES = st.floats(allow_nan=True, allow_infinity=True)
FINITE = st.floats(allow_nan=False, allow_infinity=False)


def drawn(svg):
    """The chart's elements, parsed as XML."""
    return ET.fromstring(svg)


def points(svg):
    """All coordinates of curves."""
    paths = [path.get("d") for path in drawn(svg).iter(f"{SVG}path") if path.get("class", "").startswith("c")]
    return [tuple(map(float, pair)) for path in paths for pair in re.findall(r"(-?[\d.]+) (-?[\d.]+)", path)]


def texts(svg):
    return ["".join(text.itertext()) for text in drawn(svg).iter(f"{SVG}text")]


def test_a_small_chart_is_this_svg():
    """A chart is plain SVG: a grid, an axis with ticks, one path per series, dots that say their values."""
    svg = line_chart([Series("loss", [0, 1, 2], [1.0, 0.5, 0.25])], title="loss", width=200, height=100)
    assert svg == (
        '<svg xmlns="http://www.w3.org/2000/svg" class="chart" viewBox="0 0 200 100" role="img" '
        'aria-label="loss: 3 values by step, from 0.25 to 1">'
        '<path class="grid" d="M33 47.3H184M33 14.0H184"/><path class="axis" d="M33 66H184"/>'
        '<text x="27" y="51.3" text-anchor="end">0.5</text><text x="27" y="18.0" text-anchor="end">1</text>'
        '<path class="axis" d="M33.0 66v4M108.5 66v4M184.0 66v4"/>'
        '<text x="33.0" y="81" text-anchor="middle">0</text>'
        '<text x="108.5" y="81" text-anchor="middle">1</text>'
        '<text x="184.0" y="81" text-anchor="middle">2</text>'
        '<text class="note" x="108.5" y="95" text-anchor="middle">step</text>'
        '<path class="c0 d0" d="M33 14 108.5 47.3 184 64"/>'
        '<circle class="c0 d0" cx="33.0" cy="14.0" r="2.5"><title>0: 1</title></circle>'
        '<circle class="c0 d0" cx="108.5" cy="47.3" r="2.5"><title>1: 0.5</title></circle>'
        '<circle class="c0 d0" cx="184.0" cy="64.0" r="2.5"><title>2: 0.25</title></circle></svg>'
    )


# -- thinning --------------------------------------------------------------------------------------------------------


@given(st.lists(DOUBLES, max_size=400), st.integers(1, 40))
def test_thinning_keeps_extremes_order_and_values(values, columns):
    """Of each column the least and greatest value are kept, all points are the series', in its order, and they are few."""
    series = Series("", range(len(values)), array("d", values))
    high = max(len(values) - 1, 1)
    found = thinned(series, 0, high, columns)
    joined = [point for line in found.lines for point in line]
    assert all(values[x] == y for x, y in joined)
    assert [x for x, _ in joined] == sorted({x for x, _ in joined})
    assert len(joined) <= columns * (POINTS_PER_COLUMN + 3)
    shown = [y for _, y in joined]
    for column in range(columns):
        inside = [y for x, y in enumerate(values) if min(int(x / (high / columns)), columns - 1) == column]
        finite = list(filter(math.isfinite, inside))
        if finite:
            assert {min(finite), max(finite)} <= set(shown)
    assert {str(y) for _, y in found.odd} == {str(value) for value in values if not math.isfinite(value)}
    assert len(found.odd) <= 3 * columns


@given(st.lists(FINITE, min_size=2, max_size=60), st.data())
def test_no_line_crosses_a_loss(values, data):
    """Where values were lost between two points, these are in different lines; all others stay joined."""
    behind = data.draw(st.integers(1, len(values) - 1))
    x = [at * 10 for at in range(len(values))]
    found = thinned(Series("", x, values), 0, x[-1], 1000, [(x[behind - 1], x[behind])])
    assert [line[0][0] for line in found.lines] == [0, x[behind]]
    whole = thinned(Series("", x, values), 0, x[-1], 1000, [(x[behind - 1] + 1, x[behind] + 1)])
    assert len(whole.lines) == 1


def test_a_spike_survives_among_half_a_million_values():
    """One value among 500,000 is in the chart, whose size does not depend on how many there are."""
    values = array("d", [math.sin(at / 1000) for at in range(500_000)])
    values[123_456] = 1e3
    svg = line_chart([Series("a", range(len(values)), values)], title="a")
    least = min(y for _, y in points(svg))
    assert least < 20
    assert len(svg) < 20_000


def test_nan_and_infinities_end_the_line_and_get_marks():
    """A NaN breaks the line and has a mark that says where; Infinity is marked at the upper edge."""
    values = [1.0, 2.0, math.nan, 3.0, 4.0, math.inf, 5.0, -math.inf, 6.0]
    svg = line_chart([Series("a", range(9), values)], title="a")
    titles = [title.text for title in drawn(svg).iter(f"{SVG}title")]
    assert [title for title in titles if "at" in title] == ["NaN at 2", "Infinity at 5", "-Infinity at 7"]
    path = next(path.get("d") for path in drawn(svg).iter(f"{SVG}path") if path.get("class") == "c0 d0")
    assert path.count("M") == 2
    assert "3 of them no finite numbers" in svg


def test_places_that_are_not_ascending_are_sorted():
    """Points are drawn by their places, those of one place in the order of the series; without a place none is."""
    found = ordered(Series("", [2.0, 1.0, math.nan, 1.0], [20.0, 10.0, 0.0, 11.0]))
    assert (list(found.x), list(found.y)) == ([1.0, 1.0, 2.0], [10.0, 11.0, 20.0])


# -- axes ------------------------------------------------------------------------------------------------------------


@given(st.lists(FINITE, min_size=1, max_size=20))
def test_every_finite_value_has_a_place_on_the_axis(values):
    """Whatever the doubles are, the axis holds all of them, in their order, and has few ticks whose labels differ."""
    axis = value_axis(values, 100.0)
    places = [axis.place(value) for value in sorted(values)]
    assert all(-1e-6 <= at <= 100 + 1e-6 for at in places)
    assert places == sorted(places)
    ticks = axis.ticks(5)
    assert len(ticks) <= 16
    assert len({name for _, name in ticks}) == len(ticks)


@pytest.mark.parametrize(
    ("low", "high", "labels"),
    [
        (0, 10, ["0", "2", "4", "6", "8", "10"]),
        (0, 500_000, ["0", "100k", "200k", "300k", "400k", "500k"]),
        (0.1, 0.5, ["0.1", "0.2", "0.3", "0.4", "0.5"]),
        (-1, 1, ["-1", "-0.5", "0", "0.5", "1"]),
        (1_000_000, 1_000_002, ["1000000", "1000000.5", "1000001", "1000001.5", "1000002"]),
        (0, 3e-7, ["0", "1e-7", "2e-7", "3e-7"]),
        (0, 4e17, ["0", "1e17", "2e17", "3e17", "4e17"]),
        (-1.7e308, 1.7e308, ["-1e308", "0", "1e308"]),
    ],
)
def test_ticks_are_round(low, high, labels):
    """Ticks stand at 1, 2 or 5 times a power of ten, and their labels have the digits that tell them apart."""
    assert [name for _, name in Axis(low, high, 100).ticks(5)] == labels


def test_the_value_axis_is_logarithmic_where_that_helps():
    """All above 0 and over a factor of a thousand: powers of ten, and the chart says so. Else not."""
    wide, narrow, signed = ([1e-6, 1.0], [0.01, 1.0], [-1e-6, 1.0])
    assert [value_axis(values, 10).is_log for values in (wide, narrow, signed)] == [True, False, False]
    svg = line_chart([Series("a", [0, 1], wide)], title="a")
    assert "log scale" in texts(svg)
    assert {"1e-6", "1e-4", "0.01", "1"} <= set(texts(svg))


@pytest.mark.parametrize(
    "values",
    [
        [],
        [0.0],
        [5.0] * 10,
        [math.nan] * 3,
        [math.inf, -math.inf],
        [1e308, -1e308],
        [5e-324, 0.0],
        [5e-324, 1e308],
        [1.7976931348623157e308] * 2,
        [-1.7976931348623157e308, 1.7976931348623157e308],
        [2.0**53, 2.0**53 + 2],
    ],
)
def test_absurd_series_are_drawn(values):
    """Nothing that doubles can be makes a chart that is no SVG, or has a coordinate that is no number."""
    for x in (range(len(values)), [1e308 * at for at in range(len(values))], [7.0] * len(values)):
        svg = line_chart([Series("a", x, values)], title="a")
        drawn(svg)
        assert not re.search(r"\b(nan|inf)\b", re.sub(r"<title>.*?</title>|aria-label=\"[^\"]*\"", "", svg))
        assert all(0 <= across <= 420 and 0 <= down <= 190 for across, down in points(svg))
    if not any(map(math.isfinite, values)):
        assert "no finite value" in texts(svg)


def test_what_was_lost_is_shaded():
    """A band over the lost places says between which; many that lie in one pixel are one band."""
    series = [Series("a", range(1000), [1.0] * 1000)]
    svg = line_chart(series, title="a", lost=[(100, 200), (500, 501)])
    bands = list(drawn(svg).iter(f"{SVG}rect"))
    assert [band[0].text for band in bands] == [
        "the log is damaged between 100 and 200",
        "the log is damaged between 500 and 501",
    ]
    assert [float(band.get("width")) > 30 for band in bands] == [True, False]
    dense = line_chart(series, title="a", lost=[(at / 100, at / 100 + 0.001) for at in range(10_000)])
    assert len(list(drawn(dense).iter(f"{SVG}rect"))) == 1


def test_a_standalone_chart_brings_style_title_and_legend():
    """For a file of its own a chart has all that it needs; names in it are text."""
    svg = line_chart(
        [Series("<b>", [0, 1], [1, 2]), Series("b & c", [0, 1], [2, 3])], title="x <y>", unit="MiB", standalone=True
    )
    assert {"x <y> (MiB)", "<b>", "b & c"} <= set(texts(svg))
    assert len(list(drawn(svg).iter(f"{SVG}style"))) == 1


def test_series_differ_in_colour_and_then_in_dashes():
    """The seventh series has the first one's colour and dashes."""
    svg = line_chart([Series(str(at), [0, 1], [at, at]) for at in range(8)], title="a")
    classes = [path.get("class") for path in drawn(svg).iter(f"{SVG}path") if path.get("class", "").startswith("c")]
    assert classes == ["c0 d0", "c1 d0", "c2 d0", "c3 d0", "c4 d0", "c5 d0", "c0 d1", "c1 d1"]


@pytest.mark.parametrize(("colours", "ground"), [(LIGHT, "#ffffff"), (DARK, "#171c23")])
def test_colours_can_be_seen(colours, ground):
    """Every series' colour has a contrast of at least 4.5 : 1 (WCAG 2.1) against its ground."""

    def luminance(colour):
        parts = [int(colour[at : at + 2], 16) / 255 for at in (1, 3, 5)]
        red, green, blue = (part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts)
        return 0.2126 * red + 0.7152 * green + 0.0722 * blue

    assert len(colours) == COLOURS
    for colour in colours:
        dark, light = sorted((luminance(colour), luminance(ground)))
        assert (light + 0.05) / (dark + 0.05) >= 4.5, colour


@given(DOUBLES)
def test_labels_and_short_numbers_are_readable_back(value):
    """A number that is shown is the number, to six digits."""
    if math.isfinite(value):
        assert float(short(value).replace(",", "")) == pytest.approx(value, rel=1e-5)
        assert float(place(value).replace(",", "")) == pytest.approx(value, rel=1e-5)
    else:
        assert short(value) in {"NaN", "Infinity", "-Infinity"}


def test_labels_of_neighbours_have_the_same_form():
    """A tick's label has the digits of the distance to the next one."""
    assert [label(value, 0.05) for value in (0.25, 0.5, 1.0)] == ["0.25", "0.5", "1"]
    assert [label(value, 5000.0) for value in (5000.0, 10_000.0)] == ["5000", "10k"]
    axis = range_axis(3, 3, 10)
    assert axis.low < 3 < axis.high


# -- histograms ------------------------------------------------------------------------------------------------------


def test_histograms_are_read_in_both_forms():
    """Edges are given, or follow from a packed form; what is no histogram is none."""
    assert Histogram.of({"_type": "histogram", "bins": [0, 1, 2], "values": [3, 4]}) == Histogram([0, 1, 2], [3, 4])
    packed = {"_type": "histogram", "packedBins": {"min": 0, "size": 0.5, "count": 2}, "values": [3, 4]}
    assert Histogram.of(packed) == Histogram([0, 0.5, 1], [3, 4])
    for broken in (
        {"_type": "histogram"},
        {"_type": "histogram", "bins": [0, 1], "values": [1, 2]},
        {"_type": "histogram", "bins": [2, 1], "values": [1]},
        {"_type": "histogram", "bins": [0, math.nan], "values": [1]},
        {"_type": "histogram", "bins": [0, 1], "values": [-1]},
        {"_type": "histogram", "bins": "ab", "values": [1]},
        {"_type": "histogram", "packedBins": {"min": 0, "size": 1, "count": 10**12}, "values": [1]},
        {"bins": [0, 1], "values": [1]},
        [1],
    ):
        assert Histogram.of(broken) is None


def test_a_heat_map_darkens_where_values_are():
    """Each histogram is a column; the cells of its fullest bins are the darkest."""
    columns = [(step, Histogram([0, 1, 2], [0, 9] if step else [9, 0])) for step in range(2)]
    svg = heat_map(columns, title="<h>")
    cells = list(drawn(svg).iter(f"{SVG}path"))
    assert [cell.get("fill-opacity") for cell in cells if cell.get("class") == "cell c0"] == ["1.00"]
    assert "&lt;h&gt;: 2 histograms by step, from 0 to 2" in svg


def test_missing_histograms_leave_a_hole():
    """Between columns that lie further apart than most, the map is empty."""
    columns = [(step, Histogram([0, 1], [1])) for step in (0, 10, 20, 70, 80)]
    cells = re.search(r'<path class="cell c0"[^>]* d="([^"]+)"', heat_map(columns, title="h"))[1]
    spans = [(float(at), float(at) + float(width)) for at, width in re.findall(r"M([\d.]+) [\d.]+h([\d.]+)", cells)]
    holes = [round(begin - end) for (_, end), (begin, _) in pairwise(sorted({*spans})) if begin - end > 1]
    assert len(holes) == 1
    assert holes[0] == pytest.approx(35 / 90 * (420 - 33 - 16), abs=2)


@given(
    st.lists(st.floats(-1e300, 1e300), min_size=2, max_size=20),
    st.floats(0, 1e300),
    st.lists(FINITE, min_size=1, max_size=9),
)
def test_any_sound_histogram_is_drawn(edges, count, places):
    """Edges that repeat, or lie far apart, and counts of any size make an SVG without numbers that are none."""
    edges = sorted(edges)
    svg = heat_map([(at, Histogram(edges, [count] * (len(edges) - 1))) for at in sorted(places)], title="h")
    drawn(svg)
    assert "nan" not in svg
    assert not re.search(r"[Mh]-?inf", svg)
