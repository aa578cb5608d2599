"""The process between a program whose descriptors are redirected and where its output goes: `python -I -S relay.py`.

It passes on what the program and its children write, and then tells the program's log. Why a process and not a thread:
a library that prints more than a pipe holds while it has the interpreter's lock would wait for ever for a thread that
waits for the lock; and what a killed program had printed still reaches the terminal.

It ends when nobody is left who could write, and ignores every signal that can be: schedulers tell a whole job of its
limits by one or another (SIGTERM, SIGUSR1, SIGXCPU), and the program may well live on. It is an orphan from the
start, so that a program that waits for its children never meets it. It imports little, to start quickly.

Arguments: descriptor of requests, descriptor of frames, and for each stream its number, where it comes from and where
it goes. A request is one byte: `s` asks for the frame SYNCED once all is passed on, `d` ends the frames.
"""

from __future__ import annotations

import collections
import contextlib
import errno
import fcntl
import os
import select
import signal
import struct
import sys
import termios
import threading
import time

FRAME = struct.Struct("=BBxxIq")
"""Kind, stream number, length of the bytes that follow or a count, nanoseconds since the epoch."""
READY, DATA, SYNCED, BROKEN, LOST = range(5)
"""Kinds. BROKEN: the stream's target failed, the length is the errno. LOST: so many pieces were not told."""

READ_BYTES = 65_536
MAX_WAITING_BYTES = 16 * 1024 * 1024
"""Of frames that the program does not take: it may be stopped, or busy with the interpreter's lock in hand."""
OVERHEAD_BYTES = 64
"""Of a frame in memory."""
SYNC_S = 5.0
SYNC_BYTES = 1024 * 1024
"""A sync waits no longer, and for no more: children may go on writing for ever."""
LAST_S = 5.0
"""How long frames are awaited to leave after the last stream's end."""


class Outbox:
    """Frames on their way to the program, a bounded number of bytes; the streams never wait for it."""

    def __init__(self, fd: int) -> None:
        self._fd = fd
        self._frames: collections.deque[bytes] = collections.deque()
        self._waiting = self._lost = 0
        self._changed = threading.Condition()
        self._open, self._last = True, False

    def put(self, kind: int, number: int = 0, data: bytes = b"", *, value: int = 0, time_ns: int = 0) -> None:
        """Add a frame, or count it as lost."""
        with self._changed:
            if not self._open:
                return
            if data and self._waiting + len(data) > MAX_WAITING_BYTES:
                self._lost += 1
                return
            if self._lost:
                self._append(FRAME.pack(LOST, 0, self._lost, 0))
                self._lost = 0
            self._append(FRAME.pack(kind, number, len(data) or value, time_ns) + data)
            self._changed.notify()

    def _append(self, frame: bytes) -> None:
        self._frames.append(frame)
        self._waiting += len(frame) + OVERHEAD_BYTES

    def close(self) -> None:
        """Nobody is told any more."""
        with self._changed:
            if self._open:
                self._open = False
                self._frames.clear()
                os.close(self._fd)
            self._changed.notify()

    def end(self) -> None:
        """The last stream has ended: what waits leaves, and then the process ends."""
        with self._changed:
            self._last = True
            self._changed.notify()
        time.sleep(LAST_S)
        os._exit(0)

    def run(self) -> None:
        """Write the frames; a thread of its own."""
        while True:
            with self._changed:
                while not self._frames and not self._last:
                    self._changed.wait()
                if not self._frames:
                    os._exit(0)
                frame = memoryview(self._frames.popleft())
                self._waiting -= len(frame) + OVERHEAD_BYTES
                fd = self._fd
            try:
                while frame:
                    frame = frame[os.write(fd, frame) :]
            except OSError:  # the program has gone, or said `d`
                self.close()


