"""Contents of artifacts that lie outside of the run's directory, where the peer stages them: they travel with the run.

They go into the bundle as `<run>/artifacts/<MD5>`, where our own writer puts them and a sync looks first. A log may come from
somebody else, so the rules are a sync's: a path that is absolute and written out, a regular file and no link at its end, and
bytes whose MD5 the log gives; of several MD5s for one path only the latest is looked at.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
from collections.abc import Collection, Iterator
from pathlib import Path
from typing import NamedTuple

from ..logformat import Record, WireError
from .snapshot import open_file

_PIECE = 1 << 20
_LONGEST = 120  # characters of a name in a reason


class Staged(NamedTuple):
    """A content that a log names outside of its directory."""

    name: str
    """Below `artifacts/`: its MD5 in hex."""
    path: Path
    problem: str
    """Why it cannot be packed; empty if it can."""


class _Wanted(NamedTuple):
    artifact: str
    path: str
    size: int


class Claims:
    """What the artifacts in a log list."""

    def __init__(self) -> None:
        self._wanted: dict[str, list[_Wanted]] = {}
        self._latest: dict[str, str] = {}  # path -> MD5
        self._lists: dict[str, str] = {}

    def note(self, record: Record) -> None:
        """Take an artifact record, in the order of the log."""
        try:
            artifact = record.message()
        except WireError:
            return
        if path := artifact.manifest.manifest_file_path:
            self._lists.setdefault(Path(path).name, artifact.name)
        for content in artifact.manifest.contents:
            try:
                md5 = base64.b64decode(content.digest, validate=True)
            except (binascii.Error, ValueError):
                continue
            if content.local_path and len(md5) == hashlib.md5(usedforsecurity=False).digest_size:
                self._latest[content.local_path] = md5.hex()
                wanted = _Wanted(artifact.name, content.local_path, content.size)
                self._wanted.setdefault(md5.hex(), []).append(wanted)

    def outside(self, folder: Path, here: Collection[str]) -> Iterator[Staged]:
        """What is listed beyond the contents that are `here`, by their MD5, in the order of that; `folder` is the run's."""
        for name in sorted(self._lists.keys() - {*here}):
            artifact = self._lists[name][:_LONGEST]
            yield Staged(name, folder, f"the list of contents of artifact {artifact} lies outside of the run directory")
        for md5 in sorted(self._wanted.keys() - {*here}):
            places = self._wanted[md5]
            if any(Path(content.path).is_relative_to(folder / "files") for content in places):
                continue  # a sync finds it there by its MD5
            problem, path = "", folder
            for content in places:
                path = Path(content.path)
                is_latest = self._latest[content.path] == md5
                problem = _problem(path, md5, content.size) if is_latest else "it has changed since"
                if not problem:
                    break
            yield Staged(md5, path, problem and f"a content of artifact {places[0].artifact[:_LONGEST]}: {problem}")


def _problem(path: Path, md5: str, size: int) -> str:
    if not path.is_absolute() or ".." in path.parts or "\0" in str(path):
        return "missing"
    digest = hashlib.md5(usedforsecurity=False)
    try:
        with open_file(path, path) as file:
            while data := file.read(_PIECE):
                digest.update(data)
                if size and file.tell() > size:
                    return "it has changed since"
    except OSError as error:
        return "missing" if isinstance(error, FileNotFoundError) else f"cannot be read: {error.strerror}"
    return "" if digest.hexdigest() == md5 else "it has changed since"
