"""Logs as writers of all years made them."""

from __future__ import annotations

import json
import math
from pathlib import Path

import pytest
from runferry.logformat import LogReader, RunState, load, messages, read_records
from runferry.logformat.sources import open_log
from support.frames import log_of

OLD = sorted((Path(__file__).parents[2] / "fixtures" / "logs").rglob("*.wandb*"))
"""Logs by wandb versions of many years."""


def log(tmp_path, *bodies, numbered=True, name="run-old1.wandb"):
    """A log of these records: bodies by kind, or payloads as they are."""
    payloads = [
        body
        if isinstance(body, bytes)
        else messages.Record(**({"num": number} if numbered else {}), **body).SerializeToString()
        for number, body in enumerate(bodies, 1)
    ]
    path = tmp_path / name
    path.write_bytes(log_of(*payloads))
    return path


def row(step=None, *, nested=False, **values):
    """A row by `key`, as before 0.18, or by `nested_key`."""
    record = messages.HistoryRecord()
    for key, text in values.items():
        if nested:
            record.item.add(nested_key=key.split("__"), value_json=text)
        else:
            record.item.add(key=key, value_json=text)
    if step is not None:
        record.item.add(**({"nested_key": ["_step"]} if nested else {"key": "_step"}), value_json=str(step))
        record.step.num = step
    return {"history": record}


def run(**fields):
    return {"run": messages.RunRecord(run_id="old1", start_time=messages.Timestamp(seconds=1_600_000_000), **fields)}


def exit_record(code, runtime=7):
    return {"exit": messages.RunExitRecord(exit_code=code, runtime=runtime)}


def summary(**values):
    items = [messages.Item(key=key, value_json=text) for key, text in values.items()]
    return {"summary": messages.SummaryRecord(update=items)}


def test_keys_of_one_text_and_keys_in_levels_give_the_same_row(tmp_path):
    """Before 0.18 an object is one value; after it, one item per leaf. A histogram is one value in both."""
    whole = row(0, loss="1", hist='{"_type":"histogram","values":[1],"bins":[0,1]}', opt='{"lr":0.1}')
    leaves = row(
        0, nested=True, loss="1", hist___type='"histogram"', hist__values="[1]", hist__bins="[0,1]", opt__lr="0.1"
    )
    old, new = load(log(tmp_path, run(), whole)), load(log(tmp_path, run(), leaves))

    assert old.rows == new.rows
    assert old.rows.column("hist").values == new.rows.column("hist").values
    assert (old.rows.column("opt").kind, new.rows.column("opt.lr").kind) == ("json", "float")


def test_components_may_hold_dots_slashes_and_blanks(tmp_path):
    """They are kept as they are: two keys that only look alike stay two."""
    record = messages.HistoryRecord()
    for path in (("a.b/c", "d.e"), ("a", "b/c.d.e"), ("loss ",), ("loss",)):
        record.item.add(nested_key=path, value_json="1")
    state = load(log(tmp_path, run(), {"history": record}))

    assert state.rows[0] == {"a.b/c": {"d.e": 1}, "a": {"b/c.d.e": 1}, "loss ": 1, "loss": 1}
    assert len(set(state.rows.names.values())) == 4


def test_numbers_that_json_lacks_and_kinds_that_change(tmp_path):
    """NaN and Infinity by their bare names; integers that become floats, and lists and texts among numbers."""
    texts = ["1", "0.5", "NaN", "-Infinity", "2"]
    state = load(log(tmp_path, run(), *(row(at, m=text, w=text) for at, text in enumerate(texts)), row(5, w='["x"]')))

    column = state.rows.column("m")
    assert column.kind == "number"
    assert [type(value) for value in column.values] == [int, float, float, float, int]
    assert math.isnan(column.values[2])
    assert (state.rows.column("w").kind, state.rows[5]["w"]) == ("json", ["x"])
    assert state.summary["w"] == ["x"]


def test_a_log_without_version_numbers_header_and_run_record(tmp_path):
    """What it says counts; which run it is, the file name says."""
    state = load(log(tmp_path, row(0, a="1"), exit_record(0), numbered=False))

    assert (state.info.run_id, state.has_run, state.exit_code) == ("old1", False, 0)
    assert (state.rows, state.summary) == ([{"a": 1, "_step": 0}], {"a": 1, "_step": 0})


def test_a_renamed_run_has_two_run_records(tmp_path):
    """It is one run, and the later name is its name; rows go on."""
    state = load(log(tmp_path, run(display_name="old"), row(0, a="1"), run(display_name="new"), row(1, a="2")))

    assert (state.info.run_id, state.info.display_name, state.row_count) == ("old1", "new", 2)
    assert state.summary == {"a": 2, "_step": 1}


