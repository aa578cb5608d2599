"""Files in a run's directory: staged, named, kept; and media that land in a row."""

from __future__ import annotations

import hashlib
import os
import threading
import time
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from runferry.logformat import load
from runferry.writer import filemethods, filesync
from runferry.writer.filesystem import RealFileSystem
from runferry.writer.media import Landing, Media
from runferry.writer.runfiles import RunFiles, safe_relative


@pytest.fixture
def files(tmp_path):
    run = tmp_path / "run"
    run.mkdir()
    return RunFiles(lambda: run, RealFileSystem())


def below(run):
    return sorted(str(path.relative_to(run)) for path in run.rglob("*") if path.is_file())


@pytest.mark.parametrize(
    "name", ["", ".", "/", "/etc/passwd", "..", "a/../../b", "a\0b", "C:/x", "\\\\host\\x", "..\\x"]
)
def test_names_that_lead_out_are_refused(name):
    """Absolute paths, parents, drives, NUL and nothing at all."""
    with pytest.raises(ValueError, match=r"leads out|not a file name|empty"):
        safe_relative(name)


@given(st.text(max_size=30))
def test_a_name_that_is_taken_stays_below(name):
    """Whatever the name, what comes back is relative and has no parent in it."""
    try:
        safe = safe_relative(name)
    except ValueError:
        return

    assert not Path(safe).is_absolute()
    assert ".." not in safe.split("/")


def test_staged_content_gets_its_name_later(files, tmp_path):
    """Bytes and files are copied at once, hashed on the way, and nothing stays in the scratch folder."""
    source = tmp_path / "model.bin"
    source.write_bytes(b"x" * 3_000_000)

    staged = files.stage(source)
    source.unlink()
    staged.place("deep/er/model.bin")
    files.stage(b"text").place("a.txt")

    assert staged.sha256 == hashlib.sha256(b"x" * 3_000_000).hexdigest()
    assert staged.size == 3_000_000
    assert below(files.directory) == ["files/a.txt", "files/deep/er/model.bin"]


def test_the_same_content_of_artifacts_lies_once(files):
    """Contents are named by their MD5."""
    first, second = files.keep(b"weights"), files.keep(b"weights")

    assert first == second
    assert first.path.name == hashlib.md5(b"weights").hexdigest()
    assert below(files.directory) == [f"artifacts/{first.path.name}"]


def test_a_link_shares_the_bytes(tmp_path):
    """`file_transfer="link"` costs no room, and a file over `copy_limit` is linked whatever the setting says."""
    source = tmp_path / "model.bin"
    source.write_bytes(b"x" * 100)

    for transfer, limit, warnings in (("link", 1000, 0), ("copy", 10, 1)):
        warned = []
        options = {"transfer": transfer, "copy_limit": limit, "warn": warned.append}
        files = RunFiles(lambda: tmp_path, RealFileSystem(), **options)
        assert files.stage(source).path.samefile(source)
        assert files.stage(source).path.samefile(source)
        assert len(warned) == warnings  # once: what the user did not ask for is named


def test_what_a_symbolic_link_leads_to_is_linked(files, tmp_path):
    """And never the symbolic link itself, which would not travel."""
    (tmp_path / "model.bin").write_bytes(b"x")
    (tmp_path / "latest").symlink_to("model.bin")
    files._transfer = "link"
    staged = files.stage(tmp_path / "latest")
    assert not staged.path.is_symlink()
    assert staged.path.samefile(tmp_path / "model.bin")


def test_a_file_over_the_limit_that_cannot_be_linked_is_copied(tmp_path, monkeypatch):
    """From another file system: a run has everything in its directory. One warning names the size and the setting."""
    source = tmp_path / "model.bin"
    source.write_bytes(b"x" * 100)

    def refuse(*_):
        raise OSError(18, "Invalid cross-device link")

    monkeypatch.setattr(os, "link", refuse)
    warned = []
    files = RunFiles(lambda: tmp_path, RealFileSystem(), copy_limit=10, warn=warned.append)

    for _ in range(2):
        staged = files.stage(source)
        assert staged.path.read_bytes() == source.read_bytes()
        assert not staged.path.samefile(source)
    assert len(warned) == 1
    assert "(100 bytes) is larger than the setting copy_limit (10)" in warned[0]


def test_a_changed_hard_link_is_not_taken_for_its_old_content(tmp_path):
    """The name of an artifact's content is its MD5, also where somebody wrote into the linked original meanwhile."""
    source, other = tmp_path / "model.bin", tmp_path / "other.bin"
    source.write_bytes(b"one")
    other.write_bytes(b"one")
    files = RunFiles(lambda: tmp_path / "run", RealFileSystem(), transfer="link")
    files.keep(source)
    assert files.keep(source).path.samefile(source)
    source.write_bytes(b"two")

    assert files.keep(other).path.read_bytes() == b"one"
    assert not list((tmp_path / "run" / "tmp").iterdir())


