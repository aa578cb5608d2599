"""What may be deleted and what is kept, also when it changes while it is looked at."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable
from io import BytesIO
from pathlib import Path
from typing import Any

import pytest
from runferry.logformat.heartbeat import Process, heartbeat_path, heartbeat_text
from runferry.logformat.rundir import TRASH
from runferry.sync.clean import Candidate, Cleaner, Fate
from runferry.sync.cursor import prefix_hash
from runferry.sync.lock import Lock
from runferry.sync.report import Verdict
from support import logs
from support.syncrig import Rig, cursor, marker, shut_out, unsealed


def cleaner(rig: Rig, **options: Any) -> Cleaner:
    return Cleaner(state_dir=rig.state, clock=rig.clock, **options)


def look(rig: Rig, **options: Any) -> list[Candidate]:
    return cleaner(rig, **options).look([rig.folder])


def reason(rig: Rig) -> str:
    """Why the only run is kept; empty if it is not."""
    (candidate,) = look(rig)
    return candidate.reason


def put(path: Path, text: str, *, over: bool = False) -> None:
    """A file, with the folders above it; `over` replaces whatever is there."""
    if over and path.is_dir():
        shutil.rmtree(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)


def edit(log: Path, **fields: Any) -> None:
    """Change what a cursor says; `sent` in rows."""
    document = unsealed(log)
    fields["sent"] = {**document["sent"], "history": fields["sent"]}
    cursor(log).write_text(json.dumps({**document, **fields}))


def synced(rig: Rig, **options: Any) -> Path:
    log = rig.run(**options)
    report = rig.sync(log)
    assert rig.only(report).verdict is Verdict.SYNCED, rig.only(report).reason
    return log


def test_a_run_that_is_at_the_server_goes(rig: Rig) -> None:
    """Its directory with everything in it, and `latest-run` if it leads there; its size is told before."""
    log = synced(rig)
    (rig.folder / "latest-run").symlink_to(log.parent.name)
    (candidate,) = look(rig)
    size = sum(file.stat().st_size for file in log.parent.rglob("*") if file.is_file())

    assert (candidate.run, candidate.logs, candidate.bytes, candidate.fate) == (
        "a1b2c3d4",
        (log,),
        size,
        Fate.DELETABLE,
    )
    assert cleaner(rig).delete(candidate) == (Fate.DELETED, "")
    assert list(rig.folder.iterdir()) == []


def test_latest_run_of_another_run_stays(rig: Rig) -> None:
    """The link is touched only if what it leads to is gone."""
    log = synced(rig)
    other = rig.run(run_id="other", prefix="run-20260922_000000")
    (rig.folder / "latest-run").symlink_to(other.parent.name)
    candidate = next(item for item in look(rig) if item.logs == (log,))
    cleaner(rig).delete(candidate)

    assert (rig.folder / "latest-run").resolve() == other.parent.resolve()


@pytest.mark.parametrize(
    ("change", "why"),
    [
        (lambda log: cursor(log).unlink(), "not synced from here"),
        (lambda log: cursor(log).write_text("{"), "not a cursor"),
        (lambda log: marker(log).unlink(), "not marked"),
        (lambda log: logs.make_log(log, logs.row(9), append=True), "changed since"),
        (lambda log: log.write_bytes(log.read_bytes()[:-1] + b"x"), "not the one that was sent"),
        (lambda log: (log.parent / "files" / "saved.txt").write_text("changed meanwhile"), "saved.txt has changed"),
        (lambda log: (log.parent / "files" / "saved.txt").write_text("SAVED"), "saved.txt has changed"),
        (lambda log: (log.parent / "files" / "notes.txt").write_text("never sent"), "notes.txt was never sent"),
        (lambda log: shutil.copy(log, log.with_name("run-other.wandb")), "another log in its directory"),
        (lambda log: edit(log, sent=0, offset=0, prefix=prefix_hash(BytesIO(), 0)), "changed since"),
        (lambda log: (log.parent / "model.pt").write_text("by hand"), "model.pt is not of the run"),
        (lambda log: log.with_name(log.name + ".bak").write_text("by hand"), "wandb.bak is not of the run"),
        (lambda log: log.with_name(log.name + ".cursors").write_text("by hand"), "cursors is not of the run"),
        (lambda log: put(log.parent / "files" / "deep" / "er" / "x", "by hand"), "files/deep/er/x was never sent"),
        (lambda log: put(log.parent / "logs" / "train.log", "by hand"), "logs/train.log is not of the run"),
        (lambda log: put(log.parent / "artifacts" / "model.pt", "by hand"), "artifacts/model.pt is not of the run"),
        (lambda log: put(log.parent / "notes" / "x", "by hand"), "notes/x is not of the run"),
        (lambda log: put(log.parent / "files", "by hand", over=True), "files is not of the run"),
        (lambda log: os.mkfifo(log.parent / "pipe"), "pipe is not of the run"),
    ],
)
def test_what_is_not_surely_at_the_server_is_kept(rig: Rig, change: Callable[[Path], Any], why: str) -> None:
    """Without a cursor, or with one that does not fit: log, marker, size, bytes, a saved file, a file nobody knows."""
    log = rig.run()
    (log.parent / "files" / "saved.txt").write_text("saved")
    logs.make_log(log, *logs.simple_records(exit_code=None), logs.files_record("saved.txt"), logs.exit_record())
    rig.settle(log)
    rig.sync(log)
    assert reason(rig) == ""
    change(log)

    found = next(item for item in look(rig) if log in item.logs)
    assert why in found.reason
    assert cleaner(rig).delete(found)[0] is Fate.KEPT
    assert log.exists()


def large(rig: Rig) -> Path:
    """A run of which everything is at the server, whose log is so large that the cursor knows its ends alone."""
    log = synced(rig, rows=4000)
    assert log.stat().st_size > 3 * 64 * 1024
    return log


def test_a_log_that_is_damaged_in_the_middle_is_kept(rig: Rig) -> None:
    """Its size and both of its ends are as they were sent; it is read before it is deleted, and the run stays where it is."""
    log = large(rig)
    (candidate,) = look(rig)
    data = bytearray(log.read_bytes())
    data[len(data) // 2] ^= 0xFF
    log.write_bytes(data)
    rig.settle(log)

    fate, why = cleaner(rig).delete(candidate)

    assert (fate, why.startswith("damaged:")) == (Fate.KEPT, True)
    assert log.read_bytes() == data
    assert not log.with_name(log.name + ".lock").exists()


def test_a_log_with_other_rows_in_the_middle_is_kept(rig: Rig) -> None:
    """It was written anew, with right checksums and of the same size; a row less is another log all the same."""
    log = large(rig)
    (candidate,) = look(rig)
    size = log.stat().st_size
    records = logs.simple_records(rows=4000)
    middle = next(n for n in range(len(records) // 2, len(records)) if records[n].HasField("history"))
    room = records[middle].ByteSize()
    same = (logs.output("x" * length) for length in range(room))
    records[middle] = next(record for record in same if record.ByteSize() == room)
    logs.make_log(log, *records)
    rig.settle(log)
    assert log.stat().st_size == size

    assert cleaner(rig).delete(candidate) == (Fate.KEPT, "it has 3999 rows, and sent from it: 4000")
    assert log.exists()


def test_what_writers_keep_for_themselves_goes(rig: Rig) -> None:
    """Debug logs, content that was on its way, artifacts by their MD5, a lock of a dead sync, made files, empty folders."""
    log = synced(rig)
    put(log.parent / "logs" / "debug-core.log", "x")
    put(log.parent / "tmp" / "code" / "train.py", "x")
    put(log.parent / "artifacts" / ("0" * 32), "x")
    put(log.parent / "files" / "config.yaml", "x")
    log.with_name(f"{log.name}.cursor.17.tmp").write_text("x")
    (log.parent / "media").mkdir()

    assert reason(rig) == ""


def test_a_file_of_another_time_and_the_same_bytes_goes(rig: Rig) -> None:
    """As `cp -r` leaves it: the bytes decide; others of the same size keep the run."""
    log = rig.run(exit_code=None)
    saved = log.parent / "files" / "requirements.txt"
    saved.write_text("torch")
    logs.make_log(log, logs.files_record(saved.name), logs.exit_record(), append=True)
    rig.settle(log)
    rig.sync()
    os.utime(saved, (1, 1))
    assert [found.reason for found in cleaner(rig).look([rig.folder])] == [""]

    saved.write_text("horse")

    (found,) = cleaner(rig).look([rig.folder])
    assert found.reason == "files/requirements.txt has changed since it was sent"


def test_what_lies_on_another_file_system_is_kept(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    """A folder that is mounted into the run directory is neither entered nor deleted."""
    log = synced(rig)
    put(log.parent / "tmp" / "mounted" / "x", "x")
    lstat = Path.lstat

    def mounted(path: Path) -> Any:
        status = lstat(path)
        if path.name == "mounted":
            return os.stat_result((*status[:2], status.st_dev + 1, *status[3:10]))
        return status

    monkeypatch.setattr(Path, "lstat", mounted)

    assert reason(rig) == "tmp/mounted is on another file system"


def test_a_file_of_an_earlier_log_is_held_to_what_was_sent(rig: Rig) -> None:
    """The newest log's cursor knows the files of all logs, wherever they lie; a name that both have saved is the newest's."""
    first = rig.run(start=logs.START_S)
    logs.make_log(first, *logs.simple_records(exit_code=None), logs.files_record("a", "both"))
    put(first.parent / "files" / "a", "as sent")
    put(first.parent / "files" / "both", "older")
    second = rig.run(start=logs.START_S + 1000, prefix="run-20260921_150000")
    put(second.parent / "files" / "both", "newer")
    logs.make_log(
        second,
        *logs.simple_records(start=logs.START_S + 1000, exit_code=None),
        logs.files_record("both"),
        logs.exit_record(),
    )
    rig.settle(first)
    rig.settle(second)
    rig.sync()
    assert reason(rig) == ""
    put(first.parent / "files" / "a", "changed meanwhile", over=True)

    assert reason(rig) == "files/a has changed since it was sent"


def test_a_run_whose_other_logs_lie_elsewhere_is_kept(rig: Rig, tmp_path: Path) -> None:
    """A log of it in another folder could not be synced any more once this one is gone."""
    first = rig.run(start=logs.START_S, exit_code=None)
    other = tmp_path / "other" / "run-20260921_150000-a1b2c3d4"
    second = rig.run(start=logs.START_S + 1000, prefix="run-20260921_150000")
    other.parent.mkdir()
    second = second.parent.rename(other) / second.name
    rig.sync(first, second)

    assert "the run had 2 logs, and 1 of them are here" in cleaner(rig).look([second])[0].reason
    assert [item.reason for item in cleaner(rig).look([first, second])] == [""]


def test_logs_that_were_sent_to_different_places_are_kept(rig: Rig) -> None:
    """Neither place has the whole run."""
    first = rig.run(start=logs.START_S, exit_code=None)
    second = rig.run(start=logs.START_S + 1000, prefix="run-20260921_150000")
    rig.sync(first, second)
    document = unsealed(first)
    cursor(first).write_text(json.dumps({**document, "project": "elsewhere"}))

    assert reason(rig) == "its logs were not sent to the same run"


def test_a_run_whose_writer_is_there_is_kept(rig: Rig) -> None:
    """Its log may have its exit record, and its process may still write: until the heartbeat is gone, or its process."""
    log = synced(rig)
    beat = heartbeat_path(log)
    beat.write_bytes(heartbeat_text(Process.current(), rig.clock.time()))
    assert "still there" in reason(rig)
    gone = Process.current()._replace(start="1")
    beat.write_bytes(heartbeat_text(gone, rig.clock.time()))

    assert reason(rig) == ""


def test_a_run_whose_end_was_not_seen_is_kept(rig: Rig) -> None:
    """Also when all of it was sent, and it counts as crashed: its writer may come back."""
    log = rig.run(exit_code=None)
    rig.settle(log, age=10_000)
    assert rig.only(rig.sync(log)).verdict is Verdict.SYNCED

    assert "no exit record" in reason(rig)


def test_a_partial_run_is_kept(rig: Rig) -> None:
    """What is missing at the server is nowhere else; a file of it may turn up yet."""
    log = rig.run()
    logs.make_log(log, logs.files_record("gone.txt"), append=True)
    rig.settle(log)
    assert rig.only(rig.sync(log)).verdict is Verdict.PARTIAL

    assert reason(rig) == "not all of it is at the server: sent so far 5 rows"


def test_a_damaged_log_of_which_the_rest_was_sent_says_so(rig: Rig) -> None:
    """No sync brings what is lost: the reason names the damage, and the ways out."""
    log = rig.run()
    whole = log.read_bytes()
    data = bytearray(whole)
    data[400] ^= 0xFF
    log.write_bytes(data)
    rig.settle(log)
    assert rig.only(rig.sync(log)).verdict is Verdict.PARTIAL

    assert reason(rig).startswith("the log is damaged (bytes 367-403): the rest is at the server")
    assert "by hand" in reason(rig)
    log.write_bytes(whole[:-9])
    assert reason(rig).startswith("not all of it is at the server")


def test_a_folder_that_cannot_be_looked_into_is_named(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whether runs are in it nobody knows, so it is no silent success."""
    log = synced(rig)
    theirs = rig.run(run_id="theirs").parent
    shut_out(monkeypatch, theirs)
    done, shut = look(rig)

    assert (done.logs, done.fate) == ((log,), Fate.DELETABLE)
    assert (shut.logs, shut.fate) == ((theirs,), Fate.FAILED)
    assert "Permission denied" in shut.reason


