"""The monitored processes by what they are for: the program, its data loaders, compilers, the rest."""

from __future__ import annotations

from typing import ClassVar

from ..context import Context
from ..metric import Kind, Metric, Origin
from ..probe import Values
from ..proctree import Key, Process
from .extended import ExtendedProbe

MIB = 1 << 20
GROUPS = ("main", "dataloader", "compile", "other")
STATES = "RSDZ"
_COMPILERS = (
    "ptxas",
    "nvcc",
    "cicc",
    "fatbinary",
    "cc1",
    "cc1plus",
    "gcc",
    "g++",
    "clang",
    "clang++",
    "ninja",
    "nvlink",
)
_COMPILER_LINES = ("compile_worker", "triton", "_inductor")
_WORKER_LINES = ("multiprocessing.spawn", "multiprocessing.forkserver", "--multiprocessing-fork")
_TEST = "tests/sampler/test_processes.py::test_groups_by_name_and_command_line"


def _metric(key: str, unit: str, source: str, formula: str, kind: Kind = Kind.GAUGE) -> Metric:
    return Metric(key, unit, source, formula, kind, Origin.OURS, "extended", _TEST)


def group_of(name: str, line: str, parent_line: str | None) -> str:
    """The group of a process below the root, by its name and command line and that of its parent (None: not known).

    A Python program that was started (a rank of a launcher) is `main`; one that was forked and has started nothing
    of its own is a worker of its parent, whatever library forked it: its command line is still its parent's.
    """
    if name in _COMPILERS or any(word in line for word in _COMPILER_LINES):
        return "compile"
    if name.startswith("pt_data_") or any(word in line for word in _WORKER_LINES):
        return "dataloader"
    if "resource_tracker" in line or not line:
        return "other"
    if line == parent_line:
        return "dataloader"
    program = line.split("\0", 1)[0].rpartition("/")[2]
    return "main" if program.startswith("python") or name.startswith("python") else "other"


class ProcGroupsProbe(ExtendedProbe):
    """`proc.{group}.cpuCores|rssMB|count` and `proc.states.{R,S,D,Z}`."""

    name = "proc_groups"
    source = "/proc/self/cmdline"
    metrics: ClassVar = (
        _metric(
            "proc.{group}.cpuCores",
            "cores",
            "/proc/{pid}/stat utime, stime",
            "CPU time since the last sample / time, without children that ended",
            Kind.INTERVAL,
        ),
        _metric("proc.{group}.rssMB", "MiB", "/proc/{pid}/statm resident", "resident pages * page size"),
        _metric("proc.{group}.count", "count", "/proc/{pid}/comm, cmdline", "processes"),
        _metric(
            "proc.states.{state}",
            "count",
            "/proc/{pid}/stat state",
            "processes that run (R), sleep (S), wait for a disk or device (D), have ended and were not waited for (Z)",
        ),
    )

    def __init__(self) -> None:
        self._lines: dict[tuple[Key, str], str] = {}  # by name, too: a program that is started changes it
        self._cpu: dict[Key, int] = {}
        self._newest = -1
        self._last_read: float | None = None

    def open(self, ctx: Context) -> None:
        """Take the baseline."""
        self.sample(ctx, {})

    def sample(self, ctx: Context, out: Values) -> None:
        """A group without processes has its count only, 0; one that is new has no CPU time yet."""
        processes = ctx.processes().counted
        elapsed = ctx.now - self._last_read if self._last_read is not None else 0.0
        self._last_read = ctx.now
        if not processes:
            return
        lines = self._command_lines(ctx, processes)
        members: dict[str, list[Process]] = {group: [] for group in GROUPS}
        for index, process in enumerate(processes):
            group = group_of(process.name, lines[process.pid], lines.get(process.parent)) if index else "main"
            members[group].append(process)
        for group, found in members.items():
            out[f"proc.{group}.count"] = len(found)
            if found:
                out[f"proc.{group}.rssMB"] = sum(process.rss for process in found) * ctx.page_size / MIB
            spent = [ticks for process in found if (ticks := self._spent(process)) is not None]
            if spent and elapsed > 0:
                out[f"proc.{group}.cpuCores"] = sum(spent) / ctx.ticks_per_second / elapsed
        for state in STATES:
            out[f"proc.states.{state}"] = sum(process.state == state for process in processes)
        self._cpu = {process.key: process.cpu for process in processes}
        self._newest = max(process.started for process in processes)

    def _spent(self, process: Process) -> int | None:
        """Clock ticks since the last sample; a process that is older and was not seen then starts now."""
        before = self._cpu.get(process.key)
        if before is None:
            return process.cpu if self._cpu and process.started > self._newest else None
        return process.cpu - before

    def _command_lines(self, ctx: Context, processes: list[Process]) -> dict[int, str]:
        """By pid; read once per program."""
        lines = {}
        for process in processes:
            key = (process.key, process.name)
            line = self._lines.get(key)
            lines[key] = ctx.read(f"/proc/{process.pid}/cmdline") or "" if line is None else line
        self._lines = lines
        return {key[0]: line for (key, _), line in lines.items()}
