"""First contact with a run that the server has already, and later contact with one that changed there meanwhile."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
from runferry.logformat import load, messages
from runferry.sync import Verdict
from runferry.sync.transport import Answer
from support import logs
from support.fakebackend import FakeRun
from support.segments import RUN, held, row, segment, start_of
from support.syncrig import Rig, cursor, marker, on, unsealed

ID = "a1b2c3d4"


def given(rig: Rig, rows: list[dict[str, Any]], **streams: list[str]) -> FakeRun:
    """A run at the server that another client wrote."""
    run = rig.backend.runs[ID] = FakeRun()
    run.lines["history"] = dict(enumerate(map(json.dumps, rows)))
    run.lines["events"] = dict(enumerate(streams.get("events", [])))
    run.lines["console"] = dict(enumerate(streams.get("console", [])))
    run.variables = {"config": json.dumps({"_wandb": {"value": {"t": {"3": [4]}}}, "theirs": {"value": 1}})}
    return run


def shuffled(found: dict[str, Any]) -> dict[str, Any]:
    """The row as the peer spells it: keys in another order."""
    return dict(reversed(found.items()))


def test_a_copy_by_the_peer_is_gone_on_with(rig: Rig) -> None:
    """Its last row is ours at that place: only the rest is sent; samples and console are written in place."""
    log = rig.run(rows=7)
    given(rig, [shuffled(found) for found in load(log).rows[:4]], events=["{}"], console=["the peer's own time"])

    report = rig.sync()

    run = rig.backend.runs[ID]
    assert run.rows == load(log).rows
    assert {key[2] for key in rig.backend.written if key[1] == "history"} == {4, 5, 6}
    assert [line.partition(" ")[2] for line in run.stream("console")] == [f"step {step}" for step in range(7)]
    assert len(run.stream("events")) == 2
    assert rig.only(report).verdict is Verdict.SYNCED


def test_a_copy_with_rows_written_twice_is_refused(rig: Rig) -> None:
    """The peer, killed and repeated, begins again behind what is there: that is said, and nothing is written."""
    log = rig.run(rows=5)
    rows = list(load(log).rows)
    given(rig, rows[:2] + rows)

    report = rig.sync()

    assert rig.only(report).verdict is Verdict.FAILED
    assert "holds 7 rows for run a1b2c3d4, of which this log has 5" in rig.only(report).reason
    assert "written rows twice" in rig.only(report).reason
    assert not rig.backend.written


def test_a_short_copy_with_rows_written_twice_is_mended(rig: Rig) -> None:
    """It has no more rows than the log: all lines are written again, and none of the copies is left."""
    log = rig.run(rows=7)
    rows = list(load(log).rows)
    given(rig, rows[:2] + rows[:3])

    report = rig.sync()

    assert rig.only(report).verdict is Verdict.SYNCED, rig.only(report).reason
    assert rig.backend.runs[ID].rows == rows


def test_lines_of_another_tool_that_stay_are_told(rig: Rig) -> None:
    """The peer counts console lines in its own way: those behind ours cannot be taken back."""
    log = rig.run(rows=2)
    given(rig, load(log).rows, console=[f"line {number}" for number in range(5)])

    report = rig.sync()

    assert (
        rig.only(report).reason
        == "left at the server, behind those of the log: 3 console lines that another tool wrote"
    )


def test_rows_of_somebody_else_are_left_alone(rig: Rig) -> None:
    """Neither the last row nor the writer is ours."""
    rig.run(rows=5)
    given(rig, [{"_step": 0, "_timestamp": 5.0}])

    report = rig.sync()

    assert "not those of this log" in rig.only(report).reason
    assert not rig.backend.written


def test_a_lost_cursor_costs_a_look(rig: Rig) -> None:
    """The server's last row tells where the log stands; a damaged cursor is as good as none."""
    log = rig.run(rows=5)
    rig.sync()
    for text in (b"", b"{", b"[]", b'{"version": 99}', b"\xff\xfe", cursor(log).read_bytes()[:-40]):
        cursor(log).write_bytes(text)
        rig.backend.forget()
        assert rig.only(rig.sync()).verdict is Verdict.SYNCED
        assert rig.backend.runs[ID].rows == load(log).rows
        assert not [key for key in rig.backend.written if key[1] == "history"]


