"""Apple silicon: the chip in a helper process, memory by the system's own tools."""

from __future__ import annotations

import os
import shutil
from collections.abc import Mapping
from typing import Any

from ..command import CommandError, run
from ..context import Context
from ..metric import Metric, Origin
from ..probe import Probe, ProbeUnavailableError, Tier, Values
from .apple_figures import (
    Accelerator,
    Tables,
    accelerator_values,
    chip_values,
    describe,
    memory_values,
    parse_accelerator,
    parse_sysctl,
    parse_tables,
    powermetrics_values,
    sensor_values,
    system_power,
)
from .apple_native import LIBRARIES, HidSensors, IoReport, Libraries, NativeError, Smc

IOREG = "/usr/sbin/ioreg"
_SYSCTL = (
    "hw.memsize",
    "hw.model",
    "hw.optional.arm64",
    "hw.perflevel0.physicalcpu",
    "hw.perflevel1.physicalcpu",
    "machdep.cpu.brand_string",
    "vm.swapusage",
)
_POWERMETRICS = ("powermetrics", "-n", "1", "-i", "200", "-f", "plist", "--samplers", "cpu_power,gpu_power,ane_power")
_FOLDERS = "/usr/sbin:/usr/bin:/sbin"  # looked through after PATH
_SYSTEM_POWER = "PSTR"  # W, of the whole machine

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
    prefixes = ("gpu.0.", "cpu.ecpu_", "cpu.pcpu_", "cpu.avg_temp", "cpu.powerWatts", "ane.", "system.")
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

    def __init__(self, libraries: Mapping[str, str] = LIBRARIES) -> None:
        self._libraries = libraries
        self._counters: IoReport | None = None
        self._controller: Smc | None = None
        self._hid: HidSensors | None = None
        self._sensors: list[str] = []  # keys of the controller
        self._tables = Tables()
        self._powermetrics = False
        self._by_frequency = False  # whether IOReport tells the GPU's load
        self._chip = ""
        self._metadata: dict[str, Any] = {}
        self._trouble: list[str] = []  # why something could not be opened

    def discover(self, ctx: Context) -> str | None:
        """Looks for the tool; which chip it is takes a command, so `open` asks."""
        return None if ctx.exists(IOREG) else f"no Apple system: there is no {IOREG}"

    def open(self, ctx: Context) -> None:
        """Find the chip, its tables and its counters; each is of use without the others."""
        told = _sysctl(ctx)
        if told.get("hw.optional.arm64") != "1":
            raise ProbeUnavailableError("not an Apple chip: hw.optional.arm64 is not 1")
        self._chip = told.get("machdep.cpu.brand_string", "")
        accelerator = None
        try:
            self._tables = parse_tables(_output(ctx, "ioreg", "-r", "-n", "pmgr", "-d", "1", "-a"))
            accelerator = _accelerator(ctx)
        except CommandError as error:
            self._trouble.append(str(error))
        self._open_libraries()
        self._by_frequency = self._counters is not None and bool(self._tables.gpu)
        self._powermetrics = self._counters is None and ctx.settings.powermetrics and os.geteuid() == 0
        if self._counters is None and self._controller is None and accelerator is None and not self._powermetrics:
            raise ProbeUnavailableError("; ".join(self._trouble) or "nothing tells anything of the chip")
        self._metadata = {"apple": describe(told, accelerator), "gpu_count": 1}
        if self._chip:
            self._metadata["gpu_type"] = self._chip

    def _open_libraries(self) -> None:
        try:
            libraries = Libraries(self._libraries)
        except NativeError as error:
            self._trouble.append(str(error))
            return
        try:
            self._counters = IoReport(libraries)
        except NativeError as error:
            self._trouble.append(str(error))
        try:
            self._controller = Smc(libraries)
            self._sensors = self._controller.sensors(("Tg", "Tp", "Te"))
        except NativeError as error:
            self._trouble.append(str(error))
        if not self._sensors:
            self._hid = HidSensors(libraries)

    def sample(self, ctx: Context, out: Values) -> None:
        """What was counted since the last sample, and the sensors now."""
        values: Values = {}
        trouble: Exception | None = None
        for part in (self._read_accelerator, self._read_counters):
            try:
                values.update(part(ctx))
            except (CommandError, NativeError) as error:
                trouble = error
        values.update(self._read_sensors())
        system_power(values, self._read_controller(_SYSTEM_POWER))
        out.update(values)
        if trouble is not None:
            raise trouble

    def _read_accelerator(self, ctx: Context) -> Values:
        accelerator = _accelerator(ctx)
        values = accelerator_values(accelerator) if accelerator is not None else {}
        if self._by_frequency:  # else a moment without counters would show another kind of load
            values.pop("gpu.0.gpu", None)
        return values

    def _read_counters(self, ctx: Context) -> Values:
        if self._counters is not None:
            channels, seconds = self._counters.read()
            return chip_values(channels, self._tables, seconds, chip=self._chip)
        if self._powermetrics:
            told = powermetrics_values(_output(ctx, *_POWERMETRICS))
            told.pop("gpu.0.gpu", None)  # ioreg tells it
            return told
        return {}

    def _read_sensors(self) -> Values:
        smc = {key: value for key in self._sensors if (value := self._read_controller(key)) is not None}
        hid: dict[str, float] = {}
        if self._hid is not None:
            try:
                hid = self._hid.read()
            except NativeError as error:  # a function of a private interface is gone
                self._trouble.append(str(error))
                self._hid = None
        return sensor_values(smc, hid)

    def _read_controller(self, key: str) -> float | None:
        try:
            return self._controller.read(key) if self._controller is not None else None
        except NativeError:  # it has no such key, or is busy
            return None

    def metadata(self) -> dict[str, Any]:
        """apple, gpu_type, gpu_count."""
        return self._metadata

    def close(self) -> None:
        """Release counters and controller."""
        for handle in (self._counters, self._controller):
            if handle is not None:
                handle.close()


