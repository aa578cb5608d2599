"""Records on their way into the log: what is queued, what is written, what is known to be on the device.

One thread drives it. Nothing here raises for I/O: a disk that fails is named once on stderr, records stay queued to a
bound, and every row that does not make it is counted.

Two rules carry the whole: a record is numbered and framed only in the batch that writes it, so that whatever the
disk took, the file ends behind a whole record and numbers have no holes; and a file whose sync failed is never
trusted again, because the kernel drops the failed pages and reports success the next time. Its records since the
last good sync are kept in memory until then, and start a new segment.
"""

from __future__ import annotations

import errno
import os
from collections import deque
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Protocol

from ..logformat.constants import FILE_HEADER
from ..logformat.framing import Framer
from ..logformat.words import counted
from .encoding import varint
from .filesystem import FileSystem
from .segment import Place, Segment, WriteError

MAX_QUEUED_BYTES = 64 * 1024 * 1024
MAX_QUEUED_ROWS = 1_000_000
MAX_RESERVED_BYTES = 32 * 1024 * 1024
"""Beyond that bound, for the rare records; the last of a run is taken always."""
SYNC_BYTES = 2 * 1024 * 1024
"""Written and not yet synced: more than this asks for a sync before its time, so that memory stays bounded."""
BATCH_BYTES = 1024 * 1024
"""One write takes about this much."""
FIRST_RETRY_S, LAST_RETRY_S = 0.1, 5.0
FIRST_RESYNC_S, LAST_RESYNC_S = 5.0, 600.0
"""A failed sync is tried again at once, in a new segment; if that fails too, after these times. Each attempt leaves a
log behind, so there must not be many."""
QUIET_S = 600.0
"""An error is named once; again only if there was none for so long."""

ROW, BULK, OTHER, LAST, OPENING = "row", "bulk", "other", "last", "opening"
Entry = tuple[bytes, str]
"""A record without its number, and what it is: a row, a sample or console output, one of the rare records that have
a reserve, the end of the run, or one that every segment opens with."""
_NO_SYNC = frozenset({errno.EINVAL, errno.ENOSYS, errno.ENOTSUP, errno.EOPNOTSUPP})
"""Answers of file systems that have no sync: nothing was lost, and another file would get the same answer."""
_NO_PLACE = frozenset(
    {errno.ENOENT, errno.ENOTDIR, errno.EACCES, errno.EPERM, errno.EROFS, errno.ENAMETOOLONG, errno.ELOOP, errno.EINVAL}
)


class Clock(Protocol):
    """Time, as the module `time` has it."""

    def time(self) -> float:
        """Seconds since the epoch."""

    def monotonic(self) -> float:
        """Seconds that never go back."""

    def sleep(self, seconds: float, /) -> None:
        """Wait."""


class Tally:
    """What became of the rows."""

    def __init__(self) -> None:
        self.rows_written = 0
        self.rows_dropped = 0
        """Left out because the queue was full, or in a log that was deleted."""
        self.others_dropped = 0
        """Other records that went the same way."""
        self.rows_unsure = 0
        """In a file whose sync failed, and too far back to be written again: on the device or not, nobody knows. They
        are not among those written."""


