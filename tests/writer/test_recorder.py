"""Steps, pending rows, the summary: what calls become which records. No threads."""

from __future__ import annotations

import io
from pathlib import Path

import pytest
from runferry.logformat import RunState, read_records
from runferry.writer import UsageError, records
from runferry.writer.journal import Journal
from runferry.writer.metrics import define
from runferry.writer.recorder import Recorder
from runferry.writer.segment import Place
from support.clock import FakeClock
from support.faultfs import FaultFS


class SteppedClock(FakeClock):
    """A clock whose wall time somebody corrects."""

    correction = 0.0

    def time(self):
        return super().time() + self.correction


class Rig:
    """A recorder on a disk in memory."""

    def __init__(self, **options):
        self.clock = SteppedClock()
        self.fs = FaultFS()
        self.warnings = []
        opening = [records.header("1"), records.run(records.RunInfo("abc", "p", start_ns=1), ())]
        self.journal = Journal(self.fs, Place(Path("/d"), "abc"), self.clock, lambda _: opening, self.warnings.append)
        self.journal.open()
        start = self.clock.monotonic()
        self.recorder = Recorder(self.journal, self.clock, self.warnings.append, start_s=start, **options)

    def log(self, row, step=None, commit=None):
        self.recorder.row(self.clock.monotonic(), step, commit, row, {})

    def read(self):
        """(step, the row without our own keys) of each history record, and the folded run."""
        self.journal.write()
        state = RunState().add_all(read_records(io.BytesIO(self.fs.logs()[0])))
        rows = [(row["_step"], {key: value for key, value in row.items() if key[0] != "_"}) for row in state.rows]
        return rows, state

    def rows(self):
        return self.read()[0]


def test_rows_count_from_zero():
    """Each call is a row of its own, with the next step."""
    rig = Rig()
    for value in "xyz":
        rig.log({"a": value})

    assert rig.rows() == [(0, {"a": "x"}), (1, {"a": "y"}), (2, {"a": "z"})]


@pytest.mark.parametrize(
    ("calls", "expected"),
    [
        # an explicit step stays open until a later one
        ([({"a": 1}, 5, None), ({"b": 2}, 5, None), ({"a": 3}, 6, None)], [(5, {"a": 1, "b": 2}), (6, {"a": 3})]),
        # a call without a step finishes the open one
        ([({"a": 1}, 5, None), ({"b": 2}, None, None), ({"c": 3}, None, None)], [(5, {"a": 1, "b": 2}), (6, {"c": 3})]),
        # commit=False keeps the row for the next call
        (
            [({"a": 1}, None, False), ({"b": 2}, None, None), ({"c": 3}, None, None)],
            [(0, {"a": 1, "b": 2}), (1, {"c": 3})],
        ),
        # commit=True finishes an explicit step at once
        ([({"a": 1}, 5, True), ({"b": 2}, None, None)], [(5, {"a": 1}), (6, {"b": 2})]),
        # a later value of the same key wins
        ([({"a": 1}, 5, None), ({"a": 2}, 5, None)], [(5, {"a": 2})]),
        # an empty row is a row
        ([({}, None, None), ({"a": 1}, None, None)], [(0, {}), (1, {"a": 1})]),
        # gaps are kept
        ([({"a": 1}, 10, None), ({"a": 2}, 1000, None)], [(10, {"a": 1}), (1000, {"a": 2})]),
        # a lower step is kept under its own number, and does not disturb the open one
        ([({"a": 1}, 5, None), ({"b": 2}, 3, None), ({"c": 3}, 5, None)], [(3, {"b": 2}), (5, {"a": 1, "c": 3})]),
    ],
)
def test_steps(calls, expected):
    """Which calls make one row, and which step it has."""
    rig = Rig()
    for row, step, commit in calls:
        rig.log(row, step, commit)
    rig.recorder.flush()

    assert rig.rows() == expected


def test_late_rows_are_counted_and_named_once():
    """The user hears once that steps went back; the report has the number."""
    rig = Rig()
    rig.log({"a": 1}, 9)
    for step in (3, 4):
        rig.log({"a": 1}, step)

    assert rig.recorder.rows_late == 2
    assert len(rig.warnings) == 1
    assert "step 3" in rig.warnings[0]


