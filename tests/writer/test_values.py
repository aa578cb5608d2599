"""What may be logged, and what becomes of the rest."""

from __future__ import annotations

import array
import collections
import dataclasses
import datetime as dt
import decimal
import enum
import fractions
import functools
import math
import os
import pathlib
import subprocess
import sys
import types
import uuid

import pytest
from runferry.writer.values import MAX_FORMS, UnloggableError, described, flatten, name_of, plain


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


class EagerTensor:
    """A tensor that can only be made an array of another library, as tensorflow's."""

    def numpy(self):
        return Tensor([0.25])


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


class Words(str):
    """As numpy.str_."""

    __slots__ = ()

    def __str__(self):
        raise AssertionError("the text itself is taken")


Point = collections.namedtuple("Point", "x y")  # noqa: PYI024 - as old code has it


@dataclasses.dataclass
class Options:
    rate: float = 0.5
    inner: object = None


@dataclasses.dataclass
class Medium:
    """Media may be dataclasses, and are no dicts."""

    def stage(self):
        raise AssertionError


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
        (dt.time(1, 2), "01:02:00"),
        (dt.timedelta(0), "PT0S"),
        (dt.timedelta(seconds=90), "PT1M30S"),
        (dt.timedelta(days=1, hours=2, microseconds=5), "P1DT2H0.000005S"),
        (dt.timedelta(seconds=-1), "-PT1S"),
        (dt.timedelta(days=3), "P3D"),
        (decimal.Decimal("1.50"), "1.50"),
        (fractions.Fraction(1, 2), "1/2"),
        (complex(1, 2), "1+2j"),
        (1j, "1j"),
        (complex(-1, -2), "-1-2j"),
        (complex(math.nan, 1), "NaN+1j"),
        (uuid.UUID(int=5), "00000000-0000-0000-0000-000000000005"),
        (pathlib.PurePosixPath("/a/b"), "/a/b"),
        (memoryview(b"ab"), "ab"),
        (bytearray(b"ab"), "ab"),
        (Words("x"), "x"),
        ({3, 1, 2}, [1, 2, 3]),
        ({"b", "a"}, ["a", "b"]),
        (frozenset({"b", 2, None, 1.5}), [1.5, 2, None, "b"]),
        (Point(1, 2.0), [1, 2.0]),
        (range(3), [0, 1, 2]),
        (collections.deque([1, (2,)]), [1, [2]]),
        (collections.UserList([1]), [1]),
        ({"a": 1}.keys(), ["a"]),
        (array.array("d", [1, 2]), [1.0, 2.0]),
        (collections.Counter("aab"), {"a": 2, "b": 1}),
        (types.MappingProxyType({"a": 1}), {"a": 1}),
        (Options(0.25, Options()), {"rate": 0.25, "inner": {"rate": 0.5, "inner": None}}),
        (math.sin, "math.sin"),
        (dict, "builtins.dict"),
        ([].append, "list.append"),
        (Scalar(0.5), 0.5),
        (Scalar(7), 7),
        (Scalar(True), True),
        (Tensor([0.5]), 0.5),
        (Tensor([1, 2, 3]), [1, 2, 3]),
        (Tensor([]), []),
        (BFloat16(), 0.5),
        (EagerTensor(), 0.25),
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
    "value",
    [
        object(),
        Broken(),
        Scalar(object()),
        ValueError("x"),
        ...,
        slice(1),
        math,
        functools.partial(print),
        Medium(),
        (number for number in range(3)),  # reading it would take it from the caller
        map(int, "12"),
        range(10**9),
    ],
    ids=lambda value: type(value).__name__,
)
def test_what_has_no_form_is_refused_by_name(value):
    """The error says of which type the value was."""
    named = "object" if isinstance(value, Scalar) else type(value).__name__
    with pytest.raises(UnloggableError, match=named):
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
    monkeypatch.delitem(sys.modules, "numpy.ma", raising=False)

    assert plain(Tensor(list(range(33)))) == {"_type": "histogram", "values": [1, 2], "bins": [0.0, 0.5, 1.0]}
    assert calls == [(list(range(33)), 32)]
    assert plain(Tensor(list(range(32)))) == list(range(32))
    assert flatten({"a": Tensor(list(range(33)))}, {}) == {
        ("a", "_type"): "histogram",
        ("a", "values"): [1, 2],
        ("a", "bins"): [0.0, 0.5, 1.0],
    }


def test_large_arrays_without_the_library_that_counts(monkeypatch):
    """They are named, and no list of a million numbers."""
    monkeypatch.delitem(sys.modules, "numpy", raising=False)

    with pytest.raises(UnloggableError, match="Tensor: 33 elements are too many for a list"):
        plain(Tensor(list(range(33))))


def test_nested_dicts_become_paths():
    """A path has one component per level; an empty dict has none; names are text."""
    row = flatten({"a": 1, "b": {"c": 2, "d": {"e": 3}, "f": {}}, 5: "x", "g.h": {"i/j": 4}}, {})

    assert row == {"a": 1, ("b", "c"): 2, ("b", "d", "e"): 3, "5": "x", ("g.h", "i/j"): 4}


def test_one_bad_value_costs_its_own_key_only():
    """The rest of the row stands, and what was left out is named with its reason."""
    dropped = {}
    endless = {}
    endless["again"] = endless
    row = flatten({"a": 1, "bad": object(), "n": {"bad": iter(()), "good": 2}, "endless": endless}, dropped)

    assert row == {"a": 1, ("n", "good"): 2}
    assert sorted(dropped) == ["bad", "endless", "n.bad"]
    assert "object" in dropped["bad"]


