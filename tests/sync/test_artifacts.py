"""Artifacts of a run: what a server gets of them, in every shape that a log may have them."""

from __future__ import annotations

import base64
import json
import shutil
from pathlib import Path
from urllib.parse import quote

import pytest
import runferry
from runferry.logformat import messages
from runferry.sync import Verdict, artifacts, uploads
from runferry.sync.artifactupload import PartRule
from runferry.sync.transport import Answer
from support import logs
from support.artifactlogs import artifact, entry, run_with, simple
from support.syncrig import Rig, cursor, unsealed

A, B, EMPTY = b"aaaaaaaaaa", b"b" * 5000, b""


def test_an_artifact_arrives_with_all_that_its_record_says(rig: Rig) -> None:
    """Files of any depth, an empty one, a reference, metadata, aliases, tags, time to live; then it is committed."""
    reference = entry("ref.bin", digest="https://example.com/r", ref="https://example.com/r")
    record = artifact(
        "ds",
        [entry("a.txt", A), entry("dir/ü b.txt", B), entry("empty", EMPTY), reference],
        description="words",
        metadata='{"k": 1, "bad": NaN, "worse": -Infinity}',
        aliases=["latest", "best", "best"],
        tags=["t1"],
        ttl_duration_seconds=3600,
    )
    run_with(rig, record, contents=[A, B, EMPTY])

    report = rig.only(rig.sync())

    (version,) = rig.backend.committed("ds")
    assert report.verdict is Verdict.SYNCED
    assert version.contents == {
        "a.txt": {"digest": _digest(A), "size": 10, "birthArtifactID": version.id},
        "dir/ü b.txt": {"digest": _digest(B), "size": 5000, "birthArtifactID": version.id},
        "empty": {"digest": _digest(EMPTY), "size": 0, "birthArtifactID": version.id},
        "ref.bin": {"digest": "https://example.com/r", "size": 0, "ref": "https://example.com/r"},
    }
    assert set(rig.backend.blobs.values()) == {A, B, EMPTY}
    given = version.input
    assert json.loads(given.pop("metadata")) == {"k": 1, "bad": None, "worse": None}
    assert given == {
        "entityName": "me",
        "projectName": "proj",
        "runName": "a",
        "artifactTypeName": "dataset",
        "artifactCollectionName": "ds",
        "digest": record.artifact.digest,
        "digestAlgorithm": "MANIFEST_MD5",
        "description": "words",
        "aliases": [{"artifactCollectionName": "ds", "alias": alias} for alias in ("latest", "best")],
        "tags": [{"tagName": "t1"}],
        "ttlDurationSeconds": 3600,
        "historyStep": None,
        "enableDigestDeduplication": True,
        "distributedID": None,
        "clientID": record.artifact.client_id,
        "sequenceClientID": "sequence-ds",
        "storageRegion": None,
    }


def test_a_second_sync_asks_nothing_and_makes_no_second_version(rig: Rig) -> None:
    """Not when nothing has changed, not when the log has grown, not when everything is sent again."""
    log = run_with(rig, simple("ds", {"a": A}), contents=[A])
    rig.sync()
    rig.backend.forget()
    assert rig.only(rig.sync()).verdict is Verdict.SYNCED
    assert rig.backend.requests == []

    logs.make_log(log, logs.row(9), append=True)
    rig.settle(log)
    rig.sync()
    assert not [name for name in rig.backend.operations() if "Artifact" in name]

    rig.sync(include_synced=True)
    assert len(rig.backend.artifacts) == 1


def test_versions_that_the_log_gained_are_added(rig: Rig) -> None:
    """A sync at three versions and one at five leave five, each on the one before it."""
    data = [bytes([number]) * 8 for number in range(5)]
    log = run_with(rig, *(simple("ds", {"a": one}) for one in data[:3]), contents=data)
    rig.sync()
    logs.make_log(log, *(simple("ds", {"a": one}) for one in data[3:]), append=True)
    rig.settle(log)

    assert rig.only(rig.sync()).verdict is Verdict.SYNCED

    versions = rig.backend.committed("ds")
    bases = [next(iter(version.manifests.values()))["base"] for version in versions]
    assert len(versions) == 5
    assert bases == [None, *(version.id for version in versions[:-1])]


