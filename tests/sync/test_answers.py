"""Answers that do not say what they are asked: whatever is done by them could write over what a server holds."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from runferry.sync import Verdict
from runferry.sync.transport import Answer, Request
from support import logs
from support.syncrig import Rig, cursor, marker, on


def resumed(rig: Rig) -> Path:
    """A resumed log of which the server has the earlier one's three rows, and that log is not here."""
    first = rig.run(rows=3, start=logs.START_S - 1000)
    rig.sync()
    for path in (first, cursor(first), marker(first)):
        path.unlink()
    log = first.parent.with_name("run-20260921_141325-a1b2c3d4") / first.name
    run = logs.run_record("a1b2c3d4", resume=True)
    logs.make_log(log, logs.header_record(), run, *map(logs.row, range(3, 6)), logs.exit_record())
    rig.settle(log)
    rig.backend.forget()
    return log


@pytest.mark.parametrize(
    "said",
    [
        {"historyLineCount": None}, {"historyLineCount": "3"}, {"historyLineCount": 0}, {"historyLineCount": True},
        {"historyLineCount": -1}, {"historyLineCount": 1 << 64}, {"historyLineCount": 1.5}, {"eventsLineCount": None},
        {"logLineCount": []}, {"historyTail": "{"}, {"historyTail": [None]}, {"eventsTail": 7}, {"config": "[]"},
        {"config": 5}, {"summaryMetrics": "x"}, {"tags": "abc"}, {"tags": [1]}, {"notes": {}}, None, "x", {},
    ],
)  # fmt: skip
def test_what_does_not_say_what_a_run_holds_writes_over_nothing(rig: Rig, said: Any) -> None:
    """A count that is none is not zero: rows would be written over those that are there, and the config without its keys."""
    resumed(rig)

    def after(_: int, operation: str, request: Request) -> Any:
        if operation != "RunResumeStatus":
            return None
        bucket = rig.backend._on_runresumestatus(json.loads(request.body)["variables"])["model"]["bucket"]
        answer = (
            {"model": {"bucket": bucket | said}}
            if said and isinstance(said, dict)
            else {"model": said}
            if said
            else said
        )
        return Answer(200, {}, json.dumps({"data": answer}).encode())

    rig.backend.after = after
    report = rig.only(rig.sync())

    assert report.verdict is Verdict.FAILED
    assert "internal" not in report.reason
    assert rig.backend.operations() == ["RunResumeStatus"]
    rig.backend.after = lambda *_: None
    assert rig.only(rig.sync()).verdict is Verdict.SYNCED
    assert [row["_step"] for row in rig.backend.runs["a1b2c3d4"].rows] == list(range(6))
    assert rig.backend.runs["a1b2c3d4"].config["lr"] == {"value": 0.001}


@pytest.mark.parametrize(
    "answer", [Answer(400, {}, b"what?"), Answer(200, {}, b'{"errors": [{"message": "internal"}]}')]
)
def test_a_refused_question_changes_nothing_of_a_run_that_holds_rows(rig: Rig, answer: Answer) -> None:
    """Neither its rows nor its config, tags and notes, which a log that goes on does not say again."""
    resumed(rig)
    before = dict(rig.backend.runs["a1b2c3d4"].variables)
    rig.backend.before = on("RunResumeStatus", answer)

    report = rig.only(rig.sync())

    assert (report.verdict, "does not say which" in report.reason) == (Verdict.FAILED, True)
    after = rig.backend.runs["a1b2c3d4"].variables
    assert {key: after[key] for key in ("config", "tags", "notes") if key in before} == {
        key: before[key] for key in ("config", "tags", "notes") if key in before
    }
    rig.backend.before = lambda *_: None
    assert rig.only(rig.sync()).verdict is Verdict.SYNCED
    assert rig.backend.runs["a1b2c3d4"].config["lr"] == {"value": 0.001}


def test_a_server_that_answers_no_question_gets_a_new_run(rig: Rig) -> None:
    """An announcement shows that there is nothing of it, so nothing can be written over."""
    log = rig.run(rows=3)
    rig.backend.before = on("RunResumeStatus", Answer(400, {}, b"what?"))

    assert rig.only(rig.sync()).verdict is Verdict.SYNCED

    assert len(rig.backend.runs["a1b2c3d4"].rows) == 3
    assert rig.backend.runs["a1b2c3d4"].config["lr"] == {"value": 0.001}
    assert marker(log).exists()


