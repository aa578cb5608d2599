"""The charts of the report: cards with a name, the last value, the chart, and what is to be said of it."""

from __future__ import annotations

import math
from array import array
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial

from ..logformat import RunState
from ..logformat.column import Column
from ..logformat.elapsed import in_seconds
from ..logformat.words import counted
from .chart import Series, line_chart
from .chart_axis import place, short
from .chart_heatmap import Histogram, heat_map
from .chart_style import COLOURS
from .markup import text
from .report_parts import note, number
from .report_series import (
    Definitions,
    Numbers,
    Places,
    RowPlaces,
    SampleGroup,
    histogram_places,
    natural,
    path_of,
    pauses,
    sample_groups,
    time_scale,
)
from .report_units import scaled, together
from .selection import Selection

_HISTOGRAMS = 48
"""Columns of a heat map: steps of which the histogram is shown."""
_NAMED = 40
"""Names of charts that are left out."""
_NAME = 200


class Room:
    """Bytes that charts may take together; who asks when they are spent is refused."""

    def __init__(self, count: int) -> None:
        self._left = count
        self.refused: list[str] = []
        """Names of the charts for which there was no room."""

    def take(self, name: str, make: Callable[[], str]) -> str:
        """What `make` makes; empty if there is no room left."""
        if self._left <= 0:
            self.refused.append(name)
            return ""
        made = make()
        self._left -= len(made)
        return made

    def said(self) -> str:
        """What was left out, in words."""
        if not self.refused:
            return ""
        names = ", ".join(self.refused[:_NAMED]) + (", …" if len(self.refused) > _NAMED else "")
        return note(f"No room left on this page for {counted(len(self.refused), 'chart')}: {names[:8_000]}")


@dataclass(slots=True)
class Curve:
    """A metric of a run that has a chart."""

    name: str
    group: str
    column: Column
    places: Places
    steps: Places


def curves(state: RunState, selection: Selection) -> Iterator[Curve]:
    """Keys that may have a chart, by group and name: those in no group first. Internal and hidden ones are left out."""
    definitions, places = Definitions(state.metrics), RowPlaces(state)
    names = state.rows.names
    found = []
    for column in state.rows.columns:
        name = names[column.path]
        if column.path[0].startswith("_") or not selection.wants(name):
            continue
        rule = definitions.of(column.path, name)
        if not rule.is_hidden:
            found.append((group_of(column.path), name, column, rule.step_metric))
    for group, name, column, step_metric in sorted(found, key=lambda one: (natural(one[0]), natural(one[1]))):
        by = places.by("" if path_of(step_metric) == column.path else step_metric)
        yield Curve(name, group, column, by, places.steps)


def group_of(path: tuple[str, ...]) -> str:
    """What charts stand together: the key's first level, by nesting or by a slash."""
    first, slash, _ = path[0].partition("/")
    return first if slash or len(path) > 1 else ""


def metric_cards(state: RunState, selection: Selection, room: Room) -> dict[str, list[str]]:
    """The cards of a run's metrics by group. A metric that was logged once has none: the summary says its value."""
    groups: dict[str, list[str]] = {}
    for curve in curves(state, selection):
        made = room.take(curve.name, partial(_metric_card, curve, selection))
        if made:
            groups.setdefault(curve.group, []).append(made)
    return groups


def _metric_card(curve: Curve, selection: Selection) -> str:
    column = curve.column
    if column.kind == "json" and len(column):
        steps = histogram_places(column, _HISTOGRAMS)
        found = [
            (curve.places.values[row], histogram)
            for row, value in steps
            if (histogram := Histogram.of(value)) is not None
        ]
        shown = sorted((one for one in found if math.isfinite(one[0])), key=lambda one: one[0])
        if shown:
            svg = heat_map(shown, title=curve.name, x_label=curve.places.name)
            about = f"{len(shown)} of {counted(len(column), 'histogram')}" if len(column) > len(shown) else ""
            return card(curve.name, counted(len(column), "histogram"), svg, about)
    x, y = Numbers.of(column).between(curve.places.values, *window(selection))
    if len(y) < 2:
        return ""
    svg = line_chart([Series(curve.name, x, y)], title=curve.name, x_label=curve.places.name, lost=curve.places.lost)
    unplaced = sum(not math.isfinite(at) for at in x) if curve.places.name != "step" else 0
    said = _said(x, y, curve.places.name)
    if unplaced:
        said += f" · {counted(unplaced, 'value')} without {curve.places.name} not drawn"
    return card(curve.name, number(_as_logged(column, y[-1])), svg, said)


