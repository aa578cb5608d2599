"""Programs of others: real stubs on disk, none of which may hold up, outlive or be counted with the sampler."""

import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest
from runferry.sampler import SamplerSettings
from runferry.sampler.command import CommandError, LineChild, run
from runferry.sampler.context import Context
from runferry.sampler.probes.cpu import CpuProbe
from runferry.sampler.probes.self_usage import OURS


@pytest.fixture
def ctx():
    return Context(SamplerSettings(), own_pids=set())


@pytest.fixture
def stub(tmp_path):
    def write(script, name="stub"):
        path = tmp_path / name
        path.write_text(f"#!/bin/sh\n{script}\n")
        path.chmod(0o755)
        return str(path)

    return write


def gone(pid):
    """Whether a process is no longer there, or a zombie that its new parent has yet to reap."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z"
    except (FileNotFoundError, ProcessLookupError):
        return True


def eventually(condition, within=5.0):
    deadline = time.monotonic() + within
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.005)


def read_pid(path):
    eventually(lambda: path.exists() and path.read_text().endswith("\n"))
    return int(path.read_text())


class TestRun:
    def test_output_status_and_environment(self, ctx, stub, monkeypatch):
        """Output and errors are kept apart, the locale is C, there is no input, a status other than 0 is no error."""
        monkeypatch.setenv("LC_ALL", "de_DE.UTF-8")
        result = run(ctx, [stub('cat; echo "$LC_ALL $1"; echo " no driver " >&2; exit 3'), "a b"])
        assert result == (3, b"C a b\n", "no driver")
        assert ctx.own_pids == set()

    def test_a_program_ended_by_a_signal(self, ctx, stub):
        """The status of a program that crashed is the negative number of the signal."""
        assert run(ctx, [stub("kill -SEGV $$")]).code == -signal.SIGSEGV

    def test_a_program_that_is_not_there(self, ctx, tmp_path):
        """A missing program and one that may not be run are told by name."""
        with pytest.raises(CommandError, match="no-such-smi cannot be run"):
            run(ctx, ["no-such-smi"])
        (tmp_path / "data").write_text("x")
        with pytest.raises(CommandError, match="data cannot be run"):
            run(ctx, [str(tmp_path / "data")])

    def test_a_file_that_is_no_program(self, ctx, tmp_path):
        """An executable of another machine fails, with the system's word for it."""
        (tmp_path / "alien").write_bytes(b"\x7fELF of another machine")
        (tmp_path / "alien").chmod(0o755)
        code, stdout, stderr = run(ctx, [str(tmp_path / "alien")])
        assert (code, stdout) == (1, b"")
        assert stderr.endswith("alien cannot be run: [Errno 8] Exec format error")

    def test_without_a_guard(self, ctx, stub, monkeypatch):
        """Where Python is embedded in another program, commands run all the same."""
        monkeypatch.setattr(sys, "executable", "/usr/bin/simulator")
        assert run(ctx, [stub("echo out")]).stdout == b"out\n"

    def test_a_slow_program_is_killed_with_its_descendants(self, ctx, stub, tmp_path):
        """After the timeout nothing of the group is left, though it ignores SIGTERM."""
        script = f"trap '' TERM; sleep 60 & echo $! > {tmp_path}/grandchild; sleep 60"
        started = time.monotonic()
        with pytest.raises(CommandError, match=r"stub did not end within 0\.3 s"):
            run(ctx, [stub(script)], timeout=0.3)
        assert time.monotonic() - started < 1
        eventually(lambda: gone(read_pid(tmp_path / "grandchild")))
        assert ctx.own_pids == set()

    def test_a_descendant_that_holds_the_output_is_not_waited_for(self, ctx, stub, tmp_path):
        """The result is there when the program has ended; what it left behind is killed."""
        started = time.monotonic()
        result = run(ctx, [stub(f"sleep 60 & echo $! > {tmp_path}/grandchild; echo done")])
        assert result == (0, b"done\n", "")
        assert time.monotonic() - started < 1
        eventually(lambda: gone(read_pid(tmp_path / "grandchild")))

    def test_endless_output(self, ctx, stub):
        """A program that prints without end is killed at the cap; much output below it arrives whole."""
        with pytest.raises(CommandError, match="stub printed more than 100000 bytes"):
            run(ctx, [stub("yes")], cap=100_000)
        assert len(run(ctx, [stub("yes | head -c 300000")]).stdout) == 300_000

    def test_many_errors(self, ctx, stub):
        """Of long error output the end is kept; it does not block the program."""
        result = run(ctx, [stub("yes error | head -c 300000 >&2; echo last >&2; echo out")])
        assert result.stdout == b"out\n"
        assert len(result.stderr) <= 400
        assert result.stderr.endswith("last")

    def test_output_that_closes_early(self, ctx, stub):
        """The status is that of the end, even if both outputs were closed before."""
        assert run(ctx, [stub("exec >&- 2>&-; sleep 0.1; exit 7")]).code == 7

    def test_it_ends_with_the_sampler(self, ctx, stub):
        """`ctx.closing` ends a command that still runs, at once."""
        threading.Timer(0.1, ctx.closing.set).start()
        started = time.monotonic()
        with pytest.raises(CommandError, match="ended with the sampler"):
            run(ctx, [stub("sleep 60")], timeout=30)
        assert time.monotonic() - started < 1

    def test_its_process_is_not_counted(self, ctx, stub, tmp_path):
        """While it runs, its pid is among those that are not counted."""
        thread = threading.Thread(target=run, args=(ctx, [stub(f"echo $$ > {tmp_path}/pid; sleep 0.2")]))
        thread.start()
        pid = read_pid(tmp_path / "pid")
        assert ctx.own_pids == {pid}
        thread.join()
        assert ctx.own_pids == set()

    def test_children_that_are_reaped_by_themselves(self, stub):
        """A program in which SIGCHLD is ignored gets its output all the same."""
        script = (
            "import signal, sys\n"
            "from runferry.sampler import SamplerSettings\n"
            "from runferry.sampler.command import run\n"
            "from runferry.sampler.context import Context\n"
            "signal.signal(signal.SIGCHLD, signal.SIG_IGN)\n"
            "print(run(Context(SamplerSettings()), [sys.argv[1]]).stdout)"
        )
        command = [sys.executable, "-c", script, stub("echo out")]
        assert subprocess.run(command, capture_output=True, text=True, check=True, timeout=20).stdout == "b'out\\n'\n"


