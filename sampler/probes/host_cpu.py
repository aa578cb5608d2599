"""Where the CPU time of the whole host goes."""

from __future__ import annotations

from typing import ClassVar

from ..context import Context
from ..metric import Kind, Metric, Origin
from ..probe import Values
from ..tables import wholes
from .extended import ExtendedProbe

_TIMES = {"user": (0, 1), "system": (2,), "iowait": (4,), "irq": (5, 6), "steal": (7,)}
"""Key -> columns of /proc/stat behind `cpu`. `user` holds what runs with a nice value, `irq` soft interrupts."""
_TEST = "tests/sampler/test_host_extended.py::test_host_cpu_split"


class HostCpuProbe(ExtendedProbe):
    """`host.cpu.*`: what all CPUs of the host spent their time on."""

    name = "host_cpu"
    source = "/proc/stat"
    metrics: ClassVar = tuple(
        Metric(
            f"host.cpu.{key}",
            "%",
            "/proc/stat cpu",
            "share of all CPUs' time",
            Kind.INTERVAL,
            Origin.OURS,
            "extended",
            _TEST,
        )
        for key in _TIMES
    )

    def __init__(self) -> None:
        self._last: list[int] | None = None

    def open(self, ctx: Context) -> None:
        """Take the baseline."""
        self.sample(ctx, {})

    def sample(self, ctx: Context, out: Values) -> None:
        """100 % are all CPUs. A column that fell (the kernel corrects iowait) is left out once."""
        line = (ctx.read("/proc/stat") or "").partition("\n")[0]
        name, *fields = line.split() or [""]
        times = wholes(fields[:8])  # guest time is part of user time
        if name != "cpu" or times is None or len(times) < 8:
            return
        last, self._last = self._last, times
        total = sum(times) - sum(last) if last is not None else 0
        if last is None or total <= 0:
            return
        for key, columns in _TIMES.items():
            spent = sum(times[column] - last[column] for column in columns)
            if spent >= 0:
                out[f"host.cpu.{key}"] = 100 * spent / total
