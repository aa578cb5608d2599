"""Artifacts: what may be put into them, where its bytes lie, and what a run records."""

from __future__ import annotations

import base64
import errno
import gzip
import hashlib
import json
import os
import shutil
import socket
import subprocess
import threading
from datetime import timedelta
from pathlib import Path

import pytest
from runferry.logformat import RunState, read_records
from runferry.writer import api, artifact_contents, artifact_record, pump
from runferry.writer.artifact import Artifact
from runferry.writer.artifact_checks import ArtifactFinalizedError, ArtifactNotLoggedError
from runferry.writer.filesystem import RealFileSystem
from runferry.writer.media.table import Table


@pytest.fixture
def here(tmp_path, monkeypatch):
    """A working directory with some files."""
    folder = tmp_path / "work"
    (folder / "data" / "sub").mkdir(parents=True)
    (folder / "a.txt").write_text("hello")
    (folder / "empty").touch()
    (folder / "data" / "x.bin").write_bytes(bytes(100))
    (folder / "data" / "sub" / "é y.txt").write_text("u")
    monkeypatch.chdir(folder)
    return folder


@pytest.fixture
def current(here, tmp_path):
    """Begins the current run; its warnings are in `warned`."""

    def begin(**settings):
        given = {"dir": tmp_path / "logs", "silent": True, "disable_stats": True, "disable_meta": True, "project": "p"}
        run = api.init(settings=given | settings)
        warned = []
        run._warn = warned.append
        run.warned = warned
        return run

    (tmp_path / "logs").mkdir()
    return begin


def recorded(run):
    """The artifact records of a run, which is finished with this."""
    (log,) = run.finish().paths
    return RunState().add_all(read_records(log)).artifacts


def md5(data):
    """As manifests have it."""
    return base64.b64encode(hashlib.md5(data).digest()).decode()


def contents(record):
    """Path -> digest."""
    return {entry.path: entry.digest for entry in record.manifest.contents}


# -- what it takes ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["", "a/b", "a b", "é", "x" * 129, "a:v1"])
def test_names_that_no_backend_takes_are_refused(name):
    """Other characters than letters, digits, dash, underscore and dot, or too many."""
    with pytest.raises(ValueError, match="name has 1 to 128"):
        Artifact(name, "dataset")


@pytest.mark.parametrize(
    ("name", "type_"), [("x", "wandb-history"), ("x", "job"), ("run-x-table", "run_table"), ("source-x", "code")]
)
def test_types_of_the_formats_own_artifacts_are_refused(name, type_):
    """Code, tables and jobs are made by the format itself; a type of that name is free under other names."""
    with pytest.raises(ValueError, match="makes itself"):
        Artifact(name, type_)
    Artifact("mine", "code")


def test_metadata_is_json():
    """Tuples become lists, NaN null; infinities, more than 100 keys and other types are refused."""
    kept = Artifact("a", "t", metadata={"t": (1, 2), "nan": float("nan"), "s": {3}, "n": {"f": print}}).metadata
    assert kept == {"t": [1, 2], "nan": None, "s": [3], "n": {"f": "builtins.print"}}
    assert Artifact("a", "t", metadata='{"k": 1}').metadata == {"k": 1}
    with pytest.raises(ValueError, match="not JSON compliant"):
        Artifact("a", "t", metadata={"x": float("inf")})
    with pytest.raises(ValueError, match="100 keys"):
        Artifact("a", "t", metadata={str(n): n for n in range(101)})
    with pytest.raises(TypeError, match="a dict, not list"):
        Artifact("a", "t", metadata=[1])


@pytest.mark.parametrize("name", ["../x", "/etc/passwd", "a/../../b", "", ".", "C:/x", "..\\x", "a\0b"])
def test_names_that_lead_out_are_refused(here, name):
    """In every way in which content comes in; the reader's system may be another one."""
    artifact = Artifact("a", "t")
    with pytest.raises(ValueError, match="no name for a file"):
        artifact.add_reference("s3://bucket/key", name or ".", checksum=False)
    if name:
        with pytest.raises(ValueError, match="no name for a file"):
            artifact.add_file("a.txt", name)
        with pytest.raises(ValueError, match="no name for a file"):
            artifact.add_dir("data", name)
    with pytest.raises(ValueError, match="no name for a file"), artifact.new_file(name):
        pass
    assert not artifact.manifest.entries


