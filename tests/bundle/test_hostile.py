"""Bundles that somebody made to do harm: nothing outside of the folder, no more than the limit, no other error."""

from __future__ import annotations

import hashlib
import io
import json
import os
import struct
import tarfile
import tracemalloc
from zlib import crc32

import pytest
import zstandard
from runferry.bundle import BundleError, Fate, tar, unpack, verify
from runferry.bundle.blocks import BLOCK_SIZE, LABEL_SIZE, LAST, MANIFEST, NO_MEMBER, START, Label, find_blocks
from runferry.bundle.manifest import MAX_SIZE, NAME, Manifest
from runferry.bundle.names import PART_PREFIX
from runferry.bundle.reading import bundle_in
from support.brokendisk import BrokenDisk
from support.bundles import as_file, block, bundle, entry, everything_below, in_blocks, manifest, member, put

GOOD = "run-a/files/good.txt"


def raw_header(name="run-a/x", size=0, flag=b"0", link="", magic=b"ustar\x0000", **more):
    """A header that says anything."""
    info = tarfile.TarInfo(name)
    info.size, info.type, info.linkname = size, flag, link
    for key, value in more.items():
        setattr(info, key, value)
    data = bytearray(info.tobuf(tarfile.USTAR_FORMAT, "utf-8", "surrogateescape"))
    data[257:265] = magic
    data[148:156] = b"        "
    data[148:156] = b"%06o\0 " % sum(data)
    return bytes(data)


def gnu(name, flag, **more):
    info = tarfile.TarInfo(name)
    info.type = flag
    for key, value in more.items():
        setattr(info, key, value)
    return info.tobuf(tarfile.GNU_FORMAT, "utf-8", "surrogateescape")


def pax(records, then):
    """A pax header of these bytes, and what comes behind it."""
    return raw_header("PaxHeaders/x", len(records), b"x") + records + bytes(tar.padding(len(records))) + then


def record(key, value):
    body = b" " + key + b"=" + value + b"\n"
    length = len(body) + 1
    while len(str(length)) + len(body) != length:
        length += 1
    return str(length).encode() + body


UNSAFE = {
    "absolute": "/tmp/owned",
    "up": "../owned",
    "up in the middle": "run-a/../../owned",
    "up at the end": "run-a/..",
    "here": "run-a/./x",
    "empty part": "run-a//x",
    "folder": "run-a/x/",
    "empty": "",
    "nul": "run-a/x\0y",
    "long part": "run-a/" + "x" * 256,
    "long name": "/".join(["run-a", *["x" * 200] * 21]),
    "deep": "/".join("x" * 200),
}


@pytest.mark.parametrize("trick", sorted(UNSAFE))
def test_a_manifest_with_an_unsafe_name_is_refused_as_a_whole(tmp_path, trick):
    """Nobody makes such a bundle by accident: nothing of it is unpacked."""
    name = UNSAFE[trick]
    data = bundle(
        member(GOOD, b"good") + member("run-a/x", b"bad"), manifest(entry(GOOD, b"good"), entry(name, b"bad"))
    )
    put(tmp_path, data)

    with pytest.raises(BundleError, match="refused"):
        unpack(tmp_path / "b.tar.zst", tmp_path / "out")
    assert everything_below(tmp_path).keys() == {"b.tar.zst"}


