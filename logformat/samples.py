"""System metrics in columns: each stats record is a sample, a time and the numbers of that time.

Writers before 0.13 had other names, and some wrote one tick as up to five records. `Samples.named` makes both alike:

| logged | called |
|---|---|
| `memory` | `memory_percent` |
| `disk` | `disk./.usagePercent` |
| `network`: an object | `network.sent`, `network.recv` (also without `named`: an object is no number) |
| `gpu.process.N.M` | `gpu.N.M`, of which it is a copy, where the sample lacks that; else left out |
"""

from __future__ import annotations

import json
import re
from array import array
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, overload

from .column import Column
from .columns import Rows
from .values import loads

_LATEST_NS = 2**63 - 1
"""The year 2262. Times behind it are garbage, and are kept as this."""
_TICK_NS = 500_000_000
_NAMES = {"memory": "memory_percent", "disk": "disk./.usagePercent"}
_OF_PROCESS = re.compile(r"gpu\.process\.([0-9]+\..+)")


@dataclass(frozen=True, slots=True)
class Sample:
    """One stats record: system metrics at one time."""

    timestamp_ns: int
    values: dict[str, float]


class SampleColumn(Column):
    """The values of one system metric."""

    __slots__ = ()

    @property
    def key(self) -> str:
        """What the metric is called."""
        return self.path[0]

    @property
    def timestamps_ns(self) -> array[int]:
        """The time of each of `values`, nanoseconds since the epoch."""
        times = self._table.timestamps_ns  # type: ignore[attr-defined]  # columns of this kind belong to `_Table`
        rows = self.rows
        if isinstance(rows, range):
            part: array[int] = times[rows.start : rows.stop]
            return part
        return array("q", [times[row] for row in rows])


class _Table(Rows):
    column_type = SampleColumn

    def __init__(self) -> None:
        super().__init__()
        self.timestamps_ns = array("q")


class Samples(Sequence[Sample]):
    """The samples of a run in the order of the log. To index and iterate over, a sequence of `Sample`."""

    def __init__(self) -> None:
        self._table = _Table()

    @property
    def timestamps_ns(self) -> array[int]:
        """The time of each sample, nanoseconds since the epoch. Not to be changed."""
        return self._table.timestamps_ns

    @property
    def keys(self) -> tuple[str, ...]:
        """All metrics, in the order of their first appearance."""
        return tuple(path[0] for path in self._table.paths)

    @property
    def columns(self) -> tuple[SampleColumn, ...]:
        """The column of each of `keys`."""
        return tuple(column for column in self._table.columns if isinstance(column, SampleColumn))

    def column(self, key: str) -> SampleColumn:
        """The column of a metric; `rows` are places of samples.

        Raises:
            KeyError: no sample has it.
        """
        column = self._table.column((key,))
        assert isinstance(column, SampleColumn)  # noqa: S101 - that is what `_Table` makes
        return column

    def __len__(self) -> int:
        return len(self._table)

    @overload
    def __getitem__(self, index: int) -> Sample: ...
    @overload
    def __getitem__(self, index: slice) -> list[Sample]: ...
    def __getitem__(self, index: int | slice) -> Sample | list[Sample]:
        if isinstance(index, slice):
            return [
                Sample(time, values) for time, values in zip(self.timestamps_ns[index], self._table[index], strict=True)
            ]
        return Sample(self.timestamps_ns[index], self._table[index])

    def __iter__(self) -> Iterator[Sample]:
        return map(Sample, self.timestamps_ns, self._table)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Sequence):
            return NotImplemented
        return len(self) == len(other) and all(mine == theirs for mine, theirs in zip(self, other, strict=True))

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        return f"<Samples: {len(self)} of {len(self.keys)} metrics>"

    def named(self) -> Samples:
        """The samples as today's writers log them: see the table above. One per tick, at the earliest time of its records.

        Records that follow each other within half a second and share no key are of one tick.
        """
        found = Samples()
        tick: dict[str, float] = {}
        begun = latest = 0
        for time, values in zip(self.timestamps_ns, self._table, strict=True):
            named = _named(values)
            if tick and (abs(time - latest) > _TICK_NS or not tick.keys().isdisjoint(named)):
                found.add(begun, tick)
                tick = {}
            begun, latest = (min(begun, time), time) if tick else (time, time)
            tick.update(named)
        if tick:
            found.add(begun, tick)
        return found

    def add(self, timestamp_ns: int, values: dict[str, float]) -> None:
        """Add a sample of these numbers."""
        self._table.timestamps_ns.append(min(timestamp_ns, _LATEST_NS))
        self._table.extend(
            1, [((key,), range(1), [value], [json.dumps(value).encode()]) for key, value in values.items()]
        )


def sample_values(stats: Any) -> dict[str, float]:
    """The items of a StatsRecord that are finite numbers or NaN, also those inside an object; anything else is no metric."""
    values: dict[str, float] = {}
    for item in stats.item:
        try:
            value = loads(item.value_json.encode())
        except ValueError:
            continue
        if isinstance(value, dict):
            values.update({f"{item.key}.{key}": inner for key, inner in value.items() if _is_number(inner)})
        elif _is_number(value):
            values[item.key] = value
    return values


def _named(values: dict[str, float]) -> dict[str, float]:
    """See `Samples.named`."""
    named: dict[str, float] = {}
    for key, value in values.items():
        device = _OF_PROCESS.fullmatch(key)
        if device is None:
            named[_NAMES.get(key, key)] = value
        else:
            named.setdefault(f"gpu.{device[1]}", values.get(f"gpu.{device[1]}", value))
    return named


def _is_number(value: Any) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool)
