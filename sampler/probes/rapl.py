"""Energy of the CPUs and their memory, by the counters of RAPL."""

from __future__ import annotations

from typing import ClassVar

from ..context import Context
from ..metric import Kind, Metric, Origin
from ..probe import ProbeUnavailableError, Values
from ..tables import read_whole
from .extended import ExtendedProbe

_ROOT = "/sys/class/powercap"
_ZONES = "intel-rapl:"  # of AMD, too; `intel-rapl-mmio:` tells the same once more
_MICRO = 1e-6


def _metric(key: str, unit: str, formula: str, kind: Kind) -> Metric:
    test = "tests/sampler/test_host_extended.py::test_energy_of_the_cpus"
    source = f"{_ROOT}/{_ZONES}*/energy_uj"
    return Metric("rapl.{zone}." + key, unit, source, formula, kind, Origin.OURS, "extended", test)


class RaplProbe(ExtendedProbe):
    """`rapl.{zone}.powerWatts|energyJoules`; zones are `package-0`, `package-0-dram` ...

    The kernel lets only root read them, since they tell what others compute.
    """

    name = "rapl"
    source = _ROOT
    metrics: ClassVar = (
        _metric("powerWatts", "W", "rise / time", Kind.INTERVAL),
        _metric("energyJoules", "J", "rise, across wraps", Kind.TOTAL),
    )

    def __init__(self) -> None:
        self._zones: dict[str, tuple[str, int | None]] = {}  # name -> folder, uJ at which it wraps
        self._last: dict[str, tuple[float, int]] = {}  # name -> s, uJ
        self._risen: dict[str, int] = {}

    def open(self, ctx: Context) -> None:
        """Find the zones, take the baseline."""
        folders = [f"{_ROOT}/{zone}" for zone in ctx.list(_ROOT) if zone.startswith(_ZONES)]
        names = {folder: (ctx.read(f"{folder}/name") or "").strip() for folder in folders}
        for folder, name in names.items():
            above = names.get(folder.rpartition(":")[0])
            if name and read_whole(ctx, f"{folder}/energy_uj") is not None:
                full = f"{above}-{name}" if above else name
                self._zones[full] = folder, read_whole(ctx, f"{folder}/max_energy_range_uj")
        if not self._zones:
            why = "energy_uj cannot be read (it takes root)" if folders else "no counters of energy"
            raise ProbeUnavailableError(f"{why} in {_ROOT}")
        self.sample(ctx, {})

    def sample(self, ctx: Context, out: Values) -> None:
        """A counter that has fallen has wrapped, unless it does not say where it wraps."""
        for name, (folder, wraps_at) in self._zones.items():
            energy = read_whole(ctx, f"{folder}/energy_uj")
            if energy is None:
                continue
            last, self._last[name] = self._last.get(name), (ctx.now, energy)
            rise = energy - last[1] if last is not None else None
            if rise is not None and rise < 0:
                rise = rise + wraps_at if wraps_at is not None and rise + wraps_at >= 0 else None
            if rise is not None:
                self._risen[name] = self._risen.get(name, 0) + rise
                if last is not None and ctx.now > last[0]:
                    out[f"rapl.{name}.powerWatts"] = rise * _MICRO / (ctx.now - last[0])
            out[f"rapl.{name}.energyJoules"] = self._risen.get(name, 0) * _MICRO
