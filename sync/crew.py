"""A pool of threads that makes do with as many as the system allows."""

from __future__ import annotations

import contextlib
import threading
from collections import deque
from collections.abc import Callable
from concurrent.futures import Executor, Future
from functools import partial
from typing import Any, ParamSpec, TypeVar

from .here import HERE

P = ParamSpec("P")
Result = TypeVar("Result")


class Crew(Executor):
    """At most so many threads, each started when there is work for it.

    Where no more can be started (`ulimit -u`, the limit of a container), work waits for those that are there; where there is
    not one, whoever brings work does it. They are daemons: a process that was told to end three times does not wait for them.
    """

    def __init__(self, most: int, name: str) -> None:
        self._most, self._name = most, name
        self._threads: list[threading.Thread] = []
        self._idle = 0
        self._work: deque[tuple[Future[Any], Callable[[], Any]]] = deque()
        self._changed = threading.Condition()
        """Guards all of it; somebody waits on it for work, or for the end."""
        self._closed = False

    def submit(self, fn: Callable[P, Result], /, *args: P.args, **kwargs: P.kwargs) -> Future[Result]:
        """A future of what `fn` gives; `RuntimeError` after `shutdown`."""
        with self._changed:
            if self._closed:
                raise RuntimeError("the pool is closed")
            if self._idle <= len(self._work):
                self._grow()
            if self._threads:
                future: Future[Result] = Future()
                self._work.append((future, partial(fn, *args, **kwargs)))
                self._changed.notify()
                return future
        return HERE.submit(fn, *args, **kwargs)

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        """Take no more work; what waits is done, or cancelled if `cancel_futures`. With `wait` until the threads have ended."""
        with self._changed:
            self._closed = True
            left = list(self._work) if cancel_futures else []
            if cancel_futures:
                self._work.clear()
            self._changed.notify_all()
        for future, _ in left:
            future.cancel()
        for thread in self._threads if wait else ():
            thread.join()

    def _grow(self) -> None:
        if len(self._threads) < self._most:
            thread = threading.Thread(target=self._run, name=f"{self._name}_{len(self._threads)}", daemon=True)
            with contextlib.suppress(RuntimeError):  # it cannot be started; the next work tries again
                thread.start()
                self._threads.append(thread)

    def _run(self) -> None:
        while (task := self._next()) is not None:
            future, work = task
            if future.set_running_or_notify_cancel():
                try:
                    future.set_result(work())
                except BaseException as error:
                    future.set_exception(error)
            del task, future, work  # a body of megabytes is not kept until there is other work

    def _next(self) -> tuple[Future[Any], Callable[[], Any]] | None:
        """The next work, waited for; None when there will be none."""
        with self._changed:
            self._idle += 1
            try:
                while not self._work:
                    if self._closed:
                        return None
                    self._changed.wait()
                return self._work.popleft()
            finally:
                self._idle -= 1
