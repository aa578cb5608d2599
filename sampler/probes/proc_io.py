"""What the monitored processes read and write, disk or not."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import ClassVar

from ..context import Context
from ..metric import Kind, Metric, Origin
from ..probe import Values
from ..proctree import Key, Process, TreeCounter, Use
from ..tables import read_table
from .extended import ExtendedProbe

_FIELDS = {
    "proc.io.readRate": ("read_bytes", "from storage"),
    "proc.io.writeRate": ("write_bytes", "to storage, once it is sent there"),
    "proc.io.rchar": ("rchar", "by read calls, page cache and pipes included"),
    "proc.io.wchar": ("wchar", "by write calls, page cache and pipes included"),
}


class ProcIoProbe(ExtendedProbe):
    """`proc.io.*` in bytes per second, with what children read and wrote that have ended since."""

    name = "proc_io"
    source = "/proc/self/io"
    metrics: ClassVar = tuple(
        Metric(
            key,
            "bytes/s",
            f"/proc/{{pid}}/io {field}",
            meaning,
            Kind.INTERVAL,
            Origin.OURS,
            "extended",
            "tests/sampler/test_processes.py::test_io_counts_children_that_ended_once",
        )
        for key, (field, meaning) in _FIELDS.items()
    )

    def __init__(self) -> None:
        self._trees = {field: TreeCounter() for field, _ in _FIELDS.values()}
        self._last_read: float | None = None

    def open(self, ctx: Context) -> None:
        """Take the baseline."""
        self.sample(ctx, {})

    def sample(self, ctx: Context, out: Values) -> None:
        """The kernel adds what a child did to its parent when it is waited for, in the same numbers."""
        snapshot = ctx.processes()
        counted = [(process, read_table(ctx.read(f"/proc/{process.pid}/io"), ":")) for process in snapshot.counted]
        others = [(process, read_table(ctx.read(f"/proc/{process.pid}/io"), ":")) for process in snapshot.own]
        ended = [(each.process, each.io) for each in snapshot.own_ended]
        elapsed = ctx.now - self._last_read if self._last_read is not None else 0.0
        self._last_read = ctx.now
        for key, (field, _) in _FIELDS.items():
            rise = self._trees[field].rise(_use(counted, field), _use(others, field), _use(ended, field))
            if rise is not None and elapsed > 0:
                out[key] = rise / elapsed


def _use(tables: Sequence[tuple[Process, Mapping[str, int]]], field: str) -> dict[Key, Use]:
    return {process.key: Use(process.parent, 0, table[field]) for process, table in tables if field in table}
