"""The second reading of a log: its rows, samples and console lines on their way to the server.

Lines are numbered as the log has them, counted from the segment's base; those that the cursor knows as acknowledged are
passed over. The cursor is saved after each acknowledgement, so a kill at any moment costs one body at most, and that one is
written to the same lines again.
"""

from __future__ import annotations

import contextlib
import errno
import hashlib
from bisect import bisect_right
from collections.abc import Callable, Iterator
from concurrent.futures import Executor, Future
from dataclasses import dataclass, field
from itertools import accumulate
from pathlib import Path
from typing import BinaryIO

from ..logformat import Batch, LogReader, Record, RunState, WireError, decode_history
from ..logformat.plainrows import in_blocks
from ..logformat.steps import ALL_STEPS
from .api import Api, RemoteRun
from .body import Body
from .cursor import Cursor, Lines, prefix_hash, row_mark
from .errors import Permanent, TooLarge
from .here import HERE
from .lines import Console, Row, Rows, console_text, event_line
from .onereading import OneReading
from .plainrows import LineBlock, LineRows
from .region import Region
from .rowfold import RowFold
from .runfiles import ConsoleFile
from .scan import Facts, good_records

_SMALLEST_BODY = 64 * 1024
_LINES = Console.KINDS | {"history", "stats"}  # kinds of records that become lines
_FOLDED = _LINES | {"summary"}


@dataclass
class LastWord:
    """What goes with the last lines of a run: its summary line (None: as it was), and whether it was about to be preempted."""

    summary: Callable[[], str | None] = lambda: None
    """Asked when all rows are read."""
    preempting: Callable[[], bool] = lambda: False
    """Asked then too."""


@dataclass
class _Posted:
    """A body on its way, and what the cursor says once it is acknowledged."""

    done: Future[list[str]]
    lines: Lines
    summary: str | None
    dropped: list[str]
    offset: int
    last_row: str | None
    """Its last row's line."""


@dataclass
class LanePoint:
    """Where the second reading of a log stopped: behind its last whole record, the row there still open."""

    rows: Rows
    console: Console
    seen: Lines
    row_records: int
    end: int
    shifts: tuple[int, float]
    """Of steps and runtimes."""


