"""How far the sync of one log came: a small JSON file, replaced durably after each request that the server acknowledged.

Everything in it is a function of the log and of what the server said, so a lost cursor costs a re-send to the same
lines and nothing else. A cursor is believed only for the log and the server that it was made for.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Iterable
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any, BinaryIO

import orjson

from ..logformat.steps import ALL_STEPS, Steps
from .places import write_whole

VERSION = 2
"""1: each part of a row was a line of its own."""
_MAX_SIZE = 64 * 1024 * 1024  # bytes; a cursor that is larger is none of ours
_NO_COUNT = 1 << 63  # no log has so many lines or bytes, and no request can say so
_EMPTY_PREFIX = hashlib.sha256(b"0").hexdigest()  # `prefix_hash` of no bytes
_EDGE = 64 * 1024  # bytes at each end of the prefix that are hashed
_LONGEST_RUN_S = 1e12  # no run takes so many seconds
_SEAL = b'{\n  "seal": "%s",\n'
"""How a cursor begins: with the SHA-256 of all that follows. A count in which a bit has flipped looks like any other, and rows
would be passed over for it. Cursors of older versions have none."""
_SEALED_FROM = len(_SEAL) - len(b"%s") + hashlib.sha256().digest_size * 2


@dataclass(frozen=True)
class Target:
    """Where a log was asked to go; `entity` None where the server chose it."""

    base_url: str
    entity: str | None
    project: str | None
    run_id: str


@dataclass
class Lines:
    """Line counts of the three streams that rows of a log go to."""

    history: int = 0
    events: int = 0
    console: int = 0

    def __add__(self, other: Lines) -> Lines:
        return Lines(self.history + other.history, self.events + other.events, self.console + other.console)


@dataclass
class FileMark:
    """A file that the server has: enough to tell cheaply whether it changed, and surely whether its bytes did."""

    size: int
    mtime_ns: int
    """As `time_mark` gives it; 0 if it was made from the log."""
    sha256: str
    told: bool = False
    """The server acknowledged that it is uploaded."""

    @property
    def is_made(self) -> bool:
        """Whether it was made from the log, and lies on no disk."""
        return self.mtime_ns == 0

    def is_of(self, status: os.stat_result) -> bool:
        """Whether a file on the disk looks as it did."""
        return (self.size, self.mtime_ns) == (status.st_size, time_mark(status))


def time_mark(status: os.stat_result) -> int:
    """A file's time of change as a cursor holds it: ns, and never 0, whatever the year is that its archive or clock says."""
    return abs(status.st_mtime_ns) % _NO_COUNT or 1


PENDING, COMMITTED, DONE = "pending", "committed", "done"
"""An artifact is made, and not whole yet; whole, and the run is not named as its user yet; nothing is left to do."""


@dataclass
class ArtifactMark:
    """An artifact that the server knows of, and how far it has come there."""

    id: str
    """The server's."""
    digest: str
    state: str
    base: str = ""
    """The version before it, as it was when this one was made."""
    lost: list[str] = field(default_factory=list)
    """Paths whose bytes were not found when all else was sent."""
    client_id: str = ""
    """What the server was told that it is called, where that is not the log's client id."""


