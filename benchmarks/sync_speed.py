"""Syncing one large log to the embedded backend, beside `wandb sync` of the same log to another fresh one."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from urllib.request import urlopen

from common import OURS, PEER, measure, median_of, rounds, table
from make_log import make

CASES = [
    (20_000, 10, "peer"),
    (100_000, 10, "peer"),
    (100_000, 10, "ours"),
    (10_000, 100, "peer"),
    (500_000, 5, "peer"),
]


@contextmanager
def server(directory: Path) -> Iterator[dict[str, str]]:
    """A fresh backend: the variables that point either client at it."""
    command = [str(OURS), "-m", "runferry.cli", "serve", "--port", "0", "--data-dir", str(directory), "--json"]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    where = json.loads(process.stdout.readline())
    key = Path(where["api_key_file"]).read_text().split()[0]
    try:
        yield {"WANDB_BASE_URL": where["url"], "WANDB_API_KEY": key}
    finally:
        process.terminate()
        process.wait()


def one(command: list[str | Path], source: Path, expected: int) -> dict[str, float]:
    """Sync a copy of `source` and check that all rows arrived."""
    work = Path(tempfile.mkdtemp(prefix="bench-"))
    try:
        run = work / "wandb" / "offline-run-20261130_120000-bench"
        (run / "files").mkdir(parents=True)
        shutil.copy(source, run / "run-bench.wandb")
        with server(work / "server") as variables:
            usage = measure([*command, run], env={**variables, "WANDB_ERROR_REPORTING": "false"}, cwd=work)
            with urlopen(f"{variables['WANDB_BASE_URL']}/api/runs") as answer:
                (found,) = json.load(answer)
        if found["history_lines"] != expected:
            sys.exit(f"{command}: {found['history_lines']} of {expected} rows arrived\n{usage.output}")
        return {"wall": usage.wall, "cpu": usage.cpu, "rss": usage.peak_rss}
    finally:
        shutil.rmtree(work)


def main() -> str:
    directory = Path(tempfile.mkdtemp(prefix="bench-"))
    lines = []
    try:
        for count, metrics, layout in CASES:
            log = directory / "run-bench.wandb"
            make(log, count, metrics, layout)
            ours, theirs = rounds(
                3 if count <= 100_000 else 1,
                lambda n=count, log=log: one([OURS, "-m", "runferry.cli", "sync"], log, n),
                lambda n=count, log=log: one([PEER.with_name("wandb"), "sync"], log, n),
            )
            for name, unit, scale in (("wall", "s", 1), ("cpu", "s", 1), ("rss", "MB", 1e6)):
                a, b = median_of(ours, name) / scale, median_of(theirs, name) / scale
                lines.append(
                    [
                        f"{count:,} x {metrics}, {log.stat().st_size / 1e6:.0f} MB, {layout}",
                        name,
                        f"{a:.2f} {unit}",
                        f"{b:.2f} {unit}",
                        f"{b / a:.1f}x",
                    ]
                )
    finally:
        shutil.rmtree(directory)
    return table("Sync to a local backend", ["log", "", "runferry sync", "wandb sync 0.31.0", "ratio"], lines)


if __name__ == "__main__":
    print(main())
