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
from dataclasses import dataclass, field
from pathlib import Path

from ..logformat import RunDirName, find_logs
from ..logformat.rundir import LOG_SUFFIX
from .errors import BundleError
from .manifest import LeftOut
from .names import MAX_PARTS, why_unsafe
from .staged import staged_contents

_SIDE_FILES = tuple(f"{LOG_SUFFIX}.{kind}" for kind in ("alive", "cursor", "lock", "synced", "syncstate"))
_UNCARRIED = frozenset({"tmp"})


@dataclass(frozen=True, slots=True)
class Found:
    """A file to pack: its name in the bundle, and where it lies, links resolved."""

    name: str
    path: Path
    root: Path
    """The run directory: no folder between it and a file in it may be a link when the file is opened."""
    is_log: bool


@dataclass
class Gathered:
    """What goes into a bundle, sorted by name, and what does not."""

    files: list[Found] = field(default_factory=list)
    left_out: list[LeftOut] = field(default_factory=list)
    name: str = ""
    """Of the run directory if it is one, else of the folder that holds them."""


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
    return _gathered(base, whole, single, shut, follow_links=follow_links)


def _gathered(base: Path, whole: set[Path], single: set[Path], shut: list[OSError], *, follow_links: bool) -> Gathered:
    gathered = Gathered(name=next(iter(whole)).name if len(whole) == 1 and not single else base.name)
    found: dict[str, Found] = {}
    left_out: dict[str, str] = {}
    for error in shut:
        left_out[_name(Path(os.fsdecode(error.filename or "?")), base)] = f"cannot be read: {error.strerror}"
    for folder in whole:
        for path, problem in _files_of(folder):
            name = _name(path, base)
            real, reason = (path, problem) if problem else _resolved(path, folder, follow_links=follow_links)
            reason = reason or why_unsafe(name)
            if reason:
                left_out[name] = reason
            elif real is not None:
                found[name] = Found(name, real, folder, is_log=path.parent == folder and path.suffix == LOG_SUFFIX)
        _add_staged(folder, base, found, left_out)
    for log in single:
        real, reason = _resolved(log, log.parent, follow_links=follow_links)
        if reason:
            left_out[_name(log, base)] = reason
        elif real is not None:
            found[_name(log, base)] = Found(_name(log, base), real, log.parent, is_log=True)
    order = sorted(found, key=lambda name: name.encode("utf-8", "surrogateescape"))
    gathered.files = [found[name] for name in order]
    gathered.left_out = [LeftOut(name, left_out[name]) for name in sorted(left_out)]
    return gathered


def _add_staged(folder: Path, base: Path, found: dict[str, Found], left_out: dict[str, str]) -> None:
    """What the logs in a run directory place outside of it."""
    prefix = f"{_name(folder, base)}/artifacts/"
    logs = [item for item in found.values() if item.is_log and item.root == folder]
    for log in logs:
        here = {name.removeprefix(prefix) for name in found if name.startswith(prefix)}
        try:
            for name, path, problem in staged_contents(log.path, folder, here):
                if problem:
                    left_out[prefix + name] = problem
                else:
                    found[prefix + name] = Found(prefix + name, path, path, is_log=False)
        except OSError:
            continue  # whoever packs the log says what is wrong with it


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
        yield from ((here / name, "") for name in names if here != folder or not _is_side_file(name))
        yield from ((here / name, "a link to a folder") for name in folders if (here / name).is_symlink())
    for error in shut:
        yield Path(os.fsdecode(error.filename)), f"cannot be read: {error.strerror}"


def _is_side_file(name: str) -> bool:
    return any(mark in name for mark in _SIDE_FILES)


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
