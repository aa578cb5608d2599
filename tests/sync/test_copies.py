"""Copies of one log: one of them counts, and no row is sent twice."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from runferry.logformat import FILE_HEADER, load
from runferry.sync import Verdict
from runferry.sync.clean import Cleaner, Fate
from runferry.sync.settings import SyncSettings
from runferry.sync.todo import Todo, preview
from support import logs
from support.fakebackend import URL
from support.segments import RUN, held, row, segment
from support.syncrig import Rig, cursor

ROWS = 40


def run_with_rows(rig: Rig, rows: int = ROWS) -> Path:
    """A run directory with the first log of a run."""
    return segment(rig, "A", (0, rows))


def copied(rig: Rig, log: Path, folder: str, cut: int = 0) -> Path:
    """A copy of a log in its run directory elsewhere, without its last `cut` bytes."""
    other = rig.folder.parent / folder / log.parent.name / log.name
    other.parent.mkdir(parents=True)
    other.write_bytes(log.read_bytes()[: -cut or None])
    rig.settle(other, 60)
    return other


def verdicts(rig: Rig, *paths: Path) -> dict[str, tuple[Verdict, str]]:
    report = rig.sync(*paths)
    return {run.log: (run.verdict, run.reason) for run in report.runs}


def rows_of(rig: Rig) -> int:
    return len(rig.backend.runs[RUN].rows)


def changed(log: Path, at: int) -> None:
    """Damage one byte of a log."""
    data = bytearray(log.read_bytes())
    data[at] ^= 0xFF
    log.write_bytes(data)


def offset_of_row(log: Path, number: int) -> int:
    """Where a key of the n-th row lies."""
    at = -1
    for _ in range(number):
        at = log.read_bytes().index(b"_step", at + 1)
    return at


def test_a_folder_that_was_copied_with_its_links_followed(rig: Rig) -> None:
    """`latest-run` becomes a folder of its own: the log in the run directory counts, and the other is told."""
    log = run_with_rows(rig)
    other = rig.folder / "latest-run" / log.name
    shutil.copytree(log.parent, other.parent)

    report = rig.sync()

    assert report.exit_code == 0
    assert {run.log: run.verdict for run in report.runs} == {str(log): Verdict.SYNCED, str(other): Verdict.SKIPPED}
    assert next(run.reason for run in report.runs if run.log == str(other)) == f"a copy of {log}"
    assert (rows_of(rig), held(rig)["last_runtime"]) == (ROWS, ROWS - 1)


def test_an_older_backup_and_the_finished_log(rig: Rig) -> None:
    """The longest counts, whichever was named first, also where the backup is cut in the middle of a record."""
    log = run_with_rows(rig)
    backup = copied(rig, log, "backup", cut=701)

    found = verdicts(rig, backup.parent, log.parent)

    assert found == {str(log): (Verdict.SYNCED, ""), str(backup): (Verdict.SKIPPED, f"a copy of {log}")}
    assert rows_of(rig) == ROWS


@pytest.mark.parametrize("together", [True, False])
def test_a_backup_that_was_sent_before_the_whole_log(rig: Rig, *, together: bool) -> None:
    """The whole log goes on behind what the backup's sync left, with it or without it; the backup then has nothing to send."""
    log = run_with_rows(rig)
    backup = copied(rig, log, "backup", cut=701)
    rig.sync(backup)
    assert 0 < rows_of(rig) < ROWS

    rig.sync(*([backup, log] if together else [log]))
    assert rows_of(rig) == ROWS

    assert verdicts(rig, backup, log)[str(log)] == (Verdict.SYNCED, "nothing new")
    assert rows_of(rig) == ROWS


def test_a_copy_that_is_sent_after_the_log(rig: Rig) -> None:
    """By a command of its own it finds its rows at the server, and doubles none."""
    log = run_with_rows(rig)
    rig.sync()
    copy = copied(rig, log, "media")

    report = rig.sync(copy)

    assert (rig.only(report).verdict, rig.only(report).rows_sent, rows_of(rig)) == (Verdict.SYNCED, 0, ROWS)


def test_of_equal_logs_the_one_that_was_sent_counts(rig: Rig) -> None:
    """So nothing is asked of the server for the other one."""
    log = run_with_rows(rig)
    rig.sync()
    copy = copied(rig, log, "a_name_before")
    rig.backend.forget()

    found = verdicts(rig, copy, log)

    assert found == {str(log): (Verdict.SYNCED, "nothing new"), str(copy): (Verdict.SKIPPED, f"a copy of {log}")}
    assert rig.backend.requests == []


