"""Batches fold to what their records fold to, and a log that grows to what its prefix folds to."""

from __future__ import annotations

import io
import json
import math
from unittest import mock

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from runferry.logformat import Batch, LogReader, RunState, messages, read_records
from runferry.logformat.column import Column
from runferry.logformat.columns import Rows
from runferry.logformat.segments import fold
from support.frames import log_of

TEXTS = st.sampled_from(
    [
        *("1", "2", "0.5", "-3", "1e5", "0.25", "7", '"train"', '"a,b"', "true", "false", "9007199254740993"),
        *(
            "null",
            "NaN",
            "-Infinity",
            "18446744073709551617",
            '{"x":1}',
            "[1,2]",
            "[",
            "1,2",
            '"\n"',
            '"null"',
            "1e400",
        ),
    ]
)
PLAIN = st.sampled_from(["1", "2", "0.5", "-3", "1e5", "0.25", "7"])
KEYS = st.sampled_from(["loss", "acc", "train/x", "n\0x", "n\0y", "n\0x\0z", "n", "_timestamp", "_runtime", "k" * 130])
PAIRS = st.lists(st.tuples(KEYS, PLAIN), max_size=5, unique_by=lambda pair: pair[0]) | st.lists(
    st.tuples(KEYS, TEXTS), max_size=4
)
ROW = st.tuples(
    PAIRS,
    st.sampled_from(["+1"] * 6 + ["+0", "-1", "none", "1.5"]),
    st.sampled_from(["", "", "same", "other", "step", "own", "own"]),
)
OTHER = st.sampled_from(
    ["console", "stats", "config", "run", "metric", "max", "all", "glob", "inner", "bad", "exit", "header", "python"]
)
SCRIPT = st.lists(st.lists(ROW, min_size=1, max_size=6) | OTHER, max_size=12)


def fill(kind, record, pairs):
    """Put items into a history or summary record."""
    for key, text in pairs:
        if "\0" in key or len(key) > 5:
            getattr(record, kind).add(nested_key=key.split("\0"), value_json=text)
        else:
            getattr(record, kind).add(key=key, value_json=text)
    return record


def payloads(script):
    """The records of a log."""
    found, step = [], 0

    def add(**fields):
        found.append(messages.Record(num=len(found) + 1, **fields).SerializeToString())

    for part in script:
        if isinstance(part, list):
            for pairs, how, summary in part:
                step += {"+1": 1, "-1": -1}.get(how, 0)
                text = None if how == "none" else str(step) if how != "1.5" else how
                items = [*pairs, *([] if text is None else [("_step", text)])]
                if summary == "same":
                    add(summary=fill("update", messages.SummaryRecord(), items))
                elif summary == "own":  # as the peer says what defined metrics leave
                    said = [(f"{key}\0max" if key in {"loss", "acc"} else key, value) for key, value in items]
                    add(summary=fill("update", messages.SummaryRecord(), said))
                elif summary:
                    what = ("best", str(step)) if summary == "other" else ("_step", str(step))
                    add(summary=fill("update", messages.SummaryRecord(), [what]))
                history = fill("item", messages.HistoryRecord(), items)
                if text is not None and text.isdigit():
                    history.step.num = int(text)
                add(history=history)
        elif part == "bad":
            found.append(b"\x12\x03\x0a\x7fx")
        else:
            metric = messages.MetricRecord(name="acc", step_metric="_step")
            metric.summary.max = part == "max"
            of_all = messages.MetricRecord(name="loss", goal=2 if step % 2 else 1)
            for kind in ("min", "max", "mean", "best", "last", "first"):
                setattr(of_all.summary, kind, True)
            by_glob = messages.MetricRecord(glob_name="train*")
            by_glob.summary.mean = True
            inner = messages.MetricRecord(name="n.x")
            inner.summary.min = True
            stats = messages.StatsRecord(timestamp=messages.Timestamp(seconds=100 + step))
            stats.item.add(key="cpu", value_json=str(step / 2))
            run = messages.RunRecord(run_id="r", start_time=messages.Timestamp(seconds=5 + step))
            by_python = messages.RunRecord(run_id="r", start_time=messages.Timestamp(seconds=5))
            by_python.telemetry.cli_version = "0.12.0"  # which writes the whole summary each time
            fields = {
                "python": {"run": by_python},
                "all": {"metric": of_all},
                "glob": {"metric": by_glob},
                "inner": {"metric": inner},
                "console": {"output_raw": messages.OutputRecord(line=f"line {step}\nrest")},
                "stats": {"stats": stats},
                "config": {"config": fill("update", messages.ConfigRecord(), [("c", str(step))])},
                "run": {"run": run},
                "exit": {"exit": messages.RunExitRecord(exit_code=step % 3, runtime=4)},
                "header": {"header": messages.HeaderRecord()},
            }
            add(**fields.get(part, {"metric": metric}))
    return found


