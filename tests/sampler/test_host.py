"""CPU, memory, disk and network of a machine that is a folder."""

from __future__ import annotations

import contextlib
import os
import sys
import threading
import time
from types import SimpleNamespace

import psutil
import pytest
from runferry.sampler import SamplerSettings, proctree
from runferry.sampler.context import Context
from runferry.sampler.engine import Engine
from runferry.sampler.mounts import mount_of, read_mounts, whole_disks
from runferry.sampler.probes.cpu import CpuProbe
from runferry.sampler.probes.disk_io import DiskIoProbe
from runferry.sampler.probes.disk_usage import DiskUsageProbe
from runferry.sampler.probes.memory import MemoryProbe
from runferry.sampler.probes.network import NetworkProbe
from runferry.sampler.probes.portable import PortableProbe
from runferry.sampler.proctree import parse_stat, walk

HZ = os.sysconf("SC_CLK_TCK")
PAGE = os.sysconf("SC_PAGE_SIZE")
MIB = 1 << 20
FOUR_CPUS = {"/sys/devices/system/cpu/online": "0-3\n"}


def test_stat_with_a_name_full_of_traps():
    """A command name with spaces and brackets does not shift the columns."""
    text = "7 (a) b) S 1 7 7 0 -1 0 0 0 0 0 11 12 13 14 20 0 5 0 99 0 42 0"
    assert parse_stat(text) == (7, 1, 99, 23, 27, 5, 42, "a) b", "S", 0, 0)


def test_walk_is_breadth_first_and_leaves_out_helpers(machine):
    """Descendants of any depth are found; a helper and what is below it are not."""
    for pid, children in ((4242, (10, 11)), (10, (12,)), (11, (13,)), (12, ()), (13, ())):
        machine.process(pid, children=children)
    assert list(walk(machine.context(), 4242)) == [4242, 10, 11, 12, 13]
    assert list(walk(machine.context(), 4242, skip={11})) == [4242, 10, 12]


def test_a_fork_bomb_does_not_hold_the_sampler(machine, monkeypatch):
    """The walk ends at a number of processes, and after a time."""
    machine.process(4242, children=range(10, 20))
    for pid in range(10, 20):
        machine.process(pid, parent=4242)
    monkeypatch.setattr(proctree, "MOST_PROCESSES", 5)
    assert len(list(walk(machine.context(), 4242))) < 11
    monkeypatch.setattr(proctree, "MOST_PROCESSES", 4096)
    monkeypatch.setattr(proctree, "LONGEST_WALK", -1.0)
    assert list(walk(machine.context(), 4242)) == [4242]


@pytest.mark.parametrize(
    ("bound", "value", "words"),
    [
        ("MOST_PROCESSES", 5, "process 4242 has more than 5 descendants"),
        ("LONGEST_WALK", -1.0, "finding the descendants of process 4242 takes longer than -1 s"),
    ],
)
def test_processes_that_are_left_out_are_told_once(machine, clock, monkeypatch, bound, value, words):
    """One line for the run, in which numbers of processes are lower bounds from then on."""
    machine.write({"/proc/meminfo": "MemTotal: 4096 kB\nMemAvailable: 1024 kB\n"})
    machine.process(4242, children=range(10, 20))
    for pid in range(10, 20):
        machine.process(pid, parent=4242)
    warnings = []
    settings = SamplerSettings(pid=4242, probes=("memory",))
    engine = Engine(settings, lambda _: None, clock=clock, root=str(machine.root), warn=warnings.append)
    engine.open()
    engine.tick()
    assert warnings == []
    monkeypatch.setattr(proctree, bound, value)
    for _ in range(3):
        engine.tick()
    assert warnings == [f"{words}: metrics of processes leave some of them out"]


def test_walk_without_children_files(machine):
    """On kernels that do not list children, parents are read from every process."""
    machine.process(4242)
    machine.process(10, parent=4242)
    machine.process(12, parent=10)
    machine.process(99, parent=1)
    for pid in (4242, 10, 12, 99):
        (machine.root / f"proc/{pid}/task/{pid}/children").unlink()
    assert list(walk(machine.context(), 4242)) == [4242, 10, 12]


