"""Files in a run's directory: staged, named, kept; and media that land in a row."""

from __future__ import annotations

import hashlib
import os
import threading
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from runferry.logformat import load
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
    with pytest.raises(ValueError, match=r"leads out|no file name|empty"):
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


def test_a_file_over_the_limit_that_cannot_be_linked_is_refused(tmp_path, monkeypatch):
    """The error names the setting."""
    source = tmp_path / "model.bin"
    source.write_bytes(b"x" * 100)

    def refuse(*_):
        raise OSError(18, "Invalid cross-device link")

    monkeypatch.setattr(os, "link", refuse)

    with pytest.raises(OSError, match="copy_limit"):
        RunFiles(lambda: tmp_path, RealFileSystem(), copy_limit=10).stage(source)


def test_a_link_in_the_folder_leads_nowhere(files, tmp_path):
    """A symbolic link below `files/` that leads out of it is not followed."""
    files.files.mkdir()
    (files.files / "out").symlink_to(tmp_path)
    staged = files.stage(b"x")

    with pytest.raises(ValueError, match="by a link"):
        staged.place("out/x")
    staged.drop()

    assert below(files.directory) == []


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
    run.finish()

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


def test_rows_do_not_wait_for_what_is_synced_aside(files, monkeypatch):
    """Contents of artifacts and saved files: what rows name is on the device, while those are still on their way."""
    synced, go = [], threading.Event()

    def sync_file(fd):
        path = Path(f"/proc/self/fd/{fd}").readlink()
        if threading.current_thread() is not threading.main_thread():
            assert go.wait(10)
        synced.append(path.name)

    monkeypatch.setattr(files._fs, "sync_file", sync_file)
    kept = files.keep(b"artifact")
    files.stage(b"saved").place("saved", aside=True)
    files.stage(b"image").place("image")
    files.sync_aside()

    assert files.sync()
    assert synced == ["image"]
    assert not files.settle(0.01)
    go.set()
    assert files.settle(10)
    assert sorted(synced) == sorted(["image", "saved", kept.path.name])


def test_what_is_left_is_synced_where_no_thread_starts(files, monkeypatch):
    """At the end of the interpreter, which starts none."""
    synced = []
    monkeypatch.setattr(files._fs, "sync_file", synced.append)

    def refuse(_thread):
        raise RuntimeError("can't create new thread at interpreter shutdown")

    monkeypatch.setattr(threading.Thread, "start", refuse)
    files.keep(b"artifact")

    assert files.settle(1)
    assert len(synced) == 1
