"""What goes into a bundle, and that the same files give the same bytes."""

from __future__ import annotations

import os
import random
import re
import subprocess
import sys
import tarfile

import pytest
import zstandard
from hypothesis import given, settings
from hypothesis import strategies as st
from runferry import bundle
from runferry.bundle import BundleError, pack, unpack, verify
from runferry.bundle.manifest import NAME
from runferry.bundle.names import why_unsafe
from runferry.logformat import FILE_HEADER, Gap, read_records
from support.bundles import everything_below
from support.logs import make_log, set_age, simple_records, simple_run


@pytest.fixture
def runs(tmp_path):
    """Two runs, one with files."""
    folder = tmp_path / "wandb"
    log = simple_run(folder, rows=40)
    simple_run(folder, run_id="other", rows=3, exit_code=None)
    (log.parent / "files" / "noise.bin").write_bytes(random.Random(1).randbytes(100_000))
    (log.parent / "files" / "empty").write_bytes(b"")
    (log.parent / "artifacts").mkdir()
    (log.parent / "artifacts" / ("a" * 32)).write_bytes(b"content")
    return folder


def names(packed):
    return [entry.name for entry in packed.manifest.files]


def test_the_same_files_give_the_same_bytes(runs, tmp_path):
    """Whatever the order in which they are named, the place they lie in, and who packs them."""
    pack(runs, tmp_path / "one.tar.zst")
    folders = sorted(runs.iterdir(), reverse=True)
    pack(folders, tmp_path / "two.tar.zst")
    (tmp_path / "deep" / "er").mkdir(parents=True)
    runs.rename(tmp_path / "deep" / "er" / "runs")
    command = [sys.executable, "-m", "runferry.cli", "pack", "deep/er/runs", "-o", "three.tar.zst"]
    subprocess.run(command, cwd=tmp_path, check=True, capture_output=True)

    one = (tmp_path / "one.tar.zst").read_bytes()
    assert one == (tmp_path / "two.tar.zst").read_bytes() == (tmp_path / "three.tar.zst").read_bytes()


def test_ordinary_tools_read_it(runs, tmp_path):
    """It is a tar archive in zstd frames: Python's own reader finds the same names, bytes and times."""
    packed = pack(runs, tmp_path / "b.tar.zst")
    with (tmp_path / "b.tar.zst").open("rb") as file:
        plain = zstandard.ZstdDecompressor().stream_reader(file, read_across_frames=True).read()
    (tmp_path / "b.tar").write_bytes(plain)
    with tarfile.open(tmp_path / "b.tar") as archive:
        members = {member.name: (member, archive.extractfile(member).read()) for member in archive}

    assert list(members) == [*names(packed), NAME]
    for entry in packed.manifest.files:
        member, data = members[entry.name]
        assert (member.size, member.mtime, data) == (entry.size, entry.mtime, (runs / entry.name).read_bytes())
        assert (member.uid, member.gid, member.uname, member.gname, member.mode) == (0, 0, "", "", 0o644)


def test_the_manifest_says_what_each_log_holds(runs, tmp_path):
    """Run, project, records, last good offset and exit code, without a look into the log."""
    packed = pack(runs, tmp_path / "b.tar.zst")
    logs = {entry.log.run: entry.log for entry in packed.manifest.files if entry.log}
    ended, going = logs["a1b2c3d4"], logs["other"]
    log = runs / "run-20260921_141320-a1b2c3d4" / "run-a1b2c3d4.wandb"

    assert (ended.project, ended.exit, ended.cut, ended.gaps) == ("proj", 0, 0, 0)
    assert ended.end == log.stat().st_size
    assert ended.records == sum(1 for _ in read_records(log))
    assert going.exit is None
    assert packed.manifest == bundle.Manifest.decoded(packed.manifest.encoded())


