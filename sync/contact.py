"""First contact, and every later one: what the server holds of the run, and whether it is what these logs left there.

A line number says where a row is written, so a wrong base overwrites somebody's rows. What the server holds already is
either ours (then the same lines are written again, which changes nothing), or of an earlier log of a resumed run
(then ours go behind it), or of an unknown writer (then nothing is sent).
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import astuple

from . import tails
from .answers import ResumeStatus
from .api import RemoteRun, RunFields
from .cursor import Cursor, Lines, row_mark
from .errors import Permanent, Refused
from .inherited import Inherited
from .placing import Place, Start
from .report import counted, shorten
from .segment import Segment
from .whose import check_lost, is_our_writer
from .work import RunWork

_OTHER_ID = "sync it under another id (--id), or delete the run there"


def ask(work: RunWork) -> ResumeStatus | None:
    """What the server holds of the run, noted in `work`; None for nothing, and where it refuses the question."""
    plan = work.plan
    work.status, work.is_unanswered = None, False
    try:
        work.status = work.context.api.resume_status(plan.entity, plan.project, plan.run_id)
    except Permanent as error:
        if error.status in (401, 403):
            raise
        work.is_unanswered = True
    return work.status


def check_unanswered(work: RunWork, fields: RunFields) -> None:
    """Where the server refused the question, see that it has no rows by an announcement that changes nothing.

    Raises:
        Refused: it has some, or does not say.
        SyncError: the server does not answer.
    """
    if work.is_unanswered and all(segment.cursor is None for segment in work.segments):
        check_new(work, work.context.api.upsert(RunFields(fields.run_id, fields.project, fields.entity, None)))


def check_new(work: RunWork, remote: RemoteRun) -> None:
    """See that a run of which nothing is known has no rows at the server."""
    if remote.history_lines and not remote.inserted:
        raise Refused(
            f"the server holds {counted(remote.history_lines, 'row')} of run {work.plan.run_id} and does not say which; "
            f"{_OTHER_ID}"
        )


def recall(work: RunWork) -> None:
    """Find out what the logs are stitched to, by what their cursors say."""
    if all(segment.cursor is None for segment in work.segments):
        return
    work.start, work.inherited = _kept_start(work)
    if _gone(work):  # the logs stay where they are: what lay between them cannot be counted
        work.anchors = [_kept_place(segment) for segment in work.segments]


def prepare(work: RunWork) -> bool:
    """The same by what the server says, once the logs were read: where none of them, or not all, were sent from here.

    Returns:
        Whether the logs have to be stitched anew.

    Raises:
        SyncError: the server does not answer; `Refused` if it holds rows that no log here can go behind.
        OSError: a log cannot be read.
    """
    before = work.start
    if all(segment.cursor is None for segment in work.segments):
        ask(work)
        _begin(work)
    elif work.anchors:
        _go_on_without(work, _gone(work))
    elif work.start.base != Lines() and any(segment.cursor is None for segment in work.segments):
        status = ask(work)
        if status is not None and check_lost(work, status):
            work.start, work.inherited = Start(), Inherited()  # what was before the first log is of these logs
    return work.start is not before


def check(work: RunWork, *, following: bool) -> None:
    """Compare what the server holds with the logs, once they are read and before the run is announced.

    A cursor that a process before this one left may speak of a run that was deleted meanwhile and made again by others.

    Raises:
        Refused: the server holds rows that are not of these logs.
    """
    known = [segment.position for segment in work.segments if segment.cursor is not None]
    if not known:
        _check_first(work)
        return
    first = work.segments[0]
    if first.cursor is None and not work.anchors:
        _check_room(work, next(segment for segment in work.segments if segment.cursor is not None))
    if following or not any(cursor.reached or cursor.sent.events for cursor in known):
        return
    if work.anchors and len(known) < len(work.segments):  # what goes behind others has asked already
        return
    status = ask(work)
    if status is None:  # the announcement makes it anew, and says so
        return
    check_lost(work, status)
    _check_samples(work, status, known)
    tail = status.history_tail[-1] if status.history_tail else ""
    mark = row_mark(tail)
    if work.anchors:  # lines of logs that are not here cannot be filled again, nor counted
        ends = [cursor for cursor in known if cursor.base.history + cursor.sent.history == status.history_lines]
        if not any(mark == cursor.last_row or not cursor.sent.history for cursor in ends):
            _check_tail(work, tail)
        return
    if status.history_lines == 0:
        for cursor in known:
            cursor.start_again()
        return
    for cursor in known:
        cursor.reach = max(cursor.reach, status.history_lines)
        end = cursor.base.history + cursor.sent.history
        if end == status.history_lines and mark and mark == cursor.last_row:
            return
        if cursor.base.history == status.history_lines and mark and mark == cursor.row_before:
            cursor.start_again()  # nothing of these logs has come there yet
            return
        if end > status.history_lines:  # what it acknowledged it may yet be counting, or it has lost it
            cursor.start_again()
    _check_tail(work, tail)


def _check_tail(work: RunWork, tail: str) -> None:
    """See that the last row at the server is of one of these logs."""
    if tail and not any(tails.holds(segment.found, tails.row_of(tail)) for segment in work.segments):
        why = _damage(work) or (
            "others have written to it, or it was deleted and made again; sync all logs of the run in one command, or send "
            "this one as another run (--id NEW)"
        )
        raise Refused(f"the run {work.plan.run_id} at the server ends in a row that is not of these logs: {why}")


def _damage(work: RunWork) -> str:
    """Why rows that were sent from here may be in no log any more, and what to do; empty if no log is damaged."""
    lost = [line for segment in work.segments for line in segment.found.damage_lines()]
    return (
        f"damaged are {shorten(lost)}; nothing there is written over: bring back a whole copy of the log"
        if lost
        else ""
    )


def _check_samples(work: RunWork, status: ResumeStatus, known: list[Cursor]) -> None:
    """See that samples behind those that were acknowledged are of these logs: a log may have no rows that tell it."""
    if (
        status.events_lines <= max(cursor.base.events + cursor.sent.events for cursor in known)
        or not status.events_tail
    ):
        return
    time = tails.row_of(status.events_tail[-1]).get("_timestamp")
    if not isinstance(time, (int, float)) or any(
        tails.log_samples(segment.head.path, time) for segment in work.segments
    ):
        return
    raise Refused(
        f"the run {work.plan.run_id} at the server ends in a sample that is not of these logs: others have written to it; "
        "sync all logs of the run in one command, or send this one as another run (--id NEW)"
    )


# -- nothing was sent from here -------------------------------------------------------------------------------------------


def _begin(work: RunWork) -> None:
    """Where logs begin that were never sent from here."""
    status, first = work.status, work.segments[0]
    if status is None or not (status.history_lines or status.events_lines or status.console_lines):
        return
    rewinds = first.opening.rewinds
    if is_our_writer(status, work.segments) and not _is_all_from_before(work, status):
        return
    if not (first.head.resume or rewinds is not None):
        if _is_beside(work, status):
            _go_behind(work, status, first)
            work.start.runtime = 0.0  # at the same time
        return
    tail = tails.row_of(status.history_tail[-1]) if status.history_tail else {}
    if tail and any(tails.log_holds(segment.head.path, tail) for segment in work.segments):
        return
    if rewinds is not None:
        left = work.context.api.rewind(work.plan.entity, work.plan.project, work.plan.run_id, rewinds)
        status = ask(work)
        if status is None or status.history_lines != left:
            raise Refused(
                f"the server says that it rewound run {work.plan.run_id} to {counted(left, 'row')}, but it does not hold them"
            )
    _go_behind(work, status, first)


def _is_all_from_before(work: RunWork, status: ResumeStatus) -> bool:
    """Whether the rows and samples at the server are from before the first log here.

    If it names us then, a sync was killed, or cut off, between the announcement and the cursor, which comes before any line.
    """
    streams = ((status.history_lines, status.history_tail), (status.events_lines, status.events_tail))
    times = [tails.row_of(tail[-1]).get("_timestamp") if tail else None for lines, tail in streams if lines]
    start = work.segments[0].head.start_ns
    return bool(times) and all(isinstance(at, (int, float)) and at * 1e9 < start for at in times)


def _is_beside(work: RunWork, status: ResumeStatus) -> bool:
    """Whether the server holds lines of other nodes of the run, and none of these logs: then these go behind them."""
    tail = tails.row_of(status.events_tail[-1]) if status.events_tail else {}
    time = tail.get("_timestamp")
    if isinstance(time, (int, float)) and any(tails.log_samples(one.head.path, time) for one in work.segments):
        return False
    if all(segment.head.is_node for segment in work.segments):
        return True
    is_known = all(segment.opening.environment is not None for segment in work.segments)
    return is_known and bool(status.writers) and status.history_lines == 0


def _go_behind(work: RunWork, status: ResumeStatus, first: Segment, floor: Lines | None = None) -> None:
    """Let the logs from `first` on go behind what the server holds, and behind `floor`: lines that it may not have counted yet.

    Raises:
        Refused: neither steps nor time say that they are later.
    """
    tail = tails.row_of(status.history_tail[-1]) if status.history_tail else {}
    steps = [step for step in (tail.get("_step"), status.summary.get("_step")) if isinstance(step, int)]
    highest = steps[0] if steps else None
    floor = floor or Lines()
    work.start = Start(
        Lines(
            status.history_lines,
            max(status.events_lines, floor.events),
            max(status.console_lines, floor.console),
        ),
        highest if status.history_lines else None,
        tails.runtime_of(status),
        row_mark(status.history_tail[-1]) if status.history_tail else "",
    )
    work.inherited = Inherited.from_status(status)
    opening = first.opening
    time = tail.get("_timestamp")
    is_later = not isinstance(time, (int, float)) or first.head.start_ns >= time * 1e9
    overlaps = (
        opening.first_step is not None
        and not opening.restarts
        and opening.first_step <= (-1 if highest is None else highest)
    )
    if not is_later and (overlaps or opening.restarts):
        raise Refused(
            f"the server holds rows of run {work.plan.run_id} that are later than the start of this log, and not of it; "
            "sync the logs that they are from in the same command"
        )
    if overlaps and work.context.settings.overlap != "first":
        first.notes.append(
            f"steps {opening.first_step} to {highest} are at the server from a log that is not here: they stay, and are "
            "there twice"
        )


def _check_first(work: RunWork) -> None:
    """What the server held at first contact, once the logs are counted."""
    status, start = work.status, work.start
    if status is None or start.base != Lines():
        return
    lines = status.history_lines
    if not (lines or status.events_lines or status.console_lines):
        return
    check_lost(work, status)
    facts = [segment.found for segment in work.segments]
    rows = sum(fact.lines.history for fact in facts)
    # A log without an environment record does not say who wrote it.
    if all(segment.head.is_node for segment in work.segments) and status.events_lines > sum(
        fact.lines.events for fact in facts
    ):
        raise Refused(
            f"the server holds samples of run {work.plan.run_id} of this node and of others, and what was sent from here is not "
            "known any more: sync all logs of the run in one command"
        )
    tail = tails.row_of(status.history_tail[-1]) if status.history_tail else {}
    if tail and 0 < lines <= rows and tails.is_row_at(work.segments, lines - 1, tail):
        if not any(map(tails.may_lack_values, facts)):
            start.known_rows = lines  # else all lines are written again, and what no line has room for is found out
        _note_what_stays(work, status)
        return
    ours = bool(tail) and any(tails.holds(fact, tail) for fact in facts)
    first = work.segments[0]
    if ours and (first.head.resume or first.opening.rewinds is not None):
        raise Refused(
            f"the server holds {counted(lines, 'row')} for run {work.plan.run_id}, the last of them of this log, and others before its "
            f"own that are of logs that are not here: sync all logs of the run in one command, or {_OTHER_ID}"
        )
    # A row that has a time is known wherever it is: one that is not found is of another log, or of a newer copy of this one.
    if lines <= rows and (ours or ("_timestamp" not in tail and is_our_writer(status, work.segments))):
        _note_what_stays(work, status)
        return  # all lines are written again: those that are there were of these logs in another arrangement
    damaged = _damage(work)
    if ours:
        why = damaged or f"a sync that another tool repeated has written rows twice; {_OTHER_ID}"
        raise Refused(
            f"the server holds {counted(lines, 'row')} for run {work.plan.run_id}, of which this log has {rows}: {why}"
        )
    if lines:
        why = damaged or f"sync it together with the logs (or the newer copy) that they are from, {_OTHER_ID}"
        raise Refused(
            f"the server already holds {counted(lines, 'row')} for run {work.plan.run_id} that are not those of this log: {why}"
        )


def _note_what_stays(work: RunWork, status: ResumeStatus) -> None:
    """Lines behind ours cannot be taken back: another tool numbers its console by the lines of a terminal."""
    held = Lines(0, status.events_lines, status.console_lines)
    ours = sum((segment.found.lines for segment in work.segments), Lines())
    for name, more in (("sample", held.events - ours.events), ("console line", held.console - ours.console)):
        if more > 0:
            work.last.notes.append(
                f"left at the server, behind those of the log: {counted(more, name)} that another tool wrote"
            )


# -- some of it was sent from here ----------------------------------------------------------------------------------------


def _kept_start(work: RunWork) -> tuple[Start, Inherited]:
    """What the run had before the first log, as that log's cursor has it."""
    cursor = work.segments[0].cursor
    if cursor is None or _are_here(work, cursor.base):  # it turned up late: others were sent before it
        return Start(), Inherited()
    start = Start(cursor.base, cursor.highest_before, cursor.runtime_before, cursor.row_before)
    return start, Inherited.from_json(cursor.inherited)


