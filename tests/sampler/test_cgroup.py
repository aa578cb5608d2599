"""Limits of containers and batch systems."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest
from runferry.sampler import SamplerSettings
from runferry.sampler.cgroup import Groups, count_cpus, memory_use, oom_kills, throttling
from runferry.sampler.context import Context
from runferry.sampler.probes.cgroup_events import CgroupEventsProbe
from runferry.sampler.probes.cpu import CpuProbe
from runferry.sampler.probes.memory import MemoryProbe

GIB = 1 << 30


@pytest.mark.parametrize(
    ("text", "count"),
    [("0-7,16-23\n", 16), ("0", 1), ("3,5", 2), ("", 0), ("\n", 0), ("x-y", 0), ("7-3", 0)],
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
    counts = throttling(ctx, limits.quota)
    assert counts.throttled / counts.periods == 0.125
    assert counts.milliseconds == 7500
    values = sampled(MemoryProbe(), ctx).next() | sampled(CgroupEventsProbe(), ctx).next()
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
    assert memory_use(ctx, limit) == 49152 << 20
    assert ctx.limits().cpus == 16
    assert sampled(MemoryProbe(), ctx).next()["memory_percent"] == 75.0


def test_docker_v1(machine, sampled):
    """Version 1: 4 CPUs by quota, 75 %, working set 8192 MiB."""
    machine.load("cgroup-v1-docker.json")
    ctx = machine.context(extended=True)
    assert ctx.limits().cpus == 4
    values = sampled(MemoryProbe(), ctx).next() | sampled(CgroupEventsProbe(), ctx).next()
    assert values["memory_percent"] == 75.0
    assert values["proc.memory.oomKills"] == 0
    assert values["cgroup.memory.workingSetMB"] == 8192
    assert values["cgroup.memory.percent"] == 50.0
    assert values["cgroup.memory.limitMB"] == 16384
    assert throttling(ctx, ctx.limits().quota) == (500, 50, 1500.0)


def test_page_cache_of_version_1_is_that_of_all_below(machine, sampled):
    """`cache` is the group's own, `total_cache` that of its children too; usage holds both."""
    machine.load("cgroup-v1-docker.json")
    stat = f"cache {GIB}\ntotal_cache {3 * GIB}\ntotal_inactive_file {4 * GIB}\n"
    machine.write({"/sys/fs/cgroup/memory/memory.stat": stat})
    values = sampled(CgroupEventsProbe(), machine.context(extended=True)).next()
    assert values["cgroup.memory.pageCacheMB"] == 3072


def test_the_smallest_of_several_limits_binds(machine):
    """A task may have a limit above that of its job."""
    machine.load("cgroup-v2-slurm-nested.json")
    job = machine.context().limits().memory
    task = next((machine.root / job.folder.lstrip("/")).rglob("task_0"))
    (task / "memory.max").write_text(f"{2 * job.limit}\n")
    assert machine.context().limits().memory == job
    (task / "memory.max").write_text(f"{job.limit // 2}\n")
    assert machine.context().limits().memory.limit == job.limit // 2


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


def test_a_process_that_has_ended_keeps_its_limits(machine):
    """The last sample of a command, taken before it is reaped, has the share of the limit, not of the host."""
    machine.load("cgroup-v2-k8s.json")
    ctx = machine.context()
    before = ctx.limits()
    (machine.root / "proc/4242/mountinfo").unlink()
    for tick in range(50):
        ctx.begin(1001.0 + tick)
        assert ctx.limits() is before


@pytest.mark.skipif(sys.platform != "linux", reason="the kernel's own answer")
def test_a_process_that_is_not_reaped_sees_no_mounts():
    """Which is how one that has ended is known here."""
    child = subprocess.Popen(["true"])
    os.waitid(os.P_PID, child.pid, os.WEXITED | os.WNOWAIT)
    ctx = Context(SamplerSettings())
    assert [Groups(ctx, pid).known for pid in (os.getpid(), child.pid)] == [True, False]
    child.wait()
    assert not Groups(ctx, child.pid).known


def test_unreadable_groups_leave_the_host(machine):
    """Garbage in the control files is no limit and no crash."""
    machine.load("cgroup-v2-k8s.json")
    machine.write({"/sys/fs/cgroup/c1/cpu.max": "lots\n", "/sys/fs/cgroup/c1/memory.max": "\n"})
    limits = machine.context().limits()
    assert (limits.cpus, limits.quota, limits.memory) == (16, None, None)


def test_events_of_a_group(machine, sampled):
    """Events count since the sampler began; sizes are those of the group that owns the limit."""
    machine.load("cgroup-v2-k8s.json")
    probe = sampled(CgroupEventsProbe(), machine.context(extended=True))
    machine.write({"/sys/fs/cgroup/c1/memory.events": "low 0\nhigh 14\nmax 3\noom 2\noom_kill 4\nnew_kind 9\n"})
    values = probe.next()
    assert {key.removeprefix("cgroup."): value for key, value in values.items()} == {
        "memory.limitMB": 32768,
        "memory.workingSetMB": 12288,
        "memory.percent": 37.5,
        "memory.pageCacheMB": 10240,
        "memory.peakMB": 28672,
        "memory.lowEvents": 0,
        "memory.highEvents": 2,
        "memory.maxEvents": 0,
        "memory.oomEvents": 1,
        "memory.oomKillEvents": 3,
        "cpu.throttledMs": 0,
        "pids": 64,
    }


