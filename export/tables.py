"""Tables of a run: fields with names and kinds, and cells that are made some rows at a time.

A wide table has a column for each key. A long one has a line for each value, so that its columns are the same whatever a run
logs, and what is missing takes no room:

| column | holds |
|---|---|
| `_step`, `_runtime`, `_timestamp` | where the value stands |
| `key` | its flat name |
| `kind` | `int`, `float`, `bool`, `text`, `null`, or `json` for lists and objects |
| `value` | a number as a double, a bool as 0 or 1, else nothing |
| `text` | what `value` does not say: text, JSON of lists and objects, the digits of an integer that is no double |
"""

from __future__ import annotations

import json
from array import array
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import compress
from typing import Any, Protocol

from ..logformat.column import Column
from ..logformat.history import Path

_EXACT = 2**53
"""Up to here every integer is a double."""
_CELLS = 1_000_000
"""Cells made at once, and with that the memory an export takes beyond what the run itself does."""
MOST_ROWS = 65_536
"""Rows made at once."""
_SPARSE = 16
"""Where fewer than one row in so many is wanted, each is looked up by itself."""
_NUMBERS = frozenset({"int", "float", "number"})
_KINDS: dict[type, str] = {int: "int", float: "float", bool: "bool", str: "text", type(None): "null"}


@dataclass(frozen=True)
class Field:
    """A column of a table: its name, and what its cells are. Cells are None where there is nothing."""

    name: str
    kind: str
    """`int` (of 64 bits), `float`, `number` (integers and floats, all of them doubles), `bool`, `text`, `null` for nothing at
    all, or `json` for anything."""
    is_exact: bool = True
    """Of kind `int`: each is a double, too."""

    def with_other(self, other: Field) -> Field:
        """The field that takes the cells of both; it has this one's name."""
        kinds = {self.kind, other.kind} - {"null"}
        is_exact = self.is_exact and other.is_exact
        if len(kinds) < 2:
            return Field(self.name, kinds.pop() if kinds else "null", is_exact)
        return Field(self.name, "number" if is_exact and kinds <= _NUMBERS else "json")


class Source(Protocol):
    """The cells of one field."""

    @property
    def field(self) -> Field:
        """What it is called, and what its cells are."""

    @property
    def path(self) -> Path:
        """Where its values stand in an object."""

    def cells(self, rows: Sequence[int]) -> list[Any]:
        """A cell for each row; rows are ascending."""

    def items(self, rows: Sequence[int]) -> Iterable[tuple[int, Any]]:
        """Row and value of those rows that have one: a null that was logged is one, what is missing is not."""


class Logged:
    """A column of rows or samples."""

    def __init__(self, column: Column) -> None:
        self.column = column
        self.path = column.path
        nulls = len(column.nulls)
        values = column.values if column.kind == "int" else ()
        numbers = values if isinstance(values, array) else [value for value in values if value is not None]
        is_exact = not numbers or all(-_EXACT <= end <= _EXACT for end in (min(numbers), max(numbers)))
        self.field = Field(column.name, "null" if nulls == len(column) else column.kind, is_exact)

    def cells(self, rows: Sequence[int]) -> list[Any]:
        """See `Source`."""
        span = rows[-1] + 1 - rows[0]
        if span > _SPARSE * len(rows):
            return [self.column.get(row) for row in rows]
        found = list(self._near(rows))
        if len(found) == len(rows) == span:
            return [value for _, value in found]
        if len(rows) == span:
            cells: list[Any] = [None] * span
            for row, value in found:
                cells[row - rows[0]] = value
            return cells
        return list(map(dict(found).get, rows))

    def items(self, rows: Sequence[int]) -> Iterable[tuple[int, Any]]:
        """See `Source`."""
        if len(rows) == rows[-1] + 1 - rows[0]:
            return self._near(rows)
        wanted = frozenset(rows)
        return ((row, value) for row, value in self._near(rows) if row in wanted)

    def _near(self, rows: Sequence[int]) -> Iterable[tuple[int, Any]]:
        """Row and value from the first of some rows to the last one."""
        start, stop = self.column.place(rows[0]), self.column.place(rows[-1] + 1)
        return zip(self.column.rows[start:stop], self.column.slice(start, stop), strict=True)


