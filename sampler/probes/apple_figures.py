"""Apple silicon: from what the system prints and counts to values. No system call, so that it is the same anywhere."""

from __future__ import annotations

import math
import re
import struct
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from ..probe import Values
from .apple_tools import memory_bytes, swap_bytes

ENERGY, CPU, GPU = "Energy Model", "CPU Stats", "GPU Stats"
CPU_STATES, GPU_STATES = "CPU Core Performance States", "GPU Performance States"
_JOULES = {"mJ": 1e-3, "uJ": 1e-6, "nJ": 1e-9}
_IDLE = frozenset({"IDLE", "DOWN", "OFF"})
_CORE = re.compile(r"(?:DIE_\d+_)?([EMP])CPU\d+")  # from the M5 on the slower cores are MCPU
_HERTZ = 100_000_000  # entries of a table from here on are in Hz; later chips have kHz
_HOTTEST = 150.0  # degrees C; what tells more, or 0, is no connected sensor
# W, of the whole chip. Apple tells none; this one is what the documented metric was defined by.
_CHIP_LIMITS = {"Apple M1": 16.5}


class Channel(NamedTuple):
    """What one IOReport channel counted over some time."""

    group: str
    subgroup: str
    name: str
    unit: str = ""
    value: int | None = None
    """Of a plain counter."""
    states: Sequence[tuple[str, int]] = ()
    """(name, time in it) of a channel that tells how long something was in which state."""


class Tables(NamedTuple):
    """Frequencies (MHz) of the states of each kind of core, lowest first; empty where the chip tells none."""

    ecpu: tuple[float, ...] = ()
    pcpu: tuple[float, ...] = ()
    gpu: tuple[float, ...] = ()


class Accelerator(NamedTuple):
    """What the graphics driver tells of itself."""

    busy: float | None
    """% of the time."""
    used: float | None
    """Bytes of system memory in use by the GPU."""
    allocated: float | None
    """Bytes of system memory allocated for it."""
    cores: int | None


def _plist(data: bytes) -> Any:
    """The tree of a property list, None if it is none; powermetrics puts a NUL before it."""
    import plistlib  # loads an XML parser; only the helper gets here

    try:
        return plistlib.loads(data.strip(b"\0 \n"))
    except Exception:  # the parser raises whatever its parts do: expat's errors, ValueError, struct.error ...
        return None


def _number(tree: Any, *path: str) -> float | None:
    """The finite number at a place in a tree."""
    for name in path:
        tree = tree.get(name) if isinstance(tree, dict) else None
    if isinstance(tree, bool) or not isinstance(tree, (int, float)):
        return None
    try:
        return float(tree) if math.isfinite(tree) else None
    except OverflowError:
        return None


def _entries(data: bytes) -> list[dict[str, Any]]:
    tree = _plist(data)
    return [entry for entry in tree if isinstance(entry, dict)] if isinstance(tree, list) else []


# --- what ioreg prints


def parse_accelerator(data: bytes) -> Accelerator | None:
    """Of `ioreg -r -c IOAccelerator -d 1 -a`: the first accelerator with statistics."""
    for entry in _entries(data):
        if isinstance(entry.get("PerformanceStatistics"), dict):
            cores = _number(entry, "gpu-core-count")
            return Accelerator(
                _number(entry, "PerformanceStatistics", "Device Utilization %"),
                _number(entry, "PerformanceStatistics", "In use system memory"),
                _number(entry, "PerformanceStatistics", "Alloc system memory"),
                None if cores is None else int(cores),
            )
    return None


def parse_tables(data: bytes) -> Tables:
    """Of `ioreg -r -n pmgr -d 1 -a`: pairs of frequency and voltage, 4 bytes each, in the order of the states."""
    for entry in _entries(data):
        ecpu, pcpu = "voltage-states1-sram", "voltage-states5-sram"
        if ecpu not in entry or pcpu not in entry:
            ecpu, pcpu = _clusters(entry.get("acc-clusters"))
        tables = Tables(_table(entry.get(ecpu)), _table(entry.get(pcpu)), _table(entry.get("voltage-states9")))
        if any(tables):
            return tables
    return Tables()


