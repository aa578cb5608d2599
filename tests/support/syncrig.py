"""A folder of logs, a backend that is a Python object, and whole syncs between them."""

from __future__ import annotations

import json
import os
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from runferry.sync import Report, SyncSettings, sync
from runferry.sync.credentials import ApiKey
from runferry.sync.transport import Answer, Request
from support import logs
from support.clock import FakeClock
from support.fakebackend import KEY, URL, FakeBackend


class Rig:
    """A folder of logs, a backend, and a clock at which the logs are one minute old."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder / "wandb"
        self.folder.mkdir()
        self.state = folder / "state"
        self.backend = FakeBackend()
        self.events: list[Any] = []
        self.clock = FakeClock()

    def run(self, **options: Any) -> Path:
        """A run directory with an ordinary log."""
        log = logs.simple_run(self.folder, **options)
        self.settle(log)
        return log

    def settle(self, log: Path, age: float = 60.0) -> None:
        """Make a log look as if it last grew `age` seconds ago."""
        logs.set_age(log, age, now=self.clock.time())

    def sync(self, *paths: Path, **options: Any) -> Report:
        """One sync; `options` are settings."""
        settings = SyncSettings(base_url=URL, state_dir=self.state, **options)
        return sync(
            paths or [self.folder],
            settings,
            key=ApiKey(KEY, base_url=URL, source="test"),
            transport=self.backend,
            clock=self.clock,
            rng=random.Random(5),
            reporter=self.events.append,
        )

    def only(self, report: Report) -> Any:
        """The report of the only log."""
        assert len(report.runs) == 1
        return report.runs[0]


def marker(log: Path) -> Path:
    return log.with_name(log.name + ".synced")


def cursor(log: Path) -> Path:
    return log.with_name(log.name + ".cursor")


def shut_out(monkeypatch: pytest.MonkeyPatch, shut: Path) -> None:
    """Let nobody list a folder when logs are looked for, as its permissions would for all but root."""
    real = os.scandir

    def scandir(folder: Any) -> Any:
        if Path(folder) == shut:
            raise PermissionError(13, "Permission denied", str(folder))
        return real(folder)

    monkeypatch.setattr("runferry.logformat.rundir.find_logs.__kwdefaults__", {"unreadable": None, "scan": scandir})


def unsealed(log: Path) -> dict[str, Any]:
    """What a cursor says, without its seal: changed and written back, it is believed as one of an older version."""
    document: dict[str, Any] = json.loads(cursor(log).read_bytes())
    del document["seal"]
    return document


def tree(folder: Path) -> dict[str, bytes]:
    """Every file below a folder, without the side files of a sync."""
    side = (".cursor", ".lock", ".synced")
    return {str(path): path.read_bytes() for path in folder.rglob("*") if path.is_file() and path.suffix not in side}


def on(operation: str, answer: Answer | Exception, times: int = 10**9) -> Callable[[int, str, Request], Any]:
    """A fault for the first `times` requests of one operation."""
    left = [times]

    def fault(_: int, name: str, __: Request) -> Answer | Exception | None:
        if name != operation or left[0] == 0:
            return None
        left[0] -= 1
        return answer

    return fault
