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

from ..logformat import RunState
from . import contact, runconfig, runfiles
from .api import RemoteRun, RunFields
from .body import Body
from .context import Context
from .cursor import VERSION, Cursor, FileMark, Lines, Target, load, matches
from .errors import AuthError, Conflict, Interrupted, OutOfTime, Refused, SyncError
from .lines import MAX_LINE
from .lock import Lock, LockedError
from .places import Places, is_writable
from .plan import RunPlan
from .report import NOTHING_NEW, Progress, RunReport, Started, Verdict, shorten
from .rowlane import LastWord, RowLane, gather_console, summary_hash
from .scan import Facts, NeedsFold, scan
from .segment import Segment


class RunReplay:
    """Brings one run to the server. `run` never raises but for a stop."""

    def __init__(self, plan: RunPlan, context: Context) -> None:
        self.plan = plan
        self.context = context
        self.segments = [
            Segment(head, Places(head.path, context.settings.state_dir, is_writable)) for head in plan.segments
        ]
        self._state = RunState(keep_rows=False)
        self._target = Target(context.settings.base_url, plan.entity, plan.project, plan.run_id)
        self._files_sent = 0
        self._files_missing: list[str] = []
        self._files_wait = False
        """Some files are left to a later sync, as `following` has it."""
        self._only_late = False
        self._folds_later = False

    # -- the whole of it ---------------------------------------------------------------------------------------------

    def run(self) -> list[RunReport]:
        """Sync all segments; one report for each.

        Raises:
            Interrupted: the sync was stopped. What was acknowledged is in the cursors.
        """
        context = self.context
        if context.denied:
            return self._failed(context.denied, credentials=True)
        if not context.settings.include_synced and all(self._is_foreign_synced(segment) for segment in self.segments):
            reason = "marked as synced by another tool; --include-synced sends it all the same"
            return [self._report(segment, Verdict.SKIPPED, reason) for segment in self.segments]
        try:
            with self._locks():
                return self._sync()
        except LockedError as error:
            return [self._report(segment, Verdict.SKIPPED, str(error), try_again=True) for segment in self.segments]
        except Interrupted:
            raise
        except AuthError as error:
            if error.status == 401:
                context.denied = f"the server does not accept the API key: {error}"
                return self._failed(context.denied, credentials=True)
            return self._failed(str(error))
        except Conflict as error:
            return self._failed(f"{error}; --id NEW sends it as another run")
        except OutOfTime as error:
            sent = any(segment.cursor is not None and segment.cursor.sent.history for segment in self.segments)
            return self._failed(str(error), Verdict.PARTIAL if sent else Verdict.FAILED, try_again=True)
        except SyncError as error:
            return self._failed(str(error))
        except OSError as error:
            name = f"{error.filename}: " if error.filename else ""
            return self._failed(f"{name}{error.strerror or error}")

    def _sync(self) -> list[RunReport]:
        for segment in self.segments:
            self._load_cursor(segment)
        forced = self.context.settings.include_synced or self.context.settings.dry_run
        if not forced and all(self._is_done(segment) for segment in self.segments):
            return self._finish(NOTHING_NEW)
        self._scan()
        fields = runconfig.run_fields(
            self._state,
            run_id=self.plan.run_id,
            entity=self.plan.entity,
            project=self.plan.project,
            job_type=self.context.settings.job_type,
        )
        if self.context.settings.dry_run:
            return self._dry_run()
        console_file = runfiles.ConsoleFile()
        with contextlib.closing(console_file):
            if self._folds_later or self._has_news(fields):
                self._contact(fields)
                self._send_rows(console_file)
            else:
                for segment in self.segments:
                    if segment.found.lines.console:
                        gather_console(segment.found, console_file)
            summary, dropped = self._summary()
            self._send_files(summary, console_file)
        self.segments[-1].missing += dropped
        return self._finish("")

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

    def _is_foreign_synced(self, segment: Segment) -> bool:
        """Whether the peer's marker is there and no cursor of ours says what it stands for."""
        return segment.places.marker.exists() and not any(path.exists() for path in segment.places.cursors)

    def _is_young(self, segment: Segment) -> bool:
        """Whether the writer of a log may still be alive; only the last segment's may."""
        if segment is not self.segments[-1]:
            return False
        return self.context.clock.time() - segment.head.modified < self.context.settings.stale_after

    def _load_cursor(self, segment: Segment) -> None:
        cursor, _ = load(segment.places.cursors)
        if cursor is None or matches(cursor, segment.head.path, self._target):
            return
        if self.context.settings.include_synced:  # everything again, to the same lines
            cursor.start_again()
        segment.cursor = cursor
        segment.rows_before = cursor.sent.history

    def _is_done(self, segment: Segment) -> bool:
        """Whether the cursor says that all is at the server and neither the log nor a file has changed since."""
        cursor = segment.cursor
        if cursor is None or not cursor.complete or cursor.size != segment.head.size:
            return False
        root = segment.head.path.parent / "files"
        for name, mark in cursor.files.items():
            if mark.mtime_ns == 0:  # made from the log
                continue
            try:
                status = (root / name).stat()
            except OSError:
                return False
            if (status.st_size, status.st_mtime_ns) != (mark.size, mark.mtime_ns):
                return False
        return True

    def _scan(self) -> None:
        """Read the logs for the first time."""
        only = self.segments[0] if len(self.segments) == 1 else None
        if only is not None and only.cursor is None and not self.context.settings.dry_run:
            # All rows are going to be read again and sent: they are folded then, and not twice.
            try:
                only.facts = self._scan_one(only, fold_rows=False)
            except NeedsFold:
                self._state = RunState(keep_rows=False)
            else:
                self._folds_later = True
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
        head = segment.head
        young = self._is_young(segment)
        return scan(head.path, self._state, start_ns=head.start_ns, young=young, fold_rows=fold_rows)

    def _has_news(self, fields: RunFields) -> bool:
        """Whether a row, the config or the summary differs from what the server acknowledged."""
        for segment in self.segments:
            if segment.cursor is None or segment.cursor.offset != segment.found.end:
                return True
        last = self.segments[-1].position
        places = contact.stitch(self._kept_start(), [segment.found for segment in self.segments])
        moved = any(
            (segment.position.base, segment.position.step_shift) != place
            for segment, place in zip(self.segments, places, strict=True)
        )
        return moved or last.config != _fields_hash(fields) or self._changed_summary() is not None

    def _changed_summary(self) -> str | None:
        """The summary line, or None if the server has it already."""
        line, _ = self._summary()
        return line if self.segments[-1].position.summary != summary_hash(line) else None

    def _summary(self) -> tuple[str, list[str]]:
        """The summary line, and the keys that it has no room for."""
        last: int | None = None
        if self._folds_later:
            self.segments[0].found.last_step = self._state.last_step
        places = contact.stitch(self._kept_start(), [segment.found for segment in self.segments])
        for segment, (_, shift) in zip(self.segments, places, strict=True):
            if segment.found.last_step is not None:
                last = segment.found.last_step + shift
        dropped: list[str] = []
        return runconfig.summary_line(runconfig.summary_tree(self._state, last), MAX_LINE, dropped), dropped

    def _dry_run(self) -> list[RunReport]:
        files, missing = self._recorded_files()
        name = "/".join((self.plan.entity or "(your entity)", self.plan.project, self.plan.run_id))
        reports = []
        for segment in self.segments:
            facts = segment.found
            todo = facts.lines.history - segment.rows_before
            reason = (
                f"dry run: {todo} of {facts.lines.history} rows, {facts.lines.events} samples, "
                f"{facts.lines.console} console lines, {len(files)} files, and the run's config, summary and metadata "
                f"would go to {name} at {self.context.settings.base_url}"
            )
            segment.missing += facts.damage_lines() + missing
            reports.append(self._report(segment, Verdict.SKIPPED, reason))
        return reports

    # -- contact -----------------------------------------------------------------------------------------------------

    def _kept_start(self) -> contact.Start:
        """Where the first segment begins, as its cursor has it."""
        cursor = self.segments[0].cursor
        return contact.Start(cursor.base, cursor.step_shift) if cursor is not None else contact.Start(Lines())

    def _known_remote(self) -> RemoteRun:
        cursor = self.segments[-1].position
        return RemoteRun(cursor.storage_id, cursor.entity, cursor.project, cursor.run_id)

    def _unchanged(self, fields: RunFields) -> RemoteRun | None:
        """The run as the server named it, where that was just now and there is nothing new to say of it."""
        cursor = self.segments[-1].cursor
        if not self.context.settings.following or cursor is None or cursor.config != _fields_hash(fields):
            return None
        return self._known_remote()

    def _contact(self, fields: RunFields) -> None:
        """Make or find the run at the server, and fix where the lines of each segment go."""
        facts = [segment.found for segment in self.segments]
        for segment in self.segments:
            segment.places.unmark()  # whatever a marker said, it does not hold any more
        known = next((segment.cursor for segment in self.segments if segment.cursor is not None), None)
        start = self._kept_start()
        unasked = False
        if known is None:
            status = contact.ask(self.context.api, self.plan)
            start = contact.first_contact(status, self.plan, facts, self._state)
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
                segment.cursor = cursor
            segment.rows_before = cursor.sent.history
            cursor.complete, cursor.gaps = False, segment.found.gaps()
            if segment is self.segments[-1]:
                cursor.config = _fields_hash(fields)
            cursor.save(segment.places.cursor)

    def _new_cursor(self, remote: RemoteRun, base: Lines, shift: int) -> Cursor:
        return Cursor(
            self._target, remote.entity, remote.project, remote.run_id, remote.storage_id, base=base, step_shift=shift
        )

    # -- rows --------------------------------------------------------------------------------------------------------

    def _send_rows(self, console_file: runfiles.ConsoleFile) -> None:
        remote = self._known_remote()
        facts = [segment.found for segment in self.segments]
        gaps = len(self._state.gaps)
        has_console = any(fact.lines.console for fact in facts)
        structured = has_console and "STRUCTURED_CONSOLE_LOGS" in self.context.features(remote.project)
        for segment in self.segments:
            log, found = os.fspath(segment.head.path), segment.found
            cursor = segment.position
            is_last = segment is self.segments[-1]
            if not is_last and not found.lines.console and cursor.offset == found.end:
                continue
            self.context.reporter(
                Started(
                    log, self.plan.run_id, str(remote), found.lines.history, found.lines.history - cursor.sent.history
                )
            )
            last = LastWord()
            if is_last:
                last = LastWord(self._changed_summary, found.preempting and cursor.offset != found.end)

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
                self._state if self._folds_later else None,
            ).send(last)

        if self._folds_later:
            facts[0].damage += self._state.gaps[gaps:]

    # -- files and the last word -------------------------------------------------------------------------------------

    def _send_files(self, summary: str, console_file: runfiles.ConsoleFile) -> None:
        remote = self._known_remote()
        last = self.segments[-1]
        cursor = last.position
        files, missing = self._recorded_files()
        files += self._made_files(summary, console_file)
        known: dict[str, FileMark] = {}
        for segment in self.segments:
            known.update(segment.position.files)

        def save(done: dict[str, FileMark]) -> None:
            cursor.complete, cursor.files = False, {**known, **done}
            last.places.unmark()
            cursor.save(last.places.cursor)

        result = runfiles.upload(self.context.api, remote, files, known=known, pool=self.context.uploads, save=save)
        self._files_sent = len(result.sent)
        self._files_missing = missing + result.missing
        self._only_late = 0 < result.only_late == len(self._files_missing)
        exit_code = last.found.exit_code
        untold = sorted(name for name, mark in result.done.items() if not mark.told)
        if untold or (exit_code is not None and exit_code != cursor.exit_code):
            # Without an exit record nothing is said of the end: a server shows a run that has fallen silent as crashed.
            body = Body(0, 0, 0, uploaded=untold, exit_code=exit_code)
            self.context.api.stream(remote, body.encode())
            cursor.exit_code = exit_code
            result.done.update((name, replace(mark, told=True)) for name, mark in result.done.items())
        names = {file.name for file in files}
        cursor.files = {name: mark for name, mark in {**known, **result.done}.items() if name in names}

    def _recorded_files(self) -> tuple[list[runfiles.RunFile], list[str]]:
        """The files that the logs name; of one name in several segments, the last one's."""
        files: dict[str, runfiles.RunFile] = {}
        missing: list[str] = []
        folders = [segment.head.path.parent for segment in reversed(self.segments)]
        for segment in self.segments:
            homes = runfiles.by_home(segment.found.files, segment.head.path.parent, folders)
            for home, names in homes.items():
                found, lost = runfiles.recorded_files(home, names)
                files.update({file.name: file for file in found if file.name not in _MADE})
                missing += lost
        return list(files.values()), missing

    def _made_files(self, summary: str, console_file: runfiles.ConsoleFile) -> list[runfiles.RunFile]:
        """The files that every run has at the server, made from the log."""
        last = self.segments[-1]
        goes_on = last.found.exit_code is None and self._is_young(last)
        self._files_wait = self.context.settings.following and goes_on
        made = [] if self._files_wait else [runfiles.made_here(runfiles.SUMMARY_FILE, summary.encode())]
        made.append(runfiles.config_file(runconfig.config_tree(self._state)))
        environment = runconfig.environment_tree(self._state)
        if environment:
            made.append(runfiles.metadata_file(environment))
        console = None if self._files_wait else console_file.as_file()
        return [*made, console] if console is not None else made

    # -- verdicts ----------------------------------------------------------------------------------------------------

    def _finish(self, note: str) -> list[RunReport]:
        """Judge each segment, note it in its cursor, and set the peer's marker where everything arrived."""
        reports = []
        for segment in self.segments:
            cursor, head = segment.position, segment.head
            is_last = segment is self.segments[-1]
            if segment.facts is not None:
                segment.missing += segment.facts.damage_lines()
                segment.missing += cursor.dropped
                if head.salvaged:
                    segment.missing.append("the run record: project and entity are the defaults")
                segment.missing += self._files_missing  # of the run: no log of it is done before all are
                if is_last:
                    segment.missing += [
                        f"artifact {item.name}: artifacts are not sent yet" for item in self._state.artifacts
                    ]
                cursor.complete = not (segment.missing or segment.facts.unfinished or self._files_wait)
                cursor.size, cursor.gaps = segment.facts.size, segment.facts.gaps()
                cursor.save(segment.places.cursor)
            ended = not is_last or self._exit_code(segment) is not None
            reason = note
            if segment.missing:
                verdict, reason = Verdict.PARTIAL, f"missing: {shorten(segment.missing)}"
            elif not ended and self._is_young(segment):
                verdict, reason = Verdict.LIVE, note or "no exit record yet: the run goes on"
            else:
                verdict = Verdict.SYNCED
                if not ended:
                    reason = "all sent; the log has no exit record and has not grown: the run crashed"
                elif self._state.alerts and is_last:
                    reason = f"{len(self._state.alerts)} alerts of the log were not sent: alerts are not supported yet"
            if verdict is Verdict.SYNCED:
                segment.places.mark()
            else:
                segment.places.unmark()
            reports.append(
                self._report(segment, verdict, reason, try_again=self._only_late and not self._lost_for_good(segment))
            )
        return reports

    def _exit_code(self, segment: Segment) -> int | None:
        if segment.facts is not None:
            return segment.facts.exit_code
        return segment.cursor.exit_code if segment.cursor is not None else None

    def _lost_for_good(self, segment: Segment) -> bool:
        """Whether something is missing that no later sync can bring."""
        return bool(segment.found.damage or segment.position.dropped or self._state.artifacts)

    def _failed(self, reason: str, verdict: Verdict = Verdict.FAILED, **flags: bool) -> list[RunReport]:
        return [self._report(segment, verdict, reason, **flags) for segment in self.segments]

    def _report(
        self, segment: Segment, verdict: Verdict, reason: str, *, try_again: bool = False, credentials: bool = False
    ) -> RunReport:
        cursor = segment.cursor
        sent = cursor.sent.history if cursor is not None else 0
        rows = segment.facts.lines.history if segment.facts is not None else sent
        return RunReport(
            log=os.fspath(segment.head.path),
            run=self.plan.run_id,
            verdict=verdict,
            reason=" ".join(reason.split()),
            target=f"{cursor.entity}/{cursor.project}/{cursor.run_id}" if cursor is not None else None,
            rows=rows,
            rows_sent=max(0, sent - segment.rows_before),
            files_sent=self._files_sent if segment is self.segments[-1] else 0,
            missing=tuple(segment.missing),
            try_again=try_again,
            credentials=credentials,
            ended=segment is not self.segments[-1] or self._exit_code(segment) is not None,
        )


_MADE = frozenset({runfiles.SUMMARY_FILE, runfiles.CONFIG_FILE, runfiles.METADATA_FILE, runfiles.CONSOLE_FILE})


def _is_same_run(remote: RemoteRun, cursor: Cursor) -> bool:
    """Whether the cursor speaks of this run: rows go to where the server says, not to where a file beside the log does."""
    ours = (cursor.storage_id, cursor.entity, cursor.project, cursor.run_id)
    return ours == (remote.storage_id, remote.entity, remote.project, remote.run_id)


def _fields_hash(fields: RunFields) -> str:
    return hashlib.sha256(repr(astuple(fields)).encode("utf-8", "backslashreplace")).hexdigest()
