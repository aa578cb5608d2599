"""`console="redirect"`: what the descriptors get reaches its place and the log, whatever ends or hangs meanwhile."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from runferry.logformat import Gap, RunState, read_records
from support.jobs import job

pytestmark = [
    pytest.mark.skipif(os.name != "posix", reason="descriptors as POSIX has them"),
    pytest.mark.timeout(60),
]

PRELUDE = """
import ctypes, glob, os, signal, subprocess, sys, threading, time
import runferry
settings = runferry.Settings(disable_stats=True, disable_meta=True, silent=True)
def begin(console="redirect"):
    return runferry.init(console=console, settings=settings)
def until(condition):
    deadline = time.monotonic() + 20
    while not condition() and time.monotonic() < deadline:
        time.sleep(0.01)
def relays():
    "The process ids of the relays of this session."
    for path in glob.glob("/proc/[0-9]*/cmdline"):
        try:
            with open(path) as file:
                words = file.read().split("\\0")
            if any(word.endswith("relay.py") for word in words) and os.getsid(int(path.split("/")[2])) == os.getsid(0):
                yield int(path.split("/")[2])
        except OSError:
            pass
"""


def environ():
    others = ("WANDB_", "RUNFERRY_", "PYTHONUNBUFFERED")
    return {name: value for name, value in os.environ.items() if not name.startswith(others)}


def start(folder, script, **popen):
    given = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "stdin": subprocess.DEVNULL, **popen}
    return job([sys.executable, "-c", PRELUDE + script], cwd=folder, env=environ(), **given)


def done(folder, script, **popen):
    """(exit code, stdout, stderr) of a program."""
    with start(folder, script, **popen) as child:
        out, err = child.communicate(timeout=50)
    return child.returncode, out, err


def logged(folder):
    """(stream, text) of the lines in the log, which must be whole."""
    (log,) = {path.resolve() for path in Path(folder).rglob("run-*.wandb")}
    records = list(read_records(log))
    assert not [record for record in records if isinstance(record, Gap)]
    state = RunState().add_all(records)
    return [(line.stream, line.text) for line in [*state.console, *state.console_rest]]


def test_everything_that_is_written_is_logged(tmp_path):
    """Python, its buffers, the system call, children, and the C library, which had not written yet; nothing earlier."""
    script = """
print("before")
ctypes.CDLL(None).printf(b"earlier\\n")
run = begin()
print("print", flush=True)
sys.stdout.buffer.write(b"\\xff\\n")
sys.stdout.flush()
os.write(1, b"write\\n")
subprocess.run(["sh", "-c", "echo child; echo error >&2"])
ctypes.CDLL(None).printf(b"library\\n")
run.finish()
print("after")
"""
    code, out, err = done(tmp_path, script)

    assert (code, out, err) == (0, b"before\nearlier\nprint\n\xff\nwrite\nchild\nlibrary\nafter\n", b"error\n")
    found = logged(tmp_path)
    assert [text for stream, text in found if stream == "stdout"] == ["print", "\ufffd", "write", "child", "library"]
    assert [text for stream, text in found if stream == "stderr"] == ["error"]


def test_streams_that_go_to_one_place_keep_their_order(tmp_path):
    """`2>&1`: every line stands where it was written, at its place and in the log."""
    script = """
run = begin()
for number in range(300):
    os.write(1 + number % 2, b"%d\\n" % number)
run.finish()
"""
    _, out, _ = done(tmp_path, script, stderr=subprocess.STDOUT)

    assert out.split() == [b"%d" % number for number in range(300)]
    assert [text for _, text in logged(tmp_path)] == [str(number) for number in range(300)]


def test_the_times_are_those_of_the_writes(tmp_path):
    """The relay notes them: a program that holds the interpreter's lock meanwhile does not shift them."""
    script = """
run = begin()
library = ctypes.PyDLL(None)
library.write(1, b"first\\n", 6)
library.usleep(200_000)
library.write(1, b"second\\n", 7)
run.finish()
"""
    done(tmp_path, script)
    (log,) = {path.resolve() for path in tmp_path.rglob("run-*.wandb")}
    first, second = RunState().add_all(read_records(log)).console

    assert second.timestamp_ns - first.timestamp_ns > 50_000_000


