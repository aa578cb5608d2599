"""What befalls the process's control group: memory events, page cache, throttling, processes."""

from __future__ import annotations

from typing import ClassVar

from ..cgroup import Group, MemoryLimit, memory_use, page_cache, throttling
from ..context import Context
from ..metric import Kind, Metric, Origin
from ..probe import Values
from ..rates import Totals
from ..tables import read_table, read_whole
from .extended import ExtendedProbe

MIB = 1 << 20
EVENTS = {"low": "low", "high": "high", "max": "max", "oom": "oom", "oom_kill": "oomKill"}
"""Of memory.events -> as in the key."""
_TEST = "tests/sampler/test_cgroup.py::"
_EVENTS = "test_events_of_a_group"


def _metric(
    key: str, unit: str, source: str, formula: str = "", *, test: str = _EVENTS, kind: Kind = Kind.GAUGE
) -> Metric:
    return Metric("cgroup." + key, unit, source, formula, kind, Origin.OURS, "extended", _TEST + test)


class CgroupEventsProbe(ExtendedProbe):
    """`cgroup.memory.*` of the group that owns the memory limit, else of the process's own; `cgroup.cpu|pids`."""

    name = "cgroup"
    source = "/proc/self/cgroup"
    metrics: ClassVar = (
        _metric("memory.limitMB", "MiB", "memory.max (v1: memory.limit_in_bytes)"),
        _metric(
            "memory.workingSetMB",
            "MiB",
            "memory.current, memory.stat inactive_file (v1: total_inactive_file)",
            "charged - page cache that is easily reclaimed",
            test="test_kubernetes_v2",
        ),
        _metric("memory.percent", "%", "the same", "working set / limit; only with a limit", test="test_kubernetes_v2"),
        _metric("memory.pageCacheMB", "MiB", "memory.stat file (v1: total_cache)"),
        _metric("memory.peakMB", "MiB", "memory.peak (v1: memory.max_usage_in_bytes)", kind=Kind.COUNTER),
        _metric(
            "memory.{event}Events",
            "count",
            "memory.events low, high, max, oom, oom_kill (v1: memory.failcnt as max)",
            kind=Kind.TOTAL,
        ),
        _metric(
            "cpu.throttledMs",
            "ms",
            "cpu.stat throttled_usec (v1: throttled_time) of the group that owns the quota",
            test="test_throttled_time",
            kind=Kind.TOTAL,
        ),
        _metric("pids", "count", "pids.current", "processes and threads in the group"),
    )

    def __init__(self) -> None:
        self._events = {event: Totals[str]() for event in EVENTS}  # by folder: another group may own the limit later
        self._throttled = Totals[str]()

    def discover(self, ctx: Context) -> str | None:
        """Groups may be there without being told of, and told to be ignored."""
        if not ctx.settings.extended:
            return super().discover(ctx)
        groups = ctx.limits().groups
        found = groups is not None and (groups.own("memory") or groups.own("cpu") or groups.own("pids"))
        return None if found else "no control group"

    def open(self, ctx: Context) -> None:
        """Take the baseline."""
        self.sample(ctx, {})

    def sample(self, ctx: Context, out: Values) -> None:
        """A file that a group does not have costs its own key only."""
        limits = ctx.limits()
        if limits.groups is None:
            return
        owner = limits.memory or limits.groups.own("memory")
        if owner is not None:
            self._sample_memory(ctx, owner, out)
            self._sample_events(ctx, owner, out)
        counts = throttling(ctx, limits.quota) if limits.quota is not None else None
        if limits.quota is not None and counts is not None and counts.milliseconds is not None:
            self._throttled.update({limits.quota.folder: counts.milliseconds})
            out["cgroup.cpu.throttledMs"] = self._throttled.total
        own = limits.groups.own("pids")
        pids = read_whole(ctx, f"{own.folder}/pids.current") if own is not None else None
        if pids is not None:
            out["cgroup.pids"] = pids

    @staticmethod
    def _sample_memory(ctx: Context, owner: MemoryLimit | Group, out: Values) -> None:
        charged = memory_use(ctx, owner)
        cache, inactive = page_cache(ctx, owner)
        peak = read_whole(ctx, f"{owner.folder}/{'memory.peak' if owner.version == 2 else 'memory.max_usage_in_bytes'}")
        working_set = charged - inactive if charged is not None and inactive is not None else None
        limit = owner.limit if isinstance(owner, MemoryLimit) else None
        sizes = {"limit": limit, "workingSet": working_set, "pageCache": cache, "peak": peak}
        out.update({f"cgroup.memory.{key}MB": size / MIB for key, size in sizes.items() if size is not None})
        if limit is not None and working_set is not None:
            out["cgroup.memory.percent"] = 100 * working_set / limit

    def _sample_events(self, ctx: Context, owner: MemoryLimit | Group, out: Values) -> None:
        if owner.version == 2:
            counts = read_table(ctx.read(f"{owner.folder}/memory.events"))
        else:
            failed = read_whole(ctx, f"{owner.folder}/memory.failcnt")
            counts = read_table(ctx.read(f"{owner.folder}/memory.oom_control"))
            counts |= {"max": failed} if failed is not None else {}
        known = {event: count for event, count in counts.items() if event in EVENTS}
        for event, count in known.items():
            self._events[event].update({owner.folder: count})
            out[f"cgroup.memory.{EVENTS[event]}Events"] = self._events[event].total
