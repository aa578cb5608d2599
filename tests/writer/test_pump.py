"""When the thread writes and syncs, driven drain by drain on a clock of our own."""

from __future__ import annotations

import errno
import io
import threading
import time
from collections import deque
from itertools import pairwise
from pathlib import Path

import pytest
from runferry.logformat import read_records
from runferry.logformat.heartbeat import BEAT_EVERY_S
from runferry.writer import journal as journal_module
from runferry.writer import pump as pump_module
from runferry.writer import records
from runferry.writer.heartbeat import Heartbeat
from runferry.writer.journal import Journal
from runferry.writer.pump import DRAIN_S, FULL_WAIT_S, MAX_HANDED_OFF_BYTES, STALL_S, Pump, _Barrier
from runferry.writer.recorder import Recorder
from runferry.writer.segment import Place
from support.clock import FakeClock
from support.faultfs import FaultFS


class Rig:
    """A pump whose thread is the test."""

    def __init__(self, level="normal"):
        self.clock, self.fs, self.warnings = FakeClock(), FaultFS(), []
        opening = [records.header("1"), records.run(records.RunInfo("abc", "p", start_ns=1), ())]
        place = Place(Path("/d"), "abc")
        self.journal = Journal(self.fs, place, self.clock, lambda _: opening, self.warnings.append)
        self.journal.open()
        start = self.clock.monotonic()
        self.pump = Pump(
            lambda: Recorder(self.journal, self.clock, self.warnings.append, start_s=start),
            self.journal,
            self.clock,
            level,
            self.warnings.append,
            heartbeat=Heartbeat(self.fs, self.clock),
        )

    def log(self, **row):
        self.pump.queue.append((self.clock.monotonic(), None, None, row))

    def drain(self, seconds=DRAIN_S):
        self.clock.advance(seconds)
        self.pump._drain()

    def syncs(self):
        return sum(call in {"sync_data", "sync_file"} for call in self.fs.calls)

    def rows(self):
        return sum(record.kind == "history" for record in read_records(io.BytesIO(self.fs.logs()[0])))


@pytest.mark.parametrize("level", ["relaxed", "normal", "record", "disk"])
def test_each_drain_writes_what_came(level):
    """Whatever the level, what was handed off is in the file after the drain."""
    rig = Rig(level)
    for count in range(5):
        rig.log(a=count)
        rig.drain()

        assert rig.rows() == count + 1


def test_the_lock_is_offered_while_there_is_little_to_do(monkeypatch):
    """A few rows never hold up `log`; a backlog, and the end of a run, are not left to the pace of busy threads."""
    offers = []
    monkeypatch.setattr("runferry.writer.pump.time.sleep", offers.append)

    def offered(rows):
        offers.clear()
        rig = Rig()
        for _ in range(rows):
            rig.log(a=1)
        rig.drain()
        assert rig.rows() == rows
        return len(offers)

    assert offered(96) == 6
    assert offered(2000) == 16


def test_a_new_log_is_synced_by_the_first_drain():
    """The names of a new log are on the device at once, not after five seconds."""
    rig = Rig("relaxed")
    rig.drain()

    assert rig.fs.synced_directories


@pytest.mark.parametrize("level", ["normal", "record"])
def test_dirty_data_is_synced_within_five_seconds(level):
    """One sync per five seconds while rows come, none while nothing comes."""
    rig = Rig(level)
    rig.drain()
    rig.fs.calls.clear()
    oldest_unsynced = None
    for _ in range(3000):  # a minute
        rig.log(a=1)
        before = rig.syncs()
        oldest_unsynced = oldest_unsynced or rig.clock.monotonic()
        rig.drain(0.02)
        assert rig.clock.monotonic() - oldest_unsynced <= 5
        if rig.syncs() > before:
            oldest_unsynced = None
    assert 11 <= rig.syncs() <= 14
    rig.drain(10)
    rig.fs.calls.clear()
    for _ in range(20):
        rig.drain(5)
    assert rig.syncs() == 0


def test_relaxed_syncs_only_what_must_not_wait():
    """Rows alone are never synced; a config change is, by the next drain, with the rows before it."""
    rig = Rig("relaxed")
    rig.drain()
    rig.fs.calls.clear()
    for _ in range(100):
        rig.log(a=1)
        rig.drain(1)
    assert rig.syncs() == 0
    rig.pump.submit(lambda recorder: recorder.record(records.config([(("a",), b"1")]), urgent=True))
    rig.drain()
    rig.drain()

    assert rig.syncs() == 1


