"""From paths to runs: find the logs, read what each says of itself, and group the logs of one run in order of time."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterable
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path

from ..logformat import FILE_HEADER, Gap, GapReason, Record, WireError, find_logs, read_records, run_id_of, valid_run_id
from .settings import SyncSettings, UsageError

DEFAULT_PROJECT = "uncategorized"  # of logs that name none, as the peer has it
_HEAD_RECORDS = 64  # the run record is the second one; a log that has none so early has none


@dataclass(frozen=True)
class LogHead:
    """What is known of a log before it is read: its file, and its run record or why it has none."""

    path: Path
    size: int = 0
    modified: float = 0.0
    """Epoch seconds at which it last grew."""
    run_id: str = ""
    entity: str = ""
    project: str = ""
    start_ns: int = 0
    resume: bool = False
    salvaged: bool = False
    """The run record was damaged: the run id is the file name's, and the project is not known."""
    problem: str = ""
    """Why it cannot be synced; empty if it can."""


@dataclass(frozen=True)
class RunPlan:
    """The logs of one run, oldest first, and where they go."""

    run_id: str
    entity: str | None
    """None: the server's default for the key."""
    project: str
    segments: tuple[LogHead, ...] = field(default=())


def discover(paths: Iterable[str | os.PathLike[str]]) -> list[Path]:
    """The logs below `paths`, each file once however often it is named or linked.

    Raises:
        UsageError: nothing is at one of the paths.
    """
    found: dict[tuple[object, ...], Path] = {}
    for path in paths:
        try:
            logs = find_logs(path)
        except FileNotFoundError as error:
            raise UsageError(str(error)) from None
        for log in logs:
            try:
                status = log.stat()
                identity: tuple[object, ...] = (status.st_dev, status.st_ino)
            except OSError:  # a dangling link, named by its own path
                identity = (os.fspath(log),)
            found.setdefault(identity, log)
    return list(found.values())


def read_head(log: Path) -> LogHead:
    """The run record of a log. Never raises: what is wrong with the log is in `problem`."""
    try:
        status = log.stat()
        if not stat.S_ISREG(status.st_mode):
            return LogHead(log, problem="not a file")
        size, modified = status.st_size, status.st_mtime
        if size == 0:
            return LogHead(log, modified=modified, problem="empty (0 bytes): the run died before its first write")
        damaged = False
        for item in islice(read_records(log), _HEAD_RECORDS):
            if isinstance(item, Gap):
                if item.reason is GapReason.BAD_HEADER:
                    return LogHead(log, size, modified, problem=_foreign(log))
                damaged = True
            elif item.kind == "history" and damaged and valid_run_id(run_id_of(log)):
                return LogHead(log, size, modified, run_id_of(log), salvaged=True)
            elif item.kind == "run":
                return _from_run(log, size, modified, item)
    except OSError as error:
        return LogHead(log, problem=f"cannot be read: {error.strerror}")
    if size <= len(FILE_HEADER):
        return LogHead(
            log, size, modified, problem=f"only a file header ({size} bytes): the run died before its first record"
        )
    return LogHead(log, size, modified, problem="no run record: nobody can tell which run this is")


def _from_run(log: Path, size: int, modified: float, record: Record) -> LogHead:
    try:
        run = record.message()
    except WireError:
        return LogHead(log, size, modified, problem="its run record is damaged")
    if not valid_run_id(run.run_id):
        return LogHead(log, size, modified, problem=f"its run id {run.run_id[:80]!r} is not one that a server takes")
    start_ns = run.start_time.seconds * 1_000_000_000 + run.start_time.nanos
    return LogHead(log, size, modified, run.run_id, run.entity, run.project, start_ns, resume=run.resume)


def _foreign(log: Path) -> str:
    """What a file without the header of a log looks like."""
    with log.open("rb") as file:
        start = file.read(64)
    if start.startswith(b"version https://git-lfs"):
        return "a Git LFS pointer, not the log itself: fetch it with `git lfs pull`"
    if start.lstrip().lower().startswith((b"<!doctype", b"<html")):
        return "a web page, not a log: the download went wrong"
    if start.startswith(FILE_HEADER[:4]):
        return "a log of another format version"
    if FILE_HEADER.startswith(start):
        return f"only a part of a file header ({len(start)} bytes)"
    return f"not a log: it begins with {start[:16]!r}"


def group(heads: Iterable[LogHead], settings: SyncSettings) -> list[RunPlan]:
    """The runs of the readable logs, with the settings' overrides applied, in the order of their first logs."""
    groups: dict[tuple[str | None, str, str], list[LogHead]] = {}
    for head in heads:
        target = (
            settings.entity or head.entity or None,
            settings.project or head.project or DEFAULT_PROJECT,
            settings.run_id or head.run_id,
        )
        groups.setdefault(target, []).append(head)
    return [
        RunPlan(run_id, entity, project, tuple(sorted(logs, key=lambda head: (head.start_ns, os.fspath(head.path)))))
        for (entity, project, run_id), logs in groups.items()
    ]
