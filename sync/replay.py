"""One run from its logs to the server: lock, read, contact, rows, files, last word, verdict.

Rows go before files, and files have a lane of their own: a file that cannot be brought over never stops a row. The exit is
the last thing sent, when every row is acknowledged, so a run that shows as finished has all its rows.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
from collections.abc import Iterator
from dataclasses import astuple, replace
from pathlib import Path

from ..logformat.stitch import Opening
from . import contact, decay, onereading, rewind, runfiles, verdict
from .alerts import send_alerts
from .api import RunFields
from .context import Context
from .cursor import VERSION, Cursor, Lines
from .errors import AuthError, Conflict, Interrupted, OutOfTime, Permanent, Refused, SyncError
from .filelane import send_files
from .kin import check_others
from .lock import Lock, LockedError
from .onereading import OneReading
from .placing import Stitch, stitch
from .plan import RunPlan
from .readings import Reading, ReadLog
from .report import NOTHING_NEW, Progress, RunReport, Started, Verdict
from .rowlane import LanePoint, LastWord, RowLane, gather_console
from .scan import Facts, NeedsFold, Scan
from .segment import is_done
from .work import RunWork


class RunReplay:
    """Brings one run to the server. `run` never raises on purpose."""

    def __init__(self, plan: RunPlan, context: Context) -> None:
        self.plan = plan
        self.context = context
        self.work = RunWork.of(plan, context)
        self.segments = self.work.segments
        self._held: list[Lock] = []
        self._scanned: Scan | None = None
        self._point: LanePoint | None = None
        self._recounted: dict[Path, LanePoint | None] = {}
        """Of logs that have lost something since they were sent: where to go on in them."""
        self._reads_once = True

    # -- the whole of it ---------------------------------------------------------------------------------------------

    def run(self) -> list[RunReport]:
        """Sync all segments; one report for each. If the sync is stopped, what was acknowledged is in the cursors."""
        context, work = self.context, self.work
        if context.denied:
            return verdict.failed(work, context.denied, credentials=True)
        if not context.settings.include_synced and all(segment.is_foreign_synced() for segment in self.segments):
            reason = "marked as synced, and no cursor says by whom: --include-synced sends it again, to the same places"
            return verdict.failed(work, reason, Verdict.SKIPPED)
        try:
            with self._locks():
                if not context.settings.dry_run:
                    check_others(self.plan, context.settings, context.clock)
                return self._sync()
        except LockedError as error:
            return verdict.failed(work, str(error), Verdict.SKIPPED, try_again=True)
        except Interrupted:
            goes_on = "; the next sync goes on from here" if self._has_sent() else " before anything was sent"
            return self._broken_off(f"interrupted{goes_on}")
        except AuthError as error:
            if error.status == 401:
                context.denied = context.api.refused_key(error)
                return verdict.failed(work, context.denied, credentials=True)
            return verdict.failed(work, str(error))
        except Conflict as error:
            return verdict.failed(work, f"{error}; --id NEW sends it as another run")
        except OutOfTime as error:
            return self._broken_off(str(error))
        except Permanent as error:
            gone = ""
            if error.status in (404, 410) and self._has_sent():
                gone = "; the run was deleted at the server: --id NEW sends it as another run"
            elif error.status in (404, 410):
                gone = "; nothing of the run was there before: look at the address of the server, the entity and the project"
            return verdict.failed(work, f"{error}{gone}")
        except Refused as error:
            return verdict.failed(work, str(error), try_again=error.try_again)
        except SyncError as error:
            return verdict.failed(work, str(error))
        except OSError as error:
            return verdict.failed(work, self._what_failed(error))

    def _what_failed(self, error: OSError) -> str:
        """An error of the file system in words, with what to do where the log's own directory has nothing to do with it."""
        name = f"{error.filename}: " if error.filename else ""
        state_dir, remedy = self.context.settings.state_dir, ""
        if isinstance(error.filename, str) and Path(error.filename).is_relative_to(state_dir):
            remedy = "; this is in the state directory, as the log's own cannot be written: set RUNFERRY_STATE_DIR to a folder that can"
        return f"{name}{error.strerror or error}{remedy}"

    def _has_sent(self) -> bool:
        return any(segment.cursor is not None and segment.cursor.sent != Lines() for segment in self.segments)

    def _broken_off(self, reason: str) -> list[RunReport]:
        """The verdict where nothing but time is missing."""
        return verdict.failed(
            self.work, reason, Verdict.PARTIAL if self._has_sent() else Verdict.FAILED, try_again=True
        )

    def _is_stitched_otherwise(self) -> bool:
        """Whether the logs were stitched by another policy than the one that is asked for, or without each other."""
        if len(self.segments) == 1:
            return False
        cursors = [segment.cursor for segment in self.segments if segment.cursor is not None]
        here = {segment.head.start_ns for segment in self.segments if not segment.head.is_node} - {0}
        overlap = self.context.settings.overlap
        return any(cursor.overlap != overlap or (cursor.kin and here - set(cursor.kin)) for cursor in cursors)

    def read(self) -> RunWork:
        """Load the cursors and read the logs, and nothing else: for whoever wants to know what they hold.

        Raises:
            OSError: a log cannot be read.
        """
        for segment in self.segments:
            segment.load_cursor(self.work.target)
        contact.recall(self.work)
        self._scan()
        return self.work

    def _sync(self) -> list[RunReport]:
        try:
            return self._sync_once()
        except _LostRunError:
            self.work.forget()
            return self._sync_once()

    def _sync_once(self) -> list[RunReport]:
        work = self.work
        settings = self.context.settings
        if not work.is_lost:
            for segment in self.segments:
                segment.load_cursor(work.target, again=settings.include_synced)
                segment.doubt_marker()
                if not (settings.include_synced or settings.dry_run or segment.is_sent()):
                    segment.places.unmark()  # now: what follows may fail
        again = settings.include_synced or settings.changes_run or self._is_stitched_otherwise()
        if not (again or settings.dry_run) and is_done(self.segments):
            return verdict.finish(work, NOTHING_NEW)
        contact.recall(work)
        try:
            with self._first_words() as reading:
                if reading is None:
                    self._scan()
                    if settings.dry_run:
                        from .dryrun import dry_run

                        return dry_run(work, again=again)
                    if contact.prepare(work):
                        work.unread()
                        self._scan()
                return self._bring(reading)
        except NeedsFold:
            return self._go_on_read()

    def _bring(self, reading: OneReading | None) -> list[RunReport]:
        """Bring everything to the server; `reading` is the log that is read meanwhile, if it was not read before."""
        work = self.work
        fields = work.fields()
        console_file = runfiles.ConsoleFile()
        with contextlib.closing(console_file):
            whole = False
            if work.folds_later or self._has_news(fields):
                self._contact(fields)
                whole = self._send_rows(console_file, reading)
                if reading is not None:
                    self._announce_change(fields)
            for segment in self.segments if not (whole or work.waits()) else ():
                if segment.found.lines.console:
                    gather_console(segment.found, console_file)
            send_alerts(work)
            if any(segment.found.artifacts or segment.found.used_artifacts for segment in self.segments):
                from .artifacts import send_artifacts  # most runs have none

                send_artifacts(work)
            summary, dropped = work.summary()
            send_files(work, summary, console_file)
        work.last.missing += dropped
        self._leave_reading()
        return verdict.finish(work, "")

    # -- before anything is sent -------------------------------------------------------------------------------------

    @contextlib.contextmanager
    def _locks(self) -> Iterator[None]:
        """Hold the locks of all segments."""
        locks = self._held
        try:
            for segment in self.segments if not self.context.settings.dry_run else []:
                segment.places.make_folder()
                lock = Lock(segment.places.lock, self.context.clock)
                lock.acquire()
                locks.append(lock)
                self.context.heartbeat.add(lock)
                if lock.took_over:
                    segment.places.sweep()
            yield
        finally:
            for lock in locks:
                self.context.heartbeat.remove(lock)
                lock.release()
            locks.clear()

    @contextlib.contextmanager
    def _first_words(self) -> Iterator[OneReading | None]:
        """A log that can be sent while it is read for the first time, read up to its first rows; None if there is none.

        That is a large one of a run of which neither a cursor nor the server knows anything.
        """
        work, settings = self.work, self.context.settings
        only = self.segments[0] if len(self.segments) == 1 and self._reads_once else None
        if only is None or only.cursor is not None or settings.dry_run or only.head.size < onereading.SMALLEST:
            yield None
            return
        if self.context.readings is not None and work.is_young(only):
            yield None  # the next pass goes on with what this one folds
            return
        only.place = Stitch(self._openings(), work.start, settings.overlap, work.anchors).begin()
        young = work.is_young(only)
        self._scanned = Scan(only.head.path, work.state, start_ns=only.head.start_ns, fold_rows=False)
        with contextlib.closing(OneReading(only.head.path, self._scanned, young=young)) as reading:
            if reading.begin() and self._is_new():
                only.facts, work.folds_later = reading.facts, True
                yield reading
                return
        work.unread()
        yield None

    def _is_new(self) -> bool:
        """Whether the server has nothing of the run."""
        status = contact.ask(self.work)
        return status is None or not (status.history_lines or status.events_lines or status.console_lines)

    def _go_on_read(self) -> list[RunReport]:
        """Read the log whole after all, and go on from what was acknowledged, as after a kill."""
        self._reads_once = False
        self.work.unread()
        cursor = self.segments[0].cursor
        sent = cursor.sent.history if cursor is not None else 0
        return [replace(report, rows_sent=report.rows_sent + sent) for report in self._sync_once()]

    def _announce_change(self, fields: RunFields) -> None:
        """Say of the run what the log said behind its first rows."""
        work = self.work
        now = work.fields()
        if now != fields:
            self.context.api.upsert(now)
            work.last.position.config = _fields_hash(now)

    def _scan(self) -> None:
        """Read the logs for the first time, each with the rows of it that count."""
        work = self.work
        only = self.segments[0] if len(self.segments) == 1 else None
        goes_on = self.context.readings is not None and work.is_young(work.last)
        behind = self.work.start.highest is not None
        if only is not None and only.cursor is None and not (self.context.settings.dry_run or goes_on or behind):
            # All rows are going to be read again and sent: they are folded then, and not twice.
            try:
                self._read_all(fold_rows=False)
            except NeedsFold:
                work.unread()
            else:
                work.folds_later = True
                return
        scan = self._take_reading()
        if scan is not None:
            self._read_on(scan)
        else:
            self._read_all(fold_rows=True)
        for segment in self.segments:
            cursor = segment.cursor
            if cursor is None:
                continue
            if cursor.lost_less(segment.found.gaps()) or (cursor.version == 1 and segment.found.parts):
                cursor.start_again()
                segment.rows_before = 0
            cursor.version = VERSION

    def _openings(self) -> list[Opening]:
        """What tells how the logs are stitched; a log that has nothing to be stitched to is not looked at for it."""
        if len(self.segments) == 1 and self.work.start.highest is None:
            return [Opening()]
        return [segment.opening for segment in self.segments]

    def _take_reading(self) -> Scan | None:
        """The scan of the last log by the pass before, if there was one and only that log has grown since.

        Its fold becomes this one's, and the logs before it are not read again.
        """
        readings, work, self._point = self.context.readings, self.work, None
        reading = readings.take(work.target, self.segments) if readings is not None else None
        if reading is None:
            return None
        places = [log.place for log in reading.logs]
        facts = [log.facts for log in reading.logs]
        if stitch(self._openings(), facts, work.start, self.context.settings.overlap, work.anchors) != places:
            return None
        for segment, log in zip(self.segments, reading.logs, strict=True):
            segment.facts, segment.place = log.facts, log.place
        work.state, self._point = reading.state, reading.point
        return reading.scan

    def _leave_reading(self) -> None:
        """For the next pass, if there is going to be one."""
        readings, work, last = self.context.readings, self.work, self.work.last
        goes_on = last.found.exit_code is None and work.is_young(last)
        if readings is None or self._scanned is None or not goes_on:
            return
        if all(segment.position.offset == segment.found.end for segment in self.segments):
            logs = tuple(ReadLog.of(segment) for segment in self.segments)
            readings.put(work.target, Reading(work.state, self._scanned, logs, self._point))

    def _read_on(self, scan: Scan) -> None:
        """Read what has come since `scan` stopped, in the last log."""
        self._scanned = scan
        self.work.last.facts = scan.read(young=self.work.is_young(self.work.last))

    def _read_all(self, *, fold_rows: bool) -> None:
        """Read each log."""
        work = self.work
        stitching = Stitch(self._openings(), work.start, self.context.settings.overlap, work.anchors)
        self._recounted.clear()
        for segment in self.segments:
            head, place = segment.head, stitching.begin()
            cursor = segment.cursor if work.anchors else None
            before = cursor.runtime_before if cursor is not None else work.start.runtime
            work.state.elapsed.before = max(work.state.elapsed.before, before)
            segment.place = place
            self._scanned = Scan(head.path, work.state, start_ns=head.start_ns, fold_rows=fold_rows, steps=place.steps)
            segment.facts = self._scanned.read(young=work.is_young(segment))
            if segment.cursor is not None and contact.is_placed(segment):
                self._recounted[segment.head.path] = decay.recount(segment)
            stitching.end(segment.facts)

    def _has_news(self, fields: RunFields) -> bool:
        """Whether a row, the config or the summary differs from what the server acknowledged."""
        for segment in self.segments:
            if segment.cursor is None or segment.cursor.offset != segment.found.end or not contact.is_placed(segment):
                return True
        return self.work.last.position.config != _fields_hash(fields) or self.work.changed_summary() is not None

    # -- contact -----------------------------------------------------------------------------------------------------

    def _contact(self, fields: RunFields) -> None:
        """Make or find the run at the server, and fix where the lines of each segment go.

        Raises:
            Refused: the server holds what is not of these logs.
            _LostRunError: the server has lost the run.
        """
        work, following = self.work, self.context.settings.following
        contact.check(work, following=following)
        for segment in self.segments:
            segment.places.unmark()  # whatever a marker said, it does not hold any more
        rewind.take_back(work)
        known = next((segment.cursor for segment in self.segments if segment.cursor is not None), None)
        last = work.last.cursor
        if following and last is not None and last.config == _fields_hash(fields):
            remote = work.remote()  # as the server named it just now; there is nothing new to say of it
        else:
            contact.check_unanswered(work, fields)
            remote = self.context.api.upsert(fields)
        if known is None and work.status is None:
            contact.check_new(work, remote)
        if known is not None and (remote.inserted or not contact.is_same_run(remote, known)):
            raise _LostRunError
        contact.settle(work, remote, _fields_hash(fields))

    # -- rows --------------------------------------------------------------------------------------------------------

    def _send_rows(self, console_file: runfiles.ConsoleFile, reading: OneReading | None) -> bool:
        """Send what the cursors do not know of; whether `console_file` has all that was printed."""
        work = self.work
        remote = work.remote()
        facts = [segment.found for segment in self.segments]
        gaps = len(work.state.gaps)
        has_console = reading is not None or any(fact.lines.console for fact in facts)  # or may have
        begun = self._point  # of the last log; then the others lie before it, read and sent
        is_whole = begun is None and not any(self._recounted.values())
        structured = has_console and "STRUCTURED_CONSOLE_LOGS" in self.context.features(remote.project)
        for segment in self.segments:
            log, found = os.fspath(segment.head.path), segment.found
            cursor = segment.position
            is_last = segment is work.last
            if not is_last and cursor.offset == found.end and (begun is not None or not found.lines.console):
                continue
            rows = reading.rows if reading is not None else found.lines.history
            about = reading is not None
            self.context.reporter(
                Started(log, self.plan.run_id, str(remote), rows, rows - cursor.sent.history, estimated=about)
            )
            last = LastWord()
            if is_last:
                begins = cursor.offset
                last = LastWord(
                    work.changed_summary,
                    lambda found=found, begins=begins: found.preempting and begins != found.end,  # type: ignore[misc]  # defaults bind it
                )

            def advance(log: str = log, found: Facts = found, cursor: Cursor = cursor) -> None:
                sent = cursor.sent.history
                if reading is None or reading.is_over:
                    self.context.reporter(Progress(log, sent, found.lines.history))
                else:
                    self.context.reporter(Progress(log, sent, max(sent, reading.rows), estimated=True))
                self.context.heartbeat.pulse()
                if any(lock.lost for lock in self._held):
                    raise LockedError("another sync took it over, because this one had given no sign of life")

            point = begun if is_last and begun is not None else self._recounted.get(segment.head.path)
            printed = console_file if is_whole else runfiles.ConsoleFile()
            with contextlib.ExitStack() as held:
                if printed is not console_file:
                    held.enter_context(contextlib.closing(printed))
                share = held.enter_context(self.context.room.share(self.context.api.uplink.body_bytes))
                lane = RowLane(
                    self.context.api,
                    remote,
                    found,
                    cursor,
                    segment.places.cursor,
                    self.context.settings.body_bytes,
                    structured,
                    printed,
                    self.context.rows,
                    advance,
                    work.state if work.folds_later else None,
                    share.body_bytes,
                    point=point,
                    reading=reading,
                )
                lane.send(last)
            self._point = lane.point
        if work.folds_later and reading is None:
            facts[0].damage += work.state.gaps[gaps:]
        return is_whole


class _LostRunError(Exception):
    """The server has lost the run, or made a new one of this name: all of it goes again."""


def _fields_hash(fields: RunFields) -> str:
    return hashlib.sha256(repr(astuple(fields)).encode("utf-8", "backslashreplace")).hexdigest()
