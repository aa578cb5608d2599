"""Logs that thirteen versions of the peer wrote, kept with what each version itself made of the same run."""

from __future__ import annotations

import itertools
import math

import pytest
from runferry.logformat import GapReason, Record, RunState, load, read_records
from runferry.logformat.sources import first_look
from support import oldlogs

VERSIONS = oldlogs.KEPT_VERSIONS
NEWEST = "0.31.0"


def log_of(version, kind):
    (log,) = oldlogs.KEPT.glob(f"{version}/{kind}.wandb*")
    return log


def texts(state, stream):
    return [line.text for line in [*state.console, *state.console_rest] if line.stream == stream]


def test_the_versions_that_are_kept():
    """From the first that is read to the peer of today, written by its Python and by its core."""
    assert (VERSIONS[0], VERSIONS[-1], len(VERSIONS)) == ("0.10.33", NEWEST, 13)
    assert [oldlogs.by_python(version) for version in VERSIONS] == [True] * 6 + [False] * 7


@pytest.mark.parametrize("version", VERSIONS)
def test_summary_and_config_are_what_the_version_left(version):
    """Its own `wandb-summary.json` and `config.yaml`, value by value and type by type, but for what is named."""
    ours = oldlogs.our_state(load(log_of(version, "everything")))

    assert oldlogs.differences(ours, oldlogs.expected(version, "everything")) == oldlogs.named(version)


@pytest.mark.parametrize("version", VERSIONS)
def test_long_logs_are_what_the_version_left(version):
    """Over the edges of blocks, with a record of three blocks: every row, and the same summary and config."""
    log = log_of(version, "long")
    records = [item for item in read_records(log) if isinstance(item, Record)]
    state = load(log)

    assert state.gaps == []
    assert max(record.end - record.offset for record in records) > 65_536
    assert [row["_step"] for row in state.rows] == list(range(403))
    assert [row["loss"] for row in itertools.islice(state.rows, 400)] == [1 / (i + 1) for i in range(400)]
    assert oldlogs.differences(oldlogs.our_state(state), oldlogs.expected(version, "long")) == {}


def differing_rows(version):
    """Where rows are known to differ from those of the newest version: (step, path) -> (that version, the newest)."""
    known = {}
    if version in {"0.10.33", "0.12.21"}:
        known |= {(10, ("_step",)): (oldlogs.ABSENT, 10)}  # it made no row of nothing
    if oldlogs.by_python(version):
        known |= {(3, ("void",)): ({}, oldlogs.ABSENT)}  # its core writes no empty object
    if version < "0.18":  # and the core before that filled in no step metric without a value
        known |= {(step, ("epoch",)): (oldlogs.ABSENT, 0) for step in (0, 9, 20)}
    return known


@pytest.mark.parametrize("version", VERSIONS)
def test_rows_are_those_of_the_newest_version(version):
    """The same script logs the same, by `key` or `nested_key`, but for what versions came to write differently."""
    rows, newest = (oldlogs.rows_of(load(log_of(name, "everything"))) for name in (version, NEWEST))

    assert oldlogs.different_rows(rows, newest) == differing_rows(version)


def test_rows_of_the_newest_version_are_what_the_script_logs():
    """The others are compared with rows that are right."""
    rows = {row["_step"]: row for row in load(log_of(NEWEST, "everything")).rows}

    assert rows[0]["nested"] == {"a": 1, "b": {"c": 2.5, "d": "deep"}}
    assert (rows[0]["dot.key"], rows[0]["slash/key"], rows[1]["trail "]) == (1, 2, 1)
    assert (math.isnan(rows[1]["nan"]), rows[1]["inf"], rows[1]["minus"]) == (True, math.inf, -math.inf)
    assert rows[1]["in list"] == [1, 2.5, "x", None, True]
    assert (rows[2]["int64"], rows[2]["exact"], rows[2]["tiny"]) == (2**63 - 1, 2**53 + 1, 5e-324)
    assert (rows[3]["text"], rows[3]["none"]) == ('h\u00e9 "quoted" \u2028 <&> \U0001f600 \t\n', None)
    assert [rows[step]["changes"] for step in (5, 6, 7, 8)] == [1, 1.5, "text", None]
    assert (rows[9]["loss"], rows[9]["acc"], rows[20]["acc"], rows[22]["loss"]) == (0.25, 2, 3, 0.0625)
    assert rows[26]["hist"] == {"_type": "histogram", "values": [1, 2, 3], "bins": [0, 1, 2, 3]}
    assert rows[29]["image"]["_type"] == "image-file"


