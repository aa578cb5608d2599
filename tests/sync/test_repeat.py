"""What other syncs did before, and runs of several logs."""

from __future__ import annotations

import json
import os
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from runferry.logformat import load
from runferry.sync import Report, SyncSettings, Verdict, preview
from runferry.sync.status import sync_status
from runferry.sync.transport import Answer
from support import logs
from support.fakebackend import URL
from support.syncrig import Rig, cursor, marker, on


def test_a_log_that_another_tool_marked_is_skipped_unless_asked_for(rig: Rig) -> None:
    """The peer's marker without a cursor of ours is believed; --include-synced sends the log all the same."""
    log = rig.run()
    marker(log).touch()
    rig.settle(marker(log))

    report = rig.sync()

    assert (rig.only(report).verdict, report.exit_code) == (Verdict.SKIPPED, 0)
    assert "--include-synced" in rig.only(report).reason
    assert rig.backend.requests == []
    assert rig.only(rig.sync(include_synced=True)).verdict is Verdict.SYNCED


@pytest.mark.parametrize("ended", [True, False])
def test_a_marker_that_is_older_than_the_log_is_not_believed(rig: Rig, *, ended: bool) -> None:
    """What was logged after another tool set it is sent, and the verdict says why; file times are coarse: 2 s are the same."""
    early, late = (rig.run(run_id=name, exit_code=0 if ended else None) for name in ("early", "late"))
    for log, age in ((early, 61.5), (late, 63.0)):
        marker(log).touch()
        rig.settle(marker(log), age)
    at = SyncSettings(base_url=URL, state_dir=rig.state)
    planned = {run.run: run.todo.value for run in preview(rig.folder, at, clock=rig.clock).runs}
    shown = [sync_status(log).words for log in (early, late)]

    report = rig.sync(stale_after=1.0)

    verdicts = {
        one.run: (one.verdict, "marked as synced by another tool and has changed" in one.reason) for one in report.runs
    }
    assert verdicts == {"early": (Verdict.SKIPPED, False), "late": (Verdict.SYNCED, True)}
    assert planned == {"early": "skip", "late": "all"}
    assert shown == ["marked as synced", "grew since"]  # by the peer, or by a sync of ours whose cursor is lost
    assert set(rig.backend.runs) == {"late"}
    assert rig.backend.runs["late"].rows == load(late).rows
    assert marker(late).exists()


def test_include_synced_brings_back_what_the_server_lost_of_a_run(rig: Rig) -> None:
    """Summary and files go again too, though nothing in the log has changed."""
    rig.run()
    rig.sync()
    run = rig.backend.runs["a1b2c3d4"]
    kept, run.summary, files, run.files = run.summary, None, run.files, {}

    rig.sync(include_synced=True)

    assert run.summary == kept
    assert run.files == files


def test_include_synced_writes_the_same_lines_again(rig: Rig) -> None:
    """Forcing a second time leaves the server as it was."""
    log = rig.run()
    rig.sync()

    report = rig.sync(include_synced=True)

    assert rig.only(report).rows_sent == 5
    assert rig.backend.runs["a1b2c3d4"].rows == load(log).rows


def test_a_sync_goes_on_where_another_client_stopped(rig: Rig) -> None:
    """Without a cursor, the server's last row is compared with ours at that place: equal means go on behind it."""
    log = rig.run(rows=10)
    rig.sync()
    run = rig.backend.runs["a1b2c3d4"]
    for number in range(4, 10):
        del run.lines["history"][number]
    cursor(log).unlink()
    marker(log).unlink()
    rig.backend.forget()

    report = rig.sync()

    assert rig.only(report).verdict is Verdict.SYNCED
    assert run.rows == load(log).rows
    assert sorted(number for _, stream, number in rig.backend.written if stream == "history") == [4, 5, 6, 7, 8, 9]


