"""From paths to the files that go into a bundle: run directories, and nothing beside them.

| found | goes in |
|---|---|
| a run directory (by its name, or `files/` beside a log) | each regular file in it, but for the next three lines |
| `.cursor`, `.lock`, `.alive`, `.synced`, `.syncstate` beside a log | no: they speak of a process, or of what some server has, and a bundle holds data |
| `tmp/` | no: what was on its way when a process was killed |
| a link below `files/` | what it leads to, if that is a regular file in the run directory; outside of it with `follow_links` |
| a content of an artifact that the log places elsewhere | as `artifacts/<MD5>`, if it is there and has the MD5 that the log gives |
| other links, pipes, devices | no |
| a log in any other folder | the log alone |
"""

from __future__ import annotations

import os
import stat
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path

from ..logformat import RunDirName, find_logs
from ..logformat.rundir import LOG_SUFFIX
from .errors import BundleError
from .manifest import LeftOut
from .names import MAX_PARTS, why_no_data, why_unsafe
from .snapshot import LogView, open_file, view_log
from .staged import Claims

_UNCARRIED = frozenset({"tmp"})


@dataclass(frozen=True, slots=True)
class Found:
    """A file to pack: its name in the bundle, and where it lies, links resolved."""

    name: str
    path: Path
    root: Path
    """The run directory: no folder between it and a file in it may be a link when the file is opened."""
    view: LogView | None = None
    """Of a log: what it held when it was looked at, and no more is packed."""


@dataclass
class Gathered:
    """What goes into a bundle, sorted by name, and what does not."""

    files: list[Found] = field(default_factory=list)
    left_out: list[LeftOut] = field(default_factory=list)
    name: str = ""
    """Of the run directory if it is one, else of the folder that holds them."""
    runs: tuple[Path, ...] = ()
    """The run directories."""


def gather(paths: Iterable[str | os.PathLike[str]], *, follow_links: bool = False) -> Gathered:
    """The files of all runs below `paths`, by names relative to the deepest folder that holds all run directories.

    Raises:
        BundleError: nothing is at a path, there is no log, or the runs have no folder in common.
    """
    shut: list[OSError] = []
    logs: list[Path] = []
    for path in map(Path, paths):
        try:
            found = find_logs(path, unreadable=shut.append)
        except FileNotFoundError as error:
            raise BundleError(str(error)) from None
        if not path.is_dir() and path.suffix != LOG_SUFFIX:
            raise BundleError(f"{path}: not a log (run-<id>.wandb), and no folder")
        if not found and not shut:
            raise BundleError(f"{path}: no log (run-<id>.wandb) here")
        logs += found
    if not logs:
        raise BundleError(f"{shut[0].filename}: the folder cannot be read ({shut[0].strerror})")
    whole: set[Path] = set()
    single: set[Path] = set()
    for log in logs:
        folder = log.parent.resolve()
        if RunDirName.parse(folder.name) or (folder / "files").is_dir():
            whole.add(folder)
        else:
            single.add(folder / log.name)
    try:
        base = Path(os.path.commonpath([*(folder.parent for folder in whole), *(log.parent for log in single)]))
    except ValueError:
        raise BundleError("the runs lie on several drives: pack those of each for itself") from None
    gathering = _Gathering(base, follow_links=follow_links)
    for refused in shut:
        gathering.leave_out(Path(os.fsdecode(refused.filename or "?")), f"cannot be read: {refused.strerror}")
    for folder in sorted(whole):
        gathering.take_run(folder)
    for log in sorted(single):
        gathering.take(log, log.parent, Claims())
    name = next(iter(whole)).name if len(whole) == 1 and not single else base.name
    return replace(gathering.result(), name=name, runs=tuple(sorted(whole)))


