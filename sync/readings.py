"""What a pass of a watch leaves for the next one, so that a log that has grown costs what is new.

Nothing depends on it: a reading that does not fit, or was let go, means that the log is read from its start again. It is taken
out when a pass begins and put back when all of it arrived, so that what a failed pass has seen is forgotten.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from dataclasses import dataclass
from pathlib import Path

from ..logformat import RunState
from .cursor import Cursor, Lines, Target
from .rowlane import LanePoint
from .scan import Facts, Scan
from .segment import Segment

MOST = 128
"""Runs of one process whose readings are kept: some hundred kB each."""
_SMALLEST = 256 * 1024  # bytes of a log; to read less again costs nothing


@dataclass(frozen=True)
class Mark:
    """What a cursor said when a pass was over: whoever went on meanwhile has changed it."""

    base: Lines
    step_shift: int
    offset: int
    sent: Lines

    @classmethod
    def of(cls, cursor: Cursor) -> Mark:
        """Of a cursor as it is now."""
        return cls(cursor.base + Lines(), cursor.step_shift, cursor.offset, cursor.sent + Lines())


@dataclass
class Reading:
    """The only log of a run, as far as it is read and sent."""

    state: RunState
    """Its fold."""
    scan: Scan
    facts: Facts
    identity: tuple[int, int] | None
    mark: Mark
    point: LanePoint | None

    def fits(self, segment: Segment) -> bool:
        """Whether a log begins with what was read, and all of that is acknowledged.

        That the bytes are the same is what taking a cursor has shown.
        """
        return (
            segment.cursor is not None
            and Mark.of(segment.cursor) == self.mark
            and segment.head.identity == self.identity
            and segment.head.size >= self.facts.size
        )


class Readings:
    """The readings of the runs of one session, those used last. Used by any thread."""

    def __init__(self, most: int = MOST) -> None:
        self._most = most
        self._guard = threading.Lock()
        self._kept: OrderedDict[tuple[Target, Path], Reading] = OrderedDict()

    def take(self, target: Target, segment: Segment) -> Reading | None:
        """The reading of a log, if there is one that fits. It is not kept any more."""
        with self._guard:
            reading = self._kept.pop((target, segment.head.path), None)
        return reading if reading is not None and reading.fits(segment) else None

    def put(self, target: Target, path: Path, reading: Reading) -> None:
        """Keep a reading, unless it is one of a small log, or of a damaged one, which may be repaired in place."""
        if reading.facts.damage or reading.facts.size < _SMALLEST:
            return
        with self._guard:
            self._kept[target, path] = reading
            while len(self._kept) > self._most:
                self._kept.popitem(last=False)