def test_rows_of_an_unknown_writer_are_never_overwritten(rig: Rig) -> None:
    """The server holds rows under this id that are not ours: refused before anything is changed there."""
    rig.run()
    rig.sync()
    run = rig.backend.runs["a1b2c3d4"]
    before = (json.dumps(run.lines), run.variables["config"])
    other = logs.make_log(
        rig.folder.parent / "elsewhere" / "run-a1b2c3d4.wandb",
        logs.run_record("a1b2c3d4", start=logs.START_S + 999),
        *(logs.row(step, {"loss": 7}, start=logs.START_S + 999) for step in range(50)),
        logs.exit_record(),
    )
    rig.settle(other)

    report = rig.sync(other)

    assert (rig.only(report).verdict, report.exit_code) == (Verdict.FAILED, 1)
    assert "--id" in rig.only(report).reason
    assert (json.dumps(run.lines), run.variables["config"]) == before


def at_the_upsert(act: Callable[[], Any]) -> Callable[..., None]:
    """A hook that acts once: after the log was read for the first time, before it is read again to be sent."""
    left = [act]

    def before(_: int, operation: str, __: object) -> None:
        if operation == "UpsertBucket" and left:
            left.pop()()

    return before


def test_a_log_that_grows_while_it_is_synced_is_sent_as_it_was_and_then_the_rest(rig: Rig) -> None:
    """What came after the first look waits for the next sync, and nothing is marked before."""
    log = rig.run(rows=5, exit_code=None)
    rig.backend.before = at_the_upsert(
        lambda: logs.make_log(log, logs.row(5), logs.output("late\n"), logs.exit_record(), append=True)
    )

    first = rig.only(rig.sync())

    assert first.verdict is Verdict.LIVE
    assert len(rig.backend.runs["a1b2c3d4"].rows) == 5
    assert not rig.backend.runs["a1b2c3d4"].complete
    rig.settle(log)
    assert rig.only(rig.sync()).verdict is Verdict.SYNCED
    assert rig.backend.runs["a1b2c3d4"].rows == load(log).rows
    assert set(rig.backend.written.values()) == {1}