def test_much_data_is_synced_before_its_time(monkeypatch):
    """What is kept in case a sync fails is bounded."""
    monkeypatch.setattr(journal_module, "SYNC_BYTES", 1000)
    rig = Rig()
    rig.drain()
    rig.fs.calls.clear()
    rig.log(a="x" * 2000)
    rig.drain()

    assert rig.syncs() == 1


def test_what_is_written_is_synced_while_the_disk_is_full():
    """Rows that are in the file do not wait for those that do not fit: a power cut costs five seconds at most."""
    rig = Rig()
    rig.drain()
    rig.log(a=1)
    rig.drain()
    (file,) = rig.fs.files.values()
    rig.fs.fail["write"] = errno.ENOSPC
    assert len(file.durable) < len(file.data)
    for _ in range(6):
        rig.log(a=2)
        rig.drain(1)

    assert file.durable == file.data


def test_one_sync_serves_all_who_wait():
    """Barriers of one drain share its write and its sync, and hear how each went."""
    rig = Rig("disk")
    rig.drain()
    rig.fs.calls.clear()
    barriers = [_Barrier(sync=number % 2 == 0) for number in range(6)]
    for barrier in barriers:
        rig.log(a=1)
        rig.pump.queue.append(barrier)
    rig.drain()

    assert all(barrier.wait(0) for barrier in barriers)
    assert rig.syncs() == 1


def test_who_waits_for_a_failing_disk_is_told():
    """A barrier ends at once, and says that it was not done."""
    rig = Rig("disk")
    rig.fs.fail["write"] = errno.ENOSPC
    rig.log(a=1)
    barriers = [_Barrier(sync=False), _Barrier(sync=True)]
    rig.pump.queue.extend(barriers)
    rig.drain()

    assert [barrier.wait(0) for barrier in barriers] == [False, False]
    assert all(barrier.lock.locked() for barrier in barriers)  # taken again by `wait`, so it had been released


def test_a_run_whose_device_takes_no_sync_ends_soon_and_in_a_file():
    """Two more attempts, then the rows stand in a log that nobody synced, which is better than in none."""
    rig = Rig()
    rig.drain()
    rig.fs.fail = {"sync_file": errno.EIO, "sync_data": errno.EIO}
    for count in range(5):
        rig.log(a=count)
    started = rig.clock.monotonic()
    rig.pump._drain_last()

    assert rig.clock.monotonic() - started < 0.5
    assert rig.journal.tally.rows_written == 5
    assert rig.journal.rows_queued == 0
    assert rig.journal.dirty
    assert len(rig.fs.files) <= 4
    last = list(read_records(io.BytesIO(rig.fs.logs()[-1])))
    assert sum(record.kind == "history" for record in last) == 5


def test_a_sync_asked_for_survives_a_failed_sync():
    """The rest goes to a new log and is synced there, in the same drain."""
    rig = Rig("disk")
    rig.drain()
    rig.log(a=1)
    barrier = _Barrier(sync=True)
    rig.pump.queue.append(barrier)
    rig.fs.fail["sync_data"] = errno.EIO
    rig.drain()

    assert barrier.wait(0)
    assert len(rig.fs.files) == 2
    assert list(rig.fs.files.values())[1].durable


def test_rows_wait_for_the_thread_when_it_cannot_keep_up(monkeypatch):
    """A queue that is long makes `log` wait as long as the thread takes from it, and no longer; nothing is dropped."""
    monkeypatch.setattr(pump_module, "EASE_ROWS", 100)
    rig = Rig("relaxed")
    rig.pump.ease = 100
    rig.clock.sleep = lambda seconds: [rig.pump.queue.popleft() for _ in range(10)]
    for number in range(100):
        rig.log(a=number)

    assert rig.pump.admit({"a": 1})
    assert len(rig.pump.queue) == 50
    assert not rig.pump._wake.locked()  # the thread was woken: at `relaxed` it sleeps for a quarter of a second
    rig.clock.sleep = rig.clock.advance
    for number in range(60):
        rig.log(a=number)
    before = rig.clock.monotonic()
    assert rig.pump.admit({"a": 1})
    assert rig.pump.admit({"a": 1})
    assert rig.clock.monotonic() - before < 2 * pump_module.STALL_S


def test_large_rows_make_the_queue_shorter():
    """The bound of the queue follows the size of what was logged last."""
    rig = Rig()
    rig.log(a="x" * 1_000_000)
    rig.drain()
    assert rig.pump.ease == 4
    rig.log(a=1)
    rig.pump.submit(lambda recorder: recorder.record(records.output(1, 1, "x" * 1_000_000)))
    rig.drain()

    assert rig.pump.ease == pump_module.EASE_ROWS


