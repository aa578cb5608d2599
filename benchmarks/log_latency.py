"""What a call of `log` costs the training thread, and how many bytes it becomes, beside the peer."""

from __future__ import annotations

import shutil
import tempfile
from pathlib import Path

from common import OURS, PEER, QUIET_PEER, child, median_of, rounds, table

CASES = [
    (10, 500, 1500, ""),
    (10, 0, 20_000, ""),
    (10, 500, 1500, "busy"),
    (100, 200, 600, ""),
    (100, 200, 600, "busy"),
]
"""Metrics, calls a second (0: no pause), calls, whether a Python thread that never rests runs beside."""


def one(python: Path, module: str, case: tuple[int, int, int, str]) -> dict[str, float]:
    metrics, hertz, rows, busy = case
    directory = tempfile.mkdtemp(prefix="bench-")
    try:
        return child(
            python, "log_child.py", module, directory, rows, metrics, hertz, busy, env=QUIET_PEER, cwd=Path(directory)
        )
    finally:
        shutil.rmtree(directory)


def main() -> str:
    lines, starts = [], []
    for case in CASES:
        ours, theirs = rounds(
            3, lambda case=case: one(OURS, "runferry", case), lambda case=case: one(PEER, "wandb", case)
        )
        metrics, hertz, _, busy = case
        what = (
            f"{metrics} metrics, {f'{hertz} Hz' if hertz else 'tight loop'}{', a busy thread beside' if busy else ''}"
        )
        for name in ("p50", "p99"):
            a, b = median_of(ours, name), median_of(theirs, name)
            lines.append([what, name, f"{a:.1f} us", f"{b:.1f} us", f"{b / a:.1f}x"])
        if not starts:
            for name in ("import_ms", "init_ms", "finish_ms"):
                a, b = median_of(ours, name), median_of(theirs, name)
                starts.append([name.removesuffix("_ms"), f"{a:.1f} ms", f"{b:.1f} ms", f"{b / a:.1f}x"])
        if not hertz:
            a, b = median_of(ours, "bytes_per_row"), median_of(theirs, "bytes_per_row")
            starts.append(["bytes per row of 10 metrics", f"{a:.0f}", f"{b:.0f}", f"{b / a:.2f}x"])
    return (
        table("One call of `log`", ["case", "", "runferry", "wandb 0.31.0", "ratio"], lines)
        + "\n"
        + table("Start, end, size", ["", "runferry", "wandb 0.31.0", "ratio"], starts)
    )


if __name__ == "__main__":
    print(main())
