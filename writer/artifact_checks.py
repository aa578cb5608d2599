"""What names, types, labels and metadata artifacts may have, so that a backend takes them."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterable, Mapping
from enum import Enum
from typing import Any

from .artifact_record import MAX_NAME_CHARACTERS
from .errors import CommError, UsageError
from .values import described

MAX_METADATA_KEYS = 100

_NAME = re.compile(r"[a-zA-Z0-9_\-.]+")
_TAG = re.compile(r"[-\w]+( +[-\w]+)*")
_RESERVED_PREFIXES = {"job": "", "run_table": "run-", "code": "source-"}
"""Type -> how names begin of those artifacts that the format makes itself."""


class ArtifactFinalizedError(UsageError, AttributeError):
    """The artifact was logged, or finalized: its contents stay as they are."""


class ArtifactNotLoggedError(CommError, AttributeError):
    """Only a backend knows this of an artifact, and it gets to know the artifact when the run is synced."""


def checked_name(name: str) -> str:
    """A name.

    Raises:
        ValueError: it has other characters, or too many.
    """
    if not _NAME.fullmatch(name) or len(name) > MAX_NAME_CHARACTERS:
        raise ValueError(
            f"an artifact's name has 1 to {MAX_NAME_CHARACTERS} letters, digits, '_', '-' or '.', not {name!r}"
        )
    return name


def checked_type(type_: str, name: str) -> str:
    """The type of an artifact of that name.

    Raises:
        ValueError: only the format itself makes such.
    """
    prefix = _RESERVED_PREFIXES.get(type_)
    if type_.startswith("wandb-") or (prefix is not None and name.startswith(prefix)):
        raise ValueError(f"an artifact {name!r} of type {type_!r} is one that the format makes itself")
    return type_


def checked_metadata(metadata: Mapping[str, Any] | str | None) -> dict[str, Any]:
    """Metadata as JSON values, copied; text is read as JSON.

    Raises:
        TypeError: it is no mapping.
        ValueError: no JSON, too many keys, or an infinity, which no backend takes.
    """
    if not metadata:
        return {}
    value = json.loads(metadata) if isinstance(metadata, str) else metadata
    if not isinstance(value, Mapping):
        raise TypeError(f"an artifact's metadata is a dict, not {type(value).__name__}")
    if len(value) > MAX_METADATA_KEYS:
        raise ValueError(f"an artifact has {MAX_METADATA_KEYS} keys of metadata at most, not {len(value)}")
    found: dict[str, Any] = json.loads(json.dumps(_json(described(value)), allow_nan=False))
    return found


def _json(value: Any) -> Any:
    """NaN becomes null; infinities stay, and are refused."""
    if isinstance(value, dict):
        return {key: _json(item) for key, item in value.items()}
    if isinstance(value, list):
        return [_json(item) for item in value]
    return None if isinstance(value, float) and math.isnan(value) else value


def _listed(values: Iterable[str] | str) -> list[str]:
    given = [values] if isinstance(values, str) else values
    return list(dict.fromkeys(str(value.value if isinstance(value, Enum) else value) for value in given))


def checked_aliases(aliases: Iterable[str] | str | None) -> list[str]:
    """Aliases as a list.

    Raises:
        ValueError: one with a slash or a colon.
    """
    found = _listed(aliases or ())
    for alias in found:
        if not alias or "/" in alias or ":" in alias:
            raise ValueError(f"an alias is text without '/' and ':', not {alias!r}")
    return found


def checked_tags(tags: Iterable[str] | str | None) -> list[str]:
    """Tags as a list, each once.

    Raises:
        ValueError: one that has other characters than letters, digits, `_`, `-` and blanks in between.
    """
    found = _listed(tags or ())
    for tag in found:
        if not _TAG.fullmatch(tag):
            raise ValueError(f"a tag has letters, digits, '_', '-' and blanks in between, not {tag!r}")
    return found
