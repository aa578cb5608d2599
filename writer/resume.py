"""Which run `init` begins or goes on with, and where.

Nothing is asked of a server: the run's other logs in the same `wandb` folder tell. Nothing is written for it either.
"""

from __future__ import annotations

import hashlib
import sys
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from ..logformat.heartbeat import read_heartbeat
from .earlier import EarlierLog, logs_of, newest_logs, read_ends, stitch
from .errors import UsageError
from .identity import Behind
from .ranks import Job, Rank, Role, job_of, rank_of, world_size
from .settings import Resolved, id_of, new_id

LIVE_S = 20.0
"""A log without an end that grew so recently may still be written: samples come every 15 s."""
DERIVED_LENGTH = 12
"""Characters of an id that is derived from a job: 62 bits, since those of all jobs share one space."""

_MAX_STEP = 2**63 - 1
_derived: Counter[tuple[str, ...]] = Counter()  # ids derived in this process, by what they were derived from


class ResumeError(UsageError):
    """`resume` asks for what cannot be: the message says what there is, and what to do."""


class Start(NamedTuple):
    """Where a run begins."""

    settings: Resolved
    """With the run id decided."""
    behind: Behind | None = None
    """Where it goes on; None where it has no logs before this one."""
    notes: tuple[str, ...] = ()
    """What the user should know, a line each."""
    warnings: tuple[str, ...] = ()
    """The same, for what may not be as expected."""


def begin(
    settings: Resolved,
    environ: Mapping[str, str],
    role: Role = Role.FULL,
    *,
    now_s: Callable[[], float] = time.time,
    argv: Sequence[str] | None = None,
    agent: Callable[[], str] | None = None,
) -> Start:
    """Decide the run's id and where it goes on.

    Args:
        settings: as resolved, with a random id where none was given.
        environ: the environment, which names the job.
        role: what this process records; only one that logs rows looks at earlier logs.
        now_s: seconds since the epoch.
        argv: the command line; this process's unless given.
        agent: what identifies torchrun's agent; see `job_of`.

    Raises:
        ResumeError: the run exists and may not ("never"), or none is named that could be resumed ("must").
    """
    if settings.mode == "disabled" or role is Role.NONE:
        return Start(settings)
    if settings.ranks == "all" and not settings.group and world_size(environ) > 1:
        job = job_of(environ, agent)
        settings = settings._replace(group=job.name if job else "")
    if not settings.resume_mode and settings.given_id and role is Role.FULL:
        return Start(settings, warnings=_joined(settings))
    if not settings.resume_mode or (settings.resume_mode == "never" and not settings.given_id):
        return Start(settings)
    job = None if settings.given_id else job_of(environ, agent)
    if job is not None:
        command = sys.argv if argv is None else argv
        settings = settings._replace(run_id=_derive(settings, job, rank_of(environ), command), given_id=True)
    if role is not Role.FULL:
        return Start(settings)
    folder = settings.root / "wandb"
    if settings.given_id:
        return _go_on(settings, folder, job, now_s())
    if settings.resume_mode == "must":
        raise ResumeError('resume="must" needs the id of the run, or a Slurm or torchrun job that gives it one')
    return _unfinished(settings, folder, now_s()) if settings.resume_mode == "auto" else Start(_fresh(settings))


def _go_on(settings: Resolved, folder: Path, job: Job | None, now_s: float) -> Start:
    """Go on with the run that has this id, if there is one."""
    run_id, mode = settings.run_id, settings.resume_mode
    found = [log for path in logs_of(folder, run_id) if (log := read_ends(path)) is not None]
    logs = sorted((log for log in found if _belongs(log, settings)), key=lambda log: log.start_ns)
    begun = [log for log in logs if log.has_begun]
    warnings = []
    if len(logs) < len(found):
        other = next(log for log in found if log not in logs)
        warnings.append(f"{other.path} has the same run id in project {other.project!r}: another run, left alone")
    if (unread := next((log for log in logs if not log.whole), None)) is not None:
        warnings.append(f"{unread.path}: no row near its end can be read, so it may count too little for the next step")
    if mode == "never":
        if begun:
            raise ResumeError(
                f'resume="never", but run {run_id} has a log already: {begun[-1].path}. Give another id, or'
                ' resume="allow" to go on with it'
            )
        return Start(settings, warnings=tuple(warnings))
    if job is not None and mode != "must" and begun and begun[-1].exit_code == 0:
        # A restart goes on with what was cut off; what came to its end was another run of the same command.
        note = f"run {run_id} of this job has finished; this is a new one"
        return Start(_fresh(settings), notes=(note,), warnings=tuple(warnings))
    if not begun:
        notes: list[str] = []
        if job is not None and job.restarts and not logs:
            lost = _last_cut_off(settings, folder, now_s)
            (warnings if lost else notes).append(_missing(job, folder, lost))
        if mode == "must":
            warnings.append(
                f'resume="must": no log of run {run_id} in {folder}. Whether a server has it cannot be asked here;'
                " steps begin at 0, and a sync puts them behind the server's"
            )
        return Start(settings, notes=tuple(notes), warnings=tuple(warnings))
    alive = next((log for log in begun if _may_live(log, now_s)), None)
    if alive is not None and not (job is not None and job.restarts):
        warnings.append(
            f"{alive.path} has no end and grew {max(0.0, now_s - alive.modified_s):.0f} s ago: if its process"
            " is still there, both log to one run"
        )
    return _behind(settings, logs, warnings)


