"""What the steps of one run's sync share: its plan, its logs, their fold, and what became of its files."""

from __future__ import annotations

from dataclasses import dataclass, field

from ..logformat import RunState
from . import contact, runconfig
from .api import RemoteRun
from .context import Context
from .cursor import Lines, Target
from .lines import MAX_LINE
from .places import Places, is_writable
from .plan import RunPlan
from .rowlane import summary_hash
from .segment import Segment


@dataclass
class RunWork:
    """One run on its way to the server."""

    plan: RunPlan
    context: Context
    segments: list[Segment]
    target: Target
    state: RunState = field(default_factory=lambda: RunState(keep_rows=False))
    """The fold of all segments."""
    folds_later: bool = False
    """Rows are folded while they are sent, not by the scan."""
    files_sent: int = 0
    missing: list[str] = field(default_factory=list)
    """What is missing of the run as a whole (its files): no log of it is done before all of it is there."""
    files_wait: bool = False
    """Some files are left to a later sync, as `following` has it."""
    late: int = 0
    """How many of the missing things are missing only because the server or the network was not there."""
    _young: bool | None = None

    @classmethod
    def of(cls, plan: RunPlan, context: Context) -> RunWork:
        """The work on a plan, before anything was looked at."""
        settings = context.settings
        segments = [Segment(head, Places(head.path, settings.state_dir, is_writable)) for head in plan.segments]
        return cls(plan, context, segments, Target(settings.base_url, plan.entity, plan.project, plan.run_id))

    @property
    def only_late(self) -> bool:
        """All that is missing came too late: time may mend it."""
        return 0 < self.late == len(self.missing)

    @property
    def last(self) -> Segment:
        """The newest segment: its log says how the run ends, and its cursor holds what is of the whole run."""
        return self.segments[-1]

    def remote(self) -> RemoteRun:
        """The run as the server named it at the last contact."""
        cursor = self.last.position
        return RemoteRun(cursor.storage_id, cursor.entity, cursor.project, cursor.run_id)

    def is_young(self, segment: Segment) -> bool:
        """Whether the writer of a log may still be alive; only the last segment's may.

        Asked for once, before the log is read: of a writer that was gone by then nothing can have been missed.
        """
        if segment is not self.last:
            return False
        if self._young is None:
            stale_after = self.context.settings.stale_after
            self._young = self.context.liveness.is_alive(segment.head.path, segment.head.modified, stale_after)
        return self._young

    def exit_code(self, segment: Segment) -> int | None:
        """The exit code that a log records, else that its cursor knows of; None where neither has one."""
        if segment.facts is not None:
            return segment.facts.exit_code
        return segment.cursor.exit_code if segment.cursor is not None else None

    def kept_start(self) -> contact.Start:
        """Where the first segment begins, as its cursor has it."""
        cursor = self.segments[0].cursor
        return contact.Start(cursor.base, cursor.step_shift) if cursor is not None else contact.Start(Lines())

    def summary(self) -> tuple[str, list[str]]:
        """The summary line, and the keys that it has no room for."""
        last: int | None = None
        if self.folds_later:
            self.segments[0].found.last_step = self.state.last_step
        places = contact.stitch(self.kept_start(), [segment.found for segment in self.segments])
        for segment, (_, shift) in zip(self.segments, places, strict=True):
            if segment.found.last_step is not None:
                last = segment.found.last_step + shift
        dropped: list[str] = []
        return runconfig.summary_line(runconfig.summary_tree(self.state, last), MAX_LINE, dropped), dropped

    def changed_summary(self) -> str | None:
        """The summary line, or None if the server has it already."""
        line, _ = self.summary()
        return line if self.last.position.summary != summary_hash(line) else None
