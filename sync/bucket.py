"""A token bucket: a rate, and how much may go at once after a silence."""

from __future__ import annotations

from dataclasses import dataclass

_CLOSE_ENOUGH = 1e-9  # of a token: sums of floats
_SHORTEST_WAIT_S = 0.001  # a shorter sleep may not move a clock at all


@dataclass
class Bucket:
    """Holds at most `burst` tokens and fills at `rate` per second. `level` is what it held at time `filled_at`."""

    rate: float
    burst: float
    level: float
    filled_at: float

    def ready_in(self, amount: float, now: float) -> float:
        """Seconds until `amount` may be taken. More than a burst is let through by a full bucket, and owed afterwards."""
        self._fill(now)
        missing = min(amount, self.burst) - self.level
        return max(missing / self.rate, _SHORTEST_WAIT_S) if missing > _CLOSE_ENOUGH else 0.0

    def take(self, amount: float) -> None:
        """Take `amount`, once `ready_in` has said 0."""
        self.level -= amount

    def set_rate(self, rate: float, now: float) -> None:
        """Fill at another rate from now on."""
        self._fill(now)
        self.rate = rate

    def refill(self, level: float, at: float) -> None:
        """Let it hold `level` at time `at`, which may lie ahead, and fill from then on."""
        self.level, self.filled_at = min(self.burst, level), at

    def _fill(self, now: float) -> None:
        if now > self.filled_at:
            self.level = min(self.burst, self.level + (now - self.filled_at) * self.rate)
            self.filled_at = now
