"""One pacer per (host, project): every worker asks it before each request, so that one quota is spent by one hand.

The numbers are a `Lane`. Processes of one user share them through a small file (`SharedFile`), if there is a folder for it,
and then their workers are paced as those of one process are. Without the file each hears the server for itself: `Remaining` then
falls faster than it sends, so it takes its share of the quota.
"""

from __future__ import annotations

import hashlib
import random
import sys
import threading
from collections import OrderedDict
from collections.abc import Callable, Hashable
from pathlib import Path
from typing import TypeVar

from .bucket import Bucket
from .clock import Clock
from .lane import REQUEST, Cost, Lane
from .ratelimit import Limits
from .sharedfile import SharedFile

Result = TypeVar("Result")

STREAM_RATE = 2.0  # file_stream requests/s per run, documented
STREAM_BURST = 15.0
_UNLIMITED = 1e9  # requests at once
_STREAMS_KEPT = 256  # more than there are runs at a time
_NEWS_S = 1.0  # a lane that closes for less, or for so little longer, is no news


class Pacer:
    """The lane of one project. Safe to call from any thread; never sleeps while it holds its lock."""

    def __init__(self, clock: Clock, rng: random.Random, shared: SharedFile | None = None) -> None:
        self._clock = clock
        self._rng = rng
        self._shared = shared
        self._lock = threading.Lock()
        self._lane = Lane.new(clock.monotonic())
        self._announced = float("-inf")

    def wait(self, cost: Cost = REQUEST, on_closed: Callable[[float], None] | None = None) -> float:
        """Return when one request may go: its number, for `accepted`.

        `on_closed` is told for how many seconds the lane is closed, by whomever, where nobody has been told of it yet. Raises
        what the clock's sleep raises.
        """
        while True:
            delay, number = self._change(lambda lane, now: (lane.enter(now, cost, self._rng), lane.sent - 1))
            if delay <= 0.0:
                return number
            if on_closed is not None and self.closed_for > 0.0 and self.is_news():
                on_closed(delay)
            self._clock.sleep(delay)

    def accepted(self, limits: Limits, number: float) -> None:
        """Learn from an answer that was not a 429, to the request of that number."""
        self._change(lambda lane, now: lane.accepted(limits, number, now, self._rng))

    def refused(self, limits: Limits, *, learns: bool = True) -> float:
        """Close the lane after a 429; for how many seconds. `learns`: whether it tells something of the project's quota."""
        return self._change(lambda lane, now: lane.refused(limits, now, self._rng, learns=learns))

    def close(self, seconds: float) -> float:
        """Close the lane for so long, and a little longer; for how many seconds in all."""
        return self._change(lambda lane, now: lane.close(seconds, now, self._rng))

    @property
    def closed_for(self) -> float:
        """Seconds until the lane opens; 0 where it is open."""
        return max(0.0, self._lane.closed_until - self._clock.monotonic())

    def is_news(self) -> bool:
        """Whether the lane is closed for noticeably longer than when this was last asked."""
        with self._lock:
            until = self._lane.closed_until
            if until - max(self._announced, self._clock.monotonic()) <= _NEWS_S:
                return False
            self._announced = until
            return True

    def release(self) -> None:
        """Let the shared file go."""
        with self._lock:
            if self._shared is not None:
                self._shared.close()

    def _change(self, change: Callable[[Lane, float], Result]) -> Result:
        """Change the lane, as all who share it know it."""
        with self._lock:
            now = self._clock.monotonic()
            if self._shared is None:
                return change(self._lane, now)
            with self._shared.held() as held:
                if held is None:
                    return change(self._lane, now)
                offset = self._clock.time() - now
                if held.numbers is not None:
                    self._lane.load(held.numbers, offset, now)
                result = change(self._lane, now)
                held.put = self._lane.numbers(offset)
                return result


class StreamLane:
    """The `file_stream` requests of one run: the documented rate, after a burst that a run of ordinary size stays within.

    The documented limit is a rate, and says nothing of bursts. Once a server has shown that it means every second, so do we.
    """

    def __init__(self, clock: Clock, burst: float = STREAM_BURST) -> None:
        self._clock = clock
        self._lock = threading.Lock()
        self._bucket = Bucket(STREAM_RATE, burst, burst, clock.monotonic())

    def wait(self) -> None:
        """Return when one request may go. Raises what the clock's sleep raises."""
        while True:
            with self._lock:
                delay = self._bucket.ready_in(1.0, self._clock.monotonic())
                if delay <= 0.0:
                    self._bucket.take(1.0)
                    return
            self._clock.sleep(delay)

    def refused(self) -> bool:
        """Whether a 429 may be meant for this run alone, as it has sent in a burst. From now on it does so no more."""
        with self._lock:
            bucket = self._bucket
            was_burst = bucket.burst > STREAM_RATE and bucket.level < bucket.burst - STREAM_RATE
            if was_burst:
                bucket.burst, bucket.level = STREAM_RATE, 0.0
            return was_burst


class StreamLanes:
    """The stream lanes of a process, one per run. Of runs that have not sent for a while none is kept.

    A server that `is_local` is none of those that the limit is documented for: it is believed to have one when it refuses.
    """

    def __init__(self, clock: Clock, *, is_local: bool = False) -> None:
        self._clock = clock
        self._burst = _UNLIMITED if is_local else STREAM_BURST
        self._lock = threading.Lock()
        self._lanes: OrderedDict[Hashable, StreamLane] = OrderedDict()

    def of(self, run: Hashable) -> StreamLane:
        """The lane of a run, the same one for every caller."""
        with self._lock:
            lane = self._lanes.get(run)
            if lane is None:
                lane = self._lanes[run] = StreamLane(self._clock, self._burst)
                while len(self._lanes) > _STREAMS_KEPT:
                    self._lanes.popitem(last=False)
            self._lanes.move_to_end(run)
            return lane


class Pacers:
    """The pacers of a process, one per (host, project). `folder`: where those of projects are shared with other processes."""

    def __init__(self, clock: Clock, rng: random.Random, folder: Path | None = None) -> None:
        self._clock = clock
        self._rng = rng
        self._folder = folder
        self._lock = threading.Lock()
        self._pacers: dict[tuple[str, str], Pacer] = {}

    def of(self, host: str, project: str) -> Pacer:
        """The pacer of `project` on `host`, the same one for every caller."""
        with self._lock:
            pacer = self._pacers.get((host, project))
            if pacer is None:
                pacer = self._pacers[host, project] = Pacer(self._clock, self._rng, self._shared(host, project))
            return pacer

    def share(self, folder: Path) -> None:
        """Share the lanes of projects that are met from now on, by files in `folder`."""
        self._folder = folder

    def close(self) -> None:
        """Let the shared files go."""
        with self._lock:
            for pacer in self._pacers.values():
                pacer.release()

    def _shared(self, host: str, project: str) -> SharedFile | None:
        if self._folder is None or not project or sys.platform == "win32":
            return None
        name = hashlib.sha256(f"{host}\n{project}".encode("utf-8", "surrogatepass")).hexdigest()[:32]
        return SharedFile(self._folder / f"{name}.lane", now=self._clock.time)
