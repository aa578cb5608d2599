"""A disk that does not answer: a run begins, logs and ends all the same, within bounds."""

from __future__ import annotations

import io
import os
import threading
import time

import pytest
from runferry.logformat import read_records
from runferry.writer import pump
from support.children import PROLOGUE, start
from support.faultfs import FaultFS


class Hanging(FaultFS):
    """Answers until `operation` comes, and then not until `release` is set."""

    def __init__(self, operation=None):
        super().__init__()
        self.hanging, self.release = operation, threading.Event()
        self.before = lambda operation: self.release.wait(30) if operation == self.hanging else None


@pytest.fixture
def hurry(monkeypatch):
    """Every bound is a fraction of a second."""
    for name in ("OPEN_WAIT_S", "WAIT_S"):
        monkeypatch.setattr(pump, name, 0.2)


OPENING = ["make_directories", "make_directory", "create", "write", "name", "replace_link"]


@pytest.mark.parametrize("operation", OPENING)
def test_a_run_begins_without_its_log(begin, hurry, operation):
    """The disk hangs while the log is made: `init` says so and returns, rows wait, and are there when it answers."""
    fs, warnings = Hanging(operation), []
    started = time.monotonic()
    run = begin(fs=fs, warn=warnings.append)
    for number in range(50):
        run.log({"n": number})
    assert run.log_path is None
    assert not run.flush(timeout_s=0.1)
    assert time.monotonic() - started < 2
    fs.release.set()
    report = run.finish()

    assert (report.rows_written, report.complete) == (50, True)
    assert len(warnings) == 1
    assert "does not answer" in warnings[0]


@pytest.mark.parametrize("level", ["normal", "record", "disk"])
@pytest.mark.parametrize("operation", ["write", "sync_data", "sync_file", "sync_directory"])
def test_a_run_goes_on_and_ends(begin, hurry, operation, level):
    """Training waits once at most, `finish` ends in its bound, and written, dropped and waiting rows are all counted."""
    first = operation in {"sync_file", "sync_directory"}  # a new log's first sync is the one that calls them
    fs, warnings = Hanging(operation if first else None), []
    run = begin(fs=fs, warn=warnings.append, durability=level)
    assert first or run.flush()
    fs.hanging = operation
    started = time.monotonic()
    for number in range(300):
        run.log({"n": number})
    if operation == "sync_data" and level == "normal":
        run.flush(timeout_s=0.1)
    assert time.monotonic() - started < 1.5
    report = run._end(0, timeout_s=0.3)
    assert time.monotonic() - started < 3

    assert report.rows_written + report.rows_dropped == 300
    assert not report.synced
    assert sum("30" not in warning and "did not answer" in warning for warning in warnings) <= 1
    fs.release.set()
    assert run._pump.join(5)


def test_log_waits_again_as_soon_as_the_disk_answers(begin, hurry):
    """At `record` one call waits in vain and the next ones do not; when the disk is back, rows are in the file again."""
    fs = Hanging()
    run = begin(fs=fs, warn=lambda _: None, durability="record")
    run.log({"n": 0})
    fs.hanging = "write"
    for number in range(1, 50):
        run.log({"n": number})
    fs.hanging = None
    fs.release.set()
    assert run.flush(timeout_s=10)
    for number in range(50, 60):
        run.log({"n": number})
        (log,) = fs.logs()
        assert sum(record.kind == "history" for record in read_records(io.BytesIO(log))) == number + 1


def test_large_rows_fill_no_memory_while_the_disk_hangs(begin, monkeypatch):
    """The bound is in bytes too: what is beyond it is dropped and counted."""
    monkeypatch.setattr(pump, "FULL_WAIT_S", 0.01)
    monkeypatch.setattr(pump, "MAX_HANDED_OFF_BYTES", 10_000_000)
    fs, warnings = Hanging(), []
    run = begin(fs=fs, warn=warnings.append)
    run.log({"text": "x" * 1_000_000})
    assert run.flush()
    fs.hanging = "write"
    for number in range(200):
        run.log({"n": number, "text": "x" * 1_000_000})
    held = sum(len(item[3]["text"]) for item in list(run._queue) if type(item) is tuple)

    assert held <= 15_000_000
    fs.release.set()
    report = run.finish()
    assert report.rows_written + report.rows_dropped == 201
    assert report.rows_dropped > 150
    assert any("holds up" in warning for warning in warnings)


