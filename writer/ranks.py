"""Which process of which job this one is: what it records, and what is the same when the job runs again.

Everything here is read from the variables that launchers set, as they are documented:

| | rank | processes | the job, the same after a restart | which attempt |
|---|---|---|---|---|
| torchrun | RANK, LOCAL_RANK | WORLD_SIZE | TORCHELASTIC_RUN_ID, or the agent | TORCHELASTIC_RESTART_COUNT |
| Slurm | SLURM_PROCID, SLURM_LOCALID | SLURM_STEP_NUM_TASKS, SLURM_NTASKS | SLURM_JOB_ID, array job and task | SLURM_RESTART_COUNT |
| Open MPI | OMPI_COMM_WORLD_RANK, _LOCAL_RANK | OMPI_COMM_WORLD_SIZE | | |
| MVAPICH | MV2_COMM_WORLD_RANK, _LOCAL_RANK | MV2_COMM_WORLD_SIZE | | |
| Cray PALS | PALS_RANKID, PALS_LOCAL_RANKID | PMI_SIZE | | |
| Flux | FLUX_TASK_RANK, FLUX_TASK_LOCAL_ID | FLUX_JOB_SIZE | | |
| jsrun | JSM_NAMESPACE_RANK, _LOCAL_RANK | JSM_NAMESPACE_SIZE | | |
| other PMIx | PMIX_RANK, PMIX_LOCAL_RANK | | | |
| MPICH, Intel MPI | PMI_RANK, MPI_LOCALRANKID | PMI_SIZE | | |
| Lightning's own | NODE_RANK, LOCAL_RANK | WORLD_SIZE | | |

RUNFERRY_RANK and RUNFERRY_LOCAL_RANK stand before all of them, each for itself.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from enum import Enum
from pathlib import Path
from typing import NamedTuple

# (global rank, rank on this node), the inner launcher before the outer one. The first set that gives a rank decides.
# A launcher's local rank can be missing; then only global rank 0 samples.
_LAUNCHERS = (
    ("RUNFERRY_RANK", "RUNFERRY_LOCAL_RANK"),
    ("RANK", "LOCAL_RANK"),
    ("SLURM_PROCID", "SLURM_LOCALID"),
    ("OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_LOCAL_RANK"),
    ("MV2_COMM_WORLD_RANK", "MV2_COMM_WORLD_LOCAL_RANK"),
    ("PALS_RANKID", "PALS_LOCAL_RANKID"),
    ("FLUX_TASK_RANK", "FLUX_TASK_LOCAL_ID"),
    ("JSM_NAMESPACE_RANK", "JSM_NAMESPACE_LOCAL_RANK"),
    ("PMIX_RANK", "PMIX_LOCAL_RANK"),
    ("PMI_RANK", "MPI_LOCALRANKID"),
)
_SIZES = (
    "WORLD_SIZE",
    "SLURM_STEP_NUM_TASKS",
    "SLURM_NTASKS",
    "OMPI_COMM_WORLD_SIZE",
    "MV2_COMM_WORLD_SIZE",
    "FLUX_JOB_SIZE",
    "JSM_NAMESPACE_SIZE",
    "PMI_SIZE",
)
_SHELLS = {"interactive", "bash"}
"""Names of Slurm jobs that are a shell, unless somebody chose another."""


class Role(Enum):
    """What a process records."""

    FULL = "full"
    """Metrics, console and system metrics: rank 0, and every process outside a distributed job."""
    SAMPLER = "sampler"
    """System metrics only: local rank 0 of every other node."""
    NONE = "none"
    """Nothing: its calls do nothing."""


class Rank(NamedTuple):
    """A process's place in its job."""

    rank: int = 0
    local_rank: int = 0

    @property
    def role(self) -> Role:
        """What it records."""
        if self.rank == 0:
            return Role.FULL
        return Role.SAMPLER if self.local_rank == 0 else Role.NONE


class Job(NamedTuple):
    """What the processes of one job have in common, and keep when the job is started again."""

    name: str
    """As the scheduler's tools print it; empty where it is no name that a person would know."""
    identity: tuple[str, ...]
    """Differs between any two jobs; the same in every attempt of one."""
    restarts: int
    """How often it was started again: 0 in the first attempt."""


