"""Which runs are exported, where to, and what is said of those that are damaged."""

from __future__ import annotations

import errno
import gzip
import io
import json
import os
import resource
import sys
from contextlib import suppress
from pathlib import Path

import fsspec
import pyarrow.parquet as pq
import pytest
import zstandard
from runferry.export import ExportError, Options, Selection, export, find_runs
from runferry.logformat import load, messages
from support import exports, logs, segments
from support.exports import export_to


def rows_of(path):
    return [json.loads(line) for line in path.read_text().split("\n")[:-1]]


@pytest.fixture
def wandb(tmp_path):
    """Two runs with keys of their own, and one key that is whole in one and not in the other."""
    folder = tmp_path / "wandb"
    exports.mixed_run(folder, "a", [{"x": 1, "y": 1.5}, {"x": 2}])
    exports.mixed_run(folder, "b", [{"x": 0.25, "z": "t"}], start=logs.START_S + 60)
    return folder


def test_a_resumed_run_is_one(tmp_path):
    """The logs of a run are stitched as a sync does it, and its samples count on from what the run had taken."""

    class Rig:
        folder = tmp_path / "wandb"

        @staticmethod
        def settle(log, age):
            pass

    for name in "ABC":
        segments.segment(Rig, name)
    run_dirs = sorted(Rig.folder.iterdir())
    for number, path in enumerate([Rig.folder, run_dirs[1]]):
        export_to(tmp_path / str(number), path, to="jsonl")

        found = rows_of(tmp_path / str(number) / "seg" / "rows.jsonl")
        assert [(row["_step"], row["who"]) for row in found] == [
            (step, "A" if step < 60 else "B" if step < 160 else "C") for step in range(200)
        ]
        samples = rows_of(tmp_path / str(number) / "seg" / "samples.jsonl")
        assert [sample["_runtime"] for sample in samples] == [0.0, 100.0, 100.0, 200.0, 200.0, 240.0]
    assert found == [*load(Rig.folder).rows]


def test_a_log_stands_for_itself(tmp_path):
    """Named by its file, one log of a resumed run is exported alone."""
    first = exports.mixed_run(tmp_path / "wandb", "r", [{"x": 1}])
    second = tmp_path / "wandb" / "run-20260922_141320-r" / "run-r.wandb"
    logs.make_log(second, logs.run_record("r", start=logs.START_S + 900), logs.row(5, {"x": 2}))

    export_to(tmp_path / "one", first, to="jsonl")
    export_to(tmp_path / "all", first.parent, to="jsonl")

    assert [row["x"] for row in rows_of(tmp_path / "one" / "r" / "rows.jsonl")] == [1]
    assert [row["x"] for row in rows_of(tmp_path / "all" / "r" / "rows.jsonl")] == [1, 2]


def test_a_damaged_log_says_so_where_it_is_exported_to(tmp_path):
    """Offsets of what was lost are told, and stand in the gaps, in run.json and in the metadata of Parquet."""
    log = logs.simple_run(tmp_path / "wandb", run_id="d", rows=200)
    data = bytearray(log.read_bytes())
    data[5000:5002] = b"\xff\xff"
    log.write_bytes(data)
    (gap,) = load(log).gaps

    (outcome,) = export_to(tmp_path / "out", log, to="parquet")

    place = f"bytes {gap.offset}-{gap.offset + gap.length}"
    assert (
        [problem for problem in outcome.problems if place in problem and "bad_crc" in problem] == outcome.problems != []
    )
    told = {"log": str(log), "offset": gap.offset, "length": gap.length, "reason": "bad_crc", "records_lost": 1}
    assert pq.read_table(tmp_path / "out" / "d" / "gaps.parquet").to_pylist() == [told]
    metadata = pq.read_schema(tmp_path / "out" / "d" / "rows.parquet").metadata
    assert json.loads(metadata[b"runferry.gaps"]) == [told]
    assert json.loads((tmp_path / "out" / "d" / "run.json").read_text())["records_lost"] == 1
    assert pq.read_table(tmp_path / "out" / "d" / "rows.parquet").num_rows == len(load(log).rows)


