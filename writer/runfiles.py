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
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path, PurePosixPath, PureWindowsPath
from typing import Any, NamedTuple

from .filesystem import FileSystem

CHUNK_BYTES = 1024 * 1024


def safe_relative(name: str) -> str:
    """`name` as a normalised path that stays below the folder it is put in.

    Raises:
        ValueError: it is absolute, leads out, or is no path.
    """
    shown = repr(name if len(name) <= 80 else f"{name[:80]}...")
    if "\0" in name:
        raise ValueError(f"{shown} is no file name")
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

    def place(self, relative: str, *, aside: bool = False) -> Path:
        """Move it to `files/<relative>`, over what may be there; where it lies now.

        Args:
            relative: its name.
            aside: no row names it, so that none waits until it is on the device: `sync_aside` brings it there.

        Raises:
            OSError: it cannot be moved.
            ValueError: `relative` leads out of the folder.
        """
        self.path = self._files.place(self.path, relative, aside=aside)
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
            copy_limit: bytes. A larger file is hard-linked whatever `transfer` says, or refused.
            warn: takes one line for the user.
        """
        self._directory = directory
        self._fs = fs
        self._transfer, self._copy_limit, self._warn = transfer, copy_limit, warn
        self._unsynced: deque[Path] = deque()  # no lock: a signal handler may wait for the thread that syncs
        self._unsynced_aside: deque[Path] = deque()
        self._syncing: deque[threading.Thread] = deque()
        self._sync_failed = self._named_link = False

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
        with path.open("rb") as file:
            size = sum(_digested(file, digest))
        return self._keep(path, size, digest)

    def place(self, path: Path, relative: str, *, aside: bool = False) -> Path:
        """As `Staged.place`."""
        target = self.files / safe_relative(relative)
        if not target.parent.resolve().is_relative_to(self.files.resolve()):
            raise ValueError(f"{relative!r} leads out of the run's files by a link")
        self._move(path, target, self._unsynced_aside if aside else self._unsynced)
        return target

    def sync(self) -> bool:
        """Bring what rows name to the device; whether all of it is there."""
        return self._sync(_taken(self._unsynced))

    def sync_aside(self) -> None:
        """Begin to bring the rest there, on a thread of its own: artifacts are large or many, and rows wait for none."""
        while self._syncing and not self._syncing[0].is_alive():
            self._syncing.popleft()
        paths = _taken(self._unsynced_aside)
        if paths:
            thread = threading.Thread(target=self._sync, args=(paths,), name="runferry-file-sync", daemon=True)
            try:
                thread.start()
            except RuntimeError:  # the interpreter ends, and takes no more threads
                self._sync(paths)
            else:
                self._syncing.append(thread)

    def settle(self, timeout_s: float) -> bool:
        """Wait until what `sync_aside` has to do is done; whether it was in time."""
        self.sync_aside()
        deadline = time.monotonic() + timeout_s
        for thread in list(self._syncing):
            thread.join(max(0.0, deadline - time.monotonic()))
        return not any(thread.is_alive() for thread in list(self._syncing))

    def _sync(self, paths: list[Path]) -> bool:
        failures = 0
        for path in paths:
            try:
                fd = os.open(path, os.O_RDONLY)
            except FileNotFoundError:
                continue  # replaced or removed since
            except OSError:
                failures += 1
                continue
            try:
                self._fs.sync_file(fd)
            except OSError:
                failures += 1
            finally:
                os.close(fd)
        for folder in dict.fromkeys(path.parent for path in paths):
            with suppress(OSError):  # the file matters more; not every file system has this
                self._fs.sync_directory(folder)
        if failures and not self._sync_failed:
            self._sync_failed = True
            self._warn(f"{failures} files in {paths[0].parent} could not be synced: a power cut may cost them")
        return not failures

    # -- taking content in -------------------------------------------------------------------------------------------

    def _take(self, source: bytes | Path, digest: Any) -> tuple[Path, int]:
        path = self.scratch()
        if isinstance(source, Path):
            size = source.stat().st_size
            if (self._transfer == "link" or size > self._copy_limit) and self._link(source, path):
                self._name_link(source)
                with path.open("rb") as file:
                    return path, sum(_digested(file, digest))
            if size > self._copy_limit:
                raise OSError(
                    errno.EFBIG,
                    f"{size} bytes are more than the setting copy_limit ({self._copy_limit}), and it cannot be"
                    " hard-linked from where it lies",
                    str(source),
                )
        fd = self._fs.create(path)
        try:
            try:
                size = sum(self._written(fd, source, digest))
            finally:
                self._fs.close(fd)
        except BaseException:
            with suppress(OSError):
                path.unlink()
            raise
        return path, size

    def _keep(self, path: Path, size: int, digest: Any) -> Kept:
        target = self.directory / "artifacts" / digest.hexdigest()
        try:
            if target.exists():
                path.unlink()
            else:
                self._move(path, target, self._unsynced_aside)
        except OSError:
            with suppress(OSError):
                path.unlink()
            raise
        return Kept(target, digest.digest(), size)

    def _written(self, fd: int, source: bytes | Path, digest: Any) -> Iterator[int]:
        if isinstance(source, Path):
            with source.open("rb") as file:
                while chunk := file.read(CHUNK_BYTES):
                    digest.update(chunk)
                    yield self._write_all(fd, chunk)
        else:
            digest.update(source)
            yield self._write_all(fd, source)

    def _write_all(self, fd: int, data: bytes) -> int:
        view, done = memoryview(data), 0
        while done < len(data):
            taken = self._fs.write(fd, view[done:])
            if taken <= 0:
                raise OSError(errno.EIO, "the file system took no bytes")
            done += taken
        return done

    def _link(self, source: Path, path: Path) -> bool:
        try:
            os.link(source.resolve(), path)
        except (OSError, NotImplementedError):
            return False
        return True

    def _name_link(self, source: Path) -> None:
        if self._transfer != "link" and not self._named_link:
            self._named_link = True
            self._warn(
                f"{source} is larger than the setting copy_limit ({self._copy_limit} bytes) and hard-linked, not copied:"
                " whoever writes into it changes what the run has; a new file under its name does not"
            )

    def _move(self, path: Path, target: Path, unsynced: deque[Path]) -> None:
        self._fs.make_directories(target.parent)
        path.replace(target)
        unsynced.append(target)


def _taken(paths: deque[Path]) -> list[Path]:
    """What is in there, each once; it is empty then."""
    taken: list[Path] = []
    with suppress(IndexError):
        while True:
            taken.append(paths.popleft())
    return list(dict.fromkeys(taken))


def _digested(file: Any, digest: Any) -> Iterator[int]:
    while chunk := file.read(CHUNK_BYTES):
        digest.update(chunk)
        yield len(chunk)
