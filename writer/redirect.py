"""Console capture at the descriptors 1 and 2: what C libraries and other processes write is taken too.

Both descriptors are put on a pipe, or on a pseudo-terminal where they are a terminal. A process of ours (`relay`)
passes every byte on to where it would have gone, first of all, and then tells us. Where both go to the same file or
terminal they share one pipe, because only so their order is kept, and all of it counts as stdout.
"""

from __future__ import annotations

import errno
import fcntl
import os
import subprocess
import sys
import threading
import time
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Protocol

from ..sampler.interpreter import interpreter
from .descriptors import by_destination, identity, open_terminal, refusal
from .relay import BROKEN, DATA, FRAME, LOST, READ_BYTES, READY, SYNCED, readable
from .tee import StreamTees

START_S = 10.0
"""The relay is up within this time (usually 30 ms), or there is none."""
LINGER_S = 2.0
"""How long the end waits for the relay to pass on what was written before it: its terminal may be stopped."""
LAST_S = 0.2
"""How long, after the descriptors have been given back, for what other threads wrote at that moment."""
LOWEST_FD = 3
"""None of our descriptors may stand where a program that closed one of its own expects the console."""

NAMES = ("stdout", "stderr")
CLOSED = -1


class Sink(Protocol):
    """Who is told."""

    def add(self, stream: str, data: str | bytes, time_ns: int | None = None) -> None:
        """`stream` has written it. Never raises."""

    def lost(self, pieces: int) -> None:
        """So many writes could not be told."""


class _Lane:
    """One pipe or pseudo-terminal, and the descriptors that are put on it."""

    def __init__(self, fds: list[int]) -> None:
        """Open it; raises OSError."""
        self.fds = fds
        self.number = fds[0] - 1
        self.source = self._inlet = CLOSED
        self._busy = False
        self._saved: dict[int, int] = {}
        try:
            for fd in fds:
                self._saved[fd] = _high(fd)
            self.source, self._inlet = _above(*(open_terminal(fds[0]) if os.isatty(fds[0]) else os.pipe()))
            self._place = identity(self._inlet)
        except BaseException:
            self.close()
            raise

    @property
    def target(self) -> int:
        """Where its output goes."""
        return self._saved[self.fds[0]]

    def take(self) -> None:
        """Put the descriptors on it; raises OSError."""
        for fd in self.fds:
            os.dup2(self._inlet, fd)
        os.close(self._inlet)
        self._inlet = CLOSED

    def give_back(self) -> None:
        """Put the descriptors back, but for those that the program has put elsewhere meanwhile."""
        for fd, saved in self._saved.items():
            with suppress(OSError):
                if identity(fd) == self._place:
                    os.dup2(saved, fd)

    def drain(self, tell: Callable[[bytes], None]) -> None:
        """Without a relay: pass on what is written until nobody is left who could, and tell what it was."""
        while True:
            readable(self.source)
            self._busy = True
            try:
                data = os.read(self.source, READ_BYTES)
            except OSError:  # EIO: a terminal whose other side is closed
                data = b""
            rest = memoryview(data)
            with suppress(OSError):
                while rest:
                    rest = rest[os.write(self.target, rest) :]
            if data:
                tell(data)
            self._busy = False
            if not data:
                return

    @property
    def idle(self) -> bool:
        """Whether `drain` has passed on and told all that was written so far. In this order, as in the relay."""
        with suppress(OSError, ValueError):  # it has just been closed
            if readable(self.source, 0):
                return False
        return not self._busy

    def stop_reading(self) -> None:
        """Who still writes shall hear that nobody reads."""
        if self.source != CLOSED:
            os.close(self.source)
            self.source = CLOSED

    def close(self) -> None:
        """Close what is ours."""
        for fd in (self.source, self._inlet, *self._saved.values()):
            if fd != CLOSED:
                with suppress(OSError):
                    os.close(fd)
        self.source = self._inlet = CLOSED
        self._saved.clear()


