"""What a sync tells while it works, and what it has to say in the end.

Every event is a small dataclass; `as_json` gives the object that `runferry sync --json` prints, one per line with a `type`.
"""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Callable, Iterable
from dataclasses import asdict, dataclass, field
from enum import Enum
from typing import Any, ClassVar

from ..logformat.words import counted as counted  # noqa: PLC0414 - whoever words a report finds it here

NOTHING_NEW = "nothing new"
"""The reason of a verdict that stands because nothing has changed since it was given."""
NOTHING_YET = "no record yet: the run begins"
"""The reason of a verdict on a log that does not say yet which run it is."""


class Verdict(str, Enum):
    """What became of one log. Only `SYNCED` says that the server acknowledged everything."""

    SYNCED = "synced"
    LIVE = "live"
    """Everything that is there was sent; the run still goes on."""
    PARTIAL = "partial"
    """Sent what could be; the reason names what is missing."""
    FAILED = "failed"
    SKIPPED = "skipped"


@dataclass(frozen=True)
class Event:
    """Base of what a reporter is told."""

    type: ClassVar[str] = "event"

    def as_json(self) -> dict[str, Any]:
        """The event as a JSON object with its `type`."""
        return {"type": self.type, **asdict(self)}


@dataclass(frozen=True)
class Planned(Event):
    """What is going to be looked at, before anything is sent: the runs that are meant and their logs, and logs of no run."""

    type: ClassVar[str] = "plan"
    runs: int
    logs: int


@dataclass(frozen=True)
class Started(Event):
    """A log's turn has come. `rows` are the history rows that it holds, `new_rows` those that are not on the server yet."""

    type: ClassVar[str] = "run_started"
    log: str
    run: str
    target: str
    rows: int
    new_rows: int
    estimated: bool = False
    """The log is sent while it is read: how many rows it has is told by its size."""


@dataclass(frozen=True)
class Progress(Event):
    """Rows of this log that the server has acknowledged by now, over all syncs."""

    type: ClassVar[str] = "progress"
    log: str
    rows: int
    of: int
    estimated: bool = False
    """`of` is; see `Started`."""


@dataclass(frozen=True)
class FileProgress(Event):
    """Files of this run that the server has by now, of those that it is to get; told when one has arrived."""

    type: ClassVar[str] = "files"
    log: str
    """The run's newest log."""
    files: int
    of: int
    artifact: str = ""
    """The artifact that they are of; else they are the run's own."""


@dataclass(frozen=True)
class WouldSend(Event):
    """What a dry run found in one log. What is there already is the difference between a count and its `new_` part."""

    type: ClassVar[str] = "would_send"
    log: str
    run: str
    target: str
    """`entity/project/run`; the entity is empty where the server chooses it for the key."""
    server: str
    """Base URL."""
    rows: int
    new_rows: int
    samples: int
    console_lines: int
    log_bytes: int
    new_bytes: int
    """Bytes of the log behind what the cursor knows as acknowledged."""
    files: int = 0
    """Saved files that can be read; told with the run's newest log, like their bytes, `artifacts` and `alerts`."""
    file_bytes: int = 0
    artifacts: int = 0
    alerts: int = 0
    new_samples: int = 0
    """Of the samples those that are not at the server yet, as far as the cursor knows; so it is with what follows."""
    new_console_lines: int = 0
    new_files: int = 0
    new_file_bytes: int = 0
    new_artifacts: int = 0
    new_alerts: int = 0
    nothing: bool = False
    """The cursor says that all of the log was sent, and nothing has changed since."""


@dataclass(frozen=True)
class Retrying(Event):
    """A request failed and goes again after `wait` seconds, at epoch time `at`."""

    type: ClassVar[str] = "retry"
    what: str
    reason: str
    wait: float
    at: float
    attempt: int
    """The one that failed; the first is 1."""


@dataclass(frozen=True)
class Paused(Event):
    """The project's lane is closed for `wait` seconds."""

    type: ClassVar[str] = "paused"
    what: str
    reason: str
    wait: float


