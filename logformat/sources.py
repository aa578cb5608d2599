"""Where the bytes of one log come from: a file as it is, a packed one, a pipe.

What is packed is known by its first bytes, whatever its name. It is unpacked as it is read, and so are pipes: forwards
only, in memory that does not grow with the log. A packed stream that breaks off, or is damaged, gives what could be
unpacked, and then ends; `trouble` of the stream says why.
"""

from __future__ import annotations

import io
import os
import sys
import zlib
from collections.abc import Callable, Iterator
from typing import Any, BinaryIO

from .constants import FILE_HEADER
from .words import counted

GZIP, ZSTD = b"\x1f\x8b\x08", b"\x28\xb5\x2f\xfd"
MAX_ZSTD_WINDOW = 1 << 27
"""Bytes; 128 MiB, what the `zstd` command takes without being told otherwise."""

_KEPT = 2 << 20  # bytes behind which a stream cannot be read again; a reader goes back by less than half of it
_PACKED = 64 << 10  # bytes of a packed stream taken at once
_SIP = 128  # bytes of zstd unpacked at once: a block of three may be 128 KiB of one letter, and so these at most 6 MiB

_FOREIGN: tuple[tuple[bytes, str], ...] = (
    (b"version https://git-lfs", "a Git LFS pointer, not the log itself: fetch it with `git lfs pull`"),
    (b":SWL", "a SwanLab log, not one of W&B: read it with `swanlab`"),
    (b"SQLite format 3\0", "an SQLite database, not a log"),
    (b"PK\x03\x04", "a zip archive, not a log: unpack it first"),
    (b"\xfd7zXZ\0", "an xz file, not a log: unpack it first with `xz -d`"),
    (b"BZh", "a bzip2 file, not a log: unpack it first with `bzip2 -d`"),
    (b"PAR1", "a Parquet file, not a log"),
    (b"\x89PNG", "an image, not a log"),
    (b"%PDF", "a PDF document, not a log"),
    (b"\x7fELF", "a program, not a log"),
)


def first_look(head: bytes) -> str | None:
    """What a file is that is no log, in words, by its first bytes (512 tell most).

    None: it begins as a log does, or as nothing known, which a damaged log may do too.
    """
    if not head:
        return "empty (0 bytes): the run died before its first write"
    if len(head) < len(FILE_HEADER) and FILE_HEADER.startswith(head):
        return f"only a part of a file header ({counted(len(head), 'byte')}): the run died before its first record"
    if head.startswith(FILE_HEADER[:6]):
        return None
    if head.startswith((GZIP, ZSTD)):
        packing = "gzip" if head.startswith(GZIP) else "zstd"
        return f"{packing} data, not a log: unpack it first"
    if head[257:262] == b"ustar":
        return "a tar archive, not a log: unpack it first"
    if head[:64].lstrip().lower().startswith((b"<!doctype", b"<html")):
        return "a web page, not a log: the download went wrong"
    for magic, words in _FOREIGN:
        if head.startswith(magic):
            return words
    return "text, not a log" if len(head) > len(FILE_HEADER) and _is_text(head) else None


def _is_text(head: bytes) -> bool:
    """Whether these are letters, in ASCII or UTF-8: no log has so many without a chunk header between them."""
    try:
        text = head.decode("utf-8")
    except UnicodeDecodeError as error:
        if error.start < len(head) - 3:  # anywhere but in a letter that was cut
            return False
        text = head[: error.start].decode("utf-8")
    return all(letter.isprintable() or letter in "\t\r\n" for letter in text)


def open_log(source: str | os.PathLike[str] | BinaryIO) -> BinaryIO:
    """A log's bytes, from their beginning: of a path, of standard input (`-`), or of an open file.

    Plain files come as they are. What is packed with gzip or zstd, and what cannot be sought in, comes as a `Stream`.
    An open file is not closed with it.

    Raises:
        OSError: it cannot be opened or read.
    """
    if not isinstance(source, (str, os.PathLike)):
        return _opened(source, owned=False)
    if os.fspath(source) == "-":
        return _stream(sys.stdin.buffer, owned=False)
    file: Any = _File(os.fspath(source))
    try:
        return _opened(file, owned=True)
    except BaseException:
        file.close()
        raise


