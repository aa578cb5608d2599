"""Logs that were damaged after they were sent: what is lost was acknowledged, so the lines behind it keep their numbers.

Line numbers are counted by reading. Of a log that has lost rows before the cursor's offset they would be counted too low: as many
new rows would be taken for rows that are at the server.
"""

from __future__ import annotations

import contextlib

from ..logformat import Record, WireError, decode_history
from .cursor import Lines, row_mark
from .lines import Console, Rows
from .rowlane import LanePoint
from .scan import good_records
from .segment import Segment


def recount(segment: Segment) -> LanePoint | None:
    """Where to go on in a log that has lost something since it was sent, with lines numbered as they were when it was whole.

    What is lost is noted in the cursor and counted among the log's lines, for the server has it. None for all other logs.

    Raises:
        OSError: the log cannot be read.
    """
    cursor, facts = segment.cursor, segment.found
    if cursor is None or cursor.lost_less(facts.gaps()):
        return None
    is_new = any(gap[1] <= cursor.offset for gap in set(facts.gaps()) - set(cursor.gaps))
    if not (is_new or cursor.gone != Lines()):
        return None
    prefix = _Prefix(segment, cursor.offset)
    if is_new:
        cursor.gone = prefix.lacks(cursor.sent, cursor.last_row)
    if cursor.gone == Lines():
        return None
    facts.lines = facts.lines + cursor.gone
    shifts = (cursor.step_shift, facts.runtime_shift)
    return LanePoint(prefix.rows, prefix.console, prefix.seen + cursor.gone, prefix.row_records, cursor.offset, shifts)


class _Prefix:
    """What can be read of a log before an offset. The row and the console lines that are open there are not counted."""

    def __init__(self, segment: Segment, end: int) -> None:
        facts = segment.found
        self.rows = Rows(segment.placed.step_shift, facts.steps, facts.runtime_shift)
        self.console = Console(facts.start_ns)
        self.seen = Lines()
        self.row_records = 0
        with segment.head.path.open("rb", buffering=0) as file:
            for record in good_records(file):
                if record.offset >= end:
                    break
                with contextlib.suppress(WireError):
                    self._take(record)

    def _take(self, record: Record) -> None:
        if record.kind == "history":
            self.row_records += 1
            paths, values = decode_history(record.body)
            self.seen.history += self.rows.add(paths, values, record.offset) is not None
        elif record.kind == "stats":
            record.message()
            self.seen.events += 1
        elif record.kind in Console.KINDS:
            self.seen.console += len(self.console.feed(record))

    def lacks(self, sent: Lines, last_row: str) -> Lines:
        """How many of the lines that were acknowledged are not there any more. The open row may be the last one of them."""
        row = self.rows.latest
        is_sent = row is not None and row_mark(self.rows.line(row)) == last_row
        return Lines(
            max(0, sent.history - is_sent - self.seen.history),
            max(0, sent.events - self.seen.events),
            max(0, sent.console - self.seen.console),
        )