def window(selection: Selection) -> tuple[float, float]:
    """The places that are wanted, from and to."""
    low = -math.inf if selection.first_step is None else float(selection.first_step)
    high = math.inf if selection.end_step is None else float(selection.end_step - 1)
    return low, high


def _as_logged(column: Column, value: float) -> float:
    """A value with its kind: integers are shown as such."""
    is_whole = column.kind == "int" and math.isfinite(value)
    return int(value) if is_whole else value


def _said(x: Sequence[float], y: array[float], by: str) -> str:
    """Least and greatest value and where they stand, how many there are, how many are no numbers."""
    finite = y if all(map(math.isfinite, y)) else array("d", filter(math.isfinite, y))
    parts = []
    if finite:
        for name, value in (("min", min(finite)), ("max", max(finite))):
            at = x[y.index(value)]
            parts.append(f"{name} {short(value)}{f' at {place(at)}' if math.isfinite(at) else ''}")
    parts.append(f"{len(y):,} values by {by}")
    for kind, count in (("NaN", sum(map(math.isnan, y))), ("infinite", sum(map(math.isinf, y)))):
        if count:
            is_it = math.isnan if kind == "NaN" else math.isinf
            first = next(at for at, value in zip(x, y, strict=True) if is_it(value))
            parts.append(f"{count:,} {kind}, the first at {place(first)}")
    return " · ".join(parts)


def card(name: str, value: str, svg: str, about: str = "", more: str = "") -> str:
    """A chart with its name, a `value` beside it, and below it what is `more` (both HTML) and what it is `about`."""
    said = f"<p>{text(about, 1000)}</p>" if about else ""
    return f'<figure class="card"><figcaption><b>{text(name, _NAME)}</b><span>{value}</span></figcaption>{svg}{more}{said}</figure>'


def grouped(groups: Mapping[str, Sequence[str]]) -> str:
    """Cards by their groups; those that are alone in theirs stand with those that have none, first."""
    alone = [cards[0] for cards in groups.values() if len(cards) == 1]
    first = [*(groups.get("", ()) if len(groups.get("", ())) > 1 else ()), *alone]
    rest = [(group, cards) for group, cards in groups.items() if group and len(cards) > 1]
    return "".join(
        (f"<h3>{text(group, _NAME)}</h3>" if group else "") + f'<div class="charts">{"".join(cards)}</div>'
        for group, cards in (("", first), *rest)
        if cards
    )


def legend(names: Sequence[tuple[str, str]], colours: Sequence[int] = ()) -> str:
    """Names of series with something of each as HTML, and their colours: those of their places, if no others are given."""
    items = "".join(
        f'<li><span class="swatch c{number % COLOURS} d{number // COLOURS % 3}"></span>{text(name, 80)}: {value}</li>'
        for number, (name, value) in zip(colours or range(len(names)), names, strict=True)
    )
    return f"<ul>{items}</ul>"


def system_cards(state: RunState, selection: Selection, room: Room) -> tuple[list[str], list[str]]:
    """The cards of system metrics, and those of the sampler itself."""
    times = state.samples.timestamps_ns
    begin_ns = state.info.start_time_ns or min(times, default=0)
    size, unit = time_scale(in_seconds(max(times, default=0) - begin_ns))
    cards: tuple[list[str], list[str]] = ([], [])
    for group in sample_groups([column for column in state.samples.columns if selection.wants(column.key)]):
        made = room.take(group.title, partial(_system_card, group, begin_ns, size, f"{unit} since the start"))
        if made:
            cards[group.title.startswith("sampler.")].append(made)
    return cards


def _system_card(group: SampleGroup, begin_ns: int, size: float, x_label: str) -> str:
    columns = [(name, column) for name, column in group.columns if len(column) > 1]
    if not columns:
        return ""
    values = [column.doubles() for _, column in columns]
    largest = max((abs(value) for column in values for value in column if math.isfinite(value)), default=0.0)
    factor, unit = scaled(together([column.key for _, column in columns]), largest)
    series = []
    for (name, column), y in zip(columns, values, strict=True):
        x = array("d", (in_seconds(time - begin_ns) / size for time in column.timestamps_ns))
        shown = y if factor == 1 else array("d", (value / factor for value in y))
        series.append(Series(name, x, shown, pauses(sorted(x))))
    svg = line_chart(series, title=group.title, x_label=x_label, unit=unit, from_zero=True)
    last = [(one.name, f"{short(one.y[-1])} {text(unit)}") for one in series]
    if len(last) == 1:
        return card(group.title, last[0][1], svg)
    return card(group.title, text(unit), svg, more=legend(last))
