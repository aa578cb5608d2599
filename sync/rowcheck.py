"""Whether a server has every row of a run as the logs have it: its step, and all of its values.

First, of each thousand steps the number of rows and a sum of their hashes are compared, so that the memory that it takes
does not grow with the rows. Only where these differ, rows are looked at one by one, to say what it is.
"""

from __future__ import annotations

import contextlib
import json
import math
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

from ..logformat import WireError, decode_history
from .lines import Row, Rows
from .remote import STEPS, Place, Remote
from .scan import good_records
from .work import RunWork

SPELLED = {"nan": "NaN", "inf": "Infinity", "-inf": "-Infinity"}
"""`repr` of a float that JSON has no number for -> how servers write it."""
_SPELLINGS = frozenset(SPELLED.values())
_LOOKED_INTO = 20  # thousands of steps; what lies in more of them is only said to differ

_Marked = tuple[int, int]
"""Step of a row, and `mark_of` its values."""
_Sums = dict[int, tuple[int, int]]
"""Thousand of steps -> rows in it, and the sum of their hashes."""


@dataclass(frozen=True)
class RowCheck:
    """What a comparison of all rows found."""

    here: int
    """Rows."""
    there: int
    """Rows, in the thousands of steps in which there are some here."""
    wrong: list[str]
    """What differs, in words."""
    only_behind: bool
    """The server has nothing that is not here."""


def check_rows(work: RunWork, remote: Remote, place: Place) -> RowCheck:
    """Compare all rows, once the logs were read.

    Raises:
        Permanent: the server does not tell.
        SyncError: it cannot be asked.
        OSError: a log cannot be read.
    """
    ours = _sums(_local_rows(work))
    theirs = _sums(_remote_rows(remote, place, ours))
    other = sorted(part for part in ours.keys() | theirs.keys() if ours.get(part) != theirs.get(part))
    looked, rest = set(other[:_LOOKED_INTO]), other[_LOOKED_INTO:]
    wrong: list[str] = []
    more: Counter[_Marked] = Counter()
    if looked:
        here = Counter(row for row in _local_rows(work) if row[0] // STEPS in looked)
        there = Counter(row for row in _remote_rows(remote, place, looked) if row[0] // STEPS in looked)
        wrong, more = _in_words(here, there), there - here
    wrong += [f"steps {part * STEPS} to {part * STEPS + STEPS - 1} differ, too" for part in rest]
    return RowCheck(
        sum(rows for rows, _ in ours.values()),
        sum(rows for rows, _ in theirs.values()),
        wrong,
        only_behind=not more and not any(part in theirs for part in rest),
    )


def mark_of(values: dict[str, Any]) -> int:
    """What tells the values of a row from others, in this process: keys in any order, 1 is 1.0, and servers may flatten."""
    return hash(frozenset(_leaves("", values)))


def _sums(rows: Iterable[_Marked]) -> _Sums:
    sums: _Sums = {}
    for row in rows:
        count, total = sums.get(row[0] // STEPS, (0, 0))
        sums[row[0] // STEPS] = count + 1, (total + hash(repr(row))) % (1 << 64)
    return sums


def _in_words(here: Counter[_Marked], there: Counter[_Marked]) -> list[str]:
    """Of each step that differs, in what."""
    many = [Counter(step for step, _ in rows.elements()) for rows in (here, there)]
    words = []
    for step in sorted({step for step, _ in (here - there) + (there - here)}):
        ours, theirs = many[0][step], many[1][step]
        words.append(
            f"step {step} has other values there" if ours == theirs else f"step {step}: {ours} here, {theirs} there"
        )
    return words


def _remote_rows(remote: Remote, place: Place, parts: Iterable[int]) -> Iterator[_Marked]:
    for step, values in remote.rows(place, [part * STEPS for part in sorted(parts)]):
        yield step, mark_of(values)


def _local_rows(work: RunWork) -> Iterator[_Marked]:
    """The rows as they are sent."""
    for segment in work.segments:
        shift = segment.placed.step_shift
        rows = Rows(shift, segment.found.steps, segment.found.runtime_shift)
        with segment.head.path.open("rb", buffering=0) as file:
            for record in good_records(file):
                if record.offset >= segment.found.end:
                    break
                if record.kind != "history":
                    continue
                row = None
                with contextlib.suppress(WireError):
                    row = rows.add(*decode_history(record.body), record.offset)
                if row is not None:
                    yield _marked(row, rows, shift)
        last = rows.end()
        if last is not None:
            yield _marked(last, rows, shift)


def _marked(row: Row, rows: Rows, step_shift: int) -> _Marked:
    return row.number + step_shift, mark_of(json.loads(rows.line(row)))


def _leaves(name: str, value: Any) -> Iterator[tuple[str, str]]:
    """The values in an object, by their path, as texts of which no two mean the same."""
    if isinstance(value, dict) and value:
        for key, item in value.items():
            yield from _leaves(f"{name}.{key}", item)
    elif isinstance(value, (dict, list)):
        yield name, json.dumps(value, sort_keys=True)
    elif isinstance(value, float) and not math.isfinite(value):
        yield name, SPELLED[repr(value)]
    elif isinstance(value, float) and value.is_integer():
        yield name, f"{int(value)}"  # numbers as texts: as hashes, -1 is -2
    elif isinstance(value, str):
        yield name, value if value in _SPELLINGS else f'"{value}'
    else:
        yield name, repr(value)
