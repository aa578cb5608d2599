"""Bundles for tests: of any archive, in blocks of any size, true or not."""

from __future__ import annotations

import hashlib
import io
import json
from pathlib import Path

from runferry.bundle import tar
from runferry.bundle.blocks import LAST, MANIFEST, NO_MEMBER, Compressor
from runferry.bundle.manifest import NAME

COMPRESSOR = Compressor(3)


def block(plain, offset=0, first=0, flags=0, bundle=7):
    """One block."""
    return COMPRESSOR.block(plain, bundle=bundle, offset=offset, first=first, flags=flags)


def member(name, data=b"", mtime=1_790_000_000):
    """A member with its bytes."""
    return tar.header(name, len(data), mtime) + data + bytes(tar.padding(len(data)))


def entry(name, data=b"", /, **more):
    """What a manifest says of a file; `more` says something else."""
    return {
        "name": name,
        "size": len(data),
        "mtime": 1_790_000_000,
        "sha256": hashlib.sha256(data).hexdigest(),
        **more,
    }


def manifest(*entries, left_out=(), **more):
    """The bytes of a manifest."""
    head = json.dumps({"format": "runferry bundle", "version": 1, **more})[:-1] + ', "files": ['
    listed, left = (",".join("\n" + json.dumps(item) for item in items) for items in (entries, left_out))
    return f'{head}{listed}\n], "left_out": [{left}\n]}}\n'.encode()


def bundle(archive, listed):
    """A bundle of these bytes (an archive without an end) and this manifest."""
    blocks = [block(archive)] if archive else []
    blocks.append(block(member(NAME, listed, 0) + tar.END, offset=len(archive), flags=MANIFEST | LAST))
    return b"".join(blocks)


def in_blocks(archive, size, firsts):
    """An archive in blocks of `size`; `firsts` are the offsets of its members."""
    out = []
    for at in range(0, len(archive), size):
        piece = archive[at : at + size]
        first = next((f - at for f in firsts if at <= f < at + len(piece)), NO_MEMBER)
        out.append(block(piece, at, first))
    return b"".join(out)


def put(folder, data, name="b.tar.zst"):
    """Write a bundle; its path."""
    path = Path(folder) / name
    path.write_bytes(data)
    return path


def everything_below(folder):
    """Name -> bytes of all files below a folder."""
    root = Path(folder)
    return {path.relative_to(root).as_posix(): path.read_bytes() for path in root.rglob("*") if path.is_file()}


def as_file(data):
    return io.BytesIO(data)
