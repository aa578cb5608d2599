"""How a sync ends, as scripts see it: exit codes, and the files that were asked for."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
from support import logs
from support.openmetrics import parse
from support.server import Server, surroundings
from support.syncrig import unsealed

CLI = [sys.executable, "-m", "runferry.cli"]
DOWN = "http://127.0.0.1:9"
NOT_FOUND = {"action": "status", "path": "/file_stream", "status": 404}


def sync(server: Server, *arguments: Any, **changes: str) -> subprocess.CompletedProcess[str]:
    """`runferry sync` as a user runs it."""
    command = [*CLI, "sync", *map(str, arguments)]
    environ = surroundings(server, **changes)
    return subprocess.run(command, capture_output=True, text=True, env=environ, timeout=60, check=False)


def lock(log: Path) -> None:
    """Hold a log as this process would."""
    holder = {"host": socket.gethostname(), "pid": 0, "heartbeat": time.time(), "token": "t"}
    log.with_name(log.name + ".lock").write_text(json.dumps(holder))


def test_all_done_is_0(folder: Path, server: Server) -> None:
    """Synced, live, and skipped because it is nothing new: all of it is done; so is an empty folder."""
    logs.simple_run(folder, run_id="o1")
    logs.simple_run(folder, run_id="o2", exit_code=None)

    assert [sync(server, folder).returncode for _ in range(2)] == [0, 0]
    (folder / "empty").mkdir()
    assert sync(server, folder / "empty").returncode == 0


def dead(folder: Path) -> None:
    """A log that was never written to, by a writer that has been silent for long."""
    log = folder / "run-dead.wandb"
    log.touch()
    logs.set_age(log, 10_000, now=time.time())


def test_a_partial_or_failed_log_is_1(folder: Path, server: Server) -> None:
    """Also beside others that are done, and whatever the order."""
    logs.simple_run(folder, run_id="p1")
    dead(folder)

    assert sync(server, folder).returncode == 1
    torn = logs.simple_run(folder, run_id="p2")
    torn.write_bytes(torn.read_bytes()[:-3])
    done = sync(server, torn)
    assert (done.returncode, done.stdout.split()[0]) == (1, "partial")


def test_a_key_that_nobody_knows_is_2(folder: Path, server: Server) -> None:
    """No key, a wrong key, a wrong path, and a wrong option: a script sees that trying again is of no use."""
    log = logs.simple_run(folder, run_id="k1")

    assert sync(server, log, RUNFERRY_API_KEY="", NETRC=str(folder / "none")).returncode == 2
    assert sync(server, log, RUNFERRY_API_KEY="z" * 40).returncode == 2
    assert sync(server, folder / "nothing").returncode == 2
    assert sync(server, "--no-such-option").returncode == 2
    assert sync(server, log, "--report", folder / "none" / "r.json").returncode == 2


NO_THREADS = """
import sys, threading
from runferry.cli import main

def refuse(thread):
    raise RuntimeError("can't start new thread")

threading.Thread.start = refuse
main()
"""


def test_a_user_who_may_start_no_thread(folder: Path, server: Server, tmp_path: Path) -> None:
    """`ulimit -u`, or a container that is full: slower, and all the same. Not a word of Python's gets to the user."""
    log = logs.simple_run(folder, run_id="nt1", rows=50)
    (log.parent / "files").mkdir(exist_ok=True)
    environ = surroundings(server, RUNFERRY_BASE_URL=server.url.replace("127.0.0.1", "localhost"))

    def run(*arguments: Any) -> tuple[int, str, str]:
        command = [sys.executable, "-c", NO_THREADS, *map(str, arguments)]
        done = subprocess.run(command, capture_output=True, text=True, env=environ, timeout=60, check=False)
        return done.returncode, done.stdout.split()[0], done.stderr

    metrics = tmp_path / "metrics.prom"
    code, verdict, errors = run("sync", folder, "--metrics-file", metrics)
    assert (code, verdict, "Traceback" in errors) == (0, "synced", False), errors
    assert parse(metrics.read_text())
    assert run("verify", "--remote", folder)[:2] == (0, "equal")
    assert run("sync", "--watch", "--delete-after-verify", log)[0] == 0
    assert not log.exists()


