"""The messages of the TPU runtime's metric service (`tpu.monitoring.runtime`), by field number.

    MetricRequest{1 metric_name}    MetricResponse{1: TPUMetric{3: Metric*}}
    Metric{1 attribute, 3 gauge, 4 counter, 5 distribution, 6 summary}
    Attribute{1 key, 2: AttrValue{1 string, 2 bool, 3 int64, 4 double, 6: {1: Attribute*}}}
    Gauge, Counter{1 double, 2 int64}    Summary{1 count, 2 sum, 3: {1 quantile, 2 value}*}
    Distribution{1 count, 2 mean, 6: {2 exponential, 3 explicit, 4 linear}, 7 bucket_counts}
    exponential{1 buckets, 2 growth, 3 scale}    explicit{1 bounds}    linear{1 buckets, 2 width, 3 offset}

Read by hand: the helper needs neither a schema nor the memory of a protobuf runtime for that.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from typing import NamedTuple

_VARINT, _FIXED64, _BYTES, _FIXED32 = 0, 1, 2, 5  # wire types
_LONGEST_VARINT = 10  # bytes

Raw = int | bytes
Attribute = str | int | float


class Summary(NamedTuple):
    """Statistics that the server has made."""

    population: int
    total: float
    quantiles: tuple[tuple[float, float], ...]


class Histogram(NamedTuple):
    """How often a value fell into each bucket. `bounds[i]` ends bucket `i`; what is above the last is unbounded."""

    population: int
    mean: float
    bounds: tuple[float, ...]
    counts: tuple[int, ...]


class Point(NamedTuple):
    """One reading. `attributes` has the name of a list's entry, or "" for a lone value."""

    attributes: dict[str, Attribute]
    value: int | float | Summary | Histogram


def encode_request(name: str) -> bytes:
    """A MetricRequest; names have fewer than 128 bytes."""
    data = name.encode("ascii")
    return bytes([1 << 3 | _BYTES, len(data)]) + data


def read_response(data: bytes) -> list[Point]:
    """The points of a MetricResponse; one that cannot be read is left out.

    Raises:
        ValueError: the response itself is no such message.
    """
    points = []
    for metric in _messages(data, 1):
        for body in _messages(metric, 3):
            try:
                point = _point(body)
            except (ValueError, OverflowError):
                continue
            if point is not None:
                points.append(point)
    return points


def _varint(data: bytes, at: int) -> tuple[int, int]:
    value = 0
    for index, byte in enumerate(data[at : at + _LONGEST_VARINT]):
        value |= (byte & 0x7F) << 7 * index
        if byte < 0x80:
            return value & (1 << 64) - 1, at + index + 1
    raise ValueError("a varint without end")


def _fields(data: bytes) -> Iterator[tuple[int, Raw]]:
    """Number and raw value of each field: an int for a varint, else its bytes."""
    at = 0
    while at < len(data):
        tag, at = _varint(data, at)
        kind = tag & 7
        if kind == _VARINT:
            value, at = _varint(data, at)
            yield tag >> 3, value
            continue
        if kind == _BYTES:
            size, at = _varint(data, at)
        elif kind in {_FIXED64, _FIXED32}:
            size = 8 if kind == _FIXED64 else 4
        else:
            raise ValueError(f"wire type {kind}")
        if len(data) - at < size:
            raise ValueError("a field without end")
        yield tag >> 3, data[at : at + size]
        at += size


def _messages(data: bytes, number: int) -> Iterator[bytes]:
    return (raw for field, raw in _fields(data) if field == number and isinstance(raw, bytes))


def _signed(raw: Raw | None) -> int:
    if not isinstance(raw, int):
        raise ValueError("no integer")  # noqa: TRY004 - of the data, not of the caller
    return raw - (1 << 64) if raw >> 63 else raw


def _double(raw: Raw | None) -> float:
    if not isinstance(raw, bytes) or len(raw) != 8:
        raise ValueError("no double")
    value: float = struct.unpack("<d", raw)[0]
    return value


def _text(raw: Raw | None) -> str:
    if not isinstance(raw, bytes):
        raise ValueError("no text")  # noqa: TRY004 - see _signed
    return raw.decode("utf-8", "replace")


