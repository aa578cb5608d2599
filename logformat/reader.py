"""Bytes to records: the reader's half of the format.

A log read while it is written and a log read whole take the same path: `poll` gives what is complete, and `finish`
says what the rest is once nothing more will come. The reader never raises for what it finds in a file, never returns
a wrong record, and every byte that gave no record lies in exactly one gap:

| found | while more may come | once nothing more comes |
|---|---|---|
| end of file on a chunk edge between records | wait | end |
| end of file inside a chunk or a record | wait | TORN_TAIL |
| checksum differs by one bit that it tells | healed | same |
| checksum differs otherwise | BAD_CRC | same |
| length beyond the block | BAD_LENGTH, or healed where the checksum tells how long it was | same |
| zeros where a chunk starts, the block is complete | ZEROED | same |
| zeros up to the end of the file | wait | ZEROED |
| MIDDLE or LAST without FIRST; FIRST or FULL before LAST | BAD_SEQUENCE; the later chunk is read | same |
| a record that was there before, or is put together of two | BAD_SEQUENCE; next chunk | same |
| a whole record that is no message | BAD_PROTO; next chunk | same |
| 1 to 6 bytes left in a block | skipped, whatever they hold | same |
| a file header in the middle of the file | BAD_SEQUENCE; the log that begins there is read | same |
| a damaged file header | BAD_HEADER, or healed if one bit is wrong; what chains is read | same |
| something else than a log, as far as it is known | BAD_HEADER, nothing is read | same |

Where reading goes on behind damage is told in `look`, what numbers tell in `numbering`, what is healed in `heal`.
"""

from __future__ import annotations

import os
import struct
from collections.abc import Iterator
from contextlib import contextmanager
from typing import BinaryIO
from zlib import crc32

from .constants import BLOCK_SIZE, CHUNK_HEADER_SIZE, FILE_HEADER, MAX_RECORD_SIZE, ChunkType
from .heal import Healed, flipped_bits, is_sound
from .look import NEEDED, OPENING, TRAILER, TYPE_CRC, Look, Looker, Window
from .numbering import Numbering
from .record import KIND_OF_TAG, NUM_TAG, Batch, Gap, GapReason, Record, is_alone, parse_record
from .sources import first_look, open_log, unpacked
from .wire import WireError, read_varint

_HEADER_AND_HEAD = struct.Struct(
    "<IHBI3B"
)  # of a chunk, and the first seven bytes of its payload, four of them at once
# Of those four: the tag of a number and how many bytes it has, by which of their highest bits are set.
_NUM_3, _NUM_3_MASK = NUM_TAG | 0x0080_8000, 0x8080_80FF
_NUM_2, _NUM_2_MASK = NUM_TAG | 0x0000_8000, 0x0080_80FF
_NUM_1, _NUM_1_MASK = NUM_TAG, 0x0000_80FF
_FULL, _FIRST, _LAST = int(ChunkType.FULL), int(ChunkType.FIRST), int(ChunkType.LAST)
_MAGIC = FILE_HEADER[:-1]  # what stands before the version
_NOTHING: list[Record | Gap] = []
_READ_SIZE = 8 * BLOCK_SIZE  # 256 KiB: what is made of so much stays in the processor's caches