def _clusters(data: Any) -> tuple[str, str]:
    """Names of the tables of the second fastest and the fastest cores: entries of 8 bytes, number and rank first."""
    ranked = sorted((rank, number) for number, rank in struct.iter_unpack("BB6x", _whole(data)))
    names = [f"voltage-states{number}-sram" for _, number in ranked[-2:]]
    return (names[0], names[1]) if len(names) == 2 else ("", "")


def _table(data: Any) -> tuple[float, ...]:
    """MHz, without the entry of 0 for off."""
    raw = [frequency for frequency, _ in struct.iter_unpack("<II", _whole(data)) if frequency]
    scale = 1e6 if raw and max(raw) >= _HERTZ else 1e3
    return tuple(frequency / scale for frequency in raw)


def _whole(data: Any) -> bytes:
    """The entries of 8 bytes."""
    return data[: len(data) // 8 * 8] if isinstance(data, bytes) else b""


def accelerator_values(accelerator: Accelerator) -> Values:
    """`gpu.0.memoryAllocated`, and `gpu.0.gpu` for where nothing better tells it."""
    values: Values = {}
    if accelerator.busy is not None:
        values["gpu.0.gpu"] = accelerator.busy
    if accelerator.used is not None and accelerator.allocated:
        _put(values, "gpu.0.memoryAllocated", 100 * accelerator.used / accelerator.allocated)
    return values


# --- what IOReport counts


def chip_values(channels: Iterable[Channel], tables: Tables, seconds: float, *, chip: str = "") -> Values:
    """Frequencies (MHz), shares (% of what the highest frequency all the time would be) and powers (W).

    A chip without a table, or with a state that the table does not have, lacks only the keys made of it.

    Args:
        channels: what was counted.
        tables: the frequencies.
        seconds: over which it was counted.
        chip: its name, for what 100 % of power is.
    """
    values: Values = {}
    watts: dict[str, float] = {}
    cores: dict[str, list[Sequence[tuple[str, int]]]] = {"ecpu": [], "pcpu": []}
    for channel in channels:
        core = _CORE.fullmatch(channel.name)
        if channel.group == ENERGY:
            _add_power(watts, channel, seconds)
        elif (channel.group, channel.subgroup, channel.name) == (GPU, GPU_STATES, "GPUPH"):
            share, frequency = _load([channel.states], tables.gpu)
            _put(values, "gpu.0.gpu", share)
            _put(values, "gpu.0.freq", 0.0 if share == 0 else frequency)  # off
        elif (channel.group, channel.subgroup) == (CPU, CPU_STATES) and core:
            cores["pcpu" if core[1] == "P" else "ecpu"].append(channel.states)
    for kind, frequencies in (("ecpu", tables.ecpu), ("pcpu", tables.pcpu)):
        share, frequency = _load(cores[kind], frequencies)
        _put(values, f"cpu.{kind}_percent", share)
        _put(values, f"cpu.{kind}_freq", frequency)
    for key, told in watts.items():
        _put(values, key, told)
    if len(watts) == 3 and chip in _CHIP_LIMITS:
        _put(values, "gpu.0.powerPercent", 100 * sum(watts.values()) / _CHIP_LIMITS[chip])
    return values


def _add_power(watts: dict[str, float], channel: Channel, seconds: float) -> None:
    """Add the power of one channel to its key. Chips of several dies have a channel for each."""
    if channel.name == "GPU Energy":
        key = "gpu.0.powerWatts"
    elif channel.name.endswith("CPU Energy"):
        key = "cpu.powerWatts"
    elif channel.name.startswith("ANE"):
        key = "ane.power"
    else:
        return
    scale = _JOULES.get(channel.unit)
    if scale is not None and channel.value is not None and channel.value >= 0 and seconds > 0:
        watts[key] = watts.get(key, 0.0) + channel.value * scale / seconds


def _load(
    cores: Sequence[Sequence[tuple[str, int]]], frequencies: Sequence[float]
) -> tuple[float | None, float | None]:
    """(share in %, MHz while active) of cores of one kind, each by its states; None where it cannot be told."""
    total = active = cycles = 0.0
    for states in cores:
        total += sum(time for _, time in states)
        working = [time for name, time in states if name not in _IDLE]
        if len(working) < len(frequencies) or any(working[len(frequencies) :]):
            return None, None  # a table of another chip
        active += sum(working)
        cycles += sum(time * frequency for time, frequency in zip(working, frequencies, strict=False))
    if not frequencies or total <= 0:
        return None, None
    return 100 * cycles / total / frequencies[-1], cycles / active if active > 0 else None


def _put(values: Values, key: str, value: float | None) -> None:
    if value is not None and math.isfinite(value):
        values[key] = value


# --- sensors


def sensor_values(smc: Mapping[str, float], hid: Mapping[str, float]) -> Values:
    """Temperatures (degrees C): the mean of the controller's sensors, before macOS 14 of the ones named after clusters."""
    values: Values = {}
    for key, keys, names in (
        ("gpu.0.temp", ("Tg",), ("GPU MTR Temp Sensor",)),
        ("cpu.avg_temp", ("Tp", "Te"), ("pACC MTR Temp Sensor", "eACC MTR Temp Sensor")),
    ):
        found = _plausible(smc, keys) or _plausible(hid, names)
        if found:
            values[key] = sum(found) / len(found)
    return values


def _plausible(sensors: Mapping[str, float], prefixes: tuple[str, ...]) -> list[float]:
    return [value for name, value in sensors.items() if name.startswith(prefixes) and 0 < value <= _HOTTEST]


def system_power(values: Values, told: float | None) -> None:
    """Add `system.powerWatts`: what the controller tells, and no less than the chip alone takes."""
    chip = [values[key] for key in ("cpu.powerWatts", "gpu.0.powerWatts", "ane.power") if key in values]
    if told is not None and math.isfinite(told) and told > 0:
        values["system.powerWatts"] = max(told, sum(chip))


# --- what powermetrics prints


def powermetrics_values(data: bytes) -> Values:
    """Of `powermetrics -f plist`, which needs root: frequencies, shares of time active, powers (it tells mW).

    Not the GPU's load, which the graphics driver tells.
    """
    tree = _plist(data)
    values: Values = {}
    for key, path in (
        ("gpu.0.powerWatts", ("processor", "gpu_power")),
        ("cpu.powerWatts", ("processor", "cpu_power")),
        ("ane.power", ("processor", "ane_power")),
    ):
        milliwatts = _number(tree, *path)
        _put(values, key, None if milliwatts is None else milliwatts / 1e3)
    _put(values, "gpu.0.freq", _number(tree, "gpu", "freq_hz"))  # MHz, in spite of its name
    processor = tree.get("processor") if isinstance(tree, dict) else None
    clusters = processor.get("clusters") if isinstance(processor, dict) else None
    named = [cluster for cluster in clusters if isinstance(cluster, dict)] if isinstance(clusters, list) else []
    for kind, initial in (("ecpu", "E"), ("pcpu", "P")):
        mine = [cluster for cluster in named if str(cluster.get("name", "")).startswith(initial)]
        idles = [told for cluster in mine if (told := _number(cluster, "idle_ratio")) is not None]
        hertz = [told for cluster in mine if (told := _number(cluster, "freq_hz")) is not None]
        if idles:
            _put(values, f"cpu.{kind}_percent", 100 * (1 - sum(idles) / len(idles)))
        if hertz:
            _put(values, f"cpu.{kind}_freq", sum(hertz) / len(hertz) / 1e6)
    return values


# --- the hardware record


def describe(sysctl: Mapping[str, str], accelerator: Accelerator | None) -> dict[str, Any]:
    """The field `apple` of the hardware record."""
    cores = {
        field: int(sysctl[name])
        for field, name in (("pcpu_cores", "hw.perflevel0.physicalcpu"), ("ecpu_cores", "hw.perflevel1.physicalcpu"))
        if sysctl.get(name, "").isdecimal()
    }
    memory = memory_bytes(sysctl)
    fields = {
        "name": sysctl.get("machdep.cpu.brand_string"),
        "gpu_cores": accelerator.cores if accelerator is not None else None,
        "memory_gb": memory >> 30,
        "ram_total_bytes": memory,
        "swap_total_bytes": round(swap_bytes(sysctl).get("total", 0)),
        "mac_model": sysctl.get("hw.model"),
        **cores,
    }
    return {name: value for name, value in fields.items() if value}