LISTS = {
    "twice": manifest(entry("run-a/x", b"bad"), entry("run-a/x", b"bad")),
    "file and folder": manifest(entry("run-a/x", b"bad"), entry("run-a/x/y", b"bad")),
    "folder and file": manifest(entry("run-a/x/y", b"bad"), entry("run-a-b", b""), entry("run-a", b"bad")),
    "more bytes than there are": manifest(entry("run-a/x", b"bad", size=1 << 40)),
    "a negative size": manifest(entry("run-a/x", b"bad", size=-1)),
    "a size that is none": manifest(entry("run-a/x", b"bad", size="3")),
    "a true size": manifest(entry("run-a/x", b"bad", size=True)),
    "a fraction": manifest(entry("run-a/x", b"bad", size=3.0)),
    "a time that no clock shows": manifest(entry("run-a/x", b"bad", mtime=1 << 40)),
    "a huge number": manifest(entry("run-a/x", b"bad", mtime=1 << 80)),
    "no digest": manifest(entry("run-a/x", b"bad", sha256="0")),
    "digest that is none": manifest(entry("run-a/x", b"bad", sha256=None)),
    "name that is none": manifest(entry("run-a/x", b"bad", name=["run-a/x"])),
    "log that is none": manifest(entry("run-a/x", b"bad", log=[])),
    "log without a run": manifest(entry("run-a/x", b"bad", log={"exit": 0})),
    "exit that is none": manifest(entry("run-a/x", b"bad", log={"exit": "0"})),
    "files that are none": json.dumps({"format": "runferry bundle", "version": 1, "files": 7}).encode(),
    "file that is none": manifest("run-a/x"),
    "left out that is none": manifest(entry("run-a/x", b"bad"), left_out=[{"name": 1}]),
    "another version": manifest(entry("run-a/x", b"bad"), version=2),
    "another format": manifest(entry("run-a/x", b"bad"), format="x"),
    "no object": b"[]",
    "no JSON": b"{",
    "not UTF-8": b'{"format": "\xff"}',
    "deep JSON": b"[" * 100_000,
    "a number of a million digits": b'{"a": ' + b"9" * 1_000_000 + b"}",
    "nothing": b"",
}


@pytest.mark.parametrize("trick", sorted(LISTS))
def test_a_manifest_that_is_none_is_refused(tmp_path, trick):
    """Whatever is wrong with it: one class of error, and nothing is unpacked."""
    put(tmp_path, bundle(member("run-a/x", b"bad"), LISTS[trick]))

    with pytest.raises(BundleError):
        unpack(tmp_path / "b.tar.zst", tmp_path / "out")
    assert not (tmp_path / "out").exists()


MEMBERS = {
    "a link out": raw_header("run-a/x", flag=b"2", link="/etc/passwd"),
    "a hard link": raw_header("run-a/x", flag=b"1", link="/etc/passwd"),
    "a device": raw_header("run-a/x", flag=b"3", devmajor=1, devminor=3),
    "a block device": raw_header("run-a/x", flag=b"4"),
    "a folder": raw_header("run-a/x", flag=b"5"),
    "a pipe": raw_header("run-a/x", flag=b"6"),
    "a sparse file": gnu("run-a/x", b"S", size=0),
    "a contiguous file": raw_header("run-a/x", flag=b"7"),
    "a global header": raw_header("run-a/x", flag=b"g"),
    "a long name of GNU": gnu("././@LongLink", b"L", size=512) + b"a" * 512,
    "a link with a size": raw_header("run-a/x", size=1 << 30, flag=b"2", link="y"),
    "an unknown kind": raw_header("run-a/x", flag=b"Z"),
    "a name that the manifest lacks": member("run-a/unknown", b"x"),
    "an absolute name": member("/tmp/owned", b"x"),
    "a way up": member("../owned", b"x"),
    "a way up by pax": pax(record(b"path", b"../owned"), raw_header()),
    "a NUL by pax": pax(record(b"path", b"run-a/x\0y"), raw_header()),
    "another size": raw_header("run-a/x", size=4) + b"four" + bytes(508),
    "a second one of a name": member(GOOD, b"evil"),
    "a link by pax": pax(record(b"linkpath", b"/etc/passwd"), raw_header("run-a/x", flag=b"2")),
    "a sparse file by pax": pax(record(b"GNU.sparse.major", b"1"), raw_header()),
    "a size by pax that is none": pax(record(b"size", b"-1"), raw_header()),
    "a huge size by pax": pax(record(b"size", b"9" * 30), raw_header()),
    "lengths of pax that are wrong": pax(b"99999 path=x\n", raw_header()),
    "lengths of pax that are 0": pax(b"0 path=x\n", raw_header()),
    "pax without an end": pax(b"9 path=xyz", raw_header()),
    "pax twice": pax(record(b"path", b"run-a/y"), pax(record(b"path", b"run-a/x"), raw_header())),
    "a pax key twice": pax(record(b"path", b"run-a/y") + record(b"path", b"run-a/x"), raw_header()),
    "a pax header of a gigabyte": raw_header("PaxHeaders/x", 1 << 30, b"x"),
    "garbage": b"\xff" * 512,
    "a size in base 256": raw_header("run-a/x")[:124] + b"\x80" + b"\xff" * 11 + raw_header("run-a/x")[136:],
}


