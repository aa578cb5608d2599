"""Packing and unpacking that were killed, or met a full disk, at every call: the same call goes on, to the same end."""

from __future__ import annotations

import contextlib
import os
import random
import signal
import subprocess
import sys
import threading
import time
from itertools import pairwise
from pathlib import Path

import pytest
from runferry.bundle import BundleError, Fate, pack, unpack
from runferry.logformat import FILE_HEADER, Framer, Gap, read_records
from support.brokendisk import BrokenDisk, Killed
from support.bundles import everything_below
from support.logs import exit_record, header_record, make_log, row, run_record, simple_run

SPLIT = 70_000


@pytest.fixture
def runs(tmp_path):
    """A run with enough noise for several volumes."""
    folder = tmp_path / "wandb"
    log = simple_run(folder, rows=20)
    for number in range(3):
        (log.parent / "files" / f"noise{number}.bin").write_bytes(random.Random(number).randbytes(50_000))
    return folder


def bundles(folder):
    """What lies there under the bundle's name."""
    return {name: data for name, data in everything_below(folder).items() if name.startswith("b.tar.zst")}


@pytest.mark.parametrize("full", [False, True], ids=["killed", "full"])
@pytest.mark.parametrize("split", [0, SPLIT])
def test_a_packing_that_was_stopped_anywhere_is_gone_on_with(runs, tmp_path, split, full):
    """Stopped at each call in turn: nothing that looks whole is not, and the second call makes the bytes of one in one go."""
    (tmp_path / "whole").mkdir()
    counting = BrokenDisk()
    pack(runs, tmp_path / "whole" / "b.tar.zst", split=split, disk=counting)
    wanted = bundles(tmp_path / "whole")
    assert len(counting.calls) > (20 if split else 4)

    for at in range(len(counting.calls)):
        place = tmp_path / f"at{at}"
        place.mkdir()
        try:
            pack(runs, place / "b.tar.zst", split=split, disk=BrokenDisk(at, full=full))
        except (Killed, OSError):
            left = bundles(place)
            assert all(data == wanted[name] for name, data in left.items() if not name.endswith(".part"))
            assert not split or "b.tar.zst.sha256" not in left or left.keys() == wanted.keys()
            pack(runs, place / "b.tar.zst", split=split, overwrite=True)
        assert bundles(place) == wanted


@pytest.mark.parametrize("split", [0, SPLIT])
def test_what_was_packed_is_not_packed_again(runs, tmp_path, split):
    """Blocks that lie there and are right are kept: only the last ones are written."""
    whole = pack(runs, tmp_path / "b.tar.zst", split=split)
    with pytest.raises(BundleError, match="there already"):
        pack(runs, tmp_path / "b.tar.zst", split=split)
    if split:
        (tmp_path / "b.tar.zst.sha256").unlink()
    else:
        (tmp_path / "b.tar.zst").rename(tmp_path / "b.tar.zst.part")
    again = pack(runs, tmp_path / "b.tar.zst", split=split)

    assert whole.size > 150_000
    assert again.size == 0
    assert unpack(tmp_path / ("b.tar.zst.001" if split else "b.tar.zst"), tmp_path / "out").exit_code == 0


@pytest.mark.parametrize("split", [0, SPLIT])
@pytest.mark.parametrize("byte", [0, 60, 30_000, 90_000, -1])
def test_what_was_left_is_checked_before_it_is_kept(runs, tmp_path, split, byte):
    """A byte that has changed in what an interrupted call left changes nothing in the end."""
    (tmp_path / "whole").mkdir()
    pack(runs, tmp_path / "whole" / "b.tar.zst", split=split)
    name = "b.tar.zst.001" if split else "b.tar.zst"
    data = bytearray((tmp_path / "whole" / name).read_bytes())
    data[byte if byte < len(data) else -2] ^= 0x40
    (tmp_path / (name if split else name + ".part")).write_bytes(data)
    pack(runs, tmp_path / "b.tar.zst", split=split)

    assert bundles(tmp_path) == bundles(tmp_path / "whole")


