"""The run as it is recorded, without threads: steps, rows, the summary, and the journal that they go to.

Everything here happens on one thread, in the order in which the calls were made. What it is told comes as rows and
as functions of the recorder (`pump`).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any

from ..logformat.constants import MAX_RECORD_SIZE
from . import guides, records
from .history import HistoryEncoder
from .journal import BULK, LAST, OTHER, ROW, Clock, Journal
from .metrics import Definitions, MetricDefinition
from .report import WarnOnce
from .summary import SummaryState, leaves_of
from .values import NAMES, Key, Path, flatten, path_of

if TYPE_CHECKING:
    from .filemethods import StagedRow
    from .media import StagedMedia

PENDING_MAX_S = 0.7
"""An unfinished row is written this long after its oldest part, so that within a second it is in the file."""
SUMMARY_MAX_S = 15.0
"""A changed summary is written this long after its oldest change; rows rebuild it meanwhile."""

MAX_BODY_BYTES = MAX_RECORD_SIZE // 2
"""Of one record: a reader takes more than that for damage, and others may take less."""

SUMMARY = "summary"
"""Stands for the step in the names of the summary's files."""
Row = dict[Key, Any]


class _Pending:
    """The row of the open step: what was logged and is not in the file yet."""

    __slots__ = ("last", "row", "since")

    def __init__(self) -> None:
        self.row: Row = {}
        self.since: float | None = None  # monotonic s of the oldest part not written; None: nothing to write
        self.last = 0.0  # monotonic s of the newest part