def test_patterns_are_taken_as_by_a_sync(rig: Rig) -> None:
    """One in quotes, which no shell has expanded."""
    log = synced(rig)

    assert [found.logs for found in cleaner(rig).look([f"{rig.folder}/run-*-a1b2*"])] == [(log,)]


def test_young_runs_are_kept_where_that_is_asked_for(rig: Rig) -> None:
    """By the time of the log's last change, not by the folder's name; a clock that is ahead makes nothing old."""
    log = synced(rig)
    rig.settle(log, age=3600)

    assert look(rig, older_than=3601)[0].fate is Fate.KEPT
    assert look(rig, older_than=3599)[0].fate is Fate.DELETABLE
    rig.settle(log, age=-50_000)
    assert look(rig, older_than=60)[0].fate is Fate.KEPT


def test_a_run_goes_with_all_its_logs_or_not_at_all(rig: Rig) -> None:
    """A segment that was not sent keeps the others, also when it is not below the path that was given."""
    first = rig.run(start=logs.START_S, exit_code=None)
    second = rig.run(start=logs.START_S + 1000, prefix="run-20260921_150000")
    rig.sync(first, second)
    assert [(item.logs, item.reason) for item in look(rig)] == [((first, second), "")]
    assert "another log of the run" in cleaner(rig).look([second])[0].reason
    third = rig.run(start=logs.START_S + 2000, prefix="run-20260921_160000")
    assert "not synced from here" in reason(rig)
    shutil.rmtree(third.parent)
    (candidate,) = look(rig)

    assert cleaner(rig).delete(candidate) == (Fate.DELETED, "")
    assert list(rig.folder.iterdir()) == []


