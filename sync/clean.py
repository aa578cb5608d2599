"""Deleting run directories of which everything is at the server, and nothing else.

A run goes with all of its logs or not at all. It goes if for each of them the cursor says complete, at the size that the
log has, the marker says the same, and nothing else lies there; if its end was seen; if nobody syncs it. All of that is
looked at once more under the locks, just before, when each log is read to its end, too; and log and files once more just
after the directory was moved, where nobody finds it.

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
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from enum import Enum
from pathlib import Path
from typing import NamedTuple

from ..logformat import RunDirName, find_logs, head_of, run_id_of
from ..logformat.heartbeat import read_heartbeat
from ..logformat.rundir import TRASH
from ..logformat.steps import ALL_STEPS
from .belongings import reason_to_keep
from .clock import Clock, SystemClock
from .copies import find_copies
from .cursor import Cursor, FileMark, load, matches
from .errors import UsageError
from .integrity import verify_log
from .liveness import Liveness
from .lock import Lock, LockedError
from .places import Places, default_state_dir, is_writable
from .plan import LogHead, expanded, in_time, read_head, shut_folder
from .report import counted, elapsed, shorten

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
    server: str = ""
    """Base URL of the server that has it, if it may be deleted."""
    is_shut: bool = False
    """It is a folder that cannot be listed: nobody knows whether runs are in it."""

    @property
    def fate(self) -> Fate:
        """Kept, or deletable; failed for a folder into which nobody can look."""
        if self.is_shut:
            return Fate.FAILED
        return Fate.KEPT if self.reason else Fate.DELETABLE


_Listings = dict[Path, list[str]]
"""Folder of run directories -> names in it: listed once for all runs that are looked at together."""


class _Sent(NamedTuple):
    """What cursors say of a run that is at a server as a whole."""

    server: str
    marks: dict[str, FileMark]


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
        """The runs below `paths`, and the folders that cannot be listed, in the order of their paths. Nothing is changed.

        Raises:
            UsageError: nothing is at one of the paths.
        """
        runs: dict[tuple[str, str, str], list[LogHead]] = {}
        logs_there, shut = _logs(paths)
        found = [Candidate("", (folder.path,), 0, folder.problem, is_shut=True) for folder in shut]
        readable: list[LogHead] = []
        for log in logs_there:
            head = read_head(log)
            if head.problem or head.salvaged:
                reason = head.problem or "its run record is damaged"
                found.append(Candidate(head.run_id, (log,), _size(log.parent), reason))
            else:
                readable.append(head)
        # A copy stays: that its bytes are at the server is known of the log that counts, and only as long as both are equal.
        copies = {copy.log: copy.reason for copy in find_copies(readable, self._state_dir)}
        for head in readable:
            if head.path in copies:
                found.append(Candidate(head.run_id, (head.path,), _size(head.path.parent), copies[head.path]))
            else:
                runs.setdefault((head.entity, head.project, head.run_id), []).append(head)
        listings: _Listings = {}
        for heads in runs.values():
            heads = list(in_time(heads))  # noqa: PLW2901 - in the order that a sync has them
            logs = tuple(head.path for head in heads)
            size = sum(_size(folder) for folder in {log.parent for log in logs})
            try:
                sent = self._check(logs, listings)
            except (_KeptError, OSError) as error:
                found.append(Candidate(heads[0].run_id, logs, size, str(error)))
            else:
                found.append(Candidate(heads[0].run_id, logs, size, "", sent.server))
        return sorted(found, key=lambda candidate: candidate.logs)

    def delete(self, candidate: Candidate) -> tuple[Fate, str]:
        """Delete the directories of a run, if it still may go; what became of them, and why."""
        logs = tuple(log.absolute() for log in candidate.logs)  # where one is may be what goes
        try:
            with self._locks(logs):
                sent = self._check(logs, {})
                for log in logs:
                    self._check_content(log)
                moved = self._move(logs, sent.marks)
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

    def sweep(self, folders: Iterable[str | os.PathLike[str]]) -> int:
        """Delete what an earlier clean that was killed has left in the trash of these folders; how many directories that were.

        What was only moved there when it was killed is put back. What a clean that lives is at is left to it.
        """
        folders = _trash_of(folders)
        entries = self._left(folders)
        decided = {_token(entry) for entry in entries if not entry.name.endswith(_MOVING)}
        given_up = []
        for entry in entries:
            with contextlib.suppress(OSError):
                if not entry.name.endswith(_MOVING):
                    given_up.append(entry)
                elif _token(entry) in decided:
                    given_up.append(self._give_up(entry))
                else:
                    self._rename(entry, _home_of(entry))
        count = 0
        for entry in given_up:
            with contextlib.suppress(OSError):
                self._empty(entry)
                count += 1
        for folder in folders:
            with contextlib.suppress(OSError):
                folder.rmdir()
        return count

    def leftovers(self, folders: Iterable[str | os.PathLike[str]]) -> int:
        """How many directories a `sweep` would delete or put back."""
        return len(self._left(_trash_of(folders)))

    def _left(self, folders: list[Path]) -> list[Path]:
        """What lies in trash folders and is nobody's any more."""
        entries: list[Path] = []
        for folder in folders:
            with contextlib.suppress(OSError):  # not ours to read
                entries += sorted(folder.iterdir())
        return [entry for entry in entries if not self._is_in_use(entry)]

    def _is_in_use(self, entry: Path) -> bool:
        """Whether another clean is at it just now."""
        try:
            for log in entry.glob("*.wandb"):
                Lock(log.with_name(f"{log.name}.lock"), self._clock).check()
        except LockedError:
            return True
        return False

    # -- whether it may go -------------------------------------------------------------------------------------------

    def _check(self, logs: tuple[Path, ...], listings: _Listings) -> _Sent:
        """What the server has of the run of these logs, oldest first; `_KeptError` with the first reason to keep it."""
        cursors = [self._check_log(log) for log in logs]
        if cursors[-1].exit_code is None:
            raise _KeptError(
                "its end was not seen: the log has no exit record that the server knows. If it crashed and all of it is "
                "at the server (`runferry verify --remote`), delete its directory by hand"
            )
        homes = {(cursor.target.base_url, cursor.entity, cursor.project, cursor.run_id) for cursor in cursors}
        if not all(Places(log, self._state_dir, is_writable).marker.exists() for log in logs):
            raise _KeptError("it is not marked as synced")
        if len(homes) > 1:
            raise _KeptError("its logs were not sent to the same run")
        for log in logs:
            for other in _others(log, logs, listings):
                raise _KeptError(f"another log of the run is not among these: {other}")
        for log, cursor in zip(logs, cursors, strict=True):
            # (Logs that were sent as one run by `--id` are looked at one by one.)
            if cursor.run_id == run_id_of(log) and len(cursor.kin) > len(logs):
                raise _KeptError(f"the run had {counted(len(cursor.kin), 'log')}, and {len(logs)} of them are here")
        marks = {name: mark for cursor in cursors for name, mark in cursor.files.items()}
        _check_folders({log.parent: log.name for log in logs}, marks)
        return _Sent(cursors[-1].target.base_url, marks)

    def _check_log(self, log: Path) -> Cursor:
        """The cursor of a log, which says that it may go."""
        _check_place(log)
        status = log.lstat()
        cursor, note = load(Places(log, self._state_dir, is_writable).cursors)
        if cursor is None:
            raise _KeptError(note or "it was not synced from here")
        if not cursor.complete:
            raise _KeptError(_what_lacks(cursor, status.st_size))
        if cursor.size != status.st_size or cursor.offset != cursor.size:
            raise _KeptError("it has changed since it was synced")
        if read_heartbeat(log) is not None and Liveness(self._clock).is_alive(log, status.st_mtime, stale_after=1.0):
            raise _KeptError("the process that writes it is still there")
        other = matches(cursor, log, cursor.target)
        if other:
            raise _KeptError(other)
        age = self._clock.time() - status.st_mtime
        if self._older_than and age < self._older_than:
            raise _KeptError(f"it last changed {elapsed(age)} ago")
        return cursor

    def _check_content(self, log: Path) -> None:
        """Read a log to its end: one that is damaged stays, and so does one whose rows are not those that were sent.

        The cursor knows the bytes at both ends; between them the log's own checksums tell what has changed by accident.
        """
        cursor, _ = load(Places(log, self._state_dir, is_writable).cursors)
        found = verify_log(read_head(log), Liveness(self._clock), stale_after=0.0)
        if not found.is_whole:
            raise _KeptError(found.reason)
        if cursor is not None and cursor.steps == ALL_STEPS and cursor.sent.history != found.rows:
            raise _KeptError(f"it has {counted(found.rows, 'row')}, and sent from it: {cursor.sent.history}")

    # -- deleting ----------------------------------------------------------------------------------------------------

    @contextlib.contextmanager
    def _locks(self, logs: tuple[Path, ...]) -> Iterator[None]:
        with contextlib.ExitStack() as held:
            for log in logs:
                lock = Lock(Places(log, self._state_dir, is_writable).lock, self._clock)
                lock.acquire()
                held.callback(lock.release)
            yield

    def _move(self, logs: tuple[Path, ...], marks: Mapping[str, FileMark]) -> list[Path]:
        """Move the directories of all logs into the trash, oldest first, or none of them; where they are now.

        What a sync would find halfway are later segments only, which it does not take for the whole run.
        """
        moved: list[tuple[Path, Path]] = []
        runs = {log: head_of(log).run for log in logs}
        token = secrets.token_hex(4)
        try:
            for log in logs:
                size = log.lstat().st_size
                trash = _trash_for(log.parent, token)
                self._rename(log.parent, trash)
                moved.append((trash, log))
                if (trash / log.name).lstat().st_size != size:
                    raise _KeptError("it has grown at this moment")
            _check_folders({trash: log.name for trash, log in moved}, marks)
            listings: _Listings = {}
            for log in logs:
                if _others(log, logs, listings, runs[log]):
                    raise _KeptError("a new log of the run has appeared at this moment")
        except BaseException as error:
            self._put_back(moved, error)
            raise
        return [self._give_up(trash) for trash, _ in moved]

    def _give_up(self, trash: Path) -> Path:
        """Note that a directory in the trash is to be deleted, and with it all that were moved there with it."""
        decided = trash.with_name(trash.name.removesuffix(_MOVING))
        self._rename(trash, decided)
        return decided

    def _put_back(self, moved: list[tuple[Path, Path]], why: BaseException) -> None:
        """Move every directory back to its log's place.

        Raises:
            OSError: one cannot be moved; the others are.
        """
        stuck: list[str] = []
        for trash, log in reversed(moved):
            try:
                self._rename(trash, log.parent)
            except OSError as error:
                if not log.exists():  # (else another clean has swept it back)
                    stuck.append(f"it lies in {trash} and cannot be moved back: {error.strerror or error}")
        if stuck:
            raise OSError("; ".join(stuck)) from why

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


