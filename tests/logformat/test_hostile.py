"""Logs made to hurt: what they hold is read right, left out, or counted, and never raises or hangs."""

from __future__ import annotations

import io
import itertools
import json
import math
import random
import time

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from runferry.logformat import BLOCK_SIZE, Gap, LogReader, RunState, decode_history, latest_run, messages, read_records
from runferry.logformat.constants import MAX_NESTING
from runferry.logformat.nested import row_of
from runferry.logformat.record import parse_record
from runferry.logformat.summary import Summary
from runferry.logformat.values import loads, loads_all
from support.frames import alert, log_of, read_all

QUADRATIC_S = 5.0
"""Seconds that the inputs below take a hundredth of, and an algorithm of higher order takes many times over."""


def record(**fields):
    return messages.Record(num=1, **fields).SerializeToString()


def row(*items, step=None):
    history = messages.HistoryRecord()
    for path, text in items:
        history.item.add(nested_key=path, value_json=text)
    if step is not None:
        history.step.num = step
    return history


def change(kind, *items, remove=()):
    message = getattr(messages, f"{kind.title()}Record")()
    for path, text in items:
        message.update.add(nested_key=path, value_json=text)
    for path in remove:
        message.remove.add(nested_key=path)
    return record(**{kind: message})


def rows(*values):
    return [record(history=row(*value.items(), (("_step",), str(at)))) for at, value in enumerate(values)]


def state(*payloads) -> RunState:
    return RunState().add_all(read_records(io.BytesIO(log_of(*payloads))))


@given(st.lists(st.lists(st.sampled_from("ab"), min_size=1, max_size=3), min_size=1, max_size=4), st.data())
def test_the_same_names_cut_into_other_keys_are_other_keys(paths, data):
    """`a, b/c` and `a/b, c` have the same components in the same order and are told apart."""
    flat = [part for path in paths for part in path]
    cuts = sorted(data.draw(st.sets(st.integers(1, len(flat)), max_size=len(flat)))) if len(flat) > 1 else []
    edges = [0, *(cut for cut in cuts if cut < len(flat)), len(flat)]
    others = [flat[begin:end] for begin, end in itertools.pairwise(edges)]
    for shape in (paths, others):
        body = row(*((path, "1") for path in shape), (["_step"], "0")).SerializeToString()

        assert decode_history(body)[0] == (*(tuple(path) for path in shape), ("_step",))


def test_items_behind_the_step_are_read():
    """Fields may come in any order, so that what follows the step is not passed over."""
    body = row((["_step"], "1"), step=1).SerializeToString() + row((["z"], "5")).SerializeToString()

    assert decode_history(body) == ((("_step",), ("z",)), [b"1", b"5"])


def test_a_field_of_a_later_version_does_not_hide_the_record():
    """A row with an envelope field that nobody has heard of, before or behind it, is a row."""
    payload, extra = record(history=row((["a"], "1"))), b"\xca\x0c\x01x"  # field 201

    assert parse_record(payload + extra, 0, 0).kind == parse_record(extra + payload, 0, 0).kind == "history"


@pytest.mark.parametrize(
    "deep", ["[" * 5_000 + "]" * 5_000, '{"a":' * 950 + "1" + "}" * 950, "[NaN," * 300 + "1" + "]" * 300]
)
def test_a_value_that_nests_without_end_costs_itself_only(deep):
    """As row, summary and config: the other keys stand, what is left can be written as JSON, nothing raises."""
    found = state(
        record(history=row((["x"], deep), (["a"], "1"), (["_step"], "0"))),
        change("summary", (["s"], deep), (["b"], "2")),
        change("summary", (["s", "inner"], "3")),
        change("config", (["x"], deep), (["c"], "4")),
    )

    assert json.loads(json.dumps([list(found.rows), found.summary, found.config])) == [
        [{"a": 1, "_step": 0}],
        {"a": 1, "_step": 0, "b": 2, "s": {"inner": 3}},
        {"c": 4},
    ]
    assert found.bad_records == 0


@pytest.mark.parametrize(("levels", "kept"), [(MAX_NESTING, True), (MAX_NESTING + 1, False)])
def test_the_cap_on_nesting_is_exact(levels, kept):
    """The same depth is read or refused whatever the stack below holds, in values and in keys."""
    text, path = "[" * levels + "]" * levels, ["k"] * levels
    found = state(
        record(history=row((["v"], text), (path, "1"), (["_step"], "0"))),
        change("config", (["v"], text), (path, "1")),
        change("summary", (["w"], text)),
        change("summary", remove=[["r"] * levels]),
    )

    assert set(found.rows[0]) == {"_step", *(["v", "k"] if kept else [])}
    assert set(found.config) == set(found.rows[0]) - {"_step"}
    assert set(found.summary) == {"_step", *(["v", "k", "w"] if kept else [])}