def test_what_cannot_be_read_does_not_keep_the_others(tmp_path, wandb):
    """A file that is no log and an empty one are named with the reason; the runs beside them are written."""
    for name, data in {"page": b"<!doctype html><html>", "empty": b""}.items():
        log = wandb / f"run-20260925_141320-{name}" / f"run-{name}.wandb"
        log.parent.mkdir()
        log.write_bytes(data)

    found = {outcome.run: outcome for outcome in export_to(tmp_path / "out", wandb, to="csv")}

    assert {run: bool(outcome.files) for run, outcome in found.items()} == {
        "a": True,
        "b": True,
        "page": False,
        "empty": False,
    }
    assert "web page" in found["page"].problems[0]
    assert "empty" in found["empty"].problems[0]


def test_one_table_over_all_runs(tmp_path, wandb):
    """A column for each key of any run, the run first; numbers stay numbers; runs themselves are a table of their own."""
    export_to(tmp_path / "out", wandb, to="parquet", one_table=True)

    rows = pq.read_table(tmp_path / "out" / "rows.parquet")
    assert rows.column_names == ["_run", "_step", "_runtime", "_timestamp", "x", "y", "z"]
    assert rows["_run"].to_pylist() == ["a", "a", "b"]
    assert rows["x"].to_pylist() == [1.0, 2.0, 0.25]
    assert rows["y"].to_pylist() == [1.5, None, None]
    runs = pq.read_table(tmp_path / "out" / "runs.parquet").to_pylist()
    assert [(run["_run"], run["config.net.depth"], run["summary.x"], run["exit_code"]) for run in runs] == [
        ("a", 3, 2.0, 0),
        ("b", 3, 0.25, 0),
    ]


def test_a_runs_row_names_it_once(tmp_path, wandb):
    """In a table over all runs the run's column is the only one that has its folder's name."""
    export_to(tmp_path / "out", wandb, to="parquet", one_table=True, whats=("run",))

    names = pq.read_table(tmp_path / "out" / "runs.parquet").column_names
    assert names[:2] == ["_run", "run_id"]
    assert "run" not in names


def test_samples_of_no_wanted_key_are_no_rows(tmp_path, wandb):
    """Their times alone say nothing."""
    export_to(tmp_path / "out", wandb, to="jsonl", whats=("samples",), selection=exports.keys("gpu*", "x"))
    export_to(tmp_path / "none", wandb, to="jsonl", whats=("samples",), selection=exports.keys("x"))

    assert len(rows_of(tmp_path / "out" / "a" / "samples.jsonl")) == 2
    assert (tmp_path / "none" / "a" / "samples.jsonl").read_bytes() == b""


def test_small_runs_share_a_row_group(tmp_path, wandb):
    """Thousands of them would make a table that takes long to read."""
    export_to(tmp_path / "rows.parquet", wandb, to="parquet", one_table=True)

    assert pq.ParquetFile(tmp_path / "rows.parquet").num_row_groups == 1


def test_a_row_group_has_so_many_cells(tmp_path, monkeypatch):
    """Of a table with many columns fewer rows: they wait in memory."""
    from runferry.export import parquet, tables

    rows = [{f"k{number}": step for number in range(7)} for step in range(1000)]
    log = exports.mixed_run(tmp_path / "wandb", rows=rows)
    monkeypatch.setattr(tables, "_CELLS", 2560)
    monkeypatch.setattr(parquet, "_MOST_CELLS", 5000)
    export_to(tmp_path / "rows.parquet", log, to="parquet")

    file = pq.ParquetFile(tmp_path / "rows.parquet")
    assert [file.metadata.row_group(at).num_rows for at in range(file.num_row_groups)] == [512, 488]


def test_one_table_of_kinds_that_do_not_fit(tmp_path):
    """A key that is a number here and text there, or an integer that no double holds, becomes JSON text; nothing is bent."""
    exports.mixed_run(tmp_path / "wandb", "a", [{"k": 1, "n": 2**60 + 1}])
    exports.mixed_run(tmp_path / "wandb", "b", [{"k": "one", "n": 0.5}])

    export_to(tmp_path / "rows.parquet", tmp_path / "wandb", to="parquet", one_table=True)
    export_to(tmp_path / "rows.jsonl", tmp_path / "wandb", to="jsonl", one_table=True)
    export_to(tmp_path / "rows.csv", tmp_path / "wandb", to="csv", one_table=True, shape="long")

    table = pq.read_table(tmp_path / "rows.parquet")
    assert [json.loads(cell) for cell in table["k"].to_pylist()] == [1, "one"]
    assert [json.loads(cell) for cell in table["n"].to_pylist()] == [2**60 + 1, 0.5]
    assert [(row["_run"], row["k"]) for row in rows_of(tmp_path / "rows.jsonl")] == [("a", 1), ("b", "one")]
    assert (tmp_path / "rows.csv").read_text().splitlines()[1].endswith(",k,int,1.0,")


