"""The contents of an artifact as its record lists them, and the manifest that a server gets of them.

A record holds the list itself, or names a file that does (gzip, one JSON object per line), which may have millions of
entries: it is read as a stream, as often as it is needed. Everything here comes from the log, so none of it is trusted.
The digest of an artifact goes over its paths in their order; the peer's lists are in the order in which files were added.
"""

from __future__ import annotations

import base64
import binascii
import gzip
import hashlib
import json
import tempfile
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import PurePosixPath
from typing import IO, Any, BinaryIO, NamedTuple

from .errors import Permanent
from .localfiles import Shared, UnsafeFileError

DIGEST_ALGORITHM = "MANIFEST_MD5"
POLICY = "wandb-storage-policy-v1"
LAYOUTS = ("V2", "V1")
"""Of the server's storage, the one to take without a word first."""

_HEADER = b"wandb-artifact-manifest-v1\n"
_LONGEST_LINE = 64 * 1024  # bytes of an entry
_MOST_ENTRIES = 10_000_000
_MOST_SORTED = 512 * 1024 * 1024  # bytes of paths and digests of a list that is not in order
_IN_MEMORY = 4 * 1024 * 1024  # bytes of a manifest that need no temporary file
_UNREADABLE = (OSError, EOFError, zlib.error, ValueError, RecursionError)


class Entry(NamedTuple):
    """One content of an artifact."""

    path: str
    digest: str
    """Base64 of the MD5 of its bytes; of a reference, whatever tells its versions apart."""
    size: int | None = None
    """Bytes; None where the log does not say."""
    ref: str = ""
    """The URI of what stays where it is."""
    local_path: str = ""
    """Where its writer had the bytes."""
    birth: str = ""
    """The artifact at the server that has it already."""
    mimetype: str = ""
    skip_cache: bool = False
    extra: Mapping[str, Any] = {}

    @property
    def is_file(self) -> bool:
        """Whether its bytes are to be brought to the server."""
        return bool(self.local_path) or not (self.ref or self.birth)

    @property
    def md5(self) -> bytes:
        """The digest of a file's bytes.

        Raises:
            UnsafeFileError: it is none.
        """
        try:
            md5 = base64.b64decode(self.digest, validate=True)
        except (binascii.Error, ValueError):
            md5 = b""
        if len(md5) != 16:
            raise UnsafeFileError("its digest is no MD5")
        return md5


Entries = Callable[[], Iterator[Entry]]
"""Gives the entries from the first one, in the same order each time it is called."""


def listed(manifest: Any) -> Entries:
    """The entries that an ArtifactManifest message holds.

    Raises:
        Permanent: two have one path, or one leads out of the artifact.
    """
    entries = sorted((_of_message(item) for item in manifest.contents), key=_path_of)
    check(entries)
    return lambda: iter(entries)


def listed_in(open_list: Callable[[], BinaryIO], digest: str) -> Entries:
    """The entries of a list file, if they are those of an artifact with this digest (hex).

    Raises:
        Permanent: it is no such list, or it is another artifact's.
        OSError: it cannot be read.
    """
    in_order, last, hasher = True, "", hashlib.md5(_HEADER, usedforsecurity=False)
    for entry in _lines_of(open_list):
        check([entry])
        in_order = in_order and entry.path > last
        last = entry.path
        hasher.update(_digest_line(entry))
    found = hasher.hexdigest() if in_order else _digest_when_sorted(_lines_of(open_list))
    if found != digest:
        raise Permanent("its list of contents is another one's (the digests differ)", status=0)
    return lambda: _lines_of(open_list)


def check(entries: Iterable[Entry]) -> None:
    """Refuse entries that would fall on each other, or outside, where the artifact is downloaded; they are sorted by path.

    Raises:
        Permanent: names one.
    """
    before = None
    for entry in entries:
        path = PurePosixPath(entry.path)
        if path.is_absolute() or ".." in path.parts or not path.parts or "\0" in entry.path:
            raise Permanent(f"its entry {entry.path[:120]!r} leads out of it", status=0)
        try:
            f"{entry.path}{entry.digest}{entry.mimetype}".encode()
        except UnicodeEncodeError:
            raise Permanent(f"its entry {entry.path[:120]!r} is no text", status=0) from None
        if entry.path == before:
            raise Permanent(f"its entry {entry.path[:120]!r} is there twice", status=0)
        before = entry.path


def digest_of(entries: Iterable[Entry]) -> str:
    """The digest (hex) of an artifact with these entries, which come in the order of their paths."""
    hasher = hashlib.md5(_HEADER, usedforsecurity=False)
    for entry in entries:
        hasher.update(_digest_line(entry))
    return hasher.hexdigest()


def layout_of(manifest: Any) -> str:
    """The storage layout that a record asks for."""
    for item in manifest.storage_policy_config:
        if item.key == "storageLayout":
            value = _json_or_none(item.value_json)
            return value if value in LAYOUTS else LAYOUTS[0]
    return LAYOUTS[0]


