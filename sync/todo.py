"""What a sync would find, by run: for people who look before they leap, and for whatever hands runs to many machines.

No server is asked and nothing is written. Each log is opened for its head, its end and its cursor; its rows are not read.
"""

from __future__ import annotations

import contextlib
import os
from collections import Counter
from dataclasses import dataclass, field, replace
from enum import Enum
from typing import Any

from .choice import is_ours, left_out, left_out_by_content, state_of
from .clock import Clock, SystemClock
from .cursor import Target
from .kin import with_kin
from .liveness import Liveness
from .places import Places, is_writable
from .plan import Paths, RunPlan, group, survey
from .segment import Segment, is_done
from .settings import SyncSettings, find_base_url


class Todo(str, Enum):
    """What a sync has to do for a run."""

    ALL = "all"
    """Nothing of it was sent from here."""
    REST = "rest"
    """A part was sent."""
    NOTHING = "nothing"
    """All that can be was sent, and nothing has changed since."""
    SKIP = "skip"
    """It is marked as synced, and no cursor says by whom: it is sent with `include_synced` only."""


@dataclass(frozen=True)
class RunPreview:
    """One run and what there is to do for it."""

    run: str
    entity: str | None
    """None: the server's default for the key."""
    project: str
    logs: tuple[str, ...]
    """Its logs, oldest first: those that one sync has to be given together."""
    bytes: int
    started: float
    """Epoch seconds; 0 if the log does not say."""
    modified: float
    """Epoch seconds at which it last grew."""
    state: str
    """One of `STATES`, or empty where the end of the log cannot be read."""
    rows_sent: int
    """Rows that the server has acknowledged."""
    todo: Todo
    lost: int = 0
    """How many things are missing at the server for good: damage of its logs, values that no server takes."""
    torn: bool = False
    """A log of it ends inside a record, as one that was copied while it was written: the next copy may hold the rest."""


@dataclass(frozen=True)
class Preview:
    """What `preview` found."""

    runs: tuple[RunPreview, ...]
    problems: dict[str, str] = field(default_factory=dict)
    """Path -> why what lies there cannot be synced."""
    left_out: dict[str, int] = field(default_factory=dict)
    """Runs that were not asked for, as `Report` has it."""
    beginning: tuple[str, ...] = ()
    """Logs that do not say yet which run they are, and whose writers are there."""
    copies: dict[str, str] = field(default_factory=dict)
    """Log that is a copy -> why it is passed over."""


def preview(
    paths: Paths = ("wandb",), settings: SyncSettings | None = None, *, clock: Clock | None = None, **options: Any
) -> Preview:
    """The runs below `paths`, and what a sync with these settings has to do for each.

    Args:
        paths: as `sync` takes them.
        settings: as `sync` takes them; overrides, share and filters count.
        clock: the time; a port for tests.
        **options: settings by their names, over those of `settings`.

    Raises:
        UsageError: a path does not exist or a setting cannot be followed.
        TypeError: one of `options` is no setting.
    """
    settings = replace(settings or SyncSettings(base_url=options.get("base_url") or find_base_url()), **options)
    liveness = Liveness(clock or SystemClock())
    heads = survey(paths)
    runs: list[RunPreview] = []
    chosen: list[RunPlan] = []
    omitted: Counter[str] = Counter()
    problems: dict[str, str] = {}
    copies: dict[str, str] = {}
    for plan in group((head for head in heads if not head.problem), settings):
        reason = left_out(plan, settings)
        if reason is None:
            chosen.append(plan)
        else:
            omitted[reason] += 1
    for plan in with_kin(chosen, settings):
        reason, state = None, ""
        with contextlib.suppress(OSError):
            reason = left_out_by_content(plan, settings, liveness)
            state = state_of(plan, settings, liveness)
        if reason is None:
            runs.append(_preview(plan, settings, state))
            for copy in plan.copies:
                (problems if copy.differs else copies)[os.fspath(copy.log)] = copy.reason
        else:
            omitted[reason] += 1
    beginning: list[str] = []
    for head in heads:
        if not (head.problem and is_ours(head, settings)):
            continue
        if liveness.is_beginning(head, settings.stale_after):
            beginning.append(os.fspath(head.path))
        else:
            problems[os.fspath(head.path)] = head.problem
    return Preview(tuple(runs), problems, dict(omitted), tuple(beginning), copies)


def _preview(plan: RunPlan, settings: SyncSettings, state: str) -> RunPreview:
    target = Target(settings.base_url, plan.entity, plan.project, plan.run_id)
    segments = [Segment(head, Places(head.path, settings.state_dir, is_writable)) for head in plan.segments]
    for segment in segments:
        segment.load_cursor(target)
    return RunPreview(
        run=plan.run_id,
        entity=plan.entity,
        project=plan.project,
        logs=tuple(os.fspath(head.path) for head in plan.segments),
        bytes=sum(head.size for head in plan.segments),
        started=plan.segments[0].start_ns / 1e9,
        modified=max(head.modified for head in plan.segments),
        state=state,
        rows_sent=sum(segment.cursor.sent.history for segment in segments if segment.cursor is not None),
        todo=_todo(segments, settings),
        lost=sum(_lost(segment) - _is_torn(segment) for segment in segments),
        torn=any(_is_torn(segment) and segment.head.size == segment.position.size for segment in segments),
    )


def _todo(segments: list[Segment], settings: SyncSettings) -> Todo:
    if all(segment.is_foreign_synced() for segment in segments) and not settings.include_synced:
        return Todo.SKIP
    if all(segment.cursor is None for segment in segments):
        return Todo.ALL
    if settings.include_synced:
        return Todo.ALL
    done = is_done([_without_loss(segment) for segment in segments]) and not settings.changes_run
    return Todo.NOTHING if done else Todo.REST


def _lost(segment: Segment) -> int:
    """How much of a log no sync will bring over, if that is all that is missing of it."""
    cursor = segment.cursor
    if cursor is None or cursor.complete:
        return 0
    lost = len(cursor.gaps) + len(cursor.dropped) + segment.head.salvaged
    return lost if lost == cursor.lacks else 0


def _is_torn(segment: Segment) -> bool:
    """Whether a log of which all else was sent lacked its end: it had no exit record, and its last bytes were no whole record."""
    cursor = segment.cursor
    if cursor is None or cursor.exit_code is not None or not _lost(segment):
        return False
    return any(end >= cursor.size for _, end in cursor.gaps)


def _without_loss(segment: Segment) -> Segment:
    """A log of which all was sent but for what is lost, as if all of it were: nothing is left to do for it."""
    if segment.cursor is not None and _lost(segment):
        return replace(segment, cursor=replace(segment.cursor, complete=True))
    return segment