def test_side_files_stay_here(runs, tmp_path):
    """What speaks of a process or a server is no data; a user's file of such a name below `files/` is."""
    log = runs / "run-20260921_141320-a1b2c3d4" / "run-a1b2c3d4.wandb"
    for suffix in ("alive", "cursor", "cursor.12.tmp", "lock", "lock.stale.0123456789abcdef", "synced", "syncstate"):
        log.with_name(f"{log.name}.{suffix}").write_bytes(b"x")
    (log.parent / "tmp").mkdir()
    (log.parent / "tmp" / "half").write_bytes(b"x")
    (log.parent / "files" / "my.wandb.lock").write_bytes(b"x")
    for folder in (log.parent, log.parent / "files"):
        (folder / ".runferry-part-0123456789abcdef").write_bytes(b"left by an unpack that was killed")
    packed = pack(log.parent, tmp_path / "b.tar.zst")

    assert [name.partition("/")[2] for name in names(packed)] == [
        "artifacts/" + "a" * 32,
        "files/empty",
        "files/my.wandb.lock",
        "files/noise.bin",
        "run-a1b2c3d4.wandb",
    ]
    assert packed.exit_code == 0


def test_no_path_of_this_machine_is_in_it(runs, tmp_path):
    """Names begin below the folder that holds the runs; links that are left out are named without what they lead to."""
    log = runs / "run-20260921_141320-a1b2c3d4" / "run-a1b2c3d4.wandb"
    (log.parent / "files" / "away").symlink_to(tmp_path / "secret")
    (tmp_path / "secret").write_bytes(b"s")
    packed = pack(runs, tmp_path / "b.tar.zst")
    text = packed.manifest.encoded().decode()

    assert all(name.startswith("run-2026") for name in names(packed))
    assert str(tmp_path) not in text
    assert "secret" not in text


@pytest.mark.parametrize("follow", [False, True])
def test_links_are_followed_as_by_a_sync(runs, tmp_path, follow):
    """Those that stay in the run directory always, those out of it when asked, to regular files only; others are named."""
    folder = runs / "run-20260921_141320-a1b2c3d4"
    outside = tmp_path / "weights.pt"
    outside.write_bytes(b"weights")
    os.mkfifo(tmp_path / "pipe")
    files = folder / "files"
    (files / "inside").symlink_to("noise.bin")
    (files / "outside").symlink_to(outside)
    (files / "gone").symlink_to(tmp_path / "nothing")
    (files / "pipe").symlink_to(tmp_path / "pipe")
    (files / "folder").symlink_to(tmp_path)
    os.mkfifo(files / "fifo")
    packed = pack(folder, tmp_path / "b.tar.zst", follow_links=follow)
    held = {entry.name.rpartition("/")[2]: entry.size for entry in packed.manifest.files}
    reasons = {out.name.rpartition("/")[2]: out.reason for out in packed.manifest.left_out}

    assert held["inside"] == 100_000
    assert held.get("outside") == (7 if follow else None)
    assert set(reasons) == {"gone", "pipe", "folder", "fifo"} | (set() if follow else {"outside"})
    assert ("--follow-links" in reasons.get("outside", "")) is not follow
    assert packed.exit_code == 1


def test_a_log_outside_of_a_run_directory_is_packed_alone(tmp_path):
    """Whatever else lies in that folder is none of the run's."""
    make_log(tmp_path / "home" / "run-x.wandb", *simple_records("x"))
    (tmp_path / "home" / "diary.txt").write_text("private")
    packed = pack(tmp_path / "home" / "run-x.wandb", tmp_path / "b.tar.zst")

    assert names(packed) == ["run-x.wandb"]


def test_runs_of_several_folders_keep_apart(tmp_path):
    """Two runs of one name in two folders are two, by the names of the folders."""
    for folder in ("job1", "job2"):
        simple_run(tmp_path / folder / "wandb", rows=2)
    packed = pack([tmp_path / "job1", tmp_path / "job2"], tmp_path / "b.tar.zst")

    assert [name.partition("/")[0] for name in names(packed)] == ["job1", "job2"]


