"""One key of a run's rows or samples: the numbers of the rows that have it, and their values, packed by kind."""

from __future__ import annotations

import json
from array import array
from bisect import bisect_left
from collections.abc import Sequence
from itertools import compress
from typing import TYPE_CHECKING, Any, Protocol

from .history import Path
from .values import loads

if TYPE_CHECKING:
    import numpy as np

_EXACT = 2**53
"""Up to here every integer is a double."""
_INT64 = 2**63
_NULL = b"null"
_MISSING = object()
_FILLERS: dict[str, Any] = {"int": 0, "float": 0.0, "number": 0.0, "bool": 0, "text": "", "json": _NULL}
_KINDS = {float: "float", int: "int", bool: "bool", str: "text", type(None): "null"}
_NUMBERS = frozenset({"int", "float", "number"})


class Named(Protocol):
    """What columns belong to: knows what to call each of them."""

    @property
    def names(self) -> dict[Path, str]:
        """Flat names, each once."""


class Column:
    """The values of one key, in the order of their rows. Made by `Rows`; only reading is public."""

    __slots__ = ("_first", "_kind", "_nulls", "_numbers", "_table", "_values", "_whole", "path")

    def __init__(self, path: Path, table: Named) -> None:
        self.path = path
        """The key: a component per level."""
        self._table = table
        self._first = 0  # the row of the first value, while rows are consecutive
        self._numbers: array[int] | None = None  # the rows, once they are not
        self._kind = "null"
        self._values: Any = []  # array of int64 or doubles, bytearray, list of str or of JSON texts
        self._whole: bytearray | None = None  # of kind "number": which ones are integers
        self._nulls: array[int] | None = None  # places of nulls among the values of any kind but "json"

    # -- reading -----------------------------------------------------------------------------------------------------

    @property
    def name(self) -> str:
        """What the column is called in a flat table: see `Rows.names`."""
        return self._table.names[self.path]

    @property
    def kind(self) -> str:
        """`int`, `float`, `number` (integers and floats), `bool`, `text`, or `json` for all else and for a mixture."""
        return "json" if self._kind == "null" else self._kind

    @property
    def rows(self) -> range | array[int]:
        """Numbers of the rows that have it, ascending. Not to be changed."""
        return range(self._first, self._first + len(self._values)) if self._numbers is None else self._numbers

    @property
    def values(self) -> array[int] | array[float] | list[Any]:
        """The values of those rows as logged: None for null, float nan for NaN. Not to be changed.

        An array of int64 or of doubles for the kinds `int` and `float` without nulls, else a list.
        """
        if self._kind in {"int", "float"} and not self._nulls:
            values: array[int] | array[float] = self._values
            return values
        return self.slice(0, len(self._values))

    @property
    def nulls(self) -> Sequence[int]:
        """Places of nulls in `values`, ascending."""
        if self._kind == "json":
            return [place for place, text in enumerate(self._values) if text == _NULL]
        if self._kind == "null":
            return range(len(self._values))
        return self._nulls or ()

    def get(self, row: int, default: Any = None) -> Any:
        """The value of a row; `default` if the row does not have the key."""
        place = self.place(row)
        if place == len(self._values) or self.rows[place] != row:
            return default
        return self.slice(place, place + 1)[0]

    def doubles(self) -> array[float]:
        """The values as doubles, NaN for what is no number: for charts."""
        if self._kind in {"float", "number"}:
            doubles = array("d", self._values)
        elif self._kind in {"int", "bool"}:
            doubles = array("d", map(float, self._values))
        else:
            numbers = (value if isinstance(value, (int, float)) else None for value in self.values)
            doubles = array("d", map(_double, numbers))
        for place in self._nulls or ():
            doubles[place] = float("nan")
        return doubles

    def to_numpy(self) -> np.ndarray[Any, Any]:
        """The values as a NumPy array as long as `rows`: int64, float64, bool; else objects. Nulls make int and bool objects.

        Raises:
            ImportError: NumPy is not installed.
        """
        from .frames import column_to_numpy

        values: np.ndarray[Any, Any] = column_to_numpy(self)
        return values

    def __len__(self) -> int:
        return len(self._values)

    def __repr__(self) -> str:
        return f"<Column {self.name!r}: {len(self)} values, {self.kind}>"

    def place(self, row: int) -> int:
        """Where in `values` that row stands, or the first one behind it."""
        if self._numbers is None:
            return min(max(row - self._first, 0), len(self._values))
        return bisect_left(self._numbers, row)

    def slice(self, start: int, stop: int) -> list[Any]:
        """Values by their places, as in `values`."""
        part = self._values[start:stop]
        if self._kind == "json":
            return [loads(text) if type(text) is bytes else text for text in part]
        if self._kind == "number" and self._whole is not None:
            whole = self._whole[start:stop]
            values = [int(value) if is_int else value for value, is_int in zip(part, whole, strict=True)]
        elif self._kind == "bool":
            values = list(map(bool, part))
        elif self._kind == "null":
            return [None] * len(part)
        else:
            values = list(part)
        if self._nulls:
            begin = bisect_left(self._nulls, start)
            for place in self._nulls[begin : bisect_left(self._nulls, stop)]:
                values[place - start] = None
        return values

    @property
    def first_row(self) -> int:
        """The first row that has it."""
        return self._first if self._numbers is None else self._numbers[0]

    @property
    def last_row(self) -> int:
        """The last one; -1 if there is none."""
        if self._numbers is None:
            return self._first + len(self._values) - 1 if self._values else -1
        return self._numbers[-1] if self._numbers else -1

    # -- growing: for `Rows` -----------------------------------------------------------------------------------------

    def append(self, row: int, value: Any, text: bytes) -> None:
        """Add the value of a row behind all others, and its JSON text."""
        if self._numbers is not None:
            self._numbers.append(row)
        elif not self._values:
            self._first = row
        elif row != self._first + len(self._values):
            self._numbers = array("q", self.rows)
            self._numbers.append(row)
        self._put(value, text)

    def extend(self, rows: range | list[int], values: list[Any], texts: list[bytes]) -> None:
        """As `append` for many rows, ascending."""
        count = len(self._values)
        if self._numbers is None and isinstance(rows, range) and (not count or rows.start == self._first + count):
            if not count:
                self._first = rows.start
        else:
            if self._numbers is None:
                self._numbers = array("q", self.rows)
            self._numbers.extend(rows)
        if not self._put_alike(values):
            for value, text in zip(values, texts, strict=True):
                self._put(value, text)

    def replace_last(self, value: Any, text: bytes | None) -> None:
        """Put another value in place of the last one; without a text, an object that may still change: see `settle`."""
        row = self.last_row
        self.drop_last()
        if text is None:
            self.append(row, {}, b"{}")
            self._values[-1] = value
        else:
            self.append(row, value, text)

    def drop_last(self) -> None:
        """Forget the last value."""
        self._values.pop()
        if self._numbers is not None:
            self._numbers.pop()
        if self._whole is not None:
            self._whole.pop()
        if self._nulls and self._nulls[-1] == len(self._values):
            self._nulls.pop()
        if not self._values:
            self._numbers, self._kind, self._values, self._whole, self._nulls = None, "null", [], None, None

    def settle(self) -> None:
        """The last value changes no more: keep it as text, unless it nests so deep that no reader takes that."""
        text = _dumps(self._values[-1])
        try:
            loads(text)
        except ValueError:
            return
        self._values[-1] = text

    def _put(self, value: Any, text: bytes) -> None:
        kind = _KINDS.get(type(value), "json")
        if kind == "null" and self._kind != "json":
            if self._kind == "null":
                self._values.append(None)
            else:
                self._values.append(_FILLERS[self._kind])
                if self._whole is not None:
                    self._whole.append(0)
                self._add_null(len(self._values) - 1)
            return
        if kind == "int" and not -_INT64 <= value < _INT64:
            kind = "json"
        if self._kind not in {kind, "json"}:
            self._widen(kind)
        if self._kind == "number" and kind == "int" and abs(value) > _EXACT:
            self._become_json()
        if self._kind == "json":
            self._values.append(text)
            return
        self._values.append(value)
        if self._whole is not None:
            self._whole.append(kind == "int")

    def _put_alike(self, values: list[Any]) -> bool:
        """Add values of the column's own kind at once; False if they are of another one, or of several."""
        kinds = set(map(type, values))
        if len(kinds) == 1:
            kind = _KINDS.get(kinds.pop(), "json")
        elif kinds == {int, float} and self._kind == "number" and self._whole is not None:
            whole = [type(value) is int for value in values]
            if max(map(abs, compress(values, whole))) > _EXACT:
                return False
            self._values.extend(map(float, values))
            self._whole.extend(whole)
            return True
        else:
            return False
        if self._kind == "null" and not self._values and kind in {"int", "float", "bool", "text"}:
            self._widen(kind)
        if kind != self._kind or kind not in {"int", "float", "bool", "text"}:
            return False
        try:
            self._values.extend(array("q" if kind == "int" else "d", values) if kind in {"int", "float"} else values)
        except OverflowError:
            return False
        return True

    def _widen(self, kind: str) -> None:
        """Make room for values of another kind, or of another one than so far."""
        if self._kind == "null":
            nulls = len(self._values)
            if kind == "json":
                self._become_json()
                return
            self._kind = kind
            self._values = _container(kind, [_FILLERS[kind]] * nulls)
            self._nulls = array("q", range(nulls)) if nulls else None
        elif kind in _NUMBERS and self._kind in _NUMBERS and self._is_exact():
            if self._kind != "number":
                self._whole = bytearray([self._kind == "int"]) * len(self._values)
                self._values = array("d", map(float, self._values))
                self._kind = "number"
        else:
            self._become_json()

    def _is_exact(self) -> bool:
        """Whether all values are doubles."""
        values = self._values
        return self._kind != "int" or not values or -_EXACT <= min(values) <= max(values) <= _EXACT

    def _become_json(self) -> None:
        self._values = [_NULL if value is None else _dumps(value) for value in self.slice(0, len(self._values))]
        self._kind, self._whole, self._nulls = "json", None, None

    def _add_null(self, place: int) -> None:
        if self._nulls is None:
            self._nulls = array("q")
        self._nulls.append(place)


def _container(kind: str, values: list[Any]) -> Any:
    if kind == "int":
        return array("q", values)
    if kind == "float":
        return array("d", values)
    return bytearray(values) if kind == "bool" else values


def _double(value: float | None) -> float:
    try:
        return float("nan") if value is None else float(value)
    except OverflowError:  # an integer of more digits than a double has room for
        return float("inf") if value is not None and value > 0 else float("-inf")


def _dumps(value: Any) -> bytes:
    return json.dumps(value, ensure_ascii=False).encode()
