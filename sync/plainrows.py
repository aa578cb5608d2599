"""Many rows to lines at once, for rows of the form that nearly all have.

Such a row is a list of items with one key and a JSON text each, of different keys, among them its step in plain digits,
which differs from the one before. One regular expression splits it; its findings are believed only where every length
agrees, and nothing is sent before all texts have proved to be JSON. Whatever is not of this form is refused, and takes the
long way by `decode_history`, `Rows` and `RowFold`, which says what such a row is: both ways lead to the same lines.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Protocol

from ..logformat import Batch, Record, RunState
from ..logformat.history import RUNTIME, STEP, TIMESTAMP, Path
from ..logformat.record import Entry
from ..logformat.wire import BYTES, WireError, fields, read_varint
from .lines import Row, are_json, member
from .rowfold import repeats

_SPLIT = re.compile(
    # The head of an item: its size and its key; tag and size of its value. What stands between heads is a value.
    rb"\n([^\x82]{4,126}\x82\x01(?:[\x00-\x7f]|[\x80-\xff][\x01-\x7f]))"
).split
_STEP_FIELD = 0x12  # behind the items
_KEY, _NESTED, _VALUE_JSON, _VALUE_TAG = 1, 2, 16, b"\x82\x01"  # fields of an item
_DEEPEST = 2  # levels of a key
_LONGEST = 1 << 20  # bytes of a row; a longer one may make a line that no server takes
_HEADS_KEPT = 32_768
_STEP, _TIMESTAMP, _RUNTIME = (member(*path) for path in (STEP, TIMESTAMP, RUNTIME))
_LONGEST_STEP = 18  # digits
_BETWEEN = b"}\n{"  # rows
_CONSTANTS = {b"NaN", b"Infinity", b"-Infinity"}  # which logs hold beside JSON


@dataclass
class Block:
    """Rows that stand one behind the other, and what they and the summary records among them leave."""

    lines: list[str]
    offsets: list[int]
    """Of each row's record in the log."""
    last: Row
    steps: list[bytes]
    """As the log has them, like the texts below."""
    leaves: dict[Path, bytes]
    """Of the summary: the latest text of each key. No key is above another one."""
    timestamps: list[bytes]
    runtimes: list[bytes]
    spoken: bytes
    """The step of which the latest summary record speaks."""

    def fold(self, state: RunState) -> None:
        """Add the rows to a run's state, and what the summary records say."""
        state.add_rows(self.steps, self.leaves, self.timestamps, self.runtimes)
        state.summary_step = self.spoken


class PlainRows:
    """Gathers the rows of a block. Knows the heads of items by heart: those of one key differ by the length of its value."""

    def __init__(self, step_shift: int, *, folds: bool) -> None:
        self._shift = step_shift
        self._folds = folds
        self._names: dict[bytes, bytes] = {}  # what stands before the value in a line, by head of the item
        self._name_of = self._names.__getitem__
        self._sizes: dict[bytes, int] = {}  # of the value, by head
        self._summary_names: dict[bytes, bytes] = {}  # also of nested keys, which no line has
        self._paths: dict[bytes, Path] = {}  # by name
        self._above: set[str] = set()  # first parts of nested keys
        self._small = b""  # the summary record before, which the peer writes beside each row
        self._small_leaves: dict[bytes, bytes] = {}
        self.begin(None, b"")

    def begin(self, before: bytes | None, spoken: bytes) -> None:
        """Start a block: behind a row of step `before`. A row of step `spoken` is not for the summary, so it is refused."""
        if len(self._sizes) > _HEADS_KEPT:
            for table in (self._names, self._sizes, self._summary_names, self._paths, self._above, self._small_leaves):
                table.clear()
            self._small = b""
        self._before = before
        self._spoken = spoken
        self._pieces: list[bytes] = []
        self._heads: list[bytes] = []
        self._values: list[bytes] = []
        self._offsets: list[int] = []
        self._steps: list[bytes] = []
        self._leaves: dict[bytes, bytes] = {}
        self._timestamps: list[bytes] = []
        self._runtimes: list[bytes] = []
        self._last: tuple[list[bytes], list[bytes]] = [], []
        self.announced: bytes | None = None
        """A summary record that may say no more than the row behind it."""

    def row(self, body: bytes, offset: int) -> bool:
        """Take the next row; False if it is not of this form. Whether all its lengths agree is left to `end`."""
        flat = _SPLIT(body)
        heads, values = flat[1::2], flat[2::2]
        try:
            names = list(map(self._name_of, heads))
        except KeyError:
            if not all(map(self._learn, heads)):
                return False
            names = list(map(self._name_of, heads))
        if not names or flat[0] or len(body) > _LONGEST:
            return False
        last, size = values[-1], self._sizes[heads[-1]]
        left = last[size:]
        if left:
            if left[0] != _STEP_FIELD or len(left) < 2 or left[1] != len(left) - 2:
                return False
            values[-1] = flat[-1] = last[:size]
        items = dict(zip(names, values))  # noqa: B905 - as many of one as of the other
        step = items.get(_STEP, b"")
        if (
            len(items) != len(names)
            or not step.isdigit()
            or step in (self._before, self._spoken)
            or len(step) > _LONGEST_STEP
        ):
            return False
        said = self.announced
        if said is not None:
            if (len(said) + len(left) == len(body) and body.startswith(said)) or repeats(said, body):
                self._spoken = step
            elif not self._fold_small(said):
                return False
            self.announced = None
        self._before = step
        flat[0], flat[1::2] = _BETWEEN, names
        flat[1] = names[0][1:]
        if self._shift:
            flat[2 * names.index(_STEP) + 2] = b"%d" % (int(step) + self._shift)
        self._pieces += flat
        self._heads += heads
        self._values += values
        self._offsets.append(offset)
        self._steps.append(step)
        if self._folds:
            self._leaves.update(items)
            if _TIMESTAMP in items:
                self._timestamps.append(items[_TIMESTAMP])
            if _RUNTIME in items:
                self._runtimes.append(items[_RUNTIME])
        self._last = names, values
        return True

    def summary(self, body: bytes) -> bool:
        """Take the next summary record; False if it has to be folded by itself, or the one before it."""
        if self.announced is not None and not self._fold_small(self.announced):
            return False
        self.announced = body
        return True

    def end(self) -> Block | None:
        """The block, without a summary record that is still `announced`; None if what it holds is not all plain."""
        if not self._offsets or not _are_plain(self._values):
            return None
        if list(map(len, self._values)) != list(map(self._sizes.__getitem__, self._heads)):
            return None
        text = b"".join(self._pieces)[_BETWEEN.index(b"{") :] + b"}"
        names, values = self._last
        paths = tuple(map(self._paths.__getitem__, names))
        step = self._steps[-1]
        return Block(
            text.decode().split("\n"),
            self._offsets,
            Row(paths, values, step, int(step), self._offsets[-1]),
            self._steps,
            {self._paths[name]: text for name, text in self._leaves.items()},
            self._timestamps,
            self._runtimes,
            self._spoken,
        )

    def _fold_small(self, body: bytes) -> bool:
        """Fold a summary record of plain items without a step, if it is one."""
        if body != self._small:
            flat = _SPLIT(body)
            heads, values = flat[1::2], flat[2::2]
            if flat[0] or not all(map(self._learn_any, heads)):
                return False
            names = list(map(self._summary_names.__getitem__, heads))
            if list(map(len, values)) != list(map(self._sizes.__getitem__, heads)) or _STEP in names:
                return False
            self._small, self._small_leaves = body, dict(zip(names, values, strict=True))
        self._leaves.update(self._small_leaves)
        return True

    def _learn(self, head: bytes) -> bool:
        """Learn a head of a row's item; False if its key is nested, or it is none."""
        if head in self._names:
            return True
        if not self._learn_any(head) or len(self._paths[self._summary_names[head]]) > 1:
            return False
        self._names[head] = self._summary_names[head]
        return True

    def _learn_any(self, head: bytes) -> bool:
        """Learn the head of an item; False if its lengths disagree, or its key is above or below another one."""
        if head in self._summary_names:
            return True
        found = _parse(head)
        if found is None:
            return False
        path, size = found
        name = b"".join(map(member, path))
        if (len(path) == 1 and path[0] in self._above) or (len(path) > 1 and member(path[0]) in self._paths):
            return False
        if len(path) > 1:
            self._above.add(path[0])
        self._paths[name], self._sizes[head], self._summary_names[head] = path, size, name
        return True


