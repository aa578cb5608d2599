"""Syncing many small runs to the embedded backend under the documented limits: time, CPU and memory of both, refused requests."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path
from urllib.request import urlopen

import psutil
from common import HERE, OURS, clean_environment, table

sys.path.insert(0, str(HERE.parent / "tests"))
from support import logs

RUNS = 10_000
ROWS = 20


def make(directory: Path, count: int) -> None:
    """So many small runs, of rows and console lines, that ended long ago."""
    for number in range(count):
        logs.simple_run(directory, run_id=f"r{number:06d}", rows=ROWS, age=3600, start=logs.START_S + number)


def one(directory: Path, count: int, *, counted: bool) -> dict[str, float]:
    """Sync them to a fresh server; `counted`: with its log of requests, which takes time of its own."""
    requests = directory / "requests.jsonl"
    command = [str(OURS), "-m", "runferry.cli", "serve", "--port", "0", "--json", "--limits", "documented"]
    command += ["--data-dir", str(directory / "server"), *(["--request-log", str(requests)] if counted else [])]
    server = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=clean_environment(None))
    try:
        assert server.stdout is not None
        where = json.loads(server.stdout.readline())
        variables = {
            "WANDB_BASE_URL": where["url"],
            "WANDB_API_KEY": Path(where["api_key_file"]).read_text().split()[0],
            "RUNFERRY_STATE_DIR": str(directory / "state"),
        }
        served = psutil.Process(server.pid)
        before = served.cpu_times()
        began = time.perf_counter()
        client = subprocess.Popen(
            [str(OURS), "-m", "runferry.cli", "sync", "--json", str(directory / "wandb")],
            env=clean_environment(variables),
            stdout=subprocess.DEVNULL,
        )
        _, status, usage = os.wait4(client.pid, 0)
        client.returncode = os.waitstatus_to_exitcode(status)
        wall = time.perf_counter() - began
        after = served.cpu_times()
        with urlopen(f"{where['url']}/api/runs") as answer:
            whole = sum(run["history_lines"] == ROWS and run["state"] == "finished" for run in json.load(answer))
        if client.returncode or whole != count:
            sys.exit(f"{whole} of {count} runs arrived whole, exit code {client.returncode}")
        statuses = Counter[int]()
        if counted:
            with requests.open() as lines:
                statuses.update(json.loads(line)["status"] for line in lines)
        return {
            "wall": wall,
            "client": usage.ru_utime + usage.ru_stime,
            "server": after.user + after.system - before.user - before.system,
            "client_rss": usage.ru_maxrss / 1024,
            "server_rss": served.memory_info().rss / 1e6,
            "requests": statuses.total(),
            "refused": statuses[429],
        }
    finally:
        server.terminate()
        server.wait()


def main(count: int = RUNS) -> str:
    """Two syncs: one for the time, and a tenth of it for the counts."""
    rows = []
    for number, counted in ((count, False), (max(1, count // 10), True)):
        directory = Path(tempfile.mkdtemp(prefix="bench-"))
        try:
            make(directory / "wandb", number)
            found = one(directory, number, counted=counted)
        finally:
            shutil.rmtree(directory)
        rows.append(
            [
                f"{number:,}",
                f"{found['wall']:.1f} s",
                f"{1e3 * found['client'] / number:.2f} ms",
                f"{1e3 * found['server'] / number:.2f} ms",
                f"{found['client_rss']:.0f} MB",
                f"{found['server_rss']:.0f} MB",
                f"{found['requests'] / number:.2f}" if counted else "",
                f"{found['refused']:.0f}" if counted else "",
            ]
        )
    header = ["runs", "wall", "client CPU per run", "server CPU per run", "client memory", "server memory"]
    return table(f"Many runs of {ROWS} rows, documented limits", [*header, "requests per run", "429s"], rows)


if __name__ == "__main__":
    print(main(*map(int, sys.argv[1:2])))
