"""Values that are one thing though they are objects: histograms, images, tables. Writers mark them by `_type`.

From 0.18 on the peer flattens objects to an item per leaf, these included: `("img", "_type")`, `("img", "path")`. Rows put
such a value together again, as one column of kind `json`.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

from .constants import MAX_NESTING
from .history import Path
from .nested import put
from .values import loads

Item = tuple[Path, Any, bytes]
"""Key path, value, JSON text."""

_MARK = "_type"
_TYPES = frozenset(
    {
        *("audio", "bokeh", "data-frame", "graph", "histogram", "html", "images/separated", "joined-table", "molecule"),
        *("object3D", "partitioned-table", "plotly", "table", "videos", "wb_trace_tree"),
    }
)


def media_type(value: Any) -> str | None:
    """What a value says it is, if that is a kind of media, a table or a histogram; such as `image-file`."""
    kind = value.get(_MARK) if isinstance(value, dict) else None
    return kind if isinstance(kind, str) and _is_media(kind) else None


def is_mark(path: Path) -> bool:
    """Whether an item may say that those beside it are one value."""
    return len(path) > 1 and path[-1] == _MARK


def whole_values(items: list[Item], is_free: Callable[[Path], bool]) -> list[Item]:
    """The items of a record, with those that are parts of one value in one, in the place of the first of them.

    Parts stay apart where other items stand above them, in this record or, as `is_free` tells, in earlier parts of the row:
    whichever comes later counts.
    """
    marked = {path[:-1] for path, value, _ in items if is_mark(path) and isinstance(value, str) and _is_media(value)}
    paths = {path for path, _, _ in items}
    taken = marked | paths
    homes = {
        home
        for home in marked - paths
        if len(home) < MAX_NESTING and taken.isdisjoint(home[:depth] for depth in range(1, len(home))) and is_free(home)
    }
    parts: dict[Path, list[Item]] = {}
    for item in items:
        home = _above(item[0], homes)
        if home is not None:
            parts.setdefault(home, []).append(item)
    made = {home: _joined(home, mine) for home, mine in parts.items()}
    found: list[Item] = []
    for item in items:
        home = _above(item[0], homes)
        whole = made.get(home) if home is not None else None
        if whole is None:
            found.append(item)
        elif item is parts[whole[0]][0]:
            found.append(whole)
    return found


def _is_media(kind: str) -> bool:
    return kind in _TYPES or kind.endswith("-file")


def _above(path: Path, homes: set[Path]) -> Path | None:
    return next((path[:depth] for depth in range(1, len(path)) if path[:depth] in homes), None)


def _joined(home: Path, items: list[Item]) -> Item | None:
    """One value of its parts; None if it would nest deeper than readers take."""
    whole: dict[str, Any] = {}
    if all(len(path) == len(home) + 1 for path, _, _ in items):  # the log's own numbers
        text = b"{%b}" % b",".join(json.dumps(path[-1]).encode() + b":" + text for path, _, text in items)
    else:
        for path, _, text in items:
            if len(path) <= MAX_NESTING:
                put(whole, path[len(home) :], loads(text))
        text = json.dumps(whole, ensure_ascii=False).encode()
    try:
        loads(text)
    except ValueError:
        return None
    return home, whole, text
