"""The peer as judge of artifacts: the same script, run by both, gives the same names, contents and digests."""

from __future__ import annotations

import base64
import hashlib
import json
import subprocess
import sys
from pathlib import Path

import pytest
from runferry.logformat import RunState, read_records
from runferry.writer import artifact_record
from runferry.writer.artifact import Artifact
from support import peer
from support.artifactserver import serving

pytestmark = [pytest.mark.peer, pytest.mark.skipif(bool(peer.missing()), reason=peer.missing())]

SCRIPT = """
import os, sys
from datetime import timedelta
from pathlib import Path
import wandb

def write(name, data=b"content"):
    Path(name).parent.mkdir(parents=True, exist_ok=True)
    Path(name).write_bytes(data)

for name in ("a.txt", "d/Ab", "d/ab", "d/a-b", "d/a/b", "d/sub/\\u00e9 \\U0001f600.txt", "d/.hidden"):
    write(name, name.encode())
write("empty", b"")
write("large.bin", bytes(range(256)) * 20_000)
Path("d/linked.txt").symlink_to("../a.txt")
Path("d/linked").symlink_to("sub")
here = os.getcwd()

run = wandb.init(project="p", id="abc", group="g", settings=wandb.Settings(**OPTIONS))
all_ = wandb.Artifact("all", "dataset", description="d \\u00e9", metadata={
    "n": 1, "nan": float("nan"), "tuple": (1, "x"), "none": None, "deep": {"a": {"b": [True]}}})
all_.add_file("a.txt")
all_.add_file("empty", name="e//./empty")
all_.add_file("large.bin", skip_cache=True)
all_.add_file("a.txt", name="tmp/f.tar.gz", is_tmp=True)
all_.add_dir("d")
all_.add_dir("d", name="again")
with all_.new_file("new.txt") as file:
    file.write("new \\u00e9\\n")
with all_.new_file("new.bin", "wb") as file:
    file.write(b"\\0")
all_.add_reference("scheme://host/path?x#y", name="odd")
all_.add_reference("http://127.0.0.1:9/a/b.csv?x=1", checksum=False)
all_.add_reference("https://acc.blob.core.windows.net/box/z/y", checksum=False)
all_.add_file("a.txt", name="gone/1")
all_.add_file("a.txt", name="gone/2")
all_.remove("gone")
all_.ttl = timedelta(days=2)
run.log_artifact(all_, aliases=["best", "v-1"], tags=["t 1", "t2", "t2"])

run.log_artifact("a.txt")
run.log_artifact("d", name="byfolder", type="things")
run.log_model("large.bin", name="model", aliases=["prod"])
run.log_artifact(wandb.Artifact("empty", "dataset"))
same = wandb.Artifact("same", "dataset")
same.add_file("a.txt")
run.log_artifact(same)
run.log_artifact(same, aliases="latest")
for log in (run.upsert_artifact, run.finish_artifact):
    part = wandb.Artifact("parts", "dataset", incremental=log == run.finish_artifact)
    part.add_file("a.txt")
    log(part, distributed_id="D")
    log("a.txt", name="bygroup")
media = wandb.Artifact("media", "dataset")
media.add(wandb.Table(columns=["a", "b"], data=[[1, "x"], [2.5, None]]), "tab")
media.add(wandb.Html("<b>x</b>", inject=False), "page")
media.add(wandb.Audio("large.bin"), "sound")
media.add(wandb.Table(columns=["h", "s"], data=[[wandb.Html("<i>y</i>"), wandb.Audio("large.bin")]]), "full")
run.log_artifact(media)
try:
    run.link_artifact(wandb.Artifact("linked", "dataset"), "a/b/c")
except NotImplementedError:
    pass
refs = wandb.Artifact("refs", "dataset")
refs.add_reference(f"file://{here}/a.txt")
refs.add_reference(f"file://{here}/d", name="folder")
refs.add_reference(f"file://{here}/a.txt", name="unhashed", checksum=False)
run.log_artifact(refs)
run.log_code("d", name="mine", include_fn=lambda path: path.endswith("ab") or path.endswith("Ab"))
run.finish()
"""

QUIET = {"x_disable_stats": True, "x_disable_meta": True, "console": "off", "silent": True}


