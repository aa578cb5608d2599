"""`export`, as a user calls it."""

from __future__ import annotations

import gzip
import json
from pathlib import Path

import fsspec
import pytest
from click.testing import CliRunner
from runferry.bundle import pack
from runferry.cli import group
from support import exports, logs


def call(*args, stdin=None):
    result = CliRunner().invoke(group, ["export", *map(str, args)], input=stdin, catch_exceptions=False)
    return result.exit_code, result.stdout, result.stderr


@pytest.fixture
def here(tmp_path, monkeypatch):
    """A folder with a run in ./wandb."""
    monkeypatch.chdir(tmp_path)
    exports.mixed_run(tmp_path / "wandb", "a", [{"x": 1, "train/loss": 0.5}, {"x": 2}])
    return tmp_path


def test_a_wandb_directory_becomes_a_folder(here):
    """Each run is told in one line, with where it went."""
    code, output, errors = call("--to", "csv")

    assert (code, output, errors) == (0, "a  2 rows, 2 samples  export/a/\n", "")
    assert (here / "export" / "a" / "rows.csv").read_text().startswith("_step,_runtime,_timestamp,x,train/loss\n0,")


def test_rows_go_to_standard_output(here):
    """CSV or JSONL of one run, and nothing else."""
    code, output, errors = call("a", "--to", "csv", "-o", "-", "--keys", "train/*")
    assert (code, output, errors) == (0, "_step,train/loss\n0,0.5\n", "")
    code, output, _ = call("wandb", "--to", "jsonl", "-o", "-", "--steps", "1:")
    assert [json.loads(line)["x"] for line in output.splitlines()] == [2]


def test_json_says_what_became_of_each_run(here):
    """An object for each run, then one with the exit code."""
    code, output, _ = call("--to", "jsonl", "--json", "--what", "rows,config")

    run, done = map(json.loads, output.splitlines())
    assert run["type"] == "run"
    assert run["files"] == ["export/a/rows.jsonl", "export/a/config.json"]
    assert run["counts"] == {"rows": 2}
    assert done == {"type": "done", "exit_code": 0, "counts": {"whole": 1}}
    assert code == 0


def test_damage_is_told_with_its_place_and_fails(here):
    """What could be read is written; standard error has the offsets, and the exit code is 1."""
    log = logs.simple_run(here / "wandb", run_id="d", rows=100)
    data = bytearray(log.read_bytes())
    data[3000:3002] = b"\xff\xff"
    log.write_bytes(data)

    code, output, errors = call(log, "--to", "csv", "-o", "-")

    assert code == 1
    assert len(output.splitlines()) == 100
    assert "could not be read (bad_crc), 1 record lost" in errors


def test_bundles_packed_logs_and_pipes_are_read(here):
    """As `show` reads them, called by the name that the user knows them by."""
    log = next((here / "wandb").rglob("*.wandb"))
    pack([here / "wandb"], here / "runs.tar.zst")
    (here / "run-a.wandb.gz").write_bytes(gzip.compress(log.read_bytes()))
    plain = call(log, "--to", "jsonl", "-o", "-")

    assert call("runs.tar.zst", "--to", "jsonl", "-o", "-") == plain
    assert call("run-a.wandb.gz", "--to", "jsonl", "-o", "-") == plain
    assert call("-", "--to", "jsonl", "-o", "-", stdin=log.read_bytes()) == plain
    call("runs.tar.zst", "--to", "jsonl", "-o", "out", "--what", "run")
    assert json.loads((here / "out" / "a" / "run.json").read_text())["logs"][0].startswith("runs.tar.zst:")


def test_problems_of_logs_in_a_bundle_call_them_as_the_user_does(here):
    """As text and as JSON: where the bundle was unpacked for the moment tells nobody anything."""
    for second in (20, 30):
        log = here / "two" / f"run-20260921_1413{second}-b" / "run-b.wandb"
        logs.make_log(log, logs.run_record("b"), logs.row(0, {"x": second}))
    pack([here / "two"], here / "b.tar.zst")

    code, _, errors = call("b.tar.zst", "--to", "csv")
    said = json.loads(call("b.tar.zst", "--to", "csv", "--json")[1].splitlines()[0])

    (problem,) = said["problems"]
    one, other = (f"b.tar.zst:run-20260921_1413{second}-b/run-b.wandb" for second in (20, 30))
    assert code == 1
    assert "differs from" in problem
    assert one in problem
    assert other in problem
    assert problem in errors
    assert "runferry-" not in errors + problem


def test_runs_of_a_store_are_read(here):
    """A folder of runs at a URL, as if it lay here."""
    store = fsspec.filesystem("memory")
    store.put(str(here / "wandb"), "/exported/wandb", recursive=True)

    code, output, _ = call("memory://exported/wandb", "--to", "jsonl", "-o", "memory://exported/out", "--what", "rows")

    assert (code, output) == (0, "a  2 rows  memory://exported/out/a/rows.jsonl\n")
    assert len(store.cat("/exported/out/a/rows.jsonl").splitlines()) == 2
    store.rm("/exported", recursive=True)


def test_a_damaged_bundle_fails_though_its_runs_are_exported(here):
    """What it lost may be a run of which nobody knows any more."""
    (bundle,) = pack([here / "wandb"], here / "runs.tar.zst").files
    data = Path(bundle).read_bytes()
    Path(bundle).write_bytes(data[:-40])

    code, _, errors = call("runs.tar.zst", "--to", "csv")

    assert (code, (here / "export" / "a" / "rows.csv").is_file()) == (1, True)
    assert "runs.tar.zst" in errors


@pytest.mark.parametrize(
    ("args", "words"),
    [
        (["nowhere", "--to", "csv"], "neither a path here nor the id"),
        (["--to", "xlsx"], "'xlsx' is not one of"),
        (["--to", "csv", "--steps", "a:b"], "no range of steps"),
        (["--to", "csv", "--what", "cheese"], "no such thing: cheese"),
        (["--to", "tensorboard", "-o", "-", "--one-table"], "makes no tables"),
        (["--to", "csv", "-o", "nosuch://x"], "no such place"),
    ],
)
def test_usage(here, args, words):
    """What cannot be done is said, nothing is written, and the exit code is 2."""
    result = CliRunner().invoke(group, ["export", *args])

    assert result.exit_code == 2 or result.exception is not None
    assert words in result.output + str(result.exception)
    assert not (here / "export").exists()


def test_what_is_there_is_not_written_over(here):
    """The second time it fails, with what to do; --force does it."""
    assert call("--to", "parquet", "-o", "x.parquet")[0] == 0
    result = CliRunner().invoke(group, ["export", "--to", "parquet", "-o", "x.parquet"])
    assert "is there already: another -o, or --force" in result.output
    assert call("--to", "parquet", "-o", "x.parquet", "--force")[0] == 0


def test_a_page_of_a_run(here):
    """One file, by its ending, or in the run's folder."""
    assert call("--to", "html", "-o", "a.html")[0] == 0
    assert call("--to", "html")[0] == 0
    assert (here / "a.html").read_bytes() == (here / "export" / "a" / "report.html").read_bytes()
