"""Comparing the logs below some paths with a server: every run by itself, and an exit code for all."""

from __future__ import annotations

import contextlib
import os
from collections import Counter
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor, as_completed
from dataclasses import dataclass, replace

from .compare import Match, Verification, as_sent, verify_run
from .context import Context
from .credentials import Credentials, find_credentials
from .engine import open_context
from .errors import Interrupted
from .plan import Paths, RunPlan, group, survey
from .remote import Remote
from .report import Reporter, silent
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
        """0 all equal; 1 some differ or could not be compared; 2 the key was refused; 75 only time is missing; 130 interrupted."""
        if self.interrupted:
            return 130
        wrong = [run for run in self.runs if run.match is not Match.EQUAL]
        if any(run.credentials for run in wrong):
            return 2
        if wrong:
            return 75 if all(run.try_again for run in wrong) else 1
        return 0

    def counts(self) -> dict[str, int]:
        """Match -> number of runs."""
        return dict(Counter(run.match.value for run in self.runs))


def verify_remote(
    paths: Paths = ("wandb",),
    settings: SyncSettings | None = None,
    *,
    deep: bool = False,
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
    plans = group(as_sent([head for head in heads if not head.problem], settings), settings)
    results = [
        Verification(head.run_id, (os.fspath(head.path),), "", Match.UNKNOWN, head.problem)
        for head in heads
        if head.problem and head.is_log
    ]
    for result in results:
        told(result)
    used = session or Session()
    try:
        context = open_context(replace(settings, dry_run=True), key, reporter, used)
        with contextlib.closing(context):
            interrupted = _verify_all(plans, context, results, told, used, deep=deep)
    finally:
        if session is None:
            used.close()
    return VerifyReport(tuple(results), interrupted=interrupted)


def _verify_all(
    plans: list[RunPlan],
    context: Context,
    results: list[Verification],
    told: Callable[[Verification], object],
    session: Session,
    *,
    deep: bool,
) -> bool:
    """Adds to `results`; True when the user interrupted."""
    remote = Remote(context.api)
    workers = ThreadPoolExecutor(min(context.settings.jobs or _JOBS, _JOBS), thread_name_prefix="runferry-verify")
    futures: list[Future[Verification]] = [
        workers.submit(verify_run, plan, context, remote, deep=deep) for plan in plans
    ]
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