class ManifestFile:
    """A manifest while it is written: entries in the order of their paths, no word of where the bytes lay.

    The same entries give the same bytes. A large one goes through a temporary file.
    """

    def __init__(self, layout: str) -> None:
        self._file: IO[bytes] = tempfile.SpooledTemporaryFile(_IN_MEMORY)  # noqa: SIM115 - lives until `close`
        self._hasher = hashlib.md5(usedforsecurity=False)
        self._entries = 0
        self.size = 0
        opening = {"version": 1, "storagePolicy": POLICY, "storagePolicyConfig": {"storageLayout": layout}}
        self._write(json.dumps(opening, separators=(",", ":"))[:-1] + ',"contents":{')

    def add(self, entry: Entry, birth: str) -> None:
        """Append an entry whose bytes lie at the artifact `birth` (empty for a reference)."""
        fields: dict[str, Any] = {"digest": entry.digest}
        if entry.size is not None:
            fields["size"] = entry.size
        if birth:
            fields["birthArtifactID"] = birth
        if entry.ref:
            fields["ref"] = entry.ref
        if entry.extra:
            fields["extra"] = dict(entry.extra)
        if entry.skip_cache:
            fields["skip_cache"] = True
        text = json.dumps(fields, separators=(",", ":"))
        self._write(f"{',' if self._entries else ''}{json.dumps(entry.path)}:{text}")
        self._entries += 1

    def end(self) -> None:
        """The last entry is there."""
        self._write("}}")

    @property
    def md5(self) -> bytes:
        """Of what was written so far."""
        return self._hasher.digest()

    def open(self) -> BinaryIO:
        """The bytes from the start; read by one upload at a time, and left open by it."""
        return Shared(self._file)

    def open_at(self, start: int) -> BinaryIO:
        """The same from further on."""
        file = Shared(self._file)
        self._file.seek(start)
        return file

    def close(self) -> None:
        """Forget it."""
        self._file.close()

    def _write(self, text: str) -> None:
        data = text.encode("ascii")
        try:
            self._file.write(data)
        except OSError as error:
            raise Permanent(f"no room for its list of contents: {error.strerror or error}", status=0) from error
        self._hasher.update(data)
        self.size += len(data)


def _path_of(entry: Entry) -> str:
    return entry.path


def _of_message(item: Any) -> Entry:
    digest, size = item.digest, max(0, item.size)
    extra = {pair.key: _json_or_none(pair.value_json) for pair in item.extra}
    return Entry(
        item.path,
        digest,
        size,
        item.ref,
        item.local_path,
        item.birth_artifact_id,
        item.mimetype,
        item.skip_cache,
        extra,
    )


def _lines_of(open_list: Callable[[], BinaryIO]) -> Iterator[Entry]:
    """The entries of a list file.

    Raises:
        Permanent: a line is no entry.
    """
    try:
        with open_list() as raw, gzip.open(raw) as lines:
            for _ in range(_MOST_ENTRIES):
                line = lines.readline(_LONGEST_LINE)
                if not line:
                    return
                yield _of_line(json.loads(line, parse_constant=_no_number))
            raise ValueError(f"more than {_MOST_ENTRIES} entries")
    except _UNREADABLE as error:
        raise Permanent(f"its list of contents cannot be read: {error}", status=0) from error


def _of_line(fields: Any) -> Entry:
    texts = ("path", "digest", "ref", "local_path", "birthArtifactID", "mimetype")
    if not isinstance(fields, dict) or not all(isinstance(fields.get(name) or "", str) for name in texts):
        raise ValueError("a line is no entry")
    path, digest, ref, local_path, birth, mimetype = (fields.get(name) or "" for name in texts)
    size, extra = fields.get("size"), fields.get("extra")
    if not isinstance(size, int) or isinstance(size, bool) or size < 0:
        size = None
    skip = fields.get("skip_cache") is True
    return Entry(path, digest, size, ref, local_path, birth, mimetype, skip, extra if isinstance(extra, dict) else {})


def _digest_when_sorted(entries: Iterable[Entry]) -> str:
    """The digest (hex) of an artifact with these entries, in whatever order. Keeps no more of them than it needs.

    Raises:
        Permanent: two have one path, or there are too many.
    """
    lines, size = list[bytes](), 0
    for entry in entries:
        lines.append(
            f"{entry.path}\0{entry.digest}".encode()
        )  # no path holds a NUL, which sorts as the end of a path does
        size += len(lines[-1])
        if size > _MOST_SORTED:
            raise Permanent("its list of contents is too long to be sorted", status=0)
    lines.sort()

    def in_order() -> Iterator[Entry]:
        return (Entry(path, digest) for path, digest in (line.decode().split("\0", 1) for line in lines))

    check(in_order())
    return digest_of(in_order())


def _digest_line(entry: Entry) -> bytes:
    return f"{entry.path}:{entry.digest}\n".encode("utf-8", "replace")


def _json_or_none(text: str) -> Any:
    try:
        return json.loads(text, parse_constant=_no_number)
    except (ValueError, RecursionError):
        return None


def _no_number(_: str) -> None:
    """NaN and infinity, which no JSON of a server may hold, are null."""
