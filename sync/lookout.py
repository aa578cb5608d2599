"""Looking at watched logs: where they are, and how they have changed since the look before.

A look asks for names, sizes and times, so it works on network file systems, which announce nothing. Logs of which something
is expected are looked at each time; folders, and logs whose runs have ended, as often as their number allows.
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from ..logformat import find_logs
from .clock import Clock
from .plan import LogHead, shut_folder
from .report import RunReport

SEARCH_REST = 20
"""A search is followed by a rest of so many times the time that it took, and `LONGEST_REST_S` at most: ten thousand run
directories are searched every few seconds, a hundred at every look."""
LONGEST_REST_S = 60.0

NEVER = float("inf")
Identity = tuple[int, int]
"""Device and inode: a log that is moved stays the same log."""


@dataclass(eq=False)
class WatchedLog:
    """One log: how it looked at last, and what became of it. Times are monotonic seconds."""

    path: Path
    looks: tuple[int, int]
    """Size in bytes and time of the last change in ns, as just seen."""
    modified: float
    """Epoch seconds of the last change."""
    sent: tuple[int, int] | None = None
    """How it looked before the last pass that it was in."""
    head: LogHead | None = None
    report: RunReport | None = None
    waits: bool = True
    """Whether something is still expected of it: rows, an end, or a better moment to send."""
    may_grow: bool = False
    """It has no end, and its writer was there at last."""
    not_before: float = 0.0
    """After a failure it rests, also when it grows."""
    again_at: float = NEVER
    """It is due then though it has not grown."""
    failures: int = 0

    def is_due(self, now: float) -> bool:
        """Whether a pass would find something to do."""
        return (self.looks != self.sent and now >= self.not_before) or now >= self.again_at

    @property
    def is_settled(self) -> bool:
        """Whether nothing happens to it any more unless it grows."""
        return self.sent == self.looks and not self.waits

    def see(self, status: os.stat_result) -> bool:
        """Note how it looks; whether that has changed."""
        looks = (status.st_size, status.st_mtime_ns)
        if looks == self.looks:
            return False
        if status.st_size < self.looks[0]:  # cut, or another log in its place
            self.head = None
        self.looks, self.modified = looks, status.st_mtime
        return True


class Lookout:
    """The logs below some paths, looked at again and again. Belongs to one thread."""

    def __init__(self, paths: Iterable[Path], clock: Clock) -> None:
        self._paths, self._clock = list(paths), clock
        self._search_at = 0.0
        self.logs: dict[Identity, WatchedLog] = {}
        """Those that are there, as far as anybody can tell."""
        self.shut: dict[str, str] = {}
        """Folders that the last search could not look into, and why."""
        self.grew_at = clock.monotonic()
        """When a log was last seen to be new or changed."""

    def look(self) -> list[WatchedLog]:
        """Look once; the logs that are not there any more."""
        began = self._clock.monotonic()
        if began < self._search_at and all(self._glance(*item) for item in self.logs.items()):
            return []
        gone = self._search()
        now = self._clock.monotonic()
        self._search_at = now + min(SEARCH_REST * (now - began), LONGEST_REST_S)
        return gone

    def _glance(self, identity: Identity, log: WatchedLog) -> bool:
        """Look at a log where it was, if anything is expected of it; whether there is no need to search for it."""
        if log.is_settled:
            return True
        try:
            status = status_of(log.path, fresh=log.may_grow)
        except (FileNotFoundError, NotADirectoryError):
            return False
        except OSError:  # a network file system that does not answer
            return True
        if (status.st_dev, status.st_ino) != identity:
            return False
        if log.see(status):
            self.grew_at = self._clock.monotonic()
        return True

    def _search(self) -> list[WatchedLog]:
        by_path = {log.path: log for log in self.logs.values()}
        found: dict[Identity, WatchedLog] = {}
        shut: list[LogHead] = []
        for path in self._paths:
            try:
                logs = find_logs(path, unreadable=lambda error: shut.append(shut_folder(error)))
            except OSError:
                continue
            for log in logs:
                there = by_path.get(log)
                try:
                    status = status_of(log, fresh=there is not None and there.may_grow)
                except OSError:
                    continue
                identity = (status.st_dev, status.st_ino)
                if identity not in found:
                    found[identity] = self._found(log, status, self.logs.get(identity), there)
        gone = self._missing(found)
        self.logs = found
        self.shut = {os.fspath(folder.path): folder.problem for folder in shut}
        return gone

    def _found(
        self, path: Path, status: os.stat_result, same: WatchedLog | None, there: WatchedLog | None
    ) -> WatchedLog:
        """A log at `path`. `same` is what this file was before, `there` what was at the path."""
        if same is not None and same.path == path:
            if same.see(status):
                self.grew_at = self._clock.monotonic()
            return same
        self.grew_at = self._clock.monotonic()
        if there is None or same is not None:
            return WatchedLog(path, (status.st_size, status.st_mtime_ns), status.st_mtime)
        # Another file in its place, as copies of a log that grows are laid there. The cursor knows whether it goes on.
        there.see(status)
        there.sent = there.head = None
        return there

    def _missing(self, found: dict[Identity, WatchedLog]) -> list[WatchedLog]:
        """The logs that were not found again; those of which nobody can tell are kept among the found ones."""
        kept = set(found.values())
        gone = []
        for identity, log in self.logs.items():
            if log in kept:
                continue
            other = found.get(identity)
            if other is None and _is_silent(log.path):
                found[identity] = log
            elif other is None or other.path.name != log.path.name:  # a number that was given to another log
                gone.append(log)
        return gone


def status_of(path: Path, *, fresh: bool) -> os.stat_result:
    """What the system says of a log. `fresh` opens it: a network file system then asks its server, and not its memory.

    Raises:
        OSError: nobody can tell.
    """
    if fresh:
        flags = os.O_RDONLY | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_CLOEXEC", 0)
        try:
            descriptor = os.open(path, flags)
        except OSError:
            return path.stat()
        try:
            return os.fstat(descriptor)
        finally:
            os.close(descriptor)
    return path.stat()


def is_one_run(path: Path) -> bool:
    """Whether a path is a log, or a directory with a log in it: no other run will appear there."""
    return path.is_file() or any(log.parent == path for log in find_logs(path))


def _is_silent(path: Path) -> bool:
    """Whether nobody can tell what is at a path now: a network file system that does not answer."""
    try:
        path.stat()
    except (FileNotFoundError, NotADirectoryError):
        return False
    except OSError:
        return True
    return False
