"""What a run says of itself, as servers read it: metric definitions, telemetry, times, tags, a summary that has room."""

from __future__ import annotations

import json
from typing import Any

import pytest
from runferry.logformat import RunState, messages
from runferry.sync.plan import RunPlan
from runferry.sync.runconfig import (
    config_tree,
    environment_tree,
    metric_list,
    rfc3339,
    run_fields,
    summary_line,
    summary_tree,
    telemetry_tree,
)
from runferry.sync.settings import SyncSettings
from support import logs


def metric(name: str = "", *, glob: str = "", step: str = "", goal: int = 0, **options: Any) -> Any:
    """A definition; `options` of the message."""
    record = messages.MetricRecord(
        name=name, glob_name=glob, step_metric=step, goal=goal, options=messages.MetricOptions(**options)
    )
    record.summary.max = bool(name)
    return record


def folded(*records: Any) -> RunState:
    """The state after these records."""
    state = RunState(keep_rows=False)
    for record in records:
        state.add(record)
    return state


def state_of(tmp_path: Any, *records: Any) -> RunState:
    """The state of a log of these records."""
    from runferry.logformat import read_records

    return folded(*read_records(logs.make_log(tmp_path / "run-a.wandb", *records)))


def test_a_step_metric_that_nobody_defined_gets_an_entry_that_says_so() -> None:
    """It stands before the first one that refers to it, once, and is not said to be defined, whoever refers to it."""
    found = metric_list(
        [
            metric("a", step="s", defined=True, step_sync=True),
            metric(glob="v/*", step="s", defined=True, hidden=True),
            metric("b", step="t", defined=True, goal=2),
            metric("t", defined=True),
            metric("u", step="u"),
        ]
    )

    assert found == [
        {"1": "s", "6": [], "7": []},
        {"1": "a", "5": 1, "6": [1, 3], "7": [2]},
        {"2": "v/*", "5": 1, "6": [2], "7": []},
        {"1": "b", "5": 5, "6": [3], "7": [2], "8": 2},
        {"1": "t", "6": [3], "7": [2]},
        {"1": "u", "5": 6, "6": [], "7": [2]},
    ]


def test_telemetry_is_never_empty() -> None:
    """A run without it counts as one that no client has started; labels and texts stand under their numbers."""
    label = messages.TelemetryRecord(cli_version="1", platform="p")
    label.label.repo_string = "repo"

    assert telemetry_tree(None) == telemetry_tree(messages.TelemetryRecord()) == {"3": [4]}
    assert telemetry_tree(label) == {"5": "1", "13": "p", "9": {"2": "repo"}}
    assert telemetry_tree(logs.telemetry_record().telemetry) == {"3": [2, 4], "4": "3.11.7", "5": "0.1.0"}


def test_the_config_keeps_what_is_empty_and_what_is_no_number(tmp_path: Any) -> None:
    """Empty objects, huge and infinite numbers, keys with dots: as the log has them. `_wandb` of a user that is no object is left out."""
    given = {"empty": {}, "a.b": {"c.d": 1}, "big": 2**70, "far": float("inf"), "gone": 1}
    state = state_of(
        tmp_path,
        logs.run_record("a", config=given),
        logs.config_record({"_wandb": {"code_path": "x"}}, remove=("gone",)),
    )
    tree = config_tree(state)
    text = run_fields(state, RunPlan("a", None, "p"), SyncSettings()).config

    assert {key: entry["value"] for key, entry in tree.items() if key != "_wandb"} == {
        key: value for key, value in given.items() if key != "gone"
    }
    assert tree["_wandb"] == {"value": {"code_path": "x", "t": {"3": [4]}, "m": []}}
    assert '"far":{"value":Infinity}' in text
    assert '"big":{"value":1180591620717411303424}' in text
    no_object = state_of(tmp_path, logs.run_record("a", config={"_wandb": 5}))
    assert config_tree(no_object)["_wandb"] == {"value": {"t": {"3": [4]}, "m": []}}


