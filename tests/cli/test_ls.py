"""What `runferry ls` says of runs that were synced, cut short or resumed."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from runferry.cli import group
from runferry.logformat import messages
from runferry.logformat.heartbeat import Process, heartbeat_path, heartbeat_text
from runferry.logformat.runinfo import node_version
from support import logs
from support.syncrig import Rig, shut_out


@pytest.fixture
def rig(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Rig:
    rig = Rig(tmp_path)
    monkeypatch.setenv("RUNFERRY_STATE_DIR", str(rig.state))
    monkeypatch.delenv("WANDB_APP_URL", raising=False)
    return rig


def ls(rig: Rig, *arguments: str) -> list[dict[str, Any]]:
    result = CliRunner().invoke(group, ["ls", "--json", *arguments, str(rig.folder)])
    return [json.loads(line) for line in result.stdout.splitlines()]


def test_a_partial_run_is_called_so(rig: Rig) -> None:
    """Rows that were sent are not all there is to say: what was missing is counted, until the log or the verdict changes."""
    log = rig.run(rows=5)
    logs.make_log(log, logs.files_record("gone1", "gone2"), append=True)
    rig.settle(log)
    rig.sync()

    (row,) = ls(rig)
    assert (row["sync"], row["rows_sent"]) == ("partial (2 missing)", 5)
    logs.make_log(log, logs.row(5), append=True)
    assert ls(rig)[0]["sync"] == "5 rows sent"
    (log.parent / "files" / "gone1").touch()
    (log.parent / "files" / "gone2").touch()
    rig.settle(log)
    rig.sync()
    assert ls(rig)[0]["sync"] == "synced"


def test_a_folder_that_cannot_be_looked_into_is_named(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    """With exit code 1, as a log that cannot be read: `no runs found` alone would say that there are none. So it is for `show`."""
    shut = rig.run().parent
    shut_out(monkeypatch, shut)
    listed = CliRunner().invoke(group, ["ls", str(rig.folder)])
    (told,) = ls(rig)
    shown = CliRunner().invoke(group, ["show", str(shut)])

    assert listed.exit_code == shown.exit_code == 1
    assert f"{shut}: the folder cannot be read (Permission denied)" in listed.stderr
    assert (told["type"], told["path"]) == ("problem", str(shut))
    assert f"{shut}: the folder cannot be read (Permission denied)" in shown.stderr


def test_patterns_are_taken_as_by_a_sync(rig: Rig) -> None:
    """One in quotes, which no shell has expanded; one that nothing matches is a mistake."""
    rig.run()
    result = CliRunner().invoke(group, ["ls", f"{rig.folder}/run-*"])
    nothing = CliRunner().invoke(group, ["ls", f"{rig.folder}/nope-*"])

    assert (result.exit_code, nothing.exit_code) == (0, 2)
    assert "a1b2c3d4" in result.stdout


def test_show_judges_a_run_as_ls_does(rig: Rig) -> None:
    """By its heartbeat: a process of this machine that is gone leaves a crashed run at once, one that is there a running one."""
    log = logs.simple_run(rig.folder, exit_code=None)

    def status(process: Process) -> tuple[str, str]:
        heartbeat_path(log).write_bytes(heartbeat_text(process, 0.0))
        shown = CliRunner().invoke(group, ["show", "--summary", "--json", str(log)])
        return json.loads(shown.stdout)["status"], ls(rig)[0]["status"]

    assert status(Process.current()._replace(start="1")) == ("crashed", "crashed")
    os.utime(log, (0, 0))
    assert status(Process.current()) == ("running", "running")


def test_a_run_that_was_sent_has_a_page(rig: Rig) -> None:
    """Its address, once the server has said where it is."""
    rig.run()
    assert (ls(rig)[0]["url"], ls(rig)[0]["sync"]) == (None, "no")
    rig.sync()

    assert ls(rig)[0]["url"] == "http://backend.test/me/proj/runs/a1b2c3d4"


def test_a_log_whose_run_was_resumed_is_not_running(rig: Rig) -> None:
    """Killed and resumed: the first log is continued, whatever its age, and only the last one may run."""
    logs.simple_run(rig.folder, exit_code=None)
    logs.simple_run(rig.folder, exit_code=None, start=logs.START_S + 100, prefix="run-20260921_150000")

    assert [row["status"] for row in ls(rig)] == ["continued", "running"]
    assert [row["status"] for row in ls(rig, "--stale-after", "0")] == ["continued", "crashed"]


def test_other_runs_of_the_same_age_are_running(rig: Rig) -> None:
    """A run of another id or project continues nothing."""
    logs.simple_run(rig.folder, run_id="one", exit_code=None)
    logs.simple_run(rig.folder, run_id="two", exit_code=None, start=logs.START_S + 100)
    logs.simple_run(
        rig.folder, run_id="two", exit_code=None, start=logs.START_S + 200, project="q", prefix="run-20260921_150000"
    )

    assert [row["status"] for row in ls(rig)] == ["running"] * 3


def test_the_log_of_a_further_node_is_no_crash(tmp_path: Path) -> None:
    """It has no end of its own, and says nothing of the first node's: a run that was cut off stays so, whichever began later."""
    version = messages.VersionInfo(producer=f"0.31.0+runferry.{node_version('1.0')}")
    node = [
        messages.Record(header=messages.HeaderRecord(version_info=version)),
        logs.run_record("n", start=logs.START_S + 5),
    ]
    logs.set_age(logs.make_log(tmp_path / "b" / "run-n.wandb", *node, logs.sample(1)), 7200)
    first = [logs.header_record(), logs.run_record("n", start=logs.START_S), logs.sample(1)]
    logs.set_age(logs.make_log(tmp_path / "a" / "run-n.wandb", *first), 7200)
    result = CliRunner().invoke(group, ["ls", "--json", str(tmp_path)])
    found = {Path(row["log"]).parent.name: row["status"] for row in map(json.loads, result.output.splitlines())}

    assert found == {"a": "crashed", "b": "ended"}


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="named pipes")
def test_pipes_among_logs_are_not_waited_for(here):
    """They are told as what cannot be read."""
    logs.simple_run(here / "wandb")
    os.mkfifo(here / "wandb" / "pipe.wandb")
    done = CliRunner().invoke(group, ["ls"])
    assert ("not a file" in done.output, "a1b2c3d4" in done.output) == (True, True)
