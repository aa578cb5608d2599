"""Rows in columns: a run's rows as a sequence of nested dicts that costs eight bytes a number.

A row of a log is a set of items, key path and JSON text. Here each path is a column, and a row is built when somebody asks
for it. Within a row no path lies above another one, whatever the log holds: where an item lies below one that
came as a whole object, it is set inside that object; where it lies below anything else, or above others, it replaces those.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Iterator, Sequence
from heapq import heapify, heappop, heappush
from typing import TYPE_CHECKING, Any, overload

from .column import Column
from .constants import MAX_NESTING
from .history import Path
from .media import is_mark, whole_values
from .nested import put
from .values import glance, loads, loads_all

if TYPE_CHECKING:
    import pandas as pd
    import polars as pl
    import pyarrow as pa

__all__ = ["Column", "Rows"]

_WINDOW = 1024  # rows built at once


class Rows(Sequence[dict[str, Any]]):
    """The rows of a run. To index and iterate over, a sequence of nested dicts; each is made anew.

    Keys of a row stand in the order in which the run first logged them. Walking over all rows costs as much as they hold;
    indexing costs as much as the run has keys.
    """

    column_type: type[Column] = Column

    def __init__(self) -> None:
        self._columns: dict[Path, Column] = {}
        self._count = 0
        self._names: dict[Path, str] | None = None  # once somebody asked, until there is another column
        self._by_name: dict[str, Path] | None = None
        self._latest_paths: tuple[Path, ...] = ()
        self._has_marks = False  # see `media.is_mark`
        # Of the last row, to which parts may come:
        self._inner: dict[Path, int] = {}  # path above others -> the last row where it was
        self._nested: list[Path] = []  # its keys of several levels
        self._below: dict[Path, list[Path]] | None = None  # those by the paths above them, once somebody asked
        self._open: dict[Path, Column] = {}  # whose value is an object that was set into

    # -- reading -----------------------------------------------------------------------------------------------------

    def __len__(self) -> int:
        return self._count

    @overload
    def __getitem__(self, index: int) -> dict[str, Any]: ...
    @overload
    def __getitem__(self, index: slice) -> list[dict[str, Any]]: ...
    def __getitem__(self, index: int | slice) -> dict[str, Any] | list[dict[str, Any]]:
        if isinstance(index, slice):
            chosen = range(self._count)[index]
            ascending = chosen if chosen.step > 0 else chosen[::-1]
            span = range(ascending.start, ascending[-1] + 1) if chosen else range(0)
            found = zip(span, self._between(span.start, span.stop), strict=True)
            rows = [built for row, built in found if row in ascending]
            return rows if chosen.step > 0 else rows[::-1]
        (row,) = self._between(*_one(range(self._count)[index]))
        return row

    def __iter__(self) -> Iterator[dict[str, Any]]:
        return self._between(0, self._count)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Sequence) or isinstance(other, (str, bytes)):
            return NotImplemented
        return len(self) == len(other) and all(mine == theirs for mine, theirs in zip(self, other, strict=True))

    __hash__ = None  # type: ignore[assignment]

    @property
    def paths(self) -> tuple[Path, ...]:
        """All keys, in the order of their first appearance."""
        return tuple(self._columns)

    @property
    def columns(self) -> tuple[Column, ...]:
        """The column of each of `paths`."""
        return tuple(self._columns.values())

    def column(self, path: Path | str) -> Column:
        """The column of a key path; of a text, what `names` calls so, or the key of that one component.

        Raises:
            KeyError: no row has that key.
        """
        if not isinstance(path, str):
            return self._columns[tuple(path)]
        if self._by_name is None:
            self._by_name = {name: path for path, name in self.names.items()}
        return self._columns[self._by_name.get(path, (path,))]

    @property
    def names(self) -> dict[Path, str]:
        r"""A flat name for each path, all different: components joined by dots.

        Where several paths would get the same one, dots and backslashes inside their components get a backslash: `a\.b`.
        """
        if self._names is None:
            self._names = _flat_names(self._columns)
        return self._names

    def to_pandas(self) -> pd.DataFrame:
        """A DataFrame of all rows, by `names`. Raises ImportError without pandas."""
        from .frames import to_pandas

        frame: pd.DataFrame = to_pandas(self)
        return frame

    def to_polars(self) -> pl.DataFrame:
        """A Polars DataFrame of all rows, by `names`. Raises ImportError without polars."""
        from .frames import to_polars

        frame: pl.DataFrame = to_polars(self)
        return frame

    def to_arrow(self) -> pa.Table:
        """An Arrow table of all rows, by `names`. Raises ImportError without pyarrow."""
        from .frames import to_arrow

        table: pa.Table = to_arrow(self)
        return table

    def __repr__(self) -> str:
        return f"<Rows: {self._count} rows, {len(self._columns)} columns>"

    def _repr_html_(self) -> str:
        from .frames import overview

        return overview(self)

    # -- growing -----------------------------------------------------------------------------------------------------

    def append(self, paths: tuple[Path, ...], texts: list[bytes]) -> None:
        """Add a row: its items in order, of which a later one of the same key wins.

        What is no JSON, or lies deeper than `MAX_NESTING`, is left out.
        """
        self._begin_row(self._count + 1)
        self._fill(paths, texts)

    def merge(self, paths: tuple[Path, ...], texts: list[bytes]) -> None:
        """Add a further part of the last row: as if its items stood behind those that the row has."""
        self._fill(paths, texts)

    def extend(self, count: int, cells: Iterable[tuple[Path, range | list[int], list[Any], list[bytes]]]) -> None:
        """Add many rows whose keys are all different and none above another one.

        Args:
            count: how many they are.
            cells: a key; the numbers of the rows that have it, counted from the first new one; their values; their texts.
        """
        begin = self._count
        self._begin_row(begin + count)
        for path, rows, values, texts in cells:
            column = self._columns.get(path)
            if column is None:
                column = self._add(path)
            if len(rows) == 1:
                column.append(begin + rows[0], values[0], texts[0])
            elif isinstance(rows, range):
                column.extend(range(begin + rows.start, begin + rows.stop), values, texts)
            else:
                column.extend([begin + row for row in rows], values, texts)
            if len(path) > 1 and column.last_row == self._count - 1:
                self._note(path, self._count - 1)

    def _add(self, path: Path) -> Column:
        column = self._columns[path] = self.column_type(path, self)
        self._names = self._by_name = None
        return column

    def _begin_row(self, count: int) -> None:
        """The last row is complete: there are `count` rows now."""
        self._count = count
        for column in self._open.values():
            column.settle()
        if self._nested or self._open:
            self._nested, self._below, self._open = [], None, {}

    def _fill(self, paths: tuple[Path, ...], texts: list[bytes]) -> None:
        """Set items of the last row."""
        row = self._count - 1
        columns = self._columns
        items = _readable(paths, texts)
        if paths is not self._latest_paths:
            self._latest_paths, self._has_marks = paths, any(map(is_mark, paths))
        if self._has_marks:
            items = whole_values(list(items), self._is_free)
        for path, value, text in items:
            column = columns.get(path)
            if column is not None and column.last_row == row:
                self._open.pop(path, None)
                column.replace_last(value, text)
                continue
            if len(path) > 1 and (len(path) > MAX_NESTING or not self._note(path, row, text)):
                continue
            if self._inner.get(path) == row:
                self._drop_below(path, row)
            column = columns.get(path)
            if column is None:
                column = self._add(path)
            column.append(row, value, text)

    def _is_free(self, path: Path) -> bool:
        """Whether the last row has nothing at a path, above it or below it."""
        row = self._count - 1
        above = (self._columns.get(path[:depth]) for depth in range(1, len(path) + 1))
        return self._inner.get(path) != row and not any(
            column is not None and column.last_row == row for column in above
        )

    def _note(self, path: Path, row: int, text: bytes | None = None) -> bool:
        """Make room for a key of several levels in the last row; False if an object above it has taken the value."""
        for depth in range(1, len(path)):
            above = path[:depth]
            column = self._columns.get(above)
            if text is not None and column is not None and column.last_row == row:
                if self._set_inside(column, path[depth:], loads(text)):
                    return False
                self._drop(above)
            self._inner[above] = row
            if self._below is not None:
                self._below.setdefault(above, []).append(path)
        self._nested.append(path)
        return True

    def _set_inside(self, column: Column, path: Path, value: Any) -> bool:
        """Set a value into the object that is a column's last value; False if that is no object."""
        whole = column.slice(len(column) - 1, len(column))[0]
        if not isinstance(whole, dict):
            return False
        put(whole, path, value)
        if column.path not in self._open:
            column.replace_last(whole, None)
            self._open[column.path] = column
        return True

    def _drop_below(self, path: Path, row: int) -> None:
        """Forget what the last row has below a path."""
        if self._below is None:
            self._below = {}
            for nested in self._nested:
                for depth in range(1, len(nested)):
                    self._below.setdefault(nested[:depth], []).append(nested)
        for nested in self._below.pop(path, ()):
            column = self._columns.get(nested)
            if column is not None and column.last_row == row:
                self._drop(nested)

    def _drop(self, path: Path) -> None:
        """Forget what the last row has at a path."""
        column = self._columns[path]
        self._open.pop(path, None)
        column.drop_last()
        if not len(column):
            del self._columns[path]
            self._names = self._by_name = None

    def _between(self, first: int, stop: int) -> Iterator[dict[str, Any]]:
        """Rows by their numbers: each column is looked at only where it has something."""
        columns = list(self._columns.values())
        waiting: list[tuple[int, int, int]] = []  # next row, column, place of that row in it
        for index, column in enumerate(columns):
            place = column.place(first)
            if place < len(column):
                waiting.append((column.rows[place], index, place))
        heapify(waiting)
        for begin in range(first, stop, _WINDOW):
            end = min(begin + _WINDOW, stop)
            built: list[dict[str, Any]] = [{} for _ in range(begin, end)]
            here = []
            while waiting and waiting[0][0] < end:
                _, index, place = heappop(waiting)
                here.append((index, place))
            for index, place in sorted(here):
                column = columns[index]
                behind = column.place(end)
                rows = column.rows
                _spread(column, rows[place:behind], column.slice(place, behind), built, begin)
                if behind < len(column):
                    heappush(waiting, (rows[behind], index, behind))
            yield from built


