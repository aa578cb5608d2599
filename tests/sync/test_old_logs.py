"""Logs that old versions of wandb wrote come over as readers read them."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
from runferry.logformat import load, messages
from runferry.sync.verdict import Verdict
from support import logs
from support.syncrig import Rig

LOGS = Path(__file__).parents[2] / "fixtures" / "logs"
VERSIONS = sorted(path.parent.name for path in LOGS.glob("*/everything.wandb"))


def there(rig: Rig) -> Any:
    """The only run that the server holds."""
    (run,) = rig.backend.runs.values()
    return run


def exact(value: object) -> str:
    """What two values must have in common to be the same, NaN among them."""
    return json.dumps(value, sort_keys=True)


@pytest.mark.parametrize("version", VERSIONS)
def test_rows_and_summary_are_those_that_readers_see(rig: Rig, version: str) -> None:
    """Of keys in one text or in levels; with summary records that change values, or replace all of them."""
    folder = rig.folder / "run-20210101_000000-old"
    folder.mkdir()
    log = folder / "run-old.wandb"
    shutil.copy(LOGS / version / "everything.wandb", log)
    rig.settle(log)
    expected = load(log)

    report = rig.only(rig.sync())

    assert report.verdict in (Verdict.SYNCED, Verdict.PARTIAL), report.reason
    run = there(rig)
    assert len(run.rows) == expected.row_count
    assert [row.get("_step") for row in run.rows] == [row.get("_step") for row in expected.rows]
    ours = {key: value for key, value in expected.summary.items() if key != "_wandb"}
    assert exact({key: run.summary[key] for key in ours}) == exact(ours)
    assert run.summary.keys() - {"_wandb"} <= ours.keys() | {"_step", "_runtime", "_timestamp"}


def test_a_summary_that_replaces_forgets_what_rows_left(rig: Rig) -> None:
    """As the Python writer of old had it: a key that is gone from its summary is gone from ours."""
    record = logs.run_record("x")
    record.run.telemetry.cli_version = "0.12.0"
    whole = messages.SummaryRecord(update=[messages.Item(key="kept", value_json="5")])
    log = logs.make_log(
        rig.folder / "run-20210101_000000-x" / "run-x.wandb",
        record,
        *(logs.row(step, {"kept": step, "gone": step}) for step in range(5)),
        messages.Record(summary=whole),
        logs.exit_record(0),
    )
    rig.settle(log)

    report = rig.only(rig.sync())

    assert report.verdict is Verdict.SYNCED, report.reason
    assert load(log).summary == {"kept": 5, "_step": 4}
    assert "gone" not in there(rig).summary
    assert there(rig).summary["kept"] == 5
