"""A share of the runs: which of several syncs brings a run over, so that none of them need to know of each other.

The share of a run follows from its own name (entity, project, run id, as they are sent) and the number of shares alone. So
it is the same on every machine, in whatever order the logs are found and whatever others there are, and all logs of a run
are in one share.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Mapping
from dataclasses import dataclass

from .errors import UsageError

AUTO = "auto"


@dataclass(frozen=True)
class Shard:
    """Share number `index` (from 1) of `count`."""

    index: int
    count: int

    def __post_init__(self) -> None:
        if not 1 <= self.index <= self.count:
            raise UsageError(f"shard {self.index}/{self.count}: shares are counted from 1/N to N/N")

    def __str__(self) -> str:
        return f"{self.index}/{self.count}"

    @classmethod
    def parse(cls, text: str, environ: Mapping[str, str] = os.environ) -> Shard:
        """`I/N`, or `auto` for what the batch system says of this job.

        Raises:
            UsageError: it is neither, or the batch system does not say.
        """
        if text == AUTO:
            return _of_job(environ)
        index, slash, count = text.partition("/")
        if not (slash and _is_number(index) and _is_number(count)):
            raise UsageError(f"shard {text!r}: `I/N` with I from 1 to N, such as 2/8, or `auto` in an array job")
        return cls(int(index), int(count))

    def holds(self, *name: str | None) -> bool:
        """Whether what has this name is in this share."""
        digest = hashlib.sha256(json.dumps(name).encode()).digest()
        return int.from_bytes(digest[:8], "big") % self.count == self.index - 1


# How batch systems tell a task of an array job who it is: variables of its number, of the first and last one, of the
# distance between two, and of how many there are. Those that begin at 0 have no variable for the first one.
_ARRAYS = (
    (
        "SLURM_ARRAY_TASK_ID",
        "SLURM_ARRAY_TASK_MIN",
        "SLURM_ARRAY_TASK_MAX",
        "SLURM_ARRAY_TASK_STEP",
        "SLURM_ARRAY_TASK_COUNT",
    ),
    ("SGE_TASK_ID", "SGE_TASK_FIRST", "SGE_TASK_LAST", "SGE_TASK_STEPSIZE", ""),  # Grid Engine
    ("AWS_BATCH_JOB_ARRAY_INDEX", "", "", "", "AWS_BATCH_JOB_ARRAY_SIZE"),
    ("BATCH_TASK_INDEX", "", "", "", "BATCH_TASK_COUNT"),  # Google Cloud Batch
)
_WITHOUT_COUNT = ("PBS_ARRAY_INDEX", "PBS_ARRAYID", "LSB_JOBINDEX", "JOB_COMPLETION_INDEX", "OAR_ARRAY_INDEX")


def _of_job(environ: Mapping[str, str]) -> Shard:
    for names in _ARRAYS:
        if _is_number(environ.get(names[0], "")):
            return _of_array(names, environ)
    for name in _WITHOUT_COUNT:
        if environ.get(name):
            raise UsageError(
                f"shard auto: {name} says which task of an array this is, and nothing says of how many; say it: "
                f"--shard ${name}/N if the tasks are counted from 1, --shard $(({name} + 1))/N if from 0"
            )
    known = ", ".join(names[0] for names in _ARRAYS)
    raise UsageError(f"shard auto: this is no task of an array job (none of {known} is set); give --shard I/N")


def _of_array(names: tuple[str, ...], environ: Mapping[str, str]) -> Shard:
    given = {name: environ[name] for name in names if environ.get(name)}
    said = " ".join(f"{name}={value}" for name, value in given.items())
    if not all(map(_is_number, given.values())):
        raise UsageError(f"shard auto: {said}: not numbers")
    numbers = [int(given[name]) if name in given else None for name in names]
    task, first, last, step, count = numbers
    is_start_known = first is not None or not names[1]
    task, first, step = task or 0, first or 0, step or 1
    if count is None and last is not None:
        count = (last - first) // step + 1
    if count is None:
        raise UsageError(f"shard auto: {said}: nothing says how many tasks there are; give --shard I/N")
    if not is_start_known:
        raise UsageError(f"shard auto: {said}: nothing says where the tasks begin ({names[1]}); give --shard I/N")
    place, rest = divmod(task - first, step)
    if rest or not 0 <= place < count or (last is not None and last != first + (count - 1) * step):
        raise UsageError(f"shard auto: {said}: the tasks are not numbered evenly; give --shard I/N")
    return Shard(place + 1, count)


def _is_number(text: str) -> bool:
    return text.isascii() and text.isdigit() and len(text) < 10
