"""Damages a bundle in random ways and reads it: `bundlefuzz.py COUNT [SEED]` prints what was done, or the seed that failed.

Each time: no error but `BundleError`, no member that is not in the bundle, no file that passes for whole with other bytes.
"""

from __future__ import annotations

import hashlib
import random
import struct
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path
from zlib import crc32

from runferry.bundle import BundleError, Fate, pack, verify
from runferry.bundle.blocks import LABEL_SIZE, START, Damaged, find_blocks, plain_of
from runferry.bundle.reading import bundle_in
from support.bundles import COMPRESSOR, as_file, block, bundle, entry, manifest, member
from support.logs import simple_run


def seeds():
    """Bundles that are good, of several shapes."""
    with tempfile.TemporaryDirectory() as folder:
        log = simple_run(Path(folder) / "wandb", rows=3)
        (log.parent / "files" / ("long-" * 30)).write_bytes(b"pax " * 40)
        (log.parent / "files" / "\u00fc.txt").write_bytes(random.Random(1).randbytes(600))
        pack(log, Path(folder) / "b.tar.zst")
        yield (Path(folder) / "b.tar.zst").read_bytes()
        (log.parent / "files" / "noise").write_bytes(random.Random(2).randbytes(40_000))
        pack(log, Path(folder) / "c.tar.zst", split=64 * 1024)
        yield (Path(folder) / "c.tar.zst.001").read_bytes()
    archive = member("r/a", b"a" * 700) + member("r/b", b"b")
    yield bundle(archive, manifest(entry("r/a", b"a" * 700), entry("r/b", b"b")))
    yield block(archive[:1024]) + block(archive[1024:], 1024, 512)


def reseal(data, rng):
    """A label with a good checksum whose fields are others: what a random byte never gets past."""
    places, at = [], data.find(START)
    while at >= 0:
        places.append(at)
        at = data.find(START, at + 1)
    if not places:
        return
    at = rng.choice(places)
    if len(data) < at + LABEL_SIZE:
        return
    offset, width = rng.choice([(12, 4), (16, 8), (24, 8), (32, 4), (36, 4), (40, 4), (44, 4)])
    value = rng.choice([0, 1, 2, 3, 511, 512, 513, 1024, 0xFFFFFFFF, rng.getrandbits(8 * width)])
    data[at + offset : at + offset + width] = (value & ((1 << 8 * width) - 1)).to_bytes(width, "little")
    data[at + 48 : at + 52] = struct.pack("<I", crc32(data[at : at + 48]))


def replain(data, rng):
    """A frame whose plain bytes are others, with all checksums right: what a forger does."""
    blocks, _ = find_blocks([as_file(bytes(data))])
    if not blocks:
        return
    found = rng.choice(blocks)
    begin, end = found.at - 52, found.at + found.label.frame
    try:
        plain = bytearray(plain_of(found.label, bytes(data[found.at : end])))
    except Damaged:
        return
    for _ in range(rng.randint(1, 4)):
        at = rng.randrange(len(plain))
        if rng.random() < 0.3:
            at = at // 512 * 512 + rng.choice([0, 100, 124, 136, 148, 156, 257, 345])
            at = min(at, len(plain) - 1)
        piece = rng.choice(
            [bytes([rng.getrandbits(8)]), b"../", b"/", b"\0", b"9", b"7777777", b"x", b"L", b"2", b'"', b"}"]
        )
        plain[at : at + len(piece)] = piece
    if rng.random() < 0.8:
        for at in range(0, len(plain) - 511, 512):
            if plain[at + 257 : at + 262] == b"ustar":
                plain[at + 148 : at + 156] = b" " * 8
                plain[at + 148 : at + 156] = b"%06o\0 " % sum(plain[at : at + 512])
    label = found.label
    data[begin:end] = COMPRESSOR.block(
        bytes(plain[: 1 << 20]), bundle=label.bundle, offset=label.offset, first=label.first, flags=label.flags
    )