@pytest.mark.parametrize("order", ["before", "behind"])
@pytest.mark.parametrize("trick", sorted(MEMBERS))
def test_a_member_that_no_bundle_has_is_not_unpacked(tmp_path, trick, order):
    """Links, devices, pipes, sparse files, odd headers, members that the manifest does not know: named, and passed over."""
    good, bad = member(GOOD, b"good"), MEMBERS[trick]
    archive = bad + good if order == "before" else good + bad
    firsts = [0, len(bad)] if order == "before" else [0, len(good)]
    split = firsts[1]
    data = block(archive[:split]) + block(archive[split:], split)
    data += block(member(NAME, manifest(entry(GOOD, b"good")), 0) + tar.END, len(archive), 0, MANIFEST | LAST)
    put(tmp_path, data)
    done = unpack(tmp_path / "b.tar.zst", tmp_path / "out")

    assert done.exit_code == 1
    assert done.bad or done.problems
    assert everything_below(tmp_path).keys() <= {"b.tar.zst", f"out/{GOOD}"}
    if (tmp_path / "out" / GOOD).exists():
        assert (tmp_path / "out" / GOOD).read_bytes() == b"good"
    elif trick != "a second one of a name":
        # What claims to have bytes behind it takes those for its own; then the good one is named as lost.
        assert {file.name: file.fate for file in done.bad}[GOOD] is Fate.LOST


def test_a_member_with_other_bytes_is_not_unpacked(tmp_path):
    """The manifest's digest decides."""
    put(tmp_path, bundle(member(GOOD, b"evil"), manifest(entry(GOOD, b"good"))))
    done = unpack(tmp_path / "b.tar.zst", tmp_path / "out")

    assert [file.fate for file in done.files] == [Fate.LOST]
    assert not (tmp_path / "out" / GOOD).exists()


def test_a_log_with_other_bytes_is_not_unpacked(tmp_path):
    """Nothing is lost of it, so somebody has changed it."""
    name = "run-a/run-a.wandb"
    put(tmp_path, bundle(member(name, b"evil"), manifest(entry(name, b"good"))))

    assert [file.fate for file in unpack(tmp_path / "b.tar.zst", tmp_path / "out").files] == [Fate.LOST]


@pytest.mark.parametrize("level", ["run-a", "run-a/files", "run-a/files/good.txt"])
def test_links_that_are_here_already_are_not_followed(tmp_path, level):
    """A folder or file of the name that is a link: nothing is written where it leads."""
    outside = tmp_path / "outside"
    (outside / "files").mkdir(parents=True)
    (outside / "good.txt").write_bytes(b"mine")
    link = tmp_path / "out" / level
    link.parent.mkdir(parents=True)
    link.symlink_to(outside / "good.txt" if level.endswith("txt") else outside)
    before = everything_below(outside)
    put(tmp_path, bundle(member(GOOD, b"good"), manifest(entry(GOOD, b"good"))))
    done = unpack(tmp_path / "b.tar.zst", tmp_path / "out", overwrite=True)

    assert [file.fate for file in done.files] == [Fate.FAILED]
    assert everything_below(outside) == before


