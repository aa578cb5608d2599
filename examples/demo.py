"""The main job end to end, on this machine: train and sample, sync to the embedded backend, look at the result.

Everything lands in `.demo/` beside the repository's files, made anew each time; nothing is left running.
"""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
import time
from pathlib import Path
from urllib.parse import quote
from urllib.request import urlopen

ROOT = Path(__file__).resolve().parent.parent
DEMO = ROOT / ".demo"
RUNFERRY = [sys.executable, "-m", "runferry.cli"]


def say(text: str) -> None:
    """Print a heading at once."""
    print(f"\n\033[1m{text}\033[0m" if sys.stdout.isatty() else f"\n{text}", flush=True)


def start_server() -> tuple[subprocess.Popen[str], dict[str, str]]:
    """The embedded backend on a free port of this machine: its process, and where it listens."""
    command = [*RUNFERRY, "serve", "--port", "0", "--data-dir", str(DEMO / "backend"), "--json"]
    server = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    assert server.stdout is not None
    line = server.stdout.readline()
    if not line:
        sys.exit(f"the backend did not start (exit code {server.wait()})")
    return server, json.loads(line)


def main() -> int:
    """Run the demo; the exit code says whether the server holds what the log holds."""
    shutil.rmtree(DEMO, ignore_errors=True)
    DEMO.mkdir()
    began = time.monotonic()

    say("1. Train, with no network: every step and each second's system metrics go to one file")
    subprocess.run([sys.executable, str(ROOT / "examples" / "train.py"), "--dir", str(DEMO)], check=True)

    say("2. What the log holds")
    subprocess.run([*RUNFERRY, "show", "--summary", str(DEMO / "wandb")], check=True)

    say("3. Start the embedded backend, and sync to it")
    server, where = start_server()
    try:
        key = Path(where["api_key_file"]).read_text(encoding="utf-8").split()[0]
        environment = {"RUNFERRY_BASE_URL": where["url"], "RUNFERRY_API_KEY": key}
        import os

        subprocess.run([*RUNFERRY, "sync", str(DEMO / "wandb")], check=True, env={**os.environ, **environment})

        say("4. Every run found")
        subprocess.run([*RUNFERRY, "ls", str(DEMO / "wandb")], check=True)

        return check(where["url"], began)
    finally:
        server.terminate()
        server.wait(timeout=10)


def check(url: str, began: float) -> int:
    """Ask the server what it holds, and compare it with the log."""
    import runferry

    (log,) = DEMO.glob("wandb/run-*/run-*.wandb")
    state = runferry.load(log)
    with urlopen(f"{url}/api/runs") as answer:
        (run,) = json.load(answer)
    entity, project, run_id = (quote(run[part], safe="") for part in ("entity", "project", "name"))
    place = f"{entity}/{project}/{run_id}"
    with urlopen(f"{url}/api/runs/{place}/history") as answer:
        rows = [json.loads(line) for line in answer]
    with urlopen(f"{url}/api/runs/{place}/events") as answer:
        samples = [json.loads(line) for line in answer]
    same = rows == state.rows and len(samples) == len(state.samples)

    say("5. The server's copy")
    print(f"rows: {len(state.rows)} in the log, {len(rows)} on the server, {'equal' if same else 'DIFFERENT'}")
    print(f"samples: {len(state.samples)} in the log, {len(samples)} on the server; the last one:")
    for name, value in sorted(samples[-1].items()):
        if name.startswith("system."):
            print(f"    {name} = {value:.6g}")
    print(f"({time.monotonic() - began:.0f} s in all)")
    page = f"{entity}/{project}/runs/{run_id}"
    if sys.stdin.isatty():
        say(f"6. The page with the charts: {url}/{page}")
        input("Press Enter to stop the backend. ")
    else:
        say("6. The page with the charts")
        print(f"start:  {Path(sys.executable).parent / 'runferry'} serve --data-dir {DEMO / 'backend'}")
        print(f"open:   http://127.0.0.1:8765/{page}")
    return 0 if same else 1


if __name__ == "__main__":
    sys.exit(main())
