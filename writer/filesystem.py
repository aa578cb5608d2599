"""The file system as the writer needs it: a port, so that a full or dying disk is an ordinary unit test."""

from __future__ import annotations

import os
import sys
from contextlib import suppress
from pathlib import Path
from typing import Protocol

_APPENDING = os.O_WRONLY | os.O_APPEND | getattr(os, "O_BINARY", 0) | getattr(os, "O_CLOEXEC", 0)


class FileSystem(Protocol):
    """Every call that touches the disk. Each may raise OSError; none retries on its own."""

    def make_directories(self, path: Path) -> list[Path]:
        """Create `path` and what is missing above it; the directories made, outermost first."""

    def make_directory(self, path: Path) -> None:
        """Create `path`; FileExistsError if something is there."""

    def remove_directory(self, path: Path) -> None:
        """Remove an empty directory."""

    def create(self, path: Path) -> int:
        """A descriptor that appends to a new file; FileExistsError if something is there."""

    def name(self, path: Path, name: Path) -> None:
        """Rename the open file at `path` to `name`, where nothing is; its descriptor goes on."""

    def write(self, fd: int, data: memoryview) -> int:
        """Append `data`; how many bytes were taken, which may be fewer."""

    def truncate(self, fd: int, size: int) -> None:
        """Cut the file to `size` bytes."""

    def identity(self, fd: int) -> tuple[int, int]:
        """What tells the file from every other one."""

    def name_count(self, fd: int) -> int:
        """How many names the file has; none if it was deleted."""

    def sync_data(self, fd: int) -> None:
        """Return when the file's bytes and size are on the device."""

    def sync_file(self, fd: int) -> None:
        """Return when the file's bytes and all its metadata are on the device."""

    def sync_directory(self, path: Path) -> None:
        """Return when the names in the directory are on the device."""

    def close(self, fd: int) -> None:
        """Close; a network file system may report a failed write only here."""

    def replace_link(self, target: str, link: Path) -> None:
        """Make `link` a symbolic link to `target`, in one step for whoever looks at it."""

    def put(self, path: Path, data: bytes) -> None:
        """A new small file; FileExistsError if something is there."""

    def touch(self, path: Path) -> None:
        """Set the file's time to now, by the clock of the file system; FileNotFoundError if there is none."""

    def remove(self, path: Path) -> None:
        """Remove a file."""


class RealFileSystem:
    """The operating system's own."""

    def make_directories(self, path: Path) -> list[Path]:
        """As the port says."""
        if path.is_dir():  # as for all files of a run but the first: on a network each question costs a trip
            return []
        missing = [directory for directory in (path, *path.parents) if not directory.is_dir()]
        made: list[Path] = []
        for directory in reversed(missing):
            with suppress(FileExistsError):  # another process made it meanwhile
                directory.mkdir()
                made.append(directory)
        return made

    def make_directory(self, path: Path) -> None:
        """As the port says."""
        path.mkdir()

    def remove_directory(self, path: Path) -> None:
        """As the port says."""
        path.rmdir()

    def create(self, path: Path) -> int:
        """As the port says. O_APPEND, so that the next write after a truncation lands behind the last good record."""
        return _above_console(os.open(path, _APPENDING | os.O_CREAT | os.O_EXCL, 0o666))  # the umask: who may read

    def name(self, path: Path, name: Path) -> None:
        """As the port says."""
        path.rename(name)

    def write(self, fd: int, data: memoryview) -> int:
        """As the port says."""
        return os.write(fd, data)

    def truncate(self, fd: int, size: int) -> None:
        """As the port says."""
        os.ftruncate(fd, size)

    def identity(self, fd: int) -> tuple[int, int]:
        """As the port says."""
        status = os.fstat(fd)
        return status.st_dev, status.st_ino

    def name_count(self, fd: int) -> int:
        """As the port says."""
        return os.fstat(fd).st_nlink

    def sync_data(self, fd: int) -> None:
        """As the port says."""
        if sys.platform == "linux":
            os.fdatasync(fd)
        else:
            self.sync_file(fd)

    def sync_file(self, fd: int) -> None:
        """As the port says; on macOS fsync alone stops at the drive's cache."""
        if sys.platform == "darwin":
            import fcntl

            with suppress(OSError):  # not every file system has it
                fcntl.fcntl(fd, fcntl.F_FULLFSYNC)
                return
        os.fsync(fd)

    def sync_directory(self, path: Path) -> None:
        """As the port says; Windows has no such call and needs none."""
        if os.name == "nt":
            return
        fd = os.open(path, os.O_RDONLY)
        try:
            os.fsync(fd)
        finally:
            os.close(fd)

    def close(self, fd: int) -> None:
        """As the port says."""
        os.close(fd)

    def replace_link(self, target: str, link: Path) -> None:
        """As the port says."""
        scratch = link.with_name(f"{link.name}.{os.getpid()}")
        scratch.unlink(missing_ok=True)
        scratch.symlink_to(target)
        try:
            scratch.replace(link)
        except OSError:
            scratch.unlink()
            raise

    def put(self, path: Path, data: bytes) -> None:
        """As the port says."""
        fd = self.create(path)
        try:
            os.write(fd, data)
        finally:
            os.close(fd)

    def touch(self, path: Path) -> None:
        """As the port says; no time given, so that a network server takes its own."""
        os.utime(path)

    def remove(self, path: Path) -> None:
        """As the port says."""
        path.unlink()


def _above_console(fd: int) -> int:
    """The same file where nobody prints: the next file of a program that closed its standard output gets its number."""
    if fd > 2 or os.name == "nt":
        return fd
    import fcntl

    try:
        return fcntl.fcntl(fd, fcntl.F_DUPFD_CLOEXEC, 3)
    finally:
        os.close(fd)
