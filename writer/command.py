"""A run around any command: its console output, its exit code and the metrics of its processes, without a change to it."""

from __future__ import annotations

import codecs
import errno
import os
import signal
import subprocess
import sys
import threading
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

_FORWARDED = ("SIGTERM", "SIGINT", "SIGHUP", "SIGQUIT", "SIGUSR1", "SIGUSR2")


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
        process = subprocess.Popen(list(argv), **outlet.arguments)  # noqa: S603
    except OSError as error:
        outlet.close()
        raise CommandError(argv[0], error) from error
    forwarder = _Forwarder(process)
    forwarder.start()  # before the run: its handlers go on to these
    try:
        run = begin(process.pid)
        threads = [
            threading.Thread(target=_tee, args=(fd, target, name, run), name=f"runferry-{name}", daemon=True)
            for name, fd, target in outlet.streams(process)
        ]
        for thread in threads:
            thread.start()
        code = process.wait()
        for thread in threads:
            thread.join(LINGER_S)
        code = CODE_SIGNAL - code if code < 0 else code
        run.finish(code)
    finally:
        forwarder.stop()
        outlet.close()
    return code


class _Pipes:
    """Two pipes: stdout and stderr stay apart."""

    arguments: dict[str, Any]

    def __init__(self) -> None:
        self.arguments = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "bufsize": 0}

    def streams(self, process: subprocess.Popen[bytes]) -> list[tuple[str, int, int]]:
        """(name, descriptor to read, descriptor to pass it on to)."""
        assert process.stdout is not None  # noqa: S101 - as the arguments say
        assert process.stderr is not None  # noqa: S101
        return [("stdout", process.stdout.fileno(), 1), ("stderr", process.stderr.fileno(), 2)]

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
        if sys.version_info >= (3, 11):
            with suppress(termios.error):  # our own output is no terminal
                termios.tcsetwinsize(self._theirs, termios.tcgetwinsize(1))
        self.arguments = {"stdout": self._theirs, "stderr": self._theirs}

    def streams(self, process: subprocess.Popen[bytes]) -> list[tuple[str, int, int]]:  # noqa: ARG002 - see _Pipes
        """One stream; our copy of the command's end is closed, so that its end shows."""
        os.close(self._theirs)
        self._theirs = -1
        return [("stdout", self._ours, 1)]

    def close(self) -> None:
        """Give back both ends."""
        for fd in (self._ours, self._theirs):
            if fd >= 0:
                with suppress(OSError):
                    os.close(fd)
        self._ours = self._theirs = -1


class _Forwarder:
    """Passes our signals on to the command."""

    def __init__(self, process: subprocess.Popen[bytes]) -> None:
        self._process = process
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
        with suppress(OSError):
            self._process.send_signal(number)


def _tee(source: int, target: int, name: str, run: Run) -> None:
    decoder = codecs.getincrementaldecoder("utf-8")("replace")
    while True:
        try:
            data = os.read(source, READ_BYTES)
        except OSError:  # EIO: the last process on the other side of the terminal has gone
            data = b""
        with suppress(OSError):  # our own reader may have gone; the command and the log go on
            view = memoryview(data)
            while view:
                view = view[os.write(target, view) :]
        text = decoder.decode(data, final=not data)
        if text:
            run.console(name, text)
        if not data:
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
