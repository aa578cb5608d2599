"""What all runs of one sync share."""

from __future__ import annotations

import threading
from concurrent.futures import Executor
from dataclasses import dataclass, field

from .api import Api
from .channel import Channel
from .clock import Clock
from .liveness import Liveness
from .lock import Heartbeat
from .readings import Readings
from .report import Reporter
from .room import Room
from .settings import SyncSettings


@dataclass
class Context:
    """Settings, server, clock and pools of one sync; shared by its worker threads."""

    settings: SyncSettings
    channel: Channel
    api: Api
    clock: Clock
    reporter: Reporter
    rows: Executor
    """Where bodies of rows are sent, one of each run: never behind a file whose host is down."""
    uploads: Executor
    """Where files are put to the server, so many at a time for all runs together."""
    heartbeat: Heartbeat
    liveness: Liveness
    room: Room
    """For the bodies that are gathered."""
    readings: Readings | None = None
    """What passes leave for later ones; None where this is the only one."""
    is_near: bool = False
    """Many runs go to a server on this machine: what is small is put there without a change of threads, which takes longer."""
    denied: str = ""
    """Why the server refused the key; no run can succeed then."""
    _features: frozenset[str] | None = None
    _guard: threading.Lock = field(default_factory=threading.Lock)

    def features(self, project: str) -> frozenset[str]:
        """The server's features, asked for once."""
        with self._guard:
            if self._features is None:
                self._features = self.api.features(project)
            return self._features

    def close(self) -> None:
        """End the threads."""
        self.rows.shutdown(wait=True, cancel_futures=True)
        self.uploads.shutdown(wait=True, cancel_futures=True)
        self.heartbeat.close()
