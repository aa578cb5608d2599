"""What a reader gives: a record, or the gap where records were."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from enum import Enum
from typing import Any, NamedTuple

from .constants import CHUNK_HEADER_SIZE
from .schema import KINDS
from .wire import BYTES, VARINT, WireError, fields, read_varint

_NUM = 1
_ENVELOPE = frozenset({16, 19, 200})  # control, uuid, _info
NUM_TAG = _NUM << 3 | VARINT
KIND_OF_TAG = [KINDS.get(tag >> 3) if tag & 7 == BYTES and tag < 0x80 else None for tag in range(256)]
"""Names of the record types whose tag is one byte, by that byte."""


class GapReason(Enum):
    """Why bytes of a log could not be read; the first cause, where one led to others."""

    TORN_TAIL = "torn_tail"
    """The log ends inside a record: its writer was stopped, or is still writing."""
    BAD_CRC = "bad_crc"
    """A chunk's checksum does not match its bytes."""
    BAD_LENGTH = "bad_length"
    """A chunk claims to reach beyond its block, or a record beyond the cap."""
    BAD_SEQUENCE = "bad_sequence"
    """Chunks in an order that no writer makes, such as FIRST followed by FULL."""
    ZEROED = "zeroed"
    """Zeros where a chunk should start: a hole left by the file system or the disk."""
    BAD_PROTO = "bad_proto"
    """A whole record with a good checksum that is no message."""
    BAD_HEADER = "bad_header"
    """The file does not begin with the seven bytes of a log."""


@dataclass(frozen=True, slots=True)
class Gap:
    """Bytes `offset` to `offset + length` of a log that gave no record."""

    offset: int
    length: int
    reason: GapReason
    records_lost: int | None = None
    """Counted by the numbers of the records on both sides; None where they don't tell."""
    note: str = field(default="", compare=False)
    """What is known besides: what a file that is no log is instead, or why packed data broke off."""

    @property
    def end(self) -> int:
        """The offset behind the gap."""
        return self.offset + self.length


class Record(NamedTuple):
    """One record: where it lies in the file, and its bytes."""

    offset: int
    """File offset of the first chunk's header."""
    end: int
    """File offset behind the last chunk."""
    payload: bytes
    num: int
    """The writer's running number from 1; 0 in logs that have none (before 0.13.9)."""
    kind: str
    """Name of the record type, `unknown` for one that this version has never heard of, `empty` for none."""
    start: int
    stop: int
    healed: int = 0
    """Bits that were mended in memory, because the checksum of their chunk proves what they were; the file has them wrong."""

    @property
    def body(self) -> bytes:
        """The serialized message of the record type."""
        return self.payload[self.start : self.stop]

    def message(self) -> Any:
        """The record type's message, parsed; None for kinds without one (`unknown`, `empty`, `request`).

        Raises:
            WireError: the bytes are no such message.
        """
        from google.protobuf.message import DecodeError

        from . import messages

        body = messages.BODIES.get(self.kind)
        if body is None:
            return None
        try:
            return body.FromString(self.body)
        except DecodeError as error:
            raise WireError(f"record {self.num} ({self.kind}) at offset {self.offset}: {error}") from error


Entry = tuple[str, bytes, int, int, int, int]
"""A record in passing: kind, the bytes that its body lies in, from and to where in them, offset and end in the batch."""


class Batch:
    """Records that lie one behind the other in a log, most of them still in the bytes read from it.

    For who looks at many records and into few: an entry costs a fraction of a `Record`, and says the same of it but for
    number and payload.
    """

    __slots__ = ("base", "buffer", "entries", "healed")

    def __init__(self, buffer: bytes, base: int) -> None:
        self.buffer = buffer
        self.base = base
        """Where it begins in the file."""
        self.entries: list[Entry] = []
        self.healed: dict[int, int] = {}
        """`Record.healed` of those entries that have some, by their offset in the batch."""

    @property
    def end(self) -> int:
        """The offset in the file behind the last entry."""
        return self.base + self.entries[-1][5]

    def add(self, record: Record) -> None:
        """Add a record of its own bytes."""
        offset, end = record.offset - self.base, record.end - self.base
        self.entries.append((record.kind, record.payload, record.start, record.stop, offset, end))
        if record.healed:
            self.healed[offset] = record.healed

    def record_of(self, entry: Entry) -> Record:
        """An entry of this batch as a record."""
        _, data, _, stop, offset, end = entry
        if data is self.buffer:  # one chunk, at whose end the body ends
            data = data[offset + CHUNK_HEADER_SIZE : stop]
        record = parse_record(data, self.base + offset, self.base + end)
        return record._replace(healed=self.healed[offset]) if offset in self.healed else record

    def records(self) -> Iterator[Record]:
        """All of them, in file order."""
        return map(self.record_of, self.entries)


def parse_record(payload: bytes, offset: int, end: int) -> Record:
    """A record from its payload, looking no deeper than the envelope.

    Raises:
        WireError: the payload is no message.
    """
    # Nearly every record is `num` and one body of a low field number, in that order: no general walk for those.
    try:
        if payload[0] == NUM_TAG:
            num, at = payload[1], 2
            if num > 0x7F:
                num, at = read_varint(payload, 1)
            known = KIND_OF_TAG[payload[at]]
            if known is not None:
                size, at = payload[at + 1], at + 2
                if size > 0x7F:
                    more = payload[at]
                    if more > 0x7F:
                        size, at = read_varint(payload, at - 1)
                    else:
                        size, at = size & 0x7F | more << 7, at + 1
                if at + size == len(payload):
                    return Record(offset, end, payload, num, known, at, at + size)
    except IndexError:
        pass  # short payloads take the walk, which says what is wrong
    num = start = stop = 0
    kind = "empty"
    for number, wire_type, begin, finish in fields(payload):
        if number == _NUM and wire_type == VARINT:
            num = read_varint(payload, begin)[0]
        elif wire_type == BYTES and number not in _ENVELOPE and (number in KINDS or kind == "empty"):
            # A field of a later version beside a known record type does not hide it.
            kind, start, stop = KINDS.get(number, "unknown"), begin, finish
    return Record(offset, end, payload, num, kind, start, stop)


def is_alone(record: Record) -> bool:
    """Whether a record's bytes hold its record type, once, and nothing else but what belongs to the envelope."""
    found = [(number, kind) for number, kind, _, _ in fields(record.payload) if number not in _ENVELOPE]
    return len(found) - found.count((_NUM, VARINT)) == 1