@pytest.mark.parametrize(
    ("before", "after"), [(0, SPLIT), (SPLIT, 0), (SPLIT, 100_000), (100_000, SPLIT), (90_000, 300_000)]
)
def test_a_bundle_of_another_shape_is_replaced_whole(runs, tmp_path, before, after):
    """No volume of it stays beside the new one."""
    (tmp_path / "whole").mkdir()
    pack(runs, tmp_path / "whole" / "b.tar.zst", split=after)
    pack(runs, tmp_path / "b.tar.zst", split=before)
    pack(runs, tmp_path / "b.tar.zst", split=after, overwrite=True)

    assert bundles(tmp_path) == bundles(tmp_path / "whole")


@pytest.mark.parametrize("call", ["write", "sync", "replace"])
@pytest.mark.parametrize("split", [0, SPLIT])
def test_two_that_make_one_bundle_do_not_mix(runs, tmp_path, split, call):
    """The second is told, at whatever moment it comes, with other files, too; and the first one is whole."""
    told = []
    (tmp_path / "whole").mkdir()
    pack(runs, tmp_path / "whole" / "b.tar.zst", split=split)

    class Slow(BrokenDisk):
        def _hit(self, name):
            if name == call:
                (runs / "run-20260921_141320-a1b2c3d4" / "files" / "a_new_one").write_bytes(b"x" * len(self.calls))
                with pytest.raises(BundleError) as caught:
                    pack(runs, tmp_path / "b.tar.zst", split=split, overwrite=True)
                told.append(str(caught.value))
            return super()._hit(name)

    pack(runs, tmp_path / "b.tar.zst", split=split, disk=Slow())

    assert told
    assert all("somebody else" in one for one in told)
    assert bundles(tmp_path) == bundles(tmp_path / "whole")


@pytest.mark.parametrize("overwrite", [False, True])
def test_one_that_ends_while_another_begins_is_not_written_into(runs, tmp_path, overwrite):
    """What was opened as unfinished and is finished by the time it can be had is no file to go on with."""
    target = tmp_path / "b.tar.zst"
    (tmp_path / "whole").mkdir()
    pack(runs, tmp_path / "whole" / "b.tar.zst")

    class Late(BrokenDisk):
        def lock(self, file):
            if not target.exists():
                target.with_name("b.tar.zst.part").rename(target)
                target.write_bytes(b"finished")
            return super().lock(file)

    if overwrite:
        pack(runs, target, overwrite=True, disk=Late())
        assert bundles(tmp_path) == bundles(tmp_path / "whole")
    else:
        with pytest.raises(BundleError, match="there already"):
            pack(runs, target, disk=Late())
        assert target.read_bytes() == b"finished"


@pytest.mark.parametrize("split", [0, SPLIT])
def test_nothing_stays_of_what_interrupted_calls_left(runs, tmp_path, split):
    """Neither behind the blocks that are kept, nor beside: unfinished files of the other shape, a longer list of volumes."""
    (tmp_path / "whole").mkdir()
    pack(runs, tmp_path / "whole" / "b.tar.zst", split=split)
    last = sorted(bundles(tmp_path / "whole"))[-2 if split else -1]
    for name, data in bundles(tmp_path / "whole").items():
        if not name.endswith(".sha256"):
            more = b"left" * 10_000 if name == last else b""
            (tmp_path / f"{name}{'.part' if not split else ''}").write_bytes(data + more)
    (tmp_path / "b.tar.zst.sha256.part").write_bytes(b"left" * 10_000)
    if split:
        (tmp_path / "b.tar.zst.part").write_bytes(b"left" * 10_000)
    pack(runs, tmp_path / "b.tar.zst", split=split)

    assert bundles(tmp_path) == bundles(tmp_path / "whole")


def test_volumes_that_are_being_replaced_have_no_list(runs, tmp_path):
    """It says that all are there, of one bundle."""
    pack(runs, tmp_path / "b.tar.zst", split=SPLIT)
    (runs / "run-20260921_141320-a1b2c3d4" / "files" / "a_new_one").write_bytes(b"x")
    counting = BrokenDisk()
    counting.at = 4
    with pytest.raises(Killed):
        pack(runs, tmp_path / "b.tar.zst", split=SPLIT, overwrite=True, disk=counting)

    assert not (tmp_path / "b.tar.zst.sha256").exists()