@dataclass
class RowLane:
    """Sends the lines of one segment. `advance` is told of each acknowledgement, after the cursor was saved."""

    api: Api
    run: RemoteRun
    facts: Facts
    cursor: Cursor
    cursor_path: Path
    body_bytes: int
    structured: bool
    console_file: ConsoleFile
    pool: Executor
    advance: Callable[[], None]
    state: RunState | None = None
    """Where the rows are folded, if the scan has not done it."""
    fitting: Callable[[int], int] = lambda most: most
    """How large a body should be for the line to the server, at most as large as given."""
    point: LanePoint | None = None
    """Where to begin if the cursor is there, else at the log's start; then where it stopped."""
    reading: OneReading | None = None
    """What gives the records, if this is the first time that the log is read; it has just begun then, with the cursor."""
    _full: int = 0
    """Bytes at which the body that is being gathered is sent."""
    _dropped: list[str] = field(default_factory=list)
    """Values left out since the last body was posted."""
    _body: Body = field(default_factory=lambda: Body(0, 0, 0))
    """The one that is being gathered."""
    _in_flight: _Posted | None = None
    """One body is on its way while the next one is gathered; never two, so that a kill costs one."""
    _file: BinaryIO = field(init=False)
    _rows: Rows = field(init=False)
    _plain: LineRows = field(init=False)
    _console: Console = field(init=False)
    _fold: RowFold | None = None
    _offset: int = 0
    """Everything before it was taken."""
    _sent: Lines = field(default_factory=Lines)
    """Lines that were acknowledged when this began."""
    _seen: Lines = field(default_factory=Lines)
    """Lines of the log so far."""
    _row_records: int = 0
    _resumed_at: int = 0
    """The cursor's offset when this began."""
    _queued: Lines = field(default_factory=Lines)
    """Lines acknowledged or on their way."""

    def send(self, last: LastWord) -> None:
        """Send everything that the cursor does not know of, and `last` with the last of it.

        Raises:
            SyncError: a body did not get through.
            OSError: the log cannot be read, or the cursor cannot be written.
        """
        self._queued = self.cursor.sent
        reading = self.reading
        with contextlib.nullcontext(reading.file) if reading else self.facts.log.open("rb", buffering=0) as file:
            try:
                self._gather(file, last)
            finally:
                if self._in_flight is not None:  # nothing may be under way when the lock is given back
                    self._in_flight.done.exception()

    def _gather(self, file: BinaryIO, last: LastWord) -> None:
        """Read the log and post body after body."""
        facts = self.facts
        self._file, self._sent = file, self.cursor.sent
        shifts = (self.cursor.step_shift, facts.runtime_shift)
        begin = self.point
        if begin is None or (begin.shifts, begin.end) != (shifts, self.cursor.offset):
            rows = Rows(shifts[0], facts.steps, shifts[1])
            begin = LanePoint(rows, Console(facts.start_ns), Lines(), 0, 0, shifts)
        self._rows, self._console, self._seen = begin.rows, begin.console, begin.seen
        self._plain = LineRows(self.cursor.step_shift, folds=self.state is not None)
        self._dropped = self._rows.dropped
        self._fold = RowFold(self.state) if self.state is not None else None
        self._row_records, self._resumed_at = begin.row_records, self.cursor.offset
        self._body, self._offset = self._new_body(), self.cursor.offset
        for batch in self._batches(begin.end):
            self._take(batch)
        if self._fold is not None:
            self._fold.flush()
        self.point = LanePoint(self._rows, self._console, self._seen + Lines(), self._row_records, facts.end, shifts)
        row = self._rows.latest
        last_line = self._finished(row)
        seen = self._seen
        if self._fold is not None:
            facts.lines.history = seen.history  # which the first reading has only guessed
        if self.reading is not None:
            facts.row_records = self._row_records
        if (self._row_records, seen.history, seen.events) != (
            facts.row_records,
            facts.lines.history,
            facts.lines.events,
        ):
            raise OSError(errno.EIO, "the log changed while it was read")
        if row is not None:
            for text in last_line:  # if it has no room, what goes before it must not pass for the whole log
                self._put("history", text, row.begin)
        body = self._body
        rest = self._console.rest()
        for line in rest:
            self.console_file.add(line.text)
        body.console += [console_text(line, structured=self.structured) for line in rest]
        body.summary, body.preempting = last.summary(), last.preempting()
        if body.lines or body.summary is not None:
            self._post(body, facts.end, unfinished=len(rest), pool=HERE)  # nothing is left to be gathered meanwhile
        self._settle()
        if self.cursor.offset != facts.end:  # records without lines stand last
            self._save(facts.end)

    def _batches(self, start: int) -> Iterator[Batch | Region]:
        """The batches from `start` up to the end of what is known of the log."""
        if self.reading is not None:
            if not self.cursor.step_shift:
                self.reading.begin_block = self.begin_block
            for batch in self.reading:
                yield batch
                self.facts.lines.history = self._seen.history
            return
        for found in LogReader(self._file, start=start).batches():
            if isinstance(found, Batch):
                yield found
                if found.end >= self.facts.end:
                    return

    def _take(self, batch: Batch | Region) -> None:
        """Take the records of a batch in their order, rows in blocks where they allow it."""
        if isinstance(batch, Region):
            for item in batch.items:
                if isinstance(item, LineBlock):
                    self.take_block(item)
                else:
                    self.take_record(item)
            return
        end = self.facts.end
        kinds = _LINES if self._fold is None else _FOLDED
        entries = [entry for entry in batch.entries if entry[0] in kinds]
        if batch.end > end:  # it has grown since the first reading
            entries = [entry for entry in entries if batch.base + entry[4] < end]
        in_blocks(batch, entries, self._plain, self)

    def begin_block(self) -> tuple[bytes | None, bytes] | None:
        """See `Taker`."""
        if self.facts.steps != ALL_STEPS or self.facts.runtime_shift or (self._fold is not None and self._fold.waits):
            return None
        row = self._rows.latest
        return row.step if row is not None else None, self.state.summary_step if self.state else b""

    def take_block(self, block: LineBlock) -> None:
        """Take a block of plain rows: all but the last of them are whole."""
        if self._fold is not None and self.state is not None:
            self._fold.flush()
            self.state.add_block(block)
        for text in self._finished(self._rows.latest):
            self._put("history", text, block.offsets[0])
        self._rows.take(Row(*block.last))
        self._row_records += len(block.offsets)
        lines, offsets = block.text.split("\n")[:-1], block.offsets[1:]
        passed = min(max(0, self._sent.history - self._seen.history), len(lines))
        self._seen.history += len(lines)
        self._put_rows(lines[passed:], offsets[passed:])
        self._offset = block.offsets[-1]

    def _put_rows(self, lines: list[str], offsets: list[int]) -> None:
        """As `_put`, for one row after the other, each with its offset."""
        begun = 0
        sizes = list(map(len if all(map(str.isascii, lines)) else _size, lines))
        while begun < len(lines):
            room = self._full - self._body.size
            upto = list(accumulate(sizes[begun:]))
            count = bisect_right(upto, room)
            if count == 0 and self._body.size == 0:
                count = 1
            if count:
                self._body.history += lines[begun : begun + count]
                self._body.size += upto[count - 1]
                begun += count
            if begun < len(lines):
                self._post(self._body, offsets[begun])
                self._body = self._new_body()

    def take_record(self, record: Record) -> None:
        """Take one record the long way."""
        texts = self._row(record) if record.kind == "history" else self._others(record)
        for text in texts:
            self._put(record.kind, text, self._offset)
        self._offset = record.end

    def _put(self, kind: str, text: str, offset: int) -> None:
        """Add a line to the body; one that has no room for it is posted first, as all that there is before `offset`."""
        size = _size(text)
        if self._body.size and self._body.size + size > self._full:
            self._post(self._body, offset)
            self._body = self._new_body()
        body = self._body
        lines = body.history if kind == "history" else body.events if kind == "stats" else body.console
        lines.append(text)
        body.size += size

    def _others(self, record: Record) -> list[str]:
        """The lines of a record that is no row, as far as they are to be sent; all are counted.

        A damaged record has none.
        """
        seen, sent = self._seen, self._sent
        try:
            if record.kind == "summary" and self._fold is not None:
                self._fold.summary(record)
                return []
            if record.kind == "stats":
                fresh = seen.events >= sent.events
                dropped = self._dropped if fresh else []
                line = event_line(record, self.facts.start_ns, dropped, self.facts.runtime_offset)
                seen.events += 1
                return [line] if fresh else []
            if record.kind in Console.KINDS:
                lines = self._console.feed(record)
                for line_ in lines:
                    self.console_file.add(line_.text)
                new = lines[max(0, min(len(lines), sent.console - seen.console)) :]
                seen.console += len(lines)
                return [console_text(line_, structured=self.structured) for line_ in new]
        except WireError:
            return []
        return []

    def _row(self, record: Record) -> list[str]:
        """The line of the row before this one, if it is to be sent: now it is whole."""
        self._row_records += 1
        body = record.body
        try:
            paths, values = decode_history(body)
        except WireError:
            if self.state is not None:
                self.state.add(record)  # which notes the gap
            return []
        whole = self._rows.add(paths, values, record.offset)
        if self._fold is not None and self._rows.kept:
            self._fold.row(paths, values, body)
        return self._finished(whole)

    def _finished(self, row: Row | None) -> list[str]:
        """The line of a row to which no part comes any more, if it is to be sent."""
        if row is None:
            return []
        self._seen.history += 1
        if self._seen.history == self._sent.history and row.parts > 1 and row.latest >= self._resumed_at:
            self._take_back()
        elif self._seen.history <= self._sent.history:
            return []
        return [self._rows.line(row)]

    def _take_back(self) -> None:
        """The last row that was acknowledged has got a further part: its line is written again, where it is."""
        one = Lines(history=-1)
        self.cursor.sent, self._queued = self.cursor.sent + one, self._queued + one
        self._body.history_offset -= 1

    def _new_body(self) -> Body:
        base, queued = self.cursor.base, self._queued
        self._full = self.fitting(self.body_bytes)
        return Body(base.history + queued.history, base.events + queued.events, base.console + queued.console)

    def _post(self, body: Body, offset: int, *, unfinished: int = 0, pool: Executor | None = None) -> None:
        """Post a body that holds everything before `offset` but the row that is open there, once the one before is acknowledged.

        `unfinished` console lines at its end may still change, so they are not counted as sent.
        """
        self._settle()
        lines = Lines(len(body.history), len(body.events), len(body.console) - unfinished)
        self._queued = self._queued + lines
        done = (pool or self.pool).submit(self._post_in_parts, body)
        last_row = body.history[-1] if body.history else None
        self._in_flight = _Posted(done, lines, body.summary, list(self._dropped), offset, last_row)
        self._dropped.clear()

    def _settle(self) -> None:
        """Wait for the body on its way, and note its acknowledgement in the cursor."""
        posted = self._in_flight
        if posted is None:
            return
        left_out = posted.done.result()
        self._in_flight = None
        self.cursor.sent = self.cursor.sent + posted.lines
        self.cursor.dropped = list(dict.fromkeys([*self.cursor.dropped, *posted.dropped, *left_out]))
        if posted.last_row is not None:
            self.cursor.last_row = row_mark(posted.last_row)
        if posted.summary is not None:
            self.cursor.summary = summary_hash(posted.summary)
        self._save(posted.offset)
        self.advance()

    def _post_in_parts(self, body: Body) -> list[str]:
        """Post a body whole, or in halves of halves if the server takes none of its size; what had to be left out."""
        left_out: list[str] = []
        while True:
            try:
                self.api.stream(self.run, body.encode(), divisible=body.lines > 1)
            except TooLarge as error:
                halves = body.split()
                if halves is not None:
                    self.body_bytes = max(_SMALLEST_BODY, min(self.body_bytes, body.size // 2))
                    self._full = min(self._full, self.body_bytes)
                    for half in halves:
                        half.size = body.size // 2
                        left_out += self._post_in_parts(half)
                    return left_out
                name = body.leave_out()
                if name is None:
                    raise Permanent(f"the server takes no line, however short: {error}", status=413) from error
                left_out.append(name)
            else:
                return left_out

    def _save(self, offset: int) -> None:
        self.cursor.offset = offset
        if self.reading is not None:
            self.cursor.gaps = self.facts.gaps()
        self.cursor.prefix = prefix_hash(self._file, offset)
        self.cursor.save(self.cursor_path)


def gather_console(facts: Facts, console_file: ConsoleFile) -> None:
    """The console's text alone, for a sync that has files to send but no lines.

    Raises:
        OSError: the log cannot be read.
    """
    console = Console(facts.start_ns)
    with facts.log.open("rb", buffering=0) as file:
        for record in good_records(file):
            if record.offset >= facts.end:
                break
            if record.kind in Console.KINDS:
                with contextlib.suppress(WireError):
                    for line in console.feed(record):
                        console_file.add(line.text)
    for line in console.rest():
        console_file.add(line.text)


def summary_hash(line: str) -> str:
    """What the cursor keeps of a summary line."""
    return hashlib.sha256(line.encode()).hexdigest()


def _size(text: str) -> int:
    """Bytes of a line as UTF-8."""
    return len(text) if text.isascii() else len(text.encode())
