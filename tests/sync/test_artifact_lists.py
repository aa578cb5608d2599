"""The contents of an artifact as its record or a list in a file gives them: nothing of it is trusted."""

from __future__ import annotations

import gzip
import json
from pathlib import Path

import pytest
from runferry.logformat import messages
from runferry.sync import Verdict, manifest
from support.artifactlogs import artifact, b64md5, entry, large, run_with, simple
from support.syncrig import Rig, marker

A, B = b"aaaaaaaaaa", b"b" * 5000


def test_a_list_of_contents_in_a_file_is_read_wherever_it_lies(rig: Rig, tmp_path: Path) -> None:
    """Beside the contents under its own name, else where the record says; unsorted or not."""
    entries = [entry(f"f{number:03}", b"%d" % number) for number in range(300)]
    contents = [b"%d" % number for number in range(300)]
    beside = large("beside", entries, rig.folder / "run-20260921_141320-a" / "artifacts" / "list-of-it")
    beside.artifact.manifest.manifest_file_path = "/gone/artifacts/list-of-it"
    run_with(rig, beside, large("elsewhere", entries[:9], tmp_path / "list.gz"), contents=contents)

    report = rig.only(rig.sync())

    assert report.missing == ()
    assert len(rig.backend.committed("beside")[0].contents) == 300
    assert len(rig.backend.committed("elsewhere")[0].contents) == 9
    sizes = [len(body["variables"]["input"]["artifactFiles"]) for body in rig.backend.bodies("CreateArtifactFiles")]
    assert sizes == [32, 64, 128, 76, 9]


def test_a_list_in_the_order_of_adding_is_taken(rig: Rig, tmp_path: Path) -> None:
    """As the peer writes them; the digest goes over the sorted paths, one of which may be the beginning of another."""
    record = large("ds", [entry(path, A) for path in ("a", "a.b", "a/c", "b")], tmp_path / "list.gz")
    lines = gzip.decompress((tmp_path / "list.gz").read_bytes()).splitlines(keepends=True)
    (tmp_path / "list.gz").write_bytes(gzip.compress(b"".join([lines[3], lines[1], lines[2], lines[0]])))
    run_with(rig, record, contents=[A])

    assert rig.only(rig.sync()).verdict is Verdict.SYNCED
    assert set(rig.backend.committed("ds")[0].contents) == {"a", "a.b", "a/c", "b"}


@pytest.mark.parametrize("order", [(0, 0), (1, 0, 1)], ids=["in order", "not in order"])
def test_a_list_that_has_a_path_twice_is_refused(rig: Rig, tmp_path: Path, order: tuple[int, ...]) -> None:
    """Its digest may be that of all its lines: one content would fall on the other."""
    both = [entry("a", A), entry("b", B)]
    record = large("ds", sorted((both[index] for index in order), key=lambda item: item.path), tmp_path / "list.gz")
    lines = [json.dumps({"path": both[index].path, "digest": both[index].digest}) + "\n" for index in order]
    (tmp_path / "list.gz").write_bytes(gzip.compress("".join(lines).encode()))
    run_with(rig, record, contents=[A, B])

    assert "is there twice" in rig.only(rig.sync()).missing[0]
    assert not rig.backend.artifacts


@pytest.mark.parametrize("damage", ["cut", "long line", "no entry", "not JSON", "a number for a path", "no gzip"])
def test_a_list_that_cannot_be_read_makes_no_version(rig: Rig, tmp_path: Path, damage: str) -> None:
    """And takes no more memory than a line of it may have."""
    record = large("ds", [entry(f"f{number}", A) for number in range(50)], tmp_path / "list.gz")
    data = (tmp_path / "list.gz").read_bytes()
    line = {
        "long line": b'{"path": "' + b"x" * 70_000 + b'"}',
        "no entry": b"[]",
        "not JSON": b"{",
        "cut": b"",
        "no gzip": b"",
    }
    line["a number for a path"] = b'{"path": 5}'
    damaged = {"cut": data[:-20], "no gzip": b"plain"}.get(damage, gzip.compress(line[damage] + b"\n"))
    (tmp_path / "list.gz").write_bytes(damaged)
    run_with(rig, record, contents=[A])

    assert rig.only(rig.sync()).missing[0].startswith("artifact ds: its list of contents cannot be read: ")
    assert not rig.backend.artifacts


