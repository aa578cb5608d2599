"""NVML without a driver: a C library that answers from a table, for the real binding and for the peer."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

SOURCE = Path(__file__).resolve().parents[1] / "sampler" / "fake" / "nvml_shim.c"
NOT_SUPPORTED = "NVML_ERROR_NOT_SUPPORTED"

H100 = {
    "gpu": 98.0,
    "memory": 54,
    "memoryAllocated": 100 * 72351744000 / 85520809984,
    "memoryAllocatedBytes": 72351744000,
    "temp": 61.0,
    "powerWatts": 655.12,
    "enforcedPowerLimitWatts": 700.0,
    "powerPercent": 100 * 655120 / 700000,
    "energyJoules": 912345678.901,
    "smClock": 1980,
    "memoryClock": 2619,
    "graphicsClock": 1980,
    "encoderUtilization": 0.0,
    "correctedMemoryErrors": 0,
    "uncorrectedMemoryErrors": 0,
    "unCorrectedMemoryErrors": 0,
}
"""What the first device of nvml-h100x2.json tells at the first tick."""


def missing() -> str:
    """Why the library cannot be built; empty if it can."""
    return "" if shutil.which("cc") else "no C compiler"


def build(folder: Path) -> Path:
    """Compile the library into `folder`, which is then for LD_LIBRARY_PATH. The table is named by NVML_SHIM_TABLE."""
    library = folder / "libnvidia-ml.so.1"
    subprocess.run(["cc", "-O1", "-shared", "-fPIC", "-o", str(library), str(SOURCE)], check=True)
    return folder


def table(data: Mapping[str, Any], faults: Iterable[str] = (), pids: Mapping[int, int] | None = None) -> str:
    """The table for the machine in a `nvml-*.json`; `pids` replaces process numbers."""
    lines = [
        "- init 0",
        f"- devices {len(data['devices'])}",
        f"- cuda {data['cuda']}",
        f"- driver text {data['driver']}",
    ]
    for index, device in enumerate(data["devices"]):
        lines += _device(str(index), device, pids or {})
        for slot, mig in enumerate(device.get("mig_devices", ())):
            lines += _device(f"{index}.{slot}", mig, pids or {})
    return "\n".join([*lines, *(f"fault {fault}" for fault in faults)]) + "\n"


def _device(name: str, device: Mapping[str, Any], pids: Mapping[int, int]) -> list[str]:
    """The lines of one device or MIG device."""
    found: dict[str, Any] = {"handle": 0, "index": int(name.partition(".")[0])}
    for what, key in (
        ("architecture", "architecture"), ("cores", "cores"), ("minor", "minor"), ("power", "power_mw"),
        ("limit", "enforced_limit_mw"), ("energy", "energy_mj"), ("temperature.0", "temperature"),
        ("pstate", "pstate"), ("reasons", "clocks_event_reasons"), ("gi", "gi"), ("ci", "ci"), ("gpm", "gpm_supported"),
        ("field.82.0", "memory_temp_field82"), ("encoder", "encoder"), ("events", "event_types"), ("xid", "xids"),
        ("decoder", "decoder"), ("jpg", "jpg"), ("ofa", "ofa"), ("fabric", "fabric"), ("bar1", "bar1"),
        ("shares", "shares"),
    ):  # fmt: skip
        found[what] = device.get(key)
    for what, key in (("name", "name"), ("uuid", "uuid"), ("pci", "pci_bus_id")):
        if key in device:
            found[what] = f"text {device[key].replace(' ', '_')}"
    found |= _picked(device, "utilization", {"utilization": ("gpu", "memory")})
    found |= _picked(device, "memory", {"memory": ("total", "free", "used")})
    found |= _picked(device, "memory_v1", {"memory": ("total", "free", "used")})
    found |= _picked(device, "memory_v2", {"memory_v2": ("total", "reserved", "free", "used")})
    if isinstance(device.get("memory_v2"), dict):
        found |= _picked(device, "memory_v2", {"memory": ("total", "free", "used")})
    found |= _picked(device, "clocks", {"clock.0": ("graphics",), "clock.1": ("sm",), "clock.2": ("mem",)})
    found |= _picked(device, "max_clocks", {"max_clock.1": ("sm",)})
    for counter, key in enumerate(("ecc_volatile", "ecc_aggregate")):
        found |= _picked(device, key, {f"ecc.0.{counter}": ("corrected",), f"ecc.1.{counter}": ("uncorrected",)})
    found |= _picked(device, "remapped_rows", {"rows": ("correctable", "uncorrectable", "pending", "failure")})
    found |= _picked(device, "violation_ns", {"violation.0": ("power",), "violation.1": ("thermal",)})
    found |= _picked(
        device,
        "pcie",
        {
            "pcie.0": ("tx_kbps",), "pcie.1": ("rx_kbps",), "pcie_gen": ("gen",), "pcie_width": ("width",),
            "pcie_max_gen": ("max_gen",), "pcie_max_width": ("max_width",), "pcie_speed": ("speed_mbps",),
            "pcie_replay": ("replay",),
        },
    )  # fmt: skip
    for kind in ("compute", "graphics"):
        each = device.get(f"{kind}_processes") or ()
        pairs = ((pids.get(one["pid"], one["pid"]), -1 if one["used"] is None else one["used"]) for one in each)
        found[kind] = [number for pair in pairs for number in pair]
    fan, mode = device.get("fan"), device.get("mig_mode")
    found["fan.0"] = fan[0] if isinstance(fan, list) else fan
    found["mig"] = mode[0] if isinstance(mode, list) else mode
    for number, value in device.get("gpm", {}).items():
        found[f"gpm.{number}"] = value
    throughput = device.get("nvlink_throughput_kib")
    for field, direction in ((138, "tx"), (139, "rx")):
        for link, value in enumerate(throughput[direction] if isinstance(throughput, dict) else ()):
            found[f"field.{field}.{link}"] = value
    for field, value in device.get("fields", {}).items():
        found[f"field.{field.replace('/', '.')}"] = value
    for cause, pages in enumerate(device.get("retired_pages", ())):
        found[f"pages.{cause}"] = pages
    return [f"{name} {what} {_words(value)}" for what, value in found.items() if value not in (None, NOT_SUPPORTED)]


def _picked(device: Mapping[str, Any], key: str, wanted: Mapping[str, tuple[str, ...]]) -> dict[str, Any]:
    values = device.get(key)
    if not isinstance(values, dict):
        return {}
    return {what: [values[name] for name in names] for what, names in wanted.items()}


def _words(value: Any) -> str:
    if isinstance(value, dict):
        value = list(value.values())
    if isinstance(value, list):
        return " ".join(map(_words, value))
    return str(int(value)) if isinstance(value, bool) else str(value)
