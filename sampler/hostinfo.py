"""Facts about the host that do not change while a run lasts."""

from __future__ import annotations

from .context import Context


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
    """The name that the CPU gives itself."""
    for entry in _cpuinfo(ctx):
        for name in ("model name", "Hardware", "cpu model", "cpu"):
            if entry.get(name):
                return entry[name]
    return None


def physical_cores(ctx: Context) -> int | None:
    """Physical cores of the host: distinct (package, core) pairs; None if nothing tells."""
    pairs = set()
    for name in ctx.list("/sys/devices/system/cpu"):
        if name.startswith("cpu") and name[3:].isdecimal():
            topology = f"/sys/devices/system/cpu/{name}/topology"
            core = ctx.read_int(f"{topology}/core_id")
            if core is not None:
                pairs.add((ctx.read_int(f"{topology}/physical_package_id"), core))
    if not pairs:
        pairs = {
            (int(entry.get("physical id", "0")), int(entry["core id"])) for entry in _cpuinfo(ctx) if "core id" in entry
        }
    return len(pairs) or None
