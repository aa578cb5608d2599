"""Rows folded on their way to the server leave what the reader's fold leaves, however the summary records stand among them."""

from __future__ import annotations

import io
import json
from pathlib import Path
from typing import Any
from unittest import mock

from hypothesis import given, settings
from hypothesis import strategies as st
from runferry.logformat import Record, RunState, decode_history, messages, read_records
from runferry.sync.rowfold import RowFold
from runferry.sync.scan import scan
from support import logs
from support.frames import log_of

KEYS = ["a", "b", "n/x", "n/y", "_runtime"]
TEXTS = st.sampled_from(["0", "1.5", "null", "NaN", '"text"', '{"x":1}', "[1]"])
ROWS = st.dictionaries(st.sampled_from(KEYS), TEXTS, max_size=5)


def items(kind: Any, values: dict[str, str], turn: int) -> list[Any]:
    """The items, walked from `turn` on and round."""
    pairs = list(values.items())
    turn %= len(pairs) or 1
    return [kind(nested_key=key.split("/"), value_json=text) for key, text in pairs[turn:] + pairs[:turn]]


def log_records(steps: list[tuple[str, dict[str, str], dict[str, str], int]]) -> list[Record]:
    payloads = []
    for step, (form, values, other, turn) in enumerate(steps):
        row = {**values, "_step": str(step)}
        said = {"repeated": row, "without null": {k: v for k, v in row.items() if v != "null"}, "other": other}.get(
            form
        )
        if said is not None:
            summary = messages.SummaryRecord(update=items(messages.Item, said, turn))
            payloads.append(messages.Record(summary=summary).SerializeToString())
        if form != "alone":
            history = messages.HistoryRecord(
                item=items(messages.HistoryItem, row, 0), step=messages.HistoryStep(num=step)
            )
            payloads.append(messages.Record(history=history).SerializeToString())
        else:
            payloads.append(
                messages.Record(
                    summary=messages.SummaryRecord(update=items(messages.Item, other, 0))
                ).SerializeToString()
            )
    return [item for item in read_records(io.BytesIO(log_of(*payloads))) if isinstance(item, Record)]


FORMS = st.sampled_from(["repeated", "without null", "other", "bare", "alone"])


@settings(max_examples=300, deadline=None)
@given(st.lists(st.tuples(FORMS, ROWS, ROWS, st.integers(0, 5)), max_size=8))
def test_the_fold_on_the_way_is_the_readers_fold(steps: list[tuple[str, dict[str, str], dict[str, str], int]]) -> None:
    """Summary, row count and last step agree, for summary records that repeat their row, say less, more, or come alone."""
    records = log_records(steps)
    expected, state = RunState(keep_rows=False).add_all(records), RunState(keep_rows=False)
    fold = RowFold(state)
    for record in records:
        if record.kind == "history":
            fold.row(*decode_history(record.body), record.body)
        else:
            fold.summary(record)
    fold.flush()

    assert json.dumps(state.summary, sort_keys=True) == json.dumps(expected.summary, sort_keys=True)
    assert (state.row_count, state.last_step) == (expected.row_count, expected.last_step)


def test_a_summary_record_that_repeats_its_row_is_not_even_read() -> None:
    """What the peer writes twice costs once."""
    records = log_records([("repeated", {"a": "1", "b": "2", "n/x": "3"}, {}, turn) for turn in range(4)])
    read: list[Record] = []

    class Watched(RunState):
        def add(self, item: Any) -> None:
            read.append(item)
            super().add(item)

    fold = RowFold(Watched(keep_rows=False))
    for record in records:
        if record.kind == "history":
            fold.row(*decode_history(record.body), record.body)
        else:
            fold.summary(record)
    fold.flush()

    assert [record.kind for record in records].count("summary") == 4
    assert read == []


def test_rows_of_defined_metrics_are_folded_many_at_once(tmp_path: Path) -> None:
    """A log that defines a minimum costs a sync what any other one costs, and leaves what a reader's fold leaves."""
    metric = messages.MetricRecord(name="loss")
    metric.summary.min = True
    log = logs.make_log(
        tmp_path / "run-a.wandb",
        logs.run_record("a"),
        messages.Record(metric=metric),
        *(logs.row(step) for step in range(500)),
    )
    with mock.patch.object(RunState, "add_block", autospec=True, side_effect=RunState.add_block) as blocks:
        state = RunState(keep_rows=False)
        facts = scan(log, state, start_ns=0, young=False)

    assert facts.row_records == 500
    assert sum(len(call.args[1].offsets) for call in blocks.call_args_list) > 490
    assert state.summary == RunState().add_all(read_records(log)).summary
    assert state.summary["loss"] == {"min": 1 / 500}
