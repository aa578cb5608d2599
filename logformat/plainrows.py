"""Many rows at once, of the form that nearly all have.

Such a row is a list of items with one key and a JSON text each, of different keys, among them its step in plain digits,
which differs from the one before. One regular expression splits all rows of a batch; its findings are believed only where
every length agrees, and nothing is made of them before all texts have proved to be JSON. Whatever is not of this form takes
the long way, record by record, by `decode_history`: both ways lead to the same.
"""

from __future__ import annotations

import re
from bisect import bisect_left
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import accumulate, repeat
from operator import add, itemgetter
from typing import Any, NamedTuple, Protocol, TypeVar

from .elapsed import largest_seconds
from .history import RUNTIME, STEP, TIMESTAMP, Path
from .media import is_mark
from .record import Batch, Entry, Record
from .values import are_json, is_json, member
from .wire import BYTES, WireError, fields, read_varint

_HEAD = rb"([^\x82]{4,126}\x82\x01(?:[\x00-\x7f]|[\x80-\xff][\x01-\x7f]))"
_SPLIT = re.compile(rb"\n" + _HEAD).split
"""At the heads of items: size and key, then tag and size of the value. What stands between heads is a value."""
_EDGE_HEAD = b"\0\0\0\0\x82\x01\1"  # of an item of no bytes that has some: no log holds it where lengths agree
_EDGE_VALUE = b"0"
_EDGE = b"\n" + _EDGE_HEAD + _EDGE_VALUE  # is put between rows
_STEP_FIELD = 0x12  # behind the items
_STEP_TAILS = range(2, 14)  # bytes that it takes
_KEY, _NESTED, _VALUE_JSON, _VALUE_TAG = 1, 2, 16, b"\x82\x01"  # fields of an item
_DEEPEST = 8  # levels of a key
_LONGEST = 1 << 20  # bytes of a row; a longer one may make a line that no server takes
_HEADS_KEPT = 32_768
_STEP, _TIMESTAMP, _RUNTIME = (member(*path) for path in (STEP, TIMESTAMP, RUNTIME))
_LONGEST_STEP = 18  # digits
_CONSTANTS = {b"NaN", b"Infinity", b"-Infinity"}  # which logs hold beside JSON
_ODD, _EDGE_SIGN, _NO_SIGN, _FIRST_SIGN = "\0", "\1", "\2", 3
"""Characters that stand for what is no plain item, for edges, for a key that no row had; numbers of keys follow."""


class LatestRow(NamedTuple):
    """A plain row."""

    paths: tuple[Path, ...]
    values: list[bytes]
    """JSON texts."""
    step: bytes
    """The text of its step."""
    number: int
    """Its step."""
    offset: int
    """Where its record lies in the log."""


@dataclass
class Block:
    """Rows that stand one behind the other, and what they and the summary records among them leave."""

    offsets: list[int]
    """Of each row's record in the log."""
    last: LatestRow
    leaves: dict[Path, bytes]
    """Of the summary: the latest text of each key. No key is above another one. Steps and texts are as the log has them."""
    highest: int
    """Of the steps."""
    time_s: float
    """The latest `_timestamp`; 0 for none."""
    runtime_s: float
    """The largest `_runtime`; 0 for none."""
    spoken: bytes
    """The step of which the latest summary record speaks."""
    summaries: int
    """How many summary records stand among them."""


Made = TypeVar("Made", bound=Block)
Made_co = TypeVar("Made_co", bound=Block, covariant=True)
Made_contra = TypeVar("Made_contra", bound=Block, contravariant=True)


class Splitter(Protocol[Made_co]):
    """Makes blocks of rows: a `PlainRows`, or what makes more of them."""

    def gather(self, entries: list[Entry], base: int) -> Gathered:
        """See `PlainRows`."""

    def block(self, rows: Gathered, first: int, end: int, place: int, spoken: bytes) -> Made_co:
        """See `PlainRows`."""


class Taker(Protocol[Made_contra]):
    """Takes the records of a log in their order, as `in_blocks` gives them."""

    def begin_block(self) -> tuple[bytes | None, bytes] | None:
        """The step of the row before, and the one of which a summary record speaks; None: the next row takes the long way."""

    def take_block(self, block: Made_contra) -> None:
        """Take rows, and the summary records between them."""

    def take_record(self, record: Record) -> None:
        """Take any record."""


