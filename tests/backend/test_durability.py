"""What is asked of the disk before a client has its answer; a power cut cannot be had in a test."""

from __future__ import annotations

import os

from runferry.backend import Store, blobs
from runferry.backend.database import connect

FULL = 2


def test_commits_are_synced(tmp_path):
    """Every connection writes its log to the disk before a commit returns."""
    db = connect(tmp_path / "x.sqlite3")

    assert db.execute("PRAGMA synchronous").fetchone()[0] == FULL
    assert db.execute("PRAGMA journal_mode").fetchone()[0] == "wal"
    db.close()


def test_a_file_is_on_the_disk_before_it_has_its_name(tmp_path, monkeypatch):
    """Bytes first, then the name in its folder."""
    synced = []
    monkeypatch.setattr(blobs.os, "fsync", lambda descriptor: synced.append(os.fstat(descriptor).st_ino))
    store = Store(tmp_path)
    upload = store.blobs.upload()
    upload.write(b"bytes")
    inode = upload.path.stat().st_ino
    blob = upload.finish()
    assert synced == [inode]

    store.blobs.keep(upload, blob)
    assert synced[-1] == store.blobs.path(blob.digest).parent.stat().st_ino
    store.close()
