"""The whole of a sync: plan, workers, reports. Runs are isolated: what happens to one never stops another."""

from __future__ import annotations

import os
import random
import sys
import threading
from collections import Counter, deque
from concurrent.futures import FIRST_COMPLETED, Future, wait
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, TypeGuard

from . import choice
from .api import Api
from .body import FULL_BODY
from .channel import Channel
from .clock import Clock, SystemClock
from .context import Context
from .credentials import ApiKey, Credentials, find_credentials, user_headers
from .crew import Crew
from .errors import Interrupted
from .kin import with_kin
from .liveness import Liveness
from .lock import Heartbeat
from .network import is_loopback
from .plan import LogHead, Paths, RunPlan, group, survey
from .replay import RunReplay
from .report import NOTHING_YET, Finished, Planned, Report, Reporter, RunReport, Verdict, silent, tell_of_silence
from .room import Room
from .session import Session
from .settings import DEFAULT_JOBS, MAX_JOBS, SyncSettings, find_base_url
from .transport import Transport

_BODIES_IN_MEMORY = 2 * FULL_BODY  # bytes; what all workers together may gather before they send
_FILES_PER_JOB, _FILES_OF_ALL = (
    8,
    32,
)  # open at a time: the log, its side files, connections, uploads; what a process has anyway
_QUEUED_PER_JOB = 2  # runs handed to the workers: those of a fleet do not all wait in memory

_Turn = tuple[RunPlan, list[RunReport]]
"""A run, and what became of it already: if its storage was not there, it comes again when all others have had their turn."""


def sync(
    paths: Paths = ("wandb",),
    settings: SyncSettings | None = None,
    *,
    reporter: Reporter | None = None,
    key: Credentials | None = None,
    transport: Transport | None = None,
    clock: Clock | None = None,
    rng: random.Random | None = None,
    session: Session | None = None,
    **options: Any,
) -> Report:
    """Bring the logs below `paths` to the backend, and say for each what became of it.

    Safe to stop at any moment and to repeat: the same lines go to the same places. The run directories are only read, but
    for the cursor, the lock and the marker beside each log.

    Args:
        paths: a log, a run directory, a `wandb` directory, a tree of them, or a pattern of such paths; or several.
        settings: see `SyncSettings`; None takes the base URL from the environment and defaults for the rest.
        reporter: called with each `Event`, from any thread, one at a time.
        key: who we are to the server; None looks it up in the environment and in netrc.
        transport: how requests are sent; with `clock` and `rng` a port for tests.
        clock: see above.
        rng: the source of jitter.
        session: what this sync shares with others, instead of these three.
        **options: settings by their names, over those of `settings`: `sync("wandb", project="digits", jobs=4)`.

    Raises:
        UsageError: a path does not exist or a setting cannot be followed.
        NoCredentials: there is no API key.
        TypeError: one of `options` is no setting.
    """
    settings = replace(settings or SyncSettings(base_url=options.get("base_url") or find_base_url()), **options)
    told = _one_at_a_time(reporter or silent)
    tally = Tally()
    liveness = session.liveness if session is not None else Liveness(clock or SystemClock())
    heads = survey(paths)
    plans = _chosen(heads, settings, tally)
    for head in heads:
        if head.problem and choice.is_ours(head, settings):
            tally.reports[os.fspath(head.path)] = _without_run(head, liveness, settings)
    told(
        Planned(runs=len(plans), logs=sum(len(plan.segments) + len(plan.copies) for plan in plans) + len(tally.reports))
    )
    for report in tally.reports.values():
        told(report)
    interrupted = False
    if plans:
        if key is None:
            no_key = ApiKey("none", base_url=settings.base_url, source="a dry run")
            key = no_key if settings.dry_run else find_credentials(settings.base_url)
        used = session or Session(transport, clock, rng)
        try:
            interrupted = _replay_all(plans, settings, key, told, tally, session=used)
        finally:
            if session is None:
                used.close()
    report_ = Report(
        tuple(tally.reports.values()), interrupted=interrupted, left_out=dict(Counter(tally.left_out.values()))
    )
    told(Finished(report_.exit_code, report_.counts(), report_.left_out))
    return report_


