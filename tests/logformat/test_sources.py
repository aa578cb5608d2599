"""A log is the same log packed, piped or plain; what is no log is named."""

from __future__ import annotations

import gzip
import io
import os
import random
import subprocess
import sys
import tarfile
import threading
import tracemalloc

import pytest
import zstandard
from runferry.logformat import BLOCK_SIZE, FILE_HEADER, LogReader, read_records
from runferry.logformat.sources import Stream, first_look, open_log, unpacked
from support.frames import alert, console, gaps, log_of, payloads, read_all

RECORDS = [console(i, 9_000 + i) if i % 9 == 0 else alert(i, f"record {i} " * (i % 40)) for i in range(1, 600)]
LOG = log_of(*RECORDS)


def zstd(data: bytes, **params) -> bytes:
    return zstandard.ZstdCompressor(**params).compress(data)


def in_frames(data: bytes) -> bytes:
    """A zstd file of several frames, one of them to be skipped."""
    skipped = b"\x53\x2a\x4d\x18" + (4).to_bytes(4, "little") + b"skip"
    return zstd(data[:70_000]) + skipped + zstd(b"") + zstd(data[70_000:], write_content_size=False)


PACKED = {
    "plain": LOG,
    "gzip": gzip.compress(LOG),
    "gzip of two members, padded": gzip.compress(LOG[:70_000]) + gzip.compress(LOG[70_000:]) + bytes(512),
    "zstd": zstd(LOG),
    "zstd of several frames": in_frames(LOG),
}


class Pipe(io.RawIOBase):
    """Bytes that come in odd pieces, and once."""

    def __init__(self, data: bytes) -> None:
        self._file, self._rng = io.BytesIO(data), random.Random(1)

    def readable(self):
        return True

    def readinto(self, buffer):
        piece = self._file.read(min(self._rng.randrange(1, 5_000), len(buffer)))
        buffer[: len(piece)] = piece
        return len(piece)


@pytest.mark.parametrize("packing", PACKED)
def test_a_log_is_the_same_however_it_is_packed(packing, tmp_path):
    """By path whatever the name, as an open file, as a pipe, and through a reader that was given the packed file."""
    path = tmp_path / "anything.wandb"
    path.write_bytes(PACKED[packing])

    assert payloads(list(read_records(path))) == RECORDS
    assert payloads(list(read_records(io.BytesIO(PACKED[packing])))) == RECORDS
    assert payloads(list(read_records(Pipe(PACKED[packing])))) == RECORDS
    with open_log(path) as file:
        assert file.seekable() == (packing == "plain")
        assert file.read() == LOG
    assert payloads(list(LogReader(io.BytesIO(PACKED[packing])).finish())) == RECORDS


def test_standard_input_is_a_source():
    """`-` reads what is piped in, packed or not, to the end."""
    code = "from runferry.logformat import read_records as r; print(sum(1 for _ in r('-')))"
    for data in (LOG, PACKED["zstd"]):
        done = subprocess.run([sys.executable, "-c", code], input=data, capture_output=True, check=True, timeout=60)

        assert int(done.stdout) == len(RECORDS)


def test_a_named_pipe_is_read_while_it_is_written(tmp_path):
    """As `ssh node cat run.wandb` would fill it."""
    path = tmp_path / "pipe"
    os.mkfifo(path)
    writer = threading.Thread(target=path.write_bytes, args=(LOG,))
    writer.start()
    found = list(read_records(path))
    writer.join()

    assert payloads(found) == RECORDS


def test_an_open_file_stays_open_and_where_it_was():
    """Looking at its first bytes leaves no trace; a path's own file is closed."""
    file = io.BytesIO(LOG)
    file.seek(100)

    assert open_log(file) is file
    assert file.tell() == 100
    packed = io.BytesIO(PACKED["gzip"])
    open_log(packed).close()
    assert not packed.closed
    assert unpacked(io.BytesIO(LOG), LOG[:4]) is None


@pytest.mark.parametrize("packing", ["gzip", "zstd", "zstd of several frames"])
def test_packed_data_that_breaks_off_gives_what_was_there_and_says_so(packing):
    """Cut anywhere: the records before the cut, and a trouble that names the packing; never an exception."""
    data = PACKED[packing]
    for cut in random.Random(2).sample(range(12, len(data)), 25):
        with open_log(io.BytesIO(data[:cut])) as file:
            there = file.read()

            assert LOG.startswith(there)
            assert packing.split()[0] in file.trouble or len(there) in {0, 70_000, len(LOG)}
        found = read_all(data[:cut])
        assert payloads(found) == payloads(read_all(there))[: len(payloads(found))]