def test_a_run_of_the_same_id_in_another_project_is_another_run(rig: Rig) -> None:
    """It keeps nothing, and goes nowhere with it."""
    log = synced(rig)
    other = rig.run(project="other", prefix="run-20260921_150000")
    candidate = next(item for item in look(rig) if item.logs == (log,))

    assert cleaner(rig).delete(candidate) == (Fate.DELETED, "")
    assert other.exists()


def test_many_runs_are_looked_at_together(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    """Folders are listed once for all runs in them, and not for each."""
    listed = []
    for number in range(100):
        rig.run(run_id=f"r{number}")
    monkeypatch.setattr("os.listdir", lambda path, real=os.listdir: listed.append(path) or real(path))
    rig.sync()

    assert {item.fate for item in look(rig)} == {Fate.DELETABLE}
    assert listed.count(rig.folder) == 1


def test_only_run_directories_are_deleted(rig: Rig, tmp_path: Path) -> None:
    """A log in a folder of another name, or in one that is a link, stays, and so does what the link leads to."""
    log = synced(rig)
    loose = tmp_path / "loose"
    shutil.copytree(log.parent, loose)
    assert "run directory of its own" in cleaner(rig).look([loose])[0].reason
    moved = tmp_path / log.parent.name
    log.parent.rename(moved)
    log.parent.symlink_to(moved)
    found = cleaner(rig).look([log.parent])[0]
    assert "link" in found.reason
    assert cleaner(rig).delete(found)[0] is Fate.KEPT
    log.parent.unlink()
    log.parent.mkdir()
    log.symlink_to(moved / log.name)
    (found,) = look(rig)
    assert cleaner(rig).delete(found)[0] is Fate.KEPT

    assert (moved / log.name).exists()


def test_a_directory_of_the_same_second_is_a_run_directory(rig: Rig) -> None:
    """The peer puts a number behind its name; any other ending is none of ours."""
    log = synced(rig)
    numbered = log.parent.rename(log.parent.with_name(f"{log.parent.name}-1"))
    assert cleaner(rig).look([numbered])[0].fate is Fate.DELETABLE
    named = numbered.rename(log.parent.with_name(f"{log.parent.name}-copy"))

    assert "run directory of its own" in cleaner(rig).look([named])[0].reason


def test_links_are_not_followed(rig: Rig, tmp_path: Path) -> None:
    """A saved file or folder that is a link goes; what it leads to stays."""
    log = synced(rig)
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "keep.txt").write_text("keep")
    (log.parent / "files" / "linked").symlink_to(tmp_path / "data")
    (log.parent / "files" / "keep.txt").symlink_to(tmp_path / "data" / "keep.txt")
    (candidate,) = look(rig)

    assert cleaner(rig).delete(candidate) == (Fate.DELETED, "")
    assert (tmp_path / "data" / "keep.txt").read_text() == "keep"