def test_what_time_may_mend_is_75(folder: Path, server: Server) -> None:
    """A server that is down, and a log that another sync holds, alone or together with logs that are done."""
    log = logs.simple_run(folder, run_id="t1")
    assert sync(server, log, "--retry-for", "0", RUNFERRY_BASE_URL=DOWN).returncode == 75
    lock(log)
    done = sync(server, log)
    assert (done.returncode, done.stdout.split()[0]) == (75, "skipped")
    logs.simple_run(folder, run_id="t2")

    done = sync(server, folder)

    assert (done.returncode, {line.split()[0] for line in done.stdout.splitlines()}) == (75, {"skipped", "synced"})


def test_a_failure_outweighs_what_time_may_mend(folder: Path, server: Server) -> None:
    """One log is locked and one is no log: 1, for somebody has to look."""
    lock(logs.simple_run(folder, run_id="m1"))
    dead(folder)

    assert sync(server, folder).returncode == 1


def test_an_unknown_key_outweighs_a_failure(folder: Path, server: Server) -> None:
    """A log that is broken says nothing of the others while the key is wrong: 2."""
    logs.simple_run(folder, run_id="w1")
    dead(folder)

    assert sync(server, folder, RUNFERRY_API_KEY="z" * 40).returncode == 2


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
@pytest.mark.parametrize("mode", ["once", "watch"])
def test_interrupted_is_130(folder: Path, server: Server, number: signal.Signals, mode: str) -> None:
    """Ctrl-C and a scheduler's SIGTERM end a wait at once and in good order; the report says what was left."""
    log = logs.simple_run(folder, run_id=f"i{mode}{number.value}")
    fault = {"action": "status", "path": "/file_stream", "status": 429, "headers": {"Retry-After": "50"}}
    server.set_faults([fault])
    report, metrics = folder / "report.json", folder / "metrics.prom"
    command = [*CLI, "sync", str(log), "--report", str(report), "--metrics-file", str(metrics)]
    command += ["--watch"] if mode == "watch" else []
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    with subprocess.Popen(command, env=surroundings(server), **pipes) as child:
        assert any("429" in line for line in child.stderr)
        child.send_signal(number)
        out, _ = child.communicate(timeout=30)

    assert child.returncode == 130
    assert "interrupted" in out
    assert not log.with_name(log.name + ".lock").exists()
    told = json.loads(report.read_text())
    assert (told["exit_code"], [run["verdict"] for run in told["runs"]]) == (130, ["failed"])
    assert parse(metrics.read_text())["runferry_sync_exit_code"] == {(): 130}


def test_the_report_holds_everything_but_secrets(folder: Path, server: Server) -> None:
    """Settings, server, times, each verdict with what is missing in full, and numbers; the key is nowhere in it."""
    log = logs.simple_run(folder, run_id="r1", rows=7)
    names = [f"gone-{number}.txt" for number in range(9)]
    logs.make_log(log, logs.files_record(*names), append=True)
    report = folder / "report.json"
    report.write_text("what was there before")
    server.forget_requests()

    done = sync(server, folder, "--report", report, "--job-type", "train")

    told = json.loads(report.read_text())
    assert done.returncode == told["exit_code"] == 1
    assert server.key not in report.read_text()
    assert (told["server"], told["settings"]["job_type"], told["error"]) == (server.url, "train", None)
    assert told["counts"] == {"partial": 1}
    assert told["began"] <= told["ended"] <= time.time()
    run = told["runs"][0]
    assert [line.split(":")[0] for line in run["missing"]] == names
    assert (run["rows"], run["rows_sent"], run["url"]) == (7, 7, f"{server.url}/local/proj/runs/r1")
    assert told["requests"]["answers"]["2xx"] == len(server.requests())


def test_a_report_is_written_whatever_happens(folder: Path, server: Server) -> None:
    """Without a key nothing is sent, and the report says so."""
    log = logs.simple_run(folder, run_id="n1")
    report = folder / "report.json"

    sync(server, log, "--report", report, RUNFERRY_API_KEY="", NETRC=str(folder / "none"))

    told = json.loads(report.read_text())
    assert (told["exit_code"], told["runs"]) == (2, [])
    assert "RUNFERRY_API_KEY" in told["error"]