def test_a_thread_that_cannot_work_ends_and_says_so(monkeypatch):
    """Whoever waits for it waits no longer, and rows are counted as lost."""
    rig = Rig()

    def no_modules():
        raise ImportError("no module named orjson")

    rig.pump._make_recorder = no_modules
    rig.log(a=1)
    rig.pump.start()

    assert rig.pump.stop(5)
    assert not rig.pump.barrier(sync=True, timeout_s=5)
    assert rig.pump.ended
    assert "no module named orjson" in rig.warnings[0]


def test_a_thread_that_cannot_be_started(monkeypatch):
    """Where the system or a dying interpreter allows no more threads a run begins all the same, and says what it means."""

    def refuse(_thread):
        raise RuntimeError("can't start new thread")

    rig = Rig()
    monkeypatch.setattr("threading.Thread.start", refuse)
    rig.pump.start()
    rig.log(a=1)

    assert not rig.pump.barrier(sync=True)
    assert rig.pump.stop()
    assert "can't start new thread" in rig.warnings[0]


def test_one_bad_job_does_not_end_the_log():
    """A fault in one item is named once, and the next row is written."""
    rig = Rig()
    for _ in range(3):
        rig.pump.submit(lambda recorder: 1 / 0)
        rig.log(a=1)
    rig.drain()

    assert rig.rows() == 3
    assert len(rig.warnings) == 1
    assert "ZeroDivisionError" in rig.warnings[0]


def test_a_full_queue_is_waited_for_once_until_the_disk_answers():
    """Who finds no room waits; those after it do not; after a drain it is tried again."""
    rig = Rig()
    rig.drain()

    def waited(call):
        before = rig.clock.monotonic()
        assert not call()
        return rig.clock.monotonic() - before

    for _ in range(2):
        rig.log(a=1)
        assert [waited(lambda: rig.pump.make_room(1)) >= FULL_WAIT_S for _ in range(3)] == [True, False, False]
        rig.pump.ease = 2
        rig.log(a=2)
        rig.pump._stuck = True  # only the waiting in front of it is looked at
        rig.pump._weighed = MAX_HANDED_OFF_BYTES
        assert [waited(lambda: rig.pump.admit({"a": 1})) >= STALL_S for _ in range(3)] == [True, False, False]
        rig.drain()
    assert rig.rows() == 4


def test_what_must_not_wait_is_synced_as_soon_as_the_disk_takes_it():
    """An alert on a full disk: it is brought to the device with the write that succeeds, not seconds later."""
    rig = Rig()
    rig.drain()
    rig.fs.fail["write"] = errno.ENOSPC
    rig.pump.submit(lambda recorder: recorder.record(records.preempting(), urgent=True))
    rig.drain()
    rig.fs.fail.clear()
    syncs = rig.syncs()
    rig.drain(0.2)

    assert rig.syncs() == syncs + 1
    assert not rig.journal.dirty


def test_who_waits_for_the_device_is_not_told_of_the_page_cache():
    """A sync that fails for good: what was written is, what was to be synced is not."""
    rig = Rig()
    rig.drain()
    rig.fs.fail = {"sync_data": errno.EIO, "sync_file": errno.EIO}
    rig.log(a=1)
    barrier = _Barrier(sync=True)
    rig.pump.queue.append(barrier)
    rig.drain()

    assert not barrier.wait(0)
    rig = Rig()
    rig.fs.fail = {"sync_data": errno.EINVAL, "sync_file": errno.EINVAL}
    rig.log(a=1)
    barriers = [_Barrier(sync=False), _Barrier(sync=True)]
    rig.pump.queue.extend(barriers)
    rig.drain()
    assert [barrier.wait(0) for barrier in barriers] == [True, False]


def test_a_row_that_no_record_can_be_made_of_is_counted():
    """It is dropped, named, and the rest goes on."""
    rig = Rig()
    rig.drain()
    whole = rig.pump.recorder.row

    def row(now, step, commit, values):
        if values["a"] == 1:
            raise RuntimeError("no such thing")
        whole(now, step, commit, values)

    rig.pump.recorder.row = row
    for count in range(3):
        rig.log(a=count)
    rig.drain()

    assert (rig.pump.rows_dropped, rig.rows()) == (1, 2)
    assert "no such thing" in rig.warnings[0]


