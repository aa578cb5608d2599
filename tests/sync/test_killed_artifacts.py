"""Kills and faults at any request of a run with artifacts, files and alerts: the next sync ends what this one began."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from runferry.sync import Verdict
from runferry.sync.transport import Answer
from support.artifactlogs import alert, artifact, entry, run_with, simple
from support.fakebackend import reset
from support.synckill import kill_at
from support.syncrig import Rig, marker

DATA = {"a": b"aaaa", "dir/b": b"b" * 3000, "empty": b""}


def make(folder: Path) -> Rig:
    """A run with a file, two alerts and artifacts of all kinds."""
    folder.mkdir()
    rig = Rig(folder)
    one = simple("one", DATA)
    reference = entry("r", digest="d", ref=f"wandb-client-artifact://{one.artifact.client_id}/a")
    run_with(
        rig,
        one,
        alert("first"),
        artifact("refs", [reference]),
        simple("input", {"c": b"c"}, user_created=True, use_after_commit=True),
        alert("second"),
        simple("parts", {"x": b"x"}, distributed_id="g", finalize=False),
        simple("parts", {"y": b"y"}, distributed_id="g"),
        contents=[*DATA.values(), b"c", b"x", b"y"],
    )
    return rig


def state(rig: Rig) -> dict[str, Any]:
    """What the server holds, without what tells how often it was asked."""
    run = rig.backend.runs["a"]
    artifacts = sorted(rig.backend.artifacts.values(), key=lambda one: one.input["artifactCollectionName"])
    return {
        "artifacts": [
            (one.input, one.state, {path: e["digest"] for path, e in one.contents.items()}) for one in artifacts
        ],
        "blobs": rig.backend.blobs,
        "used": {(name, rig.backend.artifacts[key].input["artifactCollectionName"]) for name, key in rig.backend.used},
        "alerts": {told["title"] for told in rig.backend.alerts},
        "rows": run.rows,
        "files": sorted(run.files),
        "end": (run.complete, run.exit_code),
    }


@pytest.mark.parametrize("applied", [False, True], ids=["before", "after"])
@pytest.mark.parametrize("every", [6, pytest.param(1, marks=pytest.mark.slow)])
def test_killed_at_any_request_the_next_sync_leaves_the_same(tmp_path: Path, applied: bool, every: int) -> None:
    """Same contents, one version each, every alert (one of them perhaps twice), and nothing is asked afterwards."""
    clean = make(tmp_path / "clean")
    assert clean.only(clean.sync()).verdict is Verdict.SYNCED
    wanted, requests = state(clean), len(clean.backend.requests)
    assert requests > 40
    repeated = []
    for number in range(1, requests + 1, every):
        rig = make(tmp_path / f"{number}")
        kill_at(rig, number, applied=applied)

        report = rig.only(rig.sync())

        assert (report.verdict, report.missing) == (Verdict.SYNCED, ()), number
        assert state(rig) == wanted, number
        told = [one["title"] for one in rig.backend.alerts]
        assert list(dict.fromkeys(told)) == ["first", "second"]
        repeated.append(len(told) - 2)
        rig.backend.forget()
        rig.sync()
        assert rig.backend.requests == []
    assert set(repeated) <= {0, 1}
    if every == 1:
        assert sum(repeated) == (2 if applied else 0)


FAULTS: dict[str, tuple[str, Any]] = {
    **{f"{status}": ("before", Answer(status, {}, b"no")) for status in (400, 401, 403, 404, 408, 409, 410, 413, 422)},
    **{f"{status}": ("before", Answer(status, {}, b"no")) for status in (429, 500, 501, 503)},
    "reset before": ("before", reset()),
    "reset after": ("after", reset()),
    "half an answer": ("after", Answer(200, {}, b'{"data": {"cre')),
}


@pytest.mark.parametrize("every", [61, pytest.param(1, marks=pytest.mark.slow)])
def test_a_fault_at_any_request_leaves_the_same_in_the_end(tmp_path: Path, every: int) -> None:
    """Whatever is answered once: the sync says so, or it got over it; then a healthy server holds what a clean sync leaves."""
    clean = make(tmp_path / "clean")
    clean.sync()
    wanted, requests = state(clean), len(clean.backend.requests)
    cases = [(name, number) for name in FAULTS for number in range(1, requests + 1)]
    for name, number in cases[::every]:
        rig = make(tmp_path / f"{name}-{number}")
        (log,) = rig.folder.rglob("*.wandb")
        moment, fault = FAULTS[name]

        def once(now: int, *_: object, number: int = number, fault: Any = fault) -> Any:
            return fault if now == number else None

        setattr(rig.backend, moment, once)
        first = rig.only(rig.sync(retry_for=5.0))
        rig.backend.before = rig.backend.after = lambda *_: None

        assert marker(log).exists() == (first.verdict is Verdict.SYNCED), (name, number)
        assert (first.verdict is Verdict.SYNCED) == (first.missing == () and not first.reason), (name, number)
        second = rig.only(rig.sync())
        assert second.verdict is Verdict.SYNCED, (name, number, second)
        assert state(rig) == wanted, (name, number)
        assert len(rig.backend.alerts) <= 3
