"""Which of the runs found are asked for: the share, and the filters. What is cheap to tell is asked first.

| asked for     | by                                                                               |
|---------------|----------------------------------------------------------------------------------|
| a share       | the run's name                                                                   |
| newer than    | the time at which a log of it last grew                                          |
| states        | the exit record of the last log, which stands at its end; without one, its writer |
| tags          | the run records of its logs                                                      |
| rows          | so many rows of its logs                                                         |
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from datetime import datetime
from pathlib import Path

from ..logformat import BLOCK_SIZE, LogReader, Record, RunState, read_records
from .errors import UsageError
from .liveness import Liveness
from .plan import LogHead, RunPlan
from .settings import SyncSettings

SHARD, NEWER, STATE, TAG, MIN_ROWS = "shard", "newer", "state", "tag", "min_rows"
"""Why a run is left out."""

_TAIL_BLOCKS = 2  # in which an exit record is looked for before the whole log is read


def parse_replacements(text: str) -> dict[str, str]:
    """Tags to replace, from `old=new,gone=`.

    Raises:
        UsageError: a part without `=`, or before which no tag stands.
    """
    replacements: dict[str, str] = {}
    for part in filter(None, text.split(",")):
        old, equals, new = part.partition("=")
        if not equals or not old:
            raise UsageError(f"replace tags: {part!r} is not OLD=NEW (or OLD= to leave it out)")
        replacements[old] = new
    return replacements


_UNITS = {"s": 1, "m": 60, "h": 3600, "d": 86_400, "w": 7 * 86_400}


def parse_since(text: str, now: float) -> float:
    """A moment in epoch seconds, from a span before `now` (`90s`, `30m`, `12h`, `2d`, `1w`) or an ISO time.

    An ISO time without an offset is local.

    Raises:
        UsageError: it is neither.
    """
    number, unit = text[:-1], text[-1:]
    if unit in _UNITS and number.isascii() and number.replace(".", "", 1).isdigit():
        return now - float(number) * _UNITS[unit]
    try:
        # A trailing Z is known to the parser from Python 3.11 on.
        return datetime.fromisoformat(f"{number}+00:00" if unit == "Z" else text).timestamp()
    except (ValueError, OverflowError, OSError):
        raise UsageError(
            f"{text!r} is neither a span such as 90s, 30m, 12h, 2d or 1w nor a time such as 2026-11-30T14:00"
        ) from None


def is_ours(head: LogHead, settings: SyncSettings) -> bool:
    """Whether a log that belongs to no run is for this sync to report, where others have shares of their own.

    It goes by the log's name and its folder's: the folders above may be mounted elsewhere on another machine.
    """
    return settings.shard is None or settings.shard.holds(head.path.parent.name, head.path.name)


def left_out(plan: RunPlan, settings: SyncSettings) -> str | None:
    """Why the share or the age of a run leaves it out, which takes no look at its logs; None if nothing does."""
    if settings.shard is not None and not settings.shard.holds(plan.entity, plan.project, plan.run_id):
        return SHARD
    if settings.newer_than is not None and max(head.modified for head in plan.segments) < settings.newer_than:
        return NEWER
    return None


def left_out_by_content(plan: RunPlan, settings: SyncSettings, liveness: Liveness) -> str | None:
    """Why what the logs hold leaves a run out; None if nothing does.

    Raises:
        OSError: a log cannot be read.
    """
    if settings.states and state_of(plan, settings, liveness) not in settings.states:
        return STATE
    if not settings.tags and settings.min_rows <= 0:
        return None
    state = _folded((head.path for head in plan.segments), rows=settings.min_rows)
    if settings.tags and not set(settings.tags) & set(state.info.tags):
        return TAG
    return MIN_ROWS if state.row_count < settings.min_rows else None


def state_of(plan: RunPlan, settings: SyncSettings, liveness: Liveness) -> str:
    """How a run stands, one of `STATES`.

    Raises:
        OSError: its last log cannot be read.
    """
    last = plan.segments[-1]
    code = exit_code_of(last.path)
    if code is not None:
        return "finished" if code == 0 else "failed"
    return "running" if liveness.is_alive(last.path, last.modified, settings.stale_after) else "crashed"


def exit_code_of(log: Path, *, tail_only: bool = False) -> int | None:
    """What the exit record of a log says; None if it has none. Of a log that has one, only the end is read, mostly.

    With `tail_only` nothing else is ever read.

    Raises:
        OSError: the log cannot be read.
    """
    with log.open("rb", buffering=0) as file:
        blocks = file.seek(0, os.SEEK_END) // BLOCK_SIZE
        start = max(0, blocks - _TAIL_BLOCKS + 1) * BLOCK_SIZE
        code = _exit_code(LogReader(file, start=start))
        return _exit_code(LogReader(file)) if code is None and start and not tail_only else code


def _exit_code(reader: LogReader) -> int | None:
    state = RunState(keep_rows=False)
    for item in reader.finish():
        if isinstance(item, Record) and item.kind == "exit":
            state.add(item)
    return state.exit_code


def _folded(logs: Iterable[Path], *, rows: int) -> RunState:
    """The logs' run records, and as many of their rows as it takes to know whether there are `rows`."""
    state = RunState(keep_rows=False)
    for log in logs:
        state.begin_log()
        for item in read_records(log):
            if isinstance(item, Record) and (item.kind == "run" or (item.kind == "history" and state.row_count < rows)):
                state.add(item)
    return state
