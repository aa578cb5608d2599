"""Rows to bytes: a history record's protobuf, written by hand.

Formatting the numbers is the cost of a row, so all values of a row go through one `orjson.dumps`, and what stands
around them is prepared once per tuple of keys, the *key plan*. Two things in orjson's answer need a closer look, and
both show: more commas than values means that a string or list was among them, and an `n` may be the `null` that it
writes for NaN. Such rows take the slow path, one value at a time.

    Record         history (2), num (1) comes with the frame (`journal`)
    HistoryRecord  item (1)*, step (2) {num (1)}
    HistoryItem    nested_key (2)*, value_json (16)
"""

from __future__ import annotations

from operator import getitem
from typing import Any

import orjson

from .encoding import nested_key, to_json, varint
from .values import Key, Path, path_of

MAX_PLANNED_KEYS = 65_536
"""Keys of all key plans kept; training code has some hundred, and code whose keys never repeat starts over."""
PLAN_OVERHEAD = 16
"""What a plan itself costs, in keys."""
MAX_HEADS = 64
"""Value lengths remembered per key: a float's text is 1 to 25 bytes long."""

INTERNAL = ("_step", "_runtime", "_timestamp")
NULL = b"null"
_STEP_HEADS = [bytes((0x12, length + 1, 0x08)) for length in range(11)]
"""What stands before a step's number, by that one's length: step, and the tag of num."""
_NOT_FINITE = {"nan": b"NaN", "inf": b"Infinity", "-inf": b"-Infinity"}


class _Heads(dict[int, bytes]):
    """What stands before a value of one key, by the value's length: item, nested_key, and value_json's tag and length."""

    __slots__ = ("_key",)

    def __init__(self, path: Path) -> None:
        self._key = nested_key(path) + b"\x82\x01"

    def __missing__(self, length: int) -> bytes:
        inside = self._key + varint(length)
        head = b"\x0a" + varint(len(inside) + length) + inside
        if len(self) < MAX_HEADS:
            self[length] = head
        return head


class KeyPlan:
    """What all rows with the same keys have in common.

    `paths` are the keys of the record's items: the row's own, then the writer's.
    """

    __slots__ = ("_given", "_own", "heads", "latest", "order", "paths")

    def __init__(self, keys: tuple[Key, ...], known: dict[Path, _Heads]) -> None:
        # `_step` and `_runtime` are the writer's; a `_timestamp` of the caller's stands in place of ours.
        given = [i for i, key in enumerate(keys) if key not in ("_step", "_runtime")]
        self._given = None if len(given) == len(keys) else given
        self._own = 2 if "_timestamp" in keys else 3
        all_keys = (*(keys[i] for i in given), *INTERNAL[: self._own])
        self.paths: tuple[Path, ...] = tuple(map(path_of, all_keys))
        self.heads: list[_Heads] = []
        for path in self.paths:
            if path not in known:
                known[path] = _Heads(path)
            self.heads.append(known[path])
        # The last row's values and when they came, for the summary (`summary.SummaryState`).
        self.latest: list[bytes] | None = None
        self.order = 0

    def values(self, row: dict[Key, Any], step: int, runtime: float, timestamp: float) -> list[Any]:
        """The row's values in the order of `paths`."""
        if self._given is None and self._own == 3:
            return [*row.values(), step, runtime, timestamp]
        given = list(row.values())
        if self._given is not None:
            given = [given[i] for i in self._given]
        return [*given, *(step, runtime, timestamp)[: self._own]]


class HistoryEncoder:
    """Encodes rows; remembers a plan per tuple of keys."""

    def __init__(self) -> None:
        self._plans: dict[tuple[Key, ...], KeyPlan] = {}
        self._planned_keys = 0
        self._heads: dict[Path, _Heads] = {}
        self.unwritable: dict[str, str] = {}
        """Dotted key -> reason, of values that turned out to have no JSON text; the caller reports and clears."""

    def plan(self, row: dict[Key, Any]) -> KeyPlan:
        """The plan for the row's keys."""
        keys = tuple(row)
        plan = self._plans.get(keys)
        if plan is None:
            if self._planned_keys >= MAX_PLANNED_KEYS:
                self._plans.clear()
                self._heads.clear()
                self._planned_keys = 0
            self._planned_keys += len(keys) + PLAN_OVERHEAD
            plan = self._plans[keys] = KeyPlan(keys, self._heads)
        return plan

    def encode(self, plan: KeyPlan, values: list[Any], step: int) -> tuple[bytes, list[bytes], bool]:
        """One row, from `plan.values(...)`.

        Returns:
            The record without its number; the JSON text of each value; whether a `null` may be among those.
        """
        try:
            text = orjson.dumps(values)
        except orjson.JSONEncodeError:  # an integer beyond 64 bits, a lone surrogate
            return self._encode_each(plan, values, step)
        parts = text[1:-1].split(b",")
        if len(parts) != len(values) or b"n" in text:
            return self._encode_each(plan, values, step)
        pieces = [b""] * (2 * len(parts))
        pieces[0::2] = map(getitem, plan.heads, map(len, parts))
        pieces[1::2] = parts
        return _history(pieces, step), parts, False

    def _encode_each(self, plan: KeyPlan, values: list[Any], step: int) -> tuple[bytes, list[bytes], bool]:
        pieces: list[bytes] = []
        parts: list[bytes] = []
        nulls = False
        for path, heads, value in zip(plan.paths, plan.heads, values, strict=True):
            try:
                part = _value_json(value)
            except (ValueError, RecursionError) as error:
                self.unwritable[".".join(path)] = str(error)
                parts.append(NULL)
                nulls = True
                continue
            pieces += (heads[len(part)], part)
            parts.append(part)
            nulls = nulls or part == NULL
        return _history(pieces, step), parts, nulls


def _history(pieces: list[bytes], step: int) -> bytes:
    items = b"".join(pieces)
    number = varint(step)
    tail = _STEP_HEADS[len(number)] + number if step else b"\x12\x00"
    return b"".join((b"\x12", varint(len(items) + len(tail)), items, tail))


def _value_json(value: Any) -> bytes:
    kind = type(value)
    if kind is float:
        text = repr(value)
        return _NOT_FINITE.get(text) or text.encode()
    if kind is str:
        try:
            return orjson.dumps(value)
        except orjson.JSONEncodeError:  # a lone surrogate
            return to_json(value)
    return to_json(value)