@dataclass
class Tally:
    """What became of the runs so far. Told twice of one it counts it once: an interrupt may come between any two lines."""

    reports: dict[str, RunReport] = field(default_factory=dict)
    """By log."""
    left_out: dict[str, str] = field(default_factory=dict)
    """First log of a run -> why the run was left out."""

    def add(self, plan: RunPlan, done: list[RunReport] | str) -> None:
        """Note what became of a run."""
        if isinstance(done, str):
            self.left_out[_name(plan)] = done
        else:
            self.reports.update((report.log, report) for report in done)

    def has(self, plan: RunPlan) -> bool:
        """Whether it is known what became of a run."""
        return _name(plan) in self.reports or _name(plan) in self.left_out


def _name(plan: RunPlan) -> str:
    return os.fspath(plan.segments[0].path)


def _chosen(heads: list[LogHead], settings: SyncSettings, tally: Tally) -> list[RunPlan]:
    """The runs of the readable logs, but for those that need no look into their logs to be left out."""
    plans = []
    for plan in group((head for head in heads if not head.problem), settings):
        reason = choice.left_out(plan, settings)
        if reason is None:
            plans.append(plan)
        else:
            tally.add(plan, reason)
    return with_kin(plans, settings)


def _without_run(head: LogHead, liveness: Liveness, settings: SyncSettings) -> RunReport:
    """The verdict on a log of which nobody can tell the run."""
    name = os.fspath(head.path)
    if liveness.is_beginning(head, settings.stale_after):
        return RunReport(name, None, Verdict.LIVE, NOTHING_YET)
    return RunReport(name, None, Verdict.FAILED, head.problem)


def _replay_all(
    plans: list[RunPlan],
    settings: SyncSettings,
    key: Credentials,
    told: Reporter,
    tally: Tally,
    *,
    session: Session,
) -> bool:
    """Run the workers; adds to `tally`. True when the user interrupted."""
    jobs = min(settings.jobs or DEFAULT_JOBS, MAX_JOBS, _jobs_with_files(), len(plans))
    workers = Crew(jobs, "runferry-run")
    context = open_context(settings, key, told, session, jobs=jobs)
    waiting: deque[_Turn] = deque((plan, []) for plan in plans)
    running: dict[Future[list[RunReport] | str], _Turn] = {}
    fresh = len(plans)
    interrupted = False

    def note(plan: RunPlan, done: list[RunReport] | str) -> None:
        tally.add(plan, done)
        for report in done if not isinstance(done, str) else ():
            told(report)

    try:
        while waiting or running:
            while waiting and len(running) < _QUEUED_PER_JOB * jobs:
                turn = waiting.popleft()
                running[workers.submit(_replay, turn[0], context)] = turn
            context.channel.puts_off = settings.following or fresh > jobs
            for future in wait(running, return_when=FIRST_COMPLETED).done:
                plan, before = running[future]
                done = future.result()
                fresh -= not before
                if not (before or settings.following) and context.channel.has_put_off and _is_late(done):
                    waiting.append((plan, done))
                else:
                    note(plan, _together(before, done))
                del running[future]
    except KeyboardInterrupt:
        interrupted = True
        session.abort()
        workers.shutdown(wait=True, cancel_futures=True)
        heard = {_name(plan): before for plan, before in waiting if before}
        for future, (plan, before) in running.items():
            if future.done() and not (future.cancelled() or tally.has(plan)):
                note(plan, _together(before, future.result()))
            elif before:
                heard[_name(plan)] = before
        for plan in plans:
            if not tally.has(plan):
                note(plan, heard.get(_name(plan)) or _stopped(plan))
    finally:
        workers.shutdown(wait=True, cancel_futures=True)
        context.close()
    return interrupted


