"""System metrics in columns: each stats record is a sample, a time and the numbers of that time."""

from __future__ import annotations

from array import array
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, overload

from .column import Column
from .columns import Rows
from .history import Path
from .values import loads

_LATEST_NS = 2**63 - 1
"""The year 2262. Times behind it are garbage, and are kept as this."""


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

    def append(self, timestamp_ns: int, paths: tuple[Path, ...], texts: list[bytes]) -> None:
        """Add a sample; items that are no numbers are left out."""
        self._table.timestamps_ns.append(min(timestamp_ns, _LATEST_NS))
        self._table.append(*numbers(paths, texts))


def sample_items(stats: Any) -> tuple[tuple[Path, ...], list[bytes]]:
    """The items of a StatsRecord."""
    return tuple((item.key,) for item in stats.item), [item.value_json.encode() for item in stats.item]


def numbers(paths: tuple[Path, ...], texts: list[bytes]) -> tuple[tuple[Path, ...], list[bytes]]:
    """The items that are finite numbers or NaN; anything else is no metric."""
    good = [(path, text) for path, text in zip(paths, texts, strict=True) if _is_number(text)]
    return tuple(path for path, _ in good), [text for _, text in good]


def _is_number(text: bytes) -> bool:
    try:
        value = loads(text)
    except ValueError:
        return False
    return isinstance(value, (int, float)) and not isinstance(value, bool)
