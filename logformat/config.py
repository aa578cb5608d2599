"""A run's config: nested objects that records change key by key."""

from __future__ import annotations

from typing import Any

from .constants import MAX_NESTING
from .history import Path
from .nested import put
from .values import loads


def change_config(config: dict[str, Any], change: Any, lost: dict[Path, None], *, merge: bool = True) -> None:
    """Do to `config` what a ConfigRecord says.

    A value that is broken or lies deeper than `MAX_NESTING` is left out; its path is in `lost` until another one is there.

    Args:
        config: what is changed.
        change: the record.
        lost: paths of values that were left out.
        merge: whether an object keeps the keys of the one before it, as the peer's core has it. The peer's Python, which
            wrote logs up to 0.17, replaced it.
    """
    for item in change.update:
        path = tuple(item.nested_key) or (item.key,)
        try:
            value = loads(item.value_json.encode())
        except ValueError:
            lost[path] = None  # a broken value drops that item only
            continue
        if len(path) > MAX_NESTING:
            lost[path] = None
            continue
        lost.pop(path, None)
        if merge:
            _merge(config, path, value)
        else:
            put(config, path, value)
    for item in change.remove:
        path = tuple(item.nested_key) or (item.key,)
        lost.pop(path, None)
        _remove(config, path)


def _merge(tree: dict[str, Any], path: Path, value: Any) -> None:
    """Set a value: objects are merged key by key, as the format has it."""
    if isinstance(value, dict) and value:
        for key, inner in value.items():
            _merge(tree, (*path, key), inner)
    elif value == {} and isinstance(_get(tree, path), dict):
        return
    else:
        put(tree, path, value)


def _get(tree: Any, path: Path) -> Any:
    for part in path:
        tree = tree.get(part) if isinstance(tree, dict) else None
    return tree


def _remove(tree: dict[str, Any], path: Path) -> None:
    parent = _get(tree, path[:-1])
    if isinstance(parent, dict):
        parent.pop(path[-1], None)
