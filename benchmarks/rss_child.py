"""Log rows as fast as they are taken, and watch the memory of the process: run by `rss.py`, in either environment.

    rss_child.py MODULE DIR ROWS LEVEL

Prints MiB as JSON: resident after 2,000 rows, the most and the last after ROWS more; and rows per second to the end.
For the peer the memory of its helper process counts too.
"""

from __future__ import annotations

import importlib
import json
import os
import random
import sys
import time

WARM_ROWS = 2000
METRICS = 10


def main() -> None:
    module, directory, rows, level = sys.argv[1], sys.argv[2], int(sys.argv[3]), sys.argv[4]
    logger = importlib.import_module(module)
    options: dict[str, object] = {}
    if module == "wandb":
        settings = {"x_disable_stats": True, "x_disable_meta": True, "console": "off", "disable_git": True}
    else:
        settings = {"disable_stats": True, "disable_meta": True, "silent": True, "log_guides": False}
        options = {"durability": level}
    run = logger.init(project="bench", dir=directory, mode="offline", settings=logger.Settings(**settings), **options)
    rng = random.Random(1)
    data = [{f"metric/k{k}": rng.random() for k in range(METRICS)} for _ in range(WARM_ROWS)]
    for row in data:
        run.log(row)
    time.sleep(1)
    first = most = resident()
    began = time.perf_counter()
    for number in range(rows):
        run.log(data[number % WARM_ROWS])
        if not number % 10_000:
            most = max(most, resident())
    last = resident()
    run.finish()
    seconds = time.perf_counter() - began
    print(json.dumps({"first": first, "most": max(most, last), "last": last, "rows_s": rows / seconds}))


def resident() -> float:
    """MiB of this process and its children."""
    return sum(map(_of, [str(os.getpid()), *_children()]))


def _children() -> list[str]:
    found = []
    for task in os.listdir("/proc/self/task"):
        try:
            with open(f"/proc/self/task/{task}/children") as file:
                found += file.read().split()
        except OSError:  # the thread has ended
            continue
    return found


def _of(pid: str) -> float:
    try:
        with open(f"/proc/{pid}/statm") as file:
            return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE") / 2**20
    except OSError:
        return 0.0


if __name__ == "__main__":
    main()
