"""First contact: where the lines of a run's logs go at the server, decided once and then kept in the cursors.

A line number says where a row is written, so a wrong base overwrites somebody's rows. What the server holds already is
either ours (then the same lines are written again, which changes nothing), or of an earlier segment of a resumed run
(then ours go behind it), or of an unknown writer (then nothing is sent).
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

from ..logformat import RunState
from .api import Api, ResumeStatus
from .cursor import Lines
from .errors import Permanent, Refused
from .lines import Rows
from .plan import RunPlan
from .runconfig import environment_trees
from .scan import Facts, row_at


@dataclass
class Start:
    """Where the first segment begins. `known_rows` are already there, counted from the base."""

    base: Lines
    step_shift: int = 0
    known_rows: int = 0


def ask(api: Api, plan: RunPlan) -> ResumeStatus | None:
    """What the server holds of the run; None for nothing. A server that refuses the question has no such run."""
    try:
        return api.resume_status(plan.entity, plan.project, plan.run_id)
    except Permanent as error:
        if error.status in (401, 403):
            raise
        return None


def first_contact(status: ResumeStatus | None, plan: RunPlan, facts: list[Facts], state: RunState) -> Start:
    """The start for logs that were never sent from here.

    Raises:
        Refused: the server holds rows that are not of these logs.
        OSError: a log cannot be read.
    """
    if status is None or not (status.history_lines or status.events_lines or status.console_lines):
        return Start(Lines())
    lines = status.history_lines
    tail = [_row(text) for text in status.history_tail]
    rows = sum(fact.lines.history for fact in facts)
    if 0 < lines <= rows and tail and _same_row(_our_row(facts, lines - 1), tail[-1]):
        return Start(Lines(), known_rows=lines)
    if lines <= rows and _is_our_writer(status, state):
        return Start(Lines())
    if plan.segments[0].resume and not _is_our_writer(status, state):
        last = tail[-1].get("_step") if tail else None
        shift = last + 1 if isinstance(last, int) and _begins_again(facts[0], last) else 0
        return Start(Lines(lines, status.events_lines, status.console_lines), shift)
    if lines == 0:
        return Start(Lines())
    raise Refused(
        f"the server already holds {lines} rows for run {plan.run_id} that are not those of this log; "
        "sync it under another id (--id), or delete the run there"
    )


def stitch(start: Start, facts: list[Facts]) -> list[tuple[Lines, int]]:
    """Base and step shift of each segment: lines go on where the segment before ended.

    Steps stay as logged where they go on growing. A segment that begins at step 0 again, as offline resumed runs do, is
    shifted behind the last step of the one before it.
    """
    places: list[tuple[Lines, int]] = []
    base, shift, last = start.base, start.step_shift, None
    for fact in facts:
        if places:
            shift = last + 1 if last is not None and _begins_again(fact, last) else 0
        places.append((base, shift))
        base = base + fact.lines
        if fact.last_step is not None:
            last = max(fact.last_step + shift, last if last is not None else 0)
    return places


def _begins_again(fact: Facts, last: int) -> bool:
    return fact.first_step == 0 and last >= 0


def _is_our_writer(status: ResumeStatus, state: RunState) -> bool:
    trees = environment_trees(state).values()
    ours = {tree.get(name) for tree in trees for name in ("writerId", "startedAt")}
    return not ours.isdisjoint(status.writers)


def _our_row(facts: list[Facts], index: int) -> dict[str, Any]:
    """Row number `index` over all segments, as the server would hold it."""
    for fact, (base, shift) in zip(facts, stitch(Start(Lines()), facts), strict=True):
        if index < base.history + fact.lines.history:
            return _row_of(fact, index - base.history, shift)
    return {}


def _row_of(fact: Facts, index: int, shift: int) -> dict[str, Any]:
    rows = Rows(shift, fact.steps)
    row = row_at(fact.log, index, rows)
    return {} if row is None else _row(rows.line(row))


def _row(text: str) -> dict[str, Any]:
    try:
        row = json.loads(text)
    except (ValueError, RecursionError):
        return {}
    return row if isinstance(row, dict) else {}


def _same_row(ours: dict[str, Any], theirs: dict[str, Any]) -> bool:
    """Two rows are the same if step and time are: no two rows of different logs share the time to the microsecond."""
    if "_timestamp" in ours and "_timestamp" in theirs:
        return bool(ours["_timestamp"] == theirs["_timestamp"] and ours.get("_step") == theirs.get("_step"))
    return bool(ours) and ours == theirs
