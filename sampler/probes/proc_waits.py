"""What the monitored processes wait for: a CPU, pages from disk, each other."""

from __future__ import annotations

from collections.abc import Iterable
from typing import ClassVar

from ..context import Context
from ..metric import Kind, Metric, Origin
from ..probe import Values
from ..proctree import Key, Process, TreeCounter, Use
from ..rates import Rises
from ..tables import read_table, whole
from .extended import ExtendedProbe

_TEST = "tests/sampler/test_processes.py::"
_SWITCHES = {"vol": "voluntary_ctxt_switches", "invol": "nonvoluntary_ctxt_switches"}


def _metric(key: str, unit: str, source: str, formula: str, test: str) -> Metric:
    return Metric(
        "proc." + key, unit, f"/proc/{{pid}}/{source}", formula, Kind.INTERVAL, Origin.OURS, "extended", _TEST + test
    )


class ProcWaitsProbe(ExtendedProbe):
    """`proc.ctxSwitches.*`, `proc.majorFaultsRate`, `proc.runDelayPercent`."""

    name = "proc_waits"
    source = "/proc/self/stat"
    metrics: ClassVar = (
        _metric(
            "ctxSwitches.volRate",
            "1/s",
            "status voluntary_ctxt_switches",
            "of the main threads: they waited for something",
            "test_context_switches_and_run_delay",
        ),
        _metric(
            "ctxSwitches.involRate",
            "1/s",
            "status nonvoluntary_ctxt_switches",
            "of the main threads: others got their CPU",
            "test_context_switches_and_run_delay",
        ),
        _metric(
            "majorFaultsRate",
            "1/s",
            "stat majflt, cmajflt",
            "pages that had to be read from disk",
            "test_major_faults_count_children_that_ended",
        ),
        _metric(
            "runDelayPercent",
            "%",
            "schedstat",
            "time in which the root's main thread could run and had no CPU / time",
            "test_context_switches_and_run_delay",
        ),
    )

    def __init__(self) -> None:
        self._faults = TreeCounter()
        self._last_read: float | None = None
        self._rises = Rises[tuple[tuple[int, int], str]]()

    def open(self, ctx: Context) -> None:
        """Take the baseline."""
        self.sample(ctx, {})

    def sample(self, ctx: Context, out: Values) -> None:
        """The kernel tells switches and delay by thread: main threads stand for their processes."""
        snapshot = ctx.processes()
        ended = _faults(each.process for each in snapshot.own_ended)
        rise = self._faults.rise(_faults(snapshot.counted), _faults(snapshot.own), ended)
        elapsed = ctx.now - self._last_read if self._last_read is not None else 0.0
        self._last_read = ctx.now
        if rise is not None and elapsed > 0:
            out["proc.majorFaultsRate"] = rise / elapsed
        self._sample_switches(ctx, snapshot.counted, out)
        for process in snapshot.counted[:1]:
            fields = (ctx.read(f"/proc/{process.pid}/schedstat") or "").split()
            waited = whole(fields[1]) if len(fields) > 1 else None
            delay = self._rises.per_second((process.key, "delay"), waited, ctx.now) if waited is not None else None
            if delay is not None:
                out["proc.runDelayPercent"] = delay / 1e7  # ns per s

    def _sample_switches(self, ctx: Context, processes: list[Process], out: Values) -> None:
        sums: dict[str, float] = {}
        present: dict[tuple[tuple[int, int], str], None] = {}
        for process in processes:
            table = read_table(ctx.read(f"/proc/{process.pid}/status"), ":", ("vol", "nonvol"))
            present |= {(process.key, kind): None for kind in (*_SWITCHES, "delay")}
            for kind, field in _SWITCHES.items():
                rate = self._rises.per_second((process.key, kind), table[field], ctx.now) if field in table else None
                if rate is not None:
                    sums[kind] = sums.get(kind, 0.0) + rate
        self._rises.keep(present)
        out.update({f"proc.ctxSwitches.{kind}Rate": rate for kind, rate in sums.items()})


def _faults(processes: Iterable[Process]) -> dict[Key, Use]:
    return {process.key: Use(process.parent, process.faults, process.reaped_faults) for process in processes}