class Listed:
    """A value for each row of a table, from a sequence."""

    def __init__(self, name: str, kind: str, values: Sequence[Any]) -> None:
        self.field = Field(name, kind)
        self.path: Path = (name,)
        self._values = values

    def cells(self, rows: Sequence[int]) -> list[Any]:
        """See `Source`."""
        if isinstance(rows, range):
            return list(self._values[rows.start : rows.stop : rows.step])
        return [self._values[row] for row in rows]

    def items(self, rows: Sequence[int]) -> Iterable[tuple[int, Any]]:
        """See `Source`."""
        return zip(rows, self.cells(rows), strict=True)


class Table(Protocol):
    """What is written as one file, or as a part of one."""

    @property
    def fields(self) -> Sequence[Field]:
        """Its columns; their names are all different."""

    def __len__(self) -> int:
        """How many rows it has."""

    def pieces(self) -> Iterator[list[list[Any]]]:
        """The cells of some rows at a time: a list for each field."""

    def objects(self) -> Iterator[dict[str, Any]]:
        """Each row as what it holds, nested as it was logged."""


class Wide:
    """A column for each source; of these rows."""

    def __init__(self, sources: Sequence[Source], rows: Sequence[int]) -> None:
        self.sources, self._rows = sources, rows

    @property
    def fields(self) -> Sequence[Field]:
        """See `Table`."""
        return [source.field for source in self.sources]

    def __len__(self) -> int:
        return len(self._rows)

    def parts(self) -> Iterator[Sequence[int]]:
        """The rows, so many at a time as `pieces` takes."""
        return _parts(self._rows, len(self.sources))

    def pieces(self) -> Iterator[list[list[Any]]]:
        """See `Table`."""
        for rows in self.parts():
            yield [source.cells(rows) for source in self.sources]

    def objects(self) -> Iterator[dict[str, Any]]:
        """See `Table`."""
        for rows in self.parts():
            built: dict[int, dict[str, Any]] = {row: {} for row in rows}
            for source in self.sources:
                *above, key = source.path
                for row, value in source.items(rows):
                    node = built[row]
                    for part in above:
                        node = node.setdefault(part, {})
                    node[key] = value
            yield from built.values()


class Long:
    """A line for each value of the columns, one column behind the other."""

    def __init__(self, place: Sequence[Source], columns: Sequence[Column], rows: Sequence[int], count: int) -> None:
        """`place` are the sources that say where a value stands; `rows` those of `count` that are wanted."""
        self._place, self._columns, self._rows = place, columns, rows
        self._mask: bytearray | None = None
        if not isinstance(rows, range) or len(rows) != count:
            self._mask = bytearray(count)
            for row in rows:
                self._mask[row] = 1

    @property
    def fields(self) -> Sequence[Field]:
        """See `Table`."""
        kinds = {"key": "text", "kind": "text", "value": "float", "text": "text"}
        return [*(source.field for source in self._place), *(Field(name, kind) for name, kind in kinds.items())]

    def __len__(self) -> int:
        if self._mask is None:
            return sum(map(len, self._columns))
        return sum(sum(map(self._mask.__getitem__, column.rows)) for column in self._columns)

    def pieces(self) -> Iterator[list[list[Any]]]:
        """See `Table`."""
        for column, rows, values in self._runs():
            where = [source.cells(rows) for source in self._place]
            yield [*where, [column.name] * len(rows), *_apart(values)]

    def objects(self) -> Iterator[dict[str, Any]]:
        """A value as it was logged, with its key and place."""
        names = [source.field.name for source in self._place]
        for column, rows, values in self._runs():
            for where, value in zip(self._where(rows), values, strict=True):
                yield {**dict(zip(names, where, strict=True)), "key": column.name, "value": value}

    def _where(self, rows: Sequence[int]) -> Iterator[tuple[Any, ...]]:
        if not self._place:
            return iter([()] * len(rows))
        return zip(*(source.cells(rows) for source in self._place), strict=True)

    def _runs(self) -> Iterator[tuple[Column, Sequence[int], list[Any]]]:
        """Each column, some of its rows at a time, with their values."""
        for column in self._columns:
            numbers = column.rows
            for start in range(0, len(column), MOST_ROWS):
                rows: Sequence[int] = numbers[start : start + MOST_ROWS]
                values = column.slice(start, start + MOST_ROWS)
                if self._mask is not None:
                    chosen = list(map(self._mask.__getitem__, rows))
                    rows, values = list(compress(rows, chosen)), list(compress(values, chosen))
                if rows:
                    yield column, rows, values


