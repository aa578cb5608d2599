"""Forks, pools, and many processes in one place. Every case is a real child process."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time

import pytest
from support.children import PROLOGUE, fold, only_log, run, start

pytestmark = pytest.mark.skipif(os.name != "posix", reason="signals and forks as POSIX has them")


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


def test_a_row_of_a_forked_child_is_refused_aloud(tmp_path):
    """The log is the parent's, and the child says once that its rows go nowhere."""
    child = start(
        tmp_path,
        """
import os, sys, runferry
run = runferry.init(dir=sys.argv[1], disable_stats=True, disable_meta=True)
pid = os.fork()
if pid == 0:
    run.log({"n": -1}); run.log({"n": -2})
    os._exit(0)
os.waitpid(pid, 0)
run.log({"n": 0})
""",
    )
    _out, err = child.communicate(timeout=60)

    assert (child.returncode, err.count("what is logged here goes nowhere")) == (0, 1)
    assert [row["n"] for row in fold(only_log(tmp_path)).rows] == [0]


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
    """After a fork, `init` in the child begins a new log, though its parent's run is not finished."""
    body = """
run.log({"who": "parent"})
pid = os.fork()
if pid == 0:
    own = runferry.init(dir=sys.argv[1] + "/child", settings={"disable_stats": True, "disable_meta": True})
    assert own is not run
    own.log({"who": "child"})
    runferry.log({"who": "child still"})
    sys.exit(4)
assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 4
"""
    child = start(tmp_path / "p", PROLOGUE + body)
    _, err = child.communicate(timeout=60)
    states = [fold(only_log(tmp_path / "p" / "wandb")), fold(only_log(tmp_path / "p" / "child"))]

    assert (child.returncode, "goes on" in err, "logs nothing" in err) == (0, False, False)
    assert [state.row_count for state in states] == [1, 2]
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
    loud = PROLOGUE.replace('"disable_stats": True, "disable_meta": True, ', "")  # with all our threads
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


SPAWNING = """
import multiprocessing, os, sys
import runferry
from concurrent.futures import ProcessPoolExecutor

def work(number):
    # As libraries do that log wherever they find a run: in a worker there is none.
    if runferry.run is not None:
        runferry.log({"n": -1})
    return number * number

if __name__ == "__main__":
    with runferry.init(dir=sys.argv[1], settings={"silent": True}) as run:
        for method in sys.argv[2:]:
            context = multiprocessing.get_context(method)
            with ProcessPoolExecutor(2, mp_context=context) as pool:
                for number, square in enumerate(pool.map(work, range(10))):
                    run.log({"n": number, "square": square})
"""


@pytest.mark.parametrize("method", ["spawn", "forkserver", "fork"])
def test_workers_of_every_kind(tmp_path, method):
    """A script whose workers import it anew, or are forked: one log, the parent's, with all of its rows."""
    script = tmp_path / "train.py"
    script.write_text(SPAWNING)
    command = [sys.executable, script, tmp_path / "out", method]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    state = fold(only_log(tmp_path / "out"))

    assert (done.returncode, done.stderr) == (0, "")
    assert [row["n"] for row in state.rows] == list(range(10))
    assert state.exit_code == 0


HOLDING = """
import copy, multiprocessing, os, pickle, sys
import runferry

class Data:
    def __init__(self, run):
        self.run = run

def work(data):
    run = data.run
    run.log({"n": -1})
    run.config["x"] = 1
    run.summary["y"] = 1
    run.save(__file__)
    print(run.id, run.name, run.dir == os.environ["RUN_DIR"], run.config["lr"], run.inherited, run.finish().rows_written, flush=True)
    assert pickle.loads(pickle.dumps(run)).id == run.id

if __name__ == "__main__":
    run = runferry.init(dir=sys.argv[1], id="r", config={"lr": 0.1}, settings={"disable_stats": True, "disable_meta": True})
    run.name = "later"
    os.environ["RUN_DIR"] = run.dir
    data = Data(run)
    for made in (copy.copy(run), copy.deepcopy(data).run, pickle.loads(pickle.dumps(data)).run):
        assert made is run
    process = multiprocessing.get_context(sys.argv[2]).Process(target=work, args=(data,))
    process.start()
    process.join()
    run.log({"n": process.exitcode})
"""


