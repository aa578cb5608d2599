"""One Apple chip: what its libraries and tools tell, in the helper process."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Mapping
from typing import Any, TypeVar

from ..command import CommandError, run
from ..context import Context
from ..probe import ProbeUnavailableError, Values
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

_T = TypeVar("_T")
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


class Chip:
    """The chip of this machine. `libraries` replaces the files of Apple's.

    Raises:
        ProbeUnavailableError: this is no Apple chip, or nothing tells anything of it.
        CommandError: the system's own tools do not answer.
    """

    def __init__(self, ctx: Context, libraries: Mapping[str, str] = LIBRARIES) -> None:
        self._tables = Tables()
        self._trouble: list[str] = []  # why something could not be opened
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
        lib = self._attempt(lambda: Libraries(libraries))
        self._counters = self._attempt(lambda: IoReport(lib)) if lib is not None else None
        self._controller = controller = self._attempt(lambda: Smc(lib)) if lib is not None else None
        found = self._attempt(lambda: controller.sensors(("Tg", "Tp", "Te"))) if controller is not None else None
        self._sensors = found or []  # keys of the controller
        self._hid = HidSensors(lib) if lib is not None and not self._sensors else None
        self._by_frequency = self._counters is not None and bool(self._tables.gpu)
        self._powermetrics = self._counters is None and ctx.settings.powermetrics and os.geteuid() == 0
        if self._counters is None and self._controller is None and accelerator is None and not self._powermetrics:
            raise ProbeUnavailableError("; ".join(self._trouble) or "nothing tells anything of the chip")
        self.metadata: dict[str, Any] = {"apple": describe(told, accelerator), "gpu_count": 1}
        if self._chip:
            self.metadata["gpu_type"] = self._chip

    def _attempt(self, make: Callable[[], _T]) -> _T | None:
        """What `make` returns, None where this system has it not."""
        try:
            return make()
        except NativeError as error:
            self._trouble.append(str(error))
            return None

    def sample(self, ctx: Context, out: Values) -> None:
        """Write what was counted since the last sample, and the sensors now; raise what failed last of it."""
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

    def close(self) -> None:
        """Release counters and controller."""
        for handle in (self._counters, self._controller):
            if handle is not None:
                handle.close()


def sample_memory(ctx: Context, out: Values) -> None:
    """Write memory and swap. Each command tells its part; the error of the first that failed is raised."""
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
