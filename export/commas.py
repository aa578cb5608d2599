"""CSV (RFC 4180, but with lines that end in a newline alone), UTF-8, with a header.

A cell that is missing is empty, and so is null; an empty text is `""`. Floats have as many digits as it takes to read the same
double again; NaN is `NaN`, infinities are `inf` and `-inf`; bools are `true` and `false`; lists and objects are JSON.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any, BinaryIO

from .tables import Field, Table, json_text

_QUOTED = re.compile(r'[",\r\n]|^\s|\s$|^$')
"""What has a text quoted: blanks around it, too, which some readers would take away."""


class TableWriter:
    """Writes tables below each other; each has the same fields."""

    def __init__(self, file: BinaryIO, fields: Sequence[Field], about: Mapping[str, str]) -> None:  # noqa: ARG002 - a CSV file has no room for it
        self._file = file
        self._texts = [_TEXTS[field.kind] for field in fields]
        file.write((",".join(_text(field.name) for field in fields) + "\n").encode())

    def add(self, table: Table) -> None:
        """Write the rows of a table."""
        for piece in table.pieces():
            columns = [make(cells) for make, cells in zip(self._texts, piece, strict=True)]
            self._file.write(("\n".join(map(",".join, zip(*columns, strict=True))) + "\n").encode())

    def close(self) -> None:
        """Nothing is left to be written."""


def _text(text: str) -> str:
    return '"' + text.replace('"', '""') + '"' if _QUOTED.search(text) else text


def _numbers(cells: list[Any]) -> list[str]:
    # NaN is the one value that differs from itself; the others are written as Python writes them.
    return ["" if cell is None else repr(cell) if cell == cell else "NaN" for cell in cells]  # noqa: PLR0124


def _bools(cells: list[Any]) -> list[str]:
    return ["" if cell is None else "true" if cell else "false" for cell in cells]


def _words(cells: list[Any]) -> list[str]:
    return ["" if cell is None else _text(cell) for cell in cells]


def _json(cells: list[Any]) -> list[str]:
    return ["" if cell is None else _text(json_text(cell)) for cell in cells]


_TEXTS: dict[str, Callable[[list[Any]], list[str]]] = {
    "int": _numbers,
    "float": _numbers,
    "number": _numbers,
    "bool": _bools,
    "text": _words,
    "json": _json,
    "null": _json,
}
