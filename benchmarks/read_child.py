"""Read a log and time it: run by `read_speed`.

read_child.py FILE frames|fold|load
"""

from __future__ import annotations

import json
import resource
import sys
import time

from runferry.logformat import Batch, LogReader, RunState, load

began, cpu = time.perf_counter(), time.process_time()
if sys.argv[2] == "frames":
    with open(sys.argv[1], "rb", buffering=0) as file:
        count = sum(len(item.entries) for item in LogReader(file).batches() if isinstance(item, Batch))
elif sys.argv[2] == "fold":
    with open(sys.argv[1], "rb", buffering=0) as file:
        count = RunState(keep_rows=False).add_batches(LogReader(file).batches()).row_count
else:  # all rows kept
    count = len(load(sys.argv[1]).rows)
peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
print(json.dumps({"wall": time.perf_counter() - began, "cpu": time.process_time() - cpu, "rss": peak, "count": count}))
