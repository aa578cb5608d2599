"""What the shell sees."""

from __future__ import annotations

import subprocess
import sys

import pytest
from support.frames import alert, log_of


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
