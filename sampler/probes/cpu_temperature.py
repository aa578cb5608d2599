"""How hot the CPUs are."""

from __future__ import annotations

from typing import ClassVar

from ..context import Context
from ..metric import Kind, Metric, Origin
from ..probe import ProbeUnavailableError, Values
from ..tables import read_whole
from .extended import ExtendedProbe

_SENSORS = (
    ("coretemp", "Package id"),
    ("k10temp", "Tdie"),
    ("zenpower", "Tdie"),
    ("k10temp", "Tctl"),
    ("zenpower", "Tctl"),
    ("coretemp", "Core"),
    ("k10temp", "Tccd"),
    ("zenpower", "Tccd"),
)
"""Driver and beginning of the label, best first: whole packages before cores and dies."""
_ZONES = ("x86_pkg_temp", "cpu", "soc")  # beginnings of thermal zones' types, best first
_THERMAL = "/sys/class/thermal"


class CpuTemperatureProbe(ExtendedProbe):
    """`cpu.avg_temp`, the mean of the best kind of sensor there is."""

    name = "cpu_temperature"
    source = "/sys/class"
    metrics: ClassVar = (
        Metric(
            "cpu.avg_temp",
            "degrees C",
            "/sys/class/hwmon temp*_input of coretemp, k10temp, zenpower; else /sys/class/thermal",
            "mean of packages, else of dies, of cores",
            Kind.GAUGE,
            Origin.PEER,
            "extended",
            "tests/sampler/test_host_extended.py::test_temperature_of_the_cpus",
        ),
    )

    def __init__(self) -> None:
        self._files: list[str] = []

    def open(self, ctx: Context) -> None:
        """Choose the sensors. Others are not read: those of a mainboard can take long to answer."""
        self._files = self._monitors(ctx) or self._zones(ctx)
        if not self._files:
            raise ProbeUnavailableError("no sensor of a CPU in /sys/class/hwmon or /sys/class/thermal")

    @staticmethod
    def _monitors(ctx: Context) -> list[str]:
        found: dict[tuple[str, str], list[str]] = {}
        for monitor in ctx.list("/sys/class/hwmon"):
            folder = f"/sys/class/hwmon/{monitor}"
            driver = (ctx.read(f"{folder}/name") or "").strip()
            wanted = [sensor for sensor in _SENSORS if sensor[0] == driver]
            for file in ctx.list(folder) if wanted else ():
                if file.startswith("temp") and file.endswith("_label"):
                    label = ctx.read(f"{folder}/{file}") or ""
                    for sensor in wanted:
                        if label.startswith(sensor[1]):
                            found.setdefault(sensor, []).append(f"{folder}/{file.removesuffix('label')}input")
        return next((found[sensor] for sensor in _SENSORS if sensor in found), [])

    @staticmethod
    def _zones(ctx: Context) -> list[str]:
        zones = [f"{_THERMAL}/{zone}" for zone in ctx.list(_THERMAL) if zone.startswith("thermal_zone")]
        types = {zone: ctx.read(f"{zone}/type") or "" for zone in zones}
        for wanted in _ZONES:
            found = [f"{zone}/temp" for zone, kind in types.items() if kind.startswith(wanted)]
            if found:
                return found
        return []

    def sample(self, ctx: Context, out: Values) -> None:
        """A sensor that does not answer is left out of the mean."""
        read = [degrees for file in self._files if (degrees := read_whole(ctx, file)) is not None]
        if read:
            out["cpu.avg_temp"] = sum(read) / len(read) / 1000  # thousandths
