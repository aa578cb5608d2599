"""Where an export goes: a folder, a place that fsspec opens, or standard output.

A file appears under its name when all of it is there: it is written beside, and renamed. To another store it is sent once it is
complete on this machine.
"""

from __future__ import annotations

import os
import secrets
import tempfile
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from io import BufferedWriter, FileIO
from pathlib import Path
from typing import Any, BinaryIO, Protocol
from urllib.parse import urlsplit

from .runs import ExportError

_BUFFER = 1 << 20
_LOGS = (b":W&B", b"\x1f\x8b", b"\x28\xb5\x2f\xfd")
"""How logs, and what is packed with gzip or zstd, begin; no format does."""
_MOST_MAGIC = max(map(len, _LOGS))


class Target(Protocol):
    """A place for files, each by a name with slashes in it."""

    def shown(self, name: str) -> str:
        """What a file is called for the user."""

    def exists(self, name: str) -> bool:
        """Whether a file of that name is there."""

    def holds_log(self, name: str) -> bool:
        """Whether that file is a log, a packed one, or a bundle: such a one is never written over."""

    def writing(self, name: str) -> Any:
        """A context with a binary file that is put in its place when the context ends well."""


def target_of(out: str | os.PathLike[str], sources: Iterable[Path] = ()) -> Target:
    """The folder or store that is named; `sources` are the logs that are exported.

    Raises:
        ExportError: fsspec is not installed, or does not know such a place.
    """
    return Store(out) if isinstance(out, str) and "://" in out else Folder(Path(out), sources)


class Folder:
    """A folder of this machine; it need not be there yet."""

    def __init__(self, root: Path, sources: Iterable[Path] = ()) -> None:
        """`sources` are the logs that are exported."""
        self._root, self._sources = root, frozenset(map(os.path.realpath, sources))

    def shown(self, name: str) -> str:
        """See `Target`."""
        return str(self._root / name)

    def exists(self, name: str) -> bool:
        """See `Target`."""
        return os.path.lexists(self._root / name)

    def holds_log(self, name: str) -> bool:
        """See `Target`."""
        place = self._root / name
        if os.path.realpath(place) in self._sources:
            return True
        with suppress(OSError):
            if place.is_file():
                with place.open("rb") as file:
                    return file.read(_MOST_MAGIC).startswith(_LOGS)
        return False

    @contextmanager
    def writing(self, name: str) -> Iterator[BinaryIO]:
        """See `Target`. Raises OSError, which names the file."""
        place = self._root / name
        place.parent.mkdir(parents=True, exist_ok=True)
        part = place.with_name(f".{place.name}.{secrets.token_hex(4)}.part")
        try:
            with _naming(place):
                raw = _NamedFile(part, place)
            with BufferedWriter(raw, _BUFFER) as file:
                yield file
            with _naming(place):
                part.replace(place)
        except BaseException:
            with suppress(OSError):
                part.unlink()
            raise


class _NamedFile(FileIO):
    """A new file whose errors name the one that it becomes."""

    def __init__(self, part: Path, place: Path) -> None:
        super().__init__(part, "xb")
        self._place = place

    def write(self, data: Any) -> int:
        """See `FileIO`."""
        with _naming(self._place):
            return super().write(data)


@contextmanager
def _naming(what: Path | str) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        error.filename, error.filename2 = str(what), None
        raise


class Store:
    """A place that fsspec opens. Its errors are told by their type alone: their texts may hold credentials."""

    def __init__(self, url: str) -> None:
        parts = urlsplit(url)
        self._shown = f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}{parts.path}".rstrip("/")
        try:
            from fsspec.core import url_to_fs
            from fsspec.registry import known_implementations
        except ImportError:
            raise ExportError(f"{self._shown}: to write there takes fsspec: install runferry with [remote]") from None
        try:
            self._system, root = url_to_fs(url)
        except ImportError:
            hint = known_implementations.get(parts.scheme, {}).get("err", "a package that is not installed")
            raise ExportError(f"{self._shown}: fsspec lacks what opens {parts.scheme}://: {hint}") from None
        except ValueError:
            raise ExportError(f"{self._shown}: no such place is known") from None
        except Exception as error:  # each store has errors of its own
            raise ExportError(f"{self._shown}: cannot be opened: {type(error).__name__}") from None
        self._root = str(root).rstrip("/")

    def shown(self, name: str) -> str:
        """See `Target`."""
        return f"{self._shown}/{name}"

    def exists(self, name: str) -> bool:
        """See `Target`. Raises ExportError."""
        return bool(self._call(name, self._system.exists, f"{self._root}/{name}"))

    def holds_log(self, name: str) -> bool:
        """See `Target`. Raises ExportError."""
        return self.exists(name) and self._call(name, self._head, f"{self._root}/{name}").startswith(_LOGS)

    def _head(self, path: str) -> bytes:
        if not self._system.isfile(path):
            return b""
        found: bytes = self._system.cat_file(path, start=0, end=_MOST_MAGIC)
        return found

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

    def holds_log(self, name: str) -> bool:  # noqa: ARG002 - the port's
        """See `Target`."""
        return False

    @contextmanager
    def writing(self, name: str) -> Iterator[BinaryIO]:  # noqa: ARG002 - the port's
        """See `Target`. Raises OSError."""
        with _naming("standard output"):
            yield self._file
            self._file.flush()
