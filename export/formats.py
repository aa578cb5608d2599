"""The formats, by name: which file each one makes of what, and the module that writes it, loaded when it is wanted."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, BinaryIO, Protocol

from .chart_style import MOST_RUNS
from .contents import WHATS
from .runs import ExportError, LoadedRun
from .selection import Selection
from .tables import Field, Table


class TableWriter(Protocol):
    """Writes one file."""

    def add(self, table: Table) -> None:
        """Write a table below those before."""

    def close(self) -> None:
        """Complete the file, which stays open."""


@dataclass(frozen=True)
class Exporter:
    """One format. It writes tables, a file for each, or whole runs, a file for each."""

    suffix: str
    """With its dot; how a file is called that holds one thing."""
    whats: tuple[str, ...]
    """What it can hold."""
    module: str
    """Has a `TableWriter`, or `write_run(file, run, whats, selection) -> notes`."""
    run_file: Callable[[LoadedRun], str] | None = None
    """What the file of a whole run is called; None: it writes tables."""
    compares: int = 0
    """If one file can hold several runs side by side, of how many it shows the rows: `module` has `write_runs(file, runs,
    whats, selection)`, too."""
    needs: str = ""
    """The extra that brings what it takes."""

    def table_writer(self, file: BinaryIO, fields: Sequence[Field], about: Mapping[str, str]) -> TableWriter:
        """A writer of tables with these fields; `about` goes with them where the format has room for it."""
        writer: TableWriter = self._writer().TableWriter(file, fields, about)
        return writer

    def write_run(self, file: BinaryIO, run: LoadedRun, whats: Sequence[str], selection: Selection) -> list[str]:
        """Write a run; gives what the format cannot say of it, in words."""
        notes: list[str] = self._writer().write_run(file, run, whats, selection)
        return notes

    def write_runs(
        self, file: BinaryIO, runs: Sequence[LoadedRun], whats: Sequence[str], selection: Selection
    ) -> list[str]:
        """As `write_run`, for several runs side by side."""
        notes: list[str] = self._writer().write_runs(file, runs, whats, selection)
        return notes

    def check(self) -> None:
        """Raises ExportError if what the format needs is not installed."""
        if self.needs:
            try:
                importlib.import_module(self.needs)
            except ImportError as error:
                raise ExportError(f"this takes {self.needs} ({error}): install runferry with [export]") from None

    def _writer(self) -> Any:
        return importlib.import_module(f".{self.module}", __package__)


FORMATS: dict[str, Exporter] = {
    "jsonl": Exporter(".jsonl", WHATS, "jsonl"),
    "csv": Exporter(".csv", WHATS, "commas"),
    "parquet": Exporter(".parquet", WHATS, "parquet", needs="pyarrow"),
    "tensorboard": Exporter(
        ".tfevents",
        ("rows", "samples", "config", "summary", "run"),
        "tensorboard",
        run_file=lambda run: f"events.out.tfevents.{max(run.state.info.start_time_ns, 0) // 10**9:010}.runferry",
    ),
    "html": Exporter(".html", WHATS, "page", run_file=lambda _: "report.html", compares=MOST_RUNS),
}