class Redirect:
    """Takes both descriptors, and Python's streams where those lead elsewhere (notebooks)."""

    def __init__(self, sink: Sink, warn: Callable[[str], None]) -> None:
        self._sink, self._warn = sink, warn
        self._lanes: list[_Lane] = []
        self._orphans: list[_Lane] = []  # whose relay was killed
        self._requests = self._frames = CLOSED
        self._thread: threading.Thread | None = None
        self._waiters: deque[threading.Lock] = deque()
        self._overdue = False
        self._ending = False
        self._tees: StreamTees | None = None

    def start(self) -> None:
        """Begin. Raises OSError, or RuntimeError where a thread is refused; then everything is as before."""
        try:
            named = ((1, sys.__stdout__), (2, sys.__stderr__))
            for fds in by_destination(fd for fd, stream in named if stream is not None):  # None: closed at the start
                self._lanes.append(_Lane(fds))
            if self._lanes:
                self._start_relay()
                flush()
                for lane in self._lanes:
                    lane.take()
                thread = threading.Thread(target=self._listen, name="runferry-console", daemon=True)
                thread.start()
                self._thread = thread
        except BaseException:
            for lane in self._lanes:
                lane.give_back()
            self._close()
            self._close_frames()
            raise
        self._tees = StreamTees(self._sink, _led_elsewhere())
        self._tees.start()

    def _start_relay(self) -> None:
        python = interpreter()
        if python is None:
            raise FileNotFoundError(f"sys.executable is {sys.executable!r}, no Python to start the relay with")
        theirs, self._requests = _above(*os.pipe())
        try:
            self._frames, frames = _above(*os.pipe())
            try:
                ends = [end for lane in self._lanes for end in (lane.number, lane.source, lane.target)]
                passed = [theirs, frames, *(fd for lane in self._lanes for fd in (lane.source, lane.target))]
                script = str(Path(__file__).with_name("relay.py"))
                process = subprocess.Popen(  # noqa: S603 - this interpreter, no shell
                    [python, "-I", "-S", script, *map(str, (theirs, frames, *ends))],
                    stdin=subprocess.DEVNULL,
                    stdout=subprocess.DEVNULL,
                    stderr=subprocess.DEVNULL,
                    pass_fds=passed,
                )
            finally:
                os.close(frames)
        finally:
            os.close(theirs)
        up = readable(self._frames, int(START_S * 1000)) and FRAME.unpack(os.read(self._frames, FRAME.size))[0] == READY
        if not up:
            process.kill()
        process.wait()  # the relay is its child
        if not up:
            raise ChildProcessError(errno.ECHILD, "the process that relays the output did not start")

    def stop(self) -> None:
        """End: the descriptors are as they were found, and what was written before has been logged. Takes 2 s at most."""
        try:
            if self._thread is not None:
                self._end(self._thread)
        finally:
            if self._tees is not None:
                self._tees.stop()

    def _end(self, thread: threading.Thread) -> None:
        deadline = time.monotonic() + LINGER_S
        try:
            if self._sync(LINGER_S):  # else the relay is held up, and so would be whoever flushes
                flush()
                self._sync(deadline - time.monotonic())
        finally:  # Ctrl-C does not wait, and leaves no descriptor behind
            self._ending = True
            for lane in self._lanes:
                lane.give_back()
            if not self._sync(LAST_S) and self._frames != CLOSED:
                self._sink.lost(1)  # what a relay that is held up has not passed on yet
            self._settle()
            self._ask(b"d")
            thread.join(LAST_S)
            self._thread = None
            self._close()

    def abandon(self) -> None:
        """In a forked child: it goes on writing to its parent's pipe, and has nothing else of it."""
        if self._tees is not None:
            self._tees.stop()
        self._close()
        self._close_frames()

    def _close(self) -> None:
        for lane in self._lanes:
            lane.close()
        self._lanes = []
        if self._requests != CLOSED:
            os.close(self._requests)
            self._requests = CLOSED

    def _close_frames(self) -> None:
        if self._frames != CLOSED:
            os.close(self._frames)
            self._frames = CLOSED

    def _mute(self) -> None:
        """Nobody hears requests any more: they go nowhere, lest one ends a program that has the default for SIGPIPE."""
        with suppress(OSError):
            nowhere = os.open(os.devnull, os.O_WRONLY)
            try:
                os.dup2(nowhere, self._requests, inheritable=False)
            finally:
                os.close(nowhere)

    def _ask(self, request: bytes) -> bool:
        try:
            return self._requests != CLOSED and os.write(self._requests, request) == 1
        except OSError:  # the relay has gone
            return False

    def sync(self) -> None:
        """Wait until all that was written so far has been told, 2 s at most; once that was in vain, no more."""
        deadline = time.monotonic() + LINGER_S
        if self._thread is not None and not self._overdue and self._sync(LINGER_S):
            flush()
            self._sync(deadline - time.monotonic())

    def _sync(self, timeout_s: float) -> bool:
        """Wait until all that the descriptors got so far is where it goes, and told; whether it is.

        Each waits on a lock of his own, so that a signal handler may wait too.
        """
        answered = threading.Lock()
        answered.acquire()
        self._waiters.append(answered)
        done = self._frames != CLOSED and self._ask(b"s") and answered.acquire(timeout=max(0.0, timeout_s))
        self._overdue = not done
        return done

    def _settle(self) -> None:
        deadline = time.monotonic() + LAST_S
        while not all(lane.idle for lane in self._orphans) and time.monotonic() < deadline:
            time.sleep(0.001)

    def _answered(self) -> None:
        self._overdue = False
        with suppress(IndexError):
            self._waiters.popleft().release()

    # -- the thread --------------------------------------------------------------------------------------------------

    def _listen(self) -> None:
        waiting = bytearray()
        while data := self._read():
            waiting += data
            at = 0
            while len(waiting) - at >= FRAME.size:
                kind, number, length, time_ns = FRAME.unpack_from(waiting, at)
                end = at + FRAME.size + (length if kind == DATA else 0)
                if end > len(waiting):
                    break
                self._told(kind, number, length, time_ns, bytes(memoryview(waiting)[at + FRAME.size : end]))
                at = end
            del waiting[:at]
        self._close_frames()
        if not self._ending:
            self._mute()
        while self._waiters:
            self._answered()
        if not self._ending:
            self._carry_on()

    def _read(self) -> bytes:
        try:
            return os.read(self._frames, READ_BYTES)
        except OSError:
            return b""

    def _told(self, kind: int, number: int, length: int, time_ns: int, data: bytes) -> None:
        if kind == DATA:
            self._sink.add(NAMES[number], data, time_ns)
        elif kind == SYNCED:
            self._answered()
        elif kind == LOST:
            self._sink.lost(length)
        elif kind == BROKEN and not self._ending:
            lane = next(lane for lane in self._lanes if lane.number == number)
            if length == errno.EPIPE:  # the program shall meet it as it would have without us
                lane.give_back()
                lane.stop_reading()
            else:
                self._warn(refusal(NAMES[number], length))

    def _carry_on(self) -> None:
        """The relay was killed: the program gets its descriptors back, and what its children write is passed on here."""
        lanes, self._lanes = self._lanes, []
        self._orphans = lanes
        for lane in lanes:
            lane.give_back()
        if self._tees is not None:
            self._tees.stop()
        self._tees = StreamTees(self._sink)
        self._tees.start()
        for lane in lanes:
            threading.Thread(target=self._drain, args=(lane,), name="runferry-console", daemon=True).start()
        self._warn(
            "the process that passes the console's output on was killed; up to 64 KiB of output may be lost, and from"
            " here on only what Python itself writes is logged"
        )

    def _drain(self, lane: _Lane) -> None:
        lane.drain(lambda data: self._sink.add(NAMES[lane.number], data))
        lane.close()


