"""AMD's figures through the module `amdsmi` of ROCm 6 and later: for the helper process only."""

from __future__ import annotations

import contextlib
import importlib
from collections.abc import Callable
from types import ModuleType
from typing import Any

from ..context import Context
from ..probe import ProbeUnavailableError, Values
from .amd_source import Board, Source, figure, reading, sku

_MICROWATTS = 1e4  # limits from here on are in uW, as the bare-metal driver tells them; guests are told W


class AmdSmiSource(Source):
    """Calls by device handle. One that fails costs its value in that sample, no more. `module` replaces the binding."""

    name = "amdsmi"

    def __init__(self, module: ModuleType | Any = None) -> None:
        super().__init__()
        self._smi = module
        self._handles: list[Any] = []
        self._open = False
        self._error: str | None = None  # why a call failed last

    def open(self, ctx: Context) -> None:  # noqa: ARG002 - the port's
        """Load and initialise the binding; ask for the boards."""
        if self._smi is None:
            try:
                self._smi = importlib.import_module("amdsmi")
            except (Exception, SystemExit) as error:  # without its C library it fails in whatever way it comes to
                raise ProbeUnavailableError(f"module amdsmi cannot be loaded: {error!r}") from error
        try:
            self._smi.amdsmi_init()
            self._open = True
            self._handles = list(self._smi.amdsmi_get_processor_handles())
        except Exception as error:  # classes of the binding, which differ by version
            raise ProbeUnavailableError(f"amdsmi: {error!r}") from error
        if not self._handles:
            raise ProbeUnavailableError("amdsmi finds no device")
        self.boards = [self._board(index, handle) for index, handle in enumerate(self._handles)]

    def read(self, ctx: Context) -> dict[int, Values]:  # noqa: ARG002 - the port's
        """All boards; RuntimeError where none answers anything."""
        self._error = None
        found = {index: values for index, handle in enumerate(self._handles) if (values := self._values(handle))}
        if not found and self._error is not None:
            raise RuntimeError(f"amdsmi: no device tells anything: {self._error}")
        return found

    def close(self) -> None:
        """Shut the library down."""
        if self._open:
            self._open = False
            with contextlib.suppress(Exception):  # it is gone either way
                self._smi.amdsmi_shut_down()

    def _values(self, handle: Any) -> Values:
        smi = self._smi
        activity = self._dict("amdsmi_get_gpu_activity", handle)
        power = self._dict("amdsmi_get_power_info", handle)
        energy = self._dict("amdsmi_get_energy_count", handle)
        # The first name is the oldest, the last of ROCm 6.4 and later.
        names = ("current_socket_power", "average_socket_power", "socket_power")
        watts = [value for name in names if (value := figure(power.get(name))) is not None]
        steps, step = figure(energy.get("energy_accumulator")), figure(energy.get("counter_resolution"))
        if steps is None:  # its name in the first versions
            steps = figure(energy.get("power"))
        return reading(
            busy=figure(activity.get("gfx_activity")),
            traffic=figure(activity.get("umc_activity")),
            overdrive=figure(self._ask("amdsmi_get_gpu_mem_overdrive_level", handle)),
            used=figure(self._ask("amdsmi_get_gpu_memory_usage", handle, lambda: (smi.AmdSmiMemoryType.VRAM,))),
            total=figure(self._ask("amdsmi_get_gpu_memory_total", handle, lambda: (smi.AmdSmiMemoryType.VRAM,))),
            temperature=figure(
                self._ask(
                    "amdsmi_get_temp_metric",
                    handle,
                    lambda: (smi.AmdSmiTemperatureType.VRAM, smi.AmdSmiTemperatureMetric.CURRENT),
                )
            ),
            power=next((value for value in watts if value), watts[0] if watts else None),
            limit=self._limit(handle),
            energy=None if steps is None or step is None else steps * step / 1e6,
        )

    def _limit(self, handle: Any) -> float | None:
        """W."""
        limit = figure(self._dict("amdsmi_get_power_cap_info", handle).get("power_cap"))
        return limit / 1e6 if limit is not None and limit >= _MICROWATTS else limit

    def _board(self, position: int, handle: Any) -> Board:
        asic = self._dict("amdsmi_get_gpu_asic_info", handle)
        vbios = self._dict("amdsmi_get_gpu_vbios_info", handle)
        limit = self._limit(handle)
        level = str(self._ask("amdsmi_get_gpu_perf_level", handle) or "")
        fields = {
            "unique_id": asic.get("asic_serial"),
            "vbios_version": vbios.get("part_number") or vbios.get("version"),
            "performance_level": level.removeprefix("AMDSMI_DEV_PERF_LEVEL_").lower(),
            "gpu_overdrive": self._ask("amdsmi_get_gpu_overdrive_level", handle),
            "gpu_memory_overdrive": self._ask("amdsmi_get_gpu_mem_overdrive_level", handle),
            "max_power": None if limit is None else str(limit),
            "series": asic.get("market_name"),
            "model": asic.get("device_id"),
            "sku": sku(str(vbios.get("part_number") or "")),
            "vendor": asic.get("vendor_name"),
        }
        info = {name: str(value) for name, value in fields.items() if value not in (None, "", "N/A")}
        address = self._ask("amdsmi_get_gpu_device_bdf", handle)
        unique = info.get("unique_id", "").lower().removeprefix("0x").lstrip("0")
        return Board(position, str(address).lower() if address else None, unique or None, info)

    def _dict(self, name: str, handle: Any) -> dict[str, Any]:
        answer = self._ask(name, handle)
        return answer if isinstance(answer, dict) else {}

    def _ask(self, name: str, handle: Any, more: Callable[[], tuple[Any, ...]] = tuple) -> Any:
        """What function `name` returns, None where it fails or this version lacks it."""
        try:
            return getattr(self._smi, name)(handle, *more())
        except Exception as error:  # see `open`
            self._error = f"{name}: {error!r}"
            return None
