"""Members of the archive: headers of regular files, written by the standard library and read by ourselves.

The reader takes what the writer makes and nothing else: an ordinary file with a plain size, and before it at most one pax
header of a few keys. Links, devices, folders, sparse files and long names of GNU are told by their kind and passed over.
"""

from __future__ import annotations

import tarfile
from dataclasses import dataclass

RECORD = 512
"""Bytes of a header; contents are padded to it."""
END = bytes(2 * RECORD)
"""What ends an archive."""
LATEST = (1 << 33) - 1
"""Seconds since 1970 that a header has room for."""
MAX_PAX_SIZE = 64 * 1024
_KINDS = {
    b"1": "a hard link",
    b"2": "a link",
    b"3": "a device",
    b"4": "a device",
    b"5": "a folder",
    b"6": "a pipe",
    b"7": "a contiguous file",
    b"D": "a folder of GNU",
    b"K": "a long link of GNU",
    b"L": "a long name of GNU",
    b"M": "a part of another volume",
    b"S": "a sparse file",
    b"V": "a volume label",
    b"g": "a global header",
    b"x": "a second header",
}
_LARGEST = 1 << 62


class HeaderError(Exception):
    """Bytes that are no header."""


@dataclass(frozen=True, slots=True)
class Header:
    """What stands before a member's bytes."""

    name: str
    size: int
    mtime: int
    kind: str = ""
    """What it is, if it is no regular file."""


def header(name: str, size: int, mtime: int) -> bytes:
    """The header of a regular file, pax records included: a function of its arguments alone."""
    info = tarfile.TarInfo(name)
    info.size, info.mtime, info.mode = size, mtime, 0o644
    return info.tobuf(tarfile.PAX_FORMAT, "utf-8", "surrogateescape")


def padding(size: int) -> int:
    """Zeros behind `size` bytes."""
    return -size % RECORD


def is_end(record: bytes) -> bool:
    """Whether this is no header, but the end of the archive."""
    return not any(record)


def parse(record: bytes) -> tuple[bytes, Header]:
    """Type flag and fields of one header.

    Raises:
        HeaderError: it is none.
    """
    if len(record) != RECORD or record[257:265] not in (b"ustar\x0000", b"ustar  \x00"):
        raise HeaderError("no header")
    if _octal(record[148:156]) != sum(record) - sum(record[148:156]) + 8 * 0x20:
        raise HeaderError("a header with a wrong checksum")
    flag = record[156:157].replace(b"\0", b"0")
    name, prefix = _text(record[:100]), _text(record[345:500])
    size = _octal(record[124:136])
    kind = "" if flag in (b"0", b"x") else _KINDS.get(flag, f"of the unknown kind {flag!r}")
    # Links and their like have no bytes behind them, whatever their size says.
    size = 0 if flag in b"123456" else size
    return flag, Header(f"{prefix}/{name}" if prefix else name, size, _octal(record[136:148]), kind)


def with_pax(plain: Header, data: bytes) -> Header:
    """The header with what a pax header before it says.

    Raises:
        HeaderError: that is no pax header, or says things that no member of a bundle needs.
    """
    fields: dict[bytes, bytes] = {}
    while data:
        length, blank, _ = data.partition(b" ")
        if not blank or not length.isdigit() or len(length) > 6 or not len(length) + 2 < int(length) <= len(data):
            raise HeaderError("a pax header with wrong lengths")
        record, data = data[len(length) + 1 : int(length)], data[int(length) :]
        key, equals, value = record[:-1].partition(b"=")
        if record[-1:] != b"\n" or not equals or key in fields:
            raise HeaderError("a pax header with wrong records")
        fields[key] = value
    if odd := fields.keys() - {b"path", b"size", b"hdrcharset"}:
        raise HeaderError(f"a pax header with {min(odd)[:40]!r}")
    name = fields[b"path"].decode("utf-8", "surrogateescape") if b"path" in fields else plain.name
    return Header(name, _decimal(fields[b"size"]) if b"size" in fields else plain.size, plain.mtime, plain.kind)


def _text(field: bytes) -> str:
    return field.partition(b"\0")[0].decode("utf-8", "surrogateescape")


def _octal(field: bytes) -> int:
    digits = field.strip(b" \0")
    if digits and not digits.isdigit():
        raise HeaderError("a header with a number that is none")
    try:
        return int(digits or b"0", 8)
    except ValueError:
        raise HeaderError("a header with a number that is none") from None


def _decimal(field: bytes) -> int:
    if not field.isdigit() or len(field) > 19 or int(field) > _LARGEST:
        raise HeaderError("a pax header with a size that is none")
    return int(field)