def rank_of(environ: Mapping[str, str]) -> Rank:
    """This process's rank, by the variables that launchers set; rank 0 where there are none."""
    rank, local = _launched(environ)
    own = _number(environ.get("RUNFERRY_LOCAL_RANK"))
    return Rank(rank, local if own is None else own)


def _launched(environ: Mapping[str, str]) -> Rank:
    found = Rank()
    for rank_name, local_name in _LAUNCHERS:
        if rank_name.startswith("SLURM") and _is_shell(environ):
            continue
        rank = _number(environ.get(rank_name))
        if rank is not None:
            local = _number(environ.get(local_name))
            found = Rank(rank, rank if local is None else local)
            break
    if found.rank or any(_number(environ.get(name)) is not None for name in ("RUNFERRY_RANK", "RANK")):
        return found
    # Lightning starts the other processes of a node as copies of the first, and tells them no more than this.
    node, local = (_number(environ.get(name)) or 0 for name in ("NODE_RANK", "LOCAL_RANK"))
    return Rank(node * world_size(environ) + local, local) if node or local else found


def world_size(environ: Mapping[str, str]) -> int:
    """How many processes the job has; 1 where no launcher says so."""
    for name in _SIZES:
        if name.startswith("SLURM") and _is_shell(environ):
            continue
        if size := _number(environ.get(name)):
            return size
    return 1


def _is_shell(environ: Mapping[str, str]) -> bool:
    """Whether Slurm's variables are those of a shell that someone works in: they say nothing of what is run there."""
    tasks = _number(environ.get("SLURM_STEP_NUM_TASKS")) or 1
    return environ.get("SLURM_JOB_NAME") in _SHELLS and tasks == 1


def job_of(environ: Mapping[str, str], agent: Callable[[], str] | None = None) -> Job | None:
    """The job that this process belongs to; None where nothing tells.

    A Slurm job that is requeued keeps its number, so Slurm comes first: a torchrun inside it is started anew then. A
    step of the job (`srun`) is part of the identity, so that two steps side by side are two. What is run from a shell
    in an allocation is started by nobody but its user.

    Args:
        environ: the environment.
        agent: what identifies the process that torchrun restarts its workers from; the real one unless given.
    """
    torchrun = _torchrun(environ, agent or _agent)
    number = environ.get("SLURM_JOB_ID", "")
    if not number or _is_shell(environ):
        return torchrun
    task = environ.get("SLURM_ARRAY_TASK_ID", "")
    name = f"{environ.get('SLURM_ARRAY_JOB_ID') or number}_{task}" if task else number
    identity = ("slurm", environ.get("SLURM_CLUSTER_NAME", ""), name, environ.get("SLURM_STEP_ID", ""))
    restarts = _number(environ.get("SLURM_RESTART_COUNT")) or 0
    return Job(name, identity, restarts or (torchrun.restarts if torchrun else 0))


def _torchrun(environ: Mapping[str, str], agent: Callable[[], str]) -> Job | None:
    restarts = _number(environ.get("TORCHELASTIC_RESTART_COUNT"))
    name = environ.get("TORCHELASTIC_RUN_ID", "")
    if restarts is None and not name:
        return None
    if name in {"", "none"}:  # the default: every job of that kind has this name
        process = agent()
        return Job("", ("torchrun agent", process), restarts or 0) if process else None
    return Job(name, ("torchrun", name), restarts or 0)


def _agent() -> str:
    """The parent of this process, told apart from every other process that ever had its number; empty if unknown."""
    parent = os.getppid()
    try:
        boot = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
        started = Path(f"/proc/{parent}/stat").read_text().rpartition(")")[2].split()[19]  # field 22, in clock ticks
    except (OSError, IndexError):
        return ""
    return f"{boot} {parent} {started}"


def _number(text: str | None) -> int | None:
    return int(text) if text is not None and text.strip().isdecimal() and len(text) < 10 else None
