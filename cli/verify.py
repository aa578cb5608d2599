"""`runferry verify`: whether logs are whole, and whether a server holds what they hold."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from ..sync.report import counted
from .paths import SomePath
from .text import JsonCommand, Printer, clip, in_words, plain_json, printable, stale_after_option

if TYPE_CHECKING:
    from ..sync.compare import Verification
    from ..sync.integrity import Integrity


_REMOTE_ONLY = ("project", "entity", "run_id", "overlap", "follow_links")


@click.command(cls=JsonCommand)
@click.argument("paths", nargs=-1, type=SomePath())
@click.option("--remote", is_flag=True, help="Compare with the server.")
@click.option("--deep", is_flag=True, help="With --remote: also each row's step and values.")
@click.option("-p", "--project", help="With --remote, as for sync.")
@click.option("-e", "--entity", help="With --remote, as for sync.")
@click.option("--id", "run_id", help="With --remote, as for sync.")
@click.option("--base-url", help="With --remote: server; else as for sync.")
@click.option(
    "--overlap",
    type=click.Choice(["last", "first", "both"]),
    help="With --remote: how logs of one run are stitched.  [default: as they were sent]",
)
@click.option("--follow-links", is_flag=True, help="With --remote, as for sync.  [default: as it was sent]")
@click.option(
    "--retry-for", type=float, default=60.0, show_default=True, help="With --remote: seconds to retry a request."
)
@stale_after_option
@click.option("--json", "as_json", is_flag=True, help="One JSON object per line, each with a `type`.")
def command(
    paths: tuple[Path, ...], *, remote: bool, deep: bool, as_json: bool, base_url: str | None, **options: Any
) -> None:
    """Read the logs below PATHS (default: ./wandb) to their end, and say which are damaged and where.

    With --remote, compare each run with the server instead: rows, samples and console lines, last step, state, summary,
    config, files (size and MD5) and artifacts. What the server does not tell is not checked, and said so. A run that a
    sync was told to send elsewhere is looked for there.

    \b
    Verdict of each log          Verdict of each run with --remote
      whole                        equal
      damaged  the reason says     differs  the reason says where
               where               unknown  it could not be compared

    \b
    Exit codes
      0    all whole, or equal
      1    something is damaged (also if all that can be read
           is equal), differs, or could not be compared
      2    usage, or no (valid) API key
      75   the server could not be reached, or a run goes on
           and has to be synced again: try again later
      130  interrupted
    """
    if not paths and not Path("wandb").exists():
        raise click.ClickException("no wandb directory here: name a log, a run directory, or a folder of them")
    paths = paths or (Path("wandb"),)
    if remote:
        code = _remote(paths, base_url, deep=deep, as_json=as_json, options=options)
    elif deep or base_url is not None or any(options[name] for name in _REMOTE_ONLY):
        raise click.UsageError(
            "--deep, --project, --entity, --id, --base-url, --overlap and --follow-links go with --remote"
        )
    else:
        code = _local(paths, options["stale_after"], as_json=as_json)
    raise click.exceptions.Exit(code)


def _local(paths: tuple[Path, ...], stale_after: float, *, as_json: bool) -> int:
    from ..sync import UsageError
    from ..sync.clock import SystemClock
    from ..sync.integrity import verify_log
    from ..sync.liveness import Liveness
    from ..sync.plan import survey

    try:
        heads = survey(paths)
    except UsageError as error:
        raise click.ClickException(str(error)) from None
    counts: Counter[str] = Counter()
    liveness = Liveness(SystemClock())
    say = Printer()
    for head in heads:
        found = verify_log(head, liveness, stale_after)
        word = "whole" if found.is_whole else "damaged"
        counts[word] += 1
        say(plain_json(found.as_json()) if as_json else _log_line(word, found))
    _finish(say, counts, 1 if counts["damaged"] else 0, as_json=as_json)
    return 1 if counts["damaged"] else 0


def _log_line(word: str, found: Integrity) -> str:
    parts = [f"{word:<9}{printable(found.log)}", counted(found.rows, "row")]
    return "  ".join([*parts, printable(found.reason)] if found.reason else parts)


def _remote(
    paths: tuple[Path, ...], base_url: str | None, *, deep: bool, as_json: bool, options: dict[str, Any]
) -> int:
    from ..sync import NoCredentials, SyncSettings, UsageError
    from ..sync.report import Event, Paused, Retrying
    from ..sync.settings import find_base_url
    from ..sync.verify import verify_remote
    from .syncoptions import refuse_empty

    say = Printer()

    def show(found: Verification) -> None:
        say(plain_json(found.as_json()) if as_json else _run_line(found))

    def news(event: Event) -> None:
        if isinstance(event, (Paused, Retrying)):
            reason = printable(clip(in_words(event.reason), 200))
            say(f"waiting {event.wait:.1f} s before {printable(in_words(event.what))}: {reason}", err=True)

    try:
        overlap = options.pop("overlap")
        refuse_empty({"base_url": base_url, **options}, "project", "entity", "base_url")
        settings = SyncSettings(base_url=base_url or find_base_url(), **options)
        report = verify_remote(paths, settings, deep=deep, overlap=overlap, told=show, reporter=news)
    except (NoCredentials, UsageError) as error:
        raise click.ClickException(str(error)) from None
    _finish(say, Counter(report.counts()), report.exit_code, as_json=as_json)
    return report.exit_code


def _run_line(found: Verification) -> str:
    rows = next((check.logs for check in found.checks if check.name == "rows"), None)
    parts = [f"{found.match.value:<9}{printable(found.logs[-1])}"]
    parts += [counted(rows, "row")] if rows is not None else []
    whose = "(your entity)" if found.target.startswith("/") else ""
    parts += [printable(whose + found.target)] if found.target else []
    parts += [printable(in_words(found.reason))] if found.reason else []
    return "  ".join(parts)


def _finish(say: Printer, counts: Counter[str], code: int, *, as_json: bool) -> None:
    counts = +counts
    if as_json:
        say(plain_json({"type": "done", "exit_code": code, "counts": dict(counts)}))
    else:
        say(", ".join(f"{count} {word}" for word, count in sorted(counts.items())) or "no logs found", err=True)