class LogReader:
    """Reads a growing or finished log.

    `start` is the offset of a record's first chunk, such as `Record.offset` or an earlier reader's `position`;
    0 reads from the file header on. The file is read with `seek` and `read` and never changed. What is packed with gzip or
    zstd is unpacked; pipes, and files by their names, come through `sources.open_log`.
    """

    def __init__(self, file: BinaryIO, *, start: int = 0, at_once: int = BLOCK_SIZE) -> None:
        """Nothing is read yet. `at_once`: bytes of the first reading."""
        self._file = file
        self.seen = start
        """Offset behind the last byte that was looked at."""
        self.position = start
        """Offset of the first byte not yet given as a record or gap: reading may start here again."""
        self.header_version: int | None = None
        """The format's version by the file header: 0 is the only one there is so far, and others are read like it. None: the
        header was not read, or is damaged."""
        self.healed: list[Healed] = []
        """The bits that were mended in memory, in file order."""
        self._at = start  # the next chunk to look at
        self._looker = Looker()
        self._parts: list[bytes] = []  # payloads of a record begun but not complete
        self._mended: tuple[Healed, ...] = ()  # in these
        self._begun = start  # where its first chunk lies
        self._damage: GapReason | None = None  # why the bytes from `position` on gave no record, if so
        self._waiting: GapReason | None = None  # what the bytes at `_at` are, should nothing more come
        self._numbers = Numbering(None if start else 0, start)
        self._trailer = -1, -1  # where the last one begins, and ends
        self._careful = start  # offset up to which numbers are looked at one by one
        self._headless = start == 0  # the file header is still to be checked
        self._foreign = self._final = False
        self._note = ""
        self._read_size = at_once  # grows: who wants no more than the head of a log does not walk all of that for it
        self._wanted = start  # offset up to which bytes are needed to tell what stands at `_at`

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
            to_edge = self._read_size - (before - self._looker.origin) % BLOCK_SIZE  # no chunk crosses one
            size = max(to_edge, self._wanted - before)
            buffer = self._read(before, size)
            if self._headless and before == 0 and (plain := unpacked(self._file, buffer)) is not None:
                self._file = plain
                continue
            self._read_size = min(2 * self._read_size, _READ_SIZE)
            if buffer:
                self.seen = max(self.seen, before + len(buffer))
                yield from self._scan(Window(buffer, before, self._final))
            if self._at == before and (len(buffer) < size or self._wanted <= before + len(buffer)):
                return

    def rest(self) -> Gap | None:
        """What the bytes seen behind `position` are, should nothing more come; reading may go on all the same."""
        reason = self._damage or self._waiting or (GapReason.TORN_TAIL if self._parts else None)
        if reason is None or self._foreign or self.seen <= self.position:
            return None
        note = self._note if reason is GapReason.BAD_HEADER else getattr(self._file, "trouble", "")
        return Gap(self.position, self.seen - self.position, reason, note=note)

    def go_on(self, file: BinaryIO) -> None:
        """Read on in another handle of the same log, which has grown meanwhile."""
        self._file = file

    def go_behind(self, end: int, num: int) -> None:
        """Read on at `end`, behind a record of that number which was read elsewhere."""
        self._at = self.position = end
        self.seen = max(self.seen, end)
        self._parts, self._mended, self._damage, self._waiting = [], (), None, None
        self._numbers.last = num or None

    def batches(self) -> Iterator[Batch | Gap]:
        """As `finish`, for many records at once."""
        yield from self.poll_batches()
        if self._foreign:
            return
        self._final = True
        try:
            yield from self.poll_batches()
        finally:
            self._final = False
        gap = self.rest()
        self.position = self._at = max(self.position, self.seen)
        self._parts, self._mended, self._damage, self._waiting = [], (), None, None
        trouble = getattr(self._file, "trouble", "")
        if gap is None and trouble and trouble != self._note:
            gap = Gap(self.position, 0, GapReason.TORN_TAIL, note=trouble)  # it breaks off between two records
        if gap is not None:
            self._note = trouble
            yield gap

    def _one_by_one(self, found: Iterator[Batch | Gap]) -> Iterator[Record | Gap]:
        for item in found:
            if isinstance(item, Gap):
                yield item
                continue
            ahead = self._at, self.position, self._parts, self._mended, self._damage, self._numbers.last
            self._parts, self._mended, self._damage = [], (), None
            for record in item.records():  # who stops at one of them finds the next one again
                self._at = self.position = record.end
                self._numbers.last = record.num or None
                yield record
            self._at, self.position, self._parts, self._mended, self._damage, self._numbers.last = ahead

    def _read(self, at: int, size: int) -> bytes:
        """`size` bytes from `at`, fewer only at the end of the file."""
        self._file.seek(at)
        data = self._file.read(size)
        while len(data) < size and (more := self._file.read(size - len(data))):
            data += more
        return data

    def _begin(self, window: Window) -> Gap | None:
        """Read the file header, as far as it is there. A gap: it is that of something else."""
        head = window.buffer[: len(FILE_HEADER)]
        if head[: len(_MAGIC)] == _MAGIC[: len(head)]:
            if len(head) < len(FILE_HEADER):
                self._waiting = GapReason.TORN_TAIL
                return None
            self.header_version = head[-1]
        elif (words := first_look(window.buffer)) is not None:
            self._foreign = True
            self.position = self._file.seek(0, os.SEEK_END)
            return Gap(0, self.position, GapReason.BAD_HEADER, note=words)
        else:
            self._note = f"not a log: it begins with {head!r}"
            self._waiting = GapReason.BAD_HEADER
            wrong = flipped_bits(head, FILE_HEADER[: len(head)], 0)
            follows = self._looker.is_chunk(window, len(FILE_HEADER))
            if not follows and not self._final and (len(wrong) == 1 or not any(head)):
                return None  # it may be one yet, or is still on its way
            if len(head) < len(FILE_HEADER):
                return None
            if follows and len(wrong) == 1:
                self.healed += wrong
                self.header_version = FILE_HEADER[-1]
            else:
                self._damage = GapReason.BAD_HEADER
        self._headless, self._waiting = False, None
        self._looker.opening = window.buffer[len(FILE_HEADER) :][:OPENING]
        self._at = len(FILE_HEADER)
        if self._damage is None:
            self.position = len(FILE_HEADER)
        return None

    def _scan(self, window: Window) -> Iterator[Batch | Gap]:
        """Walk the chunks of a window, as far as its bytes allow."""
        buffer, base, _ = window
        limit = len(buffer)
        self._waiting = None
        if self._headless:
            foreign = self._begin(window)
            if foreign is not None:
                yield foreign
            if self._headless:
                return
        at = self._at - base
        batch = Batch(buffer, base)
        while at < limit:
            edge = self._looker.edge(base + at) - base
            if not (self._damage or self._parts or self._numbers.is_tangled or base + at < self._careful):
                walked = self._walk(batch, base, at, min(edge, limit))
                if walked > at:
                    at = walked
                    continue
            found = self._step(window, at, edge)
            if found is None:
                break
            at, items = found
            if len(items) > 1 and batch.entries:
                self._at = self.position
                yield batch
                batch = Batch(buffer, base)
            for item in items:
                self._at = self.position = item.end
                if isinstance(item, Gap):
                    yield item
                else:
                    batch.add(item)
            self._at = base + at
        if batch.entries:
            yield batch

    def _walk(self, batch: Batch, base: int, at: int, edge: int) -> int:
        """Put the records from `at` on into a batch, as long as each is one good chunk before `edge`; where they end.

        Nearly every chunk of nearly every log is such a record, of a number and a body: no calls but the checksum's.
        """
        begun, count = at, len(batch.entries)
        buffer, add = batch.buffer, batch.entries.append
        unpack, kinds, full_crc = _HEADER_AND_HEAD.unpack_from, KIND_OF_TAG, TYPE_CRC[_FULL]
        last = edge - _HEADER_AND_HEAD.size
        while at <= last:
            checksum, length, chunk, head, a, b, c = unpack(buffer, at)
            begin = at + CHUNK_HEADER_SIZE
            end = begin + length
            if chunk != _FULL or end > edge or crc32(buffer[begin:end], full_crc) != checksum:
                break
            kind = None  # then a number of up to three bytes, a tag, and a size of one or two
            if head & _NUM_3_MASK == _NUM_3:
                kind, size, more, start = kinds[a], b, c, begin + 6
            elif head & _NUM_2_MASK == _NUM_2:
                kind, size, more, start = kinds[head >> 24], a, b, begin + 5
            elif head & _NUM_1_MASK == _NUM_1:
                kind, size, more, start = kinds[head >> 16 & 0xFF], head >> 24, a, begin + 4
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
            first, last = _number_of(batch, count), _number_of(batch, -1)
            read = len(batch.entries) - count
            if self._numbers.tells and (self._numbers.is_copy(first, base + begun) or last - first + 1 != read):
                del batch.entries[count:]
                self._careful = base + at  # up to there, one by one
                return begun
            self._at = self.position = base + at
            self._numbers.follow(first, last, read, base + at, damaged=False)
        return at

    def _step(self, window: Window, at: int, edge: int) -> tuple[int, list[Record | Gap]] | None:
        """Look at `at`: where to go on, and what it completed. None: more bytes are needed to tell."""
        base, look = window.base, self._look(window, at, edge)
        if look.end is None:
            self._waiting = look.reason
            self._wanted = base + at + NEEDED
            return None
        end = base + look.end
        if look.reason is not None:
            self._lose(look.reason, one=look.passed)
            if look.restarts:
                self._numbers = Numbering(0, end)
        elif look.kind != TRAILER:
            return look.end, self._assemble(window, look, base + at)
        else:
            begin = self._trailer[0] if self._trailer[1] == base + at else base + at  # it may come in pieces
            self._trailer = begin, end
            if end - begin >= CHUNK_HEADER_SIZE:
                self._lose(GapReason.ZEROED)
            elif self.position == base + at:
                self.position = end
        return look.end, _NOTHING

    def _look(self, window: Window, at: int, edge: int) -> Look:
        """What stands at `at`, where the block ends at `edge`."""
        if edge - at >= CHUNK_HEADER_SIZE:
            return self._looker.look(window, at, self._numbers.expected(self.position))
        # A block's trailer: no chunk, and nobody looks at the bytes.
        return self._looker.across(window, at) or Look(min(edge, window.limit))

    def _assemble(self, window: Window, look: Look, begun: int) -> list[Record | Gap]:
        """Put a good chunk to its record; what it completed."""
        kind, payload = look.kind, look.payload
        if kind == _FULL:
            if self._parts:
                self._lose(GapReason.BAD_SEQUENCE)
            self._mended = look.mended
            return self._complete(window, payload, begun, look.end or 0)
        if kind == _FIRST:
            if self._parts:
                self._lose(GapReason.BAD_SEQUENCE)
            self._parts, self._mended, self._begun = [payload], look.mended, begun
        elif not self._parts or kind > _LAST or kind == 0:
            self._lose(GapReason.BAD_SEQUENCE)
        else:
            self._parts.append(payload)
            self._mended += look.mended
            # Every chunk but the first and the last fills a block, so this bounds the bytes held.
            if len(self._parts) > MAX_RECORD_SIZE // BLOCK_SIZE:
                self._lose(GapReason.BAD_LENGTH)
            elif kind == _LAST:
                whole = b"".join(self._parts)
                self._parts = []
                return self._complete(window, whole, self._begun, look.end or 0)
        return _NOTHING

    def _lose(self, reason: GapReason, *, one: bool = False) -> None:
        """The bytes from `position` to the next good record become one gap; its first cause is kept."""
        self._parts, self._mended = [], ()
        self._damage = self._damage or reason
        self._numbers.lose(one=one)

    def _complete(self, window: Window, payload: bytes, begun: int, stop: int) -> list[Record | Gap]:
        """A record that ends at `stop` in the window, and before it the gap that it ends."""
        end, numbers = window.base + stop, self._numbers
        try:
            record = parse_record(payload, begun, end)
        except WireError:
            self._lose(GapReason.BAD_PROTO)
            return _NOTHING
        if self._mended:
            if not is_sound(record) or (numbers.due is not None and record.num not in {0, numbers.due}):
                self._lose(GapReason.BAD_CRC)
                return _NOTHING
            record = record._replace(healed=len(self._mended))
        is_joined = end - begun > len(payload) + CHUNK_HEADER_SIZE
        is_doubtful = is_joined or self._damage is not None or numbers.is_tangled or begun < self._careful
        if (is_doubtful and numbers.is_copy(record.num, begun)) or (
            is_joined and self._is_patchwork(window, record, stop)
        ):
            self._lose(GapReason.BAD_SEQUENCE)
            return _NOTHING
        found: list[Record | Gap] = [record]
        if self._damage is not None:
            lost = None
            if record.num and numbers.last is not None and record.num > numbers.last:
                lost = record.num - numbers.last - 1
            found = [Gap(self.position, begun - self.position, self._damage, lost), record]
        if self._mended and (not self.healed or self._mended > (self.healed[-1],)):  # not those that are read again
            self.healed += self._mended
        numbers.follow(record.num, record.num, 1, end, damaged=self._damage is not None)
        self._damage, self._mended = None, ()
        return found

    def _is_patchwork(self, window: Window, record: Record, stop: int) -> bool:
        """Whether a record of several chunks is put together of two, as far as numbers and lengths tell."""
        if not self._numbers.tells:
            return False
        is_bad, following = self._looker.behind(window, stop)
        if self._numbers.is_misplaced(record.num, following, record.offset - self.position, record.end):
            return True
        is_doubtful = is_bad or self._numbers.is_mixed or following not in {None, record.num + 1}
        return is_doubtful and not is_alone(record)


def _number_of(batch: Batch, index: int) -> int:
    """The number of the record that an entry stands for."""
    entry = batch.entries[index]
    if entry[1] is batch.buffer:  # one that `_walk` has seen to begin with it
        return read_varint(batch.buffer, entry[4] + CHUNK_HEADER_SIZE + 1)[0]
    return batch.record_of(entry).num


def read_records(source: str | os.PathLike[str] | BinaryIO, *, start: int = 0) -> Iterator[Record | Gap]:
    """All records and gaps of a log, in file order: of a path, of `-` (standard input), or of an open file.

    What is packed with gzip or zstd is unpacked as it is read, and a pipe is read as it comes.

    Raises:
        OSError: the file cannot be opened or read. What stands in it never raises.
    """
    with open_reader(source, start=start) as reader:
        yield from reader.finish()


@contextmanager
def open_reader(source: str | os.PathLike[str] | BinaryIO, *, start: int = 0) -> Iterator[LogReader]:
    """A `LogReader` of what `read_records` takes: for who asks it what it healed, or for the header's version.

    Raises:
        OSError: the file cannot be opened or read.
    """
    file = open_log(source)
    try:
        yield LogReader(file, start=start)
    finally:
        if file is not source:
            file.close()


read = read_records
