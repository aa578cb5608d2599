"""Records to lines: what a row, a sample and a console line look like at the server.

The same record always gives the same bytes: keys in the log's order, numbers as the log spells them, times from the
record. A row is spliced from the log's own JSON texts, so no number is parsed and printed again.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from datetime import datetime, timezone
from typing import Any

import orjson

from ..logformat import Record, loads
from ..logformat.console import ConsoleLine, LineAssembler
from ..logformat.constants import MAX_NESTING
from ..logformat.elapsed import shifted_runtime
from ..logformat.history import RUNTIME, STEP, Path, is_part, place_of, step_of
from ..logformat.nested import row_of
from ..logformat.steps import ALL_STEPS, StepCounter, Steps
from ..logformat.values import are_json, member
from .jsontext import compact

Items = tuple[tuple[Path, ...], list[bytes]]

MAX_LINE = 10 * 1024 * 1024 - 100 * 1024
"""Bytes. Servers take requests of 10 MiB; a line that leaves no room for the rest of one is refused."""
MAX_CONSOLE_LINE = 4096
"""Characters of a console line that servers keep."""

_MAX_ROW = 4 * MAX_LINE
"""Bytes of values that the parts of one row may bring together before those that no line has room for go."""
_KEPT_PLANS = 1_024  # of rows with nested keys; flat ones are made as quickly as found
_SHOWN = 100  # characters of a key
_NAMED = 10  # keys whose values are no JSON; a log may have one in every row
_FURTHER = "values of further keys"


class RowPlan:
    """How rows of one set of keys become lines: fixed bytes with the values' places between them.

    Keys of several levels become nested objects. Of two items with the same key the later one wins. Where one key lies
    below another (an object that came whole, then a value inside it), the row is built as every reader builds it.
    """

    __slots__ = ("_order", "_parts", "_tangled", "lost", "step")

    def __init__(self, paths: tuple[Path, ...]) -> None:
        self._tangled: tuple[Path, ...] | None = None
        self._order: list[int] | None = None
        self.lost: tuple[Path, ...] = ()
        """Paths that its lines lack."""
        if _is_flat(paths):
            fixed = [member(*path) for path in paths]
            fixed[0] = b"{" + fixed[0][1:]
            fixed.append(b"}")
            self.step = place_of(STEP, paths)
            """Index of the value of `_step`; -1 where the row has none."""
        else:
            fixed = self._nest(paths)
        self._parts = [b""] * (2 * len(fixed) - 1)
        self._parts[::2] = fixed

    @property
    def nests(self) -> bool:
        """Whether it took some work to find out, so that the plan is worth keeping."""
        return self._order is not None

    def _nest(self, paths: tuple[Path, ...]) -> list[bytes]:
        """The fixed bytes of rows whose keys nest or come twice, and the order of their values."""
        tree: dict[str, Any] = {}
        for index, path in enumerate(paths):
            node = tree
            for part in path[:-1]:
                inner = node.get(part)
                if not isinstance(inner, dict):
                    inner = node[part] = {}
                node = inner
            node.pop(path[-1], None)
            node[path[-1]] = index
        prefixes = {path[:depth] for path in paths for depth in range(1, len(path))}
        if any(path in prefixes for path in paths):
            self._tangled = paths
            self.lost = tuple(path for path in paths if len(path) > MAX_NESTING)  # see `row_of`
        fixed = [b""]
        order: list[int] = []
        _render(tree, fixed, order)
        self._order = order
        self.step = next((index for index in order if paths[index] == STEP), -1)
        return fixed

    def line(self, values: list[bytes]) -> bytes:
        """The line of a row with these values, in the order of the plan's paths."""
        if self._tangled is not None:
            return compact(row_of(self._tangled, values)).encode()
        parts = self._parts.copy()
        parts[1::2] = values if self._order is None else [values[index] for index in self._order]
        return b"".join(parts)


def _is_flat(paths: tuple[Path, ...]) -> bool:
    """Whether there are keys, all of one level and all different."""
    return set(map(len, paths)) == {1} and len(set(paths)) == len(paths)


