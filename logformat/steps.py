"""Which rows of a log count: those whose steps lie between two bounds, where logs of one run overlap."""

from __future__ import annotations

from dataclasses import dataclass

from .history import is_part, step_of


@dataclass(frozen=True)
class Steps:
    """The steps that rows of one log may have, as the log has them, before any shift; both bounds are outside."""

    above: int | None = None
    below: int | None = None

    def keep(self, step: int) -> bool:
        """Whether a row of that step counts."""
        return (self.above is None or step > self.above) and (self.below is None or step < self.below)


ALL_STEPS = Steps()


class StepCounter:
    """The step of each history record of one log, fed in order: what it says, else the one behind that of the record before.

    A record outside of `steps` is cut: everything else goes on as if the log did not have it.
    """

    def __init__(self, steps: Steps = ALL_STEPS) -> None:
        self._steps = steps
        self.step = -1
        """Of the latest record, in the log's own numbers."""
        self.cut = 0
        """Rows cut so far."""
        self._cut: bytes | None = None  # the step's text, if the latest record was cut

    def keeps(self, text: bytes | None) -> bool:
        """Take the next record, whose first `_step` item has this text (None: it has none); False if it is cut."""
        number = step_of(text) if text is not None else None
        self.step = self.step + 1 if number is None else number
        if self._steps is ALL_STEPS or self._steps.keep(self.step):
            self._cut = None
            return True
        if not is_part(text, self._cut):
            self.cut += 1
        self._cut = text
        return False
