"""How the steps of a run's logs follow each other: which rows of each count, and what is added to their steps.

A run that went on from a checkpoint has logs that repeat steps, and one that was resumed may count from 0 again. Whoever
reads several logs as one run, a sync or a reader, asks here, so that all of them see the same rows.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, BinaryIO

from .history import STEP, decode_history, place_of, step_of
from .reader import LogReader
from .record import Record
from .steps import ALL_STEPS, Steps
from .wire import WireError

OVERLAPS = ("last", "first", "both")
"""Whose rows count where two logs have the same steps: the later log's, the earlier one's, or those of both."""


@dataclass(frozen=True)
class Opening:
    """What a log says before its first row, and the step of that row."""

    first_step: int | None = None
    """None: it has no rows."""
    is_known: bool = True
    """It has its run record; when a log without one began, and whether its steps are the run's, nobody can tell."""
    goes_on: bool = False
    """Its writer knew of earlier logs, so that its steps are the run's."""
    resume: bool = False
    rewinds: int | None = None
    """The step of its own run behind which it begins anew."""
    environment: Any = None
    """Its first EnvironmentRecord, or None."""

    @property
    def restarts(self) -> bool:
        """Whether its steps count from 0 again, so that they have to go behind those of earlier logs."""
        return self.first_step == 0 and self.is_known and not self.goes_on and self.rewinds is None


def opening_of(file: BinaryIO) -> Opening:
    """Read a log up to its first row.

    Raises:
        OSError: it cannot be read.
    """
    is_known = goes_on = resume = False
    rewinds = environment = None
    for record in LogReader(file).finish():
        if not isinstance(record, Record):
            continue
        try:
            if record.kind == "history":
                return Opening(_step(record), is_known, goes_on, resume, rewinds, environment)
            if record.kind == "run":
                run = record.message()
                is_known, goes_on, resume = True, bool(run.starting_step or run.runtime), run.resume
                point = run.branch_point  # on another run it is a fork, whose log is as good as any
                if run.HasField("branch_point") and point.run == run.run_id and abs(point.value) < 2**63:
                    rewinds = int(point.value)
            elif record.kind == "environment" and environment is None:
                environment = record.message()
        except WireError:
            continue
    return Opening(None, is_known, goes_on, resume, rewinds, environment)


def _step(record: Record) -> int:
    """The step of a first row; rows without one count from 0."""
    paths, values = decode_history(record.body)
    place = place_of(STEP, paths)
    step = step_of(values[place]) if place >= 0 else None
    return step if step is not None else 0


class StepStitch:
    """Goes over the logs of one run in the order of their start: `begin` before a log is read, `end` once it was."""

    def __init__(self, openings: Sequence[Opening], overlap: str, highest: int | None = None) -> None:
        """`highest` is the highest step that the run had before the first of them; None for no rows."""
        self._openings = openings
        self._overlap = overlap
        self._highest = highest

    def begin(self, index: int) -> tuple[Steps, int]:
        """Which rows of log `index` count, by the steps that the log has; and what is added to those."""
        opening = self._openings[index]
        shift = self._highest + 1 if opening.restarts and self._highest is not None else 0
        return self._steps(index, shift), shift

    def end(self, index: int, highest: int | None) -> None:
        """The highest step, shifted, of the rows of log `index` that count; None for no rows."""
        if highest is None or not self._openings[index].is_known:
            return
        if self._highest is None or self._openings[index].rewinds is not None or self._overlap == "last":
            self._highest = highest
        else:
            self._highest = max(self._highest, highest)

    def _steps(self, index: int, shift: int) -> Steps:
        opening = self._openings[index]
        if not opening.is_known:
            return ALL_STEPS
        above = below = None
        if self._overlap == "first" and self._highest is not None and opening.rewinds is None and not opening.restarts:
            above = self._highest - shift
        # One that starts from 0 again goes behind the others, so it takes nothing from them.
        behind = (other for other in self._openings[index + 1 :] if other.is_known and not other.restarts)
        later = [other for other in behind if other.first_step is not None]
        ends = [other.rewinds + 1 for other in later if other.rewinds is not None]
        if self._overlap == "last":
            ends += [other.first_step for other in later if other.first_step is not None]
        if ends:
            below = min(ends) - shift
        return Steps(above, below) if (above, below) != (None, None) else ALL_STEPS
