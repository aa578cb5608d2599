"""The HTML report of a run as one of the formats."""

from __future__ import annotations

from collections.abc import Sequence
from typing import BinaryIO

from .report import Source, render
from .runs import LoadedRun
from .selection import Selection


def write_run(file: BinaryIO, run: LoadedRun, whats: Sequence[str], selection: Selection) -> list[str]:  # noqa: ARG001 - a page holds all of a run
    """Write the page of a run. What it has no room for, it says itself."""
    source = Source(tuple(run.shown), run.status, tuple(log.parent for log in run.logs))
    file.write(render(run.state, source, selection=selection).encode("utf-8", "replace"))
    return []