def _point(data: bytes) -> Point | None:
    attributes: dict[str, Attribute] = {}
    value: int | float | Summary | Histogram | None = None
    for number, raw in _fields(data):
        if not isinstance(raw, bytes):
            continue
        if number == 1:
            attributes = _attributes(raw)
        elif number in {3, 4}:
            value = _gauge(raw)
        elif number == 5:
            value = _histogram(raw)
        elif number == 6:
            value = _summary(raw)
    return None if value is None else Point(attributes, value)


def _attributes(data: bytes) -> dict[str, Attribute]:
    """Entries of a list by name; a lone value by the name "", whatever the server calls it."""
    for value in _messages(data, 2):
        for number, raw in _fields(value):
            if number == 6 and isinstance(raw, bytes):
                return dict(filter(None, map(_entry, _messages(raw, 1))))
            scalar = _scalar(number, raw)
            if scalar is not None:
                return {"": scalar}
    return {}


def _entry(data: bytes) -> tuple[str, Attribute] | None:
    fields = dict(_fields(data))
    value = fields.get(2)
    if isinstance(value, bytes):
        for number, raw in _fields(value):
            scalar = _scalar(number, raw)
            if scalar is not None:
                return _text(fields.get(1, b"")), scalar
    return None


def _scalar(number: int, raw: Raw) -> Attribute | None:
    if number == 1:
        return _text(raw)
    if number in {2, 3}:
        return _signed(raw)
    return _double(raw) if number == 4 else None


def _gauge(data: bytes) -> int | float | None:
    for number, raw in _fields(data):
        if number == 1:
            return _double(raw)
        if number == 2:
            return _signed(raw)
    return None


def _summary(data: bytes) -> Summary:
    fields = dict(_fields(data))
    quantiles = []
    for body in _messages(data, 3):
        quantile = dict(_fields(body))
        quantiles.append((_number(quantile, 1), _number(quantile, 2)))
    return Summary(_signed(fields.get(1, 0)), _number(fields, 2), tuple(quantiles))


def _number(fields: dict[int, Raw], number: int) -> float:
    """A double field; one that is 0 is not sent."""
    return _double(fields[number]) if number in fields else 0.0


def _histogram(data: bytes) -> Histogram:
    fields = dict(_fields(data))
    counts: list[int] = []
    for number, raw in _fields(data):
        if number == 7:
            counts += [_signed(raw)] if isinstance(raw, int) else _packed_varints(raw)
    options = fields.get(6, b"")
    if not isinstance(options, bytes):
        raise ValueError("no bucket options")  # noqa: TRY004 - see _signed
    return Histogram(_signed(fields.get(1, 0)), _number(fields, 2), _bounds(options, len(counts)), tuple(counts))


def _packed_varints(data: bytes) -> list[int]:
    values, at = [], 0
    while at < len(data):
        value, at = _varint(data, at)
        values.append(_signed(value))
    return values


def _bounds(options: bytes, most: int) -> tuple[float, ...]:
    """Upper ends of the finite buckets, `most` at most, as the peer takes them.

    It has the first bucket end at scale * growth (offset + width), where Google's tpu-info has it end at scale (offset):
    its percentiles are one bucket lower.
    """
    for number, raw in _fields(options):
        if not isinstance(raw, bytes):
            continue
        fields = dict(_fields(raw))
        if number == 3:
            return tuple(bound for body in _explicit(raw) for bound in body)[:most]
        if number in {2, 4}:
            buckets = min(max(_signed(fields.get(1, 0)), 0), most)
            if number == 2:
                growth, scale = _number(fields, 2), _number(fields, 3)
                return tuple(scale * growth ** (index + 1) for index in range(buckets))
            width, offset = _number(fields, 2), _number(fields, 3)
            return tuple(offset + width * (index + 1) for index in range(buckets))
    return ()


def _explicit(data: bytes) -> Iterator[tuple[float, ...]]:
    """The doubles of field 1, packed or one by one."""
    for body in _messages(data, 1):
        if len(body) % 8:
            raise ValueError("no doubles")
        yield struct.unpack(f"<{len(body) // 8}d", body)
