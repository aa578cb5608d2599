"""One log of a run on its way to the server."""

from __future__ import annotations

from dataclasses import dataclass, field

from ..logformat.stitch import Opening, opening_of
from .cursor import Cursor, Target, load, matches
from .places import Places
from .placing import Place
from .plan import LogHead
from .scan import Facts


@dataclass
class Segment:
    """One log of the run and what is known of it so far."""

    head: LogHead
    places: Places
    cursor: Cursor | None = None
    facts: Facts | None = None
    place: Place | None = None
    rows_before: int = 0
    """Rows that the server had acknowledged when this sync began."""
    missing: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    """What happened to this log that its user would not expect, though nothing is missing."""
    elsewhere: bool = False
    """The log was sent to another place before."""
    _opening: Opening | None = None

    @property
    def opening(self) -> Opening:
        """What the log says before its first row.

        Raises:
            OSError: the log cannot be read.
        """
        if self._opening is None:
            with self.head.path.open("rb", buffering=0) as file:
                self._opening = opening_of(file)
        return self._opening

    @property
    def found(self) -> Facts:
        """The facts, once the log was read."""
        if self.facts is None:
            raise RuntimeError("the log was not read yet")
        return self.facts

    @property
    def placed(self) -> Place:
        """Where its lines go, once the log was read."""
        if self.place is None:
            raise RuntimeError("the log was not read yet")
        return self.place

    @property
    def position(self) -> Cursor:
        """The cursor, once there is one."""
        if self.cursor is None:
            raise RuntimeError("there was no contact yet")
        return self.cursor

    def is_foreign_synced(self) -> bool:
        """Whether the peer's marker is there and no cursor of ours says what it stands for."""
        return self.places.marker.exists() and not any(path.exists() for path in self.places.cursors)

    def load_cursor(self, target: Target, *, again: bool = False) -> None:
        """Take the cursor, if it is of this log and target. With `again` it keeps no more than where the lines go."""
        cursor, _ = load(self.places.cursors)
        if cursor is None:
            return
        self.elsewhere = cursor.elsewhere or cursor.target != target
        if matches(cursor, self.head.path, target):
            return
        if again:
            cursor.start_again()
        self.cursor = cursor
        self.rows_before = cursor.sent.history

    def is_done(self) -> bool:
        """Whether the cursor says that all is at the server and neither the log nor a file has changed since."""
        cursor = self.cursor
        if cursor is None or not cursor.complete or cursor.size != self.head.size:
            return False
        root = self.head.path.parent / "files"
        for name, mark in cursor.files.items():
            if mark.mtime_ns == 0:  # made from the log
                continue
            try:
                status = (root / name).stat()
            except FileNotFoundError:
                if mark.told and len(cursor.kin) <= 1:  # else it may lie beside another log of the run
                    continue  # the server has it
                return False
            except OSError:
                return False
            if (status.st_size, status.st_mtime_ns) != (mark.size, mark.mtime_ns):
                return False
        return True
