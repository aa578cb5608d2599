"""What training code logs, as JSON can hold it: copied at once, because the caller goes on changing it.

No array library is imported: their objects are known by what they can do (`item`, `tolist`).
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping
from datetime import date, time
from decimal import Decimal
from enum import Enum
from typing import Any

PLAIN = frozenset({float, int, bool, str, type(None)})
"""The types that a row holds as they are."""

Path = tuple[str, ...]
Key = str | Path
"""A metric's name, or its path where it came from a nested dict."""

MAX_LISTED = 32
"""Elements. An array with more is logged as a histogram, as the peer does."""
HISTOGRAM_BINS = 64


def path_of(key: Any) -> Path:
    """A row's key as a path. Names are text; whatever else a caller uses as a key stands as its text."""
    if isinstance(key, str):
        return (key,)
    return tuple(map(str, key)) if isinstance(key, tuple) else (str(key),)


class UnloggableError(TypeError):
    """A value that no reader of the log could hold; says of which type."""


def flatten(data: Mapping[Any, Any], dropped: dict[str, str]) -> dict[Key, Any]:
    """A row of plain values by key; nested dicts become paths, and an empty dict nothing.

    What cannot be logged is left out and named in `dropped` (dotted key -> reason); the rest of the row stands.
    """
    row: dict[Key, Any] = {}
    for path, value in _leaves(data, (), dropped):
        row[path[0] if len(path) == 1 else path] = value
    return row


def _leaves(data: Mapping[Any, Any], above: Path, dropped: dict[str, str]) -> Iterator[tuple[Path, Any]]:
    for name, value in data.items():
        path = (*above, name if type(name) is str else str(name))
        try:
            if isinstance(value, Mapping):
                yield from _leaves(value, path, dropped)
            else:
                yield path, plain(value)
        except UnloggableError as error:
            dropped[".".join(path)] = str(error)
        except RecursionError:
            dropped[path[0]] = "nested without end"
            return


def plain(value: Any) -> Any:
    """`value` as JSON's own types, deeply copied. NaN and infinities stay.

    Raises:
        UnloggableError: the value has no such form.
    """
    kind = type(value)
    if kind in PLAIN:
        return value
    if isinstance(value, Enum):
        return plain(value.value)
    if isinstance(value, Mapping):
        return {str(key): plain(item) for key, item in value.items()}
    if isinstance(value, (list, tuple, set, frozenset)):
        return [plain(item) for item in value]
    if isinstance(value, float):  # numpy.float64 is one
        return float(value)
    if isinstance(value, int):
        return int(value)
    if isinstance(value, str):
        return str.__str__(value)
    if isinstance(value, (date, time)):
        return value.isoformat()
    if isinstance(value, (bytes, bytearray)):
        return value.decode("utf-8", "replace")
    if isinstance(value, Decimal):
        return str(value)
    if callable(getattr(value, "item", None)):
        return _array(value)
    raise UnloggableError(f"{kind.__module__}.{kind.__qualname__} is no value that a log can hold")


def described(value: Any) -> Any:
    """As `plain`, with text for what has no such form: a config is there to be read, and often holds functions."""
    if isinstance(value, Mapping):
        return {str(key): described(item) for key, item in value.items()}
    if isinstance(value, (list, tuple, set, frozenset)):
        return [described(item) for item in value]
    try:
        return plain(value)
    except UnloggableError:
        return getattr(value, "__qualname__", None) or str(value)


def _array(value: Any) -> Any:
    """A scalar of numpy, torch, jax or tensorflow, or an array of them.

    `item()` of a tensor on an accelerator waits for the device, as reading a value always does.
    """
    kind = type(value)
    name = f"{kind.__module__}.{kind.__qualname__}"
    try:
        numel = getattr(value, "numel", None)
        count = numel() if callable(numel) else getattr(value, "size", 1)
        if count == 1:
            result = value.item()
            if not isinstance(result, kind):
                return plain(result)
            return float(result)  # a bfloat16 scalar gives itself
        if count > MAX_LISTED and "numpy" in sys.modules:
            return histogram(value)
        return plain(value.tolist())
    except UnloggableError:
        raise
    except Exception as error:  # whatever a foreign array type does, it costs its own key only
        raise UnloggableError(f"{name}: {type(error).__name__}: {error}") from error


def histogram(value: Any) -> dict[str, Any]:
    """The peer's shape of a histogram: counts per bin, and one more edge than bins. NaN and infinities are left out."""
    numpy = sys.modules["numpy"]
    if callable(getattr(value, "detach", None)):
        value = value.detach().cpu().float()
    flat = numpy.asarray(value).astype(float).ravel()
    counts, edges = numpy.histogram(flat[numpy.isfinite(flat)], bins=HISTOGRAM_BINS)
    return {"_type": "histogram", "values": counts.tolist(), "bins": edges.tolist()}
