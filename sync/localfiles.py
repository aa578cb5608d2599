"""Files on this machine that a log names: names are not trusted, and nothing but regular files is opened.

Every path is looked at before it is opened, and once more when it is open: what has taken its place since (a link, a
pipe that would block for ever) is not read.
"""

from __future__ import annotations

import errno
import io
import os
import stat
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path, PurePosixPath
from typing import IO, Any, BinaryIO

from .errors import Permanent

_LONGEST_SHOWN = 120  # characters


Opener = Callable[[], BinaryIO]
"""Gives a reader from the start, each time it is called."""


class UnsafeFileError(Exception):
    """A file that is not read, and why."""


def clean_name(name: str) -> str:
    """A recorded path as a normalised relative one.

    Raises:
        UnsafeFileError: it is absolute, leaves the folder, or is no path at all.
    """
    if not name or "\0" in name:
        raise UnsafeFileError("not a file name")
    path = PurePosixPath(name.replace("\\", "/") if os.name == "nt" else name)
    if path.is_absolute() or ".." in path.parts or (os.name == "nt" and ":" in name):
        raise UnsafeFileError("refused: it leads out of the run's files")
    if not path.parts:
        raise UnsafeFileError("not a file name")
    try:
        str(path).encode()
    except UnicodeEncodeError:
        raise UnsafeFileError("not a file name") from None
    return str(path)


def find_safely(run_dir: Path, name: str, *, follow_links: bool = False) -> tuple[Opener, os.stat_result]:
    """The file `name` below `files/`: a regular one, whose links (if any) stay in the run directory.

    With `follow_links` they may lead anywhere, as those do that the peer's `save` makes. Otherwise what opens it follows
    none that has turned up since.

    Raises:
        UnsafeFileError: it is not there, no regular file, or a link leads out of the run directory.
    """
    path = run_dir / "files" / name
    try:
        real, root = path.resolve(strict=True), run_dir.resolve()
        if not follow_links and not real.is_relative_to(root):
            raise UnsafeFileError("refused: a link that leads out of the run directory (--follow-links reads it)")
        status = real.stat()
    except FileNotFoundError:
        dangling = " (a link to a file that is gone)" if path.is_symlink() else ""
        raise UnsafeFileError(f"missing{dangling}") from None
    except (OSError, RuntimeError) as error:
        raise UnsafeFileError(f"cannot be read: {getattr(error, 'strerror', None) or error}") from error
    if not stat.S_ISREG(status.st_mode):
        raise UnsafeFileError("refused: not a regular file")
    if not os.access(real, os.R_OK):
        raise UnsafeFileError("cannot be read: permission denied")
    return partial(open_regular, real) if follow_links else partial(open_below, root, real), status


def files_below(root: Path, folder: str = "") -> Iterator[str]:
    """Names, relative to `root`, of what lies below its `folder` and is no folder.

    Links to folders are not followed, nor are `root` and `folder` if they are such: they could lead round in circles, or out.
    """
    if root.is_symlink() or (root / folder).is_symlink():
        return
    for above, _, names in os.walk(root / folder):
        prefix = Path(above).relative_to(root)
        yield from ((prefix / name).as_posix() for name in names)


def open_below(root: Path, path: Path) -> BinaryIO:
    """Open the regular file `path`; no level below `root` may be a link, whenever it became one.

    Raises:
        UnsafeFileError: one is, or it is something else.
        OSError: it cannot be opened.
    """
    if os.open not in os.supports_dir_fd:
        return open_regular(path)
    *folders, name = path.relative_to(root).parts
    flags = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW
    try:
        folder = os.open(root, flags)
        try:
            for level in folders:
                above, folder = folder, os.open(level, flags, dir_fd=folder)
                os.close(above)
            return open_regular(Path(name), dir_fd=folder)
        finally:
            os.close(folder)
    except NotADirectoryError:
        raise UnsafeFileError("refused: a folder above it became a link") from None


def open_regular(path: Path, *, dir_fd: int | None = None) -> BinaryIO:
    """Open `path` (in the open folder `dir_fd`), whose last part is neither a link nor anything but a regular file.

    Raises:
        UnsafeFileError: it is something else.
        OSError: it cannot be opened.
    """
    flags = os.O_RDONLY | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_BINARY", 0)
    if not hasattr(os, "O_NOFOLLOW") and path.is_symlink():
        raise UnsafeFileError("refused: a link")
    try:
        descriptor = os.open(path, flags, dir_fd=dir_fd)
    except OSError as error:
        if error.errno in (errno.ELOOP, errno.ENXIO):  # a link; a pipe or a socket
            raise UnsafeFileError("refused: not a regular file") from None
        raise
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise UnsafeFileError("refused: not a regular file")
    return os.fdopen(descriptor, "rb")


def identity(file: BinaryIO) -> tuple[int, ...]:
    """What changes when another file takes a path, or this one is written."""
    status = os.fstat(file.fileno())
    return status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns


class Shared(io.BufferedReader):
    """Reads a file from its start and leaves it open when it is closed itself."""

    def __init__(self, file: IO[bytes]) -> None:
        super().__init__(_Raw(file))


class _Raw(io.RawIOBase):
    def __init__(self, file: IO[bytes]) -> None:
        self._file = file
        file.seek(0)

    def readinto(self, buffer: Any) -> int:
        data = self._file.read(len(buffer))
        buffer[: len(data)] = data
        return len(data)

    def readable(self) -> bool:
        return True


class Checked(io.BufferedReader):
    """Reads `size` bytes of a file from `start`, and stops before the last of them if their MD5 is not the one they had.

    So a server never gets whole what changed under the upload.
    """

    def __init__(self, file: BinaryIO, start: int, size: int, hasher: Any, md5: bytes) -> None:
        file.seek(start)
        super().__init__(file)  # type: ignore[arg-type]  # any binary reader will do
        self._left, self._hasher, self._md5 = size, hasher, md5

    def read(self, size: int | None = -1, /) -> bytes:
        """As any reader.

        Raises:
            Permanent: these were the last bytes, and they are others than they were.
        """
        wanted = self._left if size is None or size < 0 else min(size, self._left)
        part = super().read(wanted)
        self._left -= len(part)
        self._hasher.update(part)
        if not self._left and self._hasher.digest() != self._md5:
            raise Permanent("it changed while it was sent", status=0)
        return part


def why(error: Exception, name: str = "") -> str:
    """One line; errors of the file system say what it was, those of an upload do not repeat the `name` of the file."""
    if isinstance(error, OSError):
        return f"cannot be read: {error.strerror or error}"
    return " ".join(str(error).split()).removeprefix(f"file {name}: ")


def shown(name: str) -> str:
    """A name for a message: printable, and not longer than a line."""
    text = name.encode("unicode_escape").decode() if not name.isprintable() else name
    return text if len(text) <= _LONGEST_SHOWN else text[: _LONGEST_SHOWN - 3] + "..."