def test_holes_stay_holes(files, tmp_path):
    """A sparse file of 5 GB costs neither that space nor the time to write it."""
    source = tmp_path / "sparse"
    with source.open("wb") as file:
        file.truncate(20_000_000)
        file.seek(3_000_000)
        file.write(b"x")
        file.seek(12_345_678)
        file.write(b"y" * 2_000_000)

    staged = files.stage(source)

    assert staged.path.read_bytes() == source.read_bytes()
    assert (staged.size, staged.sha256) == (20_000_000, hashlib.sha256(source.read_bytes()).hexdigest())
    assert staged.path.stat().st_blocks * 512 < 7_000_000


def test_where_files_have_no_holes_zeros_are_written(files, tmp_path, monkeypatch):
    """Some network file systems refuse to make a file longer."""
    source = tmp_path / "zeros"
    source.write_bytes(bytes(3_000_000) + b"x")

    def refuse(*_):
        raise PermissionError(1, "Operation not permitted")

    monkeypatch.setattr(files._fs, "truncate", refuse)

    assert files.stage(source).path.read_bytes() == source.read_bytes()


@pytest.mark.parametrize(("mode", "expected"), [(0o600, 0o600), (0o640, 0o640), (0o444, 0o644), (0o777, 0o644)])
def test_a_copy_is_as_private_as_its_source(files, tmp_path, mode, expected):
    """Nobody reads it who may not read the source, and the umask counts as for any file."""
    source = tmp_path / "key"
    source.write_bytes(b"x")
    source.chmod(mode)
    umask = os.umask(0o022)
    try:
        made = files.stage(source).path.stat().st_mode & 0o777
    finally:
        os.umask(umask)

    assert made == expected & (mode | 0o600)


class Changing(RealFileSystem):
    """Something happens to the source while the first piece of it is written."""

    def __init__(self, change):
        self.change = change

    def write(self, fd, data):
        change, self.change = self.change, lambda: None
        change()
        return super().write(fd, data)


def test_a_source_that_changes_while_it_is_copied_is_named(tmp_path):
    """The copy may be of both states; what is only appended to, or replaced by another file, gives a whole one."""
    source = tmp_path / "log"

    def rewrite():
        with source.open("r+b") as file:
            file.write(b"b" * 2_000_000)
        os.utime(source, (1, 1))

    def append():
        with source.open("ab") as file:
            file.write(b"b" * 3_000_000)
        os.utime(source, (1, 1))

    def replace():
        (tmp_path / "new").write_bytes(b"b")
        (tmp_path / "new").replace(source)

    for change, warnings in ((rewrite, 1), (append, 0), (replace, 0), (source.unlink, 0)):
        source.write_bytes(b"a" * 2_000_000)
        warned = []
        staged = RunFiles(lambda: tmp_path / "run", Changing(change), warn=warned.append).stage(source)
        assert len(warned) == warnings
        assert staged.size == 2_000_000
        if not warnings:
            assert staged.path.read_bytes() == b"a" * 2_000_000
        else:
            assert "may have something of both states" in warned[0]


def test_a_file_of_the_kernel_has_no_size(files):
    """It is read to its end all the same."""
    assert files.stage(Path("/proc/self/status")).size > 100


def test_a_link_in_the_folder_leads_nowhere(files, tmp_path):
    """A symbolic link below `files/` that leads out of it is not followed."""
    files.files.mkdir()
    (files.files / "out").symlink_to(tmp_path)
    staged = files.stage(b"x")

    with pytest.raises(ValueError, match="by a link"):
        staged.place("out/x")
    staged.drop()

    assert below(files.directory) == []


def test_a_link_that_cannot_be_read_goes_again(tmp_path, monkeypatch):
    """Nothing is left of content that could not be had."""
    (tmp_path / "run").mkdir()
    source = tmp_path / "model.bin"
    source.write_bytes(b"x")

    def refuse(_path, _digest):
        raise OSError(5, "Input/output error")

    monkeypatch.setattr("runferry.writer.runfiles.hash_file", refuse)

    with pytest.raises(OSError, match="Input/output"):
        RunFiles(lambda: tmp_path / "run", RealFileSystem(), transfer="link").stage(source)
    assert below(tmp_path / "run") == []


def test_new_folders_are_synced_with_their_files(files, monkeypatch):
    """A file is on the device only with the names of all folders above it."""
    synced = []
    monkeypatch.setattr(files._fs, "sync_directory", synced.append)
    files.stage(b"x").place("media/images/x.png")
    assert files.device.settle(10)
    run = files.directory
    assert set(synced) == {run, run / "files", run / "files" / "media", run / "files" / "media" / "images"}

    synced.clear()
    files.stage(b"y").place("media/images/y.png")
    assert files.device.settle(10)
    assert synced == [run / "files" / "media" / "images"]