@pytest.mark.parametrize("texts", [[b"1,2", b'"x', b'y"'], [b"[1", b"2]", b"3"], [b"1", b"2],[3", b"4"], [b"", b"1,2"]])
def test_broken_texts_that_join_to_good_json_are_still_broken(texts):
    """Values are what each text says, never what their sum says."""
    with pytest.raises(ValueError, match=r"unexpected|Extra|Expecting|Unterminated|delimiter"):
        loads_all(texts)
    paths = tuple((str(at),) for at in range(len(texts)))
    good = {}
    for (name,), text in zip(paths, texts, strict=True):
        try:
            good[name] = loads(text)
        except ValueError:
            continue

    assert row_of(paths, texts) == good


def test_a_null_in_a_row_leaves_what_lies_below_its_key():
    """It says nothing about the metric, and so nothing about an object of that name."""
    assert state(*rows({("n", "a"): "1"}, {("n",): "null"})).summary == {"n": {"a": 1}, "_step": 1}


def test_a_key_that_is_now_a_value_and_now_an_object_is_what_it_was_last():
    """Removals and nulls in between make no difference."""
    summary = state(
        *rows({("n", "a"): "1"}),
        change("summary", remove=[["n", "a"]]),
        *rows({("n",): "1"}, {("n", "a"): "2"}),
    ).summary

    assert summary["n"] == {"a": 2}
    assert state(*rows({("n",): "1", ("n", "a"): "2"}, {("n",): "3", ("n", "a"): "4"})).summary["n"] == {"a": 4}


UPDATES = st.tuples(
    st.sampled_from(["row", "set", "remove"]),
    st.lists(st.sampled_from([("n",), ("n", "a"), ("n", "a", "b"), ("m",)]), min_size=1, max_size=3, unique=True),
    st.sampled_from([b"1", b"null", b'{"a": 5}']),
)


@example([("row", [("n",)], b"1"), ("row", [("n", "a")], b"1"), ("row", [("n",)], b"1")])
@example([("row", [("n", "a")], b"1"), ("row", [("n",)], b"1"), ("row", [("n", "a")], b"1")])
@example([("row", [("n",)], b"1"), ("remove", [("n",)], b"1"), ("row", [("n", "a")], b"1"), ("row", [("n",)], b"1")])
@given(st.lists(UPDATES, max_size=12))
def test_a_summary_is_always_a_tree(updates):
    """Whatever came, no key has both a value and keys below it."""
    summary = Summary()
    for kind, paths, text in updates:
        if kind == "row":
            summary.update(tuple(paths), [text] * len(paths))
        for path in paths:
            if kind == "set":
                summary.set(path, text)
            elif kind == "remove":
                summary.remove(path)
        leaves = summary.leaves()

        assert not any(path[:depth] in leaves for path in leaves for depth in range(1, len(path)))
        assert isinstance(summary.tree(), dict)


def test_a_definition_that_overwrites_a_glob_counts():
    """The later one stands in the place of the earlier one of that name."""
    payloads = [
        record(metric=messages.MetricRecord(glob_name="v*", summary=messages.MetricSummary(max=True))),
        record(
            metric=messages.MetricRecord(
                glob_name="v*",
                summary=messages.MetricSummary(min=True),
                _control=messages.MetricControl(overwrite=True),
            )
        ),
    ]

    assert state(*payloads, *rows({("v1",): "1"}, {("v1",): "2"})).summary["v1"] == {"min": 1}


@pytest.mark.parametrize(
    ("glob", "name", "matches"),
    [
        ("a*", "a", True),
        ("a*", "ba", False),
        ("*a", "ab", False),
        ("*a", "ba", True),
        ("a*a", "a", False),
        ("a*a", "aa", True),
        ("*b*", "abc", True),
        ("*b*", "ac", False),
        ("a*b*c", "a1b2c", True),
        ("a*b*bc", "abc", False),
        ("*", "x\ny", True),
        ("a.b*", "axb", False),
    ],
)
def test_globs_match_as_globs_do(glob, name, matches):
    """Any text for each star, everything else as it is, nothing used twice."""
    metric = messages.MetricRecord(glob_name=glob, summary=messages.MetricSummary(max=True))

    assert (state(record(metric=metric), *rows({(name,): "1"})).summary[name] == {"max": 1}) == matches


def test_means_of_the_largest_integers_are_numbers():
    """Sums that are no double any more raise nothing."""
    metric = record(metric=messages.MetricRecord(name="x", summary=messages.MetricSummary(mean=True)))
    large = str(2**1023 - 1)
    mean = state(metric, *rows(*({("x",): text} for text in (large, large, large, "1.5")))).summary["x"]["mean"]

    assert mean == math.inf


