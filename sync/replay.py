"""One run from its logs to the server: lock, read, contact, rows, files, last word, verdict.

Rows go before files, and files have a lane of their own: a file that cannot be brought over never stops a row. The exit is
the last thing sent, when every row is acknowledged, so a run that shows as finished has all its rows.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
from collections.abc import Iterator
from dataclasses import astuple

from ..logformat import RunState
from . import contact, runconfig, runfiles, verdict
from .alerts import send_alerts
from .api import RemoteRun, RunFields
from .artifacts import send_artifacts
from .context import Context
from .cursor import VERSION, Cursor, Lines
from .dryrun import dry_run
from .errors import AuthError, Conflict, Interrupted, OutOfTime, Refused, SyncError
from .filelane import send_files
from .lock import Lock, LockedError
from .plan import RunPlan
from .report import NOTHING_NEW, Progress, RunReport, Started, Verdict
from .rowlane import LastWord, RowLane, gather_console
from .scan import Facts, NeedsFold, scan
from .segment import Segment
from .work import RunWork


class RunReplay:
    """Brings one run to the server. `run` never raises but for a stop."""

    def __init__(self, plan: RunPlan, context: Context) -> None:
        self.plan = plan
        self.context = context
        self.work = RunWork.of(plan, context)
        self.segments = self.work.segments

    # -- the whole of it ---------------------------------------------------------------------------------------------

    def run(self) -> list[RunReport]:
        """Sync all segments; one report for each.

        Raises:
            Interrupted: the sync was stopped. What was acknowledged is in the cursors.
        """
        context, work = self.context, self.work
        if context.denied:
            return verdict.failed(work, context.denied, credentials=True)
        if not context.settings.include_synced and all(segment.is_foreign_synced() for segment in self.segments):
            reason = "marked as synced by another tool; --include-synced sends it all the same"
            return verdict.failed(work, reason, Verdict.SKIPPED)
        try:
            with self._locks():
                return self._sync()
        except LockedError as error:
            return verdict.failed(work, str(error), Verdict.SKIPPED, try_again=True)
        except Interrupted:
            raise
        except AuthError as error:
            if error.status == 401:
                context.denied = f"the server does not accept the API key: {error}"
                return verdict.failed(work, context.denied, credentials=True)
            return verdict.failed(work, str(error))
        except Conflict as error:
            return verdict.failed(work, f"{error}; --id NEW sends it as another run")
        except OutOfTime as error:
            sent = any(segment.cursor is not None and segment.cursor.sent.history for segment in self.segments)
            return verdict.failed(work, str(error), Verdict.PARTIAL if sent else Verdict.FAILED, try_again=True)
        except SyncError as error:
            return verdict.failed(work, str(error))
        except OSError as error:
            name = f"{error.filename}: " if error.filename else ""
            return verdict.failed(work, f"{name}{error.strerror or error}")

    def read(self) -> RunWork:
        """Load the cursors and read the logs, and nothing else: for whoever wants to know what they hold.

        Raises:
            OSError: a log cannot be read.
        """
        for segment in self.segments:
            segment.load_cursor(self.work.target)
        self._scan()
        return self.work

    def _sync(self) -> list[RunReport]:
        work = self.work
        for segment in self.segments:
            segment.load_cursor(work.target, again=self.context.settings.include_synced)
        settings = self.context.settings
        forced = settings.include_synced or settings.dry_run or settings.changes_run
        if not forced and all(segment.is_done() for segment in self.segments):
            return verdict.finish(work, NOTHING_NEW)
        self._scan()
        fields = runconfig.run_fields(work.state, self.plan, self.context.settings)
        if self.context.settings.dry_run:
            return dry_run(work)
        console_file = runfiles.ConsoleFile()
        with contextlib.closing(console_file):
            if work.folds_later or self._has_news(fields):
                self._contact(fields)
                self._send_rows(console_file)
            else:
                for segment in self.segments:
                    if segment.found.lines.console:
                        gather_console(segment.found, console_file)
            send_alerts(work)
            send_artifacts(work)
            summary, dropped = work.summary()
            send_files(work, summary, console_file)
        work.last.missing += dropped
        return verdict.finish(work, "")

    # -- before anything is sent -------------------------------------------------------------------------------------

    @contextlib.contextmanager
    def _locks(self) -> Iterator[None]:
        """Hold the locks of all segments."""
        locks: list[Lock] = []
        try:
            for segment in self.segments if not self.context.settings.dry_run else []:
                segment.places.make_folder()
                lock = Lock(segment.places.lock, self.context.clock)
                lock.acquire()
                locks.append(lock)
                self.context.heartbeat.add(lock)
            yield
        finally:
            for lock in locks:
                self.context.heartbeat.remove(lock)
                lock.release()

    def _scan(self) -> None:
        """Read the logs for the first time."""
        only = self.segments[0] if len(self.segments) == 1 else None
        if only is not None and only.cursor is None and not self.context.settings.dry_run:
            # All rows are going to be read again and sent: they are folded then, and not twice.
            try:
                only.facts = self._scan_one(only, fold_rows=False)
            except NeedsFold:
                self.work.state = RunState(keep_rows=False)
            else:
                self.work.folds_later = True
                return
        for segment in self.segments:
            facts = segment.facts = self._scan_one(segment, fold_rows=True)
            cursor = segment.cursor
            if cursor is None:
                continue
            if cursor.lost_less(facts.gaps()) or (cursor.version == 1 and facts.parts):
                cursor.start_again()
                segment.rows_before = 0
            cursor.version = VERSION

    def _scan_one(self, segment: Segment, *, fold_rows: bool) -> Facts:
        head, young = segment.head, self.work.is_young(segment)
        return scan(head.path, self.work.state, start_ns=head.start_ns, young=young, fold_rows=fold_rows)

    def _has_news(self, fields: RunFields) -> bool:
        """Whether a row, the config or the summary differs from what the server acknowledged."""
        for segment in self.segments:
            if segment.cursor is None or segment.cursor.offset != segment.found.end:
                return True
        places = contact.stitch(self.work.kept_start(), [segment.found for segment in self.segments])
        moved = any(
            (segment.position.base, segment.position.step_shift) != place
            for segment, place in zip(self.segments, places, strict=True)
        )
        config = self.work.last.position.config
        return moved or config != _fields_hash(fields) or self.work.changed_summary() is not None

    # -- contact -----------------------------------------------------------------------------------------------------

    def _unchanged(self, fields: RunFields) -> RemoteRun | None:
        """The run as the server named it, where that was just now and there is nothing new to say of it."""
        cursor = self.work.last.cursor
        if not self.context.settings.following or cursor is None or cursor.config != _fields_hash(fields):
            return None
        return self.work.remote()

    def _contact(self, fields: RunFields) -> None:
        """Make or find the run at the server, and fix where the lines of each segment go."""
        facts = [segment.found for segment in self.segments]
        for segment in self.segments:
            segment.places.unmark()  # whatever a marker said, it does not hold any more
        known = next((segment.cursor for segment in self.segments if segment.cursor is not None), None)
        start = self.work.kept_start()
        unasked = False
        if known is None:
            status = contact.ask(self.context.api, self.plan)
            start = contact.first_contact(status, self.plan, facts, self.work.state)
            unasked = status is None
        elif (
            self.segments[0].cursor is None
            and known.base != Lines()
            and known.base not in [base for base, _ in contact.stitch(start, facts)]
        ):
            raise Refused(
                f"the server holds {known.base.history} rows of run {self.plan.run_id} from other logs than these; "
                "sync all logs of the run in one command"
            )
        remote = self._unchanged(fields) or self.context.api.upsert(fields)
        if unasked and remote.history_lines and not remote.inserted:
            raise Refused(
                f"the server holds {remote.history_lines} rows of run {self.plan.run_id} and does not say which; "
                "sync it under another id (--id), or delete the run there"
            )
        if known is not None and (remote.inserted or not _is_same_run(remote, known)):
            # The server has lost the run, or made a new one of this name: all of it goes again.
            start = contact.Start(Lines())
            for segment in self.segments:
                segment.cursor = None
                segment.rows_before = 0
        first = start.base.history
        for segment, (base, shift) in zip(self.segments, contact.stitch(start, facts), strict=True):
            cursor = segment.cursor
            if cursor is None or (cursor.base, cursor.step_shift) != (base, shift):
                cursor = self._new_cursor(remote, base, shift)
                there = max(0, first + start.known_rows - base.history)
                cursor.sent.history = min(there, segment.found.lines.history)
                if segment.cursor is not None:  # its lines move; artifacts and alerts have no lines
                    cursor.artifacts, cursor.alerts = segment.cursor.artifacts, segment.cursor.alerts
                segment.cursor = cursor
            segment.rows_before = cursor.sent.history
            cursor.complete, cursor.gaps = False, segment.found.gaps()
            if segment is self.work.last:
                cursor.config = _fields_hash(fields)
            # The first cursor of lines that begin at 0 may be lost: they are found to begin there once more.
            cursor.save(segment.places.cursor, durably=known is not None or base != Lines())

    def _new_cursor(self, remote: RemoteRun, base: Lines, shift: int) -> Cursor:
        return Cursor(
            self.work.target,
            remote.entity,
            remote.project,
            remote.run_id,
            remote.storage_id,
            base=base,
            step_shift=shift,
        )

    # -- rows --------------------------------------------------------------------------------------------------------

    def _send_rows(self, console_file: runfiles.ConsoleFile) -> None:
        work = self.work
        remote = work.remote()
        facts = [segment.found for segment in self.segments]
        gaps = len(work.state.gaps)
        has_console = any(fact.lines.console for fact in facts)
        structured = has_console and "STRUCTURED_CONSOLE_LOGS" in self.context.features(remote.project)
        for segment in self.segments:
            log, found = os.fspath(segment.head.path), segment.found
            cursor = segment.position
            is_last = segment is work.last
            if not is_last and not found.lines.console and cursor.offset == found.end:
                continue
            self.context.reporter(
                Started(
                    log, self.plan.run_id, str(remote), found.lines.history, found.lines.history - cursor.sent.history
                )
            )
            last = LastWord()
            if is_last:
                last = LastWord(work.changed_summary, found.preempting and cursor.offset != found.end)

            def advance(log: str = log, found: Facts = found, cursor: Cursor = cursor) -> None:
                self.context.reporter(Progress(log, cursor.sent.history, found.lines.history))

            RowLane(
                self.context.api,
                remote,
                found,
                cursor,
                segment.places.cursor,
                self.context.body_bytes,
                structured,
                console_file,
                self.context.uploads,
                advance,
                work.state if work.folds_later else None,
            ).send(last)

        if work.folds_later:
            facts[0].damage += work.state.gaps[gaps:]


def _is_same_run(remote: RemoteRun, cursor: Cursor) -> bool:
    """Whether the cursor speaks of this run: rows go to where the server says, not to where a file beside the log does."""
    ours = (cursor.storage_id, cursor.entity, cursor.project, cursor.run_id)
    return ours == (remote.storage_id, remote.entity, remote.project, remote.run_id)


def _fields_hash(fields: RunFields) -> str:
    return hashlib.sha256(repr(astuple(fields)).encode("utf-8", "backslashreplace")).hexdigest()
