"""How probes are run: on the scheduler's thread, or each on a thread of its own with at most one call in flight."""

from __future__ import annotations

import threading
import time
from typing import Any

from .context import Context
from .probe import Probe, ProbeUnavailableError, Stats, Values, in_words
from .settings import SamplerSettings

LEAST_DEADLINE, LONGEST_DEADLINE = 1.0, 5.0  # s for an answer, before a probe is said to hang
JITTER = 0.1  # of the interval: a tick may come that much early after one that was late


def answer_within(interval: float) -> float:
    """How long a deferred probe may take: an interval, within bounds."""
    return min(max(interval, LEAST_DEADLINE), LONGEST_DEADLINE)


def true_for(interval: float) -> float:
    """How old values may become: whatever is dropped for its age was said to hang before."""
    return 2 * max(interval, LEAST_DEADLINE)


class Runner:
    """What the scheduler asks of a probe, wherever it runs. None of these may block.

    `request` starts a sample unless one is still out; `take` hands over the newest finished one, once.
    """

    def __init__(self, probe: Probe, settings: SamplerSettings) -> None:
        self.probe = probe
        self.least = settings.probe_intervals.get(probe.name, probe.interval)
        """Seconds that pass at least between two samples."""
        self.period = max(self.least, settings.interval)
        """Seconds between two samples where all goes well; by it, answers are late and values old."""
        self._jitter = JITTER * settings.interval
        self._asked_last = float("-inf")
        self.stats = Stats()
        self.asked_at = 0.0  # monotonic s, of the request that the values taken last answer
        self.reason: str | None = None  # why the probe is unavailable; None while it may deliver
        self.loud = False  # whether that is worth a warning
        self.broken = False  # whether opening failed for no reason that lasts

    def request(self, now: float) -> bool:
        """Ask for a sample at monotonic time `now` (s); False if the last one is still out, or it is not time yet."""
        raise NotImplementedError

    def due(self, now: float) -> bool:
        """Whether the last sample is long enough ago; if so, this counts as the next."""
        if now - self._asked_last < self.least - self._jitter:
            return False
        self._asked_last = now
        return True

    @property
    def waiting_since(self) -> float | None:
        """When the sample was asked for that is still out; None if none is."""
        return None

    @property
    def waiting(self) -> bool:
        """Whether an answer is out."""
        return self.waiting_since is not None

    @property
    def opening(self) -> bool:
        """Whether the probe is still being opened."""
        return False

    def take(self, now: float) -> Values:
        """The values that arrived since the last call, empty if none did."""
        raise NotImplementedError

    def metadata(self) -> dict[str, Any]:
        """What the probe knows about its devices."""
        return self.probe.metadata()

    def dismiss(self) -> None:
        """Ask for the end, without waiting: all are asked before any is waited for."""

    def close(self, timeout: float) -> None:
        """End within `timeout` s; what hangs is left behind."""

    def forget(self) -> None:
        """In a forked child: let go of what belongs to the parent, without a word to it."""


def sample_once(runner: Runner, ctx: Context) -> Values:
    """Call the probe, measure it, keep what it wrote even if it raised."""
    values: Values = {}
    started = time.perf_counter()
    try:
        runner.probe.sample(ctx, values)
    except Exception as error:  # a probe that fails loses its own keys only
        runner.stats.errors += 1
        runner.stats.last_error = in_words(error)
    runner.stats.duration = time.perf_counter() - started
    return values


def open_probe(runner: Runner, ctx: Context) -> bool:
    """Open the probe; on failure note why it is unavailable."""
    try:
        runner.probe.open(ctx)
    except ProbeUnavailableError as error:
        runner.reason, runner.loud = str(error), error.loud
    except Exception as error:  # as in sample_once
        runner.reason, runner.broken = f"cannot be opened: {in_words(error)}", True
        runner.stats.errors += 1
        runner.stats.last_error = in_words(error)
    return runner.reason is None


def sample_or_open(runner: Runner, ctx: Context) -> Values:
    """Sample; a probe whose opening failed for no reason that lasts is opened first."""
    if runner.broken:
        runner.reason, runner.broken = None, False
        open_probe(runner, ctx)
    return sample_once(runner, ctx) if runner.reason is None else {}


