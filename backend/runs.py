"""One run as the backend holds it, and what a client may change of it."""

from __future__ import annotations

import base64
import json
import sqlite3
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

STATES = frozenset({"pending", "running", "finished", "failed", "crashed", "preempting", "preempted", "killed"})
MAX_ID_BYTES = 128
FORBIDDEN_IN_IDS = frozenset('/\\#?%:"') | {chr(code) for code in range(32)} | {"\x7f"}


@dataclass(frozen=True)
class RunPath:
    """Where a run lives: three names, none of which can break out of a URL or a path."""

    entity: str
    project: str
    name: str

    def __post_init__(self) -> None:
        for what, value in (("entity", self.entity), ("project", self.project), ("run", self.name)):
            if not value or len(value.encode("utf-8", "surrogatepass")) > MAX_ID_BYTES:
                raise ValueError(f"{what} name must have 1 to {MAX_ID_BYTES} bytes")
            if value in {".", ".."} or FORBIDDEN_IN_IDS.intersection(value):
                raise ValueError(f"{what} name {value!r} has a character that is not allowed")

    @property
    def storage_id(self) -> str:
        """The opaque id that clients send back."""
        return base64.b64encode(f"Run:v1:{self.name}:{self.project}:{self.entity}".encode()).decode()

    @classmethod
    def from_storage_id(cls, storage_id: str) -> RunPath:
        """Reads `storage_id` back.

        Raises:
            ValueError: it is none of ours.
        """
        try:
            kind, version, name, project, entity = base64.b64decode(storage_id, validate=True).decode().split(":")
        except ValueError:
            raise ValueError("unknown run id") from None
        if (kind, version) != ("Run", "v1"):
            raise ValueError("unknown run id")
        return cls(entity, project, name)


@dataclass(frozen=True)
class RunFields:
    """What an upsert changes; None leaves a field as it is."""

    display_name: str | None = None
    group_name: str | None = None
    job_type: str | None = None
    description: str | None = None
    notes: str | None = None
    tags: Sequence[str] | None = None
    host: str | None = None
    program: str | None = None
    git_commit: str | None = None
    repo: str | None = None
    sweep: str | None = None
    config: str | None = None  # JSON text, stored as it came
    summary: str | None = None  # JSON text
    state: str | None = None

    def columns(self) -> dict[str, str]:
        """The columns that change."""
        given = {name: value for name, value in vars(self).items() if value is not None}
        if self.tags is not None:
            given["tags"] = json.dumps(list(self.tags), ensure_ascii=False)
        return given


@dataclass(frozen=True)
class Extent:
    """How much of a stream is there: `rows` lines below line number `length`."""

    rows: int = 0
    length: int = 0


@dataclass(frozen=True)
class Run:
    """A run; `config` and `summary` are JSON text, times are seconds since the epoch."""

    key: int
    path: RunPath
    display_name: str
    group_name: str | None
    job_type: str | None
    description: str | None
    notes: str | None
    tags: list[str]
    host: str | None
    program: str | None
    git_commit: str | None
    repo: str | None
    sweep: str | None
    config: str
    summary: str
    state: str
    exit_code: int | None
    created_at: float
    updated_at: float
    heartbeat_at: float
    preempting: bool  # the client said so at least once, whatever came after
    streams: Mapping[str, Extent] = field(default_factory=dict)

    def extent(self, stream: str) -> Extent:
        """The extent of one stream, empty where nothing came."""
        return self.streams.get(stream, Extent())

    def state_at(self, now: float, crash_after_s: float) -> str:
        """The state, where a run that fell silent counts as crashed (or preempted, if it had announced that)."""
        if self.state in {"running", "preempting"} and now - self.heartbeat_at > crash_after_s:
            return "crashed" if self.state == "running" else "preempted"
        return self.state

    @classmethod
    def from_row(cls, row: sqlite3.Row, streams: Mapping[str, Extent]) -> Run:
        """Builds a run from its row of table `runs`."""
        values = dict(row)
        path = RunPath(values.pop("entity"), values.pop("project"), values.pop("name"))
        tags = json.loads(values.pop("tags"))
        preempting = bool(values.pop("preempting"))
        return cls(key=values.pop("id"), path=path, tags=tags, preempting=preempting, streams=streams, **values)
