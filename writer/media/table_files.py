"""The files of a table: one that the row names, and an artifact that holds the cells with their types and media."""

from __future__ import annotations

import hashlib
import io
import json
import threading
import zlib
from collections.abc import Callable
from typing import Any, NamedTuple

from ..artifact_record import MAX_NAME_CHARACTERS, ManifestEntry, artifact_body, internal_name, new_client_id
from ..encoding import to_json, utf8
from ..runfiles import RunFiles
from .base import Landing, MediaContext
from .cells import held, shown
from .column_types import NUMBER, Array, ColumnType, Listed, TypedDict, Union
from .content import ArtifactContents, Content, file_facts
from .libraries import library
from .names import SHOWN_DIGITS, safe_key

FOLDER = "media/table"
EXTENSION = ".table.json"
ARTIFACT_TYPE = "run_table"
INCREMENTAL_TYPE = "wandb-run-incremental-table"
MAX_INCREMENTS = 100
"""What viewers show of an incremental table."""
MAX_EMBEDDING = 150
"""Numbers. Longer arrays, and those of several axes, lie in a file of their own."""
FEATURE_TABLE, FEATURE_INCREMENTAL_TABLE = 78, 79


class Snapshot(NamedTuple):
    """A table, or the new rows of one, as it is when it is logged."""

    columns: list[str | int]
    rows: list[list[Any]]
    types: list[ColumnType]
    """One per column."""
    log_mode: str
    total: int
    """Rows of the whole table."""
    increment: int | None = None
    """The number of these rows' increment; None: the table is not incremental."""
    increments: list[str] | None = None
    """Addresses of the increments before; those that have landed."""


def shown_json(snapshot: Snapshot) -> bytes:
    """The file that the row names."""
    return to_json({"columns": snapshot.columns, "data": [[shown(cell) for cell in row] for row in snapshot.rows]})


def artifact_json(snapshot: Snapshot, contents: ArtifactContents) -> dict[str, Any]:
    """What the artifact's file holds; files of cells are added to `contents`. Raises OSError."""
    types, left_out = _stored_types(snapshot, contents)
    rows = [[None if at in left_out else held(cell, contents) for at, cell in enumerate(row)] for row in snapshot.rows]
    return {
        "_type": "table",
        "columns": snapshot.columns,
        "data": rows,
        "ncols": len(snapshot.columns),
        "nrows": len(rows),
        "column_types": TypedDict(dict(zip(snapshot.columns, types, strict=True))).to_json(),
        "log_mode": snapshot.log_mode,
    }


def _stored_types(snapshot: Snapshot, contents: ArtifactContents) -> tuple[list[ColumnType], set[int]]:
    """The types as they are stored, and the columns whose cells lie in a file of their own: arrays."""
    types, left_out = list(snapshot.types), set()
    for at, column in enumerate(snapshot.columns):
        array = _array_in(types[at])
        if array is None:
            continue
        if len(array.shape) == 1 and array.shape[0] <= MAX_EMBEDDING:
            types[at] = Listed(NUMBER, array.shape[0])
            continue
        name = str(column)
        numpy = library("numpy", "a table of arrays")
        buffer = io.BytesIO()
        numpy.savez_compressed(buffer, **{name: numpy.array([row[at] for row in snapshot.rows])})
        data = buffer.getvalue()
        digest = hashlib.md5(data, usedforsecurity=False).hexdigest()
        entry = contents.add(f"media/serialized_data/{digest[:SHOWN_DIGITS]}.npz", data)
        types[at] = _with_file(types[at], (entry.path, name))
        left_out.add(at)
    return types, left_out


def _array_in(kind: ColumnType) -> Array | None:
    members = kind.members if isinstance(kind, Union) else (kind,)
    return next((member for member in members if isinstance(member, Array)), None)


def _with_file(kind: ColumnType, file: tuple[str, str]) -> ColumnType:
    if isinstance(kind, Union):
        return Union(tuple(_with_file(member, file) for member in kind.members))
    return Array(kind.shape, file) if isinstance(kind, Array) else kind


