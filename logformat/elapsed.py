"""How long a run took, over all of its logs.

A run that was resumed took the sum of what its logs took; what passed between two of them is not counted. Writers of runferry
go on with `_runtime` and say where in the run record; a log of any other writer counts from 0 again, so that
what it says is shifted by what the logs before it took.
"""

from __future__ import annotations

import json
import math
from typing import Any

from .history import RUNTIME, Path
from .values import loads

LATEST_NS = 10**20
"""Nanoseconds since the epoch, the year 5138: a time behind it is garbage that must not become a run's length."""

_IN_SUMMARY = frozenset({RUNTIME, ("_wandb",), ("_wandb", "runtime")})


class Elapsed:
    """The time that a run took. Tell it of each log in order; seconds, where nothing else is said."""

    def __init__(self) -> None:
        self.before = 0.0
        """What the logs before this one took. Set it before the first log, where earlier ones are not read."""
        self.offset = 0.0
        """What the run had taken when this log began: its samples, which only have a time, count on from here."""
        self.shift = 0.0
        """What the `_runtime`s of this log lack; 0 for writers that go on with them."""
        self.latest = 0.0
        """The largest `_runtime` of a row, shifted."""
        self.latest_ns = 0
        """The latest time that anything carries, nanoseconds since the epoch."""
        self._reset()

    def _reset(self) -> None:
        self._start_ns = self._time_ns = 0  # of this log: its start, and the latest time in it
        self._is_aside = False
        self._row = 0.0  # the largest of this log's rows, shifted
        self._exit = 0

    def begin_log(self) -> None:
        """What comes next is of another log."""
        self.before = self.total
        self.offset = self.shift = 0.0
        self._reset()

    def set_aside(self) -> None:
        """This log goes beside the others: what it took is not counted."""
        self._is_aside = True

    def begin_run(self, start_ns: int, *, goes_on: bool, runtime: int) -> None:
        """Take a run record into account; of those of one log the first one counts."""
        if not self._start_ns:
            self._start_ns = start_ns
            self.offset = float(runtime) if goes_on else self.before
            self.shift = 0.0 if goes_on else self.before

    def saw(self, time_ns: float) -> None:
        """Something carries this time."""
        if 0 < time_ns < LATEST_NS:
            self.latest_ns = max(self.latest_ns, int(time_ns))
            self._time_ns = max(self._time_ns, int(time_ns))

    def saw_row(self, text: bytes) -> None:
        """A row carries this `_runtime`, shifted."""
        try:
            self.saw_seconds(float(text))
        except ValueError:
            return

    def saw_seconds(self, seconds: float) -> None:
        """The same, as a number."""
        if seconds * 1e9 < LATEST_NS:
            self._row = max(self._row, seconds)
            self.latest = max(self.latest, seconds)

    def end(self, seconds: int) -> None:
        """What the exit record says."""
        self._exit = seconds

    @property
    def total(self) -> float:
        """Of each log counts what its exit record says, else the time up to the last one that anything in it carries."""
        if self._is_aside:
            return self.before
        if self._exit:
            taken = self._exit + self.shift
        else:
            taken = self._row
            if self._start_ns and self._time_ns > self._start_ns:
                taken = max(taken, self.offset + (self._time_ns - self._start_ns) / 1e9)
        return max(self.before, float(taken))

    def in_summary(self, paths: tuple[Path, ...], texts: list[bytes]) -> list[bytes]:
        """The values of a summary record, with those shifted that say how long the run took."""
        if not self.shift or _IN_SUMMARY.isdisjoint(paths):
            return texts
        return [
            _shifted(path, text, self.shift) if path in _IN_SUMMARY else text
            for path, text in zip(paths, texts, strict=True)
        ]


def shifted_runtime(text: bytes, shift: float) -> bytes:
    """A row's `_runtime`, counted from the run's start: to the microsecond, as writers have it. No number stays as it is."""
    value = _number(text)
    if value is None:
        return text
    later = round(value + shift, 6)
    return b"%d" % int(later) if isinstance(value, int) and later == int(later) else json.dumps(later).encode()


def nanoseconds(timestamp: Any) -> int:
    """A Timestamp message as nanoseconds since the epoch."""
    return int(timestamp.seconds * 1_000_000_000 + timestamp.nanos)


def in_seconds(nanoseconds: int) -> float:
    """Nanoseconds as seconds, rounded once: dividing by 1e9 would round twice."""
    return nanoseconds / 1_000_000_000


def seconds_of(text: bytes) -> float:
    """The number that a text says; 0 where it is none."""
    try:
        return float(text)
    except ValueError:
        return 0.0


def largest_seconds(texts: list[bytes]) -> float:
    """The largest number among texts that is no garbage, as seconds; 0 if there is none."""
    try:
        largest = max(map(float, texts), default=0.0)
    except ValueError:
        largest = math.nan
    if largest * 1e9 < LATEST_NS:
        return max(largest, 0.0)
    return max((number for number in map(seconds_of, texts) if number * 1e9 < LATEST_NS), default=0.0)


def _shifted(path: Path, text: bytes, shift: float) -> bytes:
    if path == RUNTIME:
        return shifted_runtime(text, shift)
    if len(path) > 1:  # whole seconds, as servers want them here
        value = _number(text)
        return text if value is None else b"%d" % int(value + shift)
    tree = _parsed(text)
    if not isinstance(tree, dict) or "runtime" not in tree:
        return text
    inner = _shifted(("_wandb", "runtime"), json.dumps(tree["runtime"]).encode(), shift)
    return json.dumps({**tree, "runtime": loads(inner)}, ensure_ascii=False).encode()


def _number(text: bytes) -> float | None:
    value = _parsed(text)
    return value if isinstance(value, (int, float)) and not isinstance(value, bool) and math.isfinite(value) else None


def _parsed(text: bytes) -> Any:
    try:
        return loads(text)
    except ValueError:
        return None
