"""What the process does to a run: normal exit, exceptions, signals, forks.

Installed while a run is live, taken back with the last one. Every handler goes on to whatever was there before it.
"""

from __future__ import annotations

import atexit
import os
import signal
import sys
import threading
import time
import weakref
from contextlib import suppress
from types import FrameType
from typing import TYPE_CHECKING, Any

from .exitcode import CODE_SIGNAL, ExitCode, exit_code_of
from .signals import Signals

if TYPE_CHECKING:
    from .run import Run


FLUSH_S = 5.0
"""How long a handler waits for the disk, for all runs together: a scheduler that sent a signal sends SIGKILL some
seconds later."""
EXIT_S = 30.0
"""How long the end of the process waits for the disk, for all runs together."""
LEAST_S = 0.5
"""What it waits at least, however long a handler has waited before: a run whose disk answers needs no more."""
LOADING_S = 2.0
"""How long a fork in the first moments of a run waits for the imports of our threads."""

_runs: list[Run] = []
_seen: weakref.WeakSet[Run] = weakref.WeakSet()
_exit_code: ExitCode | None = None
_signals: Signals | None = None
_worker_end: Any = None
_masks: dict[int, Any] = {}
"""Thread -> the signals that it blocked before it began to fork."""


def watch(run: Run) -> None:
    """Finish the run when the process ends, however it ends, as far as anybody can tell it."""
    global _exit_code, _signals
    _runs.append(run)
    _seen.add(run)
    if _exit_code is None:
        _exit_code = ExitCode(_flush_all)
        atexit.register(_at_exit)
        _watch_worker()
    if _signals is None and threading.current_thread() is threading.main_thread():
        with suppress(ValueError):  # a sub-interpreter, which has no handlers
            _signals = Signals(_on_signal)


def forget(run: Run) -> None:
    """The run has finished."""
    if run in _runs:
        _runs.remove(run)
    if not _runs:
        _uninstall()


def _uninstall() -> None:
    global _exit_code, _signals, _worker_end
    if _exit_code is not None:
        _exit_code.release()
        _exit_code = None
        atexit.unregister(_at_exit)
    if _worker_end is not None:
        _worker_end.cancel()
        _worker_end = None
    # Handlers cannot be given back elsewhere. They stay, unseen and going on to the program's, until a later run's end.
    if _signals is not None and threading.current_thread() is threading.main_thread():
        _signals.release()
        _signals = None


def _watch_worker() -> None:
    """A process that `multiprocessing` forked leaves by `os._exit`, after finalizers of that package only."""
    global _worker_end
    process, util = sys.modules.get("multiprocessing.process"), sys.modules.get("multiprocessing.util")
    if process is not None and util is not None and process.parent_process() is not None:
        _worker_end = util.Finalize(None, _at_worker_end, exitpriority=0)


def _at_worker_end() -> None:
    _end_all(exit_code_of(sys.exc_info()[1]))  # an exception of the worker's function is on its way


def _left(deadline: float) -> float:
    return max(deadline - time.monotonic(), 0.0)


def _at_exit() -> None:
    _end_all(0 if _exit_code is None else _exit_code.get())


def _end_all(code: int, timeout_s: float | None = None) -> None:
    """All begin before one is waited for: their threads work side by side, and one hung disk costs no other run."""
    now, within = time.monotonic(), EXIT_S if timeout_s is None else timeout_s
    for run in _runs.copy():
        run._begin_end(code, timeout_s=_left(now + within / 2))  # noqa: SLF001 - the run's own machinery
    for run in _runs.copy():  # each takes itself off the list
        run._end(code, timeout_s=_left(now + within))  # noqa: SLF001 - the run's own machinery


def _flush_all(deadline: float | None = None) -> None:
    deadline = time.monotonic() + FLUSH_S if deadline is None else deadline
    for run in _runs.copy():
        run.flush(timeout_s=0.0)  # begins it, as `_end_all` does
    for run in _runs.copy():
        run.flush(timeout_s=_left(deadline))


def _on_signal(number: int, frame: FrameType | None, handler: Any) -> None:
    deadline = time.monotonic() + FLUSH_S
    if number != signal.SIGINT:
        for run in _runs.copy():
            run.mark_preempting()
    _flush_all(deadline)
    if callable(handler):
        handler(number, frame)  # the program's decides; KeyboardInterrupt for SIGINT comes from here too
        return
    _end_all(CODE_SIGNAL + number, timeout_s=max(_left(deadline), LEAST_S))
    _uninstall()  # if there are runs whose disk is too slow
    signal.signal(number, signal.SIG_DFL)  # and die of it, so that the parent sees why
    os.kill(os.getpid(), number)


def _before_fork() -> None:
    """Let our threads finish their imports: a module's lock that is held across a fork is never released in the child."""
    deadline = time.monotonic() + LOADING_S
    while any(run._loading for run in _runs) and time.monotonic() < deadline:  # noqa: SLF001 - see _at_exit
        time.sleep(0.001)
    if _signals is not None:
        _masks[threading.get_ident()] = _signals.block()


def _after_fork_in_parent() -> None:
    _unblock(_masks.pop(threading.get_ident(), None))


def _unblock(mask: Any) -> None:
    if mask is not None:
        signal.pthread_sigmask(signal.SIG_SETMASK, mask)


def _after_fork_in_child() -> None:
    """The child has no writer thread, and the log is its parent's: its copy of every run is inert, and takes no lock.

    The hooks go too. A worker that waits in C for its next task would not see a SIGTERM that came just before the wait
    if a handler written in Python stood in place of the default, and its parent would wait for it for ever.
    """
    for run in list(_seen):
        run._abandon()  # noqa: SLF001 - see _at_exit
    _runs.clear()
    _uninstall()
    mask = _masks.pop(threading.get_ident(), None)
    _masks.clear()
    _unblock(mask)  # what came since the fork waited for the handlers of before: it is not heard as ours, nor lost


if hasattr(os, "register_at_fork"):
    os.register_at_fork(before=_before_fork, after_in_parent=_after_fork_in_parent, after_in_child=_after_fork_in_child)
