"""`runferry sync`: replay logs to a backend."""

from __future__ import annotations

import contextlib
import os
import signal
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

import click

from ..sync.settings import DEFAULT_JOBS, MAX_JOBS, OVERLAPS
from .paths import Source
from .sources import opened_paths
from .syncoptions import choice_options, settings_of, target_options
from .syncoutputs import Outputs
from .text import JsonCommand, stale_after_option

if TYPE_CHECKING:
    from ..sync.credentials import ApiKey
    from ..sync.report import Report, Reporter
    from ..sync.watch import Watching


class SyncCommand(JsonCommand):
    """The command, which hands over to `sync plan` where that is asked for; a folder of that name is `./plan`."""

    more: ClassVar[dict[str, Any]] = {"left_out": {}}

    def make_context(  # noqa: D102 - click's
        self, info_name: str | None, args: list[str], parent: click.Context | None = None, **extra: Any
    ) -> click.Context:
        if args[:1] != ["plan"]:
            return super().make_context(info_name, args, parent, **extra)
        from .syncplan import command as plan

        return plan.make_context(f"{info_name} plan", args[1:], parent, **extra)


@click.command(name="sync", cls=SyncCommand, context_settings={"help_option_names": ["-h", "--help"]})
@click.argument("paths", nargs=-1, type=Source())
@target_options
@choice_options
@click.option(
    "--key-file",
    type=click.Path(path_type=Path),
    metavar="FILE",
    help="Read the API key from FILE, which may be a pipe.",
)
@click.option("--key-stdin", is_flag=True, help="Read the API key from the first line of standard input.")
@click.option(
    "-j",
    "--jobs",
    "-n",
    type=click.IntRange(1, MAX_JOBS),
    help=f"Runs at a time, at most {MAX_JOBS}.  [default: as many as there are, up to {DEFAULT_JOBS}]",
)
@click.option(
    "--retry-for", type=float, default=600.0, show_default=True, help="Seconds to retry a request; 0: do not retry."
)
@stale_after_option
@click.option(
    "--overlap",
    type=click.Choice(OVERLAPS),
    default="last",
    show_default=True,
    help="Whose rows count where two logs of a run have the same steps.",
)
@click.option("--follow-links", is_flag=True, help="Also send saved files that are links out of a run's directory.")
@click.option("--dry-run", is_flag=True, help="Say what would be sent; contact nobody.")
@click.option(
    "--watch", "--live", "watches", is_flag=True, help="Go on while the runs do, and send what they log as it comes."
)
@click.option("--interval", type=float, metavar="SECONDS", help="With --watch: between two looks.  [default: 1]")
@click.option("--idle", type=float, metavar="SECONDS", help="With --watch: end when nothing has grown for so long.")
@click.option("--writer", type=int, hidden=True)
@click.option(
    "--report", "report_file", type=click.Path(path_type=Path), metavar="FILE", help="Write verdicts and settings here."
)
@click.option(
    "--metrics-file",
    type=click.Path(path_type=Path),
    metavar="FILE",
    help="Write counters here, as OpenMetrics text for node_exporter.",
)
@click.option(
    "--delete-after-verify",
    "deletes",
    is_flag=True,
    help="Delete the directories of runs that are synced, once the server was asked and has it all.",
)
@click.option("--json", "as_json", is_flag=True, help="One JSON object per line, each with a `type`.")
@click.option("--include-online", "--no-skip-online", "needless", is_flag=True, hidden=True)
@click.option("-y", "--yes", "needless", is_flag=True, hidden=True)
@click.option("-v", "--verbose", "needless", is_flag=True, hidden=True)
def command(
    paths: tuple[str | Path, ...],
    *,
    key_file: Path | None,
    key_stdin: bool,
    as_json: bool,
    needless: bool,  # noqa: ARG001 - options of the peer's that ask for what is always done
    watches: bool,
    interval: float | None,
    idle: float | None,
    writer: int | None,
    report_file: Path | None,
    metrics_file: Path | None,
    deletes: bool,
    **options: Any,
) -> None:
    """Replay logs to a backend; safe to stop and to repeat.

    PATHS are logs (run-ID.wandb), run directories, wandb directories, any tree of them, or patterns of such paths;
    ./wandb by default. Bundles (`runferry pack`), packed logs (.gz, .zst), `-` and URLs are read as they are. Only what the server
    has not acknowledged yet is sent. The run directory is only read, but for three small files beside the log: cursor, lock and
    the marker that says that everything arrived.

    The API key comes from --key-file, --key-stdin, RUNFERRY_API_KEY, RUNFERRY_API_KEY_FILE, WANDB_API_KEY, or netrc,
    and never from the command line; with WANDB_IDENTITY_TOKEN_FILE an identity token is used instead.

    With --watch it goes on: new rows and new runs are picked up within two seconds. It ends when every run named has
    ended, or has not grown for --stale-after. Below a folder of runs, where new ones may appear, it ends after --idle
    seconds without growth, or when it is interrupted.

    `runferry sync plan [PATHS]` lists the runs and what there is to do for each. Runs that --shard, --state, --newer,
    --tag or --min-rows leave out are counted and not touched.

    \b
    Verdict of each log
      synced   the server acknowledged every row, summary and file
      live     everything was sent; the run still goes on
      partial  sent what could be; the reason names what is missing
      failed   the reason says why
      skipped  another sync holds the log, it is a copy or marked as synced,
               or this was a dry run

    \b
    Exit codes
      0    all done
      1    some logs are partial or failed
      2    usage, or no (valid) API key
      75   nothing but time stands in the way: try again later
      130  interrupted (Ctrl-C, SIGTERM)
    """
    from ..sync import NoCredentials, SyncSettings, UsageError, sync
    from ..sync.session import Session

    if not watches and (interval, idle) != (None, None):
        raise click.UsageError("--interval and --idle go with --watch")
    if deletes and options["dry_run"]:
        raise click.UsageError(
            "--delete-after-verify: a dry run deletes nothing; `runferry clean --dry-run` tells what may go"
        )
    if key_file is not None and key_stdin:
        raise click.UsageError("--key-file and --key-stdin: the key has one source")
    if not paths and not Path("wandb").exists():
        raise click.ClickException("no wandb directory here: name a log, a run directory, or a folder of them")
    if key_stdin and "-" in map(str, paths):
        raise click.UsageError("--key-stdin and `-`: standard input holds one of them")
    try:
        settings = SyncSettings(**settings_of(options))
        key = _key(settings.base_url, key_file, from_stdin=key_stdin)
        watching = _watching(interval, idle, writer) if watches else None
        with _ended_by_sigterm(), opened_paths(paths or (Path("wandb"),), lasts=True) as found:
            if deletes and found.sources:
                raise click.ClickException("--delete-after-verify deletes run directories, and these runs are packed")
            named = tuple(map(found.shown, found.paths))
            outputs = Outputs(
                settings, named, as_json=as_json, shown=found.shown, report=report_file, metrics=metrics_file
            )
            session = Session(counters=outputs.counters)
            with outputs, contextlib.closing(session):

                def run(reporter: Reporter) -> Report:
                    if watching is not None:
                        from ..sync.watch import watch

                        return watch(found.paths, settings, watching, reporter=reporter, key=key, session=session)
                    return sync(found.paths, settings, reporter=reporter, key=key, session=session)

                if deletes:
                    from ..sync.afterwards import delete_after_verify

                    code = delete_after_verify(run, settings, outputs, key=key, session=session)
                else:
                    code = run(outputs).exit_code
            code = code or (1 if found.problems else 0)
    except (NoCredentials, UsageError) as error:
        raise click.ClickException(str(error)) from None  # as clear without the usage line
    raise click.exceptions.Exit(code)


