"""Artifacts of every shape, logged by the peer and by us, synced by the peer and by us: the server holds the same."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from support import peer
from support.server import serve
from support.state import state_of

pytestmark = [pytest.mark.peer, pytest.mark.skipif(bool(peer.missing()), reason=peer.missing())]

SCRIPT = Path(__file__).parent / "artifacts" / "shapes.py"


def log_of(python: Path, folder: Path, **variables: str) -> Path:
    """The log that the script leaves."""
    environ = peer.environment(folder, **peer.QUIET, **variables)
    subprocess.run([python, SCRIPT], cwd=folder, env=environ, check=True, capture_output=True, timeout=120)
    return peer.PeerRun(folder, 0, "", "").log


def sync_ours(log: Path, server, folder: Path) -> None:
    environ = peer.environment(folder, RUNFERRY_API_KEY=server.key)
    command = [sys.executable, "-m", "runferry.cli", "sync", "--json", "--base-url", server.url, log.parent]
    done = subprocess.run(command, cwd=folder, env=environ, capture_output=True, text=True, timeout=120, check=False)
    (verdict,) = [json.loads(line) for line in done.stdout.splitlines() if '"run_done"' in line]
    assert (verdict["verdict"], verdict["missing"]) == ("synced", []), done.stderr


def sync_theirs(log: Path, server, folder: Path) -> None:
    peer.sync([log], server.url, server.key, folder)


@pytest.mark.parametrize("writer", ["theirs", "ours"])
def test_both_syncs_leave_the_same_artifacts(tmp_path: Path, writer: str) -> None:
    """Contents by digest, versions, aliases, tags, metadata, description, time to live, references; inputs and outputs."""
    made = tmp_path / "made"
    made.mkdir()
    log = log_of(peer.PYTHON, made) if writer == "theirs" else log_of(Path(sys.executable), made, **peer.watched(made))
    states = []
    for sync in (sync_ours, sync_theirs):
        folder = tmp_path / sync.__name__
        target = folder / "wandb" / log.parent.name
        shutil.copytree(log.parent, target, symlinks=True)
        with serve(folder / "server") as server:
            sync(target / log.name, server, folder)
            states.append(state_of(server)["shapes"]["artifacts"])
            assert server.errors() == ""

    ours, theirs = states
    assert len(ours) == 9
    assert ours == theirs
    assert set(ours["output parts:v0"]["entries"]) == {"0.txt", "1.txt", "2.txt"}
