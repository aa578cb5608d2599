"""The quick way of plain rows leads where the long way leads: to the same bytes, the same fold, the same cursor."""

from __future__ import annotations

import contextlib
import json
import tempfile
from pathlib import Path
from typing import Any
from unittest import mock

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from runferry.logformat import RunState, decode_history, load, messages
from runferry.logformat.plainrows import Gathered
from runferry.sync import rowlane
from runferry.sync.lines import Rows
from runferry.sync.plainrows import LineBlock, LineRows
from runferry.sync.scan import NeedsFold
from support import logs
from support.lane import fresh, read, sent

KEYS = st.sampled_from(
    ["a", "b", "loss", "train/x", "key of 18 letters.", "\n", "\u00e9\u00df", 'quo"te', "x" * 100, "x" * 130, "_runtime",
     "_timestamp", "_step", "n\x00m", "n\x00o", "_wandb\x00runtime", "_wandb", ""]
)  # fmt: skip
NUMBERS = st.one_of(
    st.floats(allow_nan=False, allow_infinity=False).map(repr),
    st.integers(-(10**20), 10**20).map(str),
    st.sampled_from(["0", "1.5", "1e5", "-0.0", "1790000000.25"]),
)
ODD_TEXTS = (
    ["null", "NaN", "Infinity", "-Infinity", "true", '"train"', '"a,b"', '"[x]"', '"null"', '"\\n"', "[1, 2]", "[1,\n2]",
     '{"_type":"histogram","bins":[1,2]}', "{", "[1", "2]", "1,2", "", "007", '"a', 'b"', ".5", "1.", "+1", "1_000", " 1",
     '"\u00e9"', '"\\ud800"', json.dumps("y" * 200), "[" * 30 + "]" * 30]
)  # fmt: skip
ODD = st.sampled_from(ODD_TEXTS)
ROW = st.tuples(
    st.lists(st.tuples(KEYS, st.one_of(NUMBERS, NUMBERS, NUMBERS, ODD)), max_size=6),
    st.sampled_from(["+1", "+1", "+1", "+1", "+0", "none", "5.0", "-3", "007", "true"]),
    st.sampled_from(["repeated", "repeated", "turned", "other", "none", "other and repeated", "says less"]),
    st.booleans(),
)
LOG = st.lists(st.one_of(ROW, ROW, ROW, ROW, st.sampled_from(["console", "sample", "summary", "other"])), max_size=14)


def items(kind: Any, pairs: list[tuple[str, str]], *, plain: bool) -> list[Any]:
    """Items of a message; a NUL in a key stands between its levels, and keys may stand by themselves."""
    return [
        kind(key=key, value_json=text)
        if plain and "\0" not in key
        else kind(nested_key=key.split("\0"), value_json=text)
        for key, text in pairs
    ]