def _render(node: dict[str, Any], fixed: list[bytes], order: list[int]) -> None:
    fixed[-1] += b"{"
    for position, (key, inner) in enumerate(node.items()):
        fixed[-1] += (b"," if position else b"") + orjson.dumps(key) + b":"
        if isinstance(inner, dict):
            _render(inner, fixed, order)
        else:
            order.append(inner)
            fixed.append(b"")
    fixed[-1] += b"}"


class Row:
    """A row as far as its parts have come."""

    latest = 0
    """Where the latest of several parts lies in the log."""
    parts = 1
    lost: tuple[Path, ...] = ()
    """Keys of values that are no JSON, the first ones; of a row of several parts."""
    _items: dict[Path, bytes] | None = None  # in place of paths and values, once there are several parts
    _size = 0

    def __init__(
        self, paths: tuple[Path, ...], values: list[bytes], step: bytes | None, number: int, begin: int
    ) -> None:
        self._paths = paths
        self._values = values
        self.step = step
        """The text of its step; None where it has none."""
        self.number = number
        """Its step, in the log's own numbers."""
        self.begin = begin
        """Where it begins in the log."""

    def add(self, paths: tuple[Path, ...], values: list[bytes], offset: int) -> int:
        """Take in a further part: a later value of a key stands behind all that came before. The size of all values."""
        if self._items is None:
            self._items = {}
            self._take(self._items, self._paths, self._values)
        self._take(self._items, paths, values)
        self.parts += 1
        self.latest = offset
        return self._size

    def items(self) -> Items:
        """Its key paths, and the JSON text of each."""
        if self._items is None:
            return self._paths, self._values
        return tuple(self._items), list(self._items.values())

    def lighten(self, fit: Callable[[dict[Path, bytes]], object]) -> None:
        """Let `fit` take values out of a row of several parts."""
        if self._items is not None:
            fit(self._items)
            self._size = sum(map(len, self._items.values()))

    def _take(self, items: dict[Path, bytes], paths: tuple[Path, ...], values: list[bytes]) -> None:
        if not are_json(values):
            paths, values, lost = _good_items(paths, values)
            if lost:
                self.lost = tuple(dict.fromkeys((*self.lost, *lost)))[: _NAMED + 1]
        for path, value in zip(paths, values, strict=True):
            self._size += len(value) - len(items.pop(path, b""))
            items[path] = value


