"""The lane of one project at one server, as plain numbers: what may be sent now, and what an answer changes.

No clock, lock or file in here: `pacer.py` brings the time and decides who shares the numbers.

The documented limits of W&B's dedicated servers hold from the start (500 requests/s, 120 MB/s of `file_stream` bodies and 80
run creations/s per project); the rest is what the server says, or shows by refusing.
"""

from __future__ import annotations

import math
import random
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from functools import cache

from .bucket import Bucket
from .quota import SHARE, Ceiling, Quota
from .ratelimit import MAX_WAIT_S, Limits

MAX_RATE = 500.0  # requests/s per project, documented
MAX_TOLD_RATE = 5000.0  # requests/s; what a server may allow us beyond that
BODY_RATE = 120e6  # bytes/s of file_stream bodies per project, documented
CREATION_RATE = 80.0  # runs/s per project, documented
BURST = 10.0  # requests
_BODY_SHARE = 0.8  # of the bytes: the limit may count what we don't see, such as headers and TLS
_BODY_BURST = 24e6  # bytes: with a second of the rate no more than the limit
_CREATION_BURST = 4.0
_BACKOFF_CAP_S = 60.0
_SHORTEST_S = 0.001  # a window
_LONGEST_CLOSURE_S = MAX_WAIT_S + 5.0
_ROUNDING_S = 1.0  # servers that give whole seconds may have cut the fraction off
_ROUNDING_SHARE = 0.05  # of a wait is added for that until it is known
_ASK_AGAIN_S = 1.0  # the pace may change while a request waits for its turn
_ASK_SOON_S = 0.05


@dataclass(frozen=True)
class Cost:
    """What a request takes from its project's limits, besides being a request."""

    body_bytes: int = 0
    """Bytes of a `file_stream` body."""
    creates_run: bool = False


REQUEST = Cost()


def full_jitter(rng: random.Random, attempt: int, *, base: float = 1.0, cap: float = _BACKOFF_CAP_S) -> float:
    """A wait in seconds before attempt number `attempt` + 1: uniform in 0..min(cap, base * 2^attempt), never 0."""
    ceiling = min(cap, base * 2.0 ** min(attempt, 30))
    return rng.uniform(0.05 * ceiling, ceiling)


