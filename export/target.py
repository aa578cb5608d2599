"""Where an export goes: a folder, a place that fsspec opens, or standard output.

A file appears under its name when all of it is there: it is written beside, and renamed. To another store it is sent once it is
complete on this machine.
"""

from __future__ import annotations

import os
import secrets
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, BinaryIO, Protocol
from urllib.parse import urlsplit

from .runs import ExportError

_BUFFER = 1 << 20


class Target(Protocol):
    """A place for files, each by a name with slashes in it."""

    def shown(self, name: str) -> str:
        """What a file is called for the user."""

    def exists(self, name: str) -> bool:
        """Whether a file of that name is there."""

    def writing(self, name: str) -> Any:
        """A context with a binary file that is put in its place when the context ends well."""


def target_of(out: str | os.PathLike[str]) -> Target:
    """The folder or store that is named.

    Raises:
        ExportError: fsspec is not installed, or does not know such a place.
    """
    return Store(out) if isinstance(out, str) and "://" in out else Folder(Path(out))


class Folder:
    """A folder of this machine; it need not be there yet."""

    def __init__(self, root: Path) -> None:
        self._root = root

    def shown(self, name: str) -> str:
        """See `Target`."""
        return str(self._root / name)

    def exists(self, name: str) -> bool:
        """See `Target`."""
        return os.path.lexists(self._root / name)

    @contextmanager
    def writing(self, name: str) -> Iterator[BinaryIO]:
        """See `Target`. Raises OSError, which names the file."""
        place = self._root / name
        place.parent.mkdir(parents=True, exist_ok=True)
        part = place.with_name(f".{place.name}.{secrets.token_hex(4)}.part")
        try:
            with part.open("xb", buffering=_BUFFER) as file:
                yield file
            part.replace(place)
        except BaseException:
            with suppress(OSError):
                part.unlink()
            raise


class Store:
    """A place that fsspec opens. Its errors are told by their type alone: their texts may hold credentials."""

    def __init__(self, url: str) -> None:
        parts = urlsplit(url)
        self._shown = f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}{parts.path}".rstrip("/")
        try:
            from fsspec.core import url_to_fs
        except ImportError:
            raise ExportError(f"{self._shown}: to write there takes fsspec: install runferry with [remote]") from None
        try:
            self._system, root = url_to_fs(url)
        except (ImportError, ValueError) as error:
            raise ExportError(f"{self._shown}: no such place is known ({type(error).__name__})") from None
        self._root = str(root).rstrip("/")

    def shown(self, name: str) -> str:
        """See `Target`."""
        return f"{self._shown}/{name}"

    def exists(self, name: str) -> bool:
        """See `Target`. Raises ExportError."""
        return bool(self._call(name, self._system.exists, f"{self._root}/{name}"))

    @contextmanager
    def writing(self, name: str) -> Iterator[BinaryIO]:
        """See `Target`. Raises ExportError."""
        with tempfile.TemporaryDirectory(prefix="runferry-") as folder:
            part = Path(folder, "part")
            with part.open("xb", buffering=_BUFFER) as file:
                yield file
            self._call(name, self._system.put_file, str(part), f"{self._root}/{name}")

    def _call(self, name: str, work: Any, *arguments: Any) -> Any:
        try:
            return work(*arguments)
        except Exception as error:  # each store has errors of its own
            raise ExportError(f"{self.shown(name)}: cannot be written: {type(error).__name__}") from None


class Output:
    """Standard output: one file."""

    def __init__(self, file: BinaryIO) -> None:
        self._file = file

    def shown(self, name: str) -> str:  # noqa: ARG002 - the port's
        """See `Target`."""
        return "-"

    def exists(self, name: str) -> bool:  # noqa: ARG002 - the port's
        """See `Target`."""
        return False

    @contextmanager
    def writing(self, name: str) -> Iterator[BinaryIO]:  # noqa: ARG002 - the port's
        """See `Target`."""
        yield self._file
        self._file.flush()
