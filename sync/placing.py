"""How the logs of one run are stitched: where the lines of each go, how its steps are shifted, and which of its rows count.

All of it is a function of the logs, of the policy for overlaps, and of what the server held before the first of them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ..logformat import LogReader, Record, WireError, decode_history
from ..logformat.history import STEP, place_of, step_of
from .cursor import Lines
from .scan import Facts
from .steps import ALL_STEPS, Steps


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


def opening_of(log: Path) -> Opening:
    """Read a log up to its first row.

    Raises:
        OSError: the log cannot be read.
    """
    is_known = goes_on = resume = False
    rewinds = environment = None
    with log.open("rb", buffering=0) as file:
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


@dataclass
class Start:
    """What the run had at the server before the first of these logs."""

    base: Lines = field(default_factory=Lines)
    highest: int | None = None
    """Highest step; None for no rows."""
    runtime: float = 0.0
    """Seconds."""
    row: str = ""
    """What tells the last row from all others: see `row_mark`."""
    known_rows: int = 0
    """Rows of these logs that are there already, counted from the base."""


@dataclass(frozen=True)
class Place:
    """Where the lines of one log go, and which of its rows count."""

    base: Lines
    step_shift: int = 0
    steps: Steps = ALL_STEPS


class Stitch:
    """Places for the logs of one run, in the order of their start: `begin` before a log is read, `end` with what it held.

    `anchors` are places that stay as they are, because logs between them are not here to be counted.
    """

    def __init__(
        self, openings: Sequence[Opening], start: Start, overlap: str, anchors: Sequence[Place | None] = ()
    ) -> None:
        self._openings = openings
        self._anchors = [*anchors, *[None] * (len(openings) - len(anchors))]
        self._overlap = overlap
        self._base = start.base
        self._highest = start.highest
        self.places: list[Place] = []

    def begin(self) -> Place:
        """The place of the next log."""
        index = len(self.places)
        anchor = self._anchors[index]
        if anchor is None:
            opening = self._openings[index]
            shift = self._highest + 1 if opening.restarts and self._highest is not None else 0
            anchor = Place(self._base, shift, self._steps(index, shift))
        self.places.append(anchor)
        return anchor

    def end(self, facts: Facts) -> None:
        """Take into account what the log held that `begin` was asked for."""
        index = len(self.places) - 1
        if self._anchors[index] is not None:
            return
        place = self.places[index]
        self._base = place.base + facts.lines
        if facts.highest_step is None:
            return
        highest = facts.highest_step + place.step_shift
        if self._highest is None or self._openings[index].rewinds is not None or self._overlap == "last":
            self._highest = highest
        else:
            self._highest = max(self._highest, highest)

    def _steps(self, index: int, shift: int) -> Steps:
        """Which steps of a log count, as the log has them."""
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


def stitch(
    openings: Sequence[Opening],
    facts: Sequence[Facts],
    start: Start,
    overlap: str,
    anchors: Sequence[Place | None] = (),
) -> list[Place]:
    """The places of logs that were read. One whose `steps` are not those that it was read with has to be read again."""
    stitching = Stitch(openings, start, overlap, anchors)
    for fact in facts:
        stitching.begin()
        stitching.end(fact)
    return stitching.places