def _are_here(work: RunWork, base: Lines) -> bool:
    """Whether the rows and samples before `base` are of later logs that are here, from when those came without the others."""
    later = [segment.cursor for segment in work.segments[1:] if segment.cursor is not None]
    rows = _covered((cursor.base.history, cursor.sent.history) for cursor in later)
    samples = _covered((cursor.base.events, cursor.sent.events) for cursor in later)
    return base != Lines() and base.history <= rows and base.events <= samples


def _covered(spans: Iterable[tuple[int, int]]) -> int:
    """How many lines from 0 on are in one of the spans (first line, and how many)."""
    end = 0
    for first, lines in sorted(spans):
        if first <= end:
            end = max(end, first + lines)
    return end


def _gone(work: RunWork) -> set[int]:
    """Start times of logs that the run had once and that are not here."""
    kin = {start for segment in work.segments if segment.cursor is not None for start in segment.cursor.kin}
    return kin - {segment.head.start_ns for segment in work.segments}


def _kept_place(segment: Segment) -> Place | None:
    cursor = segment.cursor
    return Place(cursor.base, cursor.step_shift, cursor.steps) if cursor is not None else None


def _go_on_without(work: RunWork, gone: set[int]) -> None:
    """See what can be sent while some logs of the run are not here: new ones go behind all of them.

    Raises:
        Refused: a log cannot grow, or has no place, without those that are gone.
    """
    if max(gone) > work.last.head.start_ns:
        raise Refused(
            f"later logs of run {work.plan.run_id} are not here, and its config, summary and end are theirs to say: sync all "
            "logs of the run in one command"
        )
    newest = max(gone | {segment.head.start_ns for segment in work.segments if segment.cursor is not None})
    for segment in work.segments:
        cursor, start_ns = segment.cursor, segment.head.start_ns
        grew = cursor is not None and cursor.offset != segment.found.end and start_ns < newest
        if grew or (cursor is None and start_ns < newest):
            raise Refused(
                f"not here: {counted(len(gone), 'other log')} of run {work.plan.run_id}, and this one belongs before the last of "
                "them: sync all logs of the run in one command"
            )
    fresh = next((segment for segment in work.segments if segment.cursor is None), None)
    inherited = work.inherited
    status = ask(work)
    if work.is_unanswered:
        raise Refused(
            f"the server does not say what it holds of run {work.plan.run_id}, and some of its logs are not here"
        )
    if (
        status is not None and not inherited.config
    ):  # logs before these may have been here: the server has what they said
        work.inherited = Inherited.from_status(status)
    if fresh is not None:
        if status is None:
            raise Refused(f"the server has lost run {work.plan.run_id}, and some of its logs are not here any more")
        placed = [segment.cursor for segment in work.segments if segment.cursor is not None]
        floor = Lines(
            max(cursor.reached for cursor in placed),
            max(cursor.base.events + cursor.sent.events for cursor in placed),
            max(cursor.base.console + cursor.sent.console for cursor in placed),
        )
        if status.history_lines < floor.history:
            raise Refused(
                f"the server counts {counted(status.history_lines, 'row')} of run {work.plan.run_id}, of which it acknowledged "
                f"{floor.history}: it counts late, or has lost some, which only a sync of all logs in one command brings back",
                try_again=True,
            )
        _go_behind(work, status, fresh, floor)
        work.inherited = inherited if inherited.config else work.inherited