def test_smaller_volumes_keep_nothing_that_is_too_large(tmp_path):
    """Blocks are as large in both: what is kept of a larger volume ends where the smaller one does."""
    log = simple_run(tmp_path / "wandb", rows=4)
    (log.parent / "files" / "noise").write_bytes(random.Random(1).randbytes(9 << 20))
    pack(log, tmp_path / "b.tar.zst", split=8 << 20)
    packed = pack(log, tmp_path / "b.tar.zst", split=5 << 20, overwrite=True)

    assert [Path(path).stat().st_size <= 5 << 20 for path in packed.files] == [True] * 4
    assert unpack(tmp_path / "b.tar.zst", tmp_path / "out").exit_code == 0


def test_what_gets_its_name_is_on_the_device(runs, tmp_path):
    """Each file is brought there before it is moved."""
    packing, unpacking = BrokenDisk(), BrokenDisk()
    pack(runs, tmp_path / "b.tar.zst", split=SPLIT, disk=packing)
    unpack(tmp_path / "b.tar.zst", tmp_path / "out", disk=unpacking)
    for calls in (packing.calls, unpacking.calls):
        orders = [call for call in calls if call in {"write", "sync", "replace"}]
        assert orders.count("replace") >= 3
        assert all(before == "sync" for before, call in pairwise(orders) if call == "replace")


def test_two_that_unpack_one_file_do_not_mix(runs, tmp_path):
    """The second is told of the file that the first is at; both together leave what was packed."""
    pack(runs, tmp_path / "b.tar.zst")
    others = []

    class Slow(BrokenDisk):
        def sync(self, file):
            others.append(unpack(tmp_path / "b.tar.zst", tmp_path / "out"))
            super().sync(file)

    done = unpack(tmp_path / "b.tar.zst", tmp_path / "out", disk=Slow())

    assert done.exit_code == 0
    assert [[file.reason for file in other.bad] for other in others] == [["somebody else is unpacking it now"]]
    assert everything_below(tmp_path / "out") == everything_below(runs)


@pytest.mark.parametrize("full", [False, True], ids=["killed", "full"])
def test_an_unpacking_that_was_stopped_anywhere_is_gone_on_with(runs, tmp_path, full):
    """Stopped at each call in turn: each file is there whole or not at all, and the second call finishes, leaving nothing else."""
    pack(runs, tmp_path / "b.tar.zst")
    wanted = everything_below(runs)
    counting = BrokenDisk()
    unpack(tmp_path / "b.tar.zst", tmp_path / "whole", disk=counting)

    for at in range(len(counting.calls)):
        place = tmp_path / f"at{at}"
        with contextlib.suppress(Killed):
            unpack(tmp_path / "b.tar.zst", place, disk=BrokenDisk(at, full=full))
        there = everything_below(place) if place.exists() else {}
        assert all(data == wanted[name] for name, data in there.items() if "/.runferry-part-" not in name)
        again = unpack(tmp_path / "b.tar.zst", place)
        assert again.exit_code == 0
        assert everything_below(place) == wanted
        assert {file.name for file in again.files if file.fate is Fate.KEPT} == there.keys() & wanted.keys()


def test_a_full_disk_is_told_once(runs, tmp_path):
    """The file that met it says so, and the others that they were not begun."""
    pack(runs, tmp_path / "b.tar.zst")
    done = unpack(tmp_path / "b.tar.zst", tmp_path / "out", disk=BrokenDisk(3, full=True))

    assert [file.reason.partition(":")[0] for file in done.bad] == ["cannot be written", *["not begun"] * 3]
    assert "No space" in done.bad[0].reason


WRITER = """
import sys
sys.path[:0] = sys.argv[3:]
from pathlib import Path
from support.logs import make_log, run_record, header_record, row
from runferry.logformat import Framer
path = Path(sys.argv[1])
make_log(path, header_record(), run_record("w"))
framer = Framer(path.stat().st_size)
with path.open("ab", buffering=0) as file:
    for step in range(int(sys.argv[2])):
        out = bytearray()
        framer.append(row(step, {"text": "x" * (step * 37 % 9000)}, num=step + 3).SerializeToString(), out)
        half = len(out) // 2
        file.write(out[:half])
        file.write(out[half:])
"""