def test_the_latest_run_is_packed_by_its_own_name(runs, tmp_path, monkeypatch):
    """Through `latest-run` too; the bundle is named after the run."""
    (runs / "latest-run").symlink_to("run-20260921_141320-other")
    monkeypatch.chdir(tmp_path)
    packed = pack(runs / "latest-run")

    assert names(packed) == ["run-20260921_141320-other/run-other.wandb"]
    assert packed.files == ["run-20260921_141320-other.tar.zst"]


@pytest.mark.parametrize("cut", [1, 5, 20, 40])
def test_a_record_that_is_not_complete_stays_out(tmp_path, cut):
    """As does a block of zeros that a network file system has yet to fill; the bundle reads clean to its end."""
    log = simple_run(tmp_path / "wandb", rows=10, exit_code=None)
    whole = log.read_bytes()
    log.write_bytes(whole[:-cut])
    packed = pack(log, tmp_path / "b.tar.zst")
    (facts,) = [entry.log for entry in packed.manifest.files if entry.log]
    unpack(tmp_path / "b.tar.zst", tmp_path / "out")
    held = (tmp_path / "out" / log.parent.name / log.name).read_bytes()

    assert held == whole[: facts.end]
    assert len(held) + facts.cut == len(whole) - cut
    assert facts.cut > 0
    assert not [item for item in read_records(tmp_path / "out" / log.parent.name / log.name) if isinstance(item, Gap)]


def test_a_tail_that_is_damaged_is_packed_as_it_is(tmp_path):
    """It may be mended one day; nothing but what a writer leaves in the middle of a record is cut."""
    log = simple_run(tmp_path / "wandb", rows=10)
    data = bytearray(log.read_bytes())
    data[-3] ^= 0xFF
    data[-2] ^= 0xFF
    data += b"garbage that is no chunk of any kind, " * 2000
    log.write_bytes(data)
    packed = pack(log, tmp_path / "b.tar.zst")
    (entry,) = [entry for entry in packed.manifest.files if entry.log]

    assert (entry.size, entry.log.cut) == (len(data), 0)
    assert entry.log.gaps >= 1


def test_the_worked_example_is_what_pack_makes(tmp_path):
    """The label in the docstring of the package, byte for byte."""
    log = tmp_path / "run-a" / "run-a.wandb"
    (log.parent / "files").mkdir(parents=True)
    log.write_bytes(FILE_HEADER)
    data = (tmp_path / pack(log, tmp_path / "b.tar.zst").files[0]).read_bytes()
    example = re.findall(
        r"^    ([0-9a-f]{2})  ((?:(?:[0-9a-f]{2}|\.\.) ?)+)(?:  |$)",
        bundle.__doc__.split("A worked example")[1],
        re.MULTILINE,
    )
    said = {int(at, 16) + n: byte for at, line in example for n, byte in enumerate(line.split())}

    assert sorted(said) == list(range(56))
    assert {at: byte for at, byte in said.items() if byte != ".."}.items() <= {
        n: f"{b:02x}" for n, b in enumerate(data)
    }.items()


@pytest.mark.parametrize("data", [b"", FILE_HEADER[:3], FILE_HEADER, b"no log at all"])
def test_logs_without_a_record_are_packed_as_they_are(tmp_path, data):
    """A run that died early is data, too."""
    log = tmp_path / "wandb" / "run-20260921_141320-x" / "run-x.wandb"
    log.parent.mkdir(parents=True)
    log.write_bytes(data)
    pack(log, tmp_path / "b.tar.zst")
    unpack(tmp_path / "b.tar.zst", tmp_path / "out")

    assert (tmp_path / "out" / "run-20260921_141320-x" / "run-x.wandb").read_bytes() == data


def test_times_travel_in_whole_seconds(runs, tmp_path):
    """By its time a run that fell silent is known."""
    log = runs / "run-20260921_141320-other" / "run-other.wandb"
    set_age(log, 5000.25)
    pack(log, tmp_path / "b.tar.zst")
    unpack(tmp_path / "b.tar.zst", tmp_path / "out")

    assert (tmp_path / "out" / log.parent.name / log.name).stat().st_mtime_ns == int(log.stat().st_mtime) * 10**9


