"""`runferry ls`: the state of every run found."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from ..logformat import Gap, GapReason, LogReader, RunState, find_logs, head_of, open_log, run_id_of
from ..logformat.elapsed import in_seconds
from ..logformat.segments import Head
from ..sync.clock import SystemClock
from ..sync.errors import UsageError
from ..sync.inflight import is_in_flight
from ..sync.liveness import Liveness
from ..sync.plan import LogHead, read_head, shut_folder
from ..sync.report import counted, elapsed
from ..sync.status import sync_status
from .paths import Source, is_special
from .sources import opened_paths
from .text import PIPE_WIDTH, plain_json, printable, size, stale_after_option

if TYPE_CHECKING:
    from ..bundle import Opened

_WIDE = 120  # columns from which on samples, sizes and paths are shown
_WIDEST = 200  # and pages at the server


@click.command()
@click.argument("paths", nargs=-1, type=Source())
@click.option("--json", "as_json", is_flag=True, help="One JSON object per run and line.")
@stale_after_option
def command(paths: tuple[str | Path, ...], *, as_json: bool, stale_after: float) -> None:
    """List every run below PATHS (default: ./wandb), oldest first: what it is, how it ended, how much was synced.

    Every log is read in full, so what is listed is what can be read. A log without an end whose run goes on in a later
    one is `continued`, that of a further node of a run has `ended`. PATHS may be patterns, as for sync; bundles, packed logs
    (.gz, .zst), `-` and URLs are read as they are. Exit code 1: a log or bundle is damaged, or a log or folder unreadable.
    """
    try:
        with opened_paths(paths or (Path("wandb"),), lasts=True) as found:
            is_good = _list(found, stale_after, as_json=as_json, hints=not paths)
    except UsageError as error:
        raise click.UsageError(str(error)) from error
    if not is_good or found.problems:
        sys.exit(1)


def _list(found: Opened, stale_after: float, *, as_json: bool, hints: bool) -> bool:
    """List all runs; whether all of them are whole."""
    shut: list[LogHead] = []
    try:
        logs = [
            log
            for path in found.paths
            for log in find_logs(path, unreadable=lambda error: shut.append(shut_folder(error, "are not listed")))
        ]
    except FileNotFoundError as error:
        hint = " (no wandb directory here: name a path)" if hints else ""
        raise click.UsageError(f"{error}{hint}") from error
    began = {log: _head(log) for log in dict.fromkeys(logs)}
    newest: dict[tuple[str, str, str], float] = {}
    for head in began.values():
        if head.run is not None and not head.is_node:
            newest[head.run] = max(newest.get(head.run, 0), head.start_time_ns)
    liveness = Liveness(SystemClock())
    rows = (
        {
            **_row(
                log,
                stale_after,
                liveness,
                goes_on_elsewhere=head.run is not None and head.start_time_ns < newest.get(head.run, 0),
                of_node=head.is_node,
            ),
            "log": found.shown(log),
        }
        for log, head in sorted(began.items(), key=lambda item: (item[1].start_time_ns, item[0]))
    )
    damaged = _print_json(rows) if as_json else _print_table(rows, count=len(logs))
    _tell_shut(shut, as_json=as_json)
    return not (damaged or shut)


def _tell_shut(shut: list[LogHead], *, as_json: bool) -> None:
    """The folders into which nobody can look: what is in them is not listed."""
    for path, problem in {str(head.path): head.problem for head in shut}.items():
        if as_json:
            click.echo(plain_json({"type": "problem", "path": path, "problem": problem}))
        else:
            click.echo(f"{printable(path)}: {printable(problem)}", err=True)


def _head(log: Path) -> Head:
    """Whose log it is, and when it began; when it last grew where it does not say, or now."""
    try:
        _be_a_file(log)
        head = head_of(log)
        return head if head.start_time_ns else head._replace(start_time_ns=log.stat().st_mtime_ns)
    except OSError:
        return Head(None, time.time_ns())


def _be_a_file(log: Path) -> None:
    """Raise OSError where it is none."""
    if is_special(log):
        raise OSError("not a file")


def _row(
    log: Path, stale_after: float, liveness: Liveness, *, goes_on_elsewhere: bool, of_node: bool
) -> dict[str, Any]:
    row: dict[str, Any] = {"type": "run", "run": run_id_of(log), "log": str(log)}
    try:
        stat = log.stat()
        _be_a_file(log)
        with open_log(log) as file:
            state = RunState(keep_rows=False).add_batches(LogReader(file).batches())
    except OSError as error:
        return {**row, "status": "unreadable", "problem": error.strerror or str(error)}
    info = state.info
    age = time.time() - stat.st_mtime
    status = state.status(age=0.0)
    if status == "running" and goes_on_elsewhere:
        status = "continued"
    elif status == "running" and not liveness.is_alive(log, stat.st_mtime, stale_after):
        status = "ended" if of_node else "crashed"
    begins = not state.has_run and liveness.is_beginning(read_head(log), stale_after)
    sent = sync_status(log)
    flying = [gap for gap in state.gaps[-1:] if is_in_flight(log, gap, liveness, stale_after)]
    return {
        **row,
        "run": info.run_id or row["run"],
        "name": info.display_name,
        "project": "/".join(part for part in (info.entity, info.project) if part),
        "status": "running" if begins else status,
        "exit_code": state.exit_code,
        "rows": state.row_count,
        "samples": state.sample_count,
        "last_step": state.last_step,
        "started": in_seconds(info.start_time_ns),
        "runtime": state.runtime,
        "age": age,
        "size": stat.st_size,
        "sync": sent.words,
        "rows_sent": sent.rows_sent,
        "url": sent.url,
        "problem": "" if begins else _problem(state, stat.st_size, [gap for gap in state.gaps if gap not in flying]),
    }


def _problem(state: RunState, length: int, gaps: list[Gap]) -> str:
    """What keeps the log from being whole, in a few words; empty if nothing does. `gaps` are those that are losses."""
    if length == 0:
        return "empty file"
    if not state.has_run and not state.gaps:
        return "no run record: the job died before it wrote one"
    reasons = sorted({gap.reason.value for gap in gaps})
    if not reasons:
        return ""
    if reasons == [GapReason.BAD_HEADER.value] and state.gaps[0].note:  # nothing behind it could be read
        return state.gaps[0].note
    lost = state.records_lost
    return ", ".join(reasons) + ("" if lost is None else f" ({counted(lost, 'record')} lost)")


def _print_json(rows: Iterator[dict[str, Any]]) -> bool:
    damaged = False
    for row in rows:
        click.echo(plain_json(row))
        damaged |= bool(row.get("problem"))
    return damaged


def _print_table(rows: Iterator[dict[str, Any]], *, count: int) -> bool:
    from rich.console import Console
    from rich.progress import track

    console = Console()
    listed = track(rows, total=count, description="reading", console=Console(stderr=True), transient=True)
    found = list(listed if console.is_terminal else rows)
    damaged = any(row.get("problem") for row in found)
    if not found:
        click.echo("no runs found")
        return False
    if not console.is_terminal:
        console.width = PIPE_WIDTH
    console.print(_table(found, wide=console.width >= _WIDE, widest=console.width >= _WIDEST, problems=damaged))
    return damaged


def _table(rows: list[dict[str, Any]], *, wide: bool, problems: bool, widest: bool = False) -> Any:
    """What tells runs apart is never cut; where there is room, more is said."""
    from rich.table import Table
    from rich.text import Text

    table = Table(box=None, pad_edge=False, header_style="bold")
    columns: dict[str, Callable[[dict[str, Any]], str]] = {
        "run": lambda row: row["run"],
        "status": lambda row: row["status"],
        "rows": lambda row: str(row.get("rows", "")),
    }
    if wide:
        columns["samples"] = lambda row: str(row.get("samples", ""))
        columns["size"] = lambda row: size(row["size"]) if "size" in row else ""
    columns["written"] = lambda row: f"{elapsed(row['age'])} ago" if "age" in row else ""
    columns["synced"] = lambda row: row.get("sync", "")
    for title in columns:
        table.add_column(title, justify="right" if title in {"rows", "samples", "size"} else "left", no_wrap=True)
    flexible: dict[str, Callable[[dict[str, Any]], str]] = {
        "project": lambda row: row.get("project", ""),
        "name": lambda row: row.get("name", ""),
    }
    if problems:
        flexible["problem"] = lambda row: row["problem"]
    if wide:
        flexible["log"] = lambda row: row["log"]
    if widest and any(row.get("url") for row in rows):
        flexible["url"] = lambda row: row.get("url") or ""
    for title in flexible:
        table.add_column(title, overflow="fold" if title in {"log", "url"} else "ellipsis")
    for row in rows:
        table.add_row(*(Text(printable(cell(row))) for cell in (columns | flexible).values()))
    return table