def test_a_key_that_is_null_in_one_run_is_what_it_is_in_the_others(tmp_path):
    """Nulls alone are of no kind."""
    exports.mixed_run(tmp_path / "wandb", "a", [{"k": None}])
    exports.mixed_run(tmp_path / "wandb", "b", [{"k": 2**60 + 1}])

    export_to(tmp_path / "rows.parquet", tmp_path / "wandb", to="parquet", one_table=True)

    assert pq.read_table(tmp_path / "rows.parquet")["k"].to_pylist() == [None, 2**60 + 1]


def test_a_page_holds_the_rows_of_those_runs_that_its_charts_show(tmp_path, monkeypatch):
    """However many it compares; of a run that cannot be read the next one takes the place."""
    from runferry.export import exporting

    for number in range(21):
        log = exports.mixed_run(tmp_path / "wandb", f"r{number:02}", [{"x": 1}, {"x": number}])
        if number == 3:
            log.write_bytes(b"")
    kept = {}

    def loading(run, *, rows, **options):
        kept[run.name] = rows
        return original(run, rows=rows, **options)

    original = exporting.load
    monkeypatch.setattr(exporting, "load", loading)
    outcomes = export_to(tmp_path / "all.html", tmp_path / "wandb", to="html", selection=exports.keys("x"))

    assert [name for name, has_rows in kept.items() if not has_rows] == ["r19", "r20"]
    assert [outcome.run for outcome in outcomes if outcome.problems or outcome.notes] == ["r03"]
    assert {outcome.counts.get("rows") for outcome in outcomes} == {2, None}
    page = (tmp_path / "all.html").read_text()
    assert "r18: 18" in page
    assert "r19: 19" not in page
    assert "Charts have the first 18 runs of 20." in page


@pytest.mark.parametrize("later", [{"x": "text"}, {"x": "text", "z": "t"}])
def test_a_run_that_grows_under_one_table_is_left_out(tmp_path, wandb, monkeypatch, later):
    """Columns are found by a first reading; of a run some went, or are of another kind, at the second: it is named and left out."""
    from runferry.export import exporting

    calls = []

    def growing(run, **options):
        calls.append(run.name)
        if len(calls) == 4:
            with run.logs[0].open("r+b") as file:
                file.truncate(0)
            logs.make_log(run.logs[0], logs.run_record("b"), logs.row(0, later))
        return original(run, **options)

    original = exporting.load
    monkeypatch.setattr(exporting, "load", growing)
    found = {
        outcome.run: outcome.problems for outcome in export_to(tmp_path / "rows.csv", wandb, to="csv", one_table=True)
    }

    assert found["a"] == []
    assert "while it was read" in found["b"][0]
    assert (tmp_path / "rows.csv").read_text().splitlines()[1:] == [
        "a,0,0.0,1790000000.5,1,1.5,",
        "a,1,0.5,1790000001.0,2,,",
    ]


def test_one_file_is_of_one_run(tmp_path, wandb):
    """Several runs into one file is refused with what to do, and so are several things."""
    with pytest.raises(ExportError, match="2 runs do not go into one file"):
        export_to(tmp_path / "x.csv", wandb, to="csv")
    with pytest.raises(ExportError, match="one file holds one thing, not rows, samples"):
        export_to(tmp_path / "x.csv", wandb / "run-20260921_141320-a", to="csv", whats=("samples", "rows"))
    assert not (tmp_path / "x.csv").exists()


def test_a_file_that_is_there_stays(tmp_path, wandb):
    """It is refused, the other run is written; with force it is replaced."""
    place = tmp_path / "out" / "a" / "rows.jsonl"
    place.parent.mkdir(parents=True)
    place.write_text("mine")

    found = {outcome.run: outcome for outcome in export_to(tmp_path / "out", wandb, to="jsonl")}
    assert place.read_text() == "mine"
    assert [*place.parent.iterdir()] == [place]
    assert f"{place} is there already" in found["a"].problems[0]
    assert found["b"].problems == []

    export_to(tmp_path / "out", wandb, to="jsonl", force=True)
    assert len(rows_of(place)) == 2


