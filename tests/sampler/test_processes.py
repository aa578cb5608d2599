"""What `extended` adds of the monitored processes."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest
from runferry.sampler import SamplerSettings, proctree
from runferry.sampler.context import Context
from runferry.sampler.probes.proc_files import ProcFilesProbe
from runferry.sampler.probes.proc_groups import ProcGroupsProbe, group_of
from runferry.sampler.probes.proc_io import ProcIoProbe
from runferry.sampler.probes.proc_memory import ProcMemoryProbe
from runferry.sampler.probes.proc_waits import ProcWaitsProbe
from runferry.sampler.proctree import Ended, Process, TreeCounter, Use

HZ = os.sysconf("SC_CLK_TCK")
PAGE = os.sysconf("SC_PAGE_SIZE")
MIB = 1 << 20


@pytest.fixture
def ctx(machine):
    return machine.context(extended=True)


def io(pid, read, written=0, chars=0):
    return {f"/proc/{pid}/io": f"rchar: {chars}\nwchar: 0\nread_bytes: {read}\nwrite_bytes: {written}\n"}


def test_io_counts_children_that_ended_once(machine, ctx, sampled):
    """Bytes per second of the tree; the parent's number takes a child's over when it ends, which is no burst."""
    machine.process(4242, children=(10,), started=100)
    machine.process(10, parent=4242, started=200)
    machine.write(io(4242, 1000, chars=5) | io(10, 50_000))
    probe = sampled(ProcIoProbe(), ctx)
    machine.write(io(4242, 1100, written=8, chars=25) | io(10, 50_300))
    expected = {"proc.io.readRate": 200.0, "proc.io.writeRate": 4.0, "proc.io.rchar": 10.0, "proc.io.wchar": 0.0}
    assert probe.next(after=2.0) == expected
    machine.process(4242, started=100)
    machine.write(io(4242, 1100 + 50_300 + 70, written=8, chars=25))
    assert probe.next()["proc.io.readRate"] == 70.0
    machine.process(4242, children=(11,), started=100)
    machine.process(11, parent=4242, started=300)
    machine.write(io(11, 500))
    assert probe.next()["proc.io.readRate"] == 500.0  # born since the last sample


def test_io_of_others_is_not_told(machine, ctx, sampled):
    """Without permission to read the numbers there are no keys."""
    machine.process(4242)
    assert sampled(ProcIoProbe(), ctx).next() == {}


def waits(pid, voluntary, forced, delay):
    status = f"Name:\tx\nvoluntary_ctxt_switches:\t{voluntary}\nnonvoluntary_ctxt_switches:\t{forced}\n"
    return {f"/proc/{pid}/status": status, f"/proc/{pid}/schedstat": f"100 {delay} 5\n"}


def test_context_switches_and_run_delay(machine, ctx, sampled):
    """Switches per second over the tree; the share of time in which the root was ready and had no CPU."""
    machine.process(4242, children=(10,))
    machine.process(10, parent=4242)
    machine.write(waits(4242, 100, 10, 0) | waits(10, 500, 50, 7))
    probe = sampled(ProcWaitsProbe(), ctx)
    machine.write(waits(4242, 140, 20, 500_000_000) | waits(10, 520, 50, 10**10))
    assert probe.next(after=2.0) == {
        "proc.ctxSwitches.volRate": 30.0,
        "proc.ctxSwitches.involRate": 5.0,
        "proc.majorFaultsRate": 0.0,
        "proc.runDelayPercent": 25.0,
    }
    machine.process(4242)
    assert probe.next()["proc.ctxSwitches.volRate"] == 0.0
    assert {key[0] for key, _ in probe.probe._rises._last} == {4242}  # the other is forgotten


def test_major_faults_count_children_that_ended(machine, ctx, sampled):
    """Faults of a child that was never seen count by what its parent waited for."""
    machine.process(4242, faults=(100, 50))
    probe = sampled(ProcWaitsProbe(), ctx)
    machine.process(4242, faults=(104, 66))
    assert probe.next(after=2.0)["proc.majorFaultsRate"] == 10.0


def test_what_the_samplers_programs_used_is_not_the_runs(machine, ctx, sampled, monkeypatch):
    """A program of ours that began and ended between two samples: its bytes and faults came to the root, and are taken off."""
    machine.process(4242, faults=(100, 0), started=100)
    machine.write(io(4242, 1000))
    bytes_read, faults = sampled(ProcIoProbe(), ctx), sampled(ProcWaitsProbe(), ctx)
    program = Process(10, 4242, 200, 7, 0, 1, 5, faults=40, reaped_faults=2)
    monkeypatch.setattr(proctree, "_ended", [Ended(program, {"read_bytes": 5000, "rchar": 0})])
    machine.process(4242, faults=(100, 45), started=100)
    machine.write(io(4242, 6300, written=4))
    values = bytes_read.next() | faults.next(after=0.0)
    assert values["proc.io.readRate"] == 300.0
    assert values["proc.io.writeRate"] == 4.0
    assert values["proc.majorFaultsRate"] == 3.0


@pytest.mark.skipif(not os.path.exists("/proc/self/io"), reason="needs /proc")  # noqa: PTH110 - a plain look
def test_what_a_program_used_is_read_before_it_is_reaped(monkeypatch):
    """Its times, faults and bytes, while its parent has not been given them yet."""
    monkeypatch.setattr(proctree, "_ended", [])
    child = subprocess.Popen([sys.executable, "-c", "print('x' * 10_000)"], stdout=subprocess.DEVNULL)
    os.waitid(os.P_PID, child.pid, os.WEXITED | os.WNOWAIT)
    proctree.note_end(child.pid)
    child.wait()
    (ended,) = proctree._ended
    assert (ended.process.pid, ended.process.parent, ended.process.alive) == (child.pid, os.getpid(), False)
    assert ended.io["wchar"] >= 10_000


def test_open_files(machine, ctx, sampled):
    """Summed over the tree; the share is that of the process that has most, of its soft limit."""
    machine.process(4242, children=(10, 11))
    for pid, count in ((4242, 3), (10, 5)):
        machine.process(pid, parent=4242, children=(10, 11) if pid == 4242 else ())
        machine.write({f"/proc/{pid}/fd/{number}": "" for number in range(count)})
    machine.process(11, parent=4242)
    limits = "Limit  Soft Limit  Hard Limit  Units\nMax open files            20                   4096  files\n"
    machine.write({"/proc/10/limits": limits})
    probe = sampled(ProcFilesProbe(), ctx)
    assert probe.next() == {"proc.fds": 8, "proc.fdsPercent": 25.0}
    for text in ("Max open files            unlimited  unlimited  files\n", "Max open files", ""):
        machine.write({"/proc/10/limits": text})
        assert probe.next() == {"proc.fds": 8}


def test_open_files_of_this_process(tmp_path, sampled):
    """On the real machine, a file more that is open is one more."""
    probe = sampled(ProcFilesProbe(), Context(SamplerSettings(extended=True, process_tree=False)))
    before = probe.next()["proc.fds"]
    with (tmp_path / "x").open("w"):
        assert probe.next()["proc.fds"] == before + 1


@pytest.mark.parametrize(
    ("name", "line", "parent", "group"),
    [
        ("pt_data_worker", "python\0train.py\0", "python\0train.py\0", "dataloader"),
        ("python3", "python3\0train.py\0", "python3\0train.py\0", "dataloader"),
        ("python", "python\0-c\0from multiprocessing.spawn import spawn_main\0", "python\0train.py\0", "dataloader"),
        ("python", "python\0-c\0from multiprocessing.resource_tracker import main\0", "python\0a.py\0", "other"),
        ("python", "/env/bin/python3.11\0train.py\0", "torchrun\0train.py\0", "main"),
        ("ptxas", "ptxas\0-o\0x\0", "python\0train.py\0", "compile"),
        ("python", "python\0/x/torch/_inductor/compile_worker/__main__.py\0", "python\0train.py\0", "compile"),
        ("python", "python\0/x/torch/_inductor/compile_worker/__main__.py\0", None, "compile"),
        ("git", "git\0status\0", "python\0train.py\0", "other"),
        ("kworker/0", "", "python\0train.py\0", "other"),
        ("sh", "sh\0-c\0python x.py\0", None, "other"),
    ],
)
def test_kinds_of_processes(name, line, parent, group):
    """Workers by their name, how they were spawned, or by being a fork; compilers; started programs; the rest."""
    assert group_of(name, line, parent) == group


def test_groups_by_name_and_command_line(machine, ctx, sampled):
    """CPU, memory and number by group, and how many processes run, sleep, wait for a disk or are dead."""
    machine.process(4242, children=(10, 11), cpu=10 * HZ, rss=100 * MIB // PAGE, state="R", started=100)
    machine.process(10, parent=4242, name="pt_data_worker", rss=8 * MIB // PAGE, state="D", cpu=3 * HZ, started=150)
    machine.process(11, parent=4242, name="git", state="Z", started=150)
    for pid, line in ((4242, "python\0train.py\0"), (10, "python\0train.py\0"), (11, "")):
        machine.write({f"/proc/{pid}/cmdline": line})
    probe = sampled(ProcGroupsProbe(), ctx)
    machine.process(4242, children=(10, 11, 12), cpu=12 * HZ, rss=100 * MIB // PAGE, state="R", started=100)
    machine.process(10, parent=4242, name="pt_data_worker", rss=8 * MIB // PAGE, state="D", cpu=4 * HZ, started=150)
    machine.process(12, parent=4242, name="pt_data_worker", rss=8 * MIB // PAGE, cpu=HZ, started=300)
    machine.write({"/proc/12/cmdline": "python\0train.py\0"})
    assert probe.next(after=2.0) == {
        "proc.main.count": 1,
        "proc.main.rssMB": 100,
        "proc.main.cpuCores": 1.0,
        "proc.dataloader.count": 2,
        "proc.dataloader.rssMB": 16,
        "proc.dataloader.cpuCores": 1.0,  # the new one's time is of this interval
        "proc.compile.count": 0,
        "proc.other.count": 1,
        "proc.other.rssMB": 0,
        "proc.other.cpuCores": 0.0,
        "proc.states.R": 1,
        "proc.states.S": 1,
        "proc.states.D": 1,
        "proc.states.Z": 1,
    }


def test_command_lines_are_read_once(machine, ctx, sampled):
    """A command line is looked at again only when the process runs another program."""
    machine.process(4242, children=(10,))
    machine.process(10, parent=4242, name="python")
    machine.write({"/proc/4242/cmdline": "python\0train.py\0", "/proc/10/cmdline": "python\0train.py\0"})
    probe = sampled(ProcGroupsProbe(), ctx)
    machine.write({"/proc/10/cmdline": "ptxas\0x\0"})
    assert probe.next()["proc.dataloader.count"] == 1
    machine.process(10, parent=4242, name="ptxas")
    assert probe.next()["proc.compile.count"] == 1


def test_groups_of_a_process_that_is_gone(machine, ctx, sampled):
    """Nothing is counted as none."""
    assert sampled(ProcGroupsProbe(), ctx).next() == {}


def test_shared_pages_count_once(machine, ctx, sampled):
    """Proportional and own memory in MiB, summed over the processes that may be read."""
    machine.process(4242, children=(10,))
    machine.process(10, parent=4242)
    probe = sampled(ProcMemoryProbe(), ctx)
    assert probe.next() == {}
    rollup = "5612-7ffe ---p 00000000 00:00 0    [rollup]\nRss: 9 kB\nPss: 3072 kB\nPrivate_Clean: 512 kB\n"
    machine.write({"/proc/4242/smaps_rollup": rollup + "Private_Dirty: 1024 kB\nPrivate_Hugetlb: 512 kB\n"})
    assert probe.next() == {"proc.memory.pssMB": 3.0, "proc.memory.ussMB": 2.0}
    machine.write({"/proc/10/smaps_rollup": rollup})
    assert probe.next() == {"proc.memory.pssMB": 6.0, "proc.memory.ussMB": 2.5}


def test_programs_of_the_sampler_that_have_ended():
    """Their whole use is taken off what their parent reaped, once, whether or not they were seen alive."""
    root, seen, unseen = (10, 1), (11, 5), (12, 6)
    tree = TreeCounter()
    assert tree.rise({root: Use(1, 100, 0)}, {}) is None
    assert tree.rise({root: Use(1, 110, 0)}, {seen: Use(10, 3, 0)}) == 10
    ended = {seen: Use(10, 8, 2), unseen: Use(10, 40, 0)}
    assert tree.rise({root: Use(1, 120, 0)}, {seen: Use(10, 9, 2)}, {seen: ended[seen]}) == 10  # to be reaped yet
    assert tree.rise({root: Use(1, 130, 57)}, {}, ended) == 17
    assert tree.rise({root: Use(1, 131, 57)}, {}, ended) == 1
