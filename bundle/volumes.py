"""Where a bundle's blocks are written: one file, or volumes of a limited size. What an interrupted packing left is taken up.

    NAME.tar.zst.part       while it is written; `NAME.tar.zst` when it is whole
    NAME.tar.zst.001        a volume that is full; the one that is written ends in `.part`
    NAME.tar.zst.sha256     when all volumes are there: their digests, as `sha256sum -c` reads them

A block that lies there already and holds the bytes that are to be written is kept; the first that does not is cut off, with
all behind it. So a bundle that was taken up is the one that would have been made in one go.
"""

from __future__ import annotations

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
        whole = [self._sums, target] if split else [target, self._sums]
        if any(path.exists() for path in whole) and not overwrite:
            there = next(path for path in whole if path.exists())
            raise BundleError(f"{there} is there already: another name, or --overwrite")
        if split and self._sums.exists():
            disk.remove(self._sums)  # from here on the set is not whole
        self._begin_volume(1 if split else 0)

    @property
    def _sums(self) -> Path:
        return self._target.with_name(self._target.name + SUMS)

    def _final(self, number: int) -> Path:
        return self._target.with_name(f"{self._target.name}.{number:03}") if number else self._target

    def _part(self, number: int) -> Path:
        final = self._final(number)
        return final.with_name(final.name + PART)

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
        part = self._part(number)
        self._base = part if part.exists() or not self._split else self._final(number)

    def _keep(self, plain: bytes, wanted: Label) -> bool:
        """Go on behind the block at this place, if it is the one to write."""
        if not self._keeps:
            return False
        try:
            with self._base.open("rb") as file:
                file.seek(self._at)
                label = Label.decoded(file.read(LABEL_SIZE))
                if label is None or label._replace(frame=0, crc=0) != wanted:
                    return False
                end = self._at + LABEL_SIZE + label.frame
                is_too_much = self._split and self._at and end > self._split
                if is_too_much or plain_of(label, file.read(label.frame)) != plain:
                    return False
        except (FileNotFoundError, Damaged):
            return False
        self._at = end
        return True

    def _write(self, block: bytes) -> None:
        if self._keeps:  # from here on nothing is
            self._keeps = False
            if self._split:
                for number, path in _numbered(self._target):
                    if number > self._number:
                        self._disk.remove(path)
                if self._base != self._part(self._number) and self._base.exists():
                    self._disk.replace(self._base, self._part(self._number))
        self._disk.write(self._opened(self._part(self._number)), block)
        self._at += len(block)
        self.written += len(block)

    def _opened(self, path: Path) -> BinaryIO:
        """The file that is written; at first that at `path`, without what lies behind the bytes that are kept."""
        if self._file is None:
            self._file = self._disk.open(path, keep=True)
            if not self._disk.lock(self._file):
                raise BundleError(f"{self._target}: somebody else is making it now")
            self._disk.truncate(self._file, self._at)
            self._file.seek(self._at)
        return self._file

    def _end_volume(self) -> None:
        """The volume is full, or the last one: cut off what is behind it, and give it its name."""
        final, part = self._final(self._number), self._part(self._number)
        path = final if self._keeps and self._base == final else part
        self._disk.sync(self._opened(path))
        self.close()
        if path != final:
            self._disk.replace(part, final)
        self._done.append(final)

    def finish(self) -> list[str]:
        """Give the last file its name, and write the digests of volumes; all files that there are."""
        self._end_volume()
        for number, path in _numbered(self._target):  # of a longer bundle that had this name
            if number > self._number:
                self._disk.remove(path)
        if not self._split:
            if self._sums.exists():
                self._disk.remove(self._sums)
            return [str(self._target)]
        if self._target.exists():
            self._disk.remove(self._target)
        lines = "".join(f"{sha256_of(path)}  {path.name}\n" for path in self._done)
        part = self._sums.with_name(self._sums.name + PART)
        with self._disk.open(part) as file:
            self._disk.write(file, lines.encode("utf-8", "surrogateescape"))
            self._disk.sync(file)
        self._disk.replace(part, self._sums)
        return [str(path) for path in (*self._done, self._sums)]

    def close(self) -> None:
        """Close what is open."""
        if self._file is not None:
            self._file.close()
            self._file = None


def _numbered(target: Path) -> list[tuple[int, Path]]:
    """The volumes of a bundle that are there, those that are being written too, in the order of their numbers."""
    found = []
    for path in target.parent.iterdir() if target.parent.is_dir() else ():
        if path.name.startswith(target.name):
            match = _VOLUME.fullmatch(path.name[len(target.name) :].removesuffix(PART))
            if match:
                found.append((int(match[1]), path))
    return sorted(found)