@dataclass
class Gathered:
    """The rows of a batch, as lists by row where nothing else is said."""

    bodies: list[bytes] = field(default_factory=list)
    """Their items alone."""
    places: list[int] = field(default_factory=list)
    """Where their records stand in the batch."""
    offsets: list[int] = field(default_factory=list)
    """The same in the log."""
    announced: list[bool] = field(default_factory=list)
    """Whether the summary record before says what the row says."""
    smalls: list[tuple[int, dict[bytes, bytes]]] = field(default_factory=list)
    """Summary records that say something else: their places in the batch, and what they say."""
    breaks: list[int] = field(default_factory=list)
    """Places in the batch of what takes the long way, whatever stands around it."""
    steps: list[bytes | None] = field(default_factory=list)
    """None for a row that takes the long way."""
    signs: list[str] = field(default_factory=list)
    """Their keys, a character each."""
    alike: bool = False
    """Whether all have the same keys."""
    begins: list[int] = field(default_factory=list)
    """Where their items begin in the following lists."""
    names: Sequence[bytes] = ()
    """Of all items; those of edges stand between rows."""
    values: Sequence[bytes] = ()
    """Likewise."""

    def reach(self, first: int, end: int, before: bytes | None, spoken: bytes) -> tuple[int, bytes]:
        """As far as rows from `first` on make one block: the row behind the last one, and the step spoken of by then."""
        for row in range(first, end):
            step = self.steps[row]
            if step is None or step in (before, spoken):
                return row, spoken
            before = step
            if self.announced[row]:
                spoken = step
        return end, spoken

    def items(self, first: int, last: int) -> slice:
        """Where the items of some rows lie."""
        return slice(self.begins[first], self.begins[last] + len(self.signs[last]))

    def column(self, sign: str, first: int, end: int) -> list[bytes | None]:
        """The values of one key; None where a row has none."""
        places = list(map(str.find, self.signs[first:end], repeat(sign)))
        if -1 not in places:
            return list(map(self.values.__getitem__, map(add, self.begins[first:end], places)))
        begins = self.begins[first:end]
        return [self.values[begin + place] if place >= 0 else None for begin, place in zip(begins, places, strict=True)]