def test_an_environment_without_a_writer_stands_under_the_runs_id(tmp_path: Any) -> None:
    """Logs of older writers name none; a place without a name would be no place for a server."""
    state = state_of(tmp_path, logs.run_record("a"), logs.environment_record(writer_id="", host="h"))
    environments = config_tree(state)["_wandb"]["value"]["e"]

    assert {writer: tree["host"] for writer, tree in environments.items()} == {"a": "h"}


@pytest.mark.parametrize(
    ("time_ns", "text"),
    [
        (0, "1970-01-01T00:00:00Z"),
        (1_500_000_000, "1970-01-01T00:00:01.500Z"),
        (1_000_001_000, "1970-01-01T00:00:01.000001Z"),
        (1_000_000_001, "1970-01-01T00:00:01.000000001Z"),
        (10**30, "1970-01-01T00:00:00Z"),
    ],
)
def test_times_have_as_many_digits_as_they_need(time_ns: int, text: str) -> None:
    """In groups of three; a time beyond the calendar is the first one."""
    assert rfc3339(time_ns) == text


def test_what_a_log_does_not_say_is_left_as_it_is(tmp_path: Any) -> None:
    """Empty fields are None, so that a server keeps its own; overrides are stronger than the log."""
    bare = run_fields(state_of(tmp_path, logs.run_record("a")), RunPlan("a", None, "p"), SyncSettings())
    full = run_fields(
        state_of(
            tmp_path,
            logs.run_record(
                "a", display_name="n", notes="o", tags=["x", "y"], job_type="j", run_group="g", sweep_id="s"
            ),
        ),
        RunPlan("a", "e", "p"),
        SyncSettings(job_type="k", replace_tags={"x": "y"}),
    )

    assert (bare.display_name, bare.notes, bare.tags, bare.job_type, bare.group, bare.sweep) == (None,) * 6
    assert (full.display_name, full.notes, full.tags, full.job_type) == ("n", "o", ("y",), "k")
    assert (full.group, full.sweep, full.entity, bare.entity) == ("g", "s", "e", None)


def test_the_summary_has_the_last_step_the_runtime_and_sorted_keys(tmp_path: Any) -> None:
    """Whole seconds; keys in order at every level, however the log was folded."""
    state = state_of(
        tmp_path,
        logs.run_record("a"),
        logs.summary_record({"b": {"d": 1, "c": 2}, "a": 1}),
        logs.exit_record(runtime=9),
    )
    tree = summary_tree(state, 4)

    assert json.dumps(tree) == '{"_step": 4, "_wandb": {"runtime": 9}, "a": 1, "b": {"c": 2, "d": 1}}'
    assert "_step" not in summary_tree(state, None)


def test_a_summary_that_is_too_long_loses_its_largest_keys() -> None:
    """As few as it takes, named with their sizes; the line keeps to the limit."""
    dropped: list[str] = []
    line = summary_line({"small": 1, "large": "x" * 500, "larger": "y" * 900}, 600, dropped)

    assert set(json.loads(line)) == {"small", "large"}
    assert [text.split(" (")[0] for text in dropped] == ["summary: larger"]
    assert summary_line({"a": 1}, 7, dropped) == '{"a":1}'
    assert summary_line({"a": 1}, 6, []) == "{}"


def test_the_environment_is_the_same_text_in_each_process(tmp_path: Any) -> None:
    """Maps come in the order of their keys: else a file made of it would have other bytes each time."""
    names = [f"name_{number}" for number in range(40)]
    record = messages.EnvironmentRecord(slurm=dict.fromkeys(reversed(names), "x"))
    for name in names:
        record.disk[name].total = 1
    tree = environment_tree(state_of(tmp_path, messages.Record(environment=record)))

    assert list(tree["slurm"]) == list(tree["disk"]) == sorted(names)
