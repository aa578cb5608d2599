"""What is known of a server's quota: how many requests a window holds, how long it lasts, how many are left in this one.

Told by `Remaining` and `Reset`, or counted. With `Remaining` R and `Reset` T the rate is `density * R / T`, where `density`
(requests per unit of R) is measured, because some servers count in units of their own, and because others may draw on the
same quota. A server that gives only times (`Reset` or `Retry-After`, perhaps not before it refuses) is counted: as many
requests as went through in the window that ended with a refusal fit into the next one, and that one lasts as long.

A refusal that says nothing of time is met by `Ceiling`: a rate a little below the one that got through, which grows until
it is refused again.
"""

from __future__ import annotations

from dataclasses import dataclass

MIN_RATE = 0.1  # requests/s; slower would pass for a hang
SHARE = 0.95  # of what is allowed is spent: the rest is for requests in flight and clocks that differ
_TRUSTED_FROM = 10  # requests between two answers before their density is believed
_DENSITIES = (0.01, 1000.0)
_REORDERED = 16  # answers may overtake each other by so many; a larger rise of `Remaining` is a new window
_SHORTEST_S, _LONGEST_S = 0.001, 900.0  # of a window that is measured
_WINDOWS_BEFORE_GROWTH = 10.0
_GROWTH = 1.25
_SLACK_FROM = 50  # a counted quota of so many keeps 2 % back, for requests that arrive before or after a window's edge
_SLACK = 0.98
_WHOLE_SECOND = 1.0  # what servers may cut off: of several answers the one that tells the latest end is right
_LATER_S = 1.6  # a window that ends so much later than was told is another one
_CAUTION = 1.03  # a window that is taken for too short costs a refusal


