"""The other logs of a run, found in the same `wandb` folder: those that were sent before belong to what is sent now.

So several commands, each with one log of a run, leave what one command with all of them leaves. Logs that were never sent stay
out unless they are named. Each folder is listed once, and nothing else is looked at but the logs of a run that has several.
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path

from ..logformat import RunDirName
from .clock import Clock
from .copies import without_copies
from .cursor import load
from .lock import Lock, LockedError
from .places import Places, is_writable
from .plan import LogHead, RunPlan, group, in_time, read_head
from .settings import SyncSettings

_Runs = dict[str, list[Path]]
"""Run id -> the logs that the names of run directories say."""


def with_kin(plans: Iterable[RunPlan], settings: SyncSettings) -> list[RunPlan]:
    """The plans, each with the logs of its run that were sent to the same place before, and without copies of logs."""
    folders: dict[Path, _Runs] = {}
    real: dict[Path, Path] = {}
    return [
        without_copies(
            _joined(plan, settings, folders, real), {head.path for head in plan.segments}, settings.state_dir
        )
        for plan in plans
    ]


def _joined(plan: RunPlan, settings: SyncSettings, folders: dict[Path, _Runs], real: dict[Path, Path]) -> RunPlan:
    logs = [_without_links(head.path, real) for head in plan.segments]
    found: list[LogHead] = []
    unsent: list[Path] = []
    for run_id, folder in {(head.run_id, log.parent.parent) for head, log in zip(plan.segments, logs, strict=True)}:
        if folder not in folders:
            folders[folder] = _runs_in(folder)
        others = [log for log in folders[folder].get(run_id, []) if log not in logs]
        for log in others:
            head = _sent_before(log, plan, settings)
            if head is None:
                unsent.append(log)
            else:
                found.append(head)
    here = {head.identity for head in plan.segments}
    new = {head.identity: head for head in found if head.identity not in here}
    if not (new or unsent):
        return plan
    return replace(plan, segments=in_time([*plan.segments, *new.values()]), others=tuple(unsent))


def check_others(plan: RunPlan, settings: SyncSettings, clock: Clock) -> None:
    """See that no other sync sends, or has just sent, a log of this run that the plan does not have: both would begin at 0.

    Ask with the locks of the plan's own logs in hand: of two syncs at least one sees the other.

    Raises:
        LockedError: one does.
    """
    for log in plan.others:
        Lock(Places(log, settings.state_dir, is_writable).lock, clock).check()
        if _sent_before(log, plan, settings) is not None:
            raise LockedError(f"another sync has just sent {log.parent.name}, which is of the same run")


def _without_links(log: Path, real: dict[Path, Path]) -> Path:
    """Where a log lies. Run directories in one folder need one look at that folder, which is kept in `real`."""
    if RunDirName.parse(log.parent.name) is None:  # such as `latest-run`, or a log by itself
        return Path(os.path.realpath(log))
    folder = log.parent.parent
    if folder not in real:
        real[folder] = Path(os.path.realpath(folder))
    return real[folder] / log.parent.name / log.name


def _runs_in(folder: Path) -> _Runs:
    """The runs of which a folder has several logs, by the names of its directories alone."""
    runs: _Runs = {}
    try:
        with os.scandir(folder) as entries:
            names = [entry.name for entry in entries]
    except OSError:
        return runs
    for name in names:
        parts = RunDirName.parse(name)
        if parts is not None:
            runs.setdefault(parts.run_id, []).append(folder / name / f"run-{parts.run_id}.wandb")
    return {run_id: logs for run_id, logs in runs.items() if len(logs) > 1}


def _sent_before(log: Path, plan: RunPlan, settings: SyncSettings) -> LogHead | None:
    """The head of a log that has a cursor for this target, and is of this run."""
    cursor, _ = load(Places(log, settings.state_dir, is_writable).cursors)
    if cursor is None or cursor.target.base_url != settings.base_url:
        return None
    target = cursor.target
    if (target.entity, target.project, target.run_id) != (plan.entity, plan.project, plan.run_id):
        return None
    head = read_head(log)
    if head.problem:
        return None
    joined, *others = group([*plan.segments, head], settings)  # a log whose run record is lost goes where these go
    if others or (joined.entity, joined.project, joined.run_id) != (plan.entity, plan.project, plan.run_id):
        return None
    return next(one for one in joined.segments if one.path == log)
