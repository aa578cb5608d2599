"""Several runs side by side in one page: who they are, their metrics over each other, and in what they differ."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from itertools import islice
from typing import Any

from ..logformat import RunState
from ..logformat.words import counted
from .chart import Series, line_chart
from .chart_axis import short
from .chart_style import COLOURS, MOST_RUNS
from .contents import WHATS
from .markup import text
from .report import Limits, Source, page, status_of
from .report_charts import Curve, Room, card, curves, grouped, legend, window
from .report_parts import cell, duration, grid, leaves, moment, note, section
from .report_series import Numbers, natural
from .selection import Selection

_EVERYTHING, _USUAL = Selection(), Limits()


def render_comparison(
    runs: Sequence[tuple[RunState, Source]],
    *,
    whats: Sequence[str] = WHATS,
    selection: Selection = _EVERYTHING,
    limits: Limits = _USUAL,
) -> str:
    """The page of several runs. Charts have one series for each of the first `MOST_RUNS` runs that logged the metric.

    Args:
        runs: states, each with what is known besides. The rows of the first `MOST_RUNS` were kept.
        whats: which of `rows`, `config` and `summary` it shows.
        selection: which metrics have charts, and the steps that these show.
        limits: how much of what.
    """
    room = Room(limits.charts)
    names = _names(runs)
    made: tuple[tuple[str, Callable[[], str]], ...] = (
        ("rows", lambda: section("metrics", "Metrics", _charts(runs, names, selection, room))),
        ("config", lambda: _differences("config", "Config", [state.config for state, _ in runs], names, limits)),
        ("summary", lambda: _differences("summary", "Summary", [state.summary for state, _ in runs], names, limits)),
    )
    sections = [
        section("runs", "Runs", _overview(runs, names)),
        *(make() for what, make in made if what in whats),
        room.said(),
    ]
    return page(f"{len(runs)} runs", f"<header><h1>{len(runs)} runs</h1></header>", sections)


def _names(runs: Sequence[tuple[RunState, Source]]) -> list[str]:
    """What the runs are called: by their names where these tell them apart, else with their ids."""
    shown = [state.info.display_name or state.info.run_id or "?" for state, _ in runs]
    return [
        name if shown.count(name) == 1 else f"{name} ({state.info.run_id or at})"
        for at, (name, (state, _)) in enumerate(zip(shown, runs, strict=True), 1)
    ]


def _swatch(number: int) -> str:
    return f'<span class="swatch c{number % COLOURS} d{number // COLOURS % 3}"></span>' if number < MOST_RUNS else ""


def _overview(runs: Sequence[tuple[RunState, Source]], names: Sequence[str]) -> str:
    heads = ("run", "id", "state", "started", "ran", "rows", "last step", "tags", "lost")
    rows = [
        (
            f"{_swatch(number)}{text(name, 200)}",
            text(state.info.run_id, 100),
            text(status_of(state, source)),
            moment(state.info.start_time_ns),
            duration(state.runtime),
            f"{state.row_count:,}",
            "" if state.last_step is None else f"{state.last_step:,}",
            text(", ".join(state.info.tags), 300),
            _lost(state),
        )
        for number, (name, (state, source)) in enumerate(zip(names, runs, strict=True))
    ]
    more = f"Charts have the first {MOST_RUNS} runs of {len(runs)}." if len(runs) > MOST_RUNS else ""
    return grid(heads, rows) + note(more)


def _lost(state: RunState) -> str:
    if not state.damage:
        return ""
    return "records lost" if state.records_lost is None else f"{counted(state.records_lost, 'record')} lost"


def _charts(runs: Sequence[tuple[RunState, Source]], names: Sequence[str], selection: Selection, room: Room) -> str:
    found: dict[tuple[str, str], list[tuple[int, Curve]]] = {}
    for number, (state, _) in enumerate(runs[:MOST_RUNS]):
        for curve in curves(state, selection):
            found.setdefault((curve.group, curve.name), []).append((number, curve))
    groups: dict[str, list[str]] = {}
    for group, name in sorted(found, key=lambda key: (natural(key[0]), natural(key[1]))):
        made = room.take(name, partial(_overlay, name, found[group, name], names, selection))
        if made:
            groups.setdefault(group, []).append(made)
    return grouped(groups)


def _overlay(name: str, members: Sequence[tuple[int, Curve]], names: Sequence[str], selection: Selection) -> str:
    """A metric of several runs in one chart, each in its run's colour."""
    series, last, colours = [], [], []
    by = {curve.places.name for _, curve in members}
    for number, curve in members:
        places = curve.places if len(by) == 1 else curve.steps
        x, y = Numbers.of(curve.column).between(places.values, *window(selection))
        if len(y):
            series.append(Series(names[number], x, y, places.lost))
            last.append((names[number], short(y[-1])))
            colours.append(number)
    if not any(len(one.y) > 1 for one in series):
        return ""
    svg = line_chart(series, title=name, x_label=by.pop() if len(by) == 1 else "step", colours=colours)
    return card(name, counted(len(series), "run"), svg, more=legend(last, colours))


def _differences(
    anchor: str, title: str, trees: Sequence[Mapping[str, Any]], names: Sequence[str], limits: Limits
) -> str:
    """The keys of which not all runs have the same value."""
    flat = [
        dict(islice(leaves({key: value for key, value in tree.items() if key != "_wandb"}), 100_000)) for tree in trees
    ]
    keys = sorted({key for one in flat for key in one}, key=lambda key: (key.startswith("_"), natural(key)))
    different = [key for key in keys if any(_differs(flat[0], one, key) for one in flat[1:])]
    body = grid(("", *names), _lines(different[: limits.table], flat))
    left = len(different) - limits.table
    if left > 0:
        body += note(f"{counted(left, 'more key')} left out here")
    same = len(keys) - len(different)
    return section(anchor, title, body, f"where they differ; {counted(same, 'key')} the same") if body else ""


def _differs(one: Mapping[str, Any], other: Mapping[str, Any], key: str) -> bool:
    if key not in one or key not in other:
        return (key in one) != (key in other)
    first, second = one[key], other[key]
    both_nan = isinstance(first, float) and isinstance(second, float) and math.isnan(first) and math.isnan(second)
    return bool(first != second) and not both_nan


def _lines(keys: Sequence[str], flat: Sequence[Mapping[str, Any]]) -> Iterator[list[str]]:
    for key in keys:
        yield [text(key, 300), *(cell(one[key]) if key in one else "" for one in flat)]
