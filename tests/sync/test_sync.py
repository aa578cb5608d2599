"""Whole syncs against a backend that is a Python object: what it holds in the end, what was asked of it, and the verdict."""

from __future__ import annotations

import json
import os
import random
from pathlib import Path
from typing import Any

import pytest
from runferry.logformat import load
from runferry.sync import SyncSettings, Verdict, preview
from runferry.sync.transport import Answer
from support import artifactlogs, logs
from support.fakebackend import URL
from support.syncrig import Rig, cursor, marker, tree, unsealed


def test_everything_in_a_log_is_at_the_server(rig: Rig) -> None:
    """Rows, samples, console, summary, config, the four files of every run, and the exit, equal to what the reader gives."""
    log = rig.run(rows=7, exit_code=3)
    before = tree(rig.folder)

    report = rig.sync()

    state = load(log)
    run = rig.backend.runs["a1b2c3d4"]
    assert run.rows == state.rows
    assert [json.loads(line)["system.cpu"] for line in run.stream("events")] == [12.5, 12.5]
    assert [line.partition(" ")[2] for line in run.stream("console")] == [f"step {step}" for step in range(7)]
    assert run.summary == {**state.summary, "_step": 6, "_wandb": {"runtime": 7}}
    assert run.config["lr"] == {"value": 0.001}
    assert run.config["_wandb"]["value"]["t"] == {"3": [2, 4], "4": "3.11.7", "5": "0.1.0"}
    assert run.config["_wandb"]["value"]["e"]["writer-1"]["startedAt"] == "2026-09-21T14:13:20.500Z"
    assert run.variables["program"] == "train.py"
    assert sorted(run.files) == ["config.yaml", "output.log", "wandb-metadata.json", "wandb-summary.json"]
    assert run.files["output.log"] == b"".join(b"step %d\n" % step for step in range(7))
    assert json.loads(run.files["wandb-summary.json"]) == run.summary
    assert (run.complete, run.exit_code) == (True, 3)
    assert sorted(run.uploaded) == sorted(run.files)
    assert (report.exit_code, rig.only(report).verdict) == (0, Verdict.SYNCED)
    assert marker(log).exists()
    assert tree(rig.folder) == before


def test_rows_go_before_files_and_the_exit_last(rig: Rig) -> None:
    """The exit is said only when all rows are acknowledged and the files have been tried."""
    rig.run()

    rig.sync()

    assert rig.backend.operations() == [
        "RunResumeStatus", "UpsertBucket", "ServerFeaturesQuery", "stream", "CreateRunFiles",
        "put", "put", "put", "put", "stream",
    ]  # fmt: skip
    first, last = rig.backend.bodies()
    assert "complete" not in first
    assert (last["complete"], last["exitcode"]) == (True, 0)


def test_a_second_sync_asks_nothing_of_the_server(rig: Rig) -> None:
    """Nothing has changed, so there is no request at all, and the verdict is the same."""
    rig.run()
    rig.sync()
    rig.backend.forget()

    report = rig.sync()

    assert rig.backend.requests == []
    assert rig.only(report).verdict is Verdict.SYNCED
    assert rig.only(report).rows_sent == 0


def test_a_log_that_grew_sends_only_the_new_rows(rig: Rig) -> None:
    """The marker of the shorter log does not count, and no line is written twice."""
    log = rig.run(rows=5, exit_code=None)
    rig.sync()
    rig.backend.forget()
    logs.make_log(log, logs.row(5), logs.sample(9), logs.output("more\n"), logs.row(6), logs.exit_record(), append=True)
    rig.settle(log)

    report = rig.sync()

    run = rig.backend.runs["a1b2c3d4"]
    assert run.rows == load(log).rows
    assert sorted(rig.backend.written) == [
        ("a1b2c3d4", "console", 5), ("a1b2c3d4", "events", 2), ("a1b2c3d4", "history", 5), ("a1b2c3d4", "history", 6),
    ]  # fmt: skip
    assert rig.backend.operations().count("UpsertBucket") == 1
    assert run.complete
    assert rig.only(report).rows_sent == 2
    assert marker(log).exists()


