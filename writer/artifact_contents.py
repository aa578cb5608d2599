"""What artifacts are filled with: files, folders, and references to what stays where it is.

A file is hashed when it is added, and copied into the directory of the run that is going on, so that it may change or
go away afterwards. Without a run it stays where it is until the artifact is logged; the digest is then that of the
bytes which were stored.
"""

from __future__ import annotations

import hashlib
import io
import os
import stat
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path, PurePosixPath
from typing import Any, NamedTuple
from urllib.parse import urlsplit
from urllib.request import url2pathname

from .artifact_record import ManifestEntry, base64_md5, manifest_digest
from .runfiles import RunFiles, hash_file, safe_relative

DEFAULT_MAX_OBJECTS = 10_000_000
"""Files below a folder that is referred to, as the peer has it."""
MAX_IN_MEMORY_BYTES = 256 * 1024 * 1024
"""What `new_file` may write before there is a run whose directory could hold it."""
_AZURE_HOST = ".blob.core.windows.net"


class Content(NamedTuple):
    """An entry, and its bytes where they lie nowhere yet."""

    entry: ManifestEntry
    data: bytes | None = None


class Manifest:
    """The contents of an artifact as a mapping, for reading."""

    def __init__(self, contents: Mapping[str, Content]) -> None:
        self._contents = contents

    @property
    def entries(self) -> dict[str, ManifestEntry]:
        """Path in the artifact -> entry; a copy."""
        return {path: content.entry for path, content in self._contents.items()}

    def digest(self) -> str:
        """The MD5 of names and digests, hexadecimal: equal for equal contents."""
        return manifest_digest(content.entry for content in self._contents.values())

    def size(self) -> int:
        """Bytes of all contents, references included as far as their size is known."""
        return sum(content.entry.size or 0 for content in self._contents.values())

    def get_entry_by_path(self, path: str) -> ManifestEntry | None:
        """The entry of that path, or None."""
        content = self._contents.get(path)
        return content and content.entry

    def get_entries_in_directory(self, directory: str) -> list[ManifestEntry]:
        """The entries below a folder of the artifact."""
        return [content.entry for path, content in self._contents.items() if path.startswith(f"{directory}/")]

    def __len__(self) -> int:
        return len(self._contents)


class MemoryFile(io.BytesIO):
    """A file in memory, up to a bound."""

    def write(self, data: Any, /) -> int:
        """As the base class; OSError beyond the bound."""
        if self.tell() + len(data) > MAX_IN_MEMORY_BYTES:
            raise OSError(f"new_file holds {MAX_IN_MEMORY_BYTES} bytes at most before there is a run: call init first")
        return super().write(data)

    def writelines(self, lines: Iterable[Any], /) -> None:
        """As the base class; OSError beyond the bound."""
        for line in lines:
            self.write(line)


def logical_path(name: str | os.PathLike[str]) -> str:
    """A name in an artifact: relative, normalised, with forward slashes.

    What of a file name is no Unicode (a byte 0xFF, say) becomes `%FF`, because no manifest can hold it.

    Raises:
        ValueError: the name is absolute or leads out.
    """
    text = os.fspath(name)
    try:
        text.encode()
    except UnicodeEncodeError:
        text = "".join(f"%{ord(char) & 0xFF:02X}" if 0xD800 <= ord(char) < 0xE000 else char for char in text)
    if os.sep == "\\":
        text = text.replace("\\", "/")
    try:
        return safe_relative(text)
    except ValueError as error:
        raise ValueError(f"no name for a file: {error}") from None


def md5_of(path: Path) -> tuple[bytes, int]:
    """The MD5 digest (16 bytes) of a file, and its size in bytes.

    Raises:
        OSError: it cannot be read.
    """
    digest = hashlib.md5(usedforsecurity=False)
    size = hash_file(path, digest)
    return digest.digest(), size


def take_file(path: Path, files: RunFiles | None, failed: Callable[[Path, OSError], None]) -> tuple[bytes, int, Path]:
    """A file for an artifact: its MD5 digest, its size, and where its bytes lie from now on.

    Args:
        path: the file.
        files: of the run that is going on, which gets a copy; None leaves the file where it is.
        failed: told why there is no copy; the file is then used where it is.

    Raises:
        OSError: the file cannot be read.
    """
    if files is not None:
        try:
            kept = files.keep(path)
        except OSError as error:
            found = md5_of(path)  # where it cannot be read, that is what is wrong, and not the run's directory
            failed(path, error)
            return (*found, path.absolute())
        return kept.md5, kept.size, kept.path
    return (*md5_of(path), path.absolute())


def bring_home(
    content: Content, files: RunFiles, failed: Callable[[Path, OSError], None]
) -> tuple[ManifestEntry, bool]:
    """The entry with its bytes in the run's directory, and whether they are what they were when they were added.

    Args:
        content: of an artifact.
        files: of the run that logs it.
        failed: told why the bytes are not there; the entry then says where they were.
    """
    entry = content.entry
    path = Path(entry.local_path or entry.path)
    if entry.ref:
        return entry, True
    try:
        if path.is_relative_to(files.directory / "artifacts"):
            return entry, True
        kept = files.keep(path if content.data is None else content.data)
    except OSError as error:
        failed(path, error)
        return entry, True
    digest = base64_md5(kept.md5)
    return entry._replace(digest=digest, size=kept.size, local_path=str(kept.path)), digest == entry.digest