class PlainRows:
    """Makes blocks of rows. Knows the heads of items by heart: those of one key differ by the length of its value."""

    def __init__(self, *, folds: bool, nests: bool = True) -> None:
        """`folds`: blocks tell what they leave in the summary; `nests`: rows with keys of several levels may be plain."""
        self._folds, self._nests = folds, nests
        self._tail = 0  # bytes of the step field that the latest row had
        self._forget()

    def _forget(self) -> None:
        self._numbers = {_EDGE_HEAD: 0}  # of heads of items; by them the next three lists go:
        self._sizes = [len(_EDGE_VALUE)]  # of the value; -1 for an odd one
        self._names = [b""]  # of the key, as JSON has it before a value; none for edges
        self._signs = [_EDGE_SIGN]
        self._sign_of: dict[bytes, str] = {}  # by name
        self._path_of: dict[str, Path] = {}  # by sign
        self._paths: dict[bytes, Path] = {}  # by name, which nested keys of summary records have, too
        self._known: set[Path] = set()  # all keys
        self._above: set[Path] = set()  # what lies above nested keys
        self._small: bytes | None = (
            None  # the latest summary record that said something; the peer has one beside each row
        )
        self._small_leaves: dict[bytes, bytes] | None = None

    def gather(self, entries: list[Entry], base: int) -> Gathered:
        """Find the rows of a batch that lies at `base`, and what there is to say of each of them."""
        if len(self._numbers) > _HEADS_KEPT:
            self._forget()
        rows = Gathered()
        add_body, add_announced, add_place = rows.bodies.append, rows.announced.append, rows.places.append
        add_small, small, small_leaves = rows.smalls.append, self._small, self._small_leaves
        said: bytes | None = None
        at_said = 0
        for at, (kind, data, start, stop, _, _) in enumerate(entries):
            body = data[start:stop]
            announced = kind == "history" and said is not None and repeats(said, body)
            if said is not None and not announced:  # it says something by itself
                if said != small:
                    small, small_leaves = said, self._said(said)
                if small_leaves is not None:
                    add_small((at_said, small_leaves))
                else:
                    rows.breaks.append(at_said)
            said = None
            if kind == "history":
                add_body(self._cut(body))
                add_place(at)
                add_announced(announced)
            elif kind == "summary":
                said, at_said = body, at
            else:
                rows.breaks.append(at)
        self._small, self._small_leaves = small, small_leaves
        if said is not None:  # whether it only says what a row says shows in the next batch
            rows.breaks.append(at_said)
        rows.offsets = [base + entries[at][4] for at in rows.places]
        if rows.bodies:
            self._split(rows)
        return rows

    def block(self, rows: Gathered, first: int, end: int, place: int, spoken: bytes) -> Block:
        """Rows from `first` to before `end`, and the summary records among them from `place` in the batch on."""
        last = end - 1
        steps = list(map(int, filter(None, rows.steps[first:end])))
        where = rows.items(last, last)
        paths = tuple(map(self._paths.__getitem__, rows.names[where]))
        latest = LatestRow(paths, list(rows.values[where]), rows.steps[last] or b"", steps[-1], rows.offsets[last])
        leaves = self.leaves(rows, first, end, place) if self._folds else {}
        times, runtimes = (
            largest_seconds(list(filter(None, rows.column(self._sign_of.get(name, _NO_SIGN), first, end))))
            for name in (_TIMESTAMP, _RUNTIME)
        )
        summaries = rows.places[last] + 1 - place - (end - first)
        return Block(rows.offsets[first:end], latest, leaves, max(steps), times, runtimes, spoken, summaries)

    def place_of_step(self, rows: Gathered, row: int) -> int:
        """Which item of a row is its step."""
        return rows.begins[row] + rows.signs[row].index(self._sign_of[_STEP])

    def cells(
        self, rows: Gathered, first: int, end: int
    ) -> Iterator[tuple[Path, range | list[int], range | list[int]]]:
        """The keys that rows from `first` to before `end` have; for each the rows, counted from `first`, and its items."""
        count = end - first
        signs = rows.signs[first]
        if rows.alike and all(map(signs.__eq__, rows.signs[first:end])):
            begin, stride = rows.begins[first], len(signs) + 1
            for at, sign in enumerate(signs, begin):
                yield self._path_of[sign], range(count), range(at, at + count * stride, stride)
        elif rows.alike:
            begins = rows.begins[first:end]
            for sign in signs:
                places = map(str.find, rows.signs[first:end], repeat(sign))
                yield self._path_of[sign], range(count), list(map(add, begins, places))
        else:
            found: dict[str, tuple[list[int], list[int]]] = {}
            for row, (begin, keys) in enumerate(zip(rows.begins[first:end], rows.signs[first:end], strict=True)):
                for at, sign in enumerate(keys, begin):
                    if sign in found:
                        found[sign][0].append(row)
                        found[sign][1].append(at)
                    else:
                        found[sign] = [row], [at]
            for sign, (having, items) in found.items():
                yield self._path_of[sign], having, items

    def _said(self, body: bytes) -> dict[bytes, bytes] | None:
        """What a summary record says, if it is one of plain items without a step."""
        flat = _SPLIT(body)
        heads, values = flat[1::2], flat[2::2]
        if flat[0] or not all(map(self._learn, heads)):
            return None
        numbers = [self._numbers[head] for head in heads]
        names = [self._names[number] for number in numbers]
        if _STEP in names or list(map(len, values)) != [self._sizes[number] for number in numbers]:
            return None
        return dict(zip(names, values, strict=True))

    def _cut(self, body: bytes) -> bytes:
        """A row without the step behind its items. Whether that was one is told by the lengths of what is left."""
        size = self._tail
        if 1 < size < len(body) and body[-size] == _STEP_FIELD and body[1 - size] == size - 2:
            return body[:-size]
        for size in _STEP_TAILS:
            if size < len(body) and body[-size] == _STEP_FIELD and body[1 - size] == size - 2:
                self._tail = size
                return body[:-size]
        return body

    def _split(self, rows: Gathered) -> None:
        """Split all rows into items, and find those that take the long way."""
        count = len(rows.bodies)
        rows.steps = [None] * count
        flat = _SPLIT(_EDGE.join(rows.bodies))
        heads, values = flat[1::2], flat[2::2]
        if flat[0] or not heads:
            return
        try:
            numbers = _picker(heads)(self._numbers)
        except KeyError:
            for head in set(heads).difference(self._numbers):
                self._learn(head)
            numbers = _picker(heads)(self._numbers)
        pick = _picker(numbers)
        signs = "".join(pick(self._signs))
        rows.signs = signs.split(_EDGE_SIGN)
        if len(rows.signs) != count:  # what one row holds has led the splitting of others astray
            return
        lengths = list(map(len, rows.signs))
        rows.alike = lengths.count(lengths[0]) == count and len(set(signs) - {_EDGE_SIGN}) == lengths[0] > 0
        if rows.alike:
            rows.begins = list(range(0, len(signs), lengths[0] + 1))
        else:
            rows.begins = list(accumulate([0, *lengths[:-1]], lambda begin, length: begin + length + 1))
        rows.names, rows.values = pick(self._names), values
        steps = rows.column(self._sign_of.get(_STEP, _NO_SIGN), 0, count)
        odd = {row for row, step in enumerate(steps) if step is None or not step.isdigit() or len(step) > _LONGEST_STEP}
        if _ODD in signs or [len(set(keys)) for keys in rows.signs] != lengths:
            odd.update(row for row, keys in enumerate(rows.signs) if _ODD in keys or len(set(keys)) < len(keys))
        if max(map(len, rows.bodies)) > _LONGEST:
            odd.update(row for row, body in enumerate(rows.bodies) if len(body) > _LONGEST)
        sizes = list(pick(self._sizes))
        if [len(text) for text in values] != sizes or not _are_plain(values):
            for row in range(count):
                where = rows.items(row, row)
                texts = values[where]
                edge = values[where.start - 1] if row else _EDGE_VALUE
                if [len(text) for text in texts] != sizes[where] or edge != _EDGE_VALUE or not _are_plain(texts):
                    odd.add(row)
        rows.steps = [None if row in odd else step for row, step in enumerate(steps)] if odd else steps

    def leaves(self, rows: Gathered, first: int, end: int, place: int = 0) -> dict[Path, bytes]:
        """What rows and summary records leave: the latest text of each key, in the order in which the keys came."""
        firsts: dict[object, tuple[int, int | dict[bytes, bytes]]] = {}
        lasts: dict[object, tuple[int, int | dict[bytes, bytes]]] = {}
        alike = rows.alike
        for row in (first, end - 1) if alike else range(first, end):
            keys = None if alike else frozenset(rows.signs[row])
            lasts[keys] = found = rows.places[row], row
            firsts.setdefault(keys, found)
        smalls = rows.smalls
        for small in smalls[
            bisect_left(smalls, place, key=_place) : bisect_left(smalls, rows.places[end - 1], key=_place)
        ]:
            lasts[id(small[1])] = small
            firsts.setdefault(id(small[1]), small)
        leaves: dict[bytes, bytes] = {}
        for _, what in [*sorted(firsts.values(), key=_place), *sorted(lasts.values(), key=_place)]:
            if isinstance(what, int):
                where = rows.items(what, what)
                leaves.update(zip(rows.names[where], rows.values[where], strict=True))
            else:
                leaves.update(what)
        return {self._paths[name]: text for name, text in leaves.items()}

    def _learn(self, head: bytes) -> bool:
        """Learn the head of an item; False if its lengths disagree, or its key is above or below another one."""
        number = self._numbers.get(head)
        if number is not None:
            return self._sizes[number] >= 0 and head != _EDGE_HEAD
        path, size = _parse(head) or ((), -1)
        above = [path[:depth] for depth in range(1, len(path))]
        if path in self._above or not self._known.isdisjoint(above):
            size = -1
        name, sign = b"", _ODD
        if size >= 0:
            name = b"".join(map(member, path))
            self._paths[name] = path
            self._known.add(path)
            self._above.update(above)
            if not above or (self._nests and not is_mark(path)):
                sign = self._sign_of.setdefault(name, chr(_FIRST_SIGN + len(self._sign_of)))
                self._path_of[sign] = path
        self._numbers[head] = len(self._sizes)
        self._sizes.append(size)
        self._names.append(name)
        self._signs.append(sign)
        return size >= 0


