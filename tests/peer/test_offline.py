"""Offline means offline: what our side of each script of the table touched outside its run's directory."""

from __future__ import annotations

import pytest
from support import audit, peer

pytestmark = pytest.mark.peer

OWN = {
    "artifacts": {"weights.bin", "folder"},
    "images": {"own.png", "own.jpg"},
    "media": {"saved.txt"},
    "pages": {"page.html"},
    "recordings": {"beep.wav", "clip.mp4", "anim.gif", "model.obj", "cell.pdb"},
    "references": {"here.txt"},
    "saves": {"one.txt", "out", "data", "\u00fcml\u00e4ut.txt"},
    "source_code": {"src"},
}
"""What a script writes itself into its working directory."""
STARTED = {"forks": {"os.fork"}, "inherited": {"os.fork"}, "spawned": {"os.fork", "os.exec", "os.posix_spawn"}}
"""The processes that a script starts itself."""
HELPED = {"edits"}
"""Scripts with samples: where there is a GPU, a helper process asks its driver."""


@pytest.mark.parametrize("kind", [kind for kind in peer.KINDS if kind not in {"forked", "killed", "typed"}])
def test_nothing_leaves_the_run_directory(ours, kind):
    """No socket, no file and no process but what the script itself asked for; HOME and TMPDIR stay empty."""
    run = ours(kind)
    heard = audit.read(run.folder)

    assert heard.network == []
    assert audit.outside(heard.written, run.folder, OWN.get(kind, set())) == []
    assert heard.started - STARTED.get(kind, set()) <= ({"subprocess.Popen"} if kind in HELPED else set())
    assert [list((run.folder / name).iterdir()) for name in ("home", "tmp")] == [[], []]


def test_the_hook_hears_what_it_must(tmp_path):
    """Writes, links, removals, processes and sockets, by whatever call; each network call is refused."""
    assert audit.heard_of(tmp_path) == audit.ALL
