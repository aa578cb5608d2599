"""Deleting run directories of which everything is at the server, and nothing else.

A run goes with all of its logs or not at all. It goes if for each of them the cursor says complete, at the size that the
log has, the marker says the same, and no file has changed since; if its end was seen; if nobody syncs it. All of that is
looked at once more under the locks, just before, and the log's size once more just after the directory was moved.

A directory is moved into `.runferry-trash` beside it before anything in it is deleted, so a kill at any moment leaves a
whole run or none: whatever lies in the trash is found by no sync, and the next clean deletes it.
"""

from __future__ import annotations

import contextlib
import os
import re
import secrets
import shutil
import stat
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from enum import Enum
from pathlib import Path

from ..logformat import RunDirName, find_logs, head_of, run_id_of
from ..logformat.heartbeat import read_heartbeat
from ..logformat.rundir import TRASH
from .clock import Clock, SystemClock
from .cursor import Cursor, load, matches
from .errors import UsageError
from .filelane import MADE
from .liveness import Liveness
from .lock import Lock, LockedError
from .places import Places, default_state_dir, is_writable
from .plan import LogHead, read_head

_MOVING = ".moving"  # end of a name in the trash: it is not decided yet whether it stays there


class Fate(str, Enum):
    """What became of a run's directories."""

    DELETED = "deleted"
    DELETABLE = "deletable"
    KEPT = "kept"
    FAILED = "failed"
    """It was to be deleted and could not be; the reason says what is left."""


@dataclass(frozen=True)
class Candidate:
    """A run and whether its directories may be deleted."""

    run: str
    logs: tuple[Path, ...]
    """Oldest first."""
    bytes: int
    """Of all files in its directories."""
    reason: str
    """Why it is kept; empty if it may be deleted."""

    @property
    def fate(self) -> Fate:
        """Kept, or deletable."""
        return Fate.KEPT if self.reason else Fate.DELETABLE


_Listings = dict[Path, list[str]]
"""Folder of run directories -> names in it: listed once for all runs that are looked at together."""


class _KeptError(Exception):
    """Why a run is kept."""


