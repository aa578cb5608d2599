"""Blocks: the archive's bytes in pieces that are compressed, checked and found again each by itself.

The layout is in the docstring of the package. Nothing here trusts a byte: a label counts if its checksum is right and its
sizes are below their caps, a frame if it has the CRC-32 and the size that its label says, and nothing is allocated that is
larger than a cap.
"""

from __future__ import annotations

import io
import struct
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import chain, islice
from typing import BinaryIO, NamedTuple
from zlib import crc32

import zstandard

BLOCK_SIZE = 1024 * 1024
"""Plain bytes of a block, at most: what a reader has in memory, and what a damaged byte can cost."""
MAX_FRAME_SIZE = BLOCK_SIZE + BLOCK_SIZE // 128 + 512
"""Bytes of a frame, at most: more than zstd makes of bytes that it cannot compress."""
MAX_BLOCKS = 1 << 22
"""Of a bundle: 4 TiB in blocks of full size."""
MANIFEST, LAST = 1, 2
NO_MEMBER = 0xFFFFFFFF

_LABEL = struct.Struct("<II4sIQQIIIII")
LABEL_SIZE = _LABEL.size
_MAGIC = 0x184D2A5B
_IDENT = b"RFB1"
START = struct.pack("<II4s", _MAGIC, _LABEL.size - 8, _IDENT)
"""How a bundle, each of its volumes and each of its blocks begins."""
_LOOK = 1024 * 1024  # bytes searched at a time for a label


class Damaged(Exception):  # noqa: N818 - a state of bytes, caught where they are read
    """A block's bytes are not those that were packed."""


class Label(NamedTuple):
    """What stands before a frame."""

    flags: int
    bundle: int
    offset: int
    """Of the first plain byte in the archive."""
    plain: int
    frame: int
    first: int
    """Where in the plain bytes the first member begins; `NO_MEMBER` if none does."""
    crc: int
    """CRC-32 of the frame."""

    @property
    def end(self) -> int:
        """Offset in the archive behind the block."""
        return self.offset + self.plain

    def encoded(self) -> bytes:
        """The bytes before the frame."""
        flags, bundle, offset, plain, frame, first, crc = self
        head = _LABEL.pack(_MAGIC, _LABEL.size - 8, _IDENT, flags, bundle, offset, plain, frame, first, crc, 0)[:-4]
        return head + struct.pack("<I", crc32(head))

    @classmethod
    def decoded(cls, data: bytes) -> Label | None:
        """The label that `data` begins with, if it is one whose sizes can be."""
        if len(data) < LABEL_SIZE or not data.startswith(START):
            return None
        _, _, _, flags, bundle, offset, plain, frame, first, crc, check = _LABEL.unpack_from(data)
        if crc32(data[: LABEL_SIZE - 4]) != check:
            return None
        is_possible = (
            0 < plain <= BLOCK_SIZE
            and 0 < frame <= MAX_FRAME_SIZE
            and offset < 1 << 62
            and (first < plain or first == NO_MEMBER)
        )
        return cls(flags, bundle, offset, plain, frame, first, crc) if is_possible else None


class Compressor:
    """Makes frames: the same bytes of the same plain bytes, as long as the zstd library is the same."""

    def __init__(self, level: int) -> None:
        # One thread: zstd's own threads cut their work differently. Size and checksum in the frame let others check it, too.
        self._zstd = zstandard.ZstdCompressor(
            level=level, threads=0, write_checksum=True, write_content_size=True, write_dict_id=False
        )

    def block(self, plain: bytes | bytearray, *, bundle: int, offset: int, first: int, flags: int = 0) -> bytes:
        """A block of `plain`, which lies at `offset` in the archive."""
        frame = self._zstd.compress(plain)
        return Label(flags, bundle, offset, len(plain), len(frame), first, crc32(frame)).encoded() + frame


