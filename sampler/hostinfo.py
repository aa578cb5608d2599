"""Facts about the host that do not change while a run lasts."""

from __future__ import annotations

import platform

from .cgroup import read_meminfo
from .context import Context
from .tables import read_whole, whole

# Kernels on Arm give no name, only who designed the core and which part it is (Arm's and the designers' manuals).
_ARM_CORES = {
    (0x41, 0xD08): "Cortex-A72",
    (0x41, 0xD0B): "Cortex-A76",
    (0x41, 0xD0C): "Neoverse-N1",
    (0x41, 0xD40): "Neoverse-V1",
    (0x41, 0xD42): "Cortex-A78AE",
    (0x41, 0xD49): "Neoverse-N2",
    (0x41, 0xD4A): "Neoverse-E1",
    (0x41, 0xD4F): "Neoverse-V2",
    (0x41, 0xD83): "Neoverse-V3AE",
    (0x41, 0xD84): "Neoverse-V3",
    (0x41, 0xD8E): "Neoverse-N3",
    (0x46, 0x001): "A64FX",
    (0x48, 0xD01): "TaiShan v110",
    (0xC0, 0xAC3): "Ampere-1",
    (0xC0, 0xAC4): "Ampere-1a",
}


def _cpuinfo(ctx: Context) -> list[dict[str, str]]:
    """/proc/cpuinfo: one dict per logical CPU."""
    blocks: list[dict[str, str]] = []
    for block in (ctx.read("/proc/cpuinfo") or "").split("\n\n"):
        fields = (line.partition(":") for line in block.splitlines())
        entry = {name.strip(): value.strip() for name, _, value in fields}
        if entry:
            blocks.append(entry)
    return blocks


def cpu_model(ctx: Context) -> str | None:
    """The name that the CPU gives itself; on Arm that of its first core's design."""
    entries = _cpuinfo(ctx)
    for entry in entries:
        for name in ("model name", "Hardware", "cpu model", "cpu"):
            if entry.get(name):
                return entry[name]
    for entry in entries:
        try:
            core = int(entry["CPU implementer"], 16), int(entry["CPU part"], 16)
        except (KeyError, ValueError):
            continue
        return _ARM_CORES.get(core)
    if entries or ctx.root != "/" or platform.system() == "Linux":
        return None
    return platform.processor() or None  # macOS: the architecture; Windows: family, model, stepping


def physical_cores(ctx: Context) -> int | None:
    """Physical cores of the host: distinct (package, core) pairs; None if nothing tells."""
    pairs = set()
    for name in ctx.list("/sys/devices/system/cpu"):
        if name.startswith("cpu") and name[3:].isdecimal():
            topology = f"/sys/devices/system/cpu/{name}/topology"
            core = read_whole(ctx, f"{topology}/core_id")
            if core is not None:
                pairs.add((read_whole(ctx, f"{topology}/physical_package_id"), core))
    if not pairs:
        pairs = {
            (whole(entry.get("physical id", "0")), core)
            for entry in _cpuinfo(ctx)
            if (core := whole(entry.get("core id", ""))) is not None
        }
    return len(pairs) or _of_psutil(ctx, "cpu_count")


def memory_total(ctx: Context) -> int | None:
    """Bytes of the host's memory, whatever limits hold."""
    return read_meminfo(ctx).get("MemTotal") or _of_psutil(ctx, "virtual_memory")


def _of_psutil(ctx: Context, name: str) -> int | None:
    """What psutil tells of this machine, for systems without /proc."""
    if ctx.root != "/" or platform.system() == "Linux":
        return None
    try:
        import psutil
    except ImportError:
        return None
    found = psutil.cpu_count(logical=False) if name == "cpu_count" else psutil.virtual_memory().total
    return None if found is None else int(found)
