"""From paths to runs: find the logs, read what each says of itself, and group the logs of one run in order of time."""

from __future__ import annotations

import contextlib
import glob
import io
import os
import stat
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from itertools import islice
from pathlib import Path
from typing import BinaryIO

from ..logformat import (
    FILE_HEADER,
    Gap,
    GapReason,
    LogReader,
    Record,
    WireError,
    decode_history,
    find_logs,
    run_id_of,
    valid_run_id,
)
from ..logformat.copies import Copy
from ..logformat.runinfo import is_node, turn_of
from ..logformat.sources import first_look
from .crew import Crew
from .errors import UsageError
from .report import counted
from .settings import SyncSettings

DEFAULT_PROJECT = "uncategorized"  # of logs that name none, as the peer has it
_HEAD_RECORDS = 64  # the run record is the second one; a log that has none so early has none
_HEAD_BYTES = 32 * 1024  # one block; a config that is larger takes a second look
_READERS = 8  # heads that are read at a time: on a network file system each waits for an answer
_HEADS_PER_TASK = 64

Paths = str | os.PathLike[str] | Iterable[str | os.PathLike[str]]


@dataclass(frozen=True, slots=True)
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
    is_node: bool = False
    """It is the log of a further node of the run: see `logformat.runinfo.is_node`."""
    salvaged: bool = False
    """The run record was damaged: the run id is the file name's, the start follows from the first row, and entity and project
    are known only where other logs of the run tell."""
    problem: str = ""
    """Why it cannot be synced; empty if it can."""
    begins: bool = False
    """The problem is only that its run record is not there yet: as long as it has a writer that is none."""
    identity: tuple[int, int] | None = None
    """Device and inode; None if it cannot be opened."""


@dataclass(frozen=True, slots=True)
class RunPlan:
    """The logs of one run, oldest first, and where they go."""

    run_id: str
    entity: str | None
    """None: the server's default for the key."""
    project: str
    segments: tuple[LogHead, ...] = field(default=())
    others: tuple[Path, ...] = ()
    """Logs beside these that may be of the same run, and were not sent so far."""
    copies: tuple[Copy, ...] = ()
    """Logs that were asked for, and do not count beside these."""


def survey(paths: Paths) -> list[LogHead]:
    """The heads of all logs below `paths`, each file once however often it is named or linked.

    A path that does not exist may be a pattern (`*`, `?`, `[..]`, `**`), for shells that expand none. One listing per
    folder and one opening per log; folders that cannot be listed are told as heads that are no logs.

    Raises:
        UsageError: nothing is at one of the paths.
    """
    logs: list[Path] = []
    shut: list[LogHead] = []

    for path in expanded(paths):
        try:
            logs += find_logs(path, unreadable=lambda error: shut.append(shut_folder(error)))
        except FileNotFoundError as error:
            raise UsageError(str(error)) from None
    heads: dict[object, LogHead] = {}
    for head in _read_heads(list(dict.fromkeys(logs))):
        heads.setdefault(head.identity or head.path, head)
    return [*heads.values(), *shut]


def shut_folder(error: OSError, fate: str = "are not read") -> LogHead:
    """What is told of a folder that cannot be listed: whether there are logs in it nobody knows."""
    name = Path(os.fsdecode(error.filename or "?"))
    return LogHead(name, problem=f"the folder cannot be read ({error.strerror}): logs in it, if any, {fate}")


def expanded(paths: Paths) -> Iterator[str]:
    """The paths, with what is there instead of those that are patterns.

    Raises:
        UsageError: a path is empty, or a pattern that nothing matches.
    """
    for path in [paths] if isinstance(paths, (str, os.PathLike)) else paths:
        name = os.fspath(path)
        if not name:
            raise UsageError("a path is empty: is a variable not set?")
        if os.path.lexists(name) or not glob.has_magic(name):
            yield name
            continue
        matches = sorted(glob.glob(name, recursive=True))  # noqa: PTH207 - Path.glob takes no absolute patterns
        if not matches:
            raise UsageError(f"{name}: no such file or directory, and no file matches it as a pattern")
        yield from matches


def _read_heads(logs: Sequence[Path]) -> Iterator[LogHead]:
    """The heads of `logs`, in their order."""
    if len(logs) <= _HEADS_PER_TASK:
        yield from map(read_head, logs)
        return
    parts = [logs[at : at + _HEADS_PER_TASK] for at in range(0, len(logs), _HEADS_PER_TASK)]
    with Crew(_READERS, "runferry-head") as readers:
        for heads in readers.map(lambda part: [read_head(log) for log in part], parts):
            yield from heads


