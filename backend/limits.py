"""Quotas: so much per window and project or run, told to the client in one of the spellings that servers use."""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Callable, Hashable
from dataclasses import dataclass

MAX_WINDOWS = 20_000  # projects or runs counted at one time; beyond that the one whose window ends first is forgotten
STYLES = ("fields", "reset", "retry-after", "structured", "none")
Project = tuple[str, str]


@dataclass(frozen=True)
class Rates:
    """What may come in one second; None: any amount.

    `requests` and `size` (bytes) count the file stream requests of a project, `run_requests` those of one run,
    `run_creations` the new runs of a project.
    """

    requests: int | None = None
    size: int | None = None
    run_requests: int | None = None
    run_creations: int | None = None

    def __post_init__(self) -> None:
        if any(value is not None and value < 1 for value in vars(self).values()):
            raise ValueError("a rate limit is at least 1 per second")


UNLIMITED = Rates()
DOCUMENTED = Rates(requests=500, size=120_000_000, run_requests=2, run_creations=80)
"""The defaults that W&B documents for servers on one's own premises."""


@dataclass(frozen=True)
class Quota:
    """What one request found: `reset_s` seconds until the window of `window_s` ends and the quota is whole again."""

    name: str
    allowed: bool
    limit: int
    remaining: int
    reset_s: float
    window_s: float

    def headers(self, style: str = "fields") -> dict[str, str]:
        """The quota in one of `STYLES`; the reset is rounded up, so that a client that waits for it is never early.

        `retry-after` tells refused clients only.
        """
        reset = str(math.ceil(self.reset_s))
        if style == "fields":
            fields = {"RateLimit-Limit": str(self.limit), "RateLimit-Remaining": str(self.remaining)}
            return {**fields, "RateLimit-Reset": reset}
        if style == "reset":
            return {"RateLimit-Reset": reset}
        if style == "structured":  # the structured fields of the later IETF drafts
            policy = f'"{self.name}";q={self.limit};w={math.ceil(self.window_s)}'
            return {"RateLimit-Policy": policy, "RateLimit": f'"{self.name}";r={self.remaining};t={reset}'}
        return {"Retry-After": reset} if style == "retry-after" and not self.allowed else {}


class QuotaError(Exception):
    """A request too many; it costs nothing and has no effect (HTTP 429)."""

    def __init__(self, quota: Quota) -> None:
        super().__init__(f"too many requests: {quota.name}, {quota.limit} in {quota.window_s:g} s")
        self.quota = quota


class RateLimiter:
    """Fixed windows that begin with the first request in them. Its owner lets one thread in at a time."""

    def __init__(
        self, limit: int, window_s: float, clock: Callable[[], float] = time.monotonic, name: str = "requests"
    ) -> None:
        self._name = name
        self._limit = limit
        self._window_s = window_s
        self._clock = clock
        self._windows: dict[Hashable, tuple[float, int]] = {}  # key -> (end, used)

    def find(self, key: Hashable, cost: int = 1) -> Quota:
        """What a request of `key` would find. One that is larger than the whole limit passes alone."""
        now = self._clock()
        return self._quota(*self._window(key, now), cost, now)

    def take(self, key: Hashable, cost: int = 1) -> Quota:
        """Counts a request of `key`; a refused one costs nothing."""
        now = self._clock()
        end, used = self._window(key, now)
        quota = self._quota(end, used, cost, now)
        if quota.allowed:
            if used == 0:  # a new window goes last, so that the table is in the order in which windows end
                self._windows.pop(key, None)
                while self._windows and (len(self._windows) >= MAX_WINDOWS or self._ended(now)):
                    del self._windows[next(iter(self._windows))]
            self._windows[key] = (end, used + cost)
        return quota

    def _window(self, key: Hashable, now: float) -> tuple[float, int]:
        """End and use of the window that is open for `key`, or would be opened."""
        end, used = self._windows.get(key, (now, 0))
        return (end, used) if end > now else (now + self._window_s, 0)

    def _quota(self, end: float, used: int, cost: int, now: float) -> Quota:
        allowed = used + cost <= self._limit or used == 0
        remaining = max(0, self._limit - used - (cost if allowed else 0))
        return Quota(self._name, allowed, self._limit, remaining, end - now, self._window_s)

    def _ended(self, now: float) -> bool:
        return next(iter(self._windows.values()))[0] <= now


class Quotas:
    """All quotas of a server. `limit` requests per `window_s` seconds and project count file streams and GraphQL alike."""

    def __init__(
        self, limit: int | None, window_s: float, rates: Rates, clock: Callable[[], float] = time.monotonic
    ) -> None:
        def limiter(name: str, limit: int | None, window_s: float = 1.0) -> RateLimiter | None:
            return None if limit is None else RateLimiter(limit, window_s, clock, name)

        self._lock = threading.Lock()
        self._all = limiter("requests", limit, window_s)
        self._requests = limiter("project-requests", rates.requests)
        self._size = limiter("project-bytes", rates.size)
        self._run_requests = limiter("run-requests", rates.run_requests)
        self._creations = limiter("run-creations", rates.run_creations)

    def stream(self, project: Project, run: str, size: int) -> Quota | None:
        """Counts a file stream request of `size` bytes; the quota of its project, None where there is none.

        Raises:
            QuotaError: one quota is used up; none was touched.
        """
        return self._take(
            [
                (self._run_requests, (*project, run), 1),
                (self._size, project, size),
                (self._requests, project, 1),
                (self._all, project, 1),
            ]
        )

    def graphql(self, project: Project) -> Quota | None:
        """Counts a GraphQL request, likewise."""
        return self._take([(self._all, project, 1)])

    def creation(self, project: Project) -> None:
        """Counts a new run, likewise."""
        self._take([(self._creations, project, 1)])

    def _take(self, asked: list[tuple[RateLimiter | None, Hashable, int]]) -> Quota | None:
        """All or none. What is told is the last quota: it is the project's."""
        told = None
        with self._lock:
            counted = [(limiter, key, cost) for limiter, key, cost in asked if limiter is not None]
            for limiter, key, cost in counted:
                quota = limiter.find(key, cost)
                if not quota.allowed:
                    raise QuotaError(quota)
            for limiter, key, cost in counted:
                told = limiter.take(key, cost)
        return told
