"""The look of charts: colours that the colour-blind tell apart, on light and on dark ground, and on paper."""

from __future__ import annotations

COLOURS = 6
"""Colours of series; further ones repeat them, dashed."""
MOST_RUNS = 3 * COLOURS
"""In one chart: colours times kinds of dashes."""

LIGHT = ("#0067a5", "#c44a00", "#00795c", "#9c3a7d", "#7a6200", "#4c4f57")
DARK = ("#5cb6f0", "#ff9150", "#35cfa0", "#ec97cb", "#e3c53a", "#b9bec9")
"""At least 4.5 : 1 against the ground of either."""


def _colours(colours: tuple[str, ...]) -> str:
    return "".join(f".chart .c{number}{{--c:{colour}}}" for number, colour in enumerate(colours))


CHART_CSS = (
    ".chart{font:11px system-ui,sans-serif;--ink:#1c2430;--soft:#5b6472;--grid:#e3e7ec;--lost:#8a93a3}"
    ".chart text{fill:var(--soft)}.chart .name{fill:var(--ink);font-size:13px;font-weight:600}"
    ".chart .grid{fill:none;stroke:var(--grid)}.chart .axis{fill:none;stroke:var(--soft)}"
    ".chart .lost{fill:var(--lost);fill-opacity:.3}"
    ".chart [class^=c]{fill:none;stroke:var(--c);stroke-width:1.5;stroke-linejoin:round}"
    ".chart circle[class^=c]{fill:var(--c);stroke:none}"
    ".chart .dots{fill:none;stroke:var(--c);stroke-width:4;stroke-linecap:round}"
    ".chart .odd{fill:var(--c);stroke:none}"
    ".chart path.d1{stroke-dasharray:6 3}.chart path.d2{stroke-dasharray:2 3}.chart .odd,.chart .dots{stroke-dasharray:none}"
    ".chart .cell{stroke:none;fill:var(--c)}"
    f"{_colours(LIGHT)}"
    "@media (prefers-color-scheme:dark){@media screen{"
    ".chart{--ink:#e4e8ee;--soft:#9aa6b6;--grid:#2a323d;--lost:#8a93a3}"
    f"{_colours(DARK)}}}}}"
)
"""For elements below `.chart`. Paper is always light."""
