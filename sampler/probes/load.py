"""How many tasks want to run, and how long the host has been up."""

from __future__ import annotations

import math
from typing import ClassVar

from ..context import Context
from ..metric import Kind, Metric, Origin
from ..probe import Values
from .extended import ExtendedProbe

_TEST = "tests/sampler/test_host_extended.py::test_load_and_uptime"


def _metric(key: str, unit: str, source: str, formula: str = "") -> Metric:
    return Metric(key, unit, source, formula, Kind.GAUGE, Origin.PEER, "extended", _TEST)


class LoadProbe(ExtendedProbe):
    """`system.load1|load5|load15`, `system.uptime`."""

    name = "load"
    source = "/proc/loadavg"
    metrics: ClassVar = (
        *(
            _metric(f"system.load{minutes}", "count", "/proc/loadavg", f"tasks that run or wait, over {minutes} min")
            for minutes in (1, 5, 15)
        ),
        _metric("system.uptime", "s", "/proc/uptime"),
    )

    def sample(self, ctx: Context, out: Values) -> None:
        """As the kernel has them."""
        loads = (ctx.read("/proc/loadavg") or "").split()[:3]
        uptime = (ctx.read("/proc/uptime") or "").split()[:1]
        keys = ("system.load1", "system.load5", "system.load15")
        for key, text in (*zip(keys, loads, strict=False), *zip(("system.uptime",), uptime, strict=False)):
            try:
                value = float(text)
            except ValueError:
                continue
            if math.isfinite(value):
                out[key] = value
