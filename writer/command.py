"""A run around any command: its console output, its exit code and the metrics of its processes, without a change to it."""

from __future__ import annotations

import errno
import os
import signal
import subprocess
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from types import FrameType
from typing import Any

from .descriptors import by_destination, copy_size, open_terminal, refusal
from .exitcode import CODE_SIGNAL
from .report import warn_on_stderr
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


def run_command(
    argv: Sequence[str],
    begin: Callable[[int], Run],
    *,
    terminal: bool | None = None,
    warn: Callable[[str], None] = warn_on_stderr,
) -> int:
    """Run `argv` to its end; the exit code, 128 + n for a command that signal n ended.

    Signals that this process gets are passed on to the command.

    Args:
        argv: the command and its arguments.
        begin: begins the run, told the command's process id.
        terminal: give the command pseudo-terminals, so that it writes as to a terminal, or pipes. Unless given: a
            pseudo-terminal for each stream of ours that is a terminal. Streams that go to one place share one, so that
            their order is kept, and count as stdout.
        warn: takes one line for the user.

    Raises:
        CommandError: the command could not be started.
    """
    _fill_standard()
    outlets = _Outlets(terminal=terminal)
    tees = [_Tee(fd, target, name, warn) for name, fd, target in outlets.streams()]
    forwarder = _Forwarder(outlets)
    forwarder.start()  # before the command, which nobody would end, and before the run, whose handlers go on to these
    try:
        for tee in tees:  # before the command, which would stand still if nobody took its output
            tee.start()
        # Its parent answers for it: no shell, the arguments as they are.
        process = subprocess.Popen(list(argv), **outlets.arguments)  # noqa: S603 - the user's own command
    except (OSError, RuntimeError) as error:  # the latter: the system's bound of threads
        for tee in tees:
            tee.cancel()
        outlets.close()
        forwarder.stop()
        cause = error if isinstance(error, OSError) else OSError(errno.EAGAIN, str(error))
        raise CommandError(argv[0], cause) from error
    try:
        outlets.close()  # our copies of the command's ends, so that its end shows
        forwarder.attach(process)
        run = begin(process.pid)
        for tee in tees:
            tee.attach(run)
        code = _wait(process, run.stop_sampling)
        deadline = time.monotonic() + LINGER_S
        for tee in tees:
            tee.finish(deadline)
        code = CODE_SIGNAL - code if code < 0 else code
        run.finish(code)
    finally:
        for tee in tees:
            tee.cancel()
        forwarder.stop()
    return code


def _fill_standard() -> None:
    """Open the standard descriptors that we were started without, to nowhere: a pipe of ours would take their place."""
    while (fd := os.open(os.devnull, os.O_RDWR)) <= 2:
        os.set_inheritable(fd, True)
    os.close(fd)


def _wait(process: subprocess.Popen[bytes], ended: Callable[[], None]) -> int:
    """The command's exit code, as `Popen` has it; signals are handled while it is awaited.

    `ended` is called when the command has ended and is not reaped yet, where the system lets us see that: its CPU time
    can be read until then.

    A signal that comes just before the main thread blocks in `waitpid`, or that another thread is given, would not be
    looked at until the command ends by itself. So the thread reads from a pipe that every signal writes to.
    """
    if os.name != "posix" or threading.current_thread() is not threading.main_thread():
        return _reap(process, ended)
    woken, wake = os.pipe()
    os.set_blocking(wake, False)

    def wait() -> None:
        _reap(process, ended)
        with suppress(BlockingIOError):  # full: then there is something to read
            os.write(wake, b"\0")

    before = signal.set_wakeup_fd(wake, warn_on_full_buffer=False)
    waiter = threading.Thread(target=wait, name="runferry-command", daemon=True)
    try:
        waiter.start()
    except RuntimeError:  # the system's bound of threads: a signal may have to wait
        _reap(process, ended)
    try:
        while process.returncode is None:
            os.read(woken, 512)
        if waiter.ident is not None:
            waiter.join()
    finally:
        signal.set_wakeup_fd(before)
        if not waiter.is_alive():  # else we are being torn away, and it may still write
            os.close(woken)
            os.close(wake)
    return int(process.returncode)


def _reap(process: subprocess.Popen[bytes], ended: Callable[[], None]) -> int:
    if hasattr(os, "waitid"):  # macOS has it since Python 3.13
        with suppress(ChildProcessError):  # reaped when a signal was passed on
            os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT)
            with suppress(Exception):  # the command's end counts, whatever became of a sample
                ended()
    return process.wait()


