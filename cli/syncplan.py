"""`runferry sync plan`: the runs found, and what a sync has to do for each, without asking a server."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from ..sync.report import counted, elapsed
from .paths import SomePath
from .syncoptions import choice_options, settings_of, target_options
from .text import PIPE_WIDTH, clip, plain_json, printable, size, stale_after_option

if TYPE_CHECKING:
    from rich.table import Table

    from ..sync import Preview, RunPreview


@click.command(name="plan", context_settings={"help_option_names": ["-h", "--help"]})
@click.argument("paths", nargs=-1, type=SomePath())
@target_options
@choice_options
@stale_after_option
@click.option("--json", "as_json", is_flag=True, help="One JSON object per line and run, each with a `type`.")
def command(paths: tuple[Path, ...], *, as_json: bool, **options: Any) -> None:
    """List the runs below PATHS (default: ./wandb), and what a sync with these options has to do for each.

    Nobody is contacted and nothing is written. With --json each line is a run with the logs that one sync has to be
    given together: for GNU parallel, job arrays and the like. Exit code 1: a log cannot be synced.

    \b
    What there is to do
      all      nothing of it was sent from here
      rest     a part was sent
      nothing  all that can be was sent, and nothing has changed since;
               a copy whose end is torn is whole with the next one
      skip     marked as synced, and no cursor says by whom
    """
    from ..sync import SyncSettings, UsageError, preview

    if not paths and not Path("wandb").exists():
        raise click.ClickException("no wandb directory here: name a log, a run directory, or a folder of them")
    try:
        found = preview(paths or (Path("wandb"),), SyncSettings(**settings_of(options)))
    except UsageError as error:
        raise click.ClickException(str(error)) from None
    if as_json:
        _print_json(found)
    else:
        _print_table(found)
    if found.problems:
        sys.exit(1)


def _print_json(found: Preview) -> None:
    for run in found.runs:
        target = f"{run.entity or ''}/{run.project}/{run.run}"
        click.echo(plain_json({"type": "run", **asdict(run), "todo": run.todo.value, "target": target}))
    for path, problem in found.problems.items():
        click.echo(plain_json({"type": "problem", "path": path, "problem": problem}))
    for path, reason in found.copies.items():
        click.echo(plain_json({"type": "copy", "path": path, "reason": reason}))
    for path in found.beginning:
        click.echo(plain_json({"type": "beginning", "path": path}))
    click.echo(plain_json({"type": "done", "runs": len(found.runs), "left_out": found.left_out}))


def _print_table(found: Preview) -> None:
    from rich.console import Console

    console = Console()
    if not console.is_terminal:
        console.width = PIPE_WIDTH
    if found.runs:
        console.print(_table(found.runs, console.width))
    for path, problem in found.problems.items():
        click.echo(f"{printable(path)}: {printable(problem)}", err=True)
    for path, reason in found.copies.items():
        click.echo(f"{printable(path)}: {printable(reason)}", err=True)
    for path in found.beginning:
        click.echo(f"{printable(path)}: no record yet: the run begins", err=True)
    todo = sum(run.todo.value in {"all", "rest"} for run in found.runs)
    left_out = sum(found.left_out.values())
    text = f"{counted(len(found.runs), 'run')}, {todo} to sync"
    click.echo(f"{text}, {left_out} left out" if left_out else text, err=True)


def _table(runs: tuple[RunPreview, ...], width: int) -> Table:
    """One line for each run, with as much as there is room for."""
    from rich.table import Table
    from rich.text import Text

    shown = {title: cell for title, (least, cell) in _COLUMNS.items() if width >= least}
    columns = {title: [printable(cell(run)) for run in runs] for title, cell in shown.items()}
    fixed = {title: max(map(len, [title, *cells])) for title, cells in columns.items() if title not in _FLEXIBLE}
    flexible = [title for title in columns if title in _FLEXIBLE]
    room = (width - sum(fixed.values()) - _GAP * (len(columns) - 1)) // max(1, len(flexible))
    table = Table(box=None, pad_edge=False, header_style="bold")
    for title in list(columns):
        if title in flexible and room < _LEAST_ROOM:
            del columns[title]
            continue
        table.add_column(title, justify="right" if title in _NUMBERS else "left", no_wrap=True, overflow="ellipsis")
    for cells in zip(*columns.values(), strict=True):
        texts = zip(columns, cells, strict=True)
        table.add_row(*(Text(clip(cell, room) if title in flexible else cell) for title, cell in texts))
    return table


def _todo(run: RunPreview) -> str:
    parts = [run.todo.value]
    parts += [f"{run.lost} missing for good"] if run.lost else []
    parts += ["its end is torn"] if run.torn else []
    return ", ".join(parts)


_NUMBERS = {"logs", "size", "rows sent"}
_FLEXIBLE = {"target", "log"}  # take the room that the others leave
_LEAST_ROOM = 8  # characters; in less they say nothing
_GAP = 2  # between two columns
_COLUMNS: dict[str, tuple[int, Callable[[RunPreview], str]]] = {
    "run": (0, lambda run: run.run),
    "state": (0, lambda run: run.state),
    "to do": (0, _todo),
    "logs": (100, lambda run: str(len(run.logs))),
    "size": (120, lambda run: size(run.bytes)),
    "written": (60, lambda run: f"{elapsed(time.time() - run.modified)} ago"),
    "rows sent": (40, lambda run: str(run.rows_sent)),
    "target": (60, lambda run: f"{run.entity or '(your entity)'}/{run.project}"),
    "log": (140, lambda run: run.logs[0]),
}
"""Column -> from how wide a terminal on it is shown, and what stands in it."""
