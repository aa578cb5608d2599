"""Run directories: their names, and finding the logs below a path.

wandb/run-20261130_142500-a1b2c3d4/run-a1b2c3d4.wandb      ours; `offline-run-` is the peer's prefix
                                   files/
wandb/latest-run -> run-20261130_142500-a1b2c3d4           best effort, never needed
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from datetime import datetime
from pathlib import Path
from typing import NamedTuple

_NAME = re.compile(r"(?P<prefix>offline-run|run)-(?P<date>[0-9]{8}_[0-9]{6})-(?P<run_id>.+)", re.DOTALL)
_LOG = re.compile(r"run-(?P<run_id>.+)\.wandb", re.DOTALL)
_FORBIDDEN_IN_ID = frozenset(":;,#?/'\\\0")
LOG_SUFFIX = ".wandb"
MAX_DEPTH = 8
"""Folders below the path given in which logs are looked for."""


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


def find_logs(path: str | os.PathLike[str]) -> list[Path]:
    """The logs of a path: a log itself, a run directory, a `wandb` directory, or a tree of them.

    Links to directories are not followed, so `latest-run` gives no run twice, unless the path itself is such a link.
    Sorted by path, so by start time within one directory. Folders that cannot be read are passed over.

    Raises:
        FileNotFoundError: nothing is at `path`.
    """
    root = Path(path)
    if root.is_dir():
        return sorted(_walk(root, 0))
    if not os.path.lexists(root):
        raise FileNotFoundError(f"{root}: no such file or directory")
    return [root]


def _walk(folder: Path, depth: int) -> Iterator[Path]:
    deeper: list[Path] = []
    try:
        with os.scandir(folder) as entries:
            for entry in entries:
                if entry.name.endswith(LOG_SUFFIX) and not entry.name.startswith("."):
                    yield Path(entry.path)  # also broken links and folders of that name: the reader says what is wrong
                elif (
                    depth < MAX_DEPTH
                    and entry.is_dir(follow_symlinks=False)
                    and entry.name not in {"files", "logs", "tmp"}
                ):
                    deeper.append(Path(entry.path))
    except OSError:
        return
    for inner in deeper:
        yield from _walk(inner, depth + 1)


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
