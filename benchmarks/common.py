"""What the benchmarks share: the two environments, running a command under measurement, and the table of results."""

from __future__ import annotations

import json
import os
import platform
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil

ROOT = Path(__file__).resolve().parent.parent
HERE = Path(__file__).resolve().parent
OURS = Path(sys.executable)
PEER = ROOT / ".venv-peer" / "bin" / "python"
QUIET_PEER = {"WANDB_SILENT": "true", "WANDB_MODE": "offline", "WANDB_ERROR_REPORTING": "false"}


@dataclass(frozen=True)
class Usage:
    """What a command and all its descendants took."""

    wall: float
    cpu: float
    peak_rss: int
    output: str
    code: int


def measure(
    command: Sequence[str | Path],
    *,
    env: dict[str, str] | None = None,
    cwd: Path | None = None,
    keeps_output: bool = True,
) -> Usage:
    """Run `command`; CPU seconds and peak memory are those of its whole process tree, polled every 20 ms.

    What it prints is read when it has ended, so it may not be more than a pipe holds, unless it is thrown away.
    """
    began = time.perf_counter()
    process = subprocess.Popen(
        [str(part) for part in command],
        env=clean_environment(env),
        cwd=cwd,
        stdout=subprocess.PIPE if keeps_output else subprocess.DEVNULL,
        stderr=subprocess.STDOUT,
        text=True,
    )
    root = psutil.Process(process.pid)
    cpu: dict[int, float] = {}
    peak = 0
    while process.poll() is None:
        resident = 0
        try:
            family = [root, *root.children(recursive=True)]
        except psutil.Error:
            family = []
        for member in family:
            try:
                with member.oneshot():
                    times = member.cpu_times()
                    resident += member.memory_info().rss
            except psutil.Error:
                continue
            cpu[member.pid] = times.user + times.system
        peak = max(peak, resident)
        time.sleep(0.02)
    wall = time.perf_counter() - began
    output = process.stdout.read() if process.stdout else ""
    return Usage(wall, sum(cpu.values()), peak, output, process.returncode)


def clean_environment(more: dict[str, str] | None) -> dict[str, str]:
    """This environment without what would make every start compile the sources again."""
    return {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"} | (more or {})


def child(
    python: Path, script: str, *arguments: object, env: dict[str, str] | None = None, cwd: Path | None = None
) -> Any:
    """The JSON that a script of this folder prints as its last line, run by `python`."""
    command = [str(python), str(HERE / script), *(str(argument) for argument in arguments)]
    done = subprocess.run(command, env=clean_environment(env), cwd=cwd, capture_output=True, text=True, check=False)
    if done.returncode:
        sys.exit(f"{script} failed under {python}:\n{done.stdout}\n{done.stderr}")
    return json.loads(done.stdout.strip().splitlines()[-1])


def rounds(count: int, *actions: Callable[[], Any]) -> list[list[Any]]:
    """Each action `count` times, taking turns, so that a busy minute of the machine meets all of them."""
    results: list[list[Any]] = [[] for _ in actions]
    for _ in range(count):
        for action, found in zip(actions, results, strict=True):
            found.append(action())
    return results


def median_of(results: list[dict[str, float]], key: str) -> float:
    """Median of one figure over rounds."""
    return statistics.median(result[key] for result in results)


def table(title: str, header: Sequence[str], rows: Sequence[Sequence[object]]) -> str:
    """A Markdown table."""
    lines = [f"### {title}", "", "| " + " | ".join(header) + " |", "|" + "---|" * len(header)]
    lines += ["| " + " | ".join(str(cell) for cell in row) + " |" for row in rows]
    return "\n".join(lines) + "\n"


def machine() -> str:
    """The machine, in a line."""
    model = next((line.split(":")[1].strip() for line in open("/proc/cpuinfo") if line.startswith("model name")), "?")  # noqa: SIM115 - read at once
    return f"{psutil.cpu_count()} cores ({model}), {platform.system()} {platform.release()}, Python {platform.python_version()}"