def _unfinished(settings: Resolved, folder: Path, now_s: float) -> Start:
    """Go on with the last run of this folder and project, unless it has finished."""
    for log in newest_logs(folder):
        if log.last_step is None or not _belongs(log, settings):
            continue
        if log.exit_code == 0:
            break
        if _may_live(log, now_s):
            note = f"the last run, {log.run_id}, may still go on: this is a new one. To go on with it, give its id"
            return Start(_fresh(settings), notes=(note,))
        return _go_on(settings._replace(run_id=log.run_id, given_id=True), folder, None, now_s)
    return Start(_fresh(settings))


def _joined(settings: Resolved) -> tuple[str, ...]:
    """What is told where an id was given that has logs, without a word on going on with them."""
    # The usual case is none, which the names of the directories tell.
    found = (read_ends(path) for path in logs_of(settings.root / "wandb", settings.run_id))
    count = sum(log is not None and log.has_begun and _belongs(log, settings) for log in found)
    if not count:
        return ()
    many, them = ("1 log", "it") if count == 1 else (f"{count} logs", "them")
    what = f"run {settings.run_id} has {many} here already: a sync joins {them} and this one"
    return (f'{what}; resume="allow" goes on at the next step, another id is another run',)


def _missing(job: Job, folder: Path, lost: EarlierLog | None) -> str:
    """What a restarted job's user is told that has no log of this command: a run that is there is meant, or none is."""
    name = f"job {job.name}" if job.name else "this job"
    what = f"restart {job.restarts} of {name}, but no log with this command line in {folder}: a new run begins"
    if lost is None:
        return what
    return f"{what}; the last run that was cut off is {lost.run_id}: give id= (or RUNFERRY_RUN_ID) to go on with it"


def _last_cut_off(settings: Resolved, folder: Path, now_s: float) -> EarlierLog | None:
    """The newest run of this folder and project that has not finished; one that may still go on where there is no other."""
    finished, alive = set(), None
    for log in newest_logs(folder):
        if log.last_step is None or log.run_id in finished or not _belongs(log, settings):
            continue
        if log.exit_code == 0:
            finished.add(log.run_id)
        elif not _may_live(log, now_s):
            return log
        else:
            alive = alive or log
    return alive


def _behind(settings: Resolved, logs: list[EarlierLog], warnings: list[str]) -> Start:
    """Begin behind the run's logs."""
    progress = stitch(logs)
    first = 0 if progress.last_step is None else min(progress.last_step + 1, _MAX_STEP)
    many = "1 log" if len(logs) == 1 else f"{len(logs)} logs"
    note = f"run {settings.run_id} goes on at step {first}, behind {many} in {settings.root / 'wandb'}"
    return Start(settings, Behind(first, progress.runtime_s), notes=(note,), warnings=tuple(warnings))


def _belongs(log: EarlierLog, settings: Resolved) -> bool:
    """Whether a sync would send the log to the same run: the id alone does not name one."""
    return log.project is None or (log.project or "uncategorized", log.entity) == (settings.project, settings.entity)


def _may_live(log: EarlierLog, now_s: float) -> bool:
    if log.exit_code is not None:
        return False
    beat = read_heartbeat(log.path)
    lives = None if beat is None else beat.process.lives()
    # A time far ahead of the clock says nothing: one of the two was wrong.
    return abs(now_s - log.modified_s) < LIVE_S if lives is None else lives


def _fresh(settings: Resolved) -> Resolved:
    """A run that nothing comes before."""
    return settings._replace(run_id=new_id(), given_id=False, resume_mode="")


def _derive(settings: Resolved, job: Job, rank: Rank, argv: Sequence[str]) -> str:
    """The id of this command's run in this job: the same in every attempt, in all processes that share a run.

    Another command line is another run, and so is the next run of the same process.
    """
    processes = sys.modules.get("multiprocessing.process")
    which = processes.current_process().name if processes is not None else "MainProcess"
    own = str(rank.rank) if settings.ranks == "all" else ""
    source = (*job.identity, settings.entity, settings.project, which, own, *argv)
    ordinal = _derived[source]
    _derived[source] += 1
    digest = hashlib.sha256(repr((source, ordinal)).encode("utf-8", "surrogatepass")).digest()
    return id_of(int.from_bytes(digest[:16], "big"), DERIVED_LENGTH)
