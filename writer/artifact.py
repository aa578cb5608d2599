"""Artifacts: named, versioned sets of files and references, put together here and recorded by `Run.log_artifact`."""

from __future__ import annotations

import hashlib
import io
import json
import os
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, cast

from .artifact_checks import checked_name, checked_type
from .artifact_contents import (
    Content,
    Manifest,
    MemoryFile,
    bring_home,
    logical_path,
    references,
    short_name,
    take_file,
    walk,
)
from .artifact_identity import ArtifactIdentity
from .artifact_record import ManifestEntry, base64_md5
from .report import warn_on_stderr

if TYPE_CHECKING:
    from .media.content import ArtifactContents
    from .runfiles import RunFiles

_POLICIES = ("mutable", "immutable", None)


class Artifact(ArtifactIdentity):
    """A set of files under one name, in versions. Not thread-safe.

    While a run goes on, contents are copied into its directory as they are added. Without one they are hashed where
    they lie and copied when the artifact is logged; if they changed in between, what is stored then counts.
    """

    def __init__(  # noqa: PLR0917 - the peer's signature
        self,
        name: str,
        type: str,  # noqa: A002 - the peer's name
        description: str | None = None,
        metadata: Mapping[str, Any] | str | None = None,
        incremental: bool = False,
        use_as: str | None = None,  # noqa: ARG002 - has no meaning in the peer either
        storage_region: str | None = None,  # noqa: ARG002 - the backend's own business
        digest_algorithm: str = "MD5",  # noqa: ARG002 - every backend takes MD5
    ) -> None:
        """An empty artifact.

        Args:
            name: letters, digits, `_`, `-` and `.`, at most 128.
            type: what it is, such as "dataset" or "model".
            description: free text.
            metadata: JSON values, at most 100 keys; NaN becomes null.
            incremental: the contents are added to those of the version before.
            use_as: ignored.
            storage_region: ignored.
            digest_algorithm: ignored; it is MD5.

        Raises:
            ValueError: a name or type that no artifact can have, or metadata that JSON cannot hold.
        """
        super().__init__(checked_name(name), checked_type(type, name), description, metadata)
        self.incremental = incremental
        self._contents: dict[str, Content] = {}
        self._media: dict[str, Any] = {}
        """Path in the artifact -> the medium whose JSON it is."""
        self._home: RunFiles | None = None  # of the run that makes it, while it does
        self._refused: list[str] = []
        """Why files were not copied when they were added; it is tried again when the artifact is logged."""

    @classmethod
    def internal(cls, name: str, type_: str) -> Artifact:
        """One of those that the format makes itself, of code or of a table, whose names `Artifact` refuses."""
        artifact = cls(name, "internal")
        artifact.type = type_
        return artifact

    @contextmanager
    def filled_for(self, files: RunFiles | None) -> Iterator[None]:
        """What is added in this block goes to that run, whichever is the current one."""
        self._home = files
        try:
            yield
        finally:
            self._home = None

    @property
    def manifest(self) -> Manifest:
        """The contents."""
        return Manifest(self._contents)

    @property
    def digest(self) -> str:
        """The MD5 of names and digests, hexadecimal: equal for equal contents, here and in the peer."""
        return self.manifest.digest()

    @property
    def size(self) -> int:
        """Bytes of all contents."""
        return self.manifest.size()

    def wait(self, timeout: float | None = None) -> Artifact:  # noqa: ARG002 - the peer's signature
        """The artifact: there is nothing to wait for, as its contents are on the disk when it is logged."""
        return self

    def save(self, project: str | None = None, settings: Any = None) -> None:
        """Log it to the current run, or to a run of its own if there is none."""
        from . import api

        run = api.current_run()
        if run is not None:
            run.log_artifact(self)
            return
        with api.init(project=project, job_type="auto", settings=settings or {"silent": True}) as auto:
            auto.log_artifact(self)

    # -- filling it --------------------------------------------------------------------------------------------------

    def add_file(  # noqa: PLR0917 - the peer's signature
        self,
        local_path: str | os.PathLike[str],
        name: str | None = None,
        is_tmp: bool | None = False,
        skip_cache: bool | None = False,
        policy: str | None = "mutable",
        overwrite: bool = False,
    ) -> ManifestEntry:
        """Add a file.

        Args:
            local_path: the file.
            name: its path in the artifact; its own name unless given.
            is_tmp: take the name from the content instead, but for its folder and extensions.
            skip_cache: readers need not keep a copy.
            policy: "mutable" or "immutable" (the file will not change until the run is synced). Both get a copy, so
                that the run's directory has everything; the setting `file_transfer="link"` makes links of them.
            overwrite: it may replace other content of that path.

        Raises:
            ArtifactFinalizedError: the artifact was logged.
            OSError: the file cannot be read.
            ValueError: it is no file, its name leads out, or other content has it.
        """
        self._check_open(policy)
        path = Path(local_path)
        if not path.is_file():
            raise ValueError(f"{os.fspath(local_path)!r} is not a file")
        name = logical_path(name or path.name)
        return self._add_path(name, path, skip_cache=skip_cache, overwrite=overwrite, is_tmp=is_tmp)

    def add_dir(
        self,
        local_path: str | os.PathLike[str],
        name: str | None = None,
        skip_cache: bool | None = False,
        policy: str | None = "mutable",
        merge: bool = False,
    ) -> None:
        """Add the files below a folder. Links are followed; what is no file, or cannot be read, is left out and named.

        The directory of the run that goes on is left out, too, where it lies below.

        Args:
            local_path: the folder.
            name: the folder in the artifact; its root unless given.
            skip_cache: readers need not keep copies.
            policy: as for `add_file`.
            merge: files may replace other content of their paths.

        Raises:
            ArtifactFinalizedError: the artifact was logged.
            OSError: the folder cannot be read.
            ValueError: it is no folder, a name leads out, or other content has it.
        """
        self._check_open(policy)
        root = Path(local_path)
        if not root.is_dir():
            raise ValueError(f"{os.fspath(local_path)!r} is not a folder")
        below = f"{logical_path(name)}/" if name else ""
        skipped: list[str] = []
        files = self._store()
        found = walk(root, _naming(skipped), but=None if files is None else files.directory)
        self.fill(
            root, ((path, below + relative) for path, relative in found), skipped, skip_cache=skip_cache, merge=merge
        )

    def fill(
        self,
        root: Path,
        files: Iterable[tuple[Path, str]],
        skipped: list[str],
        *,
        skip_cache: bool | None = False,
        merge: bool = False,
    ) -> None:
        """Add files that were found below a folder.

        Args:
            root: the folder.
            files: each with its path in the artifact.
            skipped: a line for each that is left out already; with those that cannot be taken they are named in the end.
            skip_cache: readers need not keep copies.
            merge: they may replace other content of their paths.

        Raises:
            ValueError: other content has a path.
        """
        for path, name in files:
            try:
                logical = logical_path(name)
            except ValueError as error:  # a name that another system takes for a path
                skipped.append(str(error))
                continue
            try:
                self._add_path(logical, path, skip_cache=skip_cache, overwrite=merge)
            except OSError as error:
                skipped.append(f"{path}: {error.strerror or error}")
        self._report_skipped(root, skipped)

    @contextmanager
    def new_file(
        self, name: str, mode: str = "x", encoding: str | None = None, policy: str | None = "mutable"
    ) -> Iterator[IO[Any]]:
        """A file to be written, which is added when the block ends without an error.

        It lies in the run's directory while it is written. Without a run it lies in memory, and takes 256 MiB at most.

        Args:
            name: its path in the artifact.
            mode: "x" (new) or "w" (may replace other content), with "b" for bytes.
            encoding: of text; UTF-8 unless given.
            policy: as for `add_file`.

        Raises:
            ArtifactFinalizedError: the artifact was logged.
            OSError: it cannot be written.
            ValueError: another mode, or the name leads out or is taken.
        """
        self._check_open(policy)
        logical = logical_path(name)
        if mode.strip("bt") not in {"x", "w"}:
            raise ValueError(f"new_file takes the modes x and w, with b for bytes, not {mode!r}")
        if "x" in mode and logical in self._contents:
            raise ValueError(f"{logical!r} is in the artifact already")
        files = self._store()
        if files is None:
            memory = MemoryFile()
            file: IO[Any] = memory if "b" in mode else io.TextIOWrapper(memory, encoding or "utf-8", newline="")
            yield file
            file.flush()
            self._add_bytes(logical, memory.getvalue(), overwrite="w" in mode, skip_cache=True)
            return
        path = files.scratch()
        try:
            with path.open(mode, encoding=None if "b" in mode else encoding or "utf-8") as file:
                yield file
            kept = files.adopt(path)
        finally:
            with suppress(OSError):
                path.unlink(missing_ok=True)
        entry = ManifestEntry(logical, base64_md5(kept.md5), kept.size, local_path=str(kept.path), skip_cache=True)
        self._put(Content(entry), overwrite="w" in mode)

    def add_reference(
        self,
        uri: str | ManifestEntry,
        name: str | os.PathLike[str] | None = None,
        checksum: bool = True,
        max_objects: int | None = None,
    ) -> list[ManifestEntry]:
        """Refer to what stays where it is.

        A `file://` URI of a folder refers to each file below it. Nothing is asked of a network: what s3, gs, http and
        others refer to is told apart by its URI alone, and gets no size; a bucket's folder is one entry.

        Args:
            uri: what is referred to.
            name: its path in the artifact; what the URI ends with unless given.
            checksum: read files, so that changes of their content make a new version.
            max_objects: files below a folder, at most.

        Raises:
            ArtifactFinalizedError: the artifact was logged.
            OSError: a file cannot be read.
            ValueError: it is no URI, or there is no such file.
        """
        self._check_open()
        text = (uri.ref or uri.path) if isinstance(uri, ManifestEntry) else str(uri)
        skipped: list[str] = []
        where = None if name is None else logical_path(name)
        entries = references(text, where, checksum=checksum, max_objects=max_objects, skipped=_naming(skipped))
        self._report_skipped(Path(text), skipped)
        for entry in entries:
            self._put(Content(entry))
        return entries

    def add(self, obj: Any, name: str | os.PathLike[str], overwrite: bool = False) -> ManifestEntry:
        """Add a medium (an image, a table): its values as JSON under `name` and an extension, and its files.

        Args:
            obj: the medium.
            name: the path in the artifact, without the extension.
            overwrite: it may replace other content of that path.

        Raises:
            ArtifactFinalizedError: the artifact was logged.
            TypeError: it is no medium, or one that artifacts have not.
        """
        from .media import Media

        self._check_open()
        for path, medium in self._media.items():
            if medium is obj:
                return self._contents[path].entry
        if not isinstance(obj, Media):
            raise TypeError(f"an artifact takes tables, images and other media, not {type(obj).__name__}")
        logical = logical_path(f"{os.fspath(name)}.{obj.KIND}.json")
        known = self._contents.get(logical)
        if known is not None and not overwrite:
            return known.entry
        values = obj.cell(cast("ArtifactContents", _MediaContents(self)))
        entry = self._add_bytes(logical, json.dumps(values, sort_keys=True).encode(), overwrite=overwrite)
        self._media[logical] = obj
        return entry

    def __setitem__(self, name: str, obj: Any) -> None:
        self.add(obj, name)

    def remove(self, item: str | os.PathLike[str] | ManifestEntry) -> None:
        """Take out an entry, or all entries below a folder of the artifact.

        Raises:
            ArtifactFinalizedError: the artifact was logged.
            FileNotFoundError: there is none.
        """
        self._check_open()
        path = item.path if isinstance(item, ManifestEntry) else str(logical_path(item))
        paths = [path] if path in self._contents else [each for each in self._contents if each.startswith(f"{path}/")]
        if not paths:
            raise FileNotFoundError(f"{path!r} is not in the artifact {self.name}")
        for each in paths:
            del self._contents[each]
            self._media.pop(each, None)

    def get_entry(self, name: str | os.PathLike[str]) -> ManifestEntry:
        """The entry of a path in the artifact, or of a medium added under that name.

        Raises:
            KeyError: there is none.
        """
        path = logical_path(name)
        path = self._medium_path(path) or path
        if path not in self._contents:
            raise KeyError(f"{path!r} is not in the artifact {self.name}")
        return self._contents[path].entry

    get_path = get_entry

    def get(self, name: str) -> Any:
        """The medium that was added under that name; None if there is none."""
        return self._media.get(self._medium_path(name))

    __getitem__ = get

    # -- for the run that logs it ------------------------------------------------------------------------------------

    def contents_in(self, files: RunFiles, warn: Callable[[str], None]) -> list[ManifestEntry]:
        """The entries with their bytes in a run's directory.

        Args:
            files: of that run.
            warn: takes one line for the user: what could not be brought there, and what changed on the way.
        """
        failures: list[str] = []
        changed: list[str] = []
        for path, content in self._contents.items():
            entry, same = bring_home(content, files, _failing(failures))
            self._contents[path] = Content(entry, None if entry.local_path else content.data)
            if not same:
                changed.append(path)
        if changed:
            warn(f"artifact {self.name}: {_some(changed)} changed after being added: logged as found now")
        if failures:
            first = f" (first: {self._refused[0]})" if self._refused else ""
            warn(
                f"artifact {self.name}: not copied into the run's directory: {_some(failures)}{first}; the log says where"
                " that lies instead, and a sync from another machine will not find it"
            )
        return [content.entry for content in self._contents.values()]

    # -- helpers -----------------------------------------------------------------------------------------------------

    def _check_open(self, policy: str | None = None) -> None:
        if policy not in _POLICIES:
            raise ValueError(f"a policy is 'mutable' or 'immutable', not {policy!r}")
        self._check_changeable()

    def _store(self) -> RunFiles | None:
        """Of the run that makes it, else of the one that goes on in this process, if it takes files."""
        if self._home is not None:
            return self._home
        from . import api

        run = api.current_run()
        return None if run is None else run.file_store

    def _add_path(
        self,
        logical: str,
        path: Path,
        *,
        skip_cache: bool | None,
        overwrite: bool,
        is_tmp: bool | None = False,
    ) -> ManifestEntry:
        digest, size, where = take_file(path, self._store(), _failing(self._refused))
        if is_tmp:
            logical = short_name(logical, digest)
        entry = ManifestEntry(logical, base64_md5(digest), size, local_path=str(where), skip_cache=bool(skip_cache))
        self._put(Content(entry), overwrite=overwrite)
        return entry

    def _add_bytes(self, logical: str, data: bytes, *, overwrite: bool, skip_cache: bool = False) -> ManifestEntry:
        digest = hashlib.md5(data, usedforsecurity=False).digest()
        entry = ManifestEntry(logical, base64_md5(digest), len(data), skip_cache=skip_cache)
        files = self._store()
        content = Content(entry, data)
        if files is not None:
            with suppress(OSError):  # it stays in memory, and is tried again when the artifact is logged
                content = Content(entry._replace(local_path=str(files.keep(data).path)))
        self._put(content, overwrite=overwrite)
        return content.entry

    def _put(self, content: Content, *, overwrite: bool = False) -> None:
        path = content.entry.path
        known = self._contents.get(path)
        if known is not None and not overwrite and known.entry.digest != content.entry.digest:
            raise ValueError(f"{path!r} is in the artifact {self.name} already, with other content")
        self._contents[path] = content
        self._media.pop(path, None)

    def _medium_path(self, name: str) -> str:
        """The path of the medium that was added under a name, or that has it as its path; "" if there is none."""
        for path, medium in self._media.items():
            if name in {path, path.removesuffix(f".{medium.KIND}.json")}:
                return path
        return ""

    def _report_skipped(self, root: Path, skipped: list[str]) -> None:
        if skipped:
            warn_on_stderr(f"artifact {self.name}: left out of {root}: {_some(skipped)}")


class _MediaContents:
    """An artifact as media see it that put their files into it."""

    def __init__(self, artifact: Artifact) -> None:
        self._artifact = artifact

    @property
    def scratch(self) -> Path | None:
        """As `ArtifactContents` has it."""
        files = self._artifact._store()  # noqa: SLF001 - of this module
        return None if files is None else files.directory / "tmp"

    def add(self, name: str, source: bytes | Path) -> ManifestEntry:
        """A file; the same content may come again under its name."""
        if isinstance(source, Path):
            return self._artifact.add_file(source, name)
        return self._artifact._add_bytes(logical_path(name), source, overwrite=False)  # noqa: SLF001 - of this module

    def add_reference(self, name: str, uri: str) -> ManifestEntry:
        """A content that stays where it is."""
        return self._artifact.add_reference(uri, name, checksum=False)[0]


def _some(names: list[str]) -> str:
    return f"{names[0]} and {len(names) - 1} more" if len(names) > 1 else names[0]


def _naming(skipped: list[str]) -> Callable[[Path, str], None]:
    return lambda path, reason: skipped.append(f"{path}: {reason}")


def _failing(failures: list[str]) -> Callable[[Path, OSError], None]:
    return lambda path, error: failures.append(f"{path}: {error.strerror or error}")
