"""From paths to files: which runs, what of them, in which format, and where to."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple

from ..logformat import RunState
from ..logformat.words import counted
from .contents import DOCUMENTS, GROWING, SHAPES, TABLES, WHATS, about, document, overview, table
from .formats import FORMATS, Exporter, TableWriter
from .runs import ExportError, LoadedRun, RunLogs, find_runs, load, status_by_end
from .selection import Selection
from .tables import Aligned, Field, Table, united
from .target import Folder, Output, Target, target_of

STDOUT = "-"
RUNS = "runs"
"""The table that has a row for each run."""
_NAMED = 20
"""Keys of which it is said that their values are lost."""


@dataclass(frozen=True)
class Options:
    """What is exported, and how."""

    to: str
    """One of `FORMATS`."""
    whats: tuple[str, ...] = ()
    """Of `WHATS`. Empty: all that the format holds; for a single file, the rows."""
    shape: str = "wide"
    """Of rows and samples: `wide` or `long`."""
    selection: Selection = field(default_factory=Selection)
    one_table: bool = False
    """One table over all runs in place of one for each."""
    force: bool = False
    """Write over what is there."""


@dataclass
class Outcome:
    """What became of one run."""

    run: str
    logs: list[str]
    files: list[str] = field(default_factory=list)
    """What was written."""
    counts: dict[str, int] = field(default_factory=dict)
    """Rows of each table."""
    problems: list[str] = field(default_factory=list)
    """Why it is not all there: what a log lost, or why nothing was written."""
    notes: list[str] = field(default_factory=list)
    """What the format cannot say, and that none of the keys is there."""


def export(
    paths: Iterable[str | os.PathLike[str]],
    out: str | os.PathLike[str],
    options: Options,
    *,
    told: Callable[[Outcome], object] = lambda _: None,
    shown: Callable[[Path], str] = str,
    status: Callable[[RunState, Path], str] = status_by_end,
    stdout: BinaryIO | None = None,
) -> list[Outcome]:
    """Export the runs below `paths`; one that cannot be read does not keep the others.

    `out` is a folder, in which each run gets one of its own; a file, if its name ends as those of the format do; or `-`.
    A file, and `-`, hold one thing: a table, the rows if nothing else is named.

    Args:
        paths: logs, directories, ids of runs: see `find_runs`.
        out: see above; folder and file may also be URLs.
        options: what, and how.
        told: hears of each run when it is done.
        shown: what a log is called.
        status: how a run ended, by its state and its last log.
        stdout: what `-` means.

    Raises:
        ExportError: nothing was found, or what is asked for cannot be.
    """
    exporter = FORMATS[options.to]
    whats = _whats(exporter, options)
    exporter.check()
    outcomes: list[Outcome] = []

    def tell(outcome: Outcome) -> None:
        outcomes.append(outcome)
        told(outcome)

    def shut(error: OSError) -> None:
        name = os.fsdecode(error.filename or "?")
        tell(Outcome("", [name], problems=[f"{name}: the folder cannot be read: {error.strerror}"]))

    runs = find_runs(paths, unreadable=shut)
    single = _single_file(os.fspath(out), exporter)
    if single and len(runs) > 1 and not (options.one_table or exporter.compares):
        raise ExportError(f"{len(runs)} runs do not go into one file: name one, or a folder for them{_hint(exporter)}")
    if single and not exporter.run_file:
        whats = whats if options.whats else whats[:1]
        if len(whats) > 1:
            raise ExportError(f"one file holds one thing, not {', '.join(whats)}: name a folder with -o")
    work = _Export(
        exporter, whats, options, _target(out, single, runs, stdout), single=single, shown=shown, status=status
    )
    if single and len(runs) > 1 and exporter.compares:
        made = work.side_by_side(runs)
    else:
        made = work.one_table(runs) if options.one_table or (single and not exporter.run_file) else work.each(runs)
    for outcome in made:
        tell(outcome)
    if not work.has_matched and any(outcome.counts or outcome.files for outcome in outcomes):
        tell(Outcome("", [], problems=[f"no key of any run matches {', '.join(options.selection.keys)}"]))
    return outcomes


def _whats(exporter: Exporter, options: Options) -> tuple[str, ...]:
    """What is exported, in the order of `WHATS`."""
    if unknown := sorted({*options.whats} - {*WHATS}):
        raise ExportError(f"--what: no such thing: {', '.join(unknown)}; there are {', '.join(WHATS)}")
    if alien := [what for what in options.whats if what not in exporter.whats]:
        raise ExportError(f"{options.to} has no room for {', '.join(alien)}, only for {', '.join(exporter.whats)}")
    if options.shape not in SHAPES:
        raise ExportError(f"--shape: one of {', '.join(SHAPES)}, not {options.shape!r}")
    if exporter.run_file and (options.one_table or options.shape != "wide"):
        raise ExportError(f"{options.to} makes no tables: --one-table and --shape do not go with it")
    return tuple(what for what in exporter.whats if what in (options.whats or exporter.whats))


def _hint(exporter: Exporter) -> str:
    return "" if exporter.run_file else ", or --one-table"


def _single_file(out: str, exporter: Exporter) -> str:
    """The name of the one file that is wanted; empty for a folder."""
    if out == STDOUT:
        return STDOUT
    name = out.rstrip("/").rpartition("/")[2] if "://" in out else Path(out).name
    return name if name.endswith(exporter.suffix) and name != exporter.suffix else ""


def _target(out: str | os.PathLike[str], single: str, runs: Sequence[RunLogs], stdout: BinaryIO | None) -> Target:
    sources = [log for run in runs for log in run.logs]
    if single == STDOUT:
        if stdout is None:
            raise ExportError("there is no standard output")
        return Output(stdout)
    if not single:
        return target_of(out, sources)
    if isinstance(out, str) and "://" in out:
        return target_of(out.rstrip("/").rpartition("/")[0])
    return Folder(Path(out).parent, sources)


class _Sheet(NamedTuple):
    """A table that is being written."""

    fields: list[Field]
    writer: TableWriter


class _Export:
    """One export."""

    def __init__(
        self,
        exporter: Exporter,
        whats: tuple[str, ...],
        options: Options,
        target: Target,
        *,
        single: str,
        shown: Callable[[Path], str],
        status: Callable[[RunState, Path], str],
    ) -> None:
        self._exporter, self._whats, self._options = exporter, whats, options
        self._target, self._single, self._shown, self._status = target, single, shown, status
        self.has_matched = not options.selection.keys or not {"rows", "samples"} & {*whats}
        """Whether a run has one of the keys that are wanted."""

    # -- a folder for each run -----------------------------------------------------------------------------------------

    def each(self, runs: Iterable[RunLogs]) -> Iterator[Outcome]:
        """Write the files of each run."""
        for run in runs:
            outcome = self._outcome(run)
            loaded = self._loaded(run, outcome)
            if loaded is not None:
                with _noting(outcome):
                    self._write(loaded, outcome)
            yield outcome

    def _write(self, run: LoadedRun, outcome: Outcome) -> None:
        exporter = self._exporter
        if exporter.run_file:
            name = self._single or f"{run.name}/{exporter.run_file(run)}"
            self._check_free([name])
            with self._target.writing(name) as file:
                outcome.notes += exporter.write_run(file, run, self._whats, self._options.selection)
            outcome.files.append(self._target.shown(name))
            outcome.counts = {"rows": run.state.row_count, "samples": run.state.sample_count}
            return
        names = {what: f"{run.name}/{what}{'.json' if what in DOCUMENTS else exporter.suffix}" for what in self._whats}
        self._check_free(names.values())
        for what, name in names.items():
            with self._target.writing(name) as file:
                if what in DOCUMENTS:
                    file.write((json.dumps(document(run, what), ensure_ascii=False, indent=2) + "\n").encode())
                else:
                    made = self._table(run, what)
                    writer = exporter.table_writer(file, made.fields, about(run))
                    writer.add(made)
                    writer.close()
                    outcome.counts[what] = len(made)
            outcome.files.append(self._target.shown(name))

    # -- one file that compares runs -------------------------------------------------------------------------------------

    def side_by_side(self, runs: Sequence[RunLogs]) -> Iterator[Outcome]:
        """Write one file for all runs: they are in memory together, but rows only of those of which it shows them."""
        self._check_free([self._single])
        outcomes = {run.name: self._outcome(run) for run in runs}
        good: list[LoadedRun] = []
        for run in runs:
            loaded = self._loaded(run, outcomes[run.name], has_rows=len(good) < self._exporter.compares)
            good += [] if loaded is None else [loaded]
        both = Outcome("", [])
        if good:
            with _noting(both):
                with self._target.writing(self._single) as file:
                    both.notes = self._exporter.write_runs(file, good, self._whats, self._options.selection)
                both.files = [self._target.shown(self._single)]
        for loaded in good:
            outcome = outcomes[loaded.name]
            outcome.files = [*both.files]
            outcome.notes += both.notes
            outcome.problems += both.problems
            outcome.counts = {"rows": loaded.state.row_count, "samples": loaded.state.sample_count}
        yield from outcomes.values()

    # -- one table over all runs -----------------------------------------------------------------------------------------

    def one_table(self, runs: Sequence[RunLogs]) -> Iterator[Outcome]:
        """Write one file for each kind of table. All runs are read twice, first for the columns, so that one is in memory."""
        kinds = [what for what in self._whats if what in TABLES]
        if len(kinds) < len(self._whats):
            kinds.append(RUNS)
        names = {kind: self._single or f"{kind}{self._exporter.suffix}" for kind in kinds}
        self._check_free(names.values())
        outcomes = {run.name: self._outcome(run) for run in runs}
        only = self._loaded(runs[0], outcomes[runs[0].name]) if len(runs) == 1 else None
        heads = {run.name: self._head(run, outcomes[run.name], kinds, only) for run in runs}
        good = [run for run in runs if heads[run.name]]
        both = Outcome("", [])
        if good:
            with _noting(both), ExitStack() as stack:
                sheets: dict[str, _Sheet] = {}
                for kind, name in names.items():
                    fields = self._fields([heads[run.name][kind] for run in good])
                    file = stack.enter_context(self._target.writing(name))
                    said = about(only) if only is not None else {"runferry.runs": json.dumps([*outcomes])}
                    sheets[kind] = _Sheet(fields, self._exporter.table_writer(file, fields, said))
                for run in good:
                    self._add(run, outcomes[run.name], heads[run.name], sheets, only)
                for sheet in sheets.values():
                    sheet.writer.close()
        for outcome in outcomes.values():
            if both.problems:
                outcome.problems += both.problems
                outcome.counts = {}
            outcome.files = [self._target.shown(name) for name in names.values()] if outcome.counts else []
            yield outcome

    def _fields(self, heads: Sequence[Sequence[Field]]) -> list[Field]:
        found = united(heads)
        return found if self._options.one_table else found[1:]

    def _head(
        self, run: RunLogs, outcome: Outcome, kinds: Sequence[str], only: LoadedRun | None
    ) -> Mapping[str, Sequence[Field]]:
        """The fields of each of a run's tables; empty if it cannot be read."""
        loaded = only or (None if outcome.problems else self._loaded(run, outcome))
        if loaded is None:
            return {}
        return {kind: self._table(loaded, kind).fields for kind in kinds}

    def _add(
        self,
        run: RunLogs,
        outcome: Outcome,
        head: Mapping[str, Sequence[Field]],
        sheets: Mapping[str, _Sheet],
        only: LoadedRun | None,
    ) -> None:
        """Write the rows of a run's tables."""
        again = Outcome(run.name, [])
        loaded = only or self._loaded(run, again)
        if loaded is None:
            outcome.problems += again.problems
            return
        tables = {kind: self._table(loaded, kind) for kind in sheets}
        if any(list(made.fields) != list(head[kind]) for kind, made in tables.items()):
            outcome.problems.append("it got other columns while it was read, and is not in the table: export again")
            return
        for kind, made in tables.items():
            sheet = sheets[kind]
            sheet.writer.add(Aligned(made, sheet.fields, run.name) if self._options.one_table else made)
            outcome.counts[kind] = len(made)

    # -- what both do ----------------------------------------------------------------------------------------------------

    def _outcome(self, run: RunLogs) -> Outcome:
        return Outcome(run.name, [self._shown(log) for log in run.logs], problems=[run.problem] if run.problem else [])

    def _loaded(self, run: RunLogs, outcome: Outcome, *, has_rows: bool = True) -> LoadedRun | None:
        """A run that was read, without rows if it should not have them; None if it cannot be. What it lost is noted."""
        if run.problem:
            return None
        loaded: LoadedRun | None = None
        with _noting(outcome):
            has_rows = has_rows and (bool(self._exporter.run_file) or not GROWING.isdisjoint(self._whats))
            loaded = load(run, rows=has_rows, shown=self._shown, status=self._status)
            outcome.problems += [_lost(log, gap) for log, gap in loaded.gaps]
            outcome.problems += _unread(loaded.state, self._whats)
            outcome.notes += [f"{log}: mended, as its checksums prove: {bits}" for log, bits in loaded.healed]
            if has_rows:
                self._match(loaded, outcome)
        return loaded

    def _match(self, run: LoadedRun, outcome: Outcome) -> None:
        """Note it if none of a run's keys is as it was asked for: of some runs that is as it should be, of all it is a mistake."""
        selection = self._options.selection
        if not selection.keys or not {"rows", "samples"} & {*self._whats}:
            return
        names = [column.name for column in run.state.rows.columns]
        names += run.state.samples.keys if "samples" in self._whats else ()
        if any(map(selection.wants, names)):
            self.has_matched = True
        else:
            outcome.notes.append(f"no key matches {', '.join(selection.keys)}")

    def _table(self, run: LoadedRun, kind: str) -> Table:
        if kind == RUNS:
            return overview(run, tuple(what for what in self._whats if what in DOCUMENTS))
        return table(run, kind, self._options.selection, self._options.shape)

    def _check_free(self, names: Iterable[str]) -> None:
        """Raises ExportError if a file is there that may not be written over."""
        for name in names:
            if self._options.force:
                if self._target.holds_log(name):
                    raise ExportError(
                        f"{self._target.shown(name)} is a log or packed, and never written over: another -o"
                    )
            elif self._target.exists(name):
                raise ExportError(f"{self._target.shown(name)} is there already: another -o, or --force")


def _lost(log: str, gap: Any) -> str:
    count = "" if gap.records_lost is None else f", {counted(gap.records_lost, 'record')} lost"
    return f"{log}: bytes {gap.offset}-{gap.end} could not be read ({gap.reason.value}){count}"


def _unread(state: RunState, whats: Sequence[str]) -> Iterator[str]:
    """What a log's records hold that nobody can read."""
    if state.bad_records:
        yield f"{counted(state.bad_records, 'record')} could not be understood"
    for what, paths in state.lost().items():
        if paths and what in whats:
            names = ", ".join(".".join(path) for path in paths[:_NAMED]) + (", ..." if len(paths) > _NAMED else "")
            yield f"{what}: {counted(len(paths), 'value')} could not be read (no JSON, or nested too deep): {names}"


@contextmanager
def _noting(outcome: Outcome) -> Iterator[None]:
    """What goes wrong with one run is its problem; a pipe that nobody reads is everybody's."""
    try:
        yield
    except BrokenPipeError:
        raise
    except OSError as error:
        where = f"{os.fsdecode(error.filename)}: " if error.filename else ""
        outcome.problems.append(f"{where}{error.strerror or error}")
    except ExportError as error:
        outcome.problems.append(str(error))
