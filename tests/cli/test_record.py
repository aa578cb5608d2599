"""`runferry record`: a command's console, exit code and samples, as its user and its log see them."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from runferry.logformat import RunState, read_records
from support.jobs import job

pytestmark = [
    pytest.mark.skipif(os.name != "posix", reason="signals and terminals as POSIX has them"),
    pytest.mark.timeout(60),
]

PROGRAM = [sys.executable, "-m", "runferry.cli", "record"]
HASTY = """
import sys
from runferry.writer import command
command.LINGER_S = 0.3
sys.argv[0] = "runferry"
from runferry.cli import main
main()
"""
"""Waits less for processes that are left behind."""


def clean():
    names = ("WANDB_", "RUNFERRY_", "SLURM_", "RANK", "LOCAL_RANK")
    return {name: value for name, value in os.environ.items() if not name.startswith(names)}


def record(folder, *command, options=(), hasty=False, **popen):
    program = [sys.executable, "-c", HASTY, "record"] if hasty else PROGRAM
    given = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True, **popen}
    return job([*program, "--dir", folder, *options, "--", *command], env=clean(), **given)


def done(folder, *command, options=(), **popen):
    """(exit code, stdout, stderr, fold of the log)."""
    with record(folder, *command, options=("--quiet", *options), **popen) as child:
        out, err = child.communicate(timeout=50)
    return child.returncode, out, err, fold(folder)


def fold(folder):
    (log,) = Path(folder).rglob("run-*.wandb")
    return RunState().add_all(read_records(log))


def lines(state):
    return [(line.stream, line.text) for line in [*state.console, *state.console_rest]]


def test_output_passes_through_and_is_logged(tmp_path):
    """Both streams, apart, unchanged; the last line needs no line end."""
    code, out, err, state = done(
        tmp_path,
        sys.executable,
        "-c",
        "import sys; print('one'); print('two', file=sys.stderr); sys.stdout.write('rest')",
    )

    assert (code, out, err) == (0, "one\nrest", "two\n")
    assert sorted(lines(state)) == [("stderr", "two"), ("stdout", "one"), ("stdout", "rest")]
    assert state.exit_code == 0


@pytest.mark.parametrize(
    ("script", "code"), [("exit 0", 0), ("exit 7", 7), ("kill -TERM $$", 143), ("kill -KILL $$", 137)]
)
def test_the_exit_code_is_the_commands(tmp_path, script, code):
    """Passed on and recorded; 128 + n for a signal."""
    found, _, _, state = done(tmp_path, "sh", "-c", script)

    assert (found, state.exit_code) == (code, code)


def test_the_whole_tree_is_sampled(tmp_path):
    """Samples of the command and its children, their metadata the command's own, secrets hidden."""
    sampled = 'test $(cat wandb/run-*/run-*.wandb | grep -ao "proc.memory.rss[M]B" | wc -l) -ge 2'  # its own arguments are logged too
    script = f"sleep 60 & until {sampled}; do sleep 0.05; done; kill $!"
    command = ("sh", "-c", script, "--api-key", "hunter2hunter2")
    code, _, _, state = done(tmp_path, *command, options=("--interval", "0.1"), cwd=tmp_path)

    assert code == 0
    assert sum("proc.memory.rssMB" in sample.values for sample in state.samples) >= 2
    assert list(state.environment.args)[:2] == ["-c", script]
    (log,) = tmp_path.rglob("run-*.wandb")
    assert b"hunter2" not in log.read_bytes()


@pytest.mark.skipif(not hasattr(os, "waitid"), reason="an ended process cannot be looked at before it is reaped")
def test_what_a_command_shorter_than_the_interval_used(tmp_path):
    """The last sample is taken while its CPU time can still be read; of the memory of what has ended nothing is said."""
    busy = "import time\nwhile time.process_time() < 0.8: pass"
    code, _, _, state = done(tmp_path, sys.executable, "-c", busy, options=("--no-extended",))
    samples = [{**sample.values} for sample in state.samples]

    assert code == 0
    assert len(samples) >= 2
    assert samples[-1]["cpu"] > 1
    assert "proc.memory.rssMB" in samples[0]
    assert not {"proc.memory.rssMB", "proc.memory.percent", "proc.cpu.threads"} & samples[-1].keys()
    assert "memory_percent" in samples[-1]