class TestLineChild:
    def lines_until(self, child, wanted, now=0.0):
        eventually(lambda: child.newest(now) == wanted)

    def test_the_newest_whole_line(self, ctx, stub, tmp_path):
        """Of several lines the last whole one is given, once; half a line waits for its end."""
        os.mkfifo(tmp_path / "go")
        child = LineChild(ctx, [stub(f"printf 'one\\ntwo\\nthr'; read x < {tmp_path}/go; echo ee; sleep 60")])
        self.lines_until(child, b"two")
        assert child.newest(0.0) is None
        (tmp_path / "go").write_text("\n")
        self.lines_until(child, b"three")
        child.close()
        assert child.error is None

    def test_it_is_started_once_and_not_counted(self, ctx, stub):
        """Asking again starts no second program; its pid is not counted while it lives."""
        child = LineChild(ctx, [stub("echo $$; sleep 60")])
        child.newest(0.0)
        pids = set(ctx.own_pids)
        assert len(pids) == 1
        self.lines_until(child, str(*pids).encode())
        assert ctx.own_pids == pids
        child.close()
        assert ctx.own_pids == set()
        assert gone(*pids)

    def test_its_reader_is_one_of_our_threads(self, ctx, stub):
        """`sampler.cpu` counts it: it goes by the name."""
        before = set(threading.enumerate())
        child = LineChild(ctx, [stub("exec sleep 60")])
        child.newest(0.0)
        (reader,) = set(threading.enumerate()) - before
        assert reader.name.startswith(OURS)
        child.close()

    def test_restart_with_backoff(self, ctx, stub, tmp_path):
        """One that ends is started again after 5 s, 10 s ... 300 s; the error tells its status and last words."""
        (tmp_path / "starts").touch()
        child = LineChild(ctx, [stub(f"echo start >> {tmp_path}/starts; echo no device >&2; exit 4")])
        now, delays = 0.0, []
        for starts in range(1, 10):
            child.newest(now)
            eventually(lambda: (tmp_path / "starts").read_text().count("\n") == starts)  # noqa: B023 - run in the loop
            eventually(lambda: child.newest(now) is None and not ctx.own_pids)  # noqa: B023 - run in the loop
            before = now
            while not ctx.own_pids:
                now += 1.0
                child.newest(now)
                assert now - before < 1000
            delays.append(now - before)
        child.close()
        assert delays == [5, 10, 20, 40, 80, 160, 300, 300, 300]
        assert child.error == "stub ended with status 4: no device"

    def test_a_long_life_resets_the_backoff(self, ctx, stub):
        """A program that ran for longer than it was last waited for is started again after 5 s."""
        child = LineChild(ctx, [stub("echo $$; read x < /dev/null; exec sleep 60")])
        now = 0.0
        for expected in (5, 10, 5):
            lifetime = 1000.0 if expected == 5 else 1.0
            child.newest(now)
            (pid,) = ctx.own_pids
            os.kill(pid, signal.SIGKILL)
            now += lifetime
            eventually(lambda: child.newest(now) is None and not ctx.own_pids)  # noqa: B023 - run in the loop
            assert child.newest(now + expected - 0.1) is None
            assert not ctx.own_pids
            now += expected
        child.close()

    def test_a_program_that_is_not_there(self, ctx):
        """A missing program is told, and looked for again after the backoff."""
        child = LineChild(ctx, ["no-such-monitor"])
        assert child.newest(0.0) is None
        assert child.error.startswith("no-such-monitor cannot be run")
        child.close()

    def test_a_line_without_end(self, ctx, stub):
        """A program that prints no end of line is killed at the cap."""
        child = LineChild(ctx, [stub("tr '\\0' x < /dev/zero")], cap=1000)
        child.newest(0.0)
        eventually(lambda: child.newest(1.0) is None and child.error is not None)
        assert child.error == "stub printed a line of more than 1000 bytes"
        assert ctx.own_pids == set()

    def test_close_ends_what_ignores_sigterm(self, ctx, stub, tmp_path):
        """Close takes less than half a second, with descendants and without the program's consent."""
        child = LineChild(ctx, [stub(f"trap '' TERM; sleep 60 & echo $! > {tmp_path}/grandchild; echo up; sleep 60")])
        self.lines_until(child, b"up")
        started = time.monotonic()
        child.close()
        child.close()
        assert time.monotonic() - started < 0.5
        eventually(lambda: gone(read_pid(tmp_path / "grandchild")))
        assert child.newest(1e6) is None
        assert ctx.own_pids == set()

    def test_close_lets_it_clean_up(self, ctx, stub, tmp_path):
        """SIGTERM comes first."""
        child = LineChild(ctx, [stub(f"trap 'echo > {tmp_path}/cleaned; exit' TERM; echo up; sleep 60 & wait")])
        self.lines_until(child, b"up")
        child.close()
        assert (tmp_path / "cleaned").exists()


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="PR_SET_PDEATHSIG is of Linux")
@pytest.mark.parametrize("call", ["LineChild(ctx, argv).newest(0.0); time.sleep(60)", "run(ctx, argv, timeout=60)"])
def test_programs_die_with_a_killed_parent(stub, tmp_path, call):
    """SIGKILL to the sampling process ends its programs, too."""
    script = (
        "import sys, time\n"
        "from runferry.sampler import SamplerSettings\n"
        "from runferry.sampler.command import LineChild, run\n"
        "from runferry.sampler.context import Context\n"
        "ctx, argv = Context(SamplerSettings()), [sys.argv[1]]\n"
    )
    program = stub(f"echo $$ > {tmp_path}/pid; exec sleep 60")
    parent = subprocess.Popen([sys.executable, "-c", script + call, program])
    pid = read_pid(tmp_path / "pid")
    parent.kill()
    parent.wait()
    eventually(lambda: gone(pid))


@pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="needs /proc")
def test_what_a_program_used_is_not_the_runs():
    """CPU time of a program that began and ended between two samples is in ours once it is reaped, and left out."""
    ctx = Context(SamplerSettings(interval=0.1), own_pids=set())
    probe, values = CpuProbe(), {}
    ctx.begin(100.0)
    probe.sample(ctx, values)
    busy = "import time\nwhile time.process_time() < 0.4: pass"
    before = time.process_time()
    run(ctx, [sys.executable, "-c", busy])
    ours = time.process_time() - before
    ctx.begin(101.0)
    probe.sample(ctx, values)
    assert values["cpu"] / 100 * ctx.limits().cpus < ours + 0.1
