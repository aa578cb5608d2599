"""Whether the writer of a log without an end is still there: by its process, by its heartbeat, by the log's age."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from runferry.logformat.heartbeat import Process, heartbeat_path, heartbeat_text, read_heartbeat
from runferry.sync import Verdict
from runferry.sync.liveness import GRACE_S, Liveness
from support import logs
from support.clock import FakeClock
from support.syncrig import Rig, marker

linux = pytest.mark.skipif(not Path("/proc/self/ns/pid").exists(), reason="processes are told apart in /proc")
STALE = 600.0
HERE = Process.current()
ELSEWHERE = HERE._replace(host="another-machine")
DEAD = HERE._replace(start="1")


class Watcher:
    """A log, its heartbeat, and a clock."""

    def __init__(self, folder: Path) -> None:
        self.log = folder / "run-x.wandb"
        self.clock = FakeClock()
        self.liveness = Liveness(self.clock)

    def beat(self, process: Process, age: float = 0.0, *, text: bytes | None = None) -> None:
        """A heartbeat that was touched `age` seconds ago, by the file system's clock."""
        path = heartbeat_path(self.log)
        path.write_bytes(heartbeat_text(process, 0.0) if text is None else text)
        when = self.clock.time() - age
        os.utime(path, (when, when))

    def lives(self, log_age: float = 0.0, stale_after: float = STALE) -> bool:
        """The answer for a log that grew so long ago."""
        return self.liveness.is_alive(self.log, self.clock.time() - log_age, stale_after)


@pytest.fixture
def watcher(tmp_path: Path) -> Watcher:
    return Watcher(tmp_path)


@linux
def test_a_process_of_this_machine_decides(watcher: Watcher) -> None:
    """It is there: however old log and heartbeat are. It is gone: however young they are."""
    watcher.beat(HERE, age=1e6)
    assert watcher.lives(log_age=1e6)
    watcher.beat(DEAD)
    assert not watcher.lives()


@pytest.mark.parametrize("age", [GRACE_S - 1, GRACE_S + 1, 1 - GRACE_S, -1 - GRACE_S])
def test_elsewhere_the_heartbeats_time_decides(watcher: Watcher, age: float) -> None:
    """However old the log is. A time ahead of our clock by more than the grace is no sign of life."""
    watcher.beat(ELSEWHERE, age)
    assert watcher.lives(log_age=1e6) is (abs(age) < GRACE_S)


@pytest.mark.parametrize("age", [STALE - 1, STALE + 1, 1 - STALE, -1 - STALE])
def test_without_a_heartbeat_the_logs_time_decides(watcher: Watcher, age: float) -> None:
    """As for the logs of other writers."""
    assert watcher.lives(age) is (abs(age) < STALE)


def test_a_damaged_heartbeat_is_none(watcher: Watcher) -> None:
    """The log's time decides then."""
    watcher.beat(HERE, text=b'{"pid": "1"')
    assert watcher.lives(STALE - 1)
    assert not Liveness(watcher.clock).is_alive(watcher.log, watcher.clock.time() - STALE - 1, STALE)


def test_who_knows_better_decides(watcher: Watcher) -> None:
    """`stale_after` 0 says that the writer is gone."""
    watcher.beat(HERE)
    assert not watcher.lives(stale_after=0)


@pytest.mark.parametrize("skew", [-7200, 7200])
def test_a_change_that_was_seen_needs_no_clocks_that_agree(watcher: Watcher, skew: float) -> None:
    """The file server's clock is hours off: what counts is when we saw a touch."""
    watcher.beat(ELSEWHERE, age=skew)
    assert not watcher.lives()
    for _ in range(20):
        watcher.clock.advance(15)
        watcher.beat(ELSEWHERE, age=skew)
        assert watcher.lives()
    watcher.clock.advance(GRACE_S - 1)
    assert watcher.lives()
    watcher.clock.advance(2)
    assert not watcher.lives()


def test_a_killed_run_is_crashed_at_once(rig: Rig) -> None:
    """No waiting for the log to grow old: the process that its heartbeat names is gone. What it logged is all there."""
    script = "import os, runferry; r = runferry.init(project='p', id='k'); r.log({'a': 1}); r.flush(); os.kill(os.getpid(), 9)"
    quiet = {"RUNFERRY_SILENT": "true", "RUNFERRY_MODE": "offline", "RUNFERRY_DIR": str(rig.folder.parent)}
    done = subprocess.run([sys.executable, "-c", script], env=os.environ | quiet, check=False, timeout=60)
    assert done.returncode == -signal.SIGKILL
    (log,) = rig.folder.glob("run-*/run-k.wandb")
    rig.settle(log, 0)

    report = rig.only(rig.sync())

    assert (report.verdict, report.rows) == (Verdict.SYNCED, 1)
    assert "crashed" in report.reason
    assert not rig.backend.runs["k"].complete


@linux
def test_a_run_that_has_not_logged_for_a_week_is_live(rig: Rig) -> None:
    """It trains an epoch; the marker is not set, and the next sync sends what came, and an exit record outweighs the heartbeat."""
    log = rig.folder / "run-20260921_141300-slow" / "run-slow.wandb"
    logs.make_log(log, logs.run_record("slow"), logs.row(0))
    heartbeat_path(log).write_bytes(heartbeat_text(HERE, 0.0))
    rig.settle(log, 7 * 86400)

    assert rig.only(rig.sync()).verdict is Verdict.LIVE
    assert not marker(log).exists()
    logs.make_log(log, logs.row(1), logs.exit_record(0), append=True)
    assert rig.only(rig.sync()).verdict is Verdict.SYNCED
    assert read_heartbeat(log) is not None
    assert len(rig.backend.runs["slow"].rows) == 2
