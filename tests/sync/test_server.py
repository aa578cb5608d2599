"""Syncs to the real server in a process of its own: kills, real time, and what a user types."""

from __future__ import annotations

import itertools
import json
import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
from runferry.logformat import load
from support import logs
from support.server import Server, surroundings

SCRIPT = Path(__file__).with_name("killed.py")


def cli(server: Server, *arguments: Any, **environ: str) -> subprocess.CompletedProcess[str]:
    """`runferry sync` as a user runs it."""
    return subprocess.run(
        [sys.executable, "-m", "runferry.cli", "sync", *map(str, arguments)],
        capture_output=True,
        text=True,
        env=surroundings(server, **environ),
        timeout=60,
        check=False,
    )


def state_of(server: Server, run_id: str) -> dict[str, Any]:
    """What the server holds of a run, without times of its own."""
    run = server.run("local", "proj", run_id)
    return {
        "rows": server.history("local", "proj", run_id),
        "events": server.events("local", "proj", run_id),
        "console": server.console("local", "proj", run_id),
        "files": sorted((item["name"], item["size"], item["md5"], item["uploaded"]) for item in run["files"]),
        **{key: run[key] for key in ("config", "summary", "state", "exit_code", "next_line")},
    }


@pytest.mark.parametrize("turn", [0, pytest.param(1, marks=pytest.mark.slow)])
def test_a_kill_at_any_request_costs_nothing(folder: Path, server: Server, turn: int) -> None:
    """SIGKILL at each request, in turn before and after it, then a plain sync: the rows are the log's, which has them in parts, none twice, all else as in a clean sync."""
    log = logs.simple_run(folder, run_id=f"clean{turn}", rows=60, parts=3)
    (log.parent / "files" / "f").write_text("x")
    server.forget_requests()
    assert cli(server, log).returncode == 0
    count = len(server.requests())
    killed = 0
    for number in range(1, count + 8):
        moment = "before" if (number + turn) % 2 else "after"
        run_id = f"k{number}{moment}"
        log = logs.simple_run(folder, run_id=run_id, rows=60, parts=3)
        child = subprocess.run(
            [sys.executable, SCRIPT, log, server.url, server.key, str(number), moment], timeout=60, check=False
        )
        if child.returncode == 0:
            break
        assert child.returncode == -signal.SIGKILL
        killed += 1
        server.forget_requests()

        again = subprocess.run(
            [sys.executable, SCRIPT, log, server.url, server.key, "-1", "before"], timeout=60, check=False
        )

        assert again.returncode == 0
        state = state_of(server, run_id)
        assert state["rows"] == load(log).rows
        assert state["next_line"] == {"history": 60, "events": 2, "console": 60}
        assert (state["state"], len(state["files"])) == ("finished", 4)
        assert log.with_name(log.name + ".synced").exists()
        assert not log.with_name(log.name + ".lock").exists()
    assert killed > count


def test_a_row_that_gets_a_further_part_is_written_over(folder: Path, server: Server) -> None:
    """The line of the open row is replaced, whichever sync sent it: the server holds as many rows as before."""
    log = logs.simple_run(folder, run_id="open", rows=3, exit_code=None)
    assert cli(server, log).returncode == 0
    for number in range(2):
        logs.make_log(log, logs.row(2, {"late": number, f"n{number}": 1}), append=True)

        assert cli(server, log).returncode == 0

        state = state_of(server, "open")
        assert state["rows"] == load(log).rows
        assert (state["rows"][2]["late"], state["next_line"]["history"]) == (number, 3)


def test_429_in_real_time(folder: Path, server: Server) -> None:
    """A refusal with only RateLimit-Reset 7 keeps the command silent for 7 s of a real clock; then all arrives."""
    log = logs.simple_run(folder, run_id="slow", rows=20)
    server.forget_requests()
    server.set_faults(
        [{"action": "status", "path": "/file_stream", "nth": 1, "status": 429, "headers": {"RateLimit-Reset": "7"}}]
    )
    begun = time.monotonic()

    done = cli(server, log)

    assert done.returncode == 0, done.stderr
    assert time.monotonic() - begun >= 7.0
    assert "429" in done.stderr
    times = [entry["time"] for entry in server.requests()]
    gaps = [after - before for before, after in itertools.pairwise(times)]
    assert max(gaps) >= 7.0
    assert state_of(server, "slow")["rows"] == load(log).rows


