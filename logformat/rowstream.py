"""The rows of a run one after the other, in memory that does not grow with its logs: as `RunState` has them, stitched, parts joined."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path as FilePath
from typing import NamedTuple

from .history import STEP, Path, decode_history, is_part, place_of, step_of
from .reader import read_records
from .record import Gap, GapReason, Record
from .sources import open_log
from .steps import ALL_STEPS, StepCounter, Steps
from .stitch import Opening, StepStitch, opening_of
from .wire import WireError


class Row(NamedTuple):
    """One row."""

    step: int
    values: dict[Path, bytes]
    """Key -> JSON text, in the order in which they were logged."""
    offset: int
    """Of its first record in its log."""


class RowJoiner:
    """Joins the history records of one log to rows."""

    def __init__(self, steps: Steps = ALL_STEPS, shift: int = 0) -> None:
        """`steps` are those of the rows that count, and `shift` is added to them: see `stitch`."""
        self._counter, self._shift = StepCounter(steps), shift
        self._text: bytes | None = None
        self.open: Row | None = None
        """The row to which the next record may still add."""
        self.highest: int | None = None
        """The highest step so far, shifted."""

    def add(self, record: Record) -> Row | None:
        """Take the next history record; the row before it, if that is complete by it.

        Raises:
            WireError: it is no history record.
        """
        paths, texts = decode_history(record.body)
        place = place_of(STEP, paths)
        text = texts[place] if place >= 0 else None
        if not self._counter.keeps(text):
            return None
        step = self._counter.step + self._shift
        self.highest = step if self.highest is None else max(step, self.highest)
        values = dict(zip(paths, texts, strict=True))
        if self._shift and text is not None and step_of(text) is not None:
            values[STEP] = b"%d" % step
        if self.open is not None and is_part(text, self._text):
            self.open.values.update(values)
            return None
        before, self._text = self.open, text
        self.open = Row(step, values, record.offset)
        return before

    def rest(self) -> Row | None:
        """The last row, once nothing more comes."""
        last, self.open = self.open, None
        return last


def stream_rows(
    logs: Sequence[FilePath], lost: Callable[[FilePath, Gap], object], *, overlap: str = "last"
) -> Iterator[Row]:
    """The rows of the logs of one run, which are given in the order of their start.

    `lost` is told of what could not be read.

    Raises:
        OSError: a log cannot be opened or read.
    """
    stitching = StepStitch([_opening(log) for log in logs] if len(logs) > 1 else [Opening()], overlap)
    for index, log in enumerate(logs):
        rows = RowJoiner(*stitching.begin(index))
        for item in read_records(log):
            if isinstance(item, Gap):
                lost(log, item)
            elif item.kind == "history":
                try:
                    row = rows.add(item)
                except WireError:
                    lost(log, Gap(item.offset, item.end - item.offset, GapReason.BAD_PROTO, 1))
                    continue
                if row is not None:
                    yield row
        if (row := rows.rest()) is not None:
            yield row
        stitching.end(index, rows.highest)


def _opening(log: FilePath) -> Opening:
    with open_log(log) as file:
        return opening_of(file)