@pytest.mark.parametrize("packing", ["gzip", "zstd"])
def test_packed_data_that_is_damaged_is_never_an_exception(packing):
    """Flipped anywhere: it ends there, or its own checksum tells in the end."""
    rng = random.Random(3)
    for at in rng.sample(range(8, len(PACKED[packing])), 40):
        data = bytearray(PACKED[packing])
        data[at] ^= 1 << rng.randrange(8)
        read_all(bytes(data))


def test_what_was_unpacked_before_the_damage_is_kept():
    """A gzip file whose checksum alone is wrong holds the whole log."""
    data = bytearray(PACKED["gzip"])
    data[-6] ^= 1
    with open_log(io.BytesIO(data)) as file:
        assert file.read() == LOG
        assert "damaged" in file.trouble


@pytest.mark.parametrize(
    ("data", "word"),
    [
        (gzip.compress(LOG) + b"something", "behind the gzip"),
        (zstd(LOG) + b"something", "behind the zstd"),
        (gzip.compress(LOG)[:-20], "gzip data breaks off"),
        (zstd(LOG)[:-20], "zstd data breaks off"),
    ],
)
def test_a_stream_says_why_it_ends(data, word):
    """In a few words, once it was read."""
    with open_log(io.BytesIO(data)) as file:
        file.read()

        assert word in file.trouble


def test_a_window_beyond_the_cap_is_refused():
    """A frame that asks for 2 GiB of memory gets none of it."""
    header = b"\x28\xb5\x2f\xfd" + bytes([0b00000000, 21 << 3])  # a window of 1 KiB << 21
    with open_log(io.BytesIO(header + b"\x01\x00\x00" * 10)) as file:
        assert file.read() == b""
        assert "window" in file.trouble


@pytest.mark.parametrize("pack", [gzip.compress, zstd])
def test_memory_does_not_grow_with_what_is_unpacked(pack):
    """A small file that unpacks to 96 MiB of nothing is read in a few."""
    bomb = pack(FILE_HEADER + bytes(96 << 20))
    tracemalloc.start()
    try:
        with open_log(io.BytesIO(bomb)) as file:
            assert file.seek(0, os.SEEK_END) == len(FILE_HEADER) + (96 << 20)
        assert tracemalloc.get_traced_memory()[1] < 32 << 20
    finally:
        tracemalloc.stop()


def test_a_stream_goes_back_a_little_and_no_further():
    """A reader sees the last bytes again; who asks for the beginning of a long one is told."""
    data = random.Random(4).randbytes(6 << 20)
    stream = Stream(iter([data[at : at + 50_000] for at in range(0, len(data), 50_000)]), "x")
    assert stream.read(4 << 20) == data[: 4 << 20]
    stream.seek((4 << 20) - 20 * BLOCK_SIZE)
    assert stream.read(100) == data[(4 << 20) - 20 * BLOCK_SIZE :][:100]
    assert stream.tell() == (4 << 20) - 20 * BLOCK_SIZE + 100
    stream.seek(10, os.SEEK_CUR)
    assert stream.read(-1) == data[(4 << 20) - 20 * BLOCK_SIZE + 110 :]
    with pytest.raises(io.UnsupportedOperation, match="x cannot be read again"):
        stream.seek(0)


def tar() -> bytes:
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w", format=tarfile.USTAR_FORMAT) as archive:
        archive.addfile(tarfile.TarInfo("run-x.wandb"), io.BytesIO())
    return out.getvalue()


@pytest.mark.parametrize(
    ("head", "word"),
    [
        (b"", "empty"),
        (FILE_HEADER[:5], "part of a file header (5 bytes)"),
        (b"version https://git-lfs.github.com/spec/v1\noid sha256:0", "git lfs pull"),
        (b"<!DOCTYPE html><html>", "web page"),
        (b"\n <HTML>", "web page"),
        (b":SWL\xd6\xe1\x02", "SwanLab"),
        (gzip.compress(b""), "gzip"),
        (zstd(b""), "zstd"),
        (tar(), "tar archive"),
        (b"SQLite format 3\0", "SQLite"),
        (b"loss,step\n0.5,1\n", "text"),
        ("Größe;Schritt".encode() + b"\xc3", "text"),
        (FILE_HEADER, None),
        (FILE_HEADER[:6] + b"\x07", None),
        (LOG, None),
        (b"\xff" + LOG[1:], None),
        (bytes(100), None),
    ],
)
def test_what_is_no_log_is_named(head, word):
    """In words that say what to do; a log, sound or damaged, has none."""
    found = first_look(head)

    assert found is None if word is None else word in found


def test_no_gap_in_a_log_that_was_packed():
    """Nothing is made up where a stream ends as it should."""
    for data in PACKED.values():
        assert gaps(read_all(data)) == []
