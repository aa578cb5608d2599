"""Comparing the logs below some paths with a server: every run by itself, and an exit code for all."""

from __future__ import annotations

import contextlib
import os
from collections import Counter
from collections.abc import Callable
from concurrent.futures import Future, as_completed
from dataclasses import dataclass, replace
from functools import partial

from ..logformat import run_id_of
from .compare import Match, Verification, as_sent, verify_run
from .copies import find_copies
from .credentials import Credentials, find_credentials
from .crew import Crew
from .engine import open_context
from .errors import Interrupted
from .liveness import Liveness
from .plan import LogHead, Paths, RunPlan, group, survey
from .remote import Remote
from .report import NOTHING_YET, Reporter, silent
from .session import Session
from .settings import SyncSettings, find_base_url

_JOBS = 8


@dataclass(frozen=True)
class VerifyReport:
    """What `verify_remote` found."""

    runs: tuple[Verification, ...]
    interrupted: bool = False

    @property
    def exit_code(self) -> int:
        """0 all equal; 1 some differ, are damaged or could not be compared; 2 the key was refused; 75 only time is missing; 130 interrupted."""
        if self.interrupted:
            return 130
        wrong = [run for run in self.runs if run.match is not Match.EQUAL]
        if any(run.credentials for run in wrong):
            return 2
        if any(run.is_damaged for run in self.runs) or not all(run.try_again for run in wrong):
            return 1
        return 75 if wrong else 0

    def counts(self) -> dict[str, int]:
        """Match -> number of runs."""
        return dict(Counter(run.match.value for run in self.runs))


def verify_remote(
    paths: Paths = ("wandb",),
    settings: SyncSettings | None = None,
    *,
    deep: bool = False,
    overlap: str | None = None,
    told: Callable[[Verification], object] = lambda _: None,
    reporter: Reporter = silent,
    key: Credentials | None = None,
    session: Session | None = None,
) -> VerifyReport:
    """Compare the runs below `paths` with the server. Nothing is written, here or there.

    Args:
        paths: as `sync` takes them.
        settings: as `sync` takes them; a run that was sent elsewhere than its log says is looked for where it was sent.
        deep: compare step and values of every row, and not only how many there are.
        overlap: the policy by which several logs of a run are stitched; None for the one by which they were sent.
        told: called with each run's result as it comes, one at a time.
        reporter: told of waits.
        key: None looks it up.
        session: connections, clock and jitter; a port for tests.

    Raises:
        UsageError: a path does not exist or a setting cannot be followed.
        NoCredentials: there is no API key.
    """
    settings = settings or SyncSettings(base_url=find_base_url())
    key = key or find_credentials(settings.base_url)
    heads = survey(paths)
    readable = [head for head in heads if not head.problem]
    copies = {copy.log: copy for copy in find_copies(readable, settings.state_dir)}
    plans = group(as_sent([head for head in readable if head.path not in copies], settings), settings)
    used = session or Session()
    results = [_without_run(head, used.liveness, settings) for head in heads if head.problem]
    results += [
        Verification(run_id_of(copy.log), (os.fspath(copy.log),), "", Match.UNKNOWN, copy.reason)
        for copy in copies.values()
        if copy.differs
    ]
    for result in results:
        told(result)
    try:
        context = open_context(replace(settings, dry_run=True), key, reporter, used)
        with contextlib.closing(context):
            verify_one = partial(verify_run, context=context, remote=Remote(context.api), deep=deep, overlap=overlap)
            interrupted = _verify_all(plans, verify_one, settings.jobs or _JOBS, results, told, session=used)
    finally:
        if session is None:
            used.close()
    return VerifyReport(tuple(results), interrupted=interrupted)


def _without_run(head: LogHead, liveness: Liveness, settings: SyncSettings) -> Verification:
    """What can be said of a log that names no run."""
    begins = liveness.is_beginning(head, settings.stale_after)
    reason = NOTHING_YET if begins else head.problem
    return Verification(head.run_id, (os.fspath(head.path),), "", Match.UNKNOWN, reason, try_again=begins)


def _verify_all(
    plans: list[RunPlan],
    verify_one: Callable[[RunPlan], Verification],
    jobs: int,
    results: list[Verification],
    told: Callable[[Verification], object],
    *,
    session: Session,
) -> bool:
    """Adds to `results`; True when the user interrupted."""
    workers = Crew(min(jobs, _JOBS), "runferry-verify")
    futures: list[Future[Verification]] = [workers.submit(verify_one, plan) for plan in plans]
    try:
        for future in as_completed(futures):
            results.append(future.result())
            told(results[-1])
    except (KeyboardInterrupt, Interrupted):
        session.abort()
        return True
    finally:
        workers.shutdown(wait=True, cancel_futures=True)
    return False
