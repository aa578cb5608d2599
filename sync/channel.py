"""Requests that get through: paced, retried within a budget of time, and reported while they wait.

Who decides what:

- the pacer: when a request may go, and how long a refused lane stays closed (a 429 is never a failed attempt);
- the type of the error: whether there is another attempt (`Retryable`) or none (`Permanent` and its kin);
- the budget: until when. It counts from a request's first failure. A host that has answered nothing for the whole
  budget is down for everybody, so ten thousand runs do not each wait for it anew.
"""

from __future__ import annotations

import random
import threading
from collections.abc import Callable
from dataclasses import replace
from typing import TypeVar

from .clock import Clock
from .credentials import origin_of
from .errors import AuthError, Conflict, OutOfTime, Permanent, RateLimited, Retryable, TooLarge
from .pacer import Pacer, full_jitter
from .ratelimit import MAX_WAIT_S, Limits, read_limits
from .report import Paused, Reporter, Retrying
from .transport import Answer, Request, Transport

Result = TypeVar("Result")

_REFUSALS_BEFORE_GIVING_UP = 10  # 429s in a row for one request, and the budget must be over too
_CONFLICT_ATTEMPTS = 3


def raise_for_status(answer: Answer, what: str, limits: Limits) -> None:
    """Turn a status that is no success into its error; `what` names the request in the message."""
    status = answer.status
    if 200 <= status < 300:
        return
    text = answer.body[:500].decode("utf-8", "replace").strip()
    message = f"{what}: HTTP {status}" + (f": {text}" if text else "")
    if status == 429:
        raise RateLimited(message, retry_after=limits.retry_after, status=status)
    if status in (408, 425) or (status >= 500 and status != 501):
        wish = limits.retry_after if limits.retry_after is not None else limits.reset
        raise Retryable(message, retry_after=wish, status=status)
    if status in (401, 403):
        raise AuthError(message, status=status)
    if status == 409:
        raise Conflict(message, status=status)
    if status == 413:
        raise TooLarge(message, status=status)
    raise Permanent(message, status=status)


class Channel:
    """Sends requests until they are answered, refused for good, or the budget is used up. Any thread may call it."""

    def __init__(
        self,
        transport: Transport,
        *,
        clock: Clock,
        rng: random.Random,
        retry_for: float,
        reporter: Reporter,
        hide: Callable[[bytes], bytes] = lambda body: body,
    ) -> None:
        self._transport = transport
        self._clock = clock
        self._rng = rng
        self._retry_for = retry_for
        self._reporter = reporter
        self._hide_in = hide
        self._lock = threading.Lock()
        self._silent_since: dict[tuple[str, str, int], float] = {}  # hosts that answer nothing useful

    def call(
        self,
        request: Request,
        pacer: Pacer,
        *,
        what: str,
        read: Callable[[Answer], Result],
        retry_conflict: bool = False,
    ) -> Result:
        """Send `request` and give what `read` makes of the answer.

        `read` may raise `Retryable` for an answer that cannot be trusted, e.g. one that was cut. With `retry_conflict` a 409
        gets a few attempts, unless it speaks of a deleted run.

        Raises:
            Permanent, AuthError, Conflict, TooLarge: the server's last word.
            OutOfTime: the budget is used up.
            Interrupted: the sync was stopped.
        """
        failures = refusals = conflicts = 0
        first_failure: float | None = None
        first_refusal = 0.0
        while True:
            pacer.wait()
            limits = Limits()
            try:
                answer = self._hide(self._transport.send(request))
                limits = read_limits(answer.headers, self._clock.time())
                if limits.clamped is not None:
                    self._reporter(Paused(what, f"{limits.clamped} is absurd and cut", MAX_WAIT_S))
                raise_for_status(answer, what, limits)
                result = read(answer)
            except RateLimited as error:
                now = self._clock.monotonic()
                first_refusal = first_refusal if refusals else now
                refusals += 1
                if refusals >= _REFUSALS_BEFORE_GIVING_UP and now - first_refusal >= self._retry_for:
                    raise OutOfTime(f"{error}; refused {refusals} times", cause=error) from error
                wait = pacer.refused(limits)
                self._reporter(Paused(what, "the server's rate limit (429)", wait))
            except Conflict as error:
                pacer.accepted(limits)
                conflicts += 1
                if not retry_conflict or conflicts >= _CONFLICT_ATTEMPTS or "deleted" in str(error).lower():
                    raise
                self._wait(what, str(error), full_jitter(self._rng, conflicts), conflicts)
            except Retryable as error:
                now = self._clock.monotonic()
                first_failure = now if first_failure is None else first_failure
                since = min(first_failure, self._silent(request.url, now))
                wait = full_jitter(self._rng, failures)
                if error.retry_after is not None:
                    wait = error.retry_after + self._rng.uniform(0.0, min(2.0, 0.1 * error.retry_after))
                if now + wait - since > self._retry_for:
                    self._give_up(request.url, now)
                    tried = f"tried for {now - since:.0f} of {self._retry_for:.0f} s"
                    raise OutOfTime(f"{error}; gave up ({tried})", cause=error) from error
                failures += 1
                self._wait(what, str(error), wait, failures)
            except Permanent:
                self._answered(request.url)
                pacer.accepted(limits)
                raise
            else:
                self._answered(request.url)
                pacer.accepted(limits)
                return result

    def _hide(self, answer: Answer) -> Answer:
        """The answer without the key, should the server (or a proxy before it) repeat what it was sent."""
        return replace(answer, body=self._hide_in(answer.body))

    def _wait(self, what: str, reason: str, seconds: float, attempt: int) -> None:
        self._reporter(Retrying(what, reason, seconds, self._clock.time() + seconds, attempt))
        self._clock.sleep(seconds)

    def _silent(self, url: str, now: float) -> float:
        """Since when the host of `url` has answered nothing useful, to anybody."""
        with self._lock:
            return self._silent_since.setdefault(origin_of(url), now)

    def _give_up(self, url: str, now: float) -> None:
        """From now on one failure is enough, until the host answers again."""
        with self._lock:
            self._silent_since[origin_of(url)] = now - self._retry_for

    def _answered(self, url: str) -> None:
        with self._lock:
            self._silent_since.pop(origin_of(url), None)
