"""The manifest of an artifact: what it holds, and the digest that says so."""

from __future__ import annotations

import base64
import hashlib
import json
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import orjson

from .filestream import safe_name

MAX_MANIFEST = 128 << 20  # bytes; some half a million entries
DIGEST_ALGORITHM = "MANIFEST_MD5"
CLIENT_REFERENCE = "wandb-client-artifact://"


@dataclass(frozen=True)
class Entry:
    """One path of an artifact.

    `digest` is the base64 MD5 of a file, or what a reference (`ref`, an address) says of itself; `birth` is the id of the
    artifact that brought the bytes, if the client named one; `extra` is JSON text.
    """

    path: str
    digest: str
    size: int
    ref: str | None = None
    birth: str | None = None
    extra: str = "{}"


def parse_manifest(data: bytes) -> list[Entry]:
    """The entries of a manifest file.

    Raises:
        ValueError: says what is wrong with it.
    """
    try:
        document = orjson.loads(data)
    except orjson.JSONDecodeError as error:
        raise ValueError(f"the manifest is not JSON: {error}") from None
    contents = document.get("contents") if isinstance(document, dict) else None
    if not isinstance(contents, dict) or document.get("version") != 1:
        raise ValueError("the manifest is not an object of version 1 with contents")
    return [_entry(path, entry) for path, entry in contents.items()]


def _entry(path: str, entry: Any) -> Entry:
    if not safe_name(path):
        raise ValueError(f"the manifest holds {path!r}, which is no path inside an artifact")
    if not isinstance(entry, dict) or not isinstance(entry.get("digest"), str):
        raise ValueError(f"the manifest gives {path!r} no digest")  # noqa: TRY004 - one type for all that is wrong
    size, ref, birth, extra = (entry.get(name) for name in ("size", "ref", "birthArtifactID", "extra"))
    if not all(value is None or isinstance(value, str) for value in (ref, birth)):
        raise ValueError(f"the manifest gives {path!r} a reference or a birth artifact that is no text")
    if size is not None and (type(size) is not int or size < 0):
        raise ValueError(f"the manifest gives {path!r} a size that is no number of bytes")
    if ref is not None and ref.startswith(CLIENT_REFERENCE):
        raise ValueError(f"the manifest's {path!r} refers to {ref}, an id that only its client knows")
    if extra is not None and not isinstance(extra, dict):
        raise ValueError(f"the manifest gives {path!r} an extra that is no object")
    return Entry(path, entry["digest"], size or 0, ref, birth or None, json.dumps(extra or {}, ensure_ascii=False))


def manifest_digest(entries: Iterable[Entry]) -> str:
    """What `digest` of an artifact must be: hex MD5 over path and digest of all entries, in the order of the paths."""
    digest = hashlib.md5(b"wandb-artifact-manifest-v1\n", usedforsecurity=False)
    for path, entry in sorted((entry.path, entry.digest) for entry in entries):
        digest.update(f"{path}:{entry}\n".encode())
    return digest.hexdigest()


def base64_md5(hex_md5: str) -> str:
    """The spelling of `Content-MD5` and of manifest entries."""
    return base64.b64encode(bytes.fromhex(hex_md5)).decode()


def is_base64_md5(text: object) -> bool:
    """Whether this is how `Content-MD5` and manifests spell an MD5."""
    try:
        return isinstance(text, str) and len(base64.b64decode(text, validate=True)) == 16
    except ValueError:
        return False
