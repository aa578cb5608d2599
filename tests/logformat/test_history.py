"""Rows as the formats of all generations hold them."""

from __future__ import annotations

import json
import math

import pytest
from hypothesis import given
from hypothesis import strategies as st
from runferry.logformat import decode_history, messages
from runferry.logformat.nested import row_of
from runferry.logformat.values import loads, loads_all

KEYS = st.lists(st.text(min_size=1, max_size=200), min_size=1, max_size=4).map(tuple)


def history(*items, step=None):
    record = messages.HistoryRecord()
    for item in items:
        record.item.add(**item)
    if step is not None:
        record.step.num = step
    return record.SerializeToString()


@given(st.lists(st.tuples(KEYS, st.text(min_size=1, max_size=300)), max_size=8))
def test_any_keys_and_texts_are_read_as_protobuf_reads_them(items):
    """The fast walk and the message classes agree, in order, for keys and values of any length."""
    items = [*items, (("_step",), "1")]
    body = history(*({"nested_key": path, "value_json": text} for path, text in items))
    paths, texts = decode_history(body)

    assert list(zip(paths, texts, strict=True)) == [(path, text.encode()) for path, text in items]


@pytest.mark.parametrize("length", [1, 127, 128, 133, 300, 20_000])
@pytest.mark.parametrize("last", ["x", "\x12", "\x0a"])
def test_keys_of_any_length_are_read_as_they_are(length, last):
    """Lengths on both sides of a varint's byte, and keys that end in what could be a tag."""
    key = "k" * (length - 1) + last
    body = history({"nested_key": ["a", key], "value_json": "1"}, {"key": key, "value_json": "2"}, step=1)

    assert decode_history(body) == ((("a", key), (key,), ("_step",)), [b"1", b"2", b"1"])


def test_rows_of_the_same_keys_share_their_paths():
    """A plan made for one row serves the next."""
    rows = [
        history({"nested_key": ["a"], "value_json": str(i)}, {"nested_key": ["_step"], "value_json": str(i)})
        for i in range(2)
    ]

    assert decode_history(rows[0])[0] is decode_history(rows[1])[0]


def test_plain_keys_are_one_component():
    """Logs from before 0.18 have `key`, and a dot in it separates nothing."""
    assert decode_history(history({"key": "a.b", "value_json": "1"}, step=3)) == ((("a.b",), ("_step",)), [b"1", b"3"])


def test_a_nested_key_wins_over_a_plain_one():
    """Where both are set, the nested one counts."""
    paths, _ = decode_history(history({"key": "x", "nested_key": ["a", "b"], "value_json": "1"}, step=0))

    assert paths == (("a", "b"), ("_step",))


def test_a_typed_value_wins_over_its_text():
    """Values written by type come as the JSON that says the same."""
    items = [
        ({"none": 0}, b"null"),
        ({"boolean": True}, b"true"),
        ({"integer": -7}, b"-7"),
        ({"integer": 2**53 + 1}, b"9007199254740993"),
        ({"number": 0.5}, b"0.5"),
        ({"number": math.inf}, b"Infinity"),
        ({"number": -math.inf}, b"-Infinity"),
        ({"number": math.nan}, b"NaN"),
        ({"text": 'a"b'}, b'"a\\"b"'),
        ({"json": "[1]"}, b"[1]"),
    ]
    body = history(*({"nested_key": ["k"], "value_json": "9", **typed} for typed, _ in items))

    assert decode_history(body)[1] == [text for _, text in items]


def test_the_step_field_serves_where_no_item_does():
    """A row always has a step if the log has one anywhere; the item wins."""
    assert decode_history(history(step=0)) == ((("_step",),), [b"0"])
    assert decode_history(history({"nested_key": ["_step"], "value_json": "5"}, step=4))[1] == [b"5"]


def test_bare_nan_and_infinities_are_values():
    """Python's spelling of what JSON cannot say."""
    row = row_of((("a",), ("b",), ("c",)), [b"NaN", b"Infinity", b"-Infinity"])

    assert math.isnan(row["a"])
    assert (row["b"], row["c"]) == (math.inf, -math.inf)


def test_nested_keys_make_nested_rows_and_the_last_item_wins():
    """Paths become dicts; dots and slashes in a component stay."""
    row = row_of((("x", "y"), ("x", "z", "w"), ("a.b/c",), ("x", "y")), [b"1", b"2", b"3", b"4"])

    assert row == {"x": {"y": 4, "z": {"w": 2}}, "a.b/c": 3}


def test_a_broken_value_costs_itself_only():
    """Empty, cut or doubled texts leave the other keys in place."""
    row = row_of((("a",), ("b",), ("c",), ("d",)), [b"", b"1", b"{", b"1,2"])

    assert row == {"b": 1}


@given(
    st.lists(
        st.one_of(
            st.integers(-(2**80), 2**80),
            st.floats(),
            st.text(),
            st.none(),
            st.booleans(),
            st.lists(st.integers(0, 2**70)),
        )
    )
)
def test_values_are_exact(values):
    """Integers of any size, floats to the bit, text to the character; alone and in a row."""
    texts = [json.dumps(value).encode() for value in values]
    for found in (loads_all(texts), [loads(text) for text in texts]):
        assert repr(found) == repr(values)