class StagedTable:
    """A table's files in the run's directory; shared by the rows that log the same table."""

    def __init__(
        self, snapshot: Snapshot, files: RunFiles, context: MediaContext, undo: Callable[[StagedTable], None]
    ) -> None:
        """Write what does not depend on the key. `undo` is told when nothing of it will land. Raises OSError."""
        self._users = 1
        self._gone = False
        self.directory = files.directory
        self._context, self._undo = context, undo
        self._facts = {"ncols": len(snapshot.columns), "nrows": snapshot.total, "log_mode": snapshot.log_mode}
        self._increment, self._increments = snapshot.increment, snapshot.increments
        self._contents = ArtifactContents(files)
        value = artifact_json(snapshot, self._contents)
        if snapshot.increment is not None:  # the list of those before is known when it lands
            value["increment_num"] = snapshot.increment
            if snapshot.increment >= MAX_INCREMENTS:
                context.warn(
                    "table increments",
                    f"an incremental table was logged {snapshot.increment + 1} times: all of it is kept, but viewers"
                    f" show the last {MAX_INCREMENTS} increments",
                )
        self._body = json.dumps(value, sort_keys=True)
        self._file = Content(shown_json(snapshot), EXTENSION).stage(files)
        self._value: dict[str, Any] | None = None
        self._lock = threading.Lock()

    def retain(self) -> bool:
        """One row more has it; false if nobody wanted it any more before it had a name."""
        with self._lock:
            self._users += not self._gone
            return not self._gone

    def land(self, key: str, step: str) -> Landing:
        """Name the files, and record the artifact. Raises OSError, ValueError."""
        with self._lock:
            if self._value is not None:
                return Landing(self._value)
            path, new = self._file.land(FOLDER, key, step)
            try:
                record, facts = self._artifact(key)
            except BaseException:
                self._file.unrecord()
                raise
            self._value = {**self._facts, **facts, **file_facts(self._file, path)}
            self._body = ""
            incremental = (FEATURE_INCREMENTAL_TABLE,) if self._increment is not None else ()
            return Landing(self._value, new, (record,), (FEATURE_TABLE, *incremental))

    def _artifact(self, key: str) -> tuple[bytes, dict[str, Any]]:
        name, entry_name = key, safe_key(key)
        kind, type_, facts, body = "table-file", ARTIFACT_TYPE, {}, self._body
        if self._increment is not None:
            increments = list(self._increments or ())
            kind, type_ = "incremental-table-file", INCREMENTAL_TYPE
            facts = {"increment_num": self._increment, "previous_increments_paths": increments}
            # The name of this list sorts behind the other keys.
            body = f'{body[:-1]}, "previous_increments_paths": {json.dumps(increments)}}}'
            name, entry_name = f"incr-{key}", f"{self._increment}-{int(self._context.time() * 1000)}.{entry_name}"
        entry = self._contents.add(entry_name + EXTENSION, utf8(body))
        client, sequence = new_client_id(), new_client_id()
        record = artifact_body(
            run_id=self._context.run_id,
            project=self._context.project,
            entity=self._context.entity,
            name=artifact_name(f"run-{self._context.run_id}-{name}"),
            type_=type_,
            entries=self._contents.entries,
            incremental=self._increment is not None,
            client_id=client,
            sequence_client_id=sequence,
        )
        address = _address(client, entry)
        if self._increments is not None and self._increment is not None:
            self._increments.append(address)
        latest = _address(f"{sequence}:latest", entry)
        return record, {"_type": kind, "artifact_path": address, "_latest_artifact_path": latest, **facts}

    def drop(self) -> None:
        """One row less has it; with the last one it goes, unless it has landed."""
        with self._lock:
            self._users -= 1
            if self._value is not None or self._users:
                return
            self._gone = True
            self._file.drop()
        self._undo(self)


def _address(client: str, entry: ManifestEntry) -> str:
    return f"wandb-client-artifact://{client}/{entry.path}"


def artifact_name(name: str) -> str:
    """The name of a table's artifact; one that is too long is cut, and a checksum tells it apart."""
    cleaned = internal_name(name)
    if len(cleaned) <= MAX_NAME_CHARACTERS:
        return cleaned
    checksum = f"-{zlib.crc32(utf8(name)):08x}"
    return cleaned[: MAX_NAME_CHARACTERS - len(checksum)] + checksum