@pytest.mark.parametrize("version", VERSIONS)
def test_a_log_without_summary_records(version):
    """Rows alone, as a crashed run of the peer's Python leaves them, make what defined metrics make: also inside objects."""
    records = read_records(log_of(version, "everything"))
    summary = RunState().add_all(item for item in records if item.kind != "summary").summary

    assert summary["tree"] == {"val": {"max": 5}, "other": 3}
    assert summary["nested"] == {"a": 1, "b": {"c": 3.5, "d": "deep"}} or oldlogs.by_python(version)
    assert (summary["acc"]["min"], summary["acc"]["max"], summary["low"]) == (1, 4, {"min": 1.5})
    assert (summary["loss"], summary["val/acc"], summary["hid"]) == (0.03125, 1, 3)


@pytest.mark.parametrize("version", VERSIONS)
def test_what_else_a_run_says(version):
    """Name, notes, tags, alert, console, end: the last word of each."""
    state = load(log_of(version, "everything"))
    (alert,) = state.alerts
    coloured = "\x1b[31mred" if version in {"0.10.33", "0.12.21"} else "\x1b[31mred\x1b[0m"

    assert (state.info.run_id, state.info.project, state.info.display_name) == ("everything", "old", "renamed")
    assert (state.info.notes, state.info.tags, state.info.group, state.info.job_type) == (
        "n2",
        ["b", "a", "c"],
        "g",
        "train",
    )
    assert (alert.title, alert.text, alert.level, alert.wait_seconds) == ("title", "text", "WARN", 60)
    assert state.preempting
    assert texts(state, "stdout")[:6] == ["hello stdout", "progress 100%", "shortline", "two", "lines", coloured]
    assert texts(state, "stderr")[-1:] == ["hello stderr"]
    assert (state.exit_code, state.status(age=0), state.gaps, state.bad_records) == (0, "finished", [], 0)


@pytest.mark.parametrize("version", VERSIONS)
def test_an_uncaught_exception(version):
    """Exit code 1, and the traceback on the console."""
    state = load(log_of(version, "raised"))

    assert (state.exit_code, state.status(age=0), state.row_count) == (1, "failed", 1)
    assert texts(state, "stderr")[-1] == "ValueError: boom"


@pytest.mark.parametrize("version", VERSIONS)
def test_a_killed_run(version):
    """A beginning of what was logged, without a hole and without an end; at most the last record is torn."""
    state = load(log_of(version, "killed"))

    assert 0 < state.row_count <= 400
    assert [row["i"] for row in state.rows] == [row["_step"] for row in state.rows] == list(range(state.row_count))
    assert (state.exit_code, state.status(age=3600), state.damage) == (None, "crashed", [])
    assert [gap.reason for gap in state.gaps] in ([], [GapReason.TORN_TAIL])
    last = state.summary["i"]  # the core says first what a row leaves: the row itself may be torn
    assert last - state.row_count in ((-1,) if oldlogs.by_python(version) else (-1, 0))
    assert state.summary["loss"] == 1 / (last + 1)


@pytest.mark.parametrize("version", VERSIONS)
def test_files_and_artifacts(version):
    """A table, a saved file and an artifact, offline."""
    state = load(log_of(version, "files"))
    (weights,) = [artifact for artifact in state.artifacts if artifact.name == "weights"]
    (table,) = [artifact for artifact in state.artifacts if artifact.type == "run_table"]

    assert (weights.type, list(weights.aliases)) in [
        ("model", ["best"]),
        ("model", ["best", "latest"]),
        ("model", ["latest", "best"]),
    ]
    assert [entry.path for entry in weights.manifest.contents] == ["saved.txt"]
    assert [entry.path for entry in table.manifest.contents] == ["table.table.json"]
    assert "saved.txt" in state.files
    assert any(path.startswith("media/table/table_") for path in state.files)
    assert state.rows[0]["table"]["nrows"] == 2


def test_a_log_of_swanlab_is_named():
    """What SwanLab 0.10.3 wrote begins much as a log does: it is told apart, and nothing of it is taken for a record."""
    log = oldlogs.KEPT / "swanlab-0.10.3.swanlab"
    (gap,) = read_records(log)

    assert first_look(log.read_bytes()) == "a SwanLab log, not one of W&B: read it with `swanlab`"
    assert (gap.offset, gap.length, gap.reason) == (0, 300, GapReason.BAD_HEADER)