def test_a_library_that_prints_with_the_lock_in_hand(tmp_path):
    """More than a pipe holds, while no thread of ours can run: nothing waits for ever, and nothing is lost."""
    script = """
run = begin()
library = ctypes.PyDLL(None)  # keeps the interpreter's lock
left = memoryview(b"y" * 79 + b"\\n") .tobytes() * 40_000
while left:
    left = left[library.write(1, left, len(left)):]
run.finish()
"""
    code, out, _ = done(tmp_path, script)

    assert (code, out) == (0, (b"y" * 79 + b"\n") * 40_000)
    assert logged(tmp_path) == [("stdout", "y" * 79)] * 40_000


def test_a_killed_program_loses_nothing_on_the_terminal(tmp_path):
    """What it had written arrives; the log has all but the last moments."""
    script = """
run = begin()
for number in range(20_000):
    print(number)
run.flush()
print("last", flush=True)
os.kill(os.getpid(), signal.SIGKILL)
"""
    code, out, _ = done(tmp_path, script)

    assert code == -signal.SIGKILL
    assert out.split() == [b"%d" % number for number in range(20_000)] + [b"last"]
    assert logged(tmp_path)[:20_000] == [("stdout", str(number)) for number in range(20_000)]


def test_the_traceback_of_the_end_is_logged(tmp_path):
    """What ends the program is the line that is looked for first."""
    code, _, err = done(tmp_path, "run = begin()\nraise ValueError('boom')\n")

    assert code == 1
    assert err.endswith(b"ValueError: boom\n")
    assert logged(tmp_path)[-1] == ("stderr", "ValueError: boom")


def test_children_go_on_after_the_end(tmp_path):
    """A child that was forked is logged; one that outlives the run holds nothing up, and still reaches the terminal."""
    script = """
run = begin()
done, said = os.pipe()
if not os.fork():
    os.write(1, b"child\\n")
    subprocess.run(["echo", "grandchild"])
    os.write(said, b"x")
    sys.stdin.readline()
    os.write(1, b"late\\n")
    os._exit(0)
os.read(done, 1)
began = time.monotonic()
run.finish()
print(f"{time.monotonic() - began < 1.5}", flush=True)
os._exit(0)
"""
    with start(tmp_path, script, stdin=subprocess.PIPE) as child:
        assert [child.stdout.readline() for _ in range(3)] == [b"child\n", b"grandchild\n", b"True\n"]
        assert child.wait(10) == 0
        out, _ = child.communicate(b"go\n", timeout=10)

    assert out == b"late\n"
    assert logged(tmp_path) == [("stdout", "child"), ("stdout", "grandchild")]


def test_each_stream_ends_with_its_last_writer(tmp_path):
    """Who reads the output to its end does not wait for a process that has only the errors."""
    with start(tmp_path, "run = begin()\nsubprocess.Popen(['sleep', '60'], stdout=subprocess.DEVNULL)\n") as child:
        assert child.stdout.read() == b""


def test_a_child_that_never_stops_writing_holds_nothing_up(tmp_path):
    """The end waits for what was written before it, not for what comes meanwhile."""
    script = """
run = begin()
subprocess.run(["echo", "talk"])
talker = subprocess.Popen(["sh", "-c", "while :; do echo talk; done"])
began = time.monotonic()
run.finish()
took = time.monotonic() - began
talker.kill()
os.write(2, b"%d" % (took * 1000))
"""
    _, _, err = done(tmp_path, script, stdout=subprocess.DEVNULL)

    assert int(err) < 3000
    assert logged(tmp_path)[0] == ("stdout", "talk")


def test_a_terminal_that_is_stopped_holds_up_nothing_for_ever(tmp_path):
    """Nobody reads: the program waits in its write, as without us; the run's end is bounded, and says what is missing."""
    script = """
run = begin()
from runferry.writer import redirect
redirect.LINGER_S = 0.5
threading.Thread(target=lambda: os.write(1, b"z" * 10_000_000), daemon=True).start()
time.sleep(0.2)
began = time.monotonic()
for _ in range(20):
    run.flush()  # the first one waits, the others know
dropped = run.finish().others_dropped
took = int((time.monotonic() - began) * 1000)
with open("found", "w") as file:
    print(took, dropped, file=file)
os._exit(0)
"""
    with start(tmp_path, script) as child:
        assert child.wait(30) == 0
    took, dropped = map(int, (tmp_path / "found").read_text().split())

    assert 1000 <= took < 8000
    assert dropped == 1