def _spread(
    column: Column, rows: range | array[int], values: list[Any], built: list[dict[str, Any]], begin: int
) -> None:
    """Put the values of some rows where they belong."""
    *above, key = column.path
    for row, value in zip(rows, values, strict=True):
        node = built[row - begin]
        for part in above:
            node = node.setdefault(part, {})
        node[key] = value


def _one(row: int) -> tuple[int, int]:
    return row, row + 1


def _readable(paths: tuple[Path, ...], texts: list[bytes]) -> Iterable[tuple[Path, Any, bytes]]:
    """The items whose text is JSON, with their values; of lists and objects those of `glance`."""
    joined = b",".join(texts)
    if b"{" in joined or b"[" in joined:
        return _one_by_one(paths, texts)
    try:
        return zip(paths, loads_all(texts), texts, strict=True)
    except ValueError:
        return _one_by_one(paths, texts)


def _one_by_one(paths: tuple[Path, ...], texts: list[bytes]) -> Iterator[tuple[Path, Any, bytes]]:
    for path, text in zip(paths, texts, strict=True):
        try:
            value = glance(text)
        except ValueError:
            continue
        yield path, value, text


def _flat_names(paths: Iterable[Path]) -> dict[Path, str]:
    """See `Rows.names`."""
    plain: dict[Path, str] = {path: ".".join(path) for path in paths}
    owners: dict[str, list[Path]] = {}
    for path, name in plain.items():
        owners.setdefault(name, []).append(path)
    clashing = [path for group in owners.values() if len(group) > 1 for path in group]
    escaped: dict[Path, str] = {}
    while clashing:  # an escaped name may be the plain one of a further path
        path = clashing.pop()
        if path in escaped:
            continue
        escaped[path] = name = ".".join(part.replace("\\", "\\\\").replace(".", "\\.") for part in path)
        clashing += [other for other in owners.get(name, ()) if other != path]
    return {path: escaped.get(path, name) for path, name in plain.items()}
