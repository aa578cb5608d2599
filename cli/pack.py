"""`runferry pack`: runs as one checked file."""

from __future__ import annotations

import math
import os
import re
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from ..sync.report import counted
from .paths import SomePath, Source
from .text import JsonCommand, plain_json, printable, size, tell_failure

if TYPE_CHECKING:
    from ..bundle import Packed

_SIZE = re.compile(r"(\d+(?:\.\d+)?)\s*(?:([kmgt])?(i)?b?)", re.IGNORECASE)
_POWERS = {"": 0, "k": 1, "m": 2, "g": 3, "t": 4}


class Size(click.ParamType):  # type: ignore[type-arg, unused-ignore]  # generic in some versions of click
    """A number of bytes: 700MB, 2GiB, 64k (decimal units, binary ones with an i)."""

    name = "size"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> int:
        """Bytes."""
        match = _SIZE.fullmatch(str(value).strip())
        amount = float(match[1]) * (1024 if match[3] else 1000) ** _POWERS[(match[2] or "").lower()] if match else 0
        if not 1 <= amount < math.inf:
            self.fail(f"{value!r} is no size, such as 700MB or 2GiB", param, ctx)
        return int(amount)


class Target(Source):
    """A bundle to write, a folder for one that is there, or a URL."""

    name = "target"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:  # noqa: D102 - click's
        place = super().convert(value, param, ctx)
        if isinstance(place, Path) and str(value).endswith(("/", os.sep)) and not place.is_dir():
            raise click.ClickException(f"{printable(str(value))}: no such folder")
        return place


@click.command(cls=JsonCommand)
@click.argument("paths", nargs=-1, type=SomePath())
@click.option(
    "-o", "--out", type=Target(), metavar="FILE", help="The bundle, a folder for it, or a URL.  [default: RUN.tar.zst]"
)
@click.option("--split", type=Size(), metavar="SIZE", help="Volumes of at most this size: 700MB, 2GiB.")
@click.option(
    "--level", type=click.IntRange(1, 19), default=3, show_default=True, help="Of compression: 1 is quick, 19 is small."
)
@click.option("--follow-links", is_flag=True, help="Also pack saved files that are links out of a run's directory.")
@click.option("--overwrite", is_flag=True, help="Take the place of a bundle that is there.")
@click.option("--json", "as_json", is_flag=True, help="One JSON object per line, each with a `type`.")
def command(
    paths: tuple[Path, ...], *, out: str | Path | None, split: int | None, as_json: bool, **options: Any
) -> None:
    """Pack runs into one checked file, RUN.tar.zst; safe while a run is written, and to stop and to repeat.

    PATHS are as for sync, patterns in quotes too; ./wandb by default. `runferry unpack` unpacks it, sync, ls, show and verify
    read it as it is, and so does `tar --zstd`. The same files make the same bytes.

    A log goes in up to its last complete record. A cursor, lock or marker of a sync stays here: they speak of this place.
    What an interrupted call left as FILE.part is gone on with by the same call.

    Exit code 1: something is not in it, or changed while it was read; the bundle is good for all else.
    """
    from ..bundle import BundleError, pack
    from ..sync.errors import UsageError
    from ..sync.plan import expanded

    if not paths and not Path("wandb").exists():
        raise click.ClickException("no wandb directory here: name a log, a run directory, or a folder of them")
    try:
        packed = pack([*expanded(paths or (Path("wandb"),))], out, split=split or 0, **options)
    except (BundleError, UsageError) as error:
        raise click.ClickException(printable(str(error))) from None
    except OSError as error:
        # What was being written has no name in the error; what could not be begun has.
        where = f"{error.filename}: " if error.filename else ""
        hint = "" if where else "; what was written stays as .part, and the same call goes on with it"
        tell_failure(f"{where}{error.strerror or error}{hint}", as_json=as_json)
        raise click.exceptions.Exit(1) from None
    _tell(packed, as_json=as_json)
    raise click.exceptions.Exit(packed.exit_code)


def _tell(packed: Packed, *, as_json: bool) -> None:
    files = packed.manifest.files
    logs = [entry for entry in files if entry.log is not None]
    for problem in packed.problems:
        if as_json:
            click.echo(plain_json({"type": "problem", "name": problem.name, "problem": problem.reason}))
        else:
            click.echo(f"{printable(problem.name)}: {printable(problem.reason)}", err=True)
    if as_json:
        for path in packed.files:
            click.echo(plain_json({"type": "written", "path": path}))
        counts = Counter(logs=len(logs), files=len(files), problems=len(packed.problems))
        whole = {"bytes": sum(entry.size for entry in files), "written": packed.size}
        click.echo(plain_json({"type": "done", "exit_code": packed.exit_code, "counts": dict(counts), **whole}))
        return
    for path in packed.files:
        click.echo(printable(path))
    held = size(sum(entry.size for entry in files))
    going = sum(entry.log is not None and entry.log.exit is None for entry in files)
    note = f", {counted(going, 'run')} without an end" if going else ""
    click.echo(f"{counted(len(logs), 'log')} in {counted(len(files), 'file')} ({held}){note}", err=True)
