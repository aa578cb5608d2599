"""The manifest: what is in a bundle, as JSON of one line per file. The last member, so that a running job is packed in one pass.

    {"format": "runferry bundle", "version": 1, "by": "runferry 0.1.0", "files": [
    {"name": "run-x/run-x.wandb", "size": 123, "mtime": 1790000000, "sha256": "..", "log": {"run": "x", "entity": "", "project":
    "p", "records": 9, "end": 123, "cut": 0, "gaps": 0, "exit": 0}},
    ..], "left_out": [{"name": "run-x/files/w.pt", "reason": ".."}]}

`mtime` is in whole seconds. Of a log, `end` is the offset behind its last record, `cut` the bytes of a record behind it that was not
complete yet and stayed out, `gaps` how many places could not be read, `exit` the exit code, null as long as there is none.
No time of packing, no host, no path of this machine: the same files make the same manifest. It is read line by line, so what JSON
can grow to in memory is bounded by a line.
"""

from __future__ import annotations

import io
import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from .. import __version__
from .errors import BundleError
from .names import clash, why_unsafe
from .tar import LATEST

NAME = "runferry-manifest.json"
"""Of the member; files of runs lie in folders, or end in `.wandb`, so none is called so."""
MAX_SIZE = 64 * 1024 * 1024
"""Bytes of a manifest, at most: some 300,000 files."""
VERSION = 1
_FORMAT = "runferry bundle"
_SHA256 = re.compile(r"[0-9a-f]{64}")
_LARGEST = 1 << 62
_LONGEST_TEXT = 8192  # characters
_LONGEST_LINE = (
    256 * 1024
)  # bytes: two such texts, with each character as the escapes of two surrogates, and what is around them


@dataclass(frozen=True, slots=True)
class LogFacts:
    """What a log holds as it was packed."""

    run: str
    entity: str
    project: str
    records: int
    end: int
    """Offset behind the last complete record."""
    cut: int
    """Bytes of a record behind it that was not complete, and is not in the bundle."""
    gaps: int
    """Places that could not be read."""
    exit: int | None
    """The exit code; None if there is no exit record."""


@dataclass(frozen=True, slots=True)
class Entry:
    """A file in the bundle."""

    name: str
    size: int
    mtime: int
    """Whole seconds since the epoch."""
    sha256: str
    log: LogFacts | None = None
    changed: bool = False
    """It changed while it was read: its bytes are from more than one moment."""


@dataclass(frozen=True, slots=True)
class LeftOut:
    """A file that is not in the bundle, and why."""

    name: str
    reason: str


@dataclass(frozen=True, slots=True)
class Manifest:
    """What a bundle holds, in the order of its members."""

    files: tuple[Entry, ...]
    left_out: tuple[LeftOut, ...] = ()
    by: str = f"runferry {__version__}"

    def encoded(self) -> bytes:
        """As it is packed.

        Raises:
            BundleError: it is too large for any reader.
        """
        head = json.dumps({"format": _FORMAT, "version": VERSION, "by": self.by})[:-1]
        files = ",".join(f"\n{json.dumps(document(entry))}" for entry in self.files)
        left = ",".join(f"\n{json.dumps({'name': out.name, 'reason': out.reason})}" for out in self.left_out)
        # Names that are not UTF-8 have lone surrogates, which only the escapes of ASCII can say.
        data = f'{head}, "files": [{files}\n], "left_out": [{left}\n]}}\n'.encode("ascii")
        if len(data) > MAX_SIZE:
            raise BundleError(f"too many files ({len(self.files)}) for one bundle: pack fewer runs at a time")
        return data

    @classmethod
    def decoded(cls, data: bytes) -> Manifest:
        """What an untrusted manifest says; every name in it is safe, and there once.

        Raises:
            BundleError: it is none, or would lead out of the folder.
        """
        lines = _Lines(data)
        document = lines.head()
        if not isinstance(document, dict) or document.get("format") != _FORMAT:
            raise BundleError("its manifest is not that of a bundle")
        if document.get("version") != VERSION:
            raise BundleError(f"a bundle of version {document.get('version')!r}: a newer runferry reads it")
        try:
            files = tuple(map(_entry, lines.items()))
            left_out = tuple(LeftOut(_text(out["name"]), _text(out["reason"])) for out in lines.items())
            by = _text(document.get("by", ""))
        except (KeyError, TypeError, ValueError, RecursionError):
            raise BundleError("its manifest lacks something, or says it in another form") from None
        for entry in files:
            if problem := why_unsafe(entry.name):
                raise BundleError(f"refused: its manifest names {entry.name[:120]!r} ({problem})")
        if name := clash(entry.name for entry in files):
            raise BundleError(f"refused: its manifest names {name[:120]!r} twice")
        return cls(files, left_out, by)


class _Lines:
    """The lines of an untrusted manifest: a head, files, and what was left out."""

    def __init__(self, data: bytes) -> None:
        self._lines = io.BytesIO(data)

    def _next(self) -> bytes:
        return self._lines.readline(_LONGEST_LINE).strip()

    def head(self) -> Any:
        """What stands before the files.

        Raises:
            BundleError: that is no JSON.
        """
        try:
            return json.loads(self._next() + b"]}")
        except (ValueError, RecursionError):
            raise BundleError("its manifest is no JSON") from None

    def items(self) -> Iterator[Any]:
        """The objects of one list, each as it is reached.

        Raises:
            ValueError: one is no JSON, or the list does not end.
            RecursionError: one is nested without end.
        """
        while not (line := self._next()).startswith(b"]"):
            yield json.loads(line.removesuffix(b","))


def document(entry: Entry) -> dict[str, Any]:
    """A file as the manifest has it."""
    found: dict[str, Any] = {
        "name": entry.name,
        "size": entry.size,
        "mtime": entry.mtime,
        "sha256": entry.sha256,
    }
    if entry.log is not None:
        names = ("run", "entity", "project", "records", "end", "cut", "gaps", "exit")
        found["log"] = {name: getattr(entry.log, name) for name in names}
    if entry.changed:
        found["changed"] = True
    return found


def _entry(document: Any) -> Entry:
    sha256 = _text(document["sha256"])
    if not _SHA256.fullmatch(sha256):
        raise ValueError(sha256)
    log = document.get("log")
    return Entry(
        _text(document["name"]),
        _number(document["size"]),
        _number(document["mtime"], most=LATEST),
        sha256,
        None if log is None else _facts(log),
        document.get("changed") is True,
    )


def _facts(log: Any) -> LogFacts:
    exit_code = log["exit"]
    if exit_code is not None:
        _number(-exit_code if exit_code < 0 else exit_code)
    run, entity, project = (_text(log[name]) for name in ("run", "entity", "project"))
    records, end, cut, gaps = (_number(log[name]) for name in ("records", "end", "cut", "gaps"))
    return LogFacts(run, entity, project, records, end, cut, gaps, exit_code)


def _text(value: Any) -> str:
    if not isinstance(value, str) or len(value) > _LONGEST_TEXT:
        raise ValueError("no text")
    return value


def _number(value: Any, most: int = _LARGEST) -> int:
    if type(value) is not int or not 0 <= value <= most:
        raise ValueError("no number")
    return value
