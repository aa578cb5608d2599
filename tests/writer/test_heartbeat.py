"""The sign of life beside the log: made with it, touched rarely, gone with the run."""

from __future__ import annotations

import errno
import json
import os
import signal
import stat
import subprocess
import sys
from pathlib import Path

import pytest
from runferry.logformat.heartbeat import BEAT_EVERY_S, Process, heartbeat_path, read_heartbeat
from runferry.writer.heartbeat import Heartbeat
from support.clock import FakeClock
from support.faultfs import FaultFS

LOG = Path("/d/run-a.wandb")


@pytest.fixture
def rig():
    """A heartbeat, its disk and its clock."""
    fs, clock = FaultFS(), FakeClock()
    return Heartbeat(fs, clock), fs, clock


def test_it_is_there_while_the_run_is(begin):
    """From the start, naming this process; not behind the end."""
    run = begin()
    log = run.log_path
    found = read_heartbeat(log)

    assert found.process == Process.current()
    assert json.loads(heartbeat_path(log).read_bytes())["time"] == pytest.approx(found.touched, abs=5)
    run.finish()
    assert not heartbeat_path(log).exists()


def test_it_is_touched_rarely(rig):
    """However often the writer's thread comes by."""
    heartbeat, fs, clock = rig
    for _ in range(2_000):
        heartbeat.beat(LOG)
        clock.advance(0.02)

    assert fs.beats == [("put", "run-a.wandb.alive"), *[("touch", "run-a.wandb.alive")] * int(40 / BEAT_EVERY_S)]


def test_it_goes_with_the_log(rig):
    """A further segment has its own, and the one before has none: nobody writes it any more."""
    heartbeat, fs, _ = rig
    heartbeat.beat(None)
    heartbeat.beat(LOG)
    heartbeat.beat(LOG.with_name("run-b.wandb"))
    assert list(fs.signs) == [Path("/d/run-b.wandb.alive")]
    heartbeat.beat(None)
    assert not fs.signs


def test_one_that_was_removed_is_made_again(rig):
    """Somebody cleaned up."""
    heartbeat, fs, clock = rig
    heartbeat.beat(LOG)
    fs.signs.clear()
    clock.advance(BEAT_EVERY_S)
    heartbeat.beat(LOG)

    assert list(fs.signs) == [heartbeat_path(LOG)]


@pytest.mark.parametrize("code", [errno.ENOSPC, errno.EROFS, errno.EACCES, errno.ESTALE, errno.ENOENT, errno.EIO])
def test_a_disk_that_refuses_it_costs_nothing_else(rig, code):
    """No error, no warning, and no attempt at every drain."""
    heartbeat, fs, clock = rig
    fs.fail = dict.fromkeys(("put", "touch", "remove"), code)
    for _ in range(300):
        heartbeat.beat(LOG)
        clock.advance(1.0)
    heartbeat.end()

    assert len(fs.beats) <= 2 + 2 * 300 / BEAT_EVERY_S


@pytest.mark.parametrize("mask", [0o002, 0o077])
def test_it_follows_the_umask(tmp_path, mask):
    """A group that may read the log may see that it is alive."""
    script = f"import os; os.umask({mask}); import runferry; runferry.init(project='p'); os.kill(os.getpid(), 9)"
    quiet = {"RUNFERRY_SILENT": "true", "RUNFERRY_MODE": "offline", "RUNFERRY_DIR": str(tmp_path)}
    done = subprocess.run([sys.executable, "-c", script], env=os.environ | quiet, check=False, timeout=60)

    (path,) = tmp_path.glob("wandb/run-*/*.alive")
    assert done.returncode == -signal.SIGKILL
    assert stat.S_IMODE(path.stat().st_mode) == 0o666 & ~mask
    assert read_heartbeat(path.with_suffix("")).process.lives() in (False, None)


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork here")
def test_a_forked_child_leaves_it_alone(begin):
    """Whether it ends in good order or not, the parent's run goes on."""
    run = begin()
    before = heartbeat_path(run.log_path).stat()
    pid = os.fork()
    if not pid:
        try:
            run.log({"a": 1})
            run.finish()
        finally:
            os._exit(0)
    os.waitpid(pid, 0)
    after = heartbeat_path(run.log_path).stat()

    assert (after.st_ino, after.st_mtime_ns) == (before.st_ino, before.st_mtime_ns)
    assert read_heartbeat(run.log_path).process.pid == os.getpid()


def test_a_run_that_ends_by_the_end_of_its_process_leaves_none(tmp_path):
    """Nobody called finish."""
    quiet = {"RUNFERRY_SILENT": "true", "RUNFERRY_MODE": "offline", "RUNFERRY_DIR": str(tmp_path)}
    script = "import runferry; runferry.init(project='p').log({'a': 1})"
    subprocess.run([sys.executable, "-c", script], env=os.environ | quiet, check=True, timeout=60)

    assert [path.name for path in tmp_path.glob("wandb/run-*/*.alive")] == []
