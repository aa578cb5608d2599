"""A large log is sent while it is read for the first time: what arrives is what arrives when it is read first."""

from __future__ import annotations

import json
import os
import tempfile
from pathlib import Path
from typing import Any
from unittest import mock

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from runferry.cli.syncview import verdict_line
from runferry.logformat import load, messages
from runferry.sync import Verdict, onereading
from runferry.sync.onereading import OneReading
from runferry.sync.report import Progress, Started
from runferry.sync.transport import Answer
from support import logs
from support.syncrig import Rig, cursor

RUN = "a1b2c3d4"
WIDE = "x" * 34_000  # a row that fills a block: what comes behind it is another batch
SMALL_BODY = 64 * 1024


def at_once(*, yes: bool = True) -> Any:
    """Send a log while it is read, or read it first, however large it is."""
    return mock.patch.object(onereading, "SMALLEST", 0 if yes else 1 << 60)


def spied() -> Any:
    """The mock that sees whether a log was sent while it was read."""
    return mock.patch.object(OneReading, "__iter__", autospec=True, side_effect=OneReading.__iter__)


def wide(step: int, **values: Any) -> Any:
    return logs.row(step, {"wide": WIDE, **values})


def put(folder: Path, *records: Any, end: bool = True) -> Path:
    """A log of a run in a folder of its own."""
    log = folder / f"offline-run-20260921_141320-{RUN}" / f"run-{RUN}.wandb"
    tail = [logs.exit_record()] if end else []
    return logs.make_log(log, logs.header_record(), logs.run_record(RUN, config={"lr": 1}), *records, *tail)


def defined(name: str, how: str) -> Any:
    return messages.Record(metric=messages.MetricRecord(name=name, summary=messages.MetricSummary(**{how: True})))


ENTRY = st.sampled_from(
    ["row", "row", "row", "wide", "wide", "part", "summary", "config", "console", "sample", "alert", "telemetry", "name",
     "metric", "run"]
)  # fmt: skip


def records(script: list[str]) -> list[Any]:
    """The records of a log."""
    found: list[Any] = []
    step = -1
    for at, entry in enumerate(script):
        step += entry in ("row", "wide")
        found.append(
            {
                "row": lambda step=step, at=at: logs.row(step, {"a": at, "b": at / 2}),
                "wide": lambda step=step, at=at: wide(step, a=at),
                "part": lambda step=step, at=at: logs.row(max(0, step), {"c": at}),
                "summary": lambda at=at: logs.summary_record({"best": at}),
                "config": lambda at=at: logs.config_record({f"c{at % 3}": at}),
                "console": lambda at=at: logs.output(f"line {at}\nrest"),
                "sample": lambda at=at: logs.sample(at),
                "alert": lambda at=at: messages.Record(alert=messages.AlertRecord(title=f"t{at}", text="x")),
                "telemetry": lambda at=at: messages.Record(
                    telemetry=messages.TelemetryRecord(python_version=f"3.{at}")
                ),
                "name": lambda at=at: messages.Record(run=messages.RunRecord(run_id=RUN, display_name=f"n{at}")),
                "metric": lambda: defined("a", "min"),
                "run": lambda: logs.run_record(RUN, config={"again": True}),
            }[entry]()
        )
    return found


def outcome(log_bytes: bytes, *, yes: bool) -> Any:
    """What the server holds, what the verdict says and what the cursor keeps."""
    with tempfile.TemporaryDirectory() as folder, at_once(yes=yes):
        rig = Rig(Path(folder))
        log = put(rig.folder)
        log.write_bytes(log_bytes)
        rig.settle(log)
        report = rig.only(rig.sync(body_bytes=SMALL_BODY))
        runs = rig.backend.runs
        told = rig.backend.bodies("NotifyScriptableRunAlert")
        kept = json.loads(cursor(log).read_text()) if cursor(log).exists() else None
        said = (report.verdict, report.reason, report.rows, report.rows_sent, report.missing, report.files_sent)
        return {run_id: vars(run) for run_id, run in runs.items()}, told, said, _general(kept)


def _general(kept: Any) -> Any:
    """A cursor without what differs from one folder to the next."""
    if kept is not None:
        kept["gaps"] = sorted(kept["gaps"])
    return kept


@settings(max_examples=60, deadline=None)
@given(st.lists(ENTRY, max_size=12), st.booleans(), st.none() | st.integers(8, 10**6), st.none() | st.integers(1, 500))
def test_both_ways_leave_the_same(script: list[str], end: bool, spoilt: int | None, cut: int | None) -> None:
    """Whatever stands behind the first rows, wherever a byte is wrong, and wherever the log ends."""
    with tempfile.TemporaryDirectory() as folder:
        data = bytearray(put(Path(folder), *records(script), end=end).read_bytes())
    if spoilt is not None:
        data[spoilt % len(data)] ^= 0xFF
    whole = bytes(data[: len(data) - (cut or 0)])

    assert outcome(whole, yes=True) == outcome(whole, yes=False)


