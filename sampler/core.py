"""The sampler: a daemon thread that ticks on absolute deadlines."""

from __future__ import annotations

import contextlib
import math
import os
import sys
import threading
import time
import weakref
from collections.abc import Callable
from typing import Any

from .clock import Clock, SystemClock
from .engine import SHORT_GRACE, Engine, Sample
from .probe import in_words
from .settings import SamplerSettings

DEVICES_WITHIN = 5.0  # s after which late devices wait for the next regular sample
STOP_WITHIN = 2.0  # s, for the last sample and for closing all probes


def warn_on_stderr(message: str) -> None:
    """One line on standard error, if there is any."""
    with contextlib.suppress(AttributeError, OSError, ValueError):  # none, a broken pipe, closed
        sys.stderr.write(f"runferry sampler: {message}\n")


def next_tick(elapsed: float, interval: float, last: int) -> int:
    """The number of the tick, due at `number * interval` seconds from the start, that comes after `elapsed` seconds.

    Ticks that were missed are skipped, never made up for. None comes twice: a wait may end a little before its time
    (on Windows by up to 16 ms), and a quotient of floats just below a whole number.
    """
    return max(last, math.floor(elapsed / interval)) + 1


class Sampler:
    """Emits a `Sample` at start, every `settings.interval` seconds, and at the end, on its own daemon thread.

    Devices whose libraries take a while to open get one more sample when they have, so that short runs have them too.
    Uses no signals. In a forked child it is inert: it has no thread there, and `start` and `stop` do nothing.
    """

    def __init__(
        self,
        settings: SamplerSettings,
        emit: Callable[[Sample], None],
        *,
        clock: Clock | None = None,
        root: str = "/",
        warn: Callable[[str], None] = warn_on_stderr,
    ) -> None:
        self._interval = settings.interval
        self._clock: Clock = clock or SystemClock()
        self._emit = emit
        self._engine = Engine(settings, self._pass_on, clock=self._clock, root=root, warn=warn)
        self._warn = warn
        self._stopping = threading.Event()
        self._asked = threading.Event()  # every probe has been asked, or never will be
        self._paused = False
        self._silent = False  # nothing is emitted once `stop` has returned
        self._thread: threading.Thread | None = None
        self._inert = False
        self._failed = False  # whether a tick has been told to have failed
        self.loading = False
        """Whether the thread may be importing the probes of other packages: not a moment to fork."""
        _alive.add(self)

    def _pass_on(self, sample: Sample) -> None:
        if not self._silent:
            self._emit(sample)

    def start(self) -> None:
        """Start the thread and return at once; the first sample follows within about 0.1 s. May be called twice.

        Where the system refuses the thread there are no samples, which is told in one line.
        """
        if self._inert or self._thread is not None or self._stopping.is_set():
            return
        self.loading = True
        thread = threading.Thread(target=self._run, name="runferry-sampler", daemon=True)
        try:
            thread.start()
        except RuntimeError as error:  # the system's bound of threads, or no memory
            self.loading = False
            self._stopping.set()
            self._asked.set()
            self._warn(f"no system metrics: {error}")
        else:
            self._thread = thread

    def stop(self) -> None:
        """Emit a last sample and close all probes, within 2 s. May be called twice, and without `start`."""
        if self._inert:
            return
        self._stopping.set()
        self._asked.set()
        self._engine.wake()
        if self._thread is None:
            return
        self._thread.join(STOP_WITHIN * 0.75)
        self._silent = True
        if self._thread.is_alive():  # a read of /proc or /sys hangs: leave the thread, but no child process
            self._warn("a system file, or a probe of another package, does not answer; the last sample is missing")
            self._engine.close(STOP_WITHIN * 0.25)

    def pause(self) -> None:
        """Take no samples until `resume`, but the first and the last; what is counted goes on being counted."""
        self._paused = True

    def resume(self) -> None:
        """Take samples again from the next deadline on."""
        self._paused = False

    def settle(self, timeout: float) -> bool:
        """Wait until no device's library is opening any more, at most `timeout` s or until `stop`; whether one has."""
        begun = time.monotonic()
        self._asked.wait(timeout)
        return self._engine.settle(max(0.0, begun + timeout - time.monotonic()))

    @property
    def idle(self) -> bool:
        """Whether it has begun, and no probe has anything to deliver: no sample will come."""
        return self._asked.is_set() and not self.loading and self._engine.idle

    def metadata(self) -> dict[str, Any]:
        """What the probes that have opened know of their devices: fields of the hardware record."""
        return self._engine.metadata()

    def legend(self) -> dict[str, dict[str, str]]:
        """Key -> labels, of keys such as `openmetrics.node.cpu_seconds_total.3`, of which only a number tells them."""
        return self._engine.legend()

    def _run(self) -> None:
        try:
            started = self._clock.monotonic()
            self._engine.open()
            self._tick(SHORT_GRACE)
            self._asked.set()
            if not self._stopping.is_set():
                self._engine.open_third_party()
            self.loading = False
            if self._engine.settle(min(self._interval / 2, DEVICES_WITHIN)) and not self._stopping.is_set():
                self._tick()
            tick = 0
            while True:
                elapsed = self._clock.monotonic() - started
                tick = next_tick(elapsed, self._interval, tick)
                if self._clock.wait(self._stopping, tick * self._interval - elapsed):
                    break
                if not self._paused:
                    self._tick()
            self._tick(SHORT_GRACE)
        except Exception as error:  # a fault of ours must not show as a traceback in the middle of a training
            self._warn(f"sampling has ended: {in_words(error)}")
        finally:
            self.loading = False
            self._asked.set()
            self._engine.close(STOP_WITHIN * 0.5)

    def _tick(self, grace: float | None = None) -> None:
        try:
            self._engine.tick(grace=grace)
        except Exception as error:  # no memory at this moment, a fault of ours: the next may succeed
            if not self._failed:
                self._warn(f"a sample is missing, and others may be: {in_words(error)}")
            self._failed = True

    def _become_inert(self) -> None:
        # No lock may be taken here: the thread that held it at the fork does not exist in the child.
        self._inert = True
        self._engine.forget()


_alive: weakref.WeakSet[Sampler] = weakref.WeakSet()


def _after_fork_in_child() -> None:
    for sampler in list(_alive):
        sampler._become_inert()  # noqa: SLF001 - same module


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork_in_child)
