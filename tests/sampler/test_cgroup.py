"""Limits of containers and batch systems."""

from __future__ import annotations

import pytest
from runferry.sampler.cgroup import count_cpus, memory_use, oom_kills, throttling
from runferry.sampler.probes.cpu import CpuProbe
from runferry.sampler.probes.memory import MemoryProbe

GIB = 1 << 30


@pytest.mark.parametrize(
    ("text", "count"),
    [("0-7,16-23\n", 16), ("0", 1), ("3,5", 2), ("", 0), ("\n", 0), ("x-y", 0)],
)
def test_cpu_lists(text, count):
    """A CPU list counts ranges and single CPUs; nonsense counts as not told."""
    assert count_cpus(text) == count


def test_kubernetes_v2(machine, sampled):
    """A pod: 8 CPUs by quota (16 by affinity), 62.5 % of 32 GiB, 12 GiB left, 12 GiB working set, 12.5 % throttled."""
    machine.load("cgroup-v2-k8s.json")
    ctx = machine.context(extended=True)
    limits = ctx.limits()
    assert limits.cpus == 8
    assert limits.memory.limit == 32 * GIB
    periods, throttled = throttling(ctx, limits.quota)
    assert throttled / periods == 0.125
    values = sampled(MemoryProbe(), ctx).next()
    assert values["memory_percent"] == 62.5
    assert values["proc.memory.availableMB"] == 12288
    assert values["cgroup.memory.workingSetMB"] == 12288
    assert values["proc.memory.oomKills"] == 0
    machine.write({"/sys/fs/cgroup/c1/memory.events": "oom_kill 3\n"})
    assert oom_kills(ctx, limits.memory) == 3


def test_kernel_kills_are_counted_since_the_first_sample(machine, sampled):
    """`proc.memory.oomKills` starts at zero however many there were before."""
    machine.load("cgroup-v2-k8s.json")
    probe = sampled(MemoryProbe(), machine.context())
    probe.next()
    machine.write({"/sys/fs/cgroup/c1/memory.events": "oom_kill 3\n"})
    assert probe.next()["proc.memory.oomKills"] == 2


def test_throttling_is_since_the_last_sample(machine, sampled):
    """100 * throttled / periods of the interval; absent on the first sample and if no period passed."""
    machine.load("cgroup-v2-k8s.json")
    probe = sampled(CpuProbe(), machine.context())
    assert "proc.cpu.throttledPercent" not in probe.next()
    machine.write({"/sys/fs/cgroup/c1/cpu.stat": "nr_periods 1100\nnr_throttled 150\n"})
    assert probe.next()["proc.cpu.throttledPercent"] == 25.0
    assert "proc.cpu.throttledPercent" not in probe.next()


def test_slurm_limit_sits_on_an_ancestor(machine, sampled):
    """The job's limit binds though the task's own group says `max`; usage is the job's: 75 %."""
    machine.load("cgroup-v2-slurm-nested.json")
    ctx = machine.context()
    limit = ctx.limits().memory
    assert limit.limit == 65536 << 20
    assert memory_use(ctx, limit).current == 49152 << 20
    assert ctx.limits().cpus == 16
    assert sampled(MemoryProbe(), ctx).next()["memory_percent"] == 75.0


def test_docker_v1(machine, sampled):
    """Version 1: 4 CPUs by quota, 75 %, working set 8192 MiB."""
    machine.load("cgroup-v1-docker.json")
    ctx = machine.context(extended=True)
    assert ctx.limits().cpus == 4
    values = sampled(MemoryProbe(), ctx).next()
    assert values["memory_percent"] == 75.0
    assert values["cgroup.memory.workingSetMB"] == 8192
    assert throttling(ctx, ctx.limits().quota) == (500, 50)


@pytest.mark.parametrize("path", ["/../../other", "/elsewhere/c9", "/kubepods/pod1/elsewhere/gone"])
def test_group_outside_the_mount_falls_back_to_the_mount_point(machine, path):
    """In a cgroup namespace the path may point out of the mount: then the mount point is the nearest group."""
    machine.load("cgroup-v2-k8s.json")
    machine.write({"/proc/4242/cgroup": f"0::{path}\n", "/sys/fs/cgroup/memory.max": f"{GIB}\n"})
    machine.write({"/sys/fs/cgroup/elsewhere/memory.max": f"{GIB // 2}\n"})  # another group of that name
    assert machine.context().limits().memory == (GIB, "/sys/fs/cgroup", 2)


def test_limits_above_the_host_do_not_bind(machine, sampled):
    """A limit that no process can reach is none: percentages refer to the host."""
    machine.load("cgroup-v2-k8s.json")
    machine.write({"/proc/meminfo": "MemTotal: 16777216 kB\nMemAvailable: 4194304 kB\n"})
    ctx = machine.context()
    assert ctx.limits().memory is None
    assert sampled(MemoryProbe(), ctx).next() == {"memory_percent": 75.0, "proc.memory.availableMB": 4096.0}


def test_no_cgroup_ignores_limits_but_not_affinity(machine):
    """`no_cgroup` leaves what the scheduler enforces on the process itself."""
    machine.load("cgroup-v2-k8s.json")
    limits = machine.context(no_cgroup=True).limits()
    assert (limits.cpus, limits.quota, limits.memory) == (16, None, None)


def test_resized_pod_is_noticed(machine):
    """Limits are looked up again every 20 ticks."""
    machine.load("cgroup-v2-k8s.json")
    ctx = machine.context()
    assert ctx.limits().cpus == 8
    machine.write({"/sys/fs/cgroup/c1/cpu.max": "200000 100000\n"})
    for tick in range(20):
        assert ctx.limits().cpus == 8
        ctx.begin(1001.0 + tick)
    assert ctx.limits().cpus == 2


def test_unreadable_groups_leave_the_host(machine):
    """Garbage in the control files is no limit and no crash."""
    machine.load("cgroup-v2-k8s.json")
    machine.write({"/sys/fs/cgroup/c1/cpu.max": "lots\n", "/sys/fs/cgroup/c1/memory.max": "\n"})
    limits = machine.context().limits()
    assert (limits.cpus, limits.quota, limits.memory) == (16, None, None)
