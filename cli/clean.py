"""`runferry clean`: delete run directories of which everything is at the server."""

from __future__ import annotations

import re
import sys
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from ..sync.report import counted
from .paths import SomePath
from .syncview import clean_line
from .text import plain_json, printable, size

if TYPE_CHECKING:
    from ..sync.clean import Candidate

_SPAN = re.compile(r"(\d+(?:\.\d+)?)(s|min|h|d|w)?")
_SECONDS = {"s": 1.0, "min": 60.0, "h": 3600.0, "d": 86_400.0, "w": 604_800.0}


class Span(click.ParamType):  # type: ignore[type-arg, unused-ignore]  # generic in some versions of click
    """A span of time: a number and a unit, days without one."""

    name = "span"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> float:
        """Seconds."""
        match = _SPAN.fullmatch(str(value).strip())
        if match is None:
            self.fail(f"{value!r} is no span of time, such as 12h, 30d or 2w", param, ctx)
        return float(match[1]) * _SECONDS[match[2] or "d"]


@click.command()
@click.argument("paths", nargs=-1, type=SomePath())
@click.option(
    "--older-than",
    type=Span(),
    default="0",
    metavar="SPAN",
    help="Only runs that have not changed for so long: 12h, 30d.",
)
@click.option("-y", "--yes", is_flag=True, help="Delete without asking.")
@click.option("--dry-run", is_flag=True, help="Only say what would be deleted.")
@click.option("--json", "as_json", is_flag=True, help="One JSON object per run and line.")
def command(paths: tuple[Path, ...], *, older_than: float, yes: bool, dry_run: bool, as_json: bool) -> None:
    """Delete the directories of runs of which everything is at the server; all others are kept, with the reason.

    PATHS are as for sync, patterns in quotes too; ./wandb by default. A run goes if its cursor says that all of it arrived, log and files have
    not changed since, its end was seen, and nobody syncs it. That is looked at again just before it is deleted.

    On a terminal it asks once. Elsewhere nothing is deleted without --yes.

    Exit code 1: something that was to be deleted could not be, or a folder could not be looked into.
    """
    from ..logformat.rundir import TRASH
    from ..sync import UsageError
    from ..sync.clean import Cleaner, Fate, trash_places

    if not paths and not Path("wandb").exists():
        raise click.ClickException("no wandb directory here: name a run directory, or a folder of them")
    paths = paths or (Path("wandb"),)
    try:
        cleaner = Cleaner(older_than=older_than)
        candidates = cleaner.look(paths)
        places = trash_places(paths)
    except UsageError as error:
        raise click.ClickException(str(error)) from None
    going = [candidate for candidate in candidates if candidate.fate is Fate.DELETABLE]
    delete = bool(going) and not dry_run and (yes or _asked(going, as_json=as_json))
    fates: Counter[str] = Counter()
    freed = 0
    for candidate in candidates:
        fate, reason = candidate.fate, candidate.reason
        if delete and fate is Fate.DELETABLE:
            fate, reason = cleaner.delete(candidate)
        fates[fate.value] += 1
        freed += candidate.bytes if fate in {Fate.DELETED, Fate.DELETABLE} else 0
        _tell(candidate, fate.value, reason, as_json=as_json)
    sweeps = delete or (yes and not dry_run)
    left = cleaner.sweep(places) if sweeps else cleaner.leftovers(places)
    _finish(fates, freed, left, as_json=as_json)
    if left and not (sweeps or as_json):
        what = "directory" if left == 1 else "directories"
        click.echo(f"{left} {what} in {TRASH} are left of a clean that was stopped; --yes goes on with it", err=True)
    if fates[Fate.FAILED.value]:
        raise click.exceptions.Exit(1)


def _asked(going: list[Candidate], *, as_json: bool) -> bool:
    """Whether the user says yes; nobody is asked who cannot answer."""
    if as_json or not _is_terminal():
        return False
    for candidate in going:
        click.echo(f"  {printable(str(candidate.logs[0].parent))}")
    total = size(sum(candidate.bytes for candidate in going))
    runs = counted(len(going), "run")
    servers = printable(", ".join(sorted({candidate.server for candidate in going})))
    return click.confirm(f"Delete {runs} ({total}), sent to {servers}?", default=False)


def _is_terminal() -> bool:
    return sys.stdin is not None and sys.stdin.isatty() and sys.stdout.isatty()


def _tell(candidate: Candidate, fate: str, reason: str, *, as_json: bool) -> None:
    from ..sync.report import Cleaned

    event = Cleaned(candidate.run, tuple(map(str, candidate.logs)), candidate.bytes, fate, reason)
    click.echo(plain_json(event.as_json()) if as_json else clean_line(event))


def _finish(fates: Counter[str], freed: int, left: int, *, as_json: bool) -> None:
    if as_json:
        click.echo(plain_json({"type": "done", "counts": dict(fates), "bytes": freed, "leftovers": left}))
        return
    counts = ", ".join(f"{count} {fate}" for fate, count in sorted(fates.items())) or "no runs found"
    hint = f"; --yes deletes {size(freed)}" if fates["deletable"] else ""
    freed_text = f", {size(freed)}" if fates["deleted"] else ""
    click.echo(f"{counts}{freed_text}{hint}", err=True)
