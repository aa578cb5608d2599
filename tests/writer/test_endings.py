"""How a process ends, and what its log says of it. Every case is a real child process."""

from __future__ import annotations

import os
import signal
import sys
import time

import pytest
from support.children import PROLOGUE, fold, only_log, run, start

pytestmark = pytest.mark.skipif(os.name != "posix", reason="signals and forks as POSIX has them")


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


@pytest.mark.parametrize(
    ("ending", "process_code", "exit_code"),
    [
        ("exit(8)", 8, 8),
        ("quit('a message')", 1, 1),
        ("raise SystemExit(9)", 9, 0),  # no hook is told, and the exception is gone before the process ends
        ("def f():\n  try: sys.exit(3)\n  finally: pass\nf()", 3, 3),
        ("try: sys.exit(3)\nexcept SystemExit: pass", 0, 0),
        ("def f():\n  try: sys.exit(3)\n  except SystemExit: pass\nf()", 0, 0),
        ("try: sys.exit(3)\nexcept SystemExit: pass\nsys.exit(4)", 4, 4),
        ("import threading\nt = threading.Thread(target=sys.exit, args=(4,)); t.start(); t.join()", 0, 0),
        ("try: 1 / 0\nexcept Exception: sys.excepthook(*sys.exc_info())", 0, 0),
        ("old = sys.excepthook\nsys.excepthook = lambda *error: old(*error)\n1 / 0", 1, 1),
        ("import threading\nt = threading.Thread(target=lambda: 1 / 0); t.start(); t.join()", 0, 0),
        ("with run:\n  1 / 0", 1, 1),
        ("with run:\n  sys.exit(6)", 6, 6),
        ("with run:\n  raise KeyboardInterrupt", -signal.SIGINT, 255),
        ("try:\n  with run: 1 / 0\nexcept ZeroDivisionError: pass", 0, 1),
    ],
)
def test_what_ended_the_program_is_told_from_what_did_not(tmp_path, ending, process_code, exit_code):
    """A SystemExit that was caught, an exception of a thread or one that was only shown are no ends of the program."""
    code, _, _, state = run(tmp_path, f"run.log({{'a': 1}})\nrun.flush()\n{ending}\n")

    assert (code, state.exit_code) == (process_code, exit_code)
    assert state.row_count == 1


def test_another_logger_may_hook_the_same_places_and_stay_longer(tmp_path):
    """Hooks that were taken while ours were there go on calling ours when they are gone, and end somewhere."""
    body = """
class Other:
    def __init__(self):
        self.exit, self.hook = sys.exit, sys.excepthook
        sys.exit, sys.excepthook = lambda code=None: self.exit(code), lambda *error: self.hook(*error)
for number in range(3):
    Other()
    run.finish()
    run = runferry.init(dir=sys.argv[1] + str(number), settings={"silent": True, "disable_stats": True, "disable_meta": True})
sys.exit(5)
"""
    child = start(tmp_path / "a", PROLOGUE + body)

    assert child.communicate(timeout=60) == ("", "")
    assert child.returncode == 5
    assert fold(only_log(f"{tmp_path / 'a'}2")).exit_code == 5


# -- signals ---------------------------------------------------------------------------------------------------------


def test_a_handler_that_was_set_later_is_called_too(tmp_path):
    """After ours; and what `signal.signal` and `signal.getsignal` give is as if there were no other."""
    body = """
assert signal.getsignal(signal.SIGTERM) is signal.SIG_DFL
assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
def handler(number, frame):
    print("handled", number, b"before" in open(run.log_path, "rb").read(), flush=True)
assert signal.signal(signal.SIGTERM, handler) is signal.SIG_DFL
assert signal.getsignal(signal.SIGTERM) is handler
run.log({"before": 1})
os.kill(os.getpid(), signal.SIGTERM)
assert signal.signal(signal.SIGTERM, signal.SIG_IGN) is handler
os.kill(os.getpid(), signal.SIGTERM)
assert signal.signal(signal.SIGTERM, handler) is signal.SIG_IGN
for wrong in (5, "x", None):
    try: signal.signal(signal.SIGTERM, wrong)
    except (TypeError, ValueError): pass
    else: print("taken", wrong)
run.finish()
assert signal.getsignal(signal.SIGTERM) is handler
os.kill(os.getpid(), signal.SIGTERM)
"""
    code, out, err, state = run(tmp_path, body)

    assert (code, err) == (0, "")
    assert out.split("\n") == ["handled 15 True", "handled 15 True", ""]
    assert (state.exit_code, state.preempting) == (0, True)


@pytest.mark.parametrize("when", ["before", "since", "finished", "begun again"])
def test_a_handler_in_c_is_left_alone(tmp_path, when):
    """`kill -USR1` shows where a job hangs, as `faulthandler` was told to, and the job goes on."""
    body = f"""
import faulthandler
def begin():
    return runferry.init(dir=sys.argv[1] + "/b", settings={{"silent": True, "disable_stats": True, "disable_meta": True}})
when = {when!r}
if when == "before":
    run.finish()
dump = open(sys.argv[1] + "/dump", "w+")
faulthandler.register(signal.SIGUSR1, dump)
if when != "since":
    run.finish()
if when in ("before", "begun again"):
    run = begin()
os.kill(os.getpid(), signal.SIGUSR1)
time.sleep(0.1)
assert "most recent call first" in open(dump.name).read()
assert signal.getsignal(signal.SIGUSR1) is signal.SIG_DFL
os.kill(os.getpid(), signal.SIGTERM)
time.sleep(5)
"""
    child = start(tmp_path, PROLOGUE + body)

    assert child.communicate(timeout=60) == ("", "")
    assert child.returncode == -signal.SIGTERM


