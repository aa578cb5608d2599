"""AMD's figures through ROCm's library librocm_smi64, which is C: for the helper process only."""

from __future__ import annotations

import ctypes
import os
from ctypes import POINTER, byref, c_char_p, c_float, c_int64, c_size_t, c_uint16, c_uint32, c_uint64
from typing import Any

from ..context import Context
from ..probe import ProbeUnavailableError, Values
from .amd_source import LIBRARY as NAME
from .amd_source import SONAMES, Board, Source, figure, library_folders, reading, sku

_TEXT = 256  # bytes for a name

# The library's enumerations
_VRAM = 0
_SENSOR_MEMORY, _TEMPERATURE_NOW = 2, 0
_FIRST_SENSOR = 0
_LEVELS = ("auto", "low", "high", "manual", "stable_std", "stable_peak", "stable_min_mclk", "stable_min_sclk",
           "perf_determinism")  # fmt: skip

_ARGUMENTS: dict[str, tuple[Any, ...]] = {
    "init": (c_uint64,),
    "shut_down": (),
    "num_monitor_devices": (POINTER(c_uint32),),
    "dev_busy_percent_get": (c_uint32, POINTER(c_uint32)),
    "dev_memory_busy_percent_get": (c_uint32, POINTER(c_uint32)),
    "dev_mem_overdrive_level_get": (c_uint32, POINTER(c_uint32)),
    "dev_overdrive_level_get": (c_uint32, POINTER(c_uint32)),
    "dev_perf_level_get": (c_uint32, POINTER(c_uint32)),
    "dev_memory_usage_get": (c_uint32, c_uint32, POINTER(c_uint64)),
    "dev_memory_total_get": (c_uint32, c_uint32, POINTER(c_uint64)),
    "dev_temp_metric_get": (c_uint32, c_uint32, c_uint32, POINTER(c_int64)),
    "dev_power_get": (c_uint32, POINTER(c_uint64), POINTER(c_uint32)),
    "dev_power_ave_get": (c_uint32, c_uint32, POINTER(c_uint64)),
    "dev_power_cap_get": (c_uint32, c_uint32, POINTER(c_uint64)),
    "dev_energy_count_get": (c_uint32, POINTER(c_uint64), POINTER(c_float), POINTER(c_uint64)),
    "dev_pci_id_get": (c_uint32, POINTER(c_uint64)),
    "dev_unique_id_get": (c_uint32, POINTER(c_uint64)),
    "dev_id_get": (c_uint32, POINTER(c_uint16)),
    "dev_name_get": (c_uint32, c_char_p, c_size_t),
    "dev_vendor_name_get": (c_uint32, c_char_p, c_size_t),
    "dev_vbios_version_get": (c_uint32, c_char_p, c_uint32),
}