@pytest.mark.parametrize(
    "name",
    [
        "run-a/run-a.wandb.cursor",
        "run-a/run-a.wandb.synced",
        "run-a/RUN-A.WANDB.LOCK",
        f"run-a/files/{PART_PREFIX}0123456789abcdef",
        ".lock",
        "wandb-settings",
    ],
)
@pytest.mark.parametrize("has_manifest", [True, False])
def test_claims_and_files_of_commands_are_not_unpacked(tmp_path, name, has_manifest):
    """A marker in a bundle would tell a sync that everything has arrived; a lock, or an unfinished file, is somebody's here."""
    archive = member(name, b"{}") + member(GOOD, b"good")
    data = bundle(archive, manifest(entry(name, b"{}"), entry(GOOD, b"good")))
    put(tmp_path, data if has_manifest else block(archive))
    done = unpack(tmp_path / "b.tar.zst", tmp_path / "out")

    assert {file.name: file.fate for file in done.files if file.fate is not Fate.WRITTEN} == {name: Fate.REFUSED}
    assert everything_below(tmp_path / "out") == {GOOD: b"good"}


def test_many_blocks_of_garbage_take_no_time_to_speak_of():
    """Each is looked at once, and named once: the work grows as the bundle does."""
    label, frame = (piece := block(b"\xff" * 512))[:LABEL_SIZE], piece[LABEL_SIZE:]
    one = Label.decoded(label)
    data = b"".join(one._replace(offset=512 * number).encoded() + frame for number in range(20_000))
    found = bundle_in(data)
    sliced = []

    class Blocks(list):
        def __getitem__(self, index):
            sliced.extend([index] if isinstance(index, slice) else [])
            return super().__getitem__(index)

        def __contains__(self, item):
            sliced.append(item)
            return super().__contains__(item)

    found.blocks, found.problems = Blocks(found.blocks), Blocks(found.problems)

    assert list(found.members()) == []
    assert len(found.problems) >= 20_000
    assert not sliced


@pytest.mark.parametrize("call", ["open", "write", "set_mtime", "replace"])
def test_a_link_that_is_put_there_meanwhile_is_not_followed(tmp_path, call):
    """Somebody else may write in the folder: what is unpacked stays in it, whatever becomes of its names."""
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "good.txt").write_bytes(b"mine")
    folder = tmp_path / "out" / "run-a" / "files"

    class Attacked(BrokenDisk):
        def _hit(self, name):
            if name == call and not folder.is_symlink():
                folder.rename(folder.with_name("moved"))
                folder.symlink_to(outside)
            return super()._hit(name)

    put(tmp_path, bundle(member(GOOD, b"good"), manifest(entry(GOOD, b"good"))))
    unpack(tmp_path / "b.tar.zst", tmp_path / "out", overwrite=True, disk=Attacked())

    assert everything_below(outside) == {"good.txt": b"mine"}
    assert (outside / "good.txt").stat().st_mtime != 1_790_000_000
    assert (folder.with_name("moved") / "good.txt").read_bytes() == b"good"


@pytest.mark.parametrize("kind", ["hard link", "link", "mine"])
def test_a_file_that_waits_where_one_is_going_to_be_written_is_not_written_to(tmp_path, kind):
    """The name that a file has until it is whole can be told: nothing is written to what lies there."""
    files = tmp_path / "out" / "run-a" / "files"
    files.mkdir(parents=True)
    other = tmp_path / "other"
    other.write_bytes(b"mine")
    part = files / f"{PART_PREFIX}{hashlib.sha256(b'good.txt').hexdigest()[:16]}"
    if kind == "hard link":
        part.hardlink_to(other)
    elif kind == "link":
        part.symlink_to(other)
    else:
        part.write_bytes(b"left")
    with part.open("rb") as held:
        put(tmp_path, bundle(member(GOOD, b"good"), manifest(entry(GOOD, b"good"))))
        done = unpack(tmp_path / "b.tar.zst", tmp_path / "out")
        inode = os.fstat(held.fileno()).st_ino

    assert other.read_bytes() == b"mine"
    assert [file.fate for file in done.files] == [Fate.FAILED if kind == "link" else Fate.WRITTEN]
    assert kind == "link" or (files / "good.txt").stat().st_ino != inode


