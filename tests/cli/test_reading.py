"""`show` and `ls`, as a user calls them."""

from __future__ import annotations

import json
import os
import time
from pathlib import Path

import pytest
from click.testing import CliRunner
from runferry.cli import COMMANDS, group
from runferry.logformat import messages
from support.frames import log_of


def run_log(
    folder, run_id="r1", rows=3, *, exit_code: int | None = 0, name="", tail=b"", start=0, stamp="20261130_142500"
):
    records = [
        messages.Record(
            run=messages.RunRecord(
                run_id=run_id,
                project="p",
                display_name=name,
                start_time=messages.Timestamp(seconds=start),
                config=messages.ConfigRecord(update=[messages.Item(key="lr", value_json="0.1")]),
            )
        )
    ]
    for step in range(rows):
        row = messages.HistoryRecord()
        row.item.add(nested_key=["loss"], value_json=f"{1 / (step + 1)}")
        row.item.add(nested_key=["_step"], value_json=str(step))
        records.append(messages.Record(history=row))
    if exit_code is not None:
        records.append(messages.Record(exit=messages.RunExitRecord(exit_code=exit_code)))
    for num, record in enumerate(records, 1):
        record.num = num
    directory = folder / f"run-{stamp}-{run_id}"
    directory.mkdir(parents=True)
    log = directory / f"run-{run_id}.wandb"
    log.write_bytes(log_of(*(record.SerializeToString() for record in records)) + tail)
    return log


def call(*args):
    result = CliRunner().invoke(group, [str(arg) for arg in args], catch_exceptions=False)
    return result.exit_code, result.output


def lines(text):
    return [json.loads(line) for line in text.splitlines()]


def test_show_prints_each_record_with_its_place(tmp_path):
    """Offset, number, kind, and what it says."""
    code, output = call("show", run_log(tmp_path))

    assert code == 0
    assert "loss=0.5  _step=1" in output
    assert [line.split()[2] for line in output.splitlines()[1:]] == [
        "kind",
        "run",
        "history",
        "history",
        "history",
        "exit",
    ]


def test_show_json_gives_values_and_gaps(tmp_path):
    """One object per record, one per gap, and an exit code that tells of loss."""
    log = run_log(tmp_path, tail=b"\x01" * 20)
    code, output = call("show", "--json", log)
    *records, gap = lines(output)

    assert code == 1
    assert [record["value"] for record in records if record["kind"] == "history"][1] == {"loss": 0.5, "_step": 1}
    assert (gap["type"], gap["reason"], gap["length"]) == ("gap", "torn_tail", 20)


def test_show_filters_by_kind_and_names_unknown_ones(tmp_path):
    """A misspelt kind is a usage error, not an empty answer."""
    log = run_log(tmp_path)

    assert len(lines(call("show", "--json", "--kind", "history", log)[1])) == 3
    code, output = call("show", "--kind", "histroy", log)
    assert code == 2
    assert "histroy" in output


def test_show_names_the_kinds_of_a_log_where_none_is_asked_for(tmp_path):
    """A table without rows says why, and where console output is looked for."""
    log = run_log(tmp_path)
    code, output = call("show", "--kind", "output", "--kind", "history", log)

    assert code == 0
    assert f"no record of kind output in {log}, which has exit, history, run" in output
    assert "output_raw" in output
    assert "no record" not in call("show", "--kind", "history", log)[1]


@pytest.mark.parametrize("level", ["run", "wandb", "id"])
def test_show_summary_folds_all_logs_of_a_run(tmp_path, monkeypatch, level):
    """A run that was resumed is one run, from whatever names it, and its last log says how it is."""
    first = run_log(tmp_path / "wandb", rows=2, exit_code=1, start=100, tail=b"\x01" * 20)
    last = run_log(tmp_path / "wandb", rows=4, start=200, stamp="20261130_142700")
    run_log(tmp_path / "wandb", "r2", start=300)
    monkeypatch.chdir(tmp_path)
    (tmp_path / "wandb" / "latest-run").symlink_to(last.parent.name)
    path = {"run": first.parent, "wandb": tmp_path / "wandb", "id": "r1"}[level]
    code, output = call("show", "--summary", "--json", path)
    (found,) = lines(output)

    assert code == 1
    assert [Path(log).parent.name for log in found["logs"]] == [first.parent.name, last.parent.name]
    assert (found["rows"], found["status"], found["exit_code"]) == (6, "finished", 0)
    assert [Path(gap["log"]).parent.name for gap in found["gaps"]] == [first.parent.name]
    assert f"{first.parent.name}/run-r1.wandb: torn_tail" in call("show", "--summary", path)[1]


def test_show_summary_of_logs_that_are_named(tmp_path):
    """One log stands for itself, and says that there are more; several are folded if they are of one run."""
    first, second = run_log(tmp_path / "a", start=100), run_log(tmp_path / "a", start=200, stamp="20261130_142700")
    elsewhere = run_log(tmp_path / "b", start=300)

    code, output = call("show", "--summary", first)
    assert code == 0
    assert "holds    3 rows" in output
    assert "1 more log(s) of this run" in output
    assert "more log" not in call("show", "--summary", first.parent)[1]
    assert "holds    9 rows" in call("show", "--summary", elsewhere, second, first)[1]
    assert "holds    9 rows" in call("show", "--summary", elsewhere.parent, first.parent)[1]
    code, output = call("show", "--summary", first, run_log(tmp_path / "c", "r2"))
    assert code == 2
    assert "different runs" in output
    code, output = call("show", first, second)
    assert code == 2
    assert "one log at a time" in output


