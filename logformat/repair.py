"""A damaged log as a sound one, for readers that stop at damage: its intact records, framed and numbered anew.

Each record that can be read is kept as it is, but for its number: those mended in memory (`heal`) too, whose right bytes the
checksum proves. Nothing is made up. The peer's sync (0.31) sets the rest of the terms:

| in the log | in the repaired log |
|---|---|
| a gap | nothing |
| an empty record, a `request`, a type nobody knows, `noop_link_artifact`, samples without a time (or with none that exists), `tbrecord` | left out: its sync crashes on the first four, and on the last one if the folder that it names is there |
| a record that is no message | left out: its sync stops there |
| the first run record, behind other records than the header | also at the front: its sync drops what stands before |
| records that stand in the wrong place by their numbers, as sectors that were swapped | where they belong: its sync numbers rows anew whose steps go back |
| several exit records, or records behind one | the last exit record, at the end: its sync drops what stands behind one, and does not take two |

The log is read twice, and never written to.
"""

from __future__ import annotations

import os
from collections import Counter, deque
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, BinaryIO

from .anatomy import AnatomyReader, Part
from .constants import BLOCK_SIZE, CHUNK_HEADER_SIZE, FILE_HEADER
from .elapsed import LATEST_NS, nanoseconds, seconds_of
from .framing import Framer
from .heal import Healed
from .history import RUNTIME, TIMESTAMP, decode_history, place_of
from .losses import Loss, LossWatch
from .misplaced import Misplaced
from .record import NUM_TAG, Gap, GapReason, Record
from .sources import open_log
from .wire import VARINT, WireError, fields, set_flags, write_varint

_PIECE = 1 << 20  # bytes written at once
_CRASHES = {
    "empty": "holds nothing",
    "request": "is a message between processes",
    "noop_link_artifact": "says nothing",
    "unknown": "is of a type that this version does not know",
    "tbrecord": "names a TensorBoard folder, which would be read again",
}
"""Kinds that end the peer's sync, and why nothing is lost with them, or what is."""
_TIMED = frozenset({"stats", "output", "output_raw"})
_NO_TIME, _NO_MESSAGE = "samples or output without a time", "no message of its type"


@dataclass
class Findings:
    """What a log holds that decides how it is repaired."""

    end: int = 0
    """Offset behind what was read: a log that is being written may have grown since."""
    records: int = 0
    """Those that can be kept."""
    rows: int = 0
    run_id: str = ""
    run: bytes = b""
    """Payload of its first run record."""
    run_leads: bool = False
    """Nothing but a header stands before it."""
    exit_code: int | None = None
    exit: bytes = b""
    """Payload of its last exit record."""
    exits: int = 0
    exit_ends: bool = False
    """Nothing stands behind it."""
    start_ns: int = 0
    """When the run began by its record, or else by its first row or sample, nanoseconds since the epoch; 0 if none says so."""
    losses: list[Loss] = field(default_factory=list)
    healed: list[Healed] = field(default_factory=list)
    left_out: Counter[str] = field(default_factory=Counter)
    """Kind of record, or what is wrong with it -> how many of these are left out."""
    misplaced: list[tuple[int, int]] = field(default_factory=list)
    """First and last number of records that stand in the wrong place."""
    is_odd: bool = False
    """Chunks lie where other readers do not look for them: cores up to 0.17.5 counted blocks from behind the file header."""
    header_version: int | None = None

    @property
    def is_sound(self) -> bool:
        """Whether any reader takes it as it is: then there is nothing to repair."""
        is_whole = not (self.losses or self.healed or self.left_out or self.misplaced or self.is_odd)
        is_whole = is_whole and self.header_version == 0
        return is_whole and self.run_leads and (not self.exits or (self.exits == 1 and self.exit_ends))

    @property
    def note(self) -> str:
        """What the file is that is no log; empty if it is one."""
        if self.records or not self.losses:
            return ""
        gap = self.losses[0].gap
        return gap.note or ("it does not begin as a log does" if gap.reason is GapReason.BAD_HEADER else "")


