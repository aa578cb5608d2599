"""A run as the viewer shows it: its curves over any axis, its metrics, samples, console, damage, and how it stands."""

from __future__ import annotations

import math
import time
from array import array
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path as FilePath
from typing import Any, NamedTuple

from ..export.report_charts import group_of
from ..export.report_series import Definitions, SampleGroup, natural, path_of, pauses, sample_groups
from ..logformat import Gap, RunState, Samples, head_of, in_order
from ..logformat.column import Column
from ..logformat.console import ConsoleLine
from ..logformat.heartbeat import read_heartbeat
from ..logformat.history import Path
from .axes import RELATIVE, STEP, WALL, Axis, RowAxes, as_number, numbers_of
from .curves import Curve
from .reading import Reading

STALE_AFTER_S = 600.0
"""Seconds without growth after which a run without heartbeat or exit counts as crashed, as for `ls` and `sync`."""
_NS_PER_S = 10**9  # an integer: divided by it, nanoseconds are rounded once
_GRACE_S = 180.0  # the same for a heartbeat of another machine
_OLD_NAMES = frozenset({"memory", "disk"})  # of writers before 0.13, whose samples come in pieces, too
_OF_PROCESS = "gpu.process."
_NUMBERS = frozenset({"int", "float", "number", "json"})


class Metric(NamedTuple):
    """A key of the rows that has numbers."""

    name: str
    path: Path
    group: str
    """Its first level; empty for a key without levels."""
    points: int
    last: float
    axis: Axis
    """By which it was defined to be shown: steps, if nothing was said."""


@dataclass
class Branch:
    """Metrics by the levels of their names, which slashes and nesting make."""

    name: str = ""
    metric: Metric | None = None
    """What ends here; there may be others below."""
    below: dict[str, Branch] = field(default_factory=dict)

    def walk(self, depth: int = 0) -> Iterator[tuple[int, Branch]]:
        """All branches below, each behind the one that it hangs on, with their depth from 0 on."""
        for branch in self.below.values():
            yield depth, branch
            yield from branch.walk(depth + 1)


class Damage(NamedTuple):
    """A gap, and the steps between which it lies: of the last row before it and the first one behind it; None where there is none."""

    gap: Gap
    before: float | None
    after: float | None

    def __str__(self) -> str:
        lost = self.gap.records_lost
        said = "" if lost is None else f": {lost:,} record{'' if lost == 1 else 's'} lost"
        between = {
            (True, True): f", between steps {_plain(self.before)} and {_plain(self.after)}",
            (True, False): f", behind step {_plain(self.before)}",
            (False, True): f", before step {_plain(self.after)}",
        }.get((self.before is not None, self.after is not None), "")
        return f"{self.gap.reason.value}{said}, offsets {self.gap.offset:,}-{self.gap.end:,}{between}"


@dataclass
class _Made:
    """A curve that was made, and how much of its column went into it."""

    curve: Curve
    places: int = 0
    last: tuple[str, str] = ("", "")
    """Place and value of the last point, spelled out: NaN differs from itself, and must not here."""