def test_a_lost_cursor_of_a_row_that_grew(tmp_path: Path) -> None:
    """The server has the row as it was before a further part came, and nothing names the writer."""
    rig = Rig(tmp_path)
    start = logs.START_S
    log = rig.folder / f"run-20260921_141320-{ID}" / f"run-{ID}.wandb"
    parts = [row(0, 0.0, start, a=1), row(1, 1.0, start, a=1)]
    logs.make_log(log, logs.run_record(ID, start=start), *parts)
    rig.settle(log)
    rig.sync()
    cursor(log).unlink()
    logs.make_log(log, row(1, 2.0, start, b=2), append=True)
    rig.settle(log)

    report = rig.sync()

    assert rig.only(report).verdict is Verdict.LIVE, rig.only(report).reason
    assert rig.backend.runs[ID].rows == load(log).rows


def test_a_cursor_that_was_copied_with_its_folder(rig: Rig) -> None:
    """It is as good there: nothing is sent twice."""
    log = rig.run(rows=5, exit_code=None)
    rig.sync()
    copy = rig.folder.parent / "copy" / "wandb" / log.parent.name
    shutil.copytree(log.parent, copy)
    shutil.rmtree(log.parent)
    log = copy / log.name
    logs.make_log(log, logs.row(5), append=True)
    rig.settle(log)
    rig.backend.forget()

    rig.sync(log)

    assert {key[2] for key in rig.backend.written if key[1] == "history"} == {5}


def test_a_cursor_of_an_earlier_version_of_the_program(rig: Rig) -> None:
    """Fields that it does not have mean what they meant then."""
    log = rig.run(rows=5, exit_code=None)
    rig.sync()
    document = unsealed(log)
    old = ("target", "entity", "project", "run_id", "storage_id", "base", "step_shift", "offset", "sent", "prefix")
    old += ("config", "summary", "files", "dropped", "exit_code", "size", "complete", "version")
    cursor(log).write_text(json.dumps({key: document[key] for key in old}))
    logs.make_log(log, logs.row(5), append=True)
    rig.settle(log)
    rig.backend.forget()

    assert rig.only(rig.sync()).verdict is Verdict.LIVE

    assert {key[2] for key in rig.backend.written if key[1] == "history"} == {5}


def grown(rig: Rig) -> Path:
    log = rig.run(rows=5, exit_code=None)
    rig.sync()
    logs.make_log(log, logs.row(5), append=True)
    rig.settle(log)
    rig.backend.forget()
    return log


def test_a_run_that_others_made_again_is_not_overwritten(rig: Rig) -> None:
    """Same id, same storage id, other rows: a log that grew sends nothing there."""
    grown(rig)
    theirs = [{"_step": step, "_timestamp": 7.0 + step} for step in range(9)]
    run = rig.backend.runs[ID]
    run.lines["history"] = dict(enumerate(map(json.dumps, theirs)))

    report = rig.sync()

    assert rig.only(report).verdict is Verdict.FAILED
    assert "deleted and made again" in rig.only(report).reason
    assert "--id NEW" in rig.only(report).reason
    assert run.rows == theirs
    assert not rig.backend.written


def test_a_run_that_was_emptied_is_filled_again(rig: Rig) -> None:
    """The server has the run, and none of its rows: all of them go again."""
    log = grown(rig)
    rig.backend.runs[ID].lines["history"].clear()

    rig.sync()

    assert rig.backend.runs[ID].rows == load(log).rows


def test_a_run_that_was_deleted_is_made_again(rig: Rig) -> None:
    """The announcement says that it is new: everything goes again, from 0."""
    log = grown(rig)
    del rig.backend.runs[ID]

    report = rig.sync()

    assert rig.only(report).verdict is Verdict.LIVE, rig.only(report).reason
    assert rig.backend.runs[ID].rows == load(log).rows


@pytest.mark.parametrize("status", [404, 409, 410])
@pytest.mark.parametrize("operation", ["UpsertBucket", "stream"])
def test_a_run_that_is_deleted_for_good(rig: Rig, operation: str, status: int) -> None:
    """The server refuses it: the reason says what to do, and no row of another run is touched."""
    grown(rig)
    rig.backend.before = on(operation, Answer(status, {}, b"run was deleted"))

    report = rig.sync(retry_for=0)

    assert rig.only(report).verdict in {Verdict.FAILED, Verdict.PARTIAL}
    assert "--id NEW" in rig.only(report).reason or rig.only(report).try_again, rig.only(report).reason


