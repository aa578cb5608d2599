"""One log of a run on its way to the server."""

from __future__ import annotations

from dataclasses import dataclass, field

from .cursor import Cursor
from .places import Places
from .plan import LogHead
from .scan import Facts


@dataclass
class Segment:
    """One log of the run and what is known of it so far."""

    head: LogHead
    places: Places
    cursor: Cursor | None = None
    facts: Facts | None = None
    rows_before: int = 0
    """Rows that the server had acknowledged when this sync began."""
    missing: list[str] = field(default_factory=list)

    @property
    def found(self) -> Facts:
        """The facts, once the log was read."""
        if self.facts is None:
            raise RuntimeError("the log was not read yet")
        return self.facts

    @property
    def position(self) -> Cursor:
        """The cursor, once there is one."""
        if self.cursor is None:
            raise RuntimeError("there was no contact yet")
        return self.cursor