def examine(source: str | os.PathLike[str] | BinaryIO) -> Findings:
    """Read a log to its end.

    Raises:
        OSError: it cannot be opened or read.
    """
    found, watch, order = Findings(), LossWatch(), Misplaced()
    for item in _items(source, found):
        found.losses += watch.add(item)
        found.end = max(found.end, item.end)
        if isinstance(item, Gap):
            continue
        message = _message(item, found)
        if message is None:
            continue
        found.records += 1
        order.add(item.num)
        found.exit_ends = item.kind == "exit"
        if item.kind == "history":
            found.rows += 1
            found.start_ns = found.start_ns or _start_of(item)
        elif item.kind == "stats":
            found.start_ns = found.start_ns or _valid(nanoseconds(message.timestamp))
        elif item.kind == "run" and not found.run:
            found.run, found.run_id = item.payload, message.run_id
            found.start_ns = _valid(nanoseconds(message.start_time)) or found.start_ns
            found.run_leads = found.records == 1 or (found.records == 2 and found.run_leads)
        elif item.kind == "exit":
            found.exits += 1
            found.exit, found.exit_code = item.payload, message.exit_code
        elif item.kind == "header" and found.records == 1:
            found.run_leads = True  # if the run record is the next one
    found.losses += watch.rest()
    found.misplaced = order.spans()
    found.run_leads = found.run_leads and bool(found.run)
    return found


def rewrite(
    source: str | os.PathLike[str] | BinaryIO,
    out: BinaryIO,
    found: Findings,
    *,
    run: Any = None,
    exit_code: int | None = None,
) -> int:
    """Write the repaired log of `source`, of which `found` was found, to `out`. Memory holds what is moved.

    Args:
        source: as for `examine`; what it has grown by since is left out, as the findings do not speak of it.
        out: a file to be written from its beginning.
        found: what `examine` gave.
        run: a RunRecord for a log that has none.
        exit_code: of a log without an exit record; None leaves it without one.

    Returns:
        How many records were written.

    Raises:
        OSError: `source` cannot be read, or `out` not be written.
    """
    sink = _Sink(out)
    for item in _ordered(source, found, run, exit_code):
        sink.add(item)
    sink.flush()
    return sink.count


def _ordered(source: str | os.PathLike[str] | BinaryIO, found: Findings, run: Any, code: int | None) -> Iterator[bytes]:
    """The payloads of the repaired log, each with the number that it had."""
    leading = found.run if not found.run_leads else b""
    if not found.run and run is not None:
        leading = _record(run=run)
    moved = deque(_moved(source, found))
    for item in _kept(source, found.end):
        if found.misplaced and _lies_in(found.misplaced, item.num):
            continue
        if leading and item.kind != "header":
            yield leading
            leading = b""
        while moved and moved[0][0] < item.num:
            yield moved.popleft()[1]
        yield item.payload
    yield from (payload for _, payload in moved)
    if leading:
        yield leading
    if found.exit:
        yield found.exit
    elif code is not None:
        yield _record(exit={"exit_code": code})


def _kept(source: str | os.PathLike[str] | BinaryIO, end: int) -> Iterator[Record]:
    """The records up to `end` that are kept, as they stand, but for those that end a run."""
    for item in _items(source, Findings()):
        if item.end > end:
            return
        if not isinstance(item, Gap) and item.kind != "exit" and _message(item, None) is not None:
            yield item


def _moved(source: str | os.PathLike[str] | BinaryIO, found: Findings) -> list[tuple[int, bytes]]:
    """Number and payload of the records that stand in the wrong place, in their order."""
    if not found.misplaced:
        return []
    return sorted((item.num, item.payload) for item in _kept(source, found.end) if _lies_in(found.misplaced, item.num))


def _lies_in(spans: list[tuple[int, int]], num: int) -> bool:
    return any(first <= num <= last for first, last in spans)


