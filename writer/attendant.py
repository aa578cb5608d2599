"""What goes on beside a run: the records of the machine, and the sampler.

On a thread of its own, because finding out about the machine takes longer than a run's start may.
"""

from __future__ import annotations

import json
import os
import re
import sys
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from . import records
from .notebook import follow_cells, in_notebook
from .pump import Job
from .report import say
from .settings import Resolved

if TYPE_CHECKING:
    from datetime import datetime

    from ..sampler import Sample, Sampler
    from ..sampler.environment import Inquiry
    from .sampling import SampleBuffer

JOIN_S = 2.0
"""How long the end of a very short run waits for the machine's records."""
HURRY_S = 0.2
"""How long it waits for what is known of facts that are slow to find."""
MACHINE_FILE = "runferry-machine.json"
"""What bounds and shapes the machine, beyond the log's own record of it."""
LABELS_FILE = "runferry-metric-labels.json"
"""The labels of system metrics whose keys only number them."""

HEAD_START_S = 0.02
"""Imports hold the interpreter for milliseconds at a time: the run's start comes first."""


class Attendant:
    """Records the environment, does the run's errands, and samples until stopped."""

    def __init__(
        self,
        settings: Resolved,
        submit: Callable[[Job], None],
        start_ns: int,
        warn: Callable[[str], None],
        *,
        label: str = "",
        pid: int | None = None,
        argv: Sequence[str] | None = None,
        errands: Sequence[Callable[[], None]] = (),
        keep: Callable[[bytes, str], object] | None = None,
    ) -> None:
        """Nothing is done yet.

        Args:
            settings: every setting, decided.
            submit: has the writer's thread do a job.
            start_ns: when the run began.
            warn: takes one line for the user.
            label: keeps the nodes of one run apart, unless the settings have one.
            pid: the process that is sampled; this one unless given.
            argv: its command line.
            errands: what else is to be done away from the training thread.
            keep: puts content among the run's files, under a name; without it none is kept.
        """
        self._settings, self._submit, self._start_ns, self._warn = settings, submit, start_ns, warn
        self._label = settings.label or label
        self._errands = deque(errands)
        self._keep = keep
        self._pid = os.getpid() if pid is None else pid
        # As they are now: the program may go elsewhere, and change both, before the thread comes to it.
        self._argv = list(sys.argv) if argv is None else argv
        try:
            self._folder = Path.cwd()
        except OSError:  # it was removed
            self._folder = Path(os.sep)
        self._sampler: Sampler | None = None
        self._paused = False
        self._leave_cells: Callable[[], None] | None = None
        self._buffer: SampleBuffer | None = None
        if settings.stats_buffer_size:
            from .sampling import SampleBuffer

            self._buffer = SampleBuffer(settings.stats_buffer_size, self._label or None)
        self._stopped = False
        self._thread: threading.Thread | None = None
        self._importing = False
        self._inquiry: Inquiry | None = None
        self._explained = 0  # numbered keys in the file of their labels
        self._told = threading.Event()  # what is known of the machine is in the log

    @property
    def loading(self) -> bool:
        """Whether a thread of this side is still importing what it needs."""
        return self._importing or (self._sampler is not None and self._sampler.loading)

    def start(self) -> None:
        """Begin, unless the settings leave nothing to do."""
        if self._settings.disable_meta and self._settings.disable_stats and not self._errands:
            return
        self._importing = True
        self._thread = threading.Thread(target=self._run, name="runferry-attendant", daemon=True)
        try:
            self._thread.start()
        except RuntimeError as error:  # the system's bound of threads
            self._thread, self._importing = None, False
            self._warn(f"no system metrics and no record of the machine: {error}")
        if not self._settings.disable_stats and in_notebook():
            self._leave_cells = follow_cells(self.resume, self.pause)

    def pause(self) -> None:
        """Sample nothing until `resume`, but at the end: between the cells of a notebook the machine is idle."""
        self._paused = True
        if self._sampler is not None:
            self._sampler.pause()

    def resume(self) -> None:
        """Sample again."""
        self._paused = False
        if self._sampler is not None:
            self._sampler.resume()

    def system_metrics(self) -> dict[str, list[tuple[datetime, float]]]:
        """The samples that were kept (setting `stats_buffer_size`): time (UTC) and value by key, the oldest first."""
        return {} if self._buffer is None else self._buffer.by_key()

    def stop_sampling(self, timeout_s: float = JOIN_S) -> None:
        """Take the last sample, which takes 2 s at most; without it if there is no time at all. May be called twice."""
        if self._leave_cells is not None:
            self._leave_cells()
        if self._thread is not None and not self._stopped:  # the machine's records need the sampler's devices
            self._told.wait(min(JOIN_S, max(timeout_s, 0.0)))
        self._stopped = True
        if self._sampler is not None and timeout_s > 0:
            self._sampler.stop()

    def stop(self, timeout_s: float) -> None:
        """Take the last sample, unless `stop_sampling` has, and end."""
        within = min(JOIN_S, max(timeout_s, 0.0))
        if self._thread is not None:
            if not self._stopped:
                self._told.wait(within)
            if self._inquiry is not None:
                self._inquiry.hurry()
            if self._errands and self._thread.is_alive():
                self._warn(f"the run is over before all files about it are saved: they took more than {within:.1g} s")
        self._stopped = True  # that wait was the one
        self.stop_sampling(timeout_s)
        if self._thread is not None and self._told.is_set():
            self._thread.join(min(HURRY_S, max(timeout_s, 0.0)))

    def _run(self) -> None:
        try:
            time.sleep(HEAD_START_S)
            self._attend()
        except Exception as error:  # a machine that cannot be described must not cost the run anything else
            what = "no system metrics" if self._sampler is None else "no record of the machine"
            self._warn(f"{what}: {type(error).__name__}: {error}")
        finally:
            self._importing = False
            self._told.set()

    def _attend(self) -> None:
        disable_stats = self._settings.disable_stats
        disable_meta = self._settings.disable_meta or not self._settings.primary
        if disable_meta and disable_stats:
            self._do_errands()
            return
        import uuid

        from ..sampler import Sampler, load_modules
        from .sampling import sampler_settings

        given = self._settings
        settings = sampler_settings(given, pid=self._pid, label=self._label)
        load_modules(settings)
        if not disable_stats and not self._stopped:
            self._sampler = Sampler(settings, self._emit, warn=self._warn)
            if self._paused:
                self._sampler.pause()
            self._sampler.start()
        if disable_meta:
            self._do_errands()
            return
        from ..sampler.environment import Inquiry

        inquiry = self._inquiry = Inquiry(
            settings,
            argv=self._argv,
            started_at_ns=self._start_ns,
            folder=self._folder,
            environ=os.environ,
            redact=given.redact,
            devices=self._sampler,
        )
        self._describe(inquiry, str(uuid.uuid4()))

    def _describe(self, inquiry: Inquiry, writer_id: str) -> None:
        """Record what is known within two seconds, and later, or at the run's end, what was slow to find."""
        from ..sampler.redact import MARK

        context = inquiry.context()
        self._tell_hidden(str(context).count(MARK))
        self._record(records.environment(self._as_told(context), writer_id, self._warn))
        self._do_errands()
        self._importing = False  # a fork need not wait for the drivers of devices
        self._record(records.environment(inquiry.hardware(), writer_id, self._warn))
        side = self._keep_machine(inquiry.side, b"")
        if self._stopped:
            inquiry.hurry()
        self._told.set()
        later = self._as_told(inquiry.rest(), late=True)
        if later:
            self._record(records.environment(later, writer_id, self._warn))
        self._keep_machine(inquiry.side, side)

    def _keep_machine(self, side: dict[str, Any], before: bytes) -> bytes:
        """Keep the side record, unless it is as `before`; what is kept now."""
        content = json.dumps(side, indent=2, sort_keys=True).encode() + b"\n"
        if self._keep is not None and side and content != before:
            self._keep(content, self._labelled(MACHINE_FILE))
        return content

    def _labelled(self, name: str) -> str:
        """The file's name with the label of this node, which keeps it apart from those of others."""
        stem, dot, kind = name.partition(".")
        return f"{stem}_{re.sub(r'[^A-Za-z0-9._-]', '_', self._label)}{dot}{kind}" if self._label else name

    def _keep_legend(self) -> None:
        """Keep what numbered keys stand for, whenever there are more of them."""
        legend = self._sampler.legend() if self._sampler is not None else {}
        if self._keep is not None and len(legend) > self._explained:
            self._explained = len(legend)
            content = json.dumps(legend, indent=2, sort_keys=True).encode() + b"\n"
            self._keep(content, self._labelled(LABELS_FILE))

    def _as_told(self, context: dict[str, Any], *, late: bool = False) -> dict[str, Any]:
        """What was found out, with what the settings say instead; `late`: of those only what is found out now."""
        given = self._settings
        root = os.path.normpath(self._folder / given.root)  # where the peer's is: the folder that holds wandb/
        told = {"host": given.host, "program": given.program, "username": given.username, "root": root}
        hidden = {"git"} if self._settings.disable_git else set()
        found = {name: value for name, value in context.items() if name not in hidden}
        return {**found, **{name: value for name, value in told.items() if value and (not late or name in found)}}

    def _do_errands(self) -> None:
        while self._errands:
            try:
                self._errands[0]()
            except Exception as error:
                self._warn(f"a file about the run is not saved: {type(error).__name__}: {error}")
            self._errands.popleft()

    def _tell_hidden(self, count: int) -> None:
        if count and self._settings.talks:
            what = "1 value" if count == 1 else f"{count} values"
            say(f"{what} of the command or Slurm's variables hidden in the log (setting redact=-argv,-environment)")

    def _emit(self, sample: Sample) -> None:
        if self._buffer is not None:
            self._buffer.add(sample.timestamp_ns, sample.values)
        self._record(records.stats(sample.timestamp_ns, sample.values), bulk=True)
        self._keep_legend()

    def _record(self, body: bytes, *, bulk: bool = False) -> None:
        self._submit(lambda recorder: recorder.record(body, bulk=bulk))
