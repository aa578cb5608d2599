"""What processes go through: kills, signals, exits, forks. Every case is a real child process."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from runferry.logformat import RunState, read_records

pytestmark = pytest.mark.skipif(os.name != "posix", reason="signals and forks as POSIX has them")

PROLOGUE = """
import os, signal, sys, time
import runferry
run = runferry.init(dir=sys.argv[1], durability=sys.argv[2] if len(sys.argv) > 2 else None,
                    settings={"silent": True, "disable_stats": True, "disable_meta": True})
"""


def start(folder, code, *arguments):
    """A child that runs `code`."""
    command = [sys.executable, "-c", code, str(folder), *arguments]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def run(folder, body, *arguments):
    """(exit code, stdout, stderr, fold of the one log) of a child that runs `body` with a run begun."""
    child = start(folder, PROLOGUE + body, *arguments)
    out, err = child.communicate(timeout=60)
    return child.returncode, out, err, fold(only_log(folder))


def only_log(folder):
    (log,) = Path(folder).rglob("run-*.wandb")
    return log


def fold(log):
    return RunState().add_all(read_records(log))


# -- endings ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("ending", "process_code", "exit_code"),
    [
        ("", 0, 0),
        ("sys.exit(7)", 7, 7),
        ("sys.exit('a message')", 1, 1),
        ("raise ValueError('boom')", 1, 1),
        ("raise KeyboardInterrupt", -signal.SIGINT, 255),
        ("run.finish(5)", 0, 5),
        ("os.kill(os.getpid(), signal.SIGINT); time.sleep(10)", -signal.SIGINT, 255),
        ("os.kill(os.getpid(), signal.SIGTERM); time.sleep(10)", -signal.SIGTERM, 143),
        ("os.kill(os.getpid(), signal.SIGUSR1); time.sleep(10)", -signal.SIGUSR1, 128 + signal.SIGUSR1),
    ],
)
def test_every_ending_is_recorded(tmp_path, ending, process_code, exit_code):
    """The process ends as it would without us, and the log has all rows and the exit code that the peer gives."""
    # Flushed once, so that the writer's thread has done its imports: any `exec` in a thread makes CPython forget that a
    # KeyboardInterrupt ended the program, and it exits with 1 then.
    body = f"run.log({{'a': 1}})\nrun.flush()\nrun.log({{'b': 2}}, step=9)\n{ending}\n"
    code, _, _, state = run(tmp_path, body)

    assert (code, state.exit_code) == (process_code, exit_code)
    assert [row["_step"] for row in state.rows] == [0, 9]
    assert state.summary["b"] == 2
    assert not state.gaps


def test_a_signal_that_the_scheduler_sent_leaves_its_mark(tmp_path):
    """SIGTERM before a preemption: a preempting record; Ctrl-C is none."""
    assert run(tmp_path, "os.kill(os.getpid(), signal.SIGTERM)\ntime.sleep(10)\n")[3].preempting


def test_the_users_handler_decides(tmp_path):
    """A handler that was there before us is called, after the rows are safe; the run goes on if it returns."""
    body = """
def handler(number, frame):
    print("handled", number, flush=True)
    side = open(run.log_path, "rb").read()
    print(b"before" in side, flush=True)
runferry.finish()
signal.signal(signal.SIGTERM, handler)
run = runferry.init(id="second", dir=sys.argv[1] + "/b", settings={"silent": True, "disable_stats": True, "disable_meta": True})
run.log({"before": 1})
os.kill(os.getpid(), signal.SIGTERM)
run.log({"after": 2})
"""
    child = start(tmp_path / "a", PROLOGUE + body)
    out, err = child.communicate(timeout=60)
    state = fold(only_log(tmp_path / "a" / "b"))

    assert (child.returncode, err) == (0, "")
    assert out.split() == ["handled", "15", "True"]
    assert [row["_step"] for row in state.rows] == [0, 1]
    assert (state.exit_code, state.preempting) == (0, True)


def test_a_signal_while_the_main_thread_waits_for_the_disk(tmp_path):
    """No lock is shared with a handler: a signal in the middle of `log` at level `disk` ends the process as ever."""
    body = """
