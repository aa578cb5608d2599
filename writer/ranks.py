"""Which of the processes of a distributed job this one is, and what it therefore records."""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum
from typing import NamedTuple

# (global rank, rank on this node): torchrun, Slurm, Open MPI, MPICH and Intel MPI, jsrun. The first set that gives a
# rank decides. A launcher's local rank can be missing; then only global rank 0 samples.
_LAUNCHERS = (
    ("RANK", "LOCAL_RANK"),
    ("SLURM_PROCID", "SLURM_LOCALID"),
    ("OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_LOCAL_RANK"),
    ("PMI_RANK", "MPI_LOCALRANKID"),
    ("JSM_NAMESPACE_RANK", "JSM_NAMESPACE_LOCAL_RANK"),
)
# A shell inside an allocation has a rank 0 variable of its own; a single task says nothing about a training job.
_INTERACTIVE_JOBS = {"interactive", "bash"}


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


def rank_of(environ: Mapping[str, str]) -> Rank:
    """This process's rank, by the variables that launchers set; rank 0 where there are none."""
    for rank_name, local_name in _LAUNCHERS:
        if rank_name.startswith("SLURM") and environ.get("SLURM_JOB_NAME") in _INTERACTIVE_JOBS:
            continue
        rank = _number(environ.get(rank_name))
        if rank is None:
            continue
        local = _number(environ.get(local_name))
        return Rank(rank, rank if local is None else local)
    return Rank()


def _number(text: str | None) -> int | None:
    return int(text) if text is not None and text.strip().isdecimal() and len(text) < 10 else None
