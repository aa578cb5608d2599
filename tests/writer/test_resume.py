"""Going on with a run: what its earlier logs say, which run a restart belongs to, and what the server holds then."""

from __future__ import annotations

import errno
import multiprocessing
import os
import random
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path

import pytest
import runferry
from runferry.logformat import RunState, find_logs, load, messages, read_records
from runferry.writer import resume
from runferry.writer.earlier import EarlierLog, logs_of, newest_logs, read_ends, stitch
from runferry.writer.identity import Behind
from runferry.writer.ranks import Role
from runferry.writer.resume import ResumeError
from runferry.writer.settings import Settings, resolve
from support import logs, peer
from support.clock import FakeClock
from support.server import serve
from support.syncrig import Rig

NOW_S = 1_800_000_000.0


@pytest.fixture(autouse=True)
def a_process_of_its_own(monkeypatch):
    """Ids are derived as in a process that has derived none yet."""
    monkeypatch.setattr(resume, "_derived", Counter())


@pytest.fixture
def rig(tmp_path):
    return Rig(tmp_path)


def make(root, run_id="seg", start=0.0, steps=(), exit_code=None, age=3600.0, rows_at=None, more=(), **run):
    """A log of a run: rows of `steps` a second apart, their times from `rows_at` on; it last grew `age` s before now."""
    stamp = time.strftime("%Y%m%d_%H%M%S", time.localtime(logs.START_S + start))
    log = Path(root) / "wandb" / f"run-{stamp}-{run_id}" / f"run-{run_id}.wandb"
    records = [logs.run_record(run_id, start=logs.START_S + start, **{"project": "p", **run})]
    for number, step in enumerate(steps):
        record = messages.Record(history=messages.HistoryRecord())
        runtime = (rows_at or 0) + number
        for key, text in {"_step": f"{step}", "_runtime": f"{runtime}", "loss": "0.5"}.items():
            record.history.item.add(nested_key=[key], value_json=text)
        records.append(record)
    records += more
    if exit_code is not None:
        exit_ = messages.RunExitRecord(exit_code=exit_code, runtime=int((rows_at or 0) + len(steps)))
        records.append(messages.Record(exit=exit_))
    logs.make_log(log, *records)
    logs.set_age(log, age, now=NOW_S)
    return log


def begin_at(root, environ=None, role=Role.FULL, argv=("train.py",), agent=None, **given):
    """Where `init` would begin."""
    environ = environ or {}
    settings = resolve(Settings(dir=root, **{"project": "p", **given}), None, environ)
    return resume.begin(settings, environ, role, now_s=lambda: NOW_S, argv=argv, agent=agent)


# -- reading earlier logs --------------------------------------------------------------------------------------------


def test_both_ends_of_a_log_are_read(tmp_path):
    """First and last step, the time taken, the exit, and whose log it is."""
    log = make(tmp_path, steps=range(3, 9), exit_code=7, entity="team", resume=True)

    found = read_ends(log)

    assert found == EarlierLog(
        path=log,
        run_id="seg",
        project="p",
        entity="team",
        start_ns=int(logs.START_S * 1e9),
        resumed=True,
        first_step=3,
        last_step=8,
        runtime_s=6.0,
        exit_code=7,
        modified_s=NOW_S - 3600,
    )


