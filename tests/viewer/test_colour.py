from __future__ import annotations

import itertools
import re

import pytest
from runferry.viewer.canvas import BLANK, Cell
from runferry.viewer.colour import Colours, colours_of, nearest_256, to_ansi, to_text

ROW = [Cell("a", 0), Cell("b", 0), BLANK, Cell("c", 1), Cell("", 1), Cell("d", "axis")]


def linear(rgb):
    return [(part / 255 / 12.92) if part <= 10 else ((part / 255 + 0.055) / 1.055) ** 2.4 for part in rgb]


def luminance(rgb):
    """Of sRGB, 0 to 1 (WCAG 2.2)."""
    red, green, blue = linear(rgb)
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue


def contrast(one, other):
    lower, higher = sorted((luminance(one), luminance(other)))
    return (higher + 0.05) / (lower + 0.05)


def test_codes_stand_where_colours_change():
    """A line has one sequence for cells of one colour, none for blanks, and ends without any."""
    blue, orange = Colours().code(0), Colours().code(1)
    axis = Colours().code("axis")
    assert to_ansi([ROW, ROW[:0]], Colours()) == f"\x1b[{blue}mab \x1b[{orange}mc\x1b[{axis}md\x1b[0m\n"


@pytest.mark.parametrize(
    ("depth", "pattern"),
    [("truecolour", r"38;2;\d+;\d+;\d+"), ("256", r"38;5;\d+"), ("16", r"(3[0-7]|9[0-7])"), ("none", "")],
)
@pytest.mark.parametrize("dark", [True, False])
def test_codes_are_those_of_the_terminal(depth, pattern, dark):
    """Every series, role and level has a code of that terminal, and of none without colours."""
    colours = Colours(depth, dark)
    roles = ["axis", "text", "title", "guide", "gap", "mark", "cursor", *(f"heat{level}" for level in range(10))]
    for colour in [*range(20), *roles]:
        for bright in (True, False):
            assert re.fullmatch(pattern, colours.code(colour, bright=bright))
    assert ("\x1b" in to_ansi([ROW], colours)) is (depth != "none")


def test_plain_text():
    """Text without colours has no blanks at the ends of lines."""
    assert to_text([[*ROW, BLANK], [BLANK]]) == "ab cd\n"


@pytest.mark.parametrize("dark", [True, False])
def test_series_stand_out_and_apart(dark):
    """Colours of series have 3 : 1 against the ground, and differ from one another; dim ones are nearer to the ground."""
    ground = (16, 18, 22) if dark else (255, 255, 255)
    colours = Colours(dark=dark)
    shown = [colours.rgb(number) for number in range(6)]
    assert all(contrast(colour, ground) >= 3 for colour in shown)
    assert len(set(shown)) == 6
    assert all(
        contrast(colours.rgb(number, bright=False), ground) < contrast(colours.rgb(number), ground)
        for number in range(6)
    )


@pytest.mark.parametrize("dark", [True, False])
def test_levels_of_heat_are_in_order_of_lightness(dark):
    """From level to level the ground is left further behind, so that their order needs no hues."""
    levels = [luminance(Colours(dark=dark).rgb(f"heat{level}")) for level in range(10)]
    assert all((lower < higher) is dark for lower, higher in itertools.pairwise(levels))


@pytest.mark.parametrize(
    ("environ", "is_terminal", "depth"),
    [
        ({"TERM": "xterm-256color", "COLORTERM": "truecolor"}, True, "truecolour"),
        ({"TERM": "xterm-256color"}, True, "256"),
        ({"TERM": "screen-256color", "COLORTERM": "truecolor"}, True, "256"),
        ({"TERM": "tmux-256color", "COLORTERM": "24bit"}, True, "truecolour"),
        ({"TERM": "linux"}, True, "16"),
        ({"TERM": "screen"}, True, "16"),
        ({"TERM": "dumb"}, True, "none"),
        ({}, True, "none"),
        ({"TERM": "xterm-256color", "NO_COLOR": "1"}, True, "none"),
        ({"TERM": "xterm-256color", "NO_COLOR": ""}, True, "256"),
        ({"TERM": "xterm-256color"}, False, "none"),
    ],
)
def test_terminals_are_known_by_their_environment(environ, is_terminal, depth):
    """How many colours are used follows from TERM, COLORTERM and NO_COLOR, and whether it is a terminal at all."""
    assert colours_of(environ, is_terminal=is_terminal).depth == depth


def test_nearest_of_256():
    """Colours of the cube and greys are found, and others become one near them."""
    assert [nearest_256(rgb) for rgb in ((255, 0, 0), (0, 0, 0), (118, 118, 118), (95, 135, 175))] == [196, 16, 243, 67]


def test_unknown_depths_are_refused():
    """A number of colours that is none is an error."""
    with pytest.raises(ValueError, match="truecolour"):
        Colours("88")
