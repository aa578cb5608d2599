"""What of a run becomes charts: numbers by step, or by the metric that they were defined to go with, and samples by time."""

from __future__ import annotations

import math
import re
from array import array
from bisect import bisect_left
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import islice
from operator import sub
from typing import Any

from ..logformat import RunState
from ..logformat.column import Column
from ..logformat.history import STEP, Path
from ..logformat.metricsummaries import glob_matches
from ..logformat.samples import SampleColumn

Ranges = list[tuple[float, float]]

_NUMBERS = frozenset({"int", "float", "number"})
_LEVELS = re.compile(r"(?<!\\)\.")
_PAUSE = 5.0
"""Times the usual distance of two samples after which nothing was sampled, rather than a little late."""


@dataclass(slots=True)
class Numbers:
    """The numbers of one key: values, and the rows they stand in. Values may be NaN or infinite."""

    rows: Sequence[int]
    values: array[float]

    @classmethod
    def of(cls, column: Column) -> Numbers:
        """What a column has of numbers; nulls, texts and objects are left out."""
        if column.kind in _NUMBERS and not column.nulls:
            return cls(column.rows, column.doubles())
        if column.kind not in {*_NUMBERS, "json"}:
            return cls(range(0), array("d"))
        rows, values = array("q"), array("d")
        for row, value in zip(column.rows, column.values, strict=True):
            if isinstance(value, (int, float)) and not isinstance(value, bool):
                rows.append(row)
                values.append(_double(value))
        return cls(rows, values)

    def between(self, places: Sequence[float], low: float, high: float) -> tuple[Sequence[float], array[float]]:
        """Places and values of those whose place (by row) is from `low` to `high`."""
        if isinstance(self.rows, range):
            x: Sequence[float] = places[self.rows.start : self.rows.stop]
        else:
            x = array("d", map(places.__getitem__, self.rows))
        if low == -math.inf and high == math.inf:
            return x, self.values
        kept = [index for index, place in enumerate(x) if low <= place <= high]
        return array("d", map(x.__getitem__, kept)), array("d", map(self.values.__getitem__, kept))


def _double(value: float) -> float:
    try:
        return float(value)
    except OverflowError:  # an integer of more digits than a double has room for
        return math.inf if value > 0 else -math.inf


@dataclass(slots=True)
class Rule:
    """How a key was defined: by whom its charts go, and whether it has any."""

    step_metric: str = ""
    is_hidden: bool = False


class Definitions:
    """The metric definitions of a run."""

    def __init__(self, metrics: Sequence[Any]) -> None:
        self._rules: dict[Path, Rule] = {}
        self._globs: list[tuple[str, Rule]] = []
        names = {number: metric.name for number, metric in enumerate(metrics, 1)}
        for metric in metrics:
            by = metric.step_metric or names.get(metric.step_metric_index, "")
            rule = Rule(by, metric.options.hidden)
            if metric.name:
                self._rules[(metric.name,)] = self._rules[path_of(metric.name)] = rule
            elif metric.glob_name:
                self._globs.append((metric.glob_name, rule))

    def of(self, path: Path, name: str) -> Rule:
        """The rule for a key; a name goes before patterns, of which the first counts."""
        rule = self._rules.get(path)
        if rule is None:
            rule = next((rule for glob, rule in self._globs if glob_matches(glob, name)), None)
        return rule or Rule()


def path_of(name: str) -> Path:
    """The key that a definition's name means: dots separate levels, unless escaped."""
    return tuple(part.replace("\\.", ".") for part in _LEVELS.split(name))


@dataclass(slots=True)
class Places:
    """Where rows stand: a number for each row, what it is called, and where rows were lost."""

    name: str
    values: Sequence[float]
    lost: Ranges = field(default_factory=list)


class RowPlaces:
    """The places of a run's rows: steps, and those by other metrics."""

    def __init__(self, state: RunState) -> None:
        self._rows = state.rows
        self._gaps = _gap_rows(state)
        self.steps = Places("step", _steps(state))
        self.steps.lost = _lost(self._gaps, self.steps.values)
        self._others: dict[str, Places | None] = {}

    def by(self, metric: str) -> Places:
        """Places by a metric, NaN in rows that lack it; steps if no row has it."""
        if not metric or metric == "_step":
            return self.steps
        if metric not in self._others:
            self._others[metric] = self._read(metric)
        return self._others[metric] or self.steps

    def _read(self, metric: str) -> Places | None:
        for path in ((metric,), path_of(metric)):
            try:
                numbers = Numbers.of(self._rows.column(path))
            except KeyError:
                continue
            values = array("d", [math.nan]) * len(self._rows)
            for row, value in zip(numbers.rows, numbers.values, strict=True):
                values[row] = value
            return Places(metric, values, _lost(self._gaps, values))
        return None