class Aligned:
    """A table as a part of one over several runs: in the fields of that, with the run's name in the first of them."""

    def __init__(self, table: Table, fields: Sequence[Field], run: str) -> None:
        self.fields, self._table, self._run = fields, table, run

    def __len__(self) -> int:
        return len(self._table)

    def pieces(self) -> Iterator[list[list[Any]]]:
        """See `Table`."""
        places = {field.name: place for place, field in enumerate(self._table.fields)}
        for piece in self._table.pieces():
            count = len(piece[0])
            wanted = (places.get(field.name) for field in self.fields[1:])
            yield [[self._run] * count, *([None] * count if place is None else piece[place] for place in wanted)]

    def objects(self) -> Iterator[dict[str, Any]]:
        """See `Table`."""
        name = self.fields[0].name
        return ({name: self._run, **row} for row in self._table.objects())


def united(tables: Iterable[Sequence[Field]]) -> list[Field]:
    """The fields of a table that takes all of these, in the order in which they come; the run's name is the first."""
    found: dict[str, Field] = {}
    for fields in tables:
        for field in fields:
            before = found.get(field.name)
            found[field.name] = field if before is None else before.with_other(field)
    taken = {part for name in found for part in (name, name.partition(".")[0])}  # objects nest
    return [Field(free_name("_run", taken), "text"), *found.values()]


def free_name(name: str, taken: Iterable[str]) -> str:
    """A name that no key has: with underscores before it, as many as it takes."""
    used = frozenset(taken)
    while name in used:
        name = f"_{name}"
    return name


def json_text(value: Any) -> str:
    """JSON of a value on one line, with bare NaN and Infinity as logs have them."""
    return json.dumps(value, ensure_ascii=False)


def _parts(rows: Sequence[int], width: int) -> Iterator[Sequence[int]]:
    size = max(256, min(MOST_ROWS, _CELLS // max(width, 1)))
    return (rows[start : start + size] for start in range(0, len(rows), size))


def _apart(values: list[Any]) -> tuple[list[str], list[float | None], list[str | None]]:
    """Kind, number and text of values."""
    kinds = [_KINDS.get(type(value), "json") for value in values]
    if kinds.count("float") == len(kinds):
        return kinds, values, [None] * len(values)
    numbers: list[float | None] = []
    texts: list[str | None] = []
    for kind, value in zip(kinds, values, strict=True):
        number, text = _APART[kind](value)
        numbers.append(number)
        texts.append(text)
    return kinds, numbers, texts


def _integer(value: int) -> tuple[float | None, str | None]:
    try:
        number = float(value)
    except OverflowError:
        return None, str(value)
    return number, None if -_EXACT <= value <= _EXACT else str(value)


_APART: dict[str, Callable[[Any], tuple[float | None, str | None]]] = {
    "int": _integer,
    "float": lambda value: (value, None),
    "bool": lambda value: (float(value), None),
    "text": lambda value: (None, value),
    "null": lambda _: (None, None),
    "json": lambda value: (None, json_text(value)),
}
