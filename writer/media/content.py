"""Media whose content is one file: bytes made when the medium was, or a file that is brought in when it is logged."""

from __future__ import annotations

import hashlib
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any, ClassVar, TypeVar

from ..artifact_record import ManifestEntry, base64_md5
from ..encoding import utf8
from ..runfiles import RunFiles, Staged, hash_file, safe_relative
from .base import Landing, Media, MediaContext, StagedMedia
from .names import SHOWN_DIGITS, file_name

_T = TypeVar("_T")


class Content:
    """What one file holds. However often it is logged in one run, it lies there once."""

    def __init__(self, source: bytes | Path, extension: str) -> None:
        """`extension`: with its dot."""
        self.source = source
        self.extension = extension
        self._lock = threading.Lock()
        self._staged: StagedFile | None = None

    def __getstate__(self) -> dict[str, Any]:
        return {"source": self.source, "extension": self.extension}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__init__(**state)  # type: ignore[misc]  # a copy, or one from another process, has been staged nowhere

    def stage(self, files: RunFiles) -> StagedFile:
        """Bring it into the run's directory, where it is not there yet. Raises OSError."""
        directory = files.directory
        with self._lock:
            staged = self._staged
            if staged is None or staged.directory != directory or not staged.retain():
                staged = self._staged = StagedFile(self.read(files.stage), directory, self.extension)
            return staged

    def read(self, use: Callable[[bytes | Path], _T]) -> _T:
        """What `use` makes of the bytes, or of the path of a file that has them.

        The source of what was staged may have changed or gone since. Its copy moves once, on the writer's thread, which
        waits for nobody who reads; and in a forked process it may have moved without anybody here knowing.
        """
        staged = self._staged
        if staged is None or isinstance(self.source, bytes):
            return use(self.source)
        seen = None
        while (path := staged.path) != seen:
            try:
                return use(path)
            except FileNotFoundError:
                seen = path
        return use(self.source)

    def sha256(self) -> str:
        """Of the bytes, hexadecimal. Raises OSError."""
        return self.read(_sha256)


def _sha256(source: bytes | Path) -> str:
    digest = hashlib.sha256()
    if isinstance(source, bytes):
        digest.update(source)
    else:
        hash_file(source, digest)
    return digest.hexdigest()


class StagedFile:
    """Content in the run's directory: named by the first row that it lands in, and shared by those that follow."""

    def __init__(self, staged: Staged, directory: Path, extension: str) -> None:
        self.staged = staged
        self.directory = directory
        self.gone = False
        """Nobody wanted it any more before it had a name."""
        self._users = 1
        self._extension = extension
        self._name = ""
        self._recorded = False
        self._lock = threading.Lock()

    @property
    def path(self) -> Path:
        """Where it lies now."""
        with self._lock:
            return self.staged.path

    def retain(self) -> bool:
        """One row more has it; false if it is gone."""
        with self._lock:
            self._users += not self.gone
            return not self.gone

    def land(self, folder: str, key: str, step: str) -> tuple[str, tuple[str, ...]]:
        """Its path relative to `files/`; again, if that is new. Raises OSError, ValueError."""
        with self._lock:
            if not self._name:
                name = f"{folder}/{file_name(key, step, self.staged.sha256, self._extension)}"
                self.staged.place(name)
                self._name = name
            new = () if self._recorded else (self._name,)
            self._recorded = True
            return self._name, new

    def unrecord(self) -> None:
        """It landed, and what it is a part of did not: the next row brings its record."""
        with self._lock:
            self._recorded = False

    def drop(self) -> None:
        """One row less has it; with the last one it goes, unless it has its name already."""
        self.unrecord()  # maybe
        with self._lock:
            self._users -= 1
            if not self._users and not self._name:
                self.gone = True
                self.staged.drop()