class _Outlets:
    """Pipes or pseudo-terminals between the command and where its output goes; its standard input stays ours."""

    def __init__(self, *, terminal: bool | None) -> None:
        """Open them: pseudo-terminals, pipes, or (None) what our own output is."""
        self._lanes: list[tuple[int, int]] = []  # our end, and the descriptor that it is passed on to
        self._theirs: dict[int, int] = {}  # what the command has in a descriptor's place
        self._terminals: list[tuple[int, int]] = []  # among the lanes
        for fds in by_destination((1, 2)):
            ends = None
            if os.name == "posix" and (os.isatty(fds[0]) if terminal is None else terminal):
                with suppress(OSError):  # there are no more: a pipe does as well
                    ends = open_terminal(fds[0])
                    self._terminals.append((ends[0], fds[0]))
            ours, theirs = ends or os.pipe()
            self._lanes.append((ours, fds[0]))
            self._theirs.update(dict.fromkeys(fds, theirs))

    @property
    def arguments(self) -> dict[str, Any]:
        """What `Popen` is to be told."""
        return {"stdout": self._theirs[1], "stderr": self._theirs[2]}

    def streams(self) -> list[tuple[str, int, int]]:
        """(name, descriptor to read, descriptor to pass it on to): who gets them closes the first."""
        lanes, self._lanes = self._lanes, []
        return [("stderr" if target == 2 else "stdout", ours, target) for ours, target in lanes]

    def resize(self) -> None:
        """Our terminal has another size now: so has the command's."""
        for ours, target in self._terminals:
            copy_size(target, ours)

    def close(self) -> None:
        """Close our copies of the command's ends. May be called twice."""
        for fd in set(self._theirs.values()):
            os.close(fd)
        self._theirs.clear()


class _Forwarder:
    """Passes our signals on to the command; those that come before it is there, as soon as it is."""

    def __init__(self, outlets: _Outlets) -> None:
        self._process: subprocess.Popen[bytes] | None = None
        self._outlets = outlets
        self._old: dict[int, Any] = {}
        self._early: list[int] = []

    def start(self) -> None:
        """Take the signals over, where this thread may."""
        if threading.current_thread() is not threading.main_thread():
            return
        for name in _FORWARDED:
            number = getattr(signal, name, None)
            if number is not None and signal.getsignal(number) != signal.SIG_IGN:
                self._old[number] = signal.signal(number, self._forward)

    def attach(self, process: subprocess.Popen[bytes]) -> None:
        """The command is there."""
        self._process = process
        self._deliver()

    def stop(self) -> None:
        """Give them back. What came for a command that could not be started is ours after all."""
        for number, handler in self._old.items():
            signal.signal(number, signal.SIG_DFL if handler is None else handler)
        self._old.clear()
        while self._early:
            signal.raise_signal(self._early.pop(0))

    def _deliver(self) -> None:
        while self._process is not None and self._early:
            with suppress(OSError, IndexError):  # a signal in the middle of this has delivered it
                self._process.send_signal(self._early.pop(0))

    def _forward(self, number: int, frame: FrameType | None) -> None:  # noqa: ARG002 - a signal handler
        if number in (signal.SIGINT, getattr(signal, "SIGQUIT", None)) and _in_foreground():
            return  # a key on the terminal: the command, in the same group, got its own
        if number == getattr(signal, "SIGWINCH", None):
            self._outlets.resize()  # the command may have looked before: it is told again
        self._early.append(number)
        self._deliver()


class _Tee(threading.Thread):
    """Passes one stream of the command on, and logs it: from `attach` on, unless it is cancelled before."""

    def __init__(self, source: int, target: int, name: str, warn: Callable[[str], None]) -> None:
        super().__init__(name=f"runferry-{name}", daemon=True)
        self._source, self._target, self._stream = source, target, name
        self._run: Run | None = None
        self._decided = threading.Event()
        self._warn, self._warned = warn, False
        self._waiting_since: float | None = None  # monotonic s; None while there is something to pass on
        self._waited = 0.0  # s, in reads that are over
        self._passed = 0  # bytes

    def attach(self, run: Run) -> None:
        """Begin."""
        self._run = run
        self._decided.set()

    def cancel(self) -> None:
        """Let go of the stream, if it has not begun."""
        if self.ident is None and not self._decided.is_set():  # it could not be started
            os.close(self._source)
        self._decided.set()

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
        """Until the stream ends, or nobody reads it any more: who writes to it shall meet that as without us."""
        self._decided.wait()
        run, going_on = self._run, True
        while run is not None and going_on and (data := self._read()):
            going_on = self._pass_on(data)
            run.console(self._stream, data)
        os.close(self._source)

    def _read(self) -> bytes:
        since = self._waiting_since = time.monotonic()
        try:
            return os.read(self._source, READ_BYTES)
        except OSError:  # EIO: the last process on the other side of the terminal has gone
            return b""
        finally:
            self._waiting_since = None
            self._waited += time.monotonic() - since

    def _pass_on(self, data: bytes) -> bool:
        view = memoryview(data)
        while view:
            try:
                taken = os.write(self._target, view)
                view = view[taken:]
                self._passed += taken
            except BlockingIOError:  # somebody made our output non-blocking, and its reader is slow
                time.sleep(LOOK_S)
            except BrokenPipeError:
                return False
            except OSError as error:  # a full disk: the command and the log go on
                if not self._warned:
                    self._warned = True
                    self._warn(refusal(self._stream, error.errno or errno.EIO))
                self._passed += len(view)
                break
        return True


def _in_foreground() -> bool:
    """Whether the keys of our terminal reach our process group; our standard input may well be something else."""
    try:
        terminal = os.open(os.ctermid(), os.O_RDONLY | os.O_NOCTTY)
    except (OSError, AttributeError):  # a batch job; another system
        return False
    try:
        return os.tcgetpgrp(terminal) == os.getpgrp()
    finally:
        os.close(terminal)