@pytest.mark.parametrize("packed", [bytes, gzip.compress, zstandard.compress])
def test_a_log_is_never_written_over(tmp_path, packed):
    """Not even with force, whatever it is called: another log, a packed one, and the one that is exported itself."""
    log = exports.mixed_run(tmp_path / "wandb")
    other = tmp_path / "other.csv"
    other.write_bytes(packed(log.read_bytes()))
    before = other.read_bytes()

    for paths, out in (([log], other), ([other], other), ([tmp_path / "wandb"], f"file://{other}")):
        with suppress(ExportError):
            (outcome,) = export(paths, out, Options("csv", force=True))
            assert "never written over" in outcome.problems[0]
        assert other.read_bytes() == before


def test_the_log_that_is_exported_is_not_written_over_though_its_beginning_is_damaged(tmp_path):
    """Nothing in it tells any more that it is one, but that it was read."""
    log = exports.mixed_run(tmp_path / "wandb").rename(tmp_path / "rows.jsonl")
    log.write_bytes(b"zzzzzzzzzz" + log.read_bytes()[10:])
    before = log.read_bytes()

    for out in (log, tmp_path / "wandb" / ".." / "rows.jsonl"):
        with pytest.raises(ExportError, match="never written over"):
            export_to(out, log, to="jsonl", force=True, one_table=True)
    assert log.read_bytes() == before


@pytest.mark.parametrize("to", ["csv", "jsonl", "parquet", "tensorboard", "html"])
@pytest.mark.parametrize("at_end", [False, True])
def test_a_full_disk_is_told_with_the_file(tmp_path, wandb, monkeypatch, to, at_end):
    """As it writes, or when it puts the file in its place; nothing of the file stays."""

    def full(*_):
        raise OSError(errno.ENOSPC, "No space left on device")

    whats = {"whats": ("rows",)} if to not in {"tensorboard", "html"} else {}
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    if at_end:
        monkeypatch.setattr(type(tmp_path), "replace", full)
    else:
        resource.setrlimit(resource.RLIMIT_FSIZE, (0, before[1]))
    try:
        first, *_ = export_to(tmp_path / "out", wandb, to=to, **whats)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)

    (problem,) = first.problems
    assert problem.startswith(str(tmp_path / "out" / "a"))
    assert problem.endswith((": No space left on device", ": File too large"))
    assert ".part" not in problem
    assert not [path for path in (tmp_path / "out").rglob("*") if path.is_file()]


def test_standard_output_that_takes_no_more_is_named(wandb):
    """A full disk behind `>` is a problem of the run as any other."""
    with Path("/dev/full").open("wb", buffering=0) as full:
        (outcome,) = export([wandb / "run-20260921_141320-a"], "-", Options("csv"), stdout=full)

    assert outcome.problems == ["standard output: No space left on device"]


def test_what_a_log_holds_but_nobody_can_read_is_told(tmp_path):
    """A value that is no JSON, one that nests too deep, a record that is no message; what is not wanted is not missed."""
    deep = b"[" * 500 + b"]" * 500
    log = logs.make_log(
        tmp_path / "run-u.wandb",
        logs.run_record("u", config={"bad": b"{", "lr": 1}),
        logs.row(0, {"deep": deep, "x": 1}),
    )
    (outcome,) = export_to(tmp_path / "out", log, to="jsonl")
    (rows,) = export_to(tmp_path / "rows.jsonl", log, to="jsonl")

    assert outcome.problems == [
        "config: 1 value could not be read (no JSON, or nested too deep): bad",
        "summary: 1 value could not be read (no JSON, or nested too deep): deep",
    ]
    assert rows.problems == []


