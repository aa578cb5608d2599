"""One pacer per (host, project): every worker asks it before each request, so that one quota is spent by one hand.

A token bucket whose rate follows the server's own words. With `Remaining` R and `Reset` T the rate is
`density * R / T`, where `density` (requests per unit of R) is learnt, because some servers count in units of their own. The
bucket holds at most `BURST` tokens: a small quota is spent at once (then R = 0 closes the lane until the reset), a large one
is spread over its window, which leaves room for other processes on the same quota. A 429 closes the lane for everybody.
"""

from __future__ import annotations

import random
import threading
from collections.abc import Callable

from .clock import Clock
from .ratelimit import Limits

BURST = 10.0
MAX_RATE = 500.0  # requests/s; the documented limit of W&B's dedicated servers per project
MIN_RATE = 0.1
_SHARE = 0.95  # of the rate that the headers allow: the rest is for the requests in flight
_ESTIMATE_FROM = 10  # requests in one window before the density is believed
_BACKOFF_CAP_S = 60.0
_SHORTEST_WAIT_S = 0.001  # a shorter sleep may not move a clock at all


def full_jitter(rng: random.Random, attempt: int, *, base: float = 1.0, cap: float = _BACKOFF_CAP_S) -> float:
    """A wait in seconds before attempt number `attempt` + 1: uniform in 0..min(cap, base * 2^attempt), never 0."""
    ceiling = min(cap, base * 2.0 ** min(attempt, 30))
    return rng.uniform(0.05 * ceiling, ceiling)


class Pacer:
    """The lane of one project. Safe to call from any thread; never sleeps while it holds its lock."""

    def __init__(self, clock: Clock, rng: random.Random) -> None:
        self._clock = clock
        self._rng = rng
        self._lock = threading.Lock()
        self._rate = MAX_RATE
        self._tokens = BURST
        self._filled_at = clock.monotonic()
        self._closed_until = float("-inf")
        self._refusals = 0
        # The window in which the density is measured: what remained at its start, and requests since then.
        self._density = 1.0
        self._window_remaining: float | None = None
        self._window_requests = 0
        self._quota = BURST  # requests that a fresh window is known to hold

    def wait(self) -> None:
        """Return when one request may go. Raises what the clock's sleep raises."""
        while True:
            with self._lock:
                delay = self._reserve()
            if delay <= 0.0:
                return
            self._clock.sleep(delay)

    def accepted(self, limits: Limits) -> None:
        """Learn from an answer that was not a 429."""
        with self._lock:
            self._refusals = 0
            if limits.remaining is None or limits.reset is None:
                return
            self._learn_density(limits.remaining)
            if limits.remaining < 1.0 / self._density and limits.reset > 0:
                self._close(limits.reset)
                return
            usable = self._density * limits.remaining * _SHARE / max(limits.reset, 0.001)
            self._rate = min(MAX_RATE, max(MIN_RATE, usable))
            self._tokens = min(self._tokens, max(self._density * limits.remaining, 0.0))

    def refused(self, limits: Limits) -> float:
        """Close the lane after a 429. Returns for how many seconds."""
        with self._lock:
            if limits.retry_after is not None:
                seconds = limits.retry_after
            elif limits.reset is not None:
                seconds = limits.reset
            else:
                seconds = 0.0
            if seconds <= 0.0:  # no wish, or "now": our own back-off, so that a refusal never becomes a busy loop
                seconds = full_jitter(self._rng, self._refusals)
            self._refusals += 1
            self._window_remaining = None
            return self._close(seconds)

    @property
    def closed_for(self) -> float:
        """Seconds until the lane opens; 0 where it is open."""
        return max(0.0, self._closed_until - self._clock.monotonic())

    def _close(self, seconds: float) -> float:
        """Close the lane for `seconds` and a little jitter, so that processes on one quota do not wake together."""
        seconds += self._rng.uniform(0.0, min(2.0, 0.1 * seconds))
        self._closed_until = max(self._closed_until, self._clock.monotonic() + seconds)
        # The lane opens with a fresh window: workers that wake together may spend it, but no more.
        self._tokens, self._filled_at = min(BURST, self._quota), self._closed_until
        return seconds

    def _reserve(self) -> float:
        """Take a token and return 0, or return how long to wait before asking again."""
        now = self._clock.monotonic()
        if now < self._closed_until:
            return self._closed_until - now
        self._tokens = min(BURST, self._tokens + max(0.0, now - self._filled_at) * self._rate)
        self._filled_at = max(now, self._filled_at)
        if self._tokens >= 1.0 - 1e-9:
            self._tokens -= 1.0
            self._window_requests += 1
            return 0.0
        return max((1.0 - self._tokens) / self._rate, _SHORTEST_WAIT_S)

    def _learn_density(self, remaining: float) -> None:
        """Requests per unit of `Remaining`, measured over one window; a rise of `remaining` opens a new one."""
        if self._window_remaining is None or remaining > self._window_remaining:
            self._window_remaining, self._window_requests = remaining, 0
            self._quota = max(1.0, self._density * remaining)
            return
        spent = self._window_remaining - remaining
        if self._window_requests >= _ESTIMATE_FROM and spent > 0:
            self._density = 0.2 * self._density + 0.8 * min(1000.0, max(0.01, self._window_requests / spent))
            self._window_remaining, self._window_requests = remaining, 0


class Pacers:
    """The pacers of a process, one per (host, project)."""

    def __init__(self, make: Callable[[], Pacer]) -> None:
        self._make = make
        self._lock = threading.Lock()
        self._pacers: dict[tuple[str, str], Pacer] = {}

    def of(self, host: str, project: str) -> Pacer:
        """The pacer of `project` on `host`, the same one for every caller."""
        with self._lock:
            pacer = self._pacers.get((host, project))
            if pacer is None:
                pacer = self._pacers[host, project] = self._make()
            return pacer
