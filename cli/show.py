"""`runferry show`: what a log holds."""

from __future__ import annotations

import glob
import json
import sys
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NoReturn

import click

from ..logformat import (
    Gap,
    GapReason,
    Record,
    RunState,
    WireError,
    find_logs,
    head_of,
    in_order,
    latest_run,
    log_name,
    read_records,
    siblings,
)
from ..logformat.describe import describe
from ..logformat.schema import KINDS
from ..logformat.segments import fold
from ..sync.clock import SystemClock
from ..sync.liveness import Liveness
from ..sync.report import counted, elapsed
from .paths import SomePath
from .text import clip, plain_json, printable, stale_after_option, when


@click.command()
@click.argument("paths", metavar="[PATH]...", nargs=-1, type=SomePath())
@click.option("--summary", "as_summary", is_flag=True, help="What the run amounts to instead of its records.")
@click.option(
    "--kind",
    "kinds",
    multiple=True,
    metavar="KIND",
    help="Only records of this kind, such as history; may be repeated.",
)
@click.option("--json", "as_json", is_flag=True, help="One JSON object per line (with --summary: one object).")
@stale_after_option
def command(
    paths: tuple[Path, ...], *, as_summary: bool, kinds: tuple[str, ...], as_json: bool, stale_after: float
) -> None:
    """Show the records of a log, or a run's summary.

    PATH is a log, a run directory, the id of a run in ./wandb, or a wandb directory (default: ./wandb), of which the
    latest run is shown. Values that JSON cannot say (NaN, Infinity) are printed as Python prints them.

    A run that was resumed has several logs. The summary is that of all which lie in one wandb directory; of a path that
    is a log it is that log's. Logs that lie elsewhere may be named together.

    Exit code 1 says that part of a log, or all of it, could not be read; every gap is shown where it lies.
    """
    unknown = sorted(set(kinds) - {*KINDS.values(), "unknown", "empty"})
    if unknown:
        raise click.UsageError(
            f"no such kind of record: {', '.join(unknown)}. Kinds: {', '.join(sorted(KINDS.values()))}"
        )
    if len(paths) > 1 and not as_summary:
        raise click.UsageError("records are shown of one log at a time; --summary takes several logs of one run")
    named = [(path, _one_log(path)) for path in paths or (Path("wandb"),)]
    log = named[0][1]
    try:
        if as_summary:
            logs = _logs_of_run(named)
            damaged = _print_summary(logs, as_json=as_json, stale_after=stale_after)
        else:
            damaged = _print_records(log, kinds, as_json=as_json)
    except OSError as error:
        if error.filename is None:
            raise  # of standard output
        _fail(f"{error.filename}: {error.strerror}")
    if damaged:
        sys.exit(1)


def _fail(problem: str) -> NoReturn:
    """Say what cannot be read, and end."""
    click.echo(f"Error: {printable(problem)}", err=True)
    sys.exit(1)


def _logs_of_run(named: Sequence[tuple[Path, Path]]) -> list[Path]:
    """The logs to fold, of paths and the log of each: what is named as a log stands for itself alone."""
    try:
        return in_order([log for path, found in named for log in ([found] if path == found else siblings(found))])
    except ValueError as error:
        raise click.UsageError(str(error)) from error


def _one_log(path: Path) -> Path:
    if not path.exists():  # not a path: perhaps the id of a run here
        named = sorted(Path("wandb").glob(f"*run-*-{glob.escape(str(path))}/{glob.escape(log_name(str(path)))}"))
        path = named[-1] if named else path
    folder = latest_run(path) if path.is_dir() and not list(path.glob("*.wandb")) else path
    shut: list[OSError] = []
    try:
        logs = find_logs(folder or path, unreadable=shut.append)
    except FileNotFoundError:
        raise click.UsageError(f"{path}: neither a path here nor the id of a run in ./wandb") from None
    if not logs and shut:
        _fail(f"{shut[0].filename}: the folder cannot be read ({shut[0].strerror})")
    if not logs:
        raise click.UsageError(f"{path}: no log (run-<id>.wandb) here")
    if len(logs) > 1:
        raise click.UsageError(f"{path}: {len(logs)} logs here; name one, or list them with `runferry ls {path}`")
    return logs[0]


