"""Runs on the screen that are still written: each log is looked at every quarter of a second, less often while it is quiet.

`stat` is all that a quiet log costs. Notices of the system are of no use here: network file systems give none.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterable
from enum import Enum
from pathlib import Path
from typing import NamedTuple

from .reading import Identity, Reading, ReplacedError

LEAST_S, MOST_S = 0.25, 5.0
_SLOWER = 1.5  # each time that nothing came


class News(Enum):
    """What happened to a log."""

    GROWN = "grown"
    REPLACED = "replaced"
    """It is shorter or another one: the run has to be opened again."""
    GONE = "gone"
    """There is no such file, or nobody may look any more. It may come back."""


class Event(NamedTuple):
    """A log, and what happened to it."""

    reading: Reading
    news: News
    words: str = ""
    """More about it."""


class _Watched:
    """One run, and when its log is looked at next."""

    def __init__(self, reading: Reading, due: float) -> None:
        self.reading, self.due = reading, due
        self.interval = LEAST_S
        self.is_gone = False


class Live:
    """Looks after the runs that are shown. Not for several threads at once."""

    def __init__(
        self,
        *,
        clock: Callable[[], float] = time.monotonic,
        stat: Callable[[Path], os.stat_result] = os.stat,
    ) -> None:
        """Nothing is looked after yet. `clock` gives seconds; it and `stat` are ports for tests."""
        self._clock, self._stat = clock, stat
        self._watched: dict[int, _Watched] = {}

    def show(self, readings: Iterable[Reading]) -> None:
        """Look after these and no others: those that are new at once, those that it had go on as they did."""
        now = self._clock()
        before = self._watched
        self._watched = {
            id(reading): before.get(id(reading)) or _Watched(reading, now)
            for reading in readings
            if reading.reader is not None
        }

    def seconds_to_next(self) -> float | None:
        """When to poll next; None: there is nothing to look after."""
        if not self._watched:
            return None
        return max(0.0, min(watched.due for watched in self._watched.values()) - self._clock())

    def poll(self) -> list[Event]:
        """Look at the logs whose turn it is; what came is in their states already."""
        now = self._clock()
        found = []
        for key, watched in list(self._watched.items()):
            if watched.due > now:
                continue
            event = self._look(watched)
            if event is not None and event.news is News.REPLACED:
                del self._watched[key]
            watched.interval = LEAST_S if event else min(watched.interval * _SLOWER, MOST_S)
            watched.due = now + watched.interval
            if event is not None:
                found.append(event)
        return found

    def _look(self, watched: _Watched) -> Event | None:
        reading = watched.reading
        try:
            now = Identity.of(self._stat(reading.logs[-1]))
            if now == reading.identities[-1]:
                watched.is_gone = False
                return None
            before = _extent(reading)
            reading.go_on()
            watched.is_gone = False
        except ReplacedError as error:
            return Event(reading, News.REPLACED, str(error))
        except OSError as error:
            was_gone, watched.is_gone = watched.is_gone, True
            return None if was_gone else Event(reading, News.GONE, f"{reading.logs[-1]}: {error.strerror or error}")
        return Event(reading, News.GROWN) if _extent(reading) != before else None


def _extent(reading: Reading) -> tuple[int, int]:
    """How far a log was read, and how many gaps there are."""
    return (reading.reader.position if reading.reader else 0), len(reading.state.gaps)