@pytest.mark.parametrize("step", [math.inf, -math.inf, math.nan])
def test_a_branch_at_no_step_is_none(step):
    """A fork point that is not finite says nothing, and the run is read."""
    info = state(
        record(run=messages.RunRecord(run_id="x", branch_point=messages.BranchPoint(run="y", value=step)))
    ).info

    assert (info.run_id, info.branch_run, info.branch_step) == ("x", "y", None)


def test_times_that_cannot_be_are_no_times():
    """Neither an endless `_runtime` nor a clock of the far future makes an endless run."""
    run = record(run=messages.RunRecord(run_id="x", start_time=messages.Timestamp(seconds=1_000)))
    stats = record(stats=messages.StatsRecord(timestamp=messages.Timestamp(seconds=2**60)))
    far = {("_runtime",): "Infinity", ("_timestamp",): "1e300"}

    assert state(run, stats, *rows(far, {("_runtime",): "1e250"})).runtime == 0.0
    assert state(run, *rows({("_timestamp",): "1010.5"})).runtime == 10.5


def test_a_step_that_is_no_step_costs_the_step():
    """The row is counted once and kept; it follows the one before it, as a row without a step does."""
    found = state(record(history=row((["_step"], "--5"), (["a"], "1"))), record(history=row((["_step"], "9" * 5_000))))

    assert (found.row_count, found.bad_records, found.last_step) == (2, 0, 1)
    assert found.rows[0] == {"a": 1}


def test_many_stars_returns_and_keys_take_no_time_to_speak_of():
    """Input that makes a simple algorithm quadratic or worse is read in a moment."""
    begun = time.monotonic()
    metric = messages.MetricRecord(glob_name="*a" * 30 + "b", summary=messages.MetricSummary(max=True))
    state(record(metric=metric), *rows({("a" * 300,): "1"}))
    state(record(output_raw=messages.OutputRecord(output_type=1, line="x" * 400_000 + "\rA" * 200_000)))
    summary = Summary()
    for at in range(40_000):
        summary.set((f"key {at}",), b"1")

    assert time.monotonic() - begun < QUADRATIC_S


def test_the_front_of_a_line_is_overwritten_part_by_part():
    """What a later part leaves uncovered stays, and writing goes on behind the last part."""
    output = ["abcdef\rxyz\r1", "2\n", "long line\rab\rlonger than that\rc\n", "\r\r\n", "ab\rc", "\rd\n"]
    lines = state(*(record(output_raw=messages.OutputRecord(output_type=1, line=part)) for part in output)).console

    assert [line.text for line in lines] == ["12zdef", "conger than that", "", "db"]


def test_a_line_beyond_the_cap_is_cut_into_lines_of_the_cap(monkeypatch):
    """However it came, in one fragment or several, complete or not."""
    monkeypatch.setattr("runferry.logformat.terminal.MAX_LINE", 10)
    found = state(
        *(record(output_raw=messages.OutputRecord(output_type=1, line=part)) for part in ("x" * 25 + "\n", "y" * 9))
    )

    assert [len(line.text) for line in found.console] == [10, 10, 5]
    assert [len(line.text) for line in found.console_rest] == [9]


def test_a_link_that_leads_out_through_a_run_is_not_followed(tmp_path):
    """`latest-run` names a folder beside it; a path that begins like a run and climbs out is none."""
    inside = tmp_path / "wandb" / "run-20261130_142500-x"
    inside.mkdir(parents=True)
    (tmp_path / "elsewhere").mkdir()
    (inside.parent / "latest-run").symlink_to(f"{inside.name}/../../elsewhere")

    assert latest_run(inside.parent) == inside


def test_after_each_item_position_is_where_the_next_one_is_found():
    """Whoever stops behind a gap or a record, and reads on from `position`, misses nothing and gets nothing twice."""
    records = [alert(num, "." * (num % 50)) for num in range(1, 1_500)]
    rng = random.Random(5)
    for _ in range(12):
        log = bytearray(log_of(*records))
        for at in rng.sample(range(7, len(log) - 8), 4):
            log[at : at + 7] = rng.choice([bytes(7), rng.randbytes(7)])
        whole = read_all(bytes(log))
        reader = LogReader(io.BytesIO(bytes(log)))
        for index, item in enumerate(reader.finish(), 1):
            if isinstance(item, Gap) or isinstance(whole[index % len(whole)], Gap) or rng.random() < 0.01:
                rest = list(read_records(io.BytesIO(bytes(log)), start=reader.position))

                assert [(left.offset, left.end) for left in rest] == [(left.offset, left.end) for left in whole[index:]]


def test_the_same_reader_goes_on_where_a_reading_was_left():
    """A caller that leaves `poll` at the gap gets the record behind it from the next `poll`."""
    log = bytearray(log_of(*(alert(num) for num in range(1, 5))))
    log[40] ^= 0xFF
    reader = LogReader(io.BytesIO(bytes(log)))
    found = [next(iter(reader.poll())) for _ in range(4)]

    assert found == read_all(bytes(log))
    assert len(log) < BLOCK_SIZE