def test_files_are_named_and_hashed(here):
    """The name is normalised; without one it is the file's own; `is_tmp` takes it from the content."""
    artifact = Artifact("a", "t")
    artifact.add_file("a.txt")
    artifact.add_file(Path("a.txt"), "deep//er/./b.txt")
    artifact.add_file("a.txt", "tmp/foo.tar.gz", is_tmp=True)
    artifact.add_file("empty")
    assert list(artifact.manifest.entries) == ["a.txt", "deep/er/b.txt", "tmp/5d41402abc4b2a76b971.tar.gz", "empty"]
    assert artifact.get_entry("a.txt").digest == md5(b"hello")
    assert (artifact.get_entry("empty").size, artifact.size) == (0, 15)
    assert artifact.digest == artifact_record.manifest_digest(artifact.manifest.entries.values())


def test_other_content_does_not_replace_what_is_there(here):
    """The same content may come again; other content only with `overwrite` or `merge`."""
    artifact = Artifact("a", "t")
    artifact.add_file("a.txt", "x.bin")
    artifact.add_file("a.txt", "x.bin")
    with pytest.raises(ValueError, match="with other content"):
        artifact.add_file("empty", "x.bin")
    with pytest.raises(ValueError, match="with other content"):
        artifact.add_dir("data")
    artifact.add_dir("data", merge=True)
    assert artifact.get_entry("x.bin").size == 100
    artifact.add_file("empty", "x.bin", overwrite=True)
    assert artifact.get_entry("x.bin").size == 0


def test_what_is_no_file_is_refused(here):
    """Missing paths, folders where a file is meant, and the other way round, and unknown policies."""
    artifact = Artifact("a", "t")
    for wrong in ("missing", "data"):
        with pytest.raises(ValueError, match="is not a file"):
            artifact.add_file(wrong)
    with pytest.raises(ValueError, match="is not a folder"):
        artifact.add_dir("a.txt")
    with pytest.raises(ValueError, match="mutable"):
        artifact.add_file("a.txt", policy="never")


def test_a_folder_with_everything_that_folders_have(here, capsys):
    """Links are followed but never round; pipes, sockets and broken links are left out and named; odd names are kept."""
    Path("data/link.txt").symlink_to("../a.txt")
    Path("data/again").symlink_to("sub")
    Path("data/sub/up").symlink_to("..")
    Path("data/broken").symlink_to("nowhere")
    os.mkfifo("data/pipe")
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind("data/socket")
        bad = os.fsdecode(b"data/bad\xff")
        Path(bad).write_text("bad")
        artifact = Artifact("a", "t")
        artifact.add_dir("data", "all")
    assert sorted(artifact.manifest.entries) == [
        "all/again/é y.txt",
        "all/bad%FF",
        "all/link.txt",
        "all/sub/é y.txt",
        "all/x.bin",
    ]
    warning = capsys.readouterr().err
    assert "left out of data" in warning
    assert "and 4 more" in warning


def test_a_folder_with_names_of_another_system(here, capsys):
    """What Windows takes for a drive or a root is left out and named; the rest of the folder is taken."""
    for name in ("c:x", "\\x", "ab:c", "with\\back"):
        Path("data", name).write_text(name)
    artifact = Artifact("a", "t")
    artifact.add_dir("data")
    assert sorted(artifact.manifest.entries) == ["ab:c", "sub/é y.txt", "with\\back", "x.bin"]
    assert "and 1 more" in capsys.readouterr().err


def test_a_deep_folder(here):
    """Deeper than Python calls itself."""
    deep = "d/" * 1100
    subprocess.run(["mkdir", "-p", deep], check=True)
    Path(deep, "f").touch()
    artifact = Artifact("a", "t")
    artifact.add_dir(".")
    subprocess.run(["rm", "-rf", "d"], check=True)  # which is too deep for pytest's cleaning, too
    assert f"{deep}f" in artifact.manifest.entries


def test_a_folder_in_which_the_run_lies(here, current, capsys):
    """Its own directory is left out, which would grow while it is copied; that of an earlier run is a folder."""
    before = current(dir=here)
    before.finish()
    run = current(dir=here)
    for _ in range(2):
        artifact = Artifact("a", "t")
        artifact.add_dir(".")
        run.log_artifact(artifact)
    names = {path.split("/")[1] for path in artifact.manifest.entries if path.startswith("wandb/")}
    assert names == {Path(before.sync_dir).name}
    assert "the run itself lies there" in capsys.readouterr().err
    own = Artifact("own", "t")
    own.add_dir(run.dir)


