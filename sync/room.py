"""Memory for the bodies that the runs of one sync gather: few large runs get large bodies, many get what there is for each."""

from __future__ import annotations

import threading
from collections.abc import Callable
from types import TracebackType

_SMALLEST_SHARE = 512 * 1024


class Room:
    """`size` bytes for all bodies together, of which `jobs` runs at most take their shares. Any thread may use it."""

    def __init__(self, size: int, jobs: int = 1) -> None:
        self._lock = threading.Lock()
        self._free = size
        self._first = max(_SMALLEST_SHARE, size // (2 * jobs))

    def share(self, fitting: Callable[[int], int] = lambda most: most) -> Share:
        """The share of one run, to be given back by leaving its context. `fitting`: how much of it the line can use."""
        return Share(self, self._first, fitting)

    def change(self, taken: int, most: int) -> int:
        """Give `taken` back and take at most `most`: half of what is free then, so that there is always some for the next run."""
        with self._lock:
            self._free += taken
            granted = min(most, max(_SMALLEST_SHARE, self._free // 2)) if most else 0
            self._free -= granted
            return granted


class Share:
    """How large the bodies of one run may be. The first one is of an ordinary size: most runs need no second one."""

    def __init__(self, room: Room, first: int, fitting: Callable[[int], int]) -> None:
        self._room = room
        self._first = first
        self._fitting = fitting
        self._taken = 0

    def __enter__(self) -> Share:  # noqa: PYI034 - typing.Self is younger than Python 3.10
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._taken = self._room.change(self._taken, 0)

    def body_bytes(self, most: int) -> int:
        """Bytes that the next body may have, at most `most`. The one before it has left this share."""
        self._taken = self._room.change(self._taken, self._fitting(most if self._taken else min(most, self._first)))
        return self._taken