class _File(io.FileIO):
    """A file, unbuffered: one that grows is seen as it is. An error of reading it has its name."""

    def read(self, size: int | None = -1, /) -> bytes:
        try:
            return super().read(size)
        except OSError as error:
            error.filename = self.name
            raise


def unpacked(file: BinaryIO, head: bytes) -> BinaryIO | None:
    """A file that begins with `head`, unpacked from its beginning on; None if it is not packed."""
    if not head.startswith((GZIP, ZSTD)):
        return None
    file.seek(0)
    return _stream(file, owned=False)


def _opened(file: BinaryIO, *, owned: bool) -> BinaryIO:
    if not file.seekable():
        return _stream(file, owned=owned)
    begin = file.tell()
    file.seek(0)
    head = file.read(len(ZSTD))
    if head.startswith((GZIP, ZSTD)):
        file.seek(0)
        return _stream(file, owned=owned)
    file.seek(begin)
    return file


def _stream(file: BinaryIO, *, owned: bool) -> BinaryIO:
    """What a file gives from here on, unpacked."""
    read = _Peekable(file.read)
    head = read.peek(len(ZSTD))
    unpack = _gunzip if head.startswith(GZIP) else _unzstd if head.startswith(ZSTD) else _plain
    stream: Any = Stream(unpack(read), getattr(file, "name", None), file.close if owned else None)
    return stream  # type: ignore[no-any-return]


class UnpackError(ValueError):
    """Why a packed stream ends here."""