def damaged(data, rng):
    """A bundle in which something is other than it was."""
    out = bytearray(data)
    for _ in range(rng.choice([1, 1, 1, 2, 3, 8])):
        if not out:
            break
        at, kind = rng.randrange(len(out)), rng.randrange(12)
        length = min(rng.choice([1, 2, 4, 52, 512, 4096]), len(out) - at)
        if kind <= 2:
            out[at] ^= 1 << rng.randrange(8)
        elif kind == 3:
            out[at : at + length] = rng.randbytes(length)
        elif kind == 4:
            del out[at:]
        elif kind == 5:
            del out[at : at + length]
        elif kind == 6:
            out[at:at] = out[at : at + length]
        elif kind == 7:
            out[at : at + length] = bytes(length)
        elif kind == 8:
            other = rng.randrange(len(out))
            out[at : at + length] = out[other : other + length]
        elif kind <= 10:
            reseal(out, rng)
        else:
            replain(out, rng)
    return bytes(out)


def check(data, true, counts):
    """Read it as `unpack --verify` does."""
    try:
        found = bundle_in(data)
    except BundleError:
        counts["refused"] += 1
        return
    done = verify(found)
    for file in done.files:
        counts[file.fate.value] += 1
        if file.fate is Fate.KEPT and found.manifest is not None:
            listed = found.entries()[file.name]
            assert listed.size == file.size
        assert file.fate is not Fate.KEPT or not file.name.startswith("/")
        assert file.fate is not Fate.KEPT or ".." not in file.name.split("/")
    counts["sound" if done.exit_code == 0 else "damaged"] += 1
    # Where no checksum was forged, a name that is known has the bytes it had.
    for member_ in found.members() if true is not None else ():
        pieces = [piece for _, piece in found.pieces(member_.at, min(member_.size, 1 << 22))]
        if None not in pieces and member_.name in true and not member_.kind:
            assert hashlib.sha256(b"".join(pieces)).hexdigest() == true[member_.name]


def truth(data):
    """Name -> digest of all members."""
    found = bundle_in(data)
    return {
        member_.name: hashlib.sha256(b"".join(piece for _, piece in found.pieces(member_.at, member_.size))).hexdigest()
        for member_ in found.members()
    }


def fuzz(count, seed=0):
    """So many executions; what came of them."""
    counts = Counter()
    corpus = [(data, truth(data)) for data in seeds()]
    for number in range(seed, seed + count):
        rng = random.Random(number)
        data, _ = rng.choice(corpus)
        try:
            check(damaged(data, rng), None, counts)
        except BaseException:
            sys.stderr.write(f"seed {number}\n")
            raise
    return counts


def fuzz_bytes(count, seed=0):
    """The same with damage that forges no checksum: what is read is what was packed."""
    counts = Counter()
    corpus = [(data, truth(data)) for data in seeds()]
    for number in range(seed, seed + count):
        rng = random.Random(number)
        data, true = rng.choice(corpus)
        out = bytearray(data)
        for _ in range(rng.randint(1, 4)):
            at = rng.randrange(len(out))
            if rng.random() < 0.7:
                out[at] ^= 1 << rng.randrange(8)
            elif rng.random() < 0.5:
                out[at : at + 64] = rng.randbytes(64)
            elif at > 0:
                del out[at:]
        try:
            check(bytes(out), true, counts)
        except BaseException:
            sys.stderr.write(f"seed {number}\n")
            raise
    return counts


if __name__ == "__main__":
    begun = time.perf_counter()
    COUNT, SEED = int(sys.argv[1]), int(sys.argv[2]) if len(sys.argv) > 2 else 0
    total = fuzz(COUNT // 2, SEED) + fuzz_bytes(COUNT - COUNT // 2, SEED)
    sys.stdout.write(f"{COUNT} executions in {time.perf_counter() - begun:.0f} s: {dict(total)}\n")
