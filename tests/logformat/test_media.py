"""Images, histograms and tables that a log holds leaf by leaf are one value again."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st
from runferry.logformat.columns import Rows
from runferry.logformat.media import media_type
from runferry.logformat.nested import row_of

IMAGE = {"_type": '"image-file"', "path": '"media/a.png"', "size": "10"}
HISTOGRAM = {"_type": '"histogram"', "values": "[1, 2.50]", "bins": "[0,1,2]"}


def row(*parts):
    """A row of these records, each a dict of dotted keys and JSON texts."""
    rows = Rows()
    for number, part in enumerate(parts):
        add = rows.merge if number else rows.append
        add(tuple(tuple(key.split(".")) for key in part), [text.encode() for text in part.values()])
    return rows


def below(key, leaves):
    """Leaves as writers flatten them."""
    return {f"{key}.{name}": text for name, text in leaves.items()}


@pytest.mark.parametrize("value", [IMAGE, HISTOGRAM, {"_type": '"table-file"', "ncols": "2"}])
def test_a_flattened_value_is_one_column(value):
    """Of kind `json`, whose value says what it is; other keys beside it are columns of their own."""
    rows = row({"loss": "1", **below("val.img", value), "acc": "2"})

    assert rows.paths == (("loss",), ("val", "img"), ("acc",))
    assert rows.column(("val", "img")).kind == "json"
    assert media_type(rows.column("val.img").values[0]) == json.loads(value["_type"])
    whole = {name: json.loads(text) for name, text in value.items()}
    assert rows[0] == {"loss": 1, "acc": 2, "val": {"img": whole}}


def test_what_is_inside_of_a_value_belongs_to_it():
    """The outermost counts, and objects in it are objects."""
    rows = row({**below("img", IMAGE), "img.masks.m._type": '"mask-file"', "img.masks.m.size": "3"})

    assert rows.paths == (("img",),)
    assert rows[0]["img"]["masks"] == {"m": {"_type": "mask-file", "size": 3}}


@pytest.mark.parametrize(
    ("parts", "paths"),
    [
        ([{"a._type": '"mine"', "a.loss": "1"}], ["a._type", "a.loss"]),
        ([{"a._type": "5", "a.loss": "1"}], ["a._type", "a.loss"]),
        ([{"_type": '"histogram"', "loss": "1"}], ["_type", "loss"]),
        ([{"a": "1", **below("a", IMAGE)}], ["a._type", "a.path", "a.size"]),
        ([{"a.path": '"b"'}, {"a._type": '"image-file"'}], ["a.path", "a._type"]),
    ],
)
def test_other_objects_stay_columns(parts, paths):
    """A `_type` of one's own, at the top, or where other items stand in the way."""
    assert [".".join(path) for path in row(*parts).paths] == paths


ITEMS = st.dictionaries(
    st.sampled_from(["a", "a._type", "a.x", "a.x._type", "a.x.y", "a.z", "b._type", "b.q.r"]),
    st.sampled_from(['"histogram"', '"image-file"', '"no"', "1", "null", '{"_type":"histogram","k":2}', "{"]),
    max_size=6,
)


@given(st.lists(ITEMS, min_size=1, max_size=4))
def test_the_row_is_what_was_logged(parts):
    """However its values lie in each other, in one part or several."""
    model = {}
    for part in parts:
        row_of(tuple(tuple(key.split(".")) for key in part), [text.encode() for text in part.values()], before=model)

    assert row(*parts)[0] == model


@pytest.mark.parametrize("value", [None, 5, "histogram", [], {}, {"_type": 5}, {"_type": "mine"}])
def test_what_is_no_media_has_no_type(value):
    """Any value may be asked."""
    assert media_type(value) is None


@pytest.mark.parametrize("depth", [126, 127, 128, 129])
def test_a_value_too_deep_is_left_out_as_ever(depth):
    """With its parts: nothing stands in its place."""
    home = ("k",) * depth
    paths, texts = ((*home, "_type"), (*home, "path")), [b'"image-file"', b'"a"']
    rows = Rows()
    rows.append(paths, texts)

    assert rows[0] == row_of(paths, texts)


def test_a_value_that_replaces_all_of_an_object_replaces_its_parts():
    """Where items of the record stand above parts, whichever comes later counts."""
    leaves = below("a.b", HISTOGRAM)

    assert list(row({**leaves, "a": "5"})) == [{"a": 5}]
    assert list(row({"a.b.values": "[]", "a": "5", "a.b._type": '"histogram"'})) == [
        {"a": {"b": {"_type": "histogram"}}}
    ]
