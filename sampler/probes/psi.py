"""Pressure: the share of time in which work stood still for want of CPU, memory or disk."""

from __future__ import annotations

from typing import ClassVar

from ..context import Context
from ..metric import Kind, Metric, Origin
from ..probe import Values
from ..rates import Rises
from ..tables import whole
from .extended import ExtendedProbe

RESOURCES = ("cpu", "memory", "io")
_TEST = "tests/sampler/test_pressure.py::test_pressure_of_the_host_and_of_the_own_group"


def read_stalled(text: str | None) -> dict[str, int]:
    """Of a pressure file the microseconds since boot in which `some` or all (`full`) tasks stood still."""
    found = {}
    for line in (text or "").splitlines():
        kind, *fields = line.split() or [""]
        for field in fields:
            name, _, number = field.partition("=")
            if name == "total" and (stalled := whole(number)) is not None:
                found[kind] = stalled
    return {kind: found[kind] for kind in ("some", "full") if kind in found}


def _metric(prefix: str, source: str) -> Metric:
    formula = "rise of total (us) / time"
    return Metric(prefix + ".{resource}.{kind}", "%", source, formula, Kind.INTERVAL, Origin.OURS, "extended", _TEST)


class PsiProbe(ExtendedProbe):
    """`psi.{cpu,memory,io}.{some,full}` of the host, `cgroup.psi.*` of the process's own group (version 2)."""

    name = "psi"
    source = "/proc/pressure"
    metrics: ClassVar = (
        _metric("psi", "/proc/pressure/{resource}"),
        _metric("cgroup.psi", "{resource}.pressure of the process's own group"),
    )

    def __init__(self) -> None:
        self._rises = Rises[tuple[str, str]]()

    def discover(self, ctx: Context) -> str | None:
        """A kernel may have one of the two without the other."""
        reason = super().discover(ctx)
        return None if ctx.settings.extended and self._group(ctx) is not None else reason

    @staticmethod
    def _group(ctx: Context) -> str | None:
        groups = ctx.limits().groups
        group = groups.own() if groups is not None else None
        return group.folder if group is not None and ctx.exists(f"{group.folder}/cpu.pressure") else None

    def open(self, ctx: Context) -> None:
        """Take the baseline."""
        self.sample(ctx, {})

    def sample(self, ctx: Context, out: Values) -> None:
        """By the kernel's totals: its averages are over 10 s and more."""
        group = self._group(ctx)
        for resource in RESOURCES:
            self._sample_file(ctx, f"psi.{resource}", f"{self.source}/{resource}", out)
            if group is not None:
                self._sample_file(ctx, f"cgroup.psi.{resource}", f"{group}/{resource}.pressure", out)

    def _sample_file(self, ctx: Context, prefix: str, path: str, out: Values) -> None:
        for kind, stalled in read_stalled(ctx.read(path)).items():
            rate = self._rises.per_second((path, kind), stalled, ctx.now)
            if rate is not None:
                out[f"{prefix}.{kind}"] = rate / 1e4  # us per s
