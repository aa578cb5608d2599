"""Rows: the body of a history record to key paths and JSON texts, without building messages.

A training loop logs the same keys again and again, so the bytes of each key are decoded once, and a row whose keys
were seen before costs little more than the walk over its items.
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
"""Heads and shapes remembered; a log with more of them decodes them again, and memory stays bounded."""

_TEMPLATE_REPEATS = 16  # rows of one shape in a row before it is compiled
_TEMPLATE_ITEMS = 512  # rows with more items are walked; compiling them would take longer than they give back
_TEMPLATE_HEAD = 100  # bytes; with a value of 120 an item's size is below 256
_SCALAR = rb"([-+.0-9A-Za-z]{0,120})"  # numbers, NaN, true, null: no byte that could begin a field

_heads: dict[bytes, Path] = {}
_shapes: dict[bytes, tuple[Path, ...]] = {}


def decode_history(body: bytes) -> tuple[tuple[Path, ...], list[bytes]]:
    """The items of a HistoryRecord in their order: key paths, and the JSON text of each.

    The tuple of paths is the same object for every row of the same keys, so that plans can be kept by it. A row
    without `_step` item gets one from the record's step field, where it has that.

    Raises:
        WireError: the bytes are no history record.
    """
    items = decode_items(body)
    if items is None or STEP not in items[0] or not _only_step_left(body, items[2]):
        return _decode_any(body)
    return items[0], items[1]


def _only_step_left(body: bytes, at: int) -> bool:
    """Whether nothing follows the items but a step, as writers have it; else further items may."""
    left = len(body) - at
    return left == 0 or (left >= 2 and body[at] == _STEP_FIELD and body[at + 1] == left - 2)


def decode_items(body: bytes) -> tuple[tuple[Path, ...], list[bytes], int] | None:
    """The items (field 1) that a history or summary record begins with, and where they end.

    None where they have another form than the one that writers use: a key or nested keys, each shorter than 128 bytes,
    and then value_json.
    """
    template = _last_template
    if template is not None:
        items = template.items(body)
        if items is not None:
            return items
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
    shape = b"\0".join(heads)  # no tag is 0, so `a, b/c` and `a/b, c` differ
    paths = _shapes.get(shape)
    if paths is None:
        paths = tuple(_path(head) for head in heads)
        if len(_shapes) >= SHAPES_KEPT:
            _shapes.clear()
        _shapes[shape] = paths
    _learn(shape, heads, paths)
    return paths, values, at


class _Template:
    """Rows of one shape whose values are scalars, as one regular expression: a third of the cost of the walk.

    It accepts what the walk accepts and nothing else: the length bytes are compared too.
    """

    __slots__ = ("_around", "_match", "_paths", "shape")

    def __init__(self, shape: bytes, heads: list[bytes], paths: tuple[Path, ...]) -> None:
        self.shape = shape
        self._paths = paths
        self._around = int.from_bytes(bytes(len(head) + len(_VALUE_JSON) + 1 for head in heads), "big")
        item = rb"\n([\x00-\x7f])%b\x82\x01([\x00-\x7f])" + _SCALAR
        pattern = b"".join(item.replace(b"%b", re.escape(head)) for head in heads)
        self._match = re.compile(pattern + rb"(?!\n)").match

    def items(self, body: bytes) -> tuple[tuple[Path, ...], list[bytes], int] | None:
        """As `decode_items`; None for a row that looks otherwise."""
        match = self._match(body)
        if match is None:
            return None
        groups = match.groups()
        values = list(groups[2::3])
        lengths = bytes(map(len, values))
        if lengths != b"".join(groups[1::3]):
            return None
        # Each item is as long as its value and what stands around it: all sums at once, no byte of which carries.
        if int.from_bytes(lengths, "big") + self._around != int.from_bytes(b"".join(groups[::3]), "big"):
            return None
        return self._paths, values, match.end()


_last_template: _Template | None = None
_last_shape = b""
_repeats = 0
_unfit: set[bytes] = set()  # shapes with other values than scalars


def _learn(shape: bytes, heads: list[bytes], paths: tuple[Path, ...]) -> None:
    """Make a template for a shape that comes again and again in a row; a writer with shuffled keys gets none."""
    global _last_template, _last_shape, _repeats
    if shape != _last_shape:
        _last_shape, _repeats = shape, 0
        return
    _repeats += 1
    if _last_template is not None and _last_template.shape == shape:
        _last_template = None  # the walk was needed for a row of its own shape
        if len(_unfit) >= SHAPES_KEPT:
            _unfit.clear()
        _unfit.add(shape)
    elif (
        _repeats >= _TEMPLATE_REPEATS
        and shape not in _unfit
        and 0 < len(heads) <= _TEMPLATE_ITEMS
        and max(map(len, heads)) < _TEMPLATE_HEAD
    ):
        _last_template = _Template(shape, heads, paths)


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