import threading
threading.Timer(0.2, os.kill, (os.getpid(), signal.SIGTERM)).start()
number = 0
while True:
    run.log({"n": number})
    number += 1
"""
    started = time.monotonic()
    code, _, _, state = run(tmp_path, body, "disk")

    assert (code, state.exit_code) == (-signal.SIGTERM, 143)
    assert time.monotonic() - started < 15
    assert [row["n"] for row in state.rows] == list(range(state.row_count))


# -- forks -----------------------------------------------------------------------------------------------------------


def test_children_of_a_fork_are_inert(tmp_path):
    """Fifty children, forked while rows are written: each may call what it likes and exits; the log is the parent's."""
    body = """
codes = []
for child in range(50):
    run.log({"n": child})
    pid = os.fork()
    if pid == 0:
        run.log({"n": -1}); run.config["x"] = 1; run.summary["y"] = 1; run.flush()
        run.finish(9); runferry.log({"n": -2})
        sys.exit(0)
    codes.append(os.waitpid(pid, 0)[1])
run.log({"n": 50})
print(set(codes))
"""
    code, out, err, state = run(tmp_path, body)

    assert (code, out.strip(), err) == (0, "{0}", "")
    assert [row["n"] for row in state.rows] == list(range(51))
    assert state.exit_code == 0
    assert not state.gaps


def test_children_of_a_fork_have_the_handlers_of_before(tmp_path):
    """Whatever we hooked is as it was: a worker dies of SIGTERM at once, wherever it waits."""
    body = """
runferry.finish()
before = [signal.getsignal(signal.SIGTERM), signal.getsignal(signal.SIGINT), sys.excepthook, sys.exit]
with runferry.init(dir=sys.argv[1], id="b", settings={"silent": True, "disable_stats": True, "disable_meta": True}):
    pid = os.fork()
    if pid == 0:
        now = [signal.getsignal(signal.SIGTERM), signal.getsignal(signal.SIGINT), sys.excepthook, sys.exit]
        os._exit(0 if now == before else 1)
    assert os.waitpid(pid, 0)[1] == 0
    assert sys.excepthook != before[2]
    assert sys.exit != before[3]
"""
    child = start(tmp_path, PROLOGUE + body)

    assert child.communicate(timeout=60) == ("", "")
    assert child.returncode == 0


def test_a_child_may_have_a_run_of_its_own(tmp_path):
    """After a fork, `init` in the child begins a new log."""
    body = """
run.log({"who": "parent"})
pid = os.fork()
if pid == 0:
    own = runferry.init(dir=sys.argv[1] + "/child", reinit=True,
                        settings={"silent": True, "disable_stats": True, "disable_meta": True})
    own.log({"who": "child"})
    sys.exit(4)
assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 4
"""
    child = start(tmp_path / "p", PROLOGUE + body)
    _, err = child.communicate(timeout=60)
    states = [fold(only_log(tmp_path / "p" / "wandb")), fold(only_log(tmp_path / "p" / "child"))]

    assert (child.returncode, err) == (0, "")
    assert [(state.rows[0]["who"], state.exit_code) for state in states] == [("parent", 0), ("child", 4)]


def test_a_fork_in_the_first_moment_of_a_run(tmp_path):
    """Threads of ours may be importing just then: the child can still import the same modules, and log."""
    body = """
pid = os.fork()
if pid == 0:
    print(run.summary.get("a"), run.step, flush=True)
    own = runferry.init(dir=sys.argv[1] + "/child", reinit=True, settings={"silent": True})
    own.log({"who": "child"})
    assert own.finish().complete
    os._exit(0)
assert os.waitpid(pid, 0)[1] == 0
"""
    loud = PROLOGUE.replace('"disable_stats": True, "disable_meta": True', "")  # with all our threads
    started = time.monotonic()
    child = start(tmp_path / "p", loud + body)
    out, err = child.communicate(timeout=60)

    assert (child.returncode, out, err) == (0, "None 0\n", "")
    assert time.monotonic() - started < 25
    assert fold(only_log(tmp_path / "p" / "child")).row_count == 1