@pytest.mark.parametrize("noise", [0, 40_000, 400_000])
def test_the_last_row_is_found_behind_whatever_follows_it(tmp_path, noise):
    """Samples and output behind the last row, of many blocks, do not hide it."""
    rest = [logs.output("x" * 997 + "\n", 5) for _ in range(noise // 1000)]
    log = make(tmp_path, steps=range(5), more=[*rest, logs.sample(9.5)])

    found = read_ends(log)

    assert (found.first_step, found.last_step, found.runtime_s, found.exit_code) == (0, 4, 9.5, None)


@pytest.mark.parametrize(
    ("steps", "last"),
    [
        ([0, "NaN", 7, "5.0"], 8),
        (["NaN"] * 3, 2),
        ([3, "1e3", "null"], 5),
        ([9, *["NaN"] * 2_000], 2_009),  # more of them than are read at first
    ],
)
def test_rows_without_a_step_count(tmp_path, steps, last):
    """A sync numbers them behind the row before, so the next segment begins behind those numbers."""
    assert read_ends(make(tmp_path, steps=steps)).last_step == last


def test_a_row_of_a_lower_step_at_the_end_is_not_the_last_step(tmp_path):
    """A late row does not take the run back."""
    assert read_ends(make(tmp_path, steps=[0, 1, 2, 3, 1])).last_step == 3


def test_a_large_log_costs_no_more_than_a_small_one(tmp_path):
    """Of 8 MiB, less than a tenth is read."""
    log = make(tmp_path, steps=range(60_000))
    size = log.stat().st_size
    before = _bytes_read()

    found = read_ends(log)

    assert size > 3_000_000
    assert found.last_step == 59_999
    if before is not None:
        assert _bytes_read() - before < HEAD_AND_TAIL


HEAD_AND_TAIL = 1 << 20 | 1 << 17
"""Bytes: one read of the reader at the head, and the last blocks."""


def _bytes_read():
    """Bytes that this process has read so far; None where nobody counts."""
    counters = Path("/proc/self/io")
    return int(counters.read_text().split()[1]) if counters.exists() else None


def test_a_log_of_output_only_is_given_up_in_the_end(tmp_path, monkeypatch):
    """Where no row is near the end, the rest of the log is not read, and it says so."""
    monkeypatch.setattr("runferry.writer.earlier.TAIL_BYTES", (1 << 16,))
    log = make(tmp_path, steps=range(2), more=[logs.output("x" * 30_000, 5) for _ in range(9)])

    found = read_ends(log)

    assert (found.last_step, found.whole) == (None, False)
    # Its first row is known: that is less than the log holds, but it is a run that has begun.
    start = begin_at(tmp_path, id="seg", resume="allow")
    assert start.behind.step == 1
    assert f"{log}: no row near its end" in start.warnings[0]
    with pytest.raises(ResumeError):
        begin_at(tmp_path, id="seg", resume="never")


def test_a_log_that_is_zeros_behind_its_run_record_is_not_read_through(tmp_path, monkeypatch):
    """A disk that lost the middle of a huge log costs as much as any other: both ends."""
    monkeypatch.setattr("runferry.writer.earlier.TAIL_BYTES", (1 << 16,))
    log = make(tmp_path)
    os.truncate(log, 1 << 28)
    before = _bytes_read()

    found = read_ends(log)

    assert (found.project, found.has_begun, found.whole) == ("p", False, False)
    if before is not None:
        assert _bytes_read() - before < HEAD_AND_TAIL


def test_a_huge_config_does_not_hide_whose_log_it_is(tmp_path):
    """The run record may be larger than the part of the beginning that is read first."""
    log = make(tmp_path, steps=range(3), config={"text": "x" * 2_000_000})
    found = read_ends(log)

    assert (found.project, found.first_step, found.last_step) == ("p", 0, 2)


@pytest.mark.parametrize("zone", ["UTC", "Asia/Tokyo", "America/New_York"])
@pytest.mark.parametrize("stamp", ["00010101_000000", "99991231_235959"])
def test_a_date_that_cannot_be_is_no_start(tmp_path, monkeypatch, stamp, zone):
    """Where the run record is lost the directory's name tells the start, whatever stands there."""
    monkeypatch.setenv("TZ", zone)
    time.tzset()
    try:
        log = tmp_path / "wandb" / f"run-{stamp}-seg" / "run-seg.wandb"
        logs.make_log(log, logs.row(4))

        assert begin_at(tmp_path, id="seg", resume="allow").behind.step == 5
    finally:
        monkeypatch.undo()
        time.tzset()


@pytest.mark.parametrize("error", [errno.EACCES, errno.EIO, errno.ESTALE])
def test_a_log_that_cannot_be_read_is_told(tmp_path, monkeypatch, error):
    """It may hold steps that are logged again now: that is not passed over in silence."""
    log = make(tmp_path, steps=range(5))
    real = os.open

    def refused(path, *args, **options):
        if path == log:
            raise OSError(error, os.strerror(error))
        return real(path, *args, **options)

    monkeypatch.setattr(os, "open", refused)
    start = begin_at(tmp_path, id="seg", resume="allow")

    assert start.behind is None
    assert str(log) in start.warnings[0]


@pytest.mark.parametrize("seed", range(40))
def test_damage_costs_only_what_it_touched(tmp_path, seed):
    """Cut anywhere or with garbage in it: what is found is what the log says, or less; nothing is raised."""
    rng = random.Random(seed)
    log = make(tmp_path, steps=range(2_000))
    data = bytearray(log.read_bytes())
    if seed % 2:
        del data[rng.randrange(len(data)) :]
    else:
        start = rng.randrange(len(data))
        data[start : start + 3_000] = rng.randbytes(min(3_000, len(data) - start))
    log.write_bytes(data)

    found = read_ends(log)

    if found is not None and found.last_step is not None:
        assert 0 <= found.first_step <= found.last_step < 2_000
        assert found.project in {"p", None}
        expected = max(row["_step"] for row in _rows(log))
        assert found.last_step == expected


def _rows(log):
    return load(log).rows


def test_what_is_no_log_of_the_run_is_ignored(tmp_path):
    """Links, pipes, folders, other formats, logs that say another id than their name: none is read."""
    folder = tmp_path / "wandb"
    real = make(tmp_path, steps=range(3))
    places = [folder / f"run-20260101_00000{number}-seg" for number in range(7)]
    for place in places[1:]:
        place.mkdir()
    places[0].symlink_to(real.parent)
    (places[1] / "run-seg.wandb").symlink_to(real)
    os.mkfifo(places[2] / "run-seg.wandb")
    (places[3] / "run-seg.wandb").mkdir()
    (places[4] / "run-seg.wandb").write_bytes(b"<html>")
    logs.make_log(places[5] / "run-seg.wandb", logs.run_record("../../other"), logs.row(9))
    logs.make_log(places[6] / "run-seg.wandb", logs.run_record("other"), logs.row(9))

    found = [read_ends(path) for path in sorted(logs_of(folder, "seg"))]

    assert [log.path for log in found if log is not None and log.has_begun] == [real]
    assert [log.path for log in newest_logs(folder) if log.has_begun] == [real]


@pytest.mark.parametrize(("last", "first"), [(2**63 - 1, 2**63 - 1), (2**64, 0), (-7, 0)])
def test_steps_at_the_ends_of_their_range(tmp_path, last, first):
    """The next step is one that a row can have, and that `log` would give."""
    make(tmp_path, steps=[-9, last])

    assert begin_at(tmp_path, id="seg", resume="allow").behind.step == first


def test_a_sample_tells_the_time_of_a_log_that_goes_on(tmp_path):
    """Behind the time that the run had taken before it."""
    make(tmp_path, steps=range(3), rows_at=100, runtime=100, more=[logs.sample(9.5)])

    assert begin_at(tmp_path, id="seg", resume="allow").behind.runtime_s == 109.5


def test_a_log_without_a_project_is_of_the_default_one(tmp_path):
    """As a sync sees it."""
    make(tmp_path, steps=range(3), project="")

    assert begin_at(tmp_path, id="seg", resume="allow", project=None).behind.step == 3


def test_a_time_before_that_cannot_be_is_none(tmp_path):
    """A run record that says that the run took a thousand years does not make the next one take longer."""
    make(tmp_path, steps=range(5), runtime=2**31 - 1)

    assert begin_at(tmp_path, id="seg", resume="allow").behind.runtime_s == 4.0


def test_names_lead_to_logs(tmp_path):
    """A directory's name that was taken has a number behind it; an id that contains another one is another one."""
    folder = tmp_path / "wandb"
    for name in ("run-20260101_000000-a", "offline-run-20260101_000000-a-12", "run-20260101_000000-ab", "run-x-a"):
        (folder / name).mkdir(parents=True)

    assert {path.parent.name for path in logs_of(folder, "a")} == {
        "run-20260101_000000-a",
        "offline-run-20260101_000000-a-12",
    }
    assert {path.name for path in logs_of(folder, "a-12")} == {"run-a-12.wandb"}
    assert logs_of(tmp_path / "nowhere", "a") == []
    assert list(newest_logs(tmp_path / "nowhere")) == []


def log_of(start, first, last, runtime, **more):
    """The ends of a log, `start` seconds after the first."""
    return EarlierLog(
        Path(f"{start}"), "seg", "p", "", start, False, first_step=first, last_step=last, runtime_s=runtime, **more
    )


@pytest.mark.parametrize(
    ("several", "last", "runtime"),
    [
        ([], None, 0),
        ([log_of(0, 0, 9, 10.5)], 9, 10.5),
        # Of the peer: each begins at step 0 and at no time.
        ([log_of(0, 0, 9, 10), log_of(1, 0, 4, 5)], 14, 15),
        # Of ours: steps and times go on.
        ([log_of(0, 0, 9, 10), log_of(1, 10, 14, 15, began_at_s=10)], 14, 15),
        # From an older checkpoint: the highest step counts.
        ([log_of(0, 0, 9, 10), log_of(1, 6, 7, 12, began_at_s=10)], 9, 12),
        # A node's samples, and a segment without a row.
        ([log_of(0, 0, 9, 10), log_of(1, None, None, 3, began_at_s=10)], 9, 10),
        ([log_of(2, 0, 4, 5), log_of(0, 0, 9, 10)], 14, 15),
    ],
)
def test_the_logs_of_a_run_together(several, last, runtime):
    """Ordered by start; steps and time as a sync stitches them."""
    assert stitch(several) == (last, runtime)


# -- where a run begins ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("mode", ["allow", "must", "auto", True])
def test_a_run_goes_on_behind_its_logs(tmp_path, mode):
    """The next step and the time taken so far come from the logs of that id in the folder."""
    make(tmp_path, steps=range(100))
    make(tmp_path, "other", steps=range(999))

    start = begin_at(tmp_path, id="seg", resume=mode)

    assert (start.settings.run_id, start.behind) == ("seg", (100, 99.0))
    assert start.settings.continues
    assert start.warnings == ()
    assert "goes on at step 100" in start.notes[0]


@pytest.mark.parametrize("mode", ["allow", "auto"])
def test_a_run_without_logs_begins(tmp_path, mode):
    """Nothing is there, so nothing is said."""
    start = begin_at(tmp_path, id="seg", resume=mode)

    assert start == start._replace(behind=None, notes=(), warnings=())
    assert (start.settings.run_id, start.settings.continues) == ("seg", True)


def test_must_without_a_log_says_what_cannot_be_known(tmp_path):
    """The run may be at a server, which is not asked: steps begin at 0, with a warning."""
    start = begin_at(tmp_path, id="seg", resume="must")

    assert (start.behind, start.settings.continues) == (None, True)
    assert "cannot be asked here" in start.warnings[0]


def test_must_needs_to_know_which_run(tmp_path):
    """Without an id there is nothing to resume."""
    with pytest.raises(ResumeError, match="needs the id"):
        begin_at(tmp_path, resume="must")


def test_never_refuses_a_run_that_has_a_log(tmp_path):
    """The error names the log; without one, or without an id, the run begins."""
    log = make(tmp_path, steps=range(3))

    with pytest.raises(ResumeError, match=f"{log}.*another id"):
        begin_at(tmp_path, id="seg", resume="never")
    assert begin_at(tmp_path, id="new", resume="never").settings.run_id == "new"
    assert not begin_at(tmp_path, resume="never").settings.continues


def test_a_log_of_system_metrics_is_no_earlier_run(tmp_path):
    """Another node's sampler may have begun before rank 0: `never` does not mean it."""
    make(tmp_path, more=[logs.sample(1)])

    assert begin_at(tmp_path, id="seg", resume="never").settings.run_id == "seg"
    assert begin_at(tmp_path, id="seg", resume="allow").behind is None


def test_the_same_id_in_another_project_is_another_run(tmp_path):
    """A sync would not put the two together, so the steps do not go on; it is said."""
    make(tmp_path, steps=range(5), project="q")

    start = begin_at(tmp_path, id="seg", resume="allow")

    assert start.behind is None
    assert "project 'q'" in start.warnings[0]


def test_a_log_that_still_grows_is_named(tmp_path):
    """Two processes may log to one run, but nobody should do so unawares; a job that was restarted has no such twin."""
    make(tmp_path, steps=range(5), age=3)

    assert "grew 3 s ago" in begin_at(tmp_path, id="seg", resume="allow").warnings[0]


def test_the_log_that_still_grows_need_not_be_the_last_to_start(tmp_path):
    """A clock that was put back gives a later segment an earlier start."""
    alive = make(tmp_path, steps=range(5), age=3)
    make(tmp_path, start=50, steps=range(5), exit_code=1)

    assert str(alive) in begin_at(tmp_path, id="seg", resume="allow").warnings[0]


def test_a_change_in_the_future_says_nothing_of_life(tmp_path):
    """Once a clock was a year ahead, `auto` would start anew for a year."""
    make(tmp_path, steps=range(5), age=-365 * 86_400)

    assert begin_at(tmp_path, resume="auto").behind.step == 5


def test_auto_looks_at_run_directories_only(tmp_path):
    """Files of other names, however many, do not hide the last run."""
    make(tmp_path, steps=range(5))
    for number in range(100):
        (tmp_path / "wandb" / f"run-z{number}").touch()

    assert begin_at(tmp_path, resume="auto").behind.step == 5


def test_auto_tells_runs_of_one_second_apart(tmp_path):
    """The names of their directories give no order: the start times do."""
    make(tmp_path, "zz", 0.1, steps=range(3), exit_code=0)
    make(tmp_path, "aa", 0.2, steps=range(5))
    make(tmp_path, "mm", 0.0, steps=range(7))

    assert begin_at(tmp_path, resume="auto").settings.run_id == "aa"


def test_auto_takes_up_the_last_run_that_was_cut_off(tmp_path):
    """The newest run of the project in the folder, however it was cut off; logs without rows do not count."""
    make(tmp_path, "old", steps=range(3))
    make(tmp_path, "killed", 100, steps=range(5), exit_code=143)
    make(tmp_path, "samples", 200, more=[logs.sample(1)])
    make(tmp_path, "else", 300, steps=range(9), project="q")

    start = begin_at(tmp_path, resume="auto")

    assert (start.settings.run_id, start.behind.step) == ("killed", 5)
    assert start.settings.given_id


@pytest.mark.parametrize(("exit_code", "age"), [(0, 3600), (None, 3)])
def test_auto_begins_anew_behind_a_run_that_finished_or_goes_on(tmp_path, exit_code, age):
    """Also where an older run was cut off: only the last one is meant."""
    make(tmp_path, "old", steps=range(3))
    make(tmp_path, "last", 100, steps=range(5), exit_code=exit_code, age=age)

    start = begin_at(tmp_path, resume="auto")

    assert start.settings.run_id not in {"old", "last"}
    assert (start.behind, start.settings.continues) == (None, False)


def test_an_id_that_has_logs_is_told_where_nothing_is_said_of_going_on(tmp_path, capsys):
    """A sync makes one run of them all, and rows of the same steps: told once at `init`, before anything is logged."""
    make(tmp_path, "same", steps=range(8), project="uncategorized")
    make(tmp_path, "same", start=10, steps=range(8), project="uncategorized")
    make(tmp_path, "same", start=20, steps=range(8), project="other")  # another run
    make(tmp_path, "same", start=30, project="uncategorized")  # a node's, with neither rows nor an end
    runferry.init(dir=tmp_path, id="same", settings=QUIET)
    runferry.finish()
    said = capsys.readouterr().err
    runferry.init(dir=tmp_path, id="other", settings=QUIET)

    assert said.count("run same has 2 logs here already: a sync joins them and this one; resume=") == 1
    assert "already" not in capsys.readouterr().err
    assert begin_at(tmp_path, id="same").warnings == ()
    assert begin_at(tmp_path, id="same", project="uncategorized", role=Role.SAMPLER).warnings == ()


def test_without_resume_and_id_nothing_is_looked_for(tmp_path, monkeypatch):
    """The usual start of a run reads no folder."""
    monkeypatch.setattr(resume, "logs_of", None)
    monkeypatch.setattr(resume, "newest_logs", None)

    assert not begin_at(tmp_path).settings.given_id
    assert begin_at(tmp_path, {"SLURM_JOB_ID": "1", "SLURM_RESTART_COUNT": "1"}).behind is None
    assert begin_at(tmp_path, id="seg", mode="disabled", resume="must").behind is None
    assert begin_at(tmp_path, id="seg", role=Role.NONE, resume="must").behind is None


# -- restarts --------------------------------------------------------------------------------------------------------

SLURM = {"SLURM_JOB_ID": "77", "SLURM_CLUSTER_NAME": "alpha"}
TORCHRUN = {"TORCHELASTIC_RUN_ID": "none", "TORCHELASTIC_RESTART_COUNT": "0"}


def anew():
    """As in a new process."""
    resume._derived.clear()


@pytest.mark.parametrize(
    ("first", "again"),
    [
        (SLURM, SLURM | {"SLURM_RESTART_COUNT": "1"}),
        (TORCHRUN, TORCHRUN | {"TORCHELASTIC_RESTART_COUNT": "1"}),
        (
            TORCHRUN | {"TORCHELASTIC_RUN_ID": "rdzv"},
            {"TORCHELASTIC_RUN_ID": "rdzv", "TORCHELASTIC_RESTART_COUNT": "4"},
        ),
    ],
)
@pytest.mark.parametrize("mode", ["auto", "allow"])
def test_a_restart_is_the_same_run(tmp_path, first, again, mode):
    """Killed and started again by its launcher, a job goes on with its run, though nobody gave an id."""
    before = begin_at(tmp_path, first, resume=mode, agent=lambda: "agent")
    make(tmp_path, before.settings.run_id, steps=range(50), age=2)
    anew()
    after = begin_at(tmp_path, again, resume=mode, agent=lambda: "agent")

    assert before.settings.run_id == after.settings.run_id
    assert (before.behind, after.behind.step) == (None, 50)
    assert after.warnings == ()


def test_runs_that_share_a_job_are_different_runs(tmp_path):
    """The second run of a process, another command line, another project, another rank that is a run of its own."""
    starts = [
        begin_at(tmp_path, SLURM, resume="auto"),
        begin_at(tmp_path, SLURM, resume="auto"),
        begin_at(tmp_path, SLURM, resume="auto", argv=["train.py", "--seed", "2"]),
        begin_at(tmp_path, SLURM, resume="auto", project="q"),
        begin_at(tmp_path, SLURM | {"RANK": "0"}, resume="auto", ranks="all"),
        begin_at(tmp_path, SLURM | {"RANK": "1"}, resume="auto", ranks="all"),
    ]

    assert len({start.settings.run_id for start in starts}) == len(starts)


AGAIN = SLURM | {"SLURM_RESTART_COUNT": "1"}


def test_a_restart_with_another_command_line_is_told_of_the_run_that_was_cut_off(tmp_path):
    """A requeue script that adds an argument begins a new run, but not without the id of the one it may mean."""
    before = begin_at(tmp_path, SLURM, resume="auto", argv=["loop.py", "100"])
    make(tmp_path, before.settings.run_id, steps=range(50), age=300)
    make(tmp_path, "done", start=10, steps=range(5))  # cut off once, and finished since
    make(tmp_path, "done", start=20, steps=range(5), exit_code=0)
    make(tmp_path, "else", start=30, steps=range(5), project="q")
    make(tmp_path, "live", start=40, steps=range(5), age=2)  # of the same job, perhaps, and started again already
    anew()
    start = begin_at(tmp_path, AGAIN, resume="auto", argv=["loop.py", "100", "--from-ckpt"])

    assert start.behind is None
    assert "".join(start.warnings) == (
        f"restart 1 of job 77, but no log with this command line in {tmp_path / 'wandb'}: a new run begins; the last"
        f" run that was cut off is {before.settings.run_id}: give id= (or RUNFERRY_RUN_ID) to go on with it"
    )


def test_a_restart_names_a_run_that_was_killed_just_now(tmp_path):
    """Where no other was cut off: a launcher may be quicker than a log takes to look dead."""
    make(tmp_path, "killed", steps=range(5), age=1)

    assert "is killed: give id=" in begin_at(tmp_path, AGAIN, resume="auto").warnings[0]


def test_a_restart_that_finds_no_run_at_all_is_a_note(tmp_path):
    """The next command of a script that was cut off in the one before it, or a folder that is not the first one."""
    make(tmp_path, "done", steps=range(5), exit_code=0)
    start = begin_at(tmp_path, AGAIN, resume="auto")

    assert start.warnings == ()
    assert start.notes == (
        f"restart 1 of job 77, but no log with this command line in {tmp_path / 'wandb'}: a new run begins",
    )
    assert begin_at(tmp_path, SLURM, resume="auto").notes == ()


def test_a_restart_whose_first_attempt_logged_no_row_says_nothing(tmp_path):
    """Its log is there, and there is nothing to go on behind."""
    before = begin_at(tmp_path, SLURM, resume="auto")
    make(tmp_path, before.settings.run_id)
    make(tmp_path, "other", steps=range(5))
    anew()
    start = begin_at(tmp_path, AGAIN, resume="auto")

    assert (start.behind, start.notes, start.warnings) == (None, (), ())


def test_all_nodes_of_a_job_agree_on_the_run(tmp_path):
    """What samples another node's metrics logs to the run of rank 0, and reads no log for it."""
    zero = begin_at(tmp_path, SLURM | {"SLURM_PROCID": "0"}, resume="auto")
    anew()
    eight = begin_at(tmp_path, SLURM | {"SLURM_PROCID": "8", "SLURM_LOCALID": "0"}, Role.SAMPLER, resume="auto")

    assert zero.settings.run_id == eight.settings.run_id
    assert eight.settings.given_id  # so it does not end the run that it shares


def test_a_run_of_the_job_that_finished_is_not_gone_on_with(tmp_path):
    """The same command twice in one job, without a restart between: the second is a run of its own."""
    first = begin_at(tmp_path, SLURM, resume="auto")
    make(tmp_path, first.settings.run_id, steps=range(5), exit_code=0)
    anew()
    second = begin_at(tmp_path, SLURM, resume="auto")

    assert second.settings.run_id != first.settings.run_id
    assert "has finished" in second.notes[0]


def test_must_goes_on_with_a_finished_run_of_the_job(tmp_path):
    """Whoever insists on the job's run gets it."""
    first = begin_at(tmp_path, SLURM, resume="must")
    make(tmp_path, first.settings.run_id, steps=range(5), exit_code=0)
    anew()

    assert begin_at(tmp_path, SLURM, resume="must").behind.step == 5


def test_never_makes_no_id_of_a_job(tmp_path):
    """Without an id a run is new, whatever started it."""
    assert not begin_at(tmp_path, SLURM, resume="never").settings.given_id


def test_processes_of_one_program_are_different_runs(tmp_path, monkeypatch):
    """`multiprocessing` gives each a name, the same in every attempt."""
    first = begin_at(tmp_path, SLURM, resume="auto")
    anew()
    monkeypatch.setattr(multiprocessing.current_process(), "_name", "Process-1")

    assert begin_at(tmp_path, SLURM, resume="auto").settings.run_id != first.settings.run_id


def test_a_given_id_stands_before_a_job(tmp_path):
    """Whoever names the run means that one."""
    assert begin_at(tmp_path, SLURM, id="mine", resume="auto").settings.run_id == "mine"
    assert begin_at(tmp_path, SLURM | {"WANDB_RUN_ID": "mine"}, resume="auto").settings.run_id == "mine"


def test_the_runs_of_all_ranks_are_a_group(tmp_path):
    """Where every process is a run, they are grouped by their job, unless a group was given."""
    environ = SLURM | {"SLURM_NTASKS": "4"}

    assert begin_at(tmp_path, environ, ranks="all").settings.group == "77"
    assert begin_at(tmp_path, environ, ranks="all", group="mine").settings.group == "mine"
    assert begin_at(tmp_path, environ).settings.group == ""
    assert begin_at(tmp_path, SLURM, ranks="all").settings.group == ""


# -- the whole of it -------------------------------------------------------------------------------------------------

QUIET = {"disable_stats": True, "disable_meta": True}
SEGMENT = """
import os, sys, runferry
run = runferry.init(dir=sys.argv[1], project="p", id="seg", resume=sys.argv[2], durability="record",
                    settings={"disable_stats": True, "disable_meta": True, "silent": True})
print(run.starting_step, run.step, run.resumed, flush=True)
for _ in range(int(sys.argv[3])):
    run.log({"loss": 1 / (1 + run.step)})
if sys.argv[4] == "killed":
    os.kill(os.getpid(), 9)
"""


def segment(folder, mode, rows, end="finished"):
    """A process that logs a segment: what it said."""
    command = [sys.executable, "-c", SEGMENT, str(folder), mode, str(rows), end]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == (-9 if end == "killed" else 0), done.stderr
    return done.stdout.split()


def in_order(folder):
    """The logs of a folder by their start."""
    return sorted(find_logs(folder / "wandb"), key=lambda log: load(log).info.start_time_ns)


def test_a_killed_run_goes_on_in_a_new_log(tmp_path):
    """Steps and times go on; the run record says where from; both logs fold into one run, the last exit is its own."""
    assert segment(tmp_path, "allow", 30, "killed") == ["0", "0", "False"]
    assert segment(tmp_path, "must", 5) == ["30", "30", "True"]

    first, second = map(load, in_order(tmp_path))
    assert [row["_step"] for row in (*first.rows, *second.rows)] == list(range(35))
    runtimes = [row["_runtime"] for row in (*first.rows, *second.rows)]
    assert runtimes == sorted(runtimes)
    assert (second.info.starting_step, second.info.resume, second.info.run_id) == (30, True, "seg")
    both = RunState().add_all(item for log in in_order(tmp_path) for item in read_records(log))
    assert (both.row_count, both.last_step, both.exit_code) == (35, 34, 0)
    assert both.summary["_step"] == 34


def test_three_segments_are_one_run_at_the_server(tmp_path, rig):
    """By our own sync, in any order and in several commands: the rows of the logs, each once, with their own steps."""
    for rows, end in ((4, "killed"), (3, "killed"), (2, "finished")):
        segment(rig.folder.parent, "allow", rows, end)
    found = in_order(rig.folder.parent)
    rows = [row for log in found for row in load(log).rows]
    rig.clock.advance(time.time() + 3600 - rig.clock.time())

    for some in ([found[0]], [found[2], found[0], found[1]]):
        rig.sync(*some)

    run = rig.backend.runs["seg"]
    assert run.rows == rows
    assert [row["_step"] for row in run.rows] == list(range(9))
    assert run.summary["_step"] == 8
    assert run.exit_code == 0


def test_the_time_of_a_run_is_that_of_all_its_segments(begin, tmp_path, state):
    """Rows, summary and exit record go on from the time that the run had taken; so does what a further log says."""
    clock = FakeClock()
    run = begin(clock=clock, behind=Behind(step=7, runtime_s=100.25), id="seg", resume="allow")
    run.log({"a": 1})
    run.flush()
    clock.advance(50)
    run.log({"a": 2})
    report = run.finish()

    found = state(*report.paths)
    assert [row["_runtime"] for row in found.rows] == [100.25, 150.25]
    assert [row["_step"] for row in found.rows] == [7, 8]
    assert (found.exit_runtime, found.summary["_wandb"]["runtime"]) == (150, 150)
    record = next(item for item in read_records(report.paths[0]) if item.kind == "run").message()
    assert (record.starting_step, record.runtime) == (7, 100)
    assert read_ends(report.paths[0]).runtime_s == pytest.approx(150.25)
    assert (run.resumed, run.starting_step) == (True, 7)


def test_the_first_row_may_go_back_to_an_older_checkpoint(begin, state):
    """Its step is kept as given and is not late; a lower step later on is."""
    said = []
    run = begin(warn=said.append, behind=Behind(step=100), id="seg", resume="allow")
    for step in (60, 61, 62):
        run.log({"a": step}, step=step)
    run.log({"a": 63})
    report = run.finish()

    assert {row["_step"]: row["a"] for row in state(*report.paths).rows} == {60: 60, 61: 61, 62: 63}
    assert report.rows_late == 0
    assert said == []


@pytest.mark.parametrize("first", [None, 100, 150])
def test_a_lower_step_than_those_of_this_log_is_late(begin, first):
    """Only the first row of a resumed run may go back."""
    said = []
    run = begin(warn=said.append, behind=Behind(step=100), id="seg", resume="allow")
    run.log({"a": 1}, step=first)
    run.log({"a": 2}, step=60)

    assert run.finish().rows_late == 1
    assert len(said) == 1


def test_a_minimum_is_that_of_all_segments(begin, tmp_path):
    """Each log's summary speaks for its own rows; the run's for all: extremes, means, first values."""
    values = [[3.0, 1.0, 2.0], [5.0, 4.0], [9.0]]
    clock, paths, step = FakeClock(), [], 0
    for number, some in enumerate(values):
        run = begin(clock=clock, behind=Behind(step, 1.0) if number else None, id="seg", resume="allow")
        run.define_metric("loss", summary="min,max,mean,first,last")
        run.define_metric("acc", summary="best", goal="maximize")
        for value in some:
            run.log({"loss": value, "acc": value, "plain": value})
        paths += run.finish().paths
        step += len(some)
        clock.advance(10)

    found = RunState().add_all(item for path in paths for item in read_records(path))
    assert found.summary["loss"] == {"min": 1.0, "max": 9.0, "mean": 4.0, "first": 3.0, "last": 9.0}
    assert found.summary["acc"] == {"best": 9.0}
    assert found.summary["plain"] == 9.0
    assert load(paths[1]).summary["loss"]["min"] == 4.0


def test_a_minimum_is_that_of_all_segments_of_the_peer(tmp_path):
    """The peer writes what a row makes of the summary before the row itself."""
    metric = messages.Record(
        metric=messages.MetricRecord(name="loss", summary=messages.MetricSummary(min=True), options={"defined": True})
    )
    records = []
    for number, some in enumerate([[3.0, 1.0], [5.0, 4.0]]):
        records += [logs.run_record("seg", start=logs.START_S + number, resume=True), metric]
        for step, value in enumerate(some):
            records += [
                logs.summary_record({"loss": {"min": min(some[: step + 1])}, "_step": step}),
                logs.row(step, {"loss": value}),
            ]
    log = logs.make_log(tmp_path / "run-seg.wandb", *records)

    assert load(log).summary["loss"] == {"min": 1.0}


def test_init_tells_where_a_run_goes_on(tmp_path, capsys):
    """One line, as the rest of what `init` says; warnings also where it is to be quiet."""
    make(tmp_path, "seg", steps=range(8), project="uncategorized")
    run = runferry.init(dir=tmp_path, id="seg", resume="allow", settings=QUIET)
    run.log({"a": 1})
    runferry.finish()

    said = capsys.readouterr().err
    assert said.count("goes on at step 8") == 1
    runferry.init(dir=tmp_path, id="new", resume="must", settings=QUIET | {"quiet": True})
    assert "steps begin at 0" in capsys.readouterr().err


def test_init_refuses_what_cannot_be(tmp_path):
    """As an error of usage, before anything is written."""
    make(tmp_path, "seg", steps=range(8), project="uncategorized")
    before = sorted(tmp_path.rglob("*"))

    with pytest.raises(runferry.UsageError, match="never"):
        runferry.init(dir=tmp_path, id="seg", resume="never", settings=QUIET)
    assert sorted(tmp_path.rglob("*")) == before
    assert runferry.run is None


def test_a_recorded_command_goes_on(tmp_path):
    """`record --resume`: the same run in a new log, or the same refusal."""

    def record(mode):
        command = [sys.executable, "-m", "runferry.cli", "record", "--dir", tmp_path, "--id", "seg", "--resume", mode]
        return subprocess.run([*command, "--", "false"], capture_output=True, text=True, timeout=60, check=False)

    assert record("allow").returncode == 1
    again = record("allow")
    refused = record("never")

    assert "goes on at step 0" in again.stderr
    assert [load(log).info.resume for log in in_order(tmp_path)] == [True, True]
    assert refused.returncode == 2
    assert "never" in refused.stderr


@pytest.mark.peer
@pytest.mark.skipif(bool(peer.missing()), reason=peer.missing())
def test_the_peer_renumbers_nothing(tmp_path):
    """`wandb sync` of the logs of a run that was killed and resumed: their rows, steps and times as logged."""
    segment(tmp_path, "allow", 30, "killed")
    segment(tmp_path, "allow", 5, "killed")
    segment(tmp_path, "allow", 2)
    found = in_order(tmp_path)
    with serve(tmp_path / "server") as server:
        peer.sync(found, server.url, server.key, tmp_path)
        rows = server.history("local", "p", "seg")
        run = server.run("local", "p", "seg")

    assert rows == [row for log in found for row in load(log).rows]
    assert [row["_step"] for row in rows] == list(range(37))
    assert (run["state"], run["exit_code"], run["summary"]["_step"]) == ("finished", 0, 36)