@dataclass
class Quota:
    """The window that is open now, and what the ones before have taught. Times end in `_at` and are on the caller's clock."""

    # What windows have in common.
    size: float | None = None
    """Requests that a window holds."""
    period: float | None = None
    """Seconds that a window lasts."""
    is_sure: float = 0.0
    """1 where that was measured from a window's beginning."""
    is_told: float = 0.0
    """1 where the answers of a window carry `Remaining`; then nothing is counted."""
    density: float = 1.0
    is_measured: float = 0.0
    untouched: float = 0.0
    """Windows spent to the last request without a refusal, in a row."""
    patience: float = _WINDOWS_BEFORE_GROWTH
    """How many of these before one request more is tried."""
    # The window that is open.
    first: float = 0.0
    """Number of its first request."""
    opened_at: float | None = None
    """When its first answer came."""
    before_at: float | None = None
    """When the first answer of the window before came, if that window was whole."""
    is_whole: float = 0.0
    """1 if it began where another one had ended, so that its length can be measured."""
    accepted: float = 0.0
    is_refused: float = 0.0
    """1 once a request of it was refused."""
    ends_at: float | None = None
    is_end_told: float = 0.0
    """1 once an answer has said it; else it is a guess."""
    told_rate: float | None = None
    """Requests/s until its end."""
    base_remaining: float | None = None
    base_number: float = 0.0

    def turn(self, number: float, now: float) -> None:
        """Begin a new window if the old one is over; `number` is the next request's."""
        if self.ends_at is None or now < self.ends_at:
            return
        if not self.is_told and self.size is not None and self.accepted >= self.usable:
            self.untouched += 1
            if self.untouched >= self.patience:
                self.size, self.untouched = max(self.size + 1, self.size * _GROWTH), 0.0
                self.patience *= 2  # until it is refused again for nothing
        self.begin(number)

    def begin(self, number: float) -> None:
        """A fresh window; nothing is known of it but what windows have in common."""
        if not self.size:  # nothing came back of what was on its way: there is no count
            self.size = self.period = None
        self.before_at = self.opened_at if self.is_whole else None
        self.first, self.opened_at, self.is_whole = number, None, 1.0
        self.accepted, self.is_refused, self.is_end_told = 0.0, 0.0, 0.0
        self.ends_at = self.told_rate = self.base_remaining = None

    @property
    def usable(self) -> float:
        """Requests to be sent in one window."""
        size = max(1.0, self.size) if self.size is not None else float("inf")
        return size if size < _SLACK_FROM else size * _SLACK

    def is_spent(self, number: float) -> bool:
        """Whether the window is counted and holds no more."""
        return not self.is_told and self.ends_at is not None and self.usable - (number - self.first) < 1.0

    def ends_in(self, now: float) -> float:
        """Seconds until the window ends; 0 where nobody knows."""
        return max(0.0, self.ends_at - now) if self.ends_at is not None else 0.0

    def end_by(self, at: float) -> None:
        """Whatever was told of this window: then it is asked again."""
        if self.ends_at is not None:
            self.ends_at = min(self.ends_at, at)

    @property
    def is_guess(self) -> bool:
        """Whether the window's length is only known from one that was not seen from its beginning."""
        return self.size is not None and not self.is_told and not self.is_sure and bool(self.is_whole)

    @property
    def is_early(self) -> bool:
        """Whether nothing has got through in this window, though the one before is over by all that is known."""
        return self.is_unanswered and bool(self.is_whole)

    @property
    def is_unanswered(self) -> bool:
        """Whether a window of known size has begun and no answer has come yet."""
        return self.size is not None and self.opened_at is None

    def sending(self, now: float) -> None:
        """A request is on its way."""
        if self.ends_at is None and self.period is not None:
            self.ends_at = now + self.period  # until an answer says so

    def rate(self, number: float, now: float) -> float | None:
        """Requests/s for the rest of this window; None where nothing is known."""
        if self.told_rate is not None:
            return self.told_rate
        if self.size is None or self.period is None:
            return None
        left = self.usable - (number - self.first)
        until = self.ends_at - now if self.ends_at is not None else self.period
        return max(MIN_RATE, SHARE * left / max(until, 0.001))

    def answered(self, now: float, remaining: float | None, reset: float | None, number: float, last: float) -> float:
        """Learn from an answer to request `number`; `last` is the latest number given out.

        Returns:
            How many requests may go at once now, without end where it does not say.
        """
        ends_at = now + reset if reset else None
        if self.is_end_told and ends_at is not None and ends_at > (self.ends_at or 0.0) + _LATER_S:
            # The server's window has turned before ours. Answers come in any order; what is counted is counted from here.
            self.begin(max(self.first, number - _REORDERED) if self.is_told else number)
        self.accepted += 1
        if self.is_refused and not self.is_told and self.size is not None:
            self.size += 1  # it was sent before the refusal and got through after it
        if self.opened_at is None:
            self.opened_at = now
            if self.period is not None and not self.is_refused:
                self.ends_at = now + self.period
        if ends_at is not None and reset is not None:
            if self.ends_at is None or not 0.0 <= self.ends_at - ends_at <= _WHOLE_SECOND:
                self.ends_at = ends_at
            self.is_end_told = 1.0
            if remaining is not None:
                return self._told(now, remaining, reset, number, last)
        return float("inf")

    def refused(self, now: float, wait: float) -> None:
        """The window is spent, and the next one opens in `wait` seconds."""
        self.ends_at = now + wait
        self.is_refused = 1.0
        if self.is_told and (self.told_rate is not None or self.opened_at is None):
            return
        self.is_told = 0.0  # a server that has told may stop doing so
        if self.opened_at is None:  # the one before is not over yet, so it lasts longer than was thought
            if self.before_at is not None:
                self.period, self.is_sure = _with_caution(now + wait - self.before_at), 1.0
            elif self.size is None:  # what is still on its way has been let through, and is counted as it comes back
                self.period, self.size = _with_caution(wait), 0.0
            return
        length = now + wait - self.opened_at
        if length > _LONGEST_S:  # nobody counts in such windows: something else is amiss
            return
        if self.is_whole or not self.is_sure:
            self.period, self.is_sure = _with_caution(length), self.is_whole
        self.size, self.untouched = self.accepted, 0.0

    def _told(self, now: float, remaining: float, reset: float, number: float, last: float) -> float:
        is_first = self.base_remaining is None
        self._measure(remaining, number)
        here = self.density * remaining
        # The request that the server counted first has seen all but itself; answers come in any order.
        if is_first or not self.is_told or self.size is None or here + 1 > self.size:
            self.size = here + 1
        if is_first:
            self.period = max(_SHORTEST_S, now - (self.opened_at or now) + reset)
        self.is_told = 1.0
        self.told_rate = max(MIN_RATE, SHARE * here / reset)
        return max(0.0, here - (last - number))

    def _measure(self, remaining: float, number: float) -> None:
        """Requests per unit of `Remaining`, between two answers of one window."""
        base = self.base_remaining
        if base is None or remaining > base + _REORDERED:
            self.base_remaining, self.base_number = remaining, number
            return
        sent, spent = number - self.base_number, base - remaining
        if sent >= _TRUSTED_FROM and spent > 0:
            lowest, highest = _DENSITIES
            measured = min(highest, max(lowest, sent / spent))
            self.density = 0.2 * self.density + 0.8 * measured if self.is_measured else measured
            self.is_measured = 1.0
            self.base_remaining, self.base_number = remaining, number