@pytest.mark.parametrize(("seconds", "packed"), [(-1, 0), (9_000_000_000, (1 << 33) - 1)])
def test_times_that_an_archive_has_no_room_for_cost_nothing_else(runs, tmp_path, seconds, packed):
    """A clock that was wrong by centuries is packed as the nearest time that a header can say."""
    file = runs / "run-20260921_141320-other" / "files" / "late"
    file.write_bytes(b"x")
    os.utime(file, (seconds, seconds))
    pack(runs, tmp_path / "b.tar.zst")
    done = unpack(tmp_path / "b.tar.zst", tmp_path / "out")

    assert done.exit_code == 0
    assert (tmp_path / "out" / file.relative_to(runs)).stat().st_mtime_ns == packed * 10**9


def test_what_cannot_be_packed_is_a_word_and_no_file(tmp_path):
    """Nothing there, no log there, no log at all, a bundle in its place."""
    (tmp_path / "empty").mkdir()
    (tmp_path / "text.txt").write_text("x")
    for path, word in (("nothing", "no such file"), ("empty", "no log"), ("text.txt", "not a log")):
        with pytest.raises(BundleError, match=word):
            pack(tmp_path / path, tmp_path / "b.tar.zst")
    log = simple_run(tmp_path / "wandb")
    (tmp_path / "b.tar.zst").write_bytes(b"precious")
    with pytest.raises(BundleError, match="there already"):
        pack(log, tmp_path / "b.tar.zst")
    with pytest.raises(BundleError, match="cannot lie in a run directory"):
        pack(log, log.parent / "files" / "b.tar.zst")
    with pytest.raises(BundleError, match="at least"):
        pack(log, tmp_path / "c.tar.zst", split=1000)

    assert (tmp_path / "b.tar.zst").read_bytes() == b"precious"
    assert sorted(path.name for path in tmp_path.iterdir()) == ["b.tar.zst", "empty", "text.txt", "wandb"]


part = st.text(st.characters(exclude_characters="/\0", exclude_categories=["Cs"]), min_size=1, max_size=40).filter(
    lambda text: not why_unsafe(text)
)
# Undecodable bytes in names, as Python has them: lone surrogates.
odd = st.builds(lambda text, byte: text + chr(0xDC00 + byte), part, st.integers(0x80, 0xFF)).filter(
    lambda text: len(os.fsencode(text)) <= 255
)
trees = st.dictionaries(
    st.lists(part | odd, min_size=1, max_size=6).map("/".join).filter(lambda name: not why_unsafe(name)),
    st.binary(max_size=3000) | st.integers(0, 200_000).map(bytes),
    max_size=12,
)


@settings(max_examples=60)
@given(tree=trees, split=st.sampled_from([0, 70_000]), level=st.sampled_from([1, 3, 19]))
def test_any_tree_comes_out_as_it_went_in(tmp_path_factory, tree, split, level):
    """Names of any letters or bytes, deep paths, empty files, files larger than a block: bytes and times are the same."""
    folder = tmp_path_factory.mktemp("tree")
    log = simple_run(folder / "wandb", rows=2)
    kept = {}
    for name, data in tree.items():
        path = log.parent / "files" / name
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(data)
        except OSError:  # a file where another one has a folder
            continue
        os.utime(path, (len(data), len(data)))
        kept[path] = data
    packed = pack(folder / "wandb", folder / "b.tar.zst", split=split, level=level)
    done = unpack(folder / ("b.tar.zst.001" if split else "b.tar.zst"), folder / "out")

    assert packed.exit_code == done.exit_code == 0
    assert everything_below(folder / "out") == everything_below(folder / "wandb")
    for path, data in kept.items():
        assert (folder / "out" / path.relative_to(folder / "wandb")).stat().st_mtime == len(data)
    with bundle.Bundle.open(folder / ("b.tar.zst.001" if split else "b.tar.zst")) as source:
        assert verify(source).exit_code == 0
