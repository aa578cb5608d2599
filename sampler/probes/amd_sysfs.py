"""AMD's figures from the files of the kernel's driver, which need no library."""

from __future__ import annotations

from ..context import Context
from ..probe import ProbeUnavailableError, Values
from .amd_source import Board, Source, cards, figure, pci_address, reading, sku

# field of the hardware record -> file of the device's folder
_INFO = {
    "unique_id": "unique_id",
    "vbios_version": "vbios_version",
    "performance_level": "power_dpm_force_performance_level",
    "gpu_overdrive": "pp_sclk_od",
    "gpu_memory_overdrive": "pp_mclk_od",
    "model": "device",
    "series": "product_name",
    "sku": "product_number",
}


class SysfsSource(Source):
    """`/sys/class/drm/card*/device` of every card with AMD's vendor number that tells its load or its memory."""

    name = "sysfs"

    def __init__(self) -> None:
        super().__init__()
        self._folders: list[str] = []
        self._sensors: list[_Sensors] = []

    def open(self, ctx: Context) -> None:
        """Find the cards and their sensors."""
        self._folders = [device for device in cards(ctx) if has_figures(ctx, device)]
        if not self._folders:
            raise ProbeUnavailableError("no AMD card tells its load or memory in /sys/class/drm")
        self._sensors = [_Sensors(ctx, device) for device in self._folders]
        self.boards = [_board(ctx, position, device) for position, device in enumerate(self._folders)]

    def read(self, ctx: Context) -> dict[int, Values]:
        """Card by card. One that sleeps is left alone: reading its sensors would wake it."""
        found = {}
        for position, (device, sensors) in enumerate(zip(self._folders, self._sensors, strict=True)):
            if (ctx.read(f"{device}/power/runtime_status") or "").strip() == "suspended":
                continue
            values = reading(
                busy=_figure(ctx, f"{device}/gpu_busy_percent"),
                traffic=_figure(ctx, f"{device}/mem_busy_percent"),
                overdrive=_figure(ctx, f"{device}/pp_mclk_od"),
                used=_figure(ctx, f"{device}/mem_info_vram_used"),
                total=_figure(ctx, f"{device}/mem_info_vram_total"),
                temperature=_figure(ctx, sensors.temperature, 1e3),
                power=next((watts for path in sensors.power if (watts := _figure(ctx, path, 1e6)) is not None), None),
                limit=_figure(ctx, sensors.limit, 1e6),
            )
            if values:
                found[position] = values
        return found


class _Sensors:
    """Files of a card's hwmon folder; empty where there is none. Power in uW, temperature in thousandths of a degree."""

    def __init__(self, ctx: Context, device: str) -> None:
        self.temperature = self.limit = ""
        self.power: list[str] = []
        for name in ctx.list(f"{device}/hwmon"):
            folder = f"{device}/hwmon/{name}"
            self.limit = f"{folder}/power1_cap"
            self.power = [f"{folder}/power1_average", f"{folder}/power1_input"]  # the second on newer parts only
            for entry in ctx.list(folder):
                if entry.endswith("_label") and (ctx.read(f"{folder}/{entry}") or "").strip() == "mem":
                    self.temperature = f"{folder}/{entry.removesuffix('_label')}_input"


def has_figures(ctx: Context, device: str) -> bool:
    """Whether the driver tells anything of a card (display-only parts have neither file)."""
    return ctx.exists(f"{device}/gpu_busy_percent") or ctx.exists(f"{device}/mem_info_vram_total")


def _figure(ctx: Context, path: str, divisor: float = 1) -> float | None:
    value = figure(ctx.read(path)) if path else None
    return None if value is None else value / divisor


def _board(ctx: Context, position: int, device: str) -> Board:
    texts = {field: (ctx.read(f"{device}/{name}") or "").strip() for field, name in _INFO.items()}
    info = {field: text for field, text in texts.items() if text}
    limit = _figure(ctx, _Sensors(ctx, device).limit, 1e6)
    if limit is not None:
        info["max_power"] = str(limit)
    if (code := sku(info.get("vbios_version", ""))) and "sku" not in info:
        info["sku"] = code
    info["vendor"] = "Advanced Micro Devices, Inc. [AMD/ATI]"
    return Board(position, pci_address(ctx, device), info.get("unique_id"), info)