def test_cpu_is_the_share_of_available_cpus_since_the_last_sample(machine, sampled):
    """2 CPU seconds in 2 s on 4 CPUs are 25 %; the first sample has no rate; threads are summed over the tree."""
    machine.write(FOUR_CPUS)
    machine.process(4242, children=(10,), cpu=5 * HZ, threads=3)
    machine.process(10, parent=4242, cpu=7 * HZ, threads=2)
    probe = sampled(CpuProbe(), machine.context(extended=True))
    assert probe.next() == {"proc.cpu.threads": 5.0}
    machine.process(4242, children=(10,), cpu=6 * HZ, threads=3)
    machine.process(10, parent=4242, cpu=8 * HZ, threads=2)
    assert probe.next(after=2.0) == {"cpu": 25.0, "proc.cpu.cores": 1.0, "proc.cpu.threads": 5.0}


def test_cpu_time_of_a_moment_waits_for_the_next_sample(machine, sampled):
    """It comes in steps of 10 ms, of which a share of a few milliseconds says nothing; none of it is lost."""
    machine.write(FOUR_CPUS)
    machine.process(4242, cpu=5 * HZ)
    probe = sampled(CpuProbe(), machine.context())
    probe.next()
    machine.process(4242, cpu=5 * HZ + 1)
    assert probe.next(after=0.005) == {"proc.cpu.threads": 1.0}
    machine.process(4242, cpu=6 * HZ)
    assert probe.next(after=0.995)["cpu"] == pytest.approx(25.0)


def test_of_what_has_ended_only_the_cpu_time_is_told(machine, sampled):
    """A process that nobody has waited for yet has no memory and no threads: they are left out, not 0."""
    machine.write(FOUR_CPUS)
    machine.process(4242, cpu=0, rss=10)
    cpu, memory = sampled(CpuProbe(), machine.context()), sampled(MemoryProbe(), machine.context())
    cpu.next()
    assert "proc.memory.rssMB" in memory.next()
    machine.process(4242, cpu=1 * HZ, threads=1, rss=0, state="Z")
    assert cpu.next(after=1.0) == {"cpu": 25.0}
    assert not [key for key in memory.next(after=1.0) if key.startswith("proc.memory.rss")]


def test_cpu_counts_children_that_come_and_go(machine, sampled):
    """A child born and reaped between samples counts by what its parent waited for; nothing counts twice."""
    machine.write({"/sys/devices/system/cpu/online": "0\n"})
    machine.process(4242, children=(10,), started=100)
    machine.process(10, parent=4242, cpu=3 * HZ, started=200)
    probe = sampled(CpuProbe(), machine.context())
    probe.next()
    machine.process(10, parent=4242, cpu=4 * HZ, started=200)
    machine.process(4242, children=(10, 11), reaped=2 * HZ, started=100)  # of a child never seen alive
    machine.process(11, parent=4242, cpu=1 * HZ, started=300)  # new: all its time is of this interval
    assert probe.next(after=10.0)["cpu"] == pytest.approx(100 * (1 + 2 + 1) / 10)
    machine.process(4242, children=(11,), reaped=2 * HZ + 5 * HZ, started=100)  # 10 has ended after one more second
    assert probe.next(after=10.0)["cpu"] == pytest.approx(100 * 1 / 10)


def test_old_process_that_joins_is_no_burst(machine, sampled):
    """A process that is older than the last sample starts at its first reading."""
    machine.write({"/sys/devices/system/cpu/online": "0\n"})
    machine.process(4242, started=500)
    probe = sampled(CpuProbe(), machine.context())
    probe.next()
    machine.process(4242, children=(10,), started=500)
    machine.process(10, parent=4242, cpu=3600 * HZ, started=50)
    assert probe.next()["cpu"] == 0.0


def test_process_that_is_gone_has_no_keys(machine, sampled):
    """Absent is not zero: without the process there are no process metrics, the host's stay."""
    machine.write({"/proc/meminfo": "MemTotal: 4096 kB\nMemAvailable: 1024 kB\n"})
    ctx = machine.context()
    assert sampled(CpuProbe(), ctx).next() == {}
    assert set(sampled(MemoryProbe(), ctx).next()) == {"memory_percent", "proc.memory.availableMB"}


def test_physical_norm(machine, sampled):
    """`cpu_norm="physical"` divides by physical cores, as the peer does."""
    machine.write({"/sys/devices/system/cpu/online": "0-3\n"})
    for cpu in range(4):
        topology = f"/sys/devices/system/cpu/cpu{cpu}/topology"
        machine.write({f"{topology}/core_id": f"{cpu % 2}\n", f"{topology}/physical_package_id": "0\n"})
    machine.process(4242)
    probe = sampled(CpuProbe(), machine.context(cpu_norm="physical"))
    probe.next()
    machine.process(4242, cpu=HZ)
    assert probe.next(after=1.0)["cpu"] == 50.0