def read_head(log: Path) -> LogHead:
    """The run record of a log, by one opening of it. Never raises: what is wrong with the log is in `problem`."""
    try:
        # A pipe would block an ordinary opening for ever.
        descriptor = os.open(log, os.O_RDONLY | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_BINARY", 0))
    except OSError as error:
        return LogHead(log, problem=f"cannot be read: {error.strerror}")
    status = os.fstat(descriptor)
    facts = _Facts(log, status.st_size, status.st_mtime, (status.st_dev, status.st_ino))
    if not stat.S_ISREG(status.st_mode):
        os.close(descriptor)
        return facts.broken("not a file")
    with os.fdopen(descriptor, "rb", buffering=0) as file:
        try:
            return _head(facts, file)
        except OSError as error:
            return facts.broken(f"cannot be read: {error.strerror}")


@dataclass(frozen=True, slots=True)
class _Facts:
    """What the file system says of a log."""

    log: Path
    size: int
    modified: float
    identity: tuple[int, int]

    def broken(self, problem: str, *, begins: bool = False) -> LogHead:
        return LogHead(self.log, self.size, self.modified, problem=problem, begins=begins, identity=self.identity)


def _head(facts: _Facts, file: BinaryIO) -> LogHead:
    start = file.read(_HEAD_BYTES)
    if (foreign := first_look(start)) is not None:
        return facts.broken(foreign, begins=FILE_HEADER.startswith(start))
    head = _by_records(facts, LogReader(io.BytesIO(start)))
    if head is None and facts.size > len(start):
        head = _by_records(facts, LogReader(file))
    if head is not None:
        return head
    if not start.startswith(FILE_HEADER[:-1]):  # the version may be another one
        return facts.broken(f"not a log: it begins with {start[:16]!r}")
    if facts.size <= len(FILE_HEADER):
        problem = f"only a file header ({counted(facts.size, 'byte')}): the run died before its first record"
        return facts.broken(problem, begins=True)
    return facts.broken("no run record: nobody can tell which run this is", begins=_is_begun(LogReader(file)))


def _is_begun(reader: LogReader) -> bool:
    """Whether a log ends before its run record: a long one is written in several blocks."""
    return all(
        item.reason in (GapReason.TORN_TAIL, GapReason.ZEROED) if isinstance(item, Gap) else item.kind == "header"
        for item in islice(reader.finish(), 3)
    )


def _by_records(facts: _Facts, reader: LogReader) -> LogHead | None:
    """The head by the first records, or None where they have no run record."""
    log, damaged, is_of_node = facts.log, False, False
    for item in islice(reader.finish(), _HEAD_RECORDS):
        if isinstance(item, Gap):
            damaged = True
        elif item.kind == "history" and damaged and valid_run_id(run_id_of(log)):
            return _by_row(facts, item)
        elif item.kind == "header":
            with contextlib.suppress(WireError):
                is_of_node = is_node(item.message())
        elif item.kind == "run":
            return _by_run_record(facts, item, is_of_node=is_of_node)
    return None


def _by_run_record(facts: _Facts, record: Record, *, is_of_node: bool) -> LogHead:
    try:
        run = record.message()
    except WireError:
        return facts.broken("its run record is damaged")
    if not valid_run_id(run.run_id):
        return facts.broken(f"its run id {run.run_id[:80]!r} is not one that a server takes")
    return LogHead(
        facts.log,
        facts.size,
        facts.modified,
        run.run_id,
        run.entity,
        run.project,
        start_ns=run.start_time.seconds * 1_000_000_000 + run.start_time.nanos,
        resume=run.resume,
        is_node=is_of_node,
        identity=facts.identity,
    )


def _by_row(facts: _Facts, record: Record) -> LogHead:
    """What the name of a log and its first row tell of a run whose run record is lost."""
    start_ns = 0
    with contextlib.suppress(WireError, ValueError, OverflowError):
        paths, values = decode_history(record.body)
        row = dict(zip(paths, values, strict=True))
        if ("_timestamp",) in row:
            start_ns = round((float(row["_timestamp",]) - float(row.get(("_runtime",), b"0"))) * 1e9)
    return LogHead(
        facts.log,
        facts.size,
        facts.modified,
        run_id_of(facts.log),
        start_ns=max(start_ns, 0),
        salvaged=True,
        identity=facts.identity,
    )


def group(heads: Iterable[LogHead], settings: SyncSettings) -> list[RunPlan]:
    """The runs of the readable logs, with the settings' overrides applied, in the order of their first logs.

    A log whose run record is lost belongs to the run of its id, if the others of that id are all of one project.
    """
    heads = list(heads)
    homes: dict[str, set[tuple[str, str]]] = {head.run_id: set() for head in heads if head.salvaged}
    for head in heads if homes else ():
        if head.run_id in homes and not head.salvaged:
            homes[head.run_id].add((head.entity, head.project))
    groups: dict[tuple[str | None, str, str], list[LogHead]] = {}
    for found in heads:
        head = found
        if head.salvaged and len(homes[head.run_id]) == 1:
            ((entity, project),) = homes[head.run_id]
            head = replace(head, entity=entity, project=project)
        target = (
            settings.entity or head.entity or None,
            settings.project or head.project or DEFAULT_PROJECT,
            settings.run_id or head.run_id,
        )
        groups.setdefault(target, []).append(head)
    return [RunPlan(run_id, entity, project, in_time(logs)) for (entity, project, run_id), logs in groups.items()]


def in_time(logs: Iterable[LogHead]) -> tuple[LogHead, ...]:
    """The logs of one run in the order of their start; those of further nodes before the first node's (`turn_of`)."""
    heads = list(logs)
    starts = {head.start_ns for head in heads if not head.is_node}

    def turn(head: LogHead) -> tuple[tuple[int, bool, int], str]:
        return turn_of(head.start_ns, starts, of_node=head.is_node), os.fspath(head.path)

    return tuple(sorted(heads, key=turn))
