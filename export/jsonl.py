"""JSON Lines: an object for each row, nested as it was logged; a key that a row lacks is not in it, null is null.

NaN and infinities are bare, as in the log itself; which readers take that: docs/export.md.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from itertools import islice
from typing import BinaryIO

from .tables import Field, Table

_LINES = 4_096  # written at once


class TableWriter:
    """Writes tables below each other, of which the objects say themselves what they hold."""

    def __init__(self, file: BinaryIO, fields: Sequence[Field], about: Mapping[str, str]) -> None:  # noqa: ARG002 - one signature for all formats
        self._file = file
        self._encode = json.JSONEncoder(ensure_ascii=False, separators=(",", ":")).encode

    def add(self, table: Table) -> None:
        """Write a table behind those before."""
        objects = table.objects()
        while lines := list(map(self._encode, islice(objects, _LINES))):
            self._file.write(("\n".join(lines) + "\n").encode())

    def close(self) -> None:
        """Nothing is left to be written."""
