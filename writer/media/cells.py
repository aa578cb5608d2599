"""A table's cells as JSON: the file that a row names shows them, and the artifact holds them."""

from __future__ import annotations

import math
from collections.abc import Mapping
from datetime import date, datetime, timezone
from decimal import Decimal
from enum import Enum
from typing import Any

from ..values import UnloggableError
from .base import Media
from .content import ArtifactContents
from .libraries import dates, is_dated, is_missing, is_torch, type_name

_AS_THEY_ARE = frozenset({str, int, bool, type(None)})


def shown(value: Any) -> Any:
    """A cell in the file beside the log: dates as text, NaN and infinities bare, media by their type's name."""
    kind = type(value)
    if kind in _AS_THEY_ARE or kind is float:
        return value
    if isinstance(value, Media):
        return kind.__name__
    if is_missing(value):
        return None
    if isinstance(value, date):
        return value.isoformat()
    return _common(value, shown)


def held(value: Any, contents: ArtifactContents) -> Any:
    """A cell in the artifact: dates as milliseconds since the epoch (UTC unless they say), NaN as null.

    Media are what names their files, which are added to `contents`. Raises OSError.
    """
    kind = type(value)
    if kind in _AS_THEY_ARE:
        return value
    if kind is float:
        return None if math.isnan(value) else value
    if isinstance(value, Media):
        return value.cell(contents)
    if is_missing(value):
        return None
    if isinstance(value, date):
        return _milliseconds(value)
    return _common(value, lambda inner: held(inner, contents))


def _common(value: Any, inner: Any) -> Any:
    try:
        return _converted(value, inner)
    except (OSError, UnloggableError, RecursionError):  # of the media in it, or it holds itself
        raise
    except Exception:  # whatever a foreign type does, it costs neither the row nor the table
        return f"<{type_name(value)}>"


def _converted(value: Any, inner: Any) -> Any:
    if isinstance(value, Enum):
        return value.name
    if isinstance(value, Mapping):
        return {str(key): inner(item) for key, item in value.items()}
    if isinstance(value, (list, tuple, set, frozenset)):
        return [inner(item) for item in value]
    if isinstance(value, (bytes, bytearray)):
        return value.decode("utf-8", "replace")
    if isinstance(value, Decimal):
        return float(value)
    for plain_kind in (bool, int, str):
        if isinstance(value, plain_kind):
            return plain_kind(value)
    if isinstance(value, float):
        return inner(float(value))
    if is_dated(value):
        return inner(dates(value))
    if is_torch(value):
        value = value.detach().cpu()
        if str(value.dtype) == "torch.bfloat16":
            value = value.float()
    for name in ("tolist", "item"):
        ask = getattr(value, name, None)
        if callable(ask):
            result = ask()
            return float(result) if type(result) is type(value) else inner(result)
    if callable(value):
        own = getattr(value, "__qualname__", None)
        return f"{value.__module__}.{own}" if own else str(value)
    return str(value)


def _milliseconds(value: date) -> int:
    if not isinstance(value, datetime):
        value = datetime(value.year, value.month, value.day, tzinfo=timezone.utc)
    elif value.tzinfo is None:
        value = value.replace(tzinfo=timezone.utc)
    return int(value.timestamp() * 1000)