def test_an_unfinished_console_line_is_written_again_when_it_is_complete(rig: Rig) -> None:
    """What stands behind the last newline is shown, and replaced under the same number once its rest is there."""
    log = rig.run(rows=0, exit_code=None)
    logs.make_log(log, logs.output("whole\npart"), append=True)
    rig.settle(log)
    rig.sync()
    assert [line.partition(" ")[2] for line in rig.backend.runs["a1b2c3d4"].stream("console")] == ["whole", "part"]
    logs.make_log(log, logs.output("ial\n", 3), logs.output("next\n", 4), append=True)
    rig.settle(log)

    rig.sync()

    lines = rig.backend.runs["a1b2c3d4"].stream("console")
    assert [line.partition(" ")[2] for line in lines] == ["whole", "partial", "next"]


def test_the_same_log_gives_the_same_bytes(tmp_path: Path) -> None:
    """Two syncs to two fresh servers send equal requests, so a retry can be compared and nothing depends on the hour."""
    seen = []
    for name in ("a", "b"):
        (tmp_path / name).mkdir()
        rig = Rig(tmp_path / name)
        rig.clock.advance(0 if name == "a" else 5_000_000)
        rig.run(rows=20)
        rig.sync()
        seen.append(
            sorted((request.url, request.body) for operation, request in rig.backend.requests if operation != "put")
        )

    assert seen[0] == seen[1]


def test_large_logs_go_in_bodies_of_bounded_size(rig: Rig) -> None:
    """Bodies are cut by bytes; the cursor follows each of them."""
    rig.run(rows=300)

    rig.sync(body_bytes=4000)

    run = rig.backend.runs["a1b2c3d4"]
    assert [row["_step"] for row in run.rows] == list(range(300))
    assert len(rig.backend.bodies()) > 5
    for body in rig.backend.bodies():
        assert sum(len(line) for part in body.get("files", {}).values() for line in part["content"]) <= 4400
    assert set(rig.backend.written.values()) == {1}


def test_a_young_log_without_exit_is_live(rig: Rig) -> None:
    """Rows are sent, the run is not closed, nothing is marked, and the exit code is 0."""
    log = rig.run(exit_code=None)

    report = rig.sync()

    assert (rig.only(report).verdict, report.exit_code) == (Verdict.LIVE, 0)
    assert len(rig.backend.runs["a1b2c3d4"].rows) == 5
    assert not rig.backend.runs["a1b2c3d4"].complete
    assert not marker(log).exists()
    rig.backend.forget()
    assert rig.only(rig.sync()).verdict is Verdict.LIVE
    assert rig.backend.requests == []


def test_a_stale_log_without_exit_is_complete_and_never_called_finished(rig: Rig) -> None:
    """All rows are there and the verdict says so and that it crashed; no end is made up, so the server shows a crash."""
    log = rig.run(exit_code=None)
    rig.settle(log, 3600)

    report = rig.sync()

    assert rig.only(report).verdict is Verdict.SYNCED
    assert "crashed" in rig.only(report).reason
    assert not rig.backend.runs["a1b2c3d4"].complete
    assert marker(log).exists()


def test_a_live_log_whose_last_write_is_in_flight_is_not_damaged(rig: Rig) -> None:
    """A record that ends on the edge of a page, in a log that was written just now, is still being written."""
    log = rig.run(rows=60, exit_code=None)
    os.truncate(log, 4096)
    rig.settle(log)

    report = rig.sync()

    assert (rig.only(report).verdict, report.exit_code) == (Verdict.LIVE, 0)


def test_overrides_reach_rows_and_files(rig: Rig) -> None:
    """Project, entity, id and job type of the command replace those of the log everywhere."""
    rig.run()

    rig.sync(project="p2", entity="e2", run_id="new", job_type="eval")

    assert list(rig.backend.runs) == ["new"]
    variables = rig.backend.runs["new"].variables
    assert (variables["project"], variables["entity"], variables["jobType"]) == ("p2", "e2", "eval")
    assert {request.url for name, request in rig.backend.requests if name == "stream"} == {
        f"{URL}/files/e2/p2/new/file_stream"
    }


def test_a_dry_run_tells_and_sends_nothing(rig: Rig) -> None:
    """Rows, samples, lines, files and target are named; no request, no file beside the log."""
    log = rig.run(rows=12)
    before = sorted(log.parent.iterdir())

    report = rig.sync(dry_run=True)

    assert "12 of 12 rows, 2 of 2 samples, 12 of 12 console lines" in rig.only(report).reason
    assert rig.backend.requests == []
    assert sorted(log.parent.iterdir()) == before
    assert report.exit_code == 0