def _with_caution(seconds: float) -> float:
    """A window's length to rely on."""
    return min(_LONGEST_S, max(_SHORTEST_S, _CAUTION * seconds))


_BELOW = 0.9  # of the rate that got through is tried after a refusal
_STEP = 1.1
_STEP_AFTER_S = 5.0
_STEP_AFTER_REQUESTS = 10
_PROBE_AFTER_S = 60.0  # before the rate that was refused last is tried again
_UNKNOWN_RATE = 1.0  # requests/s where nothing has shown what gets through


@dataclass
class Ceiling:
    """A rate that the server has shown by refusals without a time. A cycle lasts from one refusal that counts to the next."""

    rate: float | None = None
    refused_rate: float = 0.0
    """The rate at which the last refusal came."""
    began_at: float | None = None
    """Later by the time in which nobody had anything to send: a rate that nobody asked for tells nothing of the server."""
    heard_at: float | None = None
    """When the server said anything."""
    accepted: float = 0.0
    refused_before: float | None = None
    """Between a refusal and the next request that gets through: requests with lower numbers were sent before it."""
    raised_at: float = 0.0
    accepted_since: float = 0.0

    def answered(self, now: float, number: float) -> None:
        """Request `number` got through."""
        self._hear(now)
        if self.began_at is None:
            self.began_at = now
        if self.refused_before is not None and number >= self.refused_before:
            achieved = self.accepted / max(now - self.began_at, 0.001) if self.accepted else _UNKNOWN_RATE
            self.rate = max(MIN_RATE, _BELOW * achieved)
            self.began_at, self.accepted, self.refused_before = now, 0.0, None
            self.raised_at, self.accepted_since = now, 0.0
        self.accepted += 1
        self.accepted_since += 1
        if self.rate is not None and self.accepted_since >= _STEP_AFTER_REQUESTS:
            higher = self.rate * _STEP
            known = higher < SHARE * self.refused_rate
            if now - self.raised_at >= (_STEP_AFTER_S if known else _PROBE_AFTER_S):
                self.rate, self.raised_at, self.accepted_since = higher, now, 0.0

    def refused(self, now: float, sent: float) -> None:
        """A request was refused without a word on when to come back, when `sent` had been sent."""
        self._hear(now)
        if self.refused_before is None and self.began_at is not None:
            self.refused_rate = self.accepted / max(now - self.began_at, 0.001)
        self.refused_before = sent

    def _hear(self, now: float) -> None:
        """Leave out of the cycle that nobody asked for longer than the rate makes one wait; a closed lane counts."""
        if self.began_at is not None and self.heard_at is not None and self.refused_before is None:
            self.began_at += max(0.0, now - self.heard_at - 1.0 / (self.rate or _UNKNOWN_RATE))
        self.heard_at = now