def test_per_core_load(machine, sampled):
    """Each core's busy share since the last sample; waiting for I/O is not busy."""
    machine.process(4242)
    machine.write({"/proc/stat": "cpu  0 0 0 0 0 0 0 0\ncpu0 10 0 10 80 0 0 0 0\ncpu1 0 0 0 100 0 0 0 0\n"})
    probe = sampled(CpuProbe(), machine.context(per_core=True))
    machine.write({"/proc/stat": "cpu  0 0 0 0 0 0 0 0\ncpu0 85 0 10 100 5 0 0 0\ncpu1 0 0 0 200 0 0 0 0\n"})
    values = probe.next()
    assert values["cpu.0.cpu_percent"] == pytest.approx(75.0)
    assert values["cpu.1.cpu_percent"] == 0.0
    machine.write({"/proc/stat": "cpu  0 0 0 0 0 0 0 0\ncpu0 95 0 10 95 5 0 0 0 50 0\ncpu1 0 0 0 300 0 0 0 0 9 9\n"})
    values = probe.next()
    assert values["cpu.0.cpu_percent"] == 100.0  # its idle time fell; what guests used is in the first column
    assert values["cpu.1.cpu_percent"] == 0.0


def test_memory_of_the_tree(machine, sampled):
    """Resident memory is summed over the tree, in MiB, and related to the host's memory where no limit binds."""
    machine.write({"/proc/meminfo": f"MemTotal: {1024 * 1024} kB\nMemFree: 1 kB\nMemAvailable: {256 * 1024} kB\n"})
    machine.process(4242, children=(10,), rss=200 * MIB // PAGE)
    machine.process(10, parent=4242, rss=56 * MIB // PAGE)
    assert sampled(MemoryProbe(), machine.context()).next() == {
        "memory_percent": 75.0,
        "proc.memory.availableMB": 256.0,
        "proc.memory.percent": 25.0,
        "proc.memory.rssMB": 256.0,
    }
    alone = sampled(MemoryProbe(), machine.context(process_tree=False)).next()
    assert alone["proc.memory.rssMB"] == 200.0


def test_resident_memory_is_that_of_statm(machine, sampled):
    """Newer kernels leave what was mapped in the last moments out of `stat`; `statm` has it."""
    machine.process(4242, rss=100)
    machine.write({"/proc/meminfo": "MemTotal: 4096 kB\n", "/proc/4242/statm": f"9999 {3 * MIB // PAGE} 1 1 0 9 0\n"})
    probe = sampled(MemoryProbe(), machine.context())
    assert probe.next()["proc.memory.rssMB"] == 3.0
    machine.write({"/proc/4242/statm": ""})
    assert probe.next()["proc.memory.rssMB"] == 100 * PAGE / MIB


def diskstats(**sectors):
    """Lines of diskstats: device -> (sectors read, sectors written)."""
    lines = [f"   8  0 {name} 1 0 {read} 0 1 0 {written} 0 0 0 0" for name, (read, written) in sectors.items()]
    return {"/proc/diskstats": "\n".join(lines) + "\n"}


def mountinfo(*mounts):
    """Lines of mountinfo: (device, mount point, kind)."""
    return {"/proc/self/mountinfo": "".join(f"1 0 {dev} / {point} rw - {kind} x rw\n" for dev, point, kind in mounts)}


def test_disk_io_watches_the_disk_behind_each_path(machine, sampled):
    """The longest mount decides by whole names, a partition counts on its disk, and bytes count from the start."""
    machine.write(mountinfo(("8:1", "/", "ext4"), ("8:17", "/home", "ext4"), ("8:33", "/home2", "ext4")))
    for device, target in (("8:1", "sda/sda1"), ("8:17", "sdb/sdb1"), ("8:33", "sdc/sdc1")):
        machine.partition(device, target)
    machine.write(diskstats(sda=(8, 8), sda1=(8, 8), sdb=(100, 100), sdc=(0, 0)))
    probe = sampled(DiskIoProbe(), machine.context(disk_paths=("/", "/home2/me")))
    machine.write(diskstats(sda=(8 + 2048, 8), sda1=(9, 9), sdb=(999, 999), sdc=(0, 4096)))
    assert probe.next() == {
        "disk.in": 1.0,
        "disk.out": 2.0,
        "disk.sda.in": 1.0,
        "disk.sda.out": 0.0,
        "disk.sdc.in": 0.0,
        "disk.sdc.out": 2.0,
    }
    machine.write(diskstats(sda=(0, 0)))  # reset, and sdc pulled out
    assert probe.next() == {"disk.in": 1.0, "disk.out": 2.0, "disk.sda.in": 1.0, "disk.sda.out": 0.0}


def test_disk_io_in_a_container(machine, sampled):
    """An overlay has no disk of its own: all disks count, without memory disks, partitions and stacked devices."""
    machine.write(mountinfo(("0:50", "/", "overlay")))
    machine.write(diskstats(sda=(0, 0), sda1=(0, 0), loop0=(0, 0), zram0=(0, 0), **{"dm-0": (0, 0)}))
    machine.write({"/sys/class/block/sda1/partition": "1\n"})
    probe = sampled(DiskIoProbe(), machine.context())
    assert set(probe.next()) == {"disk.in", "disk.out", "disk.sda.in", "disk.sda.out"}
    machine.write(mountinfo(("0:50", "/", "overlay"), ("8:17", "/scratch", "xfs")))
    machine.partition("8:17", "sdb/sdb1")
    machine.write(diskstats(sda=(0, 0), sdb=(0, 0)))
    probe = sampled(DiskIoProbe(), machine.context(disk_paths=("/scratch", "/")))
    assert {"disk.sda.in", "disk.sdb.in"} <= set(probe.next())


def test_disk_usage_agrees_with_statvfs(machine, sampled):
    """Used bytes in GiB and the share of what users may use; the key spells the path as given."""
    values = sampled(DiskUsageProbe("/"), machine.context()).next()
    sizes = os.statvfs(machine.root)
    used = sizes.f_blocks - sizes.f_bfree
    assert values["disk./.usagePercent"] == pytest.approx(100 * used / (used + sizes.f_bavail), rel=0.01)
    assert values["disk./.usageGB"] == pytest.approx(used * sizes.f_frsize / 2**30, rel=0.01)


@pytest.mark.parametrize("path", ["/nonexistent", "/a\0b"])
def test_unreachable_path_has_no_keys(machine, sampled, path):
    """A path that is not there, or cannot be one, is left out."""
    assert sampled(DiskUsageProbe(path), machine.context()).next() == {}


def net_dev(**interfaces):
    """/proc/net/dev: interface -> (bytes received, bytes sent)."""
    rows = [f"{name}: {received} 1 0 0 0 0 0 0 {sent} 1 0 0 0 0 0 0" for name, (received, sent) in interfaces.items()]
    return {"/proc/net/dev": "Inter-|   Receive  | Transmit\n face |bytes packets|bytes packets\n" + "\n".join(rows)}


def snmp(segments):
    return {"/proc/net/snmp": f"Ip: A\nIp: 1\nTcp: RtoMin RetransSegs InErrs\nTcp: 200 {segments} 0\n"}


def test_network_counts_since_start_without_loopback_and_bond_members(machine, sampled):
    """What a bond carries counts once; an interface that appears starts at zero, one that goes keeps its total."""
    machine.write(net_dev(lo=(5, 5), bond0=(100, 200), eth0=(100, 200)))
    machine.write({"/sys/class/net/eth0/master": "", **snmp(40)})
    probe = sampled(NetworkProbe(), machine.context(per_interface=True, extended=True))
    machine.write(net_dev(lo=(500, 500), bond0=(110, 230), eth0=(110, 230), wlan0=(1_000_000, 1_000_000)))
    machine.write(snmp(43))
    values = probe.next(after=2.0)
    assert values["network.sent"] == 30.0
    assert values["network.recv"] == 10.0
    assert values["network.tcpRetransmits"] == 3.0
    assert (values["network.sentRate"], values["network.recvRate"]) == (15.0, 5.0)
    assert "network.eth0.sent" not in values
    machine.write(net_dev(lo=(500, 500), wlan0=(1_000_007, 1_000_000)))
    assert probe.next()["network.recv"] == 17.0


def test_sources_that_are_missing_say_so(machine):
    """Each probe names the file it lacks instead of failing."""
    ctx = machine.context()
    for probe in (CpuProbe(), DiskIoProbe(), MemoryProbe(), NetworkProbe()):
        assert "/proc/" in probe.discover(ctx)


def test_portable_probe_agrees_with_ours(sampled):
    """On a machine that has both, psutil and our readers tell the same of this process and host."""
    probes = (CpuProbe, MemoryProbe, NetworkProbe, DiskIoProbe, PortableProbe)
    ctx = Context(SamplerSettings())
    readers = [sampled(probe(), ctx) for probe in probes]
    ours: dict[str, float] = {}
    for reader in readers[:-1]:
        reader.next()
        ours |= reader.next()
    readers[-1].next()
    portable = readers[-1].next()
    in_memory = ("disk.loop", "disk.ram", "disk.zram")  # only psutil for Linux takes them for disks
    assert {key for key in portable if not key.startswith(in_memory)} <= set(ours)
    assert {"cpu", "memory_percent", "proc.memory.rssMB", "network.sent", "disk.out"} <= set(portable)
    assert portable["proc.memory.rssMB"] == pytest.approx(ours["proc.memory.rssMB"], rel=0.05)
    assert portable["proc.cpu.threads"] == ours["proc.cpu.threads"]
    if ctx.limits().memory is None:
        assert portable["memory_percent"] == pytest.approx(ours["memory_percent"], abs=2)


def test_a_branch_that_ends_at_once_counts_once(machine, sampled):
    """A launcher ends with its worker: what both had used while they lived is not counted again as reaped time."""
    machine.write({"/sys/devices/system/cpu/online": "0\n"})
    machine.process(4242, children=(10,), started=100)
    machine.process(10, parent=4242, children=(11,), cpu=50 * HZ, started=200)
    machine.process(11, parent=10, cpu=500 * HZ, started=300)
    probe = sampled(CpuProbe(), machine.context())
    probe.next()
    machine.process(4242, reaped=(50 + 500 + 3) * HZ, started=100)
    assert probe.next(after=10.0)["cpu"] == pytest.approx(30.0)


def test_helpers_that_end_are_not_counted(machine, sampled):
    """The sampler's own helper is reaped by the process that is monitored: its time stays out, then too."""
    machine.write({"/sys/devices/system/cpu/online": "0\n"})
    machine.process(4242, children=(10,), started=100)
    machine.process(10, parent=4242, cpu=50 * HZ, started=200)
    machine.own_pids.add(10)
    probe = sampled(CpuProbe(), machine.context())
    assert probe.next()["proc.cpu.threads"] == 1.0
    machine.own_pids.clear()
    machine.process(4242, reaped=50 * HZ, started=100)
    assert probe.next()["cpu"] == 0.0


def test_an_affinity_binds_under_the_physical_norm_too(machine, sampled):
    """Who may use one CPU of four uses 100 % of it, also where physical cores are the norm."""
    machine.write({"/sys/devices/system/cpu/online": "0-3\n", "/proc/4242/status": "Cpus_allowed_list:\t2\n"})
    for cpu in range(4):
        topology = f"/sys/devices/system/cpu/cpu{cpu}/topology"
        machine.write({f"{topology}/core_id": f"{cpu % 2}\n", f"{topology}/physical_package_id": "0\n"})
    machine.process(4242)
    probe = sampled(CpuProbe(), machine.context(cpu_norm="physical"))
    probe.next()
    machine.process(4242, cpu=HZ)
    assert probe.next(after=1.0)["cpu"] == 100.0


def test_how_busy_a_disk_is(machine, sampled):
    """Rates, utilisation, waiting time and queue between two samples, as iostat has them; nothing after a reset."""
    machine.write(mountinfo(("8:0", "/", "ext4")))
    machine.link("/sys/dev/block/8:0", "../../devices/block/sda")
    machine.write({"/proc/diskstats": "8 0 sda 100 5 1000 50 200 5 2000 90 0 70 140 1 1 1 1\n"})
    probe = sampled(DiskIoProbe(), machine.context(extended=True))
    machine.write({"/proc/diskstats": "8 0 sda 160 5 3048 290 240 5 6096 250 7 1070 1140 1 1 1 1\n"})
    values = probe.next(after=2.0)
    assert {key.removeprefix("disk.sda."): value for key, value in values.items() if "sda" in key} == {
        "in": 1.0,
        "out": 2.0,
        "readRate": 2**19,
        "writeRate": 2**20,
        "iops": 50.0,
        "utilPercent": 50.0,
        "awaitMs": 4.0,
        "queue": 0.5,
    }
    assert "disk.sda.awaitMs" not in probe.next()  # no requests, no mean
    machine.write({"/proc/diskstats": "8 0 sda 1 0 8 1 1 0 8 1 0 1 1\n"})
    assert set(probe.next()) == {"disk.in", "disk.out", "disk.sda.in", "disk.sda.out"}


def test_volumes_and_raids_count_on_their_disks(machine, sampled):
    """An encrypted volume on a RAID of two partitions is two disks, each once; a volume that does not say, itself."""
    machine.write(mountinfo(("253:0", "/", "ext4"), ("253:9", "/opaque", "xfs")))
    for name in ("dm-0", "dm-9", "md1"):
        machine.link(f"/sys/class/block/{name}", f"../../devices/virtual/block/{name}")
        machine.write({f"/sys/devices/virtual/block/{name}/size": "1\n"})
    machine.link("/sys/dev/block/253:0", "../../devices/virtual/block/dm-0")
    machine.link("/sys/dev/block/253:9", "../../devices/virtual/block/dm-9")
    machine.write({"/sys/devices/virtual/block/dm-0/slaves/md1": ""})
    for target in ("sda/sda2", "sdb/sdb2"):
        machine.partition(f"8:{target[2:3]}", target)
        machine.write({f"/sys/devices/virtual/block/md1/slaves/{target[4:]}": ""})
    machine.write(diskstats(**dict.fromkeys(("sda", "sda2", "sdb", "sdb2", "sdc", "md1", "dm-0", "dm-9"), (0, 0))))
    values = sampled(DiskIoProbe(), machine.context(disk_paths=("/", "/opaque"))).next()
    assert {key.split(".")[1] for key in values} == {"in", "out", "sda", "sdb", "dm-9"}


def test_the_last_of_several_mounts_at_one_place_serves_it(machine):
    """What was mounted over is hidden."""
    machine.write(mountinfo(("8:1", "/", "ext4"), ("8:17", "/data", "xfs"), ("8:33", "/data", "ext4")))
    mounts = read_mounts(machine.context(), "self")
    assert mount_of("/data/x", mounts).device == "8:33"
    assert mount_of("/database", mounts).device == "8:1"


@pytest.mark.parametrize("number", ["104:1", "0:50"])
def test_disks_whose_names_hold_a_slash(machine, sampled, number):
    """In /sys such a name has `!`; its partitions are no disks, also where all disks are taken, or behind btrfs."""
    machine.write(mountinfo((number, "/", "ext4")))
    text = (machine.root / "proc/self/mountinfo").read_text()
    machine.write({"/proc/self/mountinfo": text.replace(" x rw", " /dev/cciss/c0d0p1 rw")})
    machine.partition("104:1", "cciss!c0d0/cciss!c0d0p1")
    machine.link("/sys/class/block/cciss!c0d0", "../../devices/block/cciss!c0d0")
    names = ("cciss/c0d0", "cciss/c0d0p1", "cciss/c0d1")
    machine.write(diskstats(**dict.fromkeys(names, (0, 0))))
    context = machine.context()
    assert set(sampled(DiskIoProbe(), context).next()) == {
        *("disk.in", "disk.out"),
        *("disk.cciss/c0d0.in", "disk.cciss/c0d0.out"),
    }
    assert whole_disks(context, names) == {"cciss/c0d0", "cciss/c0d1"}


def test_the_disk_behind_a_path_that_is_a_link(machine, sampled):
    """Links are followed on disks; a file system that may not answer is not looked into."""
    machine.write(mountinfo(("8:1", "/", "ext4"), ("8:17", "/mnt/nvme", "xfs"), ("0:44", "/home", "nfs4")))
    machine.partition("8:1", "sda/sda1")
    machine.partition("8:17", "sdb/sdb1")
    machine.link("/scratch", "/mnt/./nvme/me")
    machine.link("/home/me", "/mnt/nvme")
    machine.link("/loop", "loop")
    machine.link("/proc/self/cwd", "/mnt/nvme/run")
    machine.write(diskstats(sda=(0, 0), sdb=(0, 0)))
    for path, disks in (("/scratch/data", {"sdb"}), ("out", {"sdb"}), ("/home/me", {"sda", "sdb"}), ("/loop", {"sda"})):
        values = sampled(DiskIoProbe(), machine.context(disk_paths=(path,))).next()
        assert {key.split(".")[1] for key in values} - {"in", "out"} == disks, path
    values = sampled(DiskIoProbe(), machine.context(disk_paths=("/loop", "/home/me"))).next()
    assert "disk.sdb.in" not in values  # no disk holds /home, and others are known


def test_the_disk_of_a_btrfs_mount(machine, sampled):
    """Such mounts have a device number of their own: the name of the device tells, through the mapper too."""
    for source, disk in (("/dev/sdb1", "sdb"), ("/dev/mapper/home", "dm-3")):
        machine.write({"/proc/self/mountinfo": f"1 0 0:40 /@ / rw - btrfs {source} rw\n"})
        machine.write(diskstats(sda=(0, 0), sdb=(0, 0), **{"dm-3": (0, 0)}))
        if disk == "sdb":
            machine.partition("8:17", "sdb/sdb1")
            machine.link("/dev/mapper/home", "../dm-3")
        assert f"disk.{disk}.in" in sampled(DiskIoProbe(), machine.context()).next()


def test_disks_that_come_later_are_found(machine, sampled):
    """Disks are looked for every 20 samples; a new one starts at its first reading, one that comes back goes on."""
    machine.write(mountinfo(("0:50", "/", "overlay")))
    machine.write(diskstats(sda=(0, 0)))
    probe = sampled(DiskIoProbe(), machine.context())
    machine.write(diskstats(sda=(0, 2048), sdb=(10**9, 10**9)))
    seen = [probe.next() for _ in range(20)]
    assert "disk.sdb.in" not in seen[18]
    assert (seen[19]["disk.sdb.in"], seen[19]["disk.out"]) == (0.0, 1.0)
    machine.write({"/proc/diskstats": ""})
    assert probe.next() == {}
    machine.write(diskstats(sda=(0, 4096), sdb=(10**9, 10**9)))
    assert probe.next()["disk.out"] == 2.0  # a look that failed costs nothing
    machine.write(diskstats(sdb=(10**9, 10**9)))
    probe.next()
    machine.write(diskstats(sda=(0, 10**6), sdb=(10**9, 10**9)))
    assert probe.next()["disk.sda.out"] == 2.0  # it may be another disk of that name


def test_an_interface_that_leaves_a_bond_starts_anew(machine, sampled):
    """What it carried as a member was counted on the bond."""
    machine.write(net_dev(bond0=(100, 100), eth0=(100, 100)))
    probe = sampled(NetworkProbe(), machine.context())
    machine.write({"/sys/class/net/eth0/master": ""})
    machine.write(net_dev(bond0=(150, 150), eth0=(150, 150)))
    assert probe.next()["network.sent"] == 50.0
    (machine.root / "sys/class/net/eth0/master").unlink()
    machine.write(net_dev(bond0=(150, 150), eth0=(150, 150)))
    probe.next()
    machine.write(net_dev(bond0=(150, 150), eth0=(157, 157)))
    assert probe.next()["network.sent"] == 57.0
    machine.write({"/proc/net/dev": ""})
    assert not {"network.sent", "network.recv"} & set(probe.next())
    machine.write(net_dev(bond0=(151, 151), eth0=(157, 157)))
    assert probe.next()["network.recv"] == 58.0  # a look that failed costs nothing


def test_a_dead_file_system_costs_its_own_path_only(machine, monkeypatch, clock):
    """While statvfs of one path hangs, the other path and the host are sampled, and the end does not wait for it."""
    released, statvfs = threading.Event(), os.statvfs

    def hangs(path):
        if path.endswith("/dead"):
            released.wait(30)
        return statvfs(path)

    monkeypatch.setattr(os, "statvfs", hangs)
    machine.process(4242)
    machine.write({"/proc/meminfo": "MemTotal: 4096 kB\nMemAvailable: 1024 kB\n", "/dead/x": "", "/alive/x": ""})
    settings = SamplerSettings(
        pid=4242, disk_paths=("/dead", "/alive"), probes=("memory", "disk_usage"), self_metrics=False
    )
    samples, warnings = [], []
    engine = Engine(settings, samples.append, clock=clock, root=str(machine.root), warn=warnings.append)
    engine.open()
    try:
        for _ in range(3):
            engine.tick(grace=0.3)
            clock.now += 15
        for sample in samples:
            assert {"memory_percent", "disk./alive.usageGB"} <= set(sample.values)
            assert not any(key.startswith("disk./dead") for key in sample.values)
        assert [warning for warning in warnings if "/dead" in warning] == warnings
        assert len(warnings) == 1
        started = time.monotonic()
        engine.close(timeout=0.2)
        assert time.monotonic() - started < 2
    finally:
        released.set()


class FakePsutil:
    """As much of psutil as the portable probe asks for, of a machine in hand."""

    WINDOWS = True
    Error = psutil.Error
    refused = ()

    def __init__(self):
        self.nets = {"lo0": (100, 100), "en0": (5, 7)}
        self.disks = {"disk0": (MIB, MIB), "disk1": (0, 0)}
        self.people = {1: (0.0, 0.0, 1.0)}  # pid -> CPU s, those of ended children, start

    def virtual_memory(self):
        if "memory" in self.refused:
            raise PermissionError("not for you")
        return SimpleNamespace(available=1000, total=4000)

    def net_io_counters(self, pernic):
        return {name: SimpleNamespace(bytes_sent=sent, bytes_recv=got) for name, (sent, got) in self.nets.items()}

    def disk_io_counters(self, perdisk):
        disks = {name: SimpleNamespace(read_bytes=a, write_bytes=b) for name, (a, b) in self.disks.items()}
        return disks or None

    def disk_usage(self, path):
        return SimpleNamespace(percent=25.0, used=1 << 30)

    def cpu_count(self):
        return 4

    def Process(self, pid):  # noqa: N802 - as psutil has it
        if 1 not in self.people:
            raise psutil.NoSuchProcess(pid)
        return FakeProcess(self, 1)


class FakeProcess:
    def __init__(self, machine, pid):
        self.machine, self.pid = machine, pid

    def children(self, recursive):
        return [FakeProcess(self.machine, pid) for pid in self.machine.people if pid != 1]

    def oneshot(self):
        return contextlib.nullcontext()

    def cpu_times(self):
        own, ended, _ = self.machine.people[self.pid]
        return SimpleNamespace(user=own - 1, system=1.0, children_user=ended - 3, children_system=3.0)

    def create_time(self):
        return self.machine.people[self.pid][2]

    def ppid(self):
        return 1 if self.pid != 1 else 0

    def num_threads(self):
        return 3

    def memory_info(self):
        return SimpleNamespace(rss=MIB)


def test_portable_counts_as_the_others_do(machine, sampled, monkeypatch):
    """Without loopback, by disk, with what children used that ended, and with a disk's total after it is gone."""
    fake = FakePsutil()
    monkeypatch.setitem(sys.modules, "psutil", fake)
    fake.people |= {2: (50.0, 0.0, 2.0)}
    probe = sampled(PortableProbe(), machine.context(pid=1))
    fake.nets = {"lo0": (900, 900), "en0": (15, 27), "en1": (1000, 1000)}
    fake.disks = {"disk0": (3 * MIB, 2 * MIB), "disk1": (0, MIB)}
    fake.people = {1: (2.0, 52.0, 1.0), 3: (4.0, 0.0, 30.0)}
    assert probe.next(after=4.0) == {
        "cpu": 50.0,  # 2 s of its own, 2 s of the one that ended, 4 s of the one that began
        "proc.cpu.threads": 6.0,
        "proc.memory.rssMB": 2.0,
        "proc.memory.percent": 100 * 2 * MIB / 4000,
        "memory_percent": 75.0,
        "proc.memory.availableMB": 1000 / MIB,
        "network.sent": 10.0,
        "network.recv": 20.0,
        "disk.in": 2.0,
        "disk.out": 2.0,
        "disk.disk0.in": 2.0,
        "disk.disk0.out": 1.0,
        "disk.disk1.in": 0.0,
        "disk.disk1.out": 1.0,
        "disk./.usagePercent": 25.0,
        "disk./.usageGB": 1.0,
    }
    fake.disks = {"disk0": (3 * MIB, 2 * MIB)}
    assert probe.next()["disk.out"] == 2.0
    assert "cpu" not in probe.next(after=0.0)


def test_portable_loses_what_one_call_refuses(machine, monkeypatch):
    """A system that refuses one thing, or the process that is gone, costs the keys of that only; the error is told."""
    fake = FakePsutil()
    monkeypatch.setitem(sys.modules, "psutil", fake)
    probe, ctx = PortableProbe(), machine.context(pid=1)
    probe.open(ctx)
    fake.people, values = {}, {}
    probe.sample(ctx, values)
    assert {"memory_percent", "network.sent"} <= set(values)
    assert not {"cpu", "proc.memory.rssMB"} & set(values)
    fake.refused, fake.disks, values = ("memory",), {}, {}
    with pytest.raises(PermissionError):
        probe.sample(ctx, values)
    assert set(values) == {"network.sent", "network.recv", "disk./.usagePercent", "disk./.usageGB"}
