"""How the logs of one run are stitched: where the lines of each go, how its steps are shifted, and which of its rows count.

All of it is a function of the logs, of the policy for overlaps, and of what the server held before the first of them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from ..logformat.steps import ALL_STEPS, Steps
from ..logformat.stitch import Opening, StepStitch
from .cursor import Lines
from .scan import Facts


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
        self._anchors = [*anchors, *[None] * (len(openings) - len(anchors))]
        self._steps = StepStitch(openings, overlap, start.highest)
        self._base = start.base
        self.places: list[Place] = []

    def begin(self) -> Place:
        """The place of the next log."""
        index = len(self.places)
        anchor = self._anchors[index]
        if anchor is None:
            steps, shift = self._steps.begin(index)
            anchor = Place(self._base, shift, steps)
        self.places.append(anchor)
        return anchor

    def end(self, facts: Facts) -> None:
        """Take into account what the log held that `begin` was asked for."""
        index = len(self.places) - 1
        if self._anchors[index] is not None:
            return
        place = self.places[index]
        self._base = place.base + facts.lines
        highest = facts.highest_step
        self._steps.end(index, highest if highest is None else highest + place.step_shift)


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