class Rows:
    """History records of one log to rows, and those to lines. A row without a step follows the one before it."""

    def __init__(self, step_shift: int = 0, steps: Steps = ALL_STEPS, runtime_shift: float = 0.0) -> None:
        self._shift = step_shift
        self._runtime_shift = runtime_shift
        self._counter = StepCounter(steps)
        self._nested: dict[tuple[Path, ...], RowPlan] = {}
        self._last_paths: tuple[Path, ...] = ()
        self._last_plan = RowPlan(())
        self.kept = True
        """Whether the latest record counts; one outside of `steps` does not."""
        self.latest: Row | None = None
        """The row of the latest record. It is whole once `add` or `end` gave it."""
        self._step_paths: tuple[Path, ...] = ()
        self._step_place = -1  # where records of those paths hold their step
        self.dropped: list[str] = []
        """Values left out: because their line would be too long, as `step 7: key (12.0 MB)`, or as no server reads
        them, once for each key."""
        self._unreadable: set[Path] = set()

    def add(self, paths: tuple[Path, ...], values: list[bytes], offset: int) -> Row | None:
        """Take the next decoded record, which lies at `offset`. The row before, if this record shows that it is whole."""
        if paths is not self._step_paths:
            self._step_paths, self._step_place = paths, place_of(STEP, paths)
        step = values[self._step_place] if self._step_place >= 0 else None
        self.kept = self._counter.keeps(step)
        if not self.kept:
            return None
        row = self.latest
        if row is not None and step == row.step and is_part(step, row.step):
            if row.add(paths, values, offset) > _MAX_ROW:
                row.lighten(lambda items: self._fit(items, step))
            return None
        self.latest = Row(paths, values, step, self._counter.step, offset)
        return row

    def take(self, row: Row) -> None:
        """Go on behind a row that was decoded elsewhere; it may get further parts here."""
        self.latest, self.kept, self._counter.step = row, True, row.number

    def end(self) -> Row | None:
        """The last row, once no further record comes."""
        row, self.latest = self.latest, None
        return row

    def line(self, row: Row) -> str:
        """The line of a row."""
        paths, values = row.items()
        lost = row.lost
        if not are_json(values):
            paths, values, lost = _good_items(paths, values)
        # Nearly always the same: the decoder gives one object for all rows of the same keys.
        plan = self._last_plan if paths is self._last_paths else self._plan(paths)
        if lost or plan.lost:
            self._name((*lost, *plan.lost))
        step = step_of(values[plan.step]) if plan.step >= 0 else None
        if step is None:
            paths, values, plan = self._with_step(paths, values, row.number + self._shift)
        elif self._shift:
            values = values.copy()
            values[plan.step] = b"%d" % (step + self._shift)
        if self._runtime_shift and RUNTIME in paths:
            values, place = values.copy(), place_of(RUNTIME, paths)
            values[place] = shifted_runtime(values[place], self._runtime_shift)
        line = plan.line(values)
        if len(line) > MAX_LINE:
            line = self._fit(dict(zip(paths, values, strict=True)), b"%d" % (row.number + self._shift))
        if b"\n" in line or b"\r" in line:  # white space between tokens: a line is one line
            line = line.replace(b"\n", b" ").replace(b"\r", b" ")
        return line.decode()

    def _name(self, lost: Iterable[Path]) -> None:
        """Say which keys have values that are left out; a step that is none was counted instead."""
        for path in lost:
            if path == STEP or path in self._unreadable or len(self._unreadable) > _NAMED:
                continue
            self._unreadable.add(path)
            more = len(self._unreadable) > _NAMED
            self.dropped.append(unreadable("rows", _FURTHER if more else "/".join(path)))

    def _plan(self, paths: tuple[Path, ...]) -> RowPlan:
        plan = self._nested.get(paths) if self._nested else None
        if plan is None:
            plan = RowPlan(paths)
            if plan.nests:
                if len(self._nested) >= _KEPT_PLANS:
                    self._nested.clear()
                self._nested[paths] = plan
        self._last_paths, self._last_plan = paths, plan
        return plan

    def _with_step(
        self, paths: tuple[Path, ...], values: list[bytes], step: int
    ) -> tuple[tuple[Path, ...], list[bytes], RowPlan]:
        """The items of a row that has no step, with one."""
        kept = [(path, value) for path, value in zip(paths, values, strict=True) if path != STEP]
        paths = (*(path for path, _ in kept), STEP)
        return paths, [*(value for _, value in kept), b"%d" % step], RowPlan(paths)

    def _fit(self, items: dict[Path, bytes], step: bytes | None) -> bytes:
        """Take the largest values out of a row, as few of them as it takes; the line of the rest."""
        line = RowPlan(tuple(items)).line(list(items.values()))
        largest = iter(sorted(items, key=lambda path: len(items[path]), reverse=True))
        while (excess := len(line) - MAX_LINE) > 0:
            while excess > 0:  # a line of many small values is not built anew without each of them
                path = next(largest)
                size = len(items.pop(path))
                excess -= size
                named = (step or b"?").decode()
                self.dropped.append(f"step {named}: {'/'.join(path)} ({size / 1e6:.1f} MB)")
            line = RowPlan(tuple(items)).line(list(items.values())) if items else b"{}"
        return line


def _good_items(paths: tuple[Path, ...], values: list[bytes]) -> tuple[tuple[Path, ...], list[bytes], tuple[Path, ...]]:
    """The items whose text is JSON, with the NaN and Infinity that logs may hold, and the paths of the others."""
    texts = list(map(good_text, values))
    good = [text for text in texts if text is not None]
    if len(good) == len(texts):
        return paths, good, ()
    items = list(zip(paths, texts, strict=True))
    lost = tuple(path for path, text in items if text is None)
    return tuple(path for path, text in items if text is not None), good, lost


def unreadable(where: str, key: str) -> str:
    """How a value that is left out is named, because it is none that all JSON libraries read."""
    shown = key if len(key) <= _SHOWN else f"{key[:_SHOWN]}.."
    return f"{where}: {shown} (no JSON, or nested too deep, or a number of too many digits)"


