"""The last row that a server holds of a run, looked for in the run's logs."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from ..logformat import WireError, decode_history
from ..logformat.elapsed import nanoseconds
from ..logformat.history import STEP, TIMESTAMP, place_of, step_of
from ..logformat.steps import ALL_STEPS, Steps
from .answers import ResumeStatus
from .lines import Rows
from .scan import Facts, good_records
from .segment import Segment

_MICROSECOND = 1e-6
_LARGE_ROW = 256 * 1024  # bytes of its values; proxies that take the least take bodies of 1 MiB


def row_of(text: str) -> dict[str, Any]:
    """A row as the server gives it; empty for what is no row."""
    try:
        row = json.loads(text)
    except (ValueError, RecursionError):
        return {}
    return row if isinstance(row, dict) else {}


def runtime_of(status: ResumeStatus) -> float:
    """Seconds that a run took, by all that the server says of it."""
    internal = status.summary.get("_wandb")
    found = [row_of(text).get("_runtime") for text in (*status.history_tail, *status.events_tail)]
    found += [status.summary.get("_runtime"), internal.get("runtime") if isinstance(internal, dict) else None]
    seconds = [float(value) for value in found if isinstance(value, (int, float)) and not isinstance(value, bool)]
    return max([value for value in seconds if 0 <= value < 1e10], default=0.0)


def is_row_at(segments: Iterable[Segment], index: int, row: dict[str, Any]) -> bool:
    """Whether line `index` of the run, as the logs are stitched, is this row, or was it before further parts came."""
    for segment in segments:
        place, facts = segment.place, segment.found
        if place is not None and place.base.history <= index < place.base.history + facts.lines.history:
            index -= place.base.history
            records = _records(facts.log, facts.steps)
            return any(at == index and _is(row, found, step + place.step_shift) for at, step, found, _ in records)
    return False


def may_lack_values(facts: Facts) -> bool:
    """Whether a row of a log is so large that it may have been sent without its largest values: no row of the server tells.

    Raises:
        OSError: the log cannot be read.
    """
    if facts.end < _LARGE_ROW:
        return False
    size, before = 0, -1
    for index, _, _, values in _records(facts.log, facts.steps):
        size = values + (size if index == before else 0)
        before = index
        if size > _LARGE_ROW:
            return True
    return False


def holds(facts: Facts, row: dict[str, Any]) -> bool:
    """Whether the log that was read holds this row, at whatever line and step."""
    return log_holds(facts.log, row)


def log_holds(log: Path, row: dict[str, Any]) -> bool:
    """Whether a log holds this row, at whatever line and step.

    Raises:
        OSError: the log cannot be read.
    """
    return any(_is(row, found, None) for _, _, found, _ in _records(log, ALL_STEPS))


def log_samples(log: Path, time: float) -> bool:
    """Whether a log has a sample of this time, epoch seconds to the microsecond.

    Raises:
        OSError: the log cannot be read.
    """
    with log.open("rb", buffering=0) as file:
        for record in good_records(file):
            if record.kind != "stats":
                continue
            with contextlib.suppress(WireError):
                if abs(nanoseconds(record.message().timestamp) / 1e9 - time) < _MICROSECOND:
                    return True
    return False


def _records(log: Path, steps: Steps) -> Iterator[tuple[int, int, dict[str, bytes], int]]:
    """The history records of a log: row number, step, the texts of their own values, and the bytes of all of them."""
    rows, index = Rows(0, steps), -1
    with log.open("rb", buffering=0) as file:
        for record in good_records(file):
            if record.kind != "history":
                continue
            try:
                paths, values = decode_history(record.body)
            except WireError:
                continue
            before = rows.latest
            rows.add(paths, values, record.offset)
            if not rows.kept or rows.latest is None:
                continue
            index += rows.latest is not before
            time, place = place_of(TIMESTAMP, paths), place_of(STEP, paths)
            step = step_of(values[place]) if place >= 0 else None
            texts = {"_timestamp": values[time]} if time >= 0 else {}
            if time < 0:
                texts = {path[0]: value for path, value in zip(paths, values, strict=True) if len(path) == 1}
            yield index, rows.latest.number if step is None else step, texts, sum(map(len, values))


def _is(row: dict[str, Any], texts: dict[str, bytes], step: int | None) -> bool:
    """Whether a record's values are a row's: no two rows of different logs share the time to the microsecond.

    Rows without a time are told by all of their values.
    """
    if step is not None and row.get("_step") != step:
        return False
    if "_timestamp" in row or "_timestamp" in texts:
        return "_timestamp" in row and "_timestamp" in texts and _value(texts["_timestamp"]) == row["_timestamp"]
    ours = {key: _value(text) for key, text in texts.items() if key != "_step"}
    return bool(ours) and ours == {key: value for key, value in row.items() if key != "_step"}


def _value(text: bytes) -> Any:
    try:
        return json.loads(text)
    except ValueError:
        return None
