"""Which process of which job: tables of what launchers set."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from runferry.writer.ranks import Rank, Role, job_of, rank_of, world_size


@pytest.mark.parametrize(
    ("environ", "rank", "role"),
    [
        ({"RUNFERRY_RANK": "0", "RANK": "3", "LOCAL_RANK": "3"}, Rank(0, 0), Role.FULL),
        ({"RUNFERRY_RANK": "4", "RUNFERRY_LOCAL_RANK": "0"}, Rank(4, 0), Role.SAMPLER),
        ({"RUNFERRY_RANK": "4"}, Rank(4, 4), Role.NONE),
        ({"RANK": "1" * 5_000, "LOCAL_RANK": "0.5", "NODE_RANK": ""}, Rank(0, 0), Role.FULL),
        ({"RUNFERRY_RANK": "-1", "RANK": "2", "LOCAL_RANK": "2"}, Rank(2, 2), Role.NONE),
        # A pod of a Kubernetes job has a rank alone: each node's sampler is asked for in the pod's template.
        ({"RUNFERRY_LOCAL_RANK": "0", "RANK": "2", "WORLD_SIZE": "4"}, Rank(2, 0), Role.SAMPLER),
        ({"RUNFERRY_LOCAL_RANK": "x", "RANK": "2", "WORLD_SIZE": "4"}, Rank(2, 2), Role.NONE),
    ],
)
def test_our_own_variables_stand_before_those_of_launchers(environ, rank, role):
    """A job whose launcher is unknown here says which process is which by RUNFERRY_RANK."""
    assert rank_of(environ) == rank
    assert rank_of(environ).role is role


@pytest.mark.parametrize(
    ("environ", "rank", "role"),
    [
        ({"LOCAL_RANK": "1", "WORLD_SIZE": "2"}, Rank(1, 1), Role.NONE),
        ({"LOCAL_RANK": "0", "NODE_RANK": "0", "WORLD_SIZE": "2"}, Rank(0, 0), Role.FULL),
        ({"LOCAL_RANK": "0", "NODE_RANK": "1", "WORLD_SIZE": "4"}, Rank(4, 0), Role.SAMPLER),
        ({"LOCAL_RANK": "1", "NODE_RANK": "1", "WORLD_SIZE": "4"}, Rank(5, 1), Role.NONE),
        # Inside a Slurm job's only task, too; one of several tasks is told apart by Slurm, whatever the job exports.
        ({"LOCAL_RANK": "1", "SLURM_PROCID": "0", "SLURM_LOCALID": "0"}, Rank(1, 1), Role.NONE),
        ({"LOCAL_RANK": "0", "SLURM_PROCID": "8", "SLURM_LOCALID": "0"}, Rank(8, 0), Role.SAMPLER),
        ({"LOCAL_RANK": "1", "SLURM_PROCID": "9", "SLURM_LOCALID": "1"}, Rank(9, 1), Role.NONE),
        ({"RANK": "0", "LOCAL_RANK": "1"}, Rank(0, 1), Role.FULL),
        ({"RUNFERRY_RANK": "0", "LOCAL_RANK": "1"}, Rank(0, 0), Role.FULL),
    ],
)
def test_a_local_rank_alone_tells_the_processes_of_a_node_apart(environ, rank, role):
    """As Lightning starts them: without this, each of them would log a run."""
    assert rank_of(environ) == rank
    assert rank_of(environ).role is role


@pytest.mark.parametrize(
    "environ",
    [
        {"MV2_COMM_WORLD_RANK": "9", "MV2_COMM_WORLD_LOCAL_RANK": "1"},
        {"PALS_RANKID": "9", "PALS_LOCAL_RANKID": "1", "PMI_RANK": "9", "PMI_LOCAL_RANK": "1"},
        {"FLUX_TASK_RANK": "9", "FLUX_TASK_LOCAL_ID": "1", "PMI_RANK": "9"},
        {"JSM_NAMESPACE_RANK": "9", "JSM_NAMESPACE_LOCAL_RANK": "1", "PMIX_RANK": "9"},
        {"PMIX_RANK": "9", "PMIX_LOCAL_RANK": "1"},
        {"PMI_RANK": "9", "MPI_LOCALRANKID": "1"},
        # Tasks that are started from a shell in an allocation carry the shell's job name.
        {"SLURM_PROCID": "9", "SLURM_LOCALID": "1", "SLURM_JOB_NAME": "interactive", "SLURM_STEP_NUM_TASKS": "16"},
    ],
)
def test_launchers_ranks(environ):
    """Where several sets of variables are there, the one with a local rank stands first."""
    assert rank_of(environ) == Rank(9, 1)


@pytest.mark.parametrize(
    ("environ", "size"),
    [
        ({}, 1),
        ({"WORLD_SIZE": "8"}, 8),
        ({"SLURM_NTASKS": "4"}, 4),
        ({"SLURM_STEP_NUM_TASKS": "1", "SLURM_NTASKS": "4"}, 1),
        ({"SLURM_NTASKS": "4", "SLURM_JOB_NAME": "bash"}, 1),
        ({"SLURM_STEP_NUM_TASKS": "4", "SLURM_NTASKS": "8", "SLURM_JOB_NAME": "interactive"}, 4),
        ({"OMPI_COMM_WORLD_SIZE": "2"}, 2),
        ({"MV2_COMM_WORLD_SIZE": "2"}, 2),
        ({"FLUX_JOB_SIZE": "2"}, 2),
        ({"WORLD_SIZE": "x", "PMI_SIZE": "0"}, 1),
    ],
)
def test_the_number_of_processes(environ, size):
    """Each launcher's variable; one process where none says anything."""
    assert world_size(environ) == size


