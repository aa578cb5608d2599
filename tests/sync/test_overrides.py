"""Overrides: what a run is sent as, instead of what its log says. They reach everything that is sent of it."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
from runferry.sync import UsageError, Verdict
from runferry.sync.choice import parse_replacements
from runferry.sync.settings import find_base_url
from runferry.sync.transport import Request
from support import logs
from support.syncrig import Rig, cursor, tree


def test_a_run_goes_where_it_is_told_with_all_that_belongs_to_it(rig: Rig) -> None:
    """Rows, config, files and the last word name the new target; nothing names the log's own; the log stays as it is."""
    log = rig.run(rows=3, project="oldproj", entity="oldteam", job_type="train")
    (log.parent / "files" / "model.bin").write_bytes(b"weights")
    logs.make_log(log, logs.files_record("model.bin"), append=True)
    rig.settle(log)
    before = tree(rig.folder)
    report = rig.only(rig.sync(project="newproj", entity="newteam", run_id="newid", job_type="eval"))

    assert (report.verdict, report.target) == (Verdict.SYNCED, "newteam/newproj/newid")
    run = rig.backend.runs["newid"]
    assert set(rig.backend.runs) == {"newid"}
    assert len(run.rows) == 3
    assert run.files["model.bin"] == b"weights"
    assert run.complete
    assert (run.variables["jobType"], run.variables["project"], run.variables["entity"]) == (
        "eval",
        "newproj",
        "newteam",
    )
    sent = b"".join(request.url.encode() + _body(request) for _, request in rig.backend.requests)
    sent += b"".join(run.files.values())
    assert b"oldproj" not in sent
    assert b"oldteam" not in sent
    assert tree(rig.folder) == before


def _body(request: Request) -> bytes:
    """The body of a request that is no file."""
    return request.body if isinstance(request.body, bytes) else b""


def test_several_logs_under_one_id_are_one_run_in_order_of_their_start(rig: Rig) -> None:
    """Whatever the order of the paths."""
    second = rig.run(run_id="b", rows=2, start=logs.START_S + 100)
    first = rig.run(run_id="a", rows=3)
    rig.sync(second, first, run_id="both")

    assert [row["_timestamp"] for row in rig.backend.runs["both"].rows] == [
        logs.START_S + offset for offset in (0, 0.5, 1, 100, 100.5)
    ]


@pytest.mark.parametrize(
    ("text", "tags", "sent"),
    [
        ("a=b", ["a", "c"], ["b", "c"]),
        ("a=b,b=", ["a", "b"], ["b"]),
        ("a=b,b=a", ["a", "b"], ["b", "a"]),
        ("a=b", ["a", "b"], ["b"]),
        ("a=", ["a"], []),
        ("a=x", ["aa", "A"], ["aa", "A"]),
        ("a=b=c", ["a"], ["b=c"]),
        ("a=b", [], None),
    ],
)
def test_tags_are_replaced_exactly_and_once(rig: Rig, text: str, tags: list[str], sent: list[str] | None) -> None:
    """Whole tags only, none twice, no chains; an empty text leaves the tag out; a run without tags says nothing of them."""
    rig.run(tags=tags)
    rig.sync(replace_tags=parse_replacements(text))

    assert rig.backend.runs["a1b2c3d4"].variables.get("tags") == sent


@pytest.mark.parametrize("text", ["a", "a=b,c", "=b", "a=b,=", ","])
def test_a_replacement_needs_both_sides(text: str) -> None:
    """A part without `=`, or without a tag before it, is a usage error; empty parts are nothing."""
    if text == ",":
        assert parse_replacements(text) == {}
        return
    with pytest.raises(UsageError, match="OLD=NEW"):
        parse_replacements(text)


def test_overrides_reach_a_run_that_was_synced_before(rig: Rig) -> None:
    """The run is announced anew with what it is to say; its rows are not sent again."""
    log = rig.run(tags=["a"])
    rig.sync()
    rig.backend.forget()
    report = rig.only(rig.sync(replace_tags={"a": "b"}, job_type="eval"))

    run = rig.backend.runs["a1b2c3d4"]
    assert (report.verdict, run.variables["tags"], run.variables["jobType"]) == (Verdict.SYNCED, ["b"], "eval")
    assert report.rows_sent == 0
    assert not any(body["files"].get("wandb-history.jsonl") for body in rig.backend.bodies() if "files" in body)
    assert cursor(log).exists()


