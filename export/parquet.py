"""Parquet, by pyarrow: int64, double, bool and string columns, compressed with zstd, a row group for each part of a table.

A column of integers and floats is one of doubles; all its integers are exact, or it would be one of JSON text. Lists, objects,
and columns of several kinds are JSON text: the metadata `runferry.kind` of such a field says `json`. What is missing
and null are both null; NaN stays NaN.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, BinaryIO

import pyarrow as pa
import pyarrow.parquet as pq

from .tables import MOST_ROWS, Field, Table, json_text

_MOST_CELLS = 8_000_000
"""Of a row group, which waits in memory."""
_TYPES: dict[str, pa.DataType] = {
    "int": pa.int64(),
    "float": pa.float64(),
    "number": pa.float64(),
    "bool": pa.bool_(),
    "text": pa.string(),
    "json": pa.string(),
    "null": pa.string(),
}


class TableWriter:
    """Writes tables below each other; each has the same fields. `about` becomes the file's key-value metadata."""

    def __init__(self, file: BinaryIO, fields: Sequence[Field], about: Mapping[str, str]) -> None:
        self._fields = fields
        self._schema = pa.schema(
            [pa.field(field.name, _TYPES[field.kind], metadata={"runferry.kind": field.kind}) for field in fields],
            metadata=dict(about),
        )
        self._writer = pq.ParquetWriter(file, self._schema, compression="zstd")
        self._waiting: list[pa.Table] = []  # of small tables, several make a row group
        self._rows = 0

    def add(self, table: Table) -> None:
        """Write the rows of a table."""
        for piece in table.pieces():
            arrays = [_array(field.kind, cells) for field, cells in zip(self._fields, piece, strict=True)]
            self._waiting.append(pa.Table.from_arrays(arrays, schema=self._schema))
            self._rows += len(piece[0])
            if self._rows >= MOST_ROWS or self._rows * len(self._fields) >= _MOST_CELLS:
                self._write()

    def close(self) -> None:
        """Write the end of the file."""
        self._write()
        self._writer.close()

    def _write(self) -> None:
        """Write what waits as one row group."""
        if self._waiting:
            self._writer.write_table(pa.concat_tables(self._waiting), row_group_size=self._rows)
            self._waiting, self._rows = [], 0


def _array(kind: str, cells: list[Any]) -> pa.Array:
    if kind == "json":
        cells = [None if cell is None else json_text(cell) for cell in cells]
    elif kind == "number":
        cells = [None if cell is None else float(cell) for cell in cells]
    return pa.array(cells, _TYPES[kind], from_pandas=False)