def exact(value):
    """What two values must have in common to be the same: -0.0 is not 0, 1 is not 1.0, NaN is NaN."""
    return json.dumps(value, sort_keys=True)


def everything(state):
    """All that a state says."""
    columns = {
        path: (column.kind, list(column.rows), exact(list(column.values)))
        for path, column in zip(state.rows.paths, state.rows.columns, strict=True)
    }
    return {
        "rows": exact(list(state.rows)),
        "columns": dict(sorted(columns.items())),
        "summary": exact(state.summary),
        "config": exact(state.config),
        "counts": dict(state.counts),
        "samples": list(state.samples),
        "console": (state.console, state.console_rest),
        "steps": (state.row_step, state.last_step, state.highest_step, state.log_highest, state.cut_count),
        "rest": (state.row_count, state.part_count, state.sample_count, state.bad_records, state.gaps),
        "time": (state.runtime, state.last_runtime, state.last_time_ns, state.exit_code, state.exit_runtime),
        "lost": state.lost(),
        "is": (state.has_run, state.summary_step, state.folds_metrics),
    }


@settings(max_examples=150, deadline=None)
@given(SCRIPT, st.booleans())
def test_batches_fold_to_what_their_records_fold_to(script, keep):
    """Whatever rows, parts, summary records and others stand in a log."""
    log = log_of(*payloads(script))

    quick = RunState(keep_rows=keep).add_batches(LogReader(io.BytesIO(log)).batches())
    exactly = RunState(keep_rows=keep).add_all(read_records(io.BytesIO(log)))

    assert everything(quick) == everything(exactly)


@settings(max_examples=60, deadline=None)
@given(SCRIPT, st.lists(st.integers(1, 400), min_size=1, max_size=6))
def test_a_log_that_grows_folds_to_what_its_prefix_folds_to(script, sizes):
    """After each poll, wherever what is there by then ends: in a row, in a chunk, between a summary and its row."""
    log = log_of(*payloads(script))
    live, file = RunState(), io.BytesIO()
    reader = LogReader(file)
    end = 0
    for turn in range(40):
        if end >= len(log):
            break
        end = len(log) if turn == 39 else min(len(log), end + sizes[turn % len(sizes)])
        file.seek(0)
        file.write(log[:end])
        live.add_batches(reader.poll_batches())
        prefix = RunState().add_batches(LogReader(io.BytesIO(log[:end])).poll_batches())
        assert everything(live) == everything(prefix)


def test_rows_of_the_usual_form_are_taken_many_at_once():
    """Not one by one: only the first and last of a batch may be."""
    rows = [([("loss", str(step / 7)), ("acc", "1")][:: (-1) ** step], "+1", "same") for step in range(2000)]
    log = log_of(*payloads([rows]))

    with mock.patch.object(Rows, "append", autospec=True, side_effect=Rows.append) as alone:
        state = RunState().add_batches(LogReader(io.BytesIO(log)).batches())

    assert len(state.rows) == 2000
    assert alone.call_count <= 6


@pytest.mark.parametrize("keep", [True, False])
def test_rows_of_which_summary_records_speak_are_taken_many_at_once(keep):
    """What the peer's core folded itself stands, whatever the rows would leave; metrics of later logs go on from the rows."""
    rows = [([("loss", str(math.sin(step))), ("acc", str(step))], "+1", "own") for step in range(2000)]
    rest = [([("loss", "-0.5"), ("acc", "1")], "+1", "")] * 9
    log = log_of(*payloads(["all", "max", rows[:1500], "console", rows[1500:], rest]))

    with mock.patch.object(RunState, "add_block", autospec=True, side_effect=RunState.add_block) as blocks:
        state = RunState(keep_rows=keep).add_batches(LogReader(io.BytesIO(log)).batches())

    assert sum(len(call.args[1].offsets) for call in blocks.call_args_list) > 1900
    assert any(call.kwargs["is_spoken_for"] for call in blocks.call_args_list)
    assert state.counts["summary"] == 2000
    assert state.summary["acc"] == {"max": 1999}
    assert state.summary["loss"]["min"] == min(math.sin(step) for step in range(2000))
    assert everything(state) == everything(RunState(keep_rows=keep).add_all(read_records(io.BytesIO(log))))