def artifacts_of(python, folder, first_lines=""):
    """The artifact records that the script leaves."""
    folder.mkdir(exist_ok=True)
    (folder / "script.py").write_text(first_lines + SCRIPT.replace("OPTIONS", repr(QUIET)))
    done = subprocess.run(
        [python, "script.py"],
        cwd=folder,
        env=peer.environment(folder),
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    (log,) = folder.glob("wandb/*run-*/*.wandb")
    return log, RunState().add_all(read_records(log)).artifacts


DROP_IN = "import sys, runferry; sys.modules['wandb'] = runferry\n"


@pytest.fixture(scope="module")
def both(tmp_path_factory):
    """The records of the peer and ours; the script runs in the same folder, so that its paths are the same."""
    folder = tmp_path_factory.mktemp("artifacts") / "work"
    log, theirs = artifacts_of(peer.PYTHON, folder)
    folder.rename(folder.with_name("peer"))
    return log, theirs, *artifacts_of(sys.executable, folder, DROP_IN)


def comparable(record):
    """A record without what is random, and without the places of the bytes."""
    message = peer.plain(record)
    for name in ("client_id", "sequence_client_id"):
        assert len(message.pop(name)) == 128
    for entry in message["manifest"].get("contents", ()):
        entry.pop("local_path", None)
    metadata = json.loads(message.pop("metadata", "{}"))
    return message | {"metadata": metadata, "aliases": sorted(message["aliases"])}  # the peer's order is random


def test_the_records_are_the_peers(both):
    """Names, types, aliases, tags, digests, entries with sizes and references: all that a backend gets to know."""
    _, theirs, _, ours = both
    assert [record.name for record in ours] == [record.name for record in theirs]
    for our, their in zip(ours, theirs, strict=True):
        assert comparable(our) == comparable(their), our.name
    assert len(ours) == 15


def test_the_bytes_are_in_our_run(both):
    """The peer leaves them in the home directory; ours lie in the run's directory, and are what the digest says."""
    _, _, log, ours = both
    paths = [Path(entry.local_path) for record in ours for entry in record.manifest.contents if not entry.ref]
    assert {path.parent for path in paths} == {log.parent / "artifacts"}
    for entry in (entry for record in ours for entry in record.manifest.contents if not entry.ref):
        data = Path(entry.local_path).read_bytes()
        assert len(data) == entry.size
        assert base64.b64encode(hashlib.md5(data).digest()).decode() == entry.digest
    home = log.parents[2] / "home"
    assert not list(home.rglob("*"))


def test_the_peers_reader_prints_our_records(both):
    """Field by field what our own reader finds."""
    _, _, log, _ = both
    theirs = peer.inspect(log)
    ours = [peer.printed(position, record) for position, record in enumerate(read_records(log), 1)]
    assert [entry["type"] for entry in theirs].count("artifact") == 15
    for our, their in zip(ours, theirs, strict=True):
        assert peer.same(our, their), (our, their)


def digests(pairs):
    """(artifact, path) -> base64 MD5 of the bytes."""
    return {key: base64.b64encode(hashlib.md5(data).digest()).decode() for key, data in pairs}


def test_the_peers_sync_uploads_our_artifacts(both, tmp_path):
    """All of them are created with their digests, every content is uploaded from the run's directory, all are committed."""
    _, _, log, ours = both
    with serving() as server:
        peer.sync([log], server.url, "k" * 40, tmp_path)
    final = [record for record in ours if record.finalize]
    assert sorted(each["digest"] for each in server.created) == sorted(record.digest for record in ours)
    assert len(server.committed) == len(final)
    names = {number: each["clientID"] for number, each in enumerate(server.created)}
    records = {record.client_id: record for record in ours}
    wanted = {
        (number, entry.path): entry.digest
        for number, client in names.items()
        for entry in records[client].manifest.contents
        if not entry.ref
    }
    assert digests(server.contents.items()) == wanted
    for number, manifest in server.manifests.items():
        found = {path: entry["digest"] for path, entry in manifest["contents"].items()}
        assert found == {entry.path: entry.digest for entry in records[names[number]].manifest.contents}


def test_the_peers_sync_reads_our_manifest_files(begin, tmp_path, monkeypatch):
    """The list of a large artifact lies beside the log, and the peer finds the contents by it; it is an input of the run."""
    monkeypatch.setattr(artifact_record, "MAX_INLINE_ENTRIES", 1)
    run = begin()
    artifact = Artifact("many", "dataset")
    for name in ("b", "a", "\u00e9/c"):
        with artifact.new_file(name) as file:
            file.write(name)
    artifact.add_reference("scheme://x/y", "ref")
    run.use_artifact(artifact)
    (log,) = run.finish().paths
    with serving() as server:
        peer.sync([log], server.url, "k" * 40, tmp_path)
    assert server.committed == server.used == [0]
    assert server.contents == {(0, name): name.encode() for name in ("a", "b", "\u00e9/c")}
    assert server.manifests[0]["contents"]["ref"]["ref"] == "scheme://x/y"
    assert server.created[0]["digest"] == artifact.digest
