"""What the earlier logs of a run say of where it goes on.

A log may have any size and any damage, and `init` may not take long: so each is read from both ends only. Blocks make
that possible: a chunk starts at every block's edge, and a reader set there finds the first whole record behind it.
"""

from __future__ import annotations

import errno
import io
import os
import stat
from collections.abc import Iterable, Iterator
from contextlib import suppress
from itertools import groupby, islice
from pathlib import Path
from typing import BinaryIO, NamedTuple

from ..logformat.constants import BLOCK_SIZE
from ..logformat.history import RUNTIME, STEP, decode_history, step_of
from ..logformat.reader import LogReader
from ..logformat.record import Record
from ..logformat.rundir import RunDirName, log_name, run_id_of, valid_run_id
from ..logformat.wire import BYTES, VARINT, WireError, fields, read_varint

HEAD_BYTES = (1 << 20, 1 << 26)
"""The run record and the first row are looked for in so much of a log's beginning: in more only for a huge config."""
TAIL_BYTES = (1 << 16, 1 << 20, 1 << 24, 1 << 26)
"""The last row is looked for in so much of its end: nearly always the first of these holds it."""
_NO_LOG = {errno.ENOENT, errno.ENOTDIR, errno.ELOOP, errno.ENXIO, errno.EISDIR}
"""Nothing there, or a link or a socket or a folder: what is in the place of a log is none."""
_STAMPED = len("run-20261130_142500")
_LONGEST_S = 1e9  # 30 years: a runtime beyond it is garbage


class EarlierLog(NamedTuple):
    """Both ends of one log. What could not be read is None, or what stands here."""

    path: Path
    run_id: str
    project: str | None = None
    """None where the run record is lost, as with `entity`."""
    entity: str | None = None
    start_ns: int = 0
    """Nanoseconds since the epoch."""
    resumed: bool = False
    began_at_s: int = 0
    """Seconds that the run had taken before this log; its own times go on from there."""
    first_step: int | None = None
    last_step: int | None = None
    """The highest step near the end."""
    runtime_s: float = 0.0
    """The latest of the log's own times: its last row's, its last sample's or its exit record's."""
    exit_code: int | None = None
    modified_s: float = 0.0
    """Seconds since the epoch at which the log last grew."""
    whole: bool = True
    """Whether a row would have been found if there were one; not where the log cannot be read at all."""

    @property
    def has_begun(self) -> bool:
        """Whether it tells anything of the run: a node's log of system metrics has neither rows nor an end."""
        return self.first_step is not None or self.last_step is not None or self.exit_code is not None


def logs_of(folder: Path, run_id: str) -> list[Path]:
    """Where logs of the run may lie in a `wandb` folder, by the names of its directories; nothing is opened."""
    with suppress(OSError), os.scandir(folder) as entries:
        return [
            Path(entry.path) / log_name(run_id)
            for entry in entries
            if run_id in entry.name and _names(entry.name, run_id) and entry.is_dir(follow_symlinks=False)
        ]
    return []


def newest_logs(folder: Path, limit: int = 64) -> Iterator[EarlierLog]:
    """The logs of a `wandb` folder that can be read, the newest first: by the dates in the names of their directories.

    No more than `limit` directories are looked into. Within a second the logs themselves tell which is the newest.
    """
    try:
        names = os.listdir(folder)  # noqa: PTH208 - names only: a folder may hold many thousands
    except OSError:
        return
    names = [name for name in names if name.startswith(("run-", "offline-run-"))]
    names.sort(key=lambda name: name.removeprefix("offline-").removeprefix("run-"), reverse=True)
    newest = islice(filter(RunDirName.parse, names), limit)
    for _, alike in groupby(newest, key=lambda name: name.removeprefix("offline-")[:_STAMPED]):
        found = [log for name in alike for path in _logs_in(folder / name) if (log := read_ends(path)) is not None]
        yield from sorted(found, key=lambda log: log.start_ns, reverse=True)


def _logs_in(directory: Path) -> list[Path]:
    """The logs that a run directory's name promises."""
    if RunDirName.parse(directory.name) is None or directory.is_symlink():
        return []
    with suppress(OSError):
        return [log for log in directory.iterdir() if _names(directory.name, run_id_of(log))]
    return []


def _names(directory: str, run_id: str) -> bool:
    """Whether a directory's name is one that a run of that id gets: a name that was taken has a number behind it."""
    name = RunDirName.parse(directory)
    return name is not None and (name.run_id == run_id or name.run_id.removeprefix(f"{run_id}-").isdecimal())


def read_ends(log: Path) -> EarlierLog | None:
    """Read both ends of a log; None where there is none. What stands in it never raises."""
    try:
        # A name in a shared folder may lead anywhere: no links, and no wait for a pipe's other side.
        flags = os.O_RDONLY | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_BINARY", 0)
        with open(os.open(log, flags), "rb") as file:  # noqa: PTH123 - of a descriptor
            status = os.fstat(file.fileno())
            if not stat.S_ISREG(status.st_mode):
                return None
            found = _read_head(file, status.st_size, EarlierLog(log, run_id_of(log), modified_s=status.st_mtime))
            if not valid_run_id(found.run_id) or found.run_id != run_id_of(log):
                return None
            return _read_tail(file, status.st_size, found)
    except OSError as error:
        there = error.errno not in _NO_LOG and valid_run_id(run_id_of(log))
        return EarlierLog(log, run_id_of(log), whole=False) if there else None


