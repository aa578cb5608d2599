"""Artifacts of a run that goes to a second project, where their client ids are taken."""

from __future__ import annotations

import base64
import json
import re
from pathlib import Path
from typing import Any

import pytest
from runferry.sync import Report, SyncSettings, Verdict, sync
from runferry.sync.api import RemoteRun
from runferry.sync.artifactclient import client_id_at
from runferry.sync.credentials import ApiKey
from runferry.sync.transport import Answer
from support import logs
from support.artifactlogs import artifact, entry, run_with, simple
from support.fakebackend import URL
from support.server import serve
from support.synckill import kill_at
from support.syncrig import Rig, cursor, on

A, B = b"aaaa", b"b" * 3000
WORDS = "put the missing files back and sync again"


def sent_twice(rig: Rig, *records: Any, **override: str) -> Any:
    """The report of the second place, after the first took all; runs of two places are two at a server."""
    run_with(rig, *records, contents=[A, B])
    assert rig.only(rig.sync()).verdict is Verdict.SYNCED
    rig.backend.runs.clear()
    rig.backend.forget()
    return rig.only(rig.sync(**override))


def told(rig: Rig, field: str = "clientID") -> list[str]:
    """What the artifacts were called in the requests since the last `forget`."""
    return [body["variables"]["input"][field] for body in rig.backend.bodies("CreateArtifact")]


@pytest.mark.parametrize("override", [{"project": "p2"}, {"entity": "e2"}], ids=["project", "entity"])
def test_a_second_place_gets_its_own(rig: Rig, override: dict[str, str]) -> None:
    """It holds the same contents under other client ids, which the journal keeps; then nothing is asked any more."""
    one, two = simple("ds", {"a": A}), simple("ds", {"a": A, "b": B})
    first = run_with(rig, one, two, contents=[A, B])
    rig.sync()
    rig.backend.runs.clear()
    rig.backend.forget()

    report = rig.only(rig.sync(**override))

    assert (report.verdict, report.missing) == (Verdict.SYNCED, ())
    run = RemoteRun("", override.get("entity", "me"), override.get("project", "proj"), "a")
    ids = [record.artifact.client_id for record in (one, two)]
    derived = [client_id_at(client_id, URL, run) for client_id in ids]
    assert told(rig) == [ids[0], derived[0], ids[1], derived[1]]
    sequence = client_id_at("sequence-ds", URL, run)
    assert told(rig, "sequenceClientID") == ["sequence-ds", sequence] * 2
    *_, third, fourth = rig.backend.committed("ds")
    assert (set(third.contents), set(fourth.contents)) == ({"a"}, {"a", "b"})
    assert len(rig.backend.artifacts) == 4
    marks = json.loads(cursor(first).read_text())["artifacts"]
    assert {key: mark["client_id"] for key, mark in marks.items()} == dict(zip(ids, derived, strict=True))
    rig.backend.forget()
    assert rig.only(rig.sync(**override)).verdict is Verdict.SYNCED
    assert rig.backend.requests == []


def test_the_log_s_own_place_as_the_second(rig: Rig) -> None:
    """What went to another project first goes to the log's own too, also if its sync was killed on the way."""
    run_with(rig, simple("ds", {"a": A}), contents=[A])
    assert rig.only(rig.sync(project="p2")).verdict is Verdict.SYNCED
    rig.backend.runs.clear()
    rig.backend.before = on("CreateArtifact", OSError("cut off"))
    assert rig.only(rig.sync(retry_for=1.0)).verdict is not Verdict.SYNCED
    rig.backend.before = lambda *_: None

    assert rig.only(rig.sync()).verdict is Verdict.SYNCED

    assert [len(rig.backend.committed_in(project, "ds")) for project in ("p2", "proj")] == [1, 1]


