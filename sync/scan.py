"""The first reading of a log: what it holds, before anything of it is sent.

Rows are counted and folded, never kept, so a log of any size takes the same memory. The second reading (`replay`) ends
where this one ended, whatever has been appended meanwhile.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, BinaryIO, TypeVar

from ..logformat import Batch, Gap, GapReason, LogReader, Record, RunState, WireError
from ..logformat.bulk import FoldBlock, FoldRows, fold_in_blocks
from ..logformat.heal import Healed
from ..logformat.record import Entry
from ..logformat.runstate import Alert
from ..logformat.steps import ALL_STEPS, Steps
from .ahead import Ahead, batches
from .cursor import Lines
from .lines import Console
from .region import Region
from .report import counted, shorten

_Found = TypeVar("_Found", bound=Batch | Gap | Region)

_ROWS = {"history", "summary"}  # kinds of records that rows are made of
_DIVIDING = {"header", "run"}  # what stands before rows; between them it may begin another count of steps
_PAGE = 4096  # bytes; a write that is in flight shows up in whole pages
_TAIL = 4  # bytes: rows end with their step's number, so those of different steps rarely end alike
_STEP_0 = b"\x12\x00"  # how a row of step 0 ends
_STEP_KEY = b"\x05_step\x82\x01"  # what stands before the size and the text of a row's step


@dataclass
class Facts:
    """What one log holds."""

    log: Path
    start_ns: int = 0
    end: int = 0
    """Offset behind the last whole record."""
    size: int = 0
    lines: Lines = field(default_factory=Lines)
    """Lines of each stream; the console's with what stands behind its last newline."""
    row_records: int = 0
    """History records: each is a row or a part of one, or was not understood."""
    parts: int = 0
    """Those that are further parts of a row."""
    last_step: int | None = None
    highest_step: int | None = None
    runtime_before: float = 0.0
    """Seconds that the logs before this one took."""
    runtime_offset: float = 0.0
    """Seconds that the run had taken when this log began."""
    runtime_shift: float = 0.0
    """Seconds that the `_runtime`s of its rows lack."""
    exit_code: int | None = None
    preempting: bool = False
    files: dict[str, str] = field(default_factory=dict)
    """Recorded paths below `files/`, not to be trusted."""
    artifacts: list[Any] = field(default_factory=list)
    """ArtifactRecords."""
    used_artifacts: list[Any] = field(default_factory=list)
    """UseArtifactRecords."""
    alerts: list[Alert] = field(default_factory=list)
    damage: list[Gap] = field(default_factory=list)
    """Gaps where records were lost."""
    unfinished: bool = False
    """The log ends in a record that is being written."""
    healed: list[Healed] = field(default_factory=list)
    """Bits that the file has wrong, and that were mended in memory."""
    header_version: int | None = 0
    """By the file header; None if that is damaged."""
    steps: Steps = ALL_STEPS
    """Rows of other steps are left out of everything above but `row_records`."""
    cut: int = 0
    """Rows left out so."""

    @property
    def kept_steps(self) -> Steps:
        """`steps`, if they left something out: bounds behind which nothing lies are none."""
        return self.steps if self.cut else ALL_STEPS

    def gaps(self) -> list[tuple[int, int]]:
        """Where the damage lies: first offset, and the one behind."""
        return [(gap.offset, gap.end) for gap in self.damage]

    def damage_lines(self) -> list[str]:
        """Each gap in a few words."""
        lines = []
        for gap in self.damage:
            lost = "" if gap.records_lost is None else f", {counted(gap.records_lost, 'record')}"
            lines.append(f"bytes {gap.offset}-{gap.end} ({gap.reason.value}{lost})")
        return lines

    def healed_words(self) -> str:
        """Which bits are wrong in the file; empty if none is known to be."""
        if not self.healed:
            return ""
        bits = shorten([f"bit {bit.bit} of byte {bit.offset}" for bit in self.healed])
        return f"{counted(len(self.healed), 'flipped bit')} healed in memory: {bits}"


class NeedsFold(Exception):  # noqa: N818 - a verdict on the log, not an error
    """The log defines metrics among its rows, or its summary records replace what rows left: its rows cannot be folded later."""


def scan(
    log: Path, state: RunState, *, start_ns: int, young: bool, fold_rows: bool = True, steps: Steps = ALL_STEPS
) -> Facts:
    """Read a log once: see `Scan`."""
    return Scan(log, state, start_ns=start_ns, fold_rows=fold_rows, steps=steps).read(young=young)


