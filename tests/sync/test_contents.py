"""Where the bytes of an artifact are looked for, and what a log cannot make a sync read or send."""

from __future__ import annotations

import hashlib
import io
import os
from pathlib import Path
from typing import Any

import pytest
from runferry.sync import Verdict, contents
from runferry.sync.contents import ContentFinder
from runferry.sync.errors import Permanent
from runferry.sync.localfiles import UnsafeFileError
from runferry.sync.manifest import Entry
from support.artifactlogs import artifact, b64md5, entry, large, run_with, simple
from support.syncrig import Rig, tree

SECRET = b"the secret of somebody"


def at(path: object, data: bytes = SECRET, name: str = "x", **fields: Any) -> Any:
    """An entry whose bytes lie at `path`, as its record has it."""
    return entry(name, data, local_path=str(path), **fields)


def reason_of(rig: Rig, *entries: Any) -> str:
    """Why an artifact of these entries does not arrive."""
    run_with(rig, artifact("ds", list(entries)))
    report = rig.only(rig.sync())
    assert report.verdict is Verdict.PARTIAL
    assert rig.backend.blobs == {}
    return report.missing[0]


def test_what_the_peer_staged_elsewhere_is_sent_and_left_as_it_is(rig: Rig, tmp_path: Path) -> None:
    """A regular file outside of the run, whose size and MD5 the record knows; no manifest says where it lay."""
    staged = tmp_path / "staging" / "tmpabc"
    staged.parent.mkdir()
    staged.write_bytes(SECRET)
    run_with(rig, artifact("ds", [at(staged)]))
    before = tree(rig.folder.parent)

    assert rig.only(rig.sync()).verdict is Verdict.SYNCED

    (version,) = rig.backend.committed("ds")
    (manifest,) = version.manifests.values()
    assert "staging" not in str(manifest["content"])
    assert rig.backend.blobs == {b64md5(SECRET): SECRET}
    assert {path: data for path, data in tree(rig.folder.parent).items() if path in before} == before
    assert staged.stat().st_nlink == 1


def test_a_run_that_was_moved_finds_its_contents_beside_the_log(rig: Rig) -> None:
    """What our writer recorded as the place is wrong then; so is what another machine has there."""
    run_with(rig, artifact("ds", [at("/gone/run-a/artifacts/" + hashlib.md5(SECRET).hexdigest())]), contents=[SECRET])

    assert rig.only(rig.sync()).verdict is Verdict.SYNCED


def test_a_copied_run_of_the_peer_finds_what_its_media_hold_too(rig: Rig) -> None:
    """The staging folder stayed where it was, but a medium below `files/` has the same bytes."""
    log = run_with(rig, artifact("ds", [at("/gone/staging/tmp1")]))
    (log.parent / "files" / "media").mkdir()
    (log.parent / "files" / "media" / "other-name.png").write_bytes(SECRET)
    (log.parent / "files" / "same-size").write_bytes(b"x" * len(SECRET))

    assert rig.only(rig.sync()).verdict is Verdict.SYNCED
    assert rig.backend.blobs == {b64md5(SECRET): SECRET}


def test_a_folder_of_files_that_is_a_link_is_not_searched(rig: Rig, tmp_path: Path) -> None:
    """Else a log that knows no path could guess what a short file of somebody holds, with all guesses at once."""
    (tmp_path / "home").mkdir()
    (tmp_path / "home" / "pin").write_bytes(b"0042")
    log = run_with(rig, artifact("ds", [entry(f"g{number}", b"%04d" % number) for number in range(100)]))
    (log.parent / "files").rmdir()
    (log.parent / "files").symlink_to(tmp_path / "home")

    assert rig.only(rig.sync()).verdict is Verdict.PARTIAL
    assert rig.backend.blobs == {}


