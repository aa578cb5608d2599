"""What was read of a run's logs, and how to read on: the fold, its reader, and by what the logs are known again."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple

from ..logformat import LogReader, RunState, open_log, run_id_of
from ..logformat.record import Batch
from ..logformat.sources import GZIP, ZSTD
from ..logformat.stitch import Opening, StepStitch, opening_of

_MARK = 64  # bytes before the place that was read up to, by which the same log is known again

Told = Callable[[int, int], object]
"""Told of progress: bytes read, and bytes in all."""


class ReplacedError(Exception):
    """A log is not what it was: it has to be read again from its beginning."""


class Identity(NamedTuple):
    """A file as it was when it was opened."""

    device: int
    inode: int
    size: int
    modified_ns: int

    @classmethod
    def of(cls, status: os.stat_result) -> Identity:
        """By what the system says of it."""
        return cls(status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns)


@dataclass
class Reading:
    """A run as far as its logs were read."""

    logs: list[Path]
    """In the order of their start."""
    state: RunState
    identities: list[Identity]
    """Of each log."""
    joins: list[int] = field(default_factory=list)
    """How many rows stand before each log but the first."""
    reader: LogReader | None = None
    """Of the last log, between two files. None: there is nothing to read on, because it is packed, or was only sampled."""
    mark: bytes = b""
    """What stands before the reader's position."""
    sampled: float = 1.0
    """The share of the bytes that was read."""

    @property
    def is_preview(self) -> bool:
        """Whether only parts of the logs were read."""
        return self.sampled < 1

    def go_on(self) -> None:
        """Read what the last log has got since.

        Raises:
            ReplacedError: it was cut off or written anew.
            OSError: it cannot be opened or read.
        """
        if self.reader is None:
            return
        with self.logs[-1].open("rb", buffering=0) as file:
            identity = Identity.of(os.fstat(file.fileno()))
            self.check(identity, file)
            self._poll(file)
            self.identities[-1] = identity

    def check(self, identity: Identity, file: BinaryIO) -> None:
        """Whether the last log, open as `file`, is the one that was read. Raises ReplacedError if it is not."""
        if self.reader is None:
            return
        if identity.size < self.reader.seen:
            raise ReplacedError(f"{self.logs[-1]} shrank to {identity.size} bytes, and {self.reader.seen} were read")
        file.seek(self.reader.position - len(self.mark))
        if file.read(len(self.mark)) != self.mark:
            raise ReplacedError(f"{self.logs[-1]} is another log now")

    def _poll(self, file: BinaryIO, told: Callable[[int], object] | None = None) -> None:
        reader = self.reader
        if reader is None:
            return
        reader.go_on(file)
        try:
            self.state.add_batches(_telling(reader.poll_batches(), told) if told else reader.poll_batches())
        finally:
            reader.go_on(_CLOSED)
        begin = max(0, reader.position - _MARK)
        file.seek(begin)
        self.mark = file.read(reader.position - begin)


def read(logs: Sequence[Path], told: Told | None = None) -> Reading:
    """Read all of a run's logs, given in the order of their start, stitched as `load` does it.

    Raises:
        OSError: a log cannot be opened or read.
    """
    say = told or (lambda _done, _total: None)
    sizes = [log.stat().st_size for log in logs]
    total = sum(sizes)
    reading = Reading(list(logs), RunState(), [])
    stitching = stitch(logs)
    for index, log in enumerate(logs):
        begin_log(reading, stitching, index)
        before = sum(sizes[:index])

        def tell(end: int, before: int = before, size: int = sizes[index]) -> None:
            say(before + min(end, size), total)

        is_packed = _is_packed(log)
        with open_log(log) if is_packed else log.open("rb", buffering=0) as file:
            reading.identities.append(Identity.of(log.stat() if is_packed else os.fstat(file.fileno())))
            reader = LogReader(file)
            if index == len(logs) - 1 and not is_packed:
                reading.reader = reader
                reading._poll(file, tell)  # noqa: SLF001 - ours
            else:
                reading.state.add_batches(_telling(reader.batches(), tell))
        reading.state.healed += reader.healed
        end_log(reading, stitching, index)
    say(total, total)
    return reading


def stitch(logs: Sequence[Path]) -> StepStitch:
    """Which rows of each log count. Raises OSError: one cannot be read."""
    if len(logs) < 2:
        return StepStitch([Opening()], "last")
    openings = []
    for log in logs:
        with open_log(log) as file:
            openings.append(opening_of(file))
    return StepStitch(openings, "last")


def begin_log(reading: Reading, stitching: StepStitch, index: int) -> None:
    """What is added to the state next is of this log."""
    if index:
        reading.joins.append(reading.state.row_count)
    reading.state.begin_log(*stitching.begin(index))


def end_log(reading: Reading, stitching: StepStitch, index: int) -> None:
    """This log was read."""
    state = reading.state
    stitching.end(index, state.log_highest)
    if not state.info.run_id:
        state.info.run_id = run_id_of(reading.logs[index])


def _telling(items: Any, told: Callable[[int], object]) -> Any:
    for item in items:
        yield item
        if isinstance(item, Batch):
            told(item.end)


def _is_packed(log: Path) -> bool:
    with log.open("rb", buffering=0) as file:
        return file.read(len(ZSTD)).startswith((GZIP, ZSTD))


_CLOSED: Any = None  # what a reader has between two files
