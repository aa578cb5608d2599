"""`runferry show`: what a log holds."""

from __future__ import annotations

import glob
import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

import click

from ..logformat import Gap, find_logs, in_order, latest_run, log_name, run_id_of, siblings
from ..logformat.anatomy import AnatomyReader
from ..logformat.follow import Follower, PackedError, PipeFollower
from ..logformat.rowstream import stream_rows
from ..logformat.schema import KINDS
from ..logformat.sources import GZIP, ZSTD, open_log
from ..sync.clock import Clock, SystemClock
from ..sync.errors import UsageError
from ..sync.inflight import is_in_flight
from ..sync.liveness import Liveness
from .paths import Source
from .showrecords import RecordPrinter, named_errors
from .showrows import Damage, RowChoice, print_keys, print_rows
from .showsummary import print_summary, status_of
from .sources import opened_paths
from .steps import StepRange
from .text import printable, stale_after_option

if TYPE_CHECKING:
    from ..bundle import Opened

__all__ = ["command", "status_of"]

PIPE = "-"
_NAMED = 5
"""Logs that an error names, where one is to be chosen."""
_BUNDLE = b"\x5b\x2a\x4d\x18"  # a bundle begins with a label, which zstd skips


@click.command()
@click.argument("paths", metavar="[PATH]...", nargs=-1, type=Source())
@click.option("--summary", "as_summary", is_flag=True, help="What the run amounts to instead of its records.")
@click.option("--keys", "as_keys", is_flag=True, help="Every metric key: kind, count, steps, last value, range, NaNs.")
@click.option(
    "--steps", type=StepRange(), metavar="A:B", help="Rows instead of records: from step A on, up to before B."
)
@click.option("--metric", "metrics", multiple=True, metavar="GLOB", help="Rows, and of them these keys; repeatable.")
@click.option("--tail", type=click.IntRange(0), metavar="N", help="Only the last N records, or rows.")
@click.option("-f", "--follow", is_flag=True, help="Go on with what is written, until the run ends or falls silent.")
@click.option(
    "--kind",
    "kinds",
    multiple=True,
    metavar="KIND",
    help="Only records of this kind, such as history; may be repeated.",
)
@click.option("--json", "as_json", is_flag=True, help="One JSON object per line (with --summary: one object).")
@stale_after_option
def command(paths: tuple[str | Path, ...], *, kinds: tuple[str, ...], as_json: bool, **options: Any) -> None:
    """Show the records of a log, its rows or keys, or a run's summary.

    PATH is a log, a run directory, the id of a run in ./wandb, or a wandb directory (default: ./wandb), of which the
    latest run is shown; a bundle, a packed log (.gz, .zst), `-` or a URL. Values that JSON cannot say (NaN, Infinity) are
    printed as Python prints them.

    A run that was resumed has several logs. Summary, rows and keys are those of all which lie in one wandb directory; of a path
    that is a log they are that log's. Logs that lie elsewhere may be named together.

    Exit code 1 says that part of a log, or all of it, could not be read; every gap is shown where it lies. The end of a record
    that is being written is shown as one, too, but is no loss.
    """
    unknown = sorted(set(kinds) - {*KINDS.values(), "unknown", "empty"})
    if unknown:
        raise click.UsageError(
            f"no such kind of record: {', '.join(unknown)}. Kinds: {', '.join(sorted(KINDS.values()))}"
        )
    view = _View(options, kinds, as_json=as_json)
    if len(paths) > 1 and view.is_of_one_log:
        raise click.UsageError(
            "records are shown of one log at a time; --summary, --keys and rows take several logs of one run"
        )
    try:
        damaged = view.show(paths)
    except (UsageError, PackedError) as error:
        raise click.UsageError(str(error)) from error
    except OSError as error:
        if error.filename is None:
            raise  # of standard output
        _fail(f"{error.filename}: {error.strerror}")
    if damaged:
        sys.exit(1)