def test_a_log_that_another_sync_holds_is_kept(rig: Rig) -> None:
    """The lock is taken before the last look, and given back."""
    log = synced(rig)
    (candidate,) = look(rig)
    other = Lock(log.with_name(log.name + ".lock"), rig.clock)
    other.acquire()

    fate, why = cleaner(rig).delete(candidate)

    assert (fate, "is syncing it" in why) == (Fate.KEPT, True)
    other.release()
    assert cleaner(rig).delete(candidate)[0] is Fate.DELETED


def test_what_changes_after_the_look_is_kept(rig: Rig) -> None:
    """Everything is looked at again: a log that has grown, or a new segment, between the question and the answer."""
    log = synced(rig)
    (candidate,) = look(rig)
    before = log.read_bytes()
    logs.make_log(log, logs.row(9), append=True)
    assert cleaner(rig).delete(candidate)[0] is Fate.KEPT
    log.write_bytes(before)
    rig.settle(log)
    new = rig.run(start=logs.START_S + 500, prefix="run-20260921_150000")

    fate, why = cleaner(rig).delete(candidate)

    assert (fate, str(new) in why) == (Fate.KEPT, True)


@pytest.mark.parametrize("race", ["grows", "new segment", "new file"])
def test_what_changes_at_the_last_moment_is_put_back(rig: Rig, race: str) -> None:
    """Between the last look and the move: the run is where it was, whole, and the next look says why it stays."""
    log = synced(rig)
    (candidate,) = look(rig)
    before = log.read_bytes()
    happened = []

    def rename(source: Path, target: Path) -> None:
        source.rename(target)
        if not happened:
            happened.append(race)
            if race == "grows":
                logs.make_log(target / log.name, logs.row(9), append=True)
            elif race == "new file":
                put(target / "files" / "late.txt", "x")
            else:
                rig.run(start=logs.START_S + 500, prefix="run-20260921_150000")

    fate, why = cleaner(rig, rename=rename).delete(candidate)

    assert (fate, "at this moment" in why or "never sent" in why) == (Fate.KEPT, True)
    assert log.read_bytes().startswith(before)
    assert not log.with_name(log.name + ".lock").exists()
    assert look(rig)[0].fate is Fate.KEPT


