"""What a server may answer about an artifact: refusals, nonsense, places that have expired."""

from __future__ import annotations

from typing import Any
from urllib.parse import quote

import pytest
from runferry.sync import Verdict, artifacts
from runferry.sync.artifactupload import PartRule
from runferry.sync.errors import Permanent
from runferry.sync.report import counted
from runferry.sync.transport import Answer
from support.artifactlogs import b64md5, run_with, simple
from support.syncrig import Rig, on

A, B = b"aaaaaaaaaa", b"b" * 5000


@pytest.mark.parametrize(
    "operation",
    ["CreateArtifact", "CreateArtifactManifest", "CreateArtifactFiles", "CommitArtifact", "UseArtifact"],
)
@pytest.mark.parametrize("status", [400, 403, 404, 409, 500])
def test_an_artifact_that_the_server_refuses_fails_alone(rig: Rig, operation: str, status: int) -> None:
    """Rows, files and the end of the run arrive, the verdict names it, and a later sync ends it."""
    run_with(rig, simple("ds", {"a": A}, use_after_commit=True), contents=[A])
    rig.backend.before = on(operation, Answer(status, {}, b"no"))

    report = rig.sync(retry_for=5.0)

    only = rig.only(report)
    assert only.verdict is Verdict.PARTIAL
    assert only.missing[0].startswith("artifact ds:")
    assert report.exit_code == (75 if status == 500 else 1)
    assert rig.backend.runs["a"].complete
    assert len(rig.backend.runs["a"].files) == 4
    rig.backend.before = lambda *_: None
    assert rig.only(rig.sync()).verdict is Verdict.SYNCED
    assert len(rig.backend.artifacts) == 1
    assert rig.backend.used == [("a", rig.backend.committed("ds")[0].id)]


ODD_PLACES = [
    None,
    {},
    {"uploadUrl": ""},
    {"uploadUrl": 5},
    {"uploadUrl": False},
    {"uploadUrl": "file:///etc/passwd"},
    {"uploadUrl": "ftp://storage.test/x"},
    {"uploadUrl": "http://["},
    {"uploadUrl": None, "uploadMultipartUrls": {"uploadUrlParts": [{"partNumber": 1, "uploadUrl": None}]}},
    {"uploadUrl": None, "uploadMultipartUrls": {"uploadUrlParts": [None]}},
]


@pytest.mark.parametrize("node", ODD_PLACES, ids=str)
def test_only_a_null_url_says_that_the_server_has_a_content(rig: Rig, node: object) -> None:
    """Whatever else an answer has in place of a URL, the content is not there: nothing is committed."""
    run_with(rig, simple("ds", {"a": A, "b": B}), contents=[A, B])
    ask = rig.backend._on_createartifactfiles

    def answer(variables: dict[str, Any]) -> Any:
        data = ask(variables)
        data["createArtifactFiles"]["files"]["edges"][0] = {"node": node}
        return data

    rig.backend._on_createartifactfiles = answer

    assert rig.only(rig.sync()).verdict is Verdict.PARTIAL
    assert "CommitArtifact" not in rig.backend.operations()


@pytest.mark.parametrize("count", [0, 1, 3])
def test_places_for_more_or_fewer_contents_are_none(rig: Rig, count: int) -> None:
    """Nobody could say which is whose."""
    run_with(rig, simple("ds", {"a": A, "b": B}), contents=[A, B])
    ask = rig.backend._on_createartifactfiles

    def answer(variables: dict[str, Any]) -> Any:
        files = ask(variables)["createArtifactFiles"]["files"]
        return {"createArtifactFiles": {"files": {"edges": (2 * files["edges"])[:count]}}}

    rig.backend._on_createartifactfiles = answer

    report = rig.only(rig.sync())

    assert report.missing == (f"artifact ds: CreateArtifactFiles: {counted(count, 'place')} for 2 files",)
    assert rig.backend.blobs == {}


@pytest.mark.parametrize("file", [None, {}, {"uploadUrl": ""}, {"uploadUrl": 5}], ids=str)
def test_a_list_without_a_place_is_not_committed(rig: Rig, file: object) -> None:
    """An answer that does not say where the list goes is none."""
    run_with(rig, simple("ds", {"a": A}), contents=[A])
    ask = rig.backend._on_createartifactmanifest

    def answer(variables: dict[str, Any]) -> Any:
        data = ask(variables)
        data["createArtifactManifest"]["artifactManifest"]["file"] = file
        return data

    rig.backend._on_createartifactmanifest = answer

    assert "does not say where the list goes" in rig.only(rig.sync()).missing[0]
    assert "CommitArtifact" not in rig.backend.operations()


