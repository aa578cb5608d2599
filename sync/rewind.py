"""Rows that an earlier arrangement of a run's logs left at the server behind those that it has now: they are taken back."""

from __future__ import annotations

from . import contact
from .errors import AuthError, Permanent
from .segment import Segment
from .work import RunWork


def take_back(work: RunWork) -> None:
    """Let the server forget rows that are too many, once the logs are placed and before the run is announced.

    A server forgets everything behind a step, so this goes back to the last row that stays where it is. What a server cannot
    take back is noted in the cursors, and named by the verdict until it can.

    Raises:
        SyncError: the server does not answer.
    """
    segments = work.segments
    reach = max((segment.cursor.reached for segment in segments if segment.cursor is not None), default=0)
    if work.anchors or work.is_lost or reach <= rows_of(work):
        return
    changed = next(
        (segment for segment in segments if segment.cursor is None or not contact.is_placed(segment)), segments[-1]
    )
    step = _last_kept(segments, changed)
    if step is None or step < 0:
        return
    try:
        left = work.context.api.rewind(work.plan.entity, work.plan.project, work.plan.run_id, step)
    except AuthError:
        raise
    except Permanent as error:
        work.leftover = str(error)
        return
    for segment in segments:
        if segment.cursor is None:
            continue
        cursor = segment.cursor
        if cursor.base.history + cursor.sent.history > left:
            cursor.start_again()
        cursor.reach = left


def _last_kept(segments: list[Segment], changed: Segment) -> int | None:
    """The step up to which the run's rows stay, as far as `changed` goes; None if none stays."""
    place = changed.place
    if place is not None and changed.found.cut and place.steps.below is not None:
        return place.steps.below + place.step_shift - 1
    before = segments[: segments.index(changed)]
    steps = [
        segment.found.highest_step + segment.place.step_shift
        for segment in before
        if segment.found.highest_step is not None and segment.place is not None
    ]
    return max(steps, default=None)


def rows_of(work: RunWork) -> int:
    """Rows that the run has now, with those that were at the server before the first of its logs."""
    return max(
        segment.place.base.history + segment.found.lines.history
        for segment in work.segments
        if segment.place is not None
    )


def leftovers(work: RunWork) -> list[str]:
    """What is still too much at the server, for the verdict."""
    if work.anchors or any(segment.place is None for segment in work.segments):
        return []
    rows = rows_of(work)
    reach = max((segment.cursor.reached for segment in work.segments if segment.cursor is not None), default=0)
    if reach <= rows:
        return []
    why = f" ({work.leftover})" if work.leftover else ""
    what = f"rows {rows} to {reach - 1} at the server are of an earlier arrangement of these logs, and it did not take them back"
    return [f"{what}{why}: delete the run there and sync again, or send it as another run (--id NEW)"]
