"""Time as a port: a week of waiting is an ordinary unit test."""

from __future__ import annotations

import threading
import time
from typing import Protocol

from .errors import Interrupted


class Clock(Protocol):
    """What a sync needs to know of time."""

    def monotonic(self) -> float:
        """Seconds that only grow; for waits and budgets."""

    def time(self) -> float:
        """Seconds since the epoch; for ages of files and HTTP dates."""

    def sleep(self, seconds: float) -> None:
        """Wait; raises `Interrupted` as soon as the sync is asked to stop."""


class SystemClock:
    """The machine's clock. `stop` ends every wait at once."""

    def __init__(self, stop: threading.Event | None = None) -> None:
        self._stop = stop or threading.Event()

    def monotonic(self) -> float:
        """Seconds that only grow."""
        return time.monotonic()

    def time(self) -> float:
        """Seconds since the epoch."""
        return time.time()

    def sleep(self, seconds: float) -> None:
        """Wait `seconds`, or until the sync is asked to stop."""
        if self._stop.wait(max(seconds, 0.0)):
            raise Interrupted("stopped while waiting")