@dataclass
class Cursor:
    """The progress of one log. Offsets in bytes, lines relative to `base`."""

    target: Target
    entity: str
    """As the server named it, like `project`, `run_id` and `storage_id`."""
    project: str
    run_id: str
    storage_id: str
    base: Lines = field(default_factory=Lines)
    """The line numbers of this log's first lines, fixed at first contact."""
    step_shift: int = 0
    """Added to every step of this log."""
    offset: int = 0
    """Every record that begins before this offset is acknowledged, but for those of a row that was open there."""
    sent: Lines = field(default_factory=Lines)
    """Lines acknowledged. The last console line may still change while it has no newline; it is not counted. The last row
    is, though parts of it may follow: it is written again if one lies at `offset` or behind."""
    prefix: str = _EMPTY_PREFIX
    """Hash of the log up to `offset`."""
    config: str = ""
    """Hash of the run's fields and config as acknowledged."""
    summary: str = ""
    """Hash of the summary line as acknowledged."""
    files: dict[str, FileMark] = field(default_factory=dict)
    dropped: list[str] = field(default_factory=list)
    """Values that were left out because no server takes lines of that size."""
    exit_code: int | None = None
    """The exit code that the server acknowledged."""
    size: int = 0
    """Size of the log when `complete` was set."""
    complete: bool = False
    """Everything that the log held at `size` bytes is at the server."""
    lacks: int = 0
    """How many things were missing when the log was last judged, at `size` bytes."""
    gaps: list[tuple[int, int]] = field(default_factory=list)
    """Damage that the log had, from and to which offset: what lay there was never sent, but for what is `gone`."""
    gone: Lines = field(default_factory=Lines)
    """Lines acknowledged that the log has lost since."""
    artifacts: dict[str, ArtifactMark] = field(default_factory=dict)
    """By what identifies their record in this log: usually the client id."""
    alerts: list[tuple[int, int]] = field(default_factory=list)
    """Offsets of records: every alert from the first to the second of a pair was told."""
    steps: Steps = ALL_STEPS
    """The rows of this log that count, where some were cut because another log of the run has their steps."""
    runtime_offset: float = 0.0
    """Seconds that the run had taken when this log began, as its samples were sent."""
    runtime_shift: float = 0.0
    """Seconds that were added to the `_runtime`s of its rows."""
    runtime_before: float = 0.0
    """Seconds that the logs before it took."""
    last_row: str = ""
    """What tells the last row that was acknowledged from all others: see `row_mark`."""
    reach: int = 0
    """Rows that the run has had at the server at some time, over all its logs: those that are too many have to go."""
    kin: list[int] = field(default_factory=list)
    """Start times (ns) of the logs that the run had when this one was placed, itself among them."""
    highest_before: int | None = None
    """Highest step that the run had at the server before the first of them."""
    overlap: str = "last"
    """The policy by which the logs were stitched."""
    follow_links: bool = False
    """Files were read through links out of the run's directory, as far as the last verdict knows."""
    row_before: str = ""
    """What tells the last of those rows from all others."""
    inherited: dict[str, Any] = field(default_factory=dict)
    """What logs that are not here left at the server: see `Inherited`."""
    elsewhere: bool = False
    """The log was sent to another place before this one."""
    console_waits: bool = False
    """`output.log` was left as it was at the server, because logs of the run that have lines of it were not here."""
    version: int = VERSION

    @property
    def reached(self) -> int:
        """Rows that the run has had at the server, as far as this log's cursor knows."""
        return max(self.reach, self.base.history + self.sent.history)

    def start_again(self) -> None:
        """Forget what was acknowledged, but not where the lines go, nor what alerts people got: no one wants them twice."""
        self.reach = self.reached
        self.offset, self.prefix, self.sent, self.gone, self.last_row = 0, _EMPTY_PREFIX, Lines(), Lines(), ""
        self.config = self.summary = ""
        self.files, self.artifacts, self.dropped, self.exit_code, self.complete = {}, {}, [], None, False

    def lost_less(self, gaps: list[tuple[int, int]]) -> bool:
        """Whether a gap before `offset` has become readable: a better copy of the log has taken its place."""
        return bool({gap for gap in self.gaps if gap[1] <= self.offset} - set(gaps))

    def save(self, path: Path, *, durably: bool = True) -> None:
        """Replace the cursor file. If not `durably`, a power cut (but no kill) may take it back to an earlier one, or away."""
        # As `json` has it: what a server gave may hold NaN, infinities, and integers of any size.
        inherited: Any = orjson.Fragment(json.dumps(self.inherited)) if self.inherited else {}
        try:
            text = orjson.dumps(replace(self, inherited=inherited), option=orjson.OPT_INDENT_2)
        except TypeError:  # a lone surrogate in a key that was left out
            text = json.dumps(asdict(self), indent=2).encode()
        write_whole(path, _sealed(text + b"\n"), durably=durably)


def load(paths: Iterable[Path]) -> tuple[Cursor | None, str]:
    """The first cursor that can be read, and a note on one that could not (empty where there is nothing to say)."""
    note = ""
    for path in paths:
        try:
            with path.open("rb") as file:
                text = file.read(min(os.fstat(file.fileno()).st_size, _MAX_SIZE) + 1)
        except FileNotFoundError:
            continue
        except OSError as error:
            note = f"{path}: {error.strerror}"
            continue
        try:
            if len(text) > _MAX_SIZE:
                raise ValueError("too large")
            document = json.loads(text)
            if isinstance(document, dict) and document.get("seal", "") not in ("", _seal_of(text[_SEALED_FROM:])):
                raise ValueError("it was changed or damaged since it was written")
            return _from_json(document), note
        except (ValueError, TypeError, KeyError, AttributeError, RecursionError) as error:
            note = f"{path} is not a cursor ({error}); lines are sent again to the same places"
    return None, note


def _sealed(text: bytes) -> bytes:
    """The JSON text of an object, with its seal as the first item."""
    rest = text.removeprefix(b"{\n")
    return _SEAL % _seal_of(rest).encode() + rest


def _seal_of(text: bytes) -> str:
    return hashlib.sha256(text).hexdigest()


def prefix_hash(log: BinaryIO, length: int) -> str:
    """A hash of the first `length` bytes of a log: both ends of that range and its length.

    The head holds the run's id and start time, the tail the last rows acknowledged: a log that was replaced, or
    cut and written on, differs there. A log of any size costs two reads.
    """
    digest = hashlib.sha256(str(length).encode())
    log.seek(0)
    digest.update(log.read(min(length, _EDGE)))
    tail = max(length - _EDGE, _EDGE)
    if tail < length:
        log.seek(tail)
        digest.update(log.read(length - tail))
    return digest.hexdigest()


def matches(cursor: Cursor, log: Path, target: Target) -> str:
    """Why `cursor` does not belong to this log and target; empty where it does."""
    if cursor.target != target:
        return "the cursor is of another target"
    try:
        with log.open("rb") as file:
            if os.fstat(file.fileno()).st_size < cursor.offset:
                return "the log is shorter than what was sent of it"
            if prefix_hash(file, cursor.offset) != cursor.prefix:
                return "the log is not the one that was sent"
    except OSError as error:
        return f"the log cannot be read: {error.strerror}"
    return ""