class Note(Media):
    """A medium as small as one can be."""

    def __init__(self, content, fail=None):
        self.content, self.fail = content, fail

    def stage(self, files, context):
        if self.fail == "stage":
            raise OSError(28, "No space left on device")
        self.staged, self.context = files.stage(self.content), context
        return self

    def land(self, key, step):
        if self.fail == "land":
            raise ValueError("no name")
        path = f"media/note/{key}_{step}.txt"
        self.staged.place(path)
        return Landing({"_type": "note", "path": path, "inner": {"size": self.staged.size}}, (path,), (), (77,))

    def drop(self):
        self.staged.drop()


def test_a_medium_lands_under_the_step_of_its_row(begin):
    """The file is named on the writer's thread, where the step is known; its record stands before the row."""
    run = begin()
    run.log({"loss": 1})
    run.log({"a": {"b": Note(b"one")}, "loss": 2})
    run.log({"c": Note(b"two")}, step=7)
    run.summary["best"] = Note(b"three")
    run.finish()

    state = load(run.log_path)
    assert state.rows[1]["a"]["b"] == {"_type": "note", "path": "media/note/b_1.txt", "inner": {"size": 3}}
    assert state.rows[2]["c"]["path"] == "media/note/c_7.txt"
    assert state.summary["best"]["path"] == "media/note/best_summary.txt"
    assert set(state.files) == {f"media/note/{name}.txt" for name in ("b_1", "c_7", "best_summary")}
    assert (run.log_path.parent / "files/media/note/b_1.txt").read_bytes() == b"one"
    assert not list((run.log_path.parent / "tmp").iterdir())


@pytest.mark.parametrize("fail", ["stage", "land"])
def test_a_medium_that_cannot_be_had_costs_its_own_key(begin, fail):
    """The rest of the row stands, one line names it, and nothing stays behind."""
    warnings = []
    run = begin(warn=warnings.append)
    run.log({"x": Note(b"one", fail), "loss": 2})
    assert run.finish().others_dropped == (fail == "land")

    state = load(run.log_path)
    assert (state.rows[0]["loss"], "x" in state.rows[0]) == (2, False)
    assert sum("x is left out" in line for line in warnings) == 1
    assert below(run.log_path.parent) == [run.log_path.name]


def test_content_written_in_place_is_adopted(files):
    """What was written into the scratch folder is moved under its MD5, or dropped where the same content lies."""
    first, second = files.scratch(), files.scratch()
    first.write_bytes(b"same")
    second.write_bytes(b"same")
    kept, again = files.adopt(first), files.adopt(second)

    assert kept == again
    assert (kept.md5.hex(), kept.size) == (hashlib.md5(b"same").hexdigest(), 4)
    assert below(files.directory) == [f"artifacts/{kept.md5.hex()}"]


class Syncing(RealFileSystem):
    """Syncs of files wait for `go`, and are noted with the thread that asked."""

    def __init__(self):
        self.synced, self.threads, self.go = [], set(), threading.Event()

    def sync_file(self, fd):
        path = Path(f"/proc/self/fd/{fd}").readlink()
        if path.suffix != ".wandb":
            assert self.go.wait(10)
            self.threads.add(threading.current_thread().name)
        self.synced.append(path.name)


def test_nobody_waits_for_a_sync_that_began(tmp_path):
    """It goes on by itself; whoever settles waits for it, as long as they may."""
    fs = Syncing()
    files = RunFiles(lambda: tmp_path, fs)
    kept = files.keep(b"artifact")
    files.stage(b"image").place("image")
    files.device.begin()

    assert not files.device.settle(0.01)
    fs.go.set()
    assert files.device.settle(10)
    assert sorted(fs.synced) == sorted(["image", kept.path.name])
    assert files.device.settle(0)


def test_a_disk_that_does_not_answer_holds_few_threads(tmp_path):
    """However often a sync is due; what had to wait is synced in the end."""
    fs = Syncing()
    files = RunFiles(lambda: tmp_path, fs)
    for number in range(20):
        files.stage(b"x").place(str(number))
        files.device.begin()

    assert len(files.device._at_work()) == filesync.MAX_THREADS
    fs.go.set()
    assert files.device.settle(10)
    assert sorted(fs.synced, key=int) == [str(number) for number in range(20)]
    assert not files.device._at_work()


def test_many_files_are_synced_as_they_come(tmp_path, monkeypatch):
    """Level `relaxed` asks for no sync: the end of a run would have all of it to do."""
    monkeypatch.setattr(filesync, "SYNC_EVERY", 8)
    fs = Syncing()
    fs.go.set()
    files = RunFiles(lambda: tmp_path, fs)
    for number in range(20):
        files.stage(b"x").place(str(number))

    assert len(files.device._waiting) == 21 % 8  # the new folder counts, too
    assert files.device.settle(10)
    assert len(fs.synced) == 20


