"""What is exported, read by those who will read it: equal values, NaN and gaps kept."""

from __future__ import annotations

import csv
import json
import math
import struct

import duckdb
import pandas as pd
import polars as pl
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from runferry.logformat import load
from support import exports, logs
from support.exports import same


@pytest.fixture
def run(tmp_path):
    log = exports.mixed_run(tmp_path / "wandb")
    return log, exports.cells(load(log))


def as_parquet(state, name, values):
    """What Parquet has for these values of a column: doubles for numbers, JSON text for mixtures."""
    kind = state.rows.column(name).kind
    if kind in {"float", "number"}:
        return [None if value is None else float(value) for value in values]
    return [
        None if value is None else json.dumps(value, ensure_ascii=False) if kind == "json" else value
        for value in values
    ]


def test_parquet_is_read_alike_by_duckdb_pandas_and_polars(tmp_path, run):
    """Every cell of a run with all kinds of values, with the types int64, double, bool and string."""
    log, held = run
    exports.export_to(tmp_path / "rows.parquet", log, to="parquet")
    path = tmp_path / "rows.parquet"
    state = load(log)
    wanted = {name: as_parquet(state, name, values) for name, values in held.items()}

    by_arrow = pq.read_table(path)
    by_polars = pl.read_parquet(path).to_dict(as_series=False)
    by_duckdb = duckdb.sql(f"SELECT * FROM '{path}'")
    in_duckdb = dict(zip(by_duckdb.columns, map(list, zip(*by_duckdb.fetchall(), strict=True)), strict=True))
    by_pandas = pd.read_parquet(path, dtype_backend="pyarrow")

    assert by_arrow.column_names[:3] == ["_step", "_runtime", "_timestamp"]
    assert {*by_arrow.column_names} == {*wanted}
    for name, values in wanted.items():
        assert same(by_arrow[name].to_pylist(), values), name
        assert same(by_polars[name], values), name
        assert same(in_duckdb[name], values), name
        assert same([None if value is pd.NA else value for value in by_pandas[name]], values), name
    types = {
        name: str(by_arrow.schema.field(name).type)
        for name in ("count", "opt.lr", "ok", "word", "any", "big", "only.null")
    }
    assert types == {
        "count": "int64",
        "opt.lr": "double",
        "ok": "bool",
        "word": "string",
        "any": "string",
        "big": "int64",
        "only.null": "string",
    }


def test_parquet_says_what_it_is_of(tmp_path, run):
    """Run, project, config, log and gaps stand in the file's metadata, and which strings are JSON in those of the fields."""
    log, _ = run
    exports.export_to(tmp_path / "rows.parquet", log, to="parquet")

    schema = pq.read_schema(tmp_path / "rows.parquet")
    assert schema.metadata[b"runferry.run_id"] == b"mixed"
    assert schema.metadata[b"runferry.project"] == b"proj"
    assert json.loads(schema.metadata[b"runferry.config"]) == {"lr": 0.001, "net": {"depth": 3, "act": "relu"}}
    assert json.loads(schema.metadata[b"runferry.logs"]) == [str(log)]
    assert json.loads(schema.metadata[b"runferry.gaps"]) == []
    assert schema.field("any").metadata == {b"runferry.kind": b"json"}


def test_csv_is_read_by_pandas_with_equal_values(tmp_path, run):
    """Floats to the last bit, NaN, infinities, quoted text with newlines; null and missing are empty."""
    log, held = run
    exports.export_to(tmp_path / "rows.csv", log, to="csv")

    found = pd.read_csv(
        tmp_path / "rows.csv", keep_default_na=False, na_values=["NaN"], dtype={"word": str, "any": str}
    )
    text = (tmp_path / "rows.csv").read_text()

    assert all(
        struct.pack("<d", a) == struct.pack("<d", b) for a, b in zip(found["loss"][2:], held["loss"][2:], strict=True)
    )
    assert found["loss"][0] == 0.1 + 0.2
    assert math.isnan(found["loss"][1])
    assert [*found["opt.lr"].iloc[:2]] == ["1e-05", "3"]
    assert [*found["word"]][:4] == ["a,b", 'say "hi"\nand go', "", " blank "]
    assert [json.loads(cell) if cell else None for cell in found["any"][:4]] == [[1, {"a": None}], "text", None, 7]
    assert [*found["count"]] == ["1", "", "", str(-(2**62)), ""]
    assert ",true," in text.splitlines()[1]
    assert text.splitlines()[0].startswith("_step,_runtime,_timestamp,loss,")


