"""`runferry repair`: a damaged log as a sound one, for readers that stop at damage."""

from __future__ import annotations

import os
import time
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from ..sync.report import counted
from .paths import Source, is_special
from .sources import opened_paths
from .text import JsonCommand, Printer, plain_json, printable, span, stale_after_option

if TYPE_CHECKING:
    from ..bundle import Opened
    from ..logformat.repaired import Repaired

_SHOWN = 20
"""Gaps and bits of one log that are listed; its report has all."""


@click.command(cls=JsonCommand)
@click.argument("paths", nargs=-1, type=Source())
@click.option(
    "-o",
    "--output",
    type=click.Path(path_type=Path),
    default="repaired",
    show_default=True,
    help="Folder for new run directories; or, of one log, the new log, if the name ends in .wandb.",
)
@click.option("--exit", "exit_code", type=int, metavar="CODE", help="End logs that have no exit record with this code.")
@click.option("--run-id", metavar="ID", help="The run of a log whose run record is lost.")
@click.option("-p", "--project", default="", help="With --run-id: its project.")
@click.option("-e", "--entity", default="", help="With --run-id: its entity.")
@click.option("--all", "all_logs", is_flag=True, help="Write logs that are sound, too.")
@click.option("--no-files", is_flag=True, help="Leave out what lies in files/ beside a log.")
@click.option("--force", is_flag=True, help="Also of logs that are still being written, as far as they are.")
@stale_after_option
@click.option("--json", "as_json", is_flag=True, help="One JSON object per line, each with a `type`.")
def command(paths: tuple[str | Path, ...], *, as_json: bool, **options: Any) -> None:
    """Write what can be read of the logs below PATHS (default: ./wandb) as new, sound logs, and say what is lost.

    runferry itself reads damaged logs: sync, show and export need no repair. Others stop at the first damage: `wandb sync`
    and viewers take the new run directories, as in `wandb sync repaired/offline-run-20260921_141320-a1b2c3d4`.

    Nothing is changed in the old place, and nothing is replaced in the new one. Records are kept as they are, but for their
    numbers; what no reader needs and others crash on is left out, and said. repair.json in the new directory lists all of it.
    PATHS may be bundles, packed logs (.gz, .zst), `-` and URLs.

    \b
    Verdict of each log
      repaired  a new one was written
      sound     there is nothing to repair
      failed    the reason says why

    Exit codes: 0 all repaired or sound, 1 some failed, 2 usage.
    """
    from ..logformat.repaired import is_log_name
    from ..sync.errors import UsageError
    from ..sync.plan import survey

    try:
        with opened_paths(paths or (Path("wandb"),)) as opened:
            heads = survey(opened.paths)
            if is_log_name(options["output"]) and len(heads) > 1:
                raise click.UsageError(f"-o names one log, and there are {len(heads)}")
            if (options["project"] or options["entity"]) and not options["run_id"]:
                raise click.UsageError("--project and --entity go with --run-id")
            if options["run_id"] and len(heads) > 1:
                raise click.UsageError(f"--run-id is for one log, and there are {len(heads)}")
            counts: Counter[str] = Counter()
            say = Printer()
            for head in heads:
                verdict, done, reason = _one(head.path, opened, options)
                counts[verdict] += 1
                _tell(say, verdict, opened.shown(head.path), done, reason, as_json=as_json)
            problems = bool(opened.problems)
    except UsageError as error:
        raise click.UsageError(str(error)) from None
    code = 1 if counts["failed"] or problems else 0
    if as_json:
        say(plain_json({"type": "done", "exit_code": code, "counts": dict(+counts)}))
    else:
        say(", ".join(f"{count} {word}" for word, count in sorted(counts.items())) or "no logs found", err=True)
    raise click.exceptions.Exit(code)


def _one(log: Path, opened: Opened, options: dict[str, Any]) -> tuple[str, Repaired | None, str]:
    """Repair one log: the verdict, what was made, and why not."""
    from ..logformat.repair import examine
    from ..logformat.repaired import RepairError, Wishes, is_log_name, repair_to_file, repair_to_folder
    from ..sync.clock import SystemClock
    from ..sync.liveness import Liveness

    output: Path = options["output"]
    wishes = Wishes(options["run_id"] or "", options["entity"], options["project"], options["exit_code"])
    if is_special(log):
        return "failed", None, "not a file"
    try:
        alive = Liveness(SystemClock()).is_alive(log, log.stat().st_mtime, options["stale_after"])  # before it is read
        found = examine(log)
        lacks_exit = not found.exits and wishes.exit_code is not None
        if found.is_sound and not lacks_exit and not options["all_logs"]:
            return "sound", None, ""
        if found.records and not found.exits and alive and not options["force"]:
            return "failed", None, _maybe_written(log)
        name = opened.shown(log)
        if is_log_name(output):
            return "repaired", repair_to_file(log, output, found, wishes, name=name), ""
        with_files = not options["no_files"]
        return "repaired", repair_to_folder(log, output, found, wishes, name=name, with_files=with_files), ""
    except RepairError as error:
        return "failed", None, str(error)
    except OSError as error:
        place = error.filename or output  # what is read has a name
        where = "" if place == os.fspath(log) else f"{place}: "
        return "failed", None, f"{where}{error.strerror or error}"


def _maybe_written(log: Path) -> str:
    """Why a log without an end is left alone: a copy that did not keep its time looks like one that somebody writes."""
    ago = span(max(0.0, time.time() - log.stat().st_mtime))
    return f"it may still be written: no exit record, changed {ago} ago. Wait for its end, or take what is there with --force"


def _tell(say: Printer, verdict: str, log: str, done: Repaired | None, reason: str, *, as_json: bool) -> None:
    if as_json:
        made = done.as_json() if done is not None else {"type": "repair", "log": log}
        say(plain_json({**made, "verdict": verdict, "reason": reason}))
        return
    if done is None:
        say("  ".join([f"{verdict:<9}{printable(log)}", *([printable(reason)] if reason else [])]))
        return
    say(printable(f"{verdict:<9}{log}  {counted(done.records, 'record')}, {counted(done.found.rows, 'row')}"))
    for line in _lines(done):
        say(f"         {printable(line)}")


def _lines(done: Repaired) -> list[str]:
    """What there is to say of a repaired log."""
    from ..logformat.repair import why_left_out

    found = done.found
    lines = [f"lost     {loss}" for loss in found.losses[:_SHOWN]]
    lines += [f"lost     {len(found.losses) - _SHOWN} more parts"] if len(found.losses) > _SHOWN else []
    lines += [f"healed   byte {bit.offset}, bit {bit.bit}" for bit in found.healed[:_SHOWN]]
    lines += [f"healed   {len(found.healed) - _SHOWN} more bits"] if len(found.healed) > _SHOWN else []
    lines += [f"left out {counted(count, 'record')}, {why_left_out(why)}" for why, count in found.left_out.items()]
    lines += [f"note     {note}" for note in done.notes]
    return [*lines, f"-> {done.output}"]