def test_who_asks_in_the_last_moment_waits_for_nobody():
    """The thread may end between a look at it and the question, which nobody reads then."""

    class LastMoment(deque):
        def append(self, item):
            super().append(item)
            rig.pump.ended = True

    rig = Rig()
    rig.drain()
    rig.pump._thread = threading.Thread()
    started = time.monotonic()
    rig.pump.queue = LastMoment()
    assert not rig.pump.barrier(sync=False, timeout_s=20)
    rig.pump.ended = False
    assert rig.pump.ask(lambda recorder: recorder.step + 1, timeout_s=20) == 1

    assert time.monotonic() - started < 5


class Waits:
    """In place of the lock on which the thread waits: a wait moves the clock, unless something comes meanwhile."""

    def __init__(self, rig, meanwhile=lambda: None):
        self.rig, self.meanwhile = rig, meanwhile
        self.woken, self.all = False, []

    def acquire(self, *, timeout):
        self.meanwhile()
        if not self.woken:
            self.all.append(timeout)
            self.rig.clock.advance(timeout)
        self.woken = False

    def locked(self):
        return not self.woken

    def release(self):
        self.woken = True


def resting(level="normal"):
    """A rig whose thread has begun, with nothing left to do, and its waits."""
    rig = Rig(level)
    waits = rig.pump._wake = Waits(rig)
    rig.pump._drain()
    rig.pump._beat()
    turns(rig, 60)
    waits.all.clear()
    return rig, waits


def turns(rig, seconds):
    """What the thread does in so many seconds."""
    end = rig.clock.monotonic() + seconds
    while rig.clock.monotonic() < end:
        turn(rig)


def turn(rig):
    rig.pump._rest()
    rig.pump._drain()
    rig.pump._beat()


@pytest.mark.parametrize(("level", "most"), [("relaxed", 9), ("normal", 24), ("record", 24), ("disk", 24)])
def test_an_idle_thread_hardly_wakes(level, most):
    """In a minute without anything: the signs of life, and a look at what has to be synced every 4.5 s."""
    rig, waits = resting(level)
    turns(rig, 60)

    assert len(waits.all) <= most
    assert max(waits.all) <= pump_module.LONGEST_REST_S


@pytest.mark.parametrize("pause", [0.002, 0.02, 0.2])
def test_who_logs_often_never_has_to_wake_the_thread(pause):
    """With less than a quarter of a second between rows the thread wakes by itself, every 18 ms."""
    rig, waits = resting()
    rig.log(a=0)
    rig.pump._drain()
    rows, next_row = 0, rig.clock.monotonic() + pause
    waits.all.clear()
    while rows < 50:
        if rig.clock.monotonic() >= next_row:
            rig.log(a=rows)
            rows, next_row = rows + 1, next_row + pause
        turn(rig)

    assert set(waits.all) == {DRAIN_S}


@pytest.mark.parametrize("level", ["relaxed", "normal"])
def test_what_is_handed_off_wakes_a_thread_that_sleeps(level):
    """It is in the file by the next turn, which comes at once."""
    rig, waits = resting(level)
    asleep = []

    def log():
        asleep.append(rig.pump.asleep)
        if len(asleep) == 1:
            rig.pump.hand_off(lambda recorder: recorder.row(rig.clock.monotonic(), None, None, {"a": 1}))

    waits.meanwhile = log
    before = rig.clock.monotonic()
    rig.pump._rest()
    assert not rig.pump.asleep  # who comes now wakes nobody
    rig.pump._drain()

    assert asleep == [True]
    assert (rig.rows(), rig.clock.monotonic()) == (1, before)
    rig.pump._rest()
    assert asleep == [True, False]


class Watched(deque):
    """A queue that says when the thread has looked whether something is in it, and then lets others go first."""

    looked = staticmethod(lambda: None)

    def __len__(self):
        found = super().__len__()
        self.looked()
        return found

    def __bool__(self):
        return len(self) > 0


@pytest.mark.parametrize("moment", ["decides", "looks", "waits"])
def test_no_wake_up_is_lost(moment, monkeypatch):
    """Whoever comes while the thread decides to sleep, just behind its last look at the queue, or once it waits."""
    rig, waits = resting()
    come = []

    def log():
        if not come:
            come.append(rig.clock.monotonic())
            rig.pump.hand_off(lambda recorder: recorder.row(rig.clock.monotonic(), None, None, {"a": 1}))

    if moment == "decides":
        pause = rig.pump._pause
        monkeypatch.setattr(rig.pump, "_pause", lambda: (pause(), log())[0])
    elif moment == "looks":
        rig.pump.queue = Watched(rig.pump.queue)
        rig.pump.queue.looked = log
    else:
        waits.meanwhile = log
    rig.pump._rest()
    rig.pump._drain()

    assert come
    assert rig.rows() == 1
    assert rig.clock.monotonic() - come[0] <= DRAIN_S


