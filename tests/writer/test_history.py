"""Rows to bytes, judged by protobuf and by the reader."""

from __future__ import annotations

import json
import math

import pytest
from hypothesis import given
from hypothesis import strategies as st
from runferry.logformat import decode_history, loads, messages
from runferry.writer.history import MAX_HEADS, HistoryEncoder

NAMES = st.text(min_size=1, max_size=150)
KEYS = st.one_of(NAMES, st.lists(NAMES, min_size=2, max_size=4).map(tuple))
JSON = st.recursive(
    st.one_of(st.none(), st.booleans(), st.integers(-(2**80), 2**80), st.floats(), st.text(max_size=200)),
    lambda inner: st.one_of(st.lists(inner, max_size=4), st.dictionaries(st.text(max_size=5), inner, max_size=3)),
    max_leaves=8,
)
STEPS = st.integers(-(2**63), 2**63 - 1)


def encode(row, step=0, runtime=0.5, wall=2.0, encoder=None):
    """The record as protobuf reads it, and the values by path as our reader does."""
    encoder = encoder or HistoryEncoder()
    plan = encoder.plan(row)
    body, parts, nulls = encoder.encode(plan, plan.values(row, step, runtime, wall), step)
    record = messages.Record.FromString(body)
    paths, texts = decode_history(record.history.SerializeToString())
    written = [tuple(map(repaired, path)) for path in plan.paths if ".".join(path) not in encoder.unwritable]
    assert written == [tuple(item.nested_key) for item in record.history.item]
    assert len(parts) == len(plan.paths)
    assert nulls or b"null" not in parts
    return record, dict(zip(paths, map(loads, texts), strict=True))


def repaired(text):
    """Lone surrogates cannot be written."""
    return text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")


def same(a, b):
    """Equal, where NaN equals itself and 1 is not 1.0 nor true."""
    if isinstance(a, float) and isinstance(b, float):
        return a == b or (math.isnan(a) and math.isnan(b))
    if isinstance(a, list) and isinstance(b, list):
        return len(a) == len(b) and all(map(same, a, b))
    if isinstance(a, dict) and isinstance(b, dict):
        return a.keys() == b.keys() and all(same(a[key], b[key]) for key in a)
    return type(a) is type(b) and a == b


@given(row=st.dictionaries(KEYS, JSON, max_size=12), step=STEPS)
def test_any_row_comes_back(row, step):
    """Whatever the keys and values: each comes back as it was, with step, runtime and time beside it."""
    own = ("_step", "_runtime")
    _, values = encode(row, step)
    expected = {(key,) if isinstance(key, str) else key: value for key, value in row.items() if key not in own}
    expected = {("_timestamp",): 2.0} | expected | {("_step",): step, ("_runtime",): 0.5}

    assert same(
        {str(path): value for path, value in values.items()}, {str(path): value for path, value in expected.items()}
    )


@given(rows=st.lists(st.dictionaries(st.sampled_from("abcd"), st.floats(), max_size=4), max_size=10))
def test_rows_of_few_keys_share_plans(rows):
    """A plan that is used again gives each row its own values."""
    encoder = HistoryEncoder()
    for number, row in enumerate(rows):
        _, values = encode(row, number, encoder=encoder)

        assert same({key: values[key,] for key in row}, row)


@pytest.mark.parametrize("step", [0, 1, 127, 128, 16_383, 16_384, 2_097_151, 2_097_152, 2**62, -1])
def test_the_step_stands_twice(step):
    """Once as an item of plain digits and once as a field: each has readers that look nowhere else."""
    record, values = encode({"a": 1.0}, step)

    assert record.history.HasField("step")
    assert record.history.step.num == step
    assert values["_step",] == step
    assert [item.value_json for item in record.history.item if list(item.nested_key) == ["_step"]] == [str(step)]


def test_values_that_are_no_numbers_stand_bare():
    """NaN and infinities as the peer writes them, alone and inside lists."""
    record, _ = encode({"a": math.nan, "b": math.inf, "c": -math.inf, "d": [math.nan]})

    assert [item.value_json for item in record.history.item][:4] == ["NaN", "Infinity", "-Infinity", "[NaN]"]


def test_the_callers_step_and_runtime_are_ours():
    """A row's own `_step` and `_runtime` are ignored; its `_timestamp` is kept."""
    _, values = encode({"_step": 99, "a": 1, "_runtime": 9.0, "_timestamp": 1.5}, step=3)

    assert values == {("a",): 1, ("_step",): 3, ("_runtime",): 0.5, ("_timestamp",): 1.5}


@pytest.mark.parametrize("text", ["\ud800", "a\udfffb", "\ud83d\ude00", "x" * 200 + "\udc00"])
def test_lone_surrogates_are_replaced(text):
    """A record with invalid text would be refused whole; halves that belong together are joined."""
    _, values = encode({"s": text, "l": [text], f"k{text}": 1})

    assert values["s",] == repaired(text)
    assert values["l",] == [repaired(text)]
    assert values[f"k{repaired(text)}",] == 1


def test_an_integer_without_text_costs_its_own_key():
    """The interpreter refuses to print very long integers; the row goes on without, and the key is named."""
    encoder = HistoryEncoder()
    _, values = encode({"huge": 10**5000, "a": 1}, encoder=encoder)

    assert values["a",] == 1
    assert ("huge",) not in values
    assert list(encoder.unwritable) == ["huge"]


def test_plans_are_bounded(monkeypatch):
    """Code whose keys never repeat costs no memory without end, neither by many rows nor by long ones."""
    monkeypatch.setattr("runferry.writer.history.MAX_PLANNED_KEYS", 2000)
    encoder = HistoryEncoder()
    for number in range(300):
        encode({f"key{number}": 1.0}, encoder=encoder)
        assert len(encoder._plans) <= 118

    for number in range(4):
        encode(dict.fromkeys(map(str, range(number, 2000))), encoder=encoder)
    assert len(encoder._plans) == 1


def test_a_row_of_ten_metrics_is_small():
    """At most 510 bytes in the file, for names and values of ordinary length."""
    row = {f"train/metric_{number}": 0.1234567890123456 + number for number in range(10)}
    record, _ = encode(row, 123_456, 12345.678901, 1796026835.9964528)

    assert len(record.SerializeToString()) + 7 + len("\x08\x80\x80\x01") <= 510
    assert json.loads(record.history.item[0].value_json) == row["train/metric_0"]


def test_what_is_remembered_of_keys_is_bounded(monkeypatch):
    """Keys without end, and values of every length, don't fill the memory."""
    monkeypatch.setattr("runferry.writer.history.MAX_PLANNED_KEYS", 100)
    encoder = HistoryEncoder()
    for number in range(1000):
        plan = encoder.plan({"text": "x" * number, f"key {number}": 1})
        encoder.encode(plan, plan.values({"text": "x" * number, f"key {number}": 1}, 0, 0.0, 0.0), 0)

    assert len(encoder._heads) <= 200
    assert max(map(len, encoder._heads.values())) <= MAX_HEADS

    heads = encoder.plan({"text": ""}).heads[0]
    assert all(heads[length] for length in range(1000))
    assert len(heads) <= MAX_HEADS
