"""What lies beside the log in a run's directory: files, staged on the caller's thread and named on the writer's.

    run-<time>-<id>/files/       what the log's files records name
                    artifacts/   contents of artifacts, named by their MD5
                    tmp/         content on its way: a killed process may leave some here, and nothing half elsewhere

A file is copied, or hard-linked where the settings say so, never linked symbolically: the directory travels alone.
"""

from __future__ import annotations

import errno
import hashlib
import os
import sys
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path, PurePosixPath, PureWindowsPath
from typing import Any, NamedTuple

from .filesync import FileSync
from .filesystem import FileSystem

CHUNK_BYTES = 1024 * 1024
_HOLE = bytes(CHUNK_BYTES)


def safe_relative(name: str) -> str:
    """`name` as a normalised path that stays below the folder it is put in.

    Raises:
        ValueError: it is absolute, leads out, or is no path.
    """
    shown = repr(name if len(name) <= 80 else f"{name[:80]}...")
    if "\0" in name:
        raise ValueError(f"{shown} is not a file name")
    posix, windows = PurePosixPath(name), PureWindowsPath(name)
    if posix.is_absolute() or windows.drive or windows.root or ".." in windows.parts:
        raise ValueError(f"{shown} leads out of the run's files")
    if not posix.parts:
        raise ValueError("an empty file name")
    return str(posix)


class Kept(NamedTuple):
    """Content of an artifact, in the run's directory."""

    path: Path
    md5: bytes
    size: int


class Staged:
    """Content that waits in the run's directory for its name."""

    def __init__(self, files: RunFiles, path: Path, size: int, sha256: str) -> None:
        self._files = files
        self.path = path
        """Where it lies now."""
        self.size = size
        """Bytes."""
        self.sha256 = sha256
        """Hexadecimal."""

    def place(self, relative: str) -> Path:
        """Move it to `files/<relative>`, over what may be there; where it lies now.

        Raises:
            OSError: it cannot be moved.
            ValueError: `relative` leads out of the folder.
        """
        self.path = self._files.place(self.path, relative)
        return self.path

    def drop(self) -> None:
        """It is not wanted after all."""
        with suppress(OSError):
            self.path.unlink()


