"""Apple silicon: the chip, in a helper process."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from ..context import Context
from ..metric import Kind, Metric, Origin
from ..probe import Probe, Tier, Values

if TYPE_CHECKING:
    from .apple_chip import Chip

IOREG = "/usr/sbin/ioreg"

_FIGURES = "tests/sampler/test_apple.py::"
_STATES = "time in each state and the table of frequencies"
_ELSE = "; else powermetrics (with the setting of that name)"


def _metric(key: str, unit: str, source: str, formula: str = "", *, listed: bool = False, test: str) -> Metric:
    kind = Kind.INTERVAL if source.startswith("IOReport") else Kind.GAUGE
    return Metric(key, unit, source, formula, kind, Origin.LISTED if listed else Origin.PEER, test=_FIGURES + test)


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
            "gpu.0.freq",
            "MHz",
            f"IOReport GPUPH: {_STATES}{_ELSE}",
            "mean while active; 0 if it never was",
            test="test_what_ioreport_counts",
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
            f"IOReport GPU Energy{_ELSE}",
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
            for kind, cores in (("ecpu", "ECPU*, MCPU*"), ("pcpu", "PCPU*"))
            for metric in (
                _metric(
                    f"cpu.{kind}_percent",
                    "%",
                    f"IOReport {cores}: {_STATES}{_ELSE}",
                    "100 * sum(time * frequency) / (time in all * highest frequency); powermetrics: 100 * time active",
                    test="test_what_ioreport_counts",
                ),
                _metric(
                    f"cpu.{kind}_freq",
                    "MHz",
                    f"IOReport {cores}: {_STATES}{_ELSE}",
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
        _metric(
            "cpu.powerWatts", "W", f"IOReport *CPU Energy{_ELSE}", "energy / time", test="test_what_ioreport_counts"
        ),
        _metric("ane.power", "W", f"IOReport ANE*{_ELSE}", "energy / time", test="test_what_ioreport_counts"),
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
        self.notices = self._chip.trouble

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
