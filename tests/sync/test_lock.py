"""One sync of a log at a time: who holds the lock, when it is taken over, and what two syncs of one tree do."""

from __future__ import annotations

import errno
import json
import os
import random
import subprocess
import threading
from pathlib import Path
from typing import Any

import pytest
from runferry.logformat.heartbeat import Process
from runferry.sync import Report, SyncSettings, Verdict, sync
from runferry.sync.credentials import ApiKey
from runferry.sync.lock import BEAT_EVERY_S, STALE_AFTER_S, Heartbeat, Lock, LockedError
from support.clock import FakeClock
from support.fakebackend import KEY, URL
from support.syncrig import Rig

linux = pytest.mark.skipif(not Process.current().start, reason="processes are told apart in /proc")


def move(path: Path, **values: Any) -> None:
    """Let the holder of a lock be on another machine."""
    path.write_text(json.dumps({**json.loads(path.read_text()), "host": "elsewhere", **values}))


def lock_of(log: Path) -> Path:
    return log.with_name(f"{log.name}.lock")


def no_links(*_: Any) -> None:
    raise PermissionError(errno.EPERM, "operation not permitted")


@pytest.fixture(params=["links", "no links"])
def with_or_without_links(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """A file system that knows hard links, and one that does not, such as FAT."""
    if request.param == "no links":
        monkeypatch.setattr(os, "link", no_links)


def test_a_held_lock_is_refused_with_its_holder(tmp_path: Path) -> None:
    """The second sync learns which process on which host is at work; after the release it gets the lock."""
    clock = FakeClock()
    first, second = Lock(tmp_path / "l", clock), Lock(tmp_path / "l", clock)
    first.acquire()

    with pytest.raises(LockedError, match=str(os.getpid())):
        second.acquire()

    first.release()
    second.acquire()
    second.release()
    assert list(tmp_path.iterdir()) == []


def test_the_lock_of_a_dead_process_is_taken_over_at_once(tmp_path: Path) -> None:
    """On the same host a holder that is gone does not block anybody."""
    clock = FakeClock()
    Lock(tmp_path / "l", clock).acquire()
    holder = json.loads((tmp_path / "l").read_text())
    child = os.fork()
    if child == 0:
        os._exit(0)
    os.waitpid(child, 0)
    (tmp_path / "l").write_text(json.dumps({**holder, "pid": child}))

    Lock(tmp_path / "l", clock).acquire()

    assert json.loads((tmp_path / "l").read_text())["pid"] == os.getpid()


@pytest.mark.parametrize("ahead", [STALE_AFTER_S - 1, STALE_AFTER_S + 1])
def test_a_lock_from_a_clock_that_is_ahead(tmp_path: Path, ahead: float) -> None:
    """Of another host it holds within the same bounds: a clock that is hours ahead must not keep everybody out for hours."""
    clock = FakeClock()
    Lock(tmp_path / "l", clock).acquire()
    move(tmp_path / "l", token="theirs", heartbeat=clock.time() + ahead)

    if ahead < STALE_AFTER_S:
        with pytest.raises(LockedError, match="elsewhere"):
            Lock(tmp_path / "l", clock).acquire()
    else:
        Lock(tmp_path / "l", clock).acquire()


def test_a_silent_lock_of_another_host_is_taken_over_in_time(tmp_path: Path) -> None:
    """Another host's lock holds as long as its heartbeat is fresh."""
    clock = FakeClock()
    lock = Lock(tmp_path / "l", clock)
    lock.acquire()
    move(tmp_path / "l", token="theirs")
    clock.advance(STALE_AFTER_S - 1)
    with pytest.raises(LockedError, match="elsewhere"):
        Lock(tmp_path / "l", clock).acquire()

    clock.advance(2)
    Lock(tmp_path / "l", clock).acquire()

    assert not lock.beat()


def test_a_lock_that_was_taken_over_is_not_given_back_by_its_old_holder(tmp_path: Path) -> None:
    """Who slept too long finds the lock in other hands and leaves it there."""
    clock = FakeClock()
    first, second = Lock(tmp_path / "l", clock), Lock(tmp_path / "l", clock)
    first.acquire()
    move(tmp_path / "l")
    clock.advance(STALE_AFTER_S + 1)
    second.acquire()

    first.release()

    with pytest.raises(LockedError):
        Lock(tmp_path / "l", clock).acquire()
    second.release()
    assert list(tmp_path.iterdir()) == []


@pytest.mark.usefixtures("with_or_without_links")
def test_of_two_takers_of_a_stale_lock_the_slower_puts_the_fresh_one_back(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Both judged the same dead lock; when the second removes it, the first one's new lock lies there already."""
    clock = FakeClock()
    path = tmp_path / "l"
    Lock(path, clock).acquire()
    move(path)
    clock.advance(STALE_AFTER_S + 1)
    quick, slow = Lock(path, clock), Lock(path, clock)
    judge = Lock._judge

    def judge_and_be_overtaken(self: Lock, holder: dict[str, object]) -> None:
        judge(self, holder)
        monkeypatch.setattr(Lock, "_judge", judge)
        quick.acquire()

    monkeypatch.setattr(Lock, "_judge", judge_and_be_overtaken)

    with pytest.raises(LockedError):
        slow.acquire()

    assert quick.beat()


def test_a_process_of_another_host_is_not_looked_for_on_this_one(tmp_path: Path) -> None:
    """Its number says nothing here; its sign of life is fresh, so it holds the lock."""
    clock = FakeClock()
    holder = {"host": "elsewhere", "pid": 2**22 + 1, "heartbeat": clock.time(), "token": "t"}
    (tmp_path / "l").write_text(json.dumps(holder))

    with pytest.raises(LockedError, match="elsewhere"):
        Lock(tmp_path / "l", clock).acquire()


def test_a_heartbeat_keeps_a_lock_alive(tmp_path: Path) -> None:
    """Beating moves the time on, so that a long sync is not taken for a dead one."""
    clock = FakeClock()
    lock = Lock(tmp_path / "l", clock)
    lock.acquire()
    clock.advance(STALE_AFTER_S * 3)

    assert lock.beat()
    with pytest.raises(LockedError):
        Lock(tmp_path / "l", clock).acquire()


def test_where_no_thread_can_beat_the_work_does(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """No more often than the thread would; once a thread can be started for another lock, it is the one to do it."""
    real = threading.Thread.start

    def refuse(_: object) -> None:
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(threading.Thread, "start", refuse)
    clock = FakeClock()
    heart, lock = Heartbeat(clock.monotonic), Lock(tmp_path / "l", clock)
    lock.acquire()
    heart.add(lock)
    beats = []
    for _ in range(8):
        clock.advance(BEAT_EVERY_S / 2)
        heart.pulse()
        beats.append(json.loads((tmp_path / "l").read_text())["heartbeat"])
    assert len(set(beats)) == 5  # of 0, 10, 20, 30 and 40 s

    monkeypatch.setattr(threading.Thread, "start", real)
    heart.add(lock)
    clock.advance(BEAT_EVERY_S * 2)
    heart.pulse()
    assert json.loads((tmp_path / "l").read_text())["heartbeat"] == beats[-1]
    heart.close()


@linux
@pytest.mark.parametrize("seconds", [STALE_AFTER_S + 1, 86_400, -86_400])
def test_a_process_of_this_machine_keeps_its_lock_however_the_clock_runs(tmp_path: Path, seconds: float) -> None:
    """A suspended laptop, a stopped process, a clock that is set: it is still there, and will go on."""
    clock = FakeClock()
    lock = Lock(tmp_path / "l", clock)
    lock.acquire()
    clock.advance(seconds)

    with pytest.raises(LockedError, match=f"process {os.getpid()} on"):
        Lock(tmp_path / "l", clock).acquire()
    assert lock.beat()


@linux
def test_a_number_that_was_given_to_another_process_holds_nothing(tmp_path: Path) -> None:
    """The holder was killed, and its number belongs to a process that began later."""
    clock = FakeClock()
    Lock(tmp_path / "l", clock).acquire()
    path = tmp_path / "l"
    path.write_text(json.dumps({**json.loads(path.read_text()), "start": "1"}))

    Lock(path, clock).acquire()


@pytest.mark.parametrize("field", ["boot", "namespaces"])
def test_a_number_of_another_boot_or_container_says_nothing(tmp_path: Path, field: str) -> None:
    """The time decides: a container's sync on the same machine is not taken for dead."""
    clock = FakeClock()
    path = tmp_path / "l"
    Lock(path, clock).acquire()
    path.write_text(json.dumps({**json.loads(path.read_text()), field: "other", "pid": 2**22 + 1}))
    with pytest.raises(LockedError):
        Lock(path, clock).acquire()
    clock.advance(STALE_AFTER_S + 1)
    Lock(path, clock).acquire()


@pytest.mark.parametrize("fails_at", [1, 2])
def test_a_full_disk_leaves_no_lock_that_nobody_holds(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, fails_at: int
) -> None:
    """The sync fails, and the next one is not kept out; without links a lock is written twice, so it may fail twice."""
    opened, files = os.fdopen, []

    def full(descriptor: int, mode: str) -> Any:
        files.append(descriptor)
        if len(files) == fails_at:
            os.close(descriptor)
            raise OSError(errno.ENOSPC, "no space left")
        return opened(descriptor, mode)

    monkeypatch.setattr(os, "link", no_links)
    monkeypatch.setattr(os, "fdopen", full)
    with pytest.raises(OSError, match="no space"):
        Lock(tmp_path / "l", FakeClock()).acquire()

    assert list(tmp_path.iterdir()) == []
    Lock(tmp_path / "l", FakeClock()).acquire()


def test_a_lock_is_never_there_without_its_holder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever looks while one is being made sees none, or a whole one: a clock that differs from the files' decides nothing."""
    clock, path = FakeClock(), tmp_path / "l"
    seen: list[bytes] = []
    opened, linked, unlinked = os.fdopen, os.link, Path.unlink

    def look(call: Any) -> Any:
        def looking(*args: Any, **options: Any) -> Any:
            try:
                return call(*args, **options)
            finally:
                seen.append(path.read_bytes() if path.exists() else b"none")

        return looking

    monkeypatch.setattr(os, "fdopen", look(opened))
    monkeypatch.setattr(os, "link", look(linked))
    monkeypatch.setattr(Path, "unlink", look(unlinked))
    Lock(path, clock).acquire()
    monkeypatch.undo()

    assert seen[0] == b"none"
    assert set(seen) == {b"none", path.read_bytes()}
    assert list(tmp_path.iterdir()) == [path]


def test_locks_hold_where_there_are_no_links(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """They are refused, given back, and taken over as anywhere else."""
    monkeypatch.setattr(os, "link", no_links)
    clock, path = FakeClock(), tmp_path / "l"
    first, second = Lock(path, clock), Lock(path, clock)
    first.acquire()
    with pytest.raises(LockedError):
        second.acquire()
    move(path, token="theirs")
    clock.advance(STALE_AFTER_S + 1)
    second.acquire()
    assert second.beat()
    second.release()
    assert list(tmp_path.iterdir()) == []


def test_a_link_whose_answer_was_lost(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A network file system that asks twice for the link says that it is there: it is our own, and we hold it."""
    linked = os.link

    def twice(source: Path, target: Path) -> None:
        linked(source, target)
        linked(source, target)

    monkeypatch.setattr(os, "link", twice)
    lock = Lock(tmp_path / "l", FakeClock())
    lock.acquire()
    assert lock.beat()
    lock.release()
    assert list(tmp_path.iterdir()) == []


def test_a_sync_that_lost_its_lock_stops(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    """It slept for so long that another one took over: what it had acknowledged stays so, the other one sends the rest."""
    rig.run(rows=100)
    monkeypatch.setattr(Lock, "lost", property(lambda _: len(rig.backend.bodies()) >= 2))
    report = rig.only(rig.sync(body_bytes=2_000))

    assert (report.verdict, report.try_again) == (Verdict.SKIPPED, True)
    assert "took it over" in report.reason
    assert len(rig.backend.bodies()) <= 4
    monkeypatch.undo()
    assert rig.only(rig.sync()).verdict is Verdict.SYNCED
    (run,) = rig.backend.runs.values()
    assert len(run.rows) == 100


def test_two_syncs_of_one_tree_send_each_run_once(rig: Rig) -> None:
    """Each run is synced by one of them; the other says that it is, or finds it done."""
    names = [f"run{number}" for number in range(8)]
    for name in names:
        rig.run(run_id=name)
    reports: list[Report] = []
    barrier = threading.Barrier(2)

    def one() -> None:
        barrier.wait()
        key = ApiKey(KEY, base_url=URL, source="test")
        settings = SyncSettings(base_url=URL, state_dir=rig.state)
        rng = random.Random(1)
        reports.append(sync([rig.folder], settings, key=key, transport=rig.backend, clock=rig.clock, rng=rng))

    threads = [threading.Thread(target=one) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert set(rig.backend.runs) == set(names)
    assert set(rig.backend.written.values()) == {1}
    for log in reports[0].verdicts:
        verdicts = {report.verdicts[log] for report in reports}
        assert Verdict.SYNCED in verdicts
        assert verdicts <= {Verdict.SYNCED, Verdict.SKIPPED}
    assert not list(rig.folder.rglob("*.lock*"))


def test_a_log_of_another_name_is_not_locked(rig: Rig) -> None:
    """Locks are per log: what is being synced holds up no other run of the folder."""
    held = rig.run(run_id="held")
    rig.run(run_id="free")
    Lock(held.with_name(held.name + ".lock"), rig.clock).acquire()
    verdicts = {Path(log).name: verdict for log, verdict in rig.sync().verdicts.items()}

    assert verdicts == {"run-held.wandb": Verdict.SKIPPED, "run-free.wandb": Verdict.SYNCED}


def test_a_directory_in_place_of_a_lock_is_named_and_stays(rig: Rig) -> None:
    """Nobody's lock is a directory: the sync fails with its name, each time, and leaves nothing beside it."""
    log = rig.run()
    folder = lock_of(log)
    folder.mkdir()
    os.utime(folder, (1.0, 1.0))
    before = sorted(log.parent.iterdir())

    reports = [rig.only(rig.sync()) for _ in range(2)]

    assert {(report.verdict, report.reason) for report in reports} == {
        (Verdict.FAILED, f"{folder}: a directory is where the lock goes: remove it")
    }
    assert sorted(log.parent.iterdir()) == before
    Lock(folder, rig.clock).check()


def test_a_lock_that_cannot_be_written_is_named(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    """The system names no file where a write fails."""
    log = rig.run()

    def too_large(*_: Any) -> None:
        raise OSError(errno.EFBIG, "File too large")

    monkeypatch.setattr("runferry.sync.lock._create", too_large)

    assert rig.only(rig.sync()).reason == f"{lock_of(log)}: File too large"


@linux
def test_what_a_killed_sync_left_beside_the_log_is_removed(rig: Rig) -> None:
    """Halves of cursors and locks of processes that are gone, once its lock is taken over; nobody else's, and no other file."""
    log = rig.run()
    dead = subprocess.Popen(["true"])
    dead.wait()
    ours = Process.current()
    gone, here = (json.dumps(process._asdict()) for process in (ours._replace(pid=dead.pid), ours))
    left = {
        f"cursor.{dead.pid}.tmp": "{", f"lock.{'a' * 16}": gone, f"lock.stale.{'b' * 16}": gone,
    }  # fmt: skip
    kept = {
        f"cursor.{os.getppid()}.tmp": "{", f"lock.{'c' * 16}": here, f"lock.{'d' * 16}": "{", "cursor.tmp": "", "lock.old": gone,
        f"cursor.{dead.pid}.tmp.txt": "",
    }  # fmt: skip
    for name, text in {**left, **kept}.items():
        log.with_name(f"{log.name}.{name}").write_text(text)
    other = log.with_name(f"run-other.wandb.cursor.{dead.pid}.tmp")
    other.write_text("{")
    lock_of(log).write_text(json.dumps({**json.loads(gone), "heartbeat": rig.clock.time(), "token": "x"}))

    assert rig.only(rig.sync()).verdict is Verdict.SYNCED

    assert not [name for name in left if log.with_name(f"{log.name}.{name}").exists()]
    assert all(log.with_name(f"{log.name}.{name}").exists() for name in kept)
    assert other.exists()
    assert not lock_of(log).exists()