class Scan:
    """The first reading of one log, which goes on where it stopped once the log has grown."""

    def __init__(
        self, log: Path, state: RunState, *, start_ns: int, fold_rows: bool = True, steps: Steps = ALL_STEPS
    ) -> None:
        """Nothing is read yet.

        Without `fold_rows`, rows and summary records are left to the second reading, and rows are counted with no more
        than a glance at their steps: for logs of which everything is going to be sent. The second reading has the last
        word on how many there are.

        Rows outside of `steps` are neither counted nor folded, and no line is theirs: `Facts.cut` tells how many they
        were, and their summary records say nothing. The second reading leaves them out too.

        Args:
            log: the log.
            state: what it is folded into; may hold earlier segments of the run, and may take in no other log before this
                one was read for the last time.
            start_ns: the run's start.
            fold_rows: see above.
            steps: see above; all of them without `fold_rows`.
        """
        self._log, self._state, self._folds_rows, self._start_ns, self._steps = log, state, fold_rows, start_ns, steps
        self._console = Console(start_ns)
        self._reader: LogReader | None = None
        self._end = self._row_records = self._console_lines = 0
        self._guess = _Guess()
        self._plain = FoldRows(state)
        self._rows_before, self._parts_before, self._cut_before = state.row_count, state.part_count, state.cut_count
        self._samples_before, self._gaps_before = state.sample_count, len(state.gaps)
        self._lists_before = len(state.artifacts), len(state.used_artifacts), len(state.alerts)
        self._files_before, self._files = state.files, dict[str, str]()
        state.exit_code, state.last_step, state.highest_step, state.preempting = None, None, None, False
        state.begin_log(steps)

    def read(self, *, young: bool) -> Facts:
        """What the log holds by now. `young` says that its writer may still be alive.

        Raises:
            OSError: the log cannot be read.
            NeedsFold: the log has to be scanned with `fold_rows`, into a fresh state.
        """
        self._state.files = self._files
        with self._log.open("rb", buffering=0) as file:
            if self._reader is None:
                self._reader = LogReader(file)
            else:
                self._reader.go_on(file)
            self._take(self._reader, young=young)
            return self.end(file, Facts(self._log), young=young)

    def stream(
        self,
        file: BinaryIO,
        ahead: Ahead | None = None,
        rows: Callable[[], tuple[bytes | None, bytes] | None] = lambda: None,
        *,
        young: bool,
    ) -> Iterator[Batch | Region]:
        """As `read` for the first time without `fold_rows`, batch by batch: each is given on once it was taken in.

        Rows are not even counted. What was read is judged by `end`. See `ahead.batches` for regions.

        Raises:
            OSError: the log cannot be read.
            NeedsFold: as `read`; also for a run record behind rows, which divides them.
        """
        self._state.files = self._files
        self._reader = LogReader(file)
        has_rows = False
        for found in self._to_the_end(self._reader, batches(self._reader, ahead, rows), young=young):
            if isinstance(found, Gap):
                self._state.add(found)
                continue
            self._end = found.end
            if isinstance(found, Region):
                for item in found.items:
                    if isinstance(item, Record):
                        self.take_record(item)
                yield found
                continue
            others = [entry for entry in found.entries if entry[0] not in _ROWS]
            for entry in others:
                if has_rows and entry[0] in _DIVIDING:
                    raise NeedsFold(str(self._log))
                self.take_record(found.record_of(entry))
            has_rows = has_rows or len(others) < len(found.entries)
            yield found

    @property
    def knows_run(self) -> bool:
        """Whether a run record was read."""
        return self._state.has_run

    def gaps(self) -> list[Gap]:
        """What could not be read, up to now."""
        return self._state.gaps[self._gaps_before :]

    def end(self, file: BinaryIO, facts: Facts, *, young: bool) -> Facts:
        """Put into `facts` what was read, now that there is no more."""
        state, reader = self._state, self._reader
        if reader is None:
            raise RuntimeError("the log was not read yet")
        tail = reader.rest()
        size = max(reader.position, reader.seen)
        grown = os.fstat(file.fileno()).st_size > size
        self._files, state.files = state.files, {**self._files_before, **state.files}
        self.so_far(facts)
        facts.size, facts.healed, facts.header_version = size, list(reader.healed), reader.header_version
        gaps = self.gaps()
        _judge_gaps(facts, gaps if tail is None else [*gaps, tail], young=young, grown=grown)
        return facts

    def _to_the_end(self, reader: LogReader, found: Iterator[_Found], *, young: bool) -> Iterator[_Found | Batch | Gap]:
        """What was found, and then what stands behind damage near the end of a log that nobody writes any more.

        Of a log that grows, only the block's next bytes tell how much of it is damaged. No such reading is kept for a next pass.
        """
        yield from found
        if reader.rest() is not None and (not young or self._state.exit_code is not None):
            yield from reader.batches()

    def _take(self, reader: LogReader, *, young: bool) -> None:
        """Take in what came since the last time."""
        for batch in self._to_the_end(reader, reader.poll_batches(), young=young):
            if isinstance(batch, Gap):
                self._state.add(batch)
                continue
            self._end = batch.end
            if self._steps != ALL_STEPS:
                for record in batch.records():
                    self.take_record(record)
            else:
                entries = batch.entries if self._folds_rows else self._guess.others(batch.entries)
                fold_in_blocks(batch, entries, self._plain, self)
        if not self._folds_rows:
            self._row_records = self._guess.rows

    def begin_block(self) -> tuple[bytes | None, bytes] | None:
        """See `Taker`."""
        state = self._state
        return (state.row_step, state.summary_step) if state.takes_blocks else None

    def take_block(self, block: FoldBlock) -> None:
        """Fold a block of plain rows."""
        self._state.add_block(block, block.defined, is_spoken_for=block.is_spoken_for)
        self._row_records += len(block.offsets)

    def take_record(self, record: Record) -> None:
        """Take in one record."""
        kind, body = record.kind, record.body
        if kind == "history":
            self._row_records += 1
        if self._folds_rows or kind not in ("history", "summary"):
            self._state.add(record)
        elif kind == "history":
            self._guess.add(body)
        if kind in Console.KINDS:
            self._console_lines += _count_console(self._console, record)
        elif kind in ("metric", "run") and not self._folds_rows and not self._may_fold_later():
            raise NeedsFold(str(self._log))

    def _may_fold_later(self) -> bool:
        """Whether rows leave the same in the summary if most of them are passed over."""
        return not (self._state.folds_metrics or self._state.replaces_summary)

    def so_far(self, facts: Facts) -> Facts:
        """Put into `facts` what was read up to now."""
        state = self._state
        artifacts, used_artifacts, alerts = self._lists_before
        facts.start_ns, facts.end = self._start_ns, self._end
        facts.lines = Lines(
            state.row_count - self._rows_before + self._guess.rows - self._guess.parts,
            state.sample_count - self._samples_before,
            self._console_lines + len(self._console.rest()),
        )
        facts.row_records = self._row_records
        facts.parts = self._guess.parts + state.part_count - self._parts_before
        facts.last_step, facts.highest_step = state.last_step, state.highest_step
        elapsed = state.elapsed
        facts.runtime_before, facts.runtime_offset, facts.runtime_shift = elapsed.before, elapsed.offset, elapsed.shift
        facts.exit_code, facts.preempting = state.exit_code, state.preempting
        facts.files = dict(self._files)
        facts.artifacts, facts.used_artifacts = state.artifacts[artifacts:], state.used_artifacts[used_artifacts:]
        facts.alerts = state.alerts[alerts:]
        facts.damage, facts.unfinished = [], False
        facts.steps, facts.cut = self._steps, state.cut_count - self._cut_before
        return facts


