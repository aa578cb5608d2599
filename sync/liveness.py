"""Whether the writer of a log without an end is still there: asked by the replay, by a watch, and by whoever lists runs.

| the log has                          | its run goes on                                                            |
|--------------------------------------|----------------------------------------------------------------------------|
| a heartbeat of a process of here     | as long as that process is there, however long ago it wrote                |
| a heartbeat of elsewhere             | until `GRACE_S` after it was last touched, by the clock of the file system |
| none (the peer's logs)               | until `stale_after` seconds after the log grew                             |

An exit record outweighs all of it; callers look for one first.
"""

from __future__ import annotations

import threading
from dataclasses import dataclass
from pathlib import Path

from ..logformat.heartbeat import heartbeat_path, read_heartbeat
from .clock import Clock
from .plan import LogHead

GRACE_S = 180.0
"""Seconds without a touch after which a process that cannot be looked for counts as gone. It is touched every 15 s; a network
file system shows that up to a minute late, and the clocks of two machines differ."""


@dataclass
class _Seen:
    """When a file last changed: by its own time, and by our clock if we saw it happen."""

    modified: float
    at: float | None = None


class Liveness:
    """Answers for many logs, again and again. Used by any thread.

    A change that it saw itself is dated by this machine's own clock, so that a watch needs no clocks that agree.
    """

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._seen: dict[Path, _Seen] = {}
        self._guard = threading.Lock()

    def is_alive(self, log: Path, modified: float, stale_after: float) -> bool:
        """Whether the run of a log that has no exit record goes on.

        Args:
            log: the log.
            modified: epoch seconds at which it last grew, as the file system says.
            stale_after: seconds; 0 or less for a log whose writer is known to be gone.
        """
        if stale_after <= 0:
            return False
        beat = read_heartbeat(log)
        if beat is None:
            return self._is_recent(log, modified, stale_after)
        lives = beat.process.lives()
        if lives is None:
            return self._is_recent(heartbeat_path(log), beat.touched, GRACE_S)
        return lives

    def is_beginning(self, head: LogHead, stale_after: float) -> bool:
        """Whether a log lacks its run record only because the writer, who is there, has not written it yet.

        The peer's writer writes whole blocks of 32 KiB, so for minutes its log may hold nothing but a file header.
        """
        return head.begins and self.is_alive(head.path, head.modified, stale_after)

    def _is_recent(self, path: Path, modified: float, within: float) -> bool:
        now = self._clock.monotonic()
        with self._guard:
            seen = self._seen.get(path)
            if seen is None:
                seen = self._seen[path] = _Seen(modified)
            elif seen.modified != modified:
                seen.modified, seen.at = modified, now
        if seen.at is not None:
            return now - seen.at < within
        # A time that lies ahead is no better than one that lies behind: else a wrong clock would keep a run alive for ever.
        return abs(self._clock.time() - modified) < within
