"""What a sync would do, without a word to the server."""

from __future__ import annotations

import contextlib
import os

from . import verdict
from .alerts import was_told
from .artifactjournal import keyed
from .cursor import DONE, FileMark
from .filelane import made_files, recorded_files
from .report import RunReport, Verdict, WouldSend, counted
from .rowlane import gather_console
from .runfiles import ConsoleFile, RunFile, is_unchanged, missing_lines
from .segment import Segment
from .work import RunWork


def dry_run(work: RunWork, *, again: bool) -> list[RunReport]:
    """A report for each segment of a run whose logs were read; the reporter is told what each of them holds.

    `again`: what was sent goes once more, or goes as something else.
    """
    files, missing = recorded_files(work)
    reports = []
    with contextlib.closing(ConsoleFile()) as console:
        for segment in work.segments:
            if segment.found.lines.console:
                gather_console(segment.found, console)
        files += made_files(work, work.summary()[0], console)
        for segment in work.segments:
            found = _would_send(work, segment, files if segment is work.last else [], again=again)
            work.context.reporter(found)
            segment.missing += segment.found.damage_lines() + missing_lines(missing)
            reports.append(verdict.report(work, segment, Verdict.SKIPPED, _in_words(found, segment.missing)))
    return reports


def _would_send(work: RunWork, segment: Segment, files: list[RunFile], *, again: bool) -> WouldSend:
    plan, facts, cursor = work.plan, segment.found, segment.cursor
    new_files = _new_files(work, files)
    of_run = work.segments if segment is work.last else []
    new_bytes = facts.end - (cursor.offset if cursor is not None else 0)
    new_artifacts = sum(map(_new_artifacts, of_run))
    new_alerts = sum(map(_new_alerts, of_run))
    judged = cursor is not None and (cursor.complete or cursor.lacks > 0) and cursor.size == facts.size
    return WouldSend(
        log=os.fspath(segment.head.path),
        run=plan.run_id,
        target=f"{plan.entity or ''}/{plan.project}/{plan.run_id}",
        server=work.context.settings.base_url,
        rows=facts.lines.history,
        new_rows=facts.lines.history - segment.rows_before,
        samples=facts.lines.events,
        console_lines=facts.lines.console,
        log_bytes=facts.size,
        new_bytes=new_bytes,
        files=len(files),
        file_bytes=sum(file.size for file in files),
        artifacts=len(work.state.artifacts) if of_run else 0,
        alerts=len(work.state.alerts) if of_run else 0,
        new_samples=facts.lines.events - (cursor.sent.events if cursor is not None else 0),
        new_console_lines=facts.lines.console - (cursor.sent.console if cursor is not None else 0),
        new_files=len(new_files),
        new_file_bytes=sum(file.size for file in new_files),
        new_artifacts=new_artifacts,
        new_alerts=new_alerts,
        nothing=judged and not (again or new_bytes or new_files or new_artifacts or new_alerts),
    )


def _new_files(work: RunWork, files: list[RunFile]) -> list[RunFile]:
    """Those that the server does not have, as far as size and time tell."""
    marks: dict[str, FileMark] = {}
    for segment in work.segments:
        marks.update(segment.cursor.files if segment.cursor is not None else {})
    return [file for file in files if not (is_unchanged(file, marks.get(file.name)) and marks[file.name].told)]


def _new_artifacts(segment: Segment) -> int:
    marks = segment.cursor.artifacts if segment.cursor is not None else {}
    return sum(key not in marks or marks[key].state != DONE for key, _ in keyed(segment.found.artifacts))


def _new_alerts(segment: Segment) -> int:
    told = segment.cursor.alerts if segment.cursor is not None else []
    return sum(not was_told(alert.offset, told) for alert in segment.found.alerts)


def _in_words(found: WouldSend, missing: list[str]) -> str:
    """The same in one line."""
    target = found.target if not found.target.startswith("/") else f"(your entity){found.target}"
    lost = f"; {verdict.what_is_missing(missing)}" if missing else ""
    if found.nothing:
        return f"dry run: nothing to send: {target} at {found.server} has all that can be sent{lost}"
    of_bytes = f"({found.new_bytes} of {counted(found.log_bytes, 'byte')})"
    parts = [
        f"{found.new_rows} of {counted(found.rows, 'row')}",
        f"{found.new_samples} of {counted(found.samples, 'sample')}",
        f"{found.new_console_lines} of {counted(found.console_lines, 'console line')} {of_bytes}",
        f"{found.new_files} of {counted(found.files, 'file')} ({counted(found.new_file_bytes, 'byte')})",
    ]
    parts += [f"{found.new_artifacts} of {counted(found.artifacts, 'artifact')}"] if found.artifacts else []
    parts += [f"{found.new_alerts} of {counted(found.alerts, 'alert')}"] if found.alerts else []
    rest = f"and the run's config, summary and metadata would go to {target} at {found.server}"
    return f"dry run: {', '.join([*parts, rest])}{lost}"