def test_what_a_user_types(folder: Path, server: Server) -> None:
    """One verdict line per log on standard output, news on standard error; the second time nothing is sent."""
    logs.simple_run(folder, run_id="u1", rows=3)
    logs.simple_run(folder, run_id="u2", rows=4, exit_code=None)
    (folder / "run-dead.wandb").touch()
    logs.set_age(folder / "run-dead.wandb", 3600)

    done = cli(server, folder)

    lines = sorted(line.split()[0] for line in done.stdout.splitlines())
    assert lines == ["failed", "live", "synced"]
    assert done.returncode == 1
    server.forget_requests()
    assert cli(server, folder).returncode == 1
    assert server.requests() == []


def test_json_lines(folder: Path, server: Server) -> None:
    """Every line is an object with a type; the last one has the exit code."""
    logs.simple_run(folder, run_id="j1", rows=3)

    done = cli(server, "--json", folder)

    events = [json.loads(line) for line in done.stdout.splitlines()]
    assert [event["type"] for event in events] == ["plan", "run_started", "progress", "files", "run_done", "done"]
    assert events[-2]["verdict"] == "synced"
    assert events[-1] == {"type": "done", "exit_code": 0, "counts": {"synced": 1}, "left_out": {}}


def test_without_a_key_nothing_is_sent(folder: Path, server: Server, tmp_path: Path) -> None:
    """Exit code 2, and the message says where keys come from."""
    logs.simple_run(folder, run_id="nokey")
    server.forget_requests()

    done = cli(server, folder, RUNFERRY_API_KEY="", NETRC=str(tmp_path / "none"))

    assert done.returncode == 2
    assert "RUNFERRY_API_KEY" in done.stderr
    assert server.requests() == []


def test_a_wrong_key_and_a_wrong_path_are_usage_errors(folder: Path, server: Server) -> None:
    """Both end with exit code 2, and the key is in no output."""
    logs.simple_run(folder, run_id="wrongkey")
    key = "z" * 40

    done = cli(server, folder, RUNFERRY_API_KEY=key)

    assert done.returncode == 2
    assert key not in done.stdout + done.stderr
    assert cli(server, folder / "nothing").returncode == 2


def test_no_server_is_for_another_time(folder: Path, server: Server) -> None:
    """Exit code 75, with what failed."""
    logs.simple_run(folder, run_id="down")

    done = cli(server, folder, "--retry-for", "0", RUNFERRY_BASE_URL="http://127.0.0.1:9")

    assert done.returncode == 75
    assert "failed" in done.stdout


def test_ctrl_c_stops_and_the_next_sync_goes_on(folder: Path, server: Server) -> None:
    """SIGINT during a wait ends at once with 130; nothing is marked, no lock is left."""
    log = logs.simple_run(folder, run_id="ctrlc")
    server.set_faults(
        [{"action": "status", "path": "/file_stream", "nth": 1, "status": 429, "headers": {"Retry-After": "6"}}]
    )
    child = subprocess.Popen(
        [sys.executable, "-m", "runferry.cli", "sync", str(log)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "RUNFERRY_API_KEY": server.key, "RUNFERRY_BASE_URL": server.url},
    )
    for line in child.stderr:
        if "429" in line:
            break
    begun = time.monotonic()
    child.send_signal(signal.SIGINT)

    out, _ = child.communicate(timeout=20)

    assert child.returncode == 130
    assert time.monotonic() - begun < 10
    assert "interrupted" in out
    assert not log.with_name(log.name + ".lock").exists()
    server.set_faults([])
    assert cli(server, log).returncode == 0


def test_a_copied_folder_syncs_elsewhere(folder: Path, server: Server, tmp_path: Path) -> None:
    """The run directory is self-contained: copied to another place, with its cursor, it goes on there."""
    log = logs.simple_run(folder, run_id="moved", exit_code=None)
    assert cli(server, log).returncode == 0
    shutil.copytree(folder, tmp_path / "stick")
    copy = tmp_path / "stick" / log.relative_to(folder)
    logs.make_log(copy, logs.row(5), logs.exit_record(), append=True)
    server.forget_requests()

    assert cli(server, copy).returncode == 0

    state = state_of(server, "moved")
    assert state["rows"] == load(copy).rows
    assert state["state"] == "finished"