def test_csv_tells_empty_text_from_nothing(tmp_path):
    """An empty text is quoted, what is missing or null is not there."""
    log = exports.mixed_run(tmp_path / "wandb", rows=[{"word": ""}, {"word": None}, {"other": 1}])
    exports.export_to(tmp_path / "rows.csv", log, to="csv", selection=exports.keys("word"))
    exports.export_to(tmp_path / "all.csv", log, to="csv", selection=exports.keys("word", "other"))

    assert (tmp_path / "rows.csv").read_text() == '_step,word\n0,""\n1,\n'
    assert (tmp_path / "all.csv").read_text() == '_step,word,other\n0,"",\n1,,\n2,,1\n'


def test_jsonl_holds_rows_as_they_were_logged(tmp_path, run):
    """Nested keys nested, null as null, a missing key missing, NaN bare."""
    log, _ = run
    exports.export_to(tmp_path / "rows.jsonl", log, to="jsonl")

    lines = (tmp_path / "rows.jsonl").read_text().split("\n")[:-1]
    rows = [json.loads(line) for line in lines]
    assert same(rows, [*load(log).rows])
    assert rows[0]["opt"] == {"lr": 1e-5}
    assert rows[1]["count"] is None
    assert "count" not in rows[2]
    assert '"loss":NaN' in lines[1]


@pytest.mark.parametrize("to", ["parquet", "csv", "jsonl"])
def test_long_tables_hold_every_value_once(tmp_path, run, to):
    """A line for each value with its step; null is a line, what is missing is none."""
    log, held = run
    exports.export_to(tmp_path / f"rows{exports.suffix(to)}", log, to=to, shape="long")
    path = tmp_path / f"rows{exports.suffix(to)}"
    columns = load(log).rows.columns
    wanted = {
        (column.get(row) if column.name == "_step" else held["_step"][row], column.name): value
        for column in columns
        if column.name not in {"_step", "_runtime", "_timestamp"}
        for row, value in zip(column.rows, column.values, strict=True)
    }

    if to == "jsonl":
        found = {
            (line["_step"], line["key"]): line["value"] for line in map(json.loads, path.read_text().split("\n")[:-1])
        }
        assert same(found, wanted)
        return
    if to == "parquet":
        table = pq.read_table(path).to_pylist()
    else:
        frame = pd.read_csv(path, keep_default_na=False, na_values={"value": [""]}, dtype={"text": str})
        table = frame.astype(object).where(frame.notna(), None).to_dict("records")
    assert len(table) == len(wanted)
    for line in table:
        value = wanted[line["_step"], line["key"]]
        assert same(restored(line["kind"], line["value"], line["text"]), value), line


def restored(kind, value, text):
    """The value that a line of a long table says; pandas reads NaN in CSV as it reads nothing."""
    number = math.nan if value in {None, ""} else float(value)
    makers = {
        "int": lambda: int(text) if text else int(number),
        "float": lambda: number,
        "bool": lambda: bool(number),
        "text": lambda: text,
        "json": lambda: json.loads(text),
        "null": lambda: None,
    }
    return makers[kind]()


NUMBERS = st.one_of(st.integers(-(2**70), 2**70), st.floats(), st.booleans(), st.none())
TEXTS = st.text(st.characters(codec="utf-8", exclude_characters="\0"), max_size=12)
VALUES = st.one_of(NUMBERS, TEXTS, st.lists(NUMBERS, max_size=3), st.dictionaries(TEXTS, NUMBERS, max_size=2))
KEYS = st.sampled_from(["a", "b", "a.b", "c/d", "w x", "é", ("a", "b"), ("n", "m", "o"), ("n", "p")])