class _View:
    """What of which logs is shown."""

    def __init__(
        self, options: dict[str, Any], kinds: tuple[str, ...], *, as_json: bool, clock: Clock | None = None
    ) -> None:
        self._kinds, self._as_json, self._clock = kinds, as_json, clock or SystemClock()
        self._stale_after: float = options["stale_after"]
        self._summary, self._keys, self._follow = options["as_summary"], options["as_keys"], options["follow"]
        self._tail: int | None = options["tail"]
        steps, metrics = options["steps"], options["metrics"]
        self._rows = not self._keys and (steps is not None or bool(metrics))
        self._choice = RowChoice(steps or (None, None), metrics, self._tail if self._rows else None)
        self._check(steps)

    @property
    def is_of_one_log(self) -> bool:
        """Whether it takes one log only."""
        return self._follow or not (self._summary or self._keys or self._rows)

    def show(self, paths: Sequence[str | Path]) -> bool:
        """Print it; whether anything could not be read."""
        if len(paths) <= 1 and (source := self._streamed(paths)) is not None:
            return self._follow_pipe() if self._follow else self._records(source, source)
        if self._follow and any(Path(path).is_fifo() for path in paths):
            raise click.UsageError("--follow: a pipe is followed as standard input: runferry show --follow - < PIPE")
        with opened_paths(_named(paths)) as opened:
            found = [(path, _one_log(path, opened)) for path in opened.paths]
            for path, log in found:
                self._tell_choice(path, log, opened)
            if self._follow and opened.sources:
                raise click.UsageError("--follow: what is packed does not grow as a log does")
            if self._follow:
                return self._follow_log(found[0][1], opened)
            if self.is_of_one_log:
                return self._records(found[0][1], opened.shown(found[0][1])) or bool(opened.problems)
            logs = _logs_of_run(found, opened)
            if self._summary:
                lost = print_summary(logs, opened.shown, as_json=self._as_json, stale_after=self._stale_after)
            else:
                lost = self._rows_of(logs, opened)
            return lost or bool(opened.problems)

    def _tell_choice(self, path: Path, log: Path, opened: Opened) -> None:
        """Say which of the runs in a bundle is shown: unlike those in a folder, nobody sees the others."""
        if path not in opened.sources or path.is_file():
            return
        logs = find_logs(path)
        runs = {run_id_of(other) for other in logs}
        held = f"{len(runs)} runs" if len(runs) > 1 else f"{len(logs)} logs of a run"
        if len(runs) > 1 or (len(logs) > 1 and self.is_of_one_log):
            name = opened.shown(log)
            click.echo(
                printable(f"{opened.shown(path)}: {held} in it; shown is {name}, and others can be named like it"),
                err=True,
            )

    def _check(self, steps: Any) -> None:
        """Refuse what does not go together."""
        views = [self._summary, self._keys, self._rows]
        if sum(views) > 1:
            raise click.UsageError("--summary, --keys and rows (--steps, --metric): one at a time")
        if self._follow and (self._summary or self._keys):
            raise click.UsageError("--follow goes with records and rows")
        if self._tail is not None and (self._summary or self._keys or self._follow):
            raise click.UsageError("--tail goes with records and rows that do not --follow")
        if self._keys and steps is not None:
            raise click.UsageError("--keys are those of all steps")
        if self._kinds and any(views):
            raise click.UsageError("--kind goes with records")

    def _streamed(self, paths: Sequence[str | Path]) -> str | None:
        """The source, if it can be read as it comes, without being unpacked somewhere before."""
        if not self.is_of_one_log or len(paths) != 1:
            return None
        name = os.fspath(paths[0])
        if name == PIPE:
            peek = getattr(sys.stdin.buffer, "peek", None)
            return name if self._follow or peek is None or not peek(4).startswith(_BUNDLE) else None
        path = Path(name)
        if self._follow or "://" in name or not path.is_file():
            return None
        with path.open("rb") as file:
            try:
                head = file.read(4)
            except OSError as error:
                error.filename = name
                raise
        return name if head.startswith((GZIP, ZSTD)) else None

    def _records(self, source: str | Path, name: str) -> bool:
        file = open_log(source)
        try:
            reader = AnatomyReader(file)
            shown = "standard input" if name == PIPE else name
            printer = RecordPrinter(
                shown,
                lambda: reader,
                self._kinds,
                as_json=self._as_json,
                tail=self._tail,
                is_no_loss=lambda gap: file.seekable() and self._is_in_flight(Path(source), gap),
            )
            printer.print_all(named_errors(reader.finish(), name))
            return printer.is_damaged or (printer.is_empty and not self._may_begin(source))
        finally:
            if source != PIPE:
                file.close()

    def _may_begin(self, source: str | Path) -> bool:
        """Whether a log without a record has a writer who is to write it; a pipe has ended."""
        if source == PIPE:
            return False
        log = Path(source)
        return Liveness(self._clock).is_alive(log, log.stat().st_mtime, self._stale_after)

    def _is_in_flight(self, log: Path, gap: Gap) -> bool:
        return is_in_flight(log, gap, Liveness(self._clock), self._stale_after)

    def _follow_pipe(self) -> bool:
        stdin: Any = sys.stdin.buffer
        follower = PipeFollower(stdin.read1, AnatomyReader)
        return self._print_live(follower, "standard input")

    def _follow_log(self, log: Path, opened: Opened) -> bool:
        liveness = Liveness(self._clock)

        def lives() -> bool:
            return liveness.is_alive(log, log.stat().st_mtime, self._stale_after)

        return self._print_live(
            Follower(log, lives=lives, sleep=self._clock.sleep, make=AnatomyReader), opened.shown(log)
        )

    def _print_live(self, follower: Follower | PipeFollower, name: str) -> bool:
        """Print what comes of one log until there is no more."""
        if not self._rows:
            printer = RecordPrinter(
                name, lambda: follower.reader, self._kinds, as_json=self._as_json, tail=None, live=True
            )
            printer.print_all(follower.items())
            return printer.is_damaged or (printer.is_empty and isinstance(follower, PipeFollower))
        damage = Damage(as_json=self._as_json)
        print_rows(self._choice.rows(damage.rows_in(follower.items(), name)), as_json=self._as_json, live=True)
        return damage.is_there

    def _rows_of(self, logs: list[Path], opened: Opened) -> bool:
        damage = Damage(as_json=self._as_json)

        def tell(log: Path, gap: Gap) -> None:
            damage.add(gap, opened.shown(log), is_loss=not self._is_in_flight(log, gap))

        rows = named_errors(stream_rows(logs, tell), opened.shown(logs[0]))
        if self._keys:
            if not print_keys(rows, self._choice, as_json=self._as_json):
                click.echo("no such key" if self._choice.is_picky else "no rows", err=True)
        elif not print_rows(self._choice.rows(rows), as_json=self._as_json):
            click.echo("no such row: `--keys` lists what there is, and at which steps", err=True)
        return damage.is_there


