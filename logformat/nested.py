"""Items to nested objects, as every reader builds them."""

from __future__ import annotations

from typing import Any

from .constants import MAX_NESTING
from .history import Path
from .values import loads, loads_all


def put(tree: dict[str, Any], path: Path, value: Any) -> None:
    """Set the value at a path, with the objects above it; what is there and is no object gives way."""
    for part in path[:-1]:
        inner = tree.get(part)
        if not isinstance(inner, dict):
            inner = tree[part] = {}
        tree = inner
    tree[path[-1]] = value


def row_of(paths: tuple[Path, ...], texts: list[bytes], before: dict[str, Any] | None = None) -> dict[str, Any]:
    """A row as nested dicts; a broken value or a key beyond `MAX_NESTING` is left out, a later item of a key wins.

    `before` holds earlier parts of the row, which it is added to.
    """
    try:
        values: list[Any] = loads_all(texts)
    except ValueError:
        good: list[tuple[Path, Any]] = []
        for path, text in zip(paths, texts, strict=True):
            try:
                good.append((path, loads(text)))
            except ValueError:
                continue
        paths, values = tuple(path for path, _ in good), [value for _, value in good]
    row: dict[str, Any] = {} if before is None else before
    for path, value in zip(paths, values, strict=True):
        if len(path) == 1:
            row[path[0]] = value
        elif len(path) <= MAX_NESTING:
            put(row, path, value)
    return row