def test_names_that_are_one_on_this_file_system_do_not_replace_each_other(tmp_path, monkeypatch):
    """Where case does not count, the second of two is refused and named; where it does, both are unpacked."""
    data = bundle(member("r/A", b"1") + member("r/a", b"2"), manifest(entry("r/A", b"1"), entry("r/a", b"2")))
    put(tmp_path, data)
    both = unpack(tmp_path / "b.tar.zst", tmp_path / "out")
    monkeypatch.setattr("runferry.bundle.unpacking._folds_case", lambda _folder: True)
    one = unpack(tmp_path / "b.tar.zst", tmp_path / "mac")

    assert both.exit_code == 0
    assert [(file.name, file.fate) for file in one.bad] == [("r/a", Fate.REFUSED)]
    assert everything_below(tmp_path / "mac") == {"r/A": b"1"}


def bomb(size):
    """A bundle of one file of zeros."""
    archive = member("r/x", bytes(size))
    firsts = [0]
    data = in_blocks(archive, BLOCK_SIZE, firsts)
    listed = manifest(entry("r/x", bytes(size)))
    return data + block(member(NAME, listed, 0) + tar.END, len(archive), 0, MANIFEST | LAST)


def test_a_bundle_that_grows_beyond_the_limit_is_refused_before_anything_is_written(tmp_path):
    """By the sizes that the manifest gives, and with the option that lets it."""
    put(tmp_path, bomb(8 * BLOCK_SIZE))
    with pytest.raises(BundleError, match="--max-size"):
        unpack(tmp_path / "b.tar.zst", tmp_path / "out", max_size=8 * BLOCK_SIZE - 1)
    assert not (tmp_path / "out").exists()

    assert unpack(tmp_path / "b.tar.zst", tmp_path / "out", max_size=8 * BLOCK_SIZE).exit_code == 0


def test_without_an_option_the_limit_is_a_multiple_of_what_it_takes(tmp_path, monkeypatch):
    """A kilobyte does not fill a disk."""
    monkeypatch.setattr("runferry.bundle.unpacking.SMALL", BLOCK_SIZE)
    put(tmp_path, bomb(8 * BLOCK_SIZE))

    with pytest.raises(BundleError, match="--max-size"):
        unpack(tmp_path / "b.tar.zst", tmp_path / "out")


def test_a_bundle_without_a_manifest_grows_no_further(tmp_path, monkeypatch):
    """One that was cut is unpacked by its headers: holes between blocks may be said to be of any size."""
    monkeypatch.setattr("runferry.bundle.unpacking.SMALL", BLOCK_SIZE)
    head = raw_header("run-a.wandb", 0o77777777777)
    put(tmp_path, block(head + b"x" * 512) + block(b"y" * 512, 1 << 32))
    done = unpack(tmp_path / "b.tar.zst", tmp_path / "out")

    assert [file.fate for file in done.files] == [Fate.FAILED]
    assert "--max-size" in done.files[0].reason
    assert everything_below(tmp_path / "out") == {}


def lie(frame, plain, /, **more):
    """A block whose label says what it likes."""
    label = Label(MANIFEST | LAST, 7, 0, plain, len(frame), 0, crc32(frame))._replace(**more)
    return label.encoded() + frame


def test_a_bundle_without_a_manifest_has_one_limit_for_all_its_files(tmp_path):
    """Logs with holes are longer than the blocks that are there: together they take no more than the limit."""
    names = [f"run-{number}/run-{number}.wandb" for number in range(3)]
    data = bytes([1]) * (3 << 20)
    archive = b"".join(member(name, data) for name in names)
    size = len(archive) // 3
    ends = (
        [archive[size * n : size * n + 1024] for n in range(3)],
        [archive[size * n - 1024 : size * n] for n in (1, 2, 3)],
    )
    blocks = [
        block(head, size * n) + block(tail, size * (n + 1) - 1024, NO_MEMBER)
        for n, (head, tail) in enumerate(zip(*ends, strict=True))
    ]
    put(tmp_path, b"".join(blocks))
    done = unpack(tmp_path / "b.tar.zst", tmp_path / "out", max_size=7 << 20)

    assert [file.fate for file in done.files] == [Fate.DAMAGED, Fate.DAMAGED, Fate.FAILED]


