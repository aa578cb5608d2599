"""Reading a bundle: its volumes, its manifest, its members, and the bytes of each as far as they are there.

What is read is checked before it is believed: each block by its own checksum, each member against the manifest. Where the
manifest is lost, as in a transfer that was cut, members count by what stands before them; blocks tell where members begin, so
that nothing inside of a file is ever taken for one.
"""

from __future__ import annotations

import hashlib
import io
import os
import re
from bisect import bisect_right
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import BinaryIO

from . import tar
from .blocks import LAST, MANIFEST, NO_MEMBER, START, Damaged, find_blocks, plain_of
from .errors import BundleError, NoBundleError
from .manifest import MAX_SIZE, Entry, Manifest
from .manifest import NAME as MANIFEST_NAME
from .volumes import PART, SUMS

_VOLUME = re.compile(r"(.+)\.([0-9]{3,6})", re.DOTALL)
_ESCAPED = {"n": "\n", "r": "\r"}
_MOST_SUMS = 16 * 1024 * 1024  # bytes of a list of digests


@dataclass(frozen=True, slots=True)
class Member:
    """A member of the archive, as the archive has it."""

    name: str
    size: int
    mtime: int
    at: int
    """Of its first byte, in the archive."""
    kind: str = ""
    """What it is, if it is no regular file: such are not unpacked."""


@dataclass(frozen=True, slots=True)
class Volumes:
    """The files of a bundle, and what of them is known to be missing."""

    paths: tuple[Path, ...]
    missing: tuple[str, ...] = ()


def is_bundle(path: str | os.PathLike[str]) -> bool:
    """Whether a file begins as a bundle or a volume of one does. False where that cannot be found out."""
    try:
        with Path(path).open("rb") as file:
            return file.read(len(START)) == START
    except OSError:
        return False


def find_volumes(path: str | os.PathLike[str]) -> Volumes:
    """The files of the bundle at `path`: a bundle, any of its volumes, their list of digests, or a folder that holds one bundle.

    Raises:
        BundleError: there is none, or there are several.
    """
    place = Path(path)
    if place.is_dir():
        return find_volumes(_only_one(place))
    if place.name.endswith(SUMS):
        stem = place.with_name(place.name.removesuffix(SUMS))
    elif match := _VOLUME.fullmatch(place.name):
        stem = place.with_name(match[1])
    elif place.exists():
        return Volumes((place,))
    else:
        stem = place
    numbered = dict(_volumes_of(stem))
    if not numbered:
        partial = stem.with_name(stem.name + PART)
        hint = f"; {partial.name} is one that was not finished: pack again" if partial.exists() else ""
        raise NoBundleError(f"{place}: no such file{hint}")
    wanted = _listed(stem) or {number: f"{stem.name}.{number:03}" for number in range(1, max(numbered) + 1)}
    missing = tuple(name for number, name in sorted(wanted.items()) if number not in numbered)
    return Volumes(tuple(numbered[number] for number in sorted(numbered)), missing)


def _only_one(folder: Path) -> Path:
    found: dict[str, Path] = {}
    for path in sorted(folder.iterdir()):
        match = _VOLUME.fullmatch(path.name)
        if path.is_file() and not path.name.endswith(PART) and is_bundle(path):
            found.setdefault(match[1] if match else path.name, path)
    if len(found) != 1:
        names = ", ".join(sorted(found)[:5])
        raise NoBundleError(
            f"{folder}: {f'{len(found)} bundles here ({names}): name one' if found else 'no bundle here'}"
        )
    return next(iter(found.values()))


def _volumes_of(stem: Path) -> Iterator[tuple[int, Path]]:
    with suppress(OSError):
        for path in stem.parent.iterdir():
            match = _VOLUME.fullmatch(path.name)
            if match and match[1] == stem.name and path.is_file():
                yield int(match[2]), path


def _listed(stem: Path) -> dict[int, str]:
    """The volumes that the list of digests beside them names; empty if there is none."""
    try:
        with stem.with_name(stem.name + SUMS).open("rb") as file:
            lines = file.read(_MOST_SUMS).decode("utf-8", "surrogateescape").split("\n")
    except OSError:
        return {}
    found = (_VOLUME.fullmatch(_listed_name(line)) for line in lines)
    return {int(match[2]): match[0] for match in found if match and match[1] == stem.name}