class AppleMemoryProbe(Probe):
    """`memory.used`, `memory.used_percent`, `swap.used`, `swap.used_percent` by `vm_stat` and `sysctl`."""

    name = "apple_memory"
    tier = Tier.THREAD
    prefixes = ("memory.used", "swap.used")
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
        return None if ctx.exists("/usr/bin/vm_stat") else "no Apple system: there is no /usr/bin/vm_stat"

    def sample(self, ctx: Context, out: Values) -> None:
        """Each command tells its part; the error of the first that failed is told."""
        told, trouble = {}, []
        for name in ("vm_stat", "sysctl"):
            try:
                told[name] = _output(ctx, name, *(_SYSCTL if name == "sysctl" else ())).decode("utf-8", "replace")
            except CommandError as error:
                trouble.append(error)
        out.update(memory_values(told.get("vm_stat", ""), parse_sysctl(told.get("sysctl", ""))))
        if trouble:
            raise trouble[0]


def _output(ctx: Context, *argv: str) -> bytes:
    """Standard output; `sysctl` prints what it knows and fails for what it does not."""
    path = os.pathsep.join((os.environ.get("PATH", os.defpath), _FOLDERS))
    program = shutil.which(argv[0], path=path) or argv[0]
    result = run(ctx, (program, *argv[1:]), timeout=5.0, cap=8 << 20)
    if result.code != 0 and not result.stdout.strip():
        raise CommandError(f"{argv[0]} ended with status {result.code}: {result.stderr}")
    return result.stdout


def _sysctl(ctx: Context) -> dict[str, str]:
    return parse_sysctl(_output(ctx, "sysctl", *_SYSCTL).decode("utf-8", "replace"))


def _accelerator(ctx: Context) -> Accelerator | None:
    return parse_accelerator(_output(ctx, "ioreg", "-r", "-c", "IOAccelerator", "-d", "1", "-a"))
