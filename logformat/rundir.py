"""Run directories: their names, and finding the logs below a path.

wandb/run-20261130_142500-a1b2c3d4/run-a1b2c3d4.wandb      ours; `offline-run-` is the peer's prefix
                                   files/
wandb/latest-run -> run-20261130_142500-a1b2c3d4           best effort, never needed
"""

from __future__ import annotations

import errno
import os
import re
import stat
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from datetime import datetime
from pathlib import Path
from typing import NamedTuple

_NAME = re.compile(r"(?P<prefix>offline-run|run)-(?P<date>[0-9]{8}_[0-9]{6})-(?P<run_id>.+)", re.DOTALL)
_LOG = re.compile(r"run-(?P<run_id>.+)\.wandb", re.DOTALL)
_FORBIDDEN_IN_ID = frozenset(":;,#?/'\\\0")
LOG_SUFFIX = ".wandb"
MAX_DEPTH = 32
"""Folders below the path given in which logs are looked for."""
_OF_A_RUN = frozenset({"files", "logs", "tmp"})  # folders of a run directory, which may hold any number of files
_TOO_DEEP = f"more than {MAX_DEPTH} folders below the path given"
TRASH = ".runferry-trash"
"""Folder beside run directories that are being deleted: what is left in it is no run any more."""
_NO_RUNS = frozenset({".git", "__pycache__", "node_modules", TRASH})  # wide, and nobody logs there

Scan = Callable[[Path], AbstractContextManager[Iterator[os.DirEntry[str]]]]


class RunDirName(NamedTuple):
    """The parts of a run directory's name; the time is local, as the writer's clock had it."""

    prefix: str
    started: datetime
    run_id: str

    @classmethod
    def parse(cls, name: str) -> RunDirName | None:
        """The parts of `name`, or None if it is no run directory's."""
        match = _NAME.fullmatch(name)
        if match is None:
            return None
        try:
            started = datetime.strptime(match["date"], "%Y%m%d_%H%M%S")  # noqa: DTZ007 - local time by contract
        except ValueError:
            return None
        return cls(match["prefix"], started, match["run_id"])

    def __str__(self) -> str:
        return f"{self.prefix}-{self.started:%Y%m%d_%H%M%S}-{self.run_id}"


def valid_run_id(run_id: str) -> bool:
    """Whether a backend and a file system take this id: printable, no separators, no outer blanks, no dot names."""
    return (
        0 < len(run_id.encode("utf-8", "replace")) <= 128
        and run_id == run_id.strip()
        and run_id not in {".", ".."}
        and not _FORBIDDEN_IN_ID & set(run_id)
        and run_id.isprintable()
    )


def log_name(run_id: str) -> str:
    """The name of the log inside its run directory."""
    return f"run-{run_id}{LOG_SUFFIX}"


def run_id_of(log: Path) -> str:
    """The run id that a log's file name gives; empty if it gives none."""
    match = _LOG.fullmatch(log.name)
    return match["run_id"] if match else ""


def find_logs(
    path: str | os.PathLike[str], *, unreadable: Callable[[OSError], object] | None = None, scan: Scan = os.scandir
) -> list[Path]:
    """The logs of a path: a log itself, a run directory, a `wandb` directory, or a tree of them.

    Links to directories are not followed, so `latest-run` gives no run twice and no loop has an end to be missed, unless
    the path itself is such a link. Sorted by path, so by start time within one directory. Each directory is listed once,
    and nothing in it is opened or asked for its status: a tree of 10,000 runs on a network file system costs 10,000
    listings.

    Args:
        path: where to look.
        unreadable: told of each folder that cannot be listed, or lies too deep; such folders are passed over.
        scan: lists a directory; a port for tests.

    Raises:
        FileNotFoundError: nothing is at `path`.
    """
    root = Path(path)
    try:
        is_folder = stat.S_ISDIR(root.stat().st_mode)
    except OSError:
        if not os.path.lexists(root):
            raise FileNotFoundError(f"{root}: no such file or directory") from None
        is_folder = False  # a link to nowhere, or nobody may look: the reader says what is wrong
    if not is_folder:
        return [root]
    found: list[Path] = []
    folders = [(root, 0)]
    while folders:
        folder, depth = folders.pop()
        try:
            logs, inner = _list(folder, scan)
        except OSError as error:
            if unreadable is not None:
                unreadable(error)
            continue
        found += logs
        if depth < MAX_DEPTH:
            folders += [(folder / name, depth + 1) for name in inner]
        elif unreadable is not None:
            for name in inner:
                unreadable(OSError(errno.ENAMETOOLONG, _TOO_DEEP, str(folder / name)))
    return sorted(found)


def _list(folder: Path, scan: Scan) -> tuple[list[Path], list[str]]:
    """The logs in a folder, and the names of the folders in which there may be more."""
    logs, inner = [], []
    with scan(folder) as entries:
        for entry in entries:
            name = entry.name
            if name.endswith(LOG_SUFFIX) and not name.startswith("."):
                logs.append(folder / name)  # also broken links and folders of that name: the reader says what is wrong
            elif name not in _NO_RUNS and entry.is_dir(follow_symlinks=False):  # by the listing's own word
                inner.append(name)
    # A run directory by its name, or by what lies in it; a log by itself may lie beside a folder of runs named `logs`.
    if RunDirName.parse(folder.name) or (logs and "files" in inner):
        inner = [name for name in inner if name not in _OF_A_RUN]
    return logs, inner


def latest_run(wandb_dir: str | os.PathLike[str]) -> Path | None:
    """The newest run directory: where `latest-run` points, if it stays inside, else by name."""
    root = Path(wandb_dir)
    try:
        target = str((root / "latest-run").readlink())
        if RunDirName.parse(target) and Path(target).name == target and (root / target).is_dir():
            return root / target
    except OSError:
        pass  # no link, or a copy of one: the names tell
    try:
        runs = [entry for entry in root.iterdir() if entry.is_dir() and RunDirName.parse(entry.name)]
    except OSError:
        return None
    return max(runs, key=lambda run: (run.name.split("-run-")[-1].removeprefix("run-"), run.name), default=None)
