"""Logs that end, vanish, move, shrink or are replaced while they are watched."""

from __future__ import annotations

import errno
import json
import os
import subprocess
import sys
import time
from itertools import pairwise
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from runferry.logformat.heartbeat import Process, heartbeat_path, heartbeat_text
from runferry.sync import Verdict, lookout
from runferry.sync.liveness import GRACE_S
from runferry.sync.lookout import LONGEST_REST_S, SEARCH_REST, Lookout, status_of
from support import logs
from support.clock import FakeClock
from support.server import serve
from support.watchrig import Story, WatchRig

HERE = Process.current()
linux = pytest.mark.skipif(not HERE.start, reason="processes are told apart in /proc")


@pytest.fixture
def rig(tmp_path: Path) -> WatchRig:
    return WatchRig(tmp_path)


def beat(rig: WatchRig, log: Path, process: Process = HERE) -> None:
    """A heartbeat, touched now."""
    heartbeat_path(log).write_bytes(heartbeat_text(process, 0.0))
    now = rig.clock.time()
    os.utime(heartbeat_path(log), (now, now))


def replace(log: Path, data: bytes) -> None:
    """Another file in place of the log, as tools that copy do it."""
    copy = log.with_name("copy")
    copy.write_bytes(data)
    copy.rename(log)


# -- ends --------------------------------------------------------------------------------------------------------------


@linux
def test_a_killed_writer_ends_the_watch_at_once(rig: WatchRig) -> None:
    """Silent for an hour while its process is there, crashed two seconds after it is not."""
    log = rig.begin()
    beat(rig, log)
    story = Story(*[None] * 3600, lambda: beat(rig, log, HERE._replace(start="1")), longest=4_000)
    report = rig.watch(log.parent, story=story)

    assert [event.verdict for event in rig.told()] == [Verdict.LIVE, Verdict.SYNCED]
    assert "crashed" in rig.only(report).reason
    assert 3600 <= sum(story.sleeps) <= 3603
    assert b'"_step":1' in rig.backend.runs["live"].files["wandb-summary.json"]


def test_a_writer_elsewhere_ends_the_watch_after_the_grace(rig: WatchRig) -> None:
    """Its heartbeat goes on for an hour without a row, and then no more: this machine's clock counts."""
    log = rig.begin()
    elsewhere = HERE._replace(host="another-machine")
    beat(rig, log, elsewhere)
    steps = [(lambda: beat(rig, log, elsewhere)) if second % 15 == 0 else None for second in range(3600)]
    story = Story(*steps, longest=5_000)
    report = rig.watch(log.parent, story=story)

    assert "crashed" in rig.only(report).reason
    assert sum(story.sleeps) == pytest.approx(3600 - 15 + GRACE_S, abs=3)


@linux
def test_a_writer_that_dies_during_a_pass_is_seen_by_the_next(rig: WatchRig) -> None:
    """It was alive when the log was read, and gone when the pass ended: what it logged in between is sent."""
    log = rig.begin()
    beat(rig, log)

    def die(*_: Any) -> None:
        rig.backend.after = lambda *_: None
        logs.make_log(log, logs.row(2), append=True)
        beat(rig, log, HERE._replace(start="1"))

    rig.backend.after = die
    report = rig.watch(log.parent, story=Story())

    assert "crashed" in rig.only(report).reason
    assert len(rig.backend.runs["live"].rows) == 3


# -- files in each other's place -----------------------------------------------------------------------------------------


def test_copies_that_are_laid_over_each_other_are_one_log(rig: WatchRig) -> None:
    """A tool copies the growing log here again and again, each time as a new file: nothing is sent twice, or called lost."""
    log = rig.begin()

    def copy(*records: Any) -> None:
        data = log.read_bytes()
        other = log.with_name("other")
        other.write_bytes(data)
        logs.make_log(other, *records, append=True)
        other.rename(log)
        rig.settle(log, 0)

    story = Story(lambda: copy(logs.row(2)), None, lambda: copy(logs.row(3), logs.exit_record(0)))
    report = rig.watch(log.parent, story=story)

    assert [event.verdict for event in rig.told()] == [Verdict.LIVE, Verdict.SYNCED]
    assert rig.only(report).rows_sent == 4
    assert {count for (_, stream, _), count in rig.backend.written.items() if stream == "history"} == {1}


