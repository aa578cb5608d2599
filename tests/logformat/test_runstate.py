"""What a log amounts to."""

from __future__ import annotations

import io
import math

import pytest
from runferry.logformat import Gap, GapReason, RunState, load, messages, read_records
from support.frames import log_of


class Log:
    """Builds a log record by record."""

    def __init__(self):
        self.payloads = []

    def add(self, **fields):
        self.payloads.append(messages.Record(num=len(self.payloads) + 1, **fields).SerializeToString())
        return self

    def row(self, step, **values):
        record = messages.HistoryRecord(step=messages.HistoryStep(num=step))
        for key, value in {**values, "_step": str(step)}.items():
            record.item.add(nested_key=key.split("__"), value_json=value)
        return self.add(history=record)

    def items_row(self, **values):
        """A row of these items and no more."""
        items = [messages.HistoryItem(nested_key=[key], value_json=value) for key, value in values.items()]
        return self.add(history=messages.HistoryRecord(item=items))

    def items(self, kind, update=(), remove=()):
        record = {"config": messages.ConfigRecord, "summary": messages.SummaryRecord}[kind]()
        for path, value in update:
            record.update.add(nested_key=path.split("/"), value_json=value)
        for path in remove:
            record.remove.add(nested_key=path.split("/"))
        return self.add(**{kind: record})

    def metric(self, name, kinds="", **fields):
        which = {"glob_name" if "*" in name else "name": name}
        summary = messages.MetricSummary(**dict.fromkeys(kinds.split(), True))
        return self.add(metric=messages.MetricRecord(**which, summary=summary, **fields))

    def output(self, line, stream=1, seconds=100):
        record = messages.OutputRecord(output_type=stream, timestamp=messages.Timestamp(seconds=seconds), line=line)
        return self.add(output_raw=record)

    def state(self, **options) -> RunState:
        return RunState(**options).add_all(read_records(io.BytesIO(log_of(*self.payloads))))


def test_the_summary_is_the_last_value_of_each_metric():
    """Rows alone give a summary: a killed run has one too."""
    state = Log().row(0, loss="0.5", acc="0.1").row(1, loss="0.25").state()

    assert state.summary == {"loss": 0.25, "acc": 0.1, "_step": 1}


def test_null_in_a_row_says_nothing_and_nan_does():
    """A metric keeps its value over a null; NaN is a value."""
    summary = Log().row(0, a="1", b="1").row(1, a="null", b="NaN").state().summary

    assert summary["a"] == 1
    assert math.isnan(summary["b"])


def test_summary_records_override_rows_before_them():
    """What the user set stays until a later row says otherwise."""
    log = Log().row(0, best="1", loss="1").items("summary", [("best", "0.9"), ("nest", '{"a":1,"b":2}')], ["loss"])

    assert log.state().summary == {"best": 0.9, "nest": {"a": 1, "b": 2}, "_step": 0}
    assert log.row(1, best="0.8").state().summary["best"] == 0.8


def test_a_nested_update_keeps_its_siblings():
    """An object that came whole is opened, not replaced."""
    log = Log().items("summary", [("nest", '{"a":1,"b":{"c":2}}')]).items("summary", [("nest/a", "7")])

    assert log.state().summary == {"nest": {"a": 7, "b": {"c": 2}}}


def test_an_object_replaces_what_lay_below_it():
    """Setting the whole forgets the parts, in rows too."""
    log = Log().row(0, n__a="1", n__b="2").items("summary", [("n", '{"c":3}')])

    assert log.state().summary["n"] == {"c": 3}
    assert log.row(1, n__a="5", n__b="6").state().summary["n"] == {"c": 3, "a": 5, "b": 6}


def test_metric_definitions_shape_the_summary():
    """Minimum, maximum, mean, first, last and best come under the metric's name; none comes not at all."""
    log = (
        Log()
        .metric("acc", "min max mean first last")
        .metric("hid", "none")
        .metric("err", "best", goal=1)
        .metric("v/*", "max")
    )
    for step, acc in enumerate(("2", "1", "3")):
        log.row(step, acc=acc, hid="1", err=acc, **{"v/x": acc})

    assert log.state().summary == {
        "acc": {"min": 1, "max": 3, "mean": 2, "first": 2, "last": 3},
        "err": {"best": 1},
        "v/x": {"max": 3},
        "_step": 2,
    }


def test_a_metric_defined_again_adds_unless_it_overwrites():
    """Later definitions merge, or replace when they say so."""
    log = Log().metric("a", "min").metric("a", "max")
    assert log.row(0, a="1").state().summary["a"] == {"min": 1, "max": 1}

    log = Log().metric("a", "min").metric("a", "max", _control=messages.MetricControl(overwrite=True))
    assert log.row(0, a="1").state().summary["a"] == {"max": 1}