class Recorder:
    """Turns calls into records."""

    def __init__(
        self,
        journal: Journal,
        clock: Clock,
        warn: Callable[[str], None],
        *,
        start_s: float,
        hold_steps: bool = True,
        first_step: int = 0,
        telemetry: Callable[..., bytes] = lambda *_features: b"",
        sync_files: Callable[[], Any] = lambda: None,
        watch: guides.Guides | None = None,
    ) -> None:
        """Nothing is recorded yet.

        Args:
            journal: where the records go.
            clock: the time.
            warn: takes one line for the user.
            start_s: the start of the run, monotonic seconds; `_runtime` counts from it.
            hold_steps: keep a row with an explicit step open for later calls of the same step. Without, each call's
                part is written at once (levels `record` and `disk`) and the parts merge at replay.
            first_step: where a resumed run goes on. Its first row may have a lower step of its own: an older checkpoint.
            telemetry: takes the telemetry's numbers of features that are used, and gives the record that says so, if
                none did before.
            sync_files: begins to bring the files beside the log to the device.
            watch: warns of documented sizes and numbers that are passed.
        """
        self._journal, self._clock, self._warn = journal, clock, warn
        self._start = start_s
        self._wall_offset = 0.0
        self.read_clocks()
        self._hold_steps = hold_steps
        self._telemetry = telemetry
        self.sync_files = sync_files
        self._watch = watch
        self._encoder = HistoryEncoder()
        self._pending: _Pending | None = None
        self._written_step: int | None = None
        self._step_values: dict[str, tuple[Key, Any]] = {}
        self._summary_since: float | None = None
        self._warn_once = WarnOnce(warn)
        self.summary = SummaryState(lambda path: self.record(records.summary((), [path])))
        self.definitions = Definitions()
        self.step = first_step
        """The step that is open: the next row without a step of its own gets it."""
        self._goes_on_at: int | None = first_step or None
        self.rows_late = 0
        """Rows whose step was lower than the open one."""
        self.rows_refused = 0
        """Rows too large for a record."""
        self.others_refused = 0
        """Other records too large for the format."""
        self.urgent = False
        """Whether something was recorded that must not wait for the next sync; whoever syncs clears it."""
        journal.new_segment = self.summary.forget_written

    # -- rows --------------------------------------------------------------------------------------------------------

    def row(self, now: float, step: int | None, commit: bool | None, row: Row, media: StagedRow | None = None) -> None:
        """One call of `log`.

        Args:
            now: when, monotonic seconds.
            step: the step given, or None for the open one.
            commit: whether the step is finished with this call; None: yes unless a step was given.
            row: plain values; flat, unless `media` is None.
            media: staged; they land in the row under the step that it gets. None: nobody looked at the names yet.
        """
        if media is None and not NAMES.issuperset(map(type, row)):
            row = self._named(row)
        if self._watch is not None:
            self._watch.call(now, len(row))
        if media:
            row |= self._landed(media, str(self.step if step is None else step))
        if step is not None and step != self.step:
            if step < self.step and not self._goes_back():
                self._late(now, step, row)
                return
            self._commit()
            self.step = step
        finished = step is None if commit is None else commit
        pending = self._pending
        if pending is None:
            if finished:
                self._emit(now, row)
                self.step += 1
                return
            pending = self._pending = _Pending()
        for key in row:  # a later value stands behind all before it: it may be an object's, and they the object's own
            pending.row.pop(key, None)
        pending.row.update(row)
        pending.last = now
        if pending.since is None:
            pending.since = now
        if finished:
            self._commit()
            self.step += 1
        elif not self._hold_steps and commit is None:
            self._write_pending(pending)

    def _named(self, row: Row) -> Row:
        dropped: dict[str, str] = {}
        row = flatten(row, dropped)
        for name, reason in dropped.items():
            self._warn_once(f"value {name}", f"{name} is left out of the row: {reason}")
        return row

    def _landed(self, media: StagedRow, step: str) -> Row:
        """What stands in a row, or in the summary, for its media."""
        row: Row = {}
        for key, medium in media.items():
            path = path_of(key)
            try:
                name = ".".join(path) if step == SUMMARY else path[-1]  # both as the peer has it
                row.update(leaves_of(path, self._land(name, medium, step)))
            except Exception as error:  # a name that no file can have, or the disk: it costs this key only
                medium.drop()
                self.others_refused += 1
                name = ".".join(path)
                self._warn_once(f"media {name}", f"{name} is left out: {type(error).__name__}: {error}")
        return row

    def _land(self, name: str, medium: StagedMedia, step: str) -> Any:
        landing = medium.land(name, step)
        for path in landing.paths:
            self.record(records.files(path))
        self.record_all(landing.records)
        if landing.features and (record := self._telemetry(*landing.features)):
            self.record(record)
        return landing.value

    def _goes_back(self) -> bool:
        """Whether no row has come since the run was resumed: then the first one says where training goes on."""
        is_first = self.step == self._goes_on_at and self._pending is None
        self._goes_on_at = None
        return is_first

    def _late(self, now: float, step: int, row: Row) -> None:
        self.rows_late += 1
        self._warn_once(
            "late",
            f"step {step} was logged after step {self.step} was open. Such rows are kept under their own step;"
            f" a backend that takes steps in rising order only may number them anew.",
        )
        self._emit(now, row, step)

    def _commit(self) -> None:
        pending, self._pending = self._pending, None
        if pending is not None:
            self._write_pending(pending)

    def _write_pending(self, pending: _Pending) -> None:
        """Write what is there of the open row; the step stays open, and what comes later is a further part of it."""
        if pending.since is not None:
            self._emit(pending.last, pending.row)
            # A time that the caller gave is the row's, also behind the time of a later part.
            pending.row = {key: pending.row[key] for key in ("_timestamp",) if key in pending.row}
            pending.since = None

    def _emit(self, now: float, row: Row, step: int | None = None) -> None:
        step = self.step if step is None else step
        # To microseconds; half the time that `round` takes.
        wall = int((now + self._wall_offset) * 1e6 + 0.5) / 1e6
        runtime = int((now - self._start) * 1e6 + 0.5) / 1e6
        if self.definitions:
            row = self._with_step_metrics(row)
        encoder = self._encoder
        plan = encoder.plan(row)
        body, parts, nulls = encoder.encode(plan, plan.values(row, step, runtime, wall), step)
        if encoder.unwritable:
            self._unwritable()
        if len(body) > MAX_BODY_BYTES:
            self.rows_refused += 1
            self._warn_once("size", f"a row of {len(body) / 2**20:.0f} MiB is too large for a record and is left out")
            return
        if self._watch is not None and len(body) > guides.MAX_VALUE:
            self._watch.row(len(body), plan.paths, parts)
        journal = self._journal
        journal.append(body, ROW)
        self.summary.add_row(plan, parts, nulls=nulls, part=step == self._written_step)
        self._written_step = step
        if journal.wants_write:
            journal.write()

    def _with_step_metrics(self, row: Row) -> Row:
        """The row, with the last value of each step metric that its metrics want and that it lacks."""
        added: Row = {}
        keys = {".".join(path_of(key)): key for key in row}  # definitions name a nested metric so
        for key in row:
            definition = self.definitions.find(path_of(key))
            if definition is not None and definition.step_sync and definition.step_metric:
                name = definition.step_metric
                if name not in keys and name in self._step_values:
                    filled, value = self._step_values[name]
                    added[filled] = value
        for name in self.definitions.step_metrics:
            if name in keys:
                self._step_values[name] = keys[name], row[keys[name]]
        return row | added if added else row

    def _unwritable(self) -> None:
        for name, reason in self._encoder.unwritable.items():
            self._warn_once(f"unwritable {name}", f"{name} is left out: {reason}")
        self._encoder.unwritable.clear()

    # -- everything else ---------------------------------------------------------------------------------------------

    def record(self, body: bytes, *, urgent: bool = False, bulk: bool = False) -> None:
        """Any other record, as `records` makes it. `bulk`: a sample or console output, of which there are many."""
        if len(body) > MAX_BODY_BYTES:
            self.others_refused += 1
            self._warn_once("record size", f"a record of {len(body) / 2**20:.0f} MiB is too large and is left out")
            return
        if self._watch is not None and body[:1] == records.FILES_TAG:
            self._watch.file()
        self._journal.append(body, BULK if bulk else OTHER)
        self.urgent = self.urgent or urgent
        if self._journal.wants_write:
            self._journal.write()

    def define(self, definition: MetricDefinition) -> None:
        """Rows from now on follow the definition."""
        self._commit()
        self.record(records.metric(definition))
        self.summary.define(self.definitions.add(definition))

    def record_all(self, bodies: Iterable[bytes], *, urgent: bool = False) -> None:
        """Several records, in their order."""
        for body in bodies:
            self.record(body, urgent=urgent)

    def set_summary(self, path: Path, value: Any) -> None:
        """The user's own summary value, plain."""
        try:
            self.summary.set(path, value)
        except (ValueError, RecursionError) as error:
            self._warn_once(f"unwritable {path}", f"summary {'.'.join(path)} is left out: {error}")

    def set_summary_media(self, path: Path, media: StagedRow) -> None:
        """Media that the user put into the summary."""
        values = self._landed(media, SUMMARY)
        if values:
            self.summary.remove(path)
        for leaf, value in values.items():
            self.set_summary(path_of(leaf), value)

    # -- time --------------------------------------------------------------------------------------------------------

    def read_clocks(self) -> None:
        """Compare the clocks: `log` reads the monotonic one only, and follows corrections of the other from here."""
        self._wall_offset = self._clock.time() - self._clock.monotonic()

    @property
    def due(self) -> float:
        """When `tick` has something to write though nothing comes, monotonic seconds; infinity if it has not."""
        pending, summary = self._pending, self._summary_since
        row = math.inf if pending is None or pending.since is None else pending.since + PENDING_MAX_S
        return row if summary is None else min(row, summary + SUMMARY_MAX_S)

    def tick(self) -> None:
        """Write what has waited long enough."""
        now = self._clock.monotonic()
        pending = self._pending
        if pending is not None and pending.since is not None and now - pending.since >= PENDING_MAX_S:
            self._write_pending(pending)
        if not self.summary.dirty or self._journal.failing:  # rows rebuild it; on a full disk there is no end of it
            return
        if self._summary_since is None:
            self._summary_since = now
        elif now - self._summary_since >= SUMMARY_MAX_S:
            self.write_summary()

    def flush(self) -> None:
        """Queue everything that is held back: the open row's parts and the summary."""
        if self._pending is not None:
            self._write_pending(self._pending)
        self.write_summary()

    def write_summary(self) -> None:
        """Queue what changed in the summary. Removals go in a record before the updates, so that order tells."""
        self._summary_since = None
        updates, removals = self.summary.take_changes()
        if removals:
            self.record(records.summary((), removals))
        if updates:
            self.record(records.summary(updates))

    def finish(self, code: int) -> None:
        """Queue the end of the run."""
        runtime = int(self._clock.monotonic() - self._start)
        self._commit()
        self.summary.set(("_wandb", "runtime"), runtime)
        self.write_summary()
        self._journal.append(records.exit_(code, runtime), LAST)
