"""One run that logs nothing: `idle_child.py MODULE CASE WARM SECONDS`; prints what each of its threads took, as JSON.

MODULE is runferry, wandb or none; CASE names settings of `CASES`. Linux only: the scheduler's own counters are read.
"""

from __future__ import annotations

import json
import os
import sys
import tempfile
import threading
import time
from pathlib import Path

CASES = {"default": {}, "redirect": {"console": "redirect"}, "relaxed": {"durability": "relaxed"}}


def begin(module: str, case: str, folder: str) -> object:
    """A run that logged one row."""
    if module == "wandb":
        import wandb

        run = wandb.init(project="p", mode="offline", dir=folder, settings=wandb.Settings(silent=True))
    else:
        import runferry

        run = runferry.init(project="p", dir=folder, silent=True, **CASES[case])
    run.log({"a": 1.0})
    return run


def look() -> dict[tuple[int, int], tuple[str, int, int]]:
    """(process, thread) -> name, times that it went to sleep, nanoseconds of CPU; of this process and its descendants."""
    found, queue = {}, [os.getpid()]
    names = {thread.native_id: thread.name for thread in threading.enumerate()}
    for pid in queue:
        for folder in Path("/proc", str(pid), "task").glob("*"):
            try:
                status = (folder / "status").read_text()
                sleeps = int(status.split("\nvoluntary_ctxt_switches:")[1].split()[0])
                took = int((folder / "schedstat").read_text().split()[0])
                tid = int(folder.name)
                found[pid, tid] = names.get(tid, (folder / "comm").read_text().strip()), sleeps, took
                queue += map(int, (folder / "children").read_text().split())
            except OSError:  # it has just ended
                continue
    return found


def main() -> None:
    module, case, warm, seconds = sys.argv[1], sys.argv[2], float(sys.argv[3]), float(sys.argv[4])
    with tempfile.TemporaryDirectory() as folder:
        run = begin(module, case, folder) if module != "none" else None
        time.sleep(warm)
        before, begun = look(), time.monotonic()
        time.sleep(seconds)
        after, took = look(), time.monotonic() - begun
        if run is not None:
            run.finish()
    threads = []
    for (pid, tid), (name, sleeps, cpu) in after.items():
        _, sleeps_before, cpu_before = before.get((pid, tid), (name, 0, 0))
        if cpu > cpu_before:
            where = "training process" if pid == os.getpid() else "beside"
            per_minute = 60 * (sleeps - sleeps_before) / took
            threads.append([where, name, per_minute, (cpu - cpu_before) / 1e9 / took])
    print(json.dumps(threads))


if __name__ == "__main__":
    main()