def test_a_list_too_long_to_be_sorted_is_refused(rig: Rig, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A list of somebody else must not fill the memory."""
    monkeypatch.setattr(manifest, "_MOST_SORTED", 100)
    record = large("ds", [entry(f"f{number}", A) for number in range(9)], tmp_path / "list.gz")
    lines = gzip.decompress((tmp_path / "list.gz").read_bytes()).splitlines(keepends=True)
    (tmp_path / "list.gz").write_bytes(gzip.compress(b"".join(reversed(lines))))
    run_with(rig, record, contents=[A])

    assert rig.only(rig.sync()).missing == ("artifact ds: its list of contents is too long to be sorted",)


def test_numbers_that_no_json_has_are_null_in_a_manifest(rig: Rig, tmp_path: Path) -> None:
    """What a log says beside an entry must not make the list unreadable for everybody; a size is a count."""
    extra = messages.ManifestItem(key="k", value_json="[NaN, -Infinity, 1]")
    listed_elsewhere = large("list", [entry("a", A)], tmp_path / "list.gz")
    line = f'{{"path": "a", "digest": "{b64md5(A)}", "size": true, "extra": {{"k": NaN}}}}\n'
    (tmp_path / "list.gz").write_bytes(gzip.compress(line.encode()))
    run_with(rig, artifact("ds", [entry("a", A, extra=[extra])]), listed_elsewhere, contents=[A])

    assert rig.only(rig.sync()).verdict is Verdict.SYNCED

    assert rig.backend.committed("ds")[0].contents["a"]["extra"] == {"k": [None, None, 1]}
    of_list = rig.backend.committed("list")[0].contents["a"]
    assert of_list == {"digest": b64md5(A), "birthArtifactID": of_list["birthArtifactID"], "extra": {"k": None}}


def test_a_list_that_is_another_ones_is_not_used(rig: Rig, tmp_path: Path) -> None:
    """What has taken the place of the list, or was never one, makes no version."""
    other = large("ds", [entry("a", A)], tmp_path / "list.gz")
    large("other", [entry("b", A)], tmp_path / "list.gz")
    (tmp_path / "secret").write_text("secret")
    none = large("none", [entry("a", A)], tmp_path / "x.gz")
    none.artifact.manifest.manifest_file_path = str(tmp_path / "secret")
    run_with(rig, other, none, contents=[A])

    report = rig.only(rig.sync())

    assert report.verdict is Verdict.PARTIAL
    assert [line.partition(":")[0] for line in report.missing] == ["artifact ds", "artifact none"]
    assert not rig.backend.artifacts


@pytest.mark.parametrize("path", ["../up", "/abs", "a/../../b", ""])
def test_paths_that_lead_out_of_an_artifact_are_refused(rig: Rig, path: str) -> None:
    """Whoever downloads it must not be written over."""
    run_with(rig, simple("ds", {path: A}), contents=[A])

    report = rig.only(rig.sync())

    assert "leads out of it" in report.reason
    assert not rig.backend.artifacts


def test_records_that_contradict_themselves_make_no_version(rig: Rig) -> None:
    """A digest that is not that of the contents, two contents of one path, a digest of a kind not known here."""
    wrong = simple("wrong", {"a": A}, digest="0" * 32)
    twice = artifact("twice", [entry("a", A), entry("a", B)])
    strange = simple("strange", {"a": A}, digest_algorithm="MANIFEST_X")
    log = run_with(rig, wrong, twice, strange, contents=[A, B])

    report = rig.only(rig.sync())

    assert len(report.missing) == 3
    assert not rig.backend.artifacts
    assert not marker(log).exists()
    assert rig.backend.runs["a"].complete


def test_the_layout_of_the_storage_is_the_records(rig: Rig) -> None:
    """If it is one of those that there are."""
    for name, layout in (("v1", '"V1"'), ("odd", '"V9"')):
        record = simple(name, {"a": A})
        record.artifact.manifest.storage_policy_config[0].value_json = layout
        run_with(rig, record, contents=[A], run_id=name)

    rig.sync(jobs=1)

    asked = {body["variables"]["input"]["storageLayout"] for body in rig.backend.bodies("CreateArtifactFiles")}
    assert asked == {"V1", "V2"}
    (manifest,) = rig.backend.committed("v1")[0].manifests.values()
    assert manifest["content"]["storagePolicyConfig"] == {"storageLayout": "V1"}