def records(script: list[Any]) -> list[Any]:
    """The records of a log: rows with summary records before them, and others."""
    found: list[Any] = []
    step = 0
    small = [("_wandb\0runtime", "12"), ("_runtime", "12")]
    for at, entry in enumerate(script):
        if entry == "console":
            found.append(logs.output(f"line {at}\nrest"))
        elif entry == "sample":
            found.append(logs.sample(at))
        elif entry == "summary":
            found.append(logs.summary_record({"best": at}))
        elif entry == "other":
            found.append(logs.config_record({"c": at}))
        else:
            pairs, how, summary, plain = entry
            step += {"+1": 1, "-1": -1}.get(how, 0)
            text = {"+1": str(step), "+0": str(step), "-1": str(step), "none": None}.get(how, how)
            pairs = [*pairs, *([] if text is None else [("_step", text)])]
            if "other" in summary:
                runtime = items(messages.Item, [(key, str(12 + at // 3)) for key, _ in small], plain=True)
                found.append(messages.Record(summary=messages.SummaryRecord(update=runtime)))
            if summary not in ("none", "other"):
                turned = {"turned": pairs[1:] + pairs[:1], "says less": pairs[-1:]}.get(summary, pairs)
                update = items(messages.Item, turned, plain=plain)
                found.append(messages.Record(summary=messages.SummaryRecord(update=update)))
            history = messages.HistoryRecord(item=items(messages.HistoryItem, pairs, plain=plain))
            if text is not None and text.isdigit():
                history.step.num = int(text)
            found.append(messages.Record(history=history))
    return found


class Way:
    """What a sync of a log sends and leaves, by both ways or by the long one alone."""

    def __init__(self, log: Path, *, quick: bool, fold: bool, shift: int, body_bytes: int, known: int) -> None:
        cursor = fresh(shift)
        cursor.sent.history = known
        long_way = mock.patch.object(Gathered, "reach", lambda _, first, end, before, spoken: (first, spoken))
        with contextlib.nullcontext() if quick else long_way:
            facts, state = read(log, fold_rows=not fold)
            facts.lines.history = max(facts.lines.history, 0)
            self.bodies = sent(facts, cursor, state if fold else None, body_bytes).raw
        self.sent, self.offset = cursor.sent, cursor.offset
        self.dropped = cursor.dropped
        self.state = (
            json.dumps(state.summary, sort_keys=not fold),  # a summary record beside its row may have another order
            state.row_count, state.last_step, state.highest_step, state.part_count,
            state.elapsed.latest, state.elapsed.latest_ns, state.elapsed.total, state.bad_records, state.gaps,
        )  # fmt: skip


def both_ways(script: list[Any], **options: Any) -> tuple[Way, RunState]:
    with tempfile.TemporaryDirectory() as folder:
        log = logs.make_log(Path(folder) / "run-x.wandb", logs.run_record("x"), *records(script))
        quick, long = Way(log, quick=True, **options), Way(log, quick=False, **options)
        exact = load(log)
    assert quick.bodies == long.bodies
    for body in map(json.loads, quick.bodies):
        for line in body["files"].get("wandb-history.jsonl", {"content": []})["content"]:
            json.loads(line)  # whatever texts the log holds
    assert (quick.sent, quick.offset, quick.dropped) == (long.sent, long.offset, long.dropped)
    assert quick.state == long.state
    return quick, exact


@settings(max_examples=200, deadline=None)
@given(LOG, st.booleans(), st.sampled_from([0, 1000]), st.sampled_from([150, 700, 10**6]), st.integers(0, 3))
def test_both_ways_send_and_leave_the_same(
    script: list[Any], fold: bool, shift: int, body_bytes: int, known: int
) -> None:
    """Whatever rows, texts, parts, summary records and others stand in a log, and wherever its bodies end."""
    both_ways(script, fold=fold, shift=shift, body_bytes=body_bytes, known=known)


def plain_row(*pairs: tuple[str, str], how: str = "+1", summary: str = "none") -> Any:
    return list(pairs), how, summary, False


@pytest.mark.parametrize("fold", [True, False])
@pytest.mark.parametrize(
    "rows",
    [
        *([plain_row(("a", "1")), plain_row(("a", text)), plain_row(("a", "2"))] for text in ODD_TEXTS),
        *([plain_row(("_step", str(at)), ("a", text), how="none") for at in range(3)] for text in ODD_TEXTS),
        [plain_row(("a", "[1"), ("b", "2]"), ("c", "3,4")), plain_row(("a", "1"))],
        [plain_row(("a", '"x'), ("b", 'y"'), ("c", "3,4")), plain_row(("a", "1"))],
        [plain_row(("a", "1"), ("a", "2")), plain_row(("a", "3"))],
        [plain_row(("a", "1"), ("b", "2")), plain_row(("b", "3"), ("a", "4"))],
        [plain_row(("_runtime", "5"), summary="other"), plain_row(("a", "1"), summary="other")],
        [plain_row(("a", "1")), plain_row(("b", "3")), plain_row(("a", "4"))],
        [plain_row(("_wandb", '{"x":1}'), summary="other"), plain_row(("a", "1"), summary="other")],
        [plain_row((key, text), summary="other") for key, text in (("a", "1"), ("_wandb", '{"x":1}'), ("a", "2"))],
        [plain_row(("a", "1"), summary="repeated"), plain_row(("b", "3"), how="+0"), plain_row(("b", "2"))],
        [plain_row(("a", "1"), summary="repeated"), plain_row(("a", "3"), how="+0"), plain_row(("b", "2"))],
        [plain_row(("a", "1"), summary="repeated"), plain_row(("b", "2")), plain_row(("a", "4"), how="-1")],
        [plain_row(("a", "1"), summary="says less"), plain_row(("b", "3")), plain_row(("a", "2"))],
        [plain_row(("a", "1"), summary="says less"), plain_row(("a", "3"), how="-1"), plain_row(("a", "2"))],
        [plain_row(("a", "1"), summary="other and repeated"), "console"] * 4,
    ],
    ids=repr,
)
def test_what_is_not_plain_takes_the_long_way(rows: list[Any], fold: bool) -> None:
    """Texts that are no JSON by themselves, keys that come twice or lie in each other, summary records that speak for a row."""
    for body_bytes in (150, 10**6):
        quick, exact = both_ways(rows, fold=fold, shift=0, body_bytes=body_bytes, known=0)
        summary = json.dumps(json.loads(quick.state[0]), sort_keys=True)
        assert (summary, quick.state[1]) == (json.dumps(exact.summary, sort_keys=True), exact.row_count)


PLAIN = messages.HistoryRecord(
    item=items(
        messages.HistoryItem, [("a", "0.25"), ("train/loss", "12"), ("_step", "1"), ("t", '"train"')], plain=False
    ),
    step=messages.HistoryStep(num=1),
).SerializeToString()


def taken(*bodies: bytes) -> LineBlock | None:
    """The last row as a block of its own, if it is plain beside those before it."""
    rows = LineRows(0, folds=True)
    gathered = rows.gather([("history", body, 0, len(body), 0, len(body)) for body in bodies], 0)
    last = len(bodies) - 1
    end, spoken = gathered.reach(last, last + 1, None, b"")
    return rows.block(gathered, last, end, 0, spoken) if end > last else None


@settings(max_examples=600, deadline=None)
@given(
    st.lists(st.tuples(st.integers(0, len(PLAIN)), st.integers(0, 2), st.binary(max_size=3)), min_size=1, max_size=3)
)
def test_a_row_with_wrong_lengths_is_never_taken_for_a_plain_one(edits: list[tuple[int, int, bytes]]) -> None:
    """Bytes changed, left out, or put in anywhere: what is taken is what the decoder reads, lengths and all."""
    body = PLAIN
    for at, gone, put in edits:
        body = body[:at] + put + body[at + gone :]
    block = taken(PLAIN, body)
    if block is None:
        return

    rows = Rows()
    rows.add(*decode_history(body), 0)
    row = rows.end()

    assert row is not None
    assert block.text == rows.line(row)


@pytest.mark.parametrize("changed", [{1: 1}, {3: 1}, {7: 1}, {7: -1}, {1: 1, 7: 1}, {1: -1, 7: -1}, {1: 1, 3: 1}])
def test_each_length_of_an_item_counts(changed: dict[int, int]) -> None:
    """Of the item, its key, and its value; also where those in its head agree with each other."""
    body = bytearray(PLAIN)
    assert body[:9] == b"\n\x0a\x12\x01a\x82\x01\x040"
    for at, by in changed.items():
        body[at] += by

    assert taken(PLAIN, PLAIN)
    assert not taken(PLAIN, bytes(body))


def test_rows_of_the_peer_are_not_decoded_one_by_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of a thousand rows in shuffled order, each with its two summary records, only those at the edges take the long way."""
    script = [
        plain_row(*((f"k{(step + at) % 5}", repr(step / 7)) for at in range(5)), summary="other and repeated")
        for step in range(1000)
    ]
    log = logs.make_log(tmp_path / "run-x.wandb", logs.run_record("x"), *records(script))
    long: list[bytes] = []
    monkeypatch.setattr(rowlane, "decode_history", lambda body: long.append(body) or decode_history(body))
    facts, state = read(log, fold_rows=False)

    bodies = sent(facts, fresh(), state)

    assert len(long) <= 12
    assert bodies.rows() == load(log).rows
    assert state.summary == load(log).summary


@pytest.mark.parametrize("summary", [False, True])
def test_a_metric_that_only_names_its_step_needs_no_fold(tmp_path: Path, summary: bool) -> None:
    """Only a definition that gives a metric a summary of its own makes the first reading fold the rows."""
    metric = messages.MetricRecord(name="a", step_metric="_step")
    if summary:
        metric.summary.max = True
    row = logs.row(0, {"a": 1})
    log = logs.make_log(tmp_path / "run-x.wandb", logs.run_record("x"), messages.Record(metric=metric), row)

    if summary:
        with pytest.raises(NeedsFold):
            read(log, fold_rows=False)
    else:
        facts, state = read(log, fold_rows=False)
        sent(facts, fresh(), state)
        assert state.summary == load(log).summary