def test_the_shell_changes_nothing_of_what_is_sent(rig: Rig, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Variables of a job that starts the sync are not the run's: the requests are the same bytes with and without them."""
    rig.run(rows=3)
    rig.sync()
    for name, value in {
        "WANDB_RESUME": "must",
        "WANDB_PROGRAM": "/other/script.py",
        "WANDB_RUN_ID": "other",
        "WANDB_NAME": "other",
        "WANDB_PROJECT": "other",
        "WANDB_ENTITY": "other",
        "WANDB_TAGS": "other",
        "WANDB_JOB_TYPE": "other",
        "WANDB_RUN_GROUP": "other",
        "WANDB_MODE": "offline",
        "RUNFERRY_PROJECT": "other",
        "RUNFERRY_RUN_ID": "other",
        "SLURM_ARRAY_TASK_ID": "3",
    }.items():
        monkeypatch.setenv(name, value)
    (tmp_path / "there").mkdir()
    there = Rig(tmp_path / "there")
    there.run(rows=3)
    there.sync()

    said = [[(name, request.url, _body(request)) for name, request in one.backend.requests] for one in (rig, there)]
    assert sorted(said[0]) == sorted(said[1])
    assert rig.backend.runs["a1b2c3d4"].files == there.backend.runs["a1b2c3d4"].files
    assert json.loads(said[0][1][2])["variables"]["program"] == "train.py"


def test_settings_files_of_the_user_name_the_server(tmp_path: Path) -> None:
    """Ours is stronger than the peer's, variables than both; one that cannot be read may name another server."""
    ours, theirs = tmp_path / ".config/runferry/settings", tmp_path / ".config/wandb/settings"
    for path in (ours, theirs):
        path.parent.mkdir(parents=True)
    assert find_base_url({}, tmp_path) == "https://api.wandb.ai"
    theirs.write_text("[default]\nbase_url = https://theirs.test/\n")
    assert find_base_url({}, tmp_path) == "https://theirs.test"
    ours.write_text("[default]\nproject = x\n")
    assert find_base_url({}, tmp_path) == "https://theirs.test"
    ours.write_text("[default]\nbase_url = https://ours.test\n")
    assert find_base_url({}, tmp_path) == "https://ours.test"
    assert find_base_url({"WANDB_BASE_URL": "https://shell.test"}, tmp_path) == "https://shell.test"
    assert find_base_url({"XDG_CONFIG_HOME": str(tmp_path / "none")}, tmp_path) == "https://theirs.test"
    assert find_base_url({"RUNFERRY_CONFIG_DIR": str(ours.parent)}, tmp_path / "away") == "https://ours.test"
    ours.write_bytes(b"\xff\xfe")
    with pytest.raises(UsageError, match=re.escape(str(ours))):
        find_base_url({}, tmp_path)


def test_every_log_of_a_run_keeps_its_environment(rig: Rig) -> None:
    """A run that went on elsewhere shows both machines under their writers; lists of one are not mixed with the other's."""
    for number, (writer, gpu) in enumerate([("first", "A100"), ("second", "H100")]):
        gpus = [logs.messages.GpuNvidiaInfo(name=gpu)]
        logs.make_log(
            rig.folder / f"run-{number}" / "run-a1b2c3d4.wandb",
            logs.header_record(),
            logs.run_record("a1b2c3d4", start=logs.START_S + number * 100, resume=bool(number)),
            logs.environment_record(writer_id=writer, host=f"node{number}", gpu_nvidia=gpus),
            logs.row(0, start=logs.START_S + number * 100),
            logs.exit_record(),
        )
    rig.sync()

    environments = rig.backend.runs["a1b2c3d4"].config["_wandb"]["value"]["e"]
    assert [(writer, tree["host"], tree["gpu_nvidia"]) for writer, tree in environments.items()] == [
        ("first", "node0", [{"name": "A100"}]),
        ("second", "node1", [{"name": "H100"}]),
    ]
    assert json.loads(rig.backend.runs["a1b2c3d4"].files["wandb-metadata.json"])["host"] == "node1"