def test_the_server_hears_late_words_before_the_last_one(rig: Rig) -> None:
    """What is configured behind the first rows is announced once the rows are sent, and before the exit."""
    rig.settle(put(rig.folder, *map(wide, range(12)), logs.config_record({"late": 7}), wide(12)))

    with at_once(), spied() as used:
        rig.sync(body_bytes=SMALL_BODY)

    asked = rig.backend.operations()
    run = rig.backend.runs[RUN]
    assert used.called
    assert asked.count("UpsertBucket") == 2
    assert asked.index("UpsertBucket") < asked.index("stream")
    assert "stream" in asked[-asked[::-1].index("UpsertBucket") :]
    assert (run.config["lr"], run.config["late"]) == ({"value": 1}, {"value": 7})
    assert (len(run.rows), run.complete) == (13, True)


def test_a_log_that_says_nothing_more_is_announced_once(rig: Rig) -> None:
    """One announcement, as for a log that was read first."""
    rig.settle(put(rig.folder, *map(wide, range(3))))

    with at_once(), spied() as used:
        rig.sync()

    assert used.called
    assert rig.backend.operations().count("UpsertBucket") == 1


@pytest.mark.parametrize("late", [defined("a", "min"), logs.run_record(RUN)])
def test_a_log_that_turns_out_otherwise_is_read_whole(rig: Rig, late: Any) -> None:
    """A metric with a summary of its own, or a run record among rows: the sync goes on from what it had sent."""
    log = put(
        rig.folder, *(wide(step, a=9 - step) for step in range(4)), late, *(wide(step, a=5) for step in range(4, 7))
    )
    rig.settle(log)

    with at_once(), spied() as used:
        report = rig.only(rig.sync(body_bytes=SMALL_BODY))

    run = rig.backend.runs[RUN]
    assert used.call_count == 1
    assert (report.verdict, report.rows, report.rows_sent) == (Verdict.SYNCED, 7, 7)
    assert run.rows == load(log).rows
    assert run.summary["a"] == load(log).summary["a"]


def test_a_run_that_the_server_holds_is_read_first(rig: Rig) -> None:
    """Without a cursor: whose rows those are shows only in the whole log."""
    log = put(rig.folder, *map(wide, range(3)))
    rig.settle(log)
    rig.sync()
    cursor(log).unlink()
    log.with_name(log.name + ".synced").unlink()

    with at_once(), spied() as used:
        report = rig.only(rig.sync())

    assert not used.called
    assert (report.verdict, report.rows, report.rows_sent) == (Verdict.SYNCED, 3, 0)


def test_small_logs_are_read_first(rig: Rig) -> None:
    """Reading them twice costs little, and the number of their rows is told from the start."""
    rig.settle(put(rig.folder, *map(wide, range(3))))

    with spied() as used:
        rig.sync()

    assert not used.called
    assert [event.estimated for event in rig.events if isinstance(event, (Started, Progress))] == [False, False]


def test_rows_are_told_by_size_until_the_end(rig: Rig) -> None:
    """Numbers are marked as estimates, come near, never fall behind what was sent, and the last is exact."""
    rig.settle(put(rig.folder, *map(wide, range(40))))

    with at_once():
        rig.sync(body_bytes=SMALL_BODY)

    started = next(event for event in rig.events if isinstance(event, Started))
    steps = [event for event in rig.events if isinstance(event, Progress)]
    assert started.estimated
    assert 20 <= started.rows == started.new_rows <= 80
    assert steps[0].estimated
    assert all(event.rows <= event.of <= 80 for event in steps)
    assert (steps[-1].rows, steps[-1].of, steps[-1].estimated) == (40, 40, False)


def test_a_sync_that_is_broken_off_says_what_it_knows(rig: Rig) -> None:
    """The rows that were not read yet are told by the log's size, and its end by its last blocks."""
    rig.settle(put(rig.folder, *map(wide, range(40))))
    rig.backend.before = lambda number, *_: Answer(500, {}, b"down") if number > 6 else None

    with at_once():
        report = rig.only(rig.sync(body_bytes=SMALL_BODY, retry_for=0.0))

    assert 0 < report.rows_sent < 30
    assert (report.verdict, report.estimated, report.ended) == (Verdict.PARTIAL, True, True)
    assert 30 <= report.rows <= 50
    assert "  about " in verdict_line(report)
    rig.backend.before = lambda *_: None
    again = rig.only(rig.sync(body_bytes=SMALL_BODY))
    assert (again.rows, again.estimated, again.ended) == (40, False, True)