# -- earlier logs are not here ---------------------------------------------------------------------------------------------


def elsewhere(rig: Rig, name: str, **options: Any) -> None:
    """A log that was synced from another machine."""
    log = segment(rig, name, **options)
    rig.sync(log)
    shutil.rmtree(log.parent)
    rig.backend.forget()


def environment(name: str) -> Any:
    record = logs.environment_record(writer_id=f"writer-{name}")
    record.environment.started_at.CopyFrom(logs.timestamp(start_of(name)))
    return record


def test_a_resumed_log_goes_on_behind_the_servers_rows(rig: Rig) -> None:
    """Lines, steps, time, config, tags and summary keys of a log that only the server knows are kept."""
    best = logs.summary_record({"only_a": 5})
    elsewhere(rig, "A", span=(0, 60), more=[environment("A"), best], tags=["old"], notes="as it was")

    report = rig.sync(segment(rig, "B", (0, 10), more=[environment("B")]))

    run = rig.backend.runs[RUN]
    assert rig.only(report).verdict is Verdict.SYNCED, rig.only(report).reason
    state = held(rig)
    assert [found["_step"] for found in run.rows] == list(range(70))
    assert state["samples"] == [0.0, 60.0, 60.0, 70.0]
    assert state["console"] == ["A0", "A20", "A40", "B0"]
    assert state["config"] == ["from_A", "from_B"]
    assert list(run.config["_wandb"]["value"]["e"]) == ["writer-A", "writer-B"]
    assert (run.variables["tags"], run.variables["notes"]) == (["old"], "as it was")
    assert run.summary["only_a"] == 5
    assert run.summary["_wandb"] == {"runtime": 70}
    rig.backend.forget()
    rig.sync()
    assert rig.backend.requests == []


def test_a_resumed_log_that_grows_keeps_what_it_inherited(rig: Rig) -> None:
    """The cursor remembers it: later syncs ask for nothing but the last row."""
    elsewhere(rig, "A", span=(0, 60))
    log = segment(rig, "B", (0, 10), exit_code=None)
    rig.sync(log)
    logs.make_log(log, row(10, 10.0, start_of("B"), who="B"), append=True)
    rig.settle(log, 3600)

    rig.sync(log)

    state = held(rig)
    assert [found["_step"] for found in rig.backend.runs[RUN].rows] == list(range(71))
    assert (state["config"], state["last_runtime"]) == (["from_A", "from_B"], 70.0)


def test_steps_that_only_the_server_has_stay(rig: Rig) -> None:
    """A later log that goes back would replace rows of which there is no other copy: both are kept, and it is said."""
    elsewhere(rig, "A")

    report = rig.sync(segment(rig, "B"))

    assert held(rig)["rows"] == [("A", 0, 99), ("B", 60, 159)]
    assert rig.only(report).verdict is Verdict.SYNCED
    assert "steps 60 to 99 are at the server from a log that is not here" in rig.only(report).reason


def test_with_the_policy_first_the_servers_steps_count(rig: Rig) -> None:
    """What this log has of them is left out."""
    elsewhere(rig, "A")

    report = rig.sync(segment(rig, "B"), overlap="first")

    assert held(rig)["rows"] == [("A", 0, 99), ("B", 100, 159)]
    assert "left out: 40 rows" in rig.only(report).reason


def test_a_resumed_log_that_is_older_than_the_servers_rows_is_refused(rig: Rig) -> None:
    """Neither its steps nor its time are later: where it belongs, only the others could tell."""
    elsewhere(rig, "B", span=(0, 50))

    report = rig.sync(segment(rig, "A", (0, 50), resume=True))

    assert rig.only(report).verdict is Verdict.FAILED
    assert "later than the start of this log" in rig.only(report).reason
    assert held(rig)["rows"] == [("B", 0, 49)]


def test_the_lost_cursor_of_a_log_behind_others_is_no_reason_to_guess(rig: Rig) -> None:
    """Its rows are there, but where its console begins nobody knows: nothing is written."""
    elsewhere(rig, "A")
    log = segment(rig, "B")
    rig.sync(log)
    cursor(log).unlink()
    marker(log).unlink()
    rig.backend.forget()

    report = rig.sync(log)

    assert rig.only(report).verdict is Verdict.FAILED
    assert not rig.backend.written