class RunView:
    """One run. It reads its state whenever it is asked, so what `Live` adds is there the next time."""

    def __init__(self, reading: Reading) -> None:
        self._take(reading)

    def _take(self, reading: Reading) -> None:
        self.reading = reading
        self.axes = RowAxes(reading.state)
        self._curves: dict[tuple[Path, Axis], _Made] = {}
        self._sample_curves: dict[tuple[str, Axis], _Made] = {}
        self._named: tuple[int, Samples] | None = None

    def replace(self, reading: Reading) -> None:
        """Show this reading of the same run: the exact one in place of a preview."""
        self._take(reading)

    @property
    def state(self) -> RunState:
        """The fold: config, summary, environment, files, alerts and so on."""
        return self.reading.state

    @property
    def sampled(self) -> float:
        """The share of the bytes that was read: below 1, curves are a preview."""
        return self.reading.sampled

    @property
    def name(self) -> str:
        """What to call it: the display name, else the id, else the file."""
        info = self.state.info
        return info.display_name or info.run_id or self.reading.logs[-1].name

    # -- metrics -----------------------------------------------------------------------------------------------------

    def metrics(self) -> list[Metric]:
        """The keys with numbers that are not internal or hidden, by group and name; those in no group first."""
        rows = self.state.rows
        definitions, names = Definitions(self.state.metrics), rows.names
        found = []
        for column in rows.columns:
            name = names[column.path]
            if column.path[0].startswith("_") or column.kind not in _NUMBERS:
                continue
            rule = definitions.of(column.path, name)
            last = _last_number(column)
            if rule.is_hidden or last is None:
                continue
            axis = STEP
            if rule.step_metric and rule.step_metric != "_step" and path_of(rule.step_metric) != column.path:
                axis = Axis("metric", rule.step_metric)
                axis = axis if self.axes.has(axis) else STEP
            found.append(Metric(name, column.path, group_of(column.path), len(column), last, axis))
        return sorted(found, key=lambda metric: (natural(metric.group), natural(metric.name)))

    def curve(self, path: Path | str, axis: Axis = STEP) -> Curve:
        """The curve of a key, by its path or name. The same object grows from call to call, unless its last point changed.

        Raises:
            KeyError: no row has that key.
        """
        column = self.state.rows.column(path)
        key = column.path, axis
        places = self.axes.of(axis)
        made = self._curves.get(key)
        if made is None or not _goes_on(made, column, places):
            made = self._curves[key] = _Made(Curve())
        if len(column) > made.places:
            rows, numbers = numbers_of(column, made.places)
            xs: Sequence[float]
            xs = (
                places[rows.start : rows.stop] if isinstance(rows, range) else array("d", map(places.__getitem__, rows))
            )
            if made.places:
                made.curve.extend(xs, numbers)
            else:
                made.curve = Curve(xs, numbers, copies=False)
            made.places, made.last = len(column), _point(column, len(column) - 1, places)
        made.curve.breaks = self.breaks(axis)
        return made.curve

    def breaks(self, axis: Axis = STEP) -> list[tuple[float, float]]:
        """The ranges of an axis in which rows were lost, or nothing was logged between two sessions; ascending."""
        places = self.axes.of(axis)
        least = 1.0 if axis == STEP else 0.0  # between steps that follow each other nothing is missing
        found: list[tuple[float, float]] = []
        for row in sorted({*self._damaged_rows(), *self.reading.joins}):
            low, high = _around(places, row)
            if low is not None and high is not None and high - low > least:
                found.append((low, high))
        return sorted(found)

    def _damaged_rows(self) -> Iterator[int]:
        certain = set(map(id, self.state.damage))
        return (row for gap, row in zip(self.state.gaps, self.state.gap_rows, strict=True) if id(gap) in certain)

    # -- samples -----------------------------------------------------------------------------------------------------

    @property
    def samples(self) -> Samples:
        """System metrics by the names of today's writers."""
        samples = self.state.samples
        if _OLD_NAMES.isdisjoint(samples.keys):
            return samples
        if self._named is None or self._named[0] != len(samples):
            self._named = len(samples), samples.named()
            self._sample_curves.clear()
        return self._named[1]

    def sample_groups(self) -> list[SampleGroup]:
        """System metrics by the charts that they belong in: those of all GPUs, what was sent and received, and so on."""
        columns = {column.key: column for column in self.samples.columns}
        copies = {key for key in columns if key.startswith(_OF_PROCESS) and key.replace("process.", "", 1) in columns}
        return sample_groups([column for key, column in columns.items() if key not in copies])

    def sample_curve(self, key: str, axis: Axis = WALL) -> Curve:
        """The curve of a system metric. On other axes than the clock's a sample stands where the rows of its time do.

        Raises:
            KeyError: no sample has it.
        """
        column = self.samples.column(key)
        made = self._sample_curves.setdefault((key, axis), _Made(Curve()))
        if len(column) > made.places:
            rows, numbers = numbers_of(column, made.places)
            times = column.timestamps_ns if isinstance(rows, range) else None
            all_times = self.samples.timestamps_ns
            seconds = [(times[row - column.first_row] if times else all_times[row]) / _NS_PER_S for row in rows]
            xs = array("d", self._at_times(seconds, axis))
            if made.places:
                made.curve.extend(xs, numbers)
            else:
                made.curve = Curve(xs, numbers, copies=False)
            made.places = len(column)
            made.curve.breaks = pauses(made.curve.x) if axis in {WALL, RELATIVE} and not self.reading.is_preview else []
        return made.curve

    def _at_times(self, seconds: Sequence[float], axis: Axis) -> Iterator[float]:
        """Where moments stand on an axis, by the rows before them."""
        if axis == WALL:
            yield from seconds
            return
        walls, places = self.axes.of(WALL), self.axes.of(axis)
        start = self.state.info.start_time_ns / _NS_PER_S
        for moment in seconds:
            row = bisect_right(walls, moment) - 1
            if axis != RELATIVE:
                yield places[max(row, 0)] if places else math.nan
            elif not len(walls):
                yield moment - start if start else math.nan
            elif row < 0:
                yield places[0] - (walls[0] - moment)
            else:
                passed = places[row] + moment - walls[row]
                # What passed between two sessions is not counted, so a moment is never behind the next row.
                yield (
                    min(passed, places[row + 1]) if row + 1 < len(places) and places[row + 1] >= places[row] else passed
                )

    def at_time(self, moment: float, axis: Axis = STEP) -> float | None:
        """Where a moment, epoch seconds, stands on an axis; None if nobody can tell."""
        (place,) = self._at_times([moment], axis)
        return place if math.isfinite(place) else None

    # -- console -----------------------------------------------------------------------------------------------------

    @property
    def console(self) -> list[ConsoleLine]:
        """All lines, unfinished ones last."""
        return [*self.state.console, *self.state.console_rest]

    def place_of_line(self, line: ConsoleLine, axis: Axis = STEP) -> float | None:
        """Where a line stands on an axis: by the last row that was logged before it; None if nobody can tell."""
        return self.at_time(line.timestamp_ns / _NS_PER_S, axis) if line.timestamp_ns else None

    def line_at(self, x: float, axis: Axis = STEP) -> int | None:
        """The index in `console` of the first line that was written at that place or behind it; None if there is none."""
        places = self.axes.of(axis)
        row = bisect_left(places, x)
        if row == len(places):
            return None
        moment = self.axes.of(WALL)[row]
        lines = self.console
        at = bisect_left(lines, moment, key=_time_of)
        return at if at < len(lines) else None

    # -- how it stands -----------------------------------------------------------------------------------------------

    def status(self, now: float | None = None, stale_after: float = STALE_AFTER_S) -> str:
        """`running`, `finished`, `failed`, `crashed` or `unknown`, in the words and by the rules of `ls`."""
        word = self.state.status(age=0.0)
        begins = word == "unknown" and not self.state.gaps and not self.state.row_count
        if word != "running" and not begins:
            return word
        if goes_on(self.reading.logs[-1], self.written, time.time() if now is None else now, stale_after):
            return "running"
        return "unknown" if begins else "crashed"

    @property
    def written(self) -> float:
        """When the last log was last written to, as far as it was looked at: epoch seconds."""
        return self.reading.identities[-1].modified_ns / _NS_PER_S

    def damage(self, now: float | None = None) -> list[Damage]:
        """All that could not be read; what a log ends with in the middle of a record is damage once nobody writes it."""
        gaps = list(zip(self.state.gaps, self.state.gap_rows, strict=True))
        reader = self.reading.reader
        rest = reader.rest() if reader else None
        if rest is not None and self.status(now) != "running":
            gaps.append((rest, self.state.row_count))
        steps = self.axes.of(STEP)
        return [Damage(gap, *_around(steps, row)) for gap, row in gaps]


