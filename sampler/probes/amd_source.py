"""What the sources of AMD's figures share: boards, one reading made of raw figures, and whether a driver is there."""

from __future__ import annotations

import os
import re
from dataclasses import dataclass, field
from typing import ClassVar

from ..context import Context
from ..probe import Values
from ..tables import read_whole

LIBRARY = "librocm_smi64.so"
SONAMES = (LIBRARY, *(f"{LIBRARY}.{version}" for version in (8, 7, 6, 5, 1)))
_FOLDERS = ("/opt/rocm/lib", "/opt/rocm/lib64", "/usr/lib/x86_64-linux-gnu", "/usr/lib64", "/usr/lib")
VENDOR = "0x1002"  # AMD's, on the PCI bus
_NODES = "/sys/class/kfd/kfd/topology/nodes"
_CARDS = "/sys/class/drm"
_CARD = re.compile(r"card\d+")  # a card, not one of its connectors (card0-DP-1)
_NUMBER = re.compile(r"([-+]?\d{1,30}(?:\.\d*)?(?:e[-+]?\d{1,3})?)\s*[%a-z/]*", re.IGNORECASE)
# All ones: what the driver's tables hold where a figure is not known.
_UNKNOWN = frozenset({0xFFFF, 0xFFFFFFFF, 0xFFFFFFFFFFFFFFFF})


@dataclass(frozen=True, slots=True)
class Board:
    """One device. `position` counts AMD's devices from 0, in the order of the source."""

    position: int
    address: str | None = None
    """On the PCI bus: `0000:c1:00.0`."""
    unique_id: str | None = None
    """Hexadecimal, without `0x`."""
    info: dict[str, str] = field(default_factory=dict)
    """Fields of the hardware record."""

    @property
    def name(self) -> str | None:
        """What is printed on it."""
        return self.info.get("series") or self.info.get("model")


class Source:
    """One way to the figures. `open` finds the boards, or raises ProbeUnavailableError."""

    name: ClassVar[str]

    def __init__(self) -> None:
        self.boards: list[Board] = []

    def open(self, ctx: Context) -> None:
        """Load what is needed; find the boards."""
        raise NotImplementedError

    def read(self, ctx: Context) -> dict[int, Values]:
        """The values of each board that told any, by position, under the last part of their keys."""
        raise NotImplementedError

    def close(self) -> None:
        """Let go, also where `open` failed; may be called twice."""


def figure(value: object) -> float | None:
    """The number in a field of a tool or library, None where there is none: `N/A`, `N/A (Secondary die)`, empty."""
    if isinstance(value, bool):
        return None
    if isinstance(value, (int, float)):
        if value in _UNKNOWN:
            return None
        try:
            return float(value)
        except OverflowError:
            return None
    match = _NUMBER.fullmatch(value.strip()) if isinstance(value, str) else None
    return float(match[1]) if match else None


def reading(
    *,
    busy: float | None = None,
    traffic: float | None = None,
    overdrive: float | None = None,
    used: float | None = None,
    total: float | None = None,
    allocated: float | None = None,
    temperature: float | None = None,
    power: float | None = None,
    limit: float | None = None,
    energy: float | None = None,
) -> Values:
    """The values of one board: those that are known, and what follows from them.

    Args:
        busy: % of the time in which the graphics engine worked.
        traffic: % of the time in which memory was accessed.
        overdrive: % by which the memory clock is raised.
        used: bytes of device memory in use.
        total: bytes of device memory.
        allocated: % of device memory in use, from tools that do not tell bytes.
        temperature: degrees C of the memory's sensor.
        power: W, of the package.
        limit: W; a secondary die has none of its own and tells 0.
        energy: J, since the driver was loaded.
    """
    if used is not None and total:
        allocated = 100 * used / total
    values = {
        "gpu": busy,
        "memoryAllocated": allocated,
        "memoryAllocatedBytes": used,
        "memoryReadWriteActivity": traffic,
        "memoryOverDrive": overdrive,
        "temp": temperature,
        "powerWatts": power,
        "powerPercent": 100 * power / limit if power is not None and limit else None,
        "energyJoules": energy,
    }
    return {name: value for name, value in values.items() if value is not None}


def cards(ctx: Context) -> list[str]:
    """The folders of AMD's graphics cards, in the order of the PCI bus as far as it is known."""
    found = []
    for name in ctx.list(_CARDS):
        device = f"{_CARDS}/{name}/device"
        if _CARD.fullmatch(name) and (ctx.read(f"{device}/vendor") or "").strip() == VENDOR:
            found.append((pci_address(ctx, device) or "", len(name), name, device))
    return [device for *_, device in sorted(found)]


def pci_address(ctx: Context, device: str) -> str | None:
    """Where a device folder of /sys stands on the PCI bus."""
    for line in (ctx.read(f"{device}/uevent") or "").splitlines():
        name, _, value = line.partition("=")
        if name == "PCI_SLOT_NAME":
            return value.strip().lower()
    return None


def no_driver(ctx: Context) -> str | None:
    """Why no AMD device can be here, None if one may be.

    The module's state is missing where amdgpu is built into the kernel; then compute nodes or cards tell.
    """
    if "live" in (ctx.read("/sys/module/amdgpu/initstate") or ""):
        return None
    if any(read_whole(ctx, f"{_NODES}/{node}/gpu_id") for node in ctx.list(_NODES)) or cards(ctx):
        return None
    return "no AMD driver: amdgpu is not loaded, and there is no compute node and no card of AMD"


def sku(vbios_version: str) -> str:
    """The board's code in the version of its firmware: `D65209` of `113-D65209-073`; empty if there is none."""
    parts = vbios_version.split("-")
    return parts[1] if len(parts) > 1 else ""


def library_folders() -> list[str]:
    """Where ROCm's library may lie: what the environment names first, as the loader does."""
    named = [os.environ[name] + "/lib" for name in ("ROCM_PATH", "ROCM_HOME") if os.environ.get(name)]
    return [*filter(None, os.environ.get("LD_LIBRARY_PATH", "").split(os.pathsep)), *named, *_FOLDERS]


def nvidia_devices(ctx: Context) -> int:
    """How many NVIDIA devices the host has: AMD's come behind them in `gpu.{i}`."""
    return len(ctx.list("/proc/driver/nvidia/gpus"))
