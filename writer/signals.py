"""Signals, heard before the program's own handlers, which find everything as if nobody else were there.

Frameworks look at the handler that is set before they set their own: an event loop leaves Ctrl-C alone, and a trainer
its requeueing, where somebody else's is. So while we listen, `signal.getsignal` and `signal.signal` speak of the
program's handler, which is called after ours whether it was set before or since.

Code in C sets handlers that Python knows nothing of: `faulthandler.register`, above all, by which people look into a
job that hangs. Those are left alone, before and since.
"""

from __future__ import annotations

import signal
import sys
import threading
from collections.abc import Callable
from types import FrameType
from typing import Any

NAMES = ("SIGTERM", "SIGINT", "SIGUSR1", "SIGUSR2")
"""What schedulers and users send, and a program may survive."""


class Signals:
    """Listens until released. To be made and released on the main thread, as Python has it for handlers."""

    def __init__(self, heard: Callable[[int, FrameType | None, Any], None]) -> None:
        """Listen.

        Args:
            heard: given the signal, the frame and the program's handler, which it has to go on to.
        """
        self._heard = heard
        self._numbers = {getattr(signal, name) for name in NAMES if hasattr(signal, name)}
        self._handlers: dict[int, Any] = {}
        self._caught = self._catch
        self._live = True
        self._signal, self._getsignal = signal.signal, signal.getsignal
        for number in self._numbers:
            handler = self._getsignal(number)
            if handler is None or handler is signal.SIG_IGN:  # None: set before Python began
                continue
            if handler is signal.SIG_DFL and _address(_action(number)):
                continue  # a handler in C, which one in Python could not go on to
            self._handlers[number] = handler
            self._signal(number, self._caught)
        self._set, self._get = self._set_handler, self._get_handler
        _replace("signal", self._set)
        _replace("getsignal", self._get)

    def block(self) -> Any:
        """Have the calling thread hear none of them; what it blocked before, for `signal.pthread_sigmask`."""
        return signal.pthread_sigmask(signal.SIG_BLOCK, self._numbers)

    def release(self) -> None:
        """Give everything back that is still ours; on the main thread too."""
        self._live = False
        if signal.signal is self._set:
            _replace("signal", self._signal)
        if signal.getsignal is self._get:
            _replace("getsignal", self._getsignal)
        for number, handler in self._handlers.items():
            if self._getsignal(number) is self._caught:
                action = _action(number)
                self._signal(number, self._caught)
                foreign = _address(action) != _address(_action(number))  # C code has set its own since
                self._signal(number, handler)
                if foreign:
                    _restore(number, action)

    def _catch(self, number: int, frame: FrameType | None) -> None:
        self._heard(number, frame, self._handlers.get(number, signal.SIG_DFL))

    def _set_handler(self, signalnum: Any, handler: Any) -> Any:
        """`signal.signal`."""
        if not self._live or signalnum not in self._numbers:
            return self._signal(signalnum, handler)
        before = self._get_handler(signalnum)
        default = not callable(handler) and handler == signal.SIG_DFL
        if not (default or callable(handler)) or threading.current_thread() is not threading.main_thread():
            self._signal(signalnum, handler)  # ignored from now on, or no handler at all, which raises
        else:
            self._handlers[int(signalnum)] = signal.SIG_DFL if default else handler
            if self._getsignal(signalnum) is not self._caught:
                self._signal(signalnum, self._caught)
        return before

    def _get_handler(self, signalnum: Any) -> Any:
        """`signal.getsignal`."""
        handler = self._getsignal(signalnum)
        return self._handlers[int(signalnum)] if self._live and handler is self._caught else handler


def _action(number: int) -> Any:
    """The system's `struct sigaction` of a signal; None where it cannot be had."""
    # Nearly all who set handlers in C come with one of these modules, and asking costs the import of `ctypes`.
    if sys.modules.keys().isdisjoint({"ctypes", "faulthandler"}):
        return None
    try:
        import ctypes

        action = (ctypes.c_void_p * 64)()  # more than any system's
        return action if ctypes.CDLL(None).sigaction(int(number), None, action) == 0 else None
    except (ImportError, AttributeError, OSError, TypeError):  # Windows, or a Python without it
        return None


def _address(action: Any) -> int | None:
    """Of the handler, which is the structure's first member on Linux and macOS; None for the default."""
    return action[0] if action is not None else None


def _restore(number: int, action: Any) -> None:
    import ctypes

    ctypes.CDLL(None).sigaction(int(number), action, None)


def _replace(name: str, function: Any) -> None:
    setattr(signal, name, function)
