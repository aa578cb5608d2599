"""Copies of one log: a backup, a run directory that was copied with its links followed, an older state, a torn transfer.

No two processes begin in one nanosecond under one run id, so logs that agree in both are copies of one log, and no two parts
of a run. Only one of them counts, and the bytes say which.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import NamedTuple

from .reader import read_records
from .record import Record
from .stitch import opening_of

_CHUNK = 1 << 20  # bytes that are compared at a time


@dataclass(frozen=True)
class Copy:
    """A log that does not count beside another one."""

    log: Path
    of: Path
    """The log that counts."""
    differs: bool = False
    """Each of the two holds records that the other lacks."""

    @property
    def reason(self) -> str:
        """Why it does not count, in a few words."""
        if self.differs:
            return f"differs from {self.of}, which has the same start: sync one of them"
        return f"a copy of {self.of}"


class _Likeness(NamedTuple):
    """How two logs compare. What only one of them holds is counted in records, or in bytes where one begins as the other."""

    first_only: int
    second_only: int
    common_rows: int


def copies_in(logs: Sequence[Path], *, is_start_known: bool = True) -> list[Copy]:
    """Of logs that have one run id and start, those that do not count.

    The longest counts, or where neither of two is the beginning of the other, the one with more records; of equal ones the one
    that is named first. Where the start is not known, only those are copies that hold nothing of their own.

    Raises:
        OSError: a log cannot be read.
    """
    found: list[Copy] = []
    compare = cache(_compare)  # it reads both logs
    for written in _by_writer(logs):
        ordered = sorted(written, key=lambda log: -log.stat().st_size)
        best = ordered[0]
        for log in ordered[1:]:
            likeness = compare(best, log)
            if likeness.second_only > likeness.first_only and (is_start_known or not likeness.first_only):
                best = log
        for log in written:
            if log != best:
                differs = compare(best, log).second_only > 0
                if is_start_known or not differs:
                    found.append(Copy(log, best, differs))
    return found


def copy_without_start(log: Path, other: Path) -> Copy | None:
    """Whether a log that lost its run record is a copy of one of its run that has it: they have rows in common, at one place.

    Raises:
        OSError: one of them cannot be read.
    """
    likeness = _compare(other, log)
    return Copy(log, other, differs=likeness.second_only > 0) if likeness.common_rows else None


def _by_writer(logs: Sequence[Path]) -> list[Sequence[Path]]:
    """The logs by the writers that they name, if those are several."""
    if len(logs) < 2:
        return []
    writers: dict[str, list[Path]] = {}
    for log in logs:
        with log.open("rb", buffering=0) as file:
            environment = opening_of(file).environment
        writers.setdefault(environment.writer_id if environment is not None else "", []).append(log)
    return [logs] if len(writers.keys() - {""}) < 2 else list(writers.values())


def _compare(first: Path, second: Path) -> _Likeness:
    if _begin_alike(first, second):
        more = first.stat().st_size - second.stat().st_size
        return _Likeness(max(more, 0), max(-more, 0), 0)
    return _compare_records(first, second)


def _begin_alike(first: Path, second: Path) -> bool:
    """Whether the shorter log is the beginning of the other, byte for byte."""
    with first.open("rb") as one, second.open("rb") as other:
        while True:
            ours, theirs = one.read(_CHUNK), other.read(_CHUNK)
            length = min(len(ours), len(theirs))
            if ours[:length] != theirs[:length]:
                return False
            if length < _CHUNK:
                return True


def _compare_records(first: Path, second: Path) -> _Likeness:
    """By what can be read of both: a copy has its records where the log has them."""
    counts = [0, 0]
    rows = 0
    sides = _records(first), _records(second)
    heads = [next(side, None) for side in sides]
    while (ours := heads[0]) is not None and (theirs := heads[1]) is not None:
        if (ours.offset, ours.payload) == (theirs.offset, theirs.payload):
            rows += ours.kind == "history"
            heads = [next(side, None) for side in sides]
            continue
        behind = 0 if ours.offset <= theirs.offset else 1
        counts[behind] += 1
        heads[behind] = next(sides[behind], None)
    for index, side in enumerate(sides):
        counts[index] += (heads[index] is not None) + sum(1 for _ in side)
    return _Likeness(counts[0], counts[1], rows)


def _records(log: Path) -> Iterator[Record]:
    return (item for item in read_records(log) if isinstance(item, Record))
