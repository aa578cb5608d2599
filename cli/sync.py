"""`runferry sync`: replay logs to a backend."""

from __future__ import annotations

import os
import signal
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from .syncview import JsonLines, PlainLines, Terminal

if TYPE_CHECKING:
    from ..sync import Report, SyncSettings
    from ..sync.report import Reporter
    from ..sync.watch import Watching


@click.command(name="sync", context_settings={"help_option_names": ["-h", "--help"]})
@click.argument("paths", nargs=-1, type=click.Path(path_type=Path))
@click.option("-p", "--project", help="Send to this project instead of the log's.")
@click.option("-e", "--entity", help="Send to this user or team instead of the log's.")
@click.option("--id", "run_id", help="Send as this run. Several logs become one run, in order of their start.")
@click.option("--job-type", help="Job type to give the run instead of the log's.")
@click.option("--base-url", help="Server; else RUNFERRY_BASE_URL, WANDB_BASE_URL, your settings file.")
@click.option(
    "-j", "--jobs", type=click.IntRange(1, 8), help="Runs at a time.  [default: as many as there are, up to 8]"
)
@click.option(
    "--retry-for", type=float, default=600.0, show_default=True, help="Seconds to retry a request; 0: do not retry."
)
@click.option(
    "--stale-after",
    type=float,
    default=600.0,
    show_default=True,
    help="Seconds without growth after which a log without exit record counts as crashed.",
)
@click.option("--include-synced", is_flag=True, help="Also logs marked as synced; lines go to the same places again.")
@click.option("--dry-run", is_flag=True, help="Say what would be sent; contact nobody.")
@click.option("--watch", "watches", is_flag=True, help="Go on while the runs do, and send what they log as it comes.")
@click.option("--interval", type=float, metavar="SECONDS", help="With --watch: between two looks.  [default: 1]")
@click.option("--idle", type=float, metavar="SECONDS", help="With --watch: end when nothing has grown for so long.")
@click.option("--writer", type=int, hidden=True)
@click.option("--json", "as_json", is_flag=True, help="One JSON object per line, each with a `type`.")
def command(
    paths: tuple[Path, ...],
    *,
    as_json: bool,
    base_url: str | None,
    watches: bool,
    interval: float | None,
    idle: float | None,
    writer: int | None,
    **options: Any,
) -> None:
    """Replay logs to a backend; safe to stop and to repeat.

    PATHS are logs (run-ID.wandb), run directories, wandb directories, or any tree of them; ./wandb by default. Only
    what the server has not acknowledged yet is sent. The run directory is only read, but for three small files beside
    the log: cursor, lock and the marker that says that everything arrived.

    The API key comes from RUNFERRY_API_KEY, WANDB_API_KEY, or netrc.

    With --watch it goes on: new rows and new runs are picked up within two seconds. It ends when every run named has
    ended, or has not grown for --stale-after. Below a folder of runs, where new ones may appear, it ends after --idle
    seconds without growth, or when it is interrupted.

    \b
    Verdict of each log
      synced   the server acknowledged every row, summary and file
      live     everything was sent; the run still goes on
      partial  sent what could be; the reason names what is missing
      failed   the reason says why
      skipped  another sync holds the log, another tool marked it as synced,
               or this was a dry run

    \b
    Exit codes
      0    all done
      1    some logs are partial or failed
      2    usage, or no (valid) API key
      75   nothing but time stands in the way: try again later
      130  interrupted
    """
    from ..sync import NoCredentials, SyncSettings, UsageError, sync
    from ..sync.settings import find_base_url

    if not watches and (interval, idle) != (None, None):
        raise click.UsageError("--interval and --idle go with --watch")
    if not paths and not Path("wandb").exists():
        raise click.ClickException("no wandb directory here: name a log, a run directory, or a folder of them")
    show: Any = JsonLines() if as_json else Terminal() if sys.stderr.isatty() else PlainLines()
    try:
        settings = SyncSettings(base_url=base_url or find_base_url(), **options)
        if watches:
            report = _watch(paths or (Path("wandb"),), settings, _watching(interval, idle, writer), show)
        else:
            report = sync(paths or (Path("wandb"),), settings, reporter=show)
    except (NoCredentials, UsageError) as error:
        raise click.ClickException(str(error)) from None  # as clear without the usage line
    finally:
        show.close()
    raise click.exceptions.Exit(report.exit_code)


def _watch(paths: tuple[Path, ...], settings: SyncSettings, watching: Watching, show: Reporter) -> Report:
    from ..sync.watch import watch

    before = signal.signal(signal.SIGTERM, signal.default_int_handler)  # both end it in good order
    try:
        return watch(paths, settings, watching, reporter=show)
    finally:
        signal.signal(signal.SIGTERM, before)


def _watching(interval: float | None, idle: float | None, writer: int | None) -> Watching:
    from ..sync.watch import INTERVAL_S, Watching

    # The writer began this process, and is its parent as long as it lives, whatever process gets its number later.
    is_told = writer is not None and os.name == "posix"
    return Watching(
        INTERVAL_S if interval is None else interval, idle, (lambda: os.getppid() == writer) if is_told else None
    )