def test_a_run_that_another_thread_ends(tmp_path):
    """Its handlers cannot be given back there: programs go on finding their own, signals do what they did."""
    body = """
import threading
def seen():
    return [signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM, signal.SIGUSR1)]
thread = threading.Thread(target=run.finish)
thread.start(); thread.join()
assert seen() == [signal.default_int_handler, signal.SIG_DFL, signal.SIG_DFL], seen()
signal.signal(signal.SIGUSR1, lambda *_: print("told"))
os.kill(os.getpid(), signal.SIGUSR1)
run = runferry.init(dir=sys.argv[1] + "/b", settings={"silent": True, "disable_stats": True, "disable_meta": True})
run.finish()
assert seen()[:2] == [signal.default_int_handler, signal.SIG_DFL], seen()
os.kill(os.getpid(), signal.SIGUSR1)
thread = threading.Thread(target=runferry.init(dir=sys.argv[1] + "/c").finish)
thread.start(); thread.join()
os.kill(os.getpid(), signal.SIGTERM)
time.sleep(5)
"""
    child = start(tmp_path, PROLOGUE + body)
    out, err = child.communicate(timeout=60)

    assert (child.returncode, out, "Traceback" in err) == (-signal.SIGTERM, "told\ntold\n", False)


def test_event_loops_have_their_own_way_with_signals(tmp_path):
    """A loop's handler is called, and Ctrl-C cancels its task, as they look for the handlers that Python begins with."""
    body = """
import asyncio
async def terminated():
    event = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, event.set)
    os.kill(os.getpid(), signal.SIGTERM)
    await asyncio.wait_for(event.wait(), 10)
    print("terminated")
async def cancelled():
    try:
        os.kill(os.getpid(), signal.SIGINT)
        await asyncio.sleep(10)
    except asyncio.CancelledError:
        print("cancelled")
        raise
asyncio.run(terminated())
asyncio.run(cancelled())
"""
    code, out, _, state = run(tmp_path, body)

    assert (code, state.exit_code) == (-signal.SIGINT, 255)
    assert out == "terminated\ncancelled\n" or (sys.version_info < (3, 11) and out == "terminated\n")


@pytest.mark.parametrize("when", ["at once", "while the disk is slow"])
def test_a_signal_in_the_middle_of_finish(tmp_path, when):
    """What was logged is there, with an exit record: the handler ends what was begun."""
    body = f"""
import threading
from runferry.writer.filesystem import RealFileSystem
slow = RealFileSystem.sync_data
def sync_data(self, fd):
    time.sleep(0.4 if {when == "while the disk is slow"} else 0)
    slow(self, fd)
run.flush()
RealFileSystem.sync_data = sync_data
for number in range(100):
    run.log({{"n": number}})
threading.Timer(0.1 if {when == "while the disk is slow"} else 0, os.kill, (os.getpid(), signal.SIGTERM)).start()
run.finish(7)
time.sleep(5)
"""
    code, _, err, state = run(tmp_path, body)

    assert (code, err) == (-signal.SIGTERM, "")
    assert state.row_count == 100
    assert state.exit_code in {7, 143}
    assert not state.gaps


def test_signals_one_upon_the_other(tmp_path):
    """A second signal while the first one is served changes nothing of what is there in the end."""
    body = """
import threading
def send():
    for number in (signal.SIGUSR1, signal.SIGTERM, signal.SIGTERM, signal.SIGINT):
        os.kill(os.getpid(), number)
        time.sleep(0.002)
run.log({"a": 1})
threading.Thread(target=send, daemon=True).start()
time.sleep(10)
"""
    started = time.monotonic()
    code, _, _, state = run(tmp_path, body)

    assert code in {-signal.SIGTERM, -signal.SIGUSR1, -signal.SIGINT}
    assert state.row_count == 1
    assert state.exit_code in {143, 128 + signal.SIGUSR1, 255}
    assert time.monotonic() - started < 10


@pytest.mark.parametrize(
    "held",
    [
        "import logging; lock = logging._lock",
        "import _imp; lock = type('L', (), {'__enter__': lambda s: _imp.acquire_lock(), '__exit__': lambda s, *e: _imp.release_lock()})()",
        "lock = run._ending",
    ],
)
def test_a_signal_while_the_main_thread_holds_a_lock(tmp_path, held):
    """No lock that the main thread may hold keeps the handler from ending the run at once."""
    body = f"""
import threading
run.flush()
{held}
run.log({{"a": 1}})
with lock:
    os.kill(os.getpid(), signal.SIGTERM)
    time.sleep(20)
"""
    started = time.monotonic()
    code, _, err, state = run(tmp_path, body)

    assert (code, state.row_count, state.preempting, err) == (-signal.SIGTERM, 1, True, "")
    assert time.monotonic() - started < 4
