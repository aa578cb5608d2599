"""Counters of the kernel and of drivers: what they rose by, whatever resets in between.

`Counter` is for one; `Rises` and `Totals` for many that come and go: interfaces, disks, ports, processes.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from typing import Generic, NamedTuple, TypeVar

FORGET_EVERY = 100  # readings; whoever was not seen since the last time is forgotten: names of containers never end

Key = TypeVar("Key", bound=Hashable)


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


class Rise(NamedTuple):
    """What a counter rose by, and in how many seconds."""

    amount: float
    seconds: float


class Rises(Generic[Key]):
    """What each counter rose by since its previous reading; one unseen for 100 to 200 readings is new again.

    Readings are told apart by their times.
    """

    def __init__(self) -> None:
        self._last: dict[Key, tuple[float, float]] = {}
        self._now = self._swept = float("-inf")
        self._readings = 0

    def rise(self, key: Key, raw: float, now: float) -> Rise | None:
        """None on the first reading, after a reset (a reading below the last one), and where no time has passed."""
        if now != self._now:
            self._next_reading(now)
        last, self._last[key] = self._last.get(key), (raw, now)
        if last is None or raw < last[0] or now <= last[1]:
            return None
        return Rise(raw - last[0], now - last[1])

    def _next_reading(self, now: float) -> None:
        self._now = now
        self._readings += 1
        if self._readings % FORGET_EVERY == 0:
            self._last = {key: last for key, last in self._last.items() if last[1] >= self._swept}
            self._swept = now

    def per_second(self, key: Key, raw: float, now: float) -> float | None:
        """The same as a rate."""
        rise = self.rise(key, raw, now)
        return rise.amount / rise.seconds if rise is not None else None

    def keep(self, keys: Mapping[Key, object]) -> None:
        """Forget all counters but these."""
        self._last = {key: last for key, last in self._last.items() if key in keys}


class Totals(Generic[Key]):
    """What each counter rose by since it was first seen, and all together.

    One that is missing from a reading and comes back starts from where it is then: it may be another device of that
    name, or may have been counted elsewhere (a member of a bond) in the meantime. One unseen for 100 to 200 readings
    begins at zero; what it rose by stays in `total`.
    """

    def __init__(self) -> None:
        self._last: Mapping[Key, float] = {}
        self._seen: set[Key] = set()  # since the last time that others were forgotten
        self._readings = 0
        self.risen: dict[Key, float] = {}
        self.total: float = 0

    def update(self, raw: Mapping[Key, float]) -> None:
        """Take a reading of all counters that there are. One below the last is a reset, which adds nothing."""
        for key, value in raw.items():
            rise = max(0, value - self._last.get(key, value))
            self.risen[key] = self.risen.get(key, 0) + rise
            self.total += rise
        self._last = raw
        self._seen.update(raw)
        self._readings += 1
        if self._readings % FORGET_EVERY == 0:
            self.risen = {key: risen for key, risen in self.risen.items() if key in self._seen}
            self._seen = set(raw)
