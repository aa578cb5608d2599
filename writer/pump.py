"""The hand-off: training threads append to a deque, one thread takes from it and does all the work.

On the training thread nothing may give up the interpreter's lock: with another busy thread in the process, winning
it back costs milliseconds. So `log` appends and returns, without lock, event or system call, and the writer's thread
wakes by itself. Whoever needs an answer waits on a lock of his own, which also makes every wait safe inside a signal
handler: no lock here is ever shared.

Where nothing comes for a while the thread stops waking by itself and says so in `asleep`: whoever hands something off
then wakes it, which is a system call but never a wait. No wake-up is lost: the thread says it before it looks at the
queue a last time, and others append before they look at `asleep`, so that one of the two sees the other. A wake-up that
comes before the wait ends it at once.
"""

from __future__ import annotations

import sys
import threading
import time
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from typing import TYPE_CHECKING, Any, TypeVar

from .heartbeat import Heartbeat
from .journal import Clock, Journal
from .values import Key

if TYPE_CHECKING:
    from .filemethods import StagedRow
    from .recorder import Recorder

DRAIN_S = 0.018
"""A row is in the page cache 20 ms after `log` returned: this wait, and the time to encode and write."""
RELAXED_DRAIN_S = 0.25
LINGER_S = 0.25
"""The thread goes on waking by itself for so long after the last thing that was handed off. A loop that logs more often
never has to wake it (13 us per call); one that logs rarely costs little (a wake-up takes about 0.1 ms of CPU)."""
UNSETTLED_S = 0.25
"""How often an idle thread looks whether a disk that failed takes something again."""
LONGEST_REST_S = 15.0
"""After so long it looks at everything again, whatever it knows of."""
SYNC_S = 4.5
"""At `normal` and `record` nothing older than 5 s is at risk in a power cut: this, and the time that a sync takes."""
YIELD_EVERY = 16
"""Rows. The thread offers the interpreter's lock after so many (0.1 ms), so that `log` never waits for a whole drain."""
BACKLOG = 256
"""Rows. With more to do the thread offers nothing: among busy threads it gets the lock back only after 5 ms of each."""
EASE_ROWS, EASE_BYTES = 1024, 4 * 1024 * 1024
"""With so much between `log` and the thread, `log` lets the thread catch up, so that memory stays small."""
MAX_HANDED_OFF, MAX_HANDED_OFF_BYTES = 65_536, 64 * 1024 * 1024
"""Rows between `log` and the thread, and about what they hold. More means that the disk holds the thread up."""
STALL_S = 0.05
"""The thread took nothing for so long: the disk has it, or other threads have the interpreter."""
FULL_WAIT_S = 0.1
"""How long `log` waits for room before it drops and counts."""
WAIT_S = 30.0
"""Every wait for the disk ends here at the latest."""
OPEN_WAIT_S = 5.0
"""How long the start of a run waits for a disk that does not answer."""
FINISH_RETRY_S = 5.0
"""How long `finish` keeps trying on a disk that answers with errors."""
LAST_SYNCS = 2
"""How often it tries to sync: each failure leaves a log behind."""

Row = tuple[float, "int | None", "bool | None", "dict[Key, Any]"]
"""When, step, commit, plain values under names that nobody looked at."""
HandedOff = Row | tuple[float, "int | None", "bool | None", "dict[Key, Any]", "StagedRow"]
Job = Callable[["Recorder"], None]
_T = TypeVar("_T")


class _Barrier:
    """Stands in the queue behind what it waits for."""

    __slots__ = ("answered", "lock", "ok", "sync")

    def __init__(self, *, sync: bool) -> None:
        self.sync = sync
        self.ok = self.answered = False
        self.lock = threading.Lock()
        self.lock.acquire()

    def done(self, *, ok: bool) -> None:
        self.ok, self.answered = ok, True
        with suppress(RuntimeError):  # done before
            self.lock.release()

    def wait(self, timeout_s: float) -> bool:
        return self.lock.acquire(timeout=timeout_s) and self.ok