@pytest.mark.parametrize("method", ["fork", "spawn"])
def test_what_holds_a_run_is_copied_and_goes_to_workers(tmp_path, method):
    """In its process a run stays one; in a worker it says what it is, logs nothing, and says so once."""
    script = tmp_path / "train.py"
    script.write_text(HOLDING)
    command = [sys.executable, script, tmp_path / "out", method]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    state = fold(only_log(tmp_path / "out"))

    assert (done.returncode, done.stdout) == (0, "r later True 0.1 True 0\n"), done.stderr
    assert done.stderr.count("what is logged here goes nowhere") == 1
    assert [row["n"] for row in state.rows] == [0]
    assert (state.config["lr"], "x" in state.config, "y" in state.summary) == (0.1, False, False)
    assert not state.files


WORKING = """
import multiprocessing, sys
import runferry

def work(folder, how):
    run = runferry.init(dir=folder, id=how, settings={"silent": True, "disable_stats": True, "disable_meta": True})
    run.log({"a": 1})
    if how == "raises":
        raise ValueError("boom")
    if how == "exits":
        sys.exit(4)

if __name__ == "__main__":
    context = multiprocessing.get_context(sys.argv[2])
    for how in ("returns", "raises", "exits"):
        process = context.Process(target=work, args=(sys.argv[1], how))
        process.start()
        process.join()
        print(process.exitcode)
"""


@pytest.mark.parametrize("method", ["fork", "spawn"])
def test_workers_with_runs_of_their_own(tmp_path, method):
    """A worker that never calls `finish` ends its run as its function ends, though a forked one exits without a word."""
    script = tmp_path / "train.py"
    script.write_text(WORKING)
    command = [sys.executable, script, tmp_path / "out", method]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    found = {how: fold(next((tmp_path / "out").rglob(f"run-{how}.wandb"))) for how in ("returns", "raises", "exits")}

    assert done.stdout.split() == ["0", "1", "4"]
    assert {how: (state.row_count, state.exit_code) for how, state in found.items()} == {
        "returns": (1, 0),
        "raises": (1, 1),
        "exits": (1, 4),
    }


def test_children_forked_under_load(tmp_path):
    """Threads log without rest while children are forked that import, log and exit: none hangs, no row is lost."""
    body = """
import threading
stop, counts = threading.Event(), [0] * 4
def work(which):
    while not stop.is_set():
        run.log({"which": which, "count": counts[which]})
        counts[which] += 1
        time.sleep(0.0005)
threads = [threading.Thread(target=work, args=(which,)) for which in range(4)]
for thread in threads:
    thread.start()
codes = set()
for child in range(50):
    pid = os.fork()
    if pid == 0:
        import csv, decimal, xml.dom.minidom
        run.log({"n": -1}); run.flush(); runferry.finish()
        own = runferry.init(dir=sys.argv[1] + "/children", settings={"silent": True}) if child % 10 == 0 else None
        if own:
            own.log({"own": child})
        sys.exit(0)
    codes.add(os.waitpid(pid, 0)[1])
stop.set()
for thread in threads:
    thread.join()
report = run.finish()
print(codes, report.complete, report.rows_written == sum(counts))
"""
    child = start(tmp_path / "p", PROLOGUE + body)
    out, err = child.communicate(timeout=120)
    state = fold(only_log(tmp_path / "p" / "wandb"))

    assert (child.returncode, out, err) == (0, "{0} True True\n", "")
    for which in range(4):
        counts = [row["count"] for row in state.rows if row["which"] == which]
        assert counts == list(range(len(counts)))
    owned = [
        fold(log) for log in (tmp_path / "p" / "children").rglob("wandb/run-*/*.wandb") if "latest" not in str(log)
    ]
    assert sorted(found.rows[0]["own"] for found in owned) == [0, 10, 20, 30, 40]


def test_the_whole_group_is_told_to_end(tmp_path):
    """A scheduler signals every process of a job: its workers die, and the log has its rows and its end."""
    body = """
os.setpgrp()
for _ in range(4):  # the last of them may not have got anywhere yet
    if os.fork() == 0:
        while True:
            time.sleep(1)
run.log({"a": 1})
os.killpg(0, signal.SIGTERM)
time.sleep(10)
"""
    code, _, err, state = run(tmp_path, body)

    assert (code, err) == (-signal.SIGTERM, "")
    assert (state.row_count, state.exit_code, state.preempting) == (1, 143, True)


