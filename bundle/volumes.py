"""Where a bundle's blocks are written: one file, or volumes of a limited size. What an interrupted packing left is taken up.

    NAME.tar.zst.part       while it is written; `NAME.tar.zst` when it is whole
    NAME.tar.zst.001        a volume that is full; the one that is written ends in `.part`
    NAME.tar.zst.sha256     when all volumes are there: their digests, as `sha256sum -c` reads them; `.part` until then

A block that lies there already and holds the bytes that are to be written is kept; the first that does not is cut off, with
all behind it. So a bundle that was taken up is the one that would have been made in one go.
"""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import BinaryIO, Protocol

from .blocks import LABEL_SIZE, Compressor, Damaged, Label, plain_of
from .disk import Disk, sha256_of
from .errors import BundleError

PART = ".part"
SUMS = ".sha256"
MIN_VOLUME = 64 * 1024
"""Bytes of a volume, at least."""
_VOLUME = re.compile(r"\.([0-9]{3,6})")


class Sink(Protocol):
    """Takes the blocks of a bundle, in their order."""

    written: int
    """Bytes that were written; those that were there already do not count."""

    def add(self, plain: bytes, *, bundle: int, offset: int, first: int, flags: int) -> None:
        """One block."""

    def finish(self) -> list[str]:
        """All are there: give the files their names, which are returned."""

    def close(self) -> None:
        """Let go of what is open; what was begun stays, to be taken up."""