def test_a_kill_leaves_a_whole_run_or_none(rig: Rig) -> None:
    """Killed at each move and deletion of a run with two logs: what is left is refused or already done for a sync, and the next clean ends it."""
    requests = []
    for moment in range(1, 8):
        shutil.rmtree(rig.folder)
        rig.folder.mkdir()
        rig.backend.runs.clear()
        first = rig.run(start=logs.START_S, exit_code=None)
        second = rig.run(start=logs.START_S + 1000, prefix="run-20260921_150000")
        rig.sync(first, second)
        held = rig.backend.runs["a1b2c3d4"].stream("history")
        (candidate,) = look(rig)
        steps = [0]

        def kill(port: Callable[..., Any], steps: list[int] = steps, moment: int = moment) -> Callable[..., Any]:
            def step(*arguments: Any) -> None:
                steps[0] += 1
                if steps[0] >= moment:
                    raise SystemExit(f"killed at {moment}")
                port(*arguments)

            return step

        try:
            cleaner(rig, rename=kill(os.rename), remove=kill(shutil.rmtree)).delete(candidate)
        except SystemExit:
            pass
        else:
            break
        for lock in rig.folder.rglob("*.lock"):  # a dead process holds none
            lock.unlink()
        rig.backend.forget()
        left = [log for log in (first, second) if log.exists()]
        if left:
            rig.sync()
        requests.append(len(rig.backend.requests))
        assert rig.backend.runs["a1b2c3d4"].stream("history") == held
        cleaner(rig).sweep([rig.folder])
        for candidate in look(rig):
            assert cleaner(rig).delete(candidate) == (Fate.DELETED, "")
        assert list(rig.folder.iterdir()) == []
    assert len(requests) >= 5
    assert set(requests) == {0}


