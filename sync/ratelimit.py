"""What a server says about its limits, read with distrust: garbage is ignored, absurd values are clamped.

Three dialects are understood, all with delta-seconds:

- `Retry-After: 3` or an HTTP date (RFC 9110, section 10.2.3);
- `RateLimit-Limit`, `RateLimit-Remaining`, `RateLimit-Reset`: one number each (draft-ietf-httpapi-ratelimit-headers up to
  06; what W&B speaks, with `Remaining` in units of its own);
- `RateLimit: "default";r=50;t=30` with `RateLimit-Policy: "default";q=100;w=60`: structured lists (draft 07 and later).

Times of day are compared with the answer's own `Date`, so a clock that is wrong, here or there, changes no wait.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import timezone

MAX_WAIT_S = 900.0  # the longest wait that a header can ask of us; then it is asked again
_LONGEST_S = 86_400.0  # of a window; a quota per day is the longest that servers are known to have
_EPOCH_FROM = 1e6  # a "delta" above this many seconds (11 days) is taken for an epoch time, as some servers send
_LONGEST_VALUE = 64  # characters of a number or a date
_LONGEST_LIST = 1024  # characters; a server with more policies than that does not say what holds for us
_OUTSIDE_TEXTS = {separator: re.compile(rf'{separator}(?=(?:[^"]*"[^"]*")*[^"]*\Z)') for separator in ",;"}
_NUMBER = re.compile(r"[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?", re.ASCII)
_NAME = re.compile(r'"[^"]*"|[A-Za-z*][\w.*-]*')
_KEY = re.compile(r"[a-z*][\w.*-]*")


@dataclass(frozen=True)
class Limits:
    """The limits of one answer. `remaining` is in the server's units, `reset` and `retry_after` in seconds from now."""

    remaining: float | None = None
    reset: float | None = None
    retry_after: float | None = None

    @property
    def asked(self) -> float | None:
        """For how many seconds the server wants to be left alone; None where it does not say."""
        return self.retry_after if self.retry_after is not None else self.reset

    @property
    def wish(self) -> float | None:
        """As `asked`, at most as long as we let anybody ask."""
        return min(self.asked, MAX_WAIT_S) if self.asked is not None else None


def read_limits(headers: Mapping[str, str], now: float) -> Limits:
    """Read the limits of an answer; `headers` in any case, `now` in epoch seconds. Never raises."""
    lower = {name.lower(): value.strip() for name, value in headers.items()}
    if "retry-after" in lower or "ratelimit-reset" in lower:  # which may be dates
        sent = _date(lower.get("date", ""))
        now = sent if sent is not None else now
    retry_after = _retry_after(lower.get("retry-after", ""), now)
    remaining = _number(lower.get("ratelimit-remaining", ""))
    reset = _delta(lower.get("ratelimit-reset", ""), now)
    if remaining is None and reset is None:
        remaining, reset = _structured(lower.get("ratelimit", ""), lower.get("ratelimit-policy", ""))
    return Limits(
        remaining,
        min(reset, _LONGEST_S) if reset is not None else None,
        min(retry_after, _LONGEST_S) if retry_after is not None else None,
    )


def _number(text: str) -> float | None:
    """A finite number >= 0 in plain digits, or None."""
    if len(text) > _LONGEST_VALUE or not _NUMBER.fullmatch(text):
        return None
    value = float(text)
    return value if math.isfinite(value) and value >= 0 else None


def _delta(text: str, now: float) -> float | None:
    value = _number(text)
    if value is not None and value > _EPOCH_FROM:
        value = value - now
        return value if value >= 0 else None
    return value


def _retry_after(text: str, now: float) -> float | None:
    """Seconds; a date in the past says nothing."""
    value = _number(text)
    if value is not None:
        return value
    date = _date(text)
    return date - now if date is not None and date > now else None


def _date(text: str) -> float | None:
    """An HTTP date as epoch seconds; one without a zone is UTC, as all HTTP dates are."""
    if not text or len(text) > _LONGEST_VALUE:
        return None
    from email.utils import parsedate_to_datetime  # few servers send dates, and it loads much

    try:
        date = parsedate_to_datetime(text)
        return (date if date.tzinfo is not None else date.replace(tzinfo=timezone.utc)).timestamp()
    except (ValueError, TypeError, OverflowError, IndexError):
        return None


def _structured(limit: str, policy: str) -> tuple[float | None, float | None]:
    """The tightest item of a `RateLimit` list that has both `r` and `t` (or the window `w` of its policy)."""
    windows = {name: parameters.get("w") for name, parameters in _items(policy)}
    best: tuple[float, float] | None = None
    for name, parameters in _items(limit):
        remaining, reset = parameters.get("r"), parameters.get("t", windows.get(name))
        if remaining is None or reset is None:
            continue
        if best is None or remaining / max(reset, 1e-9) < best[0] / max(best[1], 1e-9):
            best = (remaining, reset)
    return best if best is not None else (None, None)


def _items(text: str) -> list[tuple[str, dict[str, float]]]:
    """The items of a structured list with their numeric parameters; a malformed list is ignored as a whole."""
    items: list[tuple[str, dict[str, float]]] = []
    if not text.strip() or len(text) > _LONGEST_LIST or text.count('"') % 2:
        return items
    for item in _OUTSIDE_TEXTS[","].split(text):
        name, *pairs = (part.strip() for part in _OUTSIDE_TEXTS[";"].split(item))
        if not _NAME.fullmatch(name):
            return []
        parameters = {}
        for pair in pairs:
            key, _, value = pair.partition("=")
            if not _KEY.fullmatch(key):
                return []
            number = _number(value.strip('"'))
            if number is not None:
                parameters[key] = number
        items.append((name.strip('"'), parameters))
    return items
