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
from typing import Any, NamedTuple

from ..logformat import WireError
from ..logformat.reader import LogReader
from ..logformat.record import Batch
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


def staged_contents(log: Path, root: Path, here: Collection[str]) -> Iterator[Staged]:
    """What the artifacts in a log hold beyond the contents that are `here`, by their MD5, in the order of that.

    Raises:
        OSError: the log cannot be read.
    """
    wanted: dict[str, list[_Wanted]] = {}
    claims: dict[str, str] = {}
    lists: dict[str, str] = {}
    with open_file(log, root) as file:
        for item in LogReader(file).batches():
            if isinstance(item, Batch):
                for entry in item.entries:
                    if entry[0] == "artifact":
                        _note(item.record_of(entry), wanted, claims, lists)
    for name in sorted(lists.keys() - {*here}):
        yield Staged(
            name, root, f"the list of contents of artifact {lists[name][:_LONGEST]} lies outside of the run directory"
        )
    for md5 in sorted(wanted.keys() - {*here}):
        if any(Path(content.path).is_relative_to(root / "files") for content in wanted[md5]):
            continue  # a sync finds it there by its MD5
        problem = ""
        for content in wanted[md5]:
            path = Path(content.path)
            problem = _problem(path, md5, content.size) if claims[content.path] == md5 else "it has changed since"
            if not problem:
                break
        yield Staged(md5, path, problem and f"a content of artifact {wanted[md5][0].artifact[:_LONGEST]}: {problem}")


def _note(record: Any, wanted: dict[str, list[_Wanted]], claims: dict[str, str], lists: dict[str, str]) -> None:
    """What one artifact record lists."""
    try:
        artifact = record.message()
    except WireError:
        return
    if path := artifact.manifest.manifest_file_path:
        lists.setdefault(Path(path).name, artifact.name)
    for content in artifact.manifest.contents:
        try:
            md5 = base64.b64decode(content.digest, validate=True)
        except (binascii.Error, ValueError):
            continue
        if content.local_path and len(md5) == hashlib.md5(usedforsecurity=False).digest_size:
            claims[content.local_path] = md5.hex()
            wanted.setdefault(md5.hex(), []).append(_Wanted(artifact.name, content.local_path, content.size))


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