class RunFiles:
    """The files of one run. Any thread may call any method."""

    def __init__(
        self,
        directory: Callable[[], Path | None],
        fs: FileSystem,
        *,
        transfer: str = "copy",
        copy_limit: int = 2**30,
        warn: Callable[[str], None] = lambda _text: None,
    ) -> None:
        """Nothing is made before it is needed.

        Args:
            directory: the run's directory; None as long as there is none.
            fs: the file system.
            transfer: "copy", or "link": a hard link where the file system can, else a copy.
            copy_limit: bytes. A larger file is hard-linked whatever `transfer` says, where that can be.
            warn: takes one line for the user.
        """
        self._directory = directory
        self._fs = fs
        self._transfer, self._copy_limit, self._warn = transfer, copy_limit, warn
        self._said: set[str] = set()
        self.device = FileSync(fs, warn)
        """Brings them there, once they have their names."""

    @property
    def directory(self) -> Path:
        """The run's directory.

        Raises:
            OSError: there is none yet, because no log could be made.
        """
        directory = self._directory()
        if directory is None:
            raise OSError(errno.ENOENT, "the run has no directory yet, because no log could be made")
        return directory

    @property
    def files(self) -> Path:
        """Its folder `files`; OSError as for `directory`."""
        return self.directory / "files"

    def stage(self, source: bytes | Path) -> Staged:
        """Bring content into the run's directory: bytes, or a file, which may change or go away afterwards.

        Raises:
            OSError: it cannot be read or written; nothing is left of it.
        """
        digest = hashlib.sha256()
        path, size = self._take(source, digest)
        return Staged(self, path, size, digest.hexdigest())

    def keep(self, source: bytes | Path) -> Kept:
        """Bring content of an artifact into the run's directory, where the same content lies once.

        Raises:
            OSError: as for `stage`.
        """
        digest = hashlib.md5(usedforsecurity=False)
        path, size = self._take(source, digest)
        return self._keep(path, size, digest)

    def scratch(self) -> Path:
        """Where content may be written that `adopt` takes then; nothing is there yet.

        Raises:
            OSError: there is no folder for it.
        """
        folder = self.directory / "tmp"
        self._fs.make_directories(folder)
        return folder / os.urandom(8).hex()

    def adopt(self, path: Path) -> Kept:
        """As `keep`, for content written where `scratch` said: it is moved, not copied.

        Raises:
            OSError: it cannot be read or moved.
        """
        digest = hashlib.md5(usedforsecurity=False)
        return self._keep(path, hash_file(path, digest), digest)

    def place(self, path: Path, relative: str) -> Path:
        """As `Staged.place`."""
        target = self.files / safe_relative(relative)
        if not target.parent.resolve().is_relative_to(self.files.resolve()):
            raise ValueError(f"{relative!r} leads out of the run's files by a link")
        self._move(path, target)
        return target

    def _say(self, topic: str, text: str) -> None:
        if topic not in self._said:
            self._said.add(topic)
            self._warn(text)

    # -- taking content in -------------------------------------------------------------------------------------------

    def _take(self, source: bytes | Path, digest: Any) -> tuple[Path, int]:
        path = self.scratch()
        try:
            return path, self._fill(path, source, digest)
        except BaseException:
            with suppress(OSError):
                path.unlink()
            raise

    def _fill(self, path: Path, source: bytes | Path, digest: Any) -> int:
        if isinstance(source, Path):
            size = source.stat().st_size
            large = size > self._copy_limit
            if (large or self._transfer == "link") and self._link(source, path, large=large):
                return hash_file(path, digest)
            if large:
                self._say(
                    "copied",
                    f"{source} ({size} bytes) is larger than the setting copy_limit ({self._copy_limit}), but cannot be"
                    " hard-linked from where it lies: it is copied, so that the run has it",
                )
        fd = self._fs.create(path)
        try:
            if isinstance(source, Path):
                return self._copy(source, path, fd, digest)
            digest.update(source)
            return self._write_all(fd, source)
        finally:
            self._fs.close(fd)

    def _copy(self, source: Path, path: Path, fd: int, digest: Any) -> int:
        """Copy what the file has now: what is appended meanwhile does not count, and holes stay holes."""
        size = 0
        with source.open("rb", buffering=0) as file:
            before = os.fstat(file.fileno())
            self._narrow(path, before.st_mode)
            most = before.st_size or sys.maxsize  # files of a kernel have no size
            while chunk := file.read(min(CHUNK_BYTES, most - size)):
                digest.update(chunk)
                size += len(chunk)
                if chunk != _HOLE or not self._extend(fd, size):
                    self._write_all(fd, chunk)
            after = os.fstat(file.fileno())
        if after.st_mtime_ns != before.st_mtime_ns and after.st_size <= before.st_size:
            self._say(
                "torn",
                f"{source} changed while it was copied, and the copy may have something of both states;"
                " a file that is written under another name and renamed is always whole",
            )
        return size

    def _extend(self, fd: int, size: int) -> bool:
        try:
            self._fs.truncate(fd, size)
        except OSError:  # not every file system has it
            return False
        return True

    @staticmethod
    def _narrow(path: Path, mode: int) -> None:
        """Let nobody read the copy who may not read the file."""
        made = path.stat().st_mode & 0o777
        narrow = (made & mode) | 0o600
        if narrow != made:
            path.chmod(narrow)

    def _keep(self, path: Path, size: int, digest: Any) -> Kept:
        target = self.directory / "artifacts" / digest.hexdigest()
        try:
            if target.exists() and target.stat().st_nlink == 1:
                path.unlink()
            else:  # into a hard link somebody may have written since
                self._move(path, target)
        except OSError:
            with suppress(OSError):
                path.unlink()
            raise
        return Kept(target, digest.digest(), size)

    def _write_all(self, fd: int, data: bytes) -> int:
        view, done = memoryview(data), 0
        while done < len(data):
            taken = self._fs.write(fd, view[done:])
            if taken <= 0:
                raise OSError(errno.EIO, "the file system took no bytes")
            done += taken
        return done

    def _link(self, source: Path, path: Path, *, large: bool) -> bool:
        try:
            os.link(os.path.realpath(source), path)
        except (OSError, NotImplementedError):
            return False
        if large and self._transfer != "link":
            self._say(
                "linked",
                f"{source} is larger than the setting copy_limit ({self._copy_limit} bytes) and hard-linked, not copied:"
                " whoever writes into it changes what the run has; a new file under its name does not",
            )
        return True

    def _move(self, path: Path, target: Path) -> None:
        self.device.add(*self._fs.make_directories(target.parent))
        path.replace(target)
        path.unlink(missing_ok=True)  # a hard link to what lies there already is not moved
        self.device.add(target)


def hash_file(path: Path, digest: Any) -> int:
    """Update a digest of `hashlib` with a file; its size in bytes.

    Raises:
        OSError: it cannot be read.
    """
    size = 0
    with path.open("rb") as file:
        while chunk := file.read(CHUNK_BYTES):
            digest.update(chunk)
            size += len(chunk)
    return size
