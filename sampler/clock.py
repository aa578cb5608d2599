"""Time, as a port: tests turn it by hand."""

from __future__ import annotations

import threading
import time
from typing import Protocol


class Clock(Protocol):
    """Monotonic seconds, wall clock nanoseconds, and waiting."""

    def monotonic(self) -> float:
        """Seconds that never go back."""

    def time_ns(self) -> int:
        """Nanoseconds since 1970, UTC; may jump."""

    def wait(self, event: threading.Event, timeout: float) -> bool:
        """Wait until `event` is set or `timeout` s have passed; whether it is set."""


class SystemClock:
    """The machine's clocks."""

    monotonic = staticmethod(time.monotonic)
    time_ns = staticmethod(time.time_ns)

    @staticmethod
    def wait(event: threading.Event, timeout: float) -> bool:
        """See `Clock.wait`."""
        return event.wait(timeout)