def test_config_is_every_change_in_order():
    """Objects merge, leaves replace, removals remove; NaN and big integers stay what they are."""
    run = messages.RunRecord(run_id="r", project="p")
    run.config.update.add(key="lr", value_json="0.001")
    run.config.update.add(key="model", value_json='{"layers": 3, "drop": 0.1}')
    log = (
        Log().add(run=run).items("config", [("model", '{"layers":4}'), ("big", "1180591620717411303424"), ("bad", "{")])
    )
    state = log.items("config", [("_wandb/t/1", "2")], ["lr"]).state()

    assert state.config == {"model": {"layers": 4, "drop": 0.1}, "big": 2**70, "_wandb": {"t": {"1": 2}}}
    assert state.info.run_id == "r"


def test_a_later_run_record_changes_only_what_it_sets():
    """A new name keeps the project; the first start time stays."""
    first = messages.RunRecord(run_id="r", project="p", tags=["a"], start_time=messages.Timestamp(seconds=5))
    later = messages.RunRecord(run_id="r", display_name="n", tags=["b"], start_time=messages.Timestamp(seconds=9))
    info = Log().add(run=first).add(run=later).state().info

    assert (info.project, info.display_name, info.tags, info.start_time_ns) == ("p", "n", ["b"], 5_000_000_000)


def test_console_fragments_become_the_lines_that_a_terminal_shows():
    """Fragments join, carriage returns overwrite, streams stay apart, times are those of the first fragment."""
    log = Log().output("a", seconds=7).output("err\n", 0, 8).output("b\n", seconds=9)
    state = log.output("\rprog 1").output("\rprog 2!\n").output("no newline").state()

    assert [(line.stream, line.text) for line in state.console] == [
        ("stderr", "err"),
        ("stdout", "ab"),
        ("stdout", "prog 2!"),
    ]
    assert state.console[1].timestamp_ns == 7_000_000_000
    assert [line.text for line in state.console_rest] == ["no newline"]


@pytest.mark.parametrize(
    ("exit_code", "age", "status"),
    [(0, 0, "finished"), (3, 0, "failed"), (None, 10, "running"), (None, 601, "crashed")],
)
def test_the_status_is_the_exit_record_or_the_age(exit_code, age, status):
    """Without an exit record, a log that still grows is running and an old one crashed."""
    log = Log().add(run=messages.RunRecord(run_id="r"))
    if exit_code is not None:
        log.add(exit=messages.RunExitRecord(exit_code=exit_code, runtime=4))

    assert log.state().status(age=age) == status


def test_runtime_comes_from_the_log_and_never_from_the_clock():
    """The exit record says it, else the last time that anything carries."""
    start = messages.RunRecord(run_id="r", start_time=messages.Timestamp(seconds=100))
    log = Log().add(run=start).row(0, _timestamp="103.5", _runtime="3.25").output("x\n", seconds=110)

    assert log.state().runtime == 10
    assert log.add(exit=messages.RunExitRecord(runtime=12)).state().runtime == 12


def test_without_rows_kept_only_counts_grow():
    """A sync of any size folds in constant memory."""
    state = Log().row(0, a="1").output("x\n").add(stats=messages.StatsRecord()).state(keep_rows=False)

    assert (state.rows, state.samples, state.console) == ([], [], [])
    assert (state.row_count, state.sample_count, state.console_count, state.summary["a"]) == (1, 1, 1, 1)


def test_what_cannot_be_understood_is_counted_and_skipped():
    """A broken message, an unknown kind and a broken value leave the rest alone."""
    log = Log().row(0, a="1")
    log.payloads += [b"\x08\x02\x52\x02\x0a\x7f", b"\x08\x03\xa2\x38\x03abc", b"\x08\x04"]
    state = log.row(5, a="2").state()

    assert state.bad_records == 1
    assert state.counts["unknown"] == state.counts["empty"] == 1
    assert [row["a"] for row in state.rows] == [1, 2]


def test_load_reads_a_whole_log():
    """The function for notebooks: one call, everything."""
    state = load(io.BytesIO(log_of(*Log().row(0, loss="0.5").payloads)))

    assert state.rows == [{"loss": 0.5, "_step": 0}]


def test_environments_merge_and_lists_replace():
    """Context and hardware make one environment."""
    first = messages.EnvironmentRecord(os="Linux", args=["a", "b"], writer_id="w")
    second = messages.EnvironmentRecord(cpu_count=8, writer_id="w")
    environment = Log().add(environment=first).add(environment=second).state().environment

    assert (environment.os, list(environment.args), environment.cpu_count) == ("Linux", ["a", "b"], 8)


