"""`runferry clean` as a user or a cron job types it."""

from __future__ import annotations

import json
import re
import time
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from runferry.cli import group
from runferry.logformat.rundir import TRASH
from support import logs
from support.fakebackend import URL
from support.syncrig import Rig, shut_out


def clean(rig: Rig, *arguments: Any, **options: Any) -> Any:
    environment = {"RUNFERRY_STATE_DIR": str(rig.state)}
    return CliRunner().invoke(group, ["clean", *map(str, arguments), str(rig.folder)], env=environment, **options)


@pytest.fixture
def rig(tmp_path: Path) -> Rig:
    """One run that may go, and one that goes on."""
    rig = Rig(tmp_path)
    rig.run(run_id="done")
    rig.run(run_id="alive", exit_code=None, prefix="run-20260922_000000")
    rig.sync()
    return rig


def test_without_a_terminal_nothing_is_deleted(rig: Rig) -> None:
    """What would be deleted is told with its size, what is kept with the reason, and how to do it."""
    result = clean(rig, input="y\n")

    assert result.exit_code == 0
    lines = result.stdout.splitlines()
    assert [line.split()[0] for line in lines] == ["deletable", "kept"]
    assert "no exit record" in lines[1]
    assert "1 deletable, 1 kept; --yes deletes" in result.stderr
    assert len(list(rig.folder.iterdir())) == 2


def test_yes_deletes(rig: Rig) -> None:
    """Without a question; the other run stays."""
    result = clean(rig, "--yes")

    assert result.exit_code == 0
    assert result.stdout.splitlines()[0].startswith("deleted")
    assert [folder.name for folder in rig.folder.iterdir()] == ["run-20260922_000000-alive"]
    assert clean(rig, "--yes", "--dry-run").exit_code == 0


def test_a_dry_run_deletes_nothing_whatever_else_is_said(rig: Rig) -> None:
    """`--dry-run --yes` is a dry run."""
    clean(rig, "--yes", "--dry-run")

    assert len(list(rig.folder.iterdir())) == 2


def test_what_a_stopped_clean_left_is_told_and_only_touched_when_asked(rig: Rig) -> None:
    """Neither a look nor a dry run sweeps the trash, also not with --yes."""
    (rig.folder / TRASH / "run-20260101_000000-gone.0011aabb").mkdir(parents=True)
    assert "1 directory in .runferry-trash" in clean(rig).stderr
    clean(rig, "--yes", "--dry-run")
    assert (rig.folder / TRASH).exists()
    clean(rig, "--yes")

    assert not (rig.folder / TRASH).exists()


def test_json(rig: Rig) -> None:
    """One object per run, and one with the counts at the end."""
    result = clean(rig, "--json", "--yes")
    done, kept, end = map(json.loads, result.stdout.splitlines())

    assert (done["type"], done["run"], done["fate"], done["reason"]) == ("clean", "done", "deleted", "")
    assert kept["fate"] == "kept"
    assert end == {"type": "done", "counts": {"deleted": 1, "kept": 1}, "bytes": done["bytes"], "leftovers": 0}


@pytest.mark.parametrize(("answer", "left"), [("y\n", 1), ("n\n", 2), ("", 2)])
def test_a_terminal_is_asked_once(rig: Rig, monkeypatch: pytest.MonkeyPatch, answer: str, left: int) -> None:
    """With the directories, their number and size, and the server that has them; whoever says nothing has not said yes."""
    monkeypatch.setattr("runferry.cli.clean._is_terminal", lambda: True)
    result = clean(rig, input=answer)

    assert re.search(rf"Delete 1 run \(.*B\), sent to {URL}\?", result.stdout)
    assert len(list(rig.folder.iterdir())) == left
    assert result.exit_code == (0 if answer else 1)


@pytest.mark.parametrize(("span", "fate"), [("3650000d", "kept"), ("0", "deletable"), ("1s", "deletable")])
def test_older_than(rig: Rig, span: str, fate: str) -> None:
    """A span of time with a unit; days without one."""
    for log in rig.folder.glob("*/*.wandb"):
        logs.set_age(log, 1000, now=time.time())
    result = clean(rig, "--json", "--older-than", span)

    assert json.loads(result.stdout.splitlines()[0])["fate"] == fate


@pytest.mark.parametrize("named", ["run-20260921_141320-done", "run-*-done/*.wandb"])
def test_what_is_named_may_be_gone_afterwards(rig: Rig, named: str) -> None:
    """A run, or a log by a pattern, of which nothing is left: the end is told all the same, and what a killed one left goes."""
    left = rig.folder / TRASH / "run-20260101_000000-gone.0011aabb"
    left.mkdir(parents=True)
    environment = {"RUNFERRY_STATE_DIR": str(rig.state)}
    result = CliRunner().invoke(group, ["clean", "--json", "--yes", f"{rig.folder}/{named}"], env=environment)

    assert result.exit_code == 0
    done, end = map(json.loads, result.stdout.splitlines())
    assert (done["fate"], end["type"], end["counts"], end["leftovers"]) == ("deleted", "done", {"deleted": 1}, 1)
    assert not left.parent.exists()


def test_the_folder_that_one_is_in_may_go(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing asks where that is once it is gone."""
    monkeypatch.chdir(rig.folder / "run-20260921_141320-done")
    environment = {"RUNFERRY_STATE_DIR": str(rig.state)}
    result = CliRunner().invoke(group, ["clean", "--yes", "."], env=environment)

    assert (result.exit_code, result.stdout.split()[0]) == (0, "deleted")
    assert [folder.name for folder in rig.folder.iterdir()] == ["run-20260922_000000-alive"]


def test_a_folder_that_cannot_be_looked_into_is_1(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is named, and the runs that can be seen are told as ever."""
    shut_out(monkeypatch, rig.folder / "run-20260922_000000-alive")
    result = clean(rig)

    assert result.exit_code == 1
    assert [line.split()[0] for line in result.stdout.splitlines()] == ["deletable", "failed"]
    assert "run-20260922_000000-alive  the folder cannot be read (Permission denied)" in result.stdout


def test_wrong_usage_is_2(rig: Rig) -> None:
    """No such path, and a span that is none."""
    assert clean(rig, "--older-than", "soon").exit_code == 2
    assert CliRunner().invoke(group, ["clean", "/nowhere"], standalone_mode=False).exception is not None
