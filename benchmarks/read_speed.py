"""Reading a large log: checksums, the exact fold, all rows, and what `show` prints, beside the peer's reader of the same file.

read_speed.py [ROWSxMETRICS ...]
"""

from __future__ import annotations

import shutil
import sys
import tempfile
from functools import partial
from pathlib import Path
from typing import Any

from common import OURS, PEER, child, measure, median_of, rounds, table
from make_log import make

SIZES = ("100000x10", "500000x5")
"""Rows and metrics of a log by the peer's layout: three records per row, 266 MB."""
ROUNDS = 3
ROUNDS_OF_PRINTING = 1
"""The peer takes a minute to print what is in one log."""


def core() -> Path:
    """The peer's Go core."""
    (found,) = PEER.parent.parent.glob("lib/python3*/site-packages/wandb/bin/wandb-core")
    return found


def run(command: list[str | Path]) -> dict[str, Any]:
    """What a command took, without what it printed."""
    done = measure(command, keeps_output=False)
    if done.code:
        sys.exit(f"exit code {done.code}: {' '.join(map(str, command))}")
    return vars(done)


def cells(results: list[dict[str, float]], memory: str) -> str:
    """Seconds and memory."""
    return f"{median_of(results, 'wall'):.2f} s, {median_of(results, memory) / 1e6:.0f} MB"


def measure_log(log: Path) -> list[list[str]]:
    """Lines of the table for one log: what, ours, the peer's, ratio."""
    show = [OURS, "-m", "runferry.cli", "show", "--json", log]
    inspect = [core(), "leet", "inspect", "--no-observability", "--json", "--run-file", log]
    frames, fold, load = rounds(
        ROUNDS, *(partial(child, OURS, "read_child.py", log, what) for what in ("frames", "fold", "load"))
    )
    ours, theirs = rounds(ROUNDS, partial(run, [*show, "--summary"]), partial(run, [*inspect, "--summary", log.parent]))
    printed, theirs_printed = rounds(ROUNDS_OF_PRINTING, partial(run, show), partial(run, [*inspect, log.parent]))
    size = log.stat().st_size / 1e6
    speed = f"{size / median_of(frames, 'wall'):.0f} MB/s; {size / median_of(frames, 'cpu'):.0f} MB per s of CPU"

    def beside(what: str, here: list[dict[str, float]], there: list[dict[str, float]]) -> list[str]:
        ratio = median_of(there, "wall") / median_of(here, "wall")
        return [what, cells(here, "peak_rss"), cells(there, "peak_rss"), f"{ratio:.1f}x"]

    return [
        ["frames and checksums", f"{cells(frames, 'rss')} ({speed})", "", ""],
        ["exact fold, rows not kept", cells(fold, "rss"), "", ""],
        ["exact fold, all rows kept", cells(load, "rss"), "", ""],
        beside("`show --summary --json`, `inspect --summary --json`", ours, theirs),
        beside("`show --json`, `inspect --json`", printed, theirs_printed),
    ]


def main(sizes: tuple[str, ...] = SIZES) -> str:
    directory = Path(tempfile.mkdtemp(prefix="bench-"))
    try:
        rows = []
        for size in sizes:
            count, metrics = map(int, size.split("x"))
            log = directory / f"run-b{count}.wandb"
            make(log, count, metrics, "peer")
            what = f"{count:,} x {metrics}, {log.stat().st_size / 1e6:.0f} MB"
            rows += [[what, *line] for line in measure_log(log)]
            log.unlink()
    finally:
        shutil.rmtree(directory)
    return table("Reading", ["log", "", "runferry", "wandb leet", "ratio"], rows)


if __name__ == "__main__":
    print(main(tuple(sys.argv[1:]) or SIZES))
