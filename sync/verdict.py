"""What a sync says of each log in the end, and why; the cursor and the peer's marker say the same."""

from __future__ import annotations

import contextlib
import os

from .choice import exit_code_of
from .report import RunReport, Verdict, counted, shorten
from .rewind import leftovers
from .segment import Segment
from .weburl import run_url
from .work import RunWork

_CRASHED = "the log has no exit record and has not grown: the run crashed"
_NODE = (
    "how the run ended is the first node's to say: sync its log after this one, or, if it was sent before, the logs of all "
    "nodes in one command"
)


def finish(work: RunWork, note: str) -> list[RunReport]:
    """Judge each segment, note it in its cursor, and set the peer's marker where everything arrived.

    Raises:
        OSError: a cursor or a marker cannot be written.
    """
    reports = []
    for segment in work.segments:
        cursor, head = segment.position, segment.head
        if segment.facts is not None:
            segment.missing += segment.facts.damage_lines()
            segment.missing += cursor.dropped
            if head.salvaged:
                source = "those of the run's other logs" if head.project else "the defaults"
                segment.missing.append(f"the run record: project and entity are {source}")
            segment.missing += work.missing
            segment.missing += leftovers(work)
            # Behind a node's samples the end is to be said once more, by a sync that has the first node's log.
            waits = work.files_wait or work.last.head.is_node
            cursor.complete = not (segment.missing or segment.facts.unfinished or waits)
            cursor.follow_links = work.context.settings.follow_links
            cursor.size, cursor.gaps, cursor.lacks = segment.facts.size, segment.facts.gaps(), len(segment.missing)
            cursor.save(segment.places.cursor)
        ended = has_ended(work, segment)
        reason = note
        if segment.missing:
            verdict, reason = Verdict.PARTIAL, what_is_missing(segment.missing)
        elif not ended and work.is_young(segment):
            verdict, reason = Verdict.LIVE, note or "no exit record yet: the run goes on"
        else:
            verdict = Verdict.SYNCED
            first = note if ended else f"all sent; {_NODE if segment.head.is_node else _CRASHED}"
            healed = segment.facts.healed_words() if segment.facts is not None else ""
            notes = [first, *segment.notes, *cut_notes(work, segment), healed]
            reason = "; ".join(filter(None, notes))
        if verdict is Verdict.SYNCED:
            segment.places.mark()
        else:
            segment.places.unmark()
        try_again = work.only_late and not _lost_for_good(segment)
        reports.append(report(work, segment, verdict, reason, try_again=try_again))
    return reports


def has_ended(work: RunWork, segment: Segment) -> bool:
    """Whether a log will not grow: it says so, or a later one of its run is known, be it here or not.

    That of a further node says nothing: it ends as the run does.
    """
    if segment.head.is_node and segment is not work.last:
        return has_ended(work, work.last)
    kin = segment.cursor.kin if segment.cursor is not None else []
    is_followed = segment is not work.last or any(start > segment.head.start_ns for start in kin)
    return is_followed or work.exit_code(segment) is not None or (_is_half_read(segment) and _tells_its_end(segment))


def _is_half_read(segment: Segment) -> bool:
    """Whether the reading of a log that is sent meanwhile was broken off."""
    return segment.facts is not None and segment.facts.size == 0


def _tells_its_end(segment: Segment) -> bool:
    """Whether the last blocks of a log hold an exit record."""
    with contextlib.suppress(OSError):
        return exit_code_of(segment.head.path, tail_only=True) is not None
    return False


def what_is_missing(missing: list[str]) -> str:
    """What is missing of a log, in one line, and what to do where it is a file of this machine."""
    gone = any(line.endswith(": missing") or "(missing)" in line for line in missing)
    remedy = "; put the missing files back and sync again" if gone else ""
    return f"missing: {shorten(missing, separator='; ')}{remedy}"


def cut_notes(work: RunWork, segment: Segment) -> list[str]:
    """What of a log does not count, because another log of the run has its steps; and what it was taken for."""
    notes = []
    facts, place, overlap = (
        segment.found if segment.facts is not None else None,
        segment.place,
        work.context.settings.overlap,
    )
    if facts is None or place is None:
        return []
    if facts.cut and place.steps.below is not None:
        notes.append(
            f"a later log's rows replace {counted(facts.cut, 'row')} from step {place.steps.below + place.step_shift} on"
        )
    elif facts.cut:
        notes.append(f"left out: {counted(facts.cut, 'row')} whose steps an earlier log has (overlap: {overlap})")
    if place.step_shift and not segment.head.resume:
        notes.append(
            f"it begins at step 0 again and does not say that it goes on: {place.step_shift} is added to its steps; "
            "--id NEW sends it as another run"
        )
    return notes


def _lost_for_good(segment: Segment) -> bool:
    """Whether something is missing that no later sync can bring."""
    return bool(segment.found.damage or segment.position.dropped)


def failed(work: RunWork, reason: str, verdict: Verdict = Verdict.FAILED, **flags: bool) -> list[RunReport]:
    """One reason for every segment."""
    return [report(work, segment, verdict, reason, **flags) for segment in work.segments]


def report(
    work: RunWork,
    segment: Segment,
    verdict: Verdict,
    reason: str,
    *,
    try_again: bool = False,
    credentials: bool = False,
) -> RunReport:
    """The report of one segment, with the counts as they are now."""
    cursor = segment.cursor
    sent = cursor.sent.history if cursor is not None else 0
    rows = segment.facts.lines.history if segment.facts is not None else sent
    half = segment.facts if _is_half_read(segment) else None
    if half is not None:
        of, end = (sent, cursor.offset) if cursor is not None and sent else (rows, half.end)
        rows = max(rows, sent, round(of * segment.head.size / max(1, end)))
    return RunReport(
        log=os.fspath(segment.head.path),
        run=work.plan.run_id,
        verdict=verdict,
        reason=" ".join(reason.split()),
        target=f"{cursor.entity}/{cursor.project}/{cursor.run_id}" if cursor is not None else None,
        rows=rows,
        rows_sent=max(0, sent - segment.rows_before),
        files_sent=work.files_sent if segment is work.last else 0,
        missing=tuple(segment.missing),
        try_again=try_again,
        credentials=credentials,
        ended=has_ended(work, segment),
        url=_url(work, segment),
        estimated=half is not None,
    )


def _url(work: RunWork, segment: Segment) -> str | None:
    """The run's page, once the server has said where the run is."""
    cursor = segment.cursor
    if cursor is None:
        return None
    return run_url(work.context.settings.base_url, cursor.entity, cursor.project, cursor.run_id)
