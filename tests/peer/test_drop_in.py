"""The same scripts by the peer and by us (`import runferry as wandb`): two logs that say the same."""

from __future__ import annotations

import dataclasses
import math

import pytest
from runferry.logformat import load
from support import peer

pytestmark = pytest.mark.peer

KINDS = ["console", "edits", "exception", "globs", "long", "metrics", "resumed", "scalars"]
CLOCK = {"_timestamp", "_runtime", "_wandb"}
"""Keys of rows and summaries that only the clock knows."""


def pairs(ours, made, kind):
    """The states of both logs, segment by segment."""
    return [tuple(map(load, logs)) for logs in zip(ours(kind).logs, made(kind).logs, strict=True)]


def less(tree, *keys):
    """`tree` without `keys` and what only the clock knows, its floats spelled so that NaN equals NaN."""
    return peer.finite({key: value for key, value in tree.items() if key not in {*keys, *CLOCK}})


@pytest.mark.parametrize("kind", KINDS)
def test_rows_are_the_same(ours, made, kind):
    """Values, nesting, steps and the order of rows."""
    for mine, theirs in pairs(ours, made, kind):
        rows = [less(row) for row in mine.rows]
        if kind == "scalars":  # a step back, while a later one is open: the peer drops the row, we keep it
            rows.remove({"loss": 99, "_step": 3})

        assert peer.same(rows, [less(row) for row in theirs.rows])


@pytest.mark.parametrize("kind", KINDS)
def test_the_summary_is_the_same(ours, made, kind):
    """Last values, metrics with a summary of their own, what the user set and removed."""
    named = {"edits": ["not_finite"], "metrics": ["plain"]}.get(kind, [])
    for mine, theirs in pairs(ours, made, kind):
        if kind == "edits":
            assert math.isnan(mine.summary["not_finite"])
            assert theirs.summary["not_finite"] is None
        elif kind == "metrics":  # defined behind some rows: we fold from there on, the peer had counted before
            assert (mine.summary["plain"], theirs.summary["plain"]) == ({"min": 100}, {"min": 0})

        assert peer.same(less(mine.summary, *named), less(theirs.summary, *named))


@pytest.mark.parametrize("kind", KINDS)
def test_config_is_the_same(ours, made, kind):
    """Initial values, updates of the whole and of parts; big integers stay exact in ours."""
    for mine, theirs in pairs(ours, made, kind):
        if kind == "edits":
            assert (math.isnan(mine.config["nan"]), theirs.config["nan"]) == (True, None)
            # The user's config has what was assigned; the peer's log merges it into what was there.
            assert (mine.config["model"], theirs.config["model"]) == ({"depth": 3}, {"depth": 3, "width": 64})
        named = ["nan", "model"] if kind == "edits" else []

        assert peer.same(less(mine.config, *named), less(theirs.config, *named))


@pytest.mark.parametrize("kind", KINDS)
def test_everything_else_is_the_same(ours, made, kind):
    """Names, tags, notes, alerts, metric definitions, console, exit code and preemption."""
    for mine, theirs in pairs(ours, made, kind):
        infos = [dataclasses.asdict(state.info) for state in (mine, theirs)]
        starts = [info.pop("start_time_ns") for info in infos]

        assert infos[0] == infos[1]
        assert all(starts)
        assert mine.alerts == theirs.alerts
        assert [peer.plain(metric) for metric in mine.metrics] == [peer.plain(metric) for metric in theirs.metrics]
        assert (mine.exit_code, mine.preempting) == (theirs.exit_code, theirs.preempting)
        assert lines(mine, kind) == lines(theirs, kind)
    assert ours(kind).exit_code == made(kind).exit_code


def lines(state, kind):
    """The console, less the frames through which our scripts are started."""
    shown = [(line.stream, line.text) for line in [*state.console, *state.console_rest]]
    return [line for line in shown if kind != "exception" or ("runpy" not in line[1] and "<string>" not in line[1])]