def test_events_of_a_group_of_version_1(machine, sampled):
    """There, the limit's hits are told as `memory.failcnt`, the peak as `memory.max_usage_in_bytes`."""
    machine.load("cgroup-v1-docker.json")
    folder = "/sys/fs/cgroup/memory"
    machine.write({f"{folder}/memory.failcnt": "7\n", f"{folder}/memory.max_usage_in_bytes": f"{13 * GIB}\n"})
    probe = sampled(CgroupEventsProbe(), machine.context(extended=True))
    machine.write({f"{folder}/memory.failcnt": "9\n"})
    values = probe.next()
    assert values["cgroup.memory.maxEvents"] == 2
    assert values["cgroup.memory.oomKillEvents"] == 0
    assert values["cgroup.memory.peakMB"] == 13 * 1024
    assert values["cgroup.memory.workingSetMB"] == 8192


def test_events_without_a_limit_are_those_of_the_own_group(machine, sampled):
    """A group without limit has sizes and events, no share of a limit; without groups there is no probe."""
    machine.load("cgroup-v2-k8s.json")
    machine.write({"/sys/fs/cgroup/c1/memory.max": "max\n"})
    values = sampled(CgroupEventsProbe(), machine.context(extended=True)).next()
    assert values["cgroup.memory.workingSetMB"] == 12288
    assert "cgroup.memory.percent" not in values
    assert "cgroup.memory.limitMB" not in values
    assert CgroupEventsProbe().discover(machine.context(extended=True, no_cgroup=True)) == "no control group"


def test_throttled_time(machine, sampled):
    """Milliseconds since the sampler began, from microseconds in version 2 and nanoseconds in version 1."""
    machine.load("cgroup-v2-k8s.json")
    probe = sampled(CgroupEventsProbe(), machine.context(extended=True))
    machine.write({"/sys/fs/cgroup/c1/cpu.stat": "nr_periods 1100\nnr_throttled 150\nthrottled_usec 7750500\n"})
    assert probe.next()["cgroup.cpu.throttledMs"] == 250.5


def test_another_group_that_comes_to_own_the_limit_adds_no_kills(machine, sampled):
    """Kills before a group was looked at are not this run's, also when a limit is set on an ancestor later."""
    machine.load("cgroup-v2-slurm-nested.json")
    job = "/sys/fs/cgroup/system.slice/slurmstepd.scope/job_99"
    machine.write({f"{job}/memory.events": "oom_kill 1\n", f"{job}/step_0/memory.events": "oom_kill 50\n"})
    probe = sampled(MemoryProbe(), machine.context())
    assert probe.next()["proc.memory.oomKills"] == 0
    machine.write({f"{job}/memory.events": "oom_kill 2\n"})
    assert probe.next()["proc.memory.oomKills"] == 1
    machine.write({f"{job}/step_0/memory.max": "1024\n", f"{job}/step_0/memory.current": "512\n"})
    values = [probe.next() for _ in range(20)][-1]
    assert values["proc.memory.oomKills"] == 1
    assert values["memory_percent"] == 50.0


def test_a_hit_limit_is_told_above_100_percent(machine, sampled):
    """Page cache may be charged beyond the limit for a moment: nothing is clamped but what is left."""
    machine.load("cgroup-v2-k8s.json")
    machine.write({"/sys/fs/cgroup/c1/memory.current": f"{40 * GIB}\n"})
    values = sampled(MemoryProbe(), machine.context()).next()
    assert (values["memory_percent"], values["proc.memory.availableMB"]) == (125.0, 0)


def test_hybrid_hosts_serve_each_controller_from_its_version(machine):
    """With both versions mounted, memory of version 1 binds and the pressure is that of version 2."""
    machine.load("cgroup-v1-docker.json")
    mountinfo = (machine.root / "proc/4242/mountinfo").read_text()
    machine.write({"/proc/4242/mountinfo": mountinfo + "50 30 0:40 / /sys/fs/cgroup/unified rw - cgroup2 cgroup2 rw\n"})
    limits = machine.context().limits()
    assert limits.memory.version == 1
    assert limits.groups.own() == ("/sys/fs/cgroup/unified", 2)


@pytest.mark.parametrize("text", ["-1\n", "0\n", "max\n", "1e9\n", "9" * 400 + "\n", ""])
def test_limits_that_are_none(machine, text):
    """Nothing but a positive number that a kernel could write is a limit."""
    machine.load("cgroup-v2-k8s.json")
    machine.write({"/sys/fs/cgroup/c1/memory.max": text, "/sys/fs/cgroup/c1/cpu.max": f"{text.strip()} 100000\n"})
    limits = machine.context().limits()
    assert (limits.memory, limits.quota) == (None, None)
