"""Bytes to records: the reader's half of the format.

A log read while it is written and a log read whole take the same path: `poll` gives what is complete, and `finish`
says what the rest is once nothing more will come. The reader never raises for what it finds in a file, never returns
a wrong record, and every byte that gave no record lies in exactly one gap:

| found | while more may come | once nothing more comes |
|---|---|---|
| end of file on a chunk edge between records | wait | end |
| end of file inside a chunk or a record | wait | TORN_TAIL |
| checksum differs | BAD_CRC; go on where lengths chain in this block, checked by CRC, else in the next block | same |
| length beyond the block | BAD_LENGTH; next block | same |
| zeros where a chunk starts, the block is complete | ZEROED; next block | same |
| zeros up to the end of the file | wait | ZEROED |
| MIDDLE or LAST without FIRST; FIRST or FULL before LAST | BAD_SEQUENCE; the later chunk is read | same |
| a whole record that is no message | BAD_PROTO; next chunk | same |
| 1 to 6 bytes left in a block | skipped, whatever they hold | same |
| no file header | BAD_HEADER, nothing else is read | same |
"""

from __future__ import annotations

import os
import struct
from collections.abc import Iterator
from typing import BinaryIO
from zlib import crc32

from .constants import BLOCK_SIZE, CHUNK_HEADER_SIZE, FILE_HEADER, MAX_RECORD_SIZE, ChunkType
from .record import KIND_OF_TAG, NUM_TAG, Batch, Gap, GapReason, Record, parse_record
from .sources import first_look, open_log, unpacked
from .wire import WireError

_HEADER = struct.Struct("<IHB")
_HEADER_AND_HEAD = struct.Struct("<IHB7B")  # and the first bytes of the payload
_TYPE_CRC = [crc32(bytes([kind])) for kind in range(256)]
_FULL, _FIRST, _LAST = int(ChunkType.FULL), int(ChunkType.FIRST), int(ChunkType.LAST)
_NOTHING: list[Record | Gap] = []
_READ_SIZE = 8 * BLOCK_SIZE  # 256 KiB: what is made of so much stays in the processor's caches