@dataclass(frozen=True)
class RunReport(Event):
    """The last word on one log."""

    type: ClassVar[str] = "run_done"
    log: str
    run: str | None
    verdict: Verdict
    reason: str
    """One line. Empty where the verdict says it all."""
    target: str | None = None
    """`entity/project/run` at the server, once known."""
    rows: int = 0
    """History rows in the log."""
    rows_sent: int = 0
    """History rows sent by this sync."""
    files_sent: int = 0
    missing: tuple[str, ...] = ()
    """What is not at the server: gaps, dropped keys, files; one line each."""
    try_again: bool = False
    """Nothing but time stands in the way: no answer from the server, or another sync holds the log."""
    credentials: bool = False
    """The server did not know the key."""
    ended: bool = False
    """The log has its exit record, or a later log of its run goes on where it stopped: it will not grow."""
    url: str | None = None
    """The run's page at the server, once it is known."""
    estimated: bool = False
    """The log was not read to its end: `rows` is told by its size."""


@dataclass(frozen=True)
class Cleaned(Event):
    """What became of the directories of a run: `deleted`, `deletable` (nobody asked for it), `kept` or `failed`."""

    type: ClassVar[str] = "clean"
    run: str
    logs: tuple[str, ...]
    bytes: int
    """Of all files in its directories; 0 where they were not looked at."""
    fate: str
    reason: str
    """Why it was not deleted."""


@dataclass(frozen=True)
class Finished(Event):
    """The end of the command."""

    type: ClassVar[str] = "done"
    exit_code: int
    counts: dict[str, int] = field(default_factory=dict)
    left_out: dict[str, int] = field(default_factory=dict)
    """Runs that were not asked for, by what left them out: `shard`, `newer`, `state`, `tag`, `min_rows`."""


EVENTS: tuple[type[Event], ...] = (
    Planned,
    Started,
    Progress,
    FileProgress,
    WouldSend,
    Retrying,
    Paused,
    RunReport,
    Cleaned,
    Finished,
)
"""Everything that a reporter may be told, in about the order in which it comes."""

Reporter = Callable[[Event], None]


@dataclass(frozen=True)
class Report:
    """What `sync` returns."""

    runs: tuple[RunReport, ...]
    interrupted: bool = False
    left_out: dict[str, int] = field(default_factory=dict)
    """Runs that were not asked for, as `Finished` has it."""

    @property
    def exit_code(self) -> int:
        """0 all done; 1 some partial or failed; 2 the key was refused; 75 only time is missing; 130 interrupted."""
        if self.interrupted:
            return 130
        undone = [run for run in self.runs if run.try_again or run.verdict in (Verdict.FAILED, Verdict.PARTIAL)]
        if any(run.credentials for run in undone):
            return 2
        if undone:
            return 75 if all(run.try_again for run in undone) else 1
        return 0

    @property
    def verdicts(self) -> dict[str, Verdict]:
        """Log path -> verdict."""
        return {run.log: run.verdict for run in self.runs}

    def counts(self) -> dict[str, int]:
        """Verdict -> number of logs."""
        counts: dict[str, int] = {}
        for run in self.runs:
            counts[run.verdict.value] = counts.get(run.verdict.value, 0) + 1
        return counts


def elapsed(seconds: float) -> str:
    """A span of time in its largest unit."""
    for length, unit in ((86_400, "d"), (3_600, "h"), (60, "min")):
        if seconds >= length:
            return f"{seconds / length:.0f} {unit}"
    return f"{max(0, seconds):.0f} s"


def shorten(items: Iterable[str], limit: int = 3, separator: str = ", ") -> str:
    """The first few of `items`, and how many more there are."""
    listed = list(items)
    more = f" and {len(listed) - limit} more" if len(listed) > limit else ""
    return separator.join(listed[:limit]) + more


class Several:
    """A reporter that tells others. One that fails is told no more: a closed pipe takes nothing from a report file."""

    def __init__(self, *reporters: Reporter) -> None:
        self._reporters = list(reporters)

    def __call__(self, event: Event) -> None:
        """Tell each of them."""
        for reporter in tuple(self._reporters):
            try:
                reporter(event)
            except Exception as error:  # whatever it is, the sync goes on
                self._reporters.remove(reporter)
                tell_of_silence(error)


def tell_of_silence(error: Exception) -> None:
    """Say that a reporter failed and is told no more. Raises nothing: standard error may be what failed."""
    if sys.stderr is not None:
        with contextlib.suppress(OSError, ValueError):
            print(f"runferry: no more progress shown: {error}", file=sys.stderr)  # noqa: T201 - there is no other way left


def silent(event: Event) -> None:  # a reporter for callers who want none
    """The reporter that tells nobody."""
