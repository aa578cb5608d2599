"""What the host's memory management does: faults, swapping, kills, stalls."""

from __future__ import annotations

from typing import ClassVar

from ..context import Context
from ..metric import Kind, Metric, Origin
from ..probe import Values
from ..rates import Rises
from ..tables import read_table
from .extended import ExtendedProbe

_FIELDS = {"majorFaults": "pgmajfault", "oomKills": "oom_kill", "swapIn": "pswpin", "swapOut": "pswpout"}
_TEST = "tests/sampler/test_host_extended.py::test_vmstat_rates"


def _metric(key: str, field: str, formula: str = "rise / time") -> Metric:
    source = f"/proc/vmstat {field}"
    return Metric(f"host.vm.{key}Rate", "1/s", source, formula, Kind.INTERVAL, Origin.OURS, "extended", _TEST)


class VmstatProbe(ExtendedProbe):
    """`host.vm.*Rate`: pages and events per second from /proc/vmstat."""

    name = "vmstat"
    source = "/proc/vmstat"
    metrics: ClassVar = (
        *(_metric(key, field) for key, field in _FIELDS.items()),
        _metric("allocStall", "allocstall_*", "rise over all zones / time: allocations that waited for memory"),
    )

    def __init__(self) -> None:
        self._rises = Rises[str]()

    def open(self, ctx: Context) -> None:
        """Take the baseline."""
        self.sample(ctx, {})

    def sample(self, ctx: Context, out: Values) -> None:
        """Swap in pages, as the kernel counts."""
        table = read_table(ctx.read("/proc/vmstat"), names=(*_FIELDS.values(), "allocstall"))
        counts = {key: table[field] for key, field in _FIELDS.items() if field in table}
        stalls = [number for name, number in table.items() if name.startswith("allocstall")]
        if stalls:
            counts["allocStall"] = sum(stalls)
        for key, count in counts.items():
            rate = self._rises.per_second(key, count, ctx.now)
            if rate is not None:
                out[f"host.vm.{key}Rate"] = rate