def _judge_gaps(facts: Facts, gaps: list[Gap], *, young: bool, grown: bool) -> None:
    """Tell damage from the end of a log that is still being written.

    A live log may end inside a record: the peer's writer flushes whole blocks, and a write in flight shows up page by
    page. So a torn end of a young log without exit record is unfinished if it lies on the edge of a page, or if the log
    has grown since; anywhere else the end of the log was cut off. Zeros behind an exit record are preallocated room.
    """
    for gap in gaps:
        if gap.end >= facts.size and gap.reason is GapReason.ZEROED and facts.exit_code is not None:
            continue
        if facts.exit_code is None and young and is_open_end(gap, facts.size, grown=grown):
            facts.unfinished = True
        else:
            facts.damage.append(gap)


def is_open_end(gap: Gap, size: int, *, grown: bool) -> bool:
    """Whether a gap in a log, of which `size` bytes were read, may be the end of one that is being written."""
    torn = gap.end >= size and gap.reason in (GapReason.TORN_TAIL, GapReason.ZEROED)
    return torn and (grown or size % _PAGE == 0)


def good_records(file: BinaryIO, start: int = 0) -> Iterator[Record]:
    """The records of an open log from offset `start` on, which lies behind one of them; gaps left out."""
    return (item for item in LogReader(file, start=start).finish() if isinstance(item, Record))


class _Guess:
    """Counts rows by no more than a glance at their steps."""

    def __init__(self) -> None:
        self.rows = 0
        """History records."""
        self.parts = 0
        """Those that look like further parts of a row."""
        self._before = b""

    def others(self, entries: list[Entry]) -> list[Entry]:
        """Count the rows; the records that are neither rows nor summaries."""
        rest: list[Entry] = []
        for entry in entries:
            kind, data, start, stop, _, _ = entry
            if kind == "history":
                self.add(data[start:stop])
            elif kind != "summary":
                rest.append(entry)
        return rest

    def add(self, body: bytes) -> None:
        """Count a history record."""
        self.rows += 1
        tail, before = body[-_TAIL:], self._before
        if before and (tail == before[-_TAIL:] or tail[-2:] == _STEP_0):
            self.parts += _glance(body) == _glance(before) != b""
        self._before = body


def _glance(body: bytes) -> bytes:
    """The text of a row's step as all writers have it, without decoding the row; empty where it is not found."""
    at = body.find(_STEP_KEY) + len(_STEP_KEY)
    if at < len(_STEP_KEY) or at >= len(body):
        return b""
    return body[at + 1 : at + 1 + body[at]]


def _count_console(console: Console, record: Record) -> int:
    try:
        return len(console.feed(record))
    except WireError:
        return 0