SLURM = {"SLURM_JOB_ID": "1234", "SLURM_CLUSTER_NAME": "alpha"}
TORCHRUN = {"TORCHELASTIC_RUN_ID": "5d0c", "TORCHELASTIC_RESTART_COUNT": "0"}


@pytest.mark.parametrize(
    ("first", "again"),
    [
        (SLURM, SLURM | {"SLURM_RESTART_COUNT": "1"}),
        (SLURM | {"SLURM_RESTART_COUNT": "0"}, SLURM | {"SLURM_RESTART_COUNT": "12"}),
        (SLURM | {"SLURM_STEP_ID": "0"}, SLURM | {"SLURM_STEP_ID": "0", "SLURM_RESTART_COUNT": "1"}),
        # The number of an array's task may change, its place in the array does not.
        (
            SLURM | {"SLURM_ARRAY_JOB_ID": "1200", "SLURM_ARRAY_TASK_ID": "7"},
            SLURM
            | {
                "SLURM_JOB_ID": "1300",
                "SLURM_ARRAY_JOB_ID": "1200",
                "SLURM_ARRAY_TASK_ID": "7",
                "SLURM_RESTART_COUNT": "1",
            },
        ),
        (TORCHRUN, TORCHRUN | {"TORCHELASTIC_RESTART_COUNT": "1"}),
        (TORCHRUN | {"TORCHELASTIC_RUN_ID": "none"}, {"TORCHELASTIC_RESTART_COUNT": "2"}),
        # torchrun in Slurm: its agent is another one after a requeue, and so may be its name.
        (SLURM | TORCHRUN, SLURM | {"TORCHELASTIC_RUN_ID": "77", "SLURM_RESTART_COUNT": "1"}),
        (SLURM | TORCHRUN, SLURM | TORCHRUN | {"TORCHELASTIC_RESTART_COUNT": "3"}),
    ],
)
def test_a_job_that_runs_again_is_the_same_job(first, again):
    """The identity stays, and only the later attempt is a restart."""
    before, after = job_of(first, lambda: "agent"), job_of(again, lambda: "agent")

    assert before.identity == after.identity
    assert (before.restarts, after.restarts > 0) == (0, True)


def test_restarts_are_counted_by_the_outer_launcher_that_restarts():
    """A requeue of Slurm starts torchrun anew, whose own count begins at 0 then."""
    assert job_of(SLURM | {"SLURM_RESTART_COUNT": "2"}).restarts == 2
    assert job_of(SLURM | TORCHRUN | {"TORCHELASTIC_RESTART_COUNT": "3"}).restarts == 3
    assert job_of(SLURM | TORCHRUN | {"SLURM_RESTART_COUNT": "2"}).restarts == 2


def test_different_jobs_differ():
    """Cluster, job, array task, step, name of the rendezvous, agent: each tells jobs apart."""
    jobs = [
        job_of(SLURM),
        job_of(SLURM | {"SLURM_CLUSTER_NAME": "beta"}),
        job_of(SLURM | {"SLURM_JOB_ID": "1235"}),
        job_of(SLURM | {"SLURM_STEP_ID": "0"}),
        job_of(SLURM | {"SLURM_STEP_ID": "1"}),
        job_of(SLURM | {"SLURM_ARRAY_JOB_ID": "1234", "SLURM_ARRAY_TASK_ID": "0"}),
        job_of(SLURM | {"SLURM_ARRAY_JOB_ID": "1234", "SLURM_ARRAY_TASK_ID": "1"}),
        job_of(TORCHRUN),
        job_of(TORCHRUN | {"TORCHELASTIC_RUN_ID": "1234"}),
        job_of(TORCHRUN | {"TORCHELASTIC_RUN_ID": "none"}, lambda: "agent 1"),
        job_of(TORCHRUN | {"TORCHELASTIC_RUN_ID": "none"}, lambda: "agent 2"),
    ]

    assert len({job.identity for job in jobs}) == len(jobs)


@pytest.mark.parametrize(
    ("environ", "name"),
    [
        (SLURM, "1234"),
        (SLURM | {"SLURM_ARRAY_JOB_ID": "1200", "SLURM_ARRAY_TASK_ID": "7"}, "1200_7"),
        (TORCHRUN, "5d0c"),
        (TORCHRUN | {"TORCHELASTIC_RUN_ID": "none"}, ""),
    ],
)
def test_jobs_are_named_as_their_tools_name_them(environ, name):
    """The name becomes the group of the job's runs; a name that says nothing is none."""
    assert job_of(environ, lambda: "agent").name == name


@pytest.mark.parametrize(
    "environ",
    [
        {},
        {"RANK": "0", "WORLD_SIZE": "8"},
        {"SLURM_PROCID": "0"},
        {"SLURM_RESTART_COUNT": "2"},
        SLURM | {"SLURM_JOB_NAME": "interactive"},
        SLURM | {"SLURM_JOB_NAME": "bash", "SLURM_STEP_ID": "0", "SLURM_STEP_NUM_TASKS": "1"},
    ],
)
def test_what_identifies_no_job(environ):
    """Ranks alone, as other launchers give them, belong to any job; what a user starts in a shell, to none."""
    assert job_of(environ) is None


def test_an_agent_that_cannot_be_seen_identifies_nothing():
    """Where the parent's start cannot be read, a restart is a new run rather than somebody else's."""
    assert job_of({"TORCHELASTIC_RUN_ID": "none", "TORCHELASTIC_RESTART_COUNT": "1"}, lambda: "") is None


@pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="no /proc")
def test_the_agent_is_the_parent_process():
    """Two workers of one parent see the same agent, with its start time and the machine's boot."""
    environ = {"TORCHELASTIC_RESTART_COUNT": "0"}

    assert job_of(environ).identity == job_of(environ).identity
    assert f" {os.getppid()} " in job_of(environ).identity[1]
