"""Logs whose run record is not there yet: the peer's writer writes whole blocks, so a young run's log says nothing for minutes."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from click.testing import CliRunner
from runferry.cli import group
from runferry.logformat import FILE_HEADER
from runferry.logformat.heartbeat import Process, heartbeat_path, heartbeat_text
from runferry.sync import SyncSettings, Verdict, preview
from runferry.sync.integrity import verify_log
from runferry.sync.liveness import Liveness
from runferry.sync.plan import read_head
from runferry.sync.report import NOTHING_YET
from support import logs
from support.fakebackend import URL
from support.syncrig import marker
from support.watchrig import Story, WatchRig

STALE = 600.0


def whole(folder: Path) -> bytes:
    """A log whose run record takes four blocks, with a row and an end."""
    record = logs.run_record("new", config={"text": "x" * 100_000})
    return logs.make_log(folder / "whole", record, logs.row(0), logs.exit_record(0)).read_bytes()


SIZES = {"nothing": 0, "a part of the header": 3, "the header": len(FILE_HEADER), "a block": 32768, "two blocks": 65536}


@pytest.fixture
def rig(tmp_path: Path) -> WatchRig:
    return WatchRig(tmp_path)


def begin(rig: WatchRig, data: bytes, age: float = 0.0) -> Path:
    """A log of so many bytes, written so many seconds ago."""
    log = rig.folder / "run-20260921_141300-new" / "run-new.wandb"
    log.parent.mkdir(exist_ok=True)
    log.write_bytes(data)
    rig.settle(log, age)
    return log


@pytest.mark.parametrize("size", SIZES.values(), ids=SIZES)
def test_a_young_log_without_its_run_record_is_live(rig: WatchRig, tmp_path: Path, size: int) -> None:
    """Nothing is asked of the server, nothing lies beside the log; old, it is of a run that died."""
    data = whole(tmp_path)
    log = begin(rig, data[:size])
    report = rig.sync()

    assert (rig.only(report).verdict, rig.only(report).reason, report.exit_code) == (Verdict.LIVE, NOTHING_YET, 0)
    assert not rig.only(report).ended
    assert (rig.backend.requests, [*log.parent.iterdir()]) == ([], [log])
    begin(rig, data)
    assert rig.only(rig.sync()).verdict is Verdict.SYNCED

    begin(rig, data[:size], age=STALE + 1)
    report = rig.sync()
    assert (rig.only(report).verdict, report.exit_code) == (Verdict.FAILED, 1)


@pytest.mark.parametrize("data", [b"<html>", FILE_HEADER[:4] + b"xyz", FILE_HEADER + b"x" * 40_000])
def test_what_is_no_log_does_not_become_one(rig: WatchRig, data: bytes) -> None:
    """However young it is."""
    begin(rig, data)

    assert rig.only(rig.sync()).verdict is Verdict.FAILED


def test_a_log_with_rows_and_no_run_record_is_not_waited_for(rig: WatchRig) -> None:
    """Its run record can only have been lost: it would stand before them."""
    log = begin(rig, b"")
    logs.make_log(log, logs.sample(1, {"cpu": 1.0}))
    rig.settle(log, 0)

    assert rig.only(rig.sync()).verdict is Verdict.FAILED


def test_a_writer_that_died_before_its_first_record(rig: WatchRig) -> None:
    """Its heartbeat outweighs the age of the log."""
    log = begin(rig, FILE_HEADER)
    gone = Process.current()._replace(start="1")
    if gone.lives() is None:
        pytest.skip("processes are not told apart here")
    heartbeat_path(log).write_bytes(heartbeat_text(gone, 0.0))

    assert rig.only(rig.sync()).verdict is Verdict.FAILED


@pytest.mark.parametrize("size", SIZES.values(), ids=SIZES)
def test_a_watch_waits_for_the_first_record(rig: WatchRig, tmp_path: Path, size: int) -> None:
    """However long its own time is, if `stale_after` allows it; then it is sent at the next look."""
    data = whole(tmp_path)
    log = begin(rig, data[:size])
    story = Story(*[None] * 60, lambda: begin(rig, data))
    report = rig.watch(log.parent, stale_after=STALE, story=story)

    assert [event.verdict for event in rig.told()] == [Verdict.LIVE, Verdict.SYNCED]
    assert (report.exit_code, len(story.sleeps)) == (0, 61)
    assert marker(log).exists()


def test_a_watch_ends_when_the_first_record_does_not_come(rig: WatchRig) -> None:
    """Once the log is stale it is of a run that died; not before."""
    log = begin(rig, FILE_HEADER)
    report = rig.watch(log.parent, stale_after=90, story=Story())

    assert [event.verdict for event in rig.told()] == [Verdict.LIVE, Verdict.FAILED]
    assert sum(rig.clock.sleeps) == pytest.approx(91, abs=2)
    assert report.exit_code == 1


def test_an_open_watch_waits_until_it_idles(rig: WatchRig) -> None:
    """The log is no failure then, for nobody knows yet."""
    begin(rig, FILE_HEADER)
    report = rig.watch(idle=30, story=Story())

    assert sum(rig.clock.sleeps) == pytest.approx(30, abs=1)
    assert (rig.only(report).verdict, report.exit_code) == (Verdict.LIVE, 0)


def test_everybody_says_the_same_of_it(rig: WatchRig) -> None:
    """The plan, `verify` and `ls`; young and old."""
    log = begin(rig, FILE_HEADER)
    settings = SyncSettings(base_url=URL, state_dir=rig.state)

    found = preview(rig.folder, settings, clock=rig.clock)
    assert (found.problems, found.beginning) == ({}, (str(log),))
    assert verify_log(read_head(log), Liveness(rig.clock)).is_whole

    rig.clock.advance(STALE + 1)
    found = preview(rig.folder, settings, clock=rig.clock)
    assert ([*found.problems], found.beginning) == ([str(log)], ())
    assert not verify_log(read_head(log), Liveness(rig.clock)).is_whole

    for age, code, word in ((0, 0, "running"), (86_400, 1, "unknown")):
        os.utime(log, (log.stat().st_ctime - age,) * 2)
        for command in (["ls"], ["sync", "plan"], ["verify"]):
            result = CliRunner().invoke(group, [*command, str(log)])
            assert result.exit_code == code, (command, result.output)
            assert command != ["ls"] or word in result.output
            assert ("died" in result.output) is (age > 0)