def trash_places(paths: Iterable[str | os.PathLike[str]]) -> list[Path]:
    """The folders in which the trash of these paths may lie. Ask before anything is deleted: then the paths may be gone.

    Raises:
        UsageError: nothing is at one of the paths.
    """
    names = list(expanded(paths))
    places = {Path(name).absolute() for name in names}
    logs, _ = _logs(names)
    return sorted(places | {place.parent for place in places} | {log.absolute().parent.parent for log in logs})


def _logs(paths: Iterable[str | os.PathLike[str]]) -> tuple[list[Path], list[LogHead]]:
    """The logs below `paths`, each once, and the folders that cannot be listed."""
    found: dict[str, Path] = {}
    shut: dict[Path, LogHead] = {}

    def tell(error: OSError) -> None:
        folder = shut_folder(error, "stay")
        shut[folder.path] = folder

    for path in expanded(paths):
        try:
            logs = find_logs(path, unreadable=tell)
        except FileNotFoundError as error:
            raise UsageError(str(error)) from None
        for log in logs:
            found.setdefault(os.path.abspath(log), log)  # noqa: PTH100 - a link must stay one
    return list(found.values()), list(shut.values())


def _what_lacks(cursor: Cursor, size: int) -> str:
    """Why a run is not whole at the server, and what to do where no sync can change that."""
    rest = "the rest is at the server. If that is all there will be, delete its directory by hand"
    if cursor.size == size and cursor.lacks == len(cursor.gaps) + len(cursor.dropped) > 0:
        if cursor.gaps:
            where = shorten([f"bytes {start}-{end}" for start, end in cursor.gaps])
            return (
                f"the log is damaged ({where}): {rest}; a whole copy of the log in its place is sent by the next sync"
            )
        return f"no server takes some of its values ({shorten(cursor.dropped)}): {rest}"
    return f"not all of it is at the server: sent so far {counted(cursor.sent.history, 'row')}"


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