def test_a_frame_that_is_larger_than_its_label_says_is_not_decompressed():
    """Neither by the size in the frame, nor by a frame without one."""
    zeros = bytes(64 * BLOCK_SIZE)
    sized = zstandard.ZstdCompressor().compress(zeros)
    unsized = zstandard.ZstdCompressor(write_content_size=False).compress(zeros)
    del zeros
    tracemalloc.start()
    for frame in (sized, unsized):
        for plain in (1, BLOCK_SIZE):
            found = bundle_in(lie(frame, plain))
            assert found.manifest is None
            assert any("are damaged" in problem for problem in found.problems)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()

    assert peak < 16 * BLOCK_SIZE


@pytest.mark.parametrize(
    "label",
    [
        {"plain": 0},
        {"plain": BLOCK_SIZE + 1},
        {"frame": 0},
        {"frame": 0xFFFFFFFF},
        {"offset": 1 << 63},
        {"first": 9},
    ],
)
def test_labels_with_sizes_that_cannot_be_are_none(label):
    """Even with a good checksum."""
    with pytest.raises(BundleError, match="not a bundle"):
        bundle_in(lie(zstandard.compress(b"x" * 9), 9, **label))


def test_a_window_or_a_dictionary_that_no_bundle_has_is_refused():
    """What zstd would allocate is looked at before."""
    parameters = zstandard.ZstdCompressionParameters(window_log=27, write_content_size=1)
    compressor = zstandard.ZstdCompressor(compression_params=parameters).compressobj(size=100)
    frame = compressor.compress(b"x" * 100) + compressor.flush()
    wide = bytearray(frame)
    # A frame of several segments with a window of 128 MiB: descriptor and window byte by hand.
    wide[4:6] = bytes([0x40, (27 - 10) << 3]) + b""
    found = bundle_in(lie(bytes(wide), 100))

    assert found.manifest is None
    assert any("damaged" in problem for problem in found.problems)


def test_a_manifest_that_is_too_large_is_refused_before_it_is_read():
    """By its blocks' labels: of more bytes than the cap."""
    count = MAX_SIZE // BLOCK_SIZE + 2
    blocks = [block(bytes(BLOCK_SIZE), n * BLOCK_SIZE, flags=MANIFEST if not n else 0) for n in range(count)]
    blocks.append(block(bytes(1024), count * BLOCK_SIZE, flags=LAST))
    with pytest.raises(BundleError, match="manifest is too large"):
        bundle_in(b"".join(blocks))