def _read_head(file: BinaryIO, size: int, found: EarlierLog) -> EarlierLog:
    """What the log's first run record and row say."""
    for length in HEAD_BYTES:
        file.seek(0)
        # A copy, so that nothing makes the reader look for the next good chunk through all of a damaged log.
        found = _read_beginning(io.BytesIO(file.read(length)), found)
        if found.project is not None or size <= length:
            break
    if not found.start_ns and (name := RunDirName.parse(found.path.parent.name)):
        with suppress(ValueError, OverflowError, OSError):  # the year 1 or 9999 in another time zone
            found = found._replace(start_ns=int(name.started.astimezone().timestamp()) * 10**9)
    return found


def _read_beginning(file: BinaryIO, found: EarlierLog) -> EarlierLog:
    for item in LogReader(file).poll():
        if not isinstance(item, Record):
            continue
        if item.kind == "run" and found.project is None:
            with suppress(WireError, UnicodeDecodeError):
                found = _with_run(found, item.body)
        elif item.kind == "history":
            step, _ = _row(item.body)
            if step is not None:
                return found._replace(first_step=step)
    return found


def _with_run(found: EarlierLog, body: bytes) -> EarlierLog:
    texts = {1: "", 2: "", 3: ""}
    numbers = {20: 0, 24: 0}
    start_ns = 0
    for number, kind, start, stop in fields(body):
        if number in texts and kind == BYTES:
            texts[number] = body[start:stop].decode()
        elif number in numbers and kind == VARINT:
            numbers[number] = read_varint(body, start)[0]
        elif number == 17 and kind == BYTES:
            start_ns = _nanoseconds(body[start:stop])
    began_at = numbers[20] if numbers[20] < _LONGEST_S else 0
    return found._replace(
        run_id=texts[1],
        entity=texts[2],
        project=texts[3],
        start_ns=start_ns,
        began_at_s=began_at,
        resumed=numbers[24] > 0,
    )


def _read_tail(file: BinaryIO, size: int, found: EarlierLog) -> EarlierLog:
    """What the log's end says: the highest step, the latest time, the exit."""
    for length in TAIL_BYTES:
        start = max(0, size - length) // BLOCK_SIZE * BLOCK_SIZE
        last, runtime, code = None, float(found.began_at_s), None
        at = -1 if start == 0 else None  # a row without a step gets the one behind the row before it
        for item in LogReader(file, start=start).finish():
            if not isinstance(item, Record):
                continue
            seconds = None
            if item.kind == "history":
                step, seconds = _row(item.body)
                at = step if step is not None else at + 1 if at is not None else None
                last = at if last is None or (at is not None and at > last) else last
            elif item.kind == "stats":
                seconds = _sampled_at(item.body, found)
            elif item.kind == "exit":
                code, seconds = _exit(item.body)
            if seconds is not None and runtime < seconds < _LONGEST_S:  # NaN is no time either
                runtime = seconds
        found = found._replace(last_step=last, runtime_s=runtime, exit_code=code, whole=start == 0 or last is not None)
        if found.whole:
            break
    return found


def _row(body: bytes) -> tuple[int | None, float | None]:
    """A row's step and runtime."""
    step = runtime = None
    with suppress(WireError):
        paths, values = decode_history(body)
        if STEP in paths:
            step = step_of(values[paths.index(STEP)])
        if RUNTIME in paths:
            with suppress(ValueError):
                runtime = float(values[paths.index(RUNTIME)])
    return step, runtime


def _sampled_at(body: bytes, found: EarlierLog) -> float | None:
    """Seconds of the run at which a sample was taken."""
    with suppress(WireError):
        for number, kind, start, stop in fields(body):
            if number == 2 and kind == BYTES and found.start_ns:
                return found.began_at_s + (_nanoseconds(body[start:stop]) - found.start_ns) / 1e9
    return None


def _exit(body: bytes) -> tuple[int, float]:
    """Exit code and runtime."""
    code = runtime = 0
    with suppress(WireError):
        for number, kind, start, _ in fields(body):
            if kind == VARINT and number == 1:
                code = read_varint(body, start)[0]
            elif kind == VARINT and number == 2:
                runtime = read_varint(body, start)[0]
    return code, float(runtime)


def _nanoseconds(timestamp: bytes) -> int:
    """A Timestamp message as nanoseconds since the epoch."""
    parts = {1: 0, 2: 0}
    for number, kind, start, _ in fields(timestamp):
        if number in parts and kind == VARINT:
            parts[number] = read_varint(timestamp, start)[0]
    return parts[1] * 10**9 + parts[2]


class Progress(NamedTuple):
    """How far a run came over all of its logs."""

    last_step: int | None = None
    runtime_s: float = 0.0


def stitch(logs: Iterable[EarlierLog]) -> Progress:
    """How far the logs of one run came together, in the order of their start.

    As a sync puts them: steps stay as logged, but those of a log that begins again at step 0 go behind the last step
    before it. A log whose times go on from those before it says so; the time of any other is added.
    """
    last, runtime = None, 0.0
    for log in sorted(logs, key=lambda log: (log.start_ns, os.fspath(log.path))):
        highest = log.first_step if log.last_step is None else log.last_step
        if highest is not None:
            shift = last + 1 if last is not None and log.first_step == 0 else 0
            last = max(highest + shift, -1 if last is None else last)
        runtime = max(runtime, log.runtime_s) if log.began_at_s else runtime + log.runtime_s
    return Progress(last, runtime)
