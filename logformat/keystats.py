"""What is known of each metric key of a run: kind, count, steps, last value, range; in memory that grows with the keys alone."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from .history import STEP, Path
from .rowstream import Row
from .values import loads, loads_all

_NUMBERS = {int: "int", float: "float"}
_KINDS: dict[type, str] = {bool: "bool", str: "text", type(None): "null", **_NUMBERS}


@dataclass(slots=True)
class KeyStats:
    """Of one key."""

    path: Path
    kind: str = ""
    """`int`, `float`, `number` (both), `bool`, `text`, `null`, or `json` (objects, lists, and mixtures); nulls between others
    count, and change nothing."""
    count: int = 0
    """Rows that have it."""
    first_step: int = 0
    last_step: int = 0
    last: Any = None
    """The latest value."""
    low: float | int | None = None
    """The smallest number that is not NaN; None if there is none."""
    high: float | int | None = None
    nans: int = 0
    broken: int = 0
    """Values that are no JSON."""

    def add(self, step: int, value: Any) -> None:
        """Take the value of another row."""
        if not self.count:
            self.first_step = step
        self.count += 1
        self.last_step, self.last = step, value
        kind = _KINDS.get(type(value), "json")
        if kind != self.kind:
            self.kind = _joined(self.kind, kind)
        if type(value) in _NUMBERS:
            if value != value:  # noqa: PLR0124 - NaN differs from itself
                self.nans += 1
            else:
                self.low = value if self.low is None or value < self.low else self.low
                self.high = value if self.high is None or value > self.high else self.high

    def as_json(self) -> dict[str, Any]:
        """Plain data, by the names that stand in the documentation."""
        return {
            "kind": self.kind,
            "count": self.count,
            "first_step": self.first_step,
            "last_step": self.last_step,
            "last": self.last,
            "min": self.low,
            "max": self.high,
            "nan": self.nans,
            "broken": self.broken,
        }


class AllKeys:
    """Of every key of a run's rows."""

    def __init__(self) -> None:
        self.stats: dict[Path, KeyStats] = {}
        """In the order of their first appearance. `_step` is not among them: it is what the others are told by."""

    def add(self, row: Row) -> None:
        """Take a row."""
        texts = list(row.values.values())
        try:
            values = loads_all(texts)
        except ValueError:
            values = [_value(text) for text in texts]
        for path, value in zip(row.values, values, strict=True):
            if path == STEP:
                continue
            stats = self.stats.get(path)
            if stats is None:
                stats = self.stats[path] = KeyStats(path)
            if value is _BROKEN:
                stats.broken += 1
            else:
                stats.add(row.step, value)


class _Broken:
    """In place of a value that is no JSON."""


_BROKEN = _Broken()


def _value(text: bytes) -> Any:
    try:
        return loads(text)
    except ValueError:
        return _BROKEN


def _joined(before: str, kind: str) -> str:
    """The kind of a column of two kinds."""
    if not before or before == "null":
        return kind
    if kind in {"null", before}:
        return before
    numbers = {"int", "float", "number"}
    return "number" if before in numbers and kind in numbers else "json"
