"""CPU of the monitored processes, as a share of the CPUs that they may use."""

from __future__ import annotations

import math
from typing import ClassVar

from ..cgroup import logical_cpus, throttling
from ..context import Context
from ..hostinfo import physical_cores
from ..metric import Kind, Metric, Origin
from ..probe import Probe, Values
from ..proctree import Snapshot, TreeCounter, cpu_use
from ..rates import Rises
from ..tables import wholes

LEAST_STRETCH = 0.05  # s; CPU time comes in steps of 10 ms, which over less says nothing
_TEST = "tests/sampler/test_host.py::"


class CoreShares:
    """Busy share of each logical core of the host, from /proc/stat."""

    def __init__(self) -> None:
        self._last: dict[str, tuple[int, int]] = {}

    def read(self, ctx: Context) -> dict[str, float]:
        """Per cent by core number since the last call; cores without an earlier reading are left out."""
        shares = {}
        for line in (ctx.read("/proc/stat") or "").splitlines():
            name, *fields = line.split() or [""]
            times = wholes(fields[:8])  # guest time is part of user time
            if not name.startswith("cpu") or name == "cpu" or times is None:
                continue
            idle, total = sum(times[3:5]), sum(times)
            before = self._last.get(name)
            self._last[name] = (idle, total)
            if before is not None and total > before[1]:
                # The kernel's idle time can fall a little: then the core was not idle.
                busy = 1 - max(0, idle - before[0]) / (total - before[1])
                shares[name.removeprefix("cpu")] = 100 * busy
        return shares


class CpuProbe(Probe):
    """`cpu`, `proc.cpu.*`; with `per_core` also `cpu.{i}.cpu_percent`."""

    name = "cpu"
    metrics: ClassVar = (
        Metric(
            "cpu",
            "%",
            "/proc/{pid}/stat utime, stime, cutime, cstime",
            "CPU time of the process since the last sample / time / CPUs available to it",
            Kind.INTERVAL,
            test=_TEST + "test_cpu_is_the_share_of_available_cpus_since_the_last_sample",
        ),
        Metric(
            "proc.cpu.threads",
            "count",
            "/proc/{pid}/stat num_threads",
            "summed over the process",
            test=_TEST + "test_cpu_is_the_share_of_available_cpus_since_the_last_sample",
        ),
        Metric(
            "proc.cpu.throttledPercent",
            "%",
            "cpu.stat nr_throttled, nr_periods of the group that owns the quota",
            "throttled / passed periods; only with a quota",
            Kind.INTERVAL,
            Origin.PEER,
            test="tests/sampler/test_cgroup.py::test_throttling_is_since_the_last_sample",
        ),
        Metric(
            "proc.cpu.cores",
            "cores",
            "/proc/{pid}/stat",
            "CPU time since the last sample / time",
            Kind.INTERVAL,
            Origin.OURS,
            "extended",
            _TEST + "test_cpu_is_the_share_of_available_cpus_since_the_last_sample",
        ),
        Metric(
            "cpu.{i}.cpu_percent",
            "%",
            "/proc/stat cpu{i}",
            "time that the host's core {i} was not idle / time",
            Kind.INTERVAL,
            setting="per_core",
            test=_TEST + "test_per_core_load",
        ),
    )

    def __init__(self) -> None:
        self._tree = TreeCounter()
        self._cores = CoreShares()
        self._held_back = Rises[str]()
        self._last_read: float | None = None
        self._physical: int | None = None

    def discover(self, ctx: Context) -> str | None:
        """Linux only: elsewhere the portable probe stands in."""
        return None if ctx.exists("/proc/stat") else "no /proc/stat"

    def sample(self, ctx: Context, out: Values) -> None:
        """All rates are over the time since the last sample."""
        processes = ctx.processes()
        if any(process.alive for process in processes.counted):
            out["proc.cpu.threads"] = float(sum(process.threads for process in processes.counted))
        elapsed = ctx.now - self._last_read if self._last_read is not None else math.inf
        if elapsed >= LEAST_STRETCH:
            self._sample_use(ctx, processes, elapsed, out)
        self._sample_throttling(ctx, out)
        if ctx.settings.per_core:
            for core, share in self._cores.read(ctx).items():
                out[f"cpu.{core}.cpu_percent"] = share

    def _sample_use(self, ctx: Context, processes: Snapshot, elapsed: float, out: Values) -> None:
        ended = cpu_use(each.process for each in processes.own_ended)
        ticks = self._tree.rise(cpu_use(processes.counted), cpu_use(processes.own), ended)
        self._last_read = ctx.now
        if ticks is not None and elapsed < math.inf:
            cores = ticks / ctx.ticks_per_second / elapsed
            capacity = self._capacity(ctx)
            if capacity is not None:
                out["cpu"] = 100 * cores / capacity
            if ctx.settings.extended:
                out["proc.cpu.cores"] = cores

    def open(self, ctx: Context) -> None:
        """Count the physical cores where they are the norm; take the first reading of the cores."""
        if ctx.settings.cpu_norm == "physical":
            self._physical = physical_cores(ctx)
        if ctx.settings.per_core:
            self._cores.read(ctx)

    def _capacity(self, ctx: Context) -> float | None:
        """How many CPUs 100 % of `cpu` stands for; a limit below the host's logical CPUs binds whatever the norm."""
        cpus = ctx.limits().cpus
        unbound = self._physical is not None and (cpus is None or cpus >= logical_cpus(ctx))
        return self._physical if unbound else cpus

    def _sample_throttling(self, ctx: Context, out: Values) -> None:
        quota = ctx.limits().quota
        counts = throttling(ctx, quota) if quota is not None else None
        if quota is None or counts is None:
            return
        periods = self._held_back.rise(quota.folder, counts.periods, ctx.now)
        throttled = self._held_back.rise(f"{quota.folder} throttled", counts.throttled, ctx.now)
        if periods and periods.amount and throttled:
            out["proc.cpu.throttledPercent"] = 100 * throttled.amount / periods.amount
