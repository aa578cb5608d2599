"""`runferry verify`: whether logs are whole, and whether a server holds what they hold."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from ..sync.errors import UsageError
from ..sync.report import counted
from .paths import Source
from .sources import opened_paths
from .text import JsonCommand, Printer, clip, in_words, plain_json, printable, stale_after_option

if TYPE_CHECKING:
    from ..bundle import Opened
    from ..sync.compare import Verification
    from ..sync.integrity import Integrity


_REMOTE_ONLY = ("project", "entity", "run_id", "overlap", "follow_links")


@click.command(cls=JsonCommand)
@click.argument("paths", nargs=-1, type=Source())
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
    paths: tuple[str | Path, ...], *, remote: bool, deep: bool, as_json: bool, base_url: str | None, **options: Any
) -> None:
    """Read the logs below PATHS (default: ./wandb) to their end, and say which are damaged, where, and what is lost there.

    PATHS may be bundles, packed logs (.gz, .zst), `-` and URLs. Many logs, and large ones, are read in several processes.

    With --remote, compare each run with the server instead: rows, samples and console lines, last step, state, summary,
    config, files (size and MD5) and artifacts. What the server does not tell is not checked, and said so. A run that a
    sync was told to send elsewhere is looked for there.

    \b
    Verdict of each log
      whole       every byte was read
      healed      so it was, as checksums prove what flipped bits were
      torn        it ends inside a record, and nobody writes on
      damaged     the reason says where, and what is lost
      unreadable  it cannot be opened, or is no log

    \b
    Verdict of each run with --remote
      equal
      differs     the reason says where
      unknown     it could not be compared

    \b
    Exit codes
      0    all whole or healed, or equal
      1    something is torn, damaged or unreadable (also if all that
           can be read is equal), differs, or could not be compared
      2    usage, or no (valid) API key
      75   the server could not be reached, or a run goes on
           and has to be synced again: try again later
      130  interrupted
    """
    if not paths and not Path("wandb").exists():
        raise click.ClickException("no wandb directory here: name a log, a run directory, or a folder of them")
    paths = paths or (Path("wandb"),)
    is_local_wrong = deep or base_url is not None or any(options[name] for name in _REMOTE_ONLY)
    if not remote and is_local_wrong:
        raise click.UsageError(
            "--deep, --project, --entity, --id, --base-url, --overlap and --follow-links go with --remote"
        )
    try:
        with opened_paths(paths, lasts=remote) as opened:
            if remote:
                code = _remote(opened, base_url, deep=deep, as_json=as_json, options=options)
            else:
                code = _local(opened, options["stale_after"], as_json=as_json)
    except UsageError as error:
        raise click.ClickException(str(error)) from None
    raise click.exceptions.Exit(code)


def _local(opened: Opened, stale_after: float, *, as_json: bool) -> int:
    from ..sync.integrity import verify_logs
    from ..sync.plan import survey

    heads = survey(opened.paths)
    counts: Counter[str] = Counter()
    say = Printer()
    code = 1 if opened.problems else 0
    for result in verify_logs(heads, stale_after):
        found = replace(result, log=opened.shown(result.log))
        counts[found.state.value] += 1
        code = code if found.is_whole else 1
        say(plain_json(found.as_json()) if as_json else _log_line(found))
    _finish(say, counts, code, as_json=as_json)
    return code


def _log_line(found: Integrity) -> str:
    parts = [f"{found.state.value:<10} {printable(found.log)}", counted(found.rows, "row")]
    return "  ".join([*parts, printable(found.reason)] if found.reason else parts)


def _remote(opened: Opened, base_url: str | None, *, deep: bool, as_json: bool, options: dict[str, Any]) -> int:
    from ..sync import NoCredentials, SyncSettings
    from ..sync.report import Event, Paused, Retrying
    from ..sync.settings import find_base_url
    from ..sync.verify import verify_remote
    from .syncoptions import refuse_empty

    say = Printer()

    def show(result: Verification) -> None:
        found = replace(result, logs=tuple(map(opened.shown, result.logs)))
        say(plain_json(found.as_json()) if as_json else _run_line(found))

    def news(event: Event) -> None:
        if isinstance(event, (Paused, Retrying)):
            reason = printable(clip(in_words(event.reason), 200))
            say(f"waiting {event.wait:.1f} s before {printable(in_words(event.what))}: {reason}", err=True)

    try:
        overlap = options.pop("overlap")
        refuse_empty({"base_url": base_url, **options}, "project", "entity", "base_url")
        settings = SyncSettings(base_url=base_url or find_base_url(), **options)
        report = verify_remote(opened.paths, settings, deep=deep, overlap=overlap, told=show, reporter=news)
    except NoCredentials as error:
        raise click.ClickException(str(error)) from None
    _finish(say, Counter(report.counts()), report.exit_code, as_json=as_json)
    return report.exit_code or (1 if opened.problems else 0)


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
