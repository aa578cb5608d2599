"""Requests that get through: paced, retried within a budget of time, and reported while they wait.

Who decides what:

- the pacer: when a request may go, and how long a refused lane stays closed (a 429 is never a failed attempt);
- the type of the error: whether there is another attempt (`Retryable`) or none (`Permanent` and its kin);
- the budget: until when. It counts from a request's first failure. A host that has answered nothing for the whole
  budget is down for everybody, so ten thousand runs do not each wait for it anew;
- `puts_off`: whether uploads get a short budget, because rows of other runs wait behind them.
"""

from __future__ import annotations

import contextlib
import json
import random
import threading
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import TypeVar

from .clock import Clock
from .credentials import origin_of
from .errors import AuthError, Conflict, OutOfTime, Permanent, RateLimited, Retryable, SyncError, TooLarge, TooSlow
from .lane import REQUEST, Cost, full_jitter
from .pacer import Pacer, StreamLane
from .ratelimit import MAX_WAIT_S, Limits, read_limits
from .redirects import REDIRECTS, explain
from .report import Paused, Reporter, Retrying, counted
from .transport import Answer, Request, Transport

Result = TypeVar("Result")

SMALLEST_DIVISIBLE = 128 * 1024
"""Bytes; a body that did not get through in its time is worth halving from here on."""
_REFUSALS_BEFORE_GIVING_UP = 10  # 429s in a row for one request, and the budget must be over too
_CONFLICT_ATTEMPTS = 3
_PROBE_SHARE = 20.0  # a host that was given up is tried again for a twentieth of the time at most,
_LONGEST_REST_S = 30.0  # and not less often than this
_PATIENCE_S = 30.0  # with a storage, while others wait
_NO_LIMITS = Limits()
_LONGEST_WORDS = 500  # bytes or characters of an answer that a message repeats


def raise_for_status(answer: Answer, what: str, limits: Limits) -> None:
    """Turn a status that is no success into its error; `what` names the request in the message."""
    status = answer.status
    if 200 <= status < 300:
        return
    text = _words(answer.body)
    message = f"{what}: HTTP {status}" + (f": {text}" if text else "")
    if status == 429:
        raise RateLimited(message, retry_after=limits.wish, status=status)
    if status in (408, 425) or (status >= 500 and status != 501):
        raise Retryable(message, retry_after=limits.wish, status=status)
    if status in (401, 403):
        raise AuthError(message, status=status)
    if status == 409:
        raise Conflict(message, status=status)
    if status == 413:
        raise TooLarge(message, status=status)
    raise Permanent(message, status=status)


def _words(body: bytes) -> str:
    """What an answer says: the message of a JSON object where it has one, else its text."""
    with contextlib.suppress(ValueError, RecursionError):
        document = json.loads(body)
        document = document if isinstance(document, dict) else {}
        found = document.get("errors") or document.get("error") or document.get("message")
        found = found if isinstance(found, list) else [found]
        texts = [item.get("message") if isinstance(item, dict) else item for item in found]
        said = [text for text in texts if isinstance(text, str) and text]
        if said and len(said) == len(texts):
            return "; ".join(said)[:_LONGEST_WORDS].strip()
    return body[:_LONGEST_WORDS].decode("utf-8", "replace").strip()


def _cut(limits: Limits) -> str:
    """What to say of a wait that no server can mean."""
    asked = limits.asked or 0.0
    return f"; it asked for {asked:.0f} s, which is absurd and cut" if asked > MAX_WAIT_S else ""


_HostKey = tuple[tuple[str, str, int], bool]
"""Origin, and whether it is meant as a storage: where that is part of the server, one may be down without the other."""


