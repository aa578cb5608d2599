"""JSON as clients send it inside strings: bare NaN and Infinity, integers of any size, now and then something absurd."""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Any

MAX_NESTING = 300
"""Levels of objects and lists; what nests deeper could be read here and not be written again."""


def parse(text: str) -> Any:
    """The value of a JSON text.

    Raises:
        ValueError: it is no JSON, or it nests deeper than `MAX_NESTING`.
    """
    try:
        value = json.loads(text)
    except RecursionError:
        raise ValueError(f"nested deeper than {MAX_NESTING} levels") from None
    if text.count("[") + text.count("{") > MAX_NESTING and not _shallow(value):
        raise ValueError(f"nested deeper than {MAX_NESTING} levels")
    return value


def _shallow(value: Any) -> bool:
    level = [value]
    for _ in range(MAX_NESTING):
        level = [inner for outer in level if isinstance(outer, dict | list) for inner in _inside(outer)]
        if not level:
            return True
    return not any(isinstance(value, dict | list) for value in level)


def _inside(value: dict[str, Any] | list[Any]) -> Iterable[Any]:
    return value.values() if isinstance(value, dict) else value
