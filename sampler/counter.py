"""Counters of the kernel and of drivers: what they rose by, whatever resets in between."""

from __future__ import annotations


class Counter:
    """A raw counter that only rises, except that a driver reload, hot-unplug or wrap may set it back.

    A reading below the last one is a reset: it becomes the new base and adds nothing, since what was counted
    between the last reading and the reset is unknown.
    """

    __slots__ = ("_last", "total")

    def __init__(self) -> None:
        self._last: float | None = None
        self.total: float = 0  # risen since the first reading

    def rise(self, raw: float) -> float | None:
        """What was counted since the previous reading; None on the first reading and after a reset."""
        last, self._last = self._last, raw
        if last is None or raw < last:
            return None
        self.total += raw - last
        return raw - last

    def since_first(self, raw: float) -> float:
        """What was counted since the first reading, resets left out."""
        self.rise(raw)
        return self.total
