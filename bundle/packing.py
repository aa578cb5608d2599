"""Packing: the files of runs to blocks, in one pass, with the memory of a block."""

from __future__ import annotations

import contextlib
import hashlib
import os
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import BinaryIO

from . import tar
from .blocks import BLOCK_SIZE, LAST, MANIFEST, MAX_BLOCKS, NO_MEMBER, Compressor
from .disk import DISK, Disk
from .errors import BundleError
from .gather import Found, gather
from .manifest import NAME, Entry, LeftOut, Manifest
from .remote import RemoteSink, is_remote
from .snapshot import open_file, whole_seconds
from .volumes import MIN_VOLUME, LocalSink, Sink

LEVEL = 3
"""Of compression: zstd's own default."""
MAX_LEVEL = 19
SUFFIX = ".tar.zst"
_PIECE = 1024 * 1024  # bytes read at a time


@dataclass
class Packed:
    """What was packed."""

    files: list[str]
    """The bundle, or its volumes and their list of digests."""
    manifest: Manifest
    size: int
    """Bytes of the bundle that were written now; more may have been there, of a packing that was interrupted."""
    problems: list[LeftOut] = field(default_factory=list)
    """Files that are not in it, or are not from one moment, and why."""

    @property
    def exit_code(self) -> int:
        """0, or 1 where something is missing."""
        return 1 if self.problems else 0


