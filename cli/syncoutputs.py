"""Where the news of a sync goes: to the view, and to the files that were asked for."""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, cast

import click

from ..sync.counters import Counters
from ..sync.report import Event, Several
from .syncview import Ticking, View, view_for

if TYPE_CHECKING:
    from ..sync.reportfile import ReportFile
    from ..sync.settings import SyncSettings


class Outputs:
    """A reporter, and a context: at its end, however it ends, everything is shown and written.

    Raises:
        click.ClickException: a file cannot be written, found before anything is sent.
    """

    def __init__(
        self,
        settings: SyncSettings,
        paths: tuple[str, ...],
        *,
        as_json: bool,
        shown: Callable[[str], str] = str,
        report: Path | None = None,
        metrics: Path | None = None,
    ) -> None:
        self.counters = Counters()
        self._shown = shown  # how a log is called by the user
        self._report: ReportFile | None = None
        listeners: list[View] = []
        try:
            if report is not None:
                from ..sync.reportfile import ReportFile

                self._report = ReportFile(_ordinary(report), settings, paths, self.counters, time.time)
                self._report.write()
            if metrics is not None:
                listeners.append(_metrics(_ordinary(metrics), self.counters))
        except OSError as error:
            raise click.ClickException(f"{error.filename or report}: {error.strerror or error}") from None
        self._open = [*listeners, view_for(as_json=as_json, counters=self.counters)]
        self._tell = Several(*([self._report] if self._report is not None else []), *self._open)

    def __call__(self, event: Event) -> None:
        """Tell everybody."""
        log = getattr(event, "log", None)
        self._tell(event if log is None else replace(cast("Any", event), log=self._shown(log)))

    def __enter__(self) -> Outputs:  # noqa: PYI034 - `Self` is not there before Python 3.11
        """The reporter itself."""
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Close the view, then write the files."""
        for listener in reversed(self._open):
            with contextlib.suppress(OSError, ValueError):  # whoever looked has gone
                listener.close()
        if self._report is None:
            return
        try:
            if error is None:
                self._report.end()
            elif isinstance(error, KeyboardInterrupt):
                self._report.end("interrupted", 130)
            else:
                self._report.end(f"{type(error).__name__}: {error}", 2)
            self._report.write()
        except OSError as failure:  # the exit code speaks of the runs
            with contextlib.suppress(OSError, ValueError):
                click.echo(f"runferry: the report was not written: {failure}", err=True)


def _ordinary(path: Path) -> Path:
    """Where a file that is replaced as a whole may be put, links followed: a device or pipe must not be replaced.

    Raises:
        click.ClickException: something else than an ordinary file is there.
    """
    place = Path(os.path.realpath(path))
    if place.exists() and not place.is_file():
        raise click.ClickException(f"{path}: not an ordinary file")
    return place


def _metrics(path: Path, counters: Counters) -> View:
    from .. import __version__
    from ..sync.metricsfile import WRITE_EVERY_S, MetricsFile

    file = MetricsFile(path, counters, now=time.time, monotonic=time.monotonic, version=__version__)
    return Ticking(file, WRITE_EVERY_S)
