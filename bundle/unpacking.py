"""Unpacking: files are written beside their place and moved there when they are whole and what the manifest says.

So an unpacking that was killed is gone on with by the same call: what is there with the right bytes is not written again.
Of a damaged bundle what is whole is unpacked, and a log with the bytes that are there, in their places: a reader finds the
gaps. Every other file is named.
"""

from __future__ import annotations

import contextlib
import errno
import hashlib
import os
import stat
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from enum import Enum
from pathlib import Path
from typing import BinaryIO

from ..logformat.rundir import LOG_SUFFIX
from .disk import DISK, HOLDS_FOLDERS, Disk, folder_below, sha256_of
from .errors import BundleError
from .manifest import Entry, LeftOut
from .names import PART_PREFIX, folded, why_no_data, why_unsafe
from .reading import Bundle, Member

RATIO = 200
"""A bundle that grows more than so many times is not unpacked unless somebody says how large it may get."""
SMALL = 1 << 30
"""Bytes up to which it may grow in any case."""
_PIECE = 1 << 20
_GROWN = "the log that is here has grown since"
_OTHER = "another file is here: --overwrite replaces it"
_STOPPING = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EROFS} - {0})
"""Errors after which no other file would fare better."""


class Fate(Enum):
    """What became of a file."""

    WRITTEN = "written"
    KEPT = "kept"
    """It is there already, byte for byte."""
    LONGER = "longer"
    """A log that is there already, and has grown since it was packed."""
    DAMAGED = "damaged"
    """A log of which a part is lost: written with what there is."""
    LOST = "lost"
    """Its bytes are damaged or missing in the bundle."""
    REFUSED = "refused"
    """No bundle has such a member."""
    DIFFERS = "differs"
    """Another file is there."""
    FAILED = "failed"
    """It could not be written."""


GOOD = frozenset({Fate.WRITTEN, Fate.KEPT, Fate.LONGER})


@dataclass(frozen=True, slots=True)
class FileResult:
    """One file of a bundle, and what became of it."""

    name: str
    fate: Fate
    reason: str = ""
    size: int = 0


@dataclass
class Unpacked:
    """What was unpacked."""

    folder: Path
    files: list[FileResult] = field(default_factory=list)
    problems: list[str] = field(default_factory=list)
    """What is wrong with the bundle's own bytes."""
    left_out: tuple[LeftOut, ...] = ()
    """What its maker could not pack."""

    @property
    def bad(self) -> list[FileResult]:
        """The files that are not there as they were packed."""
        return [file for file in self.files if file.fate not in GOOD]

    @property
    def exit_code(self) -> int:
        """0, or 1 where something is not as it was packed."""
        return 1 if self.bad or self.problems else 0


def unpack(
    source: str | os.PathLike[str] | Bundle,
    folder: str | os.PathLike[str] = ".",
    *,
    overwrite: bool = False,
    max_size: int | None = None,
    told: Callable[[FileResult], object] = lambda _result: None,
    disk: Disk = DISK,
) -> Unpacked:
    """Unpack a bundle below `folder`.

    Args:
        source: a bundle, any of its volumes, their list of digests, or a folder with one bundle; or one that is open.
        folder: where to; made if it is not there.
        overwrite: replace files that differ. A log that begins as the packed one and has grown is never replaced; one that is
            the beginning of the packed one always is.
        max_size: bytes that may be written. By default 1 GiB, or 200 times what the bundle takes if that is more.
        told: called with each file's result.
        disk: where it is written.

    Raises:
        BundleError: it is no bundle, or one that is refused as a whole. Nothing was written.
        OSError: it cannot be read, or `folder` cannot be made.
    """
    if not isinstance(source, Bundle):
        with Bundle.open(source) as bundle:
            return unpack(bundle, folder, overwrite=overwrite, max_size=max_size, told=told, disk=disk)
    limit = max_size if max_size is not None else max(SMALL, RATIO * source.size)
    entries = source.entries()
    total = sum(entry.size for entry in entries.values()) if entries is not None else source.plain_size
    if total > limit:
        raise BundleError(
            f"refused: it would take {total} bytes, of {source.size} packed ones; `unpack --max-size` lets it, if you expect that"
        )
    Path(folder).mkdir(parents=True, exist_ok=True)
    root = Path(folder).resolve()  # whoever names a link means what it leads to
    run = _Unpacking(source, root, overwrite=overwrite, limit=limit, told=told, disk=disk)
    return run.all(entries)