def test_a_log_that_lost_its_run_record_goes_to_another_place(rig: Rig) -> None:
    """It may have been sent whole before, to the project that it does not name any more, where its client ids are taken."""
    log = run_with(rig, simple("ds", {"a": A}), contents=[A])
    assert rig.only(rig.sync()).verdict is Verdict.SYNCED
    content = bytearray(log.read_bytes())
    content[7 + 7 + int.from_bytes(content[11:13], "little") + 6] = 0x77  # the type byte of the second record
    log.write_bytes(content)
    rig.settle(log)

    report = rig.only(rig.sync(run_id="new"))

    assert report.verdict is Verdict.PARTIAL
    assert not any("artifact" in line for line in report.missing), report.missing
    assert [len(rig.backend.committed_in(project, "ds")) for project in ("proj", "uncategorized")] == [1, 1]


def test_back_and_forth_makes_nothing_new(rig: Rig) -> None:
    """Each place finds what it has, by the client id that it was told."""
    run_with(rig, simple("ds", {"a": A}), contents=[A])
    for project in ("proj", "p2", "p3", "p2", "proj"):
        rig.backend.runs.clear()
        assert rig.only(rig.sync(project=project)).verdict is Verdict.SYNCED
    assert [len(rig.backend.committed_in(project, "ds")) for project in ("proj", "p2", "p3")] == [1, 1, 1]
    assert len(rig.backend.artifacts) == 3


def test_references_stay_in_the_place(rig: Rig) -> None:
    """One to an artifact of the same run names that of this place, not the one of the first."""
    own = simple("own", {"a": A})
    reference = entry("r", digest="d", ref=f"wandb-client-artifact://{own.artifact.client_id}/a")

    report = sent_twice(rig, own, artifact("refs", [reference]), project="p2")

    assert report.verdict is Verdict.SYNCED
    (target,), (refs,) = (rig.backend.committed_in("p2", name) for name in ("own", "refs"))
    number = base64.b64decode(target.id).hex()
    assert refs.contents["r"]["ref"] == f"wandb-artifact://{number}/a"


def test_parts_and_inputs_are_whole_there(rig: Rig) -> None:
    """Parts of one artifact come together, and the run of the second place uses the input of that place."""
    parts = [simple("dist", {"x": A}, distributed_id="g", finalize=False), simple("dist", {"y": B}, distributed_id="g")]
    used = simple("in", {"a": A}, user_created=True, use_after_commit=True)

    report = sent_twice(rig, *parts, used, project="p2")

    assert report.verdict is Verdict.SYNCED
    (whole,), (mine,) = (rig.backend.committed_in("p2", name) for name in ("dist", "in"))
    assert set(whole.contents) == {"x", "y"}
    assert rig.backend.used[-1] == ("a", mine.id)


@pytest.mark.parametrize(
    ("status", "override", "asked"),
    [
        (400, {"project": "p2"}, 2),
        (409, {"project": "p2"}, 2),
        (403, {"project": "p2"}, 1),
        (413, {"project": "p2"}, 1),
        (400, {}, 1),
        (400, {"project": "proj"}, 1),
        (400, {"run_id": "b"}, 1),
    ],
)
def test_when_it_is_asked_again(rig: Rig, status: int, override: dict[str, str], asked: int) -> None:
    """Only in a place that is not the log's own, and only if another name may help."""
    run_with(rig, simple("ds", {"a": A}), contents=[A])
    rig.backend.before = on("CreateArtifact", Answer(status, {}, b"no"))

    report = rig.only(rig.sync(**override))

    assert (report.verdict, len(told(rig))) == (Verdict.PARTIAL, asked)
    assert report.missing[0].startswith("artifact ds: ")


def test_a_derived_id_looks_like_the_logs_and_depends_on_all_that_tells_a_place() -> None:
    """128 characters of a-z0-9, the same each time, another one for each client id, server, entity, project and run."""
    run = RemoteRun("s", "e", "p", "r")
    places = [("u", run), ("v", run), *(("u", RemoteRun("s", *other)) for other in ("xpr", "exr", "epx"))]
    ids = [client_id_at(client, *place) for client in ("c", "d") for place in places]
    assert len(set(ids)) == 10
    assert all(re.fullmatch("[a-z0-9]{128}", one) for one in ids)
    assert client_id_at("c", "u", run) == ids[0]
    assert ids[0].startswith("dj8vqztu8gh9dre1g6wb")  # else versions that are there already would come twice


