"""Threads on a clock of their own: one runs at a time, and time passes when all of them sleep. Deterministic."""

from __future__ import annotations

import heapq
import itertools
import threading
from collections.abc import Callable


class Simulation:
    """A clock whose `sleep` lets the thread run that wakes up first."""

    def __init__(self, start: float = 1_800_000_000.0) -> None:
        self._now = self.start = start
        self._order = itertools.count()
        self._sleeping: list[tuple[float, int, threading.Semaphore]] = []

    def monotonic(self) -> float:
        return self._now

    def time(self) -> float:
        return self._now

    def sleep(self, seconds: float) -> None:
        turn = threading.Semaphore(0)
        heapq.heappush(self._sleeping, (self._now + max(seconds, 0.0), next(self._order), turn))
        self._wake()
        turn.acquire()

    def run(self, *works: Callable[[], object]) -> float:
        """Run all works at once, each in a thread; the simulated seconds that they took."""
        begun, finished = self._now, threading.Semaphore(0)
        left, errors = [len(works)], []

        def live(work: Callable[[], object], turn: threading.Semaphore) -> None:
            turn.acquire()
            try:
                work()
            except BaseException as error:
                errors.append(error)
            left[0] -= 1
            if left[0]:
                self._wake()
            else:
                finished.release()

        for work in works:
            turn = threading.Semaphore(0)
            heapq.heappush(self._sleeping, (self._now, next(self._order), turn))
            threading.Thread(target=live, args=(work, turn), daemon=True).start()
        self._wake()
        finished.acquire()
        if errors:
            raise errors[0]
        return self._now - begun

    def _wake(self) -> None:
        self._now, _, turn = heapq.heappop(self._sleeping)
        turn.release()