@pytest.mark.parametrize("ending", ["exit", "flush"])
def test_the_end_of_many_runs_is_bounded_together(begin, monkeypatch, ending):
    """Runs on hanging disks end with the process in the bound for one; the last, whose disk answers, loses nothing."""
    from runferry.writer import lifecycle

    monkeypatch.setattr(lifecycle, "EXIT_S", 0.6)
    monkeypatch.setattr(lifecycle, "FLUSH_S", 0.6)
    disks = [Hanging() for _ in range(40)]
    runs = [begin(fs=fs, run_id=str(number), warn=lambda _: None) for number, fs in enumerate(disks)]
    for run, fs in zip(runs, disks, strict=True):
        run.flush()
        fs.hanging = "write" if fs is not disks[-1] else None
        run.log({"a": 1}, step=9)
    started = time.monotonic()
    lifecycle._at_exit() if ending == "exit" else lifecycle._flush_all()

    assert time.monotonic() - started < 2.5
    (log,) = disks[-1].files.values()
    assert sum(record.kind == "history" for record in read_records(io.BytesIO(log.durable))) == 1
    for fs in disks:
        fs.release.set()
    for run in runs:
        assert run.finish() if ending == "flush" else run.finished
        assert run._pump.join(5)


def test_the_end_of_a_run_is_bounded_whatever_hangs(begin):
    """Sampler, saved files, disk and the files on it share the time that the end has."""

    class Slow:
        def stop(self, timeout_s):
            time.sleep(min(timeout_s, 0.4))

        def settle(self, timeout_s):
            time.sleep(timeout_s)

        @property
        def device(self):
            return self

    fs = Hanging()
    run = begin(fs=fs, warn=lambda _: None)
    run.flush()
    fs.hanging = "write"
    run.log({"a": 1})
    run._attendant = run._saved = run._made_files = Slow()
    started = time.monotonic()
    run._end(0, timeout_s=0.8)

    assert time.monotonic() - started < 1.1
    run._made_files = None
    fs.release.set()
    assert run._pump.join(5)


@pytest.mark.parametrize("hangs", [False, True])
def test_the_end_begins_no_sync_on_a_disk_that_does_not_answer(begin, hangs):
    """Starting one writes beside the log, and would wait for that disk without a bound."""

    class Syncs:
        told = 0

        def accompany(self, _logs):
            self.told += 1
            return []

    fs = Hanging()
    run = begin(fs=fs, warn=lambda _: None)
    run.flush()
    run._syncs = syncs = Syncs()
    fs.hanging = "write" if hangs else None
    run.log({"a": 1})
    run._end(0, timeout_s=0.2 if hangs else 20)

    assert syncs.told == (not hangs)
    fs.release.set()
    assert run._pump.join(5)


@pytest.mark.skipif(os.name != "posix", reason="signals as POSIX has them")
@pytest.mark.parametrize("ending", ["", "run.finish()", "sys.exit(3)", "os.kill(os.getpid(), signal.SIGTERM)"])
def test_a_process_ends_though_its_disk_does_not_answer(tmp_path, ending):
    """A real process, whose writes never return: it ends within its bound, and says that rows are missing."""
    body = f"""
from runferry.writer import lifecycle, run as run_module
from runferry.writer.filesystem import RealFileSystem
lifecycle.EXIT_S = lifecycle.FLUSH_S = 0.5
type(run)._end.__defaults__ = (0.5,)
run.flush()
RealFileSystem.write = lambda *_: time.sleep(3600)
run.log({{"a": 1}})
{ending}
"""
    started = time.monotonic()
    child = start(tmp_path, PROLOGUE + body)
    _, err = child.communicate(timeout=30)

    assert child.returncode == {"": 0, "run.finish()": 0, "sys.exit(3)": 3}.get(ending, -15)
    assert time.monotonic() - started < 8
    assert "1 row did not make it" in err
