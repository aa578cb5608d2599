"""The file system, as far as bundles are written to it: a port, so that a test may fill the disk or pull the plug anywhere."""

from __future__ import annotations

import contextlib
import hashlib
import os
from pathlib import Path
from typing import BinaryIO

_PIECE = 1 << 20


def sha256_of(path: Path, size: int | None = None) -> str:
    """The digest of a file, or of its first `size` bytes.

    Raises:
        OSError: it cannot be read.
    """
    digest = hashlib.sha256()
    left = path.stat().st_size if size is None else size
    with path.open("rb") as file:
        while left > 0 and (data := file.read(min(left, _PIECE))):
            digest.update(data)
            left -= len(data)
    return digest.hexdigest()


class Disk:
    """The real one. Raises OSError as the calls it is made of do."""

    def open(self, path: Path, *, keep: bool = False) -> BinaryIO:
        """A file to read and write, made if it is not there, emptied unless `keep`; no link is followed."""
        flags = os.O_RDWR | os.O_CREAT | (0 if keep else os.O_TRUNC)
        flags |= getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_BINARY", 0) | getattr(os, "O_NONBLOCK", 0)
        return os.fdopen(os.open(path, flags, 0o666), "r+b", buffering=0)

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

    def replace(self, source: Path, target: Path) -> None:
        """Give a file its name, in place of what had it; the new name survives a power cut."""
        source.replace(target)
        with contextlib.suppress(OSError):  # not all file systems let a folder be synced
            folder = os.open(target.parent, os.O_RDONLY)
            try:
                os.fsync(folder)
            finally:
                os.close(folder)

    def remove(self, path: Path) -> None:
        """Remove a file."""
        path.unlink()

    def make_folder(self, path: Path) -> None:
        """Make one folder."""
        path.mkdir()

    def set_mtime(self, path: Path, seconds: int) -> None:
        """Set when a file last changed."""
        os.utime(path, (seconds, seconds))


DISK = Disk()
