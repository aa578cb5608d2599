"""What may be logged, and what becomes of the rest."""

from __future__ import annotations

import datetime as dt
import decimal
import enum
import fractions
import math
import sys
import types

import pytest
from runferry.writer.values import UnloggableError, described, flatten, plain


class Scalar:
    """A one-element array of no library in particular."""

    size = 1

    def __init__(self, value):
        self._value = value

    def item(self):
        return self._value


class Tensor:
    """A tensor: `size` is a method, `numel` counts."""

    def __init__(self, values):
        self._values = values

    def numel(self):
        return len(self._values)

    def size(self):
        raise AssertionError("the shape is not asked for")

    def item(self):
        (only,) = self._values
        return only

    def tolist(self):
        return list(self._values)

    def __iter__(self):
        return iter(self._values)


class BFloat16:
    """A scalar whose `item()` gives itself, as some 16-bit types do."""

    size = 1

    def item(self):
        return self

    def __float__(self):
        return 0.5


class Broken:
    size = 1

    def item(self):
        raise RuntimeError("the device is gone")


class Colour(enum.Enum):
    RED = "red"


class Level(enum.IntEnum):
    HIGH = 3


class Float64(float):
    """As numpy.float64: a float, and yet not one."""


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (0.5, 0.5),
        (2**70, 2**70),
        (True, True),
        (None, None),
        ("x", "x"),
        (Float64(0.25), 0.25),
        (Colour.RED, "red"),
        (Level.HIGH, 3),
        ((1, 2, (3,)), [1, 2, [3]]),
        ({"a": {1: (2,)}}, {"a": {"1": [2]}}),
        (b"caf\xc3\xa9\xff", "café�"),
        (dt.date(2026, 11, 30), "2026-11-30"),
        (dt.datetime(2026, 11, 30, 14, 25, tzinfo=dt.timezone.utc), "2026-11-30T14:25:00+00:00"),
        (decimal.Decimal("1.50"), "1.50"),
        (Scalar(0.5), 0.5),
        (Scalar(7), 7),
        (Scalar(True), True),
        (Tensor([0.5]), 0.5),
        (Tensor([1, 2, 3]), [1, 2, 3]),
        (BFloat16(), 0.5),
    ],
)
def test_values_become_json_types(value, expected):
    """Each kind of value has one plain form, of JSON's own types."""
    result = plain(value)

    assert result == expected
    assert type(result) is type(expected)


def test_not_a_number_stays():
    """NaN and infinities are values too."""
    assert math.isnan(plain(Scalar(math.nan)))
    assert plain(-math.inf) == -math.inf


@pytest.mark.parametrize(
    "value", [object(), fractions.Fraction(1, 2), complex(1, 2), Broken(), Scalar(object()), print]
)
def test_what_has_no_form_is_refused_by_name(value):
    """The error says of which type the value was."""
    with pytest.raises(UnloggableError, match=type(value).__name__ if not isinstance(value, Scalar) else "object"):
        plain(value)


def test_large_arrays_become_histograms(monkeypatch):
    """More than 32 elements are counted into bins, by the array library that is loaded anyway."""
    calls = []

    class Array(list):
        def astype(self, kind):
            return self

        def ravel(self):
            return self

        def __getitem__(self, chosen):
            return self

        def tolist(self):
            return list(self)

    def counted(values, bins):
        calls.append((values, bins))
        return Array([1, 2]), Array([0.0, 0.5, 1.0])

    numpy = types.SimpleNamespace(asarray=Array, isfinite=lambda values: values, histogram=counted)
    monkeypatch.setitem(sys.modules, "numpy", numpy)

    assert plain(Tensor(list(range(33)))) == {"_type": "histogram", "values": [1, 2], "bins": [0.0, 0.5, 1.0]}
    assert calls == [(list(range(33)), 64)]
    assert plain(Tensor(list(range(32)))) == list(range(32))


def test_nested_dicts_become_paths():
    """A path has one component per level; an empty dict has none; names are text."""
    row = flatten({"a": 1, "b": {"c": 2, "d": {"e": 3}, "f": {}}, 5: "x", "g.h": {"i/j": 4}}, {})

    assert row == {"a": 1, ("b", "c"): 2, ("b", "d", "e"): 3, "5": "x", ("g.h", "i/j"): 4}


def test_one_bad_value_costs_its_own_key_only():
    """The rest of the row stands, and what was left out is named with its reason."""
    dropped = {}
    endless = {}
    endless["again"] = endless
    row = flatten({"a": 1, "bad": object(), "n": {"bad": print, "good": 2}, "endless": endless}, dropped)

    assert row == {"a": 1, ("n", "good"): 2}
    assert sorted(dropped) == ["bad", "endless", "n.bad"]
    assert "object" in dropped["bad"]


def test_a_list_is_copied():
    """What the caller does to a list afterwards does not change the row."""
    values = [1, [2]]
    row = flatten({"x": values}, {})
    values[1].append(3)

    assert row == {"x": [1, [2]]}


def test_a_config_describes_what_it_cannot_hold():
    """Functions and objects in a config stand as text."""
    assert described({"f": math.sin, "k": [object, 1]}) == {"f": "sin", "k": ["object", 1]}


class Hostile:
    """Raises whatever it is asked."""

    def __getattribute__(self, name):
        raise RuntimeError(name)

    def __str__(self):
        raise RuntimeError("str")


class RaisingFloat(float):
    def __float__(self):
        raise RuntimeError("float")


class RaisingMapping(dict):
    def items(self):
        raise RuntimeError("items")


def endless(kind):
    """A dict or list that holds itself twice: walking it by depth alone would take 2**depth steps."""
    value = kind()
    if kind is dict:
        value.update(a=value, b=value)
    else:
        value.extend([value, value])
    return value


HOSTILE = {
    "all": Hostile,
    "float": lambda: RaisingFloat(1),
    "mapping": lambda: RaisingMapping(a=1),
    "dict": lambda: endless(dict),
    "list": lambda: endless(list),
}


@pytest.mark.parametrize("make", HOSTILE.values(), ids=HOSTILE)
def test_values_that_raise_cost_their_own_key_only(make):
    """Whatever a foreign type does when it is asked, and however deep it nests."""
    value = make()
    dropped = {}

    assert flatten({"bad": value, "good": 1, "in": {"bad": [value], "good": 2}}, dropped) == {
        "good": 1,
        ("in", "good"): 2,
    }
    assert dropped
    with pytest.raises(UnloggableError):
        plain(value)
    assert isinstance(described(value), str)
    assert described([1, value])


def test_a_row_that_raises_is_left_out():
    """A mapping that does not tell its items, names that have no text."""
    dropped = {}

    assert flatten(RaisingMapping(a=1), dropped) == {}
    assert flatten({int: 1, Hostile(): 2, "good": 3}, dropped) == {str(int): 1, "good": 3}
    assert sorted(dropped) == ["?", "rest"]