def test_a_list_is_copied():
    """What the caller does to a list afterwards does not change the row."""
    values = [1, [2]]
    row = flatten({"x": values}, {})
    values[1].append(3)

    assert row == {"x": [1, [2]]}


@pytest.mark.parametrize(
    ("key", "name"),
    [
        ("a", "a"),
        ("", ""),
        ("a ", "a "),
        ("k" * 10_000, "k" * 10_000),
        (Words("w"), "w"),
        (b"caf\xc3\xa9", "café"),
        (1, "1"),
        (True, "True"),
        (None, "None"),
        (1.5, "1.5"),
        ((1, ("b", None)), "1,b,None"),
        (print, "builtins.print"),
    ],
)
def test_names_are_text(key, name):
    """Each key has one text, the peer's; of two keys with the same text the later one counts."""
    assert name_of(key) == name
    assert flatten({key: 1}, {}) == {name: 1}
    assert flatten({name: 1, key: 2}, {}) == {name: 2}
    assert flatten({"n": {key: [1]}}, {}) == {("n", name): [1]}
    assert plain([{key: 1}]) == [{name: 1}]
    assert described({key: 1}) == {name: 1}


def test_types_without_end_are_not_kept():
    """Code that makes types as it goes leaves none of them behind for ever."""
    from runferry.writer import values

    for number in range(MAX_FORMS + 10):
        assert plain(type(f"Kind{number}", (float,), {})(0.5)) == 0.5
    assert len(values._forms) <= MAX_FORMS


def test_a_row_that_changes_while_it_is_read():
    """A value that adds to its own row, as another thread may, disturbs nothing."""

    class Growing:
        size = 1

        def item(self):
            row["n"][str(len(row["n"]))] = row[str(len(row))] = 1
            return 0.5

    row = {"n": {}}
    row["a"], row["n"]["b"] = Growing(), Growing()
    dropped = {}

    assert flatten(row, dropped) == {"a": 0.5, ("n", "b"): 0.5}
    assert not dropped


@pytest.mark.parametrize("error", [KeyboardInterrupt, SystemExit, GeneratorExit])
def test_what_ends_a_program_ends_it_here_too(error):
    """Ctrl-C while a value waits for its device is no fault of the value."""

    class Interrupted:
        size = 1

        def item(self):
            raise error

    with pytest.raises(error):
        flatten({"a": Interrupted()}, {})
    with pytest.raises(error):
        described(Interrupted())


@pytest.mark.parametrize(
    ("value", "shown"),
    [
        (math.sin, "math.sin"),
        ([object, 1], ["builtins.object", 1]),
        (Colour.RED, "RED"),
        (Level.HIGH, "HIGH"),
        (dt.timedelta(seconds=90), "0:01:30"),
        (fractions.Fraction(1, 2), "1/2"),
        (Options(0.25, [Options]), {"rate": 0.25, "inner": [f"{__name__}.Options"]}),
        pytest.param({"b", "a"}, ["a", "b"], id="a set"),  # whose text is another in each process
        (functools.partial(int), "functools.partial(<class 'int'>)"),
        (..., "Ellipsis"),
        (range(10**9), "range(0, 1000000000)"),
    ],
    ids=str,
)
def test_a_config_describes_what_it_cannot_hold(value, shown):
    """Functions and objects in a config stand as text, at any depth."""
    assert described(value) == shown
    assert described({"a": [value]}) == {"a": [shown]}


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
    assert (described(value) == {"a": 1}) if type(value) is RaisingMapping else type(described(value)) is str
    assert described([1, value])


def test_a_row_that_raises_is_left_out():
    """A mapping that does not tell its items, names that have no text."""
    dropped = {}

    assert flatten(RaisingMapping(a=1), dropped) == {}
    assert flatten({int: 1, Hostile(): 2, "good": 3}, dropped) == {"builtins.int": 1, "good": 3}
    assert sorted(dropped) == ["?", "rest"]


def test_a_value_may_log_itself(begin, state):
    """A property that logs while it is read: both rows are there, and nothing is held up."""

    class Logging:
        size = 1

        def item(self):
            run.log({"inner": 1})
            return 2

    run = begin()
    run.log({"outer": Logging()})
    rows = state(*run.finish().paths).rows

    assert [{key: value for key, value in row.items() if key[0] != "_"} for row in rows] == [{"inner": 1}, {"outer": 2}]


def test_strict_raises_and_otherwise_one_warning_names_the_value(begin, state):
    """The rest of the row is kept either way it is logged; a name is warned of once."""
    warnings = []
    run = begin(warn=warnings.append)
    for number in range(3):
        run.log({"a": number, "bad": object()})
    (path,) = run.finish().paths

    assert [row["a"] for row in state(path).rows] == [0, 1, 2]
    assert len(warnings) == 1
    assert "bad is left out of the row: a log cannot hold a value of type object" in warnings[0]
    with pytest.raises(UnloggableError, match="bad is left out"):
        begin(strict=True, run_id="strict").log({"a": 1, "bad": object()})


@pytest.mark.parametrize("seed", ["0", "1"])
def test_a_set_has_one_order_in_every_process(seed):
    """Whatever the hashes of its texts are."""
    program = "from runferry.writer.values import plain; print(plain({'b', 'a', 'd', 'c', 2, 1.5}))"
    done = subprocess.run(
        [sys.executable, "-c", program],
        env={**os.environ, "PYTHONHASHSEED": seed},
        text=True,
        capture_output=True,
        check=True,
    )

    assert done.stdout == "[1.5, 2, 'a', 'b', 'c', 'd']\n"
