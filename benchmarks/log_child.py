"""Log rows with runferry or wandb and time each call: run by the other benchmarks, in either environment.

    log_child.py MODULE DIR ROWS METRICS HERTZ [busy]

HERTZ 0 is a tight loop; `busy` adds a Python thread that never rests. Prints microseconds per call as JSON.
"""

from __future__ import annotations

import importlib
import json
import os
import random
import sys
import threading
import time


def main() -> None:
    module, directory, rows, metrics, hertz = sys.argv[1], sys.argv[2], *map(int, sys.argv[3:6])
    began = time.perf_counter()
    logger = importlib.import_module(module)
    imported = time.perf_counter()
    settings: dict[str, object] = {}
    if module == "wandb":
        settings = {"x_disable_stats": True, "x_disable_meta": True, "console": "off", "disable_git": True}
    else:
        settings = {"disable_stats": True, "disable_meta": True}
    run = logger.init(project="bench", dir=directory, mode="offline", settings=logger.Settings(**settings))
    ready = time.perf_counter()
    if "busy" in sys.argv[6:]:
        threading.Thread(target=_spin, daemon=True).start()
    rng = random.Random(1)
    data = [{f"metric/k{k}": rng.random() for k in range(metrics)} for _ in range(min(rows, 2000))]
    times = []
    clock = time.perf_counter_ns
    period = 1 / hertz if hertz else 0
    due = time.perf_counter()
    for i in range(rows):
        if period:
            due += period
            delay = due - time.perf_counter()
            if delay > 0:
                time.sleep(delay)
        row = data[i % len(data)]
        start = clock()
        run.log(row)
        times.append(clock() - start)
    logged = time.perf_counter()
    run.finish()
    finished = time.perf_counter()
    times.sort()
    size = sum(
        os.path.getsize(os.path.join(folder, name))
        for folder, _, names in os.walk(directory)
        for name in names
        if name.endswith(".wandb")
    )
    result = {
        "import_ms": (imported - began) * 1e3,
        "init_ms": (ready - imported) * 1e3,
        "finish_ms": (finished - logged) * 1e3,
        "p50": times[len(times) // 2] / 1e3,
        "p99": times[len(times) * 99 // 100] / 1e3,
        "p999": times[len(times) * 999 // 1000] / 1e3,
        "max": times[-1] / 1e3,
        "bytes_per_row": size / rows,
    }
    print(json.dumps(result))


def _spin() -> None:
    while True:
        sum(range(1000))


if __name__ == "__main__":
    main()
