"""`runferry unpack`: the runs of a bundle as directories."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from .pack import Size
from .paths import Source
from .text import JsonCommand, Printer, plain_json, printable, size, tell_failure, when

if TYPE_CHECKING:
    from ..bundle import Entry, FileResult, Manifest, Unpacked


@click.command(cls=JsonCommand)
@click.argument("bundle", type=Source())
@click.option(
    "-C", "--directory", "folder", type=click.Path(path_type=Path), default=".", help="Where to.  [default: here]"
)
@click.option("--list", "lists", is_flag=True, help="Say what is in it, and write nothing.")
@click.option("--verify", "verifies", is_flag=True, help="Read and check all of it, and write nothing.")
@click.option("--overwrite", is_flag=True, help="Replace files that differ; a log that has grown since is always kept.")
@click.option(
    "--max-size", type=Size(), metavar="SIZE", help="Let it take so much.  [default: 1GiB, or 200 times its size]"
)
@click.option("--json", "as_json", is_flag=True, help="One JSON object per line, each with a `type`.")
def command(
    bundle: str | Path,
    *,
    folder: Path,
    lists: bool,
    verifies: bool,
    overwrite: bool,
    max_size: int | None,
    as_json: bool,
) -> None:
    """Unpack the runs of a bundle; safe to stop and to repeat.

    BUNDLE is a bundle, any volume of one, the list of its digests (.sha256), a folder that holds one, a URL, or `-`. What is
    there already with the right bytes is not written again. Links, devices and names that lead out of the directory are
    refused, and nothing is unpacked that is not what the manifest says.

    Of a damaged bundle everything that is whole is unpacked, and of a log the rest with a gap; what is not, is named.

    \b
    Exit codes
      0  everything is there
      1  something is lost, refused, differs from what is here, or could not
         be written; or it is not a bundle
      2  nothing is at the path
    """
    from ..bundle import BundleError, unpack, verify
    from ..bundle.errors import NoBundleError
    from ..bundle.opening import readable_bundle

    if lists and verifies:
        raise click.UsageError("--list and --verify: one at a time")
    say = Printer()
    counts: Counter[str] = Counter()

    def told(result: FileResult) -> None:
        counts[result.fate.value] += 1
        if as_json:
            say(plain_json(_object(result)))
        elif result.reason:
            say(f"{result.fate.value:<9}{printable(result.name)}: {printable(result.reason)}", err=True)

    try:
        with readable_bundle(bundle) as source:
            if lists:
                raise click.exceptions.Exit(_list(say, source.manifest, source.problems, as_json=as_json))
            done = (
                verify(source, told)
                if verifies
                else unpack(source, folder, overwrite=overwrite, max_size=max_size, told=told)
            )
    except NoBundleError as error:
        raise click.ClickException(printable(str(error))) from None
    except (BundleError, OSError) as error:
        where = f"{error.filename}: {error.strerror}" if isinstance(error, OSError) and error.filename else str(error)
        tell_failure(where, as_json=as_json)
        raise click.exceptions.Exit(1) from None
    _finish(say, done, counts, verified=verifies, as_json=as_json)
    raise click.exceptions.Exit(done.exit_code)


def _object(result: FileResult) -> dict[str, Any]:
    line = {"type": "file", "name": result.name, "fate": result.fate.value, "size": result.size}
    return {**line, "reason": result.reason} if result.reason else line


def _problems(say: Printer, problems: list[str], *, as_json: bool) -> None:
    for problem in problems:
        say(plain_json({"type": "problem", "problem": problem}) if as_json else printable(problem), err=not as_json)


def _list(say: Printer, manifest: Manifest | None, problems: list[str], *, as_json: bool) -> int:
    from ..bundle.manifest import document

    for entry in manifest.files if manifest else ():
        say(plain_json({"type": "file", **document(entry)}) if as_json else _entry_line(entry))
    for out in manifest.left_out if manifest else ():
        line = {"type": "left_out", "name": out.name, "reason": out.reason}
        say(plain_json(line) if as_json else f"not in it: {printable(out.name)}: {printable(out.reason)}")
    _problems(say, problems, as_json=as_json)
    code = 1 if problems else 0
    if as_json:
        say(
            plain_json({"type": "done", "exit_code": code, "counts": {"files": len(manifest.files) if manifest else 0}})
        )
    return code


def _entry_line(entry: Entry) -> str:
    parts = [f"{size(entry.size):>9}  {when(entry.mtime)}  {printable(entry.name)}"]
    if (log := entry.log) is not None:
        project = "/".join(part for part in (log.entity, log.project) if part)
        end = "no end" if log.exit is None else f"exit code {log.exit}"
        parts.append(f"  ({printable(project)}, {log.records} records, {end}{', damaged' if log.gaps else ''})")
    return "".join(parts)


def _finish(say: Printer, done: Unpacked, counts: Counter[str], *, verified: bool, as_json: bool) -> None:
    _problems(say, done.problems, as_json=as_json)
    for out in done.left_out:
        line = {"type": "left_out", "name": out.name, "reason": out.reason}
        say(
            plain_json(line) if as_json else f"was not packed: {printable(out.name)}: {printable(out.reason)}",
            err=not as_json,
        )
    if as_json:
        say(plain_json({"type": "done", "exit_code": done.exit_code, "counts": dict(counts)}))
        return
    words = {"kept": "whole"} if verified else {"kept": "there already"}
    text = ", ".join(f"{count} {words.get(fate, fate)}" for fate, count in sorted(counts.items())) or "nothing in it"
    say(text, err=True)