def test_new_files(here):
    """Text is UTF-8, bytes are bytes, `w` replaces, `x` does not, and a block that fails adds nothing."""
    artifact = Artifact("a", "t")
    with artifact.new_file("n.txt") as file:
        file.write("é\n")
    with artifact.new_file("b/n.bin", "wb") as file:
        file.write(b"\0\1")
    with pytest.raises(ValueError, match="already"), artifact.new_file("n.txt"):
        pass
    with artifact.new_file("n.txt", "w", encoding="latin-1") as file:
        file.write("é")
    with pytest.raises(KeyError), artifact.new_file("failed") as file:
        raise KeyError
    with pytest.raises(ValueError, match="modes x and w"), artifact.new_file("r", "r"):
        pass
    assert {path: entry.digest for path, entry in artifact.manifest.entries.items()} == {
        "n.txt": md5(b"\xe9"),
        "b/n.bin": md5(b"\0\1"),
    }
    assert all(entry.skip_cache for entry in artifact.manifest.entries.values())


def test_new_files_without_a_run_have_a_bound(monkeypatch):
    """They lie in memory, nowhere else."""
    monkeypatch.setattr(artifact_contents, "MAX_IN_MEMORY_BYTES", 10)
    artifact = Artifact("a", "t")
    with pytest.raises(OSError, match="call init first"), artifact.new_file("n", "wb") as file:
        file.writelines([b"12345", b"678901"])
    assert not artifact.manifest.entries


def test_entries_are_taken_out_again(here):
    """By path, by entry, and all below a folder."""
    artifact = Artifact("a", "t")
    artifact.add_dir("data", "d")
    artifact.add_file("a.txt")
    artifact.remove("d")
    assert list(artifact.manifest.entries) == ["a.txt"]
    artifact.remove(artifact.get_entry("a.txt"))
    with pytest.raises(FileNotFoundError, match="not in the artifact"):
        artifact.remove("a.txt")
    with pytest.raises(KeyError, match="not in the artifact"):
        artifact.get_entry("a.txt")


def test_media_that_are_replaced_or_taken_out(here):
    """They are what lies under their name, and nothing else is; one that was taken out may come again."""
    one, two = (Table(columns=["a"], data=[[number]]) for number in (1, 2))
    artifact = Artifact("a", "t")
    first = artifact.add(one, "t")
    assert artifact.add(one, "other") is first
    assert (artifact.get("t"), artifact["t.table.json"], artifact.get_entry("t").path) == (one, one, "t.table.json")
    assert artifact.add(two, "t") is first
    second = artifact.add(two, "t", overwrite=True)
    assert (artifact.get("t"), artifact.get_entry("t")) == (two, second)
    artifact.remove("t.table.json")
    assert artifact.get("t") is None
    assert artifact.add(two, "t") == second
    artifact.add_file("a.txt", "t.table.json", overwrite=True)
    assert artifact.get("t") is None
    artifact.add(one, "x.y")
    assert artifact.get("x") is None
    with pytest.raises(KeyError, match="not in the artifact"):
        artifact.get_entry("x")


# -- references ------------------------------------------------------------------------------------------------------


def test_references_to_files_are_hashed(here):
    """A file, every file of a folder, and with `checksum=False` the path alone."""
    artifact = Artifact("a", "t")
    artifact.add_reference(f"file://{here}/a.txt")
    Path("data/linked").symlink_to("sub")  # to a folder: not followed, as in the peer
    artifact.add_reference(f"file://{here}/data", "d")
    assert "d/linked/é y.txt" not in artifact.manifest.entries
    (entry,) = artifact.add_reference(f"file://{here}/a.txt", "unhashed", checksum=False)
    entries = artifact.manifest.entries
    assert (entries["a.txt"].digest, entries["a.txt"].ref) == (md5(b"hello"), f"file://{here}/a.txt")
    assert entries["d/sub/é y.txt"].ref == f"file://{here}/data/sub/é y.txt"
    assert (entry.digest, entry.size) == (md5((here / "a.txt").as_uri().encode()), 5)
    with pytest.raises(ValueError, match="more than 1 files"):
        artifact.add_reference(f"file://{here}/data", "e", max_objects=1)
    with pytest.raises(ValueError, match="no such file"):
        artifact.add_reference(f"file://{here}/missing")