def _check_folders(folders: Mapping[Path, str], marks: Mapping[str, FileMark]) -> None:
    reason = reason_to_keep(folders, marks)
    if reason:
        raise _KeptError(reason)


def _size(folder: Path) -> int:
    total = 0
    for here, _, names in os.walk(folder):
        for name in names:
            with contextlib.suppress(OSError):
                total += (Path(here) / name).lstat().st_size
    return total


def _trash_for(folder: Path, token: str) -> Path:
    """A free name for a run directory in the trash beside it; the token is that of the run."""
    trash = folder.parent / TRASH
    trash.mkdir(exist_ok=True)
    if not stat.S_ISDIR(trash.lstat().st_mode):
        raise _KeptError(f"{trash} is no directory")
    return trash / f"{folder.name}.{token}{_MOVING}"


def _home_of(trash: Path) -> Path:
    """Where a directory in the trash comes from."""
    return trash.parent.parent / trash.name.removesuffix(_MOVING).rpartition(".")[0]


def _token(trash: Path) -> str:
    return trash.name.removesuffix(_MOVING).rpartition(".")[2]


def _trash_of(folders: Iterable[str | os.PathLike[str]]) -> list[Path]:
    trash = {Path(folder).absolute() / TRASH for folder in folders}
    return sorted(folder for folder in trash if folder.is_dir() and not folder.is_symlink())


def _unlink_latest(folder: Path) -> None:
    """Take `latest-run` away if it leads to a directory that is gone."""
    link = folder.parent / "latest-run"
    with contextlib.suppress(OSError):
        if link.readlink() == Path(folder.name):
            link.unlink()