class Stream(threading.Thread):
    """One stream of the program."""

    def __init__(self, number: int, source: int, target: int, outbox: Outbox) -> None:
        super().__init__(daemon=True)
        self._number, self._outbox, self._broken = number, outbox, False
        self.source, self.target = source, target
        self.busy = False  # from before bytes are taken until they are passed on and told
        self.passed = 0  # bytes

    @property
    def idle(self) -> bool:
        """Whether all that was written so far is passed on. In this order: what is not taken yet can be seen."""
        return not (self.is_alive() and readable(self.source, 0)) and not self.busy

    def run(self) -> None:
        """Until nobody is left who could write."""
        while True:
            readable(self.source)
            self.busy = True
            try:
                data = os.read(self.source, READ_BYTES)
            except OSError:  # EIO: a terminal whose other side is closed
                data = b""
            if not data:
                break
            now = time.time_ns()
            going_on = self._pass_on(data)
            self.passed += len(data)
            self._outbox.put(DATA, self._number, data, time_ns=now)
            self.busy = False
            if not going_on:
                break
        os.close(self.source)
        os.close(self.target)  # whoever reads it waits for no other stream
        self.busy = False

    def _pass_on(self, data: bytes) -> bool:
        rest = memoryview(data)
        while rest:
            try:
                rest = rest[os.write(self.target, rest) :]
            except BlockingIOError:  # somebody made it non-blocking
                select.select([], [self.target], [], 1.0)
            except OSError as error:
                if not self._broken:
                    self._broken = True
                    self._outbox.put(BROKEN, self._number, value=error.errno or errno.EIO)
                return error.errno != errno.EPIPE  # who writes to a pipe that nobody reads shall hear of it
        return True

    def resize(self) -> None:
        """Our terminal has another size now: so has the program's."""
        with contextlib.suppress(OSError):  # not a terminal
            fcntl.ioctl(self.source, termios.TIOCSWINSZ, fcntl.ioctl(self.target, termios.TIOCGWINSZ, bytes(8)))


def readable(fd: int, timeout_ms: int | None = None) -> bool:
    """Whether there is something to read; waits for it, or for the end."""
    poll = select.poll()
    poll.register(fd, select.POLLIN)
    return any(event & select.POLLIN for _, event in poll.poll(timeout_ms))


def answer(requests: int, streams: list[Stream], outbox: Outbox) -> None:
    """Answer the program's requests, to its end."""
    while request := os.read(requests, 1):
        if request == b"d":
            break
        deadline = time.monotonic() + SYNC_S
        enough = sum(stream.passed for stream in streams) + SYNC_BYTES
        while not all(stream.idle for stream in streams) and time.monotonic() < deadline:
            if sum(stream.passed for stream in streams) >= enough:
                break
            time.sleep(0.0005)
        outbox.put(SYNCED)
    outbox.close()


def main(arguments: list[int]) -> None:
    """Relay until the streams end."""
    for number in signal.valid_signals():
        with contextlib.suppress(OSError):  # SIGKILL, SIGSTOP
            signal.signal(number, signal.SIG_IGN)
    if os.fork():
        os._exit(0)
    os.chdir("/")  # whatever file system that was may be unmounted
    requests, frames, *ends = arguments
    outbox = Outbox(frames)
    streams = [Stream(*end, outbox) for end in zip(ends[::3], ends[1::3], ends[2::3], strict=True)]

    def resize(*_: object) -> None:
        for stream in streams:
            stream.resize()

    signal.signal(signal.SIGWINCH, resize)
    outbox.put(READY)
    threading.Thread(target=outbox.run, daemon=True).start()
    for stream in streams:
        stream.start()

    def end() -> None:
        for stream in streams:
            stream.join()
        outbox.end()

    ending = threading.Thread(target=end, daemon=True)
    ending.start()
    answer(requests, streams, outbox)  # on the main thread, which is the one that signals reach
    ending.join()  # it ends the process


if __name__ == "__main__":
    main([int(argument) for argument in sys.argv[1:]])