def test_a_closed_pipe_takes_nothing_from_the_report(folder: Path, server: Server) -> None:
    """`runferry sync | head -0`: whoever looks goes away, and the runs are synced and reported all the same."""
    for number in range(3):
        logs.simple_run(folder, run_id=f"h{number}")
    report = folder / "report.json"
    command = [*CLI, "sync", "--json", str(folder), "--report", str(report)]
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    with subprocess.Popen(command, env=surroundings(server), **pipes) as child:
        child.stdout.close()
        child.stderr.read()
        child.wait(30)

    assert json.loads(report.read_text())["counts"] == {"synced": 3}


def test_the_page_of_a_run_is_told(folder: Path, server: Server) -> None:
    """In the verdict line, and as `url` of `run_done`; `WANDB_APP_URL` says where pages are."""
    log = logs.simple_run(folder, run_id="u1")

    assert f"{server.url}/local/proj/runs/u1" in sync(server, log).stdout
    done = sync(server, log, "--json", WANDB_APP_URL="https://app.test/")
    events = [json.loads(line) for line in done.stdout.splitlines()]
    assert [event["url"] for event in events if event["type"] == "run_done"] == ["https://app.test/local/proj/runs/u1"]


def test_a_dry_run_tells_what_is_there_and_what_is_not(folder: Path, server: Server) -> None:
    """As an event of its own, with the cursor's part taken off, for each log; nothing is asked of the server."""
    log = logs.simple_run(folder, run_id="d1", rows=5, exit_code=None)
    assert sync(server, log).returncode == 0
    size = log.stat().st_size
    kept = sum(mark["size"] for name, mark in unsealed(log)["files"].items() if name != "wandb-summary.json")
    (log.parent / "files" / "model.bin").write_bytes(b"x" * 1000)
    logs.make_log(log, logs.row(5), logs.row(6), logs.files_record("model.bin"), append=True)
    server.forget_requests()

    done = sync(server, log, "--dry-run", "--json")

    events = [json.loads(line) for line in done.stdout.splitlines()]
    found = next(event for event in events if event["type"] == "would_send")
    assert {name: found[name] for name in ("run", "target", "server", "rows", "new_rows", "files", "file_bytes")} == {
        "run": "d1",
        "target": "/proj/d1",
        "server": server.url,
        "rows": 7,
        "new_rows": 2,
        "files": 5,  # those that every run has, too
        "file_bytes": found["new_file_bytes"] + kept,
    }
    assert (found["new_files"], found["new_file_bytes"] > 1000) == (2, True)
    assert (found["log_bytes"], found["new_bytes"]) == (log.stat().st_size, log.stat().st_size - size)
    assert server.requests() == []


def test_what_arrived_is_deleted_once_the_server_was_asked(folder: Path, server: Server) -> None:
    """Of four runs one goes: the one that is synced and equal there; live, partial and locked ones stay, and nobody is asked."""
    done = logs.simple_run(folder, run_id="e1")
    live = logs.simple_run(folder, run_id="e2", exit_code=None)
    torn = logs.simple_run(folder, run_id="e3")
    torn.write_bytes(torn.read_bytes()[:-3])
    held = logs.simple_run(folder, run_id="e4")
    lock(held)

    ended = sync(server, folder, "--delete-after-verify", "--json")

    events = [json.loads(line) for line in ended.stdout.splitlines()]
    assert [(event["run"], event["fate"]) for event in events if event["type"] == "clean"] == [("e1", "deleted")]
    assert (events[-1]["type"], events[-1]["exit_code"], ended.returncode) == ("done", 1, 1)
    assert [log.exists() for log in (done, live, torn, held)] == [False, True, True, True]


def test_what_the_server_has_not_is_kept(folder: Path, server: Server) -> None:
    """A marker and a cursor that say complete are no proof: the rows are not there, so the run stays, and the code is 1."""
    log = logs.simple_run(folder, run_id="f1", rows=20)
    other = logs.simple_run(folder.parent / "other", run_id="f2", rows=17)
    assert [sync(server, path).returncode for path in (log, other)] == [0, 0]
    cursor = log.with_name(log.name + ".cursor")
    target = json.loads(cursor.read_text())
    del target["seal"]
    target["run_id"] = "f2"
    cursor.write_text(json.dumps(target))

    ended = sync(server, log, "--delete-after-verify")

    assert ended.returncode == 1
    assert "20 here, 17 there" in ended.stdout
    assert log.exists()
    assert sync(server, log, "--delete-after-verify", "--dry-run").returncode == 2


