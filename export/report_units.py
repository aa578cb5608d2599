"""Units of system metrics, by how their keys end."""

from __future__ import annotations

import re
from collections.abc import Sequence

_BY_ENDING = tuple(
    (re.compile(rf"(?:{ending})\Z"), unit)
    for ending, unit in (
        (r"\.throttle\.\w+(?<!Percent)|remappedRows\.(?:pending|failure)|\.stalled", ""),
        (r"(?i:percent)|percent_?usage|\bcpu_percent|used_percent", "%"),
        (r"\(%\)|(?i:utili[sz]ation|util)|dutyCycle|fanSpeed|memoryOverDrive|memoryReadWriteActivity", "%"),
        (r"(?:Active|Occupancy)|memoryAllocated|hbmMemoryUsage|\.memory(?=\Z)|\.gpu", "%"),
        (r"\Acpu|\Asampler\.cpu|host\.cpu\.\w+|psi\.\w+\.\w+|\Agpu\.\d+\.memory", "%"),
        (
            r"[mM]emoryUsed|memoryFree|memoryTotal|bar1Used|(?:memory|swap)\.used|AllocatedBytes|memoryUsedBytes",
            "bytes",
        ),
        (
            r"hbmCapacity(?:Total|Usage)|total_memory_usage(?:\.\w+)?|host_memory_usage\.\w+|core_memory_usage\.\w+",
            "bytes",
        ),
        (r"\Anetwork\.(?:.+\.)?(?:sent|recv)", "bytes"),
        (r"(?:[rR]xBytes|[tT]xBytes|BytesRate|pcieLinkSpeed|proc\.io\.[rw]char)", "bytes/s"),
        (r"\A(?:disk|lustre|nfs|proc\.io)\..*(?:read|write)Rate|\Anetwork\.(?:sent|recv)Rate", "bytes/s"),
        (r"(?:Rate|iops)", "1/s"),
        (r"\Adisk\.(?:.+\.)?(?:in|out)|MB", "MiB"),
        (r"usageGB", "GiB"),
        (r"KWh", "kWh"),
        (r"(?i:powerWatts|LimitWatts|power \(W\))|ane\.power", "W"),
        (r"energyJoules|energyIntervalJ|totalEnergyConsumption", "J"),
        (r"(?:\.temp|avg_temp|[mM]emoryTemp|OpTemp|temp \(C\))", "°C"),
        (r"(?:Clock|\.freq|cpu_freq|\(MHz\))", "MHz"),
        (r"(?:Ms)", "ms"),
        (r"(?:Us)", "µs"),
        (r"(?:Mbps)", "Mbit/s"),
        (r"\(GT/s\)", "GT/s"),
        (r"(?:uptime|Duration|_seconds)", "s"),
        (r"(?:cpu\.cores|cpuCores)", "cores"),
    )
)
_LABEL = re.compile(r"/l:.*\Z", re.DOTALL)
_LARGER = {"bytes": "B", "bytes/s": "B/s", "MiB": "MiB"}
_STEPS = (("Ti", 2.0**40), ("Gi", 2.0**30), ("Mi", 2.0**20), ("Ki", 2.0**10))


def unit_of(key: str) -> str:
    """The unit that values of this system metric have; empty for counts, ratios and what is not known."""
    plain = _LABEL.sub("", key)
    return next((unit for ending, unit in _BY_ENDING if ending.search(plain)), "")


def scaled(unit: str, largest: float) -> tuple[float, str]:
    """What to divide values by so that they read well, and their unit then; `largest` is their greatest size."""
    if unit not in _LARGER:
        return 1.0, unit
    base = 2.0**20 if unit == "MiB" else 1.0
    for prefix, size in _STEPS:
        if largest * base >= size:
            return size / base, f"{prefix}B{'/s' if unit.endswith('/s') else ''}"
    return 1.0, _LARGER[unit]


def together(values: Sequence[str]) -> str:
    """The unit that all these keys share; empty if they don't."""
    units = {unit_of(key) for key in values}
    return units.pop() if len(units) == 1 else ""
