"""What a sync leaves in the folders that it reads: three files beside the log, or nothing where it may not write."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from support import logs
from support.server import serve

_AUDITED = """
import json, os, sys
from runferry.cli import main
import runferry.sync.engine, runferry.sync.transport, httpx

written = set()
PATHS = {"os.chmod": 1, "os.link": 2, "os.mkdir": 1, "os.remove": 1, "os.rename": 2, "os.rmdir": 1, "os.truncate": 1,
         "os.utime": 1, "os.symlink": 2, "os.chown": 1, "os.setxattr": 1}
WRITING = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_APPEND

def hear(event, arguments):
    if event == "open" and not isinstance(arguments[0], int) and arguments[2] & WRITING:
        written.add(os.path.abspath(os.fsdecode(arguments[0])))
    for path in arguments[: PATHS.get(event, 0)]:
        if not isinstance(path, int):
            written.add(os.path.abspath(os.fsdecode(path)))

sys.addaudithook(hear)
sys.argv = ["runferry", "sync", *sys.argv[2:]]
try:
    main()
finally:
    print(json.dumps(sorted(written)), file=open(os.environ["HEARD"], "w"))
"""


def audited(server: Any, folder: Path, *arguments: str, prefix: tuple[str, ...] = ()) -> tuple[int, set[str], str]:
    """A sync in a process of its own: its exit code, the files that it wrote, made, renamed or removed, what it said."""
    heard = folder / "heard.json"
    environ = {
        **os.environ,
        "RUNFERRY_API_KEY": server.key,
        "RUNFERRY_STATE_DIR": str(folder / "state"),
        "HEARD": str(heard),
        "PYTHONDONTWRITEBYTECODE": "1",
    }
    line = [*prefix, sys.executable, "-c", _AUDITED, "x", "--base-url", server.url, *arguments]
    done = subprocess.run(line, env=environ, capture_output=True, text=True, timeout=120, check=False)
    return done.returncode, set(json.loads(heard.read_text())) - {str(heard), os.devnull}, done.stdout + done.stderr


def run(folder: Path) -> Path:
    """A run with rows, console, files and media."""
    log = logs.simple_run(folder / "wandb", rows=20)
    files = log.parent / "files"
    (files / "media").mkdir(parents=True, exist_ok=True)
    (files / "model.bin").write_bytes(b"m" * 1000)
    (files / "media" / "a.png").write_bytes(b"p" * 100)
    exit_record = logs.exit_record()
    logs.make_log(
        log, logs.files_record("model.bin", "media/a.png"), logs.output("hello\n", 1), exit_record, append=True
    )
    return log


def test_only_three_files_beside_the_log_are_written(tmp_path: Path) -> None:
    """Under the names that they have, or had for a moment; everything else is as it was."""
    log = run(tmp_path)
    before = {path: (path.read_bytes(), path.stat().st_mtime_ns) for path in log.parent.rglob("*") if path.is_file()}
    with serve(tmp_path / "server") as server:
        code, written, said = audited(server, tmp_path, str(log.parent))

    assert code == 0, said
    side = {str(log) + suffix for suffix in (".cursor", ".lock", ".synced")}
    inside = {name for name in written if name.startswith(str(tmp_path / "wandb"))}
    assert {name for name in inside if not name.startswith(tuple(side))} == set()
    assert side <= inside
    state = str(tmp_path / "state")
    assert {name for name in written - inside if not name.startswith(state)} == set()
    after = {path: (path.read_bytes(), path.stat().st_mtime_ns) for path in before}
    assert after == before
    left = {path.name for path in log.parent.iterdir()} - {path.name for path in before} - {"files"}
    assert left == {log.name + ".cursor", log.name + ".synced"}


def _may_mount() -> bool:
    line = ["unshare", "-m", "true"]
    try:
        return subprocess.run(line, capture_output=True, timeout=10, check=False).returncode == 0
    except OSError:
        return False


def test_a_mount_that_cannot_be_written_is_synced(tmp_path: Path) -> None:
    """Cursor and lock lie in the state directory; a second sync has nothing to do."""
    if not _may_mount():
        pytest.skip("nobody may mount here")
    log = run(tmp_path)
    folder = tmp_path / "wandb"
    mount = f'mount --bind "{folder}" "{folder}" && mount -o remount,ro,bind "{folder}" && exec "$@"'
    prefix = ("unshare", "-m", "sh", "-c", mount, "sh")
    with serve(tmp_path / "server") as server:
        code, _, said = audited(server, tmp_path, str(folder), prefix=prefix)
        assert code == 0, said
        assert {path.name for path in log.parent.iterdir()} == {log.name, "files"}
        assert list((tmp_path / "state").rglob(log.name + ".cursor"))
        code, _, said = audited(server, tmp_path, str(folder), prefix=prefix)
    assert code == 0, said
    assert "0 new" in said


@pytest.mark.parametrize("mask", [0o002, 0o077])
def test_what_is_written_follows_the_umask(tmp_path: Path, mask: int) -> None:
    """A group that works on the runs together can go on with each other's syncs."""
    log = run(tmp_path)
    shell = f'umask {mask:03o}; exec "$@"'
    with serve(tmp_path / "server") as server:
        code, _, said = audited(server, tmp_path, str(log), prefix=("sh", "-c", shell, "sh"))
    assert code == 0, said
    for suffix in (".cursor", ".synced"):
        assert log.with_name(log.name + suffix).stat().st_mode & 0o777 == 0o666 & ~mask
