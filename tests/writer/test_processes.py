"""Forks, pools, and many processes in one place. Every case is a real child process."""

from __future__ import annotations

import os
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
