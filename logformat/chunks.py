"""A log chunk by chunk, for who looks at the bytes: what stands where, and what the checksums say."""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import Any, BinaryIO, NamedTuple
from zlib import crc32

from .constants import CHUNK_HEADER_SIZE, FILE_HEADER
from .heal import Healed
from .look import HEADER, TRAILER, TYPE_CRC, Look, Window
from .reader import LogReader
from .record import Gap, GapReason
from .sources import open_log


class Chunk(NamedTuple):
    """One chunk, as it stands in the file."""

    offset: int
    length: int
    """Bytes of payload. Of a chunk whose length was wrong and is healed, the right one."""
    kind: int
    """1 FULL, 2 FIRST, 3 MIDDLE, 4 LAST, as the file has it; others are damage."""
    crc: int
    """The checksum that the file has."""
    crc_is: int
    """The checksum of the bytes that the file has."""
    ok: bool
    """It is whole, or was healed: readers take it."""
    healed: tuple[Healed, ...] = ()
    """The bits that were mended in memory."""

    @property
    def end(self) -> int:
        """The offset behind it."""
        return self.offset + CHUNK_HEADER_SIZE + self.length


class _Walk(LogReader):
    """The reader, listened to while it looks at chunk after chunk."""

    def __init__(self, file: BinaryIO) -> None:
        super().__init__(file)
        self.covered = 0
        """The offset behind what was given."""
        self._found: list[Chunk | Gap] = []

    def chunks(self) -> Iterator[Chunk | Gap]:
        """All of them; the last gap is what the end of the file is."""
        for self._final in (False, True):
            yield from self.poll_batches()  # type: ignore[misc]  # `_scan` gives chunks here
        gap, trouble = self.rest(), getattr(self._file, "trouble", "")
        if self._foreign:
            return
        if gap is not None and gap.end > self.covered:
            yield Gap(self.covered, gap.end - self.covered, gap.reason, note=gap.note)
        elif trouble:
            yield Gap(self.covered, 0, GapReason.TORN_TAIL, note=trouble)

    def _scan(self, window: Window) -> Iterator[Any]:
        begun = self._headless
        foreign = [item for item in super()._scan(window) if self._foreign]
        found, self._found = self._found, []
        if begun and not self._headless:
            self.covered = max(self.covered, len(FILE_HEADER))
            if self.header_version is None:
                yield Gap(0, len(FILE_HEADER), GapReason.BAD_HEADER)
        yield from foreign or found

    def _walk(self, *unused: Any) -> int:
        at: int = unused[2]
        return at

    def _look(self, window: Window, at: int, edge: int) -> Look:
        look, begin = super()._look(window, at, edge), window.base + at
        if look.end is None:
            return look
        end = window.base + look.end
        self.covered = end
        if look.reason is not None and not look.passed:
            self._found.append(Gap(begin, end - begin, look.reason))
        elif look.kind != TRAILER or look.passed:
            crc, _, kind = HEADER.unpack_from(window.buffer, at)
            crc_is = crc32(window.buffer[at + CHUNK_HEADER_SIZE : look.end], TYPE_CRC[kind])
            length = look.end - at - CHUNK_HEADER_SIZE
            self._found.append(Chunk(begin, length, kind, crc, crc_is, look.reason is None, look.mended))
        return look


def walk_chunks(source: str | os.PathLike[str] | BinaryIO) -> Iterator[Chunk | Gap]:
    """All chunks of a log, good and bad, and the gaps where none can be made out, in file order.

    What is taken for a chunk here is what `read_records` takes for one. Between them lie the file header and the trailers
    of blocks only.

    Raises:
        OSError: as `read_records`.
    """
    file = open_log(source)
    try:
        yield from _Walk(file).chunks()
    finally:
        if file is not source:
            file.close()
