"""What stands at one place of a log: a chunk, or damage, and where reading goes on behind it.

The bytes alone decide, not how they came: what cannot be told yet is waited for. Behind damage reading goes on

1. at the end that the chunk claims, if the record that begins there is the next but one: then its length was right;
2. else at the next place in the block from where chunks chain: one with a good checksum, and behind it another one, or the
   edge of the block, or the end of the log; or one that is by itself a record with the number that is due. Random bytes
   have a good checksum once in 2**32, so that no place among 32,768 is one by chance. Chunks whose numbers cannot come
   next are passed over, where those that can lie behind them: a record may hold another log;
3. else in the next block.

A chunk whose checksum proves what it was is mended on the way: one flipped bit (`heal`), or a length that should end
where the next good chunk begins.

Blocks are counted from the beginning of the file. They are not in logs of cores up to 0.17.5 (from behind the header),
in what follows bytes that were inserted or cut out, and in a log that was appended to another one. There a good chunk lies
across the edge with another one behind it, which no writer makes; from then on edges are where chunks show them to be.
"""

from __future__ import annotations

import re
import struct
from collections.abc import Iterator
from typing import NamedTuple
from zlib import crc32

from .constants import BLOCK_SIZE, CHUNK_HEADER_SIZE, FILE_HEADER, ChunkType
from .heal import MAX_MENDED, Healed, flipped_bit, flipped_bits
from .numbering import Due
from .record import NUM_TAG, GapReason, parse_record
from .wire import WireError, read_varint

HEADER = struct.Struct("<IHB")
TYPE_CRC = [crc32(bytes([kind])) for kind in range(256)]
NEEDED = 2 * BLOCK_SIZE + 64
"""Bytes that tell everything about what stands before them: a chunk across an edge, and one behind it."""

OPENING = 64
"""Bytes behind a file header by which a copy of the log's own beginning is told from another log."""
TRAILER = -1
"""In place of a chunk's type: it is none, and nothing is lost."""

_FULL, _FIRST, _LAST = int(ChunkType.FULL), int(ChunkType.FIRST), int(ChunkType.LAST)
_PARTS, _BEGUN = {int(ChunkType.MIDDLE), _LAST}, {_FIRST, int(ChunkType.MIDDLE)}
_MAX_PAYLOAD = BLOCK_SIZE - CHUNK_HEADER_SIZE
_EFFORT = 16 * BLOCK_SIZE  # bytes that may be summed for one damaged block: it is hostile, or hopeless, beyond that
_SECTOR = 512  # bytes that a disk writes at once, at least
_MENDING = 16  # what looking for a flipped bit counts beside the sum of as many bytes
_TRYING = 32  # what a place counts where a header may lie
_SMALLEST = CHUNK_HEADER_SIZE + 4  # bytes of a framed record that has a number and a body
_HEADER_AT = re.compile(rb"(?s)(?=.{5}[\x00-\x7f][\x01-\x04])")  # where the length may be one and the type exists


class Look(NamedTuple):
    """What stands at a place."""

    end: int | None
    """Where reading goes on, in the buffer; None: more bytes are needed to tell, or there are no more."""
    reason: GapReason | None = None
    """Why it is no chunk, if it is none; what it is should nothing more come, where `end` is None."""
    kind: int = TRAILER
    """The chunk's type."""
    payload: bytes = b""
    mended: tuple[Healed, ...] = ()
    passed: bool = False
    """It is one chunk that is lost, whose length was right."""
    restarts: bool = False
    """It is, or ends with, a file header in the middle of the file: another log begins."""


class Window(NamedTuple):
    """The bytes that can be looked at."""

    buffer: bytes
    base: int
    """Where they lie in the file."""
    final: bool
    """Nothing more will come behind them."""

    @property
    def limit(self) -> int:
        """The offset in the buffer behind the last of them."""
        return len(self.buffer)


