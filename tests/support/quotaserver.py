"""A server with a quota, on a simulated clock: it counts in windows and says so in one of the dialects."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass, field
from email.utils import formatdate

from runferry.sync.pacer import Pacer
from runferry.sync.ratelimit import read_limits
from support.simulation import Simulation

Speech = Callable[[bool, float, float, float], dict[str, str]]
"""(whether it was accepted, what remains, seconds until the reset, time) -> headers."""

SPEECHES: dict[str, Speech] = {
    "remaining and reset": lambda _, remaining, reset, __: {
        "RateLimit-Remaining": str(remaining),
        "RateLimit-Reset": str(reset),
    },
    "structured fields": lambda _, remaining, reset, __: {"RateLimit": f'"all";r={remaining:.0f};t={reset:.0f}'},
    "reset on every answer": lambda _, __, reset, ___: {"RateLimit-Reset": str(reset)},
    "reset in whole seconds on every answer": lambda _, __, reset, ___: {"RateLimit-Reset": str(int(reset))},
    "reset on a 429": lambda taken, _, reset, __: {} if taken else {"RateLimit-Reset": str(reset)},
    "reset in whole seconds on a 429": lambda taken, _, reset, __: (
        {} if taken else {"RateLimit-Reset": str(int(reset))}
    ),
    "retry-after": lambda taken, _, reset, __: {} if taken else {"Retry-After": str(int(reset) + 1)},
    "retry-after as a date": lambda taken, _, reset, now: (
        {}
        if taken
        else {"Retry-After": formatdate(int(now + reset) + 1, usegmt=True), "Date": formatdate(now, usegmt=True)}
    ),
    "nothing": lambda *_: {},
}


@dataclass
class QuotaServer:
    """`size` requests per `period` seconds. A window begins with its first request, or every `period` if `aligned`."""

    clock: Simulation
    size: int
    period: float
    speech: Speech
    aligned: bool = False
    unit: float = 1.0
    """Requests per unit of what remains."""
    per_second: float = float("inf")
    """A limit of which it does not speak."""
    refused: list[float] = field(default_factory=list)
    """When requests were refused, from the start."""
    taken: list[float] = field(default_factory=list)
    used: int = 0
    opened: float | None = None

    def ask(self) -> tuple[bool, dict[str, str]]:
        now = self.clock.monotonic()
        if self.opened is None:
            self.opened = now - (0.37 * self.period if self.aligned else 0.0)
        if now >= self.opened + self.period:
            past = (now - self.opened) // self.period if self.aligned else 0
            self.opened, self.used = self.opened + past * self.period if self.aligned else now, 0
        recent = sum(1 for at in self.taken[-1000:] if at > now - self.clock.start - 1.0)
        taken = self.used < self.size and recent < self.per_second
        self.used += taken
        (self.taken if taken else self.refused).append(now - self.clock.start)
        return taken, self.speech(taken, (self.size - self.used) / self.unit, self.opened + self.period - now, now)


def send_all(clock: Simulation, server: QuotaServer, pacers: list[Pacer], requests: int, *, threads: int) -> float:
    """Bring that many requests through, by so many threads behind each pacer; the seconds that it took."""
    rng = random.Random(11)
    left = [requests]

    def work(pacer: Pacer) -> None:
        while left[0] > 0:
            left[0] -= 1
            while True:
                number = pacer.wait()
                clock.sleep(rng.uniform(0.01, 0.03))
                taken, headers = server.ask()
                clock.sleep(rng.uniform(0.01, 0.03))
                limits = read_limits(headers, clock.time())
                if taken:
                    pacer.accepted(limits, number)
                    break
                pacer.refused(limits)

    return clock.run(*[lambda pacer=pacer: work(pacer) for pacer in pacers for _ in range(threads)])
