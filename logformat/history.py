"""Rows: the body of a history record to key paths and JSON texts, without building messages.

A training loop logs the same keys again and again, though not always in the same order: writers of the peer shuffle the
keys of each row. So the bytes of each key are decoded once, and items of known keys and plain values are found by one
regular expression, whose findings are believed only where all lengths agree.
"""

from __future__ import annotations

import re
import struct

import orjson

from .wire import BYTES, VARINT, WireError, fields, read_varint

Path = tuple[str, ...]
"""A key: one component per level of nesting. Components may hold dots and slashes."""

STEP: Path = ("_step",)
RUNTIME: Path = ("_runtime",)
TIMESTAMP: Path = ("_timestamp",)

_ITEM, _STEP_FIELD, _KEY, _NESTED = 0x0A, 0x12, 0x0A, 0x12  # tags of single-byte fields
_VALUE_JSON = b"\x82\x01"  # tag of field 16
SHAPES_KEPT = 8_192
"""Keys and shapes remembered; a log with more of them decodes them again, and memory stays bounded."""
_SHARED_KEYS = 512  # wider rows share no tuple: it would save them little

_PLAIN_ITEMS = re.compile(
    rb"\n([\x00-\x7f])([\n\x12][^\x82]{1,120})\x82\x01([\x00-\x7f])"  # size of the item, its key, size of the value
    rb'("[ !#-\[\]-~]{0,118}"|[-+.0-9A-Za-z]{0,120})'  # a plain text, or a number, NaN, true, null
    rb"|(?s:.+)"  # the rest of the body, once it is no such item
).findall

_STEP_TEXT = re.compile(rb"-?[0-9]{1,19}")

_heads: dict[bytes, Path] = {}
_latest: dict[int, tuple[Path, ...]] = {}


def decode_history(body: bytes) -> tuple[tuple[Path, ...], list[bytes]]:
    """The items of a HistoryRecord in their order: key paths, and the JSON text of each.

    Rows of the same keys in the same order get the same tuple of paths, so that a plan can be kept by it, unless rows of
    as many other keys lie between them. A row without `_step` item gets one from the record's step field, where it has that.

    Raises:
        WireError: the bytes are no history record.
    """
    items = decode_items(body)
    if items is None or STEP not in items[0] or not _only_step_left(body, items[2]):
        return _decode_any(body)
    return items[0], items[1]


def step_of(text: bytes) -> int | None:
    """The step that a value of `_step` says; None where it is no int64 in plain digits: `5.0` and `1e2` are none."""
    return int(text) if _STEP_TEXT.fullmatch(text) else None


def place_of(path: Path, paths: tuple[Path, ...]) -> int:
    """Index of the first item of that key; -1 where there is none."""
    try:
        return paths.index(path)
    except ValueError:
        return -1


def is_part(step: bytes | None, before: bytes | None) -> bool:
    """Whether a history record is a further part of the row that the one before it in the log belongs to.

    It is if both have the same step, an int64 in the same plain digits. Arguments are the texts of the first `_step` item
    of each, None where it has none.
    Records of other kinds, and gaps, may lie between. The items of a row's parts count as if they stood in one record:
    a later one replaces the value of its key, of what is above it that is no object, and all that is below it.
    """
    return step is not None and step == before and step_of(step) is not None


def _only_step_left(body: bytes, at: int) -> bool:
    """Whether nothing follows the items but a step, as writers have it; else further items may."""
    left = len(body) - at
    return left == 0 or (left >= 2 and body[at] == _STEP_FIELD and body[at + 1] == left - 2)


def decode_items(body: bytes) -> tuple[tuple[Path, ...], list[bytes], int] | None:
    """The items (field 1) that a history or summary record begins with, and where they end.

    None where they have another form than the one that writers use: a key or nested keys, each shorter than 128 bytes,
    and then value_json.
    """
    return _plain_items(body) or _walk_items(body)


def _plain_items(body: bytes) -> tuple[tuple[Path, ...], list[bytes], int] | None:
    """As `_walk_items`, for known keys and plain values; None for everything else. A third of the cost of the walk."""
    found = _PLAIN_ITEMS(body)
    if found and not found[-1][1]:
        found.pop()
    if not found:
        return None
    sizes, heads, lengths, values = zip(*found, strict=True)
    size = b"".join(sizes)
    length = bytes(map(len, values))
    if length != b"".join(lengths):
        return None
    # An item is as long as its key, its value, and three bytes between them: all sums at once, no byte of which carries.
    around = int.from_bytes(bytes(map(len, heads)), "big") + int.from_bytes(b"\3" * len(heads), "big")
    if int.from_bytes(length, "big") + around != int.from_bytes(size, "big"):
        return None
    end = sum(size) + 2 * len(size)
    if body[end : end + 1] == b"\n":
        return None
    try:
        paths = _shared(tuple(map(_heads.__getitem__, heads)))
    except KeyError:
        return None
    return paths, list(values), end


