"""The fold of defined metrics, where the peer's own records say what is right."""

from __future__ import annotations

import math

import pytest
from runferry.logformat import RunState, loads, messages
from runferry.logformat.record import parse_record


def state_of(*bodies) -> RunState:
    """The fold of these messages, given as (kind, message)."""
    state = RunState()
    for num, (kind, body) in enumerate(bodies, 1):
        payload = messages.Record(num=num, **{kind: body}).SerializeToString()
        state.add(parse_record(payload, 0, len(payload)))
    return state


def metric(name, *kinds):
    return "metric", messages.MetricRecord(name=name, summary=messages.MetricSummary(**dict.fromkeys(kinds, True)))


def items(values):
    return [{"nested_key": key.split("/"), "value_json": text} for key, text in values.items()]


def row(step, **values):
    return "history", messages.HistoryRecord(item=items({**values, "_step": str(step)}))


def summary(**values):
    return "summary", messages.SummaryRecord(update=items(values))


def test_one_nan_is_the_extreme_of_everything():
    """A NaN is not passed over in silence: it stays minimum, maximum and mean, and the last value goes on."""
    folded = state_of(metric("a", "min", "max", "mean", "last"), row(0, a="3"), row(1, a="NaN"), row(2, a="5")).summary

    assert [math.isnan(folded["a"][kind]) for kind in ("min", "max", "mean")] == [True] * 3
    assert folded["a"]["last"] == 5


def test_only_numbers_have_extremes_and_anything_is_first_or_last():
    """Texts, truth values and lists leave minimum, maximum and mean alone."""
    rows = [row(0, a='"text"'), row(1, a="2"), row(2, a="true"), row(3, a="4"), row(4, a="[1]"), row(5, a="null")]
    folded = state_of(metric("a", "min", "max", "mean", "first", "last"), *rows).summary

    assert folded["a"] == {"min": 2, "max": 4, "mean": 3, "first": "text", "last": [1]}


def test_a_text_without_extremes_says_what_it_is():
    """A metric that never was a number keeps its value in the summary."""
    assert state_of(metric("a", "max"), row(0, a='"text"')).summary["a"] == "text"


@pytest.mark.parametrize("digits", [400, 4000])
def test_an_integer_beyond_all_doubles_is_infinite(digits):
    """No number that a log can hold breaks the fold."""
    folded = state_of(metric("a", "max", "mean"), row(0, a="-1" + "0" * digits), row(1, a="1" + "0" * digits))

    assert folded.bad_records == 0
    assert folded.summary["a"]["max"] == math.inf


def test_an_escaped_dot_belongs_to_the_name():
    r"""`a\.b` is the metric "a.b"; `a.b` is "b" inside "a"."""
    folded = state_of(metric(r"a\.b", "max"), metric("c.d", "max"), row(0, **{"a.b": "1", "c/d": "2"})).summary

    assert folded == {"a.b": {"max": 1}, "c": {"d": {"max": 2}}, "_step": 0}


def test_a_summary_record_with_the_step_of_the_row_behind_it_has_folded_that_row():
    """The peer writes what a row makes of the summary just before the row: its word holds."""
    folded = state_of(
        metric("a", "mean"),
        ("summary", messages.SummaryRecord(update=items({"a/mean": "7", "_step": "0"}))),
        row(0, a="1"),
        row(1, a="3"),
    ).summary

    assert folded == {"a": {"mean": 2}, "_step": 1}, (
        "a row without a record before it folds, and counts the ones before"
    )


def test_rows_of_a_later_segment_are_not_taken_for_folded_ones():
    """Steps of the next segment begin at 0 again, which the last summary of the one before may carry."""
    run = ("run", messages.RunRecord(run_id="r"))

    assert state_of(run, row(0, a="1"), summary(a="1", _step="0"), run, row(0, a="2")).summary["a"] == 2


def test_half_a_surrogate_pair_is_replaced():
    """Every text that is read can be written again."""
    assert loads(rb'["\ud800", {"\udc00x": "\ud83d\ude00"}]') == ["\ufffd", {"\ufffdx": "\U0001f600"}]