@dataclass
class Lane:
    """The numbers of one lane. Times end in `_at` or `_until`; all are seconds on one clock."""

    requests: Bucket
    bodies: Bucket
    creations: Bucket
    quota: Quota = field(default_factory=Quota)
    ceiling: Ceiling = field(default_factory=Ceiling)
    sent: float = 0.0
    """Requests so far; each gets its number."""
    closed_until: float = 0.0
    refusals: float = 0.0
    """In a row."""
    rounding: float = 0.0
    """Seconds added to waits in whole seconds, once they have turned out to be cut."""

    @classmethod
    def new(cls, now: float) -> Lane:
        """A lane of which nothing is known yet."""
        return cls(
            Bucket(SHARE * MAX_RATE, BURST, BURST, now),
            Bucket(_BODY_SHARE * BODY_RATE, _BODY_BURST, _BODY_BURST, now),
            Bucket(SHARE * CREATION_RATE, _CREATION_BURST, _CREATION_BURST, now),
            closed_until=now,
        )

    # -- sending -----------------------------------------------------------------------------------------------------

    def enter(self, now: float, cost: Cost, rng: random.Random) -> float:
        """Let one request go and return 0, or return for how many seconds to wait before asking again."""
        if now < self.closed_until:
            return self.closed_until - now
        self.quota.turn(self.sent, now)
        if self.quota.is_spent(self.sent):
            return self._close(self.quota.ends_in(now), now, rng)
        self._set_pace(now)
        delay = self.requests.ready_in(1.0, now)
        if cost.body_bytes:
            delay = max(delay, self.bodies.ready_in(cost.body_bytes, now))
        if cost.creates_run:
            delay = max(delay, self.creations.ready_in(1.0, now))
        if delay > 0.0:
            soon = self.quota.is_unanswered or self._feels_its_way
            return min(delay, _ASK_SOON_S if soon else _ASK_AGAIN_S)
        self.requests.take(1.0)
        self.bodies.take(cost.body_bytes)
        self.creations.take(float(cost.creates_run))
        self.quota.sending(now)
        self.sent += 1
        return 0.0

    def _set_pace(self, now: float) -> None:
        rate = self.quota.rate(self.sent, now)
        rate = SHARE * MAX_RATE if rate is None else min(rate, self._highest)
        burst = BURST
        if self.ceiling.rate is not None and self.ceiling.rate < rate:
            rate = self.ceiling.rate
            burst = min(BURST, max(1.0, rate))
        if self._feels_its_way:
            rate, burst = min(rate, 1.0), 1.0
        self.requests.burst = burst
        self.requests.level = min(self.requests.level, burst)
        self.requests.set_rate(rate, now)

    @property
    def _feels_its_way(self) -> bool:
        """Whether one request at a time finds out if the lane is open again, as the last guess was wrong or there was none."""
        return self.refusals > 1 or self.ceiling.refused_before is not None

    @property
    def _highest(self) -> float:
        """Beyond the documented rate only where it is known what the server counts in."""
        return MAX_TOLD_RATE if self.quota.is_measured else SHARE * MAX_RATE

    # -- answers -----------------------------------------------------------------------------------------------------

    def accepted(self, limits: Limits, number: float, now: float, rng: random.Random) -> None:
        """Learn from the answer to request `number`, whatever it was but a 429."""
        self.refusals = 0.0
        self.ceiling.answered(now, number)
        if number < self.quota.first:
            return  # of a window that is over
        reset = max(_SHORTEST_S, self._rounded(limits.reset)) if limits.reset else None
        at_once = self.quota.answered(now, limits.remaining, reset, number, self.sent - 1)
        if limits.remaining is None or not limits.reset:
            return
        if self.quota.density * limits.remaining < 1.0:
            self._close(self.quota.ends_in(now), now, rng)
        elif now >= self.closed_until:
            self.requests.level = min(self.requests.level, at_once)

    def refused(self, limits: Limits, now: float, rng: random.Random, *, learns: bool = True) -> float:
        """Close after a 429; for how many seconds. With `learns` off it says nothing of the project's quota."""
        is_spent = limits.remaining is None or limits.remaining * self.quota.density < 1.0
        wish = limits.wish if is_spent else Limits(retry_after=limits.retry_after).wish
        if wish == 0.0 and not self.quota.is_early:
            wish = None  # "now" is what it was
        if now < self.closed_until:  # others have been refused just before
            return self.close(wish, now, rng) if wish is not None else self.closed_until - now
        if wish is None or not is_spent:
            if learns:
                self.ceiling.refused(now, self.sent)
        elif learns:
            if self.refusals or self.quota.is_early:
                self.rounding = _ROUNDING_S
            self.quota.refused(now, self._rounded(wish))
        # Without a wish it is our own back-off, so that a refusal never becomes a busy loop.
        seconds = wish if wish is not None else full_jitter(rng, int(self.refusals))
        self.refusals += 1
        return self.close(seconds, now, rng)

    def close(self, seconds: float, now: float, rng: random.Random) -> float:
        """Let nothing go for so long and a little longer; for how long in all."""
        return self._close(self._rounded(seconds), now, rng)

    def _rounded(self, seconds: float) -> float:
        if seconds != math.floor(seconds):
            return seconds
        return seconds + max(self.rounding, min(0.5 * _ROUNDING_S, _ROUNDING_SHARE * seconds))

    def _close(self, seconds: float, now: float, rng: random.Random) -> float:
        """With jitter, so that processes which do not know of each other don't wake together."""
        is_cut = seconds > MAX_WAIT_S
        seconds = min(seconds, MAX_WAIT_S)
        seconds += rng.uniform(0.2, 1.0) * min(1.0, 0.05 * seconds)
        self.closed_until = max(self.closed_until, now + seconds)
        if is_cut:
            self.quota.end_by(self.closed_until)
        # Those who wake together may spend what a window is known to hold; after a second refusal, one request feels its way.
        size = 1.0 if self._feels_its_way or self.quota.is_guess else self.quota.usable
        self.requests.refill(min(BURST, size), self.closed_until)
        return seconds

    # -- sharing -----------------------------------------------------------------------------------------------------

    def numbers(self, offset: float) -> dict[str, float | None]:
        """All of it, flat, with `offset` added to the times."""
        flat: dict[str, float | None] = {}
        for prefix, part, names in self._shared():
            for key, name, is_time in _keyed(prefix, names):
                value = getattr(part, name)
                flat[key] = value + offset if is_time and value is not None else value
        return flat

    def load(self, numbers: Mapping[str, float | None], offset: float, now: float) -> bool:
        """Take over what another process has written; False, and nothing changed, where it cannot be believed."""
        latest = now + offset + _FARTHEST_S
        for prefix, _, names in self._shared():
            if not all(prefix + name in numbers and _is_sound(name, numbers[prefix + name], latest) for name in names):
                return False
        if (numbers["closed_until"] or 0.0) - offset > now + _LONGEST_CLOSURE_S:
            return False
        for prefix, part, names in self._shared():
            for name in names:
                value = numbers[prefix + name]
                setattr(part, name, value - offset if value is not None and _is_time(name) else value)
        for bucket in (self.requests, self.bodies, self.creations):
            bucket.filled_at = min(bucket.filled_at, max(now, self.closed_until))
        return True

    def _shared(self) -> tuple[tuple[str, object, tuple[str, ...]], ...]:
        return (
            ("", self, _OWN),
            ("requests.", self.requests, _OF_BUCKETS),
            ("bodies.", self.bodies, _OF_BUCKETS),
            ("creations.", self.creations, _OF_BUCKETS),
            ("quota.", self.quota, _OF_QUOTA),
            ("ceiling.", self.ceiling, _OF_CEILING),
        )


_OWN = ("sent", "closed_until", "refusals", "rounding")
_OF_BUCKETS = ("level", "filled_at")
_OF_QUOTA = tuple(entry.name for entry in fields(Quota))
_OF_CEILING = tuple(entry.name for entry in fields(Ceiling))
_OPTIONAL = frozenset(entry.name for kind in (Quota, Ceiling) for entry in fields(kind) if entry.default is None)
_POSITIVE = frozenset({"period", "density", "told_rate", "rate", "patience"})
_LARGEST = 1e12
_FARTHEST_S = 1e5  # no window ends later


@cache
def _is_sound(name: str, value: float | None, latest: float) -> bool:
    """Whether `value` is one that a lane could have under that name; no time lies behind `latest`."""
    if value is None:
        return name in _OPTIONAL
    if not abs(value) < _LARGEST:  # NaN is not less
        return False
    return not (value <= 0 and name in _POSITIVE) and not (_is_time(name) and value > latest)


@cache
def _keyed(prefix: str, names: tuple[str, ...]) -> tuple[tuple[str, str, bool], ...]:
    """Key among all numbers, name, and whether it is a time."""
    return tuple((prefix + name, name, _is_time(name)) for name in names)


def _is_time(name: str) -> bool:
    return name.endswith(("_at", "_until"))
