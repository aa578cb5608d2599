"""Apple's own tools: how they are run, and what `sysctl` tells."""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Mapping

from ..command import CommandError, run
from ..context import Context

_FOLDERS = "/usr/sbin:/usr/bin:/sbin"  # looked through after PATH
_LONGEST = 18  # digits of a size
_SYSCTL = (
    "hw.memsize",
    "hw.model",
    "hw.optional.arm64",
    "hw.perflevel0.physicalcpu",
    "hw.perflevel1.physicalcpu",
    "machdep.cpu.brand_string",
    "vm.swapusage",
)


def output(ctx: Context, *argv: str) -> bytes:
    """Standard output; `sysctl` prints what it knows and fails for what it does not."""
    path = os.pathsep.join((os.environ.get("PATH", os.defpath), _FOLDERS))
    program = shutil.which(argv[0], path=path) or argv[0]
    result = run(ctx, (program, *argv[1:]), timeout=5.0, cap=8 << 20)
    if result.code != 0 and not result.stdout.strip():
        raise CommandError(f"{argv[0]} ended with status {result.code}: {result.stderr}")
    return result.stdout


def sysctl(ctx: Context) -> dict[str, str]:
    """What the system tells of itself, by name."""
    return parse_sysctl(output(ctx, "sysctl", *_SYSCTL).decode("utf-8", "replace"))


def parse_sysctl(text: str) -> dict[str, str]:
    """The lines `name: value` of `sysctl`."""
    pairs = (line.partition(":") for line in text.splitlines())
    return {name.strip(): value.strip() for name, colon, value in pairs if colon}


def memory_bytes(told: Mapping[str, str]) -> int:
    """What `hw.memsize` tells; 0 if it is not known."""
    text = told.get("hw.memsize", "")
    return int(text) if text.isdecimal() and len(text) <= _LONGEST else 0


def swap_bytes(told: Mapping[str, str]) -> dict[str, float]:
    """What `vm.swapusage` tells, in bytes: total, used."""
    sizes = re.findall(r"(total|used) = (\d{1,12}(?:\.\d+)?)([KMGT])", told.get("vm.swapusage", ""))
    return {name: float(number) * 1024 ** " KMGT".index(unit) for name, number, unit in sizes}