@pytest.mark.parametrize(
    ("uri", "path", "ref"),
    [
        ("s3://bucket/a/b.bin", "a/b.bin", "s3://bucket/a/b.bin"),
        ("s3://bucket/a/b.bin?versionId=7", "a/b.bin", "s3://bucket/a/b.bin"),
        ("s3://bucket", "bucket", "s3://bucket/"),
        ("gs://bucket/a/b.bin#12", "a/b.bin", "gs://bucket/a/b.bin"),
        ("https://x.blob.core.windows.net/box/z/y", "z/y", "https://x.blob.core.windows.net/box/z/y"),
        ("http://host/a/b.csv?x=1", "b.csv?x=1", "http://host/a/b.csv?x=1"),
    ],
)
def test_other_references_are_told_apart_by_their_uri(uri, path, ref):
    """As the peer has them with `checksum=False`; no network is asked."""
    (entry,) = Artifact("a", "t").add_reference(uri, checksum=False)
    assert (entry.path, entry.ref, entry.digest, entry.size) == (path, ref, ref, None)


def test_references_that_give_no_name():
    """An unknown scheme needs a name; what is no URI is refused."""
    artifact = Artifact("a", "t")
    with pytest.raises(ValueError, match="give a name"):
        artifact.add_reference("scheme://host/path")
    with pytest.raises(ValueError, match="is not a URI"):
        artifact.add_reference("data/x.bin")
    (entry,) = artifact.add_reference("scheme://host/path", "x")
    (again,) = artifact.add_reference(entry, "y")
    assert again.ref == entry.ref == "scheme://host/path"


# -- logging ---------------------------------------------------------------------------------------------------------


def test_a_logged_artifact_is_in_the_run(here, current):
    """Its contents lie once each under their MD5, the record says where, and it says what the artifact is."""
    run = current(group="g")
    artifact = Artifact("ds", "dataset", description="d", metadata={"k": 1})
    artifact.add_dir("data")
    artifact.add_file("a.txt")
    artifact.add_file("a.txt", "again.txt")
    with artifact.new_file("new", "xb") as file:
        file.write(b"hello")
    artifact.ttl = timedelta(days=1)
    artifact.metadata["later"] = 2
    assert run.log_artifact(artifact, aliases=["best", "latest", "best"], tags="t") is artifact
    kept = run.file_store.directory / "artifacts"
    (record,) = recorded(run)
    assert (record.run_id, record.project, record.name, record.type) == (run.id, "p", "ds", "dataset")
    assert (record.digest, record.description, record.finalize) == (artifact.digest, "d", True)
    assert json.loads(record.metadata) == {"k": 1, "later": 2}
    assert (list(record.aliases), list(record.tags), record.ttl_duration_seconds) == (["best", "latest"], ["t"], 86400)
    assert contents(record) == {
        "a.txt": md5(b"hello"),
        "again.txt": md5(b"hello"),
        "new": md5(b"hello"),
        "sub/é y.txt": md5(b"u"),
        "x.bin": md5(bytes(100)),
    }
    assert {Path(entry.local_path).parent for entry in record.manifest.contents} == {kept}
    assert len(list(kept.iterdir())) == 3
    for entry in record.manifest.contents:
        assert md5(Path(entry.local_path).read_bytes()) == entry.digest
    assert not list((kept.parent / "tmp").iterdir())


def test_a_file_may_go_away_once_it_was_added(here, current):
    """While a run goes on, a file is copied when it is added: scripts remove their temporary folders."""
    run = current()
    artifact = Artifact("m", "model")
    artifact.add_file("a.txt")
    Path("a.txt").write_text("changed")
    artifact.add_file("empty")
    Path("empty").unlink()
    run.log_artifact(artifact)
    (record,) = recorded(run)
    assert contents(record) == {"a.txt": md5(b"hello"), "empty": md5(b"")}
    assert not run.warned


