"""The types of columns: how they grow, and what they refuse."""

from __future__ import annotations

import datetime as dt
import json
import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from runferry.writer.media.column_types import (
    BOOLEAN,
    NONE,
    NUMBER,
    STRING,
    TIMESTAMP,
    Anything,
    Array,
    Constant,
    ImageType,
    Listed,
    Plain,
    PythonObject,
    TypedDict,
    Union,
    Unknown,
    optional_type,
    type_from,
    type_of,
)
from runferry.writer.media.histogram import Histogram
from runferry.writer.media.html import Html
from runferry.writer.media.image import Image

VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5) | st.dates(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3),
    max_leaves=6,
)


@pytest.mark.parametrize(
    ("value", "kind"),
    [
        (None, NONE),
        (math.nan, NONE),
        ("x", STRING),
        (np.str_("x"), STRING),
        (1, NUMBER),
        (1.5, NUMBER),
        (np.float32(1), NUMBER),
        (2j, NUMBER),
        (True, BOOLEAN),
        (np.bool_(True), BOOLEAN),
        (dt.datetime(2020, 1, 1), TIMESTAMP),  # noqa: DTZ001 - as users have them
        (dt.date(2020, 1, 1), TIMESTAMP),
        (np.datetime64("2020-01-01"), TIMESTAMP),
        ([1, 2], Listed(NUMBER, 2)),
        ((1, None), Listed(optional_type(NUMBER), 2)),
        ([1, "x"], PythonObject("list")),
        ({"a": 1}, TypedDict({"a": NUMBER})),
        (np.zeros((2, 3)), Array((2, 3))),
        (object(), PythonObject("object")),
        (Html("x"), Plain("html-file")),
        (Histogram(np_histogram=([1], [0, 1])), PythonObject("Histogram")),
    ],
)
def test_values_have_types(value, kind):
    """Of Python, numpy and media."""
    assert type_of(value) == kind


@pytest.mark.parametrize(
    ("dtype", "kind"),
    [
        (int, NUMBER),
        (str, STRING),
        (dt.datetime, TIMESTAMP),
        (list, Listed(Unknown())),
        (dict, TypedDict({})),
        ([int], Listed(NUMBER)),
        ([], Listed(Unknown())),
        ([int, str], Union((NUMBER, STRING))),
        ({"a": int}, TypedDict({"a": NUMBER})),
        (Html, Plain("html-file")),
        (object, PythonObject("object")),
        (NUMBER, NUMBER),
        (np.float64, NUMBER),
    ],
)
def test_a_dtype_means_a_type(dtype, kind):
    """Types of Python and of media, and lists and dicts of them."""
    assert type_from(dtype) == kind


def test_a_constant_takes_itself_only():
    """Not what is equal to it, but of another type."""
    kind = type_from(3)

    assert kind.take(3) is kind
    assert kind.take(4) is kind.take(3.0) is None
    assert kind.join(Constant(3)) is kind
    assert kind.to_json() == {"wb_type": "const", "params": {"val": 3, "is_set": False}}


def test_the_unknown_becomes_what_comes_first():
    """And None does not count."""
    kind = optional_type(Unknown())

    assert kind.take(None) == kind
    assert kind.take(1) == optional_type(NUMBER)
    assert kind.take(1).take("x") is None
    assert Unknown().take(None) is None


def test_a_list_grows_by_its_elements():
    """Its length counts as long as it is the same; text is no list."""
    kind = type_of([1, 2])

    assert kind.join(type_of([3])) == Listed(NUMBER, None)
    assert kind.take([3]) == Listed(NUMBER, 1)
    assert kind.take(["x"]) is kind.take("ab") is kind.take(5) is None


def test_an_array_takes_its_shape_or_a_list():
    """Arrays of another shape do not fit."""
    kind = type_of(np.zeros((2, 2)))

    assert kind.take(np.ones((2, 2))) is kind.take([[1]]) is kind
    assert kind.take(np.ones(2)) is None


def test_a_dict_has_the_keys_that_it_has():
    """Fewer are None where that may be; others do not fit."""
    kind = TypedDict({"a": optional_type(NUMBER), "b": STRING})

    assert kind.take({"b": "x"}) == kind
    assert kind.take({"a": 1}) is kind.take({"a": 1, "b": "x", "c": 2}) is kind.take([1]) is None
    assert kind.join(TypedDict({"b": STRING})) is None  # a type says nothing of a missing `a`
    assert kind.join(kind) == kind


def test_images_gather_their_layers():
    """A column names all layers, classes and scores of its images."""
    pixels = np.zeros((2, 2, 3), dtype=np.uint8)
    box = {"position": {"minX": 0, "maxX": 1, "minY": 0, "maxY": 1}, "class_id": 1, "scores": {"p": 1}}
    one = type_of(Image(pixels, boxes={"b": {"box_data": [box], "class_labels": {1: "cat"}}}))
    two = type_of(Image(pixels, masks={"m": {"mask_data": pixels[:, :, 0], "class_labels": {0: "sky"}}}))

    params = one.join(two).params()

    shown = {name: value["params"]["val"] for name, value in params.items()}
    assert shown == {
        "box_layers": {"b": [1]},
        "box_score_keys": ["p"],
        "box_class_maps": {"b": {"1": "cat"}},
        "mask_layers": {"m": [0]},
        "mask_class_maps": {"m": {"0": "sky"}},
        "class_map": {"0": "sky", "1": "cat"},
    }
    assert type_from(Image).join(one) == one
    assert ImageType(one.layers).join(NUMBER) is None


@given(VALUES, VALUES)
def test_what_was_taken_is_taken_again(one, other):
    """A type that has grown by a value still takes it, and the type has a JSON form."""
    kind = optional_type(Unknown())
    grown = kind.take(one)
    assert grown is not None or isinstance(one, list) or one is None
    both = None if grown is None else grown.take(other)

    for last in filter(None, (grown, both)):
        assert last.take(one) is not None
        json.dumps(last.to_json())
        assert str(last)


@given(VALUES)
def test_anything_takes_all_but_none(value):
    """Mixed columns."""
    assert (Anything().take(value) is None) == (type_of(value) == NONE)
