"""What a pass of a watch leaves for the next one, so that a log that has grown costs what is new.

Nothing depends on it: a reading that does not fit, or was let go, means that the log is read from its start again. It is taken
out when a pass begins and put back when all of it arrived, so that what a failed pass has seen is forgotten.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from ..logformat import RunState
from .cursor import Cursor, Lines, Target
from .placing import Place
from .plan import LogHead
from .rowlane import LanePoint
from .scan import Facts, Scan
from .segment import Segment

MOST = 128
"""Runs of one process whose readings are kept: some hundred kB each."""
_SMALLEST = 256 * 1024  # bytes of a run's logs; to read less again costs nothing


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


@dataclass(frozen=True)
class ReadLog:
    """One log of a run, as far as it is read and sent."""

    head: LogHead
    """As it was when the pass began."""
    facts: Facts
    place: Place
    mark: Mark

    @classmethod
    def of(cls, segment: Segment) -> ReadLog:
        """Of a segment that was read, and sent as far as it was read."""
        return cls(segment.head, segment.found, segment.placed, Mark.of(segment.position))

    def fits(self, segment: Segment, *, may_grow: bool) -> bool:
        """Whether a log begins with what was read, and all of that is acknowledged; is no more than that, unless it `may_grow`.

        That the bytes are the same is what taking a cursor has shown.
        """
        old, new = self.head, segment.head
        if segment.cursor is None or Mark.of(segment.cursor) != self.mark or new.identity != old.identity:
            return False
        return new.size >= self.facts.size if may_grow else (new.size, new.modified) == (old.size, old.modified)


@dataclass
class Reading:
    """The logs of a run, as far as they are read and sent."""

    state: RunState
    """Their fold."""
    scan: Scan
    """Of the last one, the only one that grows."""
    logs: tuple[ReadLog, ...]
    point: LanePoint | None
    """Where the last one goes on."""

    def fits(self, segments: Sequence[Segment]) -> bool:
        """Whether these are the logs, of which but the last may have grown."""
        last = len(segments) - 1
        return len(self.logs) == len(segments) and all(
            log.fits(segment, may_grow=index == last)
            for index, (log, segment) in enumerate(zip(self.logs, segments, strict=True))
        )


class Readings:
    """The readings of the runs of one session, those used last. Used by any thread."""

    def __init__(self, most: int = MOST) -> None:
        self._most = most
        self._guard = threading.Lock()
        self._kept: OrderedDict[tuple[Target, Path], Reading] = OrderedDict()

    def take(self, target: Target, segments: Sequence[Segment]) -> Reading | None:
        """The reading of the logs of a run, if there is one that fits. It is not kept any more."""
        with self._guard:
            reading = self._kept.pop((target, segments[-1].head.path), None)
        return reading if reading is not None and reading.fits(segments) else None

    def put(self, target: Target, reading: Reading) -> None:
        """Keep a reading, unless the logs are small, or the last one is damaged: it may be repaired in place."""
        last = reading.logs[-1]
        if last.facts.damage or sum(log.facts.size for log in reading.logs) < _SMALLEST:
            return
        with self._guard:
            self._kept[target, last.head.path] = reading
            while len(self._kept) > self._most:
                self._kept.popitem(last=False)