class Looker:
    """Looks at one place after the other of one log."""

    def __init__(self) -> None:
        self.opening = b""
        """What stands behind the log's own file header."""
        self._origin: int | None = 0
        self._block, self._spent = -1, 0
        self._is_short = False  # what might have been a chunk reached beyond the bytes at hand

    @property
    def origin(self) -> int:
        """The offset from which blocks are counted, modulo their size."""
        return self._origin or 0

    def edge(self, offset: int) -> int:
        """The edge of the block that an offset of the file lies in; one block further where edges are not known."""
        return offset + BLOCK_SIZE - (0 if self._origin is None else (offset - self._origin) % BLOCK_SIZE)

    def look(self, window: Window, at: int, due: Due) -> Look:
        """What stands at `at` in the buffer, at least seven bytes before the edge of its block.

        `due` tells of the record that a chunk here is expected to be of or to begin, and of those behind damage.
        """
        buffer, limit = window.buffer, window.limit
        body = at + CHUNK_HEADER_SIZE
        if body > limit:
            return Look(None, GapReason.TORN_TAIL)
        checksum, length, kind = HEADER.unpack_from(buffer, at)
        end, edge = body + length, self.edge(window.base + at) - window.base
        if end > edge:
            reason = GapReason.BAD_LENGTH
        elif end > limit:
            if not window.final:
                return Look(None, GapReason.TORN_TAIL)
            reason = GapReason.TORN_TAIL
        elif checksum == length == kind == 0:
            reason = GapReason.ZEROED
        else:
            payload = buffer[body:end]
            if crc32(payload, TYPE_CRC[kind]) == checksum:
                self._learn(window, end, kind)
                return Look(end, None, kind, payload)
            reason = GapReason.BAD_CRC
        before = self._begin(window, at)
        self._spent += length if reason is GapReason.BAD_CRC else 0
        found = self._damaged(window, at, edge, reason, due)
        if found.end is not None and self._is_short and not window.final:
            found = Look(None, reason)
        if found.end is None:
            self._spent, self._origin = before  # it will be looked at again
        return found

    def across(self, window: Window, at: int) -> Look | None:
        """The chunk that begins in the trailer of a block; None if none does, as in nearly every log."""
        buffer, limit = window.buffer, window.limit
        if not any(buffer[at : self.edge(window.base + at) - window.base]):
            return None
        if at + CHUNK_HEADER_SIZE > limit:
            return None if window.final else Look(None, GapReason.TORN_TAIL)
        before = self._begin(window, at)
        found = self._crossing(window, at)
        if buffer.startswith(FILE_HEADER, at) and self._good(window, at + len(FILE_HEADER)) is not None:
            found = Look(at + len(FILE_HEADER), GapReason.BAD_SEQUENCE, restarts=self._restarts(window, at))
        if self._is_short and not window.final:
            found = Look(None, GapReason.TORN_TAIL)
            self._spent, self._origin = before
        return found

    def is_chunk(self, window: Window, at: int) -> bool:
        """Whether a good chunk lies at `at`, as far as the bytes tell."""
        self._begin(window, at)
        return self._good(window, at) is not None

    def behind(self, window: Window, at: int) -> tuple[bool, int | None]:
        """What follows at `at`: whether it is damaged, as far as the bytes tell; and the number of the record that begins there."""
        self._begin(window, at)
        if self.edge(window.base + at) - window.base - at < CHUNK_HEADER_SIZE:
            return False, None
        chunk = self._good(window, at)
        return chunk is None and not self._is_short, _number(chunk) if chunk is not None else None

    def _begin(self, window: Window, at: int) -> tuple[int, int | None]:
        """Count what is spent from here on, for the block that `at` lies in; returns what may have to be restored."""
        block = (window.base + at) // BLOCK_SIZE
        if block != self._block:
            self._block, self._spent = block, 0
        self._is_short = False
        return self._spent, self._origin

    def _learn(self, window: Window, end: int, kind: int) -> None:
        """A chunk that is not the last one of its record ends at the edge of a block."""
        if self._origin is None and kind in {_FIRST, _FIRST + 1}:
            self._origin = (window.base + end) % BLOCK_SIZE

    def _damaged(self, window: Window, at: int, edge: int, reason: GapReason, due: Due) -> Look:
        """What to make of bytes that are no good chunk."""
        buffer, limit = window.buffer, window.limit
        body = at + CHUNK_HEADER_SIZE
        if buffer.startswith(FILE_HEADER, at) and self._good(window, body) is not None:
            return Look(body, GapReason.BAD_SEQUENCE, restarts=self._restarts(window, at))
        if reason is GapReason.ZEROED and edge <= limit and buffer.count(0, at, edge) == edge - at:
            return Look(edge, reason)  # a hole, of which there may be gigabytes
        if buffer[at] == 0 and (begin := self._behind_trailer(window, at)):
            self._origin = (window.base + begin) % BLOCK_SIZE
            return Look(begin)
        if reason is GapReason.BAD_LENGTH and (found := self._crossing(window, at)) is not None:
            return found
        if reason is GapReason.BAD_CRC and (found := self._claimed(window, at, edge, due)) is not None:
            return found
        if limit < edge and not window.final:
            return Look(None, reason)
        return self._resumed(window, at, edge, reason, due)

    def _behind_header(self, window: Window, edge: int) -> int | None:
        """Where the first chunk begins behind a file header that lies at the edge of a block, or across it."""
        begin = window.buffer.find(FILE_HEADER, edge - len(FILE_HEADER), edge + len(FILE_HEADER) - 1)
        place = begin + len(FILE_HEADER)
        return place if begin >= 0 and self._good(window, place) is not None else None

    def _restarts(self, window: Window, at: int) -> bool:
        """Whether another log begins with the file header at `at`, rather than a copy of this one's first sector."""
        begin = window.base + at
        if begin % _SECTOR == 0 and self.opening and window.buffer.startswith(self.opening, at + len(FILE_HEADER)):
            return False
        self._origin = begin % BLOCK_SIZE
        return True

    def _crossing(self, window: Window, at: int) -> Look | None:
        """The chunk across the edge of a block, if it is a good one with another one behind it."""
        chunk = self._good(window, at)
        if chunk is None:
            return None
        kind, payload = chunk
        end = at + CHUNK_HEADER_SIZE + len(payload)
        is_last = window.final and end == window.limit
        if not is_last and self._good(window, end) is None and not self._behind_trailer(window, end):
            return None
        self._origin = None
        self._learn(window, end, kind)
        return Look(end, None, kind, payload)

    def _behind_trailer(self, window: Window, at: int) -> int:
        """Where a good chunk begins behind one to six zeros; 0 if none does."""
        for begin in range(at + 1, at + CHUNK_HEADER_SIZE):
            if window.buffer[begin - 1 : begin] != b"\0":
                return 0
            if self._good(window, begin) is not None:
                return begin
        return 0

    def _claimed(self, window: Window, at: int, edge: int, due: Due) -> Look | None:
        """A chunk with a bad checksum whose length is right: mended, or passed over. None: its length tells nothing."""
        buffer = window.buffer
        end = at + CHUNK_HEADER_SIZE + HEADER.unpack_from(buffer, at)[1]
        following = None
        if edge - end >= CHUNK_HEADER_SIZE and not (window.final and end == window.limit):
            behind = self._good(window, end)
            if behind is None:
                return None
            following = _number(behind)
        mended = self._mended(window, at, end, due.exact, following)
        if mended is not None:
            return mended
        # The next record's number proves the length; else a wrong one may have met a chunk by chance, and passed others over.
        if due.is_one_behind(following):
            return Look(end, GapReason.BAD_CRC, passed=True)
        return None

    def _mended(self, window: Window, at: int, end: int, due: int | None, following: int | None) -> Look | None:
        """The chunk from `at` to `end` with the one bit turned back that its checksum tells of, and proves."""
        length = end - at - CHUNK_HEADER_SIZE
        if not self._can_spend(_MENDING * min(length, MAX_MENDED)):
            return None
        chunk = bytearray(window.buffer[at:end])
        checksum, _, kind = HEADER.unpack_from(chunk)
        place = flipped_bit(crc32(chunk[CHUNK_HEADER_SIZE:], TYPE_CRC[kind]) ^ checksum, length)
        if place is None:
            return None
        chunk[place[0]] ^= 1 << place[1]
        kind, payload = chunk[CHUNK_HEADER_SIZE - 1], bytes(chunk[CHUNK_HEADER_SIZE:])
        number = _number((kind, payload))
        if not 1 <= kind <= _LAST or (number is not None and due is not None and number != due):
            return None
        if kind == _FULL and number is not None and following is not None and following != number + 1:
            return None
        self._learn(window, end, kind)
        return Look(end, None, kind, payload, (Healed(window.base + at + place[0], place[1]),))

    def _resumed(self, window: Window, at: int, edge: int, reason: GapReason, due: Due) -> Look:
        """Where chunks chain again, in this block or behind it; the whole chunk, if only its length was wrong."""
        buffer, limit = window.buffer, window.limit
        stop = min(edge, limit)
        checksum, length, kind = HEADER.unpack_from(buffer, at)
        body = at + CHUNK_HEADER_SIZE
        place, is_doubtful = self._likely(window, at, stop, due)
        if is_doubtful and ((window.final and body + length == limit) or self._goes_on(window, edge, due)):
            place = None
        elif place is None:
            place = self._behind_header(window, edge)
        if place is None and self._good(window, edge) is None:
            place = next(self._places_across(window, at + 1, edge), None)
        ends = [place] if place is not None else range(max(body, stop - CHUNK_HEADER_SIZE + 1), stop + 1)
        if 1 <= kind <= _LAST:
            for end in ends:
                payload = buffer[body:end]
                if end >= body and crc32(payload, TYPE_CRC[kind]) == checksum:
                    right = HEADER.pack(checksum, end - body, kind)
                    mended = flipped_bits(buffer[at:body], right, window.base + at)
                    self._learn(window, end, kind)
                    return Look(end, None, kind, payload, mended)
        if place is None and limit < edge:
            return Look(None, reason)
        if place is not None and reason is GapReason.TORN_TAIL:
            reason = GapReason.BAD_LENGTH
        if place is not None and buffer.endswith(FILE_HEADER, 0, place):
            return Look(place, reason, restarts=self._restarts(window, place - len(FILE_HEADER)))
        is_one = reason is GapReason.BAD_CRC and place == body + length
        return Look(edge if place is None else place, reason, passed=is_one)

    def _likely(self, window: Window, at: int, stop: int, due: Due) -> tuple[int | None, bool]:
        """Of the places behind `at`, the first one whose record may be the next.

        If none may: the first of all, and whether it may lie within a record that is damaged.
        """
        first, begin = None, at + 1
        while (place := next(self._places(window, begin, stop, due, at), None)) is not None:
            found, begin, is_begun = self._in_chain(window, place, stop, due)
            if found is not None:
                return found, False
            first = place if first is None else first
            if stop - begin < CHUNK_HEADER_SIZE and (is_begun or not self._is_part(window, stop)):
                return first, False  # as the chunks of a block end, and hardly ever those within another one
        return first, first is not None

    def _in_chain(self, window: Window, at: int, stop: int, due: Due) -> tuple[int | None, int, bool]:
        """Where the log goes on in the chunks that chain from `at` on, if it does; where they end, and if within a record.

        Where their numbers do not follow each other, a log that a record holds may end, and the one that holds it go on:
        with the lowest number of those that fit, as all behind it are higher.
        """
        start, found, lowest, before = at, None, 0, None
        has_numbers = is_judged = is_begun = False
        begun = at
        while stop - at >= CHUNK_HEADER_SIZE and (chunk := self._good(window, at)) is not None:
            number = _number(chunk) if due.last is not None else None
            if number is not None:
                if before is not None and number != before + 1:
                    start, is_judged = at, False
                if not is_judged and due.fits(number, window.base + at) and (found is None or number <= lowest):
                    found, lowest = start, number
                before, has_numbers, is_judged = number, True, True
            is_begun = chunk[0] in _BEGUN
            at += CHUNK_HEADER_SIZE + len(chunk[1])
        return found if has_numbers else begun, at, is_begun

    def _is_part(self, window: Window, at: int) -> bool:
        """Whether the rest of a record lies at `at`."""
        chunk = self._good(window, at)
        return chunk is not None and chunk[0] in _PARTS

    def _goes_on(self, window: Window, edge: int, due: Due) -> bool:
        """Whether the next block begins with what belongs behind a record that is damaged in this one."""
        chunk = self._good(window, edge)
        number = _number(chunk) if chunk is not None else None
        return chunk is not None and (chunk[0] in _PARTS if number is None else due.fits(number, window.base + edge))

    def _places(self, window: Window, begin: int, stop: int, due: Due, damaged: int) -> Iterator[int]:
        """Where good chunks begin that others follow, from `begin` to `stop`, behind damage at `damaged`."""
        buffer = window.buffer
        for match in _HEADER_AT.finditer(buffer, begin, stop):
            if not self._can_spend(_TRYING):
                return
            at = match.start()
            end = at + CHUNK_HEADER_SIZE + (buffer[at + 4] | buffer[at + 5] << 8)
            if end > stop:
                continue
            ends_here = stop - end < CHUNK_HEADER_SIZE
            chains = ends_here or _has_header(buffer, end)
            if not chains and not _is_due(buffer[at:end], due.exact, at - damaged):
                continue
            if self._good(window, at) is None:
                continue
            if ends_here or not chains or self._good(window, end) is not None:
                yield at

    def _places_across(self, window: Window, begin: int, edge: int) -> Iterator[int]:
        """The same for chunks across the edge of the block, as `_crossing` takes them."""
        buffer = window.buffer
        for match in _HEADER_AT.finditer(buffer, begin, edge + CHUNK_HEADER_SIZE - 1):
            if not self._can_spend(_TRYING):
                return
            at = match.start()
            end = at + CHUNK_HEADER_SIZE + (buffer[at + 4] | buffer[at + 5] << 8)
            if end <= edge:
                continue
            if end + CHUNK_HEADER_SIZE > window.limit:
                self._is_short = True
            elif (
                _has_header(buffer, end) and self._good(window, at) is not None and self._good(window, end) is not None
            ):
                yield at

    def _good(self, window: Window, at: int) -> tuple[int, bytes] | None:
        """Type and payload of the good chunk at `at`, if one lies there and there is effort left to see it."""
        buffer = window.buffer
        body = at + CHUNK_HEADER_SIZE
        if body > len(buffer):
            self._is_short = True
            return None
        checksum, length, kind = HEADER.unpack_from(buffer, at)
        if not 1 <= kind <= _LAST or length > _MAX_PAYLOAD:
            return None
        if body + length > len(buffer):
            self._is_short = True
            return None
        payload = buffer[body : body + length]
        if not self._can_spend(length) or crc32(payload, TYPE_CRC[kind]) != checksum:
            return None
        return kind, payload

    def _can_spend(self, size: int) -> bool:
        """Whether so many bytes may still be summed in this block."""
        self._spent += size + CHUNK_HEADER_SIZE
        return self._spent <= _EFFORT


def _number(chunk: tuple[int, bytes]) -> int | None:
    """The number of the record that begins with a chunk."""
    kind, payload = chunk
    if kind not in {_FULL, _FIRST} or len(payload) < 2 or payload[0] != NUM_TAG:
        return None
    try:
        return read_varint(payload, 1)[0]
    except WireError:
        return None


def _has_header(buffer: bytes, at: int) -> bool:
    """Whether the seven bytes at `at` may be the header of a chunk."""
    return 1 <= buffer[at + 6] <= _LAST and buffer[at + 5] <= _MAX_PAYLOAD >> 8


def _is_due(chunk: bytes, due: int | None, lost: int) -> bool:
    """Whether a chunk is a record with one of the numbers that may follow behind `lost` bytes of damage."""
    if due is None or chunk[CHUNK_HEADER_SIZE - 1 : CHUNK_HEADER_SIZE + 1] != bytes([_FULL, NUM_TAG]):
        return False
    try:
        record = parse_record(chunk[CHUNK_HEADER_SIZE:], 0, 0)
    except WireError:
        return False
    return record.kind not in {"unknown", "empty"} and due <= record.num <= due + 1 + lost // _SMALLEST
