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
