"""Which Google TPUs the PCI bus of this host has."""

from __future__ import annotations

from collections import Counter
from typing import NamedTuple

from ..context import Context

PCI_DEVICES = "/sys/bus/pci/devices"
GOOGLE = "0x1ae0"  # PCI vendor


class Chip(NamedTuple):
    """A kind of TPU. `duty_per_chip`: devices for which the runtime gives one duty cycle."""

    name: str
    hbm_gib: int
    devices_per_chip: int
    duty_per_chip: int


# PCI device, and the subsystem device where that tells two kinds apart.
CHIPS = {
    ("0x0027", "0x004e"): Chip("v2", 8, 2, 2),
    ("0x0027", "0x004f"): Chip("v3", 16, 2, 2),
    ("0x005e", ""): Chip("v4", 32, 1, 1),
    ("0x0063", ""): Chip("v5e", 16, 1, 1),
    ("0x0062", ""): Chip("v5p", 95, 1, 1),
    ("0x006f", ""): Chip("v6e", 32, 1, 1),
    ("0x0076", ""): Chip("7x", 192, 2, 1),
}


def find_chips(ctx: Context) -> tuple[Chip, int] | None:
    """The commonest kind of TPU and how many there are; None without one."""
    found = Counter(chip for slot in ctx.list(PCI_DEVICES) if (chip := _chip_in(ctx, slot)) is not None)
    return found.most_common(1)[0] if found else None


def _chip_in(ctx: Context, slot: str) -> Chip | None:
    if _attribute(ctx, slot, "vendor") != GOOGLE:
        return None
    device = _attribute(ctx, slot, "device")
    return CHIPS.get((device, "")) or CHIPS.get((device, _attribute(ctx, slot, "subsystem_device")))


def _attribute(ctx: Context, slot: str, name: str) -> str:
    return (ctx.read(f"{PCI_DEVICES}/{slot}/{name}") or "").strip()