def test_a_log_that_appears_by_rename(rig: WatchRig) -> None:
    """As our writer names its log once its opening is in it."""
    log = rig.folder / "run-20260921_141300-late" / "run-late.wandb"
    unnamed = log.with_name(log.name + ".new")
    logs.make_log(unnamed, logs.run_record("late"), logs.row(0), logs.exit_record(0))
    report = rig.watch(rig.folder, idle=5, story=Story(None, None, lambda: unnamed.rename(log)))

    assert report.verdicts == {str(log): Verdict.SYNCED}


@pytest.mark.parametrize("how", ["in place", "another file"])
def test_another_log_in_its_place_is_refused(rig: WatchRig, how: str) -> None:
    """Of the same run id, but with other rows, and fewer: the server's are not overwritten, and the verdict says so."""
    log = rig.begin(rows=5)
    other = logs.make_log(rig.folder.parent / "other", logs.run_record("live", host="o"), logs.row(9))

    def swap() -> None:
        if how == "in place":
            log.write_bytes(other.read_bytes())
        else:
            replace(log, other.read_bytes())
        rig.settle(log, 0)

    report = rig.watch(log.parent, idle=200, story=Story(None, swap))

    assert rig.only(report).verdict is Verdict.FAILED
    assert "5 rows" in rig.only(report).reason
    assert len(rig.backend.runs["live"].rows) == 5
    assert not rig.backend.runs["live"].complete


def test_a_log_that_was_cut_is_told_and_goes_on_when_it_is_whole_again(rig: WatchRig) -> None:
    """Somebody copies over it: for a moment it is shorter than what was sent."""
    log = rig.begin(rows=5)
    whole = log.read_bytes()

    def cut() -> None:
        log.write_bytes(whole[:200])
        rig.settle(log, 0)

    def mend() -> None:
        log.write_bytes(whole)
        rig.grow(log, logs.row(5), logs.exit_record(0))

    report = rig.watch(log.parent, story=Story(None, cut, None, None, mend))

    assert rig.only(report).verdict is Verdict.SYNCED
    assert [row["_step"] for row in rig.backend.runs["live"].rows] == list(range(6))


def test_a_run_directory_that_is_renamed_is_gone_for_who_named_it(rig: WatchRig) -> None:
    """Nobody can tell where it went: the verdict says so, and the watch ends."""
    log = rig.begin()
    story = Story(None, lambda: log.parent.rename(rig.folder / "elsewhere"))
    report = rig.watch(log.parent, story=story)

    assert "taken away" in rig.only(report).reason
    assert len(story.sleeps) < 5


# -- the lookout alone -----------------------------------------------------------------------------------------------


