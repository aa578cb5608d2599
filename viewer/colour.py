"""Colours of charts for terminals of every kind, and cells as text with or without them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from ..export.chart_style import DARK, LIGHT
from .canvas import Cell

DEPTHS = ("none", "16", "256", "truecolour")
RGB = tuple[int, int, int]

_RESET = "\x1b[0m"
_SIXTEEN = (94, 93, 92, 95, 96, 91, 97)
"""Bright codes of series; their dim ones are 60 below. Blue and yellow first: everybody tells those apart."""
_SIXTEEN_ROLES = {"text": 37, "title": 97, "axis": 37, "guide": 90, "gap": 90, "mark": 91, "cursor": 97}
_SIXTEEN_HEAT = (90, 34, 34, 94, 36, 36, 96, 33, 93, 97)
_ROLES = {
    "text": ((150, 158, 170), (85, 92, 104)),
    "title": ((230, 234, 240), (20, 24, 31)),
    "axis": ((92, 100, 114), (140, 147, 158)),
    "guide": ((52, 59, 70), (212, 217, 224)),
    "gap": ((105, 112, 125), (165, 172, 183)),
    "mark": ((255, 107, 107), (190, 18, 36)),
    "cursor": ((230, 234, 240), (20, 24, 31)),
}
"""On dark and on light ground."""
_HEAT = {
    True: ((26, 32, 64), (34, 92, 140), (46, 158, 140), (170, 205, 80), (255, 240, 150)),
    False: ((222, 230, 240), (150, 195, 220), (70, 150, 190), (40, 90, 150), (20, 30, 80)),
}
"""From few to many, evenly in lightness, so that they keep their order for the colour-blind and in print."""
_DIM = 0.45
"""What is left of a colour that is not bright; the rest is the ground."""


@dataclass(frozen=True, slots=True)
class Colours:
    """The colours of a terminal: how many it has, and whether its ground is dark."""

    depth: str = "truecolour"
    """none, 16, 256 or truecolour."""
    dark: bool = True

    def __post_init__(self) -> None:
        if self.depth not in DEPTHS:
            raise ValueError(f"colours {self.depth!r}: one of {', '.join(DEPTHS)}")

    def rgb(self, colour: int | str, *, bright: bool = True) -> RGB:
        """The colour of a series or role as red, green and blue of 0 to 255, whatever the terminal has."""
        if isinstance(colour, str):
            if colour.startswith("heat"):
                return _between(_HEAT[self.dark], int(colour[4:] or 0) / 9)
            return _ROLES.get(colour, _ROLES["text"])[0 if self.dark else 1]
        palette = DARK if self.dark else LIGHT
        code = palette[colour % len(palette)]
        shown = int(code[1:3], 16), int(code[3:5], 16), int(code[5:7], 16)
        return shown if bright else _mixed(shown, (16, 18, 22) if self.dark else (255, 255, 255), _DIM)

    def code(self, colour: int | str, *, bright: bool = True) -> str:
        """The parameters of the SGR sequence (ECMA-48, 8.3.117) of a colour; empty for none."""
        if self.depth == "none":
            return ""
        if self.depth == "16":
            return str(self._sixteen(colour, bright=bright))
        red, green, blue = self.rgb(colour, bright=bright)
        if self.depth == "256":
            return f"38;5;{nearest_256((red, green, blue))}"
        return f"38;2;{red};{green};{blue}"

    def _sixteen(self, colour: int | str, *, bright: bool) -> int:
        if isinstance(colour, int):
            code = _SIXTEEN[colour % len(_SIXTEEN)]
            return code if bright is self.dark else code - 60
        code = _SIXTEEN_HEAT[int(colour[4:] or 0)] if colour.startswith("heat") else _SIXTEEN_ROLES.get(colour, 37)
        if self.dark or code == 90:
            return code
        return 30 if code in {37, 97} else code - 60 if code >= 90 else code


def colours_of(environ: Mapping[str, str], *, is_terminal: bool, dark: bool = True) -> Colours:
    """What a terminal can show, by its environment: NO_COLOR (no-color.org), COLORTERM and TERM."""
    term = environ.get("TERM", "")
    if not is_terminal or environ.get("NO_COLOR") or term in {"", "dumb"}:
        return Colours("none", dark)
    # screen takes no true colour however its COLORTERM was inherited.
    if environ.get("COLORTERM", "") in {"truecolor", "24bit"} and not term.startswith("screen"):
        return Colours("truecolour", dark)
    return Colours("256" if "256color" in term or "direct" in term else "16", dark)


def to_ansi(cells: Iterable[Sequence[Cell]], colours: Colours) -> str:
    """Rows of cells as lines of text, with SGR sequences where colours change; each line begins and ends without any."""
    lines = []
    codes: dict[tuple[int | str, bool], str] = {}
    for row in cells:
        parts, current = [], ""
        for char, colour, bright in row:
            code = current if char == " " else codes.get((colour, bright))
            if code is None:
                code = codes[colour, bright] = colours.code(colour, bright=bright)
            if code != current:
                parts.append(f"\x1b[{code}m" if code else _RESET)
                current = code
            parts.append(char)
        lines.append("".join(parts) + (_RESET if current else ""))
    return "\n".join(lines)


def to_text(cells: Iterable[Sequence[Cell]]) -> str:
    """Rows of cells as lines of text without colours, and without the blanks at their ends."""
    return "\n".join("".join(cell.char for cell in row).rstrip() for row in cells)


def nearest_256(rgb: RGB) -> int:
    """The number of the nearest of the 240 fixed colours of a terminal of 256: a cube of 6 levels, and 24 greys."""
    levels = (0, 95, 135, 175, 215, 255)
    cube = [min(range(6), key=lambda level, part=part: abs(levels[level] - part)) for part in rgb]  # type: ignore[misc]
    grey = min(max(round((sum(rgb) / 3 - 8) / 10), 0), 23)
    in_cube = (levels[cube[0]], levels[cube[1]], levels[cube[2]])
    if _distance(rgb, (8 + 10 * grey,) * 3) < _distance(rgb, in_cube):
        return 232 + grey
    return 16 + 36 * cube[0] + 6 * cube[1] + cube[2]


def _distance(one: RGB, other: RGB) -> int:
    return sum((a - b) ** 2 for a, b in zip(one, other, strict=True))


def _mixed(one: RGB, other: RGB, part: float) -> RGB:
    red, green, blue = (round(a * part + b * (1 - part)) for a, b in zip(one, other, strict=True))
    return red, green, blue


def _between(stops: Sequence[RGB], at: float) -> RGB:
    place = min(max(at, 0.0), 1.0) * (len(stops) - 1)
    lower = min(int(place), len(stops) - 2)
    return _mixed(stops[lower + 1], stops[lower], place - lower)
