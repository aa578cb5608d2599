"""Media on a disk that fails: each call for them is refused once."""

from __future__ import annotations

import errno
import os
from pathlib import Path

import numpy as np
import pytest
from runferry.logformat import RunState, read_records
from runferry.writer.filesystem import RealFileSystem
from runferry.writer.media.html import Html
from runferry.writer.media.image import Image
from runferry.writer.media.table import Table

PIXELS = np.arange(48, dtype=np.uint8).reshape(4, 4, 3)
FOLDERS = {"tmp", "files", "artifacts"}


def beside_the_log(path):
    run = next((at for at, part in enumerate(path.parts) if part.startswith("run-")), len(path.parts))
    return bool(FOLDERS.intersection(path.parts[run:]))


class Failing(RealFileSystem):
    """Refuses the call of a number, of all that touch files beside the log."""

    def __init__(self, number):
        self.number, self.count, self.refused = number, 0, False

    def call(self, path):
        if not beside_the_log(path):
            return
        self.count += 1
        if self.count - 1 == self.number:
            self.refused = True
            raise OSError(errno.ENOSPC, "No space left on device")

    def make_directories(self, path):
        self.call(path)
        return super().make_directories(path)

    def create(self, path):
        self.call(path)
        return super().create(path)

    def write(self, fd, data):
        self.call(Path(f"/proc/self/fd/{fd}").readlink())
        return super().write(fd, data)

    def close(self, fd):
        path = Path(f"/proc/self/fd/{fd}").readlink()
        super().close(fd)
        self.call(path)


def paths_in(value):
    """The files that a row names."""
    if isinstance(value, dict):
        return {path for inner in value.values() for path in paths_in(inner)}
    if isinstance(value, list):
        return {path for inner in value for path in paths_in(inner)}
    return {value} if isinstance(value, str) and value.startswith("media/") else set()


@pytest.mark.skipif(not Path("/proc/self/fd").is_dir(), reason="needs the names of open files")
def test_each_refused_call_costs_one_value(begin, monkeypatch):
    """Every row stands, what rows name is recorded and there, nothing is half, and one line tells of what is missing."""
    whole, number, refused = 2 * 6, 0, True
    replace = Path.replace
    while refused:
        disk, said = Failing(number), []

        def move(path, target, disk=disk):
            disk.call(path)
            return replace(path, target)

        monkeypatch.setattr(Path, "replace", move)
        run = begin(fs=disk, warn=said.append)
        image = Image(PIXELS, masks={"m": {"mask_data": PIXELS[:, :, 0]}})
        table = Table(["a", "image"], [[1, image]])
        for step in range(2):
            run.log({"loss": step, "image": image, "page": Html("same"), "list": [image, Image(PIXELS + 1)]})
            run.log({"table": table, "loss": step, "at": step})
        run.finish()

        state = RunState().add_all(read_records(run.log_path))
        folder = run.log_path.parent
        assert [row["loss"] for row in state.rows] == [0, 0, 1, 1]
        named = {path for row in state.rows for path in paths_in(row)}
        assert named <= set(state.files)
        assert all((folder / "files" / path).is_file() for path in state.files)
        assert not any((folder / "tmp").iterdir())
        lost = whole - sum(key in row for row in state.rows for key in ("loss", "image", "page", "list", "table"))
        refused, number = disk.refused, number + 1
        assert len(said) == refused
        assert lost <= refused
    assert number > 40


def test_a_table_whose_artifact_failed_is_recorded_later(files, context, monkeypatch):
    """Its file had its name already, and no record of it was written."""
    table = Table(["a"], [[1]])
    first, second = table.stage(files, context), table.stage(files, context)
    keep = files.keep

    def refuse(_source):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(files, "keep", refuse)
    with pytest.raises(OSError, match="No space"):
        first.land("k", "0")
    first.drop()
    monkeypatch.setattr(files, "keep", keep)

    landing = second.land("k", "1")
    assert landing.paths == (landing.value["path"],)
    assert len(landing.records) == 1
