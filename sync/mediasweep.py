"""Media that a row names and no files record does: logs of older writers leave out masks, boxes and class tables.

Only if files below `files/media/` are in no record, the log is read once more for values that name them.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from ..logformat import Record, WireError, decode_history
from ..logformat.values import loads
from .localfiles import files_below
from .scan import good_records

_MEDIA = b"media/"


def unrecorded_media(log: Path, end: int, recorded: Iterable[str]) -> list[str]:
    """Names below `files/` of media that rows, summary or config of a log name before offset `end`, and no record lists.

    Raises:
        OSError: the log cannot be read.
    """
    left = set(files_below(log.parent / "files", "media")) - set(recorded)
    found = set[str]()
    if not left:
        return []
    with log.open("rb", buffering=0) as file:
        for record in good_records(file):
            if record.offset >= end or not left:
                break
            if record.kind in ("history", "summary", "config") and _MEDIA in record.body:
                named = left.intersection(_texts(record))
                found |= named
                left -= named
    return sorted(found)


def _texts(record: Record) -> Iterator[str]:
    """Every text in the values of a record."""
    try:
        if record.kind == "history":
            values: list[bytes] = decode_history(record.body)[1]
        else:
            values = [item.value_json.encode() for item in record.message().update]
    except (WireError, ValueError):
        return
    for value in values:
        if _MEDIA in value:
            try:
                todo: list[Any] = [loads(value)]
            except ValueError:
                continue
            while todo:
                one = todo.pop()
                if isinstance(one, str):
                    yield one
                elif isinstance(one, dict):
                    todo += one.values()
                elif isinstance(one, list):
                    todo += one