@pytest.mark.parametrize("part", ["a row", "the run record"])
def test_a_damaged_copy(rig: Rig, part: str) -> None:
    """It has no records of its own, so the log counts, though both have one length; without a run record its rows tell."""
    log = run_with_rows(rig)
    copy = copied(rig, log, "a_copy")
    changed(copy, offset_of_row(copy, 20) if part == "a row" else len(FILE_HEADER) + 12)

    found = verdicts(rig, copy, log)

    assert found == {str(log): (Verdict.SYNCED, ""), str(copy): (Verdict.SKIPPED, f"a copy of {log}")}
    assert rows_of(rig) == ROWS


def test_two_copies_that_both_grew(rig: Rig) -> None:
    """The one with more records is sent; the other fails and names it, because it holds what is not sent."""
    log = run_with_rows(rig)
    copy = copied(rig, log, "media")
    start = logs.START_S
    logs.make_log(copy, row(900, 900.0, start, who="X"), append=True)
    logs.make_log(log, *[row(step, step, start, who="A") for step in range(ROWS, ROWS + 40)], append=True)

    report = rig.sync(copy, log)

    reasons = {run.log: (run.verdict, run.reason) for run in report.runs}
    assert reasons[str(copy)] == (
        Verdict.FAILED,
        f"differs from {log}, which has the same start: sync one of them",
    )
    assert report.exit_code == 1
    assert rows_of(rig) == ROWS + 40
    with pytest.raises(ValueError, match="differs from"):
        load(copy, log)


def test_two_writers_that_began_together_are_no_copies(rig: Rig) -> None:
    """The writer ids of their environment records tell them apart."""
    for name, writer in (("A", "one"), ("B", "two")):
        segment(rig, name, (0, 3) if name == "A" else (3, 3), more=[logs.environment_record(writer_id=writer)])
    for log in rig.folder.glob("*/*.wandb"):
        records = [logs.run_record(RUN), logs.environment_record(writer_id=log.parent.name)]
        first = 0 if "20260921" in log.parent.name else 3
        logs.make_log(log, *records, *[row(first + i, i, logs.START_S, who="A") for i in range(3)], logs.exit_record())
        rig.settle(log)

    report = rig.sync()

    assert [run.verdict for run in report.runs] == [Verdict.SYNCED] * 2
    assert rows_of(rig) == 6


def test_a_copy_joins_no_run_by_itself(rig: Rig) -> None:
    """A copy beside the log that was sent takes no part in a sync of that log, nor in one of a later log of the run."""
    log = run_with_rows(rig)
    rig.sync()
    other = rig.folder / "offline-run-20260921_141320-seg" / log.name
    shutil.copytree(log.parent, other.parent)
    assert cursor(other).exists()
    assert verdicts(rig, log) == {str(log): (Verdict.SYNCED, "nothing new")}
    later = segment(rig, "B", (ROWS, 5))

    report = rig.sync(later)

    assert len(report.runs) == 2
    assert rows_of(rig) == ROWS + 5


def test_others_that_read_logs_pass_copies_over(rig: Rig) -> None:
    """The preview and `load` take the log that counts."""
    log = run_with_rows(rig)
    copy = copied(rig, log, "backup", cut=701)
    settings = SyncSettings(base_url=URL, state_dir=rig.state)

    found = preview([copy, log], settings, clock=rig.clock)

    assert [(run.logs, run.todo) for run in found.runs] == [((str(log),), Todo.ALL)]
    assert (found.copies, found.problems) == ({str(copy): f"a copy of {log}"}, {})
    assert load(copy, log).row_count == ROWS
    assert load(copy, log).exit_code == 0


def test_a_copy_is_not_deleted_with_the_log(rig: Rig) -> None:
    """The log that counts may go; its copy is kept, and named as one."""
    log = run_with_rows(rig)
    rig.sync()
    copy = rig.folder.parent / "backup" / log.parent.name / log.name
    shutil.copytree(log.parent, copy.parent)

    cleaner = Cleaner(state_dir=rig.state, clock=rig.clock)
    found = {candidate.logs: candidate for candidate in cleaner.look([copy.parent, log.parent])}

    kept = [candidate for candidate in found.values() if candidate.fate is Fate.KEPT]
    going = [candidate for candidate in found.values() if candidate.fate is Fate.DELETABLE]
    assert (len(kept), len(going)) == (1, 1)
    assert kept[0].reason == f"a copy of {going[0].logs[0]}"
    assert cleaner.delete(going[0]) == (Fate.DELETED, "")
    assert kept[0].logs[0].exists()
