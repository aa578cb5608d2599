"""Files that the user has saved with the run: copied beside the log, and again when they changed.

A copy gets its name under `files/` only when it is whole, so neither a reader nor a SIGKILL ever meets half a file.
"""

from __future__ import annotations

import fnmatch
import glob
import os
import stat
import threading
import time
from collections.abc import Callable, Iterable
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

from . import records
from .artifact_contents import logical_path
from .runfiles import RunFiles

POLICIES = {"now": records.NOW, "end": records.END, "live": records.LIVE}
REFRESH_S = 10.0
"""How often live files are looked at."""
_SURE_AFTER_NS = 50_000_000
"""A file whose last change is younger than this when it is copied may change again under the same time stamp."""
_CLOUD = ("gs://", "s3://")

Stamp = tuple[int, int, int]
"""Size, time of the last change in ns, and inode: what changes with a file's content."""


def matches_any(patterns: Iterable[str], path: str) -> bool:
    """Whether one of the setting `ignore_globs` leaves out a file of the run."""
    return any(fnmatch.fnmatch(path, pattern) for pattern in patterns)


class SaveError(ValueError):
    """A call of `save` that cannot mean anything."""


class Selection(NamedTuple):
    """The files that a call of `save` names, by their paths below `files/`."""

    sources: dict[str, Path]
    present: list[str]
    """Those that lie in the run's folder already."""


def reason(error: Exception) -> str:
    """An error in few words."""
    return getattr(error, "strerror", None) or str(error)


class _Saved:
    """One file under watch."""

    def __init__(self, source: Path) -> None:
        self.source = source
        self.policy = "now"
        self.stamp: Stamp | None = None
        self.folder: Path | None = None
        """Where the copy lies: a run that had to begin another log has another folder."""
        self.lock = threading.Lock()
        """Held while it is copied, so that an older state never replaces a newer one."""


class SavedFiles:
    """The saved files of one run, and the thread that looks after those which may change."""

    def __init__(
        self,
        files: RunFiles,
        warn: Callable[[str], None],
        record: Callable[[list[str], str], None],
        ignore: Iterable[str] = (),
    ) -> None:
        """Nothing is saved yet.

        Args:
            files: the run's.
            warn: takes one line for the user.
            record: told the paths and the policy of files that came into the run's folder without a call of `save`.
            ignore: patterns of paths below `files/` that are not saved.
        """
        self._files, self._warn, self._record, self._ignore = files, warn, record, tuple(ignore)
        self._saved: dict[str, _Saved] = {}
        self._thread: threading.Thread | None = None
        self._starting = threading.Lock()
        self._end = threading.Event()
        self._failed: set[str] = set()
        self._left: list[str] = []
        """What the look that goes on has not come to."""

    # -- any thread --------------------------------------------------------------------------------------------------

    def save(self, selection: Selection, policy: str) -> tuple[list[str], list[str]]:
        """Copy files into the run's folder.

        Args:
            selection: as `select` gives it.
            policy: "now": as they are now. "end": and once more when the run ends. "live": and whenever they changed.

        Returns:
            The paths below `files/`, sorted, and a line for each file that is not there.
        """
        found, failures = [path for path in selection.present if not matches_any(self._ignore, path)], []
        for path, source in selection.sources.items():
            if matches_any(self._ignore, path):
                continue
            entry = self._entry(path, source, policy)
            try:
                self._copy(path, entry)
            except (OSError, ValueError) as error:
                failures.append(f"{source}: {reason(error)}")
                self._failed.add(path)
            else:
                found.append(path)
        if policy != "now" and self._saved:
            self._start()
        return sorted(found), failures

    def refresh(self, *, final: bool = False) -> None:
        """Copy what changed since it was copied; with `final`, also what was to be looked at in the end only."""
        policies = ("live", "end") if final else ("live",)
        entries = [(path, entry) for path, entry in list(self._saved.items()) if entry.policy in policies]
        left = self._left = [path for path, _ in reversed(entries)]
        failures: list[str] = []
        for path, entry in entries:
            try:
                before, after = entry.folder, self._copy(path, entry)
                if before != after:
                    self._record([path], entry.policy)
            except FileNotFoundError:
                pass  # removed since: its last state stays
            except Exception as error:  # whatever it is, it costs this file only, and never the thread
                if path not in self._failed:
                    self._failed.add(path)
                    failures.append(f"{entry.source}: {reason(error)}")
            left.pop()
        if failures:
            more = f" and {len(failures) - 1} more" if len(failures) > 1 else ""
            self._warn(f"changed, and not saved again: {failures[0]}{more}; an earlier state stays")

    def stop(self, timeout_s: float) -> None:
        """Copy what changed a last time, for `timeout_s` seconds at most."""
        thread = self._thread
        if thread is None:
            return
        self._end.set()
        thread.join(timeout_s)
        if thread.is_alive():
            left = self._left[::-1]
            names = f": {left[0]}{f' and {len(left) - 1} more' if len(left) > 1 else ''}" if left else ""
            self._warn(
                f"not all saved files were looked at once more within {timeout_s:.0f} s, and stay as they were{names}"
            )

    # -- helpers -----------------------------------------------------------------------------------------------------

    def _entry(self, path: str, source: Path, policy: str) -> _Saved:
        """What is known of a path below `files/`; of a file it is kept, so that what fails now is tried again."""
        if not source.is_file():
            return _Saved(source)
        entry = self._saved.setdefault(path, _Saved(source))
        with entry.lock:
            if entry.source == source:  # a file that is watched stays watched
                policy = max(policy, entry.policy, key=POLICIES.__getitem__)
            else:
                self._warn(
                    f"save: {path} is a copy of {source} from now on, and no longer of {entry.source};"
                    " a base_path above both keeps them apart"
                )
            entry.source, entry.policy = source, policy
        return entry

    def _copy(self, path: str, entry: _Saved) -> Path:
        """Bring the file's state into the run's folder unless it is there; the folder."""
        with entry.lock:
            status = entry.source.stat()
            if not stat.S_ISREG(status.st_mode):
                raise OSError("it is a folder: save its files" if stat.S_ISDIR(status.st_mode) else "it is not a file")
            stamp = (status.st_size, status.st_mtime_ns, status.st_ino)
            folder = self._files.files
            if (stamp, folder) != (entry.stamp, entry.folder):
                young = abs(time.time_ns() - status.st_mtime_ns) < _SURE_AFTER_NS
                if not _is_file(folder / path, status):
                    self._place(path, entry.source)
                entry.stamp, entry.folder = None if young else stamp, folder
            return folder

    def _place(self, path: str, source: Path) -> None:
        staged = self._files.stage(source)
        try:
            staged.place(path)
        except (OSError, ValueError):
            staged.drop()
            raise

    def _start(self) -> None:
        with self._starting, suppress(RuntimeError):  # the interpreter ends, and takes no more threads
            if self._thread is None:
                thread = threading.Thread(target=self._watch, name="runferry-saver", daemon=True)
                thread.start()
                self._thread = thread

    def _watch(self) -> None:
        while not self._end.wait(REFRESH_S):
            self.refresh()
        self.refresh(final=True)