def test_a_run_that_is_written_is_packed_whole_again_and_again(tmp_path):
    """By a writer in another process that writes each record in two halves: every bundle reads clean to its last good offset."""
    log = tmp_path / "wandb" / "run-20260921_141320-w" / "run-w.wandb"
    log.parent.mkdir(parents=True)
    (log.parent / "files").mkdir()
    tests = Path(__file__).parents[1]
    writer = subprocess.Popen([sys.executable, "-c", WRITER, log, "3000", tests])
    lengths = []
    try:
        while not log.exists() or log.stat().st_size < 1000:
            time.sleep(0.005)
        number = 0
        while writer.poll() is None or number == 0:
            number += 1
            packed = pack(log, tmp_path / f"{number}.tar.zst")
            assert unpack(tmp_path / f"{number}.tar.zst", tmp_path / str(number)).exit_code == 0
            copy = tmp_path / str(number) / log.parent.name / log.name
            found = list(read_records(copy))
            (entry,) = packed.manifest.files
            assert not any(isinstance(item, Gap) for item in found)
            assert (entry.log.end, entry.log.records) == (copy.stat().st_size, len(found))
            lengths.append(len(found))
    finally:
        writer.kill()
        writer.wait()

    assert lengths == sorted(lengths)
    assert len(lengths) >= 2
    assert not packed.problems


def test_a_later_bundle_of_a_run_goes_over_an_earlier_one(tmp_path):
    """The log that is here is the beginning of the new one, so it is replaced; and an older bundle replaces nothing."""
    log = simple_run(tmp_path / "wandb", rows=5, exit_code=None)
    pack(log, tmp_path / "old.tar.zst")
    make_log(log, row(5, num=50), exit_record(0), append=True)
    pack(log, tmp_path / "new.tar.zst")
    unpack(tmp_path / "old.tar.zst", tmp_path / "out")
    new = unpack(tmp_path / "new.tar.zst", tmp_path / "out")
    old = unpack(tmp_path / "old.tar.zst", tmp_path / "out", overwrite=True)
    copy = tmp_path / "out" / log.parent.name / log.name

    assert [file.fate for file in new.files] == [Fate.WRITTEN]
    assert [file.fate for file in old.files] == [Fate.LONGER]
    assert copy.read_bytes() == log.read_bytes()


def test_a_file_that_differs_stays_until_that_is_asked_for(runs, tmp_path):
    """Named, with what would replace it."""
    pack(runs, tmp_path / "b.tar.zst")
    unpack(tmp_path / "b.tar.zst", tmp_path / "out")
    folder = tmp_path / "out" / "run-20260921_141320-a1b2c3d4"
    (folder / "files" / "noise1.bin").write_bytes(b"mine")
    (folder / "run-a1b2c3d4.wandb").write_bytes(FILE_HEADER + b"another log")
    left = unpack(tmp_path / "b.tar.zst", tmp_path / "out")
    kept = (folder / "files" / "noise1.bin").read_bytes()
    taken = unpack(tmp_path / "b.tar.zst", tmp_path / "out", overwrite=True)

    assert [file.fate for file in left.bad] == [Fate.DIFFERS] * 2
    assert kept == b"mine"
    assert taken.exit_code == 0
    assert everything_below(tmp_path / "out") == everything_below(runs)


class Shrinking(BrokenDisk):
    """Cuts a file of the run when the first block is written."""

    def __init__(self, path, size):
        super().__init__()
        self.path, self.size = path, size

    def write(self, file, data):
        if self.path is not None:
            os.truncate(self.path, self.size)
            self.path = None
        super().write(file, data)


def test_a_file_that_shrinks_while_it_is_read_is_named(tmp_path):
    """The archive has room for what is gone, and says that its bytes are from more than one moment; all else is whole."""
    log = simple_run(tmp_path / "wandb", rows=5)
    big = log.parent / "files" / "big.bin"
    big.write_bytes(random.Random(1).randbytes(5_000_000))
    packed = pack(log, tmp_path / "b.tar.zst", disk=Shrinking(big, 2_000_000))
    done = unpack(tmp_path / "b.tar.zst", tmp_path / "out")

    assert packed.exit_code == 1
    assert [(out.name.rpartition("/")[2], "changed" in out.reason) for out in packed.problems] == [("big.bin", True)]
    assert [entry.changed for entry in packed.manifest.files] == [True, False]
    assert done.exit_code == 0


