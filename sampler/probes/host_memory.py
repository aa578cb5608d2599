"""What the memory and the swap space of the whole host hold."""

from __future__ import annotations

from typing import ClassVar

from ..cgroup import read_meminfo
from ..context import Context
from ..metric import Kind, Metric, Origin
from ..probe import Values
from .extended import ExtendedProbe

MIB = 1 << 20
_SIZES = {
    "cachedMB": "Cached",
    "dirtyMB": "Dirty",
    "writebackMB": "Writeback",
    "shmemMB": "Shmem",
    "slabMB": "Slab",
}
_TEST = "tests/sampler/test_host_extended.py::test_host_memory_and_swap"


def _metric(key: str, unit: str, field: str, formula: str = "", origin: Origin = Origin.OURS) -> Metric:
    return Metric(key, unit, f"/proc/meminfo {field}", formula, Kind.GAUGE, origin, "extended", _TEST)


class HostMemoryProbe(ExtendedProbe):
    """`host.memory.*`, `swap.*` from /proc/meminfo."""

    name = "host_memory"
    source = "/proc/meminfo"
    metrics: ClassVar = (
        *(_metric(f"host.memory.{key}", "MiB", field) for key, field in _SIZES.items()),
        _metric("host.memory.hugepagesFree", "count", "HugePages_Free"),
        _metric("swap.used", "bytes", "SwapTotal, SwapFree", "total - free", Origin.PEER),
        _metric("swap.used_percent", "%", "SwapTotal, SwapFree", "used / total; absent without swap", Origin.PEER),
    )

    def sample(self, ctx: Context, out: Values) -> None:
        """Values of this moment."""
        info = read_meminfo(ctx, (*_SIZES.values(), "HugePages_Free", "SwapTotal", "SwapFree"))
        out.update({f"host.memory.{key}": info[field] / MIB for key, field in _SIZES.items() if field in info})
        if "HugePages_Free" in info:
            out["host.memory.hugepagesFree"] = info["HugePages_Free"]
        if "SwapTotal" in info and "SwapFree" in info:
            used = info["SwapTotal"] - info["SwapFree"]
            out["swap.used"] = used
            if info["SwapTotal"]:
                out["swap.used_percent"] = 100 * used / info["SwapTotal"]