@pytest.mark.parametrize(("step", "commit"), [(7, None), (None, False)])
def test_an_open_row_is_on_disk_within_a_second(step, commit):
    """A row that waits for more is written all the same; what comes later is a further part of the same step."""
    rig = Rig()
    rig.log({"a": 1}, step, commit)
    rig.recorder.tick()
    assert rig.rows() == []
    rig.clock.advance(0.75)
    rig.recorder.tick()
    number = step or 0
    assert rig.rows() == [(number, {"a": 1})]
    rig.log({"b": 2}, step, commit)
    rig.log({"c": 3}, number + 1)
    rig.recorder.flush()

    rows, state = rig.read()
    assert rows == [(number, {"a": 1, "b": 2}), (number + 1, {"c": 3})]
    assert state.counts["history"] == 3


def test_a_row_that_is_fed_all_the_time_is_written_too():
    """The age of the oldest part counts, not the last call."""
    rig = Rig()
    for number in range(20):
        rig.log({"a": number}, 1)
        rig.clock.advance(0.1)
        rig.recorder.tick()

    rows, state = rig.read()
    assert len(rows) == 1
    assert 2 <= state.counts["history"] <= 4


def test_a_written_row_is_not_written_again():
    """Finishing a step whose parts are all in the file adds nothing."""
    rig = Rig()
    rig.log({"a": 1}, 1)
    rig.recorder.flush()
    rig.recorder.flush()
    rig.log({"b": 1}, 2)
    rig.recorder.flush()

    assert rig.rows() == [(1, {"a": 1}), (2, {"b": 1})]


def test_steps_are_not_held_where_each_call_must_be_safe():
    """At the levels `record` and `disk` an explicit step is queued by its call; `commit=False` still waits."""
    rig = Rig(hold_steps=False)
    rig.log({"a": 1}, 5)
    assert rig.rows() == [(5, {"a": 1})]
    rig.log({"b": 2}, 5)
    rig.log({"c": 3}, 5, commit=False)

    rows, state = rig.read()
    assert rows == [(5, {"a": 1, "b": 2})]
    assert state.counts["history"] == 2


def test_runtime_and_time_are_those_of_the_call():
    """`_runtime` counts from the start and never jumps; `_timestamp` is the wall clock as it is now corrected."""
    rig = Rig()
    rig.clock.advance(1.5)
    rig.log({"a": 1}, 1)
    rig.clock.advance(0.25)
    rig.log({"b": 1}, 1)
    rig.clock.correction = 3600
    rig.recorder.read_clocks()
    rig.log({"b": 1}, 2)
    rig.recorder.flush()
    _, state = rig.read()

    assert [row["_runtime"] for row in state.rows] == [1.75, 1.75]
    assert [row["_timestamp"] for row in state.rows] == [1_800_000_001.75 + 3600] * 2


def test_the_summary_waits_for_a_flush():
    """Rows alone write no summary record before fifteen seconds have passed; then one, with what changed."""
    rig = Rig()
    for number in range(10):
        rig.log({"a": number, "n": number % 2 or None})
        rig.recorder.tick()
    assert rig.read()[1].counts["summary"] == 0
    rig.clock.advance(15)
    rig.recorder.tick()
    assert rig.read()[1].counts["summary"] == 1
    rig.recorder.flush()
    _, state = rig.read()

    assert state.counts["summary"] == 1
    assert state.summary["a"] == 9
    assert state.summary["n"] == 1


def summary_records(rig):
    """What the summary records alone say: readers that do not fold rows see only these."""
    rig.journal.write()
    state = RunState()
    state.add_all(item for item in read_records(io.BytesIO(rig.fs.logs()[0])) if getattr(item, "kind", "") == "summary")
    return {key: value for key, value in state.summary.items() if key[0] != "_"}


def test_the_summary_is_of_the_last_rows_by_their_order():
    """Whatever keys they have together; what is null tells nothing."""
    rig = Rig()
    for row in ({"a": 1}, {"a": 2, "b": 1}, {"a": 3}, {"b": 2}, {"a": None, "b": None}):
        rig.log(row)
    rig.recorder.flush()
    assert summary_records(rig) == {"a": 3, "b": 2}
    rig.log({"b": None})
    rig.log({"b": 4, "a": 5})
    rig.log({"b": None, "a": None})
    rig.recorder.flush()

    assert summary_records(rig) == {"a": 5, "b": 4}


def test_the_users_summary_stands_until_a_row_comes():
    """Order decides between what is set and what is logged."""
    rig = Rig()
    rig.log({"loss": 3})
    rig.recorder.set_summary(("loss",), 1)
    rig.recorder.set_summary(("best",), 0.9)
    rig.recorder.flush()
    assert summary_records(rig) == {"loss": 1, "best": 0.9}
    rig.log({"loss": 2})
    rig.recorder.flush()

    assert summary_records(rig) == {"loss": 2, "best": 0.9}
    assert rig.recorder.summary.tree()["loss"] == 2


