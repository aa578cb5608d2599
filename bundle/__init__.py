r"""A run as one checked file, `NAME.tar.zst`: made, read, and taken apart again.

    bundle = block*                  or volumes NAME.tar.zst.001, .002 ..: the same bytes, cut between blocks
    block  = label frame
    label  = 52 bytes, which zstd skips
    frame  = a zstd frame by itself, with content size and checksum, of at most 1 MiB of the archive
    archive = member* manifest end   tar (ustar; pax where a name or size needs it): regular files, sorted by the bytes of
                                     their names; with the manifest (`runferry-manifest.json`) a block of its own begins

`tar --zstd -xf NAME.tar.zst` reads that, as does `cat NAME.tar.zst.[0-9]* | tar --zstd -x`. A label, numbers little-endian:

    00  5b 2a 4d 18  2c 00 00 00     a skippable frame of zstd, and the size of what follows (44)
    08  "RFB1"                       the format and its version
    0c  flags u32                    1: the manifest begins with this block; 2: it is the last one
    10  bundle u64                   the same in each block: the beginning of the SHA-256 of the members' names, each with a NUL
    18  offset u64                   in the archive, of the block's first byte
    20  plain u32, frame u32         bytes of the archive in it, and of the frame
    28  first u32                    where among these bytes the first member begins; ffffffff if none does
    2c  crc u32                      CRC-32 (zlib's) of the frame
    30  check u32                    CRC-32 of the 48 bytes before

A worked example: a bundle of one file, `run-a/run-a.wandb` with the 7 bytes of a log's header. Its archive has 512 bytes of tar header
and 512 with the content before the manifest, so the first label is:

    00  5b 2a 4d 18 2c 00 00 00      skippable, 44 bytes
    08  52 46 42 31                  RFB1
    0c  00 00 00 00                  neither the manifest nor the last block
    10  e1 92 15 05 6d 99 9a 6b      SHA-256 of "run-a/run-a.wandb\0" begins so
    18  00 00 00 00 00 00 00 00      the archive begins here
    20  00 04 00 00                  1,024 bytes of it
    24  .. .. 00 00                  in a frame of so many
    28  00 00 00 00                  a member begins with the first byte
    2c  .. .. .. .. .. .. .. ..      checksums of frame and label
    34  28 b5 2f fd                  the frame

What a reader makes of that: a byte that is wrong costs the block it is in, and the next member is where the next label says.
Why it is so: docs/decisions; how it is used: docs/bundles.md.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .errors import BundleError
    from .manifest import Entry, LogFacts, Manifest
    from .opening import Opened, opened
    from .packing import Packed, pack
    from .reading import Bundle, is_bundle
    from .unpacking import Fate, FileResult, Unpacked, unpack, verify

# Who only asks whether a file is a bundle loads no more than that takes.
_WHERE = {
    "Bundle": "reading",
    "BundleError": "errors",
    "Entry": "manifest",
    "Fate": "unpacking",
    "FileResult": "unpacking",
    "LogFacts": "manifest",
    "Manifest": "manifest",
    "Opened": "opening",
    "Packed": "packing",
    "Unpacked": "unpacking",
    "is_bundle": "reading",
    "opened": "opening",
    "pack": "packing",
    "unpack": "unpacking",
    "verify": "unpacking",
}

__all__ = [
    "Bundle",
    "BundleError",
    "Entry",
    "Fate",
    "FileResult",
    "LogFacts",
    "Manifest",
    "Opened",
    "Packed",
    "Unpacked",
    "is_bundle",
    "opened",
    "pack",
    "unpack",
    "verify",
]


def __getattr__(name: str) -> Any:
    if name not in _WHERE:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(f".{_WHERE[name]}", __name__), name)


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
