"""Child processes with a run begun, and what their logs hold."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from runferry.logformat import RunState, read_records

PROLOGUE = """
import os, signal, sys, time
import runferry
run = runferry.init(dir=sys.argv[1], durability=sys.argv[2] if len(sys.argv) > 2 else None,
                    settings={"silent": True, "disable_stats": True, "disable_meta": True, "log_guides": False})
"""


def start(folder, code, *arguments):
    """A child that runs `code`."""
    command = [sys.executable, "-c", code, str(folder), *arguments]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def run(folder, body, *arguments):
    """(exit code, stdout, stderr, fold of the one log) of a child that runs `body` with a run begun."""
    child = start(folder, PROLOGUE + body, *arguments)
    out, err = child.communicate(timeout=60)
    return child.returncode, out, err, fold(only_log(folder))


def only_log(folder):
    (log,) = Path(folder).rglob("run-*.wandb")
    return log


def fold(log):
    return RunState().add_all(read_records(log))
