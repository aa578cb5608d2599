"""Console output on its way to the log: pieces as they were written, in few records.

A program writes its output in small pieces: `print("x")` writes "x" and the line end, a progress bar a few characters
at a time. Pieces of one stream that were written within 20 ms become one record, whose time is that of the first: so
a line costs a quarter of the bytes, no time in the log is off by more, and the writer's thread keeps up with a program
that prints without pause. Who writes a piece only appends it to a deque, as `log` does with rows.
"""

from __future__ import annotations

import codecs
import os
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any, Protocol

from . import records
from .pump import FULL_WAIT_S, Job

if TYPE_CHECKING:
    from .recorder import Recorder

SPAN_NS = 20_000_000
"""What was written that much later than the first piece of a record begins another one."""
MAX_CHARACTERS = 65_536
"""Of one record."""
MAX_WAITING_PIECES = 65_536
MAX_WAITING_CHARACTERS = 32 * 1024 * 1024
"""What waits for the writer's thread at most, beside the last piece."""

_NUMBERS = {"stdout": records.STDOUT, "stderr": records.STDERR}

Piece = tuple[int, int, "str | bytes"]
"""Number of the stream, nanoseconds since the epoch, what was written."""


class ConsoleLog:
    """The console of one run. Any thread may add to it, also in a signal handler: there is no lock."""

    def __init__(
        self,
        hand_off: Callable[[Job], Any],
        warn: Callable[[str], None],
        *,
        now_ns: Callable[[], int] = time.time_ns,
        monotonic: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        """Nothing is logged yet.

        Args:
            hand_off: has the writer's thread do something.
            warn: takes one line for the user.
            now_ns: nanoseconds since the epoch.
            monotonic: monotonic seconds.
            sleep: waits some seconds.
        """
        self._hand_off, self._warn = hand_off, warn
        self._now_ns, self._monotonic, self._sleep = now_ns, monotonic, sleep
        self._pieces: deque[Piece] = deque()
        self._characters = 0  # about: threads may count at once. Zero again whenever nothing waits.
        self._scheduled = False
        self._stuck = False
        self._closed = False
        # UTF-8 whose characters may be cut anywhere between two pieces.
        decoder = codecs.getincrementaldecoder("utf-8")
        self._decoders = {number: decoder("replace") for number in _NUMBERS.values()}
        self._dropped = 0

    # -- any thread --------------------------------------------------------------------------------------------------

    @property
    def dropped(self) -> int:
        """Pieces that found no room; once the writer's thread has ended, those too that still wait."""
        return self._dropped + len(self._pieces)

    def add(self, stream: str, data: str | bytes, time_ns: int | None = None) -> None:
        """Log what was written. Waits 0.1 s at most, and only if the disk holds up the writer; then it is dropped.

        Args:
            stream: "stdout" or "stderr".
            data: text, or bytes that are UTF-8 (what is not, becomes U+FFFD).
            time_ns: when, in nanoseconds since the epoch; now, unless given.
        """
        if self._closed or not data:
            return
        if self._full() and not self._make_room():
            self._dropped += 1
            return
        self._characters += len(data)
        now = self._now_ns() if time_ns is None else time_ns
        self._pieces.append((_NUMBERS.get(stream, records.STDOUT), now, data))
        if not self._scheduled:  # after the append: `_record` unsets it before it looks for pieces
            self._scheduled = True
            self._hand_off(self._record)

    def lost(self, pieces: int) -> None:
        """Count what was lost on its way here."""
        self._dropped += pieces

    def close(self) -> None:
        """Nothing more comes. What is there goes to the log."""
        if not self._closed:
            self._closed = True
            self._hand_off(self._record_rest)

    def abandon(self) -> None:
        """In a forked child: nothing is logged, and nothing kept."""
        self._closed = True
        self._pieces = deque()

    def _full(self) -> bool:
        return len(self._pieces) >= MAX_WAITING_PIECES or self._characters >= MAX_WAITING_CHARACTERS

    def _make_room(self) -> bool:
        deadline = self._monotonic() + FULL_WAIT_S
        while self._full():
            if self._stuck:
                return False
            if self._monotonic() >= deadline:
                self._stuck = True  # no more waiting until the thread comes by
                self._warn("the disk holds up the writer: console output is dropped and counted")
                return False
            self._sleep(0.001)
        return True

    # -- the writer's thread -----------------------------------------------------------------------------------------

    def _record(self, recorder: Recorder) -> None:
        self._scheduled = False
        for number, time_ns, text in self._joined():
            for start in range(0, len(text), MAX_CHARACTERS):
                body = records.output(number, time_ns, text[start : start + MAX_CHARACTERS])
                recorder.record(body, bulk=True)
        self._stuck = False

    def _record_rest(self, recorder: Recorder) -> None:
        self._record(recorder)
        for number, decoder in self._decoders.items():
            if text := decoder.decode(b"", final=True):
                recorder.record(records.output(number, self._now_ns(), text), bulk=True)

    def _joined(self) -> Iterator[tuple[int, int, str]]:
        """All that waits, adjacent pieces of one stream in one."""
        last, began, texts, size = -1, 0, list[str](), 0
        for _ in range(len(self._pieces)):  # what comes meanwhile is scheduled anew: rows wait behind this
            number, time_ns, data = self._pieces.popleft()
            self._characters -= len(data)
            text = data if isinstance(data, str) else self._decoders[number].decode(data)
            size += len(text)
            if number != last or not 0 <= time_ns - began <= SPAN_NS or size > MAX_CHARACTERS:
                if texts:
                    yield last, began, "".join(texts)
                last, began, texts, size = number, time_ns, [], len(text)
            texts.append(text)
        if not self._pieces:
            self._characters = 0
        if texts:
            yield last, began, "".join(texts)


class Capture(Protocol):
    """Something that takes the console's output at its source."""

    def start(self) -> None:
        """Begin. Raises OSError, ImportError or RuntimeError (no thread) if it cannot be done here."""

    def stop(self) -> None:
        """End, and give back what was taken over. Never raises."""

    def sync(self) -> None:
        """Wait, not for long, until all that was written so far has been told."""

    def abandon(self) -> None:
        """In a forked child: it has no part in the capture, which goes on in the parent."""


class Fan:
    """The console logs of the runs that are told: two runs at a time share one capture."""

    def __init__(self) -> None:
        self.logs: tuple[ConsoleLog, ...] = ()

    def add(self, stream: str, data: str | bytes, time_ns: int | None = None) -> None:
        """As `ConsoleLog.add`. Never raises: a fault of ours must not look like one of print."""
        for log in self.logs:
            try:  # noqa: SIM105 - `suppress` costs 0.5 us
                log.add(stream, data, time_ns)
            except Exception:  # noqa: S110 - the others are told all the same
                pass

    def lost(self, pieces: int) -> None:
        """As `ConsoleLog.lost`."""
        for log in self.logs:
            log.lost(pieces)


_lock = threading.RLock()  # starts and stops; re-entrant for a signal handler that ends a run
_captures: dict[str, tuple[Capture, Fan]] = {}


class Subscription:
    """One run's part in a capture."""

    def __init__(self, mode: str, log: ConsoleLog) -> None:
        self._mode, self._log = mode, log

    def sync(self) -> None:
        """Wait 2 s at most until all that was written so far is in the run's hands. No lock: handlers call it."""
        running, _ = _captures.get(self._mode, (None, None))
        if running is not None:
            running.sync()

    def stop(self) -> None:
        """End it; the capture ends with its last one."""
        with _lock:
            capture, fan = _captures.get(self._mode, (None, None))
            if capture is None or fan is None or self._log not in fan.logs:
                return
            if len(fan.logs) == 1:
                del _captures[self._mode]
                capture.stop()  # which brings what is on its way
            else:
                capture.sync()
            fan.logs = tuple(log for log in fan.logs if log is not self._log)


def capture(mode: str, log: ConsoleLog, warn: Callable[[str], None]) -> Subscription:
    """Take what is written to stdout and stderr from now on.

    Args:
        mode: "wrap" takes what goes through Python's streams; "redirect" also what C libraries and other processes
            write to the descriptors, and falls back to "wrap", with a warning, where that cannot be done.
        log: is told.
        warn: takes one line for the user.
    """
    with _lock:
        if mode not in _captures:
            fan = Fan()
            try:
                _captures[mode] = _started(mode, fan, warn), fan
            except (OSError, ImportError, RuntimeError) as error:
                warn(f"the console cannot be redirected ({error}): only what Python itself writes is logged")
                return capture("wrap", log, warn)
        running, fan = _captures[mode]
        if fan.logs:
            running.sync()  # what another run's program wrote before is not this one's
        fan.logs += (log,)
        return Subscription(mode, log)


def _started(mode: str, fan: Fan, warn: Callable[[str], None]) -> Capture:
    made: Capture
    if mode == "redirect":
        from .redirect import Redirect

        made = Redirect(fan, warn)
    else:
        from .tee import StreamTees

        made = StreamTees(fan)
    made.start()
    return made


def _after_fork_in_child() -> None:
    global _lock
    _lock = threading.RLock()  # another thread may have held it
    for running, fan in _captures.values():
        fan.logs = ()
        running.abandon()
    _captures.clear()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork_in_child)