def test_two_environments_without_a_writer_are_one(tmp_path):
    """The second has what was found out later."""
    first = messages.EnvironmentRecord(os="Linux", python="3.8")
    second = messages.EnvironmentRecord(cpu_count=4, python="3.8")
    state = load(log(tmp_path, run(), {"environment": first}, {"environment": second}))

    assert len(state.environments) == 1
    assert (state.environment.os, state.environment.cpu_count) == ("Linux", 4)


@pytest.mark.parametrize(("codes", "status"), [((0, 255), "failed"), ((255, 0), "finished")])
def test_of_two_exits_the_last_one_counts(tmp_path, codes, status):
    """As for the peer's reader."""
    state = load(log(tmp_path, run(), row(0, a="1"), *(exit_record(code, 7 + at) for at, code in enumerate(codes))))

    assert (state.status(age=0), state.exit_code, state.runtime) == (status, codes[1], 8)


def test_what_comes_behind_the_exit_counts(tmp_path):
    """Rows, summary, samples, artifacts: a writer that ends is still emptying its queues."""
    stats = messages.StatsRecord(timestamp=messages.Timestamp(seconds=1_600_000_009))
    stats.item.add(key="cpu", value_json="3")
    late = ({"stats": stats}, summary(best="9"), {"artifact": messages.ArtifactRecord(name="a")}, row(1, a="2"))
    state = load(log(tmp_path, run(), row(0, a="1"), exit_record(0), *late))

    assert (state.exit_code, state.row_count, state.sample_count, len(state.artifacts)) == (0, 2, 1, 1)
    assert state.summary == {"a": 2, "best": 9, "_step": 1}


def test_retired_fields_are_passed_over(tmp_path):
    """Of envelopes, records and items: other fields count as ever."""
    retired = b"\xfa\x07\x03old" + b"\xf0\x07\x05"  # fields 127 and 126
    item = messages.HistoryItem(key="a", value_json="1").SerializeToString() + retired
    history = b"\x0a%c" % len(item) + item + b"\x12\x02\x08\x04" + retired
    stats = messages.StatsRecord(timestamp=messages.Timestamp(seconds=5)).SerializeToString() + retired
    payloads = [b"\x08\x01\x12%c" % len(history) + history + retired, b"\x08\x02\x3a%c" % len(stats) + stats]
    kinds = [messages.Record.FromString(payload).WhichOneof("record_type") for payload in payloads]
    state = load(log(tmp_path, *payloads, numbered=False))

    assert kinds == ["history", "stats"]
    assert state.rows == [{"a": 1, "_step": 4}]
    assert (state.sample_count, state.bad_records) == (1, 0)


def test_a_crashed_run_without_summary_records_has_its_last_values(tmp_path):
    """As the rows left them."""
    state = load(log(tmp_path, run(), row(0, a="1", b="1"), row(1, a="2")))

    assert state.summary == {"a": 2, "b": 1, "_step": 1}
    assert state.status(age=10**6) == "crashed"


def test_rows_without_a_step_keep_their_order(tmp_path):
    """They have no `_step`, and count from 0."""
    record = messages.HistoryRecord(item=[messages.HistoryItem(key="a", value_json="1")])
    state = load(log(tmp_path, run(), {"history": record}, {"history": record}))

    assert state.rows == [{"a": 1}, {"a": 1}]
    assert state.last_step == 1


@pytest.mark.parametrize("old", OLD, ids=lambda path: f"{path.parent.name}/{path.name}")
def test_logs_of_old_versions_fold_alike_in_both_ways(old):
    """In batches and record by record, from the logs that those versions wrote."""
    exactly = RunState().add_all(read_records(old))
    with open_log(old) as file:
        quick = RunState().add_batches(LogReader(file).batches())

    assert exactly.row_count > 0
    for state in (exactly, quick):
        assert len(state.rows) == state.row_count
    as_text = [
        json.dumps([list(state.rows), state.summary, state.config, state.counts, state.runtime], sort_keys=True)
        for state in (exactly, quick)
    ]
    assert as_text[0] == as_text[1]
    assert list(exactly.samples) == list(quick.samples)
    assert exactly.console == quick.console


def test_a_state_says_in_short_what_it_is(tmp_path):
    """In a notebook with a table of its columns."""
    state = load(log(tmp_path, run(), row(0, a="1"), exit_record(3)))

    assert repr(state) == "<RunState of old1: 1 rows, 0 samples, exit 3>"
    assert "<td>a</td><td>int</td><td>1</td><td>1</td>" in state._repr_html_()
    assert repr(RunState()) == "<RunState of unknown run: 0 rows, 0 samples, no exit>"
