"""Filters: which runs are asked for, what is looked at to know, and that others are counted and not touched."""

from __future__ import annotations

from datetime import datetime, timezone
from pathlib import Path
from typing import Any

import pytest
from runferry.sync import SyncSettings, UsageError, Verdict
from runferry.sync.choice import exit_code_of, parse_since
from support import logs
from support.syncrig import Rig, cursor, marker

NOW = 1_800_000_000.0


@pytest.fixture
def fleet(rig: Rig) -> Rig:
    """Five runs: finished, failed, gone, going on, and one of two logs."""
    rig.run(run_id="done", rows=5, tags=["best", "v2"])
    rig.run(run_id="bad", rows=3, exit_code=1, tags=["v2"])
    rig.settle(rig.run(run_id="gone", rows=10, exit_code=None), age=5000)
    rig.run(run_id="on", rows=1, exit_code=None)
    rig.settle(rig.run(run_id="two", rows=2, exit_code=None), age=90_000)
    rig.run(run_id="two", rows=2, prefix="run-20260921_150000", start=logs.START_S + 100, resume=True)
    return rig


@pytest.mark.parametrize(
    ("options", "chosen", "left_out"),
    [
        ({}, "done bad gone on two", {}),
        ({"states": ["finished"]}, "done two", {"state": 3}),
        ({"states": ["failed", "crashed"]}, "bad gone", {"state": 3}),
        ({"states": "running"}, "on", {"state": 4}),
        ({"stale_after": 10, "states": ["crashed"]}, "gone on", {"state": 3}),
        ({"newer_than": -3600}, "done bad on two", {"newer": 1}),
        ({"tags": ["best", "no such"]}, "done", {"tag": 4}),
        ({"tags": ["v2"], "states": ["finished"]}, "done", {"state": 3, "tag": 1}),
        ({"min_rows": 4}, "done gone two", {"min_rows": 2}),
        ({"min_rows": 11}, "", {"min_rows": 5}),
        ({"newer_than": -3600, "states": ["finished"], "min_rows": 5}, "done", {"newer": 1, "state": 2, "min_rows": 1}),
    ],
)
def test_runs_that_are_not_asked_for_are_counted(
    fleet: Rig, options: dict[str, Any], chosen: str, left_out: dict[str, int]
) -> None:
    """A run is taken with all its logs or not at all; no request, lock, cursor or verdict for those left out."""
    if "newer_than" in options:
        options["newer_than"] += fleet.clock.time()
    report = fleet.sync(**options)

    assert {run.run for run in report.runs} == set(fleet.backend.runs) == set(chosen.split())
    assert report.left_out == left_out == fleet.events[-1].left_out
    assert report.exit_code == 0
    for log in fleet.folder.rglob("*.wandb"):
        run_id = log.stem.removeprefix("run-")
        assert cursor(log).exists() == (run_id in chosen.split())
        assert run_id in chosen.split() or not marker(log).exists()


def test_parts_of_a_row_are_one_row(rig: Rig) -> None:
    """Rows are counted as the server counts them."""
    rig.run(rows=4, parts=3)

    assert rig.sync(min_rows=5).left_out == {"min_rows": 1}
    assert rig.only(rig.sync(min_rows=4)).verdict is Verdict.SYNCED


def test_the_last_word_on_tags_counts(rig: Rig) -> None:
    """A tag that was added while the run went on is one of its tags."""
    log = rig.run(tags=["first"])
    logs.make_log(log, logs.run_record("a1b2c3d4", tags=["later"]), append=True)
    rig.settle(log)

    assert rig.sync(tags=["first"]).left_out == {"tag": 1}
    assert rig.sync(tags=["later"]).left_out == {}


def test_a_log_that_cannot_be_judged_is_not_left_out(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    """What is wrong with it is told by its verdict, not hidden in a count."""
    rig.run()
    real = Path.open

    def refuse(path: Path, *arguments: Any, **options: Any) -> Any:
        if path.suffix == ".wandb":
            raise PermissionError(13, "Permission denied", str(path))
        return real(path, *arguments, **options)

    monkeypatch.setattr(Path, "open", refuse)
    report = rig.only(rig.sync(states=["finished"]))

    assert report.verdict is Verdict.FAILED
    assert "Permission denied" in report.reason


def test_an_exit_record_is_found_at_the_end(tmp_path: Path) -> None:
    """Of a long log only the last blocks are read; one that goes on behind its exit record is read whole."""
    padding = [logs.row(step, {"text": "x" * 1000}) for step in range(300)]
    long = logs.make_log(tmp_path / "run-long.wandb", logs.run_record("long"), *padding, logs.exit_record(3))
    early = logs.make_log(tmp_path / "run-early.wandb", logs.run_record("early"), logs.exit_record(4), *padding)
    with long.open("r+b") as file:  # damage that nobody needs to see
        file.seek(40_000)
        file.write(b"\xff" * 100)

    assert exit_code_of(long) == 3
    assert exit_code_of(early) == 4
    assert exit_code_of(logs.make_log(tmp_path / "run-none.wandb", logs.run_record("none"), *padding)) is None


@pytest.mark.parametrize(
    ("text", "ago"), [("90s", 90), ("30m", 1800), ("1.5h", 5400), ("2d", 172_800), ("1w", 604_800), ("0d", 0)]
)
def test_a_span_counts_back_from_now(text: str, ago: float) -> None:
    """Seconds, minutes, hours, days, weeks."""
    assert parse_since(text, NOW) == NOW - ago


@pytest.mark.parametrize("text", ["2026-11-30T14:00:00Z", "2026-11-30T14:00:00+00:00", "2026-11-30 15:00+01:00"])
def test_a_time_is_iso(text: str) -> None:
    """With an offset it is that moment."""
    assert parse_since(text, NOW) == datetime(2026, 11, 30, 14, tzinfo=timezone.utc).timestamp()


def test_a_time_without_an_offset_is_local() -> None:
    """A day alone begins at its midnight."""
    assert parse_since("2026-11-30", NOW) == datetime(2026, 11, 30).timestamp()  # noqa: DTZ001 - local on purpose


@pytest.mark.parametrize("text", ["", "d", "2", "2y", "-2d", "1.2.3d", "yesterday", "2026-13-01", "nan", "²d"])
def test_what_is_no_time_is_a_usage_error(text: str) -> None:
    """It is named, with what would do."""
    with pytest.raises(UsageError, match="2d"):
        parse_since(text, NOW)


def test_a_state_that_does_not_exist_is_a_usage_error() -> None:
    """A typing error must not leave all runs out."""
    with pytest.raises(UsageError, match="finished, failed, crashed, running"):
        SyncSettings(states=["done"])
