"""What a sync is doing at a moment, as its events tell: for whoever shows it to a person. Each event costs O(1)."""

from __future__ import annotations

import re
from collections import Counter, deque
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

from .report import Event, FileProgress, Paused, Planned, Progress, Retrying, RunReport, Started, Verdict

RATE_WINDOW_S = 10.0
"""Rates are means over so many seconds."""
_SAMPLE_EVERY_S = 0.5
_MOST_WAITS = 256
_NAMES = 3  # that a group of logs lists


@dataclass
class Active:
    """A log that is being sent. Times in seconds of the board's clock."""

    run: str
    target: str
    rows: int
    of: int
    began: float
    files: int = 0
    files_of: int = 0
    first: int = 0
    """Rows that were there when it began."""
    estimated: bool = False
    """`of` is: the log is sent while it is read."""

    def rate(self, now: float) -> float:
        """Rows per second since it began."""
        return (self.rows - self.first) / max(now - self.began, 0.001)


@dataclass(frozen=True)
class Wait:
    """A request that waits, until `until` of the board's clock. `attempt` is 0 for a lane that is closed."""

    what: str
    reason: str
    until: float
    attempt: int = 0


@dataclass
class _Begun:
    """What is kept of a log once it was sent from."""

    run: str = ""
    target: str = ""
    at: int = -1
    """Rows acknowledged over all syncs; -1: not known."""
    sent: int = 0
    files: int = 0


@dataclass
class Board:
    """The state of a sync. Belongs to one thread at a time."""

    now: Callable[[], float]
    runs: int = 0
    logs: int = 0
    active: dict[str, Active] = field(default_factory=dict)
    """By log, in the order in which they began."""
    verdicts: dict[str, Verdict] = field(default_factory=dict)
    """The last one of each log."""
    undone: dict[str, RunReport] = field(default_factory=dict)
    """Logs that are not at the server whole, or that were left alone."""
    sent: int = 0
    """Rows acknowledged in this sync by now."""
    files_sent: int = 0
    closed: Wait | None = None
    """The lane that was closed last."""
    began: float = 0.0
    _waits: dict[str, Wait] = field(default_factory=dict)
    _samples: deque[tuple[float, int]] = field(default_factory=deque)
    _begun: dict[str, _Begun] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.began = self.now()
        self._samples.append((self.began, 0))

    def __call__(self, event: Event) -> None:
        """Take an event into account."""
        now = self.now()
        if isinstance(event, Planned):
            self.runs, self.logs = event.runs, event.logs
        elif isinstance(event, Started):
            there = event.rows - event.new_rows
            self.active[event.log] = Active(
                event.run, event.target, there, event.rows, now, first=there, estimated=event.estimated
            )
            begun = self._begun.setdefault(event.log, _Begun())
            begun.run, begun.target, begun.at = event.run, event.target, there
        elif isinstance(event, Progress):
            self._progress(event, now)
        elif isinstance(event, FileProgress) and event.log in self.active:
            log = self.active[event.log]
            log.files, log.files_of = event.files, event.of
        elif isinstance(event, Retrying):
            self._wait(Wait(event.what, event.reason, now + event.wait, event.attempt))
        elif isinstance(event, Paused):
            wait = Wait(event.what, event.reason, now + event.wait)
            if self.closed is None or wait.until > self.closed.until:
                self.closed = wait
        elif isinstance(event, RunReport):
            self._done(event)
        self._sample(now)

    def _progress(self, event: Progress, now: float) -> None:
        begun = self._begun.setdefault(event.log, _Begun())
        more = max(0, event.rows - begun.at) if begun.at >= 0 else 0
        begun.sent += more
        self.sent += more
        log = self.active.get(event.log)
        if log is None and self.verdicts.get(event.log) is Verdict.LIVE:  # a watch has come back to it
            log = Active(begun.run, begun.target, begun.at, event.of, now, first=begun.at)
            self.active[event.log] = log
        begun.at = event.rows
        if log is not None:
            log.rows, log.of, log.estimated = event.rows, event.of, event.estimated
            self._waits.pop(f"rows of {log.run}", None)

    def _done(self, report: RunReport) -> None:
        log = self.active.pop(report.log, None)
        if log is not None:
            self._waits.pop(f"rows of {log.run}", None)
        begun = self._begun.setdefault(report.log, _Begun())
        # (A watch tells the totals of a log each time.)
        rows, files = max(begun.sent, report.rows_sent), max(begun.files, report.files_sent)
        self.sent += rows - begun.sent
        self.files_sent += files - begun.files
        begun.sent, begun.files = rows, files
        self.verdicts[report.log] = report.verdict
        if report.verdict in {Verdict.SYNCED, Verdict.LIVE}:
            self.undone.pop(report.log, None)
        else:
            self.undone[report.log] = report

    def _wait(self, wait: Wait) -> None:
        self._waits.pop(wait.what, None)  # the newest one stands last
        self._waits[wait.what] = wait
        if len(self._waits) > _MOST_WAITS:
            del self._waits[next(iter(self._waits))]

    def _sample(self, now: float) -> None:
        samples = self._samples
        if now - samples[-1][0] >= _SAMPLE_EVERY_S:
            samples.append((now, self.sent))
            while len(samples) > 2 and now - samples[1][0] >= RATE_WINDOW_S:
                samples.popleft()

    def rate(self) -> float:
        """Rows per second of late."""
        self._sample(self.now())
        at, rows = self._samples[0]
        return max(0.0, (self.sent - rows) / max(self.now() - at, 1.0))

    @property
    def waits(self) -> list[Wait]:
        """The requests that wait now, newest last."""
        now = self.now()
        return [wait for wait in self._waits.values() if wait.until > now]

    @property
    def closed_for(self) -> float:
        """Seconds until the lane opens that was closed last; 0 where none is closed."""
        return max(0.0, self.closed.until - self.now()) if self.closed is not None else 0.0

    @property
    def seconds_left(self) -> float | None:
        """About how long it will still take, by how long it took so far; None where nothing tells."""
        now, done = self.now(), len(self.verdicts)
        if self.logs > done + len(self.active):
            return (now - self.began) * (self.logs - done) / done if done else None
        rates = [(log.of - log.rows, log.rate(now)) for log in self.active.values() if log.of > log.rows]
        return max((left / rate for left, rate in rates), default=None) if all(rate for _, rate in rates) else None

    def counts(self) -> dict[str, int]:
        """Verdict -> number of logs."""
        return dict(Counter(verdict.value for verdict in self.verdicts.values()))


@dataclass(frozen=True)
class Group:
    """Logs that share verdict and reason."""

    verdict: Verdict
    reason: str
    """As the first of them has it."""
    count: int
    names: tuple[str, ...]
    """The first few."""


def groups(reports: Iterable[RunReport]) -> list[Group]:
    """Reports by verdict and reason, largest group first; reasons that differ in numbers or run id only count as one."""
    found: dict[tuple[Verdict, str], list[RunReport]] = {}
    for report in reports:
        found.setdefault((report.verdict, shape(report.reason, report.run)), []).append(report)
    listed = [
        Group(verdict, same[0].reason, len(same), tuple(report.log for report in same[:_NAMES]))
        for (verdict, _), same in found.items()
    ]
    return sorted(listed, key=lambda group: -group.count)


def shape(reason: str, run: str | None = None) -> str:
    """A reason without what differs from one run, moment or attempt to the next."""
    return re.sub(r"\d+(?:\.\d+)?", "#", reason.replace(run, "RUN") if run else reason)
