"""Request quotas: so many requests per window and project, told to the client in the RateLimit headers."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Hashable
from dataclasses import dataclass

MAX_WINDOWS = 10_000  # projects counted at one time; beyond that the one whose window ends first is forgotten


@dataclass(frozen=True)
class Quota:
    """What one request found: `reset_s` seconds until the window ends and the quota is whole again."""

    allowed: bool
    limit: int
    remaining: int
    reset_s: float

    def headers(self) -> dict[str, str]:
        """The three headers; the reset is rounded up, so that a client that waits for it is never early."""
        return {
            "RateLimit-Limit": str(self.limit),
            "RateLimit-Remaining": str(self.remaining),
            "RateLimit-Reset": str(math.ceil(self.reset_s)),
        }


class RateLimiter:
    """Fixed windows that begin with the first request in them; refused requests cost nothing."""

    def __init__(self, limit: int, window_s: float, clock: Callable[[], float] = time.monotonic) -> None:
        self._limit = limit
        self._window_s = window_s
        self._clock = clock
        self._windows: dict[Hashable, tuple[float, int]] = {}  # key -> (end, used)

    def take(self, key: Hashable) -> Quota:
        """Counts one request of `key`."""
        now = self._clock()
        end, used = self._windows.get(key, (now, 0))
        if end <= now:
            self._windows.pop(key, None)  # so that the table is in the order in which windows end
            while self._windows and (len(self._windows) >= MAX_WINDOWS or self._ended(now)):
                del self._windows[next(iter(self._windows))]
            end, used = now + self._window_s, 0
        allowed = used < self._limit
        used += allowed
        self._windows[key] = (end, used)
        return Quota(allowed, self._limit, self._limit - used, end - now)

    def _ended(self, now: float) -> bool:
        return next(iter(self._windows.values()))[0] <= now
