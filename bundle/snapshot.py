"""Files as they are at one moment: a size is taken once, and nothing is read behind it.

Of a log the bytes up to the end of its last complete record are taken: a writer may be in the middle of the next one.
Records that were complete do not change, so what is copied later is what was read. The rule looks at bytes alone, not
at who writes: the same files make the same bundle.
"""

from __future__ import annotations

import errno
import io
import os
import stat
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO

from ..logformat import Batch, GapReason, LogReader, Record
from ..logformat.rundir import run_id_of
from ..logformat.wire import WireError
from . import tar
from .disk import HOLDS_FOLDERS, folder_below, open_to_read
from .manifest import LogFacts

_UNFINISHED = frozenset({GapReason.TORN_TAIL, GapReason.ZEROED})
"""What the end of a log may look like while its writer is at work: bytes are missing, or are still zero on a network file
system. A tail that is damaged otherwise is packed: it may be mended one day."""

_LONGEST = 128  # characters of a name in the manifest


class Clipped(io.RawIOBase):
    """The first `size` bytes of an open file, as far as they are there."""

    def __init__(self, file: BinaryIO, size: int) -> None:
        self._file, self._size, self._at = file, size, 0

    def readable(self) -> bool:
        """It is."""
        return True

    def seekable(self) -> bool:
        """It is."""
        return True

    def tell(self) -> int:
        """Where the next byte is read."""
        return self._at

    def seek(self, offset: int, whence: int = os.SEEK_SET) -> int:
        """As any file's."""
        self._at = max(0, offset + {os.SEEK_SET: 0, os.SEEK_CUR: self._at, os.SEEK_END: self._size}[whence])
        return self._at

    def readinto(self, buffer: Any) -> int:
        """As any file's."""
        self._file.seek(self._at)
        data = self._file.read(max(0, min(len(buffer), self._size - self._at)))
        buffer[: len(data)] = data
        self._at += len(data)
        return len(data)


@dataclass(frozen=True, slots=True)
class LogView:
    """A log as it is at one moment."""

    size: int
    """Bytes of it that are packed."""
    mtime: int
    """Whole seconds."""
    identity: tuple[int, int]
    """Device and inode."""
    facts: LogFacts


def view_log(file: BinaryIO, name: str, artifact: Callable[[Record], object] = lambda _record: None) -> LogView:
    """What a log holds now.

    Args:
        file: the log, open.
        name: its file name, which gives the run id where no record does.
        artifact: told of each artifact record.

    Raises:
        OSError: it cannot be read.
    """
    status = os.fstat(file.fileno())
    size = status.st_size
    reader = LogReader(Clipped(file, size), at_once=1 << 20)  # type: ignore[arg-type]  # any binary file will do
    records = gaps = end = 0
    run: Any = None
    exit_code: int | None = None
    tail: GapReason | None = None
    for item in reader.batches():
        if not isinstance(item, Batch):
            gaps, tail = gaps + 1, item.reason
            continue
        tail = None
        records += len(item.entries)
        end = item.base + item.entries[-1][5]
        for entry in item.entries:
            if entry[0] == "artifact":
                artifact(item.record_of(entry))
            elif entry[0] == "exit" or (entry[0] == "run" and run is None):
                try:
                    message = item.record_of(entry).message()
                except WireError:
                    continue
                if entry[0] == "run":
                    run = message
                else:
                    exit_code = message.exit_code
    is_unfinished = tail in _UNFINISHED and records > 0
    packed = end if is_unfinished else size
    run_id, entity, project = (
        (run.run_id, run.entity, run.project) if run is not None else (run_id_of(Path(name)), "", "")
    )
    facts = LogFacts(
        run_id[:_LONGEST],
        entity[:_LONGEST],
        project[:_LONGEST],
        records,
        end,
        cut=size - packed,
        gaps=gaps - is_unfinished,
        exit=exit_code,
    )
    return LogView(packed, whole_seconds(status), (status.st_dev, status.st_ino), facts)


def open_file(path: Path, root: Path) -> BinaryIO:
    """Open the regular file at `path`; where that is below `root`, no level between them may have become a link.

    Raises:
        OSError: it cannot be opened, or is something else by now.
    """
    if HOLDS_FOLDERS and path != root and path.is_relative_to(root):
        *levels, name = path.relative_to(root).parts
        with folder_below(root, levels) as folder:
            return _regular(path, open_to_read(Path(name), folder))
    return _regular(path, open_to_read(path))


def _regular(path: Path, file: BinaryIO) -> BinaryIO:
    if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
        file.close()
        raise OSError(errno.EINVAL, "not a regular file", str(path))
    return file


def whole_seconds(status: os.stat_result) -> int:
    """When a file last changed, as it is packed: every file system keeps seconds, and archives those from 1970 to 2242."""
    return min(max(0, status.st_mtime_ns // 1_000_000_000), tar.LATEST)