def _print_records(log: Path, kinds: tuple[str, ...], *, as_json: bool) -> bool:
    damaged = False
    counts: Counter[str] = Counter()
    if not as_json:
        click.echo(printable(f"log {log}"))
        click.echo(f"{'offset':>10}  {'num':>6}  kind")
    for item in _records(log):
        if isinstance(item, Gap):
            damaged = True
            _print_gap(item, as_json=as_json)
            continue
        counts[item.kind] += 1
        if not kinds or item.kind in kinds:
            damaged |= not _print_record(item, as_json=as_json)
    if missing := sorted({kind for kind in kinds if not counts[kind]}):
        hint = "; what the program printed is output_raw" if "output" in missing else ""
        has = ", ".join(sorted(counts)) or "no record"
        click.echo(printable(f"no record of kind {', '.join(missing)} in {log}, which has {has}{hint}"), err=True)
    return damaged


def _records(log: Path) -> Iterator[Record | Gap]:
    """What is in a log; an error of reading names it, so that it is told from one of printing."""
    items = read_records(log)
    while True:
        try:
            item = next(items, None)
        except OSError as error:
            error.filename = error.filename or str(log)
            raise
        if item is None:
            return
        yield item


def _print_record(record: Record, *, as_json: bool) -> bool:
    try:
        said: dict[str, Any] = describe(record)
        problem = None
    except WireError as error:
        said, problem = {}, str(error)
    if as_json:
        line: dict[str, Any] = {"type": "record", "num": record.num, "kind": record.kind, "offset": record.offset}
        click.echo(
            plain_json({**line, "size": len(record.payload), "value": said, **({"error": problem} if problem else {})})
        )
    else:
        click.echo(
            f"{record.offset:>10}  {record.num:>6}  {record.kind:<14}  {problem or clip(printable(_flat(said)), 160)}"
        )
    return problem is None


def _flat(said: dict[str, Any]) -> str:
    return "  ".join(f"{key}={json.dumps(value, ensure_ascii=False, default=str)}" for key, value in said.items())


def _print_gap(gap: Gap, *, as_json: bool) -> None:
    if as_json:
        place = {"type": "gap", "offset": gap.offset, "length": gap.length, "reason": gap.reason.value}
        click.echo(plain_json({**place, "records_lost": gap.records_lost}))
    else:
        click.echo(f"{gap.offset:>10}          GAP             {_said(gap)}, {counted(gap.length, 'byte')}{_loss(gap)}")


def _loss(gap: Gap) -> str:
    return "" if gap.records_lost is None else f", {counted(gap.records_lost, 'record')} lost"


def _said(gap: Gap) -> str:
    if gap.reason is GapReason.BAD_HEADER:
        return "not a log: it does not begin as one (bad_header)"
    return str(gap.reason.value)


def _print_summary(logs: list[Path], *, as_json: bool, stale_after: float) -> bool:
    state = RunState(keep_rows=False)
    gaps: list[tuple[Path, Gap]] = []
    known = 0
    for log, _ in zip(logs, fold(logs, state), strict=True):
        gaps += ((log, gap) for gap in state.gaps[known:])
        known = len(state.gaps)
    status = status_of(state, logs[-1], stale_after)
    if as_json:
        click.echo(plain_json(_summary_object(logs, state, status, gaps)))
        return bool(gaps)
    for line in _summary_lines(logs, state, status, gaps):
        click.echo(printable(line))
    if others := _logs_beside(logs):
        click.echo(f"more     {others} more log(s) of this run beside it: name its directory, or its id, to fold all")
    return bool(gaps)