class ArtifactContents:
    """The files of an artifact that is made of media: content lies in the run's directory, under its MD5."""

    def __init__(self, files: RunFiles) -> None:
        self._files = files
        self._entries: dict[str, ManifestEntry] = {}

    @property
    def entries(self) -> list[ManifestEntry]:
        """What was added."""
        return list(self._entries.values())

    @property
    def scratch(self) -> Path | None:
        """The folder for files that are to be encoded first; None where there is no run to have one."""
        return self._files.directory / "tmp"

    def add(self, name: str, source: bytes | Path) -> ManifestEntry:
        """Bring a file in. Raises OSError, and ValueError for a name that leads out."""
        path = safe_relative(name)
        kept = self._files.keep(source)
        entry = ManifestEntry(path, base64_md5(kept.md5), kept.size, local_path=str(kept.path))
        self._entries[path] = entry
        return entry

    def add_reference(self, name: str, uri: str) -> ManifestEntry:
        """Name a content that stays where it is; its digest is the URI."""
        entry = self._entries[name] = ManifestEntry(safe_relative(name), uri, ref=uri)
        return entry


class FileMedia(Media):
    """A medium that is one file."""

    FOLDER: ClassVar[str]
    """Below `files/`, and in artifacts."""
    TYPED: ClassVar[bool] = True
    """Whether a column of a table has a type for it."""

    def __init__(self, content: Content, caption: str | None = None, reference: str = "") -> None:
        self._content = content
        self._reference = reference
        """Where the content lies, if it is not here."""
        self.caption = caption
        """Shown with it."""

    def facts(self) -> dict[str, Any]:
        """What stands beside the file's name in a row and in an artifact."""
        return {} if self.caption is None else {"caption": self.caption}

    def stage(self, files: RunFiles, context: MediaContext) -> StagedMedia:  # noqa: ARG002 - the port's signature
        """As for any medium."""
        return _StagedFileMedia(self._staged(files), self.FOLDER, {**self.facts(), "_type": self.KIND})

    def _staged(self, files: RunFiles) -> StagedFile:
        if self._reference:
            raise ValueError(f"{self._reference} lies elsewhere: it can be logged in a table or an artifact only")
        return self._content.stage(files)

    def cell(self, contents: ArtifactContents) -> dict[str, Any]:
        """What stands for it in an artifact's JSON; its file is added to `contents`. Raises OSError."""
        sha256 = _sha256(utf8(self._reference)) if self._reference else self._content.sha256()
        source = self._content.source
        if self._reference:
            name = f"{sha256[:SHOWN_DIGITS]}/{self._reference.rpartition('/')[2]}"
        elif isinstance(source, bytes):  # encoded here: named by the manifest's hash, as the peer has it
            digest = hashlib.md5(source, usedforsecurity=False).hexdigest()
            name = f"{digest[:SHOWN_DIGITS]}{self._content.extension}"
        else:  # a file keeps its name, below its hash
            name = f"{sha256[:SHOWN_DIGITS]}/{source.name}"
        path = f"{self.FOLDER}/{name}"
        if self._reference:
            entry = contents.add_reference(path, self._reference)
        else:
            entry = self._content.read(lambda source: contents.add(path, source))
        return {**self.facts(), "_type": self.KIND, "path": entry.path, "sha256": sha256}


class _StagedFileMedia:
    def __init__(self, file: StagedFile, folder: str, facts: dict[str, Any]) -> None:
        self._file, self._folder, self._facts = file, folder, facts

    def land(self, key: str, step: str) -> Landing:
        path, new = self._file.land(self._folder, key, step)
        return Landing({**self._facts, **file_facts(self._file, path)}, new)

    def drop(self) -> None:
        self._file.drop()


def file_facts(file: StagedFile, path: str) -> dict[str, Any]:
    """What a row says of a file."""
    return {"path": path, "sha256": file.staged.sha256, "size": file.staged.size}


def existing(path: str | Path) -> Path:
    """A file that is to be logged, made absolute. Raises OSError where it cannot be opened."""
    found = Path(path).absolute()
    with found.open("rb"):
        return found


def is_reference(source: object) -> bool:
    """Whether it is the address of something that lies elsewhere."""
    return isinstance(source, str) and source.startswith(("http://", "https://", "s3://", "gs://"))
