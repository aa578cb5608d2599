"""What a run tells its user: single lines while it runs, and at its end what became of its rows."""

from __future__ import annotations

import sys
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

from ..logformat.words import counted


class FinishReport(NamedTuple):
    """What became of a run's rows."""

    paths: tuple[Path, ...]
    """The logs that hold the run: one, unless a disk failed meanwhile."""
    rows_written: int
    """Rows in a log whose last sync, if there was one, succeeded."""
    rows_dropped: int
    """Rows that are in no log: queues full, disk full to the end, too large for a record, or in a log that was deleted."""
    others_dropped: int
    """Samples, pieces of console output and other records that are in no log."""
    rows_unsure: int
    """Rows in a log whose sync failed, and that memory no longer held: on the device or not, nobody knows. They count
    neither as written nor as dropped."""
    rows_late: int
    """Rows logged with a lower step than one before; they are in the log."""
    synced: bool
    """Everything written is on the device."""

    @property
    def complete(self) -> bool:
        """Whether every row is in a log, and on the device."""
        return self.synced and not self.rows_dropped and not self.rows_unsure

    def __str__(self) -> str:
        where = str(self.paths[-1]) if self.paths else "no log"
        text = f"{counted(self.rows_written, 'row')} in {where}"
        if self.rows_dropped:
            text += f"; {counted(self.rows_dropped, 'row')} did not make it"
        if self.others_dropped:
            text += f"; {counted(self.others_dropped, 'other record')} (samples, console output) did not make it"
        if self.rows_unsure:
            text += f"; {counted(self.rows_unsure, 'row')} in a file that could not be synced"
        if not self.synced:
            text += "; not synced to the device"
        return text


class WarnOnce:
    """Warns once of each topic, and of no more topics than anybody reads: code may make up names for ever."""

    MOST = 100
    """Topics."""

    def __init__(self, warn: Callable[[str], None]) -> None:
        self._warn = warn
        self._topics: set[str] = set()

    def __call__(self, topic: str, text: str) -> None:
        """One line, unless the topic had one before."""
        if topic in self._topics or len(self._topics) > self.MOST:
            return
        self._topics.add(topic)
        self._warn(
            text if len(self._topics) <= self.MOST else f"{text} (from here on nothing new of this kind is named)"
        )


def warn_on_stderr(text: str) -> None:
    """One line on stderr that is not to be missed; the errors of some libraries that it repeats have many."""
    say(f"WARNING {' '.join(filter(None, map(str.strip, text.splitlines())))}")


def say(text: str) -> None:
    """One line on stderr; nothing where there is none."""
    with suppress(Exception):  # a closed or full console must not stop a run
        sys.stderr.write(f"runferry: {text}\n")
        sys.stderr.flush()
