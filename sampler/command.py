"""Programs of others, run for a probe: one that answers and ends, or one that goes on printing lines.

None can hold up more than the thread that waits for it, print without end, outlive the sampler with its descendants,
or be counted among the processes that the sampler measures. On Linux they die with this process, even if it is killed.
POSIX only. For probes of `Tier.THREAD`.
"""

from __future__ import annotations

import contextlib
import os
import selectors
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Sequence
from typing import NamedTuple

from .context import Context
from .interpreter import interpreter
from .proctree import note_end

FIRST_BACKOFF, LONGEST_BACKOFF = 5.0, 300.0  # s before a child that ended is started again
ERROR_TAIL = 400  # bytes of standard error that are kept
_LOOK_EVERY = 0.05  # s between two looks whether a command has ended or is no longer wanted
_CLOSING = 0.2  # s between SIGTERM and SIGKILL
_AT_ONCE = 0.001  # s between two looks whether what was killed has ended
_CHUNK = 1 << 16

# Run by a bare interpreter: be killed when the parent is (prctl PR_SET_PDEATHSIG, which exec keeps), become the program.
# A `preexec_fn` would run Python in a fork of a process with threads, which may deadlock.
_GUARD = """
import ctypes, os, sys
ctypes.CDLL(None).prctl(1, 9)
if os.getppid() == int(sys.argv[1]):
    try:
        os.execv(sys.argv[2], sys.argv[2:])
    except OSError as error:
        sys.exit(f"{sys.argv[2]} cannot be run: {error}")
"""

_unreaped: list[subprocess.Popen[bytes]] = []  # killed, but in a call of the kernel that does not end


class CommandError(Exception):
    """The program gave no result; the text names it and says why."""


class Result(NamedTuple):
    """What a program left: exit status (negative: the signal that ended it), output, end of its errors."""

    code: int
    stdout: bytes
    stderr: str


def run(ctx: Context, argv: Sequence[str], *, timeout: float = 5.0, cap: int = 1 << 20) -> Result:
    """Run a program to its end, without a shell, and give its output.

    It has no standard input, the environment of this process with LC_ALL=C, and a process group of its own, which is
    killed whole when the program ends, after `timeout` s, with more than `cap` bytes of output, and at `ctx.closing`.

    Raises:
        CommandError: not found, not executable, not in time, too much output, or the sampler ends.
    """
    name = os.path.basename(argv[0])  # noqa: PTH119 - a name for messages
    deadline = time.monotonic() + timeout
    child, outputs = _spawn(ctx, argv)
    gathered, errors = bytearray(), bytearray()
    try:
        with contextlib.closing(outputs) as pipes:
            while not (pipes.ended and _has_ended(child)):
                left = deadline - time.monotonic()
                if ctx.closing.is_set():
                    raise CommandError(f"{name} was ended with the sampler")
                if left <= 0:
                    raise CommandError(f"{name} did not end within {timeout:g} s")
                ended = _has_ended(child)
                pipes.read(gathered, errors, min(left, _LOOK_EVERY))
                if len(gathered) > cap:
                    raise CommandError(f"{name} printed more than {cap} bytes")
                if ended:  # a descendant may hold the pipes open: what was printed has been read
                    break
    finally:
        _end(ctx, child)
    return Result(child.returncode, bytes(gathered), _tail(errors))


class LineChild:
    """A program that goes on printing lines, of which the newest counts; started at the first `newest`.

    One that ends is started again after 5 s, 10 s ... 300 s. On Linux it dies with the thread that called `newest` when
    it was started. `cap` is the longest line in bytes.
    """

    def __init__(self, ctx: Context, argv: Sequence[str], *, cap: int = 4 << 20) -> None:
        self.argv = list(argv)
        self.error: str | None = None
        """Why the program is not running, or was last found not to be; None if it never failed."""
        self._ctx = ctx
        self._cap = cap
        self._lock = threading.Lock()  # guards the next three
        self._line: bytes | None = None
        self._error_tail = bytearray()
        self._too_long = False
        self._child: subprocess.Popen[bytes] | None = None
        self._reader: threading.Thread | None = None
        self._backoff = FIRST_BACKOFF
        self._started = 0.0
        self._start_at = float("-inf")

    def newest(self, now: float) -> bytes | None:
        """The newest whole line without its end, once; None if none came. Never blocks. `now`: monotonic s."""
        child = self._child
        if child is not None and (self._too_long or _has_ended(child)):
            self._note_end(now, child)
        elif child is None and now >= self._start_at:
            self._start(now)
        with self._lock:
            line, self._line = self._line, None
        return line

    def _start(self, now: float) -> None:
        self._too_long, self._started = False, now
        try:
            child, pipes = _spawn(self._ctx, self.argv)
        except CommandError as error:
            self._fail(now, str(error))
            return
        self._error_tail = bytearray()
        self._child = child
        reading = (child, pipes, self._error_tail)
        reader = threading.Thread(target=self._read, args=reading, name="runferry-lines", daemon=True)
        try:
            reader.start()
        except RuntimeError as error:  # the system's bound of threads
            self._child = None
            _end(self._ctx, child)
            pipes.close()
            self._fail(now, f"nobody can read what {self.argv[0]} prints: {error}")
        else:
            self._reader = reader

    def _read(self, child: subprocess.Popen[bytes], outputs: _Pipes, errors: bytearray) -> None:
        pending = bytearray()
        with contextlib.closing(outputs) as pipes:
            while not pipes.ended:
                pipes.read(pending, errors, None)
                if child is not self._child:  # replaced, yet a descendant holds the pipe
                    return
                whole, _, rest = pending.rpartition(b"\n")
                if whole:
                    with self._lock:
                        self._line = bytes(whole[whole.rfind(b"\n") + 1 :])
                    pending = bytearray(rest)
                if len(pending) > self._cap:
                    self._too_long = True
                    return

    def _note_end(self, now: float, child: subprocess.Popen[bytes]) -> None:
        _end(self._ctx, child)
        if self._reader is not None:
            self._reader.join(_CLOSING)
        self._child = None
        if self._too_long:
            why = f"printed a line of more than {self._cap} bytes"
        else:
            why = f"ended with status {child.returncode}: {_tail(self._error_tail)}".rstrip(": ")
        if now - self._started > self._backoff:
            self._backoff = FIRST_BACKOFF
        self._fail(now, f"{os.path.basename(self.argv[0])} {why}")  # noqa: PTH119 - a name for messages

    def _fail(self, now: float, why: str) -> None:
        self.error = why
        self._start_at = now + self._backoff
        self._backoff = min(2 * self._backoff, LONGEST_BACKOFF)

    def close(self) -> None:
        """End the program and its descendants: asked by SIGTERM, after 0.2 s by SIGKILL. May be called twice."""
        child, self._child, self._start_at = self._child, None, float("inf")
        if child is None:
            return
        if not _has_ended(child):
            _signal(child, signal.SIGTERM)
            with contextlib.suppress(subprocess.TimeoutExpired):
                child.wait(_CLOSING)
        _end(self._ctx, child)
        if self._reader is not None:
            self._reader.join(_CLOSING)


