"""One log being appended to: its directory, its descriptor, and the end of the last whole record in it."""

from __future__ import annotations

import errno
import os
from bisect import bisect_right
from collections.abc import Sequence
from contextlib import suppress
from datetime import datetime, timezone
from pathlib import Path
from typing import NamedTuple

from ..logformat.rundir import log_name
from .filesystem import FileSystem

UNNAMED = "" if os.name == "nt" else ".new"  # Windows renames no open file: there a log has its name from the start
CLOSED = -1
MAX_SUFFIX = 1000
"""Runs of one id that may start within one second in one folder."""


class WriteError(OSError):
    """The file system did not take all of a batch. `taken` records of it are in the file, whole."""

    def __init__(self, cause: OSError, taken: int, *, torn: bool) -> None:
        super().__init__(cause.errno, cause.strerror or str(cause), cause.filename)
        self.taken = taken
        self.torn = torn
        """The part of a record behind them could not be cut off: nothing may be appended to this file again."""


class Place(NamedTuple):
    """Where segments go: `<root>/wandb/<prefix>-<local time>-<run id>/run-<run id>.wandb`."""

    root: Path
    run_id: str
    prefix: str = "run"

    @property
    def folder(self) -> Path:
        """The `wandb` directory."""
        return self.root / "wandb"


class Segment:
    """An open log. Not thread-safe: it belongs to the writer's thread."""

    def __init__(self, fs: FileSystem, path: Path, fd: int, unsynced_directories: list[Path]) -> None:
        self._fs = fs
        self._fd = fd
        self._identity: tuple[int, int] | None = None
        self._unsynced_directories = unsynced_directories
        self._named = False
        self.path = path
        """Where the log stands as soon as records are in it. Until then it has the suffix `UNNAMED`, so that no reader
        ever meets an empty log, whenever the process dies."""
        self.end = 0
        """Bytes: the offset behind the last whole record."""

    @classmethod
    def create(cls, fs: FileSystem, place: Place, now_s: float) -> Segment:
        """A new directory with an empty log and `files/` in it; a name that is taken gets -1, -2 and so on.

        Raises:
            OSError: the directory or the log cannot be made.
        """
        if not place.folder.is_absolute():  # a later working directory is another place
            raise FileNotFoundError(errno.ENOENT, "the working directory was gone when the run began")
        made = fs.make_directories(place.folder)
        stamp = datetime.fromtimestamp(now_s, tz=timezone.utc).astimezone().strftime("%Y%m%d_%H%M%S")
        name = f"{place.prefix}-{stamp}-{place.run_id}"
        for suffix in range(MAX_SUFFIX):
            directory = place.folder / (f"{name}-{suffix}" if suffix else name)
            try:
                fs.make_directory(directory)
                break
            except FileExistsError:
                continue
        else:
            raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST), str(directory))
        path = directory / log_name(place.run_id)
        try:
            fd = fs.create(_unnamed(path))
        except OSError:
            with suppress(OSError):  # the next attempt starts with a fresh name, and leaves no trail of empty ones
                fs.remove_directory(directory)
            raise
        with suppress(OSError):  # the log matters more than the folder beside it
            fs.make_directory(directory / "files")
        # A name is on the device once the directory that holds it is synced: the log's, the run's, those made above.
        parents = [above.parent for above in reversed(made)]
        return cls(fs, path, fd, [directory, place.folder, *parents])

    def append(self, data: bytearray, ends: Sequence[int], *, minimum: int = 1) -> None:
        """Write `data`; `ends` are the offsets in it behind each record. All or nothing of each record stays.

        Args:
            data: framed records.
            ends: ascending, the last one is `len(data)`.
            minimum: keep nothing if fewer records than this got in.

        Raises:
            WriteError: not all was taken.
        """
        self._make_sure()
        done, whole, failure = 0, len(ends), None
        view = memoryview(data)
        try:
            while done < len(data):
                taken = self._fs.write(self._fd, view[done:])
                if taken <= 0:
                    raise OSError(errno.EIO, "the file system took no bytes")
                done += taken
        except OSError as error:
            whole = bisect_right(ends, done)
            whole = whole if whole >= minimum else 0
            # Cut always: an error does not say how far the write came.
            failure = WriteError(error, whole, torn=not self._cut(self.end + (ends[whole - 1] if whole else 0)))
        finally:
            view.release()
        if whole and not self._named:
            try:
                self._name()
            except OSError as error:
                gone = isinstance(error, FileNotFoundError)  # its directory was removed, to make room perhaps
                failure, whole = WriteError(error, 0, torn=gone or not self._cut(0)), 0
        self.end += ends[whole - 1] if whole else 0
        if failure is not None:
            raise failure

    def _make_sure(self) -> None:
        """A program that closes all descriptors, as daemons do, may have given our number to a file of its own."""
        try:
            identity = self._fs.identity(self._fd)
        except OSError as error:
            raise WriteError(error, 0, torn=True) from None
        if self._identity is None:
            self._identity = identity
        elif identity != self._identity:
            self._fd = CLOSED
            reason = OSError(errno.EBADF, "its descriptor was closed, and is another file's now")
            raise WriteError(reason, 0, torn=True)

    def _name(self) -> None:
        """Let readers see the log."""
        if UNNAMED:
            self._fs.name(_unnamed(self.path), self.path)
        self._named = True
        folder = self.path.parent
        with suppress(OSError, NotImplementedError):  # no symbolic links here: nothing needs this one
            self._fs.replace_link(folder.name, folder.parent / "latest-run")

    def _cut(self, size: int) -> bool:
        try:
            self._fs.truncate(self._fd, size)
        except OSError:
            return False
        return True

    def deleted(self) -> bool:
        """Whether somebody deleted the file: what is appended to it then goes nowhere, and no call says so.

        Raises:
            OSError: it cannot be told.
        """
        self._make_sure()
        return self._named and self._fs.name_count(self._fd) == 0

    def sync(self) -> None:
        """Return when every appended record is on the device, the names of a new log included.

        Raises:
            OSError: what was appended since the last good sync may be lost, and no later sync can tell.
        """
        if not self._unsynced_directories:
            self._fs.sync_data(self._fd)
            return
        self._fs.sync_file(self._fd)
        for directory in self._unsynced_directories:
            try:
                self._fs.sync_directory(directory)
            except OSError as error:
                if error.errno not in _DIRECTORY_SYNC_MISSING:
                    raise
        self._unsynced_directories = []

    def close(self) -> None:
        """Close the descriptor.

        Raises:
            OSError: a network file system found only now that it could not keep what was written.
        """
        fd, self._fd = self._fd, CLOSED  # never twice: a forked child must not close what took its number
        if fd != CLOSED:
            self._fs.close(fd)

    def abandon(self) -> None:
        """Close without caring: in a forked child, or when the file is no longer trusted."""
        with suppress(OSError):
            self.close()


def _unnamed(path: Path) -> Path:
    return path.with_name(path.name + UNNAMED)


_DIRECTORY_SYNC_MISSING = frozenset({errno.EINVAL, errno.ENOTSUP, errno.EACCES, errno.EPERM})
"""Answers of file systems that have no fsync for directories, or of parents that may not be opened."""