@pytest.mark.parametrize("keep", [True, False])
def test_rows_of_defined_metrics_are_taken_many_at_once(keep):
    """Their summaries are those of the rows one by one: means are summed in order, the first value stays the first."""
    rows = [([("loss", str(math.sin(step) / 3)), ("acc", "1")], "+1", "") for step in range(2000)]
    log = log_of(*payloads(["all", rows[:1500], "console", rows[1500:]]))

    with mock.patch.object(RunState, "add_block", autospec=True, side_effect=RunState.add_block) as blocks:
        state = RunState(keep_rows=keep).add_batches(LogReader(io.BytesIO(log)).batches())

    assert sum(len(call.args[1].offsets) for call in blocks.call_args_list) > 1900
    values = [math.sin(step) / 3 for step in range(2000)]
    total = 0.0
    for value in values:
        total += value
    assert state.summary["loss"] == {
        "min": min(values),
        "max": max(values),
        "best": min(values),
        "mean": total / 2000,
        "first": values[0],
        "last": values[-1],
    }


def both(*bodies):
    """The fold of a log in the quick way, and in the long one."""
    log = log_of(*(messages.Record(num=at, **body).SerializeToString() for at, body in enumerate(bodies, 1)))
    return (
        RunState().add_batches(LogReader(io.BytesIO(log)).batches()),
        RunState().add_all(read_records(io.BytesIO(log))),
    )


def defined(name, *kinds, overwrite=False):
    """A metric record."""
    metric = messages.MetricRecord(name=name, summary=messages.MetricSummary(**dict.fromkeys(kinds, True)))
    metric._control.overwrite = overwrite
    return {"metric": metric}


def history(step, **texts):
    """A row."""
    return {"history": fill("item", messages.HistoryRecord(), [*texts.items(), ("_step", str(step))])}


def test_summary_records_of_a_later_log_do_not_speak_for_its_rows():
    """They know of their own log alone: the minimum is that of both, also where no batch ends between them."""
    logs = [
        [
            {"run": messages.RunRecord(run_id="r", start_time=messages.Timestamp(seconds=second))},
            *[
                body
                for step in range(first, first + 3)
                for body in (
                    {"summary": fill("update", messages.SummaryRecord(), [("m\0min", "5"), ("_step", str(step))])},
                    history(step, m=str(second + step)),
                )
            ],
        ]
        for second, first in ((1, 0), (2, 3))
    ]
    quick, exactly = both(defined("m", "min"), *logs[0], *logs[1])

    assert quick.summary["m"] == exactly.summary["m"] == {"min": 1}


def test_objects_that_hold_defined_metrics_are_opened():
    """As they are row by row."""
    quick, exactly = both(defined("n.x", "min"), *(history(step, n=f'{{"x":{9 - step}}}') for step in range(4)))

    assert quick.summary["n"] == exactly.summary["n"] == {"x": {"min": 6}}


def test_a_metric_that_leaves_no_summary_leaves_none():
    """Whatever kinds are asked for beside that."""
    quick, exactly = both(defined("m", "none", "max"), *(history(step, m="[1]" if step else "2") for step in range(4)))

    assert quick.summary == exactly.summary == {"_step": 3}


def test_values_of_a_defined_metric_that_are_no_doubles():
    """Texts have a first and a last one; integers beyond all doubles are infinite."""
    texts = ['"a"', "1", '"b"', "2"]
    quick, exactly = both(
        defined("m", "first", "last", "mean"),
        defined("big", "max", "mean"),
        *(history(step, m=text, big="9" * 308 if step == 1 else "1") for step, text in enumerate(texts)),
    )

    assert quick.summary == exactly.summary
    assert quick.summary["m"] == {"first": "a", "last": 2, "mean": 1.5}
    assert quick.summary["big"] == {"max": math.inf, "mean": math.inf}