def _listed_name(line: str) -> str:
    """The name in a line of such a list; one that begins with a backslash has escapes."""
    name = line.partition("  ")[2]
    return re.sub(r"\\(.)", lambda found: _ESCAPED.get(found[1], found[1]), name) if line.startswith("\\") else name


class Bundle:
    """A bundle that is open for reading. Nothing of it is held in memory but one block, and where the others lie.

    Used as a context.
    """

    def __init__(self, volumes: Sequence[BinaryIO], names: Sequence[str], missing: Sequence[str] = ()) -> None:
        """Find the blocks and read the manifest.

        Raises:
            BundleError: it is none, or its manifest is refused.
            OSError: a volume cannot be read.
        """
        self._volumes, self._names = volumes, names
        self._closing = ExitStack()
        self._told: set[str] = set()
        self.problems: list[str] = []
        """What is wrong with its bytes: volumes that are missing, blocks that are damaged."""
        self.problems += [f"{name}: missing" for name in missing]
        self.blocks, strays = find_blocks(volumes)
        if not self.blocks:
            raise BundleError(f"{names[0] if names else '?'}: not a bundle, or nothing of it can be read")
        self._starts = [block.label.offset for block in self.blocks]
        self._kept: tuple[int, bytes] | None = None
        self._damaged: set[int] = set()
        self.problems += [
            f"{names[stray.volume]}: bytes {stray.at}-{stray.at + stray.length} are no part of the bundle"
            for stray in strays
        ]
        self.is_complete = bool(self.blocks[-1].label.flags & LAST)
        """Whether its end is there."""
        self.size = sum(block.label.frame for block in self.blocks)
        """Bytes of its frames."""
        self.plain_size = sum(block.label.plain for block in self.blocks)
        """Bytes of the archive, as far as it is there."""
        if not self.is_complete:
            self.problems.append(f"{names[-1]}: it ends before the end of the bundle")
        self._manifest_at = -1
        self._manifest_digest = b""
        self.manifest = self._read_manifest()
        """None if it is lost."""

    @classmethod
    def open(cls, path: str | os.PathLike[str]) -> Bundle:
        """The bundle at a path, as `find_volumes` takes it. Raises as that and as the constructor."""
        volumes = find_volumes(path)
        with ExitStack() as stack:
            files: list[BinaryIO] = [stack.enter_context(volume.open("rb")) for volume in volumes.paths]
            bundle = cls(files, [volume.name for volume in volumes.paths], volumes.missing)
            bundle._closing = stack.pop_all()
            return bundle

    def __enter__(self) -> Bundle:  # noqa: PYI034 - `Self` came with Python 3.11
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._closing.close()

    @property
    def key(self) -> str:
        """What tells it from bundles that hold something else: equal for copies of it, however they are split."""
        digest = hashlib.sha256(self._manifest_digest)
        for block in self.blocks if self.manifest is None else ():
            digest.update(b"%d %d %d " % (block.label.offset, block.label.plain, block.label.crc))
        return digest.hexdigest()[:32]

    def members(self) -> Iterator[Member]:
        """The members whose headers are there, the manifest not among them, in the order of the archive."""
        end = self.blocks[-1].label.end
        at = 0
        while 0 <= at < end:
            try:
                found = self._member(at)
            except tar.HeaderError as error:
                self._tell(f"at byte {at} of the archive: {error}")
                found = None
            if found is None:
                at = self._next_member(at + 1)
                continue
            if not found.name:  # the end of the archive
                return
            if found.at > end:
                return
            if found.at - tar.RECORD != self._manifest_at:
                yield found
            at = found.at + found.size + tar.padding(found.size)

    def pieces(self, at: int, size: int) -> Iterator[tuple[int, bytes | None]]:
        """The bytes from `at` in the archive on, as (length, bytes); None for bytes that are lost."""
        end = at + size
        while at < end:
            index = bisect_right(self._starts, at) - 1
            label = self.blocks[index].label if index >= 0 else None
            if label is not None and at < label.end:
                stop = min(end, label.end)
                plain = self._plain(index)
                yield stop - at, plain and plain[at - label.offset : stop - label.offset]
            else:
                following = self._starts[index + 1] if index + 1 < len(self._starts) else end
                stop = min(end, following)
                yield stop - at, None
            at = stop

    def check_all(self) -> None:
        """Read every block, so that `problems` names each that is damaged."""
        for index in range(len(self.blocks)):
            self._plain(index)

    def _tell(self, problem: str) -> None:
        if problem not in self._told:
            self._told.add(problem)
            self.problems.append(problem)

    def _plain(self, index: int) -> bytes | None:
        """A block's bytes; None if they are damaged."""
        if self._kept is not None and self._kept[0] == index:
            return self._kept[1]
        if index in self._damaged:
            return None
        block = self.blocks[index]
        volume = self._volumes[block.volume]
        volume.seek(block.at)
        try:
            plain = plain_of(block.label, volume.read(block.label.frame))
        except Damaged as error:
            self._damaged.add(index)
            end = block.at + block.label.frame
            self.problems.append(f"{self._names[block.volume]}: bytes {block.at}-{end} are damaged: {error}")
            return None
        self._kept = index, plain
        return plain

    def _exactly(self, at: int, size: int) -> bytes | None:
        """Bytes of the archive; None if some of them are lost."""
        found = bytearray()
        for _, data in self.pieces(at, size):
            if data is None:
                return None
            found += data
        return bytes(found)

    def _member(self, at: int) -> Member | None:
        """The member whose header is at `at`, one without a name at the end; None if it is lost.

        Raises:
            HeaderError: what is there is no header.
        """
        record = self._exactly(at, tar.RECORD)
        if record is None:
            return None
        if tar.is_end(record):
            return Member("", 0, 0, at)
        flag, header = tar.parse(record)
        begin = at + tar.RECORD
        if flag == b"x":
            if header.size > tar.MAX_PAX_SIZE:
                raise tar.HeaderError("a pax header that is too large")
            data = self._exactly(begin, header.size)
            begin += header.size + tar.padding(header.size)
            record = self._exactly(begin, tar.RECORD)
            if data is None or record is None:
                return None
            flag, header = tar.parse(record)
            if flag == b"x":
                raise tar.HeaderError("two pax headers")
            header = tar.with_pax(header, data)
            begin += tar.RECORD
        return Member(header.name, header.size, header.mtime, begin, header.kind)

    def _next_member(self, at: int) -> int:
        """Where the first member begins of which a block says so, at `at` or behind it; -1 if there is none."""
        for index in range(max(bisect_right(self._starts, at) - 1, 0), len(self.blocks)):
            label = self.blocks[index].label
            if label.first != NO_MEMBER and label.offset + label.first >= at:
                return label.offset + label.first
        return -1

    def _read_manifest(self) -> Manifest | None:
        index = next((i for i, block in enumerate(self.blocks) if block.label.flags & MANIFEST), None)
        if index is None:
            if self.is_complete:
                raise BundleError(f"{self._names[0]}: a bundle without a manifest")
            self._tell("its manifest is lost: what else there was is not known")
            return None
        self._manifest_at = self._starts[index]
        plain = self.blocks[-1].label.end - self._manifest_at
        if plain > MAX_SIZE + 4 * tar.RECORD:
            raise BundleError(f"{self._names[0]}: refused: its manifest is too large")
        try:
            member = self._member(self._manifest_at)
        except tar.HeaderError as error:
            raise BundleError(f"{self._names[0]}: its manifest cannot be read: {error}") from None
        data = self._exactly(member.at, member.size) if member is not None and member.size <= plain else None
        if member is None or data is None:
            self._tell("its manifest is damaged: what else there was is not known")
            return None
        if member.name != MANIFEST_NAME or member.kind:
            raise BundleError(f"{self._names[0]}: refused: its manifest is {member.kind or 'another file'}")
        self._manifest_digest = hashlib.sha256(data).digest()
        try:
            manifest = Manifest.decoded(data)
        except BundleError as error:
            raise BundleError(f"{self._names[0]}: {error}") from None
        if sum(entry.size for entry in manifest.files) > self._manifest_at:
            raise BundleError(f"{self._names[0]}: refused: its manifest names more bytes than it can hold")
        return manifest

    def entries(self) -> dict[str, Entry] | None:
        """Name -> what the manifest says of it; None if that is lost."""
        return None if self.manifest is None else {entry.name: entry for entry in self.manifest.files}


def bundle_in(data: bytes) -> Bundle:
    """The bundle that `data` is. Raises as `Bundle`."""
    return Bundle([io.BytesIO(data)], ["bundle"])
