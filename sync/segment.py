"""One log of a run on its way to the server."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from ..logformat.stitch import Opening, opening_of
from .cursor import Cursor, FileMark, Target, load, matches
from .places import Places
from .placing import Place
from .plan import LogHead
from .scan import Facts

OUTGROWN = "it was marked as synced by another tool and has changed since, so it was compared with the server"


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
        """Whether the peer's marker is there, not older than the log, and no cursor of ours says what it stands for."""
        return self._is_foreign_marked() and not self.places.is_outgrown()

    def _is_foreign_marked(self) -> bool:
        return self.places.marker.exists() and not any(path.exists() for path in self.places.cursors)

    def doubt_marker(self) -> None:
        """Take a note if the log has grown since another tool marked it as synced."""
        if self.cursor is None and self._is_foreign_marked() and self.places.is_outgrown():
            self.notes.append(OUTGROWN)

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

    def is_sent(self) -> bool:
        """Whether the cursor says that all of it is at the server, and the log has not changed since."""
        return self.cursor is not None and self.cursor.complete and self.cursor.size == self.head.size


def is_done(segments: Sequence[Segment]) -> bool:
    """Whether the cursors say that all of a run, given by all of its logs here, is at the server, and no file has changed since."""
    if not all(segment.is_sent() for segment in segments):
        return False
    here = {segment.head.start_ns for segment in segments}
    if any(segment.position.console_waits and here.issuperset(segment.position.kin) for segment in segments):
        return False
    roots = [segment.head.path.parent / "files" for segment in reversed(segments)]
    marks: dict[str, FileMark] = {}
    for segment in segments:
        marks.update(segment.position.files)
    may_lie_elsewhere = any(len(segment.position.kin) > len(segments) for segment in segments)
    return all(
        mark.is_made or _is_there(name, mark, roots, or_gone=mark.told and not may_lie_elsewhere)
        for name, mark in marks.items()
    )


def _is_there(name: str, mark: FileMark, roots: Iterable[Path], *, or_gone: bool) -> bool:
    """Whether a file lies below one of `roots` as it was sent; `or_gone`: or nothing of its name does any more."""
    for root in roots:
        try:
            status = (root / name).stat()
        except FileNotFoundError:
            continue
        except OSError:
            return False
        if mark.is_of(status):
            return True
        or_gone = False
    return or_gone
