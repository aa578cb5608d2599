"""Mode `online`: a process beside the training that syncs the run while it is written.

The run itself is logged as in mode `offline`, whatever becomes of that process: nothing waits for it, and nothing that
it does reaches the training. It is `runferry sync --watch` on the run's directory, in a session of its own, so that a
signal for the training's group does not end it; it ends when the run has ended and is sent, soon after the training
process has died, and some minutes behind the run's end where no server answers. What it has to say stands in `sync.log`
in the run's directory. Nobody starts it again: what it left, `runferry sync` sends.
"""

from __future__ import annotations

import atexit
import json
import os
import sys
import threading
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any, NamedTuple, Protocol

from ..sampler.interpreter import interpreter

LOG_NAME = "sync.log"
MOST = 8
"""Syncs of a process at a time, of 40 MiB each. What comes then waits, and is taken up together."""
_TOGETHER = 500
"""Directories that one sync takes up: a command's length has a limit."""
_PATH = "_RUNFERRY_PATH"
# What this process can import may lie where a new interpreter does not look: in a zip file, in a folder that a program
# put on its path. It comes last there, so that a module beside the program does not hide one that the sync needs.
_PROGRAM = (
    f"import json, os, sys; sys.path += json.loads(os.environ.pop({_PATH!r})); from runferry.cli import main; main()"
)


class Process(Protocol):
    """A process that was started."""

    def wait(self) -> int:
        """Wait for its end; its exit code."""


class Spawn(Protocol):
    """Starts a process; as `subprocess.Popen` does."""

    def __call__(self, command: Sequence[str], **options: Any) -> Process:
        """Raises OSError where it cannot be started."""


class _Errand(NamedTuple):
    """A run directory that is to be synced."""

    directory: Path
    base_url: str
    warn: Callable[[str], None]
    spawn: Spawn
    over: Callable[[Path], None]
    """Told of the directory once no sync of it is to be expected any more."""

    def failed(self, what: str) -> None:
        """Tell the user."""
        self.over(self.directory)
        self.warn(f"mode online: {what}; the run is logged all the same, `runferry sync {self.directory}` sends it")


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
        self._over: set[Path] = set()

    def accompany(self, logs: Iterable[Path]) -> list[Path]:
        """Start what is not started yet, and return at once: the directories whose sync could be started."""
        new = {log.parent for log in logs} - self._directories
        self._directories |= new
        return [
            directory
            for directory in sorted(new)
            if _crew.take(_Errand(directory, self._base_url, self._warn, self._spawn, self._over.add))
        ]

    def tell_unsent(self, say: Callable[[str], None]) -> None:
        """Say of which directories a sync goes on, or waits; nobody is asked, and nothing waited for."""
        for directory in sorted(self._directories - self._over):
            say(f"not all of it is sent yet: the sync goes on in the background, see {directory / LOG_NAME}")


class _Crew:
    """The syncs of this process that are at work, and the directories that wait for one. Used by any thread."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._at_work = 0
        self._waiting: list[_Errand] = []
        self._unseen: list[Process] = []

    def take(self, errand: _Errand) -> bool:
        """Start a sync, or keep the errand for later; whether it could be started."""
        with self._lock:
            if self._at_work >= MOST:
                if not self._waiting:
                    atexit.register(self._at_exit)
                    errand.warn(f"mode online: {MOST} syncs are at work; the next begins when one of them has ended")
                self._waiting.append(errand)
                return False
            self._at_work += 1
        return self._begin([errand])

    def _begin(self, errands: list[_Errand]) -> bool:
        process = _start(errands)
        if process is None:
            self._go_on()
            return False

        def see() -> None:
            """Take the process off the system's table when it ends, and tell of what it could not do."""
            code = process.wait()
            if code:
                how = f"was killed by signal {-code}" if code < 0 else f"ended with exit code {code}"
                for errand in errands:
                    errand.failed(f"the sync {how}, {errands[0].directory / LOG_NAME} says more")
            for errand in () if code else errands:
                errand.over(errand.directory)
            self._go_on()

        try:
            threading.Thread(target=see, name="runferry-online", daemon=True).start()
        except RuntimeError:  # no more threads: the sync goes on unseen, and its place stays taken
            self._unseen.append(process)
        return True

    def _go_on(self) -> None:
        """One sync less: the next takes up what waits."""
        with self._lock:
            self._at_work -= 1
            errands = self._next()
            self._at_work += bool(errands)
        if errands:
            self._begin(errands)

    def _next(self) -> list[_Errand]:
        """What waits for the server that the first waits for."""
        errands = [errand for errand in self._waiting if errand.base_url == self._waiting[0].base_url][:_TOGETHER]
        self._waiting = [errand for errand in self._waiting if errand not in errands]
        if not self._waiting:
            atexit.unregister(self._at_exit)
        return errands

    def _at_exit(self) -> None:
        """The process ends: nobody is there any more to start what waits."""
        with self._lock:
            while errands := self._next():
                process = _start(errands)
                if process is not None:
                    self._unseen.append(process)


_crew = _Crew()


def _in_child() -> None:
    """A forked process has no syncs, and its copy of the lock may be held by nobody."""
    global _crew
    _crew = _Crew()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_in_child)


def _start(errands: list[_Errand]) -> Process | None:
    """Start a sync of these directories; None, and told, where that cannot be."""
    python = interpreter()
    # The key is not handed over: a sync finds it in the environment, which is the same, or in netrc.
    command = [python or "", "-c", _PROGRAM, "sync", "--watch", "--writer", str(os.getpid())]
    if errands[0].base_url:
        command += ["--base-url", errands[0].base_url]
    command += [str(errand.directory) for errand in errands]
    try:
        if python is None:
            raise FileNotFoundError(f"sys.executable is {sys.executable!r}, no Python to start it with")
        return _spawn(errands[0].spawn, command, errands[0].directory)
    except (OSError, RuntimeError) as error:  # RuntimeError: the interpreter is going down
        reason = getattr(error, "strerror", None) or error
        for errand in errands:
            errand.failed(f"the sync could not be started ({reason})")
        return None


def _spawn(spawn: Spawn, command: list[str], directory: Path) -> Process:
    import subprocess

    flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND | getattr(os, "O_NOFOLLOW", 0)
    log = os.open(directory / LOG_NAME, flags, 0o666)
    try:
        return spawn(
            command,
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            close_fds=True,
            start_new_session=True,
            # `-c` looks for modules in the working directory first: in this one there are none.
            cwd=directory,
            env=os.environ | {_PATH: json.dumps(_import_path())},
        )
    finally:
        os.close(log)


def _import_path() -> list[str]:
    """`sys.path` for a process in another folder."""
    places = []
    for place in filter(lambda entry: isinstance(entry, str), sys.path):
        try:
            places.append(os.path.abspath(place))  # noqa: PTH100 - no links resolved
        except OSError:  # the working directory was removed
            continue
    return places


def _popen(command: Sequence[str], **options: Any) -> Process:
    import subprocess

    return subprocess.Popen(command, **options)  # noqa: S603 - our own interpreter with our own module