# -- threads ---------------------------------------------------------------------------------------------------------


def test_many_threads(tmp_path):
    """Sixteen threads, each row once, each thread's in its order."""
    body = """
import threading
def work(which):
    for count in range(1000):
        run.log({"which": which, "count": count})
threads = [threading.Thread(target=work, args=(which,)) for which in range(16)]
for thread in threads:
    thread.start()
for thread in threads:
    thread.join()
print(run.finish().rows_written)
"""
    code, out, err, state = run(tmp_path, body)

    assert (code, out, err) == (0, "16000\n", "")
    assert [row["_step"] for row in state.rows] == list(range(16000))
    for which in range(16):
        assert [row["count"] for row in state.rows if row["which"] == which] == list(range(1000))


def test_daemon_threads_that_log_until_the_end(tmp_path):
    """Nothing is raised while the interpreter goes down; what came too late is counted, and the log ends well."""
    body = """
import threading
def work():
    while True:
        run.log({"n": 1})
for _ in range(4):
    threading.Thread(target=work, daemon=True).start()
time.sleep(0.2)
"""
    code, _, err, state = run(tmp_path, body)

    assert code == 0
    assert "Traceback" not in err
    assert state.exit_code == 0
    assert state.row_count > 100
    assert not state.gaps


def test_a_run_that_is_begun_on_another_thread(tmp_path):
    """Signals are heard once a run begins on the main thread; the process's end is noticed in any case."""
    body = """
import threading
runferry.finish()
def begin(name):
    return runferry.init(dir=sys.argv[1] + name, id=name, reinit="create_new",
                         settings={"silent": True, "disable_stats": True, "disable_meta": True})
thread = threading.Thread(target=begin, args=("a",))
thread.start()
thread.join()
begin("b")
os.kill(os.getpid(), signal.SIGTERM)
time.sleep(10)
"""
    child = start(tmp_path / "p", PROLOGUE + body)
    child.communicate(timeout=60)

    assert child.returncode == -signal.SIGTERM
    assert [fold(only_log(f"{tmp_path / 'p'}{name}")).exit_code for name in "ab"] == [143, 143]


def test_a_program_that_is_no_file(tmp_path):
    """As in a notebook: the program comes by a pipe, and its main module has no file."""
    body = PROLOGUE.replace('"disable_stats": True, "disable_meta": True, ', "") + "run.log({'a': 1})\n"
    done = subprocess.run(
        [sys.executable, "-", tmp_path], input=body, capture_output=True, text=True, timeout=60, check=False
    )
    state = fold(only_log(tmp_path))

    assert (done.returncode, done.stderr) == (0, "")
    assert (state.row_count, state.exit_code) == (1, 0)


# -- one name, many writers ------------------------------------------------------------------------------------------


def test_processes_that_start_in_one_second_with_one_id(tmp_path):
    """Array jobs: as many logs as processes, each whole, none shared."""
    body = """
time.time = lambda: 1_800_000_000.5
runferry.finish()
children = []
for number in range(32):
    pid = os.fork()
    if pid == 0:
        own = runferry.init(dir=sys.argv[1] + "/jobs", id="same", settings={"silent": True, "disable_stats": True, "disable_meta": True})
        for _ in range(20):
            own.log({"number": number})
        os._exit(0 if own.finish().complete else 1)
    children.append(pid)
print({os.waitpid(pid, 0)[1] for pid in children})
"""
    child = start(tmp_path, PROLOGUE + body)

    assert child.communicate(timeout=60) == ("{0}\n", "")
    logs = list((tmp_path / "jobs" / "wandb").glob("run-*/run-same.wandb"))
    states = [fold(log) for log in logs]
    assert len(logs) == 32
    assert {state.rows[0]["number"] for state in states} == set(range(32))
    for state in states:
        assert len({row["number"] for row in state.rows}) == 1
        assert (state.row_count, state.exit_code) == (20, 0)
