"""Artifacts as the backend holds them, and what clients say of new ones."""

from __future__ import annotations

from dataclasses import dataclass, field

from .runs import RunPath

PENDING, COMMITTED = "PENDING", "COMMITTED"
MANIFEST_KINDS = frozenset({"FULL", "INCREMENTAL", "PATCH"})
OUTPUT, INPUT = "output", "input"


class ArtifactError(ValueError):
    """What is asked for cannot be done to this artifact, or there is none; the message says why."""


@dataclass(frozen=True)
class NewArtifact:
    """What a client says of an artifact that it is about to send; `metadata` is JSON text."""

    entity: str
    project: str
    type: str
    collection: str
    digest: str
    run: RunPath | None = None
    client_id: str | None = None
    distributed_id: str | None = None
    description: str | None = None
    metadata: str | None = None
    aliases: tuple[str, ...] = ()
    tags: tuple[str, ...] = ()
    ttl_s: int | None = None
    history_step: int | None = None
    deduplicate: bool = True


@dataclass(frozen=True)
class Collection:
    """Where the versions of one artifact live."""

    key: int
    entity: str
    project: str
    name: str
    type: str
    created_at: float


@dataclass(frozen=True)
class Artifact:
    """One version. `version`, `size` (bytes) and `file_count` are known since the commit; times: seconds since the epoch."""

    key: int
    collection: Collection
    digest: str
    state: str
    version: int | None
    description: str | None
    metadata: str | None
    ttl_s: int | None
    history_step: int | None
    created_by: int | None
    file_count: int
    size: int
    created_at: float
    updated_at: float
    tags: list[str]
    aliases: list[str] = field(default_factory=list)

    @property
    def title(self) -> str:
        """`name:v0`, as people write it."""
        return f"{self.collection.name}:v{self.version}" if self.version is not None else self.collection.name


@dataclass(frozen=True)
class NewManifest:
    """What a client says of a manifest: `kind` is one of `MANIFEST_KINDS`, `base` the artifact that it builds on."""

    artifact: int
    name: str
    kind: str
    digest: str
    base: int | None
    run: RunPath


@dataclass(frozen=True)
class Manifest:
    """A manifest file of an artifact; `digest` is the base64 MD5 of its bytes, empty until the client knows it."""

    key: int
    artifact: int
    name: str
    digest: str
    blob: str | None


@dataclass(frozen=True)
class StoredEntry:
    """An entry of a committed artifact; `blob` is where its bytes lie, None for a reference."""

    path: str
    digest: str
    size: int
    ref: str | None
    birth: int | None
    blob: str | None
    extra: str
