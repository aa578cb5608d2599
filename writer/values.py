"""What training code logs, as JSON can hold it: copied at once, because the caller goes on changing it.

No array library is imported: their objects are known by what they can do (`item`, `tolist`).
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping
from datetime import date, time
from enum import Enum
from typing import Any

from ..logformat.constants import MAX_NESTING

PLAIN = frozenset({float, int, bool, str, type(None)})
"""The types that a row holds as they are."""
PLAIN_OR_NESTED = PLAIN | {list, dict}
"""The types of all that `plain` returns."""
NAMES = frozenset({str})
"""The types that are names of a row's values as they are."""

Path = tuple[str, ...]
Key = str | Path
"""A metric's name, or its path where it came from a nested dict."""

MAX_LISTED = 32
"""Elements. An array with more is logged as a histogram, as the peer does."""
HISTOGRAM_BINS = 64


def path_of(key: Key) -> Path:
    """A row's key as a path."""
    return (key,) if isinstance(key, str) else key


class UnloggableError(TypeError):
    """A value that no reader of the log could hold; says of which type."""


class TooDeepError(UnloggableError):
    """A value that holds itself, or nests deeper than any reader follows."""

    def __init__(self) -> None:
        super().__init__(f"nested without end, or more than {MAX_NESTING} levels deep")


def flatten(data: Mapping[Any, Any], dropped: dict[str, str]) -> dict[Key, Any]:
    """A row of plain values and `Media` by key; nested dicts become paths, and an empty dict nothing.

    What cannot be logged is left out and named in `dropped` (dotted key -> reason); the rest of the row stands.
    """
    row: dict[Key, Any] = {}
    try:
        for path, value in _leaves(data, (), dropped):
            row[path[0] if len(path) == 1 else path] = value
    except Exception as error:  # a mapping of somebody else's that does not tell its items
        dropped["rest"] = f"{type(error).__name__}: {error}"
    return row


def _leaves(data: Mapping[Any, Any], above: Path, dropped: dict[str, str]) -> Iterator[tuple[Path, Any]]:
    if len(above) > MAX_NESTING:
        raise TooDeepError
    for name, value in data.items():
        path, nested = (*above, "?"), False
        try:
            path = (*above, name if type(name) is str else str(name))
            nested = isinstance(value, Mapping)
            if nested:
                yield from _leaves(value, path, dropped)
            else:
                yield path, _plain_or_medium(value)
        except (UnloggableError, RecursionError) as error:
            if nested and above:
                raise  # too deep: at once to the top, since each level that goes on would double the work
            dropped[".".join(path)] = str(TooDeepError() if isinstance(error, RecursionError) else error)
        except Exception as error:  # whatever a foreign type does, it costs its own key only
            dropped[".".join(path)] = f"{type(error).__name__}: {error}"


def _plain_or_medium(value: Any) -> Any:
    try:
        return plain(value)
    except UnloggableError:
        from .media import media_of  # only for what has no plain form, so that rows of numbers cost nothing

        medium = media_of(value)
        if medium is None:
            raise
        return medium


def plain(value: Any, room: int = MAX_NESTING) -> Any:
    """`value` as JSON's own types, deeply copied. NaN and infinities stay. `room`: levels that it may have.

    Raises:
        UnloggableError: the value has no such form, nests too deep, or raised when it was asked.
    """
    if type(value) in PLAIN:
        return value
    try:
        return _plain(value, room)
    except UnloggableError:
        raise
    except RecursionError as error:
        raise TooDeepError from error
    except Exception as error:  # whatever a foreign type does
        raise UnloggableError(f"{_name_of(value)}: {type(error).__name__}: {error}") from error


def _plain(value: Any, room: int) -> Any:
    if isinstance(value, Enum):
        return plain(value.value, room)
    if isinstance(value, Mapping):
        return {str(key): plain(item, _less(room)) for key, item in value.items()}
    if isinstance(value, (list, tuple, set, frozenset)):
        return [plain(item, _less(room)) for item in value]
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
    decimal = sys.modules.get("decimal")  # where there is a value of it, it is there
    if decimal is not None and isinstance(value, decimal.Decimal):
        return str(value)
    if callable(getattr(value, "item", None)):
        return _array(value, room)
    raise UnloggableError(f"{_name_of(value)} is no value that a log can hold")


def _less(room: int) -> int:
    if room <= 0:
        raise TooDeepError
    return room - 1


def _name_of(value: Any) -> str:
    kind = type(value)
    return f"{kind.__module__}.{kind.__qualname__}"


def described(value: Any) -> Any:
    """As `plain`, with text for what has no such form: a config is there to be read, and often holds functions."""
    try:
        return _described(value, MAX_NESTING)
    except Exception:  # it nests without end, or raised when it was asked
        return _text(value)


def _described(value: Any, room: int) -> Any:
    if isinstance(value, Mapping):
        return {str(key): _described(item, _less(room)) for key, item in value.items()}
    if isinstance(value, (list, tuple, set, frozenset)):
        return [_described(item, _less(room)) for item in value]
    try:
        return plain(value, room)
    except TooDeepError:
        raise
    except UnloggableError:
        return _text(value)


def _text(value: Any) -> str:
    try:
        return str(getattr(value, "__qualname__", None) or value)
    except Exception:  # its own text raises, or nests too deep
        return f"<{_name_of(value)}>"


def _array(value: Any, room: int) -> Any:
    """A scalar of numpy, torch, jax or tensorflow, or an array of them.

    `item()` of a tensor on an accelerator waits for the device, as reading a value always does.
    """
    numel = getattr(value, "numel", None)
    count = numel() if callable(numel) else getattr(value, "size", 1)
    if count == 1:
        result = value.item()
        if not isinstance(result, type(value)):
            return plain(result, room)
        return float(result)  # a bfloat16 scalar gives itself
    if count > MAX_LISTED and "numpy" in sys.modules:
        return histogram(value)
    return plain(value.tolist(), room)


def histogram(value: Any) -> dict[str, Any]:
    """The peer's shape of a histogram: counts per bin, and one more edge than bins. NaN and infinities are left out."""
    numpy = sys.modules["numpy"]
    if callable(getattr(value, "detach", None)):
        value = value.detach().cpu().float()
    flat = numpy.asarray(value).astype(float).ravel()
    counts, edges = numpy.histogram(flat[numpy.isfinite(flat)], bins=HISTOGRAM_BINS)
    return {"_type": "histogram", "values": counts.tolist(), "bins": edges.tolist()}
