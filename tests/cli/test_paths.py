"""Paths on the command line, for every command that takes some."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from click.testing import CliRunner
from runferry.cli import group
from support.logs import simple_run
from support.syncrig import shut_out


@pytest.mark.parametrize(
    "command",
    [["sync"], ["sync", "--dry-run"], ["ls"], ["show"], ["verify"], ["clean"], ["clean", "--yes"]],
    ids=" ".join,
)
def test_an_empty_path_is_no_wish_for_the_folder_that_one_is_in(tmp_path, monkeypatch, command):
    """A variable of a script that is not set must not make a command take whatever lies here."""
    (tmp_path / "wandb").mkdir()
    monkeypatch.chdir(tmp_path)

    done = CliRunner().invoke(group, [*command, ""])

    assert done.exit_code != 0
    assert "a path is empty" in done.output


@pytest.mark.parametrize("command", [["ls"], ["show"], ["clean"], ["sync", "plan"], ["verify"]])
def test_a_path_that_cannot_be_read_is_no_wrong_usage(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, command: list[str]
) -> None:
    """Each command names it, and ends with 1, as for what lies below a path."""
    folder = simple_run(tmp_path).parent
    shut_out(monkeypatch, folder)
    monkeypatch.setattr(os, "access", lambda *_: False)
    monkeypatch.setenv("RUNFERRY_STATE_DIR", str(tmp_path / "state"))
    result = CliRunner().invoke(group, [*command, str(folder)])

    assert result.exit_code == 1
    assert f"{folder}" in result.output
    assert "Permission denied" in result.output
