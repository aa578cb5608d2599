"""The code that the process ends with, as far as it can be told before it has ended.

The interpreter tells no hook of SystemExit, and by the time that atexit functions run the exception is gone. So
`sys.exit`, `exit` and `quit` remember what they were called with, and the outermost frame of the program says
afterwards whether the exception was the end of it or was caught: a frame that returned stands at a return instruction.
"""

from __future__ import annotations

import builtins
import sys
import threading
from collections.abc import Callable
from types import FrameType, TracebackType
from typing import Any, NoReturn

CODE_EXCEPTION, CODE_INTERRUPT, CODE_SIGNAL = 1, 255, 128
"""Exit codes as the peer has them; a signal adds its number."""

_RETURNS = {function.__code__.co_code[-2] for function in (lambda: None, lambda value: value)}
"""The instructions that a frame may return by: there are up to two, and their numbers differ between versions."""


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


class ExitCode:
    """Hooks that learn the exit code. Whoever hooks the same places later, and stays longer, can go on calling them."""

    def __init__(self, on_exception: Callable[[], None]) -> None:
        """Take the hooks.

        Args:
            on_exception: called when an exception that nobody caught has been shown.
        """
        self._on_exception = on_exception
        self._code = 0
        self._frame: FrameType | None = None  # outermost of those that `sys.exit` was called in
        self._old_excepthook, self._excepthook = sys.excepthook, self._uncaught
        self._old_exit, self._exit = sys.exit, self._exiting
        sys.excepthook, sys.exit = self._excepthook, self._exit
        quitter = type(getattr(builtins, "exit", None))
        self._quitter = quitter if quitter.__module__ == "_sitebuiltins" else None  # none without the module `site`
        if self._quitter is not None:
            self._old_quit, self._quit = self._quitter.__call__, self._quitting()
            self._set_quit(self._quit)

    def release(self) -> None:
        """Give the hooks back, where they are still ours."""
        if sys.excepthook is self._excepthook:
            sys.excepthook = self._old_excepthook
        if sys.exit is self._exit:
            sys.exit = self._old_exit
        if self._quitter is not None and self._quitter.__call__ is self._quit:
            self._set_quit(self._old_quit)
        self._frame = None

    def get(self) -> int:
        """The code, at the end of the process."""
        if self._frame is not None and _returned(self._frame):
            return 0  # the SystemExit was caught, and the program came to its end
        return self._code

    def _set_quit(self, call: Any) -> None:
        setattr(self._quitter, "__call__", call)  # noqa: B010 - a plain assignment to a method is no assignment to mypy

    def _told(self, code: Any) -> None:
        if threading.get_ident() == threading.main_thread().ident:  # elsewhere it ends no more than its thread
            self._code, self._frame = code_of(code), _outermost(sys._getframe())  # noqa: SLF001 - the only way

    def _exiting(self, code: Any = None, /) -> NoReturn:
        self._told(code)
        self._old_exit(code)

    def _quitting(self) -> Callable[..., Any]:
        def call(quitter: Any, code: Any = None) -> Any:
            self._told(code)
            return self._old_quit(quitter, code)

        return call

    def _uncaught(self, kind: type[BaseException], error: BaseException, trace: TracebackType | None) -> None:
        ending = trace is None or not _running(trace.tb_frame)
        if ending:
            self._code, self._frame = exit_code_of(error), None
        self._old_excepthook(kind, error, trace)
        if ending:
            self._on_exception()


def _outermost(frame: FrameType) -> FrameType:
    while frame.f_back is not None:
        frame = frame.f_back
    return frame


def _running(frame: FrameType) -> bool:
    """Whether the program is still in `frame`: then an exception was only shown there, by calling the hook."""
    at: FrameType | None = sys._getframe()  # noqa: SLF001 - see `_told`
    while at is not None and at is not frame:
        at = at.f_back
    return at is not None


def _returned(frame: FrameType) -> bool:
    return frame.f_lasti >= 0 and frame.f_code.co_code[frame.f_lasti] in _RETURNS