def _is_file(target: Path, status: os.stat_result) -> bool:
    """Whether a file is there under that name already, as a hard link."""
    try:
        return os.path.samestat(status, target.lstat())
    except OSError:
        return False


def select(
    pattern: str | bytes | os.PathLike[str],
    base: str | os.PathLike[str] | None,
    files: Path,
    warn: Callable[[str], None],
    *,
    literal: bool = False,
) -> Selection:
    """The files that a pattern names.

    Args:
        pattern: a path with `*`, `?` and `[]`, relative to the working directory or absolute.
        base: the folder below which the structure is kept; the working directory for a relative pattern, and the
            folder above the last one for an absolute one.
        files: the run's folder.
        warn: takes one line for the user.
        literal: the pattern is a path, whatever characters it has.

    Raises:
        SaveError: the pattern leads out of `base`, or is all of it.
    """
    text = os.fsdecode(pattern)
    if text.startswith(_CLOUD):
        warn(f"{text} lies in a cloud, and there is no network: it is not saved")
        return Selection({}, [])
    path = Path(os.path.abspath(text))  # noqa: PTH100 - resolves `..` without following links, as patterns need it
    if base is not None:
        root = Path(os.path.abspath(base))  # noqa: PTH100 - as above
    elif os.path.isabs(text):  # noqa: PTH117 - text may be a pattern
        root = path.parent.parent
    else:
        root = Path.cwd()
    if path == root or not path.is_relative_to(root):
        raise SaveError(f"save: {text!r} is not below {root}; give a base_path above it")
    relative = path.relative_to(root)
    if not literal and relative.parts[0] == "*":
        raise SaveError(f"save: everything below {root} would be saved; give a base_path above it")
    known = root if base is not None or not os.path.isabs(text) else Path(path.anchor)  # noqa: PTH117 - as above
    inside_known = str(path.relative_to(known))  # a `[` in the name of a folder that is known is no pattern
    found = [] if literal else sorted(glob.glob(str(Path(glob.escape(str(known)), inside_known))))  # noqa: PTH207 - hidden files as the peer has them
    found = found or [str(path)]
    inside = os.path.realpath(files)
    sources: dict[str, Path] = {}
    present: dict[str, None] = {}
    for match in (Path(name) for name in found if os.path.lexists(name)):
        real = Path(os.path.realpath(match))
        is_present = real.is_relative_to(inside) and real.is_file()
        name = (real.relative_to(inside) if is_present else match.relative_to(root)).as_posix()
        try:
            logical = logical_path(name)
            if not is_present:
                sources[logical] = match
            elif logical == name:
                present[name] = None
            else:
                warn(f"save: {match} is not saved: no record can hold its name")
        except ValueError as error:  # a name that another system takes for a path
            warn(f"save: {match} is not saved: {error}")
    kept = [str(relative)] if literal else sorted(glob.glob(str(relative), root_dir=files))  # noqa: PTH207 - as above
    for name in kept:
        if name not in sources and (files / name).is_file() and logical_path(name) == name:
            present[name] = None
    if not (sources or present):
        warn(f"save: nothing is at {text!r}")
    return Selection(sources, list(present))