def test_a_dry_run_of_what_was_sent_says_that_nothing_is_new(rig: Rig) -> None:
    """Rows, samples, lines, files, artifacts and alerts that the cursor knows are not counted as new; what was added is."""
    log = rig.run(rows=5, exit_code=None)
    (log.parent / "files" / "a.txt").write_text("a")
    told = artifactlogs.alert("look")
    logs.make_log(log, logs.files_record("a.txt"), told, logs.exit_record(), append=True)
    rig.settle(log)
    assert rig.only(rig.sync()).verdict is Verdict.SYNCED
    rig.events.clear()

    reason = rig.only(rig.sync(dry_run=True)).reason

    (event,) = [event for event in rig.events if event.type == "would_send"]
    assert reason.startswith("dry run: nothing to send: (your entity)/proj/")
    assert (event.nothing, event.files, event.alerts) == (True, 5, 1)  # a.txt, and those that every run has
    assert (event.new_rows, event.new_samples, event.new_files, event.new_file_bytes, event.new_alerts) == (0,) * 5
    (log.parent / "files" / "b.txt").write_text("bb")
    logs.make_log(log, logs.row(5), logs.files_record("b.txt"), artifactlogs.alert("again"), append=True)
    reason = rig.only(rig.sync(dry_run=True)).reason
    assert "dry run: 1 of 6 rows, 0 of 2 samples, 0 of 5 console lines" in reason
    assert "2 of 6 files" in reason  # b.txt, and the summary
    assert "1 of 2 alerts" in reason
    assert "nothing to send" not in rig.only(rig.sync(dry_run=True, include_synced=True)).reason


def test_a_damaged_log_that_was_sent_is_nothing_to_do_in_a_plan(rig: Rig) -> None:
    """What is lost is counted; once the log grows, or a file of it is what is missing, there is something to do again."""
    log = rig.run(rows=9)
    data = bytearray(log.read_bytes())
    data[400] ^= 0xFF
    log.write_bytes(data)
    rig.settle(log)
    settings = SyncSettings(base_url=URL, state_dir=rig.state)

    def planned() -> tuple[str, int]:
        (run,) = preview(rig.folder, settings, clock=rig.clock).runs
        return run.todo.value, run.lost

    assert planned() == ("all", 0)
    assert rig.only(rig.sync()).verdict is Verdict.PARTIAL
    assert planned() == ("nothing", 1)
    logs.make_log(log, logs.files_record("gone.txt"), append=True)
    rig.settle(log)
    assert planned() == ("rest", 1)
    assert len(rig.only(rig.sync()).missing) == 2
    assert planned() == ("rest", 0)


def test_a_torn_copy_of_a_run_that_goes_on_lacks_nothing_for_good(rig: Rig) -> None:
    """A plan says that its end is torn, until the next copy has come; one behind an exit record is lost."""
    log = rig.run(rows=9, exit_code=None)
    whole = log.read_bytes()
    settings = SyncSettings(base_url=URL, state_dir=rig.state)

    def planned() -> tuple[str, int, bool]:
        (run,) = preview(rig.folder, settings, clock=rig.clock).runs
        return run.todo.value, run.lost, run.torn

    log.write_bytes(whole[:-5])
    rig.settle(log)
    assert rig.only(rig.sync()).verdict is Verdict.PARTIAL
    assert planned() == ("nothing", 0, True)
    log.write_bytes(whole)
    rig.settle(log)
    assert planned() == ("rest", 0, False)
    assert rig.only(rig.sync()).verdict is Verdict.LIVE
    logs.make_log(log, logs.exit_record(), append=True)
    log.write_bytes(log.read_bytes() + b"x" * 9)
    rig.settle(log)
    assert rig.only(rig.sync()).verdict is Verdict.PARTIAL
    assert planned() == ("nothing", 1, False)


def test_a_key_that_is_refused_is_told_with_where_it_is_from(rig: Rig) -> None:
    """In one sentence, with the server's message and without the JSON around it."""
    for number in range(3):
        rig.run(run_id=f"k{number}")
    rig.backend.before = lambda *_: Answer(401, {}, b'{"error": "user is not logged in"}')

    report = rig.sync(jobs=1)

    (reason,) = {run.reason for run in report.runs}
    assert reason.startswith("the server does not accept the key from test (")
    assert reason.endswith(": HTTP 401: user is not logged in)")
    assert report.exit_code == 2