@pytest.mark.parametrize("place", ["files", "left_out"])
@pytest.mark.parametrize("line", [b"{},", b"[[[]]],", b'"",', b"1.5,"])
def test_a_manifest_of_tiny_things_does_not_grow_in_memory(place, line):
    """JSON takes up to 25 times its size as objects: one that is dense with them is refused within a line."""
    head = b'{"format": "runferry bundle", "version": 1, "files": ['
    head += b"" if place == "files" else b'\n], "left_out": ['
    for dense in (line * (8_000_000 // len(line)), (line + b"\n") * (8_000_000 // len(line))):
        listed = head + b"\n" + dense + b"\n]}\n"
        tracemalloc.start()
        with pytest.raises(BundleError):
            Manifest.decoded(listed)
        peak = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        assert peak < 4_000_000


def test_many_equal_files_are_read():
    """Their manifest is a hundred times smaller when it is packed: that is no bomb but what `pack` makes of them."""
    names = [f"run-a/files/code/module_{number:05}.py" for number in range(8_000)]
    archive = b"".join(member(name) for name in names)
    firsts = range(0, len(archive), tar.RECORD)
    listed = member(NAME, manifest(*(entry(name) for name in names)), 0) + tar.END
    pieces = [listed[at : at + BLOCK_SIZE] for at in range(0, len(listed), BLOCK_SIZE)]
    data, at = in_blocks(archive, BLOCK_SIZE, firsts), len(archive)
    for number, piece in enumerate(pieces):
        flags = (0 if number else MANIFEST) | (LAST if piece is pieces[-1] else 0)
        data += block(piece, at, NO_MEMBER if number else 0, flags)
        at += len(piece)
    done = verify(bundle_in(data))

    assert (done.exit_code, len(done.files)) == (0, 8_000)


def test_many_beginnings_of_labels_take_no_time_to_speak_of():
    """Each byte is looked at once, whatever it pretends to be."""
    data = START * 200_000
    reads = []

    class Counting(io.BytesIO):
        def read(self, size=-1, /):
            found = super().read(size)
            reads.append(len(found))
            return found

    blocks, strays = find_blocks([Counting(data)])

    assert (blocks, [stray.length for stray in strays]) == ([], [len(data)])
    assert sum(reads) < 2 * len(data)


def test_a_bundle_inside_of_a_bundle_is_a_file(tmp_path):
    """Where the outer one is damaged, labels of the inner one, stored as it is, are not taken for its own."""
    inner = bundle(member("evil/x", b"evil"), manifest(entry("evil/x", b"evil")))
    noise = bytes(range(256)) * 3
    name = "run-a/files/inner.tar.zst"
    stored = zstandard.ZstdCompressor(level=1)
    archive = member(name, noise + inner + noise) + member(GOOD, b"good")
    cut = archive.index(inner) - 100
    outer = [block(archive[:cut], 0, 0, bundle=9)]
    frame = stored.compress(archive[cut:])
    first = archive.index(tar.header(GOOD, 4, 1_790_000_000)) - cut
    label = Label(0, 9, cut, len(archive) - cut, len(frame), first, crc32(frame))
    outer.append(label.encoded() + frame)
    listed = manifest(entry(GOOD, b"good"), entry(name, noise + inner + noise))
    outer.append(block(member(NAME, listed, 0) + tar.END, len(archive), 0, MANIFEST | LAST, bundle=9))
    data = bytearray(b"".join(outer))
    data[len(outer[0]) + 2] ^= 1  # the label of the second block
    put(tmp_path, bytes(data) + inner)
    done = unpack(tmp_path / "b.tar.zst", tmp_path / "out")

    assert done.exit_code == 1
    assert not any("evil" in name for name in everything_below(tmp_path / "out"))


def test_labels_that_overlap_give_each_byte_once():
    """The first one that begins counts; what goes back is passed over."""
    archive = member("r/a", b"1" * 1000)
    listed = manifest(entry("r/a", b"1" * 1000))
    end = block(member(NAME, listed, 0) + tar.END, len(archive), 0, MANIFEST | LAST)
    evil = block(b"2" * len(archive), 512, 0)
    found = bundle_in(block(archive) + evil + end)

    assert [data for member_ in found.members() for _, data in found.pieces(member_.at, member_.size)] == [b"1" * 1000]
    assert any("no part of the bundle" in problem for problem in found.problems)


def test_a_stream_of_offsets_at_the_end_of_the_numbers_ends():
    """No loop, no memory: members that say they end far away."""
    found = bundle_in(block(raw_header("r/a", 0o77777777777)) + block(bytes(512), (1 << 62) - 1024))

    assert [(member_.name, member_.size) for member_ in found.members()] == [("r/a", 0o77777777777)]


def test_labels_are_as_the_documentation_has_them():
    """52 bytes that zstd skips, each number where it is said to be."""
    data = block(b"plain", 5, 2, LAST, bundle=0x1122334455667788)
    fields = struct.unpack("<II4sIQQIIIII", data[:LABEL_SIZE])

    assert LABEL_SIZE == 52
    assert fields[:9] == (0x184D2A5B, 44, b"RFB1", LAST, 0x1122334455667788, 5, 5, len(data) - 52, 2)
    assert fields[9:] == (crc32(data[52:]), crc32(data[:48]))
    assert zstandard.ZstdDecompressor().stream_reader(as_file(data), read_across_frames=True).read() == b"plain"
