"""What an artifact says of itself, whatever is in it: names, labels, metadata, and how far it has come."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import timedelta
from typing import Any

from .artifact_checks import (
    ArtifactFinalizedError,
    ArtifactNotLoggedError,
    checked_aliases,
    checked_metadata,
    checked_tags,
)
from .artifact_record import new_client_id

_NEEDS_BACKEND = frozenset(
    {
        *("checkout", "collection", "commit_hash", "created_at", "delete", "download", "entity", "file", "file_count"),
        *("files", "id", "link", "linked_at", "logged_by", "new_draft", "project", "qualified_name", "source_name"),
        *("source_qualified_name", "source_version", "unlink", "updated_at", "url", "used_by", "verify"),
        "version",
    }
)
"""What has a meaning only where a backend is."""


class ArtifactIdentity:
    """All of an artifact but its contents."""

    def __init__(
        self, name: str, type_: str, description: str | None, metadata: Mapping[str, Any] | str | None
    ) -> None:
        self.name = name
        self.type = type_
        self.description = description
        self.distributed_id: str | None = None
        """What several processes have in common that fill one version."""
        self.client_id, self.sequence_client_id = new_client_id(), new_client_id()
        self._metadata = checked_metadata(metadata)
        self._ttl: timedelta | None = None
        self._aliases: list[str] = []
        self._tags: list[str] = []
        self._final = self._logged = False

    @property
    def metadata(self) -> dict[str, Any]:
        """JSON values. Changes until the artifact is logged are logged with it."""
        return self._metadata

    @metadata.setter
    def metadata(self, metadata: Mapping[str, Any] | str | None) -> None:
        self._metadata = checked_metadata(metadata)

    @property
    def ttl(self) -> timedelta | None:
        """How long the version is kept; None: as long as the backend keeps such."""
        return self._ttl

    @ttl.setter
    def ttl(self, ttl: timedelta | None) -> None:
        if ttl is not None and ttl.total_seconds() < 1:
            raise ValueError(f"an artifact's time to live is a second at least, not {ttl}")
        self._ttl = ttl

    @property
    def aliases(self) -> list[str]:
        """Names of this version; those set before it is logged are logged with it."""
        return list(self._aliases)

    @aliases.setter
    def aliases(self, aliases: Iterable[str]) -> None:
        self._check_changeable()
        self._aliases = checked_aliases(aliases)

    @property
    def tags(self) -> list[str]:
        """Labels of this version; those set before it is logged are logged with it."""
        return list(self._tags)

    @tags.setter
    def tags(self, tags: Iterable[str]) -> None:
        self._check_changeable()
        self._tags = checked_tags(tags)

    @property
    def state(self) -> str:
        """What a backend makes of it; "PENDING" as long as there is none."""
        return "PENDING"

    @property
    def logged(self) -> bool:
        """Whether a run has recorded it."""
        return self._logged

    def is_draft(self) -> bool:
        """Whether no backend has it yet: always, here."""
        return True

    def finalize(self) -> None:
        """Let nothing be added any more."""
        self._final = True

    def __repr__(self) -> str:
        return f"<Artifact {self.name}>"

    def __getattr__(self, name: str) -> Any:
        if name in _NEEDS_BACKEND:
            raise ArtifactNotLoggedError(
                f"{self.name}.{name} needs a backend, and this process is offline: sync the run"
            )
        raise AttributeError(f"an artifact has no attribute {name!r}")

    def mark_logged(self, aliases: list[str], tags: list[str]) -> None:
        """The run has recorded it under these names."""
        self._final = self._logged = True
        self._aliases, self._tags = aliases, tags

    def _check_changeable(self) -> None:
        if self._final:
            raise ArtifactFinalizedError(f"artifact {self.name} is logged or finalized; make another one")
