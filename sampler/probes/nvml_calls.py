"""Calls into NVML that remember how they failed, so that one bad moment never ends a metric."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, TypeVar

_T = TypeVar("_T")

SUCCESS = 0
UNINITIALIZED = 1
INVALID_ARGUMENT = 2
NOT_FOUND = 6
INSUFFICIENT_SIZE = 7  # a list grew between the question for its size and the one for its items
TIMEOUT = 10
LIBRARY_NOT_FOUND = 12
FUNCTION_NOT_FOUND = 13
# What the board, driver or user can never do: no use in asking again.
# invalid argument, not supported, no permission, function not found, vGPU ECC, version mismatch, deprecated
PERMANENT = frozenset({INVALID_ARGUMENT, 3, 4, FUNCTION_NOT_FOUND, 22, 25, 26})
DEVICE_LOST = frozenset({15, 16, 28})  # fell off the bus, needs a reset, not found
NO_LIBRARY = frozenset({9, LIBRARY_NOT_FOUND})  # driver not loaded, library not found
LIBRARY_MISMATCH = 18  # kernel module and library are of different versions: needs a reboot or a reload
# The library has to be initialised again. In the middle of a run the last two say that the driver went or was replaced.
CLOSED = NO_LIBRARY | {UNINITIALIZED, LIBRARY_MISMATCH}
# The binding raises "success" for a list without items. Neither this nor "not found" says that anything is wrong.
NOTHING_THERE = frozenset({SUCCESS, NOT_FOUND})
# All other codes (unknown, no data, timeout, not ready, in use, memory ...) pass.

# What the library answers where a value is not available (NVML_VALUE_NOT_AVAILABLE), by width.
BLANKS = frozenset({2**32 - 1, 2**64 - 1})

PATIENCE = 3  # failures in a row before asking less often
SELDOM = 8  # ticks between two tries from then on
MOST_REGROWS = 3  # tries for a list that grows while it is read


class DeviceLostError(Exception):
    """The device does not answer any more."""


class LibraryClosedError(Exception):
    """The library has to be initialised again."""


def code_of(error: Exception) -> int | None:
    """The NVML return code behind an exception, None if it is another kind of error."""
    value = getattr(error, "value", None)
    return value if isinstance(value, int) else None


def _with_room(call: Callable[[], _T]) -> _T:
    """The result of `call`, which makes room for a list anew each time it is called."""
    for _ in range(MOST_REGROWS):
        try:
            return call()
        except Exception as error:
            if code_of(error) != INSUFFICIENT_SIZE:
                raise
    return call()


class Calls:
    """The calls to one device, by name."""

    def __init__(self) -> None:
        self.tick = 0
        self._variant: dict[str, int] = {}  # how many variants of a call are out of use
        self._failures: dict[str, int] = {}
        self._next_try: dict[str, int] = {}

    def get(self, name: str, *variants: Callable[[], _T]) -> _T | None:
        """The result of the first of `variants` (newest first) that the driver knows; None where it has none now.

        A variant that can never work is not called again; after the last one `name` has no result for good.

        Raises:
            DeviceLostError: the device is gone.
            LibraryClosedError: the library must be initialised again.
        """
        while self.due(name) and (position := self._variant.get(name, 0)) < len(variants):
            try:
                result = _with_room(variants[position])
            except (DeviceLostError, LibraryClosedError):
                raise
            except Exception as error:  # the library's own exceptions are built at run time, one class per code
                # An attribute that is not there: this version of the binding lacks the function.
                code = FUNCTION_NOT_FOUND if isinstance(error, AttributeError) else code_of(error)
                if not self.failed(name, code, str(error)):
                    return None
            else:
                self._failures.pop(name, None)
                return None if isinstance(result, int) and result in BLANKS else result
        return None

    def due(self, name: str) -> bool:
        """Whether `name` may be asked at this tick."""
        return self.tick >= self._next_try.get(name, 0)

    def refused(self, name: str) -> bool:
        """Whether a variant of `name` has failed for good."""
        return name in self._variant

    def failed(self, name: str, code: int | None, text: str = "") -> bool:
        """Note a return code that is not success; whether the variant in use is out for good."""
        if code in DEVICE_LOST:
            raise DeviceLostError(text or f"NVML code {code}")
        if code in CLOSED:
            raise LibraryClosedError(text or f"NVML code {code}")
        if code in NOTHING_THERE:
            return False
        if code in PERMANENT:
            self._variant[name] = self._variant.get(name, 0) + 1
            return True
        failures = self._failures[name] = self._failures.get(name, 0) + 1
        if failures >= PATIENCE:
            self._next_try[name] = self.tick + SELDOM
        return False

    def forgive(self) -> None:
        """Forget all failures: what is asked may have been replaced."""
        for memory in (self._variant, self._failures, self._next_try):
            memory.clear()

    def worked(self, name: str) -> None:
        """Note a success of one part of a larger call."""
        self._failures.pop(name, None)


class Getters:
    """NVML's functions `nvmlDeviceGet<name>` for one handle."""

    def __init__(self, nvml: Any, handle: Any, calls: Calls) -> None:
        self._nvml = nvml
        self._handle = handle
        self._calls = calls

    def __call__(self, name: str, *args: Any, older: str = "") -> Any:
        """The result of function `name`, or of the `older` one where the driver lacks it; None if it has none now."""
        return self._calls.get(f"{name}{args}", *(partial(self._call, each, args) for each in (name, older) if each))

    def _call(self, name: str, args: tuple[Any, ...]) -> Any:
        return getattr(self._nvml, f"nvmlDeviceGet{name}")(self._handle, *args)