def test_what_was_added_before_the_run_counts_as_it_is_stored(here, current):
    """Files that changed in between are named; the digest is that of the stored bytes. Memory is stored too."""
    artifact = Artifact("m", "model")
    artifact.add_file("a.txt")
    artifact.add_file("empty")
    with artifact.new_file("new") as file:
        file.write("n")
    Path("a.txt").write_text("changed")
    run = current()
    run.log_artifact(artifact)
    (record,) = recorded(run)
    assert contents(record) == {"a.txt": md5(b"changed"), "empty": md5(b""), "new": md5(b"n")}
    assert record.digest == artifact.digest
    for entry in record.manifest.contents:
        assert Path(entry.local_path).parent.name == "artifacts"
        assert md5(Path(entry.local_path).read_bytes()) == entry.digest
    assert [line for line in run.warned if "a.txt changed after" in line]
    assert not [content for content in artifact._contents.values() if content.data]  # memory has no second copy


@pytest.mark.parametrize("log", [lambda run: run.log_artifact("data"), lambda run: run.log_code("data")])
def test_what_a_run_makes_itself_is_copied_for_that_run_only(current, here, log):
    """Also where another run is the current one."""
    (here / "data" / "train.py").write_text("pass")
    first, second = current(run_id="one"), current(run_id="two", reinit="create_new")
    log(first)

    assert len(list((Path(first.sync_dir) / "artifacts").iterdir())) > 0
    assert not (Path(second.sync_dir) / "artifacts").exists()
    second.finish()
    first.finish()


def test_an_artifact_of_two_runs_is_in_both(here, current):
    """Each run's directory has all the contents; the second one is the current run no longer."""
    first = current(reinit="create_new")
    artifact = Artifact("m", "model")
    artifact.add_file("a.txt")
    first.log_artifact(artifact)
    second = api.init(
        settings={"dir": here, "silent": True, "disable_stats": True, "disable_meta": True}, reinit="create_new"
    )
    second.log_artifact(artifact, aliases="second")
    (one,) = recorded(first)
    (two,) = recorded(second)
    assert one.client_id == two.client_id
    assert (list(one.aliases), list(two.aliases)) == (["latest"], ["second", "latest"])
    places = [Path(record.manifest.contents[0].local_path) for record in (one, two)]
    assert [place.read_text() for place in places] == ["hello", "hello"]
    assert places[0] != places[1]


def test_paths_become_artifacts(here, current):
    """A file, a folder, a URI; the name is made of the run's id unless given, and a model is of that type."""
    run = current(run_id="abc")
    run.log_artifact("a.txt")
    run.log_artifact(Path("data"), name="n", type="dataset")
    run.log_artifact("s3://bucket/key", name="r")
    run.log_model("data")
    with pytest.raises(ValueError, match="not a file, a folder or a URI"):
        run.log_artifact("missing")
    with pytest.raises(TypeError, match="an Artifact or a path"):
        run.log_artifact(3)
    found = [(record.name, record.type, sorted(contents(record))) for record in recorded(run)]
    assert found == [
        ("run-abc-a.txt", "unspecified", ["a.txt"]),
        ("n", "dataset", ["sub/é y.txt", "x.bin"]),
        ("r", "unspecified", ["key"]),
        ("run-abc-data", "model", ["sub/é y.txt", "x.bin"]),
    ]


def test_a_logged_artifact_stays_as_it_is(here, current):
    """Whatever would change its contents or its names is refused, and the same object may be logged again."""
    run = current()
    artifact = Artifact("m", "model")
    artifact.aliases, artifact.tags = ["before"], ["t"]
    run.log_artifact(artifact)
    for change in (
        lambda: artifact.add_file("a.txt"),
        lambda: artifact.add_dir("data"),
        lambda: artifact.add_reference("s3://x/y"),
        lambda: artifact.new_file("x").__enter__(),
        lambda: artifact.remove("x"),
        lambda: setattr(artifact, "aliases", []),
    ):
        with pytest.raises(ArtifactFinalizedError, match="make another one"):
            change()
    assert artifact.logged
    assert artifact.wait() is artifact
    assert (artifact.aliases, artifact.tags, artifact.state) == (["before", "latest"], ["t"], "PENDING")
    run.log_artifact(artifact)
    assert [list(record.aliases) for record in recorded(run)] == [["before", "latest"], ["latest"]]


