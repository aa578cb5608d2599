"""JSON as logs hold it: bare NaN and Infinity, integers of any size, now and then something broken."""

from __future__ import annotations

import json
from collections.abc import Iterable
from functools import lru_cache
from typing import Any

import orjson

from .constants import MAX_NESTING

_INT64_LIMIT = 2**63


def loads(text: bytes) -> Any:
    """The value of one `value_json`.

    Raises:
        ValueError: it is no JSON, not even with NaN and Infinity, or it nests deeper than `MAX_NESTING`.
    """
    try:
        value = orjson.loads(text)
    except orjson.JSONDecodeError:
        value = _exact(text)
        return _without_surrogates(value) if b"\\u" in text else value
    if (type(value) is float and abs(value) >= _INT64_LIMIT) or type(value) in {list, dict}:
        # orjson turns integers beyond 64 bits into floats; where one may be hidden, take the exact road.
        return _exact(text)
    return value


def glance(text: bytes) -> Any:
    """As `loads`, in less time for large lists and objects: numbers inside of those may lack digits."""
    try:
        value = orjson.loads(text)
    except orjson.JSONDecodeError:
        return loads(text)
    if type(value) in {list, dict}:
        if text.count(b"[") + text.count(b"{") > MAX_NESTING:
            _check_nesting(value)
        return value
    return loads(text) if type(value) is float and abs(value) >= _INT64_LIMIT else value


def loads_all(texts: list[bytes]) -> list[Any]:
    """The values of a row, in one call where all are plain; raises as `loads` does."""
    joined = b",".join(texts)
    try:
        values: list[Any] = orjson.loads(b"[" + joined + b"]")
    except orjson.JSONDecodeError:
        return [loads(text) for text in texts]
    if len(values) != len(texts) or joined.count(b",") != len(texts) - 1:
        # A broken text such as `1,2` or `"a` must not shift its neighbours: each comma has to be one between texts.
        return [loads(text) for text in texts]
    for index, value in enumerate(values):
        kind = type(value)
        if kind in {list, dict} or (kind is float and abs(value) >= _INT64_LIMIT):
            values[index] = loads(texts[index])
    return values


def are_json(values: list[bytes]) -> bool:
    """Whether every text is one JSON value."""
    joined = b",".join(values)
    if joined.count(b",") == len(values) - 1:
        return is_json(joined, len(values))  # with no other commas, no text can make up for what another one lacks
    plain = [text for text in values if b"," not in text]
    return is_json(b",".join(plain), len(plain)) and all(is_json(text, 1) for text in values if b"," in text)


def is_json(items: bytes, count: int) -> bool:
    """Whether texts with commas between them are `count` JSON values."""
    try:
        return len(orjson.loads(b"[%b]" % items)) == count
    except orjson.JSONDecodeError:
        return False


@lru_cache(8192)
def member(key: str) -> bytes:
    """What stands before a value behind the first one."""
    return b"," + orjson.dumps(key) + b":"


def _exact(text: bytes) -> Any:
    decoded = text.decode("utf-8", "replace")
    try:
        value = json.loads(decoded)
    except RecursionError:
        raise ValueError(f"nested deeper than {MAX_NESTING} levels") from None
    if decoded.count("[") + decoded.count("{") > MAX_NESTING:
        _check_nesting(value)
    return value


def _check_nesting(value: Any) -> None:
    level, depth = [value], 1
    while level := [inner for outer in level if isinstance(outer, (list, dict)) for inner in _inside(outer)]:
        depth += 1
        if depth > MAX_NESTING:
            raise ValueError(f"nested deeper than {MAX_NESTING} levels")


def _inside(value: list[Any] | dict[str, Any]) -> Iterable[Any]:
    return value.values() if isinstance(value, dict) else value


def _without_surrogates(value: Any) -> Any:
    """Half of a surrogate pair is no text: nobody could write it to a file or a socket, so U+FFFD stands for it."""
    if isinstance(value, str):
        return value.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
    if isinstance(value, list):
        return [_without_surrogates(inner) for inner in value]
    if isinstance(value, dict):
        return {_without_surrogates(key): _without_surrogates(inner) for key, inner in value.items()}
    return value
