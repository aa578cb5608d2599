"""Values that are no JSON, or nest so deep that no reader is sure of them: what else there is arrives, and they are named."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from runferry.sync import Verdict
from support import logs
from support.syncrig import Rig, marker

WHY = "(no JSON, or nested too deep, or a number of too many digits)"
BROKEN = b"{oops"
NESTED = b"[" * 200 + b"]" * 200
BOTTOMLESS = b"[" * 5_000 + b"]" * 5_000


def sent(rig: Rig, *records: Any) -> Any:
    """The report on a run of these records."""
    log = logs.make_log(
        rig.folder / "run-20260921_141320-odd" / "run-odd.wandb", logs.run_record("odd"), *records, logs.exit_record()
    )
    rig.settle(log)
    return rig.only(rig.sync())


@pytest.mark.parametrize(
    ("record", "names"),
    [
        (logs.row, ["rows: odd", "summary: odd"]),
        (lambda step, values: logs.row(None, values), ["rows: odd", "summary: odd"]),
        (logs.sample, ["samples: odd"]),
        (lambda step, values: logs.config_record(values), ["config: odd"]),
        (lambda step, values: logs.summary_record(values), ["summary: odd"]),
    ],
)
@pytest.mark.parametrize("value", [BROKEN, BOTTOMLESS, b"9" * 5_000])
def test_what_no_server_reads_is_left_out_and_named(rig: Rig, record: Any, names: list[str], value: bytes) -> None:
    """In rows, samples, summary and config: the value beside it arrives, and the run is not called synced."""
    report = sent(rig, logs.row(0), record(1, {"fine": 2, "odd": value}))

    assert report.verdict is Verdict.PARTIAL
    assert sorted(report.missing) == [f"{name} {WHY}" for name in names]
    run = rig.backend.runs["odd"]
    everything = json.dumps([run.rows, run.lines, run.summary, run.variables["config"]])
    assert "fine" in everything
    assert "odd" not in everything.replace('"odd"}', "")
    assert not marker(Path(report.log)).exists()
    assert rig.only(rig.sync()).missing == report.missing


def test_a_value_of_many_levels_is_missing_where_it_is_left_out(rig: Rig) -> None:
    """A row takes it as it is; summary and config do without."""
    report = sent(rig, logs.row(0, {"odd": NESTED, "fine": 1}), logs.config_record({"deep": NESTED}))

    assert sorted(report.missing) == [f"config: deep {WHY}", f"summary: odd {WHY}"]


def test_keys_of_many_levels_are_named_too(rig: Rig) -> None:
    """They lie in the log level by level."""
    report = sent(rig, logs.row(0, {("a",) * 130: 1, ("b", "c"): 2, ("b",): 3}))

    assert report.verdict is Verdict.PARTIAL
    assert [name.split(": ")[0] for name in sorted(report.missing)] == ["rows", "summary"]


def test_what_was_said_again_is_not_missing(rig: Rig) -> None:
    """The latest config and summary count."""
    values: list[dict[str, Any]] = [{"odd": BROKEN}, {"odd": 1}]
    report = sent(rig, *(logs.config_record(each) for each in values), *(logs.summary_record(each) for each in values))

    assert (report.verdict, report.missing) == (Verdict.SYNCED, ())


def test_a_key_is_named_once_and_of_many_keys_the_first_ones(rig: Rig) -> None:
    """A log may have such a value in every row: neither the verdict nor the cursor grows with it."""
    report = sent(
        rig,
        *(logs.row(step, {"always": BROKEN, f"k{step:02d}": BROKEN}) for step in range(50)),
        *(logs.sample(step, {"always": BROKEN, f"k{step:02d}": BROKEN}) for step in range(50)),
    )

    rows = [name for name in report.missing if name.startswith("rows: ")]
    assert rows == [
        f"rows: {name} {WHY}" for name in ["always", *(f"k{n:02d}" for n in range(9)), "values of further keys"]
    ]
    samples = [name for name in report.missing if name.startswith("samples: ")]
    assert samples == [name.replace("rows", "samples") for name in rows]


def test_parts_of_a_row_name_what_they_lack(rig: Rig) -> None:
    """Each part has one, and the row is sent whole."""
    report = sent(rig, logs.row(0, {"a": BROKEN, "x": 1}), logs.row(0, {"b": BROKEN, "y": 2}), logs.row(1))

    assert [name for name in report.missing if name.startswith("rows")] == [f"rows: a {WHY}", f"rows: b {WHY}"]
    assert {key: rig.backend.runs["odd"].rows[0][key] for key in ("x", "y")} == {"x": 1, "y": 2}
