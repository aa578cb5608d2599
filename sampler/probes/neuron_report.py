"""What a line of `neuron-monitor` says: which of the runtimes in it are ours, and their numbers by key."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from ..probe import Values

Json = Mapping[str, Any]

_BEYOND = 1 << 63
_MOST_DEVICES = 1 << 32  # the record has 32 bits for it


class Who(NamedTuple):
    """The monitored processes, as a runtime may know them."""

    pids: Collection[int]
    tag: str
    """Value of NEURON_PROCESS_TAG; a runtime without it is tagged with its pid."""
    rank: str
    """Value of LOCAL_RANK, by which torchrun numbers the workers of a host; each takes the core of its number."""
    is_here: Callable[[int], bool]
    """Whether a process of that number can be seen. The driver tells the host's pids, which a container cannot see."""


class Runtime(NamedTuple):
    """The report of one runtime, and the only core of it that counts, if not all do."""

    report: Json
    core: str | None = None


def child(value: Any, *names: str) -> Json:
    """The object at a path of names, empty where there is none."""
    for name in names:
        value = value.get(name) if isinstance(value, Mapping) else None
    return value if isinstance(value, Mapping) else {}


def numbers(fields: Any) -> Iterator[tuple[str, int | float]]:
    """The members of an object that are numbers, of a size that a counter may have."""
    for name, value in fields.items() if isinstance(fields, Mapping) else ():
        if not name.isidentifier() or isinstance(value, bool) or not isinstance(value, (int, float)):
            continue
        if abs(value) < _BEYOND:
            yield name, value


def _by_number(fields: Json) -> Iterator[tuple[str, Any]]:
    """The members that a whole number names: cores."""
    return ((name, value) for name, value in fields.items() if name.isdecimal() and name.isascii())


def our_runtimes(line: Json, who: Who) -> list[Runtime]:
    """By pid; else by the tag that the user gave; else, in a container, by what is left to tell by.

    There the driver tells pids that nobody can see, but a runtime tags itself with the pid that it has inside, and
    under torchrun it holds the core of the worker's rank. Neither takes a runtime whose process can be seen (were it
    ours, its pid had said so), nor one of several that fit: two containers may have the same pids.
    """
    data = line.get("neuron_runtime_data")
    entries = [entry for entry in data if isinstance(entry, Mapping)] if isinstance(data, Sequence) else []
    with_pid = [entry for entry in entries if isinstance(entry.get("pid"), int)]
    found = [entry for entry in with_pid if entry["pid"] in who.pids]
    if not found and who.tag:
        found = [entry for entry in entries if entry.get("neuron_runtime_tag") == who.tag]
    if found:
        return [Runtime(child(entry, "report")) for entry in found]
    unseen = [entry for entry in with_pid if not who.is_here(entry["pid"])]
    times = Counter(str(entry.get("neuron_runtime_tag")) for entry in unseen)
    tags = {tag for pid in who.pids if times[tag := str(pid)] == 1}
    if tags:
        return [Runtime(child(entry, "report")) for entry in unseen if str(entry.get("neuron_runtime_tag")) in tags]
    holders = [report for entry in unseen if who.rank in _cores(report := child(entry, "report"))]
    return [Runtime(holders[0], who.rank)] if who.rank and len(holders) == 1 else []


def _cores(report: Json) -> Json:
    return child(report, "neuroncore_counters", "neuroncores_in_use")


def read_runtimes(runtimes: Sequence[Runtime], out: Values, *, aliases: bool) -> None:
    """Cores by their number, memory summed over the runtimes. `aliases`: the breakdown under both of its names."""
    for report, only in runtimes:
        for core, fields in _by_number(_cores(report)):
            if only in {None, core}:
                for name, value in numbers(fields):
                    if name == "neuroncore_utilization":
                        out[f"trn.{core}.{name}"] = value
        used = child(report, "memory_used", "neuron_runtime_used_bytes")
        for name, value in numbers(used):
            if name in {"host", "neuron_device"}:
                _add(out, f"trn.{name}_total_memory_usage", value)
        for name, value in numbers(child(used, "usage_breakdown", "host")):
            _add(out, f"trn.host_memory_usage.{name}", value)
            if aliases:
                _add(out, f"trn.host_total_memory_usage.{name}", value)
        for core, fields in _by_number(child(used, "usage_breakdown", "neuroncore_memory_usage")):
            if only in {None, core}:
                for name, value in numbers(fields):
                    out[f"trn.{core}.neuroncore_memory_usage.{name}"] = value


def _add(out: Values, key: str, value: float) -> None:
    out[key] = out.get(key, 0) + value


def read_executions(runtimes: Sequence[Runtime], out: Values) -> None:
    """Executions of models in the period: completed, failed by kind, and how long the slowest runtime took for them."""
    for report, _ in runtimes:
        stats = child(report, "execution_stats")
        for name, value in numbers(child(stats, "execution_summary")):
            _add(out, f"trn.executions.{name}", value)
        for name, value in numbers(child(stats, "error_summary")):
            _add(out, f"trn.execution_errors.{name}", value)
        for name, value in numbers(child(stats, "latency_stats", "total_latency")):
            if name in {"p50", "p99"}:
                key = f"trn.execution_latency_{name}_seconds"
                out[key] = max(value, out.get(key, value))


def read_devices(line: Json, out: Values) -> None:
    """Memory errors of each device of the host."""
    devices = child(line, "system_data", "neuron_hw_counters").get("neuron_devices")
    for device in devices if isinstance(devices, Sequence) else ():
        index = device.get("neuron_device_index") if isinstance(device, Mapping) else None
        if type(index) is int and index >= 0:
            for name, value in numbers(device):
                if "_ecc_" in name:
                    out[f"trn.device.{index}.{name}"] = value


def read_hardware(line: Json) -> dict[str, int]:
    """Devices of the host and cores of each, as far as they are known."""
    names = ("neuron_device_count", "neuroncore_per_device_count")
    return {
        name: value
        for name, value in numbers(child(line, "neuron_hardware_info"))
        if name in names and isinstance(value, int) and 0 < value < _MOST_DEVICES
    }
