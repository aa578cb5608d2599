"""A run being written: what `init` returns."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from operator import index
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any

from . import copies, lifecycle, records
from .attendant import Attendant
from .console import ConsoleLog, Subscription, capture
from .encoding import to_json
from .exitcode import code_of, exit_code_of
from .filemethods import FileMethods, StagedRow, drop_all
from .filesystem import FileSystem, RealFileSystem
from .guides import Guides
from .heartbeat import Heartbeat
from .identity import Behind, Identity
from .identitymethods import IdentityMethods
from .journal import MAX_QUEUED_BYTES, SYNC_BYTES, Clock, Journal
from .mappings import REMOVED, Summary
from .pump import WAIT_S, Job, Pump
from .ranks import Role
from .report import FinishReport, WarnOnce, say, warn_on_stderr
from .savemethods import SaveMethods
from .segment import Place
from .settings import Resolved
from .tellmethods import TellMethods
from .values import PLAIN_OR_NESTED, Key, UnloggableError, all_plain, flatten, path_of, plain_or_medium
from .values import Path as KeyPath

if TYPE_CHECKING:
    from datetime import datetime

    from .online import Syncs

_INT64 = 2**63


class Run(IdentityMethods, TellMethods, FileMethods, SaveMethods):
    """One run. Its methods may be called from any thread; in a forked child they do nothing."""

    def __init__(
        self,
        settings: Resolved,
        config: Any = None,
        *,
        role: Role = Role.FULL,
        behind: Behind | None = None,
        version: str = "0",
        pid: int | None = None,
        argv: Sequence[str] | None = None,
        fs: FileSystem | None = None,
        clock: Clock = time,
        warn: Callable[[str], None] | None = None,
    ) -> None:
        """Open the log and begin. A log that cannot be made is named once, and rows wait for it.

        Args:
            settings: every setting, decided.
            config: what `init(config=...)` was given.
            role: what this process records.
            behind: where the run goes on, if earlier logs of it are known.
            version: ours, for the log's header.
            pid: the process whose metrics are sampled; this one unless given.
            argv: its command line.
            fs: the file system.
            clock: the time.
            warn: takes one line for the user; stderr unless given.
        """
        self._settings = settings
        self._strict = settings.strict
        self._role = role
        self._warn = warn or warn_on_stderr
        self._time, self._monotonic = clock.time, clock.monotonic
        self._closed = False
        self._forked = False  # the copy in another process, as long as it has not said so
        self._inert = False  # disabled, or the copy in another process
        self._ending = threading.RLock()  # a signal handler in the middle of it does it in its stead
        self._report: FinishReport | None = None
        self._token = copies.enlist(self)
        self._once = WarnOnce(self._warn)
        self._capture: Subscription | None = None
        self._attendant: Attendant | None = None
        self._syncs: Syncs | None = None
        start_s = clock.monotonic()
        if role is Role.SAMPLER and settings.given_id:
            from ..logformat.runinfo import node_version

            version = node_version(version)  # what it logs goes beside the logs of the first node
        watch = Guides(self._warn_once) if settings.log_guides else None
        self._identity = Identity(
            settings,
            config,
            version=version,
            clock=clock,
            changed=self._config_changed,
            warn_once=self._warn_once,
            watch=watch,
            behind=behind,
        )
        self._summary = Summary(self._summary_changed, self._fetch_summary, plain_or_medium)
        place = Place(settings.root, settings.run_id, settings.dir_prefix)
        # Where time brings no sync, what waits for one would fill the memory.
        kept = SYNC_BYTES // 2 if settings.durability == "relaxed" else MAX_QUEUED_BYTES
        self._fs = fs or RealFileSystem()
        self._journal = Journal(self._fs, place, clock, self._opening, self._warn, keep_unsynced=kept)

        def make_recorder() -> Any:
            from .recorder import Recorder

            held = settings.durability in ("relaxed", "normal")
            return Recorder(
                self._journal,
                clock,
                self._warn,
                start_s=start_s - (behind.runtime_s if behind else 0.0),
                hold_steps=held,
                first_step=behind.step if behind else 0,
                telemetry=self._features_record,
                sync_files=self._sync_files,
                watch=watch,
            )

        heartbeat = Heartbeat(self._fs, clock)
        self._pump = Pump(make_recorder, self._journal, clock, settings.durability, self._warn, heartbeat=heartbeat)
        self._queue = self._pump.queue
        self._append = self._queue.append
        self._console = ConsoleLog(
            self._pump.hand_off,
            self._warn,
            now_ns=lambda: int(self._time() * 1e9),
            monotonic=clock.monotonic,
            sleep=clock.sleep,
        )
        self._waits = settings.durability in ("record", "disk")
        self._takes_rows = role is Role.FULL and not self.disabled
        if self.disabled:
            self._inert = self._closed = self._pump.ended = True
            self._console.abandon()
            return
        self._pump.start()
        self._pump.hand_off(lambda recorder: recorder.record(self._identity.telemetry.record()))
        self._pump.hand_off(lambda _recorder: self._tell_hidden())  # the thread has redacted the config by then
        lifecycle.watch(self)
        if settings.console != "off" and self._takes_rows:
            self._capture = capture(settings.console, self._console, self._warn)
        info = self._identity.info
        label = info.host if role is Role.SAMPLER else ""  # keeps the nodes of one run apart
        errands = self._errands() if argv is None else ()  # the code of another program is not at hand
        self._attendant = Attendant(
            settings,
            self._pump.submit,
            info.start_ns,
            self._warn,
            label=label,
            pid=pid,
            argv=argv,
            errands=errands,
            keep=self._place,
        )
        self._attendant.start()
        if settings.mode == "online" and settings.sync_watch and self._takes_rows:
            self._begin_sync()

    def _begin_sync(self) -> None:
        """Have the run synced while it is written, by a process of its own."""
        from .online import LOG_NAME, Syncs

        self._syncs = Syncs(self._warn, base_url=self._settings.base_url)
        for directory in self._syncs.accompany(self._journal.paths):
            if self._settings.talks:
                say(f"mode online: the run is synced while it goes on; {directory / LOG_NAME} says how")

    # -- logging -----------------------------------------------------------------------------------------------------

    def log(self, data: Mapping[str, Any], step: int | None = None, commit: bool | None = None) -> None:
        """Log one row of metrics.

        The row is copied and handed off; nothing is written on this thread (levels `record` and `disk` wait for it).
        Never raises for data or I/O: a value that cannot be logged is left out with a warning (`strict` raises).

        Args:
            data: numbers, text, booleans, None, arrays and tensors (up to 32 elements as lists, more as a histogram),
                lists, and dicts of these, which become nested keys.
            step: the row's step. Calls with the same step make one row. Without it, the step after the last one.
            commit: whether the row is finished with this call; by default it is unless `step` is given. `False` keeps
                the row open for the next call.
        """
        now = self._monotonic()
        if not self._takes_rows:
            self._unlogged(data)
            return
        if step is not None:
            if type(step) is not int or not -_INT64 <= step < _INT64:
                step = self._checked_step(step)
            if records.FEATURE_STEP_LOG not in self._identity.telemetry.features:
                self._note(records.FEATURE_STEP_LOG)
        media: StagedRow | None = None  # None: values are plain, and the writer's thread looks at the names
        row: Any = data.copy() if type(data) is dict else data
        if row is data or self._strict or not all_plain(row):
            checked = self._checked_row(row)
            if checked is None:
                return
            row, media = checked
        if len(self._queue) >= self._pump.ease and not self._pump.admit(row):
            self._pump.rows_dropped += 1
            drop_all(media)
            return
        self._append((now, step, commit, row) if media is None else (now, step, commit, row, media))
        if self._pump.asleep:
            self._pump.wake()
        if self._waits:
            sync = self._settings.durability == "disk"
            if media and sync:
                self._pump.settle(sync=False)  # they have their names then
                self._secure_files()
            self._pump.settle(sync=sync)

    def _checked_row(self, data: Any) -> tuple[dict[Any, Any], StagedRow] | None:
        """A row as the recorder takes it: plain values, and media whose content is in the run's directory."""
        if not isinstance(data, Mapping):
            self._refuse("data", f"log takes a dict, not {type(data).__name__}; the call is left out")
            return None
        dropped: dict[str, str] = {}
        row = flatten(data, dropped)
        for name, reason in dropped.items():
            self._refuse(f"value {name}", f"{name} is left out of the row: {reason}")
        if self._strict:
            self._check_texts(row)
        media = {key: row.pop(key) for key in [key for key, value in row.items() if type(value) not in PLAIN_OR_NESTED]}
        return row, self._stage_all(media) if media else {}

    @staticmethod
    def _check_texts(row: Mapping[Key, Any]) -> None:
        """`strict`: raise now for what the writer's thread would leave out."""
        from .recorder import MAX_BODY_BYTES

        size = 0
        for key, value in row.items():
            if type(value) in PLAIN_OR_NESTED:
                try:
                    size += len(to_json(value))
                except (ValueError, RecursionError) as error:
                    raise UnloggableError(f"{'.'.join(path_of(key))} is left out of the row: {error}") from None
        if size > MAX_BODY_BYTES:
            raise UnloggableError(f"a row of {size / 2**20:.0f} MiB is too large for a record and is left out")

    def _checked_step(self, step: Any) -> int | None:
        with suppress(Exception):  # as for data: nothing that a caller's type does is raised by `log`
            number = index(step) if hasattr(type(step), "__index__") else int(step)
            if number == step and -_INT64 <= number < _INT64:
                return number
        shown = repr(step) if isinstance(step, (str, float)) else f"a step of type {type(step).__name__}"
        self._refuse("step", f"{shown} is not a 64-bit integer; the row gets the next step")
        return None

    def _refuse(self, topic: str, text: str) -> None:
        if self._strict:
            raise UnloggableError(text)
        self._warn_once(topic, text)

    def _warn_once(self, topic: str, text: str) -> None:
        self._once(topic, text)

    def _unlogged(self, data: Any) -> None:
        """A row that no log takes: where that is by design, scripts still read it in the summary."""
        if not self.disabled and self._role is Role.FULL:
            self._log_refused()
        elif isinstance(data, Mapping):
            for name, value in dict(data).items():
                with suppress(Exception):  # as for a row that is logged
                    self.summary[name] = value

    def _log_refused(self) -> None:
        if self._forked and not self._settings.silent:
            self._forked = False  # once, and past sys.stderr, whose lock a thread of the parent may have held
            with suppress(OSError):
                os.write(
                    2,
                    f"runferry: WARNING run {self.id} is another process's: what is logged here goes nowhere\n".encode(),
                )
        if self._report is not None and not self._inert:
            self._warn_once("finished", f"run {self.id} is finished: what is logged now goes nowhere")

    # -- config and summary --------------------------------------------------------------------------------------

    def _config_changed(self, path: KeyPath, value: Any) -> None:
        if self._closed:
            self._log_refused()
            return
        self._note(records.FEATURE_CONFIG_ITEM)
        changes = self._identity.config_change(path, value)
        self._submit(lambda recorder: recorder.record_all(changes, urgent=True))

    def _summary_changed(self, path: KeyPath, value: Any) -> None:
        if not self._takes_rows:  # media of a forked child, too, have no business in the run's directory
            self._log_refused()
            return
        self._note(records.FEATURE_SUMMARY)
        if value is REMOVED:
            self._submit(lambda recorder: recorder.summary.remove(path), wake=False)
        elif type(value) in PLAIN_OR_NESTED:
            self._submit(lambda recorder: recorder.set_summary(path, value), wake=False)
        else:
            staged = self._stage_all({path: value})
            self._submit(lambda recorder: recorder.set_summary_media(path, staged), wake=False)

    def _fetch_summary(self) -> dict[str, Any] | None:
        if self._role is not Role.FULL or self.disabled:
            return None  # what is set is all
        return self._pump.ask(lambda recorder: recorder.summary.tree())

    def _opening(self, resumed: bool) -> list[bytes]:
        return self._identity.opening(self._pump.recorder.definitions.all() if resumed else None)

    @property
    def disabled(self) -> bool:
        """Whether nothing is written."""
        return self._settings.mode == "disabled" or self._role is Role.NONE

    @property
    def _system_metrics(self) -> dict[str, list[tuple[datetime, float]]]:
        """Samples of system metrics that stayed in memory (setting `stats_buffer_size`), by key; under the peer's name."""
        return {} if self._attendant is None else self._attendant.system_metrics()

    @property
    def inherited(self) -> bool:
        """Whether another process began the run: the one that forked this, or that pickled the run."""
        return self._inert and not self.disabled

    @property
    def finished(self) -> bool:
        """Whether `finish` was called."""
        return self._report is not None

    @property
    def log_path(self) -> Path | None:
        """The log; None as long as there is none."""
        return self._journal.paths[-1] if self._journal.paths else None

    @property
    def step(self) -> int:
        """The step that the next row gets; waits until the rows logged before are counted in."""
        return self._pump.ask(lambda recorder: recorder.step) or 0

    # -- flushing and ending -----------------------------------------------------------------------------------------

    def flush(self, timeout_s: float = WAIT_S) -> bool:
        """Wait until everything logged so far is on the device, open rows and the summary included; whether it is."""
        if self._closed:
            return self._report is not None and self._report.synced
        if self._capture is not None:
            self._capture.sync()
        deadline = self._monotonic() + timeout_s
        settled = self._settle_files(timeout_s)
        self._pump.hand_off(lambda recorder: recorder.flush())
        return self._pump.barrier(sync=True, timeout_s=max(0.0, deadline - self._monotonic())) and settled

    def finish(self, exit_code: int | None = None) -> FinishReport:
        """End the run: everything is written and synced, and the exit code recorded. Takes 30 s at most.

        Args:
            exit_code: 0 unless given; what is no 32-bit integer counts as 1, as with `sys.exit`.
        """
        if not self._closed:
            self._note(records.FEATURE_FINISH)
        return self._end(code_of(exit_code))

    def _end(self, code: int, timeout_s: float = WAIT_S) -> FinishReport:
        if self._report is not None:
            return self._report
        if self._inert:
            self._report = self._tally(synced=False)
            return self._report
        if not self._ending.acquire(blocking=False):  # another thread is at it
            self._pump.join(timeout_s)
            return self._report or self._tally(synced=False)
        try:
            return self._close(code, timeout_s)
        finally:
            self._ending.release()  # Ctrl-C in the middle: the process's end goes on from here

    def _begin_end(self, code: int, timeout_s: float) -> None:
        """Take nothing more, and have the writer's thread write the end, but don't wait for it."""
        if self._inert or not self._ending.acquire(blocking=False):
            return
        try:
            self._quit(code, timeout_s)
        finally:
            self._ending.release()

    def stop_sampling(self) -> None:
        """Take the last sample of the system's metrics now, within two seconds; `finish` takes none any more."""
        attendant = self._attendant
        if attendant is not None:
            attendant.stop_sampling()

    def _quit(self, code: int, timeout_s: float) -> None:
        deadline = self._monotonic() + timeout_s
        if self._capture is not None:
            self._capture.stop()
        self._console.close()
        if not self._closed:
            attendant, self._attendant = self._attendant, None  # a signal handler in the middle of it waits for no lock
            if attendant is not None:
                attendant.stop(deadline - self._monotonic())
            self._stop_saving(max(0.0, deadline - self._monotonic()))
            self._takes_rows = False
            finish = self._role is Role.FULL or not self._settings.given_id  # a node's sampler ends no shared run
            self._pump.hand_off(lambda recorder: recorder.finish(code) if finish else recorder.flush())
            self._closed = True
        self._pump.stop(0.0)

    def _close(self, code: int, timeout_s: float) -> FinishReport:
        deadline = self._monotonic() + timeout_s
        self._quit(code, timeout_s / 2)
        ended = self._pump.join(max(0.0, deadline - self._monotonic()))
        kept = self._made_files is None or self._made_files.device.settle(max(0.0, deadline - self._monotonic()))
        if self._report is not None:  # a signal handler was faster
            return self._report
        synced = ended and kept and not self._journal.dirty and not self._journal.failing
        report = self._report = self._tally(synced=synced)
        lifecycle.forget(self)
        self._tell_hidden()
        if self._syncs is not None and ended:  # a log that could not be made at first, or a further one
            self._syncs.accompany(report.paths)
        if not kept:
            self._warn(f"run {self.id}: some files are not on the device: a power cut may cost them")
        if not report.complete:
            self._warn(f"run {self.id}: {report}")
        elif self._settings.talks:
            say(f"run {self.id}: {report}{f'; exit code {code}' if code else ''}")
        if self._syncs is not None and self._settings.talks:
            self._syncs.tell_unsent(say)
        return report

    def _tell_hidden(self) -> None:
        news = self._identity.redaction.news()
        if news and self._settings.talks:
            say(news)

    def _tally(self, *, synced: bool) -> FinishReport:
        journal, pump = self._journal, self._pump
        recorder = pump.known_recorder
        waiting = sum(type(item) is tuple for item in list(self._queue))
        rows_dropped = journal.tally.rows_dropped + pump.rows_dropped + journal.rows_queued + waiting
        others_dropped = journal.tally.others_dropped + self._console.dropped + journal.others_queued
        return FinishReport(
            paths=tuple(journal.paths),
            rows_written=journal.tally.rows_written,
            rows_dropped=rows_dropped + (recorder.rows_refused if recorder else 0),
            others_dropped=others_dropped + (recorder.others_refused if recorder else 0),
            rows_unsure=journal.tally.rows_unsure,
            rows_late=recorder.rows_late if recorder else 0,
            synced=synced,
        )

    @property
    def _loading(self) -> bool:
        """Whether a thread of ours is importing."""
        return self._pump.loading or (self._attendant is not None and self._attendant.loading)

    def _abandon(self) -> None:
        """In a forked child."""
        self._forked = self._takes_rows  # else it would log nothing anyway
        self._inert = self._closed = True
        self._takes_rows = False
        self._pump.abandon()
        self._ending = threading.RLock()
        self._console.abandon()
        self._capture = self._attendant = self._syncs = None

    def _become_copy(self, role: Role, info: records.RunInfo, logs: Sequence[Path]) -> None:
        """Of a run that another process began: `copies` made it, with a role that writes nothing."""
        self._role, self._identity.info = role, info
        self._journal.paths += logs
        self._forked = role is Role.FULL and not self.disabled

    def __copy__(self) -> Run:
        return self

    def __deepcopy__(self, memo: Any) -> Run:
        return self

    def __reduce__(self) -> Any:
        return copies.packed(self, self._token)

    def __enter__(self) -> Run:  # noqa: PYI034 - Self needs Python 3.11
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.finish(exit_code_of(error))

    def __repr__(self) -> str:
        return f"<Run {self.id} in {self.log_path or 'no log'}>"

    # -- helpers -----------------------------------------------------------------------------------------------------

    def _submit(self, job: Job, *, wake: bool = True, wait: bool = True) -> None:
        if self._closed:
            if wait:  # else it may be a signal's handler
                self._log_refused()
            return
        (self._pump.submit if wake else self._pump.hand_off)(job)
        if self._waits and wait:
            self._pump.settle(sync=self._settings.durability == "disk")

    def _note(self, *features: int) -> None:
        """Say in the telemetry that a feature is used."""
        telemetry = self._identity.telemetry
        if self._closed or telemetry.features.issuperset(features):
            return
        telemetry.features.update(features)
        # Made there, so that a later record holds what the writer's thread notes meanwhile.
        self._pump.hand_off(lambda recorder: recorder.record(telemetry.record()))

    def _features_record(self, *features: int) -> bytes:
        """The telemetry with these features; empty where they were in it. For the writer's thread, which records it."""
        telemetry = self._identity.telemetry
        if telemetry.features.issuperset(features):
            return b""
        telemetry.features.update(features)
        return telemetry.record()
