"""The numbers of the format, each spelled once. No I/O."""

from __future__ import annotations

from enum import IntEnum

FILE_HEADER = b":W&B\xe1\xbe\x00"
"""Ident `:W&B`, magic 0xBEE1 little-endian, version 0."""

BLOCK_SIZE = 32_768
"""Bytes. Blocks are counted from file offset 0, so the file header lies in the first one."""

CHUNK_HEADER_SIZE = 7
"""CRC u32, payload length u16, type u8, all little-endian."""

MAX_RECORD_SIZE = 256 * 1024 * 1024
"""Bytes. A record that claims more is damage, not data: the reader stops collecting there."""

MAX_NESTING = 128
"""Levels of objects and lists, of a key and of a value each. What nests deeper no JSON library is sure to write again."""


class ChunkType(IntEnum):
    """How a chunk takes part in its record."""

    FULL = 1
    FIRST = 2
    MIDDLE = 3
    LAST = 4