class _Gathering:
    """What was found so far, by its name in the bundle."""

    def __init__(self, base: Path, *, follow_links: bool) -> None:
        self._base, self._follow_links = base, follow_links
        self._found: dict[str, Found] = {}
        self._left_out: dict[str, str] = {}

    def leave_out(self, path: Path, reason: str) -> None:
        """A file that is not packed."""
        self._left_out[_name(path, self._base)] = reason

    def take(self, path: Path, folder: Path, claims: Claims | None) -> None:
        """A file of the run in `folder`; with `claims` it is a log, and its artifacts are noted there."""
        name = _name(path, self._base)
        real, reason = _resolved(path, folder, follow_links=self._follow_links)
        if reason := reason or why_unsafe(name):
            self._left_out[name] = reason
        elif real is not None:
            try:
                self._found[name] = Found(name, real, folder, _viewed(real, folder, claims))
            except OSError as error:
                self._left_out[name] = f"cannot be read: {error.strerror}"

    def take_run(self, folder: Path) -> None:
        """A run directory."""
        claims = Claims()
        for path, problem in _files_of(folder):
            if problem:
                self.leave_out(path, problem)
            else:
                is_log = path.parent == folder and path.suffix == LOG_SUFFIX
                self.take(path, folder, claims if is_log else None)
        prefix = f"{_name(folder, self._base)}/artifacts/"
        here = {name.removeprefix(prefix) for name in self._found if name.startswith(prefix)}
        for md5, path, problem in claims.outside(folder, here):
            if problem:
                self._left_out[prefix + md5] = problem
            else:
                self._found[prefix + md5] = Found(prefix + md5, path, path)

    def result(self) -> Gathered:
        """All of it, sorted."""
        order = sorted(self._found, key=lambda name: name.encode("utf-8", "surrogateescape"))
        left_out = [LeftOut(name, self._left_out[name]) for name in sorted(self._left_out)]
        return Gathered([self._found[name] for name in order], left_out)


def _viewed(path: Path, folder: Path, claims: Claims | None) -> LogView | None:
    if claims is None:
        return None
    with open_file(path, folder) as file:
        return view_log(file, path.name, claims.note)


def _name(path: Path, base: Path) -> str:
    try:
        return path.relative_to(base).as_posix()
    except ValueError:  # a folder that could not be listed, named as it was given
        return path.name


def _files_of(folder: Path) -> Iterator[tuple[Path, str]]:
    """Everything in a run directory that is no folder, and what keeps it from being read, if that is known."""
    shut: list[OSError] = []
    for above, folders, names in os.walk(folder, onerror=shut.append):
        here = Path(above)
        if here == folder:
            folders[:] = [name for name in folders if name not in _UNCARRIED]
        if len(here.relative_to(folder).parts) > MAX_PARTS:
            yield here, "more folders below each other than a bundle takes"
            folders.clear()
            continue
        for name in names:  # what commands leave is passed over without a word
            if not why_no_data((here / name).relative_to(folder).as_posix()):
                yield here / name, ""
        yield from ((here / name, "a link to a folder") for name in folders if (here / name).is_symlink())
    for error in shut:
        yield Path(os.fsdecode(error.filename)), f"cannot be read: {error.strerror}"


def _resolved(path: Path, folder: Path, *, follow_links: bool) -> tuple[Path | None, str]:
    """The regular file at `path`, or why there is none; neither for what is passed over without a word."""
    try:
        status = path.lstat()
        if stat.S_ISREG(status.st_mode):
            return path, ""
        if not stat.S_ISLNK(status.st_mode):
            return None, "not a regular file"
        is_data = path.suffix == LOG_SUFFIX or path.relative_to(folder).parts[0] == "files"
        if not is_data:
            return None, ""  # the peer's debug logs of today, mostly
        real = path.resolve(strict=True)
        if not (follow_links or real.is_relative_to(folder)):
            return None, "a link that leads out of the run directory (--follow-links packs what it leads to)"
        return (real, "") if stat.S_ISREG(real.stat().st_mode) else (None, "a link to no regular file")
    except FileNotFoundError:
        return None, "a link to a file that is gone" if path.is_symlink() else "gone when it was to be packed"
    except (OSError, RuntimeError) as error:
        return None, f"cannot be read: {getattr(error, 'strerror', None) or error}"
