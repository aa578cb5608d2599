"""Rows in the libraries of notebooks: equal values, gaps and NaN kept as far as each of them can."""

from __future__ import annotations

import math

import pytest
from runferry.logformat import frames
from runferry.logformat.columns import Rows

KEYS = ("int", "float", "number", "flag", "text", "any", "gap", "gaps", "a.b")
ROWS = [
    (b"1", b"0.5", b"1", b"true", b'"x"', b"[1]", b"null", None, b"1"),
    (b"2", b"NaN", b"2.5", b"false", b'"\\u00fc"', b'{"k":NaN}', b"NaN", b"7", None),
    (b"3", b"-Infinity", b"3", b"true", b'"z"', b'"t"', None, None, b"2"),
    (b"4", b"1.5", b"4", b"true", b'"x"', b"null", b"0.5", b"null", None),
]


@pytest.fixture
def rows():
    """A column of each kind; two with gaps, of which each has a null too; two keys that look alike."""
    found = Rows()
    for texts in ROWS:
        items = [((key,), text) for key, text in zip(KEYS, texts, strict=True) if text is not None]
        items.append((("a", "b"), b"5"))
        found.append(tuple(path for path, _ in items), [text for _, text in items])
    return found


NAMES = ["int", "float", "number", "flag", "text", "any", "gap", "a\\.b", "a.b", "gaps"]


def test_numpy_has_the_values_of_a_column(rows):
    """As long as `rows`: numbers and switches by type, NaN for null among floats; everything else as objects."""
    pytest.importorskip("numpy")
    arrays = {column.name: column.to_numpy() for column in rows.columns}

    assert {name: array.dtype.kind for name, array in arrays.items()} == {
        "int": "i",
        "float": "f",
        "number": "f",
        "flag": "b",
        "text": "O",
        "any": "O",
        "gap": "f",
        "a\\.b": "i",
        "a.b": "i",
        "gaps": "O",
    }
    assert arrays["int"].tolist() == [1, 2, 3, 4]
    assert str(arrays["float"].tolist()) == "[0.5, nan, -inf, 1.5]"
    assert arrays["number"].tolist() == [1, 2.5, 3, 4]
    assert arrays["flag"].tolist() == [True, False, True, True]
    assert arrays["any"][0] == [1]
    assert str(arrays["gap"].tolist()) == "[nan, nan, 0.5]"
    assert (list(rows.column("gaps").rows), arrays["gaps"].tolist()) == ([1, 3], [7, None])


def test_pandas_keeps_gaps_apart_from_nan(rows):
    """Complete columns are of NumPy's types; where a row has no value, it is missing."""
    pandas = pytest.importorskip("pandas")
    frame = rows.to_pandas()

    assert sorted(frame.columns) == sorted(NAMES)
    assert [str(frame[name].dtype) for name in ("int", "float", "flag")] == ["int64", "float64", "bool"]
    assert [str(frame[name].dtype) for name in ("gap", "gaps", "a\\.b")] == ["Float64", "Int64", "Int64"]
    gap = frame["gap"].array
    assert list(gap._mask) == [True, False, True, False]
    assert math.isnan(gap._data[1])
    assert frame["gaps"][1] == 7
    assert frame["gaps"].isna().tolist() == [True, False, True, True]
    assert frame["any"][1]["k"] is not None
    assert frame["text"].tolist() == ["x", "\u00fc", "z", "x"]
    assert isinstance(frame.index, pandas.RangeIndex)


def test_polars_keeps_gaps_apart_from_nan(rows):
    """Nulls are gaps; what has no type of its own is JSON text."""
    polars = pytest.importorskip("polars")
    frame = rows.to_polars()

    assert sorted(frame.columns) == sorted(NAMES)
    assert frame.schema["number"] == polars.Float64
    assert frame["gap"].is_null().to_list() == [True, False, True, False]
    assert frame["gap"].is_nan().to_list() == [None, True, None, False]
    assert frame["gaps"].to_list() == [None, 7, None, None]
    assert frame["any"].to_list() == ["[1]", '{"k": NaN}', '"t"', None]


def test_arrow_keeps_gaps_apart_from_nan(rows):
    """The same in an Arrow table."""
    pyarrow = pytest.importorskip("pyarrow")
    table = rows.to_arrow()

    assert sorted(table.column_names) == sorted(NAMES)
    assert table.schema.field("int").type == pyarrow.int64()
    assert table.column("gap").null_count == 2
    assert math.isnan(table.column("gap")[1].as_py())
    assert table.column("any").to_pylist() == ["[1]", '{"k": NaN}', '"t"', None]
    assert table.column("flag").to_pylist() == [True, False, True, True]


@pytest.mark.parametrize("ask", ["to_pandas", "to_polars", "to_arrow"])
def test_a_library_that_is_missing_is_named(rows, ask, monkeypatch):
    """With the command that installs it."""

    def missing(name):
        raise ImportError(f"No module named {name!r}")

    monkeypatch.setattr(frames.importlib, "import_module", missing)

    with pytest.raises(ImportError, match=r"this needs (pandas|polars|pyarrow), .*pip install"):
        getattr(rows, ask)()
    with pytest.raises(ImportError, match="this needs numpy"):
        rows.column("int").to_numpy()


def test_an_overview_is_short_and_escaped():
    """A line for each of the first columns; keys and values of a log are text, whatever they hold."""
    rows = Rows()
    rows.append((("<b>",), ("t",)), [b"1", b'"%s"' % (b"<i>" * 100)])
    rows.append(tuple((f"k{at}",) for at in range(100)), [b"1"] * 100)
    shown = rows._repr_html_()

    assert "&lt;b&gt;" in shown
    assert "<i>" not in shown
    assert shown.count("<tr>") == 41
    assert "and 62 more columns" in shown
    assert len(shown) < 5_000
    assert repr(rows) == "<Rows: 2 rows, 102 columns>"
    assert repr(rows.columns[0]) == "<Column '<b>': 1 values, int>"


def test_no_rows_are_an_empty_table():
    """Of no columns."""
    pytest.importorskip("pandas")
    pytest.importorskip("polars")
    pytest.importorskip("pyarrow")

    assert Rows().to_pandas().shape == (0, 0)
    assert Rows().to_polars().shape == (0, 0)
    assert Rows().to_arrow().shape == (0, 0)