def goes_on(log: FilePath, modified: float, now: float, stale_after: float = STALE_AFTER_S) -> bool:
    """Whether a log without an exit is still written: by its heartbeat, else by when it last grew.

    Args:
        log: the log.
        modified: epoch seconds at which it last grew.
        now: epoch seconds.
        stale_after: seconds.
    """
    beat = read_heartbeat(log)
    if beat is None:
        return abs(now - modified) < stale_after
    lives = beat.process.lives()
    return abs(now - beat.touched) < _GRACE_S if lives is None else lives


def runs_of(logs: Iterable[FilePath], trouble: Callable[[FilePath, str], object]) -> list[list[FilePath]]:
    """Logs by the runs that they are of, in the order of their start; runs in the order in which they are named.

    A log without a run record is a run of its own, and so is each of copies that contradict each other. `trouble` is told of
    what cannot be read, or is shown by itself.
    """
    groups: dict[Any, list[FilePath]] = {}
    for log in logs:
        try:
            groups.setdefault(head_of(log).run or log, []).append(log)
        except OSError as error:
            trouble(log, error.strerror or str(error))
    found: list[list[FilePath]] = []
    for group in groups.values():
        try:
            found.append(in_order(group) if len(group) > 1 else group)
        except (OSError, ValueError) as error:
            trouble(group[0], str(error))
            found += [[log] for log in group]
    return found


def tree(metrics: Iterable[Metric]) -> Branch:
    """Metrics by the levels of their names, in their order."""
    root = Branch()
    for metric in metrics:
        branch = root
        for part in (part for component in metric.path for part in component.split("/")):
            branch = branch.below.setdefault(part, Branch(part))
        branch.metric = metric
    return root


def _goes_on(made: _Made, column: Column, places: Sequence[float]) -> bool:
    """Whether a curve only lacks what came behind its last point: parts of a row may have changed that."""
    return 0 < made.places <= len(column) and made.last == _point(column, made.places - 1, places)


def _point(column: Column, place: int, places: Sequence[float]) -> tuple[str, str]:
    """See `_Made.last`."""
    return repr(places[column.rows[place]]), repr(as_number(column.slice(place, place + 1)[0]))


def _last_number(column: Column) -> float | None:
    """The last value that is a number: of a column of objects, whose last value is none, None."""
    if column.kind != "json":
        for place in range(len(column) - 1, -1, -1):
            if (number := as_number(column.slice(place, place + 1)[0])) is not None:
                return number
        return None
    return as_number(column.slice(len(column) - 1, len(column))[0])


def _around(places: Sequence[float], row: int) -> tuple[float | None, float | None]:
    """The nearest places that are known before a row, and from it on."""
    before = next((places[at] for at in range(min(row, len(places)) - 1, -1, -1) if math.isfinite(places[at])), None)
    after = next((places[at] for at in range(row, len(places)) if math.isfinite(places[at])), None)
    return before, after


def _plain(step: float | None) -> str:
    return "" if step is None else f"{step:,.0f}"


def _time_of(line: ConsoleLine) -> float:
    return line.timestamp_ns / _NS_PER_S