def _check_room(work: RunWork, placed: Segment) -> None:
    """A log that turned up late goes before `placed`, if the lines before that one are those of logs that are here."""
    cursor = placed.position
    placed_first = not cursor.kin or min(cursor.kin) == placed.head.start_ns
    moves = cursor.base not in (Lines(), placed.placed.base)
    of_nodes = sum((one.found.lines for one in work.segments if one.cursor is None and one.head.is_node), Lines())
    from_nodes = cursor.base.history == 0 and cursor.base.events <= of_nodes.events
    if placed_first and moves and not from_nodes and not _are_here(work, cursor.base):
        raise Refused(
            f"the server holds {counted(cursor.base.history, 'row')} of run {work.plan.run_id} from other logs than these; "
            "sync all logs of the run in one command"
        )


# -- where each log goes --------------------------------------------------------------------------------------------------


def settle(work: RunWork, remote: RemoteRun, config: str) -> None:
    """Fix where the lines of each log go, in its cursor, before the first of them is sent.

    Raises:
        OSError: a cursor cannot be written.
    """
    kin = sorted(  # a log that lost its run record has no time by which it could be missed
        {segment.head.start_ns for segment in work.segments if segment.head.start_ns and not segment.head.is_node}
        | {start for segment in work.segments if segment.cursor is not None for start in segment.cursor.kin}
    )
    reach = max((segment.cursor.reached for segment in work.segments if segment.cursor is not None), default=0)
    fresh = all(segment.cursor is None for segment in work.segments)
    first = work.start.base.history
    for segment in work.segments:
        facts, place = segment.found, segment.placed
        cursor = segment.cursor
        if cursor is None or not is_placed(segment):
            cursor = _new_cursor(work, remote, segment, place)
            there = max(0, first + work.start.known_rows - place.base.history)
            cursor.sent.history = min(there, facts.lines.history)
            segment.cursor = cursor
        segment.rows_before = cursor.sent.history
        cursor.complete, cursor.gaps, cursor.kin, cursor.reach = False, facts.gaps(), kin, reach
        cursor.overlap = work.context.settings.overlap
        cursor.steps, cursor.runtime_before = facts.kept_steps, facts.runtime_before
        if segment is work.segments[0]:
            cursor.highest_before, cursor.row_before = work.start.highest, work.start.row
            cursor.inherited = work.inherited.as_json()
        if segment is work.last:
            cursor.config = config
            cursor.exit_code = None  # rows let a run live again, so its end is said behind them
        # The first cursor of lines that begin at 0 may be lost: they are found to begin there once more.
        cursor.save(segment.places.cursor, durably=not (fresh and place.base == Lines()))