def test_a_definition_counts_for_rows_behind_it():
    """Rows of the same keys were folded without it before."""
    log = Log().metric("other", "max").row(0, x="3").metric("x", "min").row(1, x="4").row(2, x="5")

    assert log.state().summary["x"] == {"min": 4}


def test_a_glob_leaves_the_internal_keys_alone():
    """The step is a number whatever `*` is told to be."""
    assert Log().metric("*", "max").row(0, x="3").state().summary == {"x": {"max": 3}, "_step": 0}


def test_a_name_with_a_dot_is_one_key_or_two():
    """Rows may hold it either way."""
    log = Log().metric("a.b", "max").row(0, **{"a.b": "1", "a__b": "2"})

    assert log.state().summary == {"a.b": {"max": 1}, "a": {"b": {"max": 2}}, "_step": 0}


def test_a_summary_record_of_a_step_stands_over_the_row_of_that_step():
    """Logs of the peer hold it before the row; what it says is the row's outcome, and its step is the row's to set."""
    log = Log().items("summary", [("x", "9"), ("_step", "0")])
    assert log.state().summary == {"x": 9}

    assert log.row(0, x="1").state().summary == {"x": 9, "_step": 0}
    assert log.row(1, x="1").state().summary == {"x": 1, "_step": 1}


def test_tags_that_a_later_run_record_does_not_name_stay():
    """They cannot be cleared, only replaced."""
    log = Log().add(run=messages.RunRecord(run_id="r", tags=["a", "b"])).add(run=messages.RunRecord(notes="n"))

    assert (log.state().info.run_id, log.state().info.tags, log.state().info.notes) == ("r", ["a", "b"], "n")


def test_an_empty_object_empties_no_object():
    """Config merges; an object of nothing adds nothing, where there is none it is one."""
    log = (
        Log().items("config", [("a", '{"b": 1}'), ("c", "1")]).items("config", [("a", "{}"), ("c", "{}"), ("d", "{}")])
    )

    assert log.state().config == {"a": {"b": 1}, "c": {}, "d": {}}


def test_definitions_that_came_from_a_glob_are_the_globs():
    """Old logs hold them expanded too; they count once."""
    log = Log().metric("v/*", "max").metric("v/x", "min", expanded_from_glob=True).row(0, **{"v/x": "1"})

    assert [metric.glob_name for metric in log.state().metrics] == ["v/*"]
    assert log.state().summary["v/x"] == {"max": 1}


def test_the_arguments_of_a_later_environment_replace_those_before():
    """Merged are the fields, not the list."""
    log = Log()
    for args, host in ((["a", "b"], "h"), (["c"], "")):
        log.add(environment=messages.EnvironmentRecord(args=args, host=host))

    assert (list(log.state().environment.args), log.state().environment.host) == (["c"], "h")


TORN, HOLE = Gap(90, 5, GapReason.TORN_TAIL), Gap(50, 5, GapReason.ZEROED)


@pytest.mark.parametrize(
    ("items", "damage", "lost"),
    [
        ([], [], 0),
        ([TORN], [], None),
        ([HOLE], [], None),
        ([HOLE, TORN], [HOLE], None),
        ([Gap(50, 5, GapReason.ZEROED, 2)], [Gap(50, 5, GapReason.ZEROED, 2)], 2),
        ([Gap(9, 5, GapReason.BAD_CRC, 2), Gap(50, 5, GapReason.BAD_CRC, 1), TORN], 2, None),
        ([Gap(9, 5, GapReason.BAD_CRC, 2), Gap(50, 5, GapReason.BAD_CRC, 1)], 2, 3),
    ],
)
def test_only_an_open_end_is_no_damage(items, damage, lost):
    """A tail or zeros behind the last record cost nothing for certain; before a record they do. Counts add up or are unknown."""
    state = RunState().add_all(items)

    assert state.damage == (items[:damage] if isinstance(damage, int) else damage)
    assert state.records_lost == lost


def test_an_alert_waits_in_seconds():
    """The log has milliseconds."""
    state = Log().add(alert=messages.AlertRecord(title="t", level="WARN", wait_duration=1500)).state()

    assert state.alerts[0].wait_seconds == 1.5


def test_the_runtime_is_the_longest_that_anything_tells():
    """Rows, or the last time since the start; without a start only rows; an exit record has the last word."""
    start = messages.Timestamp(seconds=1_000)
    started = Log().add(run=messages.RunRecord(run_id="r", start_time=start))

    assert started.row(0, _runtime="7").output("x\n", seconds=1_005).state().runtime == 7
    assert started.output("y\n", seconds=1_009).state().runtime == 9
    assert Log().row(0, _runtime="7").output("x\n", seconds=1_005).state().runtime == 7
    assert started.add(exit=messages.RunExitRecord(runtime=8)).state().runtime == 8