def test_what_was_moved_but_not_decided_is_put_back(rig: Rig) -> None:
    """A clean that was killed between the move and the last look: the run may have grown, so it comes back."""
    log = synced(rig)
    (rig.folder / TRASH).mkdir()
    log.parent.rename(rig.folder / TRASH / f"{log.parent.name}.0011aabb.moving")
    assert look(rig) == []

    assert cleaner(rig).sweep([rig.folder]) == 0
    assert log.exists()
    assert not (rig.folder / TRASH).exists()


def test_what_was_decided_is_deleted_with_all_logs_of_the_run(rig: Rig) -> None:
    """A clean that was killed between the names of two directories: they were moved together and go together."""
    log = synced(rig)
    other = rig.run(prefix="run-20260921_150000")
    (rig.folder / TRASH).mkdir()
    log.parent.rename(rig.folder / TRASH / f"{log.parent.name}.0011aabb")
    other.parent.rename(rig.folder / TRASH / f"{other.parent.name}.0011aabb.moving")
    assert cleaner(rig).leftovers([rig.folder]) == 2

    assert cleaner(rig).sweep([rig.folder]) == 2
    assert list(rig.folder.iterdir()) == []


def test_what_another_clean_is_at_is_left_to_it(rig: Rig) -> None:
    """The lock moves with the directory; what lies in the trash under a living one is not swept."""
    log = synced(rig)
    (rig.folder / TRASH).mkdir()
    moved = log.parent.rename(rig.folder / TRASH / f"{log.parent.name}.0011aabb.moving")
    lock = Lock(moved / f"{log.name}.lock", rig.clock)
    lock.acquire()
    assert cleaner(rig).leftovers([rig.folder]) == cleaner(rig).sweep([rig.folder]) == 0
    assert (moved / log.name).exists()
    lock.release()

    assert cleaner(rig).sweep([rig.folder]) == 0
    assert log.exists()


def test_one_directory_that_cannot_be_put_back_keeps_no_other_away(rig: Rig) -> None:
    """Each is moved back, the one that stays in the trash is named, and the next clean tries again."""
    first = rig.run(start=logs.START_S, exit_code=None)
    second = rig.run(start=logs.START_S + 1000, prefix="run-20260921_150000")
    rig.sync(first, second)
    (candidate,) = look(rig)

    def rename(source: Path, target: Path) -> None:
        if target == second.parent:
            raise PermissionError(1, "Operation not permitted")
        source.rename(target)
        if target.parent.name == TRASH and source == second.parent:
            put(target / "files" / "late.txt", "x")

    fate, why = cleaner(rig, rename=rename).delete(candidate)

    assert (fate, first.exists(), second.exists()) == (Fate.FAILED, True, False)
    assert TRASH in why
    assert "cannot be moved back: Operation not permitted" in why
    for lock in (rig.folder / TRASH).rglob("*.lock"):  # a dead process holds none
        lock.unlink()
    assert cleaner(rig).sweep([rig.folder]) == 0
    assert second.exists()


def test_a_directory_that_cannot_be_written_is_kept(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing is tried there."""
    synced(rig)
    monkeypatch.setattr("runferry.sync.clean.is_writable", lambda _: False)

    assert "cannot be written" in reason(rig)


def test_a_failure_halfway_says_what_is_left(rig: Rig) -> None:
    """A file that cannot be deleted: the run is gone, its rest is named, and the next clean goes on."""
    synced(rig)
    (candidate,) = look(rig)

    def fails(_: Path) -> None:
        raise PermissionError(1, "Operation not permitted")

    fate, why = cleaner(rig, remove=fails).delete(candidate)
    assert (fate, "the next clean goes on: Operation not permitted" in why) == (Fate.FAILED, True)
    assert look(rig) == []

    assert cleaner(rig).sweep([rig.folder]) == 1
    assert list(rig.folder.iterdir()) == []