def test_worker_processes_do_not_disturb(tmp_path):
    """A pool of forked workers, as data loaders have, while rows are logged."""
    body = """
import multiprocessing
def work(number):
    return number * number
with multiprocessing.get_context("fork").Pool(3) as pool:
    for number in range(20):
        run.log({"n": number, "squares": pool.map(work, range(5))})
"""
    code, _, err, state = run(tmp_path, body)

    assert (code, err) == (0, "")
    assert [row["n"] for row in state.rows] == list(range(20))


# -- one name, many writers ------------------------------------------------------------------------------------------


def test_processes_that_start_in_one_second_with_one_id(tmp_path):
    """Array jobs: as many logs as processes, each whole, none shared."""
    code = PROLOGUE.replace("runferry.init(", "runferry.init(id='same', ") + "run.log({'pid': os.getpid()})\n"
    children = [start(tmp_path, code) for _ in range(6)]
    for child in children:
        _, err = child.communicate(timeout=60)
        assert (child.returncode, err) == (0, "")
    logs = list(tmp_path.rglob("run-same.wandb"))

    assert len(logs) == 6
    assert {fold(log).rows[0]["pid"] for log in logs} == {child.pid for child in children}


# -- a real full disk ------------------------------------------------------------------------------------------------


def test_a_real_disk_that_fills_up(tmp_path):
    """256 KiB: one warning, 3,000 calls, space comes back half way, later rows are there, the rest is counted."""
    disk = tmp_path / "disk"
    disk.mkdir()
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=256k", "tmpfs", disk], capture_output=True, check=False
    )
    if mounted.returncode:
        pytest.skip("mounting is not allowed here")
    body = """
import json
ballast = os.path.join(sys.argv[1], "ballast")
open(ballast, "wb").write(bytes(128 * 1024))
row = {f"metric_{k}": 0.1 + k for k in range(10)}
for number in range(3000):
    if number == 1500:
        time.sleep(0.3)
        os.unlink(ballast)
    if not number % 100:
        time.sleep(0.02)
    run.log({"n": number} | row)
time.sleep(1)
from runferry.writer import pump
pump.FINISH_RETRY_S = 0.3
report = run.finish()
print(json.dumps([report.rows_written, report.rows_dropped]))
"""
    try:
        code, out, err, state = run(disk, body)
    finally:
        subprocess.run(["umount", disk], check=True)
    written, dropped = json.loads(out)

    assert code == 0
    assert written + dropped == 3000
    assert 0 < dropped < 3000
    assert err.count("errno 28") == 1
    assert f"{dropped} rows did not make it" in err
    assert [row["n"] for row in state.rows] == list(range(written))
    assert written * 500 > 140 * 1024  # more than fitted before space came back


def test_every_run_of_a_process_ends_with_it(tmp_path):
    """Several runs at once: the end of one does not hide the next."""
    code = """
import runferry, sys
runs = [runferry.init(dir=sys.argv[1], id=str(number), reinit="create_new",
                      settings={"silent": True, "disable_stats": True, "disable_meta": True}) for number in range(4)]
for run in runs:
    run.log({"a": 1})
if len(sys.argv) > 2:
    import os, signal
    os.kill(os.getpid(), signal.SIGTERM)
"""
    for arguments, expected in ([(), 0], [("kill",), 128 + signal.SIGTERM]):
        folder = tmp_path / str(expected)
        start(folder, code, *arguments).communicate(timeout=60)

        assert [fold(log).exit_code for log in folder.rglob("*.wandb")] == [expected] * 4
