"""A run around any command: its console output, its exit code and the metrics of its processes, without a change to it."""

from __future__ import annotations

import codecs
import errno
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from types import FrameType
from typing import Any

from .lifecycle import CODE_SIGNAL
from .run import Run

CODE_NOT_FOUND, CODE_NOT_EXECUTABLE = 127, 126
"""As shells have them."""
READ_BYTES = 65_536
LINGER_S = 2.0
"""How long output is awaited after the command's end: a process that it left behind may hold the pipe for ever."""
STARVED_S = 0.2
"""Who waits for new output so long in all has passed on what there was."""
PIPE_BYTES = 1024 * 1024
"""What a pipe holds at most, unless root says otherwise."""
LOOK_S = 0.05

_FORWARDED = ("SIGTERM", "SIGINT", "SIGHUP", "SIGQUIT", "SIGUSR1", "SIGUSR2", "SIGWINCH")


class CommandError(OSError):
    """The command could not be started; `code` is what a shell would exit with."""

    def __init__(self, command: str, cause: OSError) -> None:
        super().__init__(cause.errno, cause.strerror, command)
        self.code = CODE_NOT_FOUND if cause.errno == errno.ENOENT else CODE_NOT_EXECUTABLE


def run_command(argv: Sequence[str], begin: Callable[[int], Run], *, terminal: bool | None = None) -> int:
    """Run `argv` to its end; the exit code, 128 + n for a command that signal n ended.

    Signals that this process gets are passed on to the command.

    Args:
        argv: the command and its arguments.
        begin: begins the run, told the command's process id.
        terminal: give the command a pseudo-terminal, so that it writes as to a terminal (one stream, then). Unless
            given: if our own output goes to one.

    Raises:
        CommandError: the command could not be started.
    """
    wants_terminal = _is_terminal(sys.stdout) if terminal is None else terminal
    outlet = _Terminal() if wants_terminal and os.name == "posix" else _Pipes()
    try:
        # Its parent answers for it: no shell, the arguments as they are.
        process = subprocess.Popen(list(argv), **outlet.arguments)  # noqa: S603 - the user's own command
    except OSError as error:
        outlet.close()
        raise CommandError(argv[0], error) from error
    forwarder = _Forwarder(process, outlet)
    forwarder.start()  # before the run: its handlers go on to these
    try:
        run = begin(process.pid)
        tees = [_Tee(fd, target, name, run) for name, fd, target in outlet.streams(process)]
        for tee in tees:
            tee.start()
        code = _wait(process)
        deadline = time.monotonic() + LINGER_S
        for tee in tees:
            tee.finish(deadline)
        code = CODE_SIGNAL - code if code < 0 else code
        run.finish(code)
    finally:
        forwarder.stop()
        outlet.close()
    return code


def _wait(process: subprocess.Popen[bytes]) -> int:
    """The command's exit code, as `Popen` has it; signals are handled while it is awaited.

    A signal that comes just before the main thread blocks in `waitpid`, or that another thread is given, would not be
    looked at until the command ends by itself. So the thread reads from a pipe that every signal writes to.
    """
    if os.name != "posix" or threading.current_thread() is not threading.main_thread():
        return process.wait()
    woken, wake = os.pipe()
    os.set_blocking(wake, False)

    def ended() -> None:
        process.wait()
        with suppress(BlockingIOError):  # full: then there is something to read
            os.write(wake, b"\0")

    before = signal.set_wakeup_fd(wake, warn_on_full_buffer=False)
    waiter = threading.Thread(target=ended, name="runferry-command", daemon=True)
    waiter.start()
    try:
        while process.returncode is None:
            os.read(woken, 512)
        waiter.join()
    finally:
        signal.set_wakeup_fd(before)
        if not waiter.is_alive():  # else we are being torn away, and it may still write
            os.close(woken)
            os.close(wake)
    return int(process.returncode)


class _Pipes:
    """Two pipes: stdout and stderr stay apart."""

    arguments: dict[str, Any]

    def __init__(self) -> None:
        self.arguments = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "bufsize": 0}

    def streams(self, process: subprocess.Popen[bytes]) -> list[tuple[str, int, int]]:
        """(name, descriptor to read, descriptor to pass it on to)."""
        assert process.stdout is not None  # noqa: S101 - as the arguments say
        assert process.stderr is not None  # noqa: S101 - as above
        return [("stdout", process.stdout.fileno(), 1), ("stderr", process.stderr.fileno(), 2)]

    def resize(self) -> None:
        """Our terminal has another size now: nothing to a pipe."""

    def close(self) -> None:
        """The pipes go with the process object."""


