"""Where the small files of a sync go: beside the log, or in the state directory where the log's own cannot be written.

    run-<id>.wandb.cursor   how far the sync came
    run-<id>.wandb.lock     who is syncing now
    run-<id>.wandb.synced   the peer's marker: everything is at the server

The run directory is otherwise never written to.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import BinaryIO

from ..logformat.heartbeat import Process
from .errors import UsageError

_MARKED_S = 2.0  # as coarse as FAT keeps the time of a file
_CURSOR_OF = re.compile(r"cursor\.([1-9][0-9]{0,9})\.tmp")  # see `write_whole`; the number of the process
_LOCK_OF = re.compile(r"lock\.(stale\.)?[0-9a-f]{16}")  # see `Lock`
_MOST_OF_LOCK = 4096  # bytes


def default_state_dir(environ: Mapping[str, str] = os.environ) -> Path:
    """`RUNFERRY_STATE_DIR`, else `$XDG_STATE_HOME/runferry`, else `~/.local/state/runferry`.

    Raises:
        UsageError: that is below a home directory which nobody knows, as in a container whose user has no name.
    """
    try:
        if environ.get("RUNFERRY_STATE_DIR"):
            return Path(environ["RUNFERRY_STATE_DIR"]).expanduser()
        base = environ.get("XDG_STATE_HOME")
        return (Path(base).expanduser() if base else Path.home() / ".local" / "state") / "runferry"
    except RuntimeError:
        raise UsageError("this user has no home directory: set HOME or RUNFERRY_STATE_DIR") from None


def is_writable(directory: Path) -> bool:
    """Whether files can be made in `directory`, as the system sees it (mounts included)."""
    return os.access(directory, os.W_OK | os.X_OK)


class Places:
    """The paths of one log's side files. Nothing is made before it is needed."""

    def __init__(self, log: Path, state_dir: Path, writable: Callable[[Path], bool] = is_writable) -> None:
        self.log = log
        self.beside = writable(log.parent)
        # Two runs of one name in different folders must not share a cursor: the folder's path is part of the name.
        folder = hashlib.sha256(os.fsencode(log.parent.resolve())).hexdigest()[:16]
        self._elsewhere = state_dir / "sync" / folder
        self._folder = log.parent if self.beside else self._elsewhere

    @property
    def cursor(self) -> Path:
        """Where the cursor is written."""
        return self._folder / f"{self.log.name}.cursor"

    @property
    def cursors(self) -> tuple[Path, ...]:
        """Where a cursor may lie, the one to believe first; a log that became read-only (or no longer is) keeps its place."""
        name = self.cursor.name
        return (self._folder / name, (self._elsewhere if self.beside else self.log.parent) / name)

    @property
    def lock(self) -> Path:
        """Where the lock lies."""
        return self._folder / f"{self.log.name}.lock"

    @property
    def marker(self) -> Path:
        """The peer's marker; always beside the log, where the peer looks."""
        return self.log.with_name(self.log.name + ".synced")

    def make_folder(self) -> None:
        """Make the folder of the side files; the state directory is its owner's business only."""
        if not self.beside:
            self._folder.mkdir(parents=True, exist_ok=True, mode=0o700)

    def sweep(self) -> None:
        """Remove what syncs of this log left that were killed while they wrote a cursor or a lock. Ask with the lock in hand."""
        with contextlib.suppress(OSError), os.scandir(self._folder) as entries:
            for entry in entries:
                name = entry.name.removeprefix(f"{self.log.name}.")
                if name == entry.name or not entry.is_file(follow_symlinks=False):
                    continue
                pid, path = _CURSOR_OF.fullmatch(name), Path(entry.path)
                if (pid and _is_gone(int(pid[1]))) or (_LOCK_OF.fullmatch(name) and _is_of_the_dead(path)):
                    with contextlib.suppress(OSError):
                        path.unlink()

    def mark(self) -> None:
        """Set the marker, where the directory lets us."""
        with contextlib.suppress(OSError):
            self.marker.touch()

    def is_outgrown(self) -> bool:
        """Whether the log has changed since its marker was set: what came then, whoever set it cannot have sent."""
        try:
            return self.log.stat().st_mtime > self.marker.stat().st_mtime + _MARKED_S
        except OSError:
            return False

    def unmark(self) -> None:
        """Take the marker away from a log that has grown since."""
        with contextlib.suppress(OSError):
            self.marker.unlink()


def _is_gone(pid: int) -> bool:
    """Whether this machine has no such process. One of another machine, if it lives, has lost the lock that we hold."""
    if os.name == "nt":  # os.kill would end it there
        return False
    try:
        os.kill(pid, 0)
    except (ProcessLookupError, OverflowError):
        return True
    except OSError:
        return False
    return False


def _is_of_the_dead(lock: Path) -> bool:
    """Whether the process that made a lock, or a part of one, is known to be gone."""
    try:
        with lock.open("rb") as file:
            process = Process.from_json(json.loads(file.read(_MOST_OF_LOCK)))
    except (OSError, ValueError, RecursionError):
        return False
    return process is not None and process.lives() is False


def write_durably(path: Path, data: bytes) -> None:
    """Replace `path` so that after any crash it holds its old or its new bytes, whole."""
    write_whole(path, data, durably=True)


def write_whole(path: Path, data: bytes, *, durably: bool) -> None:
    """Replace `path` so that after a kill it holds its old or its new bytes, whole; if `durably`, after a power cut too."""
    temporary = path.with_name(f"{path.name}.{os.getpid()}.tmp")
    try:
        with _fresh(temporary) as file:
            file.write(data)
            if durably:
                file.flush()
                os.fsync(file.fileno())
        temporary.replace(path)
    except BaseException as error:
        with contextlib.suppress(OSError):
            temporary.unlink()
        if isinstance(error, OSError) and error.filename in (None, os.fspath(temporary)):
            error.filename = os.fspath(path)  # the one that its user knows; a full disk names none
        raise
    if not durably:
        return
    with contextlib.suppress(OSError):  # not all file systems let a directory be synced
        directory = os.open(path.parent, os.O_RDONLY)
        try:
            os.fsync(directory)
        finally:
            os.close(directory)


def _fresh(path: Path) -> BinaryIO:
    """A new file at `path`, in place of that of a process of this number that was killed, or of a link that somebody laid."""
    try:
        return path.open("xb")
    except FileExistsError:
        path.unlink()
        return path.open("xb")
