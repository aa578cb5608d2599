"""Mode `online`: a process beside the training that syncs the run while it is written.

The run itself is logged as in mode `offline`, whatever becomes of that process: nothing waits for it, and nothing that
it does reaches the training. It is `runferry sync --watch` on the run's directory, in a session of its own, so that a
signal for the training's group does not end it; it ends when the run has ended and is sent, and soon after the training
process has died. What it has to say stands in `sync.log` in the run's directory.
"""

from __future__ import annotations

import os
import sys
import threading
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any, Protocol

LOG_NAME = "sync.log"
_USAGE = 2
"""The exit code of a sync that cannot begin: no key, or one that the server does not know."""


class Process(Protocol):
    """A process that was started."""

    def wait(self) -> int:
        """Wait for its end; its exit code."""


class Spawn(Protocol):
    """Starts a process; as `subprocess.Popen` does."""

    def __call__(self, command: Sequence[str], **options: Any) -> Process:
        """Raises OSError where it cannot be started."""


class Syncs:
    """The syncs of one run: one for each of its directories, of which it has one unless a disk failed."""

    def __init__(self, warn: Callable[[str], None], *, base_url: str = "", spawn: Spawn | None = None) -> None:
        """Nothing is started yet.

        Args:
            warn: takes one line for the user, also later, from another thread.
            base_url: the server; the sync's own setting unless given.
            spawn: starts a process.
        """
        self._warn, self._base_url, self._spawn = warn, base_url, spawn or _popen
        self._directories: set[Path] = set()

    def accompany(self, logs: Iterable[Path]) -> list[Path]:
        """Start what is not started yet, and return at once: the directories whose sync could be started."""
        new = {log.parent for log in logs} - self._directories
        self._directories |= new
        return [directory for directory in sorted(new) if self._start(directory)]

    def _start(self, directory: Path) -> bool:
        # The key is not handed over: a sync finds it in the environment, which is the same, or in netrc.
        command = [sys.executable, "-m", "runferry.cli", "sync", "--watch", "--writer", str(os.getpid())]
        if self._base_url:
            command += ["--base-url", self._base_url]
        command.append(str(directory))
        later = f"the run is logged all the same; `runferry sync {directory}` sends it later"
        try:
            if not sys.executable:
                raise FileNotFoundError("this interpreter does not know its own program")
            process = self._begin(command, directory)
        except OSError as error:
            self._warn(f"mode online: the sync could not be started ({error.strerror or error}); {later}")
            return False

        def see() -> None:
            """Take the process off the system's table when it ends, and tell of a sync that could not even begin."""
            if process.wait() == _USAGE:
                self._warn(f"mode online: the sync gave up, {directory / LOG_NAME} says why; {later}")

        threading.Thread(target=see, name="runferry-online", daemon=True).start()
        return True

    def _begin(self, command: list[str], directory: Path) -> Process:
        import subprocess

        flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND | getattr(os, "O_NOFOLLOW", 0)
        log = os.open(directory / LOG_NAME, flags, 0o666)
        try:
            return self._spawn(
                command,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                close_fds=True,
                start_new_session=True,
                # `-m` looks for modules in the working directory first: in this one there are none.
                cwd=directory,
            )
        finally:
            os.close(log)


def _popen(command: Sequence[str], **options: Any) -> Process:
    import subprocess

    return subprocess.Popen(command, **options)  # noqa: S603 - our own interpreter with our own module
