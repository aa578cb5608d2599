"""Memory of an NVIDIA device or MIG instance."""

from __future__ import annotations

from typing import Any

from ..probe import Values
from .nvml_calls import BLANKS, Calls


def put_memory(values: Values, nvml: Any, handle: Any, calls: Calls) -> int | None:
    """Write `memoryAllocatedBytes` and `memoryAllocated` (%); the total in bytes, None if it is not known now.

    Version 2 of the call leaves out what the driver reserves; older drivers have only version 1.
    """
    memory = calls.get(
        "memory",
        lambda: nvml.nvmlDeviceGetMemoryInfo(handle, version=nvml.nvmlMemory_v2),
        lambda: nvml.nvmlDeviceGetMemoryInfo(handle),
    )
    if memory is None or memory.used in BLANKS:
        return None
    values["memoryAllocatedBytes"] = int(memory.used)
    if memory.total:
        values["memoryAllocated"] = 100 * memory.used / memory.total
    return int(memory.total)