def test_config_changes_and_metrics_arrive_with_the_first_upsert(rig: Rig) -> None:
    """Later changes and deletions are in the one config that is sent; metric definitions point to their step metric."""
    from runferry.logformat import messages

    metric = messages.MetricRecord(
        glob_name="val/*", step_metric="epoch", options=messages.MetricOptions(step_sync=True)
    )
    low = messages.MetricRecord(name="loss", options=messages.MetricOptions(defined=True))
    low.summary.min = True
    log = logs.make_log(
        rig.folder / "run-c.wandb",
        logs.run_record("c", config={"a": 1, "gone": 2, "nest": {"x": 1}}),
        logs.config_record({"b": 2, "nest": {"y": 2}}, remove=("gone",)),
        messages.Record(metric=metric),
        messages.Record(metric=low),
        logs.row(0, {"loss": 3}),
        logs.row(1, {"loss": 5}),
        logs.exit_record(),
    )
    rig.settle(log)

    rig.sync()

    run = rig.backend.runs["c"]
    assert {key: entry["value"] for key, entry in run.config.items() if key != "_wandb"} == {
        "a": 1, "b": 2, "nest": {"x": 1, "y": 2},
    }  # fmt: skip
    assert run.config["_wandb"]["value"]["m"] == [
        {"1": "epoch", "6": [], "7": []}, {"2": "val/*", "5": 1, "6": [1], "7": []}, {"1": "loss", "6": [3], "7": [1]},
    ]  # fmt: skip
    assert run.summary["loss"] == {"min": 3}
    assert rig.backend.operations().count("UpsertBucket") == 1


def test_an_oversized_value_is_left_out_and_remembered(rig: Rig) -> None:
    """The row keeps its place and its other keys; the verdict is partial now and at every later sync."""
    log = logs.make_log(
        rig.folder / "run-o.wandb",
        logs.run_record("o"),
        logs.row(0, {"a": 1}),
        logs.row(1, {"a": 2, "huge": "x" * 11_000_000}),
        logs.row(2, {"a": 3}),
        logs.exit_record(),
    )
    rig.settle(log)

    report = rig.sync()

    assert [row["a"] for row in rig.backend.runs["o"].rows] == [1, 2, 3]
    assert (rig.only(report).verdict, report.exit_code) == (Verdict.PARTIAL, 1)
    assert any("step 1: huge" in item for item in rig.only(report).missing)
    assert any("step 1: huge" in item for item in rig.only(rig.sync()).missing)


