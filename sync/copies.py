"""Which of the logs that were found are copies of others: they would be written behind those, as if the run had gone on."""

from __future__ import annotations

import os
from collections.abc import Collection, Iterable
from dataclasses import replace
from pathlib import Path

from ..logformat import RunDirName
from ..logformat.copies import Copy, copies_in, copy_without_start
from .places import Places, is_writable
from .plan import LogHead, RunPlan


def find_copies(heads: Iterable[LogHead], state_dir: Path, named: Collection[Path] = ()) -> list[Copy]:
    """Those of readable logs that do not count beside others; of equal ones, one counts that was synced from here, or was `named`.

    Nothing is read where no two logs of a run have the same start. A log that cannot be read is no copy: whoever reads it next
    says what is wrong with it.
    """
    alike: dict[tuple[str, int], list[LogHead]] = {}
    for head in heads:
        alike.setdefault((head.run_id, head.start_ns), []).append(head)
    found: list[Copy] = []
    for (_, start_ns), same in alike.items():
        if len(same) > 1:
            is_start_known = start_ns > 0 and not any(head.salvaged for head in same)
            found += _copies(same, state_dir, named, is_start_known=is_start_known)
    dropped = {copy.log for copy in found}
    left = [head for same in alike.values() for head in same if head.path not in dropped]
    for head in left:
        if head.salvaged:
            found += _copies_without_start(head, left)
    return found


def without_copies(plan: RunPlan, named: Collection[Path], state_dir: Path) -> RunPlan:
    """The run without the logs that are copies of others of it; those of the `named` ones are told."""
    copies = find_copies(plan.segments, state_dir, named)
    if not copies:
        return plan
    dropped = {copy.log for copy in copies}
    segments = tuple(head for head in plan.segments if head.path not in dropped)
    return replace(plan, segments=segments, copies=tuple(copy for copy in copies if copy.log in named))


def _copies(heads: list[LogHead], state_dir: Path, named: Collection[Path], *, is_start_known: bool) -> list[Copy]:
    def rank(head: LogHead) -> tuple[bool, bool, bool, float, str]:
        is_sent = any(path.exists() for path in Places(head.path, state_dir, is_writable).cursors)
        is_in_place = RunDirName.parse(head.path.parent.name) is not None
        return (not is_sent, head.path not in named, not is_in_place, head.modified, os.fspath(head.path))

    try:
        return copies_in([head.path for head in sorted(heads, key=rank)], is_start_known=is_start_known)
    except OSError:
        return []


def _copies_without_start(lost: LogHead, heads: list[LogHead]) -> list[Copy]:
    for head in heads:
        if head.run_id == lost.run_id and not head.salvaged:
            try:
                copy = copy_without_start(lost.path, head.path)
            except OSError:
                continue
            if copy is not None:
                return [copy]
    return []
