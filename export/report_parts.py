"""Pieces of the report's page: tables of nested values, folds, facts. All text that they are given is untrusted."""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Iterator, Mapping
from datetime import datetime, timezone
from itertools import islice
from typing import Any

from ..logformat.elapsed import in_seconds
from ..logformat.words import counted
from .chart_axis import short
from .markup import text

_VALUE = 1_000
"""Characters of a value that are shown."""
_KEY = 300
_LONGEST = 1_000
"""Bits of an integer that is written out; a double has room for no more."""


def section(anchor: str, title: str, body: str, about: str = "") -> str:
    """A part of the page with a heading; empty if it has no body."""
    if not body:
        return ""
    said = f' <span class="quiet">{text(about)}</span>' if about else ""
    return f'<section id="{anchor}"><h2>{text(title)}{said}</h2>{body}</section>'


def fold(title: str, body: str, *, is_open: bool = False) -> str:
    """A part that can be folded away."""
    return (
        f"<details{' open' if is_open else ''}><summary>{text(title, _KEY)}</summary>{body}</details>" if body else ""
    )


def note(said: str) -> str:
    """A line about the page itself."""
    return f'<p class="quiet">{text(said)}</p>' if said else ""


def facts(pairs: Iterable[tuple[str, str]]) -> str:
    """Short named facts in a row; those that are empty are left out."""
    items = "".join(f"<li><b>{text(name)}</b>{text(value, _VALUE)}</li>" for name, value in pairs if value)
    return f'<ul class="facts">{items}</ul>' if items else ""


def number(value: float) -> str:
    """A number for people, with its exact value behind it."""
    return f'<data value="{exact(value)}">{short(value)}</data>'


def exact(value: float) -> str:
    """A number with all of its digits, but for integers of very many."""
    is_long = isinstance(value, int) and value.bit_length() > _LONGEST
    return short(value) if is_long or not math.isfinite(value) else repr(value)


def cell(value: Any) -> str:
    """Any value of a log."""
    if isinstance(value, bool) or value is None:
        return json.dumps(value)
    if isinstance(value, (int, float)):
        return exact(value)
    if isinstance(value, str):
        return text(value, _VALUE)
    if isinstance(value, dict) and isinstance(value.get("_type"), str):
        return text(_medium(value), _VALUE)
    return f"<code>{text(_json(value), _VALUE)}</code>"


def _medium(value: Mapping[str, Any]) -> str:
    """What a medium is, without its contents."""
    known = [
        f"{key} {value[key]}"
        for key in ("path", "width", "height", "nrows", "ncols", "count")
        if _is_plain(value.get(key))
    ]
    bins = value.get("values")
    if value["_type"] == "histogram" and isinstance(bins, list):
        known.append(f"{len(bins)} bins")
    return ", ".join([value["_type"], *known])


def _is_plain(value: Any) -> bool:
    return isinstance(value, (str, int)) and not isinstance(value, bool)


def _json(value: Any) -> str:
    """JSON of a list or an object; of a very long one the beginning."""
    written, length = [], 0
    try:
        for piece in json.JSONEncoder(ensure_ascii=False, default=str).iterencode(value):
            written.append(piece)
            length += len(piece)
            if length > 4 * _VALUE:
                return f"{''.join(written)[:_VALUE]}…"
    except (ValueError, RecursionError):  # an integer that Python does not write
        written.append("…")
    return "".join(written)


def leaves(tree: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
    """The values of nested objects under dotted names, media as one value each; without recursion, whatever the depth."""
    stack: list[tuple[str, Iterator[tuple[str, Any]]]] = [("", iter(tree.items()))]
    while stack:
        prefix, items = stack[-1]
        for key, value in items:
            name = f"{prefix}{key}"
            if isinstance(value, dict) and value and not isinstance(value.get("_type"), str):
                stack.append((f"{name}.", iter(value.items())))
                break
            yield name, value
        else:
            stack.pop()


def table(rows: Iterable[tuple[str, Any]], most: int, heads: tuple[str, str] = ("key", "value")) -> str:
    """Names and values; of more than `most` rows the rest is left out, which is said."""
    remaining = iter(rows)
    shown = [f"<tr><th>{text(name, _KEY)}</th><td>{cell(value)}</td></tr>" for name, value in islice(remaining, most)]
    if not shown:
        return ""
    left = sum(1 for _ in remaining)
    more = note(f"{counted(left, 'more row')} left out here") if left else ""
    head = "".join(f'<th scope="col">{text(name)}</th>' for name in heads)
    return f'<div class="scroll" tabindex="0"><table><thead><tr>{head}</tr></thead><tbody>{"".join(shown)}</tbody></table></div>{more}'


def grid(heads: Iterable[str], rows: Iterable[Iterable[str]]) -> str:
    """A table of cells that are HTML already; heads are text."""
    body = "".join(f"<tr>{''.join(f'<td>{value}</td>' for value in row)}</tr>" for row in rows)
    head = "".join(f'<th scope="col">{text(name, _KEY)}</th>' for name in heads)
    return (
        f'<div class="scroll" tabindex="0"><table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table></div>'
        if body
        else ""
    )


def moment(nanoseconds: int) -> str:
    """A time of day, UTC; empty for none and for what no calendar has."""
    try:
        if nanoseconds <= 0:
            return ""
        return datetime.fromtimestamp(in_seconds(nanoseconds), timezone.utc).strftime("%Y-%m-%d %H:%M:%S UTC")
    except (ValueError, OverflowError, OSError):
        return ""


def duration(seconds: float) -> str:
    """How long something took, in the two largest units."""
    if not math.isfinite(seconds) or seconds <= 0:
        return ""
    if seconds < 60:
        return f"{seconds:.1f} s"
    whole = round(seconds)
    for size, name, smaller, its in ((86_400, "d", 3600, "h"), (3600, "h", 60, "min"), (60, "min", 1, "s")):
        if whole >= size:
            return f"{whole // size:,} {name} {whole % size // smaller} {its}"
    raise AssertionError(seconds)


def plain(message: Any) -> dict[str, Any]:
    """A protobuf message as nested objects of what it sets."""
    return {field.name: _field(field, value) for field, value in message.ListFields()}


def _field(field: Any, value: Any) -> Any:
    if field.message_type is None:
        return list(value) if hasattr(value, "append") else value
    if field.message_type.GetOptions().map_entry:
        return {str(key): plain(one) if hasattr(one, "ListFields") else one for key, one in value.items()}
    if hasattr(value, "append"):
        return [plain(one) for one in value]
    if field.message_type.name == "Timestamp":
        return moment(value.seconds * 10**9 + value.nanos)
    return plain(value)