class LocalSink:
    """Files on this machine, whole or in volumes."""

    def __init__(
        self, target: Path, compressor: Compressor, disk: Disk, *, split: int = 0, overwrite: bool = False
    ) -> None:
        """Nothing is written yet.

        Args:
            target: the bundle's name.
            compressor: makes the blocks.
            disk: where.
            split: bytes of a volume; 0 for one file.
            overwrite: take the place of a bundle that is there.

        Raises:
            BundleError: one is there.
            OSError: that cannot be found out.
        """
        self.written = 0
        self._target, self._compressor, self._disk, self._split = target, compressor, disk, split
        self._file: BinaryIO | None = None
        self._keeps = True  # as long as what lies there is what is to be written
        self._done: list[Path] = []
        self._refuse(overwrite=overwrite)
        # Held to the end: the file itself, or the list of volumes, which comes last.
        self._held = disk.take_up(_part(self._sums if split else target))
        if self._held is None:
            raise BundleError(f"{target}: somebody else is making it now")
        try:
            self._refuse(overwrite=overwrite)  # somebody may have finished at this moment
            if split and self._sums.exists():
                disk.remove(self._sums)  # from here on the set is not whole
            self._begin_volume(1 if split else 0)
        except BaseException:
            self.close()
            raise

    def _refuse(self, *, overwrite: bool) -> None:
        for path in (self._sums, self._target) if self._split else (self._target, self._sums):
            if path.exists() and not overwrite:
                raise BundleError(f"{path} is there already: another name, or --overwrite")

    @property
    def _sums(self) -> Path:
        return self._target.with_name(self._target.name + SUMS)

    def _final(self, number: int) -> Path:
        return self._target.with_name(f"{self._target.name}.{number:03}") if number else self._target

    def add(self, plain: bytes, *, bundle: int, offset: int, first: int, flags: int) -> None:
        """One block: kept if it is there, else compressed and written."""
        label = Label(flags, bundle, offset, len(plain), 0, first, 0)
        if not self._keep(plain, label):
            block = self._compressor.block(plain, bundle=bundle, offset=offset, first=first, flags=flags)
            if self._split and self._at and self._at + len(block) > self._split:
                self._end_volume()
                self._begin_volume(self._number + 1)
                if self._keep(plain, label):
                    return
            self._write(block)

    def _begin_volume(self, number: int) -> None:
        self._number, self._at = number, 0
        final = self._final(number)
        is_full = bool(self._split) and final.exists() and not _part(final).exists()
        self._path = final if is_full else _part(final)
        self._file = self._disk.open(self._path, keep=True) if self._split else self._held

    def _keep(self, plain: bytes, wanted: Label) -> bool:
        """Go on behind the block at this place, if it is the one to write."""
        if not self._keeps or self._file is None:
            return False
        self._file.seek(self._at)
        label = Label.decoded(self._file.read(LABEL_SIZE))
        if label is None or label._replace(frame=0, crc=0) != wanted:
            return False
        end = self._at + LABEL_SIZE + label.frame
        if self._split and self._at and end > self._split:
            return False
        try:
            if plain_of(label, self._file.read(label.frame)) != plain:
                return False
        except Damaged:
            return False
        self._at = end
        return True

    def _write(self, block: bytes) -> None:
        if self._keeps:
            self._keep_no_more()
        assert self._file is not None  # noqa: S101 - from `_begin_volume` to `_end_volume`
        self._disk.write(self._file, block)
        self._at += len(block)
        self.written += len(block)

    def _keep_no_more(self) -> None:
        """Cut off what lies behind the blocks that were kept."""
        self._keeps = False
        if self._split:
            for number, path in _numbered(self._target):
                if number > self._number:
                    self._disk.remove(path)
        part = _part(self._final(self._number))
        if self._path != part:
            self._close_file()
            self._disk.replace(self._path, part)
            self._path, self._file = part, self._disk.open(part, keep=True)
        assert self._file is not None  # noqa: S101 - as above
        self._disk.truncate(self._file, self._at)
        self._file.seek(self._at)

    def _end_volume(self) -> None:
        """The volume is full, or the last one: cut off what is behind it, and give it its name."""
        assert self._file is not None  # noqa: S101 - as above
        if self._keeps:
            self._disk.truncate(self._file, self._at)
        self._name(self._file, self._path, self._final(self._number))
        self._close_file()
        self._done.append(self._final(self._number))

    def _name(self, file: BinaryIO, path: Path, final: Path) -> None:
        """Give a file that is whole its name while it is held, so that nobody takes it up for one that is not."""
        self._disk.sync(file)
        if path != final:
            if os.name == "nt":  # it gives no name to what is open
                file.close()
            self._disk.replace(path, final)

    def finish(self) -> list[str]:
        """Give the last file its name, and write the digests of volumes; all files that there are."""
        self._end_volume()
        longer = [path for number, path in _numbered(self._target) if number > self._number]  # that had this name
        others = [self._target, _part(self._target)] if self._split else [self._sums, _part(self._sums)]
        for path in (*longer, *others):
            if path.exists():
                self._disk.remove(path)
        if not self._split or self._held is None:
            return [str(self._target)]
        lines = "".join(f"{_sum_line(sha256_of(path), path.name)}\n" for path in self._done)
        self._disk.truncate(self._held, 0)
        self._disk.write(self._held, lines.encode("utf-8", "surrogateescape"))
        self._name(self._held, _part(self._sums), self._sums)
        return [str(path) for path in (*self._done, self._sums)]

    def close(self) -> None:
        """Close what is open."""
        self._close_file()
        if self._held is not None:
            self._held.close()
            self._held = None

    def _close_file(self) -> None:
        if self._file is not None:
            self._file.close()
            self._file = None


def _part(path: Path) -> Path:
    """What a file is called until it is whole."""
    return path.with_name(path.name + PART)


def _sum_line(digest: str, name: str) -> str:
    """As `sha256sum` writes it: with a backslash before the digest, backslashes and ends of lines in the name are escaped."""
    escaped = name.replace("\\", "\\\\").replace("\n", "\\n").replace("\r", "\\r")
    return f"{chr(92) if escaped != name else ''}{digest}  {escaped}"


def _numbered(target: Path) -> list[tuple[int, Path]]:
    """The volumes of a bundle that are there, those that are being written too, in the order of their numbers."""
    found = []
    for path in target.parent.iterdir() if target.parent.is_dir() else ():
        if path.name.startswith(target.name):
            match = _VOLUME.fullmatch(path.name[len(target.name) :].removesuffix(PART))
            if match:
                found.append((int(match[1]), path))
    return sorted(found)
