"""One run that does nothing but be sampled: `sampler_child.py MODULE INTERVAL WARM SECONDS`; prints what it took, as JSON.

MODULE is runferry or wandb; an INTERVAL of 0 turns system metrics off.
"""

from __future__ import annotations

import json
import os
import re
import sys
import tempfile
import time
from pathlib import Path


def begin(module: str, interval: float, folder: str):
    """A run that samples every `interval` s."""
    if module == "wandb":
        import wandb

        settings = {"x_disable_stats": True} if not interval else {"x_stats_sampling_interval": interval}
        return wandb.init(project="p", mode="offline", dir=folder, settings=wandb.Settings(silent=True, **settings))
    import runferry
    from runferry.sampler import registry
    from runferry.sampler.probes import nvml_library

    nvml_library.LINUX_SIGNS = ("/proc/self",)  # the simulated driver has no files
    registry.SIGNS["nvidia"] = bool
    settings = {"disable_stats": True} if not interval else {"sample_interval": interval}
    return runferry.init(project="p", dir=folder, silent=True, **settings)


def look() -> dict[int, dict[str, float]]:
    """CPU seconds, memory (bytes), descriptors and threads of this process, first, and of each descendant."""
    family, queue = {}, [os.getpid()]
    for pid in queue:
        folder = Path("/proc", str(pid))
        try:
            fields = (folder / "stat").read_text().rpartition(")")[2].split()
            memory = dict(re.findall(r"(\w+): +(\d+) kB", (folder / "smaps_rollup").read_text()))
            descriptors = len(os.listdir(folder / "fd"))
            for thread in os.listdir(folder / "task"):
                queue += map(int, (folder / "task" / thread / "children").read_text().split())
        except OSError:  # it has just ended
            continue
        family[pid] = {
            "cpu_s": (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK"),
            "rss": 1024 * int(memory["Rss"]),
            "uss": 1024 * (int(memory["Private_Clean"]) + int(memory["Private_Dirty"])),
            "fds": descriptors,
            "threads": int(fields[17]),
        }
    return family


def main() -> None:
    module, interval, warm, seconds = sys.argv[1], float(sys.argv[2]), float(sys.argv[3]), float(sys.argv[4])
    with tempfile.TemporaryDirectory() as folder:
        run = begin(module, interval, folder)
        time.sleep(warm)
        before, begun = look(), time.monotonic()
        time.sleep(seconds)
        after, took = look(), time.monotonic() - begun
        run.finish()
    cpu = sum(after[pid]["cpu_s"] - before.get(pid, {"cpu_s": 0.0})["cpu_s"] for pid in after)
    print(json.dumps({"cpu_per_s": cpu / took, "before": list(before.values()), "after": list(after.values())}))


if __name__ == "__main__":
    main()