def test_a_definition_that_is_taken_back_gives_the_last_value():
    """Nothing is folded then."""
    quick, _ = both(defined("m", "max"), history(0, m="5"), defined("m", overwrite=True), history(1, m="2"))

    assert not quick.folds_metrics
    assert quick.summary["m"] == 2


def test_a_part_behind_rows_taken_at_once_replaces_what_its_row_counted():
    """The row counts once, with the later value of the metric."""
    part = [([("loss", "9")], "+0", "")]
    log = log_of(*payloads(["all", [([("loss", str(step))], "+1", "") for step in range(5)], part]))

    state = RunState().add_batches(LogReader(io.BytesIO(log)).batches())

    assert state.summary["loss"]["mean"] == (0 + 1 + 2 + 3 + 9) / 5


def test_a_poll_costs_what_is_new(monkeypatch):
    """Not what was there: as many values are looked at for the last rows of a long log as for the first ones."""
    rows = [([("loss", str(step / 7)), ("n\0x", "1")], "+1", "") for step in range(3000)]
    chunks = payloads([rows])
    touched = []

    def counted(name):
        before = getattr(Column, name)

        def wrapper(self, rows, values, texts):
            touched.append(1 if name == "append" else len(values))
            return before(self, rows, values, texts)

        return wrapper

    for name in ("append", "extend"):
        monkeypatch.setattr(Column, name, counted(name))
    for name in ("slice", "doubles", "_become_json", "_is_exact"):
        monkeypatch.setattr(Column, name, mock.Mock(side_effect=AssertionError(name)))
    state, file = RunState(), io.BytesIO()
    reader = LogReader(file)
    costs = []
    for end in range(100, 3001, 100):
        file.seek(0)
        file.write(log_of(*chunks[:end]))
        before = len(touched), sum(touched)
        state.add_batches(reader.poll_batches())
        costs.append((len(touched) - before[0], sum(touched) - before[1]))

    assert set(costs[1:]) == {(3, 300)}
    assert len(state.rows) == 3000


@pytest.mark.parametrize("keep", [True, False])
def test_gaps_stand_where_they_are(keep):
    """Damage in the midst of plain rows costs those that it touches."""
    rows = [([("loss", str(step / 7))], "+1", "") for step in range(3000)]
    log = bytearray(log_of(*payloads([rows])))
    log[70_000] ^= 0x55
    log[70_001] ^= 0x55

    quick = RunState(keep_rows=keep).add_batches(LogReader(io.BytesIO(log)).batches())
    exactly = RunState(keep_rows=keep).add_all(read_records(io.BytesIO(log)))

    assert quick.damage
    assert everything(quick) == everything(exactly)
    assert any(isinstance(item, Batch) for item in LogReader(io.BytesIO(log)).batches())


def extended(texts, path=("k",)):
    """Rows of one key, taken many at once."""
    rows = Rows()
    for part in texts:
        values = [json.loads(text) for text in part]
        rows.extend(len(part), [(path, range(len(part)), values, [text.encode() for text in part])])
    return rows


@pytest.mark.parametrize(
    "texts",
    [
        [["1", "2"], ["0.5", "3"], ["9007199254740993", "0.5"]],
        [["1", "0.5"], ["2", "-9007199254740993", "0.5"]],
        [["1", "0.5"], ["NaN", "9007199254740993", "2"]],
        [["9223372036854775807", "9223372036854775808"]],
        [["1", "2"], ["9223372036854775808", "5"]],
        [["true", "false"], ["true"], ["1", "2"]],
        [["null", "null"], ["1", "2"], ["null", "3"]],
    ],
)
def test_values_taken_many_at_once_are_exact(texts):
    """Integers that are no doubles, or too long for 64 bits, and kinds that change."""
    values = [json.loads(text) for part in texts for text in part]

    found = extended(texts).column("k").values

    assert list(map(repr, found)) == list(map(repr, values))


def test_a_part_behind_rows_taken_at_once_finds_their_keys():
    """A key above those that the last of them has takes their place."""
    rows = extended([["1", "2"]], path=("n", "x"))
    rows.merge((("n",),), [b"5"])

    assert rows == [{"n": {"x": 1}}, {"n": 5}]
    assert list(rows.column(("n", "x")).rows) == [0]


