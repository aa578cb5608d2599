"""Shares of the runs: every run in exactly one, whoever asks and whatever else there is."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from runferry.sync import Shard, SyncSettings, UsageError, Verdict, preview
from support import logs
from support.syncrig import Rig

NAMES = st.tuples(st.none() | st.text(max_size=8), st.text(max_size=8), st.text(min_size=1, max_size=8))


@given(names=st.sets(NAMES, max_size=30), count=st.integers(1, 12))
def test_shares_are_a_partition(names: set[tuple[str | None, str, str]], count: int) -> None:
    """Each name is in one share, and in the same one whatever other names there are."""
    for name in names:
        assert sum(Shard(index, count).holds(*name) for index in range(1, count + 1)) == 1


def test_shares_stay_what_they_are() -> None:
    """The share of a name is the same in every process and version: two machines must agree."""
    held = [next(i for i in range(1, 6) if Shard(i, 5).holds("team", "proj", f"run{n}")) for n in range(12)]

    assert held == [3, 5, 1, 1, 2, 3, 2, 5, 4, 3, 5, 4]


def test_shares_are_of_about_one_size() -> None:
    """Of 4,000 runs each of eight shares has 500, give or take what chance does."""
    sizes = [sum(Shard(index, 8).holds(None, "proj", f"r{n}") for n in range(4000)) for index in range(1, 9)]

    assert sum(sizes) == 4000
    assert all(400 < size < 600 for size in sizes), sizes


@pytest.mark.parametrize("text", ["", "3", "0/4", "5/4", "1/0", "a/b", "1/2/3", "-1/4", "1.0/4", "1/ 4", "٢/4"])
def test_what_is_no_share_is_a_usage_error(text: str) -> None:
    """Shares are counted from 1; nothing is guessed."""
    with pytest.raises(UsageError, match="shard"):
        Shard.parse(text, {})


SLURM = {"SLURM_ARRAY_TASK_MIN": "10", "SLURM_ARRAY_TASK_MAX": "13", "SLURM_ARRAY_TASK_COUNT": "4"}


@pytest.mark.parametrize(
    ("environ", "share"),
    [
        ({"SLURM_ARRAY_TASK_ID": "10", **SLURM, "SLURM_ARRAY_TASK_STEP": "1"}, "1/4"),
        ({"SLURM_ARRAY_TASK_ID": "13", **SLURM}, "4/4"),
        (
            {
                "SLURM_ARRAY_TASK_ID": "4",
                "SLURM_ARRAY_TASK_MIN": "0",
                "SLURM_ARRAY_TASK_MAX": "8",
                "SLURM_ARRAY_TASK_STEP": "4",
                "SLURM_ARRAY_TASK_COUNT": "3",
            },
            "2/3",
        ),
        ({"SLURM_ARRAY_TASK_ID": "0", "SLURM_ARRAY_TASK_MIN": "0", "SLURM_ARRAY_TASK_COUNT": "2"}, "1/2"),
        (
            {"SGE_TASK_ID": "7", "SGE_TASK_FIRST": "1", "SGE_TASK_LAST": "10", "SGE_TASK_STEPSIZE": "3"},
            "3/4",
        ),
        ({"AWS_BATCH_JOB_ARRAY_INDEX": "0", "AWS_BATCH_JOB_ARRAY_SIZE": "9"}, "1/9"),
        ({"BATCH_TASK_INDEX": "4", "BATCH_TASK_COUNT": "5"}, "5/5"),
    ],
)
def test_an_array_job_knows_its_share(environ: dict[str, str], share: str) -> None:
    """By the variables of Slurm, Grid Engine, AWS Batch and Google Cloud Batch, wherever their counting begins."""
    assert str(Shard.parse("auto", environ)) == share


@pytest.mark.parametrize(
    ("environ", "says"),
    [
        ({}, "no task of an array job"),
        ({"SGE_TASK_ID": "undefined"}, "no task of an array job"),
        ({"SLURM_PROCID": "0", "SLURM_NTASKS": "4"}, "no task of an array job"),
        ({"SLURM_ARRAY_TASK_ID": "3"}, "how many tasks"),
        ({"SLURM_ARRAY_TASK_ID": "1", "SLURM_ARRAY_TASK_COUNT": "4"}, "where the tasks begin (SLURM_ARRAY_TASK_MIN)"),
        ({"PBS_ARRAY_INDEX": "3"}, "--shard $PBS_ARRAY_INDEX/N"),
        ({"JOB_COMPLETION_INDEX": "0"}, "--shard $((JOB_COMPLETION_INDEX + 1))/N if from 0"),
        ({"LSB_JOBINDEX": "3"}, "of how many"),
        ({"SLURM_ARRAY_TASK_ID": "7", **SLURM, "SLURM_ARRAY_TASK_MAX": "20"}, "not numbered evenly"),
        ({"SLURM_ARRAY_TASK_ID": "11", **SLURM, "SLURM_ARRAY_TASK_STEP": "2"}, "not numbered evenly"),
        ({"SLURM_ARRAY_TASK_ID": "10", **SLURM, "SLURM_ARRAY_TASK_MAX": "20"}, "not numbered evenly"),
        ({"SLURM_ARRAY_TASK_ID": "3", **SLURM, "SLURM_ARRAY_TASK_MAX": "many"}, "not numbers"),
    ],
)
def test_what_does_not_say_its_share_is_asked_for_it(environ: dict[str, str], says: str) -> None:
    """A job that is no array, one whose system gives no count, and a list of odd numbers: no run may be left out by a guess."""
    with pytest.raises(UsageError, match=re.escape(says)):
        Shard.parse("auto", environ)


def test_all_logs_of_a_run_are_in_one_share(rig: Rig, tmp_path: Path) -> None:
    """Every share syncs its own runs, with all their segments; together they are all; a bad log is told by one of them."""
    for number in range(12):
        rig.run(run_id=f"r{number}", rows=2)
        rig.run(run_id=f"r{number}", rows=2, prefix="run-20260921_150000", start=logs.START_S + 100, resume=True)
    (rig.folder / "run-bad.wandb").write_bytes(b"no log")
    reports = [rig.sync(shard=f"{index}/3") for index in (1, 2, 3)]

    synced = [{run.run for run in report.runs if run.run} for report in reports]
    assert [len([run for run in report.runs if run.run]) for report in reports] == [2 * len(runs) for runs in synced]
    assert sum(map(len, synced)) == len(set().union(*synced)) == 12
    assert [report.left_out for report in reports] == [{"shard": 12 - len(runs)} for runs in synced]
    assert sum(run.run is None for report in reports for run in report.runs) == 1
    assert all(len(run.rows) == 4 for run in rig.backend.runs.values())


def test_the_share_follows_the_target(rig: Rig) -> None:
    """Logs that become one run are of one share, whatever they said."""
    for number in range(6):
        rig.run(run_id=f"r{number}", rows=1, start=logs.START_S + number)
    counts = [len(rig.sync(run_id="one", shard=f"{index}/4", dry_run=True).runs) for index in range(1, 5)]

    assert sorted(counts) == [0, 0, 0, 6]


def test_a_log_of_no_run_is_told_by_the_same_share_wherever_it_is_mounted(tmp_path: Path) -> None:
    """Two machines that see a tree under different paths leave no damaged log untold between them."""
    for mount in ("here", "there"):
        for number in range(8):
            bad = tmp_path / mount / "wandb" / f"run-20260921_141320-r{number}" / f"run-r{number}.wandb"
            bad.parent.mkdir(parents=True)
            bad.write_bytes(b"no log")

    def told(mount: str, share: str) -> list[str]:
        found = preview(tmp_path / mount, SyncSettings(shard=Shard.parse(share), state_dir=tmp_path / "state"))
        return [Path(path).name for path in found.problems]

    assert sorted(told("here", "1/2") + told("there", "2/2")) == [f"run-r{number}.wandb" for number in range(8)]
    assert 0 < len(told("here", "1/2")) < 8


def test_a_log_that_lost_its_run_record_is_of_its_runs_share(rig: Rig) -> None:
    """Else two syncs would send one run, each without knowing where the other's rows go."""
    for number in range(6):
        rig.run(run_id=f"r{number}", rows=2, project="mine")
        lost = rig.run(run_id=f"r{number}", rows=2, prefix="run-20260921_150000", start=logs.START_S + 100)
        content = bytearray(lost.read_bytes())
        content[content.index(b"proj")] ^= 0xFF  # in the run record: its checksum does not hold any more
        lost.write_bytes(content)
        rig.settle(lost)
    reports = [rig.sync(shard=f"{index}/3") for index in (1, 2, 3)]

    assert sorted(run.run for report in reports for run in report.runs) == sorted([f"r{n}" for n in range(6)] * 2)
    assert {run.target.split("/")[1] for report in reports for run in report.runs} == {"mine"}
    assert all(len(run.rows) == 4 for run in rig.backend.runs.values())
    reasons = {run.reason for report in reports for run in report.runs if run.verdict is Verdict.PARTIAL}
    assert all("project and entity are those of the run's other logs" in reason for reason in reasons)
    assert len(reasons) > 0