@pytest.mark.skipif(not hasattr(os, "fork"), reason="there is no pseudo-terminal")
def test_a_terminal_shows_a_table_and_a_file_gets_the_verdicts(folder: Path, server: Server) -> None:
    """Standard error is a terminal, standard output a file: one line per verdict there, the table here, and it is taken away."""
    import pty

    for number in range(3):
        logs.simple_run(folder, run_id=f"g{number}")
    server.set_faults([{"action": "delay", "path": "/file_stream", "seconds": 0.6}])  # longer than a frame takes
    ours, theirs = pty.openpty()
    verdicts = folder.parent / "verdicts"
    command = [*CLI, "sync", str(folder)]
    with verdicts.open("wb") as file:
        child = subprocess.Popen(
            command, stdout=file, stderr=theirs, env=surroundings(server, TERM="xterm", COLUMNS="80")
        )
    os.close(theirs)
    screen = b""
    with contextlib.suppress(OSError):  # which the end of a terminal is
        while part := os.read(ours, 65536):
            screen += part
    os.close(ours)

    assert child.wait(30) == 0
    lines = verdicts.read_text().splitlines()
    assert [line.split()[0] for line in lines] == ["synced"] * 3
    assert screen.decode().rstrip().endswith("3 synced")
    assert b"logs | " in screen
    assert b"\x1b[?25h" in screen  # the cursor is back


def test_a_run_that_was_copied_with_its_links_followed(folder: Path, server: Server) -> None:
    """`cp -rL wandb stick; runferry sync stick`: one run, its rows once, the copy is named; the plan and the summary agree."""
    log = logs.simple_run(folder, run_id="stick", rows=12)
    (folder / "latest-run").symlink_to(log.parent.name)
    stick = folder.parent / "stick"
    shutil.copytree(folder, stick)
    counts, copy = stick / log.parent.name / log.name, stick / "latest-run" / log.name

    plan = [json.loads(line) for line in sync(server, "plan", "--json", stick).stdout.splitlines()]
    done = sync(server, "--json", stick)
    shown = subprocess.run(
        [*CLI, "show", "--summary", "--json", counts, copy], capture_output=True, text=True, timeout=60, check=True
    )

    assert [(line["type"], line.get("path"), line.get("reason")) for line in plan[1:-1]] == [
        ("copy", str(copy), f"a copy of {counts}")
    ]
    reports = [json.loads(line) for line in done.stdout.splitlines()]
    assert {line["log"]: (line["verdict"], line["reason"]) for line in reports if line["type"] == "run_done"} == {
        str(counts): ("synced", ""),
        str(copy): ("skipped", f"a copy of {counts}"),
    }
    assert done.returncode == 0
    assert sum(line["rows_sent"] for line in reports if line["type"] == "run_done") == 12
    assert json.loads(shown.stdout)["rows"] == 12
    assert subprocess.run([*CLI, "verify", "--remote", stick], env=surroundings(server), check=False).returncode == 0


def test_a_marker_without_a_cursor_is_nobodys(folder: Path, server: Server) -> None:
    """The marker is an empty file, so nothing is said of who made it."""
    log = logs.simple_run(folder, run_id="marked")
    log.with_name(log.name + ".synced").touch()

    done = sync(server, folder)

    assert done.returncode == 0
    assert (
        "marked as synced, and no cursor says by whom: --include-synced sends it again, to the same places"
        in done.stdout
    )


@pytest.mark.parametrize("options", [(), ("--json",)])
@pytest.mark.parametrize("output", ["closed", "full", "gone"])
def test_what_cannot_be_shown_is_sent_all_the_same(folder: Path, server: Server, output: str, options: Any) -> None:
    """Output and errors closed, on a full disk, or to a reader that has gone: everything arrives, and the exit code is right."""
    log = logs.simple_run(folder, run_id=f"shown-{output}{len(options)}")
    read, write = os.pipe()
    os.close(read)
    sink = {"closed": ">&- 2>&-", "full": ">/dev/full 2>&1", "gone": ""}[output]
    command = ["sh", "-c", f'exec "$@" {sink}', "sh", *CLI, "sync", str(folder), *options]
    try:
        done = subprocess.run(command, env=surroundings(server), timeout=60, check=False, stdout=write, stderr=write)
    finally:
        os.close(write)

    assert done.returncode == 0
    assert log.with_name(log.name + ".synced").exists()
