"""Apple silicon: the chip in a helper process, memory by the system's own tools."""

from __future__ import annotations

import importlib
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from ..context import Context
from ..metric import Metric, Origin
from ..probe import Probe, Tier, Values

if TYPE_CHECKING:
    from .apple_chip import Chip

IOREG = "/usr/sbin/ioreg"
VM_STAT = "/usr/bin/vm_stat"

_FIGURES = "tests/sampler/test_apple.py::"
_STATES = "time in each state and the table of frequencies"


def _metric(key: str, unit: str, source: str, formula: str = "", *, listed: bool = False, test: str) -> Metric:
    return Metric(key, unit, source, formula, origin=Origin.LISTED if listed else Origin.PEER, test=_FIGURES + test)


class AppleProbe(Probe):
    """`gpu.0.*`, `cpu.*`, `ane.power`, `system.powerWatts` of Apple's chips.

    Counters come from IOReport, temperatures from the controller (before macOS 14 from the sensors' own interface),
    memory of the GPU from `ioreg`. Where there is no IOReport, the load comes from `ioreg` and, with the setting
    `powermetrics` and as root, the rest from that program. A key comes from one source for the life of the probe.
    """

    name = "apple"
    tier = Tier.HELPER
    metrics = (
        _metric(
            "gpu.0.gpu",
            "%",
            f"IOReport GPUPH: {_STATES}; else ioreg Device Utilization %",
            "100 * sum(time * frequency) / (time in all * highest frequency)",
            listed=True,
            test="test_what_ioreport_counts",
        ),
        _metric(
            "gpu.0.freq", "MHz", f"IOReport GPUPH: {_STATES}", "mean while active", test="test_what_ioreport_counts"
        ),
        _metric(
            "gpu.0.temp",
            "degrees C",
            "SMC Tg*; else HID GPU MTR Temp Sensor*",
            "mean",
            listed=True,
            test="test_sensors",
        ),
        _metric(
            "gpu.0.powerWatts",
            "W",
            "IOReport GPU Energy",
            "energy / time",
            listed=True,
            test="test_what_ioreport_counts",
        ),
        _metric(
            "gpu.0.powerPercent",
            "%",
            "IOReport GPU, CPU and ANE Energy",
            "100 * power / limit of the chip, where that is known (M1: 16.5 W)",
            listed=True,
            test="test_power_percent_where_the_limit_is_known",
        ),
        _metric(
            "gpu.0.memoryAllocated",
            "%",
            "ioreg In use system memory, Alloc system memory",
            "100 * in use / allocated",
            listed=True,
            test="test_what_ioreg_prints",
        ),
        *(
            metric
            for kind in ("ecpu", "pcpu")
            for metric in (
                _metric(
                    f"cpu.{kind}_percent",
                    "%",
                    f"IOReport {kind[0].upper()}CPU*: {_STATES}",
                    "100 * sum(time * frequency) / (time in all * highest frequency)",
                    test="test_what_ioreport_counts",
                ),
                _metric(
                    f"cpu.{kind}_freq",
                    "MHz",
                    f"IOReport {kind[0].upper()}CPU*: {_STATES}",
                    "mean while active",
                    test="test_what_ioreport_counts",
                ),
            )
        ),
        _metric(
            "cpu.avg_temp",
            "degrees C",
            "SMC Tp*, Te*; else HID pACC and eACC MTR Temp Sensor*",
            "mean",
            test="test_sensors",
        ),
        _metric("cpu.powerWatts", "W", "IOReport CPU Energy", "energy / time", test="test_what_ioreport_counts"),
        _metric("ane.power", "W", "IOReport ANE*", "energy / time", test="test_what_ioreport_counts"),
        _metric(
            "system.powerWatts",
            "W",
            "SMC PSTR",
            "at least the sum of CPU, GPU and ANE",
            test="test_power_of_the_system_is_no_less_than_the_chip_s",
        ),
    )

    def __init__(self, libraries: Mapping[str, str] | None = None) -> None:
        self._libraries = libraries  # in place of the files of Apple's
        self._chip: Chip | None = None

    def discover(self, ctx: Context) -> str | None:
        """Looks for the tool; which chip it is takes a command, so `open` asks."""
        return None if ctx.exists(IOREG) else f"no Apple system: there is no {IOREG}"

    def open(self, ctx: Context) -> None:
        """Find the chip, its tables and its counters; each is of use without the others."""
        from .apple_chip import Chip  # loads ctypes
        from .apple_native import LIBRARIES

        self._chip = Chip(ctx, self._libraries or LIBRARIES)

    def sample(self, ctx: Context, out: Values) -> None:
        """What was counted since the last sample, and the sensors now."""
        if self._chip is not None:
            self._chip.sample(ctx, out)

    def metadata(self) -> dict[str, Any]:
        """apple, gpu_type, gpu_count."""
        return self._chip.metadata if self._chip is not None else {}

    def close(self) -> None:
        """Release counters and controller."""
        if self._chip is not None:
            self._chip.close()


class AppleMemoryProbe(Probe):
    """`memory.used`, `memory.used_percent`, `swap.used`, `swap.used_percent` by `vm_stat` and `sysctl`."""

    name = "apple_memory"
    tier = Tier.THREAD
    metrics = (
        _metric(
            "memory.used",
            "bytes",
            "vm_stat",
            "(active + inactive + wired + speculative + compressor - purgeable - files) * page size",
            test="test_memory",
        ),
        _metric("memory.used_percent", "%", "vm_stat; sysctl hw.memsize", "100 * used / total", test="test_memory"),
        _metric("swap.used", "bytes", "sysctl vm.swapusage", test="test_memory"),
        _metric("swap.used_percent", "%", "sysctl vm.swapusage", "100 * used / total", test="test_memory"),
    )

    def discover(self, ctx: Context) -> str | None:
        """Looks for the tool."""
        if not ctx.exists(VM_STAT):
            return f"no Apple system: there is no {VM_STAT}"
        importlib.import_module(".apple_chip", __package__)  # not on the probe's thread: see `registry.load_modules`
        return None

    def sample(self, ctx: Context, out: Values) -> None:
        """What both commands tell."""
        from .apple_chip import sample_memory

        sample_memory(ctx, out)
