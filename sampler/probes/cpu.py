"""CPU of the monitored processes, as a share of the CPUs that they may use."""

from __future__ import annotations

from ..cgroup import throttling
from ..context import Context
from ..counter import Counter
from ..hostinfo import physical_cores
from ..probe import Probe, Values
from ..proctree import Process, Snapshot


class TreeTime:
    """CPU seconds that a changing set of processes used between two readings.

    Children that were born and died in between count too, by what their parent reaped; what was already counted
    while they lived is then not counted again.
    """

    def __init__(self) -> None:
        self._last: dict[tuple[int, int], Process] = {}  # (pid, start) -> last reading
        self._newest = -1  # start of the youngest process seen: a later one began after the last reading

    def rise(self, snapshot: Snapshot) -> int | None:
        """Clock ticks used since the last call; None on the first, or if nothing is there to compare with."""
        counted = {(process.pid, process.started): process for process in snapshot.counted}
        now = counted | {(process.pid, process.started): process for process in snapshot.own}
        last, self._last = self._last, now
        newest, self._newest = self._newest, max((started for _, started in now), default=self._newest)
        if not any(key in last for key in counted):
            return None
        gone: dict[int, int] = {}  # parent -> time of its vanished children that we had counted
        for key, process in last.items():
            if key not in now:
                gone[process.parent] = gone.get(process.parent, 0) + process.cpu + process.reaped
        total = 0
        for key, process in counted.items():
            before = last.get(key)
            if before is not None:
                reaped = process.reaped - before.reaped - gone.get(process.pid, 0)
                total += max(0, process.cpu - before.cpu) + max(0, reaped)
            elif process.started > newest:
                total += process.cpu + process.reaped
        return total


class CoreShares:
    """Busy share of each logical core of the host, from /proc/stat."""

    def __init__(self) -> None:
        self._last: dict[str, tuple[int, int]] = {}

    def read(self, ctx: Context) -> dict[str, float]:
        """Per cent by core number since the last call; cores without an earlier reading are left out."""
        shares = {}
        for line in (ctx.read("/proc/stat") or "").splitlines():
            name, *fields = line.split()
            if not name.startswith("cpu") or name == "cpu":
                continue
            times = [int(field) for field in fields[:8]]  # guest time is part of user time
            idle, total = sum(times[3:5]), sum(times)
            before = self._last.get(name)
            self._last[name] = (idle, total)
            if before is not None and total > before[1]:
                busy = 1 - max(0, idle - before[0]) / (total - before[1])
                shares[name.removeprefix("cpu")] = 100 * busy
        return shares


class CpuProbe(Probe):
    """`cpu`, `proc.cpu.*`; with `per_core` also `cpu.{i}.cpu_percent`."""

    name = "cpu"
    prefixes = ("cpu", "proc.cpu.")

    def __init__(self) -> None:
        self._tree = TreeTime()
        self._cores = CoreShares()
        self._periods, self._throttled = Counter(), Counter()
        self._last_read: float | None = None
        self._physical: int | None = None

    def discover(self, ctx: Context) -> str | None:
        """Linux only: elsewhere the portable probe stands in."""
        return None if ctx.exists("/proc/stat") else "no /proc/stat"

    def sample(self, ctx: Context, out: Values) -> None:
        """All rates are over the time since the last sample."""
        processes = ctx.processes()
        ticks = self._tree.rise(processes)
        elapsed = ctx.now - self._last_read if self._last_read is not None else 0.0
        self._last_read = ctx.now
        if processes.counted:
            out["proc.cpu.threads"] = float(sum(process.threads for process in processes.counted))
        if ticks is not None and elapsed > 0:
            cores = ticks / ctx.ticks_per_second / elapsed
            out["cpu"] = 100 * cores / self._capacity(ctx)
            if ctx.settings.extended:
                out["proc.cpu.cores"] = cores
        self._sample_throttling(ctx, out)
        if ctx.settings.per_core:
            for core, share in self._cores.read(ctx).items():
                out[f"cpu.{core}.cpu_percent"] = share

    def open(self, ctx: Context) -> None:
        """Count the physical cores where they are the norm; take the first reading of the cores."""
        if ctx.settings.cpu_norm == "physical":
            self._physical = physical_cores(ctx)
        if ctx.settings.per_core:
            self._cores.read(ctx)

    def _capacity(self, ctx: Context) -> float:
        """How many CPUs 100 % of `cpu` stands for; a quota binds whatever the norm."""
        limits = ctx.limits()
        return (self._physical if limits.quota is None else None) or limits.cpus or 1

    def _sample_throttling(self, ctx: Context, out: Values) -> None:
        quota = ctx.limits().quota
        counts = throttling(ctx, quota) if quota is not None else None
        if counts is None:
            return
        periods, throttled = self._periods.rise(counts[0]), self._throttled.rise(counts[1])
        if periods and throttled is not None:
            out["proc.cpu.throttledPercent"] = 100 * throttled / periods
