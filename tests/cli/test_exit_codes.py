"""What the shell sees."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest
from support.frames import alert, log_of
from support.logs import simple_run


def run(*arguments):
    command = [sys.executable, "-m", "runferry.cli", *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)


@pytest.mark.parametrize(
    ("arguments", "code"),
    [(["--help"], 0), (["--version"], 0), (["sync", "--help"], 0), (["nothing"], 2), (["ls", "-x"], 2)],
)
def test_help_is_success_and_wrong_usage_is_2(arguments, code):
    """Scripts tell a typing error from a failed sync."""
    assert run(*arguments).returncode == code


def test_a_sync_that_failed_is_1(tmp_path):
    """The exit code of a command is the process's."""
    log = tmp_path / "run-x.wandb"
    log.write_bytes(log_of(alert(1)))

    done = run("sync", "--dry-run", log, "--base-url", "http://127.0.0.1:9")
    assert (done.returncode, "failed" in done.stdout) == (1, True), done.stdout + done.stderr


@pytest.mark.parametrize(
    "arguments",
    [["sync", "nope"], ["sync", "--interval", "1"], ["verify", "nope"], ["verify", "--remote", "nope"]],
)
def test_json_ends_with_done_also_where_nothing_can_be_done(arguments, tmp_path, monkeypatch):
    """Whoever reads events learns the exit code from the last one, and what was wrong from standard error."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("WANDB_API_KEY", "k" * 40)
    done = run(*arguments, "--json")

    assert done.returncode == 2
    assert done.stderr
    end = json.loads(done.stdout)
    assert (end["type"], end["exit_code"], end["counts"]) == ("done", 2, {})


def test_a_sync_without_a_key_ends_with_done(tmp_path, monkeypatch):
    """As any other that cannot begin."""
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.delenv("WANDB_API_KEY", raising=False)
    log = simple_run(tmp_path)
    done = run("sync", log, "--json", "--base-url", "http://127.0.0.1:9")

    assert (done.returncode, "key" in done.stderr) == (2, True)
    assert json.loads(done.stdout.splitlines()[-1]) == {"type": "done", "exit_code": 2, "counts": {}, "left_out": {}}
