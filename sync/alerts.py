"""Alerts of a run: each is told once, when the rows before it are at the server.

The cursor remembers which were told, by the places of their records in the log. It is saved before the next one goes, so a
kill repeats one alert at most; a server that still remembers that one (`wait_duration`) leaves it out. The other way
round, noting it before it is told, a kill could lose it, which is worse.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from .errors import AuthError, Interrupted, OutOfTime, SyncError

if TYPE_CHECKING:
    from .segment import Segment
    from .work import RunWork

_SEVERITIES = frozenset({"INFO", "WARN", "ERROR"})


def send_alerts(work: RunWork) -> None:
    """Tell what was not told yet. An alert that the server refuses is named in the verdict, and tried by the next sync.

    Raises:
        AuthError: the server does not know the key.
        Interrupted: the sync was stopped.
        OSError: a cursor cannot be written.
    """
    for segment in work.segments:
        if segment.found.alerts:
            _send_those_of(segment, work)


def _send_those_of(segment: Segment, work: RunWork) -> None:
    cursor, remote = segment.position, work.remote()
    before = -1
    for alert in segment.found.alerts:
        last, before = before, alert.offset
        if was_told(alert.offset, cursor.alerts):
            continue
        severity = alert.level if alert.level in _SEVERITIES else "INFO"
        try:
            work.context.api.notify(remote, alert.title, alert.text, severity, round(alert.wait_seconds * 1000))
        except Interrupted:
            raise
        except SyncError as error:
            if isinstance(error, AuthError) and error.status == 401:
                raise
            work.missing.append(f"alert {alert.title[:80]!r}: {error}")
            work.late += isinstance(error, OutOfTime)
            continue
        cursor.alerts = and_this(alert.offset, last, cursor.alerts, segment.found.gaps())
        cursor.save(segment.places.cursor)


def was_told(offset: int, told: Iterable[Sequence[int]]) -> bool:
    """Whether the alert at `offset` lies in one of the stretches of the log whose alerts were `told`."""
    return any(first <= offset <= last for first, last in told)


def and_this(
    offset: int, before: int, told: list[tuple[int, int]], gaps: Iterable[tuple[int, int]]
) -> list[tuple[int, int]]:
    """`told` with the alert at `offset`, in the stretch of the alert `before` it if that was told.

    A stretch never reaches over damage: a better copy of the log may have an alert there that nobody has seen yet.
    """
    whole = not any(before < end and start < offset for start, end in gaps)
    for index, (first, last) in enumerate(told):
        if whole and last == before:
            return [*told[:index], (first, offset), *told[index + 1 :]]
    return [*told, (offset, offset)]