def test_overrides_reach_artifacts(rig: Rig) -> None:
    """`--project`, `--entity` and `--id` say where they go, whatever the log says."""
    record = simple("ds", {"a": A}, project="proj", entity="other", run_id="a", use_after_commit=True)
    run_with(rig, record, contents=[A])

    rig.sync(project="p2", entity="e2", run_id="id2")

    (version,) = rig.backend.committed("ds")
    assert [version.input[key] for key in ("entityName", "projectName", "runName")] == ["e2", "p2", "id2"]
    assert rig.backend.used == [("id2", version.id)]
    manifest = next(body for body in rig.backend.bodies("CreateArtifactManifest"))
    assert [manifest["variables"][key] for key in ("entityName", "projectName", "runName")] == ["e2", "p2", "id2"]


def test_inputs_of_a_run_are_named_as_such(rig: Rig) -> None:
    """One that was made for it (no output of the run), one that the server has already by its content, one by its id."""
    made = simple("in", {"a": A}, user_created=True, use_after_commit=True)
    there = messages.Record(use_artifact=messages.UseArtifactRecord(id="QXJ0aWZhY3Q6OTk=", name="old", type="model"))
    run_with(rig, made, there, contents=[A])
    run_with(rig, simple("in", {"a": A}, use_after_commit=True, client_id="another"), run_id="b")

    rig.sync(jobs=1)

    (version,) = rig.backend.committed("in")
    assert version.input["runName"] is None
    assert rig.backend.used == [("a", version.id), ("a", "QXJ0aWZhY3Q6OTk="), ("b", version.id)]
    rig.backend.used.clear()
    rig.sync(include_synced=False)
    assert rig.backend.used == []


def test_parts_of_one_artifact_and_additions_to_one(rig: Rig) -> None:
    """Several records fill one distributed artifact, the last commits it; an incremental one adds to the version before."""
    first = simple("dist", {"x": A}, distributed_id="g", finalize=False)
    last = simple("dist", {"y": B}, distributed_id="g")
    more = simple("inc", {"z": b"z"}, incremental_beta1=True, base_id="")
    run_with(rig, simple("inc", {"a": A}), first, last, more, contents=[A, B, b"z"])

    assert rig.only(rig.sync()).verdict is Verdict.SYNCED

    (dist,) = rig.backend.committed("dist")
    assert {manifest["name"] for manifest in dist.manifests.values()} == {"wandb_manifest.patch.json"}
    assert set(dist.contents) == {"x", "y"}
    before, after = rig.backend.committed("inc")
    (manifest,) = after.manifests.values()
    assert (manifest["type"], manifest["name"]) == ("INCREMENTAL", "wandb_manifest.incremental.json")
    assert manifest["base"] == before.id


def test_the_last_part_commits_nothing_of_which_an_earlier_part_is_missing(rig: Rig) -> None:
    """It waits until the other one is there, also when that lies in an earlier log of the run."""
    first = simple("dist", {"x": A}, distributed_id="g", finalize=False)
    log = run_with(rig, first, simple("dist", {"y": B}, distributed_id="g"), contents=[B])

    assert rig.only(rig.sync()).missing == ("artifact dist: 1 of 1 file missing: x (missing)",)
    assert rig.backend.committed("dist") == []

    (log.parent / "artifacts" / _hex(A)).write_bytes(A)
    assert rig.only(rig.sync()).verdict is Verdict.SYNCED
    assert set(rig.backend.committed("dist")[0].contents) == {"x", "y"}


def test_references_to_artifacts_of_clients_name_the_servers(rig: Rig) -> None:
    """One of the same log, one that only the server knows, and one that nobody knows, which fails alone."""
    own = simple("own", {"a": A})
    run_with(rig, simple("there", {"b": B}, client_id="far"), run_id="b", contents=[B])
    rig.sync()
    both = [
        entry(f"r{number}", digest="d", ref=f"wandb-client-artifact://{client}/dir/a")
        for number, client in enumerate([own.artifact.client_id, "far"])
    ]
    lost = entry("r", digest="d", ref="wandb-client-artifact://nowhere/a")
    run_with(rig, own, artifact("refs", both), artifact("lost", [lost]), contents=[A])

    report = rig.sync()

    ids = [base64.b64decode(rig.backend.committed(name)[0].id).hex() for name in ("own", "there")]
    refs = [item["ref"] for item in rig.backend.committed("refs")[0].contents.values()]
    assert refs == [f"wandb-artifact://{number}/dir/a" for number in ids]
    assert report.runs[-1].verdict is Verdict.PARTIAL or report.runs[0].verdict is Verdict.PARTIAL
    (missing,) = [line for run in report.runs for line in run.missing]
    assert missing.startswith("artifact lost: it refers to an artifact that the server does not have")


