"""The HTML report of a run as one of the formats."""

from __future__ import annotations

from collections.abc import Sequence
from typing import BinaryIO

from .report import Source, render
from .runs import LoadedRun
from .selection import Selection


def write_run(file: BinaryIO, run: LoadedRun, whats: Sequence[str], selection: Selection) -> list[str]:
    """Write the page of a run; gives what it does not do. What it has no room for, it says itself."""
    source = Source(
        logs=tuple(run.shown),
        status=run.status,
        folders=tuple(dict.fromkeys(log.parent for log in run.logs)),
        gap_logs=tuple(log for log, _ in run.gaps) if len(run.logs) > 1 else (),
    )
    file.write(render(run.state, source, whats=whats, selection=selection).encode())
    return ["--every: charts show all rows, thinned"] if selection.every > 1 else []