def test_a_number_that_was_given_to_another_log(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A file system gives the inode of a deleted log to the next one: that is no move."""
    first, second = tmp_path / "run-a.wandb", tmp_path / "run-b.wandb"
    first.write_bytes(b"1")
    look = Lookout([tmp_path], FakeClock())

    def status(path: Path, **_: Any) -> Any:
        real = path.stat()
        return SimpleNamespace(st_dev=1, st_ino=1, st_size=real.st_size, st_mtime_ns=1, st_mtime=0.0)

    monkeypatch.setattr(lookout, "status_of", status)
    assert look.look() == []
    (log,) = look.logs.values()
    first.unlink()
    second.write_bytes(b"2")

    assert look.look() == [log]
    assert [log.path for log in look.logs.values()] == [second]


def test_a_large_tree_is_searched_rarely_and_its_live_logs_are_looked_at_always(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A search that took half a second is followed by ten seconds without one; one of a minute by a minute."""
    clock = FakeClock()
    log = tmp_path / "run-a.wandb"
    log.write_bytes(b"1")
    took = [0.5]
    searched: list[float] = []
    real = lookout.find_logs

    def find(path: Path, **_: Any) -> list[Path]:
        searched.append(clock.monotonic())
        clock.advance(took[0])
        return real(path)

    monkeypatch.setattr(lookout, "find_logs", find)
    look = Lookout([tmp_path], clock)
    for second in range(31):
        look.look()
        log.write_bytes(b"1" * (second + 2))
        clock.advance(1.0)
    assert [round(after - before) for before, after in pairwise(searched)] == [round(0.5 * (SEARCH_REST + 1))] * (
        len(searched) - 1
    )
    assert clock.monotonic() - look.grew_at < 2

    took[0] = 60.0
    clock.advance(20)
    look.look()
    count = len(searched)
    clock.advance(LONGEST_REST_S - 1)
    look.look()
    assert len(searched) == count
    clock.advance(2)
    look.look()
    assert len(searched) == count + 1


def test_a_log_that_vanished_is_searched_for_at_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Though the next search would be far away."""
    clock = FakeClock()
    log = tmp_path / "run-a.wandb"
    log.write_bytes(b"1")
    look = Lookout([tmp_path], clock)
    monkeypatch.setattr(lookout, "find_logs", lambda path, **_: (clock.advance(1), [*Path(path).glob("*.wandb")])[1])
    look.look()
    (watched,) = look.logs.values()
    log.unlink()

    assert look.look() == [watched]


@pytest.mark.parametrize("code", [errno.ESTALE, errno.EIO, errno.EACCES])
def test_a_server_that_does_not_answer_takes_nothing_away(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, code: int
) -> None:
    """Between two searches, too: nobody can tell, so nothing is told."""
    clock = FakeClock()
    (tmp_path / "run-a.wandb").write_bytes(b"1")
    look = Lookout([tmp_path], clock)
    monkeypatch.setattr(lookout, "find_logs", lambda path, **_: (clock.advance(1), [*Path(path).glob("*.wandb")])[1])
    look.look()

    def refuse(*_: Any, **__: Any) -> Any:
        raise OSError(code, os.strerror(code))

    monkeypatch.setattr(lookout, "status_of", refuse)
    assert look.look() == []
    assert len(look.logs) == 1


def test_a_fresh_look_asks_the_file_server(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """By opening the log; where that is not allowed, what is known of it has to do."""
    log = tmp_path / "run-a.wandb"
    log.write_bytes(b"123")
    opened: list[Any] = []
    real = os.open

    def watched(path: Any, *arguments: Any) -> int:
        opened.append(path)
        if len(opened) > 1:
            raise PermissionError(errno.EACCES, "no")
        return real(path, *arguments)

    monkeypatch.setattr(os, "open", watched)
    assert status_of(log, fresh=False).st_size == 3
    assert opened == []
    assert status_of(log, fresh=True).st_size == 3
    assert status_of(log, fresh=True).st_size == 3
    assert opened == [log, log]


# -- real processes ------------------------------------------------------------------------------------------------------

_TRAINING = """
import sys, time, runferry
run = runferry.init(project="p", id="k", dir=sys.argv[1], mode="offline", settings=runferry.Settings(silent=True))
for step in range(20):
    run.log({"loss": 1 / (1 + step)})
run.flush()
print(run.log_path, flush=True)
time.sleep(600)
"""


@linux
def test_a_watch_sees_a_real_writer_die(tmp_path: Path) -> None:
    """The command ends by itself within seconds of a kill -9, says crashed, and holds every row that was flushed."""
    environ = {name: text for name, text in os.environ.items() if not name.startswith(("WANDB_", "RUNFERRY_"))}
    line = [sys.executable, "-c", _TRAINING, str(tmp_path)]
    training = subprocess.Popen(line, env=environ, stdout=subprocess.PIPE, text=True)
    try:
        with serve(tmp_path / "server") as server:
            assert training.stdout is not None
            log = Path(training.stdout.readline().strip())
            line = [sys.executable, "-m", "runferry.cli", "sync", "--watch", "--json", "--base-url", server.url]
            keyed = environ | {"RUNFERRY_API_KEY": server.key, "RUNFERRY_STATE_DIR": str(tmp_path / "state")}
            watching = subprocess.Popen([*line, log.parent], env=keyed, stdout=subprocess.PIPE, text=True)
            assert watching.stdout is not None
            while json.loads(watching.stdout.readline()).get("verdict") != "live":
                pass
            training.kill()
            died = time.monotonic()
            said, _ = watching.communicate(timeout=60)
            took = time.monotonic() - died
            rows = server.history("local", "p", "k")
    finally:
        training.kill()
        training.communicate()

    done = [event for event in map(json.loads, said.splitlines()) if event["type"] == "run_done"]
    assert "crashed" in done[-1]["reason"]
    assert (watching.returncode, len(rows)) == (0, 20)
    assert took < 30  # a loaded machine; two seconds on an idle one
