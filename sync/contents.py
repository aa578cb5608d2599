"""Finding the bytes of an artifact's contents on this machine.

They lie in `artifacts/<MD5>` of a run's directory, where our writer puts them, or else where the record says (the peer
keeps them outside of the run), or else under another name below `files/`. Whatever the place, they are read once before
a byte leaves, and sent only if size and MD5 are those that the record gives.

A log may come from somebody else, so what it says of places outside of the run is a wish: such a path has to be absolute,
without `..`, and end in a regular file itself, not in a link. Its bytes go to the server only if the log knows their MD5
already. Of several MD5s that the logs give for one such path only the latest is looked at: nobody can find out what a
file holds by guessing in bulk.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import threading
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

from .localfiles import Checked, UnsafeFileError, files_below, identity, open_regular
from .manifest import Entry

_PART = 1024 * 1024  # bytes read at a time
_EMPTY = hashlib.md5(usedforsecurity=False).digest()


@dataclass(frozen=True)
class Content:
    """Bytes that were found, and are the right ones."""

    path: Path
    size: int
    md5: bytes
    parts: tuple[bytes, ...]
    """MD5s of the parts, of one that goes up in parts."""
    was: tuple[int, ...]
    """The file's identity when it was read."""

    def open(self) -> BinaryIO:
        """All of it."""
        return Checked(self._opened(), 0, self.size, _md5(), self.md5)

    def open_at(self, start: int) -> BinaryIO:
        """From there, unchecked but for the file's identity."""
        file = self._opened()
        file.seek(start)
        return file

    def open_part(self, number: int, part_size: int) -> BinaryIO:
        """The part of that number, from 1."""
        start = (number - 1) * part_size
        return Checked(self._opened(), start, min(part_size, self.size - start), _md5(), self.parts[number - 1])

    def _opened(self) -> BinaryIO:
        file = open_regular(self.path)
        if identity(file) != self.was:
            file.close()
            raise UnsafeFileError("changed while it was sent")
        return file


class ContentFinder:
    """Finds contents for the artifacts of one run. Any thread may call `find`."""

    def __init__(self, run_dirs: list[Path]) -> None:
        self._run_dirs = run_dirs
        self._claims: dict[str, str] = {}
        self._read: dict[str, str] = {}
        self._by_size: dict[int, list[Path]] | None = None
        self._by_md5: dict[int, dict[bytes, Path]] = {}
        self._guard = threading.Lock()

    def claim(self, entry: Entry) -> None:
        """Tell of an entry before any is looked for: the latest one of a place outside is the one that counts."""
        if entry.local_path and Path(entry.local_path).is_absolute():
            self._claims[entry.local_path] = entry.digest

    def find(self, entry: Entry, part_size: int = 0) -> Content:
        """The bytes of `entry`; with `part_size` also the MD5s of its parts.

        Raises:
            UnsafeFileError: they are not here; why.
        """
        md5 = entry.md5
        size = entry.size if entry.size or md5 == _EMPTY else None  # 0 in a log may also mean that it does not say
        reason = ""
        for path in self._inside(md5):
            try:
                return _checked(path, size, md5, part_size)
            except UnsafeFileError as error:
                reason = reason or str(error)
        if entry.local_path:
            try:
                return _checked(self._outside(entry), size, md5, part_size)
            except UnsafeFileError as error:
                reason = str(error) if not reason or str(error) != "missing" else reason
        alike = self._alike(size, md5)
        if alike is not None:
            with contextlib.suppress(UnsafeFileError):
                return _checked(alike, size, md5, part_size)
        raise UnsafeFileError(reason or "missing")

    def open_list(self, path: str) -> BinaryIO:
        """The list of a large artifact, which lies where contents do.

        Raises:
            UnsafeFileError: it is not here.
        """
        for folder in self._folders():
            place = folder / os.path.basename(path.replace("\\", "/"))  # noqa: PTH119 - "a/.." must not become a folder
            if place.name not in ("", ".", "..") and place.is_file():
                return _opened(place)
        return _opened(_literal(path))

    def _inside(self, md5: bytes) -> Iterator[Path]:
        return (folder / md5.hex() for folder in self._folders())

    def _folders(self) -> Iterator[Path]:
        """The folders of contents; not one that is a link to somewhere else."""
        return (run_dir / "artifacts" for run_dir in self._run_dirs if not (run_dir / "artifacts").is_symlink())

    def _outside(self, entry: Entry) -> Path:
        """Where the record says that the bytes lie."""
        path = _literal(entry.local_path)
        with self._guard:
            latest = self._read.get(entry.local_path) or self._claims.get(entry.local_path, entry.digest)
            if latest != entry.digest:
                raise UnsafeFileError("the log says that it changed")
            self._read[entry.local_path] = entry.digest
        return path

    def _alike(self, size: int | None, md5: bytes) -> Path | None:
        """A regular file below `files/` with these bytes: a copied run still has its media, if not what the peer staged.

        Each is read once, however many contents have its size.
        """
        if not size:
            return None
        with self._guard:
            if self._by_size is None:
                self._by_size = {}
                for run_dir in self._run_dirs:
                    for name in files_below(run_dir / "files"):
                        path = run_dir / "files" / name
                        with contextlib.suppress(OSError):
                            self._by_size.setdefault(path.lstat().st_size, []).append(path)
            for path in self._by_size.pop(size, []):
                with contextlib.suppress(UnsafeFileError, OSError):
                    self._by_md5.setdefault(size, {})[_md5_of(path)] = path
            return self._by_md5.get(size, {}).get(md5)


def _literal(path: str) -> Path:
    """A place outside of the run as the log has it."""
    if "\0" in path or not Path(path).is_absolute():
        raise UnsafeFileError("refused: no absolute path")
    if ".." in Path(path).parts:
        raise UnsafeFileError("refused: its path goes up")
    return Path(path)


def _opened(path: Path) -> BinaryIO:
    try:
        return open_regular(path)
    except (FileNotFoundError, NotADirectoryError):
        raise UnsafeFileError("missing") from None
    except (OSError, ValueError) as error:
        raise UnsafeFileError(f"cannot be read: {getattr(error, 'strerror', None) or error}") from error


def _md5_of(path: Path) -> bytes:
    """The MD5 of a regular file."""
    whole = _md5()
    with _opened(path) as file:
        while data := file.read(_PART):
            whole.update(data)
    return whole.digest()


def _checked(path: Path, size: int | None, md5: bytes, part_size: int) -> Content:
    """Read the file once: the content, if it is the right one."""
    with _opened(path) as file:
        was = identity(file)
        if size is not None and was[2] != size:
            raise UnsafeFileError("changed")
        whole, parts, total = _md5(), [], 0
        try:
            while data := file.read(min(_PART, part_size - total % part_size) if part_size else _PART):
                if part_size and total % part_size == 0:
                    parts.append(_md5())
                whole.update(data)
                if parts:
                    parts[-1].update(data)
                total += len(data)
                if total > was[2]:
                    break
        except OSError as error:
            raise UnsafeFileError(f"cannot be read: {error.strerror or error}") from error
        if total != was[2] or whole.digest() != md5:
            raise UnsafeFileError("changed")
        return Content(path, total, md5, tuple(part.digest() for part in parts), was)


def _md5() -> hashlib._Hash:
    return hashlib.md5(usedforsecurity=False)
