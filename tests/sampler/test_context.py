"""The port to the machine: files are read whole, and what cannot be read is nothing."""

from __future__ import annotations

import pytest
from runferry.sampler import context
from support.openfiles import lowest_free_descriptor

SHORT = b"device overlay mounted on / with fstype overlay\n"
LONG = b"device server:/data mounted on /data with fstype nfs4 statvers=1.1\n\topts:\t" + b"rw," * 1400 + b"\n"


def test_a_file_that_comes_in_pieces_is_read_to_its_end(machine, monkeypatch):
    """The kernel ends a piece, however short, before a line that its page does not hold: the file goes on behind it."""
    machine.write({"/proc/self/mountstats": ""})
    pieces = [SHORT, LONG, SHORT, b""]
    monkeypatch.setattr(context.os, "read", lambda _fd, _most: pieces.pop(0))
    assert machine.context().read("/proc/self/mountstats") == (SHORT + LONG + SHORT).decode()


def test_a_file_without_end_is_cut(machine, monkeypatch):
    """Nothing that is read fills the memory."""
    machine.write({"/proc/endless": ""})
    monkeypatch.setattr(context, "_READ_CAP", 1000)
    monkeypatch.setattr(context.os, "read", lambda _fd, _most: b"x" * 400)
    assert len(machine.context().read("/proc/endless")) == 1200


@pytest.mark.parametrize("path", ["/none", "/folder", "/a\0b"])
def test_what_cannot_be_read_is_none(machine, path):
    """Absent, a folder, no valid name: no error, and no descriptor is left open."""
    machine.write({"/folder/file": ""})
    ctx = machine.context()
    before = lowest_free_descriptor()
    assert ctx.read(path) is None
    assert ctx.list(path) == ([] if path != "/folder" else ["file"])
    assert ctx.link(path) is None
    assert ctx.exists(path) is (path == "/folder")
    assert lowest_free_descriptor() == before