def _picker(keys: Sequence[Any]) -> Callable[[Any], tuple[Any, ...]]:
    """What gives the values of some keys of a table, or of some places of a list, at once."""
    return itemgetter(*keys) if len(keys) > 1 else lambda table: (table[keys[0]],)


def in_blocks(batch: Batch, entries: list[Entry], plain: Splitter[Made], taker: Taker[Made]) -> None:
    """Give some entries of a batch to `taker` in their order: plain rows in blocks, everything else record by record."""
    rows = plain.gather(entries, batch.base)
    row = place = 0  # of what comes next
    for stop in (*rows.breaks, len(entries)):
        end = bisect_left(rows.places, stop)
        while row < end:
            begun = taker.begin_block()
            if begun is not None:
                behind, spoken = rows.reach(row, end, *begun)
                if behind > row:
                    taker.take_block(plain.block(rows, row, behind, place, spoken))
                    row, place = behind, rows.places[behind - 1] + 1
            if row < end:
                _one_by_one(batch, entries[place : rows.places[row] + 1], taker)
                row, place = row + 1, rows.places[row] + 1
        _one_by_one(batch, entries[place : stop + 1], taker)
        place = stop + 1


def _one_by_one(batch: Batch, entries: Iterable[Entry], taker: Taker[Any]) -> None:
    for entry in entries:
        taker.take_record(batch.record_of(entry))


def _place(item: tuple[int, object]) -> int:
    return item[0]


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
    if joined.count(b",") == len(values) - 1 and is_json(joined, len(values)):  # see `are_json`
        return True
    return are_json(values) or are_json([text for text in values if text not in _CONSTANTS])


def repeats(summary: bytes, row: bytes) -> bool:
    """Whether a summary record holds the items of a row and nothing else: in the same order, from any of them on and round.

    Both are written from one map of the peer's, which is walked from a random place on.
    """
    size = len(summary)
    step = row[size:]  # behind the items of a row stands its step, or nothing
    if step and (step[0] != _STEP_FIELD or len(step) < 2 or step[1] != len(step) - 2):
        return False
    return size > 0 and summary in row[:size] * 2