def _named(paths: Sequence[str | Path]) -> list[str | Path]:
    """What is named, without patterns: an id may look like one."""
    return [path if isinstance(path, str) else _found(path) for path in paths or (Path("wandb"),)]


def _found(path: Path) -> Path:
    """The path; or the log of that id in ./wandb, if there is no such path."""
    if os.path.lexists(path):
        return path
    named = sorted(Path("wandb").glob(f"*run-*-{glob.escape(str(path))}/{glob.escape(log_name(str(path)))}"))
    if named:
        return named[-1].parent
    if glob.has_magic(str(path)):
        raise click.UsageError(f"{path}: neither a path here nor the id of a run in ./wandb")
    return path  # perhaps a bundle in volumes


def _fail(problem: str) -> NoReturn:
    """Say what cannot be read, and end."""
    click.echo(f"Error: {printable(problem)}", err=True)
    sys.exit(1)


def _logs_of_run(named: Sequence[tuple[Path, Path]], opened: Opened) -> list[Path]:
    """The logs to fold, of paths and the log of each: what is named as a log stands for itself alone."""
    try:
        return in_order([log for path, found in named for log in ([found] if path == found else siblings(found))])
    except ValueError as error:
        raise click.UsageError(printable(opened.in_words(str(error)))) from error


def _one_log(path: Path, opened: Opened) -> Path:
    folder = latest_run(path) if path.is_dir() and not list(path.glob("*.wandb")) else None
    name = printable(opened.shown(path))
    shut: list[OSError] = []
    try:
        logs = find_logs(folder or path, unreadable=shut.append)
    except FileNotFoundError:
        raise click.UsageError(f"{name}: neither a path here nor the id of a run in ./wandb") from None
    if not logs and shut:
        _fail(f"{opened.shown(shut[0].filename)}: the folder cannot be read ({shut[0].strerror})")
    if not logs:
        raise click.UsageError(f"{name}: no log (run-<id>.wandb) here")
    if len(logs) > 1:
        first = ", ".join(printable(opened.shown(log)) for log in logs[:_NAMED])
        more = f" and {len(logs) - _NAMED} more" if len(logs) > _NAMED else ""
        raise click.UsageError(
            f"{name}: {len(logs)} logs here; name one ({first}{more}), or list them with `runferry ls {name}`"
        )
    if logs[0].exists() and not logs[0].is_file():  # a device may have no end
        _fail(f"{opened.shown(logs[0])}: not a file")
    return logs[0]