def test_files_of_one_size_are_read_once_each(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """However many contents of that size are looked for among them."""
    folder = tmp_path / "files"
    folder.mkdir()
    for number in range(20):
        (folder / str(number)).write_bytes(b"%04d" % number)
    opened = []
    real = contents.open_regular
    monkeypatch.setattr(contents, "open_regular", lambda path: opened.append(path) or real(path))
    finder = ContentFinder([tmp_path])

    for number in range(1000, 1050):
        with pytest.raises(UnsafeFileError, match="missing"):
            finder.find(Entry("x", b64md5(b"%04d" % number), 4))

    assert sorted(path for path in opened if path.parent == folder) == sorted(folder.iterdir())
    assert finder.find(Entry("x", b64md5(b"0007"), 4)).path == folder / "7"


def test_without_the_md5_nothing_of_a_file_leaves(rig: Rig, tmp_path: Path) -> None:
    """A log that names a file, and its size, but does not know what is in it gets nothing."""
    (tmp_path / "secret").write_bytes(SECRET)

    reason = reason_of(rig, at(tmp_path / "secret", digest=b64md5(b"a guess")))

    assert reason == "artifact ds: 1 of 1 file missing: x (changed)"


def test_guessing_in_bulk_gets_nowhere(rig: Rig, tmp_path: Path) -> None:
    """Of many MD5s for one place only the last is looked at, over all artifacts of the run."""
    secret = tmp_path / "pin"
    secret.write_bytes(b"0042")
    guesses = [at(secret, b"%04d" % number, f"g{number:04}") for number in range(100)]
    more = [artifact(f"ds{number}", [at(secret, b"%04d" % number)]) for number in (42, 7)]
    run_with(rig, artifact("ds", guesses), *more)

    report = rig.only(rig.sync())

    assert rig.backend.blobs == {}
    assert "the log says that it changed" in report.reason


def test_guessing_by_lists_in_files_gets_nowhere_either(rig: Rig, tmp_path: Path) -> None:
    """The first MD5 that was tried for a place stays the only one."""
    secret = tmp_path / "pin"
    secret.write_bytes(b"0042")
    lists = [
        large(f"ds{number}", [at(secret, b"%04d" % number)], tmp_path / f"list{number}") for number in (41, 42, 43)
    ]
    run_with(rig, *lists)

    report = rig.only(rig.sync())

    assert len(report.missing) == 3
    assert rig.backend.blobs == {}


def test_the_latest_state_of_a_file_that_was_logged_again_and_again_is_found(rig: Rig, tmp_path: Path) -> None:
    """Earlier versions of it are gone, and say so; the last one arrives."""
    checkpoint = tmp_path / "last.pt"
    checkpoint.write_bytes(b"step 3")
    run_with(rig, *(artifact("ckpt", [at(checkpoint, b"step %d" % number)]) for number in range(1, 4)))

    report = rig.only(rig.sync())

    assert len(rig.backend.committed("ckpt")) == 1
    assert rig.backend.blobs == {b64md5(b"step 3"): b"step 3"}
    assert set(report.missing) == {"artifact ckpt: 1 of 1 file missing: x (the log says that it changed)"}


@pytest.mark.parametrize("kind", ["link", "pipe", "folder", "device", "proc", "up", "relative", "nul", "long"])
def test_places_that_are_no_plain_file_are_refused(rig: Rig, tmp_path: Path, kind: str) -> None:
    """Links at the end, pipes, folders, devices, `..`, relative paths, NUL: named, never read, never waited for."""
    secret = tmp_path / "secret"
    secret.write_bytes(SECRET)
    (tmp_path / "link").symlink_to(secret)
    os.mkfifo(tmp_path / "pipe")
    place, reason = {
        "link": (tmp_path / "link", "refused: not a regular file"),
        "pipe": (tmp_path / "pipe", "refused: not a regular file"),
        "folder": (tmp_path, "refused: not a regular file"),
        "device": ("/dev/zero", "refused: not a regular file"),
        "proc": ("/proc/self/environ", "changed"),
        "up": (f"{tmp_path}/x/../secret", "refused: its path goes up"),
        "relative": ("secret", "refused: no absolute path"),
        "nul": (f"{secret}\0.txt", "refused: no absolute path"),
        "long": ("/" + "x" * 5000, "cannot be read: File name too long"),
    }[kind]

    assert reason_of(rig, at(place)) == f"artifact ds: 1 of 1 file missing: x ({reason})"


def test_a_folder_of_contents_that_is_a_link_is_not_followed(rig: Rig, tmp_path: Path) -> None:
    """Nor is a content that is a link."""
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    name = hashlib.md5(SECRET).hexdigest()
    (elsewhere / name).write_bytes(SECRET)
    log = run_with(rig, simple("ds", {"x": SECRET}))
    (log.parent / "artifacts").rmdir()
    (log.parent / "artifacts").symlink_to(elsewhere)
    assert rig.only(rig.sync()).verdict is Verdict.PARTIAL
    (log.parent / "artifacts").unlink()
    (log.parent / "artifacts").mkdir()
    (log.parent / "artifacts" / name).symlink_to(elsewhere / name)

    assert rig.only(rig.sync()).verdict is Verdict.PARTIAL
    assert rig.backend.blobs == {}


@pytest.mark.parametrize("digest", ["", "not base64", b64md5(b"")[:8], "QUJD"])
def test_a_digest_that_is_no_md5_finds_nothing(rig: Rig, tmp_path: Path, digest: str) -> None:
    """It names no file of ours and vouches for none of others."""
    (tmp_path / "secret").write_bytes(SECRET)

    assert "its digest is no MD5" in reason_of(rig, at(tmp_path / "secret", digest=digest))


def test_what_changes_between_the_look_and_the_upload_is_not_sent_whole(tmp_path: Path) -> None:
    """Another file in its place, or other bytes in it: the reader stops before a server has them all."""
    path = tmp_path / "file"
    path.write_bytes(SECRET)
    found = ContentFinder([tmp_path]).find(Entry("x", b64md5(SECRET), len(SECRET), local_path=str(path)))
    times = path.stat().st_atime_ns, path.stat().st_mtime_ns
    with found.open() as reader:
        path.write_bytes(b"X" * len(SECRET))
        with pytest.raises(Permanent, match="changed"):
            reader.read(1000)
    path.unlink()
    path.write_bytes(SECRET)
    os.utime(path, ns=(times[0], times[1] + 1))

    with pytest.raises(UnsafeFileError, match="changed"):
        found.open()


class Endless(io.RawIOBase):
    """Grows as fast as it is read."""

    parts = 0

    def read(self, size: int = -1, /) -> bytes:
        self.parts += 1
        return b"x" * size


@pytest.mark.parametrize(("said", "parts"), [(5, 0), (0, 2)])
def test_a_content_is_read_no_further_than_its_size(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, said: int, parts: int
) -> None:
    """Not at all if the log knows another size, and not without end if it grows meanwhile."""
    file = Endless()
    monkeypatch.setattr(contents, "open_regular", lambda _: file)
    monkeypatch.setattr(contents, "identity", lambda _: (1, 1, contents._PART, 1))

    with pytest.raises(UnsafeFileError, match="changed"):
        ContentFinder([]).find(Entry("x", b64md5(SECRET), said, local_path=str(tmp_path / "file")))
    assert file.parts == parts


def test_a_log_that_does_not_say_the_size_is_believed_by_the_md5(tmp_path: Path) -> None:
    """0 is what a record has where nothing was said."""
    (tmp_path / "file").write_bytes(SECRET)

    assert ContentFinder([]).find(Entry("x", b64md5(SECRET), 0, local_path=str(tmp_path / "file"))).size == len(SECRET)
