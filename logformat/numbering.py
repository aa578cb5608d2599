"""The numbers of a log's records: 1, 2, 3 ... as one writer gave them, and what they tell of a damaged log.

A part of a log that lies where it does not belong (a sector written twice, or to the wrong place) has good checksums.
Its numbers show it: those of a copy were there before, and a record whose first part is followed by another one's last
part is not followed by the number after its own. Logs whose numbers do not rise tell nothing.
"""

from __future__ import annotations

from typing import NamedTuple

from .constants import BLOCK_SIZE

_ORDERLY = 1  # numbers behind the one before that make a log one of which the numbers tell something
_ELSEWHERE = 3 * BLOCK_SIZE // 4  # bytes: what lies in the wrong place comes from another block
_SMALLEST = 11  # bytes of a framed record that has a number and a body
_MOST_RUNS = 64  # kept, of numbers without a gap


class Due(NamedTuple):
    """What numbers tell of the next record."""

    exact: int | None
    """Its number; None where nothing tells."""
    last: int | None
    """That of the last record; None where nothing tells."""
    offset: int
    """Where that ended."""
    passed: range = range(0)
    """Numbers before the last ones that were not read: if what was read lies in the wrong place, they are still to come."""

    def is_one_behind(self, num: int | None) -> bool:
        """Whether a record of this number is the next but one, so that what lies before it is one record."""
        return num is not None and self.last is not None and num - 1 in {self.exact, self.last + 1}

    def fits(self, num: int, offset: int) -> bool:
        """Whether a record of this number may be the first one behind damage, at `offset`."""
        if self.last is None or num in self.passed:
            return True
        return 0 < num - self.last <= 1 + (offset - self.offset) // _SMALLEST


class Numbering:
    """What the numbers of the records read so far tell."""

    __slots__ = ("_begin", "_first", "_orderly", "_passed", "_runs", "is_mixed", "is_tangled", "last")

    def __init__(self, last: int | None, begin: int) -> None:
        """`begin` is the offset at which they begin."""
        self.last = last
        """The last record's number; None where it has none, or is not known."""
        self.is_tangled = False
        """Records are still to come that were read before: a copy of them lay too early."""
        self.is_mixed = False
        """That was the case once: parts of this log lie in wrong places."""
        self._begin, self._first = begin, 0
        self._orderly = 0  # numbers that followed each other; below 0: one did not
        self._passed: int | None = 0  # chunks lost since, if nothing else was
        self._runs: list[tuple[int, int, int]] = []  # first and last number, and the offset behind the last record

    @property
    def due(self) -> int | None:
        """The number of the record that the next chunk is of; None where nothing tells."""
        return None if self.last is None or self._passed is None else self.last + 1 + self._passed

    @property
    def tells(self) -> bool:
        """Whether this log's numbers are in order."""
        return self._orderly >= _ORDERLY

    def expected(self, offset: int) -> Due:
        """What is known of the next record, if `offset` is where the last one ended."""
        if self._orderly < 0:
            return Due(self.due, None, offset)
        before = self._runs[-2:-1]
        return Due(self.due, self.last, offset, range(before[0][1] + 1, self._runs[-1][0]) if before else range(0))

    def lose(self, *, one: bool) -> None:
        """Something is lost: `one` chunk, or who knows what."""
        self._passed = self._passed + 1 if one and self._passed is not None else None

    def follow(self, first: int, last: int, count: int, end: int, *, damaged: bool) -> None:
        """Records were read: `count` of them, the last of which ends at `end`. `damaged`: something before them was lost."""
        self._passed, self._first = 0, self._first or first
        if not first or not last:
            self.last, self._orderly = None, -1
            return
        if last - first + 1 < count or (self.last and not damaged and first <= self.last):
            self._orderly = -1
        elif last - first + 1 > count:  # some are skipped: which ones were there is told by their neighbours alone
            first = last
        elif self._orderly >= 0:
            self._orderly += count - (not self.last or first != self.last + 1)
        if self._runs and first == self._runs[-1][1] + 1:
            self._runs[-1] = (self._runs[-1][0], last, end)
        else:
            self._runs.append((first, last, end))
            del self._runs[:-_MOST_RUNS]
        if len(self._runs) > 1 and self.tells:
            self.is_tangled = any(run[1] > last for run in self._runs)
            self.is_mixed = self.is_mixed or self.is_tangled
        self.last = last

    def is_copy(self, num: int, offset: int) -> bool:
        """Whether a record of this number was read before, elsewhere."""
        if not self.tells or (len(self._runs) == 1 and num > self._runs[0][1]):  # nearly always
            return False
        return any(first <= num <= last and offset >= end for first, last, end in self._runs)

    def is_misplaced(self, num: int, following: int | None, lost: int, end: int) -> bool:
        """Whether a record of this number does not belong behind the last one and `lost` bytes, or before the one `following`."""
        if not num or not self.tells:
            return False
        # A log that was repaired skips numbers too, but few: those of a block are more.
        most = _ELSEWHERE * max(1, num - self._first + 1) / max(1, end - self._begin)
        before = max((last for _, last, _ in self._runs if last < num), default=num - 1)
        if num - before >= 1 + lost // _SMALLEST + most:
            return True
        return following is not None and not 0 < following - num < 1 + most
