"""The summary of a run: what its rows, its metric definitions and its summary records leave."""

from __future__ import annotations

import json
from typing import Any

from .constants import MAX_NESTING
from .history import Path
from .values import loads


class Summary:
    """A tree of JSON texts, kept flat by path: a row of known keys is one `dict.update`.

    Invariant: no path is a prefix of another one. So a nested update of an object that came whole keeps its siblings.
    """

    def __init__(self) -> None:
        self._leaves: dict[Path, bytes] = {}
        self._inner: set[Path] = set()  # paths that leaves lie or lay below
        self._too_deep: dict[Path, None] = {}

    def update(self, paths: tuple[Path, ...], texts: list[bytes], *, nulls: bool = False) -> None:
        """Set many leaves; a null sets nothing unless told, as a row's null says nothing about the metric."""
        leaves = self._leaves
        if not all(map(leaves.__contains__, paths)):
            for path, text in zip(paths, texts, strict=True):
                if nulls or text != b"null":
                    self.set(path, text)
        elif nulls or b"null" not in texts:
            leaves.update(zip(paths, texts, strict=True))
        else:
            leaves.update(pair for pair in zip(paths, texts, strict=True) if pair[1] != b"null")

    def set(self, path: Path, text: bytes) -> None:
        """Set one leaf to any JSON, null included; one deeper than `MAX_NESTING` is left out."""
        if len(path) > MAX_NESTING:
            self._too_deep[path] = None
            return
        self._make_room(path)
        self._leaves[path] = text

    def remove(self, path: Path) -> None:
        """Forget a leaf or everything below a path."""
        if len(path) > MAX_NESTING:
            self._too_deep.pop(path, None)
            return
        self._make_room(path)
        self._leaves.pop(path, None)

    def leaves(self) -> dict[Path, bytes]:
        """The JSON text of each path; a view that later updates change."""
        return self._leaves

    def tree(self, lost: list[Path] | None = None) -> dict[str, Any]:
        """The summary as nested dicts; what is no JSON or lies too deep is left out, and its path added to `lost`."""
        tree: dict[str, Any] = {}
        lost = [] if lost is None else lost
        lost += self._too_deep
        for path, text in self._leaves.items():
            try:
                value = loads(text)
            except ValueError:
                lost.append(path)
                continue
            node = tree
            for part in path[:-1]:
                node = node.setdefault(part, {})
            node[path[-1]] = value
        return tree

    def _make_room(self, path: Path) -> None:
        """Open up an object above `path` and drop what lies below it, so that `path` can be a leaf."""
        leaves = self._leaves
        if path in leaves:
            return
        for depth in range(1, len(path)):
            self._inner.add(path[:depth])
            above = leaves.pop(path[:depth], None)
            if above is not None:
                self._open(path[:depth], above)
        if path in self._inner:
            self._inner.remove(path)
            for other in [other for other in leaves if len(other) > len(path) and other[: len(path)] == path]:
                del leaves[other]

    def _open(self, path: Path, text: bytes) -> None:
        try:
            value = loads(text)
        except ValueError:
            return
        if isinstance(value, dict):
            for key, inner in value.items():
                self._leaves[(*path, key)] = json.dumps(inner, ensure_ascii=False).encode()