@pytest.mark.parametrize("way", ["hand_off", "submit"])
def test_the_thread_is_woken_for_what_lies_there(way):
    """Not before it was appended: the thread may be back asleep by then."""
    rig, waits = resting()
    waiting = []
    waits.release = lambda: waiting.append(len(rig.pump.queue))
    rig.pump.asleep = True
    getattr(rig.pump, way)(lambda recorder: None)

    assert waiting == [1]


def test_one_wake_up_is_enough():
    """Who finds the thread woken already does not wake it again, nor is it awake twice for that."""
    rig, waits = resting()
    released = []
    waits.release = lambda: (released.append(1), setattr(waits, "woken", True))
    rig.pump.asleep = True
    for _ in range(5):
        rig.pump.hand_off(lambda recorder: None)

    assert len(released) == 1


@pytest.mark.parametrize("level", ["relaxed", "normal"])
def test_what_waits_for_its_time_is_written_while_the_thread_sleeps(level):
    """An open row within a second, a changed summary soon after 15 s, the sign of life every 15 s, though nobody comes."""
    rig, waits = resting(level)
    rig.clock.advance(max(0.0, rig.pump._heartbeat.due - rig.clock.monotonic()) + 1)
    turn(rig)  # the next sign of life is not at the summary's time
    rig.clock.advance(6)
    began = rig.clock.monotonic()
    rig.pump.queue.append((began, 7, None, {"a": 1}))
    rig.pump._drain()
    waits.all.clear()
    while not rig.rows():
        turn(rig)
    assert rig.clock.monotonic() - began <= 1.0
    assert max(waits.all) > DRAIN_S  # it slept meanwhile
    summaries = 0
    while not summaries:
        turn(rig)
        summaries = [record.kind for record in read_records(io.BytesIO(rig.fs.logs()[0]))].count("summary")
    assert summaries == 1
    assert rig.clock.monotonic() - began <= 16
    beats = []
    touch = rig.fs.touch
    rig.fs.touch = lambda path: (touch(path), beats.append(rig.clock.monotonic()))
    turns(rig, 70)
    assert max(late - early for early, late in pairwise(beats)) == pytest.approx(BEAT_EVERY_S, abs=DRAIN_S)


def test_rows_are_synced_within_five_seconds_while_the_thread_sleeps():
    """What a last row left in the page cache is brought to the device though nothing else comes."""
    rig, waits = resting()
    rig.pump._synced_at = began = rig.clock.monotonic()
    rig.log(a=1)
    rig.pump._drain()
    assert rig.journal.dirty
    waits.all.clear()
    while rig.journal.dirty:
        turn(rig)

    assert rig.clock.monotonic() - began <= pump_module.SYNC_S + DRAIN_S
    assert max(waits.all) > 1


def test_a_disk_that_failed_is_tried_again_while_nobody_comes():
    """An idle thread still looks several times a second, and writes as soon as the disk takes something."""
    rig, waits = resting()
    rig.fs.fail["write"] = errno.ENOSPC
    rig.log(a=1)
    turns(rig, 20)
    assert set(waits.all[-8:]) == {pump_module.UNSETTLED_S}
    rig.fs.fail.clear()
    turns(rig, journal_module.LAST_RETRY_S + pump_module.UNSETTLED_S)

    assert rig.rows() == 1
    turns(rig, 6)
    waits.all.clear()
    turns(rig, 5)
    assert max(waits.all) > 1


@pytest.mark.parametrize("level", ["relaxed", "normal"])
def test_what_must_not_wait_is_tried_again_while_nobody_comes(level, monkeypatch):
    """A sync that failed for an urgent record, or for the name of a new log, is not put off by the sleep."""
    rig, _ = resting(level)
    for unsettled in ("urgent", "unnamed"):
        if unsettled == "urgent":
            rig.pump.recorder.urgent = True
        else:
            rig.pump._named_directories = False
        with monkeypatch.context() as failing:
            failing.setattr(rig.journal, "sync", lambda: False)
            rig.pump._drain()
            assert rig.pump._pause() == pump_module.UNSETTLED_S
        rig.pump._drain()
        assert rig.pump._pause() > 1


def test_a_forked_child_wakes_nobody():
    """Its thread is the parent's: the copy of a sleeping one is awake for good."""
    rig, waits = resting()
    rig.pump.asleep = True
    rig.pump.abandon()
    rig.pump.hand_off(lambda recorder: None)

    assert not waits.woken