def test_what_the_server_has_already_is_not_sent_again(rig: Rig) -> None:
    """Contents that another artifact brought need no upload, and need not even be here."""
    run_with(rig, simple("one", {"a": A, "b": B}), simple("two", {"c": A, "d": b"new"}), contents=[A, B, b"new"])
    rig.sync()
    assert rig.backend.operations().count("put") == 5 + 4  # A, B, new and two lists; and the files of each run

    log = run_with(rig, simple("three", {"e": B}), run_id="b")

    rig.backend.forget()
    report = rig.sync(log)
    assert rig.only(report).verdict is Verdict.SYNCED
    assert rig.backend.committed("three")[0].contents["e"]["digest"] == _digest(B)


def test_a_missing_file_fails_its_artifact_alone_until_it_is_there(rig: Rig) -> None:
    """Rows, the end of the run and the other artifact arrive; what is missing is one line; then only that is sent."""
    files = {f"f{number:03}": b"%d" % number for number in range(50)}
    lost = [files.pop(f"f{number:03}") for number in (3, 7, 8, 9)]
    record = simple("many", {**files, **{f"f{int(data):03}": data for data in lost}})
    log = run_with(rig, record, simple("whole", {"a": A}), contents=[*files.values(), A])

    report = rig.sync()

    only = rig.only(report)
    assert (only.verdict, report.exit_code) == (Verdict.PARTIAL, 1)
    assert only.missing == (
        "artifact many: 4 of 50 files missing: f003 (missing), f007 (missing), f008 (missing) and 1 more",
    )
    assert rig.backend.runs["a"].complete
    assert len(rig.backend.runs["a"].rows) == 5
    assert len(rig.backend.committed("whole")) == 1
    rig.backend.forget()
    assert rig.only(rig.sync()).missing == only.missing
    assert rig.backend.requests == []

    for data in lost:
        (log.parent / "artifacts" / _hex(data)).write_bytes(data)
    assert rig.only(rig.sync()).verdict is Verdict.SYNCED
    assert rig.backend.operations().count("put") == 5
    assert rig.backend.operations().count("CreateArtifact") == 0
    assert len(rig.backend.committed("many")[0].contents) == 50


def test_a_file_that_was_refused_is_tried_again_though_another_one_is_missing(rig: Rig) -> None:
    """Only when nothing but files of here are missing is nothing asked of the server."""
    run_with(rig, simple("ds", {"a": A, "b": B, "lost": b"lost"}), contents=[A, B])
    rig.backend.before = lambda _, name, request: Answer(400, {}, b"no") if request.url.endswith(_url(A)) else None
    assert len(rig.only(rig.sync()).missing) == 1
    rig.backend.before = lambda *_: None

    report = rig.only(rig.sync())

    assert report.missing == ("artifact ds: 1 of 3 files missing: lost (missing)",)
    assert set(rig.backend.blobs.values()) == {A, B}


def test_a_file_that_changed_is_never_sent(rig: Rig) -> None:
    """Other bytes under the name of the digest, also of the same size, are not the artifact's."""
    log = run_with(rig, simple("ds", {"a": A, "b": B}), contents=[A, B])
    (log.parent / "artifacts" / _hex(A)).write_bytes(b"x" * len(A))
    (log.parent / "artifacts" / _hex(B)).write_bytes(b"shorter")

    report = rig.only(rig.sync())

    assert report.missing == ("artifact ds: 2 of 2 files missing: a (changed), b (changed)",)
    assert rig.backend.blobs == {}


def test_a_version_names_the_one_that_its_writer_had_before_it(rig: Rig) -> None:
    """Not the latest of the server, if the log knows better."""
    run_with(rig, simple("ds", {"a": A}), simple("ds", {"a": B}, base_id="QXJ0aWZhY3Q6OTk="), contents=[A, B])

    rig.sync()

    bases = [next(iter(version.manifests.values()))["base"] for version in rig.backend.committed("ds")]
    assert bases == [None, "QXJ0aWZhY3Q6OTk="]


