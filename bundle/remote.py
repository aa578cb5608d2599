"""Bundles and logs at other places than this machine's file systems: `s3://`, `gs://`, `memory://`, whatever fsspec opens.

Read is by a copy in a folder of this machine, so that nothing reads a log forward and back over a network. Written is as
the bytes come, without a copy: an object store shows an object when all of it is there.
"""

from __future__ import annotations

import contextlib
import hashlib
import posixpath
import re
from pathlib import Path
from typing import Any, BinaryIO

from .blocks import Compressor
from .errors import BundleError
from .names import why_unsafe
from .volumes import SUMS

_VOLUME = re.compile(r"\.[0-9]{3,6}$")
_END = re.compile(r"\.[0-9]{3,6}|\.sha256")


def is_remote(place: object) -> bool:
    """Whether a place is one that fsspec opens, and no path."""
    return isinstance(place, str) and "://" in place


def _file_system(url: str) -> tuple[Any, str]:
    """The file system of a URL, and the path in it.

    Raises:
        BundleError: fsspec or what it needs is not installed, or it knows no such place, or cannot reach it.
    """
    try:
        import fsspec
    except ImportError:
        raise BundleError(
            f"{shown(url)}: reading and writing there takes fsspec: install runferry with [remote]"
        ) from None
    try:
        system, path = fsspec.core.url_to_fs(url)
    except ImportError as error:
        raise BundleError(f"{shown(url)}: {error}") from None
    except Exception as error:  # each store has errors of its own, and their texts may repeat the URL
        what = "no such place is known" if isinstance(error, ValueError) else "cannot be opened"
        raise BundleError(f"{shown(url)}: {what}: {type(error).__name__}") from None
    return system, path


def shown(url: str) -> str:
    """A URL for messages: what stands before an `@` or behind a `?` may be a secret."""
    scheme, _, rest = url.partition("://")
    host, slash, path = rest.partition("/")
    return f"{scheme}://{host.rpartition('@')[2]}{slash}{path.partition('?')[0]}"


def fetch(url: str, folder: Path) -> Path:
    """Copy what lies at `url` below `folder`: a file, the volumes of a bundle, or a folder of runs.

    Returns:
        The file, a volume, or the folder.

    Raises:
        BundleError: nothing is there, it is refused, or it cannot be read.
    """
    system, path = _file_system(url)
    name = posixpath.basename(path.rstrip("/")) or "remote"
    if problem := why_unsafe(name):
        raise BundleError(f"{shown(url)}: {problem}")
    try:
        if volumes := _volumes(system, path):
            copies = [_copy(system, volume, folder / posixpath.basename(volume)) for volume in volumes]
            return copies[0]
        if system.isfile(path):
            return _copy(system, path, folder / name)
        root = path.rstrip("/") + "/"
        for found in sorted(system.find(path)):
            below = found.removeprefix(root)
            if below == found or why_unsafe(below):
                raise BundleError(f"{shown(url)}: it names {below[:120]!r}, which leads out of the folder")
            _copy(system, found, folder / name / below)
    except BundleError:
        raise
    except Exception as error:  # each store has errors of its own
        raise BundleError(f"{shown(url)}: cannot be read: {type(error).__name__}") from error
    if not (folder / name).exists():
        raise BundleError(f"{shown(url)}: nothing is there")
    return folder / name


def _volumes(system: Any, path: str) -> list[str]:
    """The volumes of the bundle that one at `path` is of, and their list of digests; none if it is no volume."""
    stem = _VOLUME.sub("", path).removesuffix(SUMS)
    if system.exists(path) and stem == path:
        return []
    with contextlib.suppress(FileNotFoundError):
        names = system.ls(posixpath.dirname(path), detail=False)
        return [name for name in sorted(names) if name.startswith(stem) and _END.fullmatch(name[len(stem) :])]
    return []


def _copy(system: Any, source: str, target: Path) -> Path:
    target.parent.mkdir(parents=True, exist_ok=True)
    system.get_file(source, str(target))
    return target


class RemoteSink:
    """One object, or an object for each volume, written as the blocks come. What was interrupted is made anew."""

    def __init__(self, url: str, compressor: Compressor, *, split: int = 0, overwrite: bool = False) -> None:
        """Nothing is written yet.

        Raises:
            BundleError: something is there already, or the place cannot be reached.
        """
        self.written = 0
        self._url, self._compressor, self._split = url, compressor, split
        self._system, self._path = _file_system(url)
        self._file: BinaryIO | None = None
        self._at = 0
        self._digest = hashlib.sha256()
        self._sums: list[tuple[str, str]] = []
        there = [path for path in (self._path, self._path + SUMS) if self._call(self._system.exists, path)]
        if there and not overwrite:
            raise BundleError(f"{shown(url)} is there already: another name, or --overwrite")
        for path in there:
            self._call(self._system.rm_file, path)

    def _call(self, work: Any, *arguments: Any, **more: Any) -> Any:
        try:
            return work(*arguments, **more)
        except Exception as error:  # each store has errors of its own
            raise BundleError(f"{shown(self._url)}: cannot be written: {type(error).__name__}") from error

    def add(self, plain: bytes, *, bundle: int, offset: int, first: int, flags: int) -> None:
        """One block."""
        block = self._compressor.block(plain, bundle=bundle, offset=offset, first=first, flags=flags)
        if self._split and self._at and self._at + len(block) > self._split:
            self._end()
        if self._file is None:
            name = f"{self._path}.{len(self._sums) + 1:03}" if self._split else self._path
            self._file = self._call(self._system.open, name, "wb")
            self._sums.append((name, ""))
            self._at, self._digest = 0, hashlib.sha256()
        self._call(self._file.write, block)
        self._digest.update(block)
        self._at += len(block)
        self.written += len(block)

    def _end(self) -> None:
        if self._file is not None:
            file, self._file = self._file, None
            self._call(file.close)
            self._sums[-1] = (self._sums[-1][0], self._digest.hexdigest())

    def finish(self) -> list[str]:
        """All are there; what was written."""
        self._end()
        written = [name for name, _ in self._sums]
        if self._split:
            text = "".join(f"{digest}  {posixpath.basename(name)}\n" for name, digest in self._sums)
            written.append(self._path + SUMS)
            self._call(self._system.pipe_file, written[-1], text.encode())
        return [self._system.unstrip_protocol(name) for name in written]

    def close(self) -> None:
        """What was begun and is not whole is taken away."""
        if self._file is not None:
            file, self._file = self._file, None
            discard = getattr(file, "discard", None)
            if discard is not None:
                discard()