def open_context(
    settings: SyncSettings, key: Credentials, told: Reporter, session: Session, *, jobs: int = 1
) -> Context:
    """What the runs of one sync share, with room for so many `jobs`; to be closed in the end."""
    session.network.check(settings.base_url)
    session.pacers.share(settings.state_dir / "pacer")
    channel = Channel(
        session.transport,
        clock=session.clock,
        rng=session.rng,
        retry_for=settings.retry_for,
        reporter=session.counters.watching(told),
        hide=lambda text: session.network.hide(key.hide(text)),
    )
    return Context(
        settings=settings,
        channel=channel,
        api=Api(settings.base_url, key, channel, session.pacers, user_headers(), network=session.network),
        clock=session.clock,
        reporter=told,
        rows=Crew(jobs, "runferry-rows"),
        uploads=Crew(max(DEFAULT_JOBS, jobs), "runferry-file"),
        heartbeat=Heartbeat(),
        liveness=session.liveness,
        readings=session.readings,
        is_near=jobs > 1 and is_loopback(settings.base_url),
        room=Room(_BODIES_IN_MEMORY, jobs),
    )


def _replay(plan: RunPlan, context: Context) -> list[RunReport] | str:
    """One run, whatever happens in it: its reports, or why it is left out."""
    try:
        reason = _left_out(plan, context)
        return reason if reason is not None else [*RunReplay(plan, context).run(), *_copies(plan)]
    except Interrupted:
        return _stopped(plan)
    except Exception as error:  # a fault of ours in one run must not take the others with it
        where = error.__traceback__
        while where is not None and where.tb_next is not None:
            where = where.tb_next
        place = f"{Path(where.tb_frame.f_code.co_filename).name}:{where.tb_lineno}" if where is not None else "?"
        reason = f"internal error at {place}: {type(error).__name__}: {error}"
        if isinstance(error, MemoryError):
            limits = "use fewer --jobs, or raise the limit of the job, or `ulimit -v`"
            reason = f"no more memory: {limits} ({str(error) or place})"
        failed = [RunReport(os.fspath(head.path), plan.run_id, Verdict.FAILED, reason) for head in plan.segments]
        return [*failed, *_copies(plan)]


def _left_out(plan: RunPlan, context: Context) -> str | None:
    try:
        return choice.left_out_by_content(plan, context.settings, context.liveness)
    except OSError:
        return None  # the replay says what is wrong with the log


def _is_late(done: list[RunReport] | str) -> TypeGuard[list[RunReport]]:
    """Whether nothing but time is missing of what follows the rows."""
    return not isinstance(done, str) and any(one.verdict is Verdict.PARTIAL and one.try_again for one in done)


def _together(before: list[RunReport], done: list[RunReport] | str) -> list[RunReport] | str:
    """What became of a run in two turns."""
    if not before or isinstance(done, str):
        return before or done
    return [
        replace(new, rows_sent=old.rows_sent + new.rows_sent, files_sent=old.files_sent + new.files_sent)
        for old, new in zip(before, done, strict=True)
    ]


def _stopped(plan: RunPlan) -> list[RunReport]:
    logs = [os.fspath(head.path) for head in plan.segments]
    reason = "interrupted before its turn"
    return [*(RunReport(log, plan.run_id, Verdict.SKIPPED, reason, try_again=True) for log in logs), *_copies(plan)]


def _copies(plan: RunPlan) -> list[RunReport]:
    """The verdicts on logs that do not count. Nothing is missing, unless one of them holds what the log that counts lacks."""
    return [
        RunReport(os.fspath(copy.log), plan.run_id, Verdict.FAILED if copy.differs else Verdict.SKIPPED, copy.reason)
        for copy in plan.copies
    ]


def _jobs_with_files() -> int:
    """As many runs at a time as may have their files and connections open."""
    if sys.platform == "win32":
        return MAX_JOBS
    import resource

    allowed, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return MAX_JOBS if allowed == resource.RLIM_INFINITY else max(1, (allowed - _FILES_OF_ALL) // _FILES_PER_JOB)


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
                tell_of_silence(error)

    return tell