def flush() -> None:
    """Write what the buffers of Python's streams and of the C library hold."""
    for stream in (sys.stdout, sys.stderr, sys.__stdout__, sys.__stderr__):
        with suppress(Exception):  # none, closed, or one whose target fails: its next write will say so
            stream.flush()  # type: ignore[union-attr]
    with suppress(Exception):  # an interpreter without ctypes, or a C library with another name for it
        import ctypes

        library = ctypes.CDLL(None)
        # Not all its files: a thread that waits for a line on stdin has that one locked. stderr has no buffer.
        library.fflush(ctypes.c_void_p.in_dll(library, "__stdoutp" if sys.platform == "darwin" else "stdout"))


def _led_elsewhere() -> list[str]:
    """The streams that do not end in the descriptor of their name, as far as anybody can tell."""
    names = []
    for fd, name in enumerate(NAMES, start=1):
        stream = getattr(sys, name)
        try:
            elsewhere = stream.fileno() != fd
        except Exception:  # none, or no file: it is likely to write to the first stream in the end
            elsewhere = type(stream).__module__.startswith("ipykernel")
        if elsewhere:
            names.append(name)
    return names


def _above(*fds: int) -> tuple[int, ...]:
    """The same, out of the way of the console; takes the place of `fds`, which it closes."""
    high: list[int] = []
    try:
        high.extend(_high(fd) for fd in fds)
    except OSError:
        for fd in high:
            os.close(fd)
        raise
    finally:
        for fd in fds:
            os.close(fd)
    return tuple(high)


def _high(fd: int) -> int:
    return fcntl.fcntl(fd, fcntl.F_DUPFD_CLOEXEC, LOWEST_FD)
