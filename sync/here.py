"""Work that is not worth another thread: a change of threads takes longer than many a small request."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Executor, Future
from typing import ParamSpec, TypeVar

P = ParamSpec("P")
Result = TypeVar("Result")


class Here(Executor):
    """Does at once, in the thread that asks, what it is given; how that ended is in the future, as of any other pool."""

    def submit(self, fn: Callable[P, Result], /, *args: P.args, **kwargs: P.kwargs) -> Future[Result]:
        """A future that is done."""
        done: Future[Result] = Future()
        try:
            done.set_result(fn(*args, **kwargs))
        except BaseException as error:
            done.set_exception(error)
            if not isinstance(error, Exception):  # an interrupt is for this thread
                raise
        return done


HERE = Here()
