"""The file system, as far as bundles are written to it: a port, so that a test may fill the disk or pull the plug anywhere."""

from __future__ import annotations

import contextlib
import hashlib
import os
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import BinaryIO

_PIECE = 1 << 20


_COMMON = getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_BINARY", 0) | getattr(os, "O_NONBLOCK", 0)
_FOLDER = os.O_RDONLY | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_DIRECTORY", 0)
HOLDS_FOLDERS = os.open in os.supports_dir_fd
"""Whether names can be looked up in a folder that is open, so that nobody can put a link in its place. Windows cannot."""
_TRIES = 3


def open_to_read(path: Path, at: int | None = None) -> BinaryIO:
    """A file to read, in the open folder `at` if there is one; no link is followed, and no pipe waited for.

    Raises:
        OSError: it cannot be read.
    """
    return os.fdopen(os.open(path, os.O_RDONLY | _COMMON, dir_fd=at), "rb", buffering=0)


@contextlib.contextmanager
def folder_below(root: Path, levels: Iterable[str], make: Callable[[str, int], object] | None = None) -> Iterator[int]:
    """The folder at `levels` below `root`, held open: neither is a link. Those that are missing are made, by `make`.

    Raises:
        OSError: a level is missing, or a link, or no folder.
    """
    folder = os.open(root, _FOLDER)
    try:
        for level in levels:
            try:
                below = os.open(level, _FOLDER, dir_fd=folder)
            except FileNotFoundError:
                if make is None:
                    raise
                make(level, folder)
                below = os.open(level, _FOLDER, dir_fd=folder)
            above, folder = folder, below
            os.close(above)
        yield folder
    finally:
        os.close(folder)


def sha256_of(path: Path, size: int | None = None, at: int | None = None) -> str:
    """The digest of a file, or of its first `size` bytes; `at` is the open folder that it is in.

    Raises:
        OSError: it cannot be read.
    """
    digest = hashlib.sha256()
    with open_to_read(path, at) as file:
        left = os.fstat(file.fileno()).st_size if size is None else size
        while left > 0 and (data := file.read(min(left, _PIECE))):
            digest.update(data)
            left -= len(data)
    return digest.hexdigest()


class Disk:
    """The real one. Paths are below the open folder `at` where one is given. Raises OSError as the calls it is made of do."""

    def open(self, path: Path, *, keep: bool = False, new: bool = False, at: int | None = None) -> BinaryIO:
        """A file to read and write, made if it is not there, emptied unless `keep`; `new`: nothing may be there. No link is followed."""
        flags = os.O_RDWR | os.O_CREAT | _COMMON | (0 if keep else os.O_TRUNC) | (os.O_EXCL if new else 0)
        return os.fdopen(os.open(path, flags, 0o666, dir_fd=at), "r+b", buffering=0)

    def lock(self, file: BinaryIO) -> bool:
        """Take a file for this process as long as it is open; whether nobody else has it. Windows and odd systems do not tell."""
        try:
            import fcntl

            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
        except (ImportError, OSError):
            pass
        return True

    def take_up(self, path: Path) -> BinaryIO | None:
        """The file at a path, made if it is not there, for this process alone; None if somebody else has it."""
        for _ in range(_TRIES):
            file = self.open(path, keep=True)
            is_ours = self.lock(file)
            if is_ours and _is_at(file, path, None):
                return file
            file.close()
            if not is_ours:
                break
        return None  # or it comes and goes

    def begin(self, path: Path, at: int | None = None) -> BinaryIO | None:
        """A new file, for this process alone; None if somebody else has it. What a process that is gone left there is removed."""
        for _ in range(_TRIES):
            with contextlib.suppress(FileExistsError):
                file = self.open(path, new=True, at=at)
                if self.lock(file) and _is_at(file, path, at):
                    return file
                file.close()
                break
            try:
                with open_to_read(path, at) as left:
                    if not self.lock(left):
                        break
                    if _is_at(left, path, at):
                        self.remove(path, at=at)
            except FileNotFoundError:
                continue
        return None

    def write(self, file: BinaryIO, data: bytes) -> None:
        """All of `data`."""
        view = memoryview(data)
        while view:
            view = view[file.write(view) :]

    def truncate(self, file: BinaryIO, size: int) -> None:
        """Cut a file."""
        file.truncate(size)

    def sync(self, file: BinaryIO) -> None:
        """Bring a file's bytes to the device."""
        os.fsync(file.fileno())

    def replace(self, source: Path, target: Path, *, at: int | None = None) -> None:
        """Give a file its name, in place of what had it; the new name survives a power cut."""
        os.replace(source, target, src_dir_fd=at, dst_dir_fd=at)
        with contextlib.suppress(OSError):  # not all file systems let a folder be synced
            folder = os.open(target.parent if at is None else ".", os.O_RDONLY, dir_fd=at)
            try:
                os.fsync(folder)
            finally:
                os.close(folder)

    def remove(self, path: Path, *, at: int | None = None) -> None:
        """Remove a file."""
        os.unlink(path, dir_fd=at)

    def make_folder(self, path: Path, *, at: int | None = None) -> None:
        """Make one folder; it may have come to be there."""
        with contextlib.suppress(FileExistsError):
            os.mkdir(path, dir_fd=at)

    def set_mtime(self, path: Path, seconds: int, *, at: int | None = None) -> None:
        """Set when a file last changed."""
        os.utime(path, (seconds, seconds), dir_fd=at, follow_symlinks=at is None)


def _is_at(file: BinaryIO, path: Path, at: int | None) -> bool:
    """Whether an open file is still what its path names: another process may have given it its own."""
    with contextlib.suppress(FileNotFoundError):
        return os.path.samestat(os.fstat(file.fileno()), os.stat(path, dir_fd=at, follow_symlinks=False))
    return False


DISK = Disk()
