"""Memory and swap of macOS, by the system's own tools."""

from __future__ import annotations

import re
from collections.abc import Mapping

from ..command import CommandError
from ..context import Context
from ..metric import Metric, Origin
from ..probe import Probe, Tier, Values
from .apple_tools import memory_bytes, output, swap_bytes, sysctl

VM_STAT = "/usr/bin/vm_stat"
_TEST = "tests/sampler/test_apple.py::test_memory"


class AppleMemoryProbe(Probe):
    """`memory.used`, `memory.used_percent`, `swap.used`, `swap.used_percent` by `vm_stat` and `sysctl`."""

    name = "apple_memory"
    tier = Tier.THREAD
    metrics = (
        Metric(
            "memory.used",
            "bytes",
            "vm_stat",
            "(active + inactive + wired + speculative + compressor - purgeable - files) * page size",
            origin=Origin.PEER,
            test=_TEST,
        ),
        Metric(
            "memory.used_percent",
            "%",
            "vm_stat; sysctl hw.memsize",
            "100 * used / total",
            origin=Origin.PEER,
            test=_TEST,
        ),
        Metric("swap.used", "bytes", "sysctl vm.swapusage", origin=Origin.PEER, test=_TEST),
        Metric("swap.used_percent", "%", "sysctl vm.swapusage", "100 * used / total", origin=Origin.PEER, test=_TEST),
    )

    def discover(self, ctx: Context) -> str | None:
        """Looks for the tool."""
        return None if ctx.exists(VM_STAT) else f"no Apple system: there is no {VM_STAT}"

    def sample(self, ctx: Context, out: Values) -> None:
        """Each command tells its part; CommandError of the first that failed, with the other's part written."""
        pages, told = "", {}
        trouble = []
        try:
            pages = output(ctx, "vm_stat").decode("utf-8", "replace")
        except CommandError as error:
            trouble.append(error)
        try:
            told = sysctl(ctx)
        except CommandError as error:
            trouble.append(error)
        out.update(memory_values(pages, told))
        if trouble:
            raise trouble[0]


def memory_values(vm_stat: str, told: Mapping[str, str]) -> Values:
    """`memory.used|used_percent`, `swap.used|used_percent`, in bytes and %; `told` by sysctl.

    Used is what the system cannot simply drop: without purgeable pages and without copies of files.
    """
    values: Values = {}
    size = re.search(r"page size of (\d{1,9}) bytes", vm_stat)
    pages = {
        name.strip(): int(count) for name, count in re.findall(r"^([^:\n]+):\s+(\d{1,18})\.", vm_stat, re.MULTILINE)
    }
    plus = ("Pages active", "Pages inactive", "Pages wired down", "Pages speculative", "Pages occupied by compressor")
    minus = ("Pages purgeable", "File-backed pages")
    if size and all(name in pages for name in (*plus, *minus)):
        used = (sum(pages[name] for name in plus) - sum(pages[name] for name in minus)) * int(size[1])
        values["memory.used"] = used
        if total := memory_bytes(told):
            values["memory.used_percent"] = 100 * used / total
    swap = swap_bytes(told)
    if "used" in swap:
        values["swap.used"] = round(swap["used"])
        if swap.get("total"):
            values["swap.used_percent"] = 100 * swap["used"] / swap["total"]
    return values