def test_a_missing_log_that_turns_up_is_put_in_its_place(rig: Rig) -> None:
    """It was synced from elsewhere, and is here now: the same lines, and the others behind it."""
    first = segment(rig, "A", (0, 60))
    kept = first.read_bytes()
    rig.sync(first)
    shutil.rmtree(first.parent)
    rig.sync(segment(rig, "B"))
    first.parent.mkdir()
    first.write_bytes(kept)
    rig.settle(first, 3600)

    report = rig.sync(first)

    assert report.exit_code == 0, [run.reason for run in report.runs]
    assert held(rig)["rows"] == [("A", 0, 59), ("B", 60, 159)]


def test_preempting_and_later_run_records_arrive(rig: Rig) -> None:
    """Name, notes and tags that change after the start, and the word that the run is about to be cut off."""
    later = logs.run_record(ID, display_name="late name", tags=["x", "y"], notes="late")
    preempting = messages.Record(preempting=messages.Empty())
    log = rig.run(rows=3, exit_code=None)
    logs.make_log(log, later, logs.row(3), preempting, logs.exit_record(143), append=True)
    rig.settle(log)

    rig.sync()

    run = rig.backend.runs[ID]
    assert run.rows == load(log).rows
    said = {key: run.variables[key] for key in ("displayName", "tags", "notes")}
    assert said == {"displayName": "late name", "tags": ["x", "y"], "notes": "late"}
    assert any(body.get("preempting") for body in rig.backend.bodies())
    assert run.exit_code == 143


def test_an_older_copy_of_a_log_overwrites_nothing(rig: Rig, tmp_path: Path) -> None:
    """The server has rows of the log that the copy lacks; a later log beside the copy would be written over them."""
    log = segment(rig, "A", more=[environment("A")])
    rig.sync(log)
    shutil.rmtree(log.parent)
    old = segment(rig, "A", (0, 50), exit_code=None, more=[environment("A")])
    later = segment(rig, "B", (100, 60))

    for paths in ([old], [old, later]):
        report = rig.sync(*paths)

        assert {run.verdict for run in report.runs} == {Verdict.FAILED}
        assert held(rig)["rows"] == [("A", 0, 99)]


def test_a_lost_cursor_of_a_log_that_was_sent_in_part_behind_others(rig: Rig) -> None:
    """Its last row is there, behind rows of logs that are not here: to begin at line 0 would write over those."""
    elsewhere(rig, "A", span=(0, 10))
    log = segment(rig, "B", (10, 5), exit_code=None)
    rig.sync(log)
    cursor(log).unlink()
    marker(log).unlink()
    rows = [row(step, step - 10.0, start_of("B"), who="B") for step in range(15, 60)]
    logs.make_log(log, *rows, append=True)
    rig.settle(log, 3600)

    report = rig.sync(log)

    assert rig.only(report).verdict is Verdict.FAILED
    assert held(rig)["rows"] == [("A", 0, 9), ("B", 10, 14)]


def test_a_server_that_counts_behind_gives_no_place(rig: Rig) -> None:
    """A new log goes behind rows that were acknowledged, not behind those that the server has counted so far."""
    segment(rig, "A")
    middle = segment(rig, "B")
    rig.sync()
    shutil.rmtree(rig.folder / f"run-20260921_141320-{RUN}")
    segment(rig, "C")
    status = rig.backend._on_runresumestatus

    def lagging(variables: dict[str, Any]) -> Any:
        found = status(variables)
        found["model"]["bucket"]["historyLineCount"] -= 30
        return found

    rig.backend._on_runresumestatus = lagging  # type: ignore[method-assign]
    report = rig.sync()

    assert held(rig)["rows"] == [("A", 0, 59), ("B", 60, 159)]
    assert report.exit_code == 75, [run.reason for run in report.runs]
    rig.backend._on_runresumestatus = status  # type: ignore[method-assign]
    assert rig.sync().exit_code == 0
    assert held(rig)["rows"] == [("A", 0, 59), ("B", 60, 159), ("C", 160, 199)]
    assert middle.exists()