class Journal:
    """Appends records to the segments of one run."""

    def __init__(
        self,
        fs: FileSystem,
        place: Place,
        clock: Clock,
        opening: Callable[[bool], Iterable[bytes]],
        warn: Callable[[str], None],
        *,
        keep_unsynced: int = MAX_QUEUED_BYTES,
    ) -> None:
        """Nothing is opened yet.

        Args:
            fs: the file system.
            place: where segments go.
            clock: the time.
            opening: the records that a segment begins with; told whether it continues an earlier one.
            warn: takes one line for the user.
            keep_unsynced: bytes of records that are kept until they are synced, in case that fails.
        """
        self._keep_unsynced = keep_unsynced
        self._fs, self._place, self._clock = fs, place, clock
        self._opening, self._warn = opening, warn
        self._segment: Segment | None = None
        self._num = 0
        self._queued: deque[Entry] = deque()
        self._queued_bytes = self._queued_rows = 0
        self._unsynced: deque[Entry] = deque()
        self._unsynced_bytes = self._rows_let_go = 0
        self._dirty = False
        self._delay = FIRST_RETRY_S
        self._retry_at: float | None = None
        self._syncs = True  # what this file system has
        self._syncs_failed = 0  # one after the other
        self._resync_at = 0.0
        self._named: set[int | None] = set()
        self._failed_at = 0.0
        self._last_errno: int | None = None
        self._begun = 0  # segments
        self._segment_rows = 0  # in the current one
        self.rows_taken = self.row_bytes_taken = 0
        """Of all that was ever queued."""
        self.tally = Tally()
        self.paths: list[Path] = []
        """The logs that hold records; the last one is current."""
        self.new_segment: Callable[[], None] = lambda: None
        """Called when a further segment has begun: whoever writes differences must start over."""

    # -- taking records ----------------------------------------------------------------------------------------------

    def append(self, body: bytes, kind: str = OTHER) -> None:
        """Queue one record. Beyond the bound it is dropped and counted: rows, samples and console output first."""
        if self._queued_bytes >= MAX_QUEUED_BYTES or self._queued_rows >= MAX_QUEUED_ROWS:
            if kind is ROW:
                self.tally.rows_dropped += 1
                return
            if kind is BULK or (kind is OTHER and self._queued_bytes >= MAX_QUEUED_BYTES + MAX_RESERVED_BYTES):
                self.tally.others_dropped += 1
                return
        self._queued_bytes += len(body)
        if kind is ROW:
            self._queued_rows += 1
            self.rows_taken += 1
            self.row_bytes_taken += len(body)
        self._queued.append((body, kind))

    @property
    def wants_write(self) -> bool:
        """Whether a batch is full, and the disk is not known to be failing."""
        return self._queued_bytes >= BATCH_BYTES and self._retry_at is None

    @property
    def wants_sync(self) -> bool:
        """Whether so much is unsynced that memory asks for it."""
        return self._unsynced_bytes >= SYNC_BYTES

    @property
    def dirty(self) -> bool:
        """Whether anything was written since the last good sync."""
        return self._dirty

    @property
    def hopeless(self) -> bool:
        """Whether there is no log, and none can be made before somebody does something about its place."""
        return not self.paths and self._retry_at is not None and self._last_errno in _NO_PLACE

    @property
    def failing(self) -> bool:
        """Whether the last attempt to write failed."""
        return self._retry_at is not None

    @property
    def rows_queued(self) -> int:
        """Rows that are not in the file yet."""
        return self._queued_rows

    @property
    def others_queued(self) -> int:
        """Other records that are not in the file yet."""
        return len(self._queued) - self._queued_rows

    @property
    def directory(self) -> Path | None:
        """The run's directory: of the open segment, else of the last one; None where no log could be made."""
        segment = self._segment
        if segment is not None:
            return segment.path.parent
        return self.paths[-1].parent if self.paths else None

    def open(self) -> bool:
        """Make the first segment; whether it holds its opening records."""
        return self.write(opening=True)

    # -- writing -----------------------------------------------------------------------------------------------------

    def write(self, *, now: bool = False, opening: bool = False) -> bool:
        """Write what is queued; whether all of it is in the file.

        After an error it waits before it tries again, unless told `now`.
        """
        if not self._queued and not opening:
            return True
        if self._retry_at is not None and not now and self._clock.monotonic() < self._retry_at:
            return False
        try:
            segment = self._segment or self._begin_segment()
            while self._queued:
                self._write_batch(segment)
        except WriteError as error:
            self._failed(error, f"{segment.path} cannot be written")
            if error.torn:
                self._distrust()
            return False
        except OSError as error:
            self._failed(error, f"no log can be made in {self._place.folder}")
            return False
        except ValueError as error:  # a path that this system's encoding has no bytes for
            self._failed(OSError(errno.EINVAL, str(error)), f"no log can be made in {self._place.folder!r}")
            return False
        self._delay, self._retry_at = FIRST_RETRY_S, None
        return True

    def _begin_segment(self) -> Segment:
        resumed = self._begun > 0
        opening = [(body, OPENING) for body in self._opening(resumed)]
        self._segment = segment = Segment.create(self._fs, self._place, self._clock.time())
        self._num = self._segment_rows = 0
        self._queued.extendleft(reversed(opening))
        self._queued_bytes += sum(len(body) for body, _ in opening)
        if resumed:
            self.new_segment()
        return segment

    def _write_batch(self, segment: Segment) -> None:
        empty = segment.end == 0
        out = bytearray(FILE_HEADER if empty else b"")
        framer = Framer(segment.end + len(out))
        ends: list[int] = []
        num = self._num
        for body, _ in self._queued:
            num += 1
            framer.append(b"\x08" + varint(num) + body, out)
            ends.append(len(out))
            if len(out) >= BATCH_BYTES:
                break
        # A log without its run record stops the peer's sync for every other run: better no byte than half an opening.
        minimum = sum(kind is OPENING for _, kind in self._queued) if empty else 1
        try:
            segment.append(out, ends, minimum=minimum)
        except WriteError as error:
            self._written(segment, error.taken)
            raise
        self._written(segment, len(ends))

    def _written(self, segment: Segment, count: int) -> None:
        """The first `count` queued records are in the file."""
        if count and segment.path not in self.paths[-1:]:
            self.paths.append(segment.path)
            self._begun += 1
        if count == len(self._queued):  # nearly always
            entries, self._queued = self._queued, deque()
        else:
            entries = deque(self._queued.popleft() for _ in range(count))
        size = sum(len(body) for body, _ in entries)
        rows = sum(kind is ROW for _, kind in entries)
        self._queued_bytes -= size
        self._queued_rows -= rows
        self.tally.rows_written += rows
        self._segment_rows += rows
        self._unsynced.extend(entries)
        self._unsynced_bytes += size
        self._num += count
        self._dirty = self._dirty or count > 0
        while self._unsynced_bytes > self._keep_unsynced:
            body, kind = self._unsynced.popleft()
            self._unsynced_bytes -= len(body)
            self._rows_let_go += kind is ROW

    # -- syncing -----------------------------------------------------------------------------------------------------

    def sync(self, *, now: bool = False) -> bool:
        """Bring what was written to the device; whether all of it is there. A failure starts a new segment.

        After the second failure in a row it waits before it tries again, unless told `now`.
        """
        if not self._dirty or self._segment is None:
            return True
        if not self._syncs or (self._clock.monotonic() < self._resync_at and not now):
            return False
        try:
            if self._segment.deleted():
                self._deleted()
                return False
            self._segment.sync()
        except OSError as error:
            self._sync_failed(error)
            return False
        self._syncs_failed = 0
        self._synced()
        return True

    def _sync_failed(self, error: OSError) -> None:
        path = self.paths[-1]
        if error.errno in _NO_SYNC:
            self._syncs, self._keep_unsynced = False, 0
            self._warn(
                f"{path} cannot be synced: {error.strerror} (errno {error.errno}), which this file system does not offer."
                " Rows survive the death of the process, but perhaps not that of the machine."
            )
            return
        self._failed(error, f"{path} could not be synced and is not trusted any more")
        self._distrust()
        if self._syncs_failed:
            delay = min(FIRST_RESYNC_S * 2 ** (self._syncs_failed - 1), LAST_RESYNC_S)
            self._resync_at = self._clock.monotonic() + delay
        self._syncs_failed += 1

    def _synced(self) -> None:
        self._dirty = False
        self._unsynced.clear()
        self._unsynced_bytes = self._rows_let_go = 0

    def _distrust(self) -> None:
        """Queue again what may be lost, in front of what is waiting; the next write opens a new segment."""
        self.tally.rows_unsure += self._rows_let_go
        self.tally.rows_written -= self._rows_let_go + self._start_over()

    def _deleted(self) -> None:
        """Somebody deleted the log: what had been synced is gone, the rest goes to a new one."""
        path, rows = self.paths.pop(), self._segment_rows
        again = self._start_over()
        self.tally.rows_written -= rows
        self.tally.rows_dropped += rows - again
        self._warn(
            f"{path} was deleted, and {counted(rows - again, 'row')} with it. Training goes on, and a new log is begun."
        )

    def _start_over(self) -> int:
        """Give up the segment and queue again what was written to it since the last good sync; how many rows."""
        if self._segment is not None:
            self._segment.abandon()
        self._segment = None
        again = [entry for entry in self._unsynced if entry[1] is not OPENING]
        rows = sum(kind is ROW for _, kind in again)
        self._queued = deque([*again, *(entry for entry in self._queued if entry[1] is not OPENING)])
        self._queued_bytes = sum(len(body) for body, _ in self._queued)
        self._queued_rows += rows
        self._synced()
        return rows

    def _failed(self, error: OSError, what: str) -> None:
        now = self._clock.monotonic()
        if now - self._failed_at > QUIET_S:
            self._named.clear()
        self._failed_at, self._last_errno = now, error.errno
        self._retry_at = now + self._delay
        self._delay = min(2 * self._delay, LAST_RETRY_S)
        if error.errno not in self._named:
            self._named.add(error.errno)
            reason = error.strerror or os.strerror(error.errno or 0)
            self._warn(
                f"{what}: {reason} (errno {error.errno}). Training goes on; rows are kept in memory"
                f" (up to {MAX_QUEUED_BYTES // 2**20} MiB) and written when that is possible again."
            )

    # -- ending ------------------------------------------------------------------------------------------------------

    def close(self) -> bool:
        """Close the log; whether the file system kept what it took."""
        segment, self._segment = self._segment, None
        if segment is None:
            return True
        try:
            segment.close()
        except OSError as error:
            self._failed(error, f"{segment.path} could not be closed")
            return False
        return True

    def abandon(self) -> None:
        """Let go of the descriptor and of all that is queued: a forked child owns neither."""
        if self._segment is not None:
            self._segment.abandon()
        self._segment = None
        self._queued.clear()
