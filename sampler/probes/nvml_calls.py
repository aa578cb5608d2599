"""Calls into NVML that remember how they failed, so that one bad moment never ends a metric."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

_T = TypeVar("_T")

UNINITIALIZED = 1
# What the board, driver or user can never do: no use in asking again.
# invalid argument, not supported, no permission, function not found, vGPU ECC, version mismatch, deprecated
PERMANENT = frozenset({2, 3, 4, 13, 22, 25, 26})
DEVICE_LOST = frozenset({15, 16, 28})  # fell off the bus, needs a reset, not found
NO_LIBRARY = frozenset({9, 12})  # driver not loaded, library not found
LIBRARY_MISMATCH = 18  # kernel module and library are of different versions: needs a reboot or a reload
# All other codes (unknown, no data, timeout, not ready, in use, memory ...) pass.

PATIENCE = 3  # failures in a row before asking less often
SELDOM = 8  # ticks between two tries from then on


class DeviceLostError(Exception):
    """The device does not answer any more."""


class LibraryClosedError(Exception):
    """The library says that it is not initialised."""


def code_of(error: Exception) -> int | None:
    """The NVML return code behind an exception, None if it is another kind of error."""
    value = getattr(error, "value", None)
    return value if isinstance(value, int) else None


class Calls:
    """The calls to one device, by name."""

    def __init__(self) -> None:
        self.tick = 0
        self._off: set[str] = set()
        self._failures: dict[str, int] = {}
        self._next_try: dict[str, int] = {}

    def get(self, name: str, call: Callable[[], _T]) -> _T | None:
        """The result of `call`, None where it has none now.

        Raises:
            DeviceLostError: the device is gone.
            LibraryClosedError: the library must be initialised again.
        """
        if name in self._off or self.tick < self._next_try.get(name, 0):
            return None
        try:
            result = call()
        except Exception as error:  # the library's own exceptions are built at run time, one class per code
            self._note(name, error)
            return None
        self._failures.pop(name, None)
        return result

    def _note(self, name: str, error: Exception) -> None:
        code = code_of(error)
        if code in DEVICE_LOST:
            raise DeviceLostError(str(error)) from error
        if code == UNINITIALIZED:
            raise LibraryClosedError(str(error)) from error
        if code is None or code in PERMANENT:  # no code: this version of the binding lacks the function
            self._off.add(name)
            return
        failures = self._failures[name] = self._failures.get(name, 0) + 1
        if failures >= PATIENCE:
            self._next_try[name] = self.tick + SELDOM
