"""A pool of threads: as many as are asked for or allowed, and nothing is lost where there is none."""

from __future__ import annotations

import threading
import weakref
from concurrent.futures import CancelledError

import pytest
from runferry.sync.crew import Crew


class Allowed:
    """How many more threads the system lets anybody start."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.left = 0
        real = threading.Thread.start

        def start(thread: threading.Thread) -> None:
            if self.left <= 0:
                raise RuntimeError("can't start new thread")
            self.left -= 1
            real(thread)

        monkeypatch.setattr(threading.Thread, "start", start)


@pytest.fixture
def allowed(monkeypatch: pytest.MonkeyPatch) -> Allowed:
    return Allowed(monkeypatch)


def test_so_many_at_a_time_and_no_more() -> None:
    """Two threads meet at a barrier of two; the work of twenty is done by those two."""
    crew, barrier = Crew(2, "test"), threading.Barrier(2, timeout=10.0)

    def meet(number: int) -> tuple[int, str]:
        barrier.wait()
        return number, threading.current_thread().name

    done = [future.result(timeout=10.0) for future in [crew.submit(meet, number) for number in range(20)]]
    crew.shutdown()

    assert [number for number, _ in done] == list(range(20))
    assert {name for _, name in done} == {"test_0", "test_1"}


def test_a_thread_that_waits_is_used_before_another_is_started() -> None:
    """Work that comes one by one takes one thread."""
    crew = Crew(8, "test")
    names = set()
    for _ in range(20):
        names.add(crew.submit(lambda: threading.current_thread().name).result(timeout=10.0))
        while not crew._idle:  # its result is there a moment before it waits again
            pass
    crew.shutdown()

    assert names == {"test_0"}


@pytest.mark.parametrize("threads", range(4))
def test_work_is_done_by_as_many_threads_as_there_may_be(allowed: Allowed, threads: int) -> None:
    """With none, by whoever brings it; each work is done once, and each error is told."""
    allowed.left = threads
    crew = Crew(3, "test")
    done: list[int] = []
    futures = [crew.submit(done.append, number) for number in range(50)]
    failed = crew.submit(lambda: 1 // 0)
    by = crew.submit(threading.current_thread)

    assert isinstance(failed.exception(timeout=10.0), ZeroDivisionError)
    assert (by.result(timeout=10.0) is threading.current_thread()) == (threads == 0)
    for future in futures:
        future.result(timeout=10.0)
    assert sorted(done) == list(range(50))
    assert len(crew._threads) <= threads
    crew.shutdown()


def test_a_thread_that_is_allowed_later_is_started_later(allowed: Allowed) -> None:
    """Another program has ended meanwhile."""
    crew = Crew(1, "test")
    here = crew.submit(threading.current_thread).result()
    allowed.left = 1
    there = crew.submit(threading.current_thread).result(timeout=10.0)
    crew.shutdown()

    assert here is threading.current_thread()
    assert there.name == "test_0"


@pytest.mark.parametrize("cancels", [True, False])
def test_at_its_end_what_waits_is_done_or_cancelled(cancels: bool) -> None:
    """What has begun is waited for in either case; nothing more is taken."""
    crew, begun, go = Crew(1, "test"), threading.Event(), threading.Event()

    def work() -> str:
        begun.set()
        go.wait(10.0)
        return "done"

    first, second = crew.submit(work), crew.submit(str, "done")
    begun.wait(10.0)
    crew.shutdown(wait=False, cancel_futures=cancels)
    go.set()
    crew.shutdown()

    assert first.result() == "done"
    if cancels:
        with pytest.raises(CancelledError):
            second.result()
    else:
        assert second.result() == "done"
    assert not any(thread.is_alive() for thread in crew._threads)
    with pytest.raises(RuntimeError, match="closed"):
        crew.submit(work)


def test_work_that_was_cancelled_is_not_begun() -> None:
    """A future that is given up while it waits."""
    crew, go = Crew(1, "test"), threading.Event()
    done: list[int] = []
    first, second = crew.submit(go.wait, 10.0), crew.submit(done.append, 1)

    assert second.cancel()
    go.set()
    crew.shutdown()

    assert first.result()
    assert done == []


def test_a_thread_that_waits_keeps_nothing() -> None:
    """What it worked on last may be megabytes."""

    class Body:
        pass

    crew, body = Crew(1, "test"), Body()
    kept = weakref.ref(body)
    crew.submit(lambda given: None, body).result(timeout=10.0)
    del body
    while not crew._idle:
        pass

    assert kept() is None
    crew.shutdown()