def test_a_sync_that_stops_at_any_request_is_made_good(rig: Rig, tmp_path: Path) -> None:
    """Each request in its turn is the last one that the server answers; the next sync leaves what one sync would have left."""
    late = [logs.config_record({"late": 7}), *map(wide, range(4, 8)), logs.output("end\n")]
    content = put(tmp_path / "source", *map(wide, range(4)), *late).read_bytes()
    expected = outcome(content, yes=True)[0]
    for last in range(1, 40):
        with tempfile.TemporaryDirectory() as folder, at_once():
            broken = Rig(Path(folder))
            log = put(broken.folder)
            log.write_bytes(content)
            broken.settle(log)
            refused = Answer(500, {}, b"down")
            broken.backend.before = lambda number, *_, last=last, refused=refused: refused if number > last else None
            first = broken.only(broken.sync(body_bytes=SMALL_BODY, retry_for=0.0))
            broken.backend.before = lambda *_: None
            again = broken.only(broken.sync(body_bytes=SMALL_BODY))
            assert again.verdict is Verdict.SYNCED
            ours = {run_id: vars(run) for run_id, run in broken.backend.runs.items()}
            for run in (*ours.values(), *expected.values()):
                run["uploaded"] = sorted(set(run["uploaded"]))
            assert ours == expected
            if first.verdict is Verdict.SYNCED:
                return
    pytest.fail("no sync came to its end")


@pytest.mark.parametrize("lost", ["cut", "gone", "other"])
def test_a_log_that_is_changed_meanwhile_is_never_called_synced(rig: Rig, lost: str) -> None:
    """Cut, removed or replaced after its first rows were read: failed, named, not marked."""
    log = put(rig.folder, *map(wide, range(12)))
    rig.settle(log)
    other = put(rig.folder.parent, *map(wide, range(12)))
    act = {"cut": lambda: os.truncate(log, 200_000), "gone": log.unlink, "other": lambda: other.replace(log)}[lost]
    left = [act]

    def change(_: int, operation: str, __: Any) -> None:
        if operation == "UpsertBucket" and left:
            left.pop()()

    rig.backend.before = change
    with at_once(), spied() as used:
        report = rig.only(rig.sync(body_bytes=SMALL_BODY))

    assert used.called
    assert report.verdict is Verdict.FAILED
    assert "changed while it was read" in report.reason or "No such file" in report.reason
    assert not log.with_name(log.name + ".synced").exists()


def test_a_log_that_grows_meanwhile_is_sent_as_far_as_it_came(rig: Rig) -> None:
    """What is appended in time goes too, and is in the summary and the verdict."""
    log = put(rig.folder, *map(wide, range(12)), end=False)
    rig.settle(log)
    left = [lambda: logs.make_log(log, logs.row(12, {"late": 1}), logs.exit_record(), append=True)]

    def grow(_: int, operation: str, __: Any) -> None:
        if operation == "UpsertBucket" and left:
            left.pop()()

    rig.backend.before = grow
    with at_once(), spied() as used:
        report = rig.only(rig.sync(body_bytes=SMALL_BODY))

    run = rig.backend.runs[RUN]
    assert used.called
    assert (report.verdict, report.rows, run.complete) == (Verdict.SYNCED, 13, True)
    assert run.rows == load(log).rows
    assert run.summary["late"] == 1


def test_damage_is_noted_before_a_body_goes_that_lies_behind_it(rig: Rig, tmp_path: Path) -> None:
    """A sync that was stopped there, and a log that was repaired then: all rows go again, to their own lines."""
    log = put(rig.folder, *map(wide, range(8)))
    good = log.read_bytes()
    log.write_bytes(good[:100_000] + b"\xff" * 10 + good[100_010:])
    rig.settle(log)
    bodies = [0]

    def down(_: int, operation: str, __: Any) -> Any:
        bodies[0] += operation == "stream"
        return Answer(500, {}, b"down") if bodies[0] > 4 else None

    rig.backend.before = down
    with at_once(), spied() as used:
        rig.sync(body_bytes=SMALL_BODY, retry_for=0.0)
    assert used.called
    assert json.loads(cursor(log).read_text())["gaps"]
    log.write_bytes(good)
    rig.settle(log)
    rig.backend.before = lambda *_: None
    with at_once():
        rig.sync()

    assert rig.backend.runs[RUN].rows == load(log).rows
