"""Alerts: each once, behind the rows that came before it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from runferry.logformat import BLOCK_SIZE
from runferry.sync import Verdict
from runferry.sync.alerts import and_this, was_told
from runferry.sync.transport import Answer
from support import logs
from support.artifactlogs import alert, run_with
from support.syncrig import Rig, cursor, on


def titles(rig: Rig) -> list[str]:
    """What people were told, in order."""
    return [told["title"] for told in rig.backend.alerts]


def test_an_alert_says_what_its_record_says_to_where_the_run_went(rig: Rig) -> None:
    """Severity and wait as logged; a severity that no server takes is INFO; overrides count."""
    run_with(rig, alert("one"), alert("two", "LOUD", 0))

    assert rig.only(rig.sync(project="p2", run_id="r2")).verdict is Verdict.SYNCED

    assert rig.backend.alerts == [
        {
            "entityName": "me",
            "projectName": "p2",
            "runName": "r2",
            "title": title,
            "text": f"about {title}",
            "severity": severity,
            "waitDuration": wait,
        }
        for title, severity, wait in (("one", "WARN", 60_000), ("two", "INFO", 0))
    ]


def test_rows_are_there_when_an_alert_speaks_of_them(rig: Rig) -> None:
    """No alert goes before every row of the log is acknowledged."""
    run_with(rig, alert("one"))
    rows = []
    rig.backend.before = lambda *_: rows.append(len(rig.backend.runs["a"].rows)) if _[1].startswith("Notify") else None

    rig.sync()

    assert rows == [5]


def test_each_alert_is_noted_before_the_next_one_goes(rig: Rig) -> None:
    """So a kill repeats one at most."""
    log = run_with(rig, alert("one"), alert("two"), alert("three"))
    noted = []
    rig.backend.before = lambda _, name, __: (
        noted.append(json.loads(cursor(log).read_text())["alerts"]) if name.startswith("Notify") else None
    )

    rig.sync()

    ends = [stretches[0][1] if stretches else 0 for stretches in noted]
    assert ends[0] == 0 < ends[1] < ends[2]


def test_alerts_are_told_once_whatever_is_synced_again(rig: Rig) -> None:
    """Not when the log has grown, not with --include-synced; the new one is told."""
    log = run_with(rig, alert("one"), alert("two"))
    rig.sync()
    logs.make_log(log, logs.row(9), alert("three"), append=True)
    rig.settle(log)
    rig.sync()
    rig.sync(include_synced=True)

    assert titles(rig) == ["one", "two", "three"]


@pytest.mark.parametrize("status", [400, 403, 500])
def test_an_alert_that_does_not_get_through_is_named_and_told_later(rig: Rig, status: int) -> None:
    """The others are told, rows and the end of the run arrive; the next sync tells it."""
    run_with(rig, alert("one"), alert("bad"), alert("three"))
    rig.backend.before = lambda _, name, request: (
        Answer(status, {}, b"no") if name.startswith("Notify") and b'"bad"' in request.body else None
    )

    report = rig.sync(retry_for=1.0)

    assert titles(rig) == ["one", "three"]
    assert rig.only(report).verdict is Verdict.PARTIAL
    assert rig.only(report).missing[0].startswith("alert 'bad': ")
    assert report.exit_code == (75 if status == 500 else 1)
    assert rig.backend.runs["a"].complete
    rig.backend.before = lambda *_: None
    assert rig.only(rig.sync()).verdict is Verdict.SYNCED
    assert titles(rig) == ["one", "three", "bad"]


@pytest.mark.parametrize("said", [b'{"success": false}', b'{"success": null}', b"{}", b"null"])
def test_a_server_that_says_no_success_did_not_tell_it(rig: Rig, said: bytes) -> None:
    """Status 200 is not enough."""
    run_with(rig, alert("one"))
    body = b'{"data": {"notifyScriptableRunAlert": ' + said + b"}}"
    rig.backend.before = on("NotifyScriptableRunAlert", Answer(200, {}, body))

    assert rig.only(rig.sync()).verdict is Verdict.PARTIAL


def test_another_target_gets_the_alerts_too(rig: Rig) -> None:
    """The cursor is of one target; under another id the run is another one."""
    run_with(rig, alert("one"))
    rig.sync()
    rig.sync(run_id="other")

    assert [(told["runName"], told["title"]) for told in rig.backend.alerts] == [("a", "one"), ("other", "one")]


def test_an_alert_that_damage_had_hidden_is_told_when_it_can_be_read(rig: Rig) -> None:
    """A better copy of the log takes the place of the damaged one: only what nobody saw is told."""
    room = [logs.output("x" * 3 * BLOCK_SIZE) for _ in range(2)]  # more than what of a log's ends identifies it
    log = run_with(rig, alert("one"), room[0], alert("two"), room[1], alert("three"))
    whole = log.read_bytes()
    at = whole.index(b"about two")
    log.write_bytes(whole[:at] + bytes(9) + whole[at + 9 :])
    rig.settle(log)
    assert rig.only(rig.sync()).verdict is Verdict.PARTIAL
    assert titles(rig) == ["one", "three"]

    log.write_bytes(whole)
    rig.settle(log)

    assert rig.only(rig.sync()).verdict is Verdict.SYNCED
    assert titles(rig) == ["one", "three", "two"]


def test_the_alerts_of_a_later_log_are_its_own(rig: Rig) -> None:
    """Each log of a run remembers its own, also when another one moves its lines."""
    later = run_with(rig, alert("second"), start=logs.START_S + 86_400)
    rig.sync()
    first = later.parent.with_name("run-20260920_141320-a") / later.name
    ordinary = logs.simple_records("a")
    logs.make_log(first, *ordinary[:-1], alert("first"), ordinary[-1])
    rig.settle(first)

    rig.sync()

    assert titles(rig) == ["second", "first"]


def test_many_alerts_take_little_room_in_the_cursor(rig: Rig) -> None:
    """Those that were told in a row are one stretch of the log."""
    log = run_with(rig, *(alert(f"n{number}") for number in range(200)))

    rig.sync()

    assert len(rig.backend.alerts) == 200
    assert cursor(log).read_text().count('"alerts"') == 1
    assert cursor(log).stat().st_size < 4000


def test_stretches_grow_and_never_reach_over_damage() -> None:
    """An alert joins the stretch of the one before it; a gap between them, or an untold one, begins another."""
    told = and_this(10, -1, [], [])
    told = and_this(20, 10, told, [])
    assert told == [(10, 20)]
    assert and_this(40, 20, told, [(25, 30)]) == [(10, 20), (40, 40)]
    assert and_this(40, 30, told, []) == [(10, 20), (40, 40)]
    assert was_told(15, told)
    assert not was_told(21, told)


def test_a_live_run_tells_its_alerts_as_they_come(rig: Rig) -> None:
    """They do not wait for the end of the run."""
    log = run_with(rig, alert("early"), exit_code=None)
    logs.make_log(Path(log), alert("late"), append=True)
    rig.settle(log)

    assert rig.only(rig.sync()).verdict is Verdict.LIVE

    assert titles(rig) == ["early", "late"]
