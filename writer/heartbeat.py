"""The sign of life beside the log, which tells a sync on this or another machine that the run goes on."""

from __future__ import annotations

import math
from contextlib import suppress
from pathlib import Path

from ..logformat.heartbeat import BEAT_EVERY_S, Process, heartbeat_path, heartbeat_text
from .filesystem import FileSystem
from .journal import Clock


class Heartbeat:
    """Keeps the file of the current log. Belongs to the writer's thread; an error costs the sign and nothing else."""

    def __init__(self, fs: FileSystem, clock: Clock) -> None:
        self._fs, self._clock = fs, clock
        self._log: Path | None = None
        self._next = 0.0

    @property
    def due(self) -> float:
        """When the next sign is, monotonic seconds; infinity where there is no log."""
        return math.inf if self._log is None else self._next

    def beat(self, log: Path | None) -> None:
        """Say that `log` is being written; to be called often, it does something rarely."""
        if log is not self._log:
            self.end()
            self._log = log
            self._put()
        elif log is not None and self._clock.monotonic() >= self._next:
            self._next = self._clock.monotonic() + BEAT_EVERY_S
            try:
                self._fs.touch(heartbeat_path(log))
            except FileNotFoundError:
                self._put()
            except OSError:
                pass  # a disk that is full or gone is the journal's to tell

    def end(self) -> None:
        """Nobody writes the log any more."""
        log, self._log = self._log, None
        if log is not None:
            with suppress(OSError):
                self._fs.remove(heartbeat_path(log))

    def _put(self) -> None:
        if self._log is None:
            return
        self._next = self._clock.monotonic() + BEAT_EVERY_S
        with suppress(Exception):  # nothing that this machine is like may end the writer's thread
            self._fs.put(heartbeat_path(self._log), heartbeat_text(Process.current(), self._clock.time()))