class InlineRunner(Runner):
    """On the scheduler's thread, with its context; `opened` once `open_probe` succeeded."""

    def __init__(self, probe: Probe, ctx: Context) -> None:
        super().__init__(probe, ctx.settings)
        self._ctx = ctx
        self._values: Values = {}
        self.overruns = 0
        open_probe(self, ctx)

    def request(self, now: float) -> bool:
        """Sample right away; a probe that could not be opened is tried again."""
        if not self.due(now):
            return False
        self._values = sample_or_open(self, self._ctx)
        return True

    def take(self, now: float) -> Values:  # noqa: ARG002 - the port's
        """The values of the request just made."""
        values, self._values = self._values, {}
        return values

    def close(self, timeout: float) -> None:  # noqa: ARG002 - reads of /proc need no time to end
        """Close the probe."""
        self.probe.close()


class DeferredRunner(Runner):
    """Elsewhere. `ready` is notified when an answer arrives; values that are too old to be true are dropped."""

    def __init__(self, probe: Probe, ctx: Context, ready: threading.Condition) -> None:
        super().__init__(probe, ctx.settings)
        self._ctx = ctx
        self._ready = ready  # guards what follows, here and below
        self._values: Values = {}  # what has arrived
        self._values_from = 0.0  # when they were asked for

    def take(self, now: float) -> Values:
        """What has arrived, unless it is too old to be true."""
        with self._ready:
            values, self._values = self._values, {}
            self.asked_at = self._values_from
            return values if now - self._values_from <= true_for(self.period) else {}


class ThreadRunner(DeferredRunner):
    """On a daemon thread."""

    def __init__(self, probe: Probe, ctx: Context, ready: threading.Condition, *, opened: bool = False) -> None:
        super().__init__(probe, ctx, ready)
        self._asked: float | None = None  # when the sample in flight was asked for
        self._ended = False
        self._work = threading.Event()
        self._opened = opened
        self._unclosed: Exception | None = None  # what closing the probe raised
        self._thread = threading.Thread(target=self._run, name=f"runferry-{probe.label}", daemon=True)
        self._thread.start()

    def _run(self) -> None:
        self._open()
        while (self.reason is None or self.broken) and self._wait_for_work():
            with self._ready:
                asked = self._asked
            if asked is None:
                continue
            self._ctx.begin(asked)
            values = sample_or_open(self, self._ctx)
            with self._ready:
                self._values, self._values_from, self._asked = values, asked, None
                self._ready.notify_all()
        try:
            self.probe.close()
        except Exception as error:  # told by `close`: a traceback has no place in a training's output
            self._unclosed = error
        with self._ready:
            self._asked, self._ended = None, True
            self._ready.notify_all()

    def _open(self) -> None:
        if not self._opened:
            open_probe(self, self._ctx)
            with self._ready:
                self._opened = True
                self._ready.notify_all()

    def _wait_for_work(self) -> bool:
        self._work.wait()
        self._work.clear()
        return not self._ended

    def request(self, now: float) -> bool:
        """Post the request; the thread answers when it can."""
        with self._ready:
            if self._ended:
                return False
            if self._asked is not None:
                self.stats.stalled = now - self._asked >= answer_within(self.period)
                return False
            self.stats.stalled = False
            if not self.due(now):
                return False
            self._asked = now
        self._work.set()
        return True

    @property
    def waiting_since(self) -> float | None:
        """When the request was made for which the thread is at work."""
        return self._asked

    @property
    def opening(self) -> bool:
        """Whether the probe may still turn out to be there."""
        return not self._opened and not self._ended

    def dismiss(self) -> None:
        """Ask the thread to end; a program that it waits for is ended."""
        with self._ready:
            self._ended = True
        self._ctx.closing.set()
        self._work.set()

    def close(self, timeout: float) -> None:
        """Wait for the thread's end; one that hangs in a call is abandoned (it is a daemon)."""
        self.dismiss()
        self._thread.join(timeout)
        if self._unclosed is not None:
            raise self._unclosed