def _key(base_url: str, key_file: Path | None, *, from_stdin: bool) -> ApiKey | None:
    """The key that an option leads to; None where none is given.

    Raises:
        NoCredentials: there is no key.
    """
    from ..sync import NoCredentials
    from ..sync.credentials import LONGEST, ApiKey, key_from_file, secret_text

    if key_file is not None:
        return key_from_file(key_file, base_url=base_url, source="--key-file")
    if from_stdin:
        if sys.stdin is None:
            raise NoCredentials("--key-stdin: standard input is closed")
        line = sys.stdin.buffer.readline(LONGEST)
        return ApiKey(secret_text(line), base_url=base_url, source="--key-stdin")
    return None


@contextlib.contextmanager
def _ended_by_sigterm() -> Iterator[None]:
    """SIGTERM ends it in good order, as Ctrl-C does: job schedulers send it."""
    before = signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


def _watching(interval: float | None, idle: float | None, writer: int | None) -> Watching:
    from ..sync.watch import INTERVAL_S, Watching

    # The writer began this process, and is its parent as long as it lives, whatever process gets its number later.
    is_told = writer is not None and os.name == "posix"
    return Watching(
        INTERVAL_S if interval is None else interval, idle, (lambda: os.getppid() == writer) if is_told else None
    )