def test_an_artifact_that_was_logged_twice_is_told_twice(rig: Rig) -> None:
    """With what the second time says of it; it stays one version."""
    twice = [simple("ds", {"a": A}, aliases=[alias]) for alias in ("first", "second")]
    log = run_with(rig, *twice, contents=[A])

    assert rig.only(rig.sync()).verdict is Verdict.SYNCED

    told = [body["variables"]["input"]["aliases"][0]["alias"] for body in rig.backend.bodies("CreateArtifact")]
    assert told == ["first", "second"]
    assert len(rig.backend.artifacts) == 1
    assert len(json.loads(cursor(log).read_text())["artifacts"]) == 2


def test_other_storages_get_large_contents_whole(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    """Blocks are Azure's alone."""
    monkeypatch.setattr(uploads, "AZURE_WHOLE", 1000)
    run_with(rig, simple("ds", {"large": B}), contents=[B])

    assert rig.only(rig.sync()).verdict is Verdict.SYNCED
    assert not [request for _, request in rig.backend.requests if "comp=" in request.url]


def test_large_contents_go_up_in_parts(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each part under its own MD5, the storage's names of them told in the end; a part that expired starts it anew."""
    monkeypatch.setattr(artifacts, "PARTS", PartRule(threshold=1000, size=400))
    run_with(rig, simple("ds", {"large": B, "small": A}), contents=[A, B])
    rig.backend.before = lambda _, __, request: Answer(403, {}, b"") if request.url.endswith("/p/u0/3") else None

    assert rig.only(rig.sync()).verdict is Verdict.SYNCED

    assert rig.backend.blobs[_digest(B)] == B
    assert rig.backend.operations().count("CompleteMultipartUploadArtifact") == 1
    assert len(rig.backend.uploads) == 2
    assert sorted(map(len, rig.backend.uploads["u1"].values())) == [200] + [400] * 12


def test_the_rule_of_parts() -> None:
    """Two GiB and more in parts of 100 MiB, and in larger ones where there would be more than 10,000."""
    rule, gib = PartRule(), 1024**3
    assert rule.part_size(2 * gib - 1) == 0
    assert rule.part_size(2 * gib) == 100 * 1024**2
    huge = 5 * 1024 * gib
    assert rule.part_size(huge) % 4096 == 0
    assert -(-huge // rule.part_size(huge)) <= 10_000


def test_azures_storage_gets_large_contents_in_blocks(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where its header is among the upload headers; what type and MD5 the whole has is said with the list of blocks."""
    monkeypatch.setattr(uploads, "AZURE_WHOLE", 1000)
    monkeypatch.setattr(uploads, "AZURE_BLOCK", 2000)
    rig.backend.upload_headers = ["x-ms-blob-type: BlockBlob", "Content-Type: text/plain"]
    run_with(rig, simple("ds", {"large": B, "small": A}), contents=[A, B])

    assert rig.only(rig.sync()).verdict is Verdict.SYNCED

    assert set(rig.backend.blobs.values()) == {A, B}
    (last,) = [request for _, request in rig.backend.requests if "comp=blocklist" in request.url]
    assert {"x-ms-blob-content-type", "x-ms-blob-content-md5"} <= set(last.headers)


def test_artifacts_of_a_run_in_several_logs_keep_their_own_journals(rig: Rig) -> None:
    """A log that turns up late moves lines, but makes no version and no alert again."""
    later = run_with(rig, simple("two", {"b": B}), contents=[B], start=logs.START_S + 86_400)
    rig.sync()
    first = later.parent.with_name("run-20260920_141320-a") / later.name
    ordinary = logs.simple_records("a")
    logs.make_log(first, *ordinary[:-1], simple("one", {"a": A}), ordinary[-1])
    (first.parent / "artifacts").mkdir()
    (first.parent / "artifacts" / _hex(A)).write_bytes(A)
    rig.settle(first)
    rig.backend.forget()

    report = rig.sync()

    assert {run.verdict for run in report.runs} == {Verdict.SYNCED}
    assert rig.backend.operations().count("CreateArtifact") == 1
    assert {name: len(rig.backend.committed(name)) for name in ("one", "two")} == {"one": 1, "two": 1}
    assert len(json.loads(cursor(later).read_text())["artifacts"]) == 1


def test_a_run_of_our_writer_that_was_moved_is_complete(rig: Rig, tmp_path: Path) -> None:
    """Originals gone, run elsewhere, no folder for scratch files: files, media and artifacts arrive all the same."""
    source = tmp_path / "source"
    source.mkdir()
    (source / "model.pt").write_bytes(B)
    settings = runferry.Settings(disable_code=True, disable_git=True, x_disable_meta=True, x_disable_stats=True)
    run = runferry.init(project="p", id="w", dir=source, settings=settings, reinit="create_new")
    model = runferry.Artifact("net", "model", metadata={"acc": 0.5})
    model.add_file(source / "model.pt", name="weights/model.pt")
    run.log_artifact(model, aliases=["best"])
    run.save(source / "model.pt", base_path=source, policy="now")
    run.log({"table": runferry.Table(columns=["a"], data=[[1]]), "loss": 1})
    run.alert("done", "all of it")
    run.finish()
    (log,) = source.rglob("*.wandb")
    moved = rig.folder / log.parent.name
    shutil.copytree(log.parent, moved)
    shutil.rmtree(source)
    rig.settle(moved / log.name)

    report = rig.only(rig.sync())

    assert (report.verdict, report.missing) == (Verdict.SYNCED, ())
    (version,) = rig.backend.committed("net")
    assert set(version.contents) == {"weights/model.pt"}
    assert rig.backend.blobs[_digest(B)] == B
    assert rig.backend.runs["w"].files["model.pt"] == B
    assert len(rig.backend.committed("run-w-table")) == 1
    assert [told["title"] for told in rig.backend.alerts] == ["done"]


@pytest.mark.parametrize(
    "change",
    [
        {"artifacts": {"k": {"id": "x", "digest": "d", "state": "weird", "base": "", "lost": []}}},
        {"artifacts": {"k": {"id": 5, "digest": "d", "state": "done", "base": "", "lost": []}}},
        {"artifacts": {"k": {"id": "x", "digest": "d", "state": "done", "base": "", "lost": [], "client_id": 5}}},
        {"artifacts": []},
        {"alerts": [[1, -2]]},
        {"alerts": [[1]]},
    ],
)
def test_a_cursor_of_nonsense_is_none(rig: Rig, change: dict[str, object]) -> None:
    """It is not believed, and costs a few questions: the server has the same version already."""
    log = run_with(rig, simple("ds", {"a": A}), contents=[A])
    rig.sync()
    cursor(log).write_text(json.dumps({**unsealed(log), **change, "complete": False}))

    assert rig.only(rig.sync()).verdict is Verdict.SYNCED
    assert len(rig.backend.artifacts) == 1


def test_cursors_of_before_artifacts_are_good(rig: Rig) -> None:
    """What they do not know of is sent, and nothing else."""
    log = run_with(rig, simple("ds", {"a": A}), contents=[A])
    rig.sync()
    old = unsealed(log)
    del old["artifacts"], old["alerts"]
    cursor(log).write_text(json.dumps({**old, "complete": False}))
    rig.backend.forget()

    assert rig.only(rig.sync()).verdict is Verdict.SYNCED
    assert rig.backend.operations() == ["CreateArtifact"]


def test_a_run_that_is_followed_brings_its_artifacts_as_they_come(rig: Rig) -> None:
    """They do not wait for its end, and only what is new is sent."""
    log = run_with(rig, simple("ds", {"a": A}), contents=[A, B], exit_code=None)
    assert rig.only(rig.sync()).verdict is Verdict.LIVE
    logs.make_log(log, logs.row(7), simple("ds", {"b": B}), append=True)
    rig.settle(log)
    rig.backend.forget()

    assert rig.only(rig.sync(following=True)).verdict is Verdict.LIVE

    assert len(rig.backend.committed("ds")) == 2
    assert rig.backend.operations().count("CreateArtifact") == 1
    progress = [event for event in rig.events if event.type == "files" and event.artifact]
    assert [(event.artifact, event.files, event.of) for event in progress] == [("ds", 1, 1), ("ds", 1, 1)]


def _digest(data: bytes) -> str:
    from support.artifactlogs import b64md5

    return b64md5(data)


def _url(data: bytes) -> str:
    return quote(_digest(data), safe="")


def _hex(data: bytes) -> str:
    return base64.b64decode(_digest(data)).hex()
