"""A counter's rise per second between two readings, however far apart they are."""

from __future__ import annotations

from ..counter import Counter


class Rate:
    """The rate of one counter. A reading that was missed makes the next rate an average over longer."""

    __slots__ = ("_at", "_counter")

    def __init__(self) -> None:
        self._counter = Counter()
        self._at = 0.0

    def per_second(self, raw: float, now: float) -> float | None:
        """The rise per second at time `now` (s) since the last reading; None on the first one and after a reset."""
        last, self._at = self._at, now
        rise = self._counter.rise(raw)
        return None if rise is None or now <= last else rise / (now - last)
