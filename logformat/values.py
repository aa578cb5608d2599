"""JSON as logs hold it: bare NaN and Infinity, integers of any size, now and then something broken."""

from __future__ import annotations

import json
from typing import Any

import orjson

_INT64_LIMIT = 2**63


def loads(text: bytes) -> Any:
    """The value of one `value_json`.

    Raises:
        ValueError: it is no JSON, not even with NaN and Infinity.
    """
    try:
        value = orjson.loads(text)
    except orjson.JSONDecodeError:
        value = json.loads(text.decode("utf-8", "replace"))
        return _without_surrogates(value) if b"\\u" in text else value
    if (type(value) is float and abs(value) >= _INT64_LIMIT) or type(value) in {list, dict}:
        # orjson turns integers beyond 64 bits into floats; where one may be hidden, take the exact road.
        return json.loads(text)
    return value


def loads_all(texts: list[bytes]) -> list[Any]:
    """The values of a row, in one call where all are plain; raises as `loads` does."""
    try:
        values: list[Any] = orjson.loads(b"[" + b",".join(texts) + b"]")
    except orjson.JSONDecodeError:
        return [loads(text) for text in texts]
    if len(values) != len(texts):  # a broken text such as `1,2` must not shift its neighbours
        return [loads(text) for text in texts]
    for index, value in enumerate(values):
        kind = type(value)
        if kind in {list, dict} or (kind is float and abs(value) >= _INT64_LIMIT):
            values[index] = loads(texts[index])
    return values


def _without_surrogates(value: Any) -> Any:
    """Half of a surrogate pair is no text: nobody could write it to a file or a socket, so U+FFFD stands for it."""
    if isinstance(value, str):
        return value.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
    if isinstance(value, list):
        return [_without_surrogates(inner) for inner in value]
    if isinstance(value, dict):
        return {_without_surrogates(key): _without_surrogates(inner) for key, inner in value.items()}
    return value
