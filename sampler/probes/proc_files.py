"""How many files the monitored processes hold open."""

from __future__ import annotations

import os
from typing import ClassVar

from ..context import Context
from ..metric import Kind, Metric, Origin
from ..probe import Values
from ..tables import whole
from .extended import ExtendedProbe

_TEST = "tests/sampler/test_processes.py::test_open_files"


def _metric(key: str, unit: str, source: str, formula: str) -> Metric:
    return Metric("proc." + key, unit, f"/proc/{{pid}}/{source}", formula, Kind.GAUGE, Origin.OURS, "extended", _TEST)


class ProcFilesProbe(ExtendedProbe):
    """`proc.fds`, `proc.fdsPercent`."""

    name = "proc_files"
    source = "/proc/self/fd"
    metrics: ClassVar = (
        _metric("fds", "count", "fd", "open files, summed over the process"),
        _metric("fdsPercent", "%", "fd, limits", "open files / soft limit, of the process that has most of them"),
    )

    def sample(self, ctx: Context, out: Values) -> None:
        """Processes of other users do not tell."""
        counts = {
            process.pid: count
            for process in ctx.processes().counted
            if (count := _open_files(ctx, process.pid)) is not None
        }
        if not counts:
            return
        out["proc.fds"] = sum(counts.values())
        fullest = max(counts, key=lambda pid: counts[pid])
        limit = _soft_limit(ctx, fullest)
        if limit:
            out["proc.fdsPercent"] = 100 * counts[fullest] / limit


def _open_files(ctx: Context, pid: int) -> int | None:
    """Kernels from 6.2 on tell it as the size of the folder; else its entries are counted."""
    folder = ctx.path(f"/proc/{pid}/fd")
    try:
        return (ctx.root == "/" and os.stat(folder).st_size) or len(os.listdir(folder))  # noqa: PTH116, PTH208 - cheaper
    except OSError:
        return None


def _soft_limit(ctx: Context, pid: int) -> int | None:
    for line in (ctx.read(f"/proc/{pid}/limits") or "").splitlines():
        if line.startswith("Max open files"):
            fields = line.removeprefix("Max open files").split()
            return whole(fields[0]) if fields else None
    return None