def test_what_could_not_be_synced_is_named_and_never_forgotten(files, monkeypatch):
    """The device may have lost it: nothing says later that all is there."""
    warned = []
    files.device._warn = warned.append

    def refuse(_fd):
        raise OSError(5, "Input/output error")

    with monkeypatch.context() as patch:
        patch.setattr(files._fs, "sync_file", refuse)
        for name in ("one", "two"):
            files.stage(b"x").place(name)
            assert not files.device.settle(10)
    files.stage(b"x").place("three")

    assert not files.device.settle(10)
    assert len(warned) == 1
    assert "could not be synced" in warned[0]


def test_the_writers_thread_syncs_no_file(begin):
    """A large file would hold up rows: they reach the file while it is on its way. `flush` waits for both, bounded."""
    fs = Syncing()
    run = begin(fs=fs)
    run.log({"note": Note(b"large"), "n": 0})
    assert not run.flush(0.1)
    run.log({"n": 1})
    assert run._pump.barrier(sync=True, timeout_s=10)
    assert run._journal.tally.rows_written == 2
    assert not fs.threads
    fs.go.set()
    assert run.flush()
    assert fs.threads == {"runferry-file-sync"}


def test_flush_waits_for_media_that_have_no_name_yet(begin):
    """They get it on the writer's thread, which may be behind."""
    fs = Syncing()
    fs.go.set()
    run = begin(fs=fs)
    for number in range(5):
        run.log({"note": Note(b"x"), "n": number})
    assert run.flush()
    assert sorted(name for name in fs.synced if name.startswith("note_")) == [f"note_{n}.txt" for n in range(5)]


def test_level_disk_waits_for_media(begin):
    """When `log` returns, they are on the device, and so is the row; a row without media waits for no file."""
    fs = Syncing()
    fs.go.set()
    run = begin(fs=fs, durability="disk")
    run._files.stage(b"x").place("other")
    waits, settle = [], run._files.device.settle
    run._files.device.settle = lambda timeout_s: waits.append(timeout_s) or settle(timeout_s)
    run.log({"n": 1})
    assert not waits
    run.log({"note": Note(b"x")})
    assert waits == [filemethods.WAIT_S]
    assert "note_1.txt" in fs.synced


def test_a_file_that_hangs_costs_level_disk_one_wait(begin, monkeypatch):
    """Training goes on; one warning."""
    monkeypatch.setattr(filemethods, "WAIT_S", 0.05)
    fs, warned = Syncing(), []
    run = begin(fs=fs, durability="disk", warn=warned.append)
    begun = time.monotonic()
    for number in range(50):
        run.log({"note": Note(b"x"), "n": number})
    took = time.monotonic() - begun
    fs.go.set()
    assert took < 2
    assert [line for line in warned if "no call waits for them" in line] == warned


def test_the_parts_of_the_end_share_its_bound(begin, monkeypatch):
    """What saved files took is no longer there for the log, and what both took not for the device."""
    run = begin()
    run._files.stage(b"x").place("x")
    now, given = 0.0, []

    def take(seconds):
        nonlocal now
        given.append(seconds)
        now += seconds

    join = run._pump.join
    monkeypatch.setattr(run, "_monotonic", lambda: now)
    monkeypatch.setattr(run, "_stop_saving", take)
    monkeypatch.setattr(run._pump, "join", lambda seconds: (take(seconds - 1) if seconds else None) or join(10))
    settle = run._files.device.settle
    monkeypatch.setattr(run._files.device, "settle", lambda seconds: take(seconds) or settle(10))
    run.finish()

    assert given == [15, 14, 1]


def test_the_end_waits_for_files_within_its_bound(begin):
    """The whole of it: what does not come in time is named, and the report says that not all is synced."""
    fs, warned = Syncing(), []
    run = begin(fs=fs, warn=warned.append)
    run.log({"note": Note(b"large")})
    begun = time.monotonic()
    report = run._end(0, timeout_s=0.4)
    took = time.monotonic() - begun
    fs.go.set()
    assert took < 2
    assert not report.synced
    assert any("some files are not on the device" in line for line in warned)
    assert run._made_files.device.settle(10)


def test_what_is_left_is_synced_where_no_thread_starts(files, monkeypatch):
    """At the end of the interpreter, which starts none."""
    synced = []
    monkeypatch.setattr(files._fs, "sync_file", synced.append)

    def refuse(_thread):
        raise RuntimeError("can't create new thread at interpreter shutdown")

    monkeypatch.setattr(threading.Thread, "start", refuse)
    files.keep(b"artifact")

    assert files.device.settle(1)
    assert len(synced) == 1