@pytest.mark.parametrize("option", ["--probe", "--skip-probe"])
def test_a_probe_that_there_is_not(tmp_path, option):
    """A typing error: 2, before the command is run."""
    with record(tmp_path, "touch", str(tmp_path / "ran"), options=(option, "nope")) as child:
        _, err = child.communicate(timeout=50)

    assert (child.returncode, list(tmp_path.iterdir())) == (2, [])
    assert "there is no probe 'nope'; there are " in err


def test_settings_that_name_nothing_are_told(tmp_path):
    """Also with --quiet, which leaves warnings: of a setting's value, and of what the sampler does not find."""
    options = ("--quiet", "--disk", "/nope", "--probe", "disk_usage", "--probe", "load")
    wrong = {**clean(), "RUNFERRY_GPU_DEVICE_IDS": '["0"'}
    with job(
        [*PROGRAM, "--dir", tmp_path, *options, "--", "sleep", "0.4"],
        env=wrong, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    ) as child:  # fmt: skip
        _, err = child.communicate(timeout=50)

    assert child.returncode == 0
    assert "it begins as a JSON list, and is none" in err
    assert "disk_usage:/nope: this path cannot be reached" in err
    assert "probe 'load' does not run" in err
    assert len(err.splitlines()) == 3


def test_options_name_the_run(tmp_path):
    """Project, name, id, group, tags, and a command whose options look like ours."""
    options = ("--project", "p", "--name", "n", "--id", "x1", "--group", "g", "--tag", "a", "--tag", "b")
    code, out, _, state = done(tmp_path, "echo", "--project", "other", options=options)
    info = state.info

    assert (code, out) == (0, "--project other\n")
    assert (info.project, info.display_name, info.run_id, info.group, info.tags) == ("p", "n", "x1", "g", ["a", "b"])


def test_a_command_that_is_not_there(tmp_path):
    """127 as in a shell, one line, and no log."""
    with record(tmp_path, "no-such-command") as child:
        _, err = child.communicate(timeout=50)

    assert child.returncode == 127
    assert "no-such-command" in err
    assert "Traceback" not in err
    assert list(tmp_path.rglob("*.wandb")) == []


def test_wrong_usage(tmp_path):
    """No command, or a setting that cannot be: 2, and what to do."""
    for arguments in (["record"], ["record", "--id", "a/b", "--", "true"]):
        child = subprocess.run(
            [sys.executable, "-m", "runferry.cli", *arguments], capture_output=True, text=True, env=clean(), check=False,
            cwd=tmp_path,
        )  # fmt: skip
        assert child.returncode == 2
        assert "Usage" in child.stderr


def test_a_reader_that_has_gone_ends_the_command_as_ever(tmp_path):
    """`| head`: the command's own writes fail, and it ends; what it wrote until then is in the log."""
    with record(tmp_path, "yes", options=("--quiet",)) as child:
        assert child.stdout.readline() == "y\n"
        child.stdout.close()
        assert child.wait(30) == 128 + signal.SIGPIPE

    assert fold(tmp_path).exit_code == 128 + signal.SIGPIPE
    assert lines(fold(tmp_path))[0] == ("stdout", "y")


def test_a_full_disk_below_the_output_is_named(tmp_path):
    """What `> out` cannot hold is in the log; one warning says so, and the command ends as it would have."""
    script = "echo one; sleep 0.1; echo two; exit 4"
    with Path("/dev/full").open("wb") as full:
        code, _, err, state = done(tmp_path, "sh", "-c", script, stdout=full)

    assert (code, state.exit_code) == (4, 4)
    assert err == "runferry: WARNING stdout takes no more output (No space left on device); the log goes on with it\n"
    assert lines(state) == [("stdout", "one"), ("stdout", "two")]