@pytest.mark.parametrize("is_packed", [False, True])
def test_a_mended_bit_is_told_and_costs_nothing(tmp_path, is_packed):
    """It is a note with its place, stands in run.json and on the page, and the rows are all there."""
    whole = exports.mixed_run(tmp_path / "wandb")
    data = bytearray(whole.read_bytes())
    data[300] ^= 4
    log = tmp_path / "run-m.wandb"
    log.write_bytes(gzip.compress(data) if is_packed else data)

    (outcome,) = export_to(tmp_path / "out", log, to="jsonl")
    export_to(tmp_path / "page.html", log, to="html")

    assert (outcome.problems, outcome.notes) == (
        [],
        [f"{log}: mended, as its checksums prove: bit 2 of byte 300"],
    )
    assert json.loads((tmp_path / "out" / "mixed" / "run.json").read_text())["bits_healed"] == 1
    assert len(rows_of(tmp_path / "out" / "mixed" / "rows.jsonl")) == len(exports.MIXED)
    assert "<b>flipped bits mended</b>1<" in (tmp_path / "page.html").read_text()


def test_times_are_rounded_once(tmp_path):
    """The double next to the time in nanoseconds, as a reader of the log's own text gets it."""
    stamp = messages.Timestamp(seconds=1_790_000_000, nanos=100_000_381)
    run = logs.run_record("t")
    run.run.start_time.CopyFrom(stamp)
    log = logs.make_log(tmp_path / "run-t.wandb", run)
    export_to(tmp_path / "out", log, to="jsonl", whats=("run",))

    exact = float("1790000000.100000381")
    assert exact != 1790000000100000381 / 1e9
    assert json.loads((tmp_path / "out" / "t" / "run.json").read_text())["started"] == exact


def test_a_file_that_cannot_be_written_leaves_nothing(tmp_path, wandb):
    """An error of the disk is the run's problem, names the cause, and no part of a file stays."""
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "a").write_text("a file where the run's folder goes")

    found = {outcome.run: outcome for outcome in export_to(tmp_path / "out", wandb, to="csv")}

    assert "out/a" in found["a"].problems[0]
    assert found["b"].problems == []
    assert not [*tmp_path.rglob("*.part")]


def test_an_export_that_breaks_off_leaves_what_was_there(tmp_path, wandb, monkeypatch):
    """Interrupted in the middle of a file, the one from before is whole, and nothing lies beside it."""
    export_to(tmp_path / "rows.csv", wandb / "run-20260921_141320-a", to="csv")
    before = (tmp_path / "rows.csv").read_bytes()
    from runferry.export import commas

    def interrupted(self, table):
        self._file.write(b"half")
        raise KeyboardInterrupt

    monkeypatch.setattr(commas.TableWriter, "add", interrupted)
    with pytest.raises(KeyboardInterrupt):
        export_to(tmp_path / "rows.csv", wandb / "run-20260921_141320-a", to="csv", force=True)

    assert (tmp_path / "rows.csv").read_bytes() == before
    assert {path.name for path in tmp_path.iterdir()} == {"wandb", "rows.csv"}


@pytest.mark.parametrize(
    ("run_id", "name"),
    [
        ("../../escape", "__.._escape"),
        ("/etc/passwd", "_etc_passwd"),
        (".hidden", "_hidden"),
        ("a\\b:c", "a_b_c"),
        ("x" * 300, "x" * 100),
        ("\x1b[31mred", "_[31mred"),
        ("é", "é"),
    ],
)
def test_no_id_leads_out_of_the_folder(tmp_path, run_id, name):
    """Whatever a log gives for the id of its run, its files lie in one folder right below the target."""
    log = logs.make_log(tmp_path / "x.wandb", logs.run_record(run_id), logs.row(0))

    export_to(tmp_path / "deep" / "out", log, to="jsonl")

    (made,) = (tmp_path / "deep" / "out").iterdir()
    assert (made / "rows.jsonl").is_file()
    assert made.name == name
    assert {path.name for path in tmp_path.iterdir()} == {"x.wandb", "deep"}
    assert [*(tmp_path / "deep").iterdir()] == [tmp_path / "deep" / "out"]


def test_runs_of_one_id_have_folders_of_their_own(tmp_path):
    """The same id in two projects, or in another case where a file system knows none."""
    for number, (run_id, project) in enumerate([("r", "p"), ("r", "q"), ("R", "p")]):
        logs.make_log(
            tmp_path / "wandb" / f"run-2026092{number}_141320-{run_id}" / f"run-{run_id}.wandb",
            logs.run_record(run_id, project=project),
            logs.row(number),
        )

    assert [run.name for run in find_runs([tmp_path / "wandb"])] == ["r", "r-2", "R-3"]