@settings(max_examples=40)
@given(rows=st.lists(st.dictionaries(KEYS, VALUES, max_size=5), max_size=8))
def test_random_rows_come_back(rows, tmp_path_factory):
    """From Parquet, CSV and JSONL, whatever was logged: the cells of the run's state, NaN as NaN, null and missing as nothing."""
    folder = tmp_path_factory.mktemp("random")
    log = exports.mixed_run(folder / "wandb", rows=rows)
    state = load(log)
    held = exports.cells(state)
    for to in ("parquet", "csv", "jsonl"):
        exports.export_to(folder / f"rows{exports.suffix(to)}", log, to=to)

    table = pq.read_table(folder / "rows.parquet").to_pydict()
    lines = [json.loads(line) for line in (folder / "rows.jsonl").read_text().split("\n")[:-1]]
    with (folder / "rows.csv").open(newline="") as file:
        head, *texts = csv.reader(file)
    assert same(lines, [*state.rows])
    assert {name: len(values) for name, values in table.items()} == {name: len(state.rows) for name in held} or not held
    for name, values in held.items():
        assert same(table[name], as_parquet(state, name, values)), name
        kind = state.rows.column(name).kind
        read = [from_csv(kind, line[head.index(name)]) for line in texts]
        assert same(read, ["" if value is None else value for value in values]), name


def from_csv(kind, text):
    """The value that a cell says; the csv module does not tell an empty text from nothing."""
    if not text or kind == "text":
        return text
    if kind == "bool":
        return {"true": True, "false": False}[text]
    if kind == "json":
        return json.loads(text)
    return float(text) if kind == "float" or not text.lstrip("-").isdigit() else int(text)


def test_samples_have_their_times(tmp_path, run):
    """Clock and run time in seconds beside the metrics; what a sample lacks is empty."""
    log, _ = run
    exports.export_to(tmp_path / "s.csv", log, to="csv", whats=("samples",))
    exports.export_to(tmp_path / "s.jsonl", log, to="jsonl", whats=("samples",))

    start = logs.START_S
    found = pd.read_csv(tmp_path / "s.csv")
    assert [*found["_timestamp"]] == [start, start + 2.25]
    assert [*found["_runtime"]] == [0.0, 2.25]
    assert [*found["cpu"]] == [12.5, 50.0]
    assert math.isnan(found["gpu.0.temp"][0])
    lines = [json.loads(line) for line in (tmp_path / "s.jsonl").read_text().split("\n")[:-1]]
    assert lines[0] == {"_timestamp": start, "_runtime": 0.0, "cpu": 12.5}
    assert lines[1]["gpu.0.temp"] == 61


def test_everything_else_of_a_run(tmp_path, run):
    """Console, alerts, files and gaps as tables, run, config and summary as JSON, in a folder of the run's name."""
    log, _ = run
    (outcome,) = exports.export_to(tmp_path / "out", log, to="jsonl")
    folder = tmp_path / "out" / "mixed"

    def lines(what):
        return [json.loads(line) for line in (folder / f"{what}.jsonl").read_text().split("\n")[:-1]]

    assert [(line["stream"], line["text"]) for line in lines("console")] == [
        ("stdout", "one"),
        ("stderr", "warn"),
        ("stdout", "two"),
    ]
    assert lines("alerts") == [{"title": "hot", "text": "95 C", "level": "WARN", "wait_seconds": 0.0}]
    assert lines("files") == [{"path": "model.pt", "policy": "now"}, {"path": "../escape", "policy": "now"}]
    assert lines("gaps") == []
    assert json.loads((folder / "config.json").read_text()) == load(log).config
    assert same(json.loads((folder / "summary.json").read_text()), load(log).summary)
    facts = json.loads((folder / "run.json").read_text())
    assert {key: facts[key] for key in ("run_id", "project", "rows", "samples", "exit_code", "status", "entity")} == {
        "run_id": "mixed",
        "project": "proj",
        "rows": 5,
        "samples": 2,
        "exit_code": 0,
        "status": "finished",
        "entity": None,
    }
    assert outcome.problems == []
    assert {path.name for path in (tmp_path / "out").iterdir()} == {"mixed"}