def test_a_folder_that_no_log_can_be_made_in(tmp_path):
    """The command runs all the same, its exit code is kept, and a warning says what became of its log."""
    (tmp_path / "file").touch()
    with record(tmp_path / "file" / "x", "sh", "-c", "echo one; exit 4", options=("--quiet",)) as child:
        out, err = child.communicate(timeout=50)

    assert (child.returncode, out) == (4, "one\n")
    assert "no log can be made in" in err


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGUSR1])
def test_signals_are_passed_on(tmp_path, number):
    """The command decides what a signal means; its rows and its exit code are in the log."""
    script = f"""
import signal, sys, time
def handler(number, frame):
    print("got", number, flush=True)
    sys.exit(9)
signal.signal({int(number)}, handler)
print("ready", flush=True)
time.sleep(30)
"""
    with record(tmp_path, sys.executable, "-c", script, options=("--quiet",)) as child:
        assert child.stdout.readline() == "ready\n"
        child.send_signal(number)
        out, err = child.communicate(timeout=30)
    state = fold(tmp_path)

    assert (child.returncode, out, err) == (9, f"got {int(number)}\n", "")
    assert state.exit_code == 9
    assert ("stdout", f"got {int(number)}") in lines(state)


def test_a_signal_that_another_thread_is_given_is_passed_on(tmp_path):
    """Whichever thread the system picks, and however the main one waits: the command is told at once."""
    command = "import signal; signal.signal(10, lambda *_: exit(9)); print('ready', flush=True); signal.pause()"
    script = f"""
import signal, sys, threading, time, pathlib
def poke():
    while b"ready" not in b"".join(log.read_bytes() for log in pathlib.Path({str(tmp_path)!r}).rglob("*.wandb")):
        time.sleep(0.01)
    signal.pthread_kill(threading.get_ident(), 10)
threading.Thread(target=poke, daemon=True).start()
sys.argv = ["runferry", "record", "--quiet", "--dir", {str(tmp_path)!r}, "--", sys.executable, "-c", {command!r}]
from runferry.cli import main
main()
"""
    with job([sys.executable, "-c", script], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as child:
        out, err = child.communicate(timeout=50)

    assert (child.returncode, out, err) == (9, "ready\n", "")


def test_a_terminal_on_request(tmp_path):
    """`--pty`: the command writes as to a terminal; the log has its progress bar's last state."""
    script = "import sys; print(sys.stdout.isatty(), sys.stderr.isatty()); sys.stdout.write('1%\\r2%\\n')"
    code, out, _, state = done(tmp_path, sys.executable, "-c", script, options=("--pty",))

    assert (code, out) == (0, "True True\n1%\n2%\n")  # text mode reads \r as a line end
    assert lines(state) == [("stdout", "True True"), ("stdout", "2%")]


ON_A_TERMINAL = """
import fcntl, os, sys, termios
fcntl.ioctl(1, termios.TIOCSCTTY, 0)
os.execv(sys.executable, [sys.executable, *sys.argv[1:]])
"""


@contextlib.contextmanager
def on_a_terminal(folder, *command, **popen):
    """(child, file of the terminal) of a recorded command whose group is the terminal's foreground."""
    import pty

    ours, theirs = pty.openpty()
    program = [sys.executable, "-c", ON_A_TERMINAL, *PROGRAM[1:], "--quiet", "--dir", folder, "--", *command]
    given = {"stdin": theirs, "stdout": theirs, "stderr": theirs, "env": clean(), **popen}
    with os.fdopen(ours, "r+b", buffering=0) as terminal, job(program, **given) as child:
        os.close(theirs)
        yield child, terminal


def test_a_key_on_the_terminal_is_told_once(tmp_path):
    """Ctrl-C reaches the command from the terminal itself, also where its standard input is something else."""
    script = """
import signal, time
heard = []
signal.signal(signal.SIGINT, lambda *_: heard.append(1))
print("ready", flush=True)
while not heard:
    time.sleep(0.01)
time.sleep(0.3)
print(len(heard), "heard")
"""
    with on_a_terminal(tmp_path, sys.executable, "-c", script, stdin=subprocess.DEVNULL) as (child, terminal):
        assert terminal.readline() == b"ready\r\n"
        terminal.write(b"\3")
        assert terminal.readline() == b"^C1 heard\r\n"
        assert child.wait(30) == 0


def test_a_program_that_asks(tmp_path):
    """A dialogue on the terminal: prompts show at once, answers reach the command, and the log has both sides."""
    script = "name = input('name? '); print('hello', name); exit(5)"
    with on_a_terminal(tmp_path, sys.executable, "-c", script) as (child, terminal):
        shown = b""
        while b"? " not in shown:
            shown += terminal.read(100)
        terminal.write(b"you\n")
        assert terminal.readline() == b"you\r\n"
        assert terminal.readline() == b"hello you\r\n"
        assert child.wait(30) == 5

    assert ("stdout", "hello you") in [(stream, text.removeprefix("name? ")) for stream, text in lines(fold(tmp_path))]


def test_bytes_that_are_no_text(tmp_path):
    """They pass through as they are, and the log has what can be read of them."""
    _, out, _, state = done(tmp_path, "printf", r"a\377b\303\251\n", text=False)

    assert out == b"a\xffb\xc3\xa9\n"
    assert lines(state) == [("stdout", "a\ufffdb\u00e9")]


def test_a_process_left_behind_does_not_hold_it_up(tmp_path):
    """A daemon that keeps the pipe open is not waited for."""
    with record(tmp_path, "sh", "-c", "echo x; sleep 60 & exit 3", options=("--quiet",), hasty=True) as child:
        assert child.wait(20) == 3

    assert ("stdout", "x") in lines(fold(tmp_path))


def test_other_ranks_run_their_command_too(tmp_path):
    """Under a launcher only rank 0 is a run; the others' commands run, print and exit as ever."""
    ranked = ("env", "RANK=3", "LOCAL_RANK=3", *PROGRAM, "--dir", tmp_path, "--", "sh", "-c", "echo x; exit 3")
    with job(ranked, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=clean()) as child:
        out, _ = child.communicate(timeout=50)

    assert (child.returncode, out) == (3, "x\n")
    assert list(tmp_path.rglob("*.wandb")) == []


def test_a_slow_reader_gets_all_of_the_output(tmp_path):
    """What the command left in the pipe at its end reaches a reader that takes longer than output is awaited."""
    with record(tmp_path, "seq", "1", "30000", options=("--quiet",), hasty=True) as child:
        time.sleep(1.2)  # pipes hold 64 KiB, the output is 168 kB
        out, _ = child.communicate(timeout=30)

    assert out == "".join(f"{number}\n" for number in range(1, 30001))
    assert [text for _, text in lines(fold(tmp_path))] == out.splitlines()


def test_a_talking_process_left_behind_does_not_hold_it_up(tmp_path):
    """A daemon that goes on writing is not waited for either."""
    script = "(while echo x; do sleep 0.05; done) & exit 3"
    with record(tmp_path, "sh", "-c", script, options=("--quiet",), hasty=True) as child:
        assert child.stdout.readline() == "x\n"
        assert child.wait(20) == 3


def test_the_terminal_follows_the_size_of_ours(tmp_path):
    """A window that changes its size changes the command's, and the command is told."""
    import fcntl
    import pty
    import struct
    import termios

    def resize(fd, rows, columns):
        fcntl.ioctl(fd, termios.TIOCSWINSZ, struct.pack("4H", rows, columns, 0, 0))

    script = """
import os, signal, time
told = []
signal.signal(signal.SIGWINCH, lambda *_: told.append(1))
print(os.get_terminal_size(1).columns, flush=True)
while not told:
    time.sleep(0.01)
print(os.get_terminal_size(1).columns, flush=True)
"""
    ours, theirs = pty.openpty()
    resize(theirs, 24, 91)
    command = (sys.executable, "-c", script)
    with (
        record(tmp_path, *command, options=("--quiet", "--pty"), stdout=theirs) as child,
        os.fdopen(ours, "rb", buffering=0) as terminal,
    ):
        os.close(theirs)
        assert terminal.readline().strip() == b"91"
        resize(terminal.fileno(), 24, 57)
        child.send_signal(signal.SIGWINCH)
        assert terminal.readline().strip() == b"57"
        assert child.wait(30) == 0


def test_streams_that_go_to_one_place_keep_their_order(tmp_path):
    """`> out 2>&1`, as batch systems have it: every line stands where the command wrote it."""
    script = "i=0; while [ $i -lt 200 ]; do echo o$i; echo e$i >&2; i=$((i+1)); done"
    _, out, _, state = done(tmp_path, "sh", "-c", script, stderr=subprocess.STDOUT)

    assert out.split() == [f"{stream}{number}" for number in range(200) for stream in "oe"]
    assert [text for _, text in lines(state)] == out.split()


def test_only_what_is_a_terminal_becomes_one(tmp_path):
    """`2> errors` on a terminal: the errors still go to the file, and the command sees which is which."""
    import pty

    ours, theirs = pty.openpty()
    script = "import sys; print('no' if sys.stderr.isatty() else 'yes', file=sys.stderr); print(sys.stdout.isatty())"
    _, _, err, state = done(tmp_path, sys.executable, "-c", script, stdout=theirs)
    os.close(theirs)

    assert err == "yes\n"
    assert os.read(ours, 100) == b"True\r\n"
    os.close(ours)
    assert sorted(lines(state)) == [("stderr", "yes"), ("stdout", "True")]


@pytest.mark.parametrize("options", [(), ("--pty",)])
def test_standard_descriptors_that_are_closed(tmp_path, options):
    """`>&- <&-`: nothing of ours takes their place, the command runs, and its log is whole."""
    script = (
        f"{sys.executable} -m runferry.cli record --quiet --dir {tmp_path} {' '.join(options)} --"
        " sh -c 'echo out; echo err >&2; exit 3' >&- <&-"
    )
    with job(["sh", "-c", script], stderr=subprocess.PIPE, env=clean()) as child:
        _, err = child.communicate(timeout=50)

    assert (child.returncode, err) == (3, b"err\n")
    assert sorted(lines(fold(tmp_path))) == [("stderr", "err"), ("stdout", "out")]


def test_much_output_takes_little_memory(tmp_path):
    """30 MB arrive whole, here and in the log; what waits in between is bounded."""
    script = """
import resource, subprocess, sys
code = subprocess.call(sys.argv[1:], stdout=subprocess.DEVNULL)
print(code, resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss // 1024)
"""
    command = "import sys; [sys.stdout.write('x' * 99_999 + '\\n') for _ in range(300)]"
    recorded = (*PROGRAM, "--quiet", "--dir", tmp_path, "--", sys.executable, "-c", command)
    with job([sys.executable, "-c", script, *recorded], stdout=subprocess.PIPE, text=True, env=clean()) as child:
        out, _ = child.communicate(timeout=50)
    code, rss_mib = map(int, out.split())
    found = lines(fold(tmp_path))

    assert code == 0
    assert rss_mib < 160
    assert [len(text) for _, text in found] == [99_999] * 300


def test_standard_input_is_the_commands(tmp_path):
    """It reads what we were given, to its end."""
    with record(tmp_path, "cat", options=("--quiet",), stdin=subprocess.PIPE) as child:
        out, _ = child.communicate("one\ntwo", timeout=30)

    assert (child.returncode, out) == (0, "one\ntwo")
    assert lines(fold(tmp_path)) == [("stdout", "one"), ("stdout", "two")]


def test_a_key_that_stops_the_job_stops_both_and_both_go_on(tmp_path):
    """Ctrl-Z and `fg`: the shell sees its job stopped, and afterwards output goes on where it was."""
    script = "import os, signal; print('a', flush=True); os.killpg(0, signal.SIGTSTP); print('b', flush=True)"
    group = {"preexec_fn": os.setpgrp, "start_new_session": False}  # in a session of its own nobody could go on with it
    with record(tmp_path, sys.executable, "-c", script, options=("--quiet",), **group) as child:
        _, status = os.waitpid(child.pid, os.WUNTRACED)
        assert os.WIFSTOPPED(status)
        os.killpg(child.pid, signal.SIGCONT)
        out, _ = child.communicate(timeout=30)

    assert (child.returncode, out) == (0, "a\nb\n")
    assert lines(fold(tmp_path)) == [("stdout", "a"), ("stdout", "b")]


def test_what_is_sampled_is_chosen(tmp_path):
    """Probes by name, paths of disks, and a label on every key."""
    options = ("--label", "n1", "--probe", "memory", "--probe", "disk_usage", "--disk", "/tmp", "--interval", "0.1")
    _, _, _, state = done(tmp_path, "sleep", "0.5", options=options)
    keys = {key for sample in state.samples for key in sample.values if not key.startswith("sampler.")}

    assert {"memory_percent/l:n1", "disk./tmp.usagePercent/l:n1"} <= keys
    assert all(key.startswith(("memory_", "proc.memory.", "disk./tmp.")) and key.endswith("/l:n1") for key in keys)


def test_a_command_that_cannot_be_run(tmp_path):
    """126 as in a shell, for a file without permission and for a folder; the cause in one line, and no log."""
    plain = tmp_path / "plain"
    plain.write_text("#!/bin/sh\n")
    for command in (plain, tmp_path):
        with record(tmp_path, command) as child:
            _, err = child.communicate(timeout=50)
        assert child.returncode == 126
        assert err == f"runferry record: {command}: Permission denied\n"
    assert list(tmp_path.rglob("*.wandb")) == []


def test_a_node_that_only_adds_its_metrics(tmp_path):
    """`--secondary`: samples and console, but no end, which is the first node's to say."""
    options = ("--secondary", "--id", "r1", "--label", "b", "--interval", "0.1")
    code, out, _, state = done(tmp_path, "sh", "-c", "echo x; sleep 0.3; exit 3", options=options)

    assert (code, out) == (3, "x\n")
    assert (state.exit_code, state.row_count, lines(state)) == (None, 0, [("stdout", "x")])
    assert all(key.endswith("/l:b") for sample in state.samples for key in sample.values)


@pytest.mark.parametrize(
    ("script", "options", "told"), [("exit 3", (), 1), ("exit 0", (), 0), ("exit 3", ("--json",), 0)]
)
def test_a_node_that_fails_says_that_the_run_will_not_show_it(tmp_path, script, options, told):
    """The run ends as its first node does; where the command ran, its code is told, and is ours."""
    options = ("--secondary", "--id", "r1", "--quiet", "--interval", "0.1", *options)
    with record(tmp_path, "sh", "-c", script, options=options) as child:
        _, err = child.communicate(timeout=50)

    assert child.returncode == int(script[-1])
    assert err.count("exit code 3 on this node") == told


def test_a_node_has_to_say_of_which_run(tmp_path):
    """No run of its own is begun."""
    with record(tmp_path, "true", options=("--secondary",)) as child:
        _, err = child.communicate(timeout=50)
    assert child.returncode == 2
    assert "--id" in err


def test_ranks_are_named(tmp_path):
    """What began says which rank it is, and what it does; a node's metrics have the node's name."""
    ranked = ("env", "RANK=8", "LOCAL_RANK=0", *PROGRAM, "--json", "--id", "r1", "--interval", "0.1", "--dir", tmp_path)
    with job([*ranked, "--", "sleep", "0.3"], stderr=subprocess.PIPE, text=True, env=clean()) as child:
        _, err = child.communicate(timeout=50)
    begun = json.loads(err.splitlines()[0])

    assert (begun["type"], begun["rank"], begun["role"]) == ("run_started", 8, "sampler")
    assert all(key.endswith(f"/l:{os.uname().nodename}") for sample in fold(tmp_path).samples for key in sample.values)


def test_the_command_is_not_left_behind(tmp_path):
    """Killed with SIGKILL, we cannot pass anything on; the command meets the end of its pipes, as without us."""
    with record(tmp_path, "yes", options=("--quiet",)) as child:
        assert child.stdout.readline() == "y\n"
        (command,) = [int(pid) for pid in Path(f"/proc/{child.pid}/task/{child.pid}/children").read_text().split()]
        child.kill()
        child.wait(20)
        child.stdout.close()
        deadline = time.monotonic() + 20
        while Path(f"/proc/{command}").exists() and b"yes" in Path(f"/proc/{command}/cmdline").read_bytes():
            assert time.monotonic() < deadline
            time.sleep(0.01)