def test_a_run_by_its_id(tmp_path, wandb, monkeypatch):
    """As `show` takes it: of the wandb directory here; what is neither path nor id is refused."""
    monkeypatch.chdir(tmp_path)
    export_to(tmp_path / "out", *map(type(wandb), ["b"]), to="jsonl")

    assert [path.name for path in (tmp_path / "out").iterdir()] == ["b"]
    with pytest.raises(ExportError, match="neither a path here nor the id"):
        export_to(tmp_path / "out", type(wandb)("c"), to="jsonl")


def test_a_folder_without_logs_is_refused(tmp_path):
    """With where was looked."""
    with pytest.raises(ExportError, match="no log"):
        export_to(tmp_path / "out", tmp_path, to="jsonl")


def test_standard_output_takes_one_table(wandb):
    """CSV of the rows, or what is named, as one stream."""
    out = io.BytesIO()
    export([wandb / "run-20260921_141320-a"], "-", Options("csv", whats=("console",)), stdout=out)

    assert out.getvalue().decode().splitlines() == [
        "_timestamp,stream,text",
        "1790000001.5,stdout,one",
        "1790000002.0,stderr,warn",
        "1790000001.5,stdout,two",
    ]


def test_a_store_of_fsspec_as_target(wandb):
    """Files appear there under their names; what is there is refused; credentials are in no message."""
    store = fsspec.filesystem("memory")
    outcomes = export([wandb], "memory://bucket/out", Options("jsonl"))

    assert outcomes[0].files[0] == "memory://bucket/out/a/rows.jsonl"
    assert len(store.cat("/bucket/out/a/rows.jsonl").splitlines()) == 2
    again = export([wandb], "memory://bucket/out", Options("jsonl"))
    assert "is there already" in again[0].problems[0]
    export([wandb / "run-20260921_141320-a"], "memory://bucket/one.csv", Options("csv"))
    assert store.cat("/bucket/one.csv").startswith(b"_step,")
    store.rm("/bucket", recursive=True)
    with pytest.raises(ExportError) as refused:
        export([wandb], "nosuch://key:secret@host/out?token=abc", Options("csv"))
    assert "nosuch://host/out" in str(refused.value)
    assert not {"secret", "token", "abc"} & {*str(refused.value).replace("?", " ").replace(":", " ").split()}


def test_what_is_not_installed_is_named_with_its_extra(tmp_path, wandb, monkeypatch):
    """Before anything is read: pyarrow for Parquet, fsspec for a URL."""
    for module, out, to, extra in (
        ("pyarrow", tmp_path / "out", "parquet", "export"),
        ("fsspec.core", "s3://x", "csv", "remote"),
    ):
        with monkeypatch.context() as patch:
            patch.setitem(sys.modules, module, None)
            with pytest.raises(ExportError, match=rf"install runferry with \[{extra}\]"):
                export([wandb], out, Options(to))
    assert not (tmp_path / "out").exists()


def test_a_store_that_fails_says_no_more_than_how(tmp_path, wandb, monkeypatch):
    """The text of its error may hold a key; its type says enough."""
    store = fsspec.filesystem("memory")

    def failing(*_, **__):
        raise PermissionError("signature of AKIA123 is wrong")

    monkeypatch.setattr(type(store), "put_file", failing)
    (outcome,) = export([wandb / "run-20260921_141320-a"], "memory://x", Options("csv"))

    assert outcome.problems == ["memory://x/a/rows.csv: cannot be written: PermissionError"]


@pytest.mark.parametrize(
    ("error", "words"),
    [
        (ImportError("Install s3fs"), "fsspec lacks what opens s3://: Install s3fs to access S3"),
        (ValueError("key:secret@bucket"), "no such place is known"),
        (ConnectionRefusedError("key:secret@bucket"), "cannot be opened: ConnectionRefusedError"),
    ],
)
def test_a_store_that_does_not_open_is_named_with_the_reason(wandb, monkeypatch, error, words):
    """A package that fsspec wants, an unknown scheme, a host that answers nothing; never with what is secret in the URL."""

    def failing(_):
        raise error

    monkeypatch.setattr("fsspec.core.url_to_fs", failing)
    with pytest.raises(ExportError) as refused:
        export([wandb], "s3://key:secret@bucket/x?token=abc", Options("csv"))

    assert str(refused.value) == f"s3://bucket/x: {words}"


