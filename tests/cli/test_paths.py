"""Paths on the command line, for every command that takes some."""

from __future__ import annotations

import pytest
from click.testing import CliRunner
from runferry.cli import group


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
