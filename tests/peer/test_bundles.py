"""Runs of the peer in bundles: what it stages elsewhere travels, and its own sync takes what was unpacked."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys

import pytest
from runferry.bundle import pack, unpack
from support import peer
from support.server import serve, surroundings
from support.state import differences, state_of

pytestmark = [pytest.mark.peer, pytest.mark.skipif(bool(peer.missing()), reason=peer.missing())]


def held(logs, folder):
    """What a fresh server holds after `wandb sync` of logs."""
    with serve(folder / "server") as server:
        peer.sync(logs, server.url, server.key, folder)
        state = state_of(server)
        assert server.errors() == ""
    return state


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["scalars", "console", "media", "artifacts"])
def test_the_peer_syncs_what_was_unpacked(tmp_path, kind):
    """To the same state as the directory itself."""
    made = tmp_path / "made"
    made.mkdir()
    log = peer.make(kind, made).log
    pack(log, tmp_path / "b.tar.zst", follow_links=True)
    assert unpack(tmp_path / "b.tar.zst", tmp_path / "out" / "wandb").exit_code == 0
    copy = tmp_path / "out" / "wandb" / log.parent.name / log.name
    (tmp_path / "plain" / "wandb").mkdir(parents=True)
    shutil.copytree(log.parent, tmp_path / "plain" / "wandb" / log.parent.name, symlinks=True)
    plain = tmp_path / "plain" / "wandb" / log.parent.name / log.name

    unpacked, directory = held([copy], tmp_path / "out"), held([plain], tmp_path / "plain")
    found = [path for path, _, _ in differences(unpacked, directory)]
    assert [
        path for path in found if not path.endswith(" time")
    ] == []  # of a console line: when the peer's sync sent it


def test_staged_contents_travel_with_the_run(tmp_path):
    """Where the peer's home directory is not: a sync of the bundle leaves each artifact whole."""
    made = tmp_path / "made"
    made.mkdir()
    log = peer.make("artifacts", made).log
    packed = pack(log, tmp_path / "b.tar.zst", follow_links=True)
    names = [entry.name for entry in packed.manifest.files if "/artifacts/" in entry.name]
    with serve(tmp_path / "server") as server:
        environ = surroundings(server, XDG_STATE_HOME=str(tmp_path / "state"), HOME=str(tmp_path))
        shutil.rmtree(made)
        command = [sys.executable, "-m", "runferry.cli", "sync", "--json", str(tmp_path / "b.tar.zst")]
        done = subprocess.run(command, env=environ, capture_output=True, text=True, check=False)
        artifacts = server.artifacts("local", "peer", "artifacts")

    assert packed.problems == []
    assert len(names) >= 4
    assert all(len(os.path.basename(name)) == 32 for name in names)  # noqa: PTH119 - a name in a bundle
    assert '"synced"' in done.stdout, done.stdout
    assert {artifact["name"] for artifact in artifacts} >= {"net", "bypath", "byfolder", "amodel"}