@pytest.mark.parametrize(
    ("selection", "steps"),
    [
        (Selection(every=3), [0, 3, 6, 9]),
        (Selection(first_step=4), [4, 5, 6, 7, 8, 9]),
        (Selection(end_step=2), [0, 1]),
        (Selection(first_step=2, end_step=8, every=2), [2, 4, 6]),
        (Selection(keys=("odd",)), [1, 3, 5, 7, 9]),
        (Selection(keys=("o*",), first_step=4, every=2), [5, 9]),
        (Selection(keys=("_step", "all")), [*range(10)]),
        (Selection(first_step=70), []),
    ],
)
@pytest.mark.parametrize("shape", ["wide", "long"])
def test_rows_that_are_wanted(tmp_path, selection, steps, shape):
    """By steps as a slice has them, then each nth; with keys only rows that have one of them, and the step beside it."""
    rows = [{"all": step, **({"odd": step} if step % 2 else {"even": step})} for step in range(10)]
    log = exports.mixed_run(tmp_path / "wandb", rows=rows)

    export_to(tmp_path / "rows.jsonl", log, to="jsonl", selection=selection, shape=shape)
    export_to(tmp_path / "rows.csv", log, to="csv", selection=selection, shape=shape)

    found = rows_of(tmp_path / "rows.jsonl")
    if shape == "wide":
        assert [row["_step"] for row in found] == steps
        wanted = {key for key in ("all", "odd", "even", "_runtime", "_timestamp") if selection.wants(key)}
        assert {key for row in found for key in row} - {"_step"} <= wanted
    else:
        assert sorted({row["_step"] for row in found}) == steps
        assert all(row["value"] == row["_step"] and selection.wants(row["key"]) for row in found)
    assert len((tmp_path / "rows.csv").read_text().splitlines()) == 1 + len(found)


def test_sparse_rows_are_found_one_by_one(tmp_path, monkeypatch):
    """Each 20th of rows with gaps: by pieces, near rows at once or each by itself, the same cells."""
    from runferry.export import tables

    rows = [{f"k{step % 3}": step, "all": step} for step in range(400)]
    log = exports.mixed_run(tmp_path / "wandb", rows=rows)
    monkeypatch.setattr(tables, "MOST_ROWS", 7)
    state = load(log)
    for every in (1, 3, 20):
        export_to(tmp_path / f"{every}.parquet", log, to="parquet", selection=Selection(every=every))
        found = pq.read_table(tmp_path / f"{every}.parquet")
        assert {name: found[name].to_pylist() for name in found.column_names} == {
            column.name: [column.get(row) for row in range(0, 400, every)] for column in state.rows.columns
        }


@pytest.mark.parametrize("text", ["a\rb", " a", "a\t", "a,b", 'a"b', "a\nb", ""])
def test_what_some_reader_of_csv_would_take_away_is_quoted(tmp_path, text):
    """Ends of lines of any system, blanks around a text, commas, quotes, and nothing at all."""
    log = exports.mixed_run(tmp_path / "wandb", rows=[{"k": text, "plain": "a b"}])
    export_to(tmp_path / "rows.csv", log, to="csv")

    doubled = text.replace('"', '""')
    assert (tmp_path / "rows.csv").read_bytes().endswith(f',"{doubled}",a b\n'.encode())


def test_a_run_without_rows(tmp_path):
    """Its table has no rows, and a column, so that every reader takes it."""
    log = logs.make_log(tmp_path / "run-e.wandb", logs.run_record("e"))
    for to in ("csv", "parquet", "jsonl"):
        (outcome,) = export_to(tmp_path / "out", log, to=to, force=True)
        assert outcome.problems == []

    assert pq.read_table(tmp_path / "out" / "e" / "rows.parquet").column_names == ["_step"]
    assert (tmp_path / "out" / "e" / "rows.csv").read_text() == "_step\n"


def test_a_key_called_as_the_runs_column(tmp_path):
    """The run gets another name, the key keeps its own."""
    exports.mixed_run(tmp_path / "wandb", rows=[{"_run": "mine"}])
    export_to(tmp_path / "rows.jsonl", tmp_path / "wandb", to="jsonl", one_table=True)

    (row,) = rows_of(tmp_path / "rows.jsonl")
    assert (row["_run"], row["__run"]) == ("mine", "mixed")


