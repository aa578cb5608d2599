"""`runferry grep`: lines that runs printed, with the step and metrics that they were printed at."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from ..logformat import Gap, GapReason, read_records, run_id_of
from ..logformat.consolestream import ConsoleStream, Hit, search
from ..logformat.elapsed import in_seconds
from ..logformat.terminal import plain
from ..logformat.values import loads
from ..sync.errors import UsageError
from ..sync.plan import LogHead, survey
from ..sync.report import counted
from .paths import Source, is_special
from .showrecords import named_errors
from .sources import opened_paths
from .text import plain_json, printable, when

if TYPE_CHECKING:
    from ..bundle import Opened

_FOUND, _NOTHING, _TROUBLE = 0, 1, 2


@click.command()
@click.argument("pattern")
@click.argument("paths", metavar="[PATH]...", nargs=-1, type=Source())
@click.option("--with", "keys", multiple=True, metavar="KEY", help="Show the latest value of this metric; repeatable.")
@click.option("-i", "--ignore-case", is_flag=True, help="Letters count alike, large or small.")
@click.option("-F", "--fixed", is_flag=True, help="PATTERN is a text, not a regular expression.")
@click.option("-C", "--context", type=click.IntRange(0), default=0, metavar="N", help="So many lines around each.")
@click.option("-m", "--max-count", "most", type=click.IntRange(1), metavar="N", help="Only so many lines of each log.")
@click.option("--stream", type=click.Choice(["stdout", "stderr"]), help="Only lines of this stream.")
@click.option("--json", "as_json", is_flag=True, help="One JSON object per line.")
def command(pattern: str, paths: tuple[str | Path, ...], **options: Any) -> None:
    """Search what runs printed, in the logs below PATHS (default: ./wandb).

    PATTERN is a regular expression of Python. It is looked for in lines as a terminal showed them in the end (progress bars
    drawn anew are one line, colours are none), in the first 65,536 characters of each. A line is printed with its time, the
    step of the last row before it, and the latest values of the metrics asked for. `out|` and `err|` stand before lines that
    match, `out-` and `err-` before those around them. PATHS may be bundles, packed logs, `-` and URLs.

    Exit codes, as those of grep: 0 found, 1 not found, 2 wrong usage, or a log that could not be read (or one that is damaged,
    if nothing was found in what is left of it).
    """
    matches = _matcher(pattern, ignore_case=options["ignore_case"], fixed=options["fixed"])
    try:
        with opened_paths(paths or (Path("wandb"),)) as opened:
            code = _Grep(matches, options, opened).run(survey(opened.paths))
    except UsageError as error:
        raise click.UsageError(str(error)) from None
    raise click.exceptions.Exit(code)


def _matcher(pattern: str, *, ignore_case: bool, fixed: bool) -> Callable[[str], object]:
    flags = re.IGNORECASE if ignore_case else 0
    try:
        return re.compile(re.escape(pattern) if fixed else pattern, flags).search
    except (re.error, RecursionError, OverflowError) as error:
        raise click.UsageError(f"{pattern!r} is no regular expression: {error} (-F takes it as a text)") from None


class _Grep:
    """One search through many logs."""

    def __init__(self, matches: Callable[[str], object], options: dict[str, Any], opened: Opened) -> None:
        self._matches, self._opened = matches, opened
        self._keys: tuple[str, ...] = options["keys"]
        self._stream, self._context, self._most = options["stream"], options["context"], options["most"]
        self._as_json: bool = options["as_json"]
        self._found = 0
        self._is_damaged = False
        self._is_unreadable = bool(opened.problems)
        self._names_runs = False
        self._unseen = set(self._keys)

    def run(self, heads: list[LogHead]) -> int:
        """Search all logs; the exit code."""
        self._names_runs = len(heads) > 1
        for head in heads:
            log, name = head.path, self._opened.shown(head.path)
            if is_special(log):
                self._complain(f"{name}: not a file")
                continue
            try:
                self._search(head, name)
            except OSError as error:
                if error.filename is None:
                    raise  # of standard output
                self._complain(f"{name}: {error.strerror or error}")
        if self._found and self._unseen:
            keys = ", ".join(sorted(self._unseen))
            click.echo(
                printable(f"no row before these lines has {keys}: `runferry show --keys` lists metrics"), err=True
            )
        if self._is_unreadable or (self._is_damaged and not self._found):
            return _TROUBLE
        return _FOUND if self._found else _NOTHING

    def _complain(self, problem: str) -> None:
        self._is_unreadable = True
        click.echo(printable(problem), err=True)

    def _search(self, head: LogHead, name: str) -> None:
        gaps: list[Gap] = []
        run = head.run_id or run_id_of(head.path) or name
        lines = ConsoleStream(self._keys).lines(named_errors(read_records(head.path), name), gaps.append)
        if self._stream:
            lines = (said for said in lines if said.line.stream == self._stream)
        for hit in search(lines, self._matches, context=self._context, most=self._most):
            if self._context and self._found and not hit.follows and not self._as_json:
                click.echo("--")
            self._found += hit.matches
            self._unseen -= hit.said.values.keys()
            click.echo(self._json_line(hit, run, name) if self._as_json else self._text_line(hit, run))
        foreign = [gap for gap in gaps if gap.reason is GapReason.BAD_HEADER and gap.note]
        lost = [gap for gap in gaps if gap.reason is not GapReason.TORN_TAIL or gap.records_lost or gap.note]
        if foreign:
            self._complain(f"{name}: {foreign[0].note}")
        elif lost:
            self._is_damaged = True
            places = f"{counted(len(lost), 'place')}, the first at byte {lost[0].offset}"
            click.echo(printable(f"{name}: damaged in {places}: lines may be missing"), err=True)

    def _json_line(self, hit: Hit, run: str, log: str) -> str:
        line, step, values = hit.said
        time = in_seconds(line.timestamp_ns) if line.timestamp_ns else None
        said: dict[str, Any] = {"type": "line", "run": run, "log": log, "time": time, "step": step}
        said |= {"stream": line.stream, "match": hit.matches, "text": plain(line.text)}
        return plain_json({**said, "values": {key: _value(values[key]) for key in self._keys if key in values}})

    def _text_line(self, hit: Hit, run: str) -> str:
        line, step, values = hit.said
        parts = [run] if self._names_runs else []
        parts.append(when(in_seconds(line.timestamp_ns)) if 0 < line.timestamp_ns < 1e20 else f"{'-':<19}")
        parts.append("before the first step" if step is None else f"step {step}")
        parts += [f"{key}={values[key].decode('utf-8', 'replace')[:40]}" for key in self._keys if key in values]
        sign = f"{line.stream[3:]}{'|' if hit.matches else '-'}"
        return printable(f"{'  '.join(parts)}  {sign} ") + printable(plain(line.text))


def _value(text: bytes) -> Any:
    try:
        return loads(text)
    except ValueError:
        return None
