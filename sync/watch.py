"""Following runs that are still being written: sync passes, each over the logs that have grown since the one before.

The logs are found and looked at again and again (names and sizes: it works on network file systems, which announce
nothing), and a log that has not grown costs nothing else: it is not opened, and nothing is asked of the server for it.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from pathlib import Path

from ..logformat import find_logs
from .clock import Clock
from .credentials import Credentials, find_credentials
from .engine import sync
from .errors import UsageError
from .lookout import NEVER, Lookout, WatchedLog, is_one_run
from .news import News
from .plan import Paths, expanded, group, read_head
from .readings import Readings
from .report import Finished, Planned, Report, Reporter, RunReport, Verdict, silent
from .session import Session
from .settings import SyncSettings, find_base_url
from .transport import Transport

INTERVAL_S = 1.0
"""Seconds between two looks, so that a new row is on its way within two seconds."""
REST = 4
"""A round is followed by a rest of so many times the CPU time that it took: a watch takes a fifth of a core at most."""
FIRST_RETRY_S, LAST_RETRY_S = 5.0, 60.0


@dataclass(frozen=True)
class Watching:
    """How a watch goes on and when it ends. Times in seconds."""

    interval: float = INTERVAL_S
    idle: float | None = None
    """End when nothing has grown for so long; None: not for that reason."""
    writer_lives: Callable[[], bool] | None = None
    """Whether the process that writes the logs is there, where that is known: it decides then, and not their age,
    whether a log without an end may grow. Such a watch is nobody's errand: once the logs have ended it does not wait for
    a server longer than a sync does (`SyncSettings.retry_for`)."""

    def __post_init__(self) -> None:
        if not 0.1 <= self.interval <= 3600:
            raise UsageError("interval: 0.1 to 3600 seconds")
        if self.idle is not None and not self.idle >= 0:  # NaN is not
            raise UsageError("idle: a time is negative or no number")


def watch(
    paths: Paths = ("wandb",),
    settings: SyncSettings | None = None,
    watching: Watching | None = None,
    *,
    reporter: Reporter | None = None,
    key: Credentials | None = None,
    transport: Transport | None = None,
    clock: Clock | None = None,
    cpu: Callable[[], float] = time.process_time,
    session: Session | None = None,
) -> Report:
    """Keep the backend up with the logs below `paths` until they have ended.

    Where all paths are logs or run directories, it ends when each log has its exit record, or its run is found dead, and
    all that can be sent is sent. Below any other folder new runs may appear, so it goes on until nothing has grown for
    `watching.idle` seconds, or until it is interrupted; a first interrupt while it waits gets a last pass.

    Args:
        paths: as `sync` takes them; patterns are looked up once.
        settings: as `sync` takes them. The same holds for the next ones.
        watching: how often it looks, and when it ends.
        reporter: called with each event, but for those that say nothing new.
        key: who we are to the server; None looks it up in the environment and in netrc.
        transport: how requests are sent.
        clock: the time.
        cpu: seconds of CPU time that this process has taken.
        session: what this watch shares with others, instead of transport and clock; it is closed in the end.

    Raises:
        UsageError: a path does not exist, or a setting cannot be followed.
        NoCredentials: there is no API key.
    """
    settings = settings or SyncSettings(base_url=find_base_url())
    if settings.dry_run:
        raise UsageError("a watch sends what it finds: it cannot be a dry run")
    if settings.selects:
        raise UsageError("a watch follows all runs that it finds: a share or a filter is for a sync without --watch")
    session = session or Session(transport, clock)
    try:
        return _Watch(
            [Path(path) for path in expanded(paths)],
            settings,
            watching or Watching(),
            News(reporter or silent),
            key or find_credentials(settings.base_url),
            session,
            cpu,
        ).run()
    finally:
        session.close()


class _Watch:
    """One watch. Belongs to one thread."""

    def __init__(  # noqa: PLR0917 - made in one place
        self,
        paths: list[Path],
        settings: SyncSettings,
        watching: Watching,
        news: News,
        key: Credentials,
        session: Session,
        cpu: Callable[[], float],
    ) -> None:
        self._settings, self._watching = settings, watching
        self._news, self._key, self._session, self._cpu = news, key, session, cpu
        session.readings = Readings()
        self._clock = session.clock
        self._lookout = Lookout(paths, self._clock)
        self._gone: dict[str, RunReport] = {}
        """The last reports of logs that are not there any more."""
        self._shut: dict[str, RunReport] = {}
        """What is told of folders that could not be looked into at the last search."""
        self._stopped = False
        """A pass was interrupted, and the session with it."""
        self._stirred_at = self._clock.monotonic()
        """When anything last went on: growth, something sent, the writer's end."""
        self._told = (0, 0)
        self._orphaned = False
        for path in paths:
            try:
                find_logs(path)
            except FileNotFoundError as error:
                raise UsageError(str(error)) from None
        self._is_open = not all(map(is_one_run, paths))
        """Whether runs may appear that are not there yet."""

    def run(self) -> Report:
        """Watch until the end."""
        interrupted = False
        try:
            while not self._round():
                pass
        except KeyboardInterrupt:
            interrupted = True
        if interrupted and not self._stopped:
            self._last_round()
        reports = (
            self._gone
            | self._shut
            | {log.report.log: self._news.total(log.report) for log in self._logs() if log.report is not None}
        )
        report = Report(tuple(reports.values()), interrupted=interrupted)
        self._news.tell(Finished(report.exit_code, report.counts()))
        return report

    def _round(self) -> bool:
        """Look, send what is due, and rest; whether that was the last time.

        Raises:
            KeyboardInterrupt: the user wants an end.
        """
        began, looks_at = self._cpu(), self._clock.monotonic()
        self._look()
        took = self._clock.monotonic() - looks_at
        due = [log for log in self._logs() if log.is_due(self._clock.monotonic())]
        if due:
            self._pass(due)
        elif self._is_over():
            return True
        if any(log.report is not None and log.report.credentials for log in self._logs()):
            return True
        if not due or not self._is_over():
            self._clock.sleep(max(self._watching.interval, REST * (self._cpu() - began), took))
        return False

    def _last_round(self) -> None:
        """What has grown since the last pass is sent too; whoever is in a hurry interrupts again."""
        try:
            self._look()
            due = [log for log in self._logs() if log.looks != log.sent]
            if due:
                self._pass(due)
        except KeyboardInterrupt:
            return

    def _logs(self) -> Iterable[WatchedLog]:
        return self._lookout.logs.values()

    # -- looking -----------------------------------------------------------------------------------------------------

    def _look(self) -> None:
        """Find the logs, note how they look, and see which writers are gone."""
        for log in self._lookout.look():
            if log.report is not None:
                self._take_off(log, log.report)
        shut = {
            folder: RunReport(folder, None, Verdict.FAILED, problem) for folder, problem in self._lookout.shut.items()
        }
        for folder, report in shut.items():
            if self._shut.get(folder) != report:
                self._news.tell(report)
        self._shut = shut
        self._stirred_at = max(self._stirred_at, self._lookout.grew_at)
        self._see_writer()
        self._see_deaths()

    def _take_off(self, log: WatchedLog, report: RunReport) -> None:
        """Note the last report of a log that is not there any more."""
        if not log.is_settled:
            reason = "the log was taken away before its end was sent"
            report = replace(report, verdict=Verdict.FAILED, reason=reason, rows_sent=0, files_sent=0, try_again=False)
            self._news(report)
        self._gone[report.log] = self._news.total(report)

    def _see_deaths(self) -> None:
        """A log that has not grown, and whose writer is gone now, is due: its verdict changes."""
        for log in self._logs():
            if log.may_grow and log.looks == log.sent and not self._may_grow(log):
                log.may_grow = False
                log.again_at = max(log.not_before, self._clock.monotonic())

    def _may_grow(self, log: WatchedLog) -> bool:
        stale_after = self._pass_settings().stale_after
        return self._session.liveness.is_alive(log.path, log.modified, stale_after)

    def _see_writer(self) -> None:
        """Once the writer is gone, logs without an end have ended."""
        lives = self._watching.writer_lives
        if lives is None or self._orphaned or lives():
            return
        self._orphaned = True
        self._stirred_at = self._clock.monotonic()
        for log in self._logs():
            if log.waits:
                log.sent = None

    # -- sending -----------------------------------------------------------------------------------------------------

    def _pass(self, due: list[WatchedLog]) -> None:
        """Sync the runs of these logs: a run goes with all of its logs, for they are stitched.

        Raises:
            KeyboardInterrupt: the pass was stopped; what was acknowledged is noted in the cursors.
        """
        logs = self._runs_of(due)
        following = all(log.sent and not log.failures for log in logs)
        for log in logs:
            log.sent, log.may_grow = log.looks, self._may_grow(log)
        failed = self._sync(logs, following=following)
        if failed and following:  # the server may have lost the run meanwhile: it is announced anew
            self._sync(failed, following=False)
        self._settings = replace(self._settings, include_synced=False)  # all of it was sent again now, once

    def _sync(self, logs: list[WatchedLog], *, following: bool) -> list[WatchedLog]:
        """One sync; the logs that failed for another reason than time.

        Raises:
            KeyboardInterrupt: as `_pass`.
            UsageError: the environment says how to reach the server in a way that cannot be followed.
        """
        self._news.doubts = following
        self._news.verdicts.clear()
        interrupted = False
        try:
            interrupted = sync(
                [log.path for log in logs],
                replace(self._pass_settings(), following=following),
                reporter=self._news,
                key=self._key,
                session=self._session,
            ).interrupted
        except UsageError:
            if all(os.path.lexists(log.path) for log in logs):
                raise  # certificates or a proxy that cannot be used: no next pass changes that
            for log in logs:  # one was taken away between the look and now: the next look tells
                log.sent = None
            return []
        finally:  # an interrupt takes nothing of what was told
            self._news.doubts = False  # what is told between passes is the last word
            for log in logs:
                if log.path in self._news.verdicts:
                    self._judge(log, self._news.verdicts[log.path])
        if interrupted:
            self._stopped = True
            raise KeyboardInterrupt
        return [log for log in logs if log.report and log.report.verdict is Verdict.FAILED and not log.report.try_again]

    def _runs_of(self, due: list[WatchedLog]) -> list[WatchedLog]:
        """These logs, and the others of their runs."""
        wanted = set(due)
        for log in self._logs():
            if log.head is None or (log.head.problem and log in wanted):
                log.head = read_head(log.path)
        by_path = {log.path: log for log in self._logs()}
        heads = [log.head for log in self._logs() if log.head is not None and not log.head.problem]
        logs = [log for log in due if log.head is None or log.head.problem]
        plans = group(heads, self._settings)
        self._tell_count(len(plans))
        for plan in plans:
            run = [by_path[head.path] for head in plan.segments]
            if wanted.intersection(run):
                logs += run
        return logs

    def _pass_settings(self) -> SyncSettings:
        if self._watching.writer_lives is None:
            return self._settings
        return replace(
            self._settings,
            stale_after=0.0 if self._orphaned else NEVER,
            retry_for=min(self._settings.retry_for, LAST_RETRY_S),  # it looks again soon, and sees who has gone
        )

    def _judge(self, log: WatchedLog, report: RunReport) -> None:
        """When to come back to a log."""
        log.report = report
        now = self._clock.monotonic()
        if report.rows_sent or report.files_sent:
            self._stirred_at = now
        failed = report.try_again or report.verdict is Verdict.FAILED
        log.failures = log.failures + 1 if failed else 0
        log.not_before = now + min(LAST_RETRY_S, FIRST_RETRY_S * 2 ** (log.failures - 1)) if failed else 0.0
        # As it was before the pass: of a writer that has gone since, the pass does not know, and another one has to.
        log.may_grow = log.may_grow and not report.ended and report.verdict is not Verdict.SKIPPED
        log.waits = report.try_again or log.may_grow
        log.again_at = log.not_before if report.try_again else NEVER

    def _tell_count(self, runs: int) -> None:
        count = (runs, len(self._lookout.logs))
        if count != self._told:
            self._told = count
            self._news.tell(Planned(runs=runs, logs=count[1]))

    def _is_over(self) -> bool:
        now, idle = self._clock.monotonic(), self._watching.idle
        if idle is not None and now - self._lookout.grew_at >= idle:
            return True
        if self._watching.writer_lives is not None and now - self._stirred_at >= self._settings.retry_for:
            reports = [log.report for log in self._logs()]
            if self._orphaned or all(report is not None and report.ended for report in reports):
                return True
        may_appear = self._is_open and not self._orphaned
        return not may_appear and all(log.is_settled for log in self._logs())
