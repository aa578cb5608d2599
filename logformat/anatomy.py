"""Records with the chunks that they lie in, for who looks at how a log is written."""

from __future__ import annotations

from typing import Any, NamedTuple

from .constants import CHUNK_HEADER_SIZE, ChunkType
from .heal import Healed
from .look import TRAILER, Look, Window
from .reader import LogReader
from .record import Record


class Part(NamedTuple):
    """A chunk of a record."""

    offset: int
    length: int
    """Bytes of payload."""
    kind: ChunkType
    healed: tuple[Healed, ...] = ()


class AnatomyReader(LogReader):
    """A reader that is asked for the parts of the records that it gives: `parts_of`, of each one as it comes."""

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        self._noted: dict[int, Part] = {}  # those that are no whole record by themselves, or were mended

    def _look(self, window: Window, at: int, edge: int) -> Look:
        look = super()._look(window, at, edge)
        if look.end is not None and look.reason is None and look.kind != TRAILER and look.kind in _KINDS:
            offset = window.base + at
            self._noted[offset] = Part(offset, look.end - at - CHUNK_HEADER_SIZE, ChunkType(look.kind), look.mended)
        return look

    def parts_of(self, record: Record) -> tuple[Part, ...]:
        """The chunks of a record that was just given."""
        found = tuple(part for offset, part in sorted(self._noted.items()) if record.offset <= offset < record.end)
        for offset in [offset for offset in self._noted if offset < record.end]:
            del self._noted[offset]
        return found or (Part(record.offset, len(record.payload), ChunkType.FULL),)


_KINDS = frozenset(ChunkType)


def shape_of(parts: tuple[Part, ...]) -> str:
    """The types of a record's chunks in their order: `FULL`, `FIRST+LAST`, `FIRST+MIDDLE*3+LAST`."""
    names = [part.kind.name for part in parts]
    middle = names.count("MIDDLE")
    if middle < 2:
        return "+".join(names)
    return f"{names[0]}+MIDDLE*{middle}+{names[-1]}"