def test_a_file_that_grows_is_taken_as_large_as_it_was(tmp_path):
    """One size, one digest; that it changed is said."""
    log = simple_run(tmp_path / "wandb", rows=5)
    big = log.parent / "files" / "growing.txt"
    big.write_bytes(b"line\n" * 100_000)

    class Growing(Shrinking):
        def write(self, file, data):
            if self.path is not None:
                with big.open("ab") as growing:
                    growing.write(b"more\n")
                self.path = None
            super().write(file, data)

    # The file is larger than a block in volumes, so a block is written before all of it was read.
    packed = pack(log, tmp_path / "b.tar.zst", split=64 * 1024, disk=Growing(big, 0))

    assert packed.manifest.files[0].size == 500_000
    assert packed.manifest.files[0].changed


def test_a_log_that_was_replaced_is_named(tmp_path, monkeypatch):
    """Between the look at it and its turn: what the manifest says of it is another one's."""
    from runferry.bundle import packing

    log = simple_run(tmp_path / "wandb", rows=5)
    gathers = packing.gather

    def gather(*arguments, **more):
        found = gathers(*arguments, **more)
        log.rename(tmp_path / "kept")
        log.write_bytes(bytes(10_000))
        return found

    monkeypatch.setattr(packing, "gather", gather)

    assert [out.name.rpartition("/")[2] for out in pack(log, tmp_path / "b.tar.zst").problems] == [log.name]


def test_a_file_that_is_gone_or_shut_is_named_and_the_rest_packed(tmp_path, monkeypatch):
    """It is in the manifest as left out, too: whoever unpacks it is told."""
    log = simple_run(tmp_path / "wandb", rows=5)
    (log.parent / "files" / "gone").write_bytes(b"1")
    (log.parent / "files" / "there").write_bytes(b"2")

    def gone(path, root):
        if path.name == "gone":
            raise PermissionError(13, "Permission denied", str(path))
        return opens(path, root)

    from runferry.bundle import packing

    opens = packing.open_file
    monkeypatch.setattr(packing, "open_file", gone)
    packed = pack(log, tmp_path / "b.tar.zst")
    done = unpack(tmp_path / "b.tar.zst", tmp_path / "out")

    assert packed.exit_code == 1
    assert done.left_out == packed.manifest.left_out
    assert [(out.name.rpartition("/")[2], out.reason) for out in done.left_out] == [
        ("gone", "cannot be read: Permission denied")
    ]


KILLED = "import sys; from runferry.bundle import pack; pack(sys.argv[1], sys.argv[2], split=65536)"


@pytest.mark.slow
def test_packings_that_were_really_killed_are_gone_on_with(tmp_path):
    """SIGKILL at 60 moments, one after another on the same bundle."""
    log = simple_run(tmp_path / "wandb", rows=20)
    for number in range(20):
        (log.parent / "files" / f"noise{number:02}.bin").write_bytes(random.Random(number).randbytes(300_000))
    (tmp_path / "whole").mkdir()
    pack(tmp_path / "wandb", tmp_path / "whole" / "b.tar.zst", split=65536)
    moments = random.Random(7)
    for _ in range(60):
        (tmp_path / "b.tar.zst.sha256").unlink(missing_ok=True)
        child = subprocess.Popen([sys.executable, "-c", KILLED, tmp_path / "wandb", tmp_path / "b.tar.zst"])
        timer = threading.Timer(moments.uniform(0.1, 0.5), lambda child=child: child.send_signal(signal.SIGKILL))
        timer.start()
        child.wait()
        timer.cancel()
    pack(tmp_path / "wandb", tmp_path / "b.tar.zst", split=65536, overwrite=True)

    assert bundles(tmp_path) == bundles(tmp_path / "whole")


def framed(records):
    """Bytes of a log."""
    out = bytearray(FILE_HEADER)
    framer = Framer()
    for record in records:
        framer.append(record.SerializeToString(), out)
    return bytes(out)


def test_every_prefix_of_a_log_is_packed_to_its_last_record(tmp_path):
    """Whatever byte the writer has come to."""
    whole = framed([header_record(), run_record("p"), *(row(step, num=step + 3) for step in range(12))])
    log = tmp_path / "wandb" / "run-20260921_141320-p" / "run-p.wandb"
    log.parent.mkdir(parents=True)
    for size in range(len(FILE_HEADER) + 40, len(whole) + 1, 7):
        log.write_bytes(whole[:size])
        (entry,) = pack(log, tmp_path / "b.tar.zst", overwrite=True).manifest.files
        unpack(tmp_path / "b.tar.zst", tmp_path / "out", overwrite=True)
        assert entry.size == entry.log.end <= size
        assert size - entry.size < 200
