"""A large log that is sent while it is read for the first time.

It is for a log of which nothing was sent, of a run that the server does not hold: then what is to be sent does not depend
on how much of it there is. Each batch is taken in by `Scan`, and then given on for its rows.
"""

from __future__ import annotations

import errno
import os
from collections import deque
from collections.abc import Callable, Iterator
from pathlib import Path

from ..logformat import Batch
from .ahead import open_ahead
from .region import Region
from .scan import Facts, Scan

SMALLEST = 4 << 20
"""Bytes of a log; to read less twice costs little, and then all of it is known before the server is asked."""
_LONGEST_HEAD = 64  # batches that are held until a row comes: 16 MiB


class OneReading:
    """Gives the batches of a log, and fills `facts` with what they held, at last with what the log was."""

    def __init__(self, log: Path, scan: Scan, *, young: bool) -> None:
        """Open the log. `young` says that its writer may still be alive.

        Raises:
            OSError: it cannot be opened.
        """
        self.facts = scan.so_far(Facts(log))
        self.file = log.open("rb", buffering=0)
        self._scan, self._young = scan, young
        self._size = os.fstat(self.file.fileno()).st_size
        self._held: deque[Batch | Region] = deque()
        self._ahead = open_ahead(self.file, self._size)
        self.begin_block: Callable[[], tuple[bytes | None, bytes] | None] = lambda: None
        """The one of whoever takes the batches, see `Taker`; as long as it is not known there are no regions."""
        self._batches = scan.stream(
            self.file,
            self._ahead,
            lambda: self.begin_block(),  # noqa: PLW0108 - the one of then
            young=young,
        )
        self.is_over = False
        """The log was read to its end."""

    def begin(self) -> bool:
        """Read on to the first rows; whether the log may be sent while the rest of it is read.

        Raises:
            OSError: the log cannot be read.
            NeedsFold: see `Scan`.
        """
        for batch in self._batches:
            self._held.append(batch)
            rows = 0 if isinstance(batch, Region) else sum(entry[0] == "history" for entry in batch.entries)
            if rows or len(self._held) >= _LONGEST_HEAD:
                break
        else:
            return False  # it has no rows
        self._scan.so_far(self.facts)
        self.facts.end, self.facts.lines.history = batch.end, rows
        return rows > 0 and self._scan.knows_run and not self.facts.damage

    def __iter__(self) -> Iterator[Batch | Region]:
        """The batches from the first one on, once.

        Raises:
            OSError: the log cannot be read, or it was cut or replaced meanwhile.
            NeedsFold: see `Scan`.
        """
        while self._held:
            yield self._told(self._held.popleft())
        for batch in self._batches:
            yield self._told(batch)
        self._scan.end(self.file, self.facts, young=self._young)
        self._check()
        self.is_over = True

    def _check(self) -> None:
        """Find the log where it was: what is marked as sent has to be what was read."""
        there, read = self.facts.log.stat(), os.fstat(self.file.fileno())
        if (there.st_dev, there.st_ino) != (read.st_dev, read.st_ino) or there.st_size < max(
            self._size, self.facts.size
        ):
            raise OSError(errno.EIO, "the log changed while it was read")

    def _told(self, batch: Batch | Region) -> Batch | Region:
        self.facts.end = batch.end
        self.facts.damage = self._scan.gaps()  # before a body goes that lies behind one of them
        return batch

    @property
    def rows(self) -> int:
        """How many rows the log has: about, as long as it is not over."""
        rows, facts = self.facts.lines.history, self.facts
        return rows if self.is_over else max(rows, round(rows * self._size / max(1, facts.end)))

    def close(self) -> None:
        """Close the log."""
        if self._ahead is not None:
            self._ahead.close()
        self.file.close()
