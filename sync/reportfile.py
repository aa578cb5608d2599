"""The report file of a sync: one JSON object, written when it begins and when it ends, however it ends."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import fields
from pathlib import Path
from typing import Any

from .counters import Counters
from .places import write_durably
from .report import Event, Finished, Planned, RunReport
from .settings import SyncSettings
from .shard import Shard

VERSION = 1
_SECRETS = ("key", "token", "secret", "password")


class ReportFile:
    """A reporter that remembers every verdict; `write` puts them into the file.

    The object: `type` ("report"), `version`, `runferry` (version), `server`, `settings`, `paths`, `began` and `ended` (epoch
    seconds; no end: it still runs, or was killed), `exit_code`, `error` (null where there is none), `planned`, `counts` (verdict -> logs), `left_out` (option -> runs), `runs` (each
    as the `run_done` event has it, missing lists in full), and `requests` (`Traffic.as_json`).
    """

    def __init__(
        self, path: Path, settings: SyncSettings, paths: tuple[str, ...], counters: Counters, now: Callable[[], float]
    ) -> None:
        """Nothing is written yet; `now` gives epoch seconds."""
        self._path = path
        self._settings = settings
        self._paths = paths
        self._counters = counters
        self._now = now
        self._began = now()
        self._planned = Planned(0, 0)
        self._runs: dict[str, RunReport] = {}
        self._ended: float | None = None
        self._exit_code: int | None = None
        self._left_out: dict[str, int] = {}
        self._error: str | None = None

    def __call__(self, event: Event) -> None:
        """Remember it."""
        if isinstance(event, Planned):
            self._planned = event
        elif isinstance(event, RunReport):
            self._runs[event.log] = event
        elif isinstance(event, Finished):
            self._exit_code, self._left_out = event.exit_code, event.left_out

    def end(self, error: str | None = None, exit_code: int | None = None) -> None:
        """The sync has ended; with `error` before it could say so itself."""
        self._ended, self._error = self._now(), error
        if self._exit_code is None:
            self._exit_code = exit_code

    def write(self) -> None:
        """Replace the file.

        Raises:
            OSError: it cannot be written.
        """
        text = json.dumps(self.document(), ensure_ascii=False, indent=1)
        write_durably(self._path, text.encode("utf-8", "backslashreplace") + b"\n")

    def document(self) -> dict[str, Any]:
        """The object that the file holds."""
        from .. import __version__

        counts: dict[str, int] = {}
        for run in self._runs.values():
            counts[run.verdict.value] = counts.get(run.verdict.value, 0) + 1
        return {
            "type": "report",
            "version": VERSION,
            "runferry": __version__,
            "server": self._settings.base_url,
            "settings": plain_settings(self._settings),
            "paths": list(self._paths),
            "began": self._began,
            "ended": self._ended,
            "exit_code": self._exit_code,
            "error": self._error,
            "planned": {"runs": self._planned.runs, "logs": self._planned.logs},
            "counts": counts,
            "left_out": self._left_out,
            "runs": [_without_type(run.as_json()) for run in self._runs.values()],
            "requests": self._counters.read().as_json(),
        }


def plain_settings(settings: SyncSettings) -> dict[str, Any]:
    """The settings as JSON values, without anything that could be secret."""
    values = {item.name: getattr(settings, item.name) for item in fields(settings)}
    return {
        name: _plain(value)
        for name, value in values.items()
        if not any(word in name for word in _SECRETS)
        and (value is None or isinstance(value, (str, int, float, bool, Path, tuple, list, frozenset, dict, Shard)))
    }


def _plain(value: Any) -> Any:
    if isinstance(value, frozenset):
        return sorted(value)
    return str(value) if isinstance(value, (Path, Shard)) else value


def _without_type(event: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in event.items() if name != "type"}
