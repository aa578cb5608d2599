"""Running a command: what holds up its log does not hold it up."""

from __future__ import annotations

import errno
import os
import signal
import subprocess
import sys
import threading

import pytest
from runferry.writer.command import CommandError, run_command
from support.faultfs import FaultFS
from support.openfiles import lowest_free_descriptor

pytestmark = pytest.mark.skipif(os.name != "posix", reason="commands as POSIX has them")


def test_a_log_on_a_disk_that_hangs_does_not_hold_up_the_command(begin, capfd, monkeypatch):
    """All of the output arrives, the command ends, and what found no room is counted."""
    monkeypatch.setattr("runferry.writer.console.MAX_WAITING_CHARACTERS", 200_000)
    hold, fs, runs = threading.Event(), FaultFS(), []

    def start(pid):
        runs.append(begin(fs=fs, warn=lambda text: None))
        fs.before = lambda operation: operation == "write" and hold.wait(30)
        return runs[0]

    command = "import sys; [sys.stdout.write('x' * 999 + '\\n') for _ in range(2000)]; sys.stderr.write('done')"
    real_finish = type(begin(mode="disabled")).finish

    def finish(run, code=None):
        assert not hold.is_set()  # the command has ended while the disk still hung
        hold.set()
        return real_finish(run, code)

    monkeypatch.setattr("runferry.writer.run.Run.finish", finish)
    code = run_command([sys.executable, "-c", command], start)
    out, err = capfd.readouterr()
    monkeypatch.undo()

    assert (code, len(out), err) == (0, 2_000_000, "done")
    assert runs[0].finish().others_dropped > 10


def test_a_command_that_cannot_be_started_begins_no_run():
    """The code is a shell's."""
    for command, code, number in (("/no/such", 127, errno.ENOENT), ("/", 126, errno.EACCES)):
        with pytest.raises(CommandError) as caught:
            run_command([command], lambda pid: pytest.fail("a run has begun"))
        assert (caught.value.code, caught.value.errno) == (code, number)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGUSR1])
def test_a_signal_that_comes_while_the_command_is_started_is_the_commands(begin, monkeypatch, number):
    """Nobody would end a command whose parent such a signal had killed."""
    real = subprocess.Popen

    def popen(*given, **named):
        signal.raise_signal(number)
        process = real(*given, **named)
        signal.raise_signal(number)
        return process

    monkeypatch.setattr("runferry.writer.command.subprocess.Popen", popen)
    code = run_command(["sleep", "30"], lambda pid: begin())

    assert code == 128 + number


def test_a_signal_for_a_command_that_cannot_be_started_is_ours(monkeypatch):
    """It is heard once the handlers are as they were."""
    heard = []
    before = signal.signal(signal.SIGUSR1, lambda number, frame: heard.append(number))

    def popen(*_given, **_named):
        signal.raise_signal(signal.SIGUSR1)
        raise FileNotFoundError(errno.ENOENT, "No such file or directory")

    monkeypatch.setattr("runferry.writer.command.subprocess.Popen", popen)
    try:
        with pytest.raises(CommandError):
            run_command(["nothing"], lambda pid: pytest.fail("a run has begun"))
    finally:
        signal.signal(signal.SIGUSR1, before)

    assert heard == [signal.SIGUSR1]


def _refused(monkeypatch, *names):
    """The system starts no thread of these names."""
    real = threading.Thread.start

    def start(thread):
        if thread.name in names:
            raise RuntimeError("can't start new thread")
        real(thread)

    monkeypatch.setattr(threading.Thread, "start", start)


@pytest.mark.parametrize("name", ["runferry-stdout", "runferry-stderr"])
def test_without_a_thread_for_its_output_no_command_begins(monkeypatch, tmp_path, name):
    """It would stand still as soon as a pipe is full; nothing of it is left open."""
    _refused(monkeypatch, name)
    before = lowest_free_descriptor()
    with pytest.raises(CommandError, match="can't start new thread") as caught:
        run_command(["touch", str(tmp_path / "ran")], lambda pid: pytest.fail("a run has begun"), terminal=False)
    assert (caught.value.code, (tmp_path / "ran").exists()) == (126, False)
    for thread in threading.enumerate():
        if thread.name.startswith("runferry-std"):
            thread.join(10)
    assert lowest_free_descriptor() == before


def test_without_a_thread_to_wait_the_command_is_waited_for(begin, monkeypatch):
    """The code is the command's."""
    _refused(monkeypatch, "runferry-command")
    assert run_command(["sh", "-c", "exit 3"], lambda pid: begin()) == 3
