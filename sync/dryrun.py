"""What a sync would do, without a word to the server."""

from __future__ import annotations

from . import verdict
from .filelane import recorded_files
from .report import RunReport, Verdict
from .work import RunWork


def dry_run(work: RunWork) -> list[RunReport]:
    """A report for each segment of a run whose logs were read."""
    plan, settings = work.plan, work.context.settings
    files, missing = recorded_files(work)
    name = "/".join((plan.entity or "(your entity)", plan.project, plan.run_id))
    reports = []
    for segment in work.segments:
        facts = segment.found
        todo = facts.lines.history - segment.rows_before
        reason = (
            f"dry run: {todo} of {facts.lines.history} rows, {facts.lines.events} samples, "
            f"{facts.lines.console} console lines, {len(files)} files, and the run's config, summary and metadata "
            f"would go to {name} at {settings.base_url}"
        )
        segment.missing += facts.damage_lines() + missing
        reports.append(verdict.report(work, segment, Verdict.SKIPPED, reason))
    return reports