def named_unreadable(where: str, keys: list[str]) -> list[str]:
    """The same for many, of which the first ones are named."""
    names = [unreadable(where, key) for key in keys[:_NAMED]]
    return names if len(keys) <= _NAMED else [*names, unreadable(where, _FURTHER)]


def good_text(text: bytes) -> bytes | None:
    """`text` as valid UTF-8 if it is JSON, else None."""
    try:
        loads(text)
    except (ValueError, RecursionError):
        return None
    return text.decode("utf-8", "replace").encode()


def event_line(record: Record, start_ns: int, dropped: list[str], runtime_offset: float = 0.0) -> str:
    """The line of a stats record; `start_ns` is the log's start, nanoseconds since the epoch (0 if unknown).

    `runtime_offset` are the seconds that the run had taken by then.

    Values that are no JSON, or for which a line has no room, are left out and named in `dropped`.
    """
    stats = record.message()
    time_ns = stats.timestamp.seconds * 1_000_000_000 + stats.timestamp.nanos
    fields = [  # divided as integers, which rounds once: a float cannot hold the nanoseconds
        b'{"_wandb":true',
        b'"_timestamp":' + orjson.dumps(time_ns / 1_000_000_000),
        b'"_runtime":'
        + orjson.dumps((time_ns - start_ns + round(runtime_offset * 1e9)) / 1_000_000_000 if start_ns else 0.0),
    ]
    items = {item.key: item.value_json.encode() for item in stats.item}
    room = MAX_LINE - 256  # for the fields above
    lost: list[str] = []
    for key, text in items.items():
        good = good_text(text)
        if good is None:
            lost += [key] if len(lost) <= _NAMED else []
            continue
        field = orjson.dumps(f"system.{key}") + b":" + good
        if len(field) < room:
            fields.append(field)
            room -= len(field) + 1
        else:
            dropped.append(f"a sample: {key} ({len(good) / 1e6:.1f} MB)")
    for key in lost:
        name = unreadable("samples", key)
        if sum(one.startswith("samples: ") for one in dropped) >= _NAMED:
            name = unreadable("samples", _FURTHER)
        if name not in dropped:
            dropped.append(name)
    line = b",".join(fields) + b"}"
    return line.replace(b"\n", b" ").replace(b"\r", b" ").decode()


class Console:
    """Output records of one log to console lines, numbered in the order in which they became complete."""

    KINDS = frozenset({"output_raw", "output", "output_logger"})

    def __init__(self, start_ns: int = 0) -> None:
        self._streams = (LineAssembler("stderr"), LineAssembler("stdout"))
        self._last_ns = start_ns

    def feed(self, record: Record) -> list[ConsoleLine]:
        """The lines that a record completes."""
        message = record.message()
        if record.kind == "output_logger":  # has no time of its own
            return self._streams[1].feed(self._last_ns, message.line)
        time_ns = message.timestamp.seconds * 1_000_000_000 + message.timestamp.nanos
        self._last_ns = time_ns or self._last_ns
        return self._streams[min(message.output_type, 1)].feed(self._last_ns, message.line)

    def rest(self) -> list[ConsoleLine]:
        """What stands behind the last newlines by now."""
        return [line for stream in self._streams for line in stream.rest()]


def console_text(line: ConsoleLine, *, structured: bool) -> str:
    """A console line as the server stores it: with the time of the record in UTC, as JSON if `structured`."""
    text = line.text[:MAX_CONSOLE_LINE]
    # By integers: a float of nanoseconds would shift the last digits.
    seconds, nanos = divmod(line.timestamp_ns, 1_000_000_000)
    try:
        when = datetime.fromtimestamp(seconds, tz=timezone.utc).replace(microsecond=nanos // 1000, tzinfo=None)
    except (ValueError, OverflowError, OSError):
        when = datetime(1970, 1, 1)  # noqa: DTZ001 - written without a zone, as UTC
    stamp = when.isoformat(timespec="microseconds")
    error = line.stream == "stderr"
    if structured:
        document = {**({"level": "error"} if error else {}), "ts": stamp, "content": text}
        return compact(document)
    return f"{'ERROR ' if error else ''}{stamp} {text}"