def test_a_terminal_stays_one(tmp_path):
    """Size, `isatty` and line ends are those of the real terminal; a progress bar shows as it was drawn."""
    import fcntl
    import pty
    import struct
    import termios

    ours, theirs = pty.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("4H", 24, 91, 0, 0))
    script = """
run = begin()
print(sys.stdout.isatty(), sys.stderr.isatty(), os.get_terminal_size(1).columns)
print("1%", end="\\r")
print("2%", file=sys.stderr)
run.finish()
print("after")
"""
    with start(tmp_path, script, stdout=theirs, stderr=theirs) as child:
        os.close(theirs)
        assert child.wait(30) == 0
        shown = b""
        try:
            while data := os.read(ours, 1000):
                shown += data
        except OSError:  # everybody on the other side has gone
            pass
        os.close(ours)

    assert shown == b"True True 91\r\n1%\r2%\r\nafter\r\n"
    assert logged(tmp_path) == [("stdout", "True True 91"), ("stdout", "2%")]


def test_the_terminal_follows_the_size_of_ours(tmp_path):
    """A window that changes its size changes the program's."""
    import fcntl
    import pty
    import struct
    import termios

    ours, theirs = pty.openpty()
    script = """
run = begin()
print("ready")
until(lambda: os.get_terminal_size(1).columns == 57)
print(os.get_terminal_size(1).columns)
"""
    with start(tmp_path, script, stdout=theirs) as child, os.fdopen(ours, "rb", buffering=0) as terminal:
        os.close(theirs)
        assert terminal.readline() == b"ready\r\n"
        fcntl.ioctl(ours, termios.TIOCSWINSZ, struct.pack("4H", 24, 57, 0, 0))
        os.killpg(child.pid, signal.SIGWINCH)
        assert terminal.readline() == b"57\r\n"


def test_what_a_program_does_not_take_is_counted(tmp_path):
    """The relay keeps a bounded number of bytes for a program that is stopped, and tells how much it missed."""
    script = """
from runferry.writer import relay
relay.MAX_WAITING_BYTES = 400
source, target = os.pipe()
outbox = relay.Outbox(target)
for _ in range(4):
    outbox.put(relay.DATA, data=b"x" * 150)
outbox.put(relay.SYNCED)
threading.Thread(target=outbox.run, daemon=True).start()
while True:
    kind, _, length, _ = relay.FRAME.unpack(os.read(source, relay.FRAME.size))
    print(kind, length)
    if kind == relay.SYNCED:
        break
    if kind == relay.DATA:
        os.read(source, length)
"""
    code, out, _ = done(tmp_path, script)

    assert (code, out) == (0, b"1 150\n1 150\n4 2\n2 0\n")


def test_a_reader_that_has_gone_ends_the_program_as_ever(tmp_path):
    """`| head`: the next write says so, a child's too."""
    script = """
run = begin()
child = subprocess.Popen(["yes"])
try:
    for number in range(10_000_000):
        print(number)
except BrokenPipeError:
    os.write(2, b"broken %d" % child.wait())
    os._exit(0)
"""
    with start(tmp_path, script) as child:
        assert child.stdout.readline() in (b"0\n", b"y\n")
        child.stdout.close()
        assert child.stderr.read() == b"broken %d" % -signal.SIGPIPE


def test_a_full_disk_below_the_output_is_named(tmp_path):
    """What `> out` cannot hold is in the log, and a warning says so."""
    with Path("/dev/full").open("wb") as full:
        code, _, err = done(tmp_path, "run = begin()\nprint('x')\nrun.flush()\nrun.finish()\n", stdout=full)

    assert code == 0
    assert b"stdout takes no more output (No space left on device)" in err
    assert ("stdout", "x") in logged(tmp_path)


def test_a_relay_that_is_killed(tmp_path):
    """One warning; the program and its children write on, and Python's output is still logged. SIGPIPE ends nothing."""
    script = """
from runferry.writer import redirect
readable = redirect.readable
def slowly(fd, timeout_ms=None):
    found = readable(fd, timeout_ms)
    time.sleep(0 if timeout_ms == 0 else 0.1)  # the end of the run comes before what the child wrote is taken
    return found
redirect.readable = slowly
redirect.LINGER_S = 1000.0  # nobody waits for a relay that is gone
signal.signal(signal.SIGPIPE, signal.SIG_DFL)
run = begin()
print("one", flush=True)
child = subprocess.Popen(["sh", "-c", "read line; echo child"], stdin=subprocess.PIPE)
run.flush()
for relay in relays():
    os.kill(relay, signal.SIGKILL)
until(lambda: "write" in vars(sys.stdout))
print("two", flush=True)
child.communicate(b"go\\n")
run.finish()
print("after")
"""
    code, out, err = done(tmp_path, script)

    assert (code, out) == (0, b"one\ntwo\nchild\nafter\n")
    assert err.count(b"WARNING") == 1
    assert [text for stream, text in logged(tmp_path) if stream == "stdout"] == ["one", "two", "child"]