class Stream(io.RawIOBase):
    """Bytes that come forwards only: `seek` skips, and goes back by no more than 1 MiB."""

    def __init__(self, pieces: Iterator[bytes], name: object = None, close: Callable[[], None] | None = None) -> None:
        """`pieces` are the bytes in their order; an `UnpackError` from it ends them."""
        self.name = name
        self.trouble = ""
        """Why the bytes end here, where they should not."""
        self._pieces, self._close = pieces, close
        self._held, self._begin, self._at = bytearray(), 0, 0
        self._ended = False

    def readable(self) -> bool:
        """It is."""
        return True

    def seekable(self) -> bool:
        """Not as a file is."""
        return False

    def tell(self) -> int:
        """The offset of the next byte to be read."""
        return self._at

    def seek(self, offset: int, whence: int = os.SEEK_SET) -> int:
        """Skip to an offset, or to the end.

        Raises:
            io.UnsupportedOperation: it lies too far behind.
        """
        if whence == os.SEEK_CUR:
            offset += self._at
        while (whence == os.SEEK_END or self._end < offset) and self._pull():
            self._at = self._end  # what is passed over need not be kept
        if whence == os.SEEK_END:
            offset += self._end
        if offset < self._begin:
            raise io.UnsupportedOperation(f"{self.name or 'a stream'} cannot be read again: it comes forwards only")
        self._at = offset
        return offset

    def read(self, size: int = -1) -> bytes:
        """As many bytes as asked for, fewer only at the end."""
        if size < 0:
            parts = []
            while part := self.read(_KEPT // 4):
                parts.append(part)
            return b"".join(parts)
        while self._end < self._at + size and self._pull():
            pass
        begin = self._at - self._begin
        data = bytes(memoryview(self._held)[begin : begin + size])
        self._at += len(data)
        return data

    def readinto(self, buffer: Any) -> int:
        """As `read`."""
        view = memoryview(buffer).cast("B")
        data = self.read(len(view))
        view[: len(data)] = data
        return len(data)

    def close(self) -> None:
        """End it; a file that was opened for it too."""
        if not self.closed and self._close is not None:
            self._close()
        super().close()

    @property
    def _end(self) -> int:
        return self._begin + len(self._held)

    def _pull(self) -> bool:
        """Get one more piece; False at the end."""
        if self._ended:
            return False
        try:
            piece = next(self._pieces, None)
        except UnpackError as error:
            self.trouble, self._ended = str(error), True
            return False
        if piece is None:
            self._ended = True
            return False
        spare = self._at - self._begin - _KEPT // 2  # behind the place that is read, beyond what a reader may go back
        if spare > _KEPT // 2:
            spare = min(spare, len(self._held))
            del self._held[:spare]
            self._begin += spare
        self._held += piece
        return True


class _Peekable:
    """Reads pieces of a file, and lets the first bytes be seen before."""

    def __init__(self, read: Callable[[int], bytes | None]) -> None:
        self._read, self._head = read, b""

    def peek(self, size: int) -> bytes:
        while len(self._head) < size and (more := self._read(size - len(self._head))):
            self._head += more
        return self._head

    def __call__(self) -> bytes:
        """The next piece; empty at the end."""
        if self._head:
            head, self._head = self._head, b""
            return head
        return self._read(_PACKED) or b""


def _plain(read: _Peekable) -> Iterator[bytes]:
    return iter(read, b"")


def _gunzip(read: _Peekable) -> Iterator[bytes]:
    """The members of a gzip file, one behind the other."""
    packed = read()
    while packed:
        member = zlib.decompressobj(wbits=31)
        while not member.eof:
            if not packed and not (packed := read()):
                raise UnpackError("the gzip data breaks off: the rest of the file is missing")
            before = member.copy()
            try:
                piece = member.decompress(packed, _PACKED)
            except zlib.error:
                yield from _sip(before, packed)
                raise UnpackError("the gzip data is damaged: what follows cannot be unpacked") from None
            packed = member.unconsumed_tail or member.unused_data
            if piece:
                yield piece
        while not packed.strip(b"\0") and (more := read()):  # padding of tapes and blocks
            packed = more
        packed = packed.lstrip(b"\0")
        while packed and len(packed) < len(GZIP) and (more := read()):
            packed += more
        if packed and not packed.startswith(GZIP):
            raise UnpackError("behind the gzip data lies something else, which was not read")


def _sip(member: Any, packed: bytes) -> Iterator[bytes]:
    """What can be unpacked before the damage, byte by byte."""
    for at in range(len(packed)):
        rest = packed[at : at + 1]
        while rest:
            try:
                piece = member.decompress(rest, _PACKED)
            except zlib.error:
                return
            rest = member.unconsumed_tail
            if piece:
                yield piece


def _unzstd(read: _Peekable) -> Iterator[bytes]:
    """The frames of a zstd file, one behind the other."""
    import zstandard

    packed = read()
    while packed:
        while len(packed) < len(ZSTD) and (more := read()):
            packed += more
        if packed[:4] != ZSTD and not (packed[1:4] == b"\x2a\x4d\x18" and packed[0] & 0xF0 == 0x50):
            raise UnpackError("behind the zstd data lies something else, which was not read")
        frame = zstandard.ZstdDecompressor(max_window_size=MAX_ZSTD_WINDOW).decompressobj()
        while not frame.eof:
            if not packed and not (packed := read()):
                raise UnpackError("the zstd data breaks off: the rest of the file is missing")
            try:
                piece = frame.decompress(packed[:_SIP])
            except zstandard.ZstdError as error:
                if "memory" in str(error) or "window" in str(error).lower():
                    raise UnpackError("the zstd data asks for a window beyond 128 MiB: unpack it first") from None
                raise UnpackError("the zstd data is damaged: what follows cannot be unpacked") from None
            packed = frame.unused_data + packed[_SIP:] if frame.eof else packed[_SIP:]
            if piece:
                yield piece
        packed = packed or read()
