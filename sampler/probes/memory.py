"""Memory of the monitored processes and of what bounds them: the control group's limit, else the host."""

from __future__ import annotations

from ..cgroup import memory_use, oom_kills, read_meminfo
from ..context import Context
from ..counter import Counter
from ..probe import Probe, Values

MIB = 1 << 20  # the documented keys say MB and divide by 1024 twice


class MemoryProbe(Probe):
    """`memory_percent`, `proc.memory.*`; with `extended` also `cgroup.memory.*`."""

    name = "memory"
    prefixes = ("memory_percent", "proc.memory.", "cgroup.memory.")

    def __init__(self) -> None:
        self._kills = Counter()

    def discover(self, ctx: Context) -> str | None:
        """Linux only: elsewhere the portable probe stands in."""
        return None if ctx.exists("/proc/meminfo") or ctx.limits().memory else "no /proc/meminfo and no memory limit"

    def sample(self, ctx: Context, out: Values) -> None:
        """Percentages refer to the limit where one binds; page cache counts as used there, as the kernel charges it."""
        limit = ctx.limits().memory
        use = memory_use(ctx, limit) if limit is not None else None
        total = limit.limit if limit is not None else None
        if limit is not None and use is not None:
            out["memory_percent"] = 100 * use.current / limit.limit
            out["proc.memory.availableMB"] = max(0, limit.limit - use.current) / MIB
            kills = oom_kills(ctx, limit)
            if kills is not None:
                out["proc.memory.oomKills"] = self._kills.since_first(kills)
            if ctx.settings.extended:
                out["cgroup.memory.workingSetMB"] = use.working_set / MIB
                out["cgroup.memory.percent"] = 100 * use.working_set / limit.limit
        else:
            total = self._sample_host(ctx, out)
        counted = ctx.processes().counted
        if counted:
            resident = sum(process.rss for process in counted) * ctx.page_size
            out["proc.memory.rssMB"] = resident / MIB
            if total:
                out["proc.memory.percent"] = 100 * resident / total

    @staticmethod
    def _sample_host(ctx: Context, out: Values) -> int | None:
        """The host's own figures; returns its bytes of memory."""
        info = read_meminfo(ctx)
        total = info.get("MemTotal")
        if not total:
            return None
        # Kernels before 3.14 do not tell MemAvailable; this is what tools took for it then.
        rough = info.get("MemFree", 0) + info.get("Buffers", 0) + info.get("Cached", 0)
        available = info.get("MemAvailable", rough)
        out["memory_percent"] = 100 * (1 - available / total)
        out["proc.memory.availableMB"] = available / MIB
        return total
