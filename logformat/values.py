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
        return json.loads(text.decode("utf-8", "replace"))
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