def _from_json(document: Any) -> Cursor:
    """A cursor from untrusted JSON: every value is checked for its type."""
    if not isinstance(document, dict) or document.get("version") not in (1, VERSION):
        raise ValueError("unknown version")
    target = document["target"]
    return Cursor(
        target=Target(
            _name(target["base_url"]), _maybe(target["entity"]), _maybe(target["project"]), _name(target["run_id"])
        ),
        entity=_name(document["entity"]),
        project=_name(document["project"]),
        run_id=_name(document["run_id"]),
        storage_id=_name(document["storage_id"]),
        base=_lines(document["base"]),
        step_shift=_count(document["step_shift"]),
        offset=_count(document["offset"]),
        sent=_lines(document["sent"]),
        prefix=_text(document["prefix"]),
        config=_text(document["config"]),
        summary=_text(document["summary"]),
        files={
            _name(name): FileMark(
                _count(mark["size"]), _count(mark["mtime_ns"]), _text(mark["sha256"]), mark.get("told") is True
            )
            for name, mark in document["files"].items()
        },
        artifacts={
            _text(key): ArtifactMark(
                _text(mark["id"]),
                _text(mark["digest"]),
                _state(mark["state"]),
                _text(mark["base"]),
                [_text(path) for path in _list(mark["lost"])],
                _text(mark.get("client_id", "")),
            )
            for key, mark in document.get("artifacts", {}).items()
        },
        alerts=[(_count(first), _count(last)) for first, last in document.get("alerts", [])],
        dropped=[_text(item) for item in _list(document["dropped"])],
        gaps=[(_count(start), _count(end)) for start, end in document.get("gaps", [])],
        gone=_lines(document["gone"]) if "gone" in document else Lines(),
        lacks=_count(document.get("lacks", 0)),
        exit_code=None if document["exit_code"] is None else _number(document["exit_code"]),
        size=_count(document["size"]),
        complete=document["complete"] is True,
        steps=Steps(_maybe_step(document["steps"]["above"]), _maybe_step(document["steps"]["below"]))
        if "steps" in document
        else ALL_STEPS,
        runtime_offset=_seconds(document.get("runtime_offset", 0.0)),
        runtime_shift=_seconds(document.get("runtime_shift", 0.0)),
        runtime_before=_seconds(document.get("runtime_before", 0.0)),
        last_row=_text(document.get("last_row", "")),
        reach=_count(document.get("reach", 0)),
        kin=[_count(start) for start in document.get("kin", [])],
        highest_before=_maybe_step(document.get("highest_before")),
        overlap=_text(document.get("overlap", "last")),
        follow_links=document.get("follow_links") is True,
        row_before=_text(document.get("row_before", "")),
        inherited=_tree(document.get("inherited", {})),
        elsewhere=document.get("elsewhere") is True,
        console_waits=document.get("console_waits") is True,
        version=document["version"],
    )


def row_mark(line: str) -> str:
    """What tells a row from all others of its run: its step and time, however a server spells them; empty for no row."""
    try:
        row = json.loads(line)
    except (ValueError, RecursionError):
        return ""
    return json.dumps([row.get("_step"), row.get("_timestamp")]) if isinstance(row, dict) else ""


def _maybe_step(value: Any) -> int | None:
    if value is not None and (not isinstance(value, int) or isinstance(value, bool) or abs(value) >= 2 * _NO_COUNT):
        raise TypeError("a step is not a number")
    return value


def _seconds(value: Any) -> float:
    if not isinstance(value, (int, float)) or isinstance(value, bool) or not abs(value) < _LONGEST_RUN_S:
        raise TypeError("a time is not a number")  # NaN is none either
    return float(value)


def _tree(value: Any) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise TypeError("an object is missing")
    return value


def _lines(value: Any) -> Lines:
    return Lines(_count(value["history"]), _count(value["events"]), _count(value["console"]))


def _text(value: Any) -> str:
    if not isinstance(value, str):
        raise TypeError("a text is missing")
    return value


def _name(value: Any) -> str:
    """A text that a path and an address can hold."""
    if "\0" in _text(value):
        raise ValueError("a name holds a NUL")
    value.encode()
    return _text(value)


def _list(value: Any) -> list[Any]:
    if not isinstance(value, list):
        raise TypeError("a list is missing")
    return value


def _state(value: Any) -> str:
    if value not in (PENDING, COMMITTED, DONE):
        raise ValueError("an artifact is in no known state")
    return _text(value)


def _maybe(value: Any) -> str | None:
    return None if value is None else _name(value)


def _count(value: Any) -> int:
    if not isinstance(value, int) or isinstance(value, bool) or not 0 <= value < _NO_COUNT:
        raise TypeError("a count is missing")
    return value


def _number(value: Any) -> int:
    if not isinstance(value, int) or isinstance(value, bool) or abs(value) >= _NO_COUNT:
        raise TypeError("a number is missing")
    return value