def test_samples_are_numbers():
    """A switch, a text or a broken value is no metric."""
    stats = messages.StatsRecord(timestamp=messages.Timestamp(seconds=1))
    for key, text in {"a": "1.5", "b": "true", "c": '"x"', "d": "", "e": "NaN"}.items():
        stats.item.add(key=key, value_json=text)
    (sample,) = Log().add(stats=stats).state().samples

    assert list(sample.values) == ["a", "e"]
    assert sample.values["a"] == 1.5


def test_records_of_one_step_that_follow_each_other_are_one_row():
    """Their items count as if they stood in one record; other kinds of records between them make no difference."""
    log = (
        Log().row(0, a="1", b="1", n__x="1").output("x\n").row(0, a="2", n__y="2", b="{").row(0, c="null").row(1, a="5")
    )
    state = log.state()

    assert state.rows == [{"a": 2, "b": 1, "n": {"x": 1, "y": 2}, "c": None, "_step": 0}, {"a": 5, "_step": 1}]
    assert (state.row_count, state.part_count, state.counts["history"], state.last_step) == (2, 2, 4, 1)
    assert log.state(keep_rows=False).row_count == 2


@pytest.mark.parametrize(
    ("parts", "whole"),
    [
        ([("n", "5"), ("n__x", "1")], {"x": 1}),
        ([("n__x", "1"), ("n", "5")], 5),
        ([("n", "5"), ("n__x", "1"), ("n", "6")], 6),
        ([("n", '{"a":1,"b":2}'), ("n__b", "3")], {"a": 1, "b": 3}),
        ([("n__b", "3"), ("n", '{"a":1}')], {"a": 1}),
        ([("n__x", "1"), ("n__x__y", "2"), ("n__z", "3")], {"x": {"y": 2}, "z": 3}),
    ],
)
def test_a_later_part_stands_in_place_of_what_is_below_and_above_its_keys(parts, whole):
    """A value takes the place of an object and the other way round; an object that came whole keeps its other keys."""
    log = Log()
    for key, text in parts:
        log.row(0, **{key: text})

    assert log.state().rows == [{"n": whole, "_step": 0}]


@pytest.mark.parametrize(
    "steps", ["0 1 0", "1 1.0", "1.0 1.0", "true true", '"1" "1"', "1 01", "1e2 1e2", "9" * 20 + " " + "9" * 20]
)
def test_other_records_are_rows_of_their_own(steps):
    """Steps that do not follow each other, are no whole numbers, or are spelled otherwise."""
    log = Log()
    for step in steps.split():
        log.items_row(_step=step, a="1")

    assert log.state().row_count == len(log.payloads)


def test_rows_without_a_step_are_never_joined():
    """Nothing says that they belong together."""
    log = Log()
    for text in "12":
        log.items_row(a=text)

    assert log.state().rows == [{"a": 1}, {"a": 2}]


def test_another_log_begins_with_a_row_of_its_own():
    """Its header or run record tells, else who reads it."""
    first, second, bare = Log().add(header=messages.HeaderRecord()).row(3, a="1"), Log(), Log().row(3, c="1")
    second.add(run=messages.RunRecord(run_id="r")).row(3, b="1").add(run=messages.RunRecord(notes="n")).row(3, d="1")
    state = RunState()
    for log in (first, second):
        state.add_all(read_records(io.BytesIO(log_of(*log.payloads))))
    state.begin_log()
    state.add_all(read_records(io.BytesIO(log_of(*bare.payloads))))

    assert state.rows == [{"a": 1, "_step": 3}, {"b": 1, "d": 1, "_step": 3}, {"c": 1, "_step": 3}]


def test_a_row_in_parts_counts_once_in_what_its_metrics_make():
    """Minimum, mean and the rest are over rows: the last value of each."""
    log = (
        Log()
        .metric("m", "min max mean first last")
        .row(0, m="8")
        .row(0, m="1")
        .row(0, m="2")
        .row(1, m="4")
        .row(1, x="1")
    )
    assert log.state().summary["m"] == {"min": 2, "max": 4, "mean": 3, "first": 2, "last": 4}

    assert Log().metric("m", "min").row(0, m="8").row(0, m='"off"').state().summary["m"] == "off"


def test_a_config_value_that_was_broken_is_not_lost_once_a_good_one_is_there():
    """Only what has no value now is named."""
    log = Log().items("config", [("a", "["), ("b", "[")]).items("config", [("a", "1")])

    state = RunState().add_all(read_records(io.BytesIO(log_of(*log.payloads))))

    assert state.config == {"a": 1}
    assert state.lost()["config"] == [("b",)]
