"""Our requests have the shapes that the protocol documents: a server that knows only recorded answers takes them all."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import pytest
from runferry.sync import SyncSettings, Verdict, sync
from runferry.sync.credentials import ApiKey
from runferry.writer import Settings
from runferry.writer.artifact import Artifact
from runferry.writer.run import Run
from runferry.writer.settings import resolve
from support import logs
from support.clock import FakeClock
from support.recorded import BASE, RecordedServer


def everything(folder: Path) -> None:
    """A run with all that a log can hold."""
    given = Settings(dir=folder, silent=True, disable_meta=True, project="proj", run_id="all1", name="a name")
    run = Run(resolve(given, None, {}), {"lr": 0.1})
    run.tags = ("a", "b")
    run.define_metric("loss", summary="min")
    for step in range(3):
        run.log({"loss": 1 / (step + 1), "deep": {"a": {"b": step}}})
    run.console("stdout", "hello\n")
    run.alert("Title", "Body text", level="WARN", wait_duration=60)
    (folder / "a.txt").write_text("hello")
    artifact = Artifact("ds", "dataset", metadata={"n": 1}, description="two files")
    artifact.add_file(folder / "a.txt")
    artifact.add_reference("s3://bucket/key", checksum=False)
    run.log_artifact(artifact, aliases=["best"])
    run.save(folder / "a.txt", base_path=folder)
    run.finish(exit_code=3)


def synced(folder: Path, server: RecordedServer, **settings: Any) -> Any:
    """The report of a sync with `server`."""
    return sync(
        [folder],
        SyncSettings(base_url=BASE, state_dir=folder / "state", **settings),
        key=ApiKey("k" * 40, base_url=BASE, source="test"),
        transport=server,
        clock=FakeClock(),
        rng=random.Random(5),
    )


@pytest.mark.parametrize("features", [(), ("STRUCTURED_CONSOLE_LOGS",)], ids=["plain", "structured"])
def test_a_server_that_has_never_heard_of_us_takes_every_request(tmp_path: Path, features: tuple[str, ...]) -> None:
    """Operations, variables, types, inputs, selections, bodies and headers are those that were recorded."""
    everything(tmp_path)
    server = RecordedServer(features)

    report = synced(tmp_path / "wandb", server)

    assert [(run.verdict, run.reason) for run in report.runs] == [(Verdict.SYNCED, "")]
    assert set(server.asked) == {
        "ServerFeaturesQuery", "RunResumeStatus", "UpsertBucket", "file_stream", "CreateRunFiles", "PUT",
        "NotifyScriptableRunAlert", "CreateArtifact", "CreateArtifactManifest", "CreateArtifactFiles", "CommitArtifact",
    }  # fmt: skip
    streams = [body for name, body in server.variables if name == "file_stream"]
    assert [body.get("exitcode") for body in streams if body.get("complete")] == [3]
    assert streams[-1].get("complete") is True


def test_what_goes_up_for_a_plain_run_is_what_the_peer_sends(tmp_path: Path) -> None:
    """The smallest run needs the recorded operations and no other."""
    logs.simple_run(tmp_path, rows=3, run_id="small")
    server = RecordedServer()

    report = synced(tmp_path, server)

    assert report.runs[0].verdict is Verdict.SYNCED
    assert set(server.asked) <= {
        "RunResumeStatus",
        "UpsertBucket",
        "file_stream",
        "CreateRunFiles",
        "PUT",
        "ServerFeaturesQuery",
    }