def _walk_items(body: bytes) -> tuple[tuple[Path, ...], list[bytes], int] | None:
    """`decode_items`, byte by byte. Learns the keys."""
    at, end = 0, len(body)
    heads: list[bytes] = []
    values: list[bytes] = []
    try:
        while at < end and body[at] == _ITEM:
            size, at = body[at + 1], at + 2
            if size > 0x7F:
                size, at = read_varint(body, at - 1)
            stop = at + size
            head = at
            if body[at] == _KEY:
                if body[at + 1] > 0x7F:
                    return None
                at += 2 + body[at + 1]
            else:
                while body[at] == _NESTED:
                    if body[at + 1] > 0x7F:
                        return None
                    at += 2 + body[at + 1]
            if body[at : at + 2] != _VALUE_JSON or at == head or stop > end:
                return None
            length, value = body[at + 2], at + 3
            if length > 0x7F:
                length, value = read_varint(body, at + 2)
            if value + length != stop:
                return None
            heads.append(body[head:at])
            values.append(body[value:stop])
            at = stop
    except IndexError:
        return None
    return _shared(tuple(map(_path, heads))), values, at


def _shared(paths: tuple[Path, ...]) -> tuple[Path, ...]:
    """The tuple that the latest row of so many keys had, if it is the same."""
    count = len(paths)
    latest = _latest.get(count)
    if paths == latest:
        return latest
    if count <= _SHARED_KEYS:
        _latest[count] = paths
    return paths


def _path(head: bytes) -> Path:
    path = _heads.get(head)
    if path is None:
        if len(_heads) >= SHAPES_KEPT:
            _heads.clear()
        try:
            parts = [str(head[start:stop], "utf-8") for _, _, start, stop in fields(head)]
        except UnicodeDecodeError as error:
            raise WireError(f"a key is not UTF-8: {error}") from error
        path = _heads[head] = tuple(parts)
    return path


def _decode_any(body: bytes) -> tuple[tuple[Path, ...], list[bytes]]:
    """The same for every shape that the format allows: keys of any length, plain `key`, typed values, no step."""
    paths: list[Path] = []
    values: list[bytes] = []
    step: int | None = None
    for number, kind, start, stop in fields(body):
        if number == 1 and kind == BYTES:
            path, value = _item(body[start:stop])
            if path and value is not None:
                paths.append(path)
                values.append(value)
        elif number == 2 and kind == BYTES:
            step = 0
            for inner, inner_kind, begin, _ in fields(body, start, stop):
                if inner == 1 and inner_kind == VARINT:
                    step = _signed(read_varint(body, begin)[0])
    if step is not None and STEP not in paths:
        paths.append(STEP)
        values.append(b"%d" % step)
    return tuple(paths), values


def _item(item: bytes) -> tuple[Path, bytes | None]:
    """Key path and JSON text of one HistoryItem: nested_key before key, typed value before value_json."""
    key: Path = ()
    nested: list[str] = []
    text: bytes | None = None
    typed: bytes | None = None
    try:
        for number, kind, start, stop in fields(item):
            if number == 1 and kind == BYTES:
                key = (str(item[start:stop], "utf-8"),)
            elif number == 2 and kind == BYTES:
                nested.append(str(item[start:stop], "utf-8"))
            elif number == 16 and kind == BYTES:
                text = item[start:stop]
            elif 3 <= number <= 8:
                typed = _typed(number, item[start:stop])
    except UnicodeDecodeError as error:
        raise WireError(f"a key is not UTF-8: {error}") from error
    return tuple(nested) or key, text if typed is None else typed


def _typed(number: int, value: bytes) -> bytes | None:
    """JSON text of the oneof `value` (since 0.31): none, boolean, integer (zigzag), number, text, json."""
    if number == 3:
        return b"null"
    if number == 4:
        return b"true" if read_varint(value, 0)[0] else b"false"
    if number == 5:
        zigzag = read_varint(value, 0)[0]
        return b"%d" % (zigzag >> 1 ^ -(zigzag & 1))
    if number == 6 and len(value) == 8:
        double = struct.unpack("<d", value)[0]
        if double != double or double in {float("inf"), float("-inf")}:  # noqa: PLR0124 - NaN differs from itself
            return {"nan": b"NaN", "inf": b"Infinity", "-inf": b"-Infinity"}[str(double)]
        return orjson.dumps(double)
    if number == 7:
        return orjson.dumps(value.decode("utf-8", "replace"))
    return value if number == 8 else None


def _signed(value: int) -> int:
    return value - (1 << 64) if value >= 1 << 63 else value
