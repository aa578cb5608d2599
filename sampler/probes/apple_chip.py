"""One Apple chip: what its libraries and tools tell, in the helper process."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from typing import Any, TypeVar

from ..command import CommandError
from ..context import Context
from ..probe import ProbeUnavailableError, Values
from .apple_figures import (
    Accelerator,
    Tables,
    accelerator_values,
    chip_values,
    describe,
    parse_accelerator,
    parse_tables,
    powermetrics_values,
    sensor_values,
    system_power,
)
from .apple_ioreport import IoReport
from .apple_native import LIBRARIES, Libraries, NativeError
from .apple_sensors import HidSensors, Smc
from .apple_tools import output, sysctl

_T = TypeVar("_T")
_POWERMETRICS = ("powermetrics", "-n", "1", "-i", "200", "-f", "plist", "--samplers", "cpu_power,gpu_power,ane_power")
_SYSTEM_POWER = "PSTR"  # W, of the whole machine


class Chip:
    """The chip of this machine. `libraries` replaces the files of Apple's.

    Raises:
        ProbeUnavailableError: this is no Apple chip, or nothing tells anything of it.
        CommandError: the system's own tools do not answer.
    """

    def __init__(self, ctx: Context, libraries: Mapping[str, str] = LIBRARIES) -> None:
        self.trouble: list[str] = []
        """Why something could not be opened, so that its keys are missing."""
        told = sysctl(ctx)
        if told.get("hw.optional.arm64") != "1":
            raise ProbeUnavailableError("not an Apple chip: hw.optional.arm64 is not 1")
        self._chip = told.get("machdep.cpu.brand_string", "")
        self._tables = self._attempt(lambda: _tables(ctx)) or Tables()
        accelerator = self._attempt(lambda: _accelerator(ctx))
        lib = Libraries(libraries)
        self._counters = self._attempt(lambda: IoReport(lib))
        self._controller = controller = self._attempt(lambda: Smc(lib))
        found = self._attempt(lambda: controller.sensors(("Tg", "Tp", "Te"))) if controller is not None else None
        self._sensors = found or []  # keys of the controller
        self._hid = None if self._sensors else HidSensors(lib)
        self._by_frequency = self._counters is not None and bool(self._tables.gpu)
        self._powermetrics = self._counters is None and ctx.settings.powermetrics and os.geteuid() == 0
        if self._counters is None and self._controller is None and accelerator is None and not self._powermetrics:
            raise ProbeUnavailableError("; ".join(self.trouble) or "nothing tells anything of the chip")
        self.metadata: dict[str, Any] = {"apple": describe(told, accelerator), "gpu_count": 1}
        if self._chip:
            self.metadata["gpu_type"] = self._chip

    def _attempt(self, make: Callable[[], _T]) -> _T | None:
        """What `make` returns, None where this system has it not."""
        try:
            return make()
        except (CommandError, NativeError) as error:
            self.trouble.append(str(error))
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
            return powermetrics_values(output(ctx, *_POWERMETRICS))
        return {}

    def _read_sensors(self) -> Values:
        smc = {key: value for key in self._sensors if (value := self._read_controller(key)) is not None}
        hid: dict[str, float] = {}
        if self._hid is not None:
            try:
                hid = self._hid.read()
            except NativeError as error:  # a function of a private interface is gone
                self.trouble.append(str(error))
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


def _tables(ctx: Context) -> Tables:
    return parse_tables(output(ctx, "ioreg", "-r", "-n", "pmgr", "-d", "1", "-a"))


def _accelerator(ctx: Context) -> Accelerator | None:
    return parse_accelerator(output(ctx, "ioreg", "-r", "-c", "IOAccelerator", "-d", "1", "-a"))
