"""Watches whose rests are the moments at which things happen, so that no test waits for real."""

from __future__ import annotations

import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

from runferry.sync import Report, SyncSettings
from runferry.sync.credentials import ApiKey
from runferry.sync.watch import Watching, watch
from support import logs
from support.clock import FakeClock
from support.fakebackend import KEY, URL
from support.syncrig import Rig

Step = Callable[[], Any]


class Story(FakeClock):
    """A clock at which something happens whenever the watch rests. A watch that outlives the story fails the test.

    `sleeps` are its rests; the workers of a pass sleep on the same clock.
    """

    def __init__(self, *steps: Step | None, longest: int = 2_000) -> None:
        super().__init__()
        self._steps = iter(steps)
        self._left = longest

    def sleep(self, seconds: float) -> None:
        if threading.current_thread() is not threading.main_thread():
            self.advance(seconds)
            return
        super().sleep(seconds)
        self._left -= 1
        assert self._left, "the watch does not end"
        step = next(self._steps, None)
        if step is not None:
            step()


class WatchRig(Rig):
    """A rig that watches."""

    def watch(self, *paths: Path, story: Story, cpu: Callable[[], float] = lambda: 0.0, **options: Any) -> Report:
        """One watch from its beginning to its end."""
        self.clock = story
        watching = Watching(**{name: options.pop(name) for name in Watching.__annotations__ if name in options})
        return watch(
            paths or [self.folder],
            SyncSettings(base_url=URL, state_dir=self.state, **options),
            watching,
            **self.ports(story, cpu),
        )

    def ports(self, story: Story, cpu: Callable[[], float] = lambda: 0.0) -> dict[str, Any]:
        """What a watch on this rig is given besides paths and settings."""
        key = ApiKey(KEY, base_url=URL, source="test")
        return {
            "reporter": self.events.append,
            "key": key,
            "transport": self.backend,
            "clock": story,
            "cpu": cpu,
        }

    def begin(self, run_id: str = "live", rows: int = 2, start: float = 0.0, **run: Any) -> Path:
        """A log that goes on: `rows` rows, no end, just grown."""
        log = self.folder / f"run-20260921_1413{start:02.0f}-{run_id}" / f"run-{run_id}.wandb"
        head = logs.run_record(run_id, start=logs.START_S + start, **run)
        logs.make_log(log, head, *(logs.row(step) for step in range(rows)))
        self.settle(log, 0)
        return log

    def grow(self, log: Path, *records: Any) -> None:
        """More records, now."""
        logs.make_log(log, *records, append=True)
        self.settle(log, 0)

    def told(self, kind: str = "run_done") -> list[Any]:
        """The events of a kind."""
        return [event for event in self.events if event.type == kind]