def test_a_nested_key_below_the_runs_column(tmp_path):
    """Objects nest: it would take the place of the run."""
    exports.mixed_run(tmp_path / "wandb", rows=[{("_run", "x"): 1}])
    export_to(tmp_path / "rows.jsonl", tmp_path / "wandb", to="jsonl", one_table=True)

    (row,) = rows_of(tmp_path / "rows.jsonl")
    assert (row["_run"], row["__run"]) == ({"x": 1}, "mixed")


def test_what_a_format_has_no_room_for_is_refused(tmp_path, wandb):
    """Before anything is read or written."""
    for options in (
        {"to": "tensorboard", "whats": ("console",)},
        {"to": "html", "one_table": True},
        {"to": "csv", "whats": ("cheese",)},
    ):
        with pytest.raises(ExportError):
            export_to(tmp_path / "out", wandb, **options)
    assert not (tmp_path / "out").exists()


def test_keys_that_are_not_there_are_named(tmp_path, wandb):
    """Of one run of several it is noted, of all of them it is a problem, not an empty table without a word."""
    for options in ({}, {"one_table": True}):
        found = export_to(tmp_path / f"y{len(options)}", wandb, to="csv", selection=exports.keys("y*"), **options)
        assert [(outcome.run, outcome.notes, outcome.problems) for outcome in found] == [
            ("a", [], []),
            ("b", ["no key matches y*"], []),
        ]
        *_, last = export_to(tmp_path / f"q{len(options)}", wandb, to="csv", selection=exports.keys("q*"), **options)
        assert last.problems == ["no key of any run matches q*"]


def test_one_table_that_cannot_be_written(tmp_path, wandb):
    """Is the problem of every run, and nothing of it stays."""
    (tmp_path / "out").write_text("a file where the folder goes")

    found = export_to(tmp_path / "out", wandb, to="csv", one_table=True)

    assert [(outcome.files, len(outcome.problems)) for outcome in found] == [([], 1), ([], 1)]
    assert str(tmp_path / "out") in found[0].problems[0]


def test_one_table_that_cannot_be_put_in_its_place(tmp_path, wandb, monkeypatch):
    """Though all rows were written, no run is said to have a file."""

    def full(*_):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(type(tmp_path), "replace", full)
    found = export_to(tmp_path / "x.csv", wandb, to="csv", one_table=True)

    assert [(outcome.files, outcome.counts) for outcome in found] == [([], {}), ([], {})]
    assert [outcome.problems for outcome in found] == [[f"{tmp_path / 'x.csv'}: No space left on device"]] * 2


@pytest.mark.parametrize("to", ["csv", "parquet", "html"])
def test_a_pipe_that_nobody_reads_ends_the_export(wandb, to):
    """It is no problem of a run: the command ends as every command whose output is cut off."""
    reader, writer = os.pipe()
    os.close(reader)
    with (
        suppress(BrokenPipeError),
        os.fdopen(writer, "wb", buffering=0) as pipe,
        pytest.raises(BrokenPipeError),
    ):
        export([wandb / "run-20260921_141320-a"], "-", Options(to), stdout=pipe)


def test_a_folder_that_cannot_be_listed_is_named(tmp_path, wandb, monkeypatch):
    """Whether there are runs in it nobody knows; the others are exported."""
    from runferry.export import runs

    def finding(path, *, unreadable):
        unreadable(PermissionError(13, "Permission denied", f"{path}/shut"))
        return original(path)

    original = runs.find_logs
    monkeypatch.setattr(runs, "find_logs", finding)
    shut, *others = export_to(tmp_path / "out", wandb, to="csv")

    assert shut.problems == [f"{wandb}/shut: the folder cannot be read: Permission denied"]
    assert [outcome.problems for outcome in others] == [[], []]


def test_an_environment_stands_in_the_facts(tmp_path):
    """As its record says it, times in seconds."""
    log = logs.make_log(tmp_path / "run-e.wandb", logs.run_record("e"), logs.environment_record(host="node7"))
    export_to(tmp_path / "out", log, to="jsonl", whats=("run",))

    environment = json.loads((tmp_path / "out" / "e" / "run.json").read_text())["environment"]
    assert (environment["host"], environment["started_at"]) == ("node7", logs.START_S)
    assert messages.EnvironmentRecord().host == ""
