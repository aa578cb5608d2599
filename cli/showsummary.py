"""What a run amounts to, for `runferry show --summary`."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import click

from ..logformat import Gap, RunState, head_of, siblings
from ..logformat.elapsed import in_seconds
from ..logformat.segments import fold
from ..sync.clock import SystemClock
from ..sync.inflight import is_in_flight
from ..sync.liveness import Liveness
from ..sync.report import counted, elapsed
from .showrecords import Named, gap_words, loss_words
from .text import clip, plain_json, printable, when


def print_summary(logs: list[Path], name: Named, *, as_json: bool, stale_after: float) -> bool:
    """Print the summary of the logs of one run, in this order; whether anything is lost."""
    state = RunState(keep_rows=False)
    gaps: list[tuple[Path, Gap]] = []
    known = 0
    for log, _ in zip(logs, fold(logs, state), strict=True):
        gaps += ((log, gap) for gap in state.gaps[known:])
        known = len(state.gaps)
    status = status_of(state, logs[-1], stale_after)
    liveness = Liveness(SystemClock())
    is_lossy = not all(is_in_flight(log, gap, liveness, stale_after) for log, gap in gaps)
    if as_json:
        click.echo(plain_json(_summary_object(logs, name, state, status, gaps)))
        return is_lossy
    for line in _summary_lines(logs, name, state, status, gaps):
        click.echo(printable(line))
    if others := _logs_beside(logs):
        click.echo(f"more     {others} more log(s) of this run beside it: name its directory, or its id, to fold all")
    return is_lossy


def _logs_beside(logs: list[Path]) -> int:
    """How many other logs the run has in the folder of its last one, copies of these not counted."""
    try:
        others = {*siblings(logs[-1])} - {*logs}
    except ValueError:  # of two copies that differ, one was named
        return 0
    starts = {head_of(log).start_time_ns for log in logs}
    return sum(head_of(log).start_time_ns not in starts for log in others)


def _summary_object(
    logs: list[Path], name: Named, state: RunState, status: str, gaps: list[tuple[Path, Gap]]
) -> dict[str, Any]:
    info = state.info
    return {
        "type": "summary",
        "log": name(logs[-1]),
        "logs": [name(log) for log in logs],
        "run": info.run_id,
        "entity": info.entity,
        "project": info.project,
        "name": info.display_name,
        "group": info.group,
        "job_type": info.job_type,
        "tags": info.tags,
        "notes": info.notes,
        "started": in_seconds(info.start_time_ns),
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
            {"log": name(log), "offset": gap.offset, "length": gap.length, "reason": gap.reason.value}
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


def _summary_lines(
    logs: list[Path], name: Named, state: RunState, status: str, gaps: list[tuple[Path, Gap]]
) -> Iterator[str]:
    info = state.info
    for index, log in enumerate(logs):
        yield f"{'' if index else 'log':<8} {name(log)}"
    nameless = "" if state.has_run else "(no run record)"
    yield "run      " + "  ".join(filter(None, [info.run_id, info.display_name, nameless]))
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
        where = f" of {name(log)}" if len(logs) > 1 else ""
        yield f"GAP      bytes {gap.offset}-{gap.end}{where}: {gap_words(gap)}{loss_words(gap)}"