def test_what_only_a_backend_knows(here, current):
    """Named as such, each with an error of the peer's kind."""
    run = current()
    artifact = Artifact("m", "model")
    for ask in ("version", "qualified_name", "download", "url"):
        with pytest.raises(ArtifactNotLoggedError, match=f"m.{ask} needs a backend"):
            getattr(artifact, ask)
    assert not hasattr(artifact, "id")
    with pytest.raises(AttributeError, match="no attribute 'nonsense'"):
        artifact.nonsense  # noqa: B018
    with pytest.raises(TypeError, match="only a backend knows"):
        run.use_artifact("m:latest")
    with pytest.raises(RuntimeError, match="offline"):
        run.use_model("m:latest")
    with pytest.raises(Exception, match="no backend to get the file from"):
        run.restore("x")
    with pytest.raises(NotImplementedError, match="is logged, and not linked to 'a/b'"):
        run.link_artifact(artifact, "a/b")
    with pytest.raises(NotImplementedError, match="is logged, and not linked"):
        run.link_model("a.txt", "registered", name="lm")
    used = run.use_artifact(Artifact("in", "dataset"), aliases="one")
    assert used.logged
    linked, model, used = recorded(run)
    assert (linked.name, model.name, model.type) == ("m", "lm", "model")
    assert (used.name, used.user_created, used.use_after_commit) == ("in", True, True)


def test_an_artifact_of_several_processes(here, current):
    """Parts carry the shared id and are not final until `finish_artifact`; without an id or a group it is refused."""
    run = current()
    for log in (run.upsert_artifact, run.finish_artifact):
        with pytest.raises(TypeError, match="distributed_id"):
            log("a.txt", name="n")
    run.upsert_artifact("a.txt", name="n", distributed_id="D")
    last = run.finish_artifact("a.txt", name="n", distributed_id="D")
    assert last.distributed_id == "D"
    assert [(record.distributed_id, record.finalize) for record in recorded(run)] == [("D", False), ("D", True)]


@pytest.mark.parametrize("wrong", [{"aliases": ["a/b"]}, {"aliases": "a:b"}, {"tags": ["a/b"]}, {"tags": [" a"]}])
def test_labels_that_no_backend_takes(here, current, wrong):
    """Refused before anything is recorded."""
    run = current()
    with pytest.raises(ValueError, match=r"is text without|has letters"):
        run.log_artifact(Artifact("m", "model"), **wrong)
    assert not recorded(run)


def test_a_large_manifest_lies_beside_the_log(here, current, monkeypatch):
    """Beyond 100,000 entries the record names a file with one line for each."""
    monkeypatch.setattr(artifact_record, "MAX_INLINE_ENTRIES", 1)
    run = current()
    artifact = Artifact("m", "model")
    artifact.add_dir("data")
    run.log_artifact(artifact)
    (record,) = recorded(run)
    assert not record.manifest.contents
    lines = gzip.decompress(Path(record.manifest.manifest_file_path).read_bytes()).splitlines()
    assert [json.loads(line)["path"] for line in lines] == ["sub/é y.txt", "x.bin"]
    assert record.digest == artifact.digest


def lies(run_directory, entry):
    """Where an entry's bytes are, by the rule of docs/files.md."""
    kept = run_directory / "artifacts" / base64.b64decode(entry.digest).hex()
    return kept if kept.exists() else Path(entry.local_path)


@pytest.mark.parametrize("inline", [0, 100_000])
def test_a_runs_directory_travels_alone(here, current, tmp_path, monkeypatch, inline):
    """Packed, moved to another path, without the originals: every content of every artifact and saved file is found."""
    monkeypatch.setattr(artifact_record, "MAX_INLINE_ENTRIES", inline)
    run = current()
    artifact = Artifact("m", "model")
    artifact.add_dir("data")
    artifact.add_file("a.txt")
    with artifact.new_file("new") as file:
        file.write("n")
    artifact.add(Table(columns=["a"], data=[[1]]), "t")
    run.log_artifact(artifact)
    run.save("data/*.bin")
    (record,) = recorded(run)
    (log,) = run.finish().paths
    there = tmp_path / "elsewhere"
    subprocess.run(["tar", "-cf", tmp_path / "run.tar", "-C", log.parent, "."], check=True)
    shutil.rmtree(log.parents[1])
    shutil.rmtree(here)
    there.mkdir()
    subprocess.run(["tar", "-xf", tmp_path / "run.tar", "-C", there], check=True)

    state = RunState().add_all(read_records(there / log.name))
    for path in state.files:
        assert (there / "files" / path).stat().st_size == 100
    entries = list(record.manifest.contents)
    if not inline:
        packed = there / "artifacts" / Path(record.manifest.manifest_file_path).name
        lines = gzip.decompress(packed.read_bytes()).splitlines()
        entries = [artifact_record.ManifestEntry(**json.loads(line)) for line in lines]
    assert sorted(entry.path for entry in entries) == ["a.txt", "new", "sub/é y.txt", "t.table.json", "x.bin"]
    for entry in entries:
        assert md5(lies(there, entry).read_bytes()) == entry.digest