def walk(
    root: Path, skipped: Callable[[Path, str], None], *, follow: bool = True, but: Path | None = None
) -> Iterator[tuple[Path, str]]:
    """The files below a folder with their paths relative to it, by name, and before those deeper down.

    Args:
        root: the folder.
        skipped: told what is left out, and why: links into a folder above them, broken links, pipes and devices.
        follow: links to folders are followed too.
        but: a folder below that is left out.

    Raises:
        OSError: one of the two folders cannot be read.
    """
    left_out = None if but is None else _identity(but.stat())
    os.scandir(root).close()
    folders = [(root, "", [_identity(root.stat())])]
    while folders:
        folder, below, above = folders.pop()
        try:
            names = sorted(os.listdir(folder))  # noqa: PTH208 - names, not paths
        except OSError as error:
            skipped(folder, error.strerror or str(error))
            continue
        inner = []
        for name in names:
            path, relative = folder / name, f"{below}{name}"
            try:
                status = path.stat()
            except OSError as error:
                skipped(path, error.strerror or str(error))
                continue
            if stat.S_ISREG(status.st_mode):
                yield path, relative
            elif not stat.S_ISDIR(status.st_mode):
                skipped(path, "it is not a file")
            elif not follow and path.is_symlink():
                skipped(path, "it is a link to a folder")
            elif (here := _identity(status)) in above:
                skipped(path, "it leads back into a folder above it")
            elif here == left_out:
                skipped(path, "the run itself lies there")
            else:
                inner.append((path, f"{relative}/", [*above, here]))
        folders.extend(reversed(inner))


def _identity(status: os.stat_result) -> tuple[int, int]:
    return status.st_dev, status.st_ino


# -- references ------------------------------------------------------------------------------------------------------


def references(
    uri: str, name: str | None, *, checksum: bool, max_objects: int | None, skipped: Callable[[Path, str], None]
) -> list[ManifestEntry]:
    """The entries for what a URI stands for.

    Files (`file://`) are hashed. Everything else is beyond a network that is not there: its URI stands in for its
    digest, as it does in the peer with `checksum=False`, and a bucket's folder is one entry.

    Args:
        uri: with a scheme.
        name: the path in the artifact; what the URI ends with unless given.
        checksum: read the files; without, the digest is made from the path alone.
        max_objects: files below a folder, at most.
        skipped: told what is left out of a folder, and why.

    Raises:
        OSError: a file cannot be read.
        ValueError: no scheme, no such file, too many of them, or a scheme that gives no name.
    """
    url = urlsplit(uri)
    if not url.scheme:
        raise ValueError(f"{uri!r} is not a URI; a file is referred to as file:///...")
    if url.scheme == "file":
        return _file_references(uri, name, checksum, max_objects or DEFAULT_MAX_OBJECTS, skipped)
    azure = url.scheme == "https" and (url.hostname or "").endswith(_AZURE_HOST)
    if url.scheme in {"s3", "gs"} or azure:
        # What stands behind ? and # says which version; it is no part of the object's name.
        key = url.path.lstrip("/")
        uri = f"{url.scheme}://{url.netloc}/{key}"
        default = key.partition("/")[2] if azure else key or url.netloc
    elif url.scheme in {"http", "https"}:
        default = uri.rpartition("/")[2]
    elif name is None:
        raise ValueError(f"{uri!r}: what it is called in the artifact does not follow from it; give a name")
    else:
        default = ""
    return [ManifestEntry(logical_path(name or default), uri, ref=uri)]


def _file_references(
    uri: str, name: str | None, checksum: bool, most: int, skipped: Callable[[Path, str], None]
) -> list[ManifestEntry]:
    root = Path(url2pathname(uri.removeprefix("file://")))

    def entry(path: Path, logical: str, ref: str) -> ManifestEntry:
        if not checksum:
            digest = hashlib.md5(path.resolve().as_uri().encode(), usedforsecurity=False).digest()
            return ManifestEntry(logical_path(logical), base64_md5(digest), path.stat().st_size, ref)
        digest, size = md5_of(path)
        return ManifestEntry(logical_path(logical), base64_md5(digest), size, ref)

    if root.is_file():
        return [entry(root, name or root.name, uri)]
    if not root.is_dir():
        raise ValueError(f"{uri!r}: there is no such file or folder")
    entries: list[ManifestEntry] = []
    for path, relative in walk(root, skipped, follow=False):  # as the peer's references
        if len(entries) >= most:
            raise ValueError(f"{uri!r} has more than {most} files; max_objects allows more")
        entries.append(entry(path, str(PurePosixPath(name or "") / relative), f"{uri.rstrip('/')}/{relative}"))
    return entries


def short_name(name: str, digest: bytes) -> str:
    """A name that follows from the content: its last part's beginning becomes 20 digits of the MD5."""
    path = PurePosixPath(name)
    _, dot, rest = path.name.partition(".")
    return str(path.with_name(f"{digest.hex()[:20]}{dot}{rest}"))
