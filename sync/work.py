"""What the steps of one run's sync share: its plan, its logs, their fold, and what became of its files."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from ..logformat import RunState
from . import runconfig
from .answers import ResumeStatus
from .api import RemoteRun, RunFields
from .context import Context
from .cursor import Target
from .inherited import Inherited
from .lines import MAX_LINE, named_unreadable
from .places import Places, is_writable
from .placing import Place, Start
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
    start: Start = field(default_factory=Start)
    """What the run had at the server before the first of these logs."""
    anchors: list[Place | None] = field(default_factory=list)
    """Places that have to stay as they are; see `Stitch`."""
    inherited: Inherited = field(default_factory=Inherited)
    status: ResumeStatus | None = None
    """What the server said that it holds of the run, if it was asked and has it."""
    is_unanswered: bool = False
    """It was asked, and refused the question."""
    leftover: str = ""
    """Rows of an earlier arrangement of these logs that could not be taken from the server."""
    is_lost: bool = False
    """The server has lost the run: no cursor holds any more."""
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
        """Whether the writer of a log may still be alive; only the last segment's may, and with it those of further nodes.

        Asked for once, before the log is read: of a writer that was gone by then nothing can have been missed.
        """
        if segment is not self.last:
            return segment.head.is_node and self.is_young(self.last)
        if self._young is None:
            stale_after = self.context.settings.stale_after
            self._young = self.context.liveness.is_alive(segment.head.path, segment.head.modified, stale_after)
        return self._young

    def waits(self) -> bool:
        """Whether files that change with every row are left to a later pass, because the run goes on."""
        return self.context.settings.following and self.last.found.exit_code is None and self.is_young(self.last)

    def exit_code(self, segment: Segment) -> int | None:
        """The exit code that a log records, else that its cursor knows of; None where neither has one."""
        if segment.facts is not None:
            return segment.facts.exit_code
        return segment.cursor.exit_code if segment.cursor is not None else None

    def forget(self) -> None:
        """Begin anew: nothing of the run is at the server."""
        self.is_lost = True
        self.unread()
        self.start, self.anchors, self.inherited, self.status = Start(), [], Inherited(), None
        self.is_unanswered = False
        for segment in self.segments:
            segment.cursor = None
            segment.rows_before = 0
            segment.notes.clear()

    def unread(self) -> None:
        """Forget what was read, for another reading."""
        self.folds_later = False
        self.state = RunState(keep_rows=False)
        for segment in self.segments:
            segment.facts = segment.place = None

    def fields(self) -> RunFields:
        """What the logs say of the run, as the server takes it."""
        plan, settings = self.plan, self.context.settings
        fields = runconfig.run_fields(self.state, plan, settings)
        return self.inherited.fields_under(fields, self.config())

    def config(self) -> dict[str, Any]:
        """The config, each key wrapped as `{"value": ..}`."""
        return self.inherited.config_under(runconfig.config_tree(self.state))

    def summary(self) -> tuple[str, list[str]]:
        """The summary line, and what is left out of it and of the config."""
        last: int | None = None
        if self.folds_later:
            facts = self.segments[0].found
            facts.last_step, facts.highest_step = self.state.last_step, self.state.highest_step
        for segment in self.segments:
            if segment.found.last_step is not None and segment.place is not None:
                last = segment.found.last_step + segment.place.step_shift
        tree = self.inherited.summary_under(runconfig.summary_tree(self.state, last))
        lost = {where: ["/".join(path) for path in paths] for where, paths in self.state.lost().items()}
        dropped = [name for where, keys in lost.items() for name in named_unreadable(where, keys)]
        return runconfig.summary_line(dict(sorted(tree.items())), MAX_LINE, dropped), dropped

    def changed_summary(self) -> str | None:
        """The summary line, or None if the server has it already."""
        line, _ = self.summary()
        return line if self.last.position.summary != summary_hash(line) else None