class RocmSmiSource(Source):
    """Calls by device number. One that fails costs its value in that sample, no more."""

    name = "librocm_smi64"

    def __init__(self) -> None:
        super().__init__()
        self._library: ctypes.CDLL | None = None
        self._error: str | None = None  # why a call failed last

    def open(self, ctx: Context) -> None:
        """Load and initialise the library; ask for the boards."""
        self._library = _load(ctx)
        if not self._call("init", 0):
            self._library = None
            raise ProbeUnavailableError(f"{NAME}: {self._error}")
        count = c_uint32()
        if not self._call("num_monitor_devices", byref(count)) or not count.value:
            raise ProbeUnavailableError(f"{NAME} finds no device")
        self.boards = [self._board(index) for index in range(count.value)]

    def read(self, ctx: Context) -> dict[int, Values]:  # noqa: ARG002 - the port's
        """All boards; RuntimeError where none answers anything."""
        self._error = None
        found = {board.position: self._values(board.position) for board in self.boards}
        found = {position: values for position, values in found.items() if values}
        if not found and self._error is not None:
            raise RuntimeError(f"{NAME}: no device tells anything: {self._error}")
        return found

    def close(self) -> None:
        """Shut the library down."""
        if self._library is not None:
            self._call("shut_down")
            self._library = None

    def _values(self, index: int) -> Values:
        microwatts = self._number(c_uint64, "dev_power_get", index, more=(byref(c_uint32()),))
        if microwatts is None:  # before ROCm 6
            microwatts = self._number(c_uint64, "dev_power_ave_get", index, _FIRST_SENSOR)
        limit = self._number(c_uint64, "dev_power_cap_get", index, _FIRST_SENSOR)
        temperature = self._number(c_int64, "dev_temp_metric_get", index, _SENSOR_MEMORY, _TEMPERATURE_NOW)
        return reading(
            busy=self._number(c_uint32, "dev_busy_percent_get", index),
            traffic=self._number(c_uint32, "dev_memory_busy_percent_get", index),
            overdrive=self._number(c_uint32, "dev_mem_overdrive_level_get", index),
            used=self._number(c_uint64, "dev_memory_usage_get", index, _VRAM),
            total=self._number(c_uint64, "dev_memory_total_get", index, _VRAM),
            temperature=None if temperature is None else temperature / 1e3,
            power=None if microwatts is None else microwatts / 1e6,
            limit=None if limit is None else limit / 1e6,
            energy=self._energy(index),
        )

    def _energy(self, index: int) -> float | None:
        """The counter times what one of its steps is worth (uJ), in J."""
        resolution = c_float()
        steps = self._number(c_uint64, "dev_energy_count_get", index, more=(byref(resolution), byref(c_uint64())))
        return None if steps is None else steps * resolution.value / 1e6

    def _board(self, index: int) -> Board:
        unique, device, level = c_uint64(), c_uint16(), c_uint32()
        info = {
            "series": self._text("dev_name_get", index),
            "vendor": self._text("dev_vendor_name_get", index),
            "vbios_version": self._text("dev_vbios_version_get", index),
        }
        if self._call("dev_unique_id_get", index, byref(unique)):
            info["unique_id"] = f"{unique.value:#x}"
        info["sku"] = sku(info["vbios_version"])
        if self._call("dev_id_get", index, byref(device)):
            info["model"] = f"{device.value:#x}"
        if self._call("dev_perf_level_get", index, byref(level)):
            info["performance_level"] = _LEVELS[level.value] if level.value < len(_LEVELS) else "unknown"
        for field, name in (("gpu_overdrive", "overdrive"), ("gpu_memory_overdrive", "mem_overdrive")):
            percent = self._number(c_uint32, f"dev_{name}_level_get", index)
            info[field] = "" if percent is None else f"{percent:.0f}"
        limit = self._number(c_uint64, "dev_power_cap_get", index, _FIRST_SENSOR)
        info["max_power"] = "" if limit is None else str(limit / 1e6)
        address = c_uint64()
        where = pci_text(address.value) if self._call("dev_pci_id_get", index, byref(address)) else None
        return Board(
            index, where, f"{unique.value:x}" if unique.value else None, {k: text for k, text in info.items() if text}
        )

    def _number(self, kind: Any, name: str, index: int, *args: int, more: tuple[Any, ...] = ()) -> float | None:
        """The number that a call writes behind its plain arguments; None where it failed or the number says so."""
        value = kind()
        return figure(value.value) if self._call(name, index, *args, byref(value), *more) else None

    def _text(self, name: str, index: int) -> str:
        buffer = ctypes.create_string_buffer(_TEXT)
        return buffer.value.decode("utf-8", "replace").strip() if self._call(name, index, buffer, _TEXT) else ""

    def _call(self, name: str, *args: Any) -> bool:
        """Whether `rsmi_<name>` succeeded. A library that lacks it counts as a failure."""
        function = getattr(self._library, f"rsmi_{name}", None)
        if function is None:
            self._error = f"it has no rsmi_{name}"
            return False
        function.argtypes = _ARGUMENTS[name]
        status = function(*args)
        if status != 0:
            self._error = f"rsmi_{name} failed with status {status}"
        return bool(status == 0)


def pci_text(number: int) -> str:
    """`0000:c1:00.0` of the library's number: domain in the upper half, then bus, device and function."""
    return f"{number >> 32:04x}:{number >> 8 & 0xFF:02x}:{number >> 3 & 0x1F:02x}.{number & 7:x}"


def _load(ctx: Context) -> ctypes.CDLL:
    wanted = [NAME, *(ctx.path(f"{folder}/{name}") for folder in library_folders() for name in SONAMES)]
    for position, path in enumerate(wanted):
        if position and not os.path.exists(path):  # noqa: PTH110 - as in Context
            continue
        try:
            return ctypes.CDLL(path)
        except OSError as error:
            reason = str(error)
    raise ProbeUnavailableError(f"{NAME} cannot be loaded: {reason}")
