"""Rows in columns are the rows that were logged."""

from __future__ import annotations

import json
import math
from array import array

import pytest
from hypothesis import given
from hypothesis import strategies as st
from runferry.logformat.columns import Rows
from runferry.logformat.nested import row_of

TEXTS = st.sampled_from(
    [
        *("0", "1", "-1", "7", "9007199254740992", "9007199254740993", "-9223372036854775808", "9223372036854775808"),
        *("0.5", "-0.0", "1e300", "0.1", "1.0", "NaN", "Infinity", "-Infinity", "1e999", "36893488147419103232"),
        *("null", "true", "false", '"a"', '"b"', '"\\u00e9"', '"\\ud800"', '""', "[]", "[1,2.5]", "{}"),
        *('{"x":1}', '{"x":{"y":2},"z":[null]}', '{"_type":"histogram","values":[1],"bins":[0,1]}', "{", "", "1,2"),
    ]
)
PATHS = st.lists(st.sampled_from(["x", "y", "z", "x.y", "a/b", "w "]), min_size=1, max_size=3).map(tuple)
ITEMS = st.lists(st.tuples(PATHS, TEXTS), max_size=5)
LOG = st.lists(st.tuples(st.booleans(), ITEMS), max_size=12)
"""Records: whether each is a further part of the row before it, and its items."""


def exact(value):
    """What two values must have in common to be the same: -0.0 is not 0, 1 is not 1.0, NaN is NaN."""
    return json.dumps(value, sort_keys=True)


def both(log):
    """The rows in columns, and as they were kept before there were columns."""
    rows, model = Rows(), []
    for is_part, items in log:
        paths, texts = tuple(path for path, _ in items), [text.encode() for _, text in items]
        if is_part and model:
            rows.merge(paths, texts)
            row_of(paths, texts, model[-1])
        else:
            rows.append(paths, texts)
            model.append(row_of(paths, texts))
    return rows, model


@given(LOG)
def test_columns_give_the_rows_back(log):
    """Whatever kinds of values a key has, whichever keys lie in each other, and in however many parts a row came."""
    rows, model = both(log)

    assert exact(list(rows)) == exact(model)
    assert [exact(rows[at]) for at in range(len(model))] == list(map(exact, model))
    assert exact(rows[1:-1]) == exact(model[1:-1])
    assert exact(rows[::-2]) == exact(model[::-2])


@given(LOG)
def test_a_column_has_the_values_of_its_rows(log):
    """Row by row, all at once, and as doubles; no column is empty."""
    rows, _ = both(log)

    for column in rows.columns:
        assert len(column) == len(column.rows) == len(column.values) > 0
        assert exact([column.get(row) for row in column.rows]) == exact(list(column.values))
        assert list(column.rows) == sorted(set(column.rows))
        assert {row for row in range(len(rows)) if column.get(row, math) is not math} == set(column.rows)
        assert [value is None for value in column.values] == [at in set(column.nulls) for at in range(len(column))]
        numbers = [float(value) if isinstance(value, (int, float)) else math.nan for value in column.values]
        assert exact(list(column.doubles())) == exact(numbers)


def filled(*texts, path=("k",)):
    """The column of one key that has these values in turn; None for a row that lacks it."""
    rows = Rows()
    for text in texts:
        rows.append(*(((), []) if text is None else ((path,), [text.encode()])))
    return rows.column(path)


@pytest.mark.parametrize(
    ("texts", "kind", "values"),
    [
        (["1", "2"], "int", array("q", [1, 2])),
        (["1.5", "-0.0"], "float", array("d", [1.5, -0.0])),
        (["1", "2.5"], "number", [1, 2.5]),
        (["2.5", "1"], "number", [2.5, 1]),
        (["1", "null", "3"], "int", [1, None, 3]),
        (["null", "0.5"], "float", [None, 0.5]),
        (["true", "false"], "bool", [True, False]),
        (['"a"', '"b"'], "text", ["a", "b"]),
        (["1", "true"], "json", [1, True]),
        (["1", str(2**63)], "json", [1, 2**63]),
        ([str(2**53 + 1), "0.5"], "json", [2**53 + 1, 0.5]),
        (["0.5", str(2**53 + 1)], "json", [0.5, 2**53 + 1]),
        (["[1]", "null"], "json", [[1], None]),
        (["null"], "json", [None]),
    ],
)
def test_the_kind_of_a_column_is_that_of_all_its_values(texts, kind, values):
    """Integers and floats stay apart where both are exact in doubles; a mixture of other kinds is kept as JSON."""
    column = filled(*texts)

    assert (column.kind, column.values) == (kind, values)
    assert list(map(type, column.values)) == list(map(type, values))


def test_rows_of_a_column_are_a_range_until_there_is_a_gap():
    """So that the keys that every row has cost no numbers of rows."""
    assert filled(None, "1", "2", None).rows == range(1, 3)
    assert filled("1", None, "2").rows == array("q", [0, 2])


@pytest.mark.parametrize(
    ("paths", "names"),
    [
        ([("a", "b"), ("c",)], ["a.b", "c"]),
        ([("a", "b"), ("a.b",)], ["a.b", "a\\.b"]),
        ([("a", "b.c"), ("a.b", "c"), ("a", "b", "c")], ["a.b\\.c", "a\\.b.c", "a.b.c"]),
        ([("a", "b"), ("a.b",), ("a\\.b",)], ["a.b", "a\\.b", "a\\\\\\.b"]),
    ],
)
def test_names_are_unique(paths, names):
    """Components are joined by dots, which inside of components are marked where two keys would be called the same."""
    rows = Rows()
    for path in paths:
        rows.append((path,), [b"1"])

    assert rows.names == dict(zip(paths, names, strict=True))
    assert [column.name for column in rows.columns] == names
    assert [rows.column(name).path for name in names] == paths


def test_a_key_that_no_row_has_is_a_key_error():
    """Also one whose only value was replaced by that of a key above it."""
    rows = Rows()
    rows.append((("n", "x"), ("n",)), [b"1", b"2"])

    assert rows.paths == (("n",),)
    for path in (("n", "x"), "n.x", "no"):
        with pytest.raises(KeyError):
            rows.column(path)


def test_what_was_named_follows_new_columns():
    """Names are made again once there is a further key."""
    rows = Rows()
    rows.append((("a", "b"),), [b"1"])
    assert list(rows.names.values()) == ["a.b"]
    rows.append((("a.b",),), [b"1"])
    assert list(rows.names.values()) == ["a.b", "a\\.b"]