def _items(source: str | os.PathLike[str] | BinaryIO, found: Findings) -> Iterator[Record | Gap]:
    """All of a log; what its reader knows besides is put into `found`."""
    file = open_log(source)
    try:
        reader = AnatomyReader(file)
        for item in reader.finish():
            if isinstance(item, Record):
                found.is_odd = any(map(_crosses, reader.parts_of(item))) or found.is_odd
            yield item
        found.healed, found.header_version = reader.healed, reader.header_version
    finally:
        if file is not source:
            file.close()


def _crosses(part: Part) -> bool:
    """Whether a chunk lies across the edge of a block, as blocks are counted from the beginning of the file."""
    return part.offset // BLOCK_SIZE != (part.offset + CHUNK_HEADER_SIZE + part.length - 1) // BLOCK_SIZE


def _message(record: Record, found: Findings | None) -> Any:
    """What a record says; None if it is left out, which `found` is told."""
    reason = record.kind
    if record.kind not in _CRASHES:
        try:
            message = _parsed(record)
        except ValueError:
            reason = _NO_MESSAGE
        else:
            if record.kind not in _TIMED or _has_time(message, needed=record.kind == "stats"):
                return message
            reason = _NO_TIME
    if found is not None:
        found.left_out[reason] += 1
    return None


def _parsed(record: Record) -> Any:
    """The message in a record, whose envelope and switches are looked at as strictly as other readers do.

    Raises:
        ValueError: it is none.
    """
    from google.protobuf.message import DecodeError

    from . import messages

    try:
        message = getattr(messages.Record.FromString(record.payload), record.kind)
    except DecodeError as error:
        raise WireError(str(error)) from error
    if record.kind == "telemetry":
        for field, value in message.ListFields():
            if field.type == field.TYPE_BYTES:
                set_flags(value)
    return message


def _has_time(message: Any, *, needed: bool) -> bool:
    """Whether its time is one that the peer's reader takes; none is, but for samples, with which its sync crashes."""
    if not message.HasField("timestamp"):
        return not needed
    seconds, nanos = int(message.timestamp.seconds), int(message.timestamp.nanos)
    return 0 <= nanos < 10**9 and abs(seconds) < LATEST_NS // 10**9


def why_left_out(reason: str) -> str:
    """A reason of `Findings.left_out` in words."""
    return f"{reason}: it {_CRASHES[reason]}" if reason in _CRASHES else reason


def _start_of(record: Record) -> int:
    """When the run began, by one of its rows; 0 if that does not say."""
    try:
        paths, texts = decode_history(record.body)
    except WireError:
        return 0
    places = place_of(TIMESTAMP, paths), place_of(RUNTIME, paths)
    if places[0] < 0:
        return 0
    runtime = seconds_of(texts[places[1]]) if places[1] >= 0 else 0.0
    return _valid((seconds_of(texts[places[0]]) - runtime) * 1e9)


def _valid(nanoseconds: float) -> int:
    return int(nanoseconds) if 0 < nanoseconds < LATEST_NS else 0


def _record(**body: Any) -> bytes:
    from . import messages

    payload: bytes = messages.Record(**body).SerializeToString()
    return payload


class _Sink:
    """Frames payloads, numbered from 1, into a file."""

    def __init__(self, out: BinaryIO) -> None:
        self.count = 0
        self._out, self._framer, self._held = out, Framer(), bytearray(FILE_HEADER)

    def add(self, payload: bytes) -> None:
        self.count += 1
        self._framer.append(_numbered(payload, self.count), self._held)
        if len(self._held) >= _PIECE:
            self.flush()

    def flush(self) -> None:
        self._out.write(self._held)
        self._held.clear()


def _numbered(payload: bytes, num: int) -> bytes:
    """A record with another number."""
    parts, begin = [bytes([NUM_TAG]), write_varint(num)], 0
    for number, kind, _, stop in fields(payload):
        if number != NUM_TAG >> 3 or kind != VARINT:
            parts.append(payload[begin:stop])
        begin = stop
    return b"".join(parts)