class _Terminal(_Pipes):
    """A pseudo-terminal for both streams; the command keeps our standard input."""

    def __init__(self) -> None:
        import pty
        import termios

        self._ours, self._theirs = pty.openpty()
        attributes = termios.tcgetattr(self._theirs)
        attributes[1] &= ~termios.OPOST  # line ends as they are written: our own terminal does the rest
        termios.tcsetattr(self._theirs, termios.TCSANOW, attributes)
        self.resize()
        self.arguments = {"stdout": self._theirs, "stderr": self._theirs}

    def streams(self, process: subprocess.Popen[bytes]) -> list[tuple[str, int, int]]:  # noqa: ARG002 - see _Pipes
        """One stream; our copy of the command's end is closed, so that its end shows."""
        os.close(self._theirs)
        self._theirs = -1
        return [("stdout", self._ours, 1)]

    def resize(self) -> None:
        """Make it as large as our own terminal."""
        import fcntl
        import termios

        with suppress(OSError):  # our own output is no terminal
            fcntl.ioctl(self._ours, termios.TIOCSWINSZ, fcntl.ioctl(1, termios.TIOCGWINSZ, bytes(8)))

    def close(self) -> None:
        """Give back both ends."""
        for fd in (self._ours, self._theirs):
            if fd >= 0:
                with suppress(OSError):
                    os.close(fd)
        self._ours = self._theirs = -1


class _Forwarder:
    """Passes our signals on to the command."""

    def __init__(self, process: subprocess.Popen[bytes], outlet: _Pipes) -> None:
        self._process, self._outlet = process, outlet
        self._old: dict[int, Any] = {}

    def start(self) -> None:
        """Take the signals over, where this thread may."""
        if threading.current_thread() is not threading.main_thread():
            return
        for name in _FORWARDED:
            number = getattr(signal, name, None)
            if number is not None and signal.getsignal(number) != signal.SIG_IGN:
                self._old[number] = signal.signal(number, self._forward)

    def stop(self) -> None:
        """Give them back."""
        for number, handler in self._old.items():
            signal.signal(number, signal.SIG_DFL if handler is None else handler)
        self._old.clear()

    def _forward(self, number: int, frame: FrameType | None) -> None:  # noqa: ARG002 - a signal handler
        if number in (signal.SIGINT, getattr(signal, "SIGQUIT", None)) and _in_foreground():
            return  # a key on the terminal: the command, in the same group, got its own
        if number == getattr(signal, "SIGWINCH", None):
            self._outlet.resize()  # the command may have looked before: it is told again
        with suppress(OSError):
            self._process.send_signal(number)


class _Tee(threading.Thread):
    """Passes one stream of the command on, and logs it."""

    def __init__(self, source: int, target: int, name: str, run: Run) -> None:
        super().__init__(name=f"runferry-{name}", daemon=True)
        self._source, self._target, self._stream, self._run = source, target, name, run
        self._waiting_since: float | None = None  # monotonic s; None while there is something to pass on
        self._waited = 0.0  # s, in reads that are over
        self._passed = 0  # bytes

    def finish(self, deadline: float) -> None:
        """After the command's end: wait for output until `deadline`, and as long as it takes to pass on what there is."""
        self.join(max(0.0, deadline - time.monotonic()))
        rest = self._passed + PIPE_BYTES  # more than that comes from processes that it left behind
        starved = self._idle_s() + STARVED_S
        while self.is_alive() and self._passed < rest and self._idle_s() < starved:
            self.join(LOOK_S)

    def _idle_s(self) -> float:
        since = self._waiting_since
        return self._waited + (0.0 if since is None else time.monotonic() - since)

    def run(self) -> None:
        """Until the stream ends."""
        decoder = codecs.getincrementaldecoder("utf-8")("replace")
        data = b"first"
        while data:
            data = self._read()
            self._pass_on(data)
            text = decoder.decode(data, final=not data)
            if text:
                self._run.console(self._stream, text)

    def _read(self) -> bytes:
        since = self._waiting_since = time.monotonic()
        try:
            return os.read(self._source, READ_BYTES)
        except OSError:  # EIO: the last process on the other side of the terminal has gone
            return b""
        finally:
            self._waiting_since = None
            self._waited += time.monotonic() - since

    def _pass_on(self, data: bytes) -> None:
        view = memoryview(data)
        while view:
            try:
                taken = os.write(self._target, view)
                view = view[taken:]
                self._passed += taken
            except BlockingIOError:  # somebody made our output non-blocking, and its reader is slow
                time.sleep(LOOK_S)
            except OSError:  # our own reader may have gone; the command and the log go on
                self._passed += len(view)
                return


def _is_terminal(stream: Any) -> bool:
    try:
        return bool(stream.isatty())
    except (AttributeError, ValueError):  # no stream, or a closed one
        return False


def _in_foreground() -> bool:
    try:
        return os.tcgetpgrp(0) == os.getpgrp()
    except (OSError, AttributeError):
        return False
