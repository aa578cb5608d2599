"""What a sync would do, without a word to the server."""

from __future__ import annotations

import os

from . import verdict
from .filelane import recorded_files
from .report import RunReport, Verdict, WouldSend, shorten
from .segment import Segment
from .work import RunWork


def dry_run(work: RunWork) -> list[RunReport]:
    """A report for each segment of a run whose logs were read; the reporter is told what each of them holds."""
    files, missing = recorded_files(work)
    reports = []
    for segment in work.segments:
        saved = [file.size for file in files] if segment is work.last else []
        found = _would_send(work, segment, saved)
        work.context.reporter(found)
        segment.missing += segment.found.damage_lines() + missing
        reports.append(verdict.report(work, segment, Verdict.SKIPPED, _in_words(found, segment.missing)))
    return reports


def _would_send(work: RunWork, segment: Segment, saved: list[int]) -> WouldSend:
    plan, facts = work.plan, segment.found
    is_last = segment is work.last
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
        new_bytes=facts.end - (segment.cursor.offset if segment.cursor is not None else 0),
        files=len(saved),
        file_bytes=sum(saved),
        artifacts=len(work.state.artifacts) if is_last else 0,
        alerts=len(work.state.alerts) if is_last else 0,
    )


def _in_words(found: WouldSend, missing: list[str]) -> str:
    """The same in one line."""
    parts = [f"{found.new_rows} of {found.rows} rows, {found.samples} samples, {found.console_lines} console lines"]
    parts[0] += f" ({found.new_bytes} of {found.log_bytes} bytes)"
    parts.append(f"{found.files} files ({found.file_bytes} bytes)")
    parts += [f"{found.artifacts} artifacts"] if found.artifacts else []
    parts += [f"{found.alerts} alerts"] if found.alerts else []
    target = found.target if not found.target.startswith("/") else f"(your entity){found.target}"
    rest = f"and the run's config, summary and metadata would go to {target} at {found.server}"
    lost = f"; missing: {shorten(missing)}" if missing else ""
    return f"dry run: {', '.join([*parts, rest])}{lost}"
