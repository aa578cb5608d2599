"""Metrics that were defined with a summary of their own: minimum, maximum, mean and so on, folded as rows come."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterator, Sequence
from functools import reduce
from operator import add
from typing import Any

from .constants import MAX_NESTING
from .history import SHAPES_KEPT, Path
from .summary import Summary
from .values import loads, loads_all

Column = tuple[Path, Sequence[bytes], bool]
"""A key of rows that stand one behind the other: the JSON texts of those that have it; whether the last row is one of them."""
_KINDS = ("min", "max", "mean", "best", "last", "first")
_DOUBLE_BITS = 1023  # an integer of more bits may be no double, and neither sums nor means of it are
_LEVELS = re.compile(r"(?<!\\)\.")


class MetricSummaries:
    """Folds the metrics that were defined with a summary of their own (minimum, mean and so on)."""

    def __init__(self) -> None:
        self._rules: dict[Path, Any] = {}  # path -> MetricRecord
        self._globs: dict[str, Any] = {}  # the first that matches counts
        self._own: set[tuple[str, str]] = set()  # names and globs of definitions that give a summary of its own
        self._above: set[Path] = set()  # what rules of several levels lie below
        self._matched: dict[Path, Any] = {}
        self._state: dict[Path, dict[str, Any]] = {}
        self._before: dict[Path, dict[str, Any]] = {}  # that state as the rows before the latest one left it
        self._shapes: dict[tuple[Path, ...], bool] = {}

    def define(self, metric: Any) -> None:
        """Take a MetricRecord into account for the rows that follow."""
        if metric.name:
            # Dots separate levels unless escaped, and rows may hold the name as one component too.
            self._rules[(metric.name,)] = metric
            path = tuple(part.replace("\\.", ".") for part in _LEVELS.split(metric.name))
            self._rules[path] = metric
            if len(path) <= MAX_NESTING:  # no value lies deeper
                self._above.update(path[:depth] for depth in range(1, len(path)))
        elif metric.glob_name:
            self._globs[metric.glob_name] = metric
        (self._own.add if _is_special(metric) else self._own.discard)((metric.name, metric.glob_name))
        self._matched.clear()
        self._shapes.clear()

    @property
    def has_rules(self) -> bool:
        """Whether a definition gives any metric a summary of its own."""
        return bool(self._own)

    def defines(self, path: Path) -> bool:
        """Whether a definition gives this metric a summary of its own."""
        return self._special(path) is not None

    def opens(self, path: Path) -> bool:
        """Whether a value at this path, if it is an object, may hold defined metrics."""
        return path in self._above

    def makes(self, path: Path) -> bool:
        """Whether rows of a defined metric made this leaf of the summary."""
        return path[-1] in _KINDS and path[:-1] in self._state

    def apply(
        self, paths: tuple[Path, ...], texts: list[bytes], summary: Summary | None, *, part: bool = False
    ) -> tuple[tuple[Path, ...], list[bytes]]:
        """Fold a row's defined metrics into `summary`; the rest of the row, which is folded as it is.

        Without a summary the row only counts: for the means of the rows behind it. Of a metric that a further `part` of
        the row holds again, the row counts with its later value alone.
        """
        if not (self._rules or self._globs):
            return paths, texts
        if not part:
            self._before.clear()
        if not self._above.isdisjoint(paths):
            items = [item for pair in zip(paths, texts, strict=True) for item in self._opened(*pair)]
            paths, texts = tuple(path for path, _ in items), [text for _, text in items]
        plain = self._shapes.get(paths)
        if plain is None:
            if len(self._shapes) >= SHAPES_KEPT:
                self._shapes.clear()
                self._matched.clear()
            plain = self._shapes[paths] = not any(self._special(path) for path in paths)
        if plain:
            return paths, texts
        kept: list[tuple[Path, bytes]] = []
        for path, text in zip(paths, texts, strict=True):
            metric = self._special(path)
            if metric is None:
                kept.append((path, text))
            elif not metric.summary.none:
                self._fold(path, text, metric, summary)
        return tuple(path for path, _ in kept), [text for _, text in kept]

    def apply_many(self, columns: Sequence[Column], summary: Summary | None) -> None:
        """As `apply` for rows that stand one behind the other, none a further part: the columns of metrics for which `defines`.

        No text is null. None of the rows holds an object for which `opens`.
        """
        self._before.clear()
        for path, texts, is_in_last in columns:
            metric = self._special(path)
            if not metric.summary.none:
                many = texts[:-1] if is_in_last else texts
                self._fold_many(path, many, metric, summary)
                if is_in_last:  # to which a part may come
                    self._fold(path, texts[-1], metric, summary)

    def _opened(self, path: Path, text: bytes) -> Iterator[tuple[Path, bytes]]:
        """An item as it is; of an object that came whole, and may hold defined metrics, each value by itself."""
        if path not in self._above:
            yield path, text
            return
        try:
            value = loads(text)
        except ValueError:
            value = None
        if not isinstance(value, dict) or not value:
            yield path, text
            return
        for key, inner in value.items():
            yield from self._opened((*path, key), _dumps(inner))

    def _special(self, path: Path) -> Any:
        """The definition that gives `path` a summary of its own, or None."""
        if path in self._matched:
            return self._matched[path]
        metric = self._rules.get(path)
        if metric is None and not path[0].startswith("_"):
            name = ".".join(path)
            metric = next((rule for glob, rule in self._globs.items() if glob_matches(glob, name)), None)
        if metric is not None and not _is_special(metric):
            metric = None
        self._matched[path] = metric
        return metric

    def _fold_many(self, path: Path, texts: Sequence[bytes], metric: Any, summary: Summary | None) -> None:
        """As `_fold` for values of several rows."""
        numbers = _numbers(texts)
        if not numbers:
            for text in texts:
                self._fold(path, text, metric, summary)
                self._before.pop(path, None)
            return
        state = self._state.setdefault(path, {})
        _count(state, numbers, metric)
        if summary is not None:
            for kind in _kinds_of(metric):
                summary.set((*path, kind), _dumps(state[kind]))

    def _fold(self, path: Path, text: bytes, metric: Any, summary: Summary | None) -> None:
        try:
            value = loads(text)
        except ValueError:
            return
        if value is None:
            return
        again = path in self._before
        state = self._state[path] = self._before.setdefault(path, self._state.get(path, {})).copy()
        if isinstance(value, (int, float)) and not isinstance(value, bool):
            if isinstance(value, int) and value.bit_length() > _DOUBLE_BITS:
                value = math.inf if value > 0 else -math.inf
            _count(state, [value], metric)
        else:
            state["last"] = value
            state.setdefault("first", value)
        if summary is None:
            return
        kinds = _kinds_of(metric)
        wanted = [kind for kind in kinds if kind in state]
        if again and len(wanted) < len(kinds):  # a number that has become a text
            for kind in kinds:
                summary.remove((*path, kind))
        for kind in wanted:
            summary.set((*path, kind), _dumps(state[kind]))
        if not wanted:  # a text has no minimum: it says what it is
            summary.set(path, text)


def _numbers(texts: Sequence[bytes]) -> list[float]:
    """The values of texts that are all numbers, none beyond doubles; else nothing."""
    try:
        values = loads_all(list(texts))
    except ValueError:
        return []
    kinds = set(map(type, values))
    if not kinds <= {int, float}:
        return []
    is_beyond = int in kinds and any(type(value) is int and value.bit_length() > _DOUBLE_BITS for value in values)
    return [] if is_beyond else values


def _count(state: dict[str, Any], values: list[float], metric: Any) -> None:
    """Add numbers to what is known of a metric's values."""
    state["last"] = values[-1]
    state.setdefault("first", values[0])
    has_nan = any(map(math.isnan, values))
    for kind, best in (("min", min), ("max", max)):
        # As in the peer, one NaN is the extreme of everything: it is not passed over in silence.
        before = state.get(kind, values[0])
        state[kind] = math.nan if has_nan or math.isnan(before) else best(before, *values)
    state["count"] = state.get("count", 0) + len(values)
    # One after the other, as they came: `sum` rounds otherwise. (The sum of large integers may be no double.)
    state["total"] = reduce(add, map(float, values), state.get("total", 0.0))
    state["mean"] = state["total"] / state["count"]
    state["best"] = state["max" if metric.goal == 2 else "min"]


def _kinds_of(metric: Any) -> list[str]:
    return [kind for kind in _KINDS if getattr(metric.summary, kind)]


def _is_special(metric: Any) -> bool:
    kinds = metric.summary
    return kinds.none or any(getattr(kinds, kind) for kind in _KINDS)


def glob_matches(glob: str, name: str) -> bool:
    """Whether `name` is `glob` with any text for each `*`; linear, where a regular expression of many `*` is not."""
    first, *middle = glob.split("*")
    if not middle:
        return name == first
    last = middle.pop()
    at, stop = len(first), len(name) - len(last)
    if at > stop or not name.startswith(first) or not name.endswith(last):
        return False
    for part in middle:
        at = name.find(part, at, stop) + len(part)
        if at < len(part):
            return False
    return True


def _dumps(value: Any) -> bytes:
    return json.dumps(value, ensure_ascii=False).encode()
