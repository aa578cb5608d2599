"""Regions of a large log in their order, read by other processes, and by this one where it would wait for them."""

from __future__ import annotations

import os
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO

from ..logformat import Batch, Gap, LogReader
from .region import ROWS_BEHIND_EDGE, SIZE, Region, Regions, edge_behind

if TYPE_CHECKING:
    from .aside import Aside

SMALLEST = 32 << 20
"""Bytes of a log; one that is smaller is sent before another process would be a help."""
_MOST_ASIDE = 2  # processes: with them, this one has little more to do than to post
_ASKED = 3  # regions that each of them knows to be next
_WINDOW = 8  # regions that may lie ready
_REFUSED = 4  # regions one behind the other that came to nothing: this log is not one of plain rows


def _cores() -> int:
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


_free = threading.BoundedSemaphore(max(1, _cores() - 1))  # cores that other processes of this sync may take


class Ahead:
    """The regions of one log. Not for several threads at once."""

    def __init__(self, log: BinaryIO, size: int, start: Callable[[BinaryIO], Aside]) -> None:
        """Start as many processes by `start` as there are cores for. `size` is what the log has by now, in bytes."""
        self._here = Regions(log)
        self._next = SIZE  # the first edge that nobody was asked for
        self._stop = size - 2 * SIZE  # the last one
        self._ready: dict[int, Region | None] = {}
        self._refused = 0
        self._asides: list[Aside] = []
        while len(self._asides) < _MOST_ASIDE and _free.acquire(blocking=False):
            try:
                self._asides.append(start(log))
            except OSError:  # then without it: all that it would do can be done here
                _free.release()
                break
        self._ask()

    def region(self, edge: int) -> Region | None:
        """The region behind an edge, which is not asked for again, nor is one before it. None: read on from the front.

        Raises:
            OSError: the log cannot be read.
        """
        self._next = max(self._next, edge)
        while self._asides and edge not in self._ready:
            holder = next((aside for aside in self._asides if edge in aside.asked), None)
            if holder is None:
                self._ready[edge] = self._here.read(edge)
                self._next = max(self._next, edge + SIZE)
            elif holder.has_answer() or not self._read_one(edge):
                self._take_answer(holder)
            self._ask()
        region = self._ready.pop(edge, None)
        self._ready = {other: ready for other, ready in self._ready.items() if other > edge}
        self._refused = 0 if region is not None else self._refused + 1
        if self._refused >= _REFUSED:
            self.close()
        return region

    def close(self) -> None:
        """End the processes."""
        for aside in self._asides.copy():
            self._lose(aside)
        self._ready.clear()

    def _ask(self) -> None:
        """Give work to those who have too little."""
        for aside in self._asides.copy():
            while len(aside.asked) < _ASKED and self._next <= self._stop:
                try:
                    aside.ask(self._next)
                except OSError:
                    self._lose(aside)
                    break
                self._next += SIZE

    def _read_one(self, edge: int) -> bool:
        """Read the next region here, if there is one and room for it, while the one behind `edge` is still being read."""
        if self._next > self._stop or self._next >= edge + _WINDOW * SIZE:
            return False
        self._ready[self._next] = self._here.read(self._next)
        self._next += SIZE
        return True

    def _take_answer(self, aside: Aside) -> None:
        try:
            edge, region = aside.answer()
        except OSError:
            self._lose(aside)
        else:
            self._ready[edge] = region

    def _lose(self, aside: Aside) -> None:
        self._asides.remove(aside)
        aside.close()
        _free.release()


def _is_python() -> bool:
    """Whether this program is an interpreter: one that only holds one would start itself again."""
    program = Path(sys.executable or "").name.lower()
    return program.startswith(("python", "pypy")) and not getattr(sys, "frozen", False)


def open_ahead(log: BinaryIO, size: int) -> Ahead | None:
    """For an open log of `size` bytes; None if it is small, or nobody else can read it."""
    if os.name != "posix" or size < SMALLEST or _cores() < 2 or not _is_python():
        return None
    from .aside import Aside

    return Ahead(log, size, Aside)


def batches(
    reader: LogReader, ahead: Ahead | None, rows: Callable[[], tuple[bytes | None, bytes] | None]
) -> Iterator[Batch | Gap | Region]:
    """As `LogReader.poll_batches`, with regions in place of the batches that they hold.

    Args:
        reader: at the log's beginning.
        ahead: where the regions come from.
        rows: what `Taker.begin_block` says of all that was given before: None if no region can come next.
    """
    if ahead is None:
        yield from reader.poll_batches()
        return
    edge = edge_behind(reader.position)
    goes_on = True
    while goes_on:
        goes_on = False
        seen = 0
        for found in reader.poll_batches():
            region = None
            if isinstance(found, Batch) and found.end > edge:
                for at, (kind, _, _, _, offset, end) in enumerate(found.entries):
                    if kind != "history" or found.base + offset < edge:
                        continue
                    seen += 1
                    if seen < ROWS_BEHIND_EDGE:
                        continue
                    region = ahead.region(edge)
                    if region is not None and region.begin == found.base + end:
                        del found.entries[at + 1 :]
                        break
                    region, seen, edge = None, 0, edge_behind(found.base + offset)
            yield found
            if region is not None and isinstance(found, Batch):
                position, num = found.end, found.record_of(found.entries[-1]).num
                while region is not None and (region.begin, rows()) == (position, (region.before, region.spoken)):
                    yield region
                    position, num, edge = region.end, region.num, edge + SIZE
                    region = ahead.region(edge)
                edge = edge_behind(position)
                reader.go_behind(position, num)
                goes_on = True
                break
