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
from collections.abc import Callable
from types import FrameType, TracebackType
from typing import TYPE_CHECKING, Any, NoReturn

if TYPE_CHECKING:
    from .run import Run

CODE_EXCEPTION, CODE_INTERRUPT, CODE_SIGNAL = 1, 255, 128
"""Exit codes as the peer has them; a signal adds its number."""
FLUSH_S = 5.0
"""How long a handler waits for the disk: a scheduler that sent a signal sends SIGKILL some seconds later."""

LOADING_S = 2.0
"""How long a fork in the first moments of a run waits for the imports of our threads."""

_runs: list[Run] = []
_code = 0
_installed = False
_old_excepthook: Callable[..., Any] = sys.excepthook
_old_exit: Callable[..., NoReturn] = sys.exit
_old_handlers: dict[int, Any] = {}
_seen: weakref.WeakSet[Run] = weakref.WeakSet()


def exit_code_of(error: BaseException | None) -> int:
    """The exit code that an exception gives a process that it ends."""
    if error is None:
        return 0
    if isinstance(error, KeyboardInterrupt):
        return CODE_INTERRUPT
    if isinstance(error, SystemExit):
        return code_of(error.code)
    return CODE_EXCEPTION


def code_of(code: Any) -> int:
    """What `sys.exit(code)` means: None is 0, a message is 1; a number beyond 32 bits, which no log holds, is 1 too."""
    if code is None:
        return 0
    return int(code) if isinstance(code, int) and -(2**31) <= code < 2**31 else CODE_EXCEPTION


def watch(run: Run) -> None:
    """Finish the run when the process ends, however it ends, as far as anybody can tell it."""
    _runs.append(run)
    _seen.add(run)
    _install()


def forget(run: Run) -> None:
    """The run has finished."""
    if run in _runs:
        _runs.remove(run)
    if not _runs:
        _uninstall()


def _install() -> None:
    global _installed, _old_excepthook, _old_exit, _code
    if _installed:
        return
    _installed = True
    _code = 0
    _old_excepthook, sys.excepthook = sys.excepthook, _excepthook
    _old_exit, sys.exit = sys.exit, _exit
    atexit.register(_at_exit)
    if threading.current_thread() is threading.main_thread():
        for name in ("SIGTERM", "SIGINT", "SIGUSR1", "SIGUSR2"):
            number = getattr(signal, name, None)
            # None: set by foreign code, which a Python handler could not go on to.
            if number is not None and signal.getsignal(number) not in (None, signal.SIG_IGN):
                _old_handlers[number] = signal.signal(number, _on_signal)


def _uninstall() -> None:
    global _installed
    if not _installed:
        return
    _installed = False
    if sys.excepthook is _excepthook:
        sys.excepthook = _old_excepthook
    if sys.exit is _exit:
        sys.exit = _old_exit
    atexit.unregister(_at_exit)
    if threading.current_thread() is threading.main_thread():
        for number, handler in _old_handlers.items():
            if signal.getsignal(number) is _on_signal:
                signal.signal(number, handler)
        _old_handlers.clear()


def _at_exit() -> None:
    for run in _runs.copy():  # each takes itself off the list
        run._end(_code)  # noqa: SLF001 - the run's own machinery


def _exit(code: Any = None, /) -> NoReturn:
    """`sys.exit`, remembering the code: no hook is told of SystemExit."""
    global _code
    _code = code_of(code)
    _old_exit(code)


def _excepthook(kind: type[BaseException], error: BaseException, trace: TracebackType | None) -> None:
    global _code
    _code = exit_code_of(error)
    _old_excepthook(kind, error, trace)
    for run in _runs.copy():
        run.flush(timeout_s=FLUSH_S)


def _on_signal(number: int, frame: FrameType | None) -> None:
    old = _old_handlers.get(number, signal.SIG_DFL)
    for run in _runs.copy():
        if number != signal.SIGINT:
            run.mark_preempting()
        run.flush(timeout_s=FLUSH_S)
    if callable(old):
        old(number, frame)  # the user's handler decides; KeyboardInterrupt for SIGINT comes from here too
        return
    for run in _runs.copy():
        run._end(CODE_SIGNAL + number, timeout_s=FLUSH_S)  # noqa: SLF001 - see _at_exit
    signal.signal(number, signal.SIG_DFL)  # and die of it, so that the parent sees why
    os.kill(os.getpid(), number)


def _before_fork() -> None:
    """Let our threads finish their imports: a module's lock that is held across a fork is never released in the child."""
    deadline = time.monotonic() + LOADING_S
    while any(run._loading for run in _runs) and time.monotonic() < deadline:  # noqa: SLF001 - see _at_exit
        time.sleep(0.001)


def _after_fork_in_child() -> None:
    """The child has no writer thread, and the log is its parent's: its copy of every run is inert, and takes no lock.

    The hooks go too. A worker that waits in C for its next task would not see a SIGTERM that came just before the wait
    if a handler written in Python stood in place of the default, and its parent would wait for it for ever.
    """
    for run in list(_seen):
        run._abandon()  # noqa: SLF001 - see _at_exit
    _runs.clear()
    _uninstall()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(before=_before_fork, after_in_child=_after_fork_in_child)
