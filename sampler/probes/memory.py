"""Memory of the monitored processes and of what bounds them: the control group's limit, else the host."""

from __future__ import annotations

from typing import ClassVar

from ..cgroup import memory_use, oom_kills, read_meminfo
from ..context import Context
from ..metric import Kind, Metric, Origin
from ..probe import Probe, Values
from ..rates import Totals

MIB = 1 << 20  # the documented keys say MB and divide by 1024 twice
_TEST = "tests/sampler/test_host.py::test_memory_of_the_tree"
_GROUP = "tests/sampler/test_cgroup.py::"


class MemoryProbe(Probe):
    """`memory_percent`, `proc.memory.*`."""

    name = "memory"
    metrics: ClassVar = (
        Metric(
            "memory_percent",
            "%",
            "memory.current / memory.max (v1: memory.usage_in_bytes / memory.limit_in_bytes), else /proc/meminfo",
            "charged to the group that owns the limit, page cache included / limit; else 1 - MemAvailable / MemTotal",
            test=_GROUP + "test_kubernetes_v2",
        ),
        Metric(
            "proc.memory.availableMB",
            "MiB",
            "the same",
            "max(0, limit - charged); else MemAvailable",
            test=_GROUP + "test_kubernetes_v2",
        ),
        Metric(
            "proc.memory.rssMB",
            "MiB",
            "/proc/{pid}/statm resident",
            "resident pages of the process * page size; what processes share counts in each",
            test=_TEST,
        ),
        Metric(
            "proc.memory.percent",
            "%",
            "/proc/{pid}/statm resident",
            "resident / limit, else / the host's memory",
            test=_TEST,
        ),
        Metric(
            "proc.memory.oomKills",
            "count",
            "memory.events (v1: memory.oom_control) oom_kill",
            "of the group that owns the limit; only with a limit",
            Kind.TOTAL,
            Origin.PEER,
            test=_GROUP + "test_kernel_kills_are_counted_since_the_first_sample",
        ),
    )

    def __init__(self) -> None:
        self._kills = Totals[str]()  # by group: another one may own the limit later

    def discover(self, ctx: Context) -> str | None:
        """Linux only: elsewhere the portable probe stands in."""
        return None if ctx.exists("/proc/meminfo") or ctx.limits().memory else "no /proc/meminfo and no memory limit"

    def sample(self, ctx: Context, out: Values) -> None:
        """Percentages refer to the limit where one binds; page cache counts as used there, as the kernel charges it."""
        limit = ctx.limits().memory
        total = limit.limit if limit is not None else None
        charged = memory_use(ctx, limit) if limit is not None else None
        if limit is not None and charged is not None:
            out["memory_percent"] = 100 * charged / limit.limit
            out["proc.memory.availableMB"] = max(0, limit.limit - charged) / MIB
            kills = oom_kills(ctx, limit)
            if kills is not None:
                self._kills.update({limit.folder: kills})
                out["proc.memory.oomKills"] = self._kills.total
        else:
            total = self._sample_host(ctx, out)
        counted = ctx.processes().counted
        if any(process.alive for process in counted):
            resident = sum(process.rss for process in counted) * ctx.page_size
            out["proc.memory.rssMB"] = resident / MIB
            if total:
                out["proc.memory.percent"] = 100 * resident / total

    @staticmethod
    def _sample_host(ctx: Context, out: Values) -> int | None:
        """The host's own figures; returns its bytes of memory."""
        info = read_meminfo(ctx, ("Mem", "Buffers", "Cached"))
        total = info.get("MemTotal")
        if not total:
            return None
        available = info.get("MemAvailable")
        if available is None and "MemFree" in info:
            # Kernels before 3.14 do not tell MemAvailable; this is what tools took for it then.
            available = info["MemFree"] + info.get("Buffers", 0) + info.get("Cached", 0)
        if available is not None:
            out["memory_percent"] = 100 * (1 - available / total)
            out["proc.memory.availableMB"] = available / MIB
        return total