class Pump:
    """Owns the queue and the thread of one run.

    The recorder is made on the thread, because its imports cost more than a run's start may.
    """

    def __init__(
        self,
        make_recorder: Callable[[], Recorder],
        journal: Journal,
        clock: Clock,
        level: str,
        warn: Callable[[str], None],
        *,
        heartbeat: Heartbeat,
    ) -> None:
        self._make_recorder = make_recorder
        self._recorder: Recorder | None = None
        self._journal, self._clock, self._warn = journal, clock, warn
        self._level, self._heartbeat = level, heartbeat
        self._interval = RELAXED_DRAIN_S if level == "relaxed" else DRAIN_S
        self.queue: deque[HandedOff | Job | _Barrier] = deque()
        self._wake = threading.Lock()
        self._wake.acquire()
        self._barriers: list[_Barrier] = []
        self._synced_at = clock.monotonic()
        self._named_directories = False
        self._stopping = False
        self._stuck = False  # since the last drain somebody found no room,
        self._stalled = False  # or saw the thread take nothing,
        self._silent = False  # or got no answer from it
        self._weighed = 0  # bytes: what rows hold that were weighed since the last drain began
        self._awake_until = 0.0  # monotonic s
        self.asleep = False
        """Whether the thread has to be woken for what is handed off: to be read after it was appended to the queue."""
        self._opened = threading.Lock()
        self._opened.acquire()
        self.ease = EASE_ROWS
        """Rows: with so many in the queue `log` has to ask `admit`. The larger rows are, the fewer."""
        self._failures = 0
        self._thread: threading.Thread | None = None
        self.rows_dropped = 0
        """Rows that found the hand-off full, or that no record could be made of."""
        self.ended = False
        """Whether the last drain is over: nothing changes any more."""

    # -- any thread --------------------------------------------------------------------------------------------------

    @property
    def known_recorder(self) -> Recorder | None:
        """The recorder if it has been made: its counters may be read by anybody."""
        return self._recorder

    @property
    def recorder(self) -> Recorder:
        """The recorder; only for the thread, and for everybody once it has ended."""
        if self._recorder is None:
            self._recorder = self._make_recorder()
        return self._recorder

    @property
    def loading(self) -> bool:
        """Whether the thread is still importing what it needs."""
        return self._thread is not None and self._recorder is None

    def start(self) -> None:
        """Start the thread, and wait a little for it to make the log. It is a daemon: it never keeps a process alive."""
        self._thread = threading.Thread(target=self._run, name="runferry-writer", daemon=True)
        try:
            self._thread.start()
        except RuntimeError as error:  # the system's bound of threads, or the interpreter is going down
            self._thread, self.ended = None, True
            self._warn(f"no thread can be started ({error}): nothing can be written, and training goes on")
            return
        if not self._opened.acquire(timeout=OPEN_WAIT_S):
            self._warn("the disk does not answer: the run begins without a log, and rows wait for it in memory")

    def admit(self, row: dict[Key, Any]) -> bool:
        """Whether a row may join a queue as long as `ease`. Lets the thread catch up first, if it does."""
        if not self._stalled:
            self._ease_off()
        if len(self.queue) < self.ease:
            return True
        weight = sum(map(sys.getsizeof, row.values()))
        most = MAX_HANDED_OFF if self._weighed + weight <= MAX_HANDED_OFF_BYTES else self.ease
        if not self.make_room(most):
            return False
        self._weighed += weight
        return True

    def _ease_off(self) -> None:
        waiting, enough = len(self.queue), self.ease // 2
        deadline = self._clock.monotonic() + STALL_S
        while waiting > enough:
            self.wake()
            self._clock.sleep(0.0005)
            left, now = len(self.queue), self._clock.monotonic()
            if left < waiting:
                deadline = now + STALL_S
            elif now >= deadline:
                self._stalled = True  # more waiting would only hold up training
                return
            waiting = left

    def make_room(self, most: int) -> bool:
        """Wait a little for the thread to catch up; False if still `most` wait: then drop, and count."""
        deadline = self._clock.monotonic() + FULL_WAIT_S
        while len(self.queue) >= most:
            self.wake()
            if self._stuck or self._clock.monotonic() >= deadline:
                if not self._stuck:
                    self._warn(
                        "the disk holds up the writer: what finds the queue full is dropped and counted"
                        f" ({len(self.queue)} rows and lines wait)"
                    )
                self._stuck = True  # no more waiting until a drain ends
                return False
            self._clock.sleep(0.001)
        return True

    def hand_off(self, job: Job) -> None:
        """Have the thread do something, in order, when its turn comes."""
        self.queue.append(job)
        if self.asleep:
            self.wake()

    def submit(self, job: Job) -> None:
        """Have the thread do something, in order, at once."""
        self.queue.append(job)
        self.wake()

    def wake(self) -> None:
        """End the thread's wait. Safe in a signal handler: releasing a free lock is refused, not waited for."""
        if self._wake.locked():  # else it was woken, and has not come to it yet
            with suppress(RuntimeError):
                self._wake.release()

    def barrier(self, *, sync: bool, timeout_s: float = WAIT_S) -> bool:
        """Wait until all that was handed off before is in the page cache, or on the device; whether it is."""
        if self.ended or self._thread is None or self._thread is threading.current_thread():
            return False
        barrier = _Barrier(sync=sync)
        self.queue.append(barrier)
        self.wake()
        if self._too_late():
            return False
        settled = barrier.wait(timeout_s)
        self._silent = self._silent or not barrier.answered
        return settled

    def settle(self, *, sync: bool) -> bool:
        """The barrier of a single call. While the disk hangs only the first one waits, so that training goes on."""
        if self._held_up():
            return False
        settled = self.barrier(sync=sync, timeout_s=WAIT_S)
        if self._held_up():
            self._warn(f"the disk did not answer for {WAIT_S:g} s; until it does, log() does not wait for it")
        return settled

    def _held_up(self) -> bool:
        """Whether somebody waited in vain, and the thread has not come back from the disk since."""
        return self._silent

    def ask(self, question: Callable[[Recorder], _T], timeout_s: float = WAIT_S) -> _T | None:
        """An answer that includes all that was handed off before; None if the thread is held up too long."""
        if self.ended:  # in a forked child there may be no recorder, and its modules' import locks may be held for ever
            return None if self._recorder is None else question(self._recorder)
        answers: list[_T] = []
        barrier = _Barrier(sync=False)

        def answer(recorder: Recorder) -> None:
            try:
                answers.append(question(recorder))
            finally:
                barrier.done(ok=True)

        self.submit(answer)
        if self._too_late():
            return question(self.recorder)
        barrier.wait(0.0 if self._silent else timeout_s)
        self._silent = self._silent or not barrier.answered
        return answers[0] if answers else None

    def _too_late(self) -> bool:
        """Whether the thread ended while something was put into the queue, which nobody may have looked at then."""
        return self.ended

    def stop(self, timeout_s: float = WAIT_S) -> bool:
        """Drain a last time and end the thread; whether it ended in time."""
        self._stopping = True
        self.wake()
        return self.join(timeout_s)

    def join(self, timeout_s: float) -> bool:
        """Wait for the end of the thread, which somebody told to stop; whether it came in time."""
        if self._thread is not None:
            self._thread.join(timeout_s)
            return not self._thread.is_alive()
        return True

    # -- the thread --------------------------------------------------------------------------------------------------

    def _run(self) -> None:
        try:
            self._journal.open()
            self._beat()
            self._opened.release()
            self._wake.acquire(timeout=self._interval)  # the start of a run comes before the imports of the first drain
            while not self._stopping:
                self._drain()
                self._beat()
                self._rest()
            self._drain_last()
        except Exception as error:  # our modules cannot be loaded, or there is no memory at all
            self._warn(f"nothing can be written any more ({type(error).__name__}: {error}); training goes on")
        finally:
            self._heartbeat.end()
            self.ended = True
            with suppress(RuntimeError):  # released before
                self._opened.release()
            self._answer_late()

    def _beat(self) -> None:
        paths = self._journal.paths
        self._heartbeat.beat(paths[-1] if paths else None)

    def _rest(self) -> None:
        """Wait for the next turn."""
        pause = self._pause()
        self.asleep = pause > self._interval
        if not (self.asleep and self.queue):  # who comes after this look finds it asleep
            self._wake.acquire(timeout=pause)
        self.asleep = False

    def _pause(self) -> float:
        """Seconds until there may be something to do: at the next turn, or if nobody comes, when its time has come."""
        now, recorder = self._clock.monotonic(), self.recorder
        if now < self._awake_until:
            return self._interval
        if self._journal.failing or recorder.urgent or not self._named_directories:
            return UNSETTLED_S
        due = min(recorder.due, self._heartbeat.due, now + LONGEST_REST_S)
        if self._level != "relaxed":
            due = min(due, self._synced_at + SYNC_S)
        return max(due - now, self._interval)

    def _answer_late(self) -> None:
        """Whoever began to wait during the last drain waits no longer. Rows stay in the queue, and are counted."""
        for item in list(self.queue):
            if type(item) is _Barrier:
                item.done(ok=False)
            elif callable(item):
                with suppress(Exception):  # the journal is closed: only questions still have a meaning
                    item(self.recorder)

    def _drain(self) -> None:
        queue, recorder, journal = self.queue, self.recorder, self._journal
        row = recorder.row
        recorder.read_clocks()
        self._weighed = 0
        if queue:
            self._awake_until = self._clock.monotonic() + LINGER_S
        rows, size = journal.rows_taken, journal.row_bytes_taken
        for count in range(len(queue)):  # what comes meanwhile waits for the next turn, so that no producer starves it
            item = queue.popleft()
            try:
                if type(item) is tuple:
                    row(*item)
                elif type(item) is _Barrier:
                    self._barriers.append(item)
                else:
                    item(recorder)  # type: ignore[operator]
            except Exception as error:  # one bad row must not end the log
                self.rows_dropped += type(item) is tuple
                self._failed(error)
            if not count % YIELD_EVERY and len(queue) < BACKLOG and not self._stopping:
                time.sleep(0)
        try:
            recorder.tick()
            written = journal.write()
            synced = self._sync_if_due(written=written)
        except Exception as error:  # nothing may end this thread but the end of the run
            self._failed(error)
            written = synced = False
        if journal.rows_taken > rows:
            each = max((journal.row_bytes_taken - size) // (journal.rows_taken - rows), 1)
            self.ease = max(min(EASE_ROWS, EASE_BYTES // each), 2)
        self._stuck = self._stalled = self._silent = False
        barriers, self._barriers = self._barriers, []
        for barrier in barriers:
            barrier.done(ok=synced if barrier.sync else written)

    def _sync_if_due(self, *, written: bool) -> bool:
        """Whether everything written is on the device; one sync serves all who wait."""
        now = self._clock.monotonic()
        asked = any(barrier.sync for barrier in self._barriers) or self.recorder.urgent
        timed = self._level != "relaxed" and (now - self._synced_at >= SYNC_S or self._journal.wants_sync)
        if not (asked or timed or not self._named_directories):
            return False
        self._synced_at = now
        self.recorder.sync_files()  # begins it: a large file holds up no row
        synced = self._journal.sync()  # also where not all was written: what is in the file must not wait for the rest
        if not synced and written:  # it goes to a new segment at once
            synced = self._journal.write(now=True) and self._journal.sync()
        synced = synced and written
        self._named_directories = self._named_directories or synced
        self.recorder.urgent = self.recorder.urgent and not synced
        return synced

    def _drain_last(self) -> None:
        """Write and sync what is left; on a disk that answers with errors, for some seconds."""
        deadline = self._clock.monotonic() + FINISH_RETRY_S
        syncs = LAST_SYNCS
        while True:
            self._drain()
            if self._journal.write(now=True):
                if self._journal.sync(now=True):
                    break
                syncs -= 1
            if not syncs or self._journal.hopeless or self._clock.monotonic() >= deadline:
                break
            self._clock.sleep(0.1)
        self._journal.write(now=True)  # what a failed sync took back is better in a file than nowhere
        self._journal.close()

    def _failed(self, error: Exception) -> None:
        self._failures += 1
        if self._failures == 1:
            self._warn(f"a record could not be written ({type(error).__name__}: {error}); the rest goes on")

    # -- after a fork ------------------------------------------------------------------------------------------------

    def abandon(self) -> None:
        """In the child of a fork: there is no thread, and the log is the parent's."""
        self.ended = True
        self.asleep = False
        self._thread = None
        self.queue = deque()
        self._journal.abandon()