def test_summary_removals_and_replacements_are_told():
    """A removed key, a dict that became a number and a dict with fewer keys read as they should."""
    rig = Rig()
    for path, value in ((("a",), {"x": 1, "y": 2}), (("b",), {"z": 1}), (("c",), 1)):
        rig.recorder.set_summary(path, value)
    rig.recorder.flush()
    rig.recorder.set_summary(("a",), {"x": 3})
    rig.recorder.set_summary(("b",), 5)
    rig.recorder.summary.remove(("c",))
    rig.recorder.flush()

    assert summary_records(rig) == {"a": {"x": 3}, "b": 5}


def test_metric_definitions_shape_the_summary():
    """Minimum, maximum, mean and the others; a metric without summary has none; globs go behind exact names."""
    rig = Rig()
    rig.recorder.define(define("acc", summary="max,last"))
    rig.recorder.define(define("loss*", summary="min,mean"))
    rig.recorder.define(define("hid", hidden=True, summary="none"))
    for acc, loss in ((0.5, 3.0), (0.9, 1.0), (0.7, 2.0)):
        rig.log({"acc": acc, "loss/val": loss, "hid": 1, "plain": acc})
    rig.recorder.flush()
    expected = {"acc": {"max": 0.9, "last": 0.7}, "loss/val": {"min": 1.0, "mean": 2.0}, "plain": 0.7}

    assert summary_records(rig) == expected
    assert {key: value for key, value in rig.read()[1].summary.items() if key[0] != "_"} == expected


def test_step_metrics_fill_themselves_in():
    """A row with a metric but without its step metric gets that one's last value."""
    rig = Rig()
    rig.recorder.define(define("val/*", step_metric="epoch"))
    rig.log({"val/loss": 1})
    rig.log({"epoch": 3, "other": 1})
    rig.log({"val/loss": 2})
    rig.log({"other": 2})

    assert rig.rows() == [
        (0, {"val/loss": 1}),
        (1, {"epoch": 3, "other": 1}),
        (2, {"val/loss": 2, "epoch": 3}),
        (3, {"other": 2}),
    ]


def test_a_nested_step_metric_fills_itself_in():
    """It goes by its dotted name, and comes back as the nested key that it was."""
    rig = Rig()
    rig.recorder.define(define("loss", step_metric="train.step"))
    rig.log({("train", "step"): 5, "loss": 1})
    rig.log({"loss": 2})

    (_, first), (_, second) = rig.rows()
    assert first == second | {"loss": 1}


def test_the_end_is_summary_then_exit():
    """The open row, the summary with the run's time, and the exit record, in this order."""
    rig = Rig()
    rig.log({"a": 1}, 3)
    rig.clock.advance(12.9)
    rig.recorder.finish(7)
    _, state = rig.read()
    kinds = [item.kind for item in read_records(io.BytesIO(rig.fs.logs()[0]))]

    assert kinds[-3:] == ["history", "summary", "exit"]
    assert (state.exit_code, state.exit_runtime) == (7, 12)
    assert state.summary["_wandb"] == {"runtime": 12}


def test_a_row_beyond_the_formats_limit_is_left_out(monkeypatch):
    """Readers stop collecting at a cap; such a row is named and counted, and the next one goes on."""
    monkeypatch.setattr("runferry.writer.recorder.MAX_BODY_BYTES", 1000)
    rig = Rig()
    rig.log({"a": "x" * 2000})
    rig.log({"a": "y"})

    assert rig.rows() == [(1, {"a": "y"})]
    assert rig.recorder.rows_refused == 1
    assert "too large" in rig.warnings[0]


@pytest.mark.parametrize(
    "arguments",
    [
        {"name": "a*b"},
        {"name": ""},
        {"name": "a", "summary": "median"},
        {"name": "a", "goal": "up"},
        {"name": "a", "summary": "best"},
        {"name": None},
        {"name": 1},
        {"name": "a", "step_metric": ("b",)},
    ],
)
def test_definitions_that_mean_nothing_are_refused(arguments):
    """The error names what is wrong."""
    with pytest.raises(UsageError, match="define_metric"):
        define(**arguments)


def test_definitions_as_scripts_spell_them():
    """A step by its own definition, empty summaries, switches that are no booleans, any case."""
    step = define("s")

    assert define("a", step) == define("a", "s") == define("a", "s", step_sync=1)
    assert define("a", "", summary="", goal="") == define("a")
    assert define("a", summary=" MIN,,Best", goal="Maximize") == define("a", summary=["min", "best"], goal="maximize")
    assert define("a", "s", step_sync="yes").step_sync is True