def test_without_a_run_save_begins_one(here, tmp_path):
    """A run of its own, which ends at once; with a current run it is that one."""
    artifact = Artifact("m", "model")
    artifact.add_file("a.txt")
    artifact.save(project="q", settings={"dir": tmp_path, "silent": True, "disable_stats": True, "disable_meta": True})
    assert artifact.logged
    (log,) = tmp_path.glob("wandb/run-*/*.wandb")
    state = RunState().add_all(read_records(log))
    assert (state.info.project, state.info.job_type, len(state.artifacts)) == ("q", "auto", 1)


def test_a_disabled_run_keeps_nothing(here, tmp_path, monkeypatch):
    """Calls go through and leave no trace, on the disk least of all."""
    run = api.init(mode="disabled", dir=tmp_path)
    artifact = Artifact("m", "model")
    artifact.add_file("a.txt")
    with artifact.new_file("n") as file:
        file.write("n")
    assert run.log_artifact(artifact) is artifact
    assert run.log_artifact("data").name.endswith("data")
    assert not artifact.logged
    assert not (tmp_path / "wandb").exists()


def test_a_finished_run_says_so(here, current):
    """Once, and nothing is raised."""
    run = current()
    run.finish()
    run.log_artifact("a.txt", name="x")
    run.log_artifact("a.txt", name="x")
    assert [line for line in run.warned if "is finished" in line] == run.warned[-1:]


def test_what_was_changed_meanwhile_is_checked_again(here, current):
    """Metadata is the caller's own dict until the artifact is logged: what no backend takes is refused then."""
    run = current()
    artifact = Artifact("m", "model", metadata={"k": 1})
    artifact.metadata["bad"] = float("inf")
    with pytest.raises(ValueError, match="not JSON compliant"):
        run.log_artifact(artifact)
    artifact.metadata["bad"] = float("nan")
    with pytest.raises(ValueError, match="a second at least"):
        artifact.ttl = timedelta(milliseconds=999)
    run.log_artifact(artifact)
    (record,) = recorded(run)
    assert json.loads(record.metadata) == {"k": 1, "bad": None}


# -- a disk that does not take it ------------------------------------------------------------------------------------


def full(*_args):
    """A write on a full disk."""
    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


def test_a_full_disk_costs_the_copy_only(here, current, monkeypatch):
    """No error reaches the training: one warning, the record says where the files lie, nothing half is left."""
    run = current()
    run.log({"a": 1})
    run.flush()
    with monkeypatch.context() as patch:
        patch.setattr(run._fs, "write", full)
        artifact = Artifact("m", "model")
        artifact.add_dir("data")
        artifact.add_file("a.txt")
        Path("a.txt").write_text("changed")
        entries = artifact.contents_in(run.file_store, run._warn)
        assert [line for line in run.warned if "not copied" in line] == run.warned[-1:]
        assert os.strerror(errno.ENOSPC) in run.warned[-1]
        assert {entry.local_path for entry in entries} == {
            str(here / name) for name in ("a.txt", "data/x.bin", "data/sub/é y.txt")
        }
        own = {".wandb", ".alive"}
        assert not [path for path in run.file_store.directory.rglob("*") if path.is_file() and path.suffix not in own]
    run.log_artifact(artifact)
    (record,) = recorded(run)
    assert contents(record)["a.txt"] == md5(b"changed")
    assert {Path(entry.local_path).parent.name for entry in record.manifest.contents} == {"artifacts"}