class Cleaner:
    """Looks at runs and deletes those that may go. `rename` and `remove` are ports for tests.

    Args:
        state_dir: where cursors of read-only directories lie.
        older_than: seconds for which none of a run's logs has changed.
        clock: the time.
        rename: moves a directory.
        remove: deletes a tree, and follows no links.
    """

    def __init__(
        self,
        *,
        state_dir: Path | None = None,
        older_than: float = 0.0,
        clock: Clock | None = None,
        rename: Callable[[Path, Path], object] = os.rename,
        remove: Callable[[Path], object] = shutil.rmtree,
    ) -> None:
        self._state_dir = state_dir or default_state_dir()
        self._older_than = older_than
        self._clock = clock or SystemClock()
        self._rename = rename
        self._remove = remove

    def look(self, paths: Iterable[str | os.PathLike[str]]) -> list[Candidate]:
        """The runs below `paths`, in the order of their paths. Nothing is changed.

        Raises:
            UsageError: nothing is at one of the paths.
        """
        runs: dict[tuple[str, str, str], list[LogHead]] = {}
        found = []
        for log in _logs(paths):
            head = read_head(log)
            if head.problem or head.salvaged:
                reason = head.problem or "its run record is damaged"
                found.append(Candidate(head.run_id, (log,), _size(log.parent), reason))
            else:
                runs.setdefault((head.entity, head.project, head.run_id), []).append(head)
        listings: _Listings = {}
        for heads in runs.values():
            heads.sort(key=lambda head: (head.start_ns, os.fspath(head.path)))
            logs = tuple(head.path for head in heads)
            size = sum(_size(folder) for folder in {log.parent for log in logs})
            try:
                self._check(logs, listings)
            except (_KeptError, OSError) as error:
                found.append(Candidate(heads[0].run_id, logs, size, str(error)))
            else:
                found.append(Candidate(heads[0].run_id, logs, size, ""))
        return sorted(found, key=lambda candidate: candidate.logs)

    def delete(self, candidate: Candidate) -> tuple[Fate, str]:
        """Delete the directories of a run, if it still may go; what became of them, and why."""
        try:
            with self._locks(candidate.logs):
                self._check(candidate.logs, {})
                moved = self._move(candidate.logs)
        except (_KeptError, LockedError) as error:
            return Fate.KEPT, str(error)
        except OSError as error:
            return Fate.FAILED, f"{error.filename or candidate.logs[0].parent}: {error.strerror or error}"
        try:
            for trash in moved:
                _unlink_latest(_home_of(trash))
                self._empty(trash)
        except OSError as error:
            return Fate.FAILED, f"not all of it is deleted, the next clean goes on: {error.strerror or error}"
        return Fate.DELETED, ""

    def sweep(self, paths: Iterable[str | os.PathLike[str]]) -> int:
        """Delete what an earlier clean that was killed has left in the trash; how many directories that were.

        What was only moved there when it was killed is put back.
        """
        count = 0
        for folder in _trash_folders(paths):
            for entry in sorted(folder.iterdir()):
                with contextlib.suppress(OSError):
                    if entry.name.endswith(_MOVING):  # nobody has looked at it since it was moved
                        self._rename(entry, _home_of(entry))
                    else:
                        self._empty(entry)
                        count += 1
            with contextlib.suppress(OSError):
                folder.rmdir()
        return count

    # -- whether it may go -------------------------------------------------------------------------------------------

    def _check(self, logs: tuple[Path, ...], listings: _Listings) -> None:
        """Raises `_KeptError` with the first reason to keep the run of these logs, oldest first."""
        cursors = [self._check_log(log) for log in logs]
        if cursors[-1].exit_code is None:
            raise _KeptError("its end was not seen: the log has no exit record that the server knows")
        homes = {(cursor.target.base_url, cursor.entity, cursor.project, cursor.run_id) for cursor in cursors}
        if not all(Places(log, self._state_dir, is_writable).marker.exists() for log in logs):
            raise _KeptError("it is not marked as synced")
        if len(homes) > 1:
            raise _KeptError("its logs were not sent to the same run")
        for log in logs:
            for other in _others(log, logs, listings):
                raise _KeptError(f"another log of the run is not among these: {other}")
        sent = {name for cursor in cursors for name in cursor.files}
        for log in logs:
            for name in _saved(log.parent / "files"):
                if name not in sent and name not in MADE:
                    raise _KeptError(f"files/{name} was never sent")

    def _check_log(self, log: Path) -> Cursor:
        """The cursor of a log, which says that it may go."""
        _check_place(log)
        status = log.lstat()
        cursor, note = load(Places(log, self._state_dir, is_writable).cursors)
        if cursor is None:
            raise _KeptError(note or "it was not synced from here")
        if not cursor.complete:
            raise _KeptError(f"not all of it is at the server: {cursor.sent.history} rows were sent")
        if cursor.size != status.st_size:
            raise _KeptError("it has changed since it was synced")
        if read_heartbeat(log) is not None and Liveness(self._clock).is_alive(log, status.st_mtime, stale_after=1.0):
            raise _KeptError("the process that writes it is still there")
        other = matches(cursor, log, cursor.target)
        if other:
            raise _KeptError(other)
        age = self._clock.time() - status.st_mtime
        if self._older_than and age < self._older_than:
            raise _KeptError(f"it last changed {max(age, 0) / 3600:.1f} h ago")
        self._check_files(log.parent / "files", cursor)
        return cursor

    def _check_files(self, root: Path, cursor: Cursor) -> None:
        for name, mark in cursor.files.items():
            if mark.mtime_ns == 0:  # made from the log
                continue
            try:
                status = (root / name).stat()
            except FileNotFoundError:
                continue  # it is at the server, and cannot be lost here any more
            if (status.st_size, status.st_mtime_ns) != (mark.size, mark.mtime_ns):
                raise _KeptError(f"files/{name} has changed since it was sent")

    # -- deleting ----------------------------------------------------------------------------------------------------

    @contextlib.contextmanager
    def _locks(self, logs: tuple[Path, ...]) -> Iterator[None]:
        with contextlib.ExitStack() as held:
            for log in logs:
                lock = Lock(Places(log, self._state_dir, is_writable).lock, self._clock)
                lock.acquire()
                held.callback(lock.release)
            yield

    def _move(self, logs: tuple[Path, ...]) -> list[Path]:
        """Move the directories of all logs into the trash, oldest first, or none of them; where they are now.

        What a sync would find halfway are later segments only, which it does not take for the whole run.
        """
        moved: list[tuple[Path, Path]] = []
        runs = {log: head_of(log).run for log in logs}
        try:
            for log in logs:
                size = log.lstat().st_size
                trash = _trash_for(log.parent)
                self._rename(log.parent, trash)
                moved.append((trash, log))
                if (trash / log.name).lstat().st_size != size:
                    raise _KeptError("it has grown at this moment")
            listings: _Listings = {}
            for log in logs:
                if _others(log, logs, listings, runs[log]):
                    raise _KeptError("a new log of the run has appeared at this moment")
        except BaseException:
            for trash, log in reversed(moved):
                self._rename(trash, log.parent)
            raise
        given_up = []
        for trash, _ in moved:
            given_up.append(trash.with_name(trash.name.removesuffix(_MOVING)))
            self._rename(trash, given_up[-1])
        return given_up

    def _empty(self, trash: Path) -> None:
        """Delete a directory in the trash, its log first."""
        if stat.S_ISDIR(trash.lstat().st_mode):
            for log in trash.glob("*.wandb"):
                log.unlink()
            self._remove(trash)
        else:
            trash.unlink()
        with contextlib.suppress(OSError):
            trash.parent.rmdir()  # the trash itself, once it is empty