class _Pipes:
    """Both outputs of a child, read as they come. OSError where there is no descriptor left to wait with."""

    def __init__(self, child: subprocess.Popen[bytes]) -> None:
        self._pipes = [pipe for pipe in (child.stdout, child.stderr) if pipe is not None]
        self._stdout = child.stdout
        try:
            self._selector = selectors.DefaultSelector()
            for pipe in self._pipes:
                os.set_blocking(pipe.fileno(), False)
                self._selector.register(pipe, selectors.EVENT_READ)
        except OSError:
            for pipe in self._pipes:
                pipe.close()
            raise

    def close(self) -> None:
        self._selector.close()
        for pipe in self._pipes:
            pipe.close()

    @property
    def ended(self) -> bool:
        """Whether nobody holds the other end of either."""
        return not self._selector.get_map()

    def read(self, out: bytearray, errors: bytearray, timeout: float | None) -> None:
        """Append what comes within `timeout` s to `out` and, its end only, to `errors`."""
        if self.ended:
            time.sleep(timeout or 0.0)
            return
        for key, _ in self._selector.select(timeout):
            try:
                chunk = os.read(key.fd, _CHUNK)
            except BlockingIOError:
                continue
            if not chunk:
                self._selector.unregister(key.fileobj)
            elif key.fileobj is self._stdout:
                out += chunk
            else:
                errors += chunk
                del errors[:-ERROR_TAIL]


def _spawn(ctx: Context, argv: Sequence[str]) -> tuple[subprocess.Popen[bytes], _Pipes]:
    _unreaped[:] = [child for child in _unreaped if child.poll() is None]
    try:
        child = subprocess.Popen(  # noqa: S603 - a list of ours, no shell
            _guarded(argv),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            bufsize=0,
            cwd=os.sep,  # the program must not keep a file system busy
            env={**os.environ, "LC_ALL": "C"},
            start_new_session=True,  # a group to kill; Ctrl-C in the terminal is not for it
        )
    except (OSError, ValueError) as error:
        raise CommandError(f"{argv[0]} cannot be run: {error}") from error
    ctx.own_pids.add(child.pid)
    try:
        return child, _Pipes(child)
    except OSError as error:
        _end(ctx, child)
        raise CommandError(f"{argv[0]} cannot be read: {error}") from error


def _guarded(argv: Sequence[str]) -> list[str]:
    """The command that runs `argv` until this process dies; `argv` itself where there is none."""
    program = shutil.which(argv[0])
    python = interpreter()
    if program is None or python is None or not sys.platform.startswith("linux"):
        return list(argv)
    return [python, "-I", "-S", "-c", _GUARD, str(os.getpid()), program, *argv[1:]]


def _has_ended(child: subprocess.Popen[bytes]) -> bool:
    """Whether it has, without reaping it: until then its group's number cannot become another's."""
    if child.returncode is not None:
        return True
    if not hasattr(os, "waitid"):  # macOS before Python 3.13
        return child.poll() is not None
    try:
        return os.waitid(os.P_PID, child.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is not None
    except ChildProcessError:  # the process ignores SIGCHLD: nothing is left to ask
        return True


def _signal(child: subprocess.Popen[bytes], number: int) -> None:
    with contextlib.suppress(OSError):  # all have gone
        os.killpg(child.pid, number)


def _end(ctx: Context, child: subprocess.Popen[bytes]) -> None:
    """Kill what is left of the group and reap the child, unless the kernel holds it."""
    _signal(child, signal.SIGKILL)
    deadline = time.monotonic() + _CLOSING
    while not _has_ended(child):
        if time.monotonic() > deadline:
            _unreaped.append(child)
            return
        time.sleep(_AT_ONCE)
    with contextlib.suppress(OSError, ValueError, IndexError):  # no Linux
        note_end(child.pid)  # its times become ours when it is reaped
    child.wait()
    ctx.own_pids.discard(child.pid)


def _tail(errors: bytearray) -> str:
    return errors.decode("utf-8", "replace").strip()
