"""Rows by their step: what a client that reads a run back asks for, while the store keeps lines by number."""

from __future__ import annotations

import json
import math
import threading
from array import array
from collections import Counter, OrderedDict
from collections.abc import Iterator
from typing import TypeVar

from .filestream import HISTORY
from .gql_execute import Json
from .runs import Extent, Run
from .series import parse_row
from .store import Store

KEPT = 4  # indexes; each takes 16 bytes per row
MAX_ROWS = 100_000  # rows in one answer
MAX_CHARS = 128 << 20
SAMPLES = 500  # where a spec names no number
T = TypeVar("T")
NAMES = {bool: "boolean", int: "number", float: "number", str: "string", list: "list", dict: "map", type(None): "nil"}


class StepIndex:
    """The line and the step of each row of a stream, and which keys its rows have with values of which types."""

    def __init__(self, pages: Iterator[list[tuple[int, str]]]) -> None:
        self.lines = array("q")
        self.steps = array("d")
        self.keys: dict[str, Counter[str]] = {}
        for page in pages:
            for line, text in page:
                row = parse_row(text) or {}
                step = row.get("_step")
                self.lines.append(line)
                self.steps.append(step if isinstance(step, int | float) else math.nan)
                for key, value in row.items():
                    self.keys.setdefault(key, Counter())[NAMES[type(value)]] += 1

    def between(self, first: float, end: float) -> list[int]:
        """The lines of the rows with `first <= _step < end`; a row without a step is in no range but the whole."""
        if first == -math.inf and end == math.inf:
            return list(self.lines)
        return [line for line, step in zip(self.lines, self.steps, strict=True) if first <= step < end]

    @property
    def last_step(self) -> int:
        """The greatest step, -1 where there is none."""
        return int(max((step for step in self.steps if math.isfinite(step)), default=-1))


class Histories:
    """The histories of a store, with the indexes of those that were asked for last."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._lock = threading.Lock()
        self._indexes: OrderedDict[tuple[int, str], tuple[tuple[Extent, float], StepIndex]] = OrderedDict()

    def rows(
        self, run: Run, stream: str, first: float = -math.inf, end: float = math.inf, samples: int | None = None
    ) -> list[str]:
        """The rows with `first <= _step < end` as they were sent, in the order of their lines.

        Of more rows than `samples`, that many at equal distances, the first and the last among them.

        Raises:
            ValueError: they are too many for one answer.
        """
        lines = self._index(run, stream).between(first, end)
        lines = _thinned(lines, samples or len(lines))
        if len(lines) > MAX_ROWS:
            raise ValueError(f"{len(lines)} rows are too many for one answer; ask for fewer steps at a time")
        texts: list[str] = []
        chars = 0
        wanted = set(lines)
        for page in self._store.all_lines(run, stream, lines[0], lines[-1] + 1) if lines else ():
            found = [text for line, text in page if line in wanted]
            texts += found
            chars += sum(map(len, found))
            if chars > MAX_CHARS:
                raise ValueError("these rows are too large for one answer; ask for fewer steps at a time")
        return texts

    def keys(self, run: Run) -> Json:
        """What the history holds: `lastStep`, and for each key the types of its values and how many rows have it."""
        index = self._index(run, HISTORY)
        keys = {
            key: {"typeCounts": [{"type": name, "count": count} for name, count in counts.items()], "monotonic": False}
            for key, counts in index.keys.items()
        }
        return Json(sets=[], keys=keys, lastStep=index.last_step)

    def sampled(self, run: Run, spec: str) -> list[Json]:
        """The rows that have all keys of a spec (`{"keys": [...], "samples": n, "minStep", "maxStep"}`), with these only.

        Unlike that of `rows`, `maxStep` is a step that is asked for, too.

        Raises:
            ValueError: it is no spec, or the rows are too many for one answer.
        """
        wanted = json.loads(spec)
        keys = wanted.get("keys") if isinstance(wanted, dict) else None
        if not isinstance(keys, list) or not all(isinstance(key, str) for key in keys):
            raise ValueError("a spec of sampledHistory has keys")
        low, high, samples = wanted.get("minStep"), wanted.get("maxStep"), wanted.get("samples")
        if not all(value is None or type(value) in (int, float) for value in (low, high, samples)):
            raise ValueError("minStep, maxStep and samples of a spec are numbers")
        first = -math.inf if low is None else low
        end = math.inf if high is None else math.nextafter(high, math.inf)
        texts = self.rows(run, HISTORY, first, end)
        rows = [row for text in texts if (row := parse_row(text)) is not None and all(key in row for key in keys)]
        rows = _thinned(rows, int(samples or SAMPLES))
        return [Json({key: row[key] for key in keys}) for row in rows]

    def _index(self, run: Run, stream: str) -> StepIndex:
        place, state = (run.key, stream), (run.extent(stream), run.updated_at)
        with self._lock:
            kept = self._indexes.get(place)
            if kept is not None and kept[0] == state:
                self._indexes.move_to_end(place)
                return kept[1]
        index = StepIndex(self._store.all_lines(run, stream))
        with self._lock:
            self._indexes[place] = (state, index)
            while len(self._indexes) > KEPT:
                self._indexes.popitem(last=False)
        return index


def _thinned(items: list[T], count: int) -> list[T]:
    """`count` of the items at equal distances, the first and the last among them; all where they are no more."""
    if not 0 < count < len(items):
        return items
    return [items[round(place * (len(items) - 1) / max(1, count - 1))] for place in range(count)]
