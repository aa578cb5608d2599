"""The logs of one run: a run that was resumed, or that lost its disk, has several, and they are read as one."""

from __future__ import annotations

import errno
import glob
import os
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import islice
from pathlib import Path
from typing import BinaryIO, NamedTuple

from .copies import copies_in
from .elapsed import nanoseconds
from .reader import LogReader, read_records
from .record import Record
from .rundir import find_logs, log_name, run_id_of
from .runinfo import is_node, turn_of
from .runstate import RunState
from .sources import open_log
from .stitch import OVERLAPS, Opening, StepStitch, opening_of
from .wire import WireError

_HEAD_RECORDS = 64  # the run record is the second one; a log that has none so early has none


class Head(NamedTuple):
    """What a log's run record says of where it belongs."""

    run: tuple[str, str, str] | None
    """Entity, project, run id; None if there is no run record, so that nobody can tell."""
    start_time_ns: int
    """Nanoseconds since the epoch; 0 if nobody can tell."""
    is_node: bool = False
    """It is the log of a further node: see `runinfo.is_node`."""


def head_of(log: Path) -> Head:
    """Whose log it is, by its first records.

    Raises:
        OSError: the file cannot be opened or read.
    """
    is_of_node = False
    for item in islice(read_records(log), _HEAD_RECORDS):
        if not isinstance(item, Record) or item.kind not in {"header", "run"}:
            continue
        try:
            message = item.message()
        except WireError:
            break
        if item.kind == "run":
            home = (message.entity, message.project, message.run_id)
            return Head(home, nanoseconds(message.start_time), is_of_node)
        is_of_node = is_node(message)
    return Head(None, 0)


def in_order(logs: Iterable[Path]) -> list[Path]:
    """The logs of one run, each once, in the order of their start, those of further nodes first (`turn_of`).

    One without a run record counts as that run's. Of copies of one log only the one that holds most is taken; of equal
    ones that which is named first.

    Raises:
        OSError: a log cannot be opened or read.
        ValueError: they are of more than one run, or two are copies of one log of which each holds what the other lacks; names
            two logs.
    """
    heads = {log: head_of(log) for log in {os.path.realpath(log): log for log in logs}.values()}
    known = {head.run: log for log, head in heads.items() if head.run}
    if len(known) > 1:
        first, second = list(known.values())[:2]
        raise ValueError(f"{first} and {second} are logs of different runs: name the logs of one run")
    copies = _copies_of(heads)
    starts = {head.start_time_ns for head in heads.values() if not head.is_node}

    def turn(log: Path) -> tuple[tuple[int, bool, int], Path]:
        return turn_of(heads[log].start_time_ns, starts, of_node=heads[log].is_node), log

    return sorted((log for log in heads if log not in copies), key=turn)


def _copies_of(heads: Mapping[Path, Head]) -> set[Path]:
    """The logs that hold nothing but what another one with the same start holds. Raises as `in_order`."""
    alike: dict[int, list[Path]] = {}
    for log, head in heads.items():
        if head.run is not None:
            alike.setdefault(head.start_time_ns, []).append(log)
    found = [copy for start, logs in alike.items() for copy in copies_in(logs, is_start_known=start > 0)]
    for copy in found:
        if copy.differs:
            raise ValueError(f"{copy.log} differs from {copy.of}, which has the same run and start: name one of them")
    return {copy.log for copy in found}


def siblings(log: Path) -> list[Path]:
    """All logs of this log's run in the same `wandb` folder, itself (or a longer copy) among them, in the order of their start.

    Others that cannot be read, or do not say whose they are, are left out.

    Raises:
        OSError: `log` itself cannot be opened or read.
        ValueError: as `in_order`, of copies.
    """
    mine = head_of(log).run
    if mine is None:
        return [log]
    folder = Path(os.path.normpath(log.parent / os.pardir))  # lexically: `wandb/latest-run` lies in `wandb`
    others = folder.glob(f"*run-*/{glob.escape(log_name(mine[2]))}")
    return in_order([log, *filter(lambda other: _run_of(other) == mine, others)])


def _run_of(log: Path) -> tuple[str, str, str] | None:
    try:
        return head_of(log).run
    except OSError:
        return None


def fold(logs: Sequence[Path | BinaryIO], state: RunState, overlap: str = "last") -> Iterator[Path | BinaryIO]:
    """Fold the logs of one run, in this order, into `state`, stitched as a sync does it; gives each log once it was read.

    Raises:
        OSError: a log cannot be opened or read.
        ValueError: `overlap` is none of `OVERLAPS`.
    """
    if overlap not in OVERLAPS:
        raise ValueError(f"overlap: one of {', '.join(OVERLAPS)}, not {overlap!r}")
    stitching = StepStitch([_opening_of(log) for log in logs] if len(logs) > 1 else [Opening()], overlap)
    for index, log in enumerate(logs):
        state.begin_log(*stitching.begin(index))
        file = open_log(log)
        try:
            reader = LogReader(file)
            state.add_batches(reader.batches())
            state.healed += reader.healed
        finally:
            if file is not log:
                file.close()
        stitching.end(index, state.log_highest)
        if not state.info.run_id and isinstance(log, Path):
            state.info.run_id = run_id_of(log)
        yield log


def _opening_of(log: Path | BinaryIO) -> Opening:
    """What a log says before its first row; of an open file that cannot be read twice, nothing is known."""
    if isinstance(log, Path):
        with open_log(log) as file:
            return opening_of(file)
    if not log.seekable():
        return Opening(is_known=False)
    begin = log.tell()
    opening = opening_of(open_log(log))
    log.seek(begin)
    return opening


def load(*sources: str | os.PathLike[str] | BinaryIO, overlap: str = "last") -> RunState:
    """Everything that a run's logs hold: rows, samples, console, config, summary, and the gaps in them.

    A source is a log, plain or packed; a directory (that of a run; or a tree of them, if all are of one run); `-`, standard
    input; or an open file. Several are the logs of one run; they count in the order of their start, whatever order they are given in, open files as
    given and behind the others.

    Args:
        *sources: see above.
        overlap: whose rows count where two logs have the same steps, because training went back to a checkpoint: those of
            the `last` log (as a sync has it), of the `first` one, or of `both`.

    Raises:
        OSError: a file cannot be opened or read, or a directory holds no log; names it.
        ValueError: as `in_order`; or `overlap` is none of these.
    """
    named = [source for source in sources if isinstance(source, (str, os.PathLike)) and source != "-"]
    logs = [log for path in named for log in _logs_of(Path(path))]
    given: list[BinaryIO] = [source for source in sources if not isinstance(source, (str, os.PathLike))]
    files = [sys.stdin.buffer] * ("-" in sources) + given
    ordered: list[Path | BinaryIO] = [*(in_order(logs) if len(logs) > 1 else logs), *files]
    state = RunState()
    for _ in fold(ordered, state, overlap):
        pass
    return state


def _logs_of(path: Path) -> list[Path]:
    if not (logs := find_logs(path)):
        raise FileNotFoundError(errno.ENOENT, "no log (run-<id>.wandb) in this directory", str(path))
    return logs