def _steps(state: RunState) -> Sequence[float]:
    """The step of each row; one that has none follows the row before it, from 0 on."""
    count = len(state.rows)
    try:
        numbers = Numbers.of(state.rows.column(STEP))
    except KeyError:
        return array("d", map(float, range(count)))
    if len(numbers.rows) == count:
        return numbers.values
    known = dict(zip(numbers.rows, numbers.values, strict=True))
    steps, step = array("d"), -1.0
    for row in range(count):
        step = known.get(row, step + 1)
        steps.append(step)
    return steps


def _gap_rows(state: RunState) -> list[int]:
    """Before which rows something was lost for certain, ascending."""
    damage = set(map(id, state.damage))
    return sorted({row for gap, row in zip(state.gaps, state.gap_rows, strict=True) if id(gap) in damage})


def _lost(gaps: Sequence[int], places: Sequence[float]) -> Ranges:
    """The ranges between the last row before a gap and the first one behind it, if there is room between them."""
    lost: Ranges = []
    known = [row for row, place in enumerate(places) if math.isfinite(place)] if gaps else []
    for gap in gaps:
        at = bisect_left(known, gap)
        if at == len(known):
            continue
        high = places[known[at]]
        low = places[known[at - 1]] if at else min(0.0, high)
        if high - low <= 1:
            continue
        if lost and low < lost[-1][1]:
            lost[-1] = (lost[-1][0], max(high, lost[-1][1]))
        else:
            lost.append((low, high))
    return lost


# -- samples ---------------------------------------------------------------------------------------------------------


@dataclass(slots=True)
class SampleGroup:
    """System metrics that belong in one chart: what they are called together, and each one's key by its short name."""

    title: str
    columns: list[tuple[str, SampleColumn]]


_DIGITS = re.compile(r"(\d+)")
_LABEL = re.compile(r"/l:(.*)\Z", re.DOTALL)
_PAIRS = {
    "in": "in, out", "out": "in, out", "sent": "sent, recv", "recv": "sent, recv",
    "readRate": "readRate, writeRate", "writeRate": "readRate, writeRate",
    "sentRate": "sentRate, recvRate", "recvRate": "sentRate, recvRate",
}  # fmt: skip
MOST_TOGETHER = 16
"""Series in one chart; more cannot be told apart."""


def sample_groups(columns: Sequence[SampleColumn]) -> list[SampleGroup]:
    """Metrics that differ only in the number of a device or in a node's label, or are a pair such as sent and received.

    The sampler's own metrics come last.
    """
    groups: dict[str, list[tuple[str, SampleColumn]]] = {}
    for column in columns:
        label = _LABEL.search(column.key)
        parts = _LABEL.sub("", column.key).split(".")
        varies = [part for part in parts if part.isdecimal()]
        title = ".".join("*" if part.isdecimal() else part for part in parts)
        last = parts[-1]
        if last in _PAIRS and len(parts) > 1:
            varies.append(last)
            title = ".".join([*title.split(".")[:-1], _PAIRS[last]])
        name = " ".join([*varies, *([label[1]] if label else [])])
        groups.setdefault(title, []).append((name or last, column))
    found = []
    for title, members in groups.items():
        members.sort(key=lambda member: natural(member[0]))
        for first in range(0, len(members), MOST_TOGETHER):
            part = members[first : first + MOST_TOGETHER]
            about = f"{title} ({first + 1} to {first + len(part)})" if len(members) > MOST_TOGETHER else title
            found.append(SampleGroup(about, part))
    return sorted(found, key=lambda group: (_rank(group.title), natural(group.title)))


def _rank(title: str) -> int:
    first = title.partition(".")[0]
    return 0 if first in {"gpu", "tpu", "trn", "ipu"} else 2 if first == "sampler" else 1


def natural(name: str) -> list[tuple[int, str]]:
    """What names are sorted by: numbers in them by size."""
    return [(int(part), "") if part.isdecimal() and len(part) < 19 else (-1, part) for part in _DIGITS.split(name)]


def pauses(times: Sequence[float]) -> Ranges:
    """Where so much time lies between two samples that some were not taken; `times` ascending."""
    distances = array("d", map(sub, islice(times, 1, None), times))
    if len(distances) < 3:
        return []
    usual = sorted(distances)[len(distances) // 2]
    if usual <= 0:
        return []
    return [(times[at], times[at + 1]) for at, distance in enumerate(distances) if distance > _PAUSE * usual]


def time_scale(seconds: float) -> tuple[float, str]:
    """What to divide seconds by, and the name of that unit, so that a span of so many reads well."""
    for size, name in ((86_400.0, "days"), (3600.0, "hours"), (60.0, "minutes")):
        if seconds > 3 * size:
            return size, name
    return 1.0, "seconds"


def histogram_places(column: Column, most: int) -> Iterator[tuple[int, Any]]:
    """Rows and values of at most `most` evenly chosen values of a column, first and last among them."""
    count = len(column)
    wanted = min(most, count)
    for place in sorted({round(number * (count - 1) / max(wanted - 1, 1)) for number in range(wanted)}):
        yield column.rows[place], column.slice(place, place + 1)[0]
