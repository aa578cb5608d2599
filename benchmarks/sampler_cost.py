"""What sampling costs with eight simulated GPUs, beside the peer: CPU, memory of helpers, growth over 1,000 ticks.

Both see one NVML, a C library that answers at once: what real drivers take for their answers comes on top, for both.
A tick is measured at a shorter interval than 15 s, as the difference to a run without samples, and scaled; a process
that was asleep for longer finds colder caches.
"""

from __future__ import annotations

import json
import os
import statistics
import sys
import tempfile
from pathlib import Path

from common import OURS, PEER, QUIET_PEER, ROOT, child, rounds, table

sys.path.insert(0, str(ROOT / "tests"))
from support import nvml

GPUS = 8
INTERVAL = 0.25  # s between the ticks that are measured
WARM, SECONDS = 5.0, 15.0
ROUNDS = 3
TICKS = 1000  # for growth, at the shortest interval that can be had
MIB = 2**20


def simulated(folder: Path) -> dict[str, str]:
    """The environment in which NVML has eight H100."""
    data = json.loads((ROOT / "fixtures" / "sampler" / "nvml-h100x2.json").read_text())
    data["devices"] = [
        device | {"minor": index, "uuid": f"GPU-{index:08}", "pci_bus_id": f"00000000:{index + 1:02X}:00.0"}
        for index, device in enumerate(data["devices"][index % 2] for index in range(GPUS))
    ]
    (folder / "table").write_text(nvml.table(data))
    return {
        **QUIET_PEER,
        "LD_LIBRARY_PATH": str(nvml.build(folder)),
        "NVML_SHIM_TABLE": str(folder / "table"),
        "RUNFERRY_STATE_DIR": str(folder / "state"),
    }


def cost(env: dict[str, str], python: Path, module: str) -> dict[str, float]:
    """CPU of a tick and of a run without samples; memory of the processes beside the training process."""
    with tempfile.TemporaryDirectory() as folder:
        idle = child(python, "sampler_child.py", module, 0, WARM, SECONDS, env=env, cwd=Path(folder))
        busy = child(python, "sampler_child.py", module, INTERVAL, WARM, SECONDS, env=env, cwd=Path(folder))
    tick = (busy["cpu_per_s"] - idle["cpu_per_s"]) * INTERVAL
    beside = busy["after"][1:]
    return {
        "idle": idle["cpu_per_s"],
        "tick": tick,
        "share": tick / 15,
        "processes": len(beside),
        "rss": sum(each["rss"] for each in beside),
        "largest": max((each["rss"] for each in beside), default=0),
        "uss": sum(each["uss"] for each in beside),
    }


def growth(env: dict[str, str]) -> list[list[str]]:
    """Memory, descriptors and threads of the training process and the helper, before and after 1,000 ticks."""
    with tempfile.TemporaryDirectory() as folder:
        found = child(OURS, "sampler_child.py", "runferry", 0.1, WARM, TICKS / 10, env=env, cwd=Path(folder))
    lines = []
    for name, before, after in zip(("training process", "helper"), found["before"], found["after"], strict=False):
        cells = [f"{before[what]} -> {after[what]}" for what in ("fds", "threads")]
        lines.append([name, f"{before['rss'] / MIB:.2f} -> {after['rss'] / MIB:.2f} MiB", *cells])
    return lines


def main() -> str:
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        env = {**os.environ, **simulated(folder)}
        found = rounds(
            ROUNDS, lambda: cost(env, OURS, "runferry"), *([lambda: cost(env, PEER, "wandb")] if PEER.exists() else [])
        )
        grown = growth(env)
    lines = []
    for module, results in zip(("runferry", "wandb"), found, strict=False):
        median = {key: statistics.median(result[key] for result in results) for key in results[0]}
        lines.append(
            [
                module,
                f"{1000 * median['tick']:.2f} ms",
                f"{100 * median['share']:.3f} %",
                f"{100 * median['idle']:.3f} %",
                f"{median['processes']:.0f}",
                f"{median['rss'] / MIB:.1f} MiB ({median['largest'] / MIB:.1f})",
                f"{median['uss'] / MIB:.1f} MiB",
            ]
        )
    header = [
        "",
        "CPU per tick",
        "of a core at 15 s",
        "a run without samples",
        "processes beside",
        "their memory (the largest)",
        "of it unshared",
    ]
    costs = table(f"Sampling a host with {GPUS} simulated GPUs", header, lines)
    return costs + "\n" + table(f"{TICKS:,} ticks at 0.1 s", ["", "memory", "descriptors", "threads"], grown)


if __name__ == "__main__":
    print(main())
