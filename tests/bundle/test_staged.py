"""Contents of artifacts that a log places outside of its directory, by the rules of a sync."""

from __future__ import annotations

import base64
import hashlib

import pytest
from runferry.bundle import pack
from runferry.logformat import messages
from support.logs import header_record, make_log, run_record


def artifact(*contents, listed=""):
    """An artifact record of (path, bytes that its digest is of)."""
    entries = [
        messages.ArtifactManifestEntry(
            path=f"f{number}",
            digest=base64.b64encode(hashlib.md5(data).digest()).decode(),
            size=len(data),
            local_path=str(path),
        )
        for number, (path, data) in enumerate(contents)
    ]
    manifest = messages.ArtifactManifest(contents=entries, manifest_file_path=listed)
    return messages.Record(artifact=messages.ArtifactRecord(name="net", type="model", manifest=manifest))


def packed(tmp_path, *records):
    """What a run with these records packs: names below the run, and reasons for what it does not."""
    log = tmp_path / "wandb" / "run-20260921_141320-x" / "run-x.wandb"
    make_log(log, header_record(), run_record("x"), *records)
    done = pack(log, tmp_path / "b.tar.zst", overwrite=True)
    held = {entry.name.partition("/")[2]: entry.sha256 for entry in done.manifest.files if entry.log is None}
    return held, {out.name.rpartition("/")[2]: out.reason for out in done.manifest.left_out}


@pytest.fixture
def outside(tmp_path):
    """A folder beside the runs."""
    (tmp_path / "staging").mkdir()
    return tmp_path / "staging"


def md5(data):
    return hashlib.md5(data).hexdigest()


def test_a_content_with_the_right_digest_is_packed(tmp_path, outside):
    """Once, however many artifacts have it; by its MD5, where a sync looks for it."""
    (outside / "w").write_bytes(b"weights")
    contents = (outside / "w", b"weights")
    held, left = packed(tmp_path, artifact(contents, contents), artifact(contents))

    assert held == {f"artifacts/{md5(b'weights')}": hashlib.sha256(b"weights").hexdigest()}
    assert left == {}


def test_what_the_run_has_is_not_packed_twice(tmp_path, outside):
    """Where its own folder of contents has it, or `files/`."""
    folder = tmp_path / "wandb" / "run-20260921_141320-x"
    (folder / "artifacts").mkdir(parents=True)
    (folder / "files").mkdir()
    (folder / "artifacts" / md5(b"one")).write_bytes(b"one")
    (folder / "files" / "two").write_bytes(b"two")
    (outside / "one").write_bytes(b"one")
    held, left = packed(tmp_path, artifact((outside / "one", b"one"), (folder / "files" / "two", b"two")))

    assert held.keys() == {f"artifacts/{md5(b'one')}", "files/two"}
    assert left == {}


def test_other_bytes_are_not_packed(tmp_path, outside):
    """Who writes a log must not get files of others: only bytes whose digest it gives, and of several for a path the latest."""
    (outside / "secret").write_bytes(b"1234")
    (outside / "link").symlink_to(outside / "secret")
    guesses = [artifact((outside / "secret", b"%04d" % guess)) for guess in (1233, 1234, 1235)]
    held, left = packed(tmp_path, *guesses)
    linked, _ = packed(tmp_path, artifact((outside / "link", b"1234")))
    up, _ = packed(tmp_path, artifact((f"{outside}/../staging/secret", b"1234")))
    relative, _ = packed(tmp_path, artifact(("staging/secret", b"1234")))

    assert held == linked == up == relative == {}
    assert left.keys() == {md5(b"1233"), md5(b"1234"), md5(b"1235")}
    assert all("artifact net" in reason and "changed" in reason for reason in left.values())


def test_what_is_missing_is_named(tmp_path, outside):
    """With the artifact; a list of contents that lies elsewhere, too. Of two places the one that is there counts."""
    (outside / "there").write_bytes(b"both")
    record = artifact(
        (outside / "gone", b"gone"), (outside / "nowhere", b"both"), (outside / "there", b"both"), listed="/x/list.gz"
    )
    held, left = packed(tmp_path, record)

    assert held.keys() == {f"artifacts/{md5(b'both')}"}
    assert left[md5(b"gone")] == "a content of artifact net: missing"
    assert "list of contents" in left["list.gz"]
    assert str(tmp_path) not in "".join(left.values())
