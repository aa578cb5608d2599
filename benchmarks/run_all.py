"""All benchmarks, as the tables of RESULTS.md."""

from __future__ import annotations

import fleet_speed
import idle_cost
import log_latency
import read_speed
import rss
import sampler_cost
import sync_speed
from common import machine

if __name__ == "__main__":
    print(f"Measured on {machine()}; medians of rounds that took turns.\n")
    for benchmark in (log_latency, rss, sampler_cost, idle_cost, read_speed, sync_speed, fleet_speed):
        print(benchmark.main(), flush=True)