def test_why_there_is_no_copy_of_what_is_gone(here, current, monkeypatch):
    """A file that met a full disk when it was added, and went away before it was logged: both are named."""
    run = current()
    artifact = Artifact("m", "model")
    with monkeypatch.context() as patch:
        patch.setattr(run._fs, "write", full)
        artifact.add_file("a.txt")
    Path("a.txt").unlink()
    run.log_artifact(artifact)
    (line,) = [line for line in run.warned if "not copied" in line]
    assert os.strerror(errno.ENOENT) in line
    assert os.strerror(errno.ENOSPC) in line


class FailingOnce(RealFileSystem):
    """Refuses one call of the main thread: the one of that number, counted once it is armed."""

    def __init__(self, code):
        self.code, self.left = code, None

    def __getattribute__(self, name):
        value = super().__getattribute__(name)
        if name in {"make_directories", "create", "write", "close"} and threading.current_thread() is MAIN:
            left = self.left
            if left is not None:
                self.left = left - 1
                if left == 0:
                    if name == "close":
                        return lambda fd: (value(fd), refused(self.code))
                    return lambda *_args: refused(self.code)
        return value


MAIN = threading.main_thread()


def refused(code):
    """An error of the disk."""
    raise OSError(code, os.strerror(code))


@pytest.mark.parametrize("code", [errno.ENOSPC, errno.EIO, errno.ESTALE])
def test_any_one_call_may_fail(here, begin, monkeypatch, code):
    """Whichever call of the disk fails: no error, one warning at most, and nothing half under any name."""
    for number in range(60):
        warned = []
        fs = FailingOnce(code)
        run = begin(fs=fs, warn=warned.append)
        monkeypatch.setattr(api, "_current", run)
        run.flush()
        fs.left = number
        artifact = Artifact("m", "model")
        artifact.add_dir("data")
        artifact.add_file("a.txt")
        run.log_artifact(artifact)
        run.save("a.txt")
        run.save("data/*.bin", policy="now")
        reached, fs.left = fs.left < 0, None
        folder = Path(run.dir).parent
        (record,) = recorded(run)
        for entry in record.manifest.contents:
            assert md5(Path(entry.local_path).read_bytes()) == entry.digest
        for path in (folder / "artifacts").glob("*"):
            assert hashlib.md5(path.read_bytes()).hexdigest() == path.name
        for path in (path for path in (folder / "files").rglob("*") if path.is_file()):
            assert path.read_bytes() == (here / path.relative_to(folder / "files")).read_bytes()
        assert not list((folder / "tmp").glob("*"))
        assert len(warned) <= 1, (number, warned)
        if not reached:
            break
    assert number > 15


def test_a_run_without_a_directory(here, tmp_path, monkeypatch):
    """The log cannot be made: artifacts are recorded for later, with the files where they lie, and one warning."""
    monkeypatch.setattr(pump, "FINISH_RETRY_S", 0.1)
    warned = []
    (tmp_path / "file").touch()
    run = api.init(settings={"dir": tmp_path / "file", "silent": True, "disable_stats": True, "disable_meta": True})
    run._warn = warned.append
    artifact = Artifact("m", "model")
    artifact.add_file("a.txt")
    run.log_artifact(artifact)
    assert artifact.get_entry("a.txt").local_path == str(here / "a.txt")
    assert len([line for line in warned if "not copied into the run's directory" in line]) == 1


def test_files_that_cannot_be_read(here, current, monkeypatch):
    """One that was named raises; those of a folder are left out and named."""
    real = Path.open

    def denied(path, *args, **kwargs):
        if path.name == "x.bin":
            raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), str(path))
        return real(path, *args, **kwargs)

    monkeypatch.setattr(Path, "open", denied)
    artifact = Artifact("m", "model")
    with pytest.raises(PermissionError):
        artifact.add_file("data/x.bin")
    artifact.add_dir("data")
    assert list(artifact.manifest.entries) == ["sub/é y.txt"]


def test_many_small_files(here, current):
    """A thousand: they are all there, and the same content of many lies once."""
    many = here / "many"
    many.mkdir()
    for number in range(1000):
        (many / f"{number}").write_text(str(number % 10))
    run = current()
    artifact = Artifact("m", "dataset")
    artifact.add_dir("many")
    run.log_artifact(artifact)
    kept = list((run.file_store.directory / "artifacts").iterdir())
    (record,) = recorded(run)
    assert len(record.manifest.contents) == 1000
    assert len(kept) == 10