@pytest.mark.parametrize("beside", ["1", "NaN", "[1]"])
@pytest.mark.parametrize("is_every", [True, False])
def test_a_value_that_nests_too_deep_is_left_out_of_plain_rows(beside, is_every):
    """Of many rows at once as of one by one: the row keeps its other values, and nothing is raised."""
    deep = '{"a":' * 200 + "1" + "}" * 200
    rows = [[("deep", deep if is_every or step == 1 else "[2]"), ("x", beside)] for step in range(3)]
    script = [[(pairs, "+1", "") for pairs in rows]]
    log = log_of(*payloads(script))

    at_once, one_by_one = RunState(), RunState()
    at_once.add_batches(LogReader(io.BytesIO(log)).batches())
    for record in read_records(io.BytesIO(log)):
        one_by_one.add(record)

    assert repr([*at_once.rows]) == repr([*one_by_one.rows])
    assert [("deep" in row, "x" in row) for row in at_once.rows] == [
        (not is_every and step != 1, True) for step in range(3)
    ]
    assert at_once.rows.paths == one_by_one.rows.paths


def test_large_integers_in_plain_rows_stay_what_they_are():
    """Though the parser that takes many at once makes floats of them."""
    big = ["18446744073709551617", "1", "-36893488147419103233", "1e300"]
    log = log_of(*payloads([[row for text in big for row in [([("loss", text), ("acc", "7")], "+1", "")] * 3]]))

    found = RunState().add_batches(LogReader(io.BytesIO(log)).batches()).rows.column("loss").values

    assert found == [json.loads(text) for text in big for _ in range(3)]


def test_an_object_that_was_set_into_is_as_fixed_as_others_once_the_next_row_began():
    """What one reader does to it, no other one sees."""
    rows = Rows()
    rows.append((("n",), ("n", "x")), [b"{}", b"1"])
    rows.append((("m",),), [b"1"])
    rows[0]["n"]["x"] = 2

    assert rows[0] == {"n": {"x": 1}}


SEGMENTS = [
    ([], [(0, 5), (3, 4)]),
    ([1000, 2000], [(0, 6), (0, 5)]),
    ([1000, 2000, 3000], [(0, 5), (5, 6), (0, 4)]),
    ([1000, 2000], [(0, 9), (4, 9)]),
]


@pytest.mark.parametrize("timed", [True, False])
@pytest.mark.parametrize(("starts", "spans"), SEGMENTS)
def test_logs_of_one_run_fold_alike_in_both_ways(tmp_path, starts, spans, timed):
    """Where steps repeat or count from 0 again, and times with them; rows as usual as can be."""
    logs = []
    for at, (first, count) in enumerate(spans):
        head = []
        if starts:
            start = messages.Timestamp(seconds=starts[at])
            run = messages.RunRecord(run_id="r", start_time=start)
            head = [messages.Record(num=1, run=run).SerializeToString()]
        rows = []
        for step in range(first, first + count):
            history = messages.HistoryRecord(step=messages.HistoryStep(num=step))
            time = "_runtime" if timed else "clock"
            for key, text in (("loss", str(at + step / 7)), (time, str(step + 0.25)), ("_step", str(step))):
                history.item.add(key=key, value_json=text)
            rows.append(messages.Record(num=2 + step, history=history).SerializeToString())
        path = tmp_path / f"run-{at}.wandb"
        path.write_bytes(log_of(*head, *rows))
        logs.append(path)

    quick, exactly = RunState(), RunState()
    for _ in fold(logs, quick):
        pass
    with mock.patch.object(RunState, "add_batches", lambda state, found: state.add_all(_records(found))):
        for _ in fold(logs, exactly):
            pass
    bare = RunState()
    for log in logs:  # noticed by the log's own records alone
        bare.add_batches(LogReader(io.BytesIO(log.read_bytes())).batches())
    bare_exactly = RunState()
    for log in logs:
        bare_exactly.add_all(read_records(log))

    assert everything(quick) == everything(exactly)
    assert everything(bare) == everything(bare_exactly)


def _records(found):
    for item in found:
        yield from item.records() if isinstance(item, Batch) else [item]
