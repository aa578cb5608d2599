"""What of a run can be exported, each as a table or as a document: `rows`, `samples`, `console` and the others."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

from ..logformat.columns import Rows
from ..logformat.describe import plain_fields
from ..logformat.elapsed import in_seconds
from ..logformat.history import RUNTIME, STEP, TIMESTAMP, Path
from .runs import LoadedRun
from .selection import PLACE, Selection
from .tables import Listed, Logged, Long, Source, Table, Wide, free_name, json_text

DOCUMENTS = ("run", "config", "summary")
"""What is one nested object for a run; over all runs they are one table, with a row for each."""
TABLES = ("rows", "samples", "console", "alerts", "files", "gaps")
WHATS = (*TABLES[:3], *DOCUMENTS, *TABLES[3:])
"""Everything, in the order in which it is told."""
GROWING = frozenset({"rows", "samples", "console"})
"""What takes as much memory as the run is long."""
SHAPES = ("wide", "long")
_CALLED = {"display_name": "name"}


def table(run: LoadedRun, what: str, selection: Selection, shape: str) -> Table:
    """One of `TABLES`."""
    return _MAKERS[what](run, selection, shape)


def document(run: LoadedRun, what: str) -> dict[str, Any]:
    """One of `DOCUMENTS`."""
    if what == "config":
        return run.state.config
    return run.state.summary if what == "summary" else facts(run)


def facts(run: LoadedRun) -> dict[str, Any]:
    """Who a run is and how it went; times in seconds."""
    state = run.state
    info = dataclasses.asdict(state.info)
    started = in_seconds(info.pop("start_time_ns"))
    return {
        "run": run.name,
        **{_CALLED.get(key, key): None if value == "" else value for key, value in info.items()},
        "started": started or None,
        "runtime": state.runtime,
        "status": run.status,
        "exit_code": state.exit_code,
        "last_step": state.last_step,
        "rows": state.row_count,
        "rows_cut": state.cut_count,
        "samples": state.sample_count,
        "console_lines": state.console_count,
        "logs": run.shown,
        "gaps": len(run.gaps),
        "records_lost": state.records_lost,
        "bits_healed": len(state.healed),
        "environment": {} if state.environment is None else plain_fields(state.environment),
    }


def about(run: LoadedRun) -> dict[str, str]:
    """What a file says of where it comes from: texts, of which some are JSON."""
    info = run.state.info
    return {
        "runferry.run_id": info.run_id,
        "runferry.project": info.project,
        "runferry.entity": info.entity,
        "runferry.name": info.display_name,
        "runferry.config": json_text(run.state.config),
        "runferry.logs": json_text(run.shown),
        "runferry.gaps": json_text(list(gaps_table(run).objects())),
    }


def overview(run: LoadedRun, whats: tuple[str, ...]) -> Table:
    """A row for the run, with its documents flat: `config.lr`, `summary.loss`, what `run` says without a prefix."""
    paths: list[Path] = []
    texts: list[bytes] = []
    for what in whats:
        for path, value in leaves(document(run, what)):
            if path != ("run",) or what != "run":
                paths.append(path if what == "run" else (what, *path))
                texts.append(json_text(value).encode())
    rows = Rows()
    rows.append(tuple(paths), texts)
    return Wide([Logged(column) for column in rows.columns], range(1))


def leaves(tree: dict[str, Any], above: Path = ()) -> list[tuple[Path, Any]]:
    """The values of nested objects; empty ones and lists are values."""
    found: list[tuple[Path, Any]] = []
    for key, value in tree.items():
        if isinstance(value, dict) and value:
            found += leaves(value, (*above, key))
        else:
            found.append(((*above, key), value))
    return found


# -- tables ----------------------------------------------------------------------------------------------------------


def rows_table(run: LoadedRun, selection: Selection, shape: str) -> Wide | Long:
    """The rows, of each the keys that are wanted."""
    rows = run.state.rows
    columns = selection.columns(rows.columns)
    wanted = selection.rows(rows, columns)
    if shape == "wide":
        sources: list[Source] = [Logged(column) for column in columns]
        return Wide(sources or [Listed("_step", "int", [])], wanted)
    place: list[Source] = [Logged(rows.column(path)) for path in (STEP, RUNTIME, TIMESTAMP) if path in rows.paths]
    return Long(place, [column for column in columns if column.path not in PLACE], wanted, len(rows))


def samples_table(run: LoadedRun, selection: Selection, shape: str) -> Wide | Long:
    """The samples: when each was taken, by the clock and by the run's own time, and its metrics."""
    samples = run.state.samples
    columns = [column for column in samples.columns if selection.wants(column.key)]
    rows = range(len(samples))[:: selection.every]
    names = [column.key for column in samples.columns]
    place: list[Source] = [
        Listed(free_name("_timestamp", names), "float", [*map(in_seconds, samples.timestamps_ns)]),
        Listed(free_name("_runtime", names), "float", run.runtimes),
    ]
    if shape == "long":
        return Long(place, columns, rows, len(samples))
    return Wide([*place, *map(Logged, columns)], rows if columns else range(0))


def console_table(run: LoadedRun) -> Wide:
    """The lines of the console as a terminal shows them, also the last one that does not end."""
    lines = [*run.state.console, *run.state.console_rest]
    return _listed(
        ("_timestamp", "float", [in_seconds(line.timestamp_ns) or None for line in lines]),
        ("stream", "text", [line.stream for line in lines]),
        ("text", "text", [line.text for line in lines]),
    )


def alerts_table(run: LoadedRun) -> Wide:
    """The alerts."""
    alerts = run.state.alerts
    return _listed(
        ("title", "text", [alert.title for alert in alerts]),
        ("text", "text", [alert.text for alert in alerts]),
        ("level", "text", [alert.level for alert in alerts]),
        ("wait_seconds", "float", [alert.wait_seconds for alert in alerts]),
    )


def files_table(run: LoadedRun) -> Wide:
    """The files that the run names, as it names them."""
    files = run.state.files
    return _listed(("path", "text", [*files]), ("policy", "text", [*files.values()]))


def gaps_table(run: LoadedRun) -> Wide:
    """The bytes that could not be read."""
    logs, gaps = [log for log, _ in run.gaps], [gap for _, gap in run.gaps]
    return _listed(
        ("log", "text", logs),
        ("offset", "int", [gap.offset for gap in gaps]),
        ("length", "int", [gap.length for gap in gaps]),
        ("reason", "text", [gap.reason.value for gap in gaps]),
        ("records_lost", "int", [gap.records_lost for gap in gaps]),
    )


_MAKERS: dict[str, Callable[[LoadedRun, Selection, str], Table]] = {
    "rows": rows_table,
    "samples": samples_table,
    "console": lambda run, *_: console_table(run),
    "alerts": lambda run, *_: alerts_table(run),
    "files": lambda run, *_: files_table(run),
    "gaps": lambda run, *_: gaps_table(run),
}


def _listed(*columns: tuple[str, str, list[Any]]) -> Wide:
    return Wide([Listed(*column) for column in columns], range(len(columns[0][2])))