@pytest.mark.parametrize("applied", [False, True], ids=["before", "after"])
@pytest.mark.parametrize("every", [7, pytest.param(1, marks=pytest.mark.slow)])
def test_killed_on_the_way_to_a_second_place(tmp_path: Path, applied: bool, every: int) -> None:
    """At any request: the next sync to there goes on, no version is there twice, and the first place keeps its own."""

    def make(name: str) -> Rig:
        (tmp_path / name).mkdir()
        rig = Rig(tmp_path / name)
        run_with(rig, simple("ds", {"a": A}), simple("ds", {"b": B}), contents=[A, B])
        rig.sync()
        rig.backend.runs.clear()
        rig.backend.forget()
        return rig

    clean = make("clean")
    assert clean.only(clean.sync(project="p2")).verdict is Verdict.SYNCED
    wanted = [version.contents for version in clean.backend.committed("ds")]
    requests = len(clean.backend.requests)
    assert requests > 12
    for number in range(1, requests + 1, every):
        rig = make(f"{number}")
        kill_at(rig, number, applied=applied, project="p2")

        report = rig.only(rig.sync(project="p2"))

        assert (report.verdict, report.missing) == (Verdict.SYNCED, ()), number
        assert len(rig.backend.artifacts) == 4, number
        assert [version.contents for version in rig.backend.committed("ds")] == wanted, number


def test_the_server_holds_both(tmp_path: Path) -> None:
    """A real server: `sync`, then `sync --project a2b` leave the same artifacts in both projects, parts of one included."""
    rig = Rig(tmp_path)
    own = simple("ds", {"a": A, "b": B})
    reference = entry("r", digest="d", ref=f"wandb-client-artifact://{own.artifact.client_id}/a")
    parts = [simple("dist", {"x": A}, distributed_id="g", finalize=False), simple("dist", {"y": B}, distributed_id="g")]
    log = run_with(rig, own, artifact("refs", [reference]), *parts, contents=[A, B])
    held = []
    with serve(tmp_path / "server") as server:

        def to(project: str) -> Report:
            settings = SyncSettings(base_url=server.url, state_dir=rig.state, project=project)
            return sync([log], settings, key=ApiKey(server.key, base_url=server.url, source="test"))

        for project in ("proj", "a2b", "proj"):
            report = rig.only(to(project))
            assert (report.verdict, report.missing) == (Verdict.SYNCED, ()), project
            held.append(server.artifacts("local", project, "a"))
    first, second, third = held
    assert first == third
    assert [one["digest"] for one in first] == [one["digest"] for one in second]
    assert not {one["id"] for one in first} & {one["id"] for one in second}
    assert len(second) == 3


def test_what_is_missing_is_told_apart_and_what_to_do_is_said_once(rig: Rig) -> None:
    """Between an artifact's files there are commas, between what is missing semicolons; and one remedy."""
    run_with(rig, simple("arty", {"f1": A, "f2": b"2", "f3": b"3"}), logs.files_record("s.txt"), contents=[A])

    reason = rig.only(rig.sync()).reason

    assert reason == (
        f"missing: artifact arty: 2 of 3 files missing: f2 (missing), f3 (missing); s.txt: missing; {WORDS}"
    )


def test_what_no_file_mends_gets_no_such_advice(rig: Rig) -> None:
    """A refusal of the server is not mended by a file."""
    run_with(rig, simple("ds", {"a": A}), contents=[A])
    rig.backend.before = on("CreateArtifact", Answer(400, {}, b"no"))
    assert WORDS not in rig.only(rig.sync()).reason
