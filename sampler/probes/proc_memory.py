"""Memory of the monitored processes with what they share counted once."""

from __future__ import annotations

from typing import ClassVar

from ..context import Context
from ..metric import Kind, Metric, Origin
from ..probe import Tier, Values
from ..tables import read_table
from .extended import ExtendedProbe

_KIB_PER_MIB = 1024
_PRIVATE = ("Private_Clean", "Private_Dirty", "Private_Hugetlb")
_TEST = "tests/sampler/test_processes.py::test_shared_pages_count_once"


def _metric(key: str, formula: str) -> Metric:
    source = "/proc/{pid}/smaps_rollup"
    return Metric("proc.memory." + key, "MiB", source, formula, Kind.GAUGE, Origin.OURS, "extended", _TEST)


class ProcMemoryProbe(ExtendedProbe):
    """`proc.memory.pssMB`, `proc.memory.ussMB`.

    On a thread, and not often: the kernel walks all pages of a process, tens of milliseconds for a large one.
    """

    name = "proc_memory"
    source = "/proc/self/smaps_rollup"
    tier = Tier.THREAD
    interval = 60.0
    metrics: ClassVar = (
        _metric("pssMB", "Pss: a page that n processes share counts 1 / n in each"),
        _metric("ussMB", "Private_*: pages that no other process has"),
    )

    def sample(self, ctx: Context, out: Values) -> None:
        """Summed over the processes that may be read."""
        tables = [
            table
            for process in ctx.processes().counted
            if "Pss" in (table := read_table(ctx.read(f"/proc/{process.pid}/smaps_rollup"), ":"))
        ]
        if tables:
            out["proc.memory.pssMB"] = sum(table["Pss"] for table in tables) / _KIB_PER_MIB
            private = [sum(table.get(name, 0) for name in _PRIVATE) for table in tables]
            out["proc.memory.ussMB"] = sum(private) / _KIB_PER_MIB
