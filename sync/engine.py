"""The whole of a sync: plan, workers, reports. Runs are isolated: what happens to one never stops another."""

from __future__ import annotations

import os
import random
import sys
import threading
from collections.abc import Iterable
from concurrent.futures import Future, ThreadPoolExecutor, as_completed
from pathlib import Path

from .api import Api
from .body import FULL_BODY
from .channel import Channel
from .clock import Clock
from .context import Context
from .credentials import ApiKey, find_api_key
from .errors import Interrupted
from .lock import Heartbeat
from .plan import RunPlan, discover, group, read_head
from .replay import RunReplay
from .report import Finished, Planned, Report, Reporter, RunReport, Verdict, silent
from .session import Session
from .settings import MAX_JOBS, SyncSettings, find_base_url
from .transport import Transport

_BODIES_IN_MEMORY = 2 * FULL_BODY  # bytes; what all workers together may gather before they send
_SMALLEST_BODY = 2 * 1024 * 1024


def sync(
    paths: Iterable[str | os.PathLike[str]] = ("wandb",),
    settings: SyncSettings | None = None,
    *,
    reporter: Reporter | None = None,
    key: ApiKey | None = None,
    transport: Transport | None = None,
    clock: Clock | None = None,
    rng: random.Random | None = None,
    session: Session | None = None,
) -> Report:
    """Bring the logs below `paths` to the backend, and say for each what became of it.

    Safe to stop at any moment and to repeat: the same lines go to the same places. The run directories are only read, but
    for the cursor, the lock and the marker beside each log.

    Args:
        paths: logs, run directories, `wandb` directories, or trees of them.
        settings: see `SyncSettings`; None takes the base URL from the environment and defaults for the rest.
        reporter: called with each `Event`, from any thread, one at a time.
        key: None looks it up in the environment and in netrc.
        transport: how requests are sent; with `clock` and `rng` a port for tests.
        clock: see above.
        rng: the source of jitter.
        session: what this sync shares with others, instead of these three.

    Raises:
        UsageError: a path does not exist or a setting cannot be followed.
        NoCredentials: there is no API key.
    """
    settings = settings or SyncSettings(base_url=find_base_url())
    told = _one_at_a_time(reporter or silent)
    heads = [read_head(log) for log in discover(paths)]
    plans = group((head for head in heads if not head.problem), settings)
    told(Planned(runs=len(plans), logs=len(heads)))
    reports = [RunReport(os.fspath(head.path), None, Verdict.FAILED, head.problem) for head in heads if head.problem]
    for report in reports:
        told(report)
    interrupted = False
    if plans:
        if key is None:
            no_key = ApiKey("none", base_url=settings.base_url, source="a dry run")
            key = no_key if settings.dry_run else find_api_key(settings.base_url)
        used = session or Session(transport, clock, rng)
        try:
            interrupted = _replay_all(plans, settings, key, told, reports, session=used)
        finally:
            if session is None:
                used.close()
    report_ = Report(tuple(reports), interrupted=interrupted)
    told(Finished(report_.exit_code, report_.counts()))
    return report_


def _replay_all(
    plans: list[RunPlan],
    settings: SyncSettings,
    key: ApiKey,
    told: Reporter,
    reports: list[RunReport],
    *,
    session: Session,
) -> bool:
    """Run the workers; appends to `reports`. True when the user interrupted."""
    jobs = min(settings.jobs or MAX_JOBS, MAX_JOBS, len(plans))
    heartbeat = Heartbeat()
    uploads = ThreadPoolExecutor(MAX_JOBS, thread_name_prefix="runferry-file")
    workers = ThreadPoolExecutor(jobs, thread_name_prefix="runferry-run")
    channel = Channel(
        session.transport,
        clock=session.clock,
        rng=session.rng,
        retry_for=settings.retry_for,
        reporter=session.counters.watching(told),
        hide=key.hide,
    )
    context = Context(
        settings=settings,
        api=Api(settings.base_url, key, channel, session.pacers),
        clock=session.clock,
        reporter=told,
        uploads=uploads,
        heartbeat=heartbeat,
        liveness=session.liveness,
        body_bytes=min(settings.body_bytes, max(_SMALLEST_BODY, _BODIES_IN_MEMORY // jobs)),
    )
    futures: dict[Future[list[RunReport]], RunPlan] = {}
    interrupted = False
    try:
        for plan in plans:
            futures[workers.submit(_replay, plan, context)] = plan
        for future in as_completed(futures):
            for report in future.result():
                reports.append(report)
                told(report)
    except KeyboardInterrupt:
        interrupted = True
        session.abort()
        workers.shutdown(wait=True, cancel_futures=True)
        reported = {report.log for report in reports}
        for future, plan in futures.items():
            done = future.result() if future.done() and not future.cancelled() else _stopped(plan)
            for report in done:
                if report.log not in reported:
                    reports.append(report)
                    told(report)
    finally:
        workers.shutdown(wait=True, cancel_futures=True)
        uploads.shutdown(wait=True, cancel_futures=True)
        heartbeat.close()
    return interrupted


def _replay(plan: RunPlan, context: Context) -> list[RunReport]:
    """One run, whatever happens in it."""
    try:
        return RunReplay(plan, context).run()
    except Interrupted:
        return _stopped(plan)
    except Exception as error:  # a fault of ours in one run must not take the others with it
        where = error.__traceback__
        while where is not None and where.tb_next is not None:
            where = where.tb_next
        place = f"{Path(where.tb_frame.f_code.co_filename).name}:{where.tb_lineno}" if where is not None else "?"
        reason = f"internal error at {place}: {type(error).__name__}: {error}"
        return [RunReport(os.fspath(head.path), plan.run_id, Verdict.FAILED, reason) for head in plan.segments]


def _stopped(plan: RunPlan) -> list[RunReport]:
    reason = "interrupted; the next sync goes on from here"
    return [
        RunReport(os.fspath(head.path), plan.run_id, Verdict.PARTIAL, reason, try_again=True) for head in plan.segments
    ]


def _one_at_a_time(reporter: Reporter) -> Reporter:
    """`reporter` under a lock; if it fails, the sync goes on without it."""
    guard = threading.Lock()
    broken = False

    def tell(event: object) -> None:
        nonlocal broken
        with guard:
            if broken:
                return
            try:
                reporter(event)  # type: ignore[arg-type]
            except Exception as error:  # a closed pipe must not stop an upload
                broken = True
                print(f"runferry: no more progress shown: {error}", file=sys.stderr)  # noqa: T201 - there is no reporter any more to tell

    return tell