def test_a_run_for_which_there_is_no_memory_says_what_to_do(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    """A limit of the job is no fault of ours."""
    rig.run()

    def read(*_: Any, **__: Any) -> Any:
        raise MemoryError

    monkeypatch.setattr("runferry.sync.scan.Scan.read", read)
    report = rig.only(rig.sync())

    assert (report.verdict, "fewer --jobs" in report.reason) == (Verdict.FAILED, True)


def test_a_fault_of_ours_in_one_run_does_not_stop_the_others(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    """An unexpected exception is that run's verdict, with its place, and nobody else's."""
    for name in ("bad", "good"):
        rig.run(run_id=name)
    from runferry.sync.scan import Scan

    real = Scan.read

    def read(scan: Scan, **options: Any) -> Any:
        if scan._log.name == "run-bad.wandb":
            raise ZeroDivisionError("oops")
        return real(scan, **options)

    monkeypatch.setattr(Scan, "read", read)

    report = rig.sync()

    verdicts = {run.run: run for run in report.runs}
    assert verdicts["good"].verdict is Verdict.SYNCED
    assert verdicts["bad"].verdict is Verdict.FAILED
    assert "ZeroDivisionError" in verdicts["bad"].reason


def test_the_package_is_the_function_of_the_public_face(rig: Rig) -> None:
    """`runferry.sync(paths)` works although `runferry.sync` is a package as well."""
    import runferry

    log = rig.run()

    report = runferry.sync([log], SyncSettings(base_url=URL, state_dir=rig.state, dry_run=True))

    assert [run.verdict for run in report.runs] == [Verdict.SKIPPED]


def test_a_reporter_that_fails_does_not_stop_the_sync(rig: Rig, capsys: pytest.CaptureFixture[str]) -> None:
    """A closed pipe costs the progress shown, and nothing else."""
    rig.run()

    def fail(_: Any) -> None:
        raise BrokenPipeError("gone")

    rig.events = type("Broken", (list,), {"append": lambda _, event: fail(event)})()

    assert rig.only(rig.sync()).verdict is Verdict.SYNCED
    assert capsys.readouterr().err.count("no more progress") == 1


def test_output_that_failed_to_arrive_is_made_again(rig: Rig) -> None:
    """output.log is made from the log, so a sync that has nothing but it to send reads the console once more."""
    log = rig.run()
    rig.backend.before = lambda _, operation, request: (
        Answer(403, {}, b"no") if operation == "put" and request.url.endswith("output.log") else None
    )
    assert rig.only(rig.sync()).verdict is Verdict.PARTIAL
    rig.backend.before = lambda *_: None
    rig.backend.forget()

    report = rig.sync(log)

    assert rig.only(report).verdict is Verdict.SYNCED
    assert rig.backend.operations() == ["CreateRunFiles", "put", "stream"]
    assert rig.backend.runs["a1b2c3d4"].files["output.log"].count(b"\n") == 5


@pytest.mark.parametrize("seed", range(8))
def test_the_summary_is_the_fold_of_the_log_whatever_the_rows(tmp_path: Path, seed: int) -> None:
    """Rows of changing keys, nulls, whole objects, summary records between them: the server's summary is the reader's."""
    rig = Rig(tmp_path)
    rng = random.Random(seed)
    records = [logs.run_record("s")]
    for step in range(60):
        keys = rng.choice([("a", "b"), ("a", "b"), ("a", ("n", "x")), ("n", "c")])
        values = {key: rng.choice([None, step, step / 3, "text", {"y": step}, b"NaN"]) for key in keys}
        records.append(logs.row(step, values))
        if rng.random() < 0.1:
            records.append(logs.summary_record({"a": "set", "_wandb": {"runtime": step}}))
    log = logs.make_log(rig.folder / "run-s.wandb", *records, logs.exit_record())
    rig.settle(log)

    rig.sync()

    expected = {"_wandb": {"runtime": 7}, **load(log).summary, "_step": 59}
    assert json.dumps(rig.backend.runs["s"].summary) == json.dumps(expected, sort_keys=True)
    cursor(log).write_text(json.dumps({**unsealed(log), "complete": False}))
    rig.backend.forget()
    rig.sync()  # reads the log by the other way
    assert rig.backend.requests == []


def test_a_null_in_the_last_row_leaves_the_value_before_it_in_the_summary(rig: Rig) -> None:
    """Also when the rows are folded on their way, where a row that is overwritten is passed over."""
    rig.settle(
        logs.make_log(
            rig.folder / "run-n.wandb",
            logs.run_record("n"),
            *(logs.row(None, {"a": value, "_step": step}) for step, value in enumerate((1, 2, None))),
        )
    )

    rig.sync()

    assert rig.backend.runs["n"].summary["a"] == 2


def test_the_runtime_is_that_of_the_row_that_ran_longest(rig: Rig) -> None:
    """Rows that leave nothing else in the summary count for it, as when the log is read whole."""
    rows = [logs.row(None, {"a": 1, "_runtime": at, "_step": step}) for step, at in enumerate((1.0, 9.5, 3.0))]
    log = logs.make_log(rig.folder / "run-t.wandb", logs.run_record("t"), *rows)
    rig.settle(log)

    rig.sync()

    assert rig.backend.runs["t"].summary["_wandb"]["runtime"] == int(load(log).runtime) == 9


def test_a_row_that_is_no_row_is_damage_and_takes_no_line(rig: Rig) -> None:
    """A history record with a good checksum that cannot be decoded is left out and reported; its neighbours move up."""
    from runferry.logformat import FILE_HEADER, Framer

    out, framer = bytearray(FILE_HEADER), Framer()
    broken = b"\x08\x03\x12\x04\x0a\x7f\x0a\x01"  # an item that runs past its record
    payloads = [logs.run_record("r").SerializeToString(), logs.row(0).SerializeToString(), broken]
    for payload in [*payloads, logs.row(2).SerializeToString(), logs.exit_record().SerializeToString()]:
        framer.append(payload, out)
    log = rig.folder / "run-r.wandb"
    log.write_bytes(out)
    rig.settle(log)

    report = rig.sync()

    assert [row["_step"] for row in rig.backend.runs["r"].rows] == [0, 2]
    assert (rig.only(report).verdict, report.exit_code) == (Verdict.PARTIAL, 1)
    assert "bad_proto" in rig.only(report).reason
    again = rig.sync()
    assert rig.only(again).missing == rig.only(report).missing