def _logs(paths: Iterable[str | os.PathLike[str]]) -> list[Path]:
    found: dict[str, Path] = {}
    for path in paths:
        try:
            logs = find_logs(path)
        except FileNotFoundError as error:
            raise UsageError(str(error)) from None
        for log in logs:
            found.setdefault(os.path.abspath(log), log)  # noqa: PTH100 - a link must stay one
    return list(found.values())


def _check_place(log: Path) -> None:
    """A run directory of its own, as writers make them, without links on the way: anything else is not ours to delete."""
    folder = log.parent
    name, run_id = RunDirName.parse(folder.absolute().name), run_id_of(log)
    # Where a directory of the run was made in the same second, the peer puts a number behind the name.
    if name is None or not run_id or not re.fullmatch(rf"{re.escape(run_id)}(-[0-9]+)?", name.run_id):
        raise _KeptError("it does not lie in a run directory of its own")
    for path, kind in ((folder, stat.S_ISDIR), (log, stat.S_ISREG)):
        if not kind(path.lstat().st_mode):
            raise _KeptError(f"{path.name} is a link or nothing that a writer makes")
    if len(list(folder.glob("*.wandb"))) > 1:
        raise _KeptError("there is another log in its directory")
    if not (is_writable(folder) and is_writable(folder.parent)):
        raise _KeptError("its directory cannot be written")


def _others(
    log: Path, known: tuple[Path, ...], listings: _Listings, run: tuple[str, str, str] | None = None
) -> list[Path]:
    """Logs of the same run beside `log` that are not `known`; `run` is whose log it is, where it cannot be asked any more."""
    folder = log.absolute().parent.parent
    if folder not in listings:
        listings[folder] = os.listdir(folder)  # noqa: PTH208 - names are all that is needed of ten thousand
    run, ours = run or head_of(log).run, {other.absolute() for other in known}
    names = [name for name in listings[folder] if f"-{run_id_of(log)}" in name]
    found = [other for name in names if (other := folder / name / log.name) not in ours and other.exists()]
    return [other for other in found if head_of(other).run in {run, None}]


def _saved(root: Path) -> Iterator[str]:
    """The regular files below `files/`."""
    for folder, _, names in os.walk(root):
        here = Path(folder)
        for name in names:
            if stat.S_ISREG((here / name).lstat().st_mode):
                yield (here / name).relative_to(root).as_posix()


def _size(folder: Path) -> int:
    total = 0
    for here, _, names in os.walk(folder):
        for name in names:
            with contextlib.suppress(OSError):
                total += (Path(here) / name).lstat().st_size
    return total


def _trash_for(folder: Path) -> Path:
    """A free name for a run directory in the trash beside it."""
    trash = folder.parent / TRASH
    trash.mkdir(exist_ok=True)
    if not stat.S_ISDIR(trash.lstat().st_mode):
        raise _KeptError(f"{trash} is no directory")
    return trash / f"{folder.name}.{secrets.token_hex(4)}{_MOVING}"


def _home_of(trash: Path) -> Path:
    """Where a directory in the trash comes from."""
    return trash.parent.parent / trash.name.removesuffix(_MOVING).rpartition(".")[0]


def _trash_folders(paths: Iterable[str | os.PathLike[str]]) -> list[Path]:
    """The trash folders of the paths, and of the folders in which logs lie."""
    places = {Path(path).absolute() for path in paths}
    places |= {log.absolute().parent.parent for log in _logs(paths)} | {place.parent for place in places}
    folders = [place / TRASH for place in places]
    return sorted(folder for folder in folders if folder.is_dir() and not folder.is_symlink())


def _unlink_latest(folder: Path) -> None:
    """Take `latest-run` away if it leads to a directory that is gone."""
    link = folder.parent / "latest-run"
    with contextlib.suppress(OSError):
        if link.readlink() == Path(folder.name):
            link.unlink()
