"""Bringing files beside the log to the device, on threads of their own: a large file holds up no row."""

from __future__ import annotations

import os
import threading
import time
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from ..logformat.words import counted
from .filesystem import FileSystem

MAX_THREADS = 4
"""At work at a time: a disk that does not answer holds up no more of them."""
SYNC_EVERY = 256
"""Files, after which nobody needs to ask for a sync: at the end of the run few are left to do."""


class FileSync:
    """The files that have their names and are not on the device yet. Any thread may call any method."""

    def __init__(self, fs: FileSystem, warn: Callable[[str], None]) -> None:
        """Nothing is to be synced yet."""
        self._fs, self._warn = fs, warn
        self._waiting: deque[Path] = deque()
        self._starting = threading.RLock()  # a signal handler in the middle of it may settle
        self._threads: list[threading.Thread] = []
        self.unsure = False
        """Whether something could not be brought to the device."""

    def add(self, *paths: Path) -> None:
        """Files that have these names now, and folders that are new."""
        self._waiting.extend(paths)
        if len(self._waiting) >= SYNC_EVERY:
            self.begin()

    def begin(self) -> None:
        """Begin to sync what waits."""
        with self._starting:
            if self._waiting and len(self._at_work()) < MAX_THREADS:
                self._start()

    def settle(self, timeout_s: float) -> bool:
        """Wait until all that was added is on the device; whether it is."""
        deadline = time.monotonic() + timeout_s
        with self._starting:
            if self._waiting:
                self._start()
            threads = self._at_work()
        for thread in threads:
            thread.join(max(0.0, deadline - time.monotonic()))
        return not self.unsure and not any(thread.is_alive() for thread in threads)

    def _at_work(self) -> list[threading.Thread]:
        self._threads = [thread for thread in self._threads if thread.is_alive()]
        return self._threads

    def _start(self) -> None:
        paths = _taken(self._waiting)
        thread = threading.Thread(target=self._sync, args=(paths,), name="runferry-file-sync", daemon=True)
        try:
            thread.start()
        except RuntimeError:  # the interpreter ends, and takes no more threads
            self._sync(paths)
        else:
            self._threads.append(thread)

    def _sync(self, paths: list[Path]) -> None:
        failures = 0
        for path in paths:
            if path.is_dir():
                continue  # new: its name is to be brought there, below
            try:
                fd = os.open(path, os.O_RDONLY)
            except FileNotFoundError:
                continue  # replaced or removed since
            except OSError:
                failures += 1
                continue
            try:
                self._fs.sync_file(fd)
            except OSError:
                failures += 1
            finally:
                os.close(fd)
        for folder in dict.fromkeys(path.parent for path in paths):
            with suppress(OSError):  # the file matters more; not every file system has this
                self._fs.sync_directory(folder)
        if failures and not self.unsure:
            self.unsure = True
            self._warn(
                f"{counted(failures, 'file')} in {paths[0].parent} could not be synced: a power cut may cost them"
            )


def _taken(paths: deque[Path]) -> list[Path]:
    """What is in there, each once; it is empty then."""
    taken: list[Path] = []
    with suppress(IndexError):
        while True:
            taken.append(paths.popleft())
    return list(dict.fromkeys(taken))