def test_samples_that_another_machine_sent_are_not_overwritten(rig: Rig) -> None:
    """A log without rows went behind this one from elsewhere; when this one grows, its samples would take those lines."""
    log = segment(rig, "A", exit_code=None)
    rig.sync(log)
    kept = cursor(log).read_bytes()
    other = segment(rig, "B", (0, 0), exit_code=None)
    moved = rig.folder.parent / "elsewhere" / other.parent.name
    moved.parent.mkdir()
    shutil.move(other.parent, moved)
    assert rig.sync(moved).exit_code == 0
    before = held(rig)["samples"]
    assert cursor(log).read_bytes() == kept
    logs.make_log(log, row(100, 101.0, start_of("A"), who="A"), logs.sample(101, start=start_of("A")), append=True)
    rig.settle(log, 3600)

    report = rig.sync(log)

    assert rig.only(report).verdict is Verdict.FAILED, rig.only(report).reason
    assert held(rig)["samples"] == before


def grow(rig: Rig, log: Path, name: str, step: int) -> None:
    """One more row, behind all that the log has."""
    logs.make_log(log, row(step, 200.0, start_of(name), who=name), append=True)
    rig.settle(log, 3600)


def test_a_log_that_grows_behind_one_that_is_gone_overwrites_nothing(rig: Rig) -> None:
    """Another machine has put a later log behind it meanwhile, whose rows lie where its own would go."""
    elsewhere(rig, "A", span=(0, 60))
    log = segment(rig, "B", (60, 10), exit_code=None)
    first = segment(rig, "A", (0, 60))
    rig.sync(first, log)
    shutil.rmtree(first.parent)
    grow(rig, log, "B", 70)
    assert rig.only(rig.sync(log)).verdict is Verdict.SYNCED
    other = segment(rig, "C", (71, 5))
    moved = rig.folder.parent / "elsewhere" / other.parent.name
    moved.parent.mkdir()
    shutil.move(other.parent, moved)
    rig.sync(moved)
    there = held(rig)["rows"]
    assert there == [("A", 0, 59), ("B", 60, 70), ("C", 71, 75)]
    grow(rig, log, "B", 71)

    report = rig.sync(log)

    assert rig.only(report).verdict is Verdict.FAILED
    assert "others have written to it" in rig.only(report).reason
    assert held(rig)["rows"] == there


def test_the_first_row_of_a_log_behind_one_that_is_gone(rig: Rig) -> None:
    """The last row at the server is of the log that is gone, as it was when this one was placed."""
    first, log = segment(rig, "A"), segment(rig, "B", (0, 0), exit_code=None)
    rig.sync()
    shutil.rmtree(first.parent)
    grow(rig, log, "B", 100)

    report = rig.sync(log)

    assert rig.only(report).verdict is Verdict.SYNCED, rig.only(report).reason
    assert held(rig)["rows"] == [("A", 0, 99), ("B", 100, 100)]


def test_samples_that_a_server_has_not_counted_yet_are_not_overwritten(rig: Rig) -> None:
    """Where an earlier log is gone, a new one goes behind all lines that were acknowledged."""
    gone = segment(rig, "A")
    segment(rig, "B")
    rig.sync()
    shutil.rmtree(gone.parent)
    segment(rig, "C")
    status = rig.backend._on_runresumestatus

    def lagging(variables: dict[str, Any]) -> Any:
        found = status(variables)
        found["model"]["bucket"] |= {"eventsLineCount": 2, "logLineCount": 3}
        return found

    rig.backend._on_runresumestatus = lagging  # type: ignore[method-assign]
    assert rig.sync().exit_code == 0

    assert held(rig)["samples"] == [0.0, 100.0, 100.0, 200.0, 200.0, 240.0]
    assert len(held(rig)["console"]) == 12


def test_a_log_that_belongs_before_one_that_is_gone_is_refused(rig: Rig) -> None:
    """Where its lines would go, only the others could tell."""
    first, last = segment(rig, "A", (0, 60)), segment(rig, "C")
    rig.sync()
    shutil.rmtree(last.parent)
    there = held(rig)["rows"]
    middle = segment(rig, "B")

    report = rig.sync(first, middle)

    assert {run.verdict for run in report.runs} == {Verdict.FAILED}
    assert held(rig)["rows"] == there


def test_a_late_log_before_one_that_went_behind_rows_of_others_is_refused(rig: Rig) -> None:
    """It would begin at line 0, where rows are of which there is no copy here."""
    elsewhere(rig, "A", span=(0, 60))
    rig.sync(segment(rig, "C"))
    segment(rig, "B")
    there = held(rig)["rows"]

    report = rig.sync()

    assert held(rig)["rows"] == there
    assert {run.verdict for run in report.runs} == {Verdict.FAILED}