def verify(source: Bundle, told: Callable[[FileResult], object] = lambda _result: None) -> Unpacked:
    """Read all of a bundle and write nothing; files that are whole count as `kept`."""
    done = Unpacked(Path(), left_out=source.manifest.left_out if source.manifest else ())
    for result in _judged(source, lambda member, entry: _checked(source, member, entry)):
        done.files.append(result)
        told(result)
    source.check_all()
    done.problems = source.problems
    return done


def _judged(bundle: Bundle, judge: Callable[[Member, Entry | None], FileResult]) -> Iterator[FileResult]:
    """What `judge` says of each member that may be looked at, and what is to be said of the others."""
    entries = bundle.entries()
    seen: set[str] = set()
    for member in bundle.members():
        entry = entries.get(member.name) if entries is not None else None
        if problem := member.kind or why_unsafe(member.name, windows=os.name == "nt"):
            yield FileResult(member.name, Fate.REFUSED, problem)
        elif entries is not None and (entry is None or entry.size != member.size):
            yield FileResult(
                member.name, Fate.REFUSED, "the manifest does not know it" if entry is None else "another size"
            )
        elif member.name in seen:
            yield FileResult(member.name, Fate.REFUSED, "there is another one of this name")
        else:
            seen.add(member.name)
            foreign = _why_foreign(member.name)
            yield FileResult(member.name, Fate.REFUSED, foreign) if foreign else judge(member, entry)
    for name in entries or ():
        if name not in seen:
            yield FileResult(name, Fate.LOST, "lost with a damaged or missing part of the bundle")


def _why_foreign(name: str) -> str:
    if "/" not in name and not name.endswith(LOG_SUFFIX):
        return "neither a log nor in the directory of a run"
    return why_no_data(name)


def _checked(bundle: Bundle, member: Member, entry: Entry | None) -> FileResult:
    digest, lost = hashlib.sha256(), 0
    for length, data in bundle.pieces(member.at, member.size):
        lost += 0 if data is not None else length
        digest.update(data or b"")
    if lost:
        return FileResult(member.name, Fate.LOST, f"{lost} of its {member.size} bytes are lost", member.size)
    if entry is not None and digest.hexdigest() != entry.sha256:
        return FileResult(member.name, Fate.LOST, "its bytes are not those that were packed", member.size)
    return FileResult(member.name, Fate.KEPT, "", member.size)