def is_placed(segment: Segment) -> bool:
    """Whether the lines that the cursor knows as acknowledged are the lines that the log has now."""
    cursor, facts, place = segment.position, segment.found, segment.placed
    return (
        (cursor.base, cursor.step_shift) == (place.base, place.step_shift)
        and cursor.steps == facts.kept_steps
        and (cursor.runtime_offset, cursor.runtime_shift) == (facts.runtime_offset, facts.runtime_shift)
    )


def _new_cursor(work: RunWork, remote: RemoteRun, segment: Segment, place: Place) -> Cursor:
    facts, old = segment.found, segment.cursor
    cursor = Cursor(
        work.target,
        remote.entity,
        remote.project,
        remote.run_id,
        remote.storage_id,
        base=place.base,
        step_shift=place.step_shift,
        runtime_offset=facts.runtime_offset,
        runtime_shift=facts.runtime_shift,
        elsewhere=segment.elsewhere,
    )
    if old is not None:  # the lines move; what was uploaded and told beside them does not
        cursor.files, cursor.artifacts, cursor.alerts = old.files, old.artifacts, old.alerts
    return cursor


def is_same_run(remote: RemoteRun, cursor: Cursor) -> bool:
    """Whether the cursor speaks of this run: rows go to where the server says, not to where a file beside the log does."""
    return astuple(remote)[:4] == (cursor.storage_id, cursor.entity, cursor.project, cursor.run_id)