def test_signals_to_the_whole_job_leave_the_relay(tmp_path):
    """A scheduler's signals reach every process: what the program says last is still passed on and logged."""
    script = """
def last(*_):
    print("last words", flush=True)
    sys.exit(3)
others = signal.valid_signals() - {signal.SIGKILL, signal.SIGSTOP, signal.SIGTERM, signal.SIGCHLD}
for number in others:
    signal.signal(number, lambda *_: None)
signal.signal(signal.SIGTERM, last)
run = begin()
for number in others:
    os.killpg(0, number)
os.killpg(0, signal.SIGTERM)
time.sleep(10)
"""
    code, out, err = done(tmp_path, script)

    assert (code, out, err) == (3, b"last words\n", b"")
    assert logged(tmp_path) == [("stdout", "last words")]


def test_a_relay_that_is_killed_while_the_run_ends(tmp_path):
    """The streams are as they were found all the same."""
    script = """
from runferry.writer import redirect
flush = redirect.flush
run = begin()
def kill():
    for relay in relays():
        os.kill(relay, signal.SIGKILL)
    until(lambda: "write" in vars(sys.stdout))
    flush()
redirect.flush = kill
run.finish()
print(sorted(vars(sys.stdout)))
"""
    _, out, _ = done(tmp_path, script)

    assert out == b"['mode']\n"


def test_a_thread_that_waits_for_a_line_holds_nothing_up(tmp_path):
    """`input()` on a terminal has the C library's stdin locked until the user answers: the end does not wait for that."""
    script = """
run = begin()
library = ctypes.CDLL(None)
asking = threading.Thread(target=library.flockfile, args=(ctypes.c_void_p.in_dll(library, "stdin"),))
asking.start()
asking.join()
library.printf(b"library\\n")
run.flush()
run.finish()
os._exit(0)
"""
    with start(tmp_path, script) as child:
        out, _ = child.communicate(timeout=20)

    assert out == b"library\n"
    assert logged(tmp_path) == [("stdout", "library")]


@pytest.mark.parametrize("closed", [">&-", ">&- 2>&-", "<&- >&- 2>&-"])
@pytest.mark.parametrize("console", ["redirect", "wrap", "off"])
def test_a_console_that_is_closed(tmp_path, closed, console):
    """The log does not take its place: what is printed all the same does not land in it."""
    script = f"""
run = begin({console!r})
for fd in (1, 2):
    try:
        os.write(fd, b"x" * 1000)
    except OSError:
        pass
run.log({{"a": 1}})
run.finish()
"""
    (tmp_path / "script.py").write_text(PRELUDE + script)
    command = f"exec {sys.executable} script.py {closed}"
    subprocess.run(["sh", "-c", command], cwd=tmp_path, env=environ(), capture_output=True, check=True)

    assert all(stream == "stderr" for stream, _ in logged(tmp_path))


def test_many_runs_leave_nothing_behind(tmp_path):
    """No descriptor, thread or process, with few descriptors to spend."""
    script = """
import resource
resource.setrlimit(resource.RLIMIT_NOFILE, (24, 24))
for number in range(25):
    run = begin()
    os.write(1, b"%d\\n" % number)
    run.finish()
    if number == 0:
        before = os.listdir("/proc/self/fd")
until(lambda: not list(relays()))
print(os.listdir("/proc/self/fd") == before, threading.active_count(), list(relays()))
"""
    code, out, err = done(tmp_path, script)

    assert (code, err) == (0, b"")
    assert out.splitlines() == [b"%d" % number for number in range(25)] + [b"True 1 []"]


def test_without_descriptors_it_falls_back(tmp_path):
    """One warning, and what Python itself writes is logged."""
    script = """
import resource
run = begin("off")
used = len(os.listdir("/proc/self/fd"))
resource.setrlimit(resource.RLIMIT_NOFILE, (used + 2, used + 2))
from runferry.writer import console
share = console.capture("redirect", run._console, run._warn)
print("seen")
os.write(1, b"not seen\\n")
share.stop()
run.finish()
"""
    code, _, err = done(tmp_path, script)

    assert code == 0
    assert err.count(b"WARNING") == 1
    assert b"Too many open files" in err
    assert [text for stream, text in logged(tmp_path) if stream == "stdout"] == ["seen"]


