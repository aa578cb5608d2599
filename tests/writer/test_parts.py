"""Rows of an explicit step: on disk within a second, in parts that carry the same step, and readable for the peer."""

from __future__ import annotations

import time

import pytest
from runferry.logformat import load
from support import peer

CALLS = [
    ({"a": 1, "n": {"x": 1}}, 0),
    ({"b": 2}, 0),
    ({"a": 3, "n": {"y": 2}}, 0),
    ({"a": 10}, 5),
    ({"c": 11, "a": 12}, 5),
]
WHOLE = [{"_step": 0, "a": 3, "b": 2, "n": {"x": 1, "y": 2}}, {"_step": 5, "a": 12, "c": 11}]


def given(row):
    return {key: value for key, value in row.items() if key == "_step" or key[0] != "_"}


@pytest.fixture
def parts(begin):
    """A log in which each call is a record of its own: each was flushed before the next one came."""
    run = begin()
    for data, step in CALLS:
        run.log(data, step=step)
        run.flush()
    (path,) = run.finish().paths
    return path


def test_an_open_row_can_be_read_within_a_second(begin):
    """Nothing but the call itself is needed: no later step, no flush."""
    run = begin()
    run.log({"a": 1}, step=3)
    began = time.monotonic()
    while not (rows := load(run.log_path).rows):
        assert time.monotonic() - began < 30  # a second, on a machine that has one for us
        time.sleep(0.05)

    assert [given(row) for row in rows] == [{"_step": 3, "a": 1}]


def test_parts_of_a_step_are_one_row(parts):
    """Later parts add to earlier ones and go over them, nested keys too; so does the summary."""
    state = load(parts)

    assert [given(row) for row in state.rows] == WHOLE
    assert (state.row_count, state.part_count, state.counts["history"]) == (2, 3, 5)
    assert {key: state.summary[key] for key in "abc"} == {"a": 12, "b": 2, "c": 11}
    assert state.summary["n"] == {"x": 1, "y": 2}


@pytest.mark.parametrize("durability", ["relaxed", "normal", "record", "disk"])
def test_a_row_has_the_time_that_the_caller_gave_it(begin, durability):
    """Also when it is finished by a part that has none, long after."""
    run = begin(durability=durability)
    run.log({"a": 1, "_timestamp": 5.0}, step=0)
    run.flush()
    run.log({"b": 2}, step=0)
    (path,) = run.finish().paths
    (row,) = load(path).rows

    assert (row["_timestamp"], given(row)) == (5.0, {"_step": 0, "a": 1, "b": 2})


def test_a_row_counts_once_in_the_mean_of_its_metric(begin):
    """With its last value, however many parts of it were written before, in the run's own summary and in the log's."""
    run = begin()
    run.define_metric("a", summary="mean,min")
    for step, values in enumerate([[1, 2, 30], [10]]):
        for value in values:
            run.log({"a": value}, step=step)
            run.flush()
    assert run.summary["a"] == {"mean": 20, "min": 10}
    (path,) = run.finish().paths

    assert load(path).summary["a"] == {"mean": 20, "min": 10}


@pytest.mark.peer
@pytest.mark.skipif(bool(peer.missing()), reason=peer.missing())
def test_the_peer_reads_a_log_of_parts(parts):
    """Up to its end and without complaint: each part is a row of its step to it."""
    entries = peer.inspect(parts)
    rows = [entry["history"] for entry in entries if entry["type"] == "history"]

    assert [int(row.get("step", {}).get("num", 0)) for row in rows] == [0, 0, 0, 5, 5]
    assert [sorted(key for key in row["item"] if key[0] != "_") for row in rows] == [
        ["a", "n.x"], ["b"], ["a", "n.y"], ["a"], ["a", "c"],
    ]  # fmt: skip
    assert entries[-1]["type"] == "exit"
    assert peer.summary(parts)