@dataclass
class _Host:
    """What is known of one host, by all requests to it."""

    silent_since: float
    """It has answered nothing useful since then."""
    rests_until: float = float("-inf")
    """It was given up; nothing is sent before then."""
    last_words: str = ""


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
        self.clock = clock
        self._rng = rng
        self._retry_for = retry_for
        self._reporter = reporter
        self._hide_in = hide
        self._lock = threading.Lock()
        self._hosts: dict[_HostKey, _Host] = {}
        self._told_until: dict[tuple[_HostKey, int | None], float] = {}
        self.puts_off = False
        """Whether uploads to a storage that is not there are given up soon. May be changed at any time."""
        self.has_put_off = False
        """Whether that has happened."""

    def call(
        self,
        request: Request,
        pacer: Pacer,
        *,
        what: str,
        read: Callable[[Answer], Result],
        retry_conflict: bool = False,
        cost: Cost = REQUEST,
        stream: StreamLane | None = None,
        divisible: bool = False,
        upload: bool = False,
    ) -> Result:
        """Send `request` and give what `read` makes of the answer.

        `read` may raise `Retryable` for an answer that cannot be trusted, e.g. one that was cut. With `retry_conflict` a 409
        gets a few attempts, unless it speaks of a deleted run. `cost` is what the request takes from the limits of its
        project, `stream` the lane of its run. A `divisible` body that did not get through in its time is not sent
        again as it is. An `upload` goes to a storage.

        Raises:
            Permanent, AuthError, Conflict, TooLarge: the server's last word.
            TooSlow: halves of the body may get through.
            OutOfTime: the budget is used up.
            Interrupted: the sync was stopped.
        """
        failures = refusals = conflicts = 0
        first_failure: float | None = None
        first_refusal = 0.0
        host = origin_of(request.url), upload
        while True:
            self._check_host(host, what)
            number = self._enter(pacer, cost, stream, what)
            limits, sent_at = _NO_LIMITS, self.clock.monotonic()
            try:
                answer = self._send(request)
                limits = read_limits(answer.headers, self.clock.time())
                if answer.status in REDIRECTS and "location" in answer.headers:
                    raise Permanent(explain(what, request, answer, self._hide_in), status=answer.status)
                raise_for_status(answer, what, limits)
                result = read(answer)
            except RateLimited as error:
                now = self.clock.monotonic()
                first_refusal = first_refusal if refusals else now
                refusals += 1
                self._answered(host)
                first_failure = None  # it is there, and how long it wants to be left alone counts for nothing
                if refusals >= _REFUSALS_BEFORE_GIVING_UP and now - first_refusal >= self._retry_for:
                    raise OutOfTime(f"{error}; refused {counted(refusals, 'time')}", cause=error) from error
                wait = pacer.refused(limits, learns=stream is None or not stream.refused())
                if pacer.is_news():
                    self._reporter(Paused(what, f"the server's rate limit (429){_cut(limits)}", wait))
            except Conflict as error:
                self._answered(host)
                pacer.accepted(limits, number)
                conflicts += 1
                if not retry_conflict or conflicts >= _CONFLICT_ATTEMPTS or "deleted" in str(error).lower():
                    raise
                self._wait((host, error.status), what, str(error), full_jitter(self._rng, conflicts), conflicts)
            except Retryable as error:
                now = self.clock.monotonic()
                first_failure = now if first_failure is None else first_failure
                since = min(first_failure, self._silent(host, now))
                wait = full_jitter(self._rng, failures)
                asked = ""
                if error.retry_after:
                    asked = _cut(limits) or f"; it asked for {error.retry_after:.0f} s"
                    wait = error.retry_after + self._rng.uniform(0.0, min(2.0, 0.1 * error.retry_after))
                    if error.status == 503:
                        pacer.close(error.retry_after)  # the server is busy for everybody
                elif error.status is not None:
                    pacer.accepted(limits, number)
                budget = self._budget(host)
                if now + wait - since > budget:
                    self.has_put_off |= self._is_put_off(host)
                    self._give_up(host, min(since, now - budget), now - sent_at, str(error))
                    raise OutOfTime(f"{error}{asked}; gave up after {now - since:.0f} s", cause=error) from error
                failures += 1
                if divisible and error.late and request.length >= SMALLEST_DIVISIBLE:
                    raise TooSlow(f"{error}; sending less at a time") from error
                self._wait((host, error.status), what, f"{error}{asked}", wait, failures)
            except Permanent:
                self._answered(host)
                pacer.accepted(limits, number)
                raise
            else:
                self._answered(host)
                pacer.accepted(limits, number)
                return result

    def _enter(self, pacer: Pacer, cost: Cost, stream: StreamLane | None, what: str) -> float:
        """Wait for this request's turn; its number in its lane."""
        if stream is not None:
            stream.wait()
        return pacer.wait(
            cost, lambda seconds: self._reporter(Paused(what, "the lane of the project is closed", seconds))
        )

    def _send(self, request: Request) -> Answer:
        """One attempt. Neither answer nor error holds the key, should the server (or a proxy before it) repeat what it was sent."""
        try:
            answer = self._transport.send(request)
        except SyncError as error:  # which may quote an answer that is none
            error.args = (self._hide_in(str(error).encode("utf-8", "replace")).decode(), *error.args[1:])
            error.__cause__, error.__suppress_context__ = None, True
            raise
        hidden = self._hide_in(answer.body)
        return answer if hidden == answer.body else replace(answer, body=hidden)

    def _wait(self, key: tuple[_HostKey, int | None], what: str, words: str, seconds: float, attempt: int) -> None:
        """Wait, and say so unless another worker has said the same (host and status) and still waits."""
        now = self.clock.monotonic()
        with self._lock:
            is_news = now >= self._told_until.get(key, now)
            if is_news:
                self._told_until[key] = now + seconds
        if is_news:
            self._reporter(Retrying(what, words, seconds, self.clock.time() + seconds, attempt))
        self.clock.sleep(seconds)

    # -- what all requests to a host know of it ----------------------------------------------------------------------

    def _check_host(self, key: _HostKey, what: str) -> None:
        """Do without an attempt that has just cost others a long wait for nothing."""
        with self._lock:
            host = self._hosts.get(key)
        now = self.clock.monotonic()
        if host is not None and now < host.rests_until and now - host.silent_since >= self._budget(key):
            self.has_put_off |= self._is_put_off(key)
            words = f"{what}: not sent, as the host was given up: {host.last_words}"
            raise OutOfTime(words, cause=Retryable(host.last_words))

    def _budget(self, key: _HostKey) -> float:
        """For how many seconds a host may answer nothing useful."""
        return _PATIENCE_S if self._is_put_off(key) else self._retry_for

    def _is_put_off(self, key: _HostKey) -> bool:
        return key[1] and self.puts_off and self._retry_for > _PATIENCE_S

    def _silent(self, key: _HostKey, now: float) -> float:
        """Since when a host has answered nothing useful, to anybody."""
        with self._lock:
            return self._hosts.setdefault(key, _Host(now)).silent_since

    def _give_up(self, key: _HostKey, silent_since: float, took: float, words: str) -> None:
        """From now on one failure is enough, until the host answers again; and no worker waits long for the next one."""
        rest = min(_LONGEST_REST_S, _PROBE_SHARE * took)
        with self._lock:
            self._hosts[key] = _Host(silent_since, self.clock.monotonic() + rest, words)

    def _answered(self, key: _HostKey) -> None:
        with self._lock:
            self._hosts.pop(key, None)
