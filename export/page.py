"""The HTML report of a run as one of the formats."""

from __future__ import annotations

from collections.abc import Sequence
from typing import BinaryIO

from .report import Source, render
from .report_compare import render_comparison
from .runs import LoadedRun
from .selection import Selection


def write_run(file: BinaryIO, run: LoadedRun, whats: Sequence[str], selection: Selection) -> list[str]:
    """Write the page of a run; gives what it does not do. What it has no room for, it says itself."""
    file.write(render(run.state, _source(run), whats=whats, selection=selection).encode())
    return _unused(selection)


def write_runs(file: BinaryIO, runs: Sequence[LoadedRun], whats: Sequence[str], selection: Selection) -> list[str]:
    """Write one page that shows runs side by side; gives what it does not do."""
    page = render_comparison([(run.state, _source(run)) for run in runs], whats=whats, selection=selection)
    file.write(page.encode())
    return _unused(selection)


def _source(run: LoadedRun) -> Source:
    return Source(
        logs=tuple(run.shown),
        status=run.status,
        folders=tuple(dict.fromkeys(log.parent for log in run.logs)),
        gap_logs=tuple(log for log, _ in run.gaps) if len(run.logs) > 1 else (),
    )


def _unused(selection: Selection) -> list[str]:
    return ["--every: charts show all rows, thinned"] if selection.every > 1 else []