class Taker(Protocol):
    """Takes the records of a log in their order, as `in_blocks` gives them."""

    def begin_block(self, plain: PlainRows) -> bool:
        """Start a block by `PlainRows.begin`; False if the next row has to take the long way."""

    def take_block(self, block: Block) -> None:
        """Take rows, and the summary records between them."""

    def take_record(self, record: Record) -> None:
        """Take any record."""


def in_blocks(batch: Batch, entries: list[Entry], plain: PlainRows, taker: Taker) -> None:
    """Give some entries of a batch to `taker` in their order: plain rows in blocks, everything else record by record."""
    base = batch.base
    begun, quick = 0, taker.begin_block(plain)
    for at, (kind, data, start, stop, offset, _) in enumerate(entries):
        if kind == "history":
            if quick and plain.row(data[start:stop], base + offset):
                continue
        elif kind == "summary" and plain.summary(data[start:stop]):
            continue
        _end_block(batch, entries[begun:at], plain, taker)
        taker.take_record(batch.record_of(entries[at]))
        begun, quick = at + 1, taker.begin_block(plain)
    _end_block(batch, entries[begun:], plain, taker)


def _end_block(batch: Batch, entries: list[Entry], plain: PlainRows, taker: Taker) -> None:
    """Give the entries of a block as one; one by one if they are not plain after all."""
    block = plain.end()
    if block is None:
        rest = entries
    else:
        taker.take_block(block)
        said = plain.announced is not None
        rest = [next(entry for entry in reversed(entries) if entry[0] == "summary")] if said else []
    for entry in rest:
        taker.take_record(batch.record_of(entry))


def _parse(head: bytes) -> tuple[Path, int] | None:
    """Key path and size of the value in the head of an item; None if its lengths disagree."""
    path: list[str] = []
    found = None
    try:
        size, at = read_varint(head, 0)
        if size > _LONGEST:
            return None
        item = head[at:].ljust(size, b" ")  # as if the value stood behind it
        for number, kind, start, end in fields(item, 0, size):
            if kind != BYTES or found is not None:
                return None
            if number == _VALUE_JSON and start == len(head) - at:
                found = end - start
            elif number == _NESTED or (number == _KEY and item[end : end + 2] == _VALUE_TAG and not path):
                path.append(str(item[start:end], "utf-8"))
            else:
                return None
    except (WireError, UnicodeDecodeError):
        return None
    if found is None or len(item) != size or not 0 < len(path) <= _DEEPEST:
        return None
    return tuple(path), found


def _are_plain(values: list[bytes]) -> bool:
    """Whether each text is one JSON value without line ends, or NaN or Infinity, and none is null (no value in a row)."""
    joined = b",".join(values)
    if b"\n" in joined or b"\r" in joined or b"null" in joined:
        return False
    return are_json(values) or are_json([text for text in values if text not in _CONSTANTS])
