"""The artifacts in the cursor of one log: which the server knows of, and how far each has come there."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Any

from .cursor import ArtifactMark

if TYPE_CHECKING:
    from .segment import Segment

_MARKS_PER_SAVE = 64  # a cursor of 640 artifacts is saved with every tenth change: it is a file of their number


def keyed(records: Iterable[Any]) -> Iterator[tuple[str, Any]]:
    """Each record with what identifies it in its log: the client id, and a number if several have the same."""
    seen: dict[str, int] = {}
    for record in records:
        key = record.client_id or f"{record.name}@{record.digest}"
        seen[key] = seen.get(key, 0) + 1
        yield (key if seen[key] == 1 else f"{key}#{seen[key]}"), record


class Journal:
    """The marks of one log. What was not saved when a process is killed is asked anew, and finds the same artifact."""

    def __init__(self, segment: Segment) -> None:
        self._segment = segment
        self._unsaved = 0

    @property
    def marks(self) -> dict[str, ArtifactMark]:
        """By what `keyed` calls them."""
        return self._segment.position.artifacts

    @property
    def elsewhere(self) -> bool:
        """The log was sent to another place before this one: its client ids may be taken."""
        return self._segment.position.elsewhere

    def note(self, key: str, mark: ArtifactMark) -> None:
        """Remember how far an artifact came.

        Raises:
            OSError: the cursor cannot be written.
        """
        self.marks[key] = mark
        self._unsaved += 1
        if self._unsaved > len(self.marks) // _MARKS_PER_SAVE:
            self.close()

    def forget(self, key: str) -> None:
        """The server knows nothing of it any more."""
        self.marks.pop(key, None)

    def close(self) -> None:
        """Save what is not saved yet.

        Raises:
            OSError: the cursor cannot be written.
        """
        if self._unsaved:
            cursor = self._segment.position
            cursor.complete = False
            cursor.save(self._segment.places.cursor)
            self._unsaved = 0
