"""`runferry export`: runs in other forms."""

from __future__ import annotations

import sys
from collections import Counter
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from ..export import FORMATS
from ..logformat.words import counted
from .paths import Source
from .sources import opened_paths
from .steps import StepRange
from .text import JsonCommand, Printer, plain_json, printable, stale_after_option

if TYPE_CHECKING:
    from ..export import Outcome


@click.command(cls=JsonCommand)
@click.argument("paths", metavar="[PATH]...", nargs=-1, type=Source())
@click.option("--to", required=True, type=click.Choice([*FORMATS]), help="The format.")
@click.option(
    "-o",
    "--out",
    type=Source(),
    metavar="OUT",
    default="export",
    show_default=True,
    help="A folder, a URL, one file (by its ending), or `-`.",
)
@click.option("--what", "whats", multiple=True, metavar="WHAT,...", help="Only these; see below.")
@click.option(
    "--shape",
    type=click.Choice(["wide", "long"]),
    default="wide",
    show_default=True,
    help="Rows and samples with a column for each key, or a line for each value.",
)
@click.option("--one-table", is_flag=True, help="One table over all runs, with the run in column `_run`.")
@click.option(
    "--keys", multiple=True, metavar="GLOB", help="Only keys of rows and samples that match; may be repeated."
)
@click.option("--steps", type=StepRange(), default=":", metavar="A:B", help="Only rows from step A on, up to before B.")
@click.option("--every", type=click.IntRange(1), default=1, metavar="N", help="Only each Nth row, and sample.")
@stale_after_option
@click.option("--force", is_flag=True, help="Write over files that are there.")
@click.option("--json", "as_json", is_flag=True, help="One JSON object per line, each with a `type`.")
def command(
    paths: tuple[str | Path, ...], *, to: str, out: str | Path, whats: tuple[str, ...], as_json: bool, **options: Any
) -> None:
    """Export runs as tables, as TensorBoard event files, or as a page.

    PATH is a log, a run directory, the id of a run in ./wandb, a folder of runs (default: ./wandb), a bundle, a packed log
    (.gz, .zst), `-` or a URL. The logs of a run that was resumed are exported as one run. Each run gets a folder in OUT;
    if OUT ends as a file of the format (`rows.csv`), or is `-`, it gets one thing: the rows, or what --what names.

    \b
    WHAT      is                                      as
      rows      what was logged, by step                table
      samples   system metrics                          table
      console   what the program printed                table
      run       who it is, and how it went              JSON
      config    the config                              JSON
      summary   the last, best, mean values             JSON
      alerts, files, gaps                               tables

    \b
    Exit codes
      0    all is there
      1    a log is damaged or unreadable, or a file could not
           be written; what could be was
      2    usage
      130  interrupted
    """
    from ..export import ExportError, Options, Selection, export
    from ..sync.errors import UsageError
    from .show import status_of

    first, end = options["steps"]
    wanted = Options(
        to,
        whats=tuple(dict.fromkeys(what.strip() for text in whats for what in text.split(",") if what.strip())),
        shape=options["shape"],
        selection=Selection(options["keys"], first, end, options["every"]),
        one_table=options["one_table"],
        force=options["force"],
    )
    is_piped = str(out) == "-"
    say = Printer()

    try:
        with opened_paths(paths or (Path("wandb"),)) as found:

            def told(outcome: Outcome) -> None:
                outcome.problems = [found.in_words(problem) for problem in outcome.problems]
                _tell(say, outcome, as_json=as_json and not is_piped, is_piped=is_piped)

            outcomes = export(
                found.paths,
                str(out),
                wanted,
                told=told,
                shown=found.shown,
                status=partial(status_of, stale_after=options["stale_after"]),
                stdout=sys.stdout.buffer if is_piped else None,
            )
            is_whole = not found.problems
    except (ExportError, UsageError) as error:
        raise click.ClickException(printable(str(error))) from None
    code = 0 if is_whole and not any(outcome.problems for outcome in outcomes) else 1
    counts = Counter("problems" if outcome.problems else "whole" for outcome in outcomes)
    if as_json and not is_piped:
        say(plain_json({"type": "done", "exit_code": code, "counts": dict(counts)}))
    raise click.exceptions.Exit(code)


def _tell(say: Printer, outcome: Outcome, *, as_json: bool, is_piped: bool) -> None:
    if as_json:
        say(plain_json({"type": "run", **vars(outcome)}))
        return
    if outcome.files and not is_piped:
        counts = outcome.counts
        amounts = ", ".join(counted(counts[what], what[:-1]) for what in ("rows", "samples") if what in counts)
        where = outcome.files[0] if len(outcome.files) == 1 else f"{outcome.files[0].rpartition('/')[0]}/"
        say(printable("  ".join(part for part in (outcome.run, amounts, where) if part)))
    for problem in outcome.problems:
        say(printable(f"{outcome.run or 'runs'}: {problem}"), err=True)
    for note in outcome.notes:
        say(printable(f"{outcome.run}: {note}"), err=True)