@pytest.mark.parametrize("operation", ["CommitArtifact", "UseArtifact", "CompleteMultipartUploadArtifact"])
def test_an_answer_without_data_is_no_acknowledgement(
    rig: Rig, operation: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Status 200 and null: it is named, and the next sync ends it with the same version."""
    monkeypatch.setattr(artifacts, "PARTS", PartRule(threshold=1000, size=2000))
    run_with(rig, simple("ds", {"b": B}, use_after_commit=True), contents=[B])
    rig.backend.before = on(operation, Answer(200, {}, b'{"data": null}'))

    assert operation in rig.only(rig.sync()).missing[0]

    rig.backend.before = lambda *_: None
    assert rig.only(rig.sync()).verdict is Verdict.SYNCED
    assert len(rig.backend.artifacts) == 1


def test_a_part_that_the_storage_gives_no_name_is_not_told_as_there(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without all the names no upload in parts can be ended."""
    monkeypatch.setattr(artifacts, "PARTS", PartRule(threshold=1000, size=2000))
    run_with(rig, simple("ds", {"b": B}), contents=[B])
    put = rig.backend.put_artifact
    rig.backend.put_artifact = lambda *given: {key: value for key, value in put(*given).items() if key != "etag"}

    assert "(ETag)" in rig.only(rig.sync()).missing[0]
    assert "CompleteMultipartUploadArtifact" not in rig.backend.operations()


def test_a_key_that_is_refused_ends_the_sync(rig: Rig) -> None:
    """401 is the last word on everything, also when it comes in the middle."""
    run_with(rig, simple("ds", {"a": A}), contents=[A])
    rig.backend.before = on("CreateArtifact", Answer(401, {}, b"no"))

    assert rig.sync().exit_code == 2


def test_a_storage_that_takes_nothing_is_not_asked_for_every_file(rig: Rig) -> None:
    """When most of a batch is refused, the artifact waits for the next sync."""
    data = [b"%d" % number for number in range(500)]
    run_with(rig, simple("ds", {f"{one.decode():>04}": one for one in data}), contents=data)
    rig.backend.before = on("put", Answer(400, {}, b"no"))

    report = rig.only(rig.sync())

    first = "artifact ds: 32 of 500 files missing: 0000 (HTTP 400: no), "
    assert report.missing[0].startswith(first)
    rig.backend.before = lambda *_: None
    assert rig.only(rig.sync()).verdict is Verdict.SYNCED


def test_a_storage_that_is_down_is_not_asked_for_more(rig: Rig) -> None:
    """One content that came too late is enough: the next sync asks for the rest."""
    data = [b"%d" % number for number in range(100)]
    run_with(rig, simple("ds", {f"{one.decode():>04}": one for one in data}), contents=data)
    rig.backend.before = lambda _, __, request: Answer(503, {}, b"") if request.url.endswith(quoted(b"5")) else None

    assert rig.sync(retry_for=1.0).exit_code == 75
    asked = [len(body["variables"]["input"]["artifactFiles"]) for body in rig.backend.bodies("CreateArtifactFiles")]
    assert asked == [32]


@pytest.mark.parametrize("answer", [Answer(403, {}, b""), Answer(400, {}, b"<Code>ExpiredToken</Code>")])
def test_places_that_have_expired_are_asked_for_once_more(rig: Rig, answer: Answer) -> None:
    """Each of them once: the content's and the list's."""
    run_with(rig, simple("ds", {"a": A}), contents=[A])
    refused = set()

    def expire(_: int, operation: str, request: object) -> Answer | None:
        if operation == "put" and "/s/" not in request.url and request.url not in refused:
            refused.add(request.url)
            return answer
        return None

    rig.backend.before = expire

    assert rig.only(rig.sync()).verdict is Verdict.SYNCED
    assert len(refused) == 2


def test_a_key_that_may_not_go_on_makes_no_second_version(rig: Rig) -> None:
    """403 about one that was begun is no sign that the server forgot it."""
    run_with(rig, simple("ds", {"a": A}), contents=[A])
    rig.backend.before = on("CreateArtifactFiles", Answer(400, {}, b""))
    rig.sync()
    rig.backend.before = on("CreateArtifactManifest", Answer(403, {}, b""))

    assert rig.only(rig.sync()).verdict is Verdict.PARTIAL
    assert rig.backend.operations().count("CreateArtifact") == 1


@pytest.mark.parametrize(("lost", "exit_code"), [(False, 75), (True, 1)])
def test_time_mends_an_artifact_only_if_nothing_else_is_wrong_with_it(rig: Rig, lost: bool, exit_code: int) -> None:
    """A storage that is down, and beside it a content that is gone."""
    run_with(rig, simple("ds", {"a": A, "b": B}), contents=[B] if lost else [A, B])
    rig.backend.before = lambda _, __, request: Answer(503, {}, b"") if request.url.endswith(quoted(B)) else None

    report = rig.sync(retry_for=1.0)

    assert len(rig.only(report).missing) == 1
    assert report.exit_code == exit_code


def test_a_state_that_nobody_knows_is_not_taken_for_one(rig: Rig) -> None:
    """Neither for committed nor for a new one."""
    run_with(rig, simple("ds", {"a": A}), contents=[A])
    ask = rig.backend._on_createartifact

    def answer(variables: dict[str, Any]) -> Any:
        data = ask(variables)
        data["createArtifact"]["artifact"]["state"] = "GARBAGE"
        return data

    rig.backend._on_createartifact = answer

    assert rig.only(rig.sync()).missing == ("artifact ds: CreateArtifact: the artifact's state is 'GARBAGE'",)
    assert rig.backend.operations().count("CreateArtifactManifest") == 0


def test_a_list_names_the_artifact_that_has_the_bytes(rig: Rig) -> None:
    """As the server says of each content, which may be another artifact."""
    run_with(rig, simple("ds", {"a": A, "b": B}), contents=[A, B])
    ask = rig.backend._on_createartifactfiles

    def answer(variables: dict[str, Any]) -> Any:
        data = ask(variables)
        data["createArtifactFiles"]["files"]["edges"][0]["node"]["artifact"]["id"] = "of another"
        return data

    rig.backend._on_createartifactfiles = answer

    rig.sync()

    (version,) = rig.backend.committed("ds")
    births = {path: item["birthArtifactID"] for path, item in version.contents.items()}
    assert births == {"a": "of another", "b": version.id}


@pytest.mark.parametrize("feature", [False, True])
def test_a_server_that_can_be_told_where_an_input_lies_is_told(rig: Rig, feature: bool) -> None:
    """Older ones refuse fields that they do not know."""
    rig.backend.features = ["USE_ARTIFACT_WITH_ENTITY_AND_PROJECT_INFORMATION"] if feature else []
    run_with(rig, simple("in", {"a": A}, use_after_commit=True), contents=[A])

    rig.sync()

    (body,) = rig.backend.bodies("UseArtifact")
    given = body["variables"]["input"]
    assert given.get("artifactProjectName") == ("proj" if feature else None)
    assert ("artifactEntityName" in given) == feature


def test_a_certificate_that_has_expired_is_not_a_place_that_has(rig: Rig) -> None:
    """No other place would help."""
    run_with(rig, simple("ds", {"a": A}), contents=[A])
    rig.backend.before = on("put", Permanent("the certificate has expired", status=0))

    assert rig.only(rig.sync()).verdict is Verdict.PARTIAL
    assert rig.backend.operations().count("CreateArtifactFiles") == 1


def test_a_version_that_the_server_forgot_is_made_anew(rig: Rig) -> None:
    """A server may drop what stays unfinished: the next sync begins with a new one."""
    run_with(rig, simple("ds", {"a": A}), contents=[A])
    rig.backend.before = on("CreateArtifactFiles", Answer(400, {}, b""))
    rig.sync()
    (old,) = rig.backend.artifacts
    rig.backend.artifacts["gone"] = rig.backend.artifacts.pop(old)
    rig.backend.artifacts["gone"].clients.clear()
    rig.backend.artifacts["else"] = rig.backend.artifacts["gone"]  # so that no id comes twice
    rig.backend.before = lambda _, name, request: (
        Answer(404, {}, b"") if name == "CreateArtifactManifest" and old.encode() in request.body else None
    )

    assert rig.only(rig.sync()).verdict is Verdict.SYNCED
    assert len(rig.backend.committed("ds")) == 1


def quoted(data: bytes) -> str:
    """How the URL of a content ends."""
    return quote(b64md5(data), safe="")