class _Unpacking:
    """One unpacking."""

    def __init__(
        self,
        bundle: Bundle,
        root: Path,
        *,
        overwrite: bool,
        limit: int,
        told: Callable[[FileResult], object],
        disk: Disk,
    ) -> None:
        self._bundle, self._root, self._overwrite, self._told, self._disk = bundle, root, overwrite, told, disk
        self._room = limit
        self._folds: dict[str, str] = {}  # folded name -> name
        self._is_folding = _folds_case(root)
        self._stopped = ""

    def all(self, entries: dict[str, Entry] | None) -> Unpacked:
        """Every member."""
        manifest = self._bundle.manifest
        done = Unpacked(self._root, left_out=manifest.left_out if manifest else ())
        for result in _judged(self._bundle, self._judge):
            done.files.append(result)
            self._told(result)
        if entries is not None:
            done.files.sort(key=lambda result: result.name)
        done.problems = self._bundle.problems
        return done

    def _judge(self, member: Member, entry: Entry | None) -> FileResult:
        name, size = member.name, member.size
        if self._stopped:
            return FileResult(name, Fate.FAILED, self._stopped, size)
        if self._is_folding and self._folds.setdefault(folded(name), name) != name:
            other = self._folds[folded(name)]
            return FileResult(name, Fate.REFUSED, f"on this file system it is the same file as {other}", size)
        try:
            return self._unpack(member, entry)
        except OSError as error:
            is_link = error.errno in {errno.ELOOP, errno.ENOTDIR}
            reason = f"cannot be written: {'a link, or no folder, is on its way' if is_link else error.strerror}"
            if error.errno in _STOPPING:
                self._stopped = f"not begun: {error.strerror}; unpack again to go on"
            return FileResult(name, Fate.FAILED, reason, size)

    def _unpack(self, member: Member, entry: Entry | None) -> FileResult:
        *levels, name = member.name.split("/")
        with self._folder(levels) as (folder, at):
            return self._unpack_in(folder, at, name, member, entry)

    @contextlib.contextmanager
    def _folder(self, levels: list[str]) -> Iterator[tuple[Path, int | None]]:
        """The folder of a file, none of whose levels is a link: what leads to it, and the descriptor that this begins at."""
        if HOLDS_FOLDERS:
            with folder_below(self._root, levels, lambda level, at: self._disk.make_folder(Path(level), at=at)) as at:
                yield Path(), at
            return
        place = self._root
        for level in levels:
            place /= level
            self._disk.make_folder(place)
            if not stat.S_ISDIR(place.lstat().st_mode):
                raise NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR))
        yield place, None

    def _unpack_in(self, folder: Path, at: int | None, name: str, member: Member, entry: Entry | None) -> FileResult:
        size, target = member.size, folder / name
        is_log = name.endswith(LOG_SUFFIX)

        def end(fate: Fate, reason: str = "") -> FileResult:
            return FileResult(member.name, fate, reason, size)

        there = _size_of(target, at)
        if there is not None and entry is not None:
            if (there == size or (is_log and there > size)) and sha256_of(target, size, at) == entry.sha256:
                return end(Fate.KEPT) if there == size else end(Fate.LONGER, _GROWN)
            if not (is_log or self._overwrite):
                return end(Fate.DIFFERS, _OTHER)
        part = folder / (PART_PREFIX + hashlib.sha256(os.fsencode(name)).hexdigest()[:16])
        file = self._disk.begin(part, at)
        if file is None:
            return end(Fate.FAILED, "somebody else is unpacking it now")
        with file:
            try:
                written, lost, digest = self._write(file, member, keeps_parts=is_log)
                loss = f"{lost} of its {size} bytes are lost"
                is_whole = not lost and (entry is None or digest == entry.sha256)
                if not is_whole and not (is_log and written and lost):
                    return end(Fate.LOST, loss if lost else "its bytes are not those that were packed")
                there = _size_of(target, at)  # nobody else has unpacked it since `begin`
                if there is not None:
                    shorter = min(there, written)
                    is_begun = sha256_of(target, shorter, at) == sha256_of(part, shorter, at)
                    if is_begun and there == written:
                        return end(Fate.KEPT) if is_whole else end(Fate.DAMAGED, loss)
                    if is_log and is_begun and there > written:
                        return end(Fate.LONGER, _GROWN)
                    if not (self._overwrite or (is_log and is_begun)):
                        return end(Fate.DIFFERS, _OTHER)
                    if lost and there >= written:
                        return end(Fate.DIFFERS, f"{loss}, so what is here stays")
                self._disk.set_mtime(part, entry.mtime if entry is not None else member.mtime, at=at)
                if at is None:
                    file.close()  # Windows gives no name to what is open
                self._disk.replace(part, target, at=at)
            finally:
                with contextlib.suppress(FileNotFoundError):
                    self._disk.remove(part, at=at)
        return end(Fate.WRITTEN) if is_whole else end(Fate.DAMAGED, f"{loss}; it is here with the others")

    def _write(self, file: BinaryIO, member: Member, *, keeps_parts: bool) -> tuple[int, int, str]:
        """Write what there is of a member: bytes written, bytes lost, SHA-256 of what was written."""
        if member.size > self._room:
            raise OSError(errno.EFBIG, "the bundle grows beyond its limit (--max-size)")
        self._room -= member.size
        digest, written, lost, hole = hashlib.sha256(), 0, 0, 0
        for length, data in self._bundle.pieces(member.at, member.size):
            if data is None:
                lost += length
                hole += length
                if not keeps_parts:
                    break
                continue
            for zeros in _zeros(hole):  # a hole that bytes follow; at the end of a log it is cut off
                self._put(file, zeros, digest)
            written, hole = written + hole + length, 0
            self._put(file, data, digest)
        self._disk.sync(file)
        return written, lost, digest.hexdigest()

    def _put(self, file: BinaryIO, data: bytes, digest: hashlib._Hash) -> None:
        self._disk.write(file, data)
        digest.update(data)


def _zeros(length: int) -> Iterator[bytes]:
    while length:
        yield bytes(min(length, _PIECE))
        length -= min(length, _PIECE)


def _size_of(path: Path, at: int | None) -> int | None:
    """Bytes of the regular file at `path`; None if nothing is there.

    Raises:
        OSError: something else is there.
    """
    try:
        status = os.stat(path, dir_fd=at, follow_symlinks=False)
    except FileNotFoundError:
        return None
    if not stat.S_ISREG(status.st_mode):
        raise OSError(errno.EEXIST, "a folder, a link or something else is here")
    return status.st_size


def _folds_case(folder: Path) -> bool:
    """Whether the file system takes names for one that differ in the case of letters: asked of the folder's own name."""
    for path in (here := folder.resolve(), *here.parents):
        other = path.with_name(path.name.swapcase()) if path.name else path
        if other != path:
            return other.exists() and other.samefile(path)
    return False