@pytest.mark.parametrize("console", ["redirect", "wrap"])
def test_output_while_the_run_ends(tmp_path, console):
    """50 threads that print all the time lose no line at its place, whenever the run ends."""
    script = f"""
sys.stdout.reconfigure(write_through=True)  # buffered text of many threads is mixed up by CPython 3.11 itself
run = begin({console!r})
def work(number):
    for count in range(100):
        print(f"{{number}}.{{count}}\\n", end="")
threads = [threading.Thread(target=work, args=(number,)) for number in range(50)]
for thread in threads:
    thread.start()
run.finish()
for thread in threads:
    thread.join()
"""
    _, out, _ = done(tmp_path, script)
    lines = out.decode().split()

    assert sorted(lines) == sorted(f"{number}.{count}" for number in range(50) for count in range(100))
    assert {text for _, text in logged(tmp_path)} <= set(lines)


def test_two_runs_at_a_time(tmp_path):
    """They share the capture: each logs what was written while it went on, and the last gives the descriptors back."""
    script = """
first = begin()
os.write(1, b"a\\n")
second = runferry.init(console="redirect", settings=settings, reinit="create_new", dir="second")
os.write(1, b"b\\n")
first.finish()
os.write(1, b"c\\n")
second.finish()
os.write(1, b"d\\n")
until(lambda: not list(relays()))
print(list(relays()))
"""
    _, out, err = done(tmp_path, script)

    assert (out, err) == (b"a\nb\nc\nd\n[]\n", b"")
    (tmp_path / "first").mkdir()
    (tmp_path / "wandb").rename(tmp_path / "first" / "wandb")
    assert [text for _, text in logged(tmp_path / "first")] == ["a", "b"]
    assert [text for _, text in logged(tmp_path / "second")] == ["b", "c"]


def test_streams_that_lead_elsewhere_are_taken_too(tmp_path):
    """In notebooks Python's streams are not the descriptors: both are logged, each piece once."""
    script = """
import io
class OutStream(io.TextIOBase):
    def write(self, text):
        shown.append(text)
        return len(text)
OutStream.__module__ = "ipykernel.iostream"
shown, console, sys.stdout = [], sys.stdout, OutStream()
class Tee(io.TextIOBase):
    def write(self, text):
        return errors.write(text)
errors, sys.stderr = sys.stderr, Tee()
run = begin()
print("cell")
print("once", file=sys.stderr)
os.write(1, b"descriptor\\n")
run.finish()
console.write("".join(shown))
"""
    code, out, err = done(tmp_path, script)

    assert (code, out, err) == (0, b"descriptor\ncell\n", b"once\n")
    assert sorted(logged(tmp_path)) == [("stderr", "once"), ("stdout", "cell"), ("stdout", "descriptor")]


def test_a_descriptor_that_the_program_moved_is_left_alone(tmp_path):
    """What it sends to a file of its own while the run goes on stays there, and goes there after the end too."""
    script = """
run = begin()
os.dup2(os.open("own", os.O_CREAT | os.O_WRONLY), 1)
os.write(1, b"during ")
run.finish()
os.write(1, b"after")
"""
    _, out, _ = done(tmp_path, script)

    assert (out, (tmp_path / "own").read_bytes()) == (b"", b"during after")
    assert logged(tmp_path) == []


def test_a_program_that_becomes_another_writes_on(tmp_path):
    """After `exec` the output still arrives, unlogged, and `wait` knows of no child of ours."""
    script = """
run = begin()
os.write(1, b"before\\n")
run.flush()
try:
    os.wait()
except ChildProcessError:
    os.execv("/bin/sh", ["sh", "-c", "echo after"])
"""
    code, out, _ = done(tmp_path, script)

    assert (code, out) == (0, b"before\nafter\n")
    assert logged(tmp_path) == [("stdout", "before")]


def test_an_interpreter_inside_another_program_is_not_started_again(tmp_path):
    """There `sys.executable` is that program: it would do its work twice. Python's own output is logged."""
    script = """
sys.executable = "/bin/echo"
run = begin()
print("seen")
run.finish()
"""
    code, out, err = done(tmp_path, script)

    assert (code, out) == (0, b"seen\n")
    assert b"/bin/echo" in err
    assert ("stdout", "seen") in logged(tmp_path)
