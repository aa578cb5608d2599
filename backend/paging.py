"""Ids, times and pages, as GraphQL clients get them."""

from __future__ import annotations

import base64
import re
from collections.abc import Callable, Sequence
from datetime import datetime, timezone
from typing import Any, TypeVar

from .gql_syntax import GraphQLError

T = TypeVar("T")
DEFAULT_PAGE, MAX_PAGE = 50, 5_000


def node_id(kind: str, key: object) -> str:
    """An opaque id."""
    return base64.b64encode(f"{kind}:{key}".encode()).decode()


def parse_node_id(kind: str, text: object) -> int | None:
    """The number in an id of that kind; None if it is none of ours."""
    try:
        found, _, number = base64.b64decode(str(text), validate=True).decode().partition(":")
    except ValueError:
        return None
    return int(number) if found == kind and re.fullmatch("[0-9]{1,18}", number) else None


def iso(seconds: float) -> str:
    """A time as clients write it."""
    return datetime.fromtimestamp(seconds, timezone.utc).isoformat().replace("+00:00", "Z")


def names_of(arguments: dict[str, Any]) -> set[str] | None:
    """The argument `names`: which items are asked for; None: all.

    Raises:
        GraphQLError: it is no list of names.
    """
    names = arguments.get("names")
    if names is None or names == []:
        return None
    if not isinstance(names, list) or not all(isinstance(name, str) for name in names):
        raise GraphQLError("names is not a list of names")
    return set(names)


def connection(items: Sequence[T], node: Callable[[T], Any], arguments: dict[str, Any]) -> Any:
    """The page of `items` that `first` and `after` ask for; 50 items when nothing is said.

    Raises:
        GraphQLError: they are no page.
    """
    first, after = arguments.get("first"), arguments.get("after")
    first = DEFAULT_PAGE if first is None else first
    if type(first) is not int or first < 0:
        raise GraphQLError("first is not a number of items")
    start = 0
    if after:
        place = parse_node_id("Cursor", after)
        if place is None:
            raise GraphQLError("after is not a cursor of this server")
        start = place + 1
    page = items[start : start + min(first, MAX_PAGE)]
    edges = [{"cursor": node_id("Cursor", start + place), "node": node(item)} for place, item in enumerate(page)]
    return {
        "__typename": "Connection",
        "totalCount": len(items),
        "edges": edges,
        "pageInfo": {
            "__typename": "PageInfo",
            "hasNextPage": start + len(page) < len(items),
            "hasPreviousPage": start > 0,
            "startCursor": edges[0]["cursor"] if edges else None,
            "endCursor": edges[-1]["cursor"] if edges else None,
        },
    }