@pytest.mark.parametrize("level", ["log", "run", "wandb"])
def test_show_summary_from_any_level(tmp_path, level):
    """The log, its directory, or the wandb directory, of which the latest run is taken."""
    run_log(tmp_path, "old").parent.rename(tmp_path / "run-20250101_000000-old")
    log = run_log(tmp_path, name="new")
    code, output = call("show", "--summary", "--json", {"log": log, "run": log.parent, "wandb": tmp_path}[level])
    (found,) = lines(output)

    assert code == 0
    assert (found["run"], found["name"], found["rows"], found["status"]) == ("r1", "new", 3, "finished")
    assert found["config"] == {"lr": 0.1}
    assert found["summary"] == {"loss": 1 / 3, "_step": 2}


def test_show_says_what_is_wrong_with_a_path(tmp_path):
    """Nothing there, no log in there, several logs in there: each is named."""
    assert "neither a path" in call("show", tmp_path / "nope")[1]
    assert "no log" in call("show", tmp_path)[1]
    run_log(tmp_path / "a")
    run_log(tmp_path / "b", "r2")
    assert "2 logs" in call("show", tmp_path)[1]


def test_control_characters_of_a_log_do_not_reach_the_terminal(tmp_path):
    """A name with escape sequences is shown, not obeyed."""
    log = run_log(tmp_path, name="evil\x1b[2Jname")

    for command in (["show", "--summary"], ["show"], ["ls"]):
        output = call(*command, log)[1]
        assert "\x1b" not in output
        assert "evil" in output


def test_ls_lists_every_run_and_names_the_bad_ones(tmp_path):
    """Finished, failed, running, crashed, empty, foreign: one line each, and exit code 1 for what cannot be read."""
    run_log(tmp_path, "good")
    run_log(tmp_path, "bad", exit_code=3)
    run_log(tmp_path, "alive", exit_code=None)
    old = run_log(tmp_path, "old", exit_code=None)
    os.utime(old, (time.time() - 3600,) * 2)
    assert call("ls", tmp_path)[0] == 0

    empty = run_log(tmp_path, "empty")
    empty.write_bytes(b"")
    os.utime(empty, (time.time() - 3600,) * 2)
    run_log(tmp_path, "lfs").write_bytes(b"version https://git-lfs.github.com/spec/v1\n")
    code, output = call("ls", "--json", tmp_path)
    found = {row["run"]: row for row in lines(output)}

    assert code == 1
    assert {run: row["status"] for run, row in found.items()} == {
        "good": "finished",
        "bad": "failed",
        "alive": "running",
        "old": "crashed",
        "empty": "unknown",
        "lfs": "unknown",
    }
    assert found["empty"]["problem"] == "empty file"
    assert "`git lfs pull`" in found["lfs"]["problem"]
    assert found["good"]["rows"] == 3
    assert found["good"]["sync"] == "no"


@pytest.mark.parametrize(("size", "problem"), [(6, "bad_header (0 records lost)"), (40, "bad_header (1 record lost)")])
def test_ls_tells_a_damaged_header_from_what_is_no_log(tmp_path, size, problem):
    """A log of which the beginning is lost is one, and the rows behind that are counted."""
    log = run_log(tmp_path, "hurt")
    log.write_bytes(b"\xff" * size + log.read_bytes()[size:])
    (row,) = lines(call("ls", "--json", tmp_path)[1])

    assert (row["problem"], row["rows"]) == (problem, 3)


def test_ls_lists_runs_of_one_second_in_the_order_of_their_start(tmp_path):
    """Their directories have the same time in their names; a log that does not say its start counts by its last write."""
    ids = ["c", "a", "b"]
    for start, run_id in enumerate(ids, 100):
        run_log(tmp_path, run_id, start=start)
    unknown = run_log(tmp_path, "0")
    os.utime(unknown, (101.5,) * 2)

    assert [row["run"] for row in lines(call("ls", "--json", tmp_path)[1])] == ["c", "a", "0", "b"]


def test_ls_goes_on_behind_a_file_that_cannot_be_read(tmp_path):
    """A dangling link and a directory named like a log are named; the others are listed."""
    good = run_log(tmp_path, "good")
    (tmp_path / "dangling.wandb").symlink_to("gone")
    (tmp_path / "folder.wandb").mkdir()
    code, output = call("ls", "--json", tmp_path)
    problems = {row["log"].rsplit("/", 1)[1]: row["problem"] for row in lines(output)}

    assert code == 1
    assert problems == {good.name: "", "dangling.wandb": "No such file or directory", "folder.wandb": "Is a directory"}


@pytest.mark.parametrize("name", COMMANDS)
def test_every_command_has_help(name):
    """Each says what it does, its options, and needs nothing to say it."""
    code, output = call(name, "--help")

    assert code == 0
    assert "Usage:" in output
    assert "--help" in output