@pytest.mark.parametrize("where", ["name", "project", "entity", "tags", "notes"])
def test_a_name_that_no_address_can_hold_fails_alone(rig: Rig, where: str) -> None:
    """An unpaired surrogate in a server's answer is no internal error."""
    resumed(rig)

    def after(_: int, operation: str, request: Request) -> Any:
        variables = json.loads(request.body)["variables"] if operation != "stream" and request.method == "POST" else {}
        if operation == "UpsertBucket" and where in ("name", "project", "entity"):
            names = {"name": "a1b2c3d4", "project": "proj", "entity": "me", where: "\ud800"}
            place = {"name": names["project"], "entity": {"name": names["entity"]}}
            bucket = {"id": "i", "name": names["name"], "project": place}
            return Answer(200, {}, json.dumps({"data": {"upsertBucket": {"bucket": bucket}}}).encode())
        if operation == "RunResumeStatus" and where in ("tags", "notes"):
            answer = rig.backend._on_runresumestatus(variables)
            answer["model"]["bucket"][where] = ["\ud800"] if where == "tags" else "\ud800"
            return Answer(200, {}, json.dumps({"data": answer}).encode())
        return None

    rig.backend.after = after
    report = rig.only(rig.sync())

    assert "internal" not in report.reason
    assert report.verdict is (Verdict.SYNCED if where in ("tags", "notes") else Verdict.FAILED)


def three_logs(rig: Rig) -> list[Path]:
    """A run in three logs, each in a folder of its own, the last without an end; all of them sent."""
    paths = []
    for number in range(3):
        start = logs.START_S + 3600 * number
        log = rig.folder / f"job{number}" / f"run-20260921_1{number}1320-j" / "run-j.wandb"
        run = logs.run_record("j", start=start, resume=number > 0, config={f"config{number}": number})
        rows = [logs.row(step, {f"key{number}": step}, start=start) for step in (2 * number, 2 * number + 1)]
        logs.make_log(log, logs.header_record(), run, *rows, *([logs.exit_record()] if number < 2 else []))
        rig.settle(log)
        paths.append(log)
    assert [run.verdict for run in rig.sync(*paths).runs] == [Verdict.SYNCED, Verdict.SYNCED, Verdict.LIVE]
    rig.backend.forget()
    return paths


@pytest.mark.parametrize("named", [[1, 2], [2]])
def test_logs_that_were_here_the_last_time_keep_what_they_said(rig: Rig, named: list[int]) -> None:
    """A log that grows, named without the earlier ones, changes nothing of their config and summary."""
    paths = three_logs(rig)
    logs.make_log(paths[2], logs.row(6, start=logs.START_S + 7200), logs.exit_record(), append=True)
    rig.settle(paths[2])

    assert {run.verdict for run in rig.sync(*(paths[number] for number in named)).runs} == {Verdict.SYNCED}

    run = rig.backend.runs["j"]
    assert {key: run.config[key]["value"] for key in ("config0", "config1", "config2")} == {
        "config0": 0,
        "config1": 1,
        "config2": 2,
    }
    assert {key: (run.summary or {})[key] for key in ("key0", "key1", "key2")} == {"key0": 1, "key1": 3, "key2": 5}
    assert {run.reason for run in rig.sync(*paths).runs} == {"nothing new"}


@pytest.mark.parametrize("named", [[0], [1], [0, 1]])
def test_earlier_logs_by_themselves_have_ended_and_say_nothing_of_the_run(rig: Rig, named: list[int]) -> None:
    """Each is synced as it was, whether or not it has an end of its own; what there is to say of the run is the later log's."""
    paths = three_logs(rig)
    early = [paths[number] for number in named]

    assert {run.verdict for run in rig.sync(*early).runs} == {Verdict.SYNCED}
    assert all(marker(log).exists() for log in early)
    assert rig.backend.requests == []
    report = rig.sync(*early, include_synced=True)
    assert all("theirs to say" in run.reason for run in report.runs)
    assert "UpsertBucket" not in rig.backend.operations()
