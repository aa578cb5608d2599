"""Artifacts as the log has them: the manifest, its digest, and the record.

An artifact is a set of named contents. Its digest is the MD5 of the sorted names and the digests of what they stand
for, so the same contents give the same digest wherever they are logged, and a backend keeps one version of them.
"""

from __future__ import annotations

import base64
import gzip
import hashlib
import json
import os
import re
import zlib
from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

from .encoding import to_json, utf8
from .records import integer, message, text

MAX_NAME_CHARACTERS = 128
MAX_INLINE_ENTRIES = 100_000
"""A larger manifest lies in a file of its own, as the peer has it: no reader takes a record of any size."""

_DIGEST_HEADER = b"wandb-artifact-manifest-v1\n"
_STORAGE_POLICY = "wandb-storage-policy-v1"
_STORAGE_LAYOUT = ("storageLayout", "V2")
_CLIENT_ID_CHARACTERS = "0123456789abcdefghijklmnopqrstuvwxyz"
_CLIENT_ID_LENGTH = 128
_NOT_IN_NAMES = re.compile(r"[^a-zA-Z0-9_\-.]")


class ManifestEntry(NamedTuple):
    """One content of an artifact.

    Attributes:
        path: its name in the artifact, relative, with forward slashes.
        digest: base64 of the MD5 of its bytes; of a reference, whatever tells one version from another.
        size: bytes; None where it is not known.
        ref: the URI of a content that stays where it is; empty for a file.
        local_path: absolute, where the bytes lie on this machine; empty for a reference.
        skip_cache: readers need not keep a copy.
        extra: further facts of a reference, such as its version.
    """

    path: str
    digest: str
    size: int | None = None
    ref: str = ""
    local_path: str = ""
    skip_cache: bool = False
    extra: Mapping[str, Any] = {}


def base64_md5(digest: bytes) -> str:
    """An MD5 digest (16 bytes) as manifests have it."""
    return base64.b64encode(digest).decode()


def manifest_digest(entries: Iterable[ManifestEntry]) -> str:
    """The digest of an artifact with these contents, hexadecimal; their order plays no role."""
    hasher = hashlib.md5(_DIGEST_HEADER, usedforsecurity=False)
    for entry in sorted(entries, key=_path_of):
        hasher.update(utf8(f"{entry.path}:{entry.digest}\n"))
    return hasher.hexdigest()


def _path_of(entry: ManifestEntry) -> str:
    return entry.path


def new_client_id() -> str:
    """An artifact's id until a backend gives it one: no seeding of random numbers, and no fork, repeats it."""
    number = int.from_bytes(os.urandom(96), "big")  # 768 bits on 662: the bias of the remainder is beyond measure
    letters = []
    for _ in range(_CLIENT_ID_LENGTH):
        number, digit = divmod(number, len(_CLIENT_ID_CHARACTERS))
        letters.append(_CLIENT_ID_CHARACTERS[digit])
    return "".join(letters)


def internal_name(name: str) -> str:
    """The name of an artifact that is made from a key or a path: what names do not take is left out of it.

    A checksum of the whole tells apart what would become the same; this is the peer's rule, so names are equal too.
    """
    cleaned = _NOT_IN_NAMES.sub("", name)
    if cleaned == name:
        return name
    checksum = zlib.crc32(name.encode("utf-8", "replace")).to_bytes(4, "big")
    return f"{cleaned}-{base64.urlsafe_b64encode(checksum).rstrip(b'=').decode()}"


def artifact_body(
    *,
    run_id: str,
    project: str,
    entity: str,
    name: str,
    type_: str,
    entries: Iterable[ManifestEntry],
    digest: str = "",
    description: str = "",
    metadata: Mapping[str, Any] | None = None,
    aliases: Iterable[str] = ("latest",),
    tags: Iterable[str] = (),
    client_id: str = "",
    sequence_client_id: str = "",
    base_id: str = "",
    distributed_id: str = "",
    finalize: bool = True,
    ttl_s: int = 0,
    incremental: bool = False,
    user_created: bool = False,
    use_after_commit: bool = False,
    manifest_file: str = "",
) -> bytes:
    """The record of an artifact that the run made.

    Args:
        run_id: the run's id.
        project: the run's project.
        entity: the run's entity, or nothing.
        name: the artifact's name; versions of one name make a sequence.
        type_: what it is, such as "dataset".
        entries: the contents.
        digest: of the contents; computed unless given.
        description: free text.
        metadata: JSON values.
        aliases: names of this version.
        tags: labels of this version.
        client_id: this version's id until there is a backend; a new one unless given.
        sequence_client_id: the same for the sequence.
        base_id: the version that it was made from.
        distributed_id: what several processes have in common that fill one version.
        finalize: the version is complete with this record.
        ttl_s: seconds that the version is to be kept; 0: for good.
        incremental: the contents are added to those of the version before.
        user_created: it is no output of the run.
        use_after_commit: it is an input of the run.
        manifest_file: where the contents are listed instead (see `manifest_lines`), absolute.
    """
    contents = sorted(entries, key=_path_of)
    return message(
        8,
        text(1, run_id)
        + text(2, project)
        + text(3, entity)
        + text(4, type_)
        + text(5, name)
        + text(6, digest or manifest_digest(contents))
        + text(7, description)
        + (message(8, to_json(metadata)) if metadata else b"")
        + integer(9, user_created)
        + integer(10, use_after_commit)
        + b"".join(text(11, alias) for alias in aliases)
        + message(12, _manifest(contents, manifest_file))
        + text(13, distributed_id)
        + integer(14, finalize)
        + text(15, client_id or new_client_id())
        + text(16, sequence_client_id or new_client_id())
        + text(17, base_id)
        + integer(18, ttl_s)
        + b"".join(text(19, tag) for tag in tags)
        + text(20, "MANIFEST_MD5")
        + integer(100, incremental),
    )


def _manifest(contents: Iterable[ManifestEntry], manifest_file: str) -> bytes:
    opening = integer(1, 1) + text(2, _STORAGE_POLICY)
    if manifest_file:
        return opening + text(5, manifest_file)
    key, layout = _STORAGE_LAYOUT
    return opening + message(3, _item(key, layout)) + b"".join(message(4, _entry(entry)) for entry in contents)


def _entry(entry: ManifestEntry) -> bytes:
    return (
        text(1, entry.path)
        + text(2, entry.digest)
        + text(3, entry.ref)
        + integer(4, entry.size or 0)
        + text(6, entry.local_path)
        + integer(8, entry.skip_cache)
        + b"".join(message(16, _item(key, value)) for key, value in entry.extra.items())
    )


def _item(key: str, value: Any) -> bytes:
    return text(1, key) + message(2, to_json(value))


def manifest_lines(entries: Iterable[ManifestEntry]) -> bytes:
    """The contents for a file beside the log: gzip, one JSON object per line. The same entries give the same bytes."""
    lines = (json.dumps(_line(entry)) for entry in sorted(entries, key=_path_of))
    return gzip.compress("".join(f"{line}\n" for line in lines).encode(), compresslevel=1, mtime=0)


def _line(entry: ManifestEntry) -> dict[str, Any]:
    fields: dict[str, Any] = {"path": entry.path, "digest": entry.digest}
    if entry.ref:
        fields["ref"] = entry.ref
    if entry.size is not None:
        fields["size"] = entry.size
    if entry.extra:
        fields["extra"] = dict(entry.extra)
    if entry.local_path:
        fields["local_path"] = entry.local_path
    if entry.skip_cache:
        fields["skip_cache"] = True
    return fields