@pytest.mark.parametrize("lost", ["cut", "gone", "other"])
def test_a_log_that_is_changed_while_it_is_synced_is_never_called_synced(rig: Rig, tmp_path: Path, lost: str) -> None:
    """Cut, removed or replaced between the two readings: failed, named, not marked."""
    log = rig.run(rows=50)
    other = logs.simple_run(tmp_path, run_id="a1b2c3d4", rows=7)
    act = {
        "cut": lambda: os.truncate(log, log.stat().st_size // 2),
        "gone": log.unlink,
        "other": lambda: log.write_bytes(other.read_bytes()),
    }[lost]
    rig.backend.before = at_the_upsert(act)

    report = rig.only(rig.sync())

    assert report.verdict is Verdict.FAILED
    assert "changed while it was read" in report.reason or "No such file" in report.reason
    assert not marker(log).exists()
    assert not log.with_name(log.name + ".lock").exists()


def test_records_without_lines_are_acknowledged_too(rig: Rig) -> None:
    """A config change at the end of a log that stays partial is told once, and not at every sync."""
    log = rig.run(exit_code=None)
    logs.make_log(log, logs.files_record("gone.txt"), append=True)
    rig.settle(log)
    rig.sync()
    logs.make_log(log, logs.config_record({"late": 1}), append=True)
    rig.settle(log)
    assert rig.only(rig.sync()).verdict is Verdict.PARTIAL
    assert rig.backend.runs["a1b2c3d4"].config["late"] == {"value": 1}
    rig.backend.forget()

    assert rig.only(rig.sync()).verdict is Verdict.PARTIAL

    assert rig.backend.requests == []


def test_a_marker_does_not_outlive_the_log_that_it_was_set_for(rig: Rig) -> None:
    """A log that has grown is not marked any more as soon as its sync begins, also when that fails."""
    log = rig.run(exit_code=None)
    rig.settle(log, 3600)
    rig.sync()
    assert marker(log).exists()
    logs.make_log(log, logs.row(5), append=True)
    rig.settle(log, 3600)
    rig.backend.before = on("stream", Answer(403, {}, b"no"))

    assert rig.only(rig.sync()).verdict is Verdict.FAILED

    assert not marker(log).exists()


def test_rows_that_the_server_has_already_are_not_counted_as_sent(rig: Rig) -> None:
    """Without a cursor the server says how far it is; only the row behind that is new."""
    log = rig.run(exit_code=None)
    rig.sync()
    cursor(log).unlink()
    logs.make_log(log, logs.row(5), append=True)
    rig.settle(log)

    report = rig.only(rig.sync())

    assert (report.rows, report.rows_sent) == (6, 1)


def test_rows_without_steps_go_on_counting_in_a_later_sync(rig: Rig) -> None:
    """Their steps follow the rows before them, also those that an earlier sync has sent."""
    values = {"_timestamp": logs.START_S, "loss": 1}
    log = logs.make_log(rig.folder / "run-s.wandb", logs.run_record("s"), *(logs.row(None, values) for _ in range(3)))
    rig.settle(log)
    rig.sync()
    logs.make_log(log, logs.row(None, values), append=True)
    rig.settle(log)

    rig.sync()

    assert [row["_step"] for row in rig.backend.runs["s"].rows] == [0, 1, 2, 3]


def test_a_replaced_log_is_not_sent_from_the_middle(rig: Rig) -> None:
    """The cursor of the old log does not count for a new one of the same name."""
    log = rig.run(rows=5)
    rig.sync()
    logs.make_log(log, *logs.simple_records(rows=9, start=logs.START_S + 50))
    rig.settle(log)

    report = rig.sync()

    assert rig.only(report).verdict in {Verdict.SYNCED, Verdict.FAILED}
    rows = rig.backend.runs["a1b2c3d4"].rows
    assert rows == load(log).rows or len(rows) == 5


def test_a_log_that_is_being_synced_is_skipped(rig: Rig) -> None:
    """Two syncs of one log at a time: the second says who is at work and asks to be tried again."""
    log = rig.run()
    started, go_on = threading.Event(), threading.Event()

    def before(number: int, *_: Any) -> None:
        if number == 1:
            started.set()
            assert go_on.wait(20)

    rig.backend.before = before
    reports: list[Report] = []
    first = threading.Thread(target=lambda: reports.append(rig.sync()))
    first.start()
    assert started.wait(20)

    second = rig.sync()

    go_on.set()
    first.join(20)
    assert (rig.only(second).verdict, second.exit_code) == (Verdict.SKIPPED, 75)
    assert str(os.getpid()) in rig.only(second).reason
    assert rig.only(reports[0]).verdict is Verdict.SYNCED
    assert not log.with_name(log.name + ".lock").exists()


def test_a_read_only_directory_is_synced_from_the_state_directory(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing is written beside the log, and the second sync still knows that all was sent."""
    log = rig.run()
    monkeypatch.setattr("runferry.sync.work.is_writable", lambda _: False)
    before = sorted(path.name for path in log.parent.iterdir())
    monkeypatch.setattr(Path, "touch", lambda *_: (_ for _ in ()).throw(PermissionError(30, "read-only file system")))

    report = rig.sync()

    assert rig.only(report).verdict is Verdict.SYNCED
    assert sorted(path.name for path in log.parent.iterdir()) == before
    assert [path.name for path in rig.state.rglob("*.cursor")] == ["run-a1b2c3d4.wandb.cursor"]
    rig.backend.forget()
    assert rig.only(rig.sync()).verdict is Verdict.SYNCED
    assert rig.backend.requests == []


def test_a_state_directory_that_cannot_be_used_is_named(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    """With the variable that sets it: its path alone tells nobody what it is for."""
    rig.run()
    monkeypatch.setattr("runferry.sync.work.is_writable", lambda _: False)
    rig.state.write_text("no directory")

    report = rig.only(rig.sync())

    assert report.verdict is Verdict.FAILED
    assert report.reason.startswith(str(rig.state))
    assert "state directory" in report.reason
    assert "RUNFERRY_STATE_DIR" in report.reason


def segment(
    rig: Rig, name: str, start: float, rows: int, *, exit_code: int | None, resume: bool, console: str = ""
) -> Path:
    """One log of the run `seg`, begun `start` seconds after the first."""
    log = rig.folder / f"run-2026092{name}_141320-seg" / "run-seg.wandb"
    records = [
        logs.run_record("seg", start=logs.START_S + start, resume=resume),
        *(logs.row(step, {name: step}, start=logs.START_S + start) for step in range(rows)),
        *([logs.output(console, start)] if console else []),
        logs.sample(1, start=logs.START_S + start),
    ]
    logs.make_log(log, *records, *([] if exit_code is None else [logs.exit_record(exit_code)]))
    rig.settle(log, 3600 if exit_code is None else 60)
    return log


def test_the_segments_of_a_run_become_one_run(rig: Rig) -> None:
    """Ordered by start time whatever their names: lines and steps go on, the last segment's exit is the run's."""
    segment(rig, "9", 0, 4, exit_code=None, resume=False, console="first\n")
    segment(rig, "1", 100, 3, exit_code=0, resume=True, console="second\n")

    report = rig.sync()

    run = rig.backend.runs["seg"]
    assert [row["_step"] for row in run.rows] == list(range(7))
    assert [("9" in row, "1" in row) for row in run.rows] == [(True, False)] * 4 + [(False, True)] * 3
    assert [line.partition(" ")[2] for line in run.stream("console")] == ["first", "second"]
    assert len(run.stream("events")) == 2
    assert run.summary["_step"] == 6
    assert (run.complete, run.exit_code) == (True, 0)
    assert [run_report.verdict for run_report in report.runs] == [Verdict.SYNCED] * 2
    rig.backend.forget()
    rig.sync()
    assert rig.backend.requests == []


def test_a_segment_added_later_goes_behind_the_others(rig: Rig) -> None:
    """The rows of the first are not sent again."""
    segment(rig, "1", 0, 4, exit_code=None, resume=False)
    rig.sync()
    rig.backend.forget()
    segment(rig, "2", 100, 3, exit_code=0, resume=True)

    rig.sync()

    run = rig.backend.runs["seg"]
    assert [row["_step"] for row in run.rows] == list(range(7))
    assert sorted(number for _, stream, number in rig.backend.written if stream == "history") == [4, 5, 6]


def test_segments_may_come_in_any_order(rig: Rig) -> None:
    """The second segment alone first, then both: the lines move to where they belong."""
    first = segment(rig, "1", 0, 4, exit_code=None, resume=False)
    second = segment(rig, "2", 100, 3, exit_code=0, resume=True)
    rig.sync(second)

    rig.sync(first, second)

    run = rig.backend.runs["seg"]
    assert [row["_step"] for row in run.rows] == list(range(7))
    assert run.complete


def test_a_resumed_segment_goes_behind_what_the_server_has(rig: Rig) -> None:
    """Synced alone, elsewhere: lines and steps go on from the server's, and a second sync changes nothing."""
    first = segment(rig, "1", 0, 4, exit_code=None, resume=False)
    second = segment(rig, "2", 100, 3, exit_code=0, resume=True)
    rig.sync(first)
    rig.sync(second)

    run = rig.backend.runs["seg"]
    assert [row["_step"] for row in run.rows] == list(range(7))
    rig.sync(second, include_synced=True)
    rig.sync(first, second)
    assert [row["_step"] for row in run.rows] == list(range(7))