def pack(
    paths: str | os.PathLike[str] | Iterable[str | os.PathLike[str]],
    out: str | os.PathLike[str] | None = None,
    *,
    level: int = LEVEL,
    split: int = 0,
    follow_links: bool = False,
    overwrite: bool = False,
    disk: Disk = DISK,
) -> Packed:
    """Pack runs into one checked file. The same files give the same bytes. Safe while a run is written.

    Args:
        paths: logs, run directories, or trees of them.
        out: the bundle: a file, a folder for it, or a URL that fsspec opens; by default a file here, named after the run.
        level: of compression, 1 to 19.
        split: bytes of a volume, at most; 0: one file.
        follow_links: also pack files that links lead to out of a run's directory.
        overwrite: take the place of a bundle that is there.
        disk: where it is written.

    Raises:
        BundleError: there is nothing to pack, or a setting cannot be followed.
        OSError: the bundle cannot be written. What was written stays as `.part`, and the same call goes on with it.
    """
    if not 1 <= level <= MAX_LEVEL:
        raise BundleError(f"level: 1 to {MAX_LEVEL}")
    if split and split < MIN_VOLUME:
        raise BundleError(f"split: at least {MIN_VOLUME} bytes")
    gathered = gather([paths] if isinstance(paths, (str, os.PathLike)) else paths, follow_links=follow_links)
    if not gathered.files:
        first = gathered.left_out[0]
        raise BundleError(f"nothing can be packed: {first.name}: {first.reason}")
    block_size = min(BLOCK_SIZE, split // 4) if split else BLOCK_SIZE
    sink: Sink
    if is_remote(out):
        sink = RemoteSink(str(out), Compressor(level), split=split, overwrite=overwrite)
    else:
        target = _target(out, gathered.name)
        if any(target.resolve().is_relative_to(run) for run in gathered.runs):
            raise BundleError(f"{target}: a bundle cannot lie in a run directory that it packs")
        sink = LocalSink(target, Compressor(level), disk, split=split, overwrite=overwrite)
    writer = _Writer(sink, block_size, _identity(gathered.files))
    with contextlib.closing(sink):
        entries, problems = _add_all(writer, gathered.files)
        manifest = Manifest(tuple(entries), (*gathered.left_out, *problems[0]))
        writer.end(manifest.encoded())
        files = sink.finish()
    return Packed(
        [str(path) for path in files], manifest, sink.written, [*gathered.left_out, *problems[0], *problems[1]]
    )


def _target(out: str | os.PathLike[str] | None, name: str) -> Path:
    default = f"{name or 'runs'}{SUFFIX}"
    if out is None:
        return Path(default)
    return Path(out) / default if Path(out).is_dir() else Path(out)


def _identity(files: Sequence[Found]) -> int:
    """What tells blocks of this bundle from those of others that lie in it as files: one of them would hold itself."""
    digest = hashlib.sha256()
    for found in files:
        digest.update(found.name.encode("utf-8", "surrogateescape") + b"\0")
    return int.from_bytes(digest.digest()[:8], "little")


def _add_all(writer: _Writer, files: Sequence[Found]) -> tuple[list[Entry], tuple[list[LeftOut], list[LeftOut]]]:
    """Entries of what was packed; what could not be read, and what changed while it was."""
    entries: list[Entry] = []
    unread: list[LeftOut] = []
    changed: list[LeftOut] = []
    for found in files:
        try:
            file = open_file(found.path, found.root)
        except OSError as error:
            unread.append(LeftOut(found.name, f"cannot be read: {error.strerror}"))
            continue
        with file:
            try:
                entry = _add(writer, found, file)
            except _ReadError as error:
                unread.append(LeftOut(found.name, str(error)))
                continue
        entries.append(entry)
        if entry.changed:
            changed.append(LeftOut(found.name, "it changed while it was read: its bytes are from more than one moment"))
    return entries, (unread, changed)


class _ReadError(Exception):
    """A file cannot be read, and nothing of it has been packed."""


def _add(writer: _Writer, found: Found, file: BinaryIO) -> Entry:
    """Pack one file, as large as it is now; a log as it was when it was looked at."""
    view = found.view
    try:
        before = os.fstat(file.fileno())
        size, mtime = (before.st_size, whole_seconds(before)) if view is None else (view.size, view.mtime)
        piece = file.read(min(size, _PIECE))
    except OSError as error:
        raise _ReadError(f"cannot be read: {error.strerror}") from None
    writer.begin(found.name, size, mtime)
    digest = hashlib.sha256()
    left, is_whole = size, True
    while left:
        if not piece:  # it has been cut since, or its disk is gone: the archive has room for it all the same
            piece, is_whole = bytes(min(left, _PIECE)), False
        writer.write(piece)
        digest.update(piece)
        left -= len(piece)
        try:
            piece = file.read(min(left, _PIECE)) if left and is_whole else b""
        except OSError:
            piece = b""
    writer.write(bytes(tar.padding(size)))
    if view is None:
        after = os.fstat(file.fileno())
        is_same = (before.st_size, before.st_mtime_ns) == (after.st_size, after.st_mtime_ns)
    else:  # a log only grows, and what is taken of it was complete
        is_same = view.identity == (before.st_dev, before.st_ino)
    facts = view.facts if view is not None else None
    return Entry(found.name, size, mtime, digest.hexdigest(), facts, changed=not (is_whole and is_same))


class _Writer:
    """Cuts the archive's bytes into blocks."""

    def __init__(self, sink: Sink, block_size: int, bundle: int) -> None:
        self._sink, self._block_size, self._bundle = sink, block_size, bundle
        self._buffer = bytearray()
        self._offset = 0  # of the buffer, in the archive
        self._first = NO_MEMBER
        self._flags = self._count = 0

    def begin(self, name: str, size: int, mtime: int) -> None:
        """The header of a file; its bytes follow."""
        if len(self._buffer) >= self._block_size:
            self._flush()
        if self._first == NO_MEMBER:
            self._first = len(self._buffer)
        self.write(tar.header(name, size, mtime))

    def write(self, data: bytes) -> None:
        """Bytes of the file."""
        at = 0
        while at < len(data):
            if len(self._buffer) >= self._block_size:
                self._flush()
            room = self._block_size - len(self._buffer)
            self._buffer += data[at : at + room]
            at += room

    def end(self, manifest: bytes) -> None:
        """The manifest, with which a block begins, and the end of the archive."""
        self._flush()
        self._flags = MANIFEST
        self.begin(NAME, len(manifest), 0)
        self.write(manifest + bytes(tar.padding(len(manifest))) + tar.END)
        self._flags |= LAST
        self._flush()

    def _flush(self) -> None:
        if self._buffer:
            self._count += 1
            if self._count > MAX_BLOCKS:
                raise BundleError("more than one bundle can hold: pack fewer runs at a time, or in larger volumes")
            plain = bytes(self._buffer)
            self._sink.add(plain, bundle=self._bundle, offset=self._offset, first=self._first, flags=self._flags)
            self._offset += len(plain)
            self._buffer.clear()
            self._first, self._flags = NO_MEMBER, 0
