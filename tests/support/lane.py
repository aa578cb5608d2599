"""One log read and sent as a sync does it, to a server that keeps the bodies."""

from __future__ import annotations

import contextlib
import json
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from runferry.logformat import RunState
from runferry.logformat.steps import ALL_STEPS, Steps
from runferry.sync.api import RemoteRun
from runferry.sync.cursor import Cursor, Lines, Target
from runferry.sync.rowlane import LastWord, RowLane
from runferry.sync.runfiles import ConsoleFile
from runferry.sync.scan import Facts, scan


class Bodies:
    """An API that takes every body."""

    def __init__(self) -> None:
        self.raw: list[bytes] = []

    def stream(self, _: RemoteRun, body: bytes, **_options: bool) -> None:
        self.raw.append(body)

    @property
    def taken(self) -> list[dict[str, Any]]:
        """The files of each body."""
        return [json.loads(body)["files"] for body in self.raw]

    def lines(self) -> list[str]:
        """Of all rows."""
        return [line for files in self.taken for line in files.get("wandb-history.jsonl", {"content": []})["content"]]

    def rows(self) -> list[dict[str, Any]]:
        return [json.loads(line) for line in self.lines()]

    def offsets(self) -> list[int]:
        """The line number of the first row of each body."""
        return [files["wandb-history.jsonl"]["offset"] for files in self.taken]


def fresh(shift: int = 0) -> Cursor:
    """A cursor for a log whose first row is line 100 of the run."""
    return Cursor(Target("http://x", None, "proj", "x"), "me", "proj", "x", "id", Lines(100), shift)


def read(log: Path, steps: Steps = ALL_STEPS, *, fold_rows: bool = True) -> tuple[Facts, RunState]:
    """The first reading."""
    state = RunState(keep_rows=False)
    return scan(log, state, start_ns=0, young=False, fold_rows=fold_rows, steps=steps), state


def sent(facts: Facts, cursor: Cursor, state: RunState | None = None, body_bytes: int = 8_000_000) -> Bodies:
    """The second reading; rows are folded into `state`."""
    bodies = Bodies()
    with ThreadPoolExecutor(1) as pool, contextlib.closing(ConsoleFile()) as console_file:
        lane = RowLane(
            bodies,  # type: ignore[arg-type]
            RemoteRun("id", "me", "proj", "x"),
            facts,
            cursor,
            facts.log.with_name("cursor"),
            body_bytes,
            False,
            console_file,
            pool,
            lambda: None,
            state,
        )
        lane.send(LastWord())
    return bodies
