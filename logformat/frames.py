"""Columns to the libraries of notebooks: NumPy, pandas, Polars, Arrow. Each is imported by who asks for it.

What a table of fixed types cannot say, it says like this: where a row lacks a key, and where it has null, the cell is
missing; NaN stays NaN; a column of integers and floats is one of doubles (all its integers are exact); and a column of kind
`json` holds objects in NumPy and pandas, JSON text in Polars and Arrow.
"""

from __future__ import annotations

import importlib
import json
from html import escape
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .column import Column
    from .columns import Rows

_SHOWN = 40
"""Rows of an overview, and characters of a value in it."""


def column_to_numpy(column: Column) -> Any:
    """See `Column.to_numpy`."""
    np = _library("numpy")
    if column.kind in {"float", "number"}:
        return np.frombuffer(column.doubles(), dtype=np.float64)
    if column.kind in {"int", "bool"} and not column.nulls:
        return np.array(column.values, dtype=np.int64 if column.kind == "int" else np.bool_)
    return _objects(column.values)


def to_pandas(rows: Rows) -> Any:
    """See `Rows.to_pandas`. Complete columns are of NumPy's types, others of those of pandas that know missing values."""
    pd, np = _library("pandas"), _library("numpy")
    whole = {"int": np.int64, "float": np.float64, "number": np.float64, "bool": np.bool_}
    partial = {"int": pd.arrays.IntegerArray, "bool": pd.arrays.BooleanArray}
    frame: dict[str, Any] = {}
    for column in rows.columns:
        cells, name = _cells(column, len(rows)), column.name
        if column.kind not in whole:
            frame[name] = pd.Series(_objects(cells), dtype=object)
            continue
        lacks = np.array([cell is None for cell in cells], dtype=np.bool_)
        values = np.array([0 if cell is None else cell for cell in cells], dtype=whole[column.kind])
        frame[name] = partial.get(column.kind, pd.arrays.FloatingArray)(values, lacks) if lacks.any() else values
    return pd.DataFrame(frame, index=pd.RangeIndex(len(rows)))


def to_polars(rows: Rows) -> Any:
    """See `Rows.to_polars`."""
    pl = _library("polars")
    types = {"int": pl.Int64, "float": pl.Float64, "number": pl.Float64, "bool": pl.Boolean}
    return pl.DataFrame(
        [
            pl.Series(column.name, _texts(column, len(rows)), dtype=types.get(column.kind, pl.String))
            for column in rows.columns
        ]
    )


def to_arrow(rows: Rows) -> Any:
    """See `Rows.to_arrow`."""
    pa = _library("pyarrow")
    types = {"int": pa.int64(), "float": pa.float64(), "number": pa.float64(), "bool": pa.bool_()}
    arrays = [pa.array(_texts(column, len(rows)), types.get(column.kind, pa.string())) for column in rows.columns]
    return pa.table(arrays, names=[column.name for column in rows.columns])


def overview(rows: Rows, title: str = "") -> str:
    """What rows hold as a short table of HTML: a line for each of the first columns, with its latest value."""
    lines = [
        f"<tr><td>{escape(column.name)}</td><td>{column.kind}</td><td>{len(column)}</td><td>{_shown(column)}</td></tr>"
        for column in rows.columns[:_SHOWN]
    ]
    more = len(rows.columns) - len(lines)
    rest = f"<p>and {more} more columns</p>" if more else ""
    return (
        f"<p>{escape(title) or f'{len(rows)} rows, {len(rows.columns)} columns'}</p>"
        f"<table><tr><th>key</th><th>kind</th><th>values</th><th>latest</th></tr>{''.join(lines)}</table>{rest}"
    )


def _shown(column: Column) -> str:
    text = json.dumps(column.slice(len(column) - 1, len(column))[0], ensure_ascii=False)
    return escape(text if len(text) <= _SHOWN else text[:_SHOWN] + "\N{HORIZONTAL ELLIPSIS}")


def _cells(column: Column, count: int) -> list[Any]:
    """A value for each row, None where it has none."""
    values: Any = column.values
    if isinstance(column.rows, range):
        before = column.rows.start
        return [*[None] * before, *values, *[None] * (count - before - len(values))]
    cells: list[Any] = [None] * count
    for row, value in zip(column.rows, values, strict=True):
        cells[row] = value
    return cells


def _texts(column: Column, count: int) -> list[Any]:
    """As `_cells`, with JSON text for objects."""
    cells = _cells(column, count)
    if column.kind == "json":
        return [None if cell is None else json.dumps(cell, ensure_ascii=False) for cell in cells]
    return cells


def _objects(values: Any) -> Any:
    """An array of objects, lists among them."""
    array = _library("numpy").empty(len(values), dtype=object)
    for index, value in enumerate(values):
        array[index] = value
    return array


def _library(name: str) -> Any:
    try:
        return importlib.import_module(name)
    except ImportError as error:
        raise ImportError(f"this needs {name}, which cannot be imported ({error}): pip install {name}") from error