def plain_of(label: Label, frame: bytes) -> bytes:
    """The plain bytes of a frame.

    Raises:
        Damaged: they are not those that its label speaks of.
    """
    if len(frame) != label.frame or crc32(frame) != label.crc:
        raise Damaged("its bytes have changed")
    try:
        parameters = zstandard.get_frame_parameters(frame)
        # The content size decides what the library allocates, so it is looked at before.
        if parameters.content_size != label.plain or parameters.dict_id or parameters.window_size > 2 * BLOCK_SIZE:
            raise Damaged("its frame is not one of a bundle")
        plain = zstandard.ZstdDecompressor(max_window_size=2 * BLOCK_SIZE).decompress(frame, allow_extra_data=False)
    except zstandard.ZstdError as error:
        raise Damaged(f"it cannot be decompressed ({error})") from None
    if len(plain) != label.plain:
        raise Damaged("it is shorter than it says")
    return bytes(plain)


@dataclass(frozen=True, slots=True)
class Block:
    """A label that was found, and where its frame lies."""

    label: Label
    volume: int
    """Index of its file among the volumes."""
    at: int
    """Of the frame, in that file."""


@dataclass(frozen=True, slots=True)
class Stray:
    """Bytes of a volume that belong to no block."""

    volume: int
    at: int
    length: int


def find_blocks(volumes: Sequence[BinaryIO]) -> tuple[list[Block], list[Stray]]:
    """The blocks of a bundle in the order of their offsets, found from label to label, and what lies between them.

    Where a label is not what it should be, the next one is searched for. Labels of other bundles (a bundle may hold
    bundles, stored as they are) and such as go back are none.

    Raises:
        OSError: a volume cannot be read.
    """
    found = list(islice(chain.from_iterable(_labels(volume, n) for n, volume in enumerate(volumes)), MAX_BLOCKS))
    if not found:
        return [], [Stray(number, 0, size) for number, volume in enumerate(volumes) if (size := _size(volume))]
    bundle = found[0].label.bundle
    if found[0].at != LABEL_SIZE:  # the beginning is lost, so the first one found may be another's
        bundle = Counter(block.label.bundle for block in found).most_common(1)[0][0]
    blocks: list[Block] = []
    for block in sorted((block for block in found if block.label.bundle == bundle), key=_place):
        if not blocks or block.label.offset >= blocks[-1].label.end:
            blocks.append(block)
    return blocks, _between(blocks, volumes)


def _place(block: Block) -> tuple[int, int, int]:
    return block.label.offset, block.volume, block.at


def _between(blocks: list[Block], volumes: Sequence[BinaryIO]) -> list[Stray]:
    strays = []
    for number, volume in enumerate(volumes):
        at = 0
        for block in sorted((block for block in blocks if block.volume == number), key=lambda block: block.at):
            if block.at - LABEL_SIZE > at:
                strays.append(Stray(number, at, block.at - LABEL_SIZE - at))
            at = max(at, block.at + block.label.frame)
        if (size := _size(volume)) > at:
            strays.append(Stray(number, at, size - at))
    return strays


def _size(volume: BinaryIO) -> int:
    return volume.seek(0, io.SEEK_END)


def _labels(volume: BinaryIO, number: int) -> Iterator[Block]:
    """The blocks of one file whose frames are there in full."""
    size, at = _size(volume), 0
    while at + LABEL_SIZE < size:
        volume.seek(at)
        label = Label.decoded(volume.read(LABEL_SIZE))
        if label is None or at + LABEL_SIZE + label.frame > size:
            following = _next_label(volume, at + 1, size)
            if following is None:
                return
            at, label = following
        yield Block(label, number, at + LABEL_SIZE)
        at += LABEL_SIZE + label.frame


def _next_label(volume: BinaryIO, at: int, size: int) -> tuple[int, Label] | None:
    """The first label at `at` or behind it whose frame is there in full. Each byte is read once, whatever it pretends to be."""
    while at + LABEL_SIZE < size:
        volume.seek(at)
        data = volume.read(_LOOK)
        where = data.find(START)
        while where >= 0:
            label = Label.decoded(data[where : where + LABEL_SIZE])
            if label is not None and at + where + LABEL_SIZE + label.frame <= size:
                return at + where, label
            where = data.find(START, where + 1)
        if at + len(data) >= size or len(data) < LABEL_SIZE:
            return None
        at += len(data) - LABEL_SIZE + 1
    return None