class LogReader:
    """Reads a growing or finished log.

    `start` is the offset of a record's first chunk, such as `Record.offset` or an earlier reader's `position`;
    0 reads from the file header on. The file is read with `seek` and `read` and never changed.
    """

    def __init__(self, file: BinaryIO, *, start: int = 0, at_once: int = BLOCK_SIZE) -> None:
        """Nothing is read yet. `at_once`: bytes of the first reading."""
        self._file = file
        self.seen = start
        """Offset behind the last byte that was looked at."""
        self.position = start
        """Offset of the first byte not yet given as a record or gap: reading may start here again."""
        self._at = start  # the next chunk to look at
        self._parts: list[bytes] = []  # payloads of a record begun but not complete
        self._begun = start  # where its first chunk lies
        self._damage: GapReason | None = None  # why the bytes from `position` on gave no record, if so
        self._waiting: GapReason | None = None  # what the bytes at `_at` are, should nothing more come
        self._last_num: int | None = None if start else 0
        self._headless = start == 0  # the file header is still to be checked
        self._foreign = False
        self._read_size = at_once  # grows: who wants no more than the head of a log does not walk all of that for it

    def poll(self) -> Iterator[Record | Gap]:
        """Everything that is complete by now, in file order."""
        return self._one_by_one(self.poll_batches())

    def finish(self) -> Iterator[Record | Gap]:
        """The rest, now that nothing more will come: what `poll` gives, and at most one gap behind it."""
        return self._one_by_one(self.batches())

    def poll_batches(self) -> Iterator[Batch | Gap]:
        """As `poll`, for many records at once: what lies between two gaps, up to 256 KiB of it."""
        while not self._foreign:
            before = self._at
            buffer = self._read(before, self._read_size - before % BLOCK_SIZE)  # to a block edge: no chunk crosses one
            if self._headless and before == 0 and (plain := unpacked(self._file, buffer)) is not None:
                self._file = plain
                continue
            self._read_size = min(2 * self._read_size, _READ_SIZE)
            if buffer:
                self.seen = max(self.seen, before + len(buffer))
                yield from self._scan(buffer, before)
            if self._at == before:
                return

    def rest(self) -> Gap | None:
        """What the bytes seen behind `position` are, should nothing more come; reading may go on all the same."""
        reason = self._damage or self._waiting or (GapReason.TORN_TAIL if self._parts else None)
        if reason is None or self._foreign or self.seen <= self.position:
            return None
        return Gap(self.position, self.seen - self.position, reason)

    def go_on(self, file: BinaryIO) -> None:
        """Read on in another handle of the same log, which has grown meanwhile."""
        self._file = file

    def go_behind(self, end: int, num: int) -> None:
        """Read on at `end`, behind a record of that number which was read elsewhere."""
        self._at = self.position = end
        self.seen = max(self.seen, end)
        self._parts, self._damage, self._waiting, self._last_num = [], None, None, num or None

    def batches(self) -> Iterator[Batch | Gap]:
        """As `finish`, for many records at once."""
        yield from self.poll_batches()
        if self._foreign:
            return
        gap = self.rest()
        self.position = self._at = max(self.position, self.seen)
        self._parts, self._damage, self._waiting = [], None, None
        if gap is not None:
            yield gap

    def _one_by_one(self, found: Iterator[Batch | Gap]) -> Iterator[Record | Gap]:
        for item in found:
            if isinstance(item, Gap):
                yield item
                continue
            ahead = self._at, self.position, self._parts, self._damage, self._last_num
            self._parts, self._damage = [], None
            for record in item.records():  # who stops at one of them finds the next one again
                self._at = self.position = record.end
                self._last_num = record.num or None
                yield record
            self._at, self.position, self._parts, self._damage, self._last_num = ahead

    def _read(self, at: int, size: int) -> bytes:
        """`size` bytes from `at`, fewer only at the end of the file."""
        self._file.seek(at)
        data = self._file.read(size)
        while len(data) < size and (more := self._file.read(size - len(data))):
            data += more
        return data

    def _scan(self, buffer: bytes, base: int) -> Iterator[Batch | Gap]:
        """Walk the chunks of `buffer`, which lies at `base` in the file, as far as its bytes allow."""
        limit = len(buffer)
        at = 0
        self._waiting = None
        if self._headless:
            if not FILE_HEADER.startswith(buffer[: len(FILE_HEADER)]):
                self._foreign = True
                self.position = self._file.seek(0, os.SEEK_END)
                yield Gap(0, self.position, GapReason.BAD_HEADER, note=first_look(buffer) or "")
                return
            if limit < len(FILE_HEADER):
                self._waiting = GapReason.TORN_TAIL
                return
            self._headless = False
            at = self._at = self.position = len(FILE_HEADER)
        batch = Batch(buffer, base)
        block_end = BLOCK_SIZE - base % BLOCK_SIZE
        while at < limit:
            if self._damage is None and not self._parts:
                at = self._walk(batch, base, at, min(block_end, limit))
            if at == limit:
                break
            if block_end - at >= CHUNK_HEADER_SIZE:
                step = self._chunk(buffer, base, at, block_end)
                if step is None:
                    break
                at, found = step
                if len(found) > 1 and batch.entries:
                    self._at = self.position
                    yield batch
                    batch = Batch(buffer, base)
                for item in found:
                    self._at = self.position = item.end
                    if isinstance(item, Gap):
                        yield item
                    else:
                        batch.add(item)
            elif at < block_end:  # a block's trailer: no chunk, and nobody looks at the bytes
                if self.position == base + at:
                    self.position = base + min(block_end, limit)
                at = block_end
            if at == block_end:
                block_end += BLOCK_SIZE
            self._at = base + at
        if batch.entries:
            yield batch

    def _walk(self, batch: Batch, base: int, at: int, edge: int) -> int:
        """Put the records from `at` on into a batch, as long as each is one good chunk before `edge`; where they end.

        Nearly every chunk of nearly every log is such a record, of a number and a body: no calls but the checksum's.
        """
        begun, buffer, add = at, batch.buffer, batch.entries.append
        unpack, kinds, full_crc = _HEADER_AND_HEAD.unpack_from, KIND_OF_TAG, _TYPE_CRC[_FULL]
        last = edge - _HEADER_AND_HEAD.size
        while at <= last:
            checksum, length, chunk, first, a, b, c, d, e, f = unpack(buffer, at)
            begin = at + CHUNK_HEADER_SIZE
            end = begin + length
            if chunk != _FULL or end > edge or crc32(buffer[begin:end], full_crc) != checksum:
                break
            kind = None
            if first == NUM_TAG:  # then a number of up to three bytes, a tag, and a size of one or two
                if a > 0x7F and b > 0x7F and c < 0x80:
                    kind, size, more, start = kinds[d], e, f, begin + 6
                elif a > 0x7F and b < 0x80:
                    kind, size, more, start = kinds[c], d, e, begin + 5
                elif a < 0x80:
                    kind, size, more, start = kinds[b], c, d, begin + 4
                if kind is not None and size > 0x7F:
                    size, start = size & 0x7F | more << 7, start + 1
            if kind is not None and start + size == end and more < 0x80:
                add((kind, buffer, start, end, at, end))
            else:
                try:
                    batch.add(parse_record(buffer[begin:end], base + at, base + end))
                except WireError:
                    break
            at = end
        if at > begun:
            self._at = self.position = base + at
            self._last_num = batch.record_of(batch.entries[-1]).num or None
        return at

    def _chunk(self, buffer: bytes, base: int, at: int, block_end: int) -> tuple[int, list[Record | Gap]] | None:
        """Read the chunk at `at`: where to go on, and what it completed. None: more bytes are needed to tell."""
        limit = len(buffer)
        body = at + CHUNK_HEADER_SIZE
        if body > limit:
            self._waiting = GapReason.TORN_TAIL
            return None
        checksum, length, kind = _HEADER.unpack_from(buffer, at)
        end = body + length
        if end > limit or end > block_end:
            if end > block_end:
                self._lose(GapReason.BAD_LENGTH)
                return block_end, _NOTHING
            self._waiting = GapReason.TORN_TAIL
            return None
        if checksum == length == kind == 0:
            # A hole, or bytes that a network file system has yet to deliver: only a complete block is given up.
            if block_end <= limit:
                self._lose(GapReason.ZEROED)
                return block_end, _NOTHING
            self._waiting = GapReason.ZEROED
            return None
        payload = buffer[body:end]
        if crc32(payload, _TYPE_CRC[kind]) != checksum:
            if _is_chunk(buffer, end, block_end):  # the length was right: only this chunk is lost
                self._lose(GapReason.BAD_CRC)
                return end, _NOTHING
            if block_end <= limit:
                self._lose(GapReason.BAD_CRC)
                return block_end, _NOTHING
            self._waiting = GapReason.BAD_CRC
            return None
        return end, self._assemble(payload, kind, base + at, base + end)

    def _assemble(self, payload: bytes, kind: int, begun: int, end: int) -> list[Record | Gap]:
        """Put a good chunk to its record; what it completed."""
        if kind == _FULL:
            if self._parts:
                self._lose(GapReason.BAD_SEQUENCE)
            return self._complete(payload, begun, end)
        if kind == _FIRST:
            if self._parts:
                self._lose(GapReason.BAD_SEQUENCE)
            self._parts, self._begun = [payload], begun
        elif not self._parts or kind > _LAST or kind == 0:
            self._lose(GapReason.BAD_SEQUENCE)
        else:
            self._parts.append(payload)
            # Every chunk but the first and the last fills a block, so this bounds the bytes held.
            if len(self._parts) > MAX_RECORD_SIZE // BLOCK_SIZE:
                self._lose(GapReason.BAD_LENGTH)
            elif kind == _LAST:
                whole = b"".join(self._parts)
                self._parts = []
                return self._complete(whole, self._begun, end)
        return _NOTHING

    def _lose(self, reason: GapReason) -> None:
        """The bytes from `position` to the next good record become one gap; its first cause is kept."""
        self._parts = []
        self._damage = self._damage or reason

    def _complete(self, payload: bytes, begun: int, end: int) -> list[Record | Gap]:
        """A record, and before it the gap that it ends."""
        try:
            record = parse_record(payload, begun, end)
        except WireError:
            self._lose(GapReason.BAD_PROTO)
            return _NOTHING
        found: list[Record | Gap] = [record]
        if self._damage is not None:
            lost = None
            if record.num and self._last_num is not None and record.num > self._last_num:
                lost = record.num - self._last_num - 1
            found = [Gap(self.position, begun - self.position, self._damage, lost), record]
            self._damage = None
        self._last_num = record.num or None
        return found


def _is_chunk(buffer: bytes, at: int, block_end: int) -> bool:
    """Whether a chunk with a good checksum lies at `at`."""
    body = at + CHUNK_HEADER_SIZE
    stop = min(block_end, len(buffer))
    if body > stop:
        return False
    checksum, length, kind = _HEADER.unpack_from(buffer, at)
    end = body + length
    return bool(1 <= kind <= _LAST and end <= stop) and crc32(buffer[body:end], _TYPE_CRC[kind]) == checksum


def read_records(source: str | os.PathLike[str] | BinaryIO, *, start: int = 0) -> Iterator[Record | Gap]:
    """All records and gaps of a log, in file order: of a path, of `-` (standard input), or of an open file.

    What is packed with gzip or zstd is unpacked as it is read, and a pipe is read as it comes.

    Raises:
        OSError: the file cannot be opened or read. What stands in it never raises.
    """
    file = open_log(source)
    try:
        yield from LogReader(file, start=start).finish()
    finally:
        if file is not source:
            file.close()


read = read_records