def _logs_beside(logs: list[Path]) -> int:
    """How many other logs the run has in the folder of its last one, copies of these not counted."""
    try:
        others = {*siblings(logs[-1])} - {*logs}
    except ValueError:  # of two copies that differ, one was named
        return 0
    starts = {head_of(log).start_time_ns for log in logs}
    return sum(head_of(log).start_time_ns not in starts for log in others)


def _summary_object(logs: list[Path], state: RunState, status: str, gaps: list[tuple[Path, Gap]]) -> dict[str, Any]:
    info = state.info
    return {
        "type": "summary",
        "log": str(logs[-1]),
        "logs": [str(log) for log in logs],
        "run": info.run_id,
        "entity": info.entity,
        "project": info.project,
        "name": info.display_name,
        "group": info.group,
        "job_type": info.job_type,
        "tags": info.tags,
        "notes": info.notes,
        "started": info.start_time_ns / 1e9,
        "runtime": state.runtime,
        "status": status,
        "exit_code": state.exit_code,
        "rows": state.row_count,
        "rows_cut": state.cut_count,
        "samples": state.sample_count,
        "console_lines": state.console_count,
        "last_step": state.last_step,
        "config": state.config,
        "summary": state.summary,
        "gaps": [
            {"log": str(log), "offset": gap.offset, "length": gap.length, "reason": gap.reason.value}
            for log, gap in gaps
        ],
        "records_lost": state.records_lost,
    }


def status_of(state: RunState, log: Path, stale_after: float) -> str:
    """`finished`, `failed`, `running` or `crashed`: as `ls` and a sync judge a run whose newest log is `log`."""
    status = state.status(age=0.0)
    is_open = state.has_run and status == "running"
    if is_open and not Liveness(SystemClock()).is_alive(log, log.stat().st_mtime, stale_after):
        return "crashed"
    return status


def age_of(log: Path) -> float:
    """Seconds since the log last grew."""
    return time.time() - log.stat().st_mtime


def _summary_lines(logs: list[Path], state: RunState, status: str, gaps: list[tuple[Path, Gap]]) -> Iterator[str]:
    info = state.info
    for index, log in enumerate(logs):
        yield f"{'' if index else 'log':<8} {log}"
    yield f"run      {info.run_id or '(no run record)'}" + (f"  {info.display_name}" if info.display_name else "")
    yield f"project  {'/'.join(part for part in (info.entity, info.project) if part) or '(server default)'}"
    if info.start_time_ns:
        yield f"started  {when(info.start_time_ns / 1e9)}, ran {state.runtime:.0f} s"
    if state.environment is not None and state.environment.program:
        yield f"program  {clip(' '.join([state.environment.program, *state.environment.args]), 120)}"
    silent = f", silent for {elapsed(age_of(logs[-1]))}" if state.has_run else ""
    end = f"no exit record{silent}" if state.exit_code is None else f"exit code {state.exit_code}"
    yield f"status   {status} ({end})"
    parts = ((state.row_count, "row"), (state.sample_count, "sample"), (state.console_count, "console line"))
    yield f"holds    {', '.join(counted(number, word) for number, word in parts)}"
    if state.cut_count:
        yield f"         {state.cut_count} more rows have steps that a later log repeats: they do not count"
    for title, tree in (("config", state.config), ("summary", state.summary)):
        shown = {key: value for key, value in tree.items() if key != "_wandb"}
        for index, (key, value) in enumerate(sorted(shown.items())):
            text = clip(json.dumps(value, ensure_ascii=False, default=str), 120)
            yield f"{title if index == 0 else '':<8} {key} = {text}"
    for log, gap in gaps:
        where = f" of {log}" if len(logs) > 1 else ""
        yield f"GAP      bytes {gap.offset}-{gap.end}{where}: {_said(gap)}{_loss(gap)}"
