"""Everything the backend holds: runs, lines, files and alerts, in one SQLite file and a folder of contents.

A method that changes something returns after its transaction is on the disk, so what was acknowledged survives a kill
and a power cut. One writer at a time; readers have connections of their own and never wait for it.
"""

from __future__ import annotations

import contextlib
import os
import secrets
import sqlite3
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import IO

from .blobs import BlobFolder, Upload
from .database import connect, insert, line_key, open_database
from .errors import ConflictError, NotFoundError
from .filestream import HISTORY, SUMMARY, Chunk, StreamUpdate
from .runs import Extent, Run, RunFields, RunPath
from .series import step_of

DATABASE_NAME = "runferry.sqlite3"
# What a reader takes at a time; a single line may have megabytes.
PAGE_LINES = 5_000
PAGE_CHARS = 8 << 20
_NEXT_RUN = """
    SELECT 1 + max(coalesce((SELECT max(id) FROM runs), 0), coalesce((SELECT max(id) FROM deleted_runs), 0))
"""
_REFERENCES = [
    f"SELECT 1 FROM {table} WHERE blob = ?"  # noqa: S608 - names are ours
    for table in ("files", "contents", "entries", "manifests", "parts")
]


class RunNotFoundError(NotFoundError):
    """No such run on this server."""


class RunDeletedError(ConflictError):
    """The run was deleted, and its name is not given out again."""


@dataclass(frozen=True)
class StoredFile:
    """A file of a run; `blob`, `size` and `md5` are None when the client announced it and it never came."""

    name: str
    blob: str | None
    size: int | None
    md5: str | None
    uploaded: bool
    updated_at: float  # seconds since the epoch


@dataclass(frozen=True)
class Alert:
    """An alert of a run; `created_at` is seconds since the epoch."""

    title: str
    text: str
    severity: str
    created_at: float


class Store:
    """The data folder `root`; made when missing. `clock` gives seconds since the epoch."""

    def __init__(self, root: Path, *, clock: Callable[[], float] = time.time) -> None:
        root.mkdir(mode=0o700, parents=True, exist_ok=True)
        self._folder_lock = _lock_folder(root)
        try:
            self._path = root / DATABASE_NAME
            self._path.touch(mode=0o600)
            self.blobs = BlobFolder(root)
            self._db = open_database(self._path)
        except BaseException:
            self._folder_lock.close()
            raise
        self._clock = clock
        self._lock = threading.Lock()
        self._readers: list[sqlite3.Connection] = []  # idle ones; as many are opened as read at one time
        self.secret = self._load_secret()

    def close(self) -> None:
        """Ends all use; SQLite folds its write-ahead log into the file."""
        with self._lock:
            while self._readers:
                self._readers.pop().close()
            self._db.close()
            self._folder_lock.close()

    # ---- runs

    def upsert_run(self, path: RunPath, fields: RunFields, *, reuse_deleted: bool = True) -> tuple[Run, bool]:
        """Makes the run or changes the given fields; returns it, and whether it is new.

        Raises:
            RunDeletedError: there was one that was deleted, and `reuse_deleted` is off.
        """
        now = self._clock()
        with self.writing() as db:
            columns = fields.columns()
            key = _find(db, path)
            inserted = key is None
            if inserted:
                if not reuse_deleted and _was_deleted(db, path):
                    raise RunDeletedError(f"run {path.name} was previously created and deleted; try a new run name")
                number = db.execute(_NEXT_RUN).fetchone()[0]
                columns.setdefault("display_name", f"run-{number}")
                values = {
                    "id": number,
                    "entity": path.entity,
                    "project": path.project,
                    "name": path.name,
                    "created_at": now,
                    "updated_at": now,
                    "heartbeat_at": now,
                    **columns,
                }
                key = insert(db, "runs", values)
            else:
                _update_run(db, key, {**columns, "updated_at": now, "heartbeat_at": now})
            return _load(db, "id = ?", (key,))[0], inserted

    def run(self, path: RunPath) -> Run:
        """One run.

        Raises:
            RunNotFoundError: there is none.
        """
        with self.reading() as db:
            found = _load(db, "entity = ? AND project = ? AND name = ?", (path.entity, path.project, path.name))
        if not found:
            raise RunNotFoundError(f"run {path.entity}/{path.project}/{path.name} is not on this server")
        return found[0]

    def has_run(self, path: RunPath) -> bool:
        """Whether there is such a run."""
        with self.reading() as db:
            return _find(db, path) is not None

    def run_of_key(self, key: int) -> Run | None:
        """The run of that key, None where it is gone."""
        with self.reading() as db:
            found = _load(db, "id = ?", (key,))
        return found[0] if found else None

    def runs(self) -> list[Run]:
        """All runs, newest first."""
        with self.reading() as db:
            return _load(db, "1 ORDER BY created_at DESC, id DESC", ())

    def delete_run(self, path: RunPath) -> None:
        """Removes a run with its lines, files and alerts; its artifacts stay.

        Raises:
            RunNotFoundError: there is none.
        """
        with self.writing() as db:
            key = require_run(db, path)
            blobs = [
                row["blob"] for row in db.execute("SELECT blob FROM files WHERE run = ? AND blob NOT NULL", (key,))
            ]
            for (stream,) in db.execute("SELECT id FROM streams WHERE run = ?", (key,)).fetchall():
                db.execute(
                    "DELETE FROM lines WHERE key >= ? AND key < ?", (line_key(stream, 0), line_key(stream + 1, 0))
                )
            for table in ("streams", "files", "alerts", "artifact_runs"):
                db.execute(f"DELETE FROM {table} WHERE run = ?", (key,))  # noqa: S608 - names are ours
            db.execute("DELETE FROM runs WHERE id = ?", (key,))
            place = (path.entity, path.project, path.name)
            db.execute("INSERT INTO deleted_runs VALUES (?, ?, ?, ?, ?)", (key, *place, self._clock()))
            db.execute("COMMIT")
            self.forget_blobs(db, blobs)

    def rewind(self, path: RunPath, step: float) -> Run:
        """Drops the history rows after `_step == step`, as if they had never been logged."""
        with self.writing() as db:
            key = require_run(db, path)
            stream = db.execute("SELECT id FROM streams WHERE run = ? AND name = ?", (key, HISTORY)).fetchone()
            if stream is not None:
                first, last = line_key(stream["id"], 0), line_key(stream["id"] + 1, 0) - 1
                keep = first - 1
                rows = db.execute(
                    "SELECT key, text FROM lines WHERE key BETWEEN ? AND ? ORDER BY key DESC", (first, last)
                )
                for row in rows:
                    row_step = step_of(row["text"])
                    if row_step is not None and row_step <= step:
                        keep = row["key"]
                        break
                rows.close()
                db.execute("DELETE FROM lines WHERE key > ? AND key <= ?", (keep, last))
                left = db.execute("SELECT count(*) FROM lines WHERE key BETWEEN ? AND ?", (first, last)).fetchone()[0]
                extent = (left, keep - first + 1, stream["id"])
                db.execute("UPDATE streams SET rows = ?, length = ? WHERE id = ?", extent)
            _update_run(db, key, {"updated_at": self._clock(), "state": "running", "exit_code": None})
            return _load(db, "id = ?", (key,))[0]

    # ---- lines

    def apply_stream(self, path: RunPath, update: StreamUpdate) -> None:
        """Applies one file stream request in one transaction.

        Raises:
            RunNotFoundError: the run was never made.
        """
        now = self._clock()
        changes: dict[str, object] = {"heartbeat_at": now}
        if update.preempting:
            changes["preempting"] = 1
        if update.complete:
            changes["exit_code"] = update.exit_code
            changes["state"] = "finished" if update.exit_code in (0, None) else "failed"
        elif update.preempting:
            changes["state"] = "preempting"
        elif update.files or not update.uploaded:  # data or a heartbeat: the run lives (again)
            changes["state"] = "running"
        if update.files or update.complete or update.preempting:
            changes["updated_at"] = now
        with self.writing() as db:
            key = require_run(db, path)
            if changes.get("state") == "running":
                lives = db.execute("SELECT state FROM runs WHERE id = ?", (key,)).fetchone()["state"]
                if lives == "preempting":
                    del changes["state"]
                else:
                    changes["exit_code"] = None
            for name, chunk in update.files.items():
                if name == SUMMARY:
                    if chunk.content:
                        changes["summary"] = chunk.content[-1]
                else:
                    _write_lines(db, key, name, chunk)
            _update_run(db, key, changes)
            _mark_uploaded(db, key, update.uploaded, now)

    def lines(self, run: Run, stream: str, start: int = 0, stop: int | None = None) -> list[tuple[int, str]]:
        """The first lines of `[start, stop)` as (line number, text), up to a page; holes are left out.

        A page that ends before `stop` is never empty: the next one begins behind its last line.
        """
        with self.reading() as db:
            found = db.execute(
                "SELECT id, length FROM streams WHERE run = ? AND name = ?", (run.key, stream)
            ).fetchone()
            if found is None:
                return []
            end = found["length"] if stop is None else min(stop, found["length"])
            base = line_key(found["id"], 0)
            rows = db.execute(
                "SELECT key, text FROM lines WHERE key >= ? AND key < ? ORDER BY key LIMIT ?",
                (base + start, base + end, PAGE_LINES),
            )
            page: list[tuple[int, str]] = []
            size = 0
            for key, text in rows:
                page.append((key - base, text))
                size += len(text)
                if size >= PAGE_CHARS:
                    break
            return page

    def all_lines(
        self, run: Run, stream: str, start: int = 0, stop: int | None = None
    ) -> Iterator[list[tuple[int, str]]]:
        """The same, page by page, for streams of any length."""
        while page := self.lines(run, stream, start, stop):
            yield page
            start = page[-1][0] + 1

    # ---- files

    def put_file(self, run_key: int, name: str, upload: Upload) -> StoredFile:
        """Gives a run a file; an earlier content of that name goes when nothing else refers to it.

        Raises:
            RunNotFoundError: the run is gone.
        """
        blob = upload.finish()
        now = self._clock()
        with self.writing() as db:
            if db.execute("SELECT 1 FROM runs WHERE id = ?", (run_key,)).fetchone() is None:
                raise RunNotFoundError("the run of this upload is not on this server")
            earlier = db.execute("SELECT blob FROM files WHERE run = ? AND name = ?", (run_key, name)).fetchone()
            self.blobs.keep(upload, blob)
            db.execute(
                "INSERT INTO files (run, name, blob, size, md5, updated_at) VALUES (?, ?, ?, ?, ?, ?)"
                " ON CONFLICT DO UPDATE SET blob = excluded.blob, size = excluded.size, md5 = excluded.md5,"
                " updated_at = excluded.updated_at",
                (run_key, name, blob.digest, blob.size, blob.md5, now),
            )
            db.execute("COMMIT")
            if earlier is not None and earlier["blob"] not in (None, blob.digest):
                self.forget_blobs(db, [earlier["blob"]])
        return StoredFile(name, blob.digest, blob.size, blob.md5, uploaded=False, updated_at=now)

    def mark_uploaded(self, path: RunPath, names: Iterable[str]) -> None:
        """Keeps that the client says so of these files, as it may in a file stream request.

        Raises:
            RunNotFoundError: there is no such run.
        """
        with self.writing() as db:
            _mark_uploaded(db, require_run(db, path), names, self._clock())

    def files(self, run: Run) -> list[StoredFile]:
        """The files of a run by name, those that were announced and never came included."""
        with self.reading() as db:
            rows = db.execute(
                "SELECT name, blob, size, md5, uploaded, updated_at FROM files WHERE run = ? ORDER BY name", (run.key,)
            )
            return [StoredFile(row[0], row[1], row[2], row[3], bool(row[4]), row[5]) for row in rows]

    # ---- alerts

    def add_alert(self, path: RunPath, title: str, text: str, severity: str, wait_s: float) -> None:
        """Keeps an alert, unless the very same one came within the last `wait_s` seconds (a client that sent it again)."""
        now = self._clock()
        with self.writing() as db:
            key = require_run(db, path)
            same = db.execute(
                "SELECT 1 FROM alerts WHERE run = ? AND title = ? AND text = ? AND severity = ? AND created_at > ?",
                (key, title, text, severity, now - wait_s),
            ).fetchone()
            if same is None:
                db.execute(
                    "INSERT INTO alerts (run, title, text, severity, created_at) VALUES (?, ?, ?, ?, ?)",
                    (key, title, text, severity, now),
                )

    def alerts(self, run: Run) -> list[Alert]:
        """The alerts of a run, oldest first."""
        with self.reading() as db:
            rows = db.execute(
                "SELECT title, text, severity, created_at FROM alerts WHERE run = ? ORDER BY id", (run.key,)
            )
            return [Alert(*row) for row in rows]

    def forget_blobs(self, db: sqlite3.Connection, digests: Iterable[str]) -> None:
        """Deletes those of these contents that nothing refers to any more; to be called after the commit."""
        for digest in set(digests):
            if not any(db.execute(statement, (digest,)).fetchone() for statement in _REFERENCES):
                self.blobs.remove(digest)

    # ---- connections

    @contextlib.contextmanager
    def writing(self) -> Iterator[sqlite3.Connection]:
        """One transaction of the one writer, durable when the block ends; rolled back when it raises."""
        with self._lock:
            self._db.execute("BEGIN IMMEDIATE")
            try:
                yield self._db
                if self._db.in_transaction:
                    self._db.execute("COMMIT")
            except BaseException:
                if self._db.in_transaction:
                    self._db.execute("ROLLBACK")
                raise

    @contextlib.contextmanager
    def reading(self) -> Iterator[sqlite3.Connection]:
        """A connection whose statements see one state of everything."""
        try:
            db = self._readers.pop()
        except IndexError:
            db = connect(self._path)
        try:
            db.execute("BEGIN")
            yield db
        finally:
            db.rollback()
            self._readers.append(db)

    def _load_secret(self) -> bytes:
        """The key that signs upload URLs; it lives as long as the data, so that URLs outlive a restart."""
        with self.writing() as db:
            db.execute("INSERT OR IGNORE INTO meta VALUES ('upload_secret', ?)", (secrets.token_bytes(32),))
            secret: bytes = db.execute("SELECT value FROM meta WHERE key = 'upload_secret'").fetchone()[0]
            return secret


def _find(db: sqlite3.Connection, path: RunPath) -> int | None:
    row = db.execute(
        "SELECT id FROM runs WHERE entity = ? AND project = ? AND name = ?", (path.entity, path.project, path.name)
    ).fetchone()
    return None if row is None else int(row["id"])


def _was_deleted(db: sqlite3.Connection, path: RunPath) -> bool:
    place = (path.entity, path.project, path.name)
    return (
        db.execute("SELECT 1 FROM deleted_runs WHERE entity = ? AND project = ? AND name = ?", place).fetchone()
        is not None
    )


def require_run(db: sqlite3.Connection, path: RunPath) -> int:
    """The run's key.

    Raises:
        RunNotFoundError: there is none.
    """
    key = _find(db, path)
    if key is None:
        raise RunNotFoundError(f"run {path.entity}/{path.project}/{path.name} is not on this server")
    return key


def _load(db: sqlite3.Connection, where: str, values: tuple[object, ...]) -> list[Run]:
    rows = db.execute(f"SELECT * FROM runs WHERE {where}", values).fetchall()  # noqa: S608 - our own conditions
    if not rows:  # clients ask so about each new run
        return []
    streams: dict[int, dict[str, Extent]] = {row["id"]: {} for row in rows}
    if len(rows) == 1:
        extents = db.execute("SELECT run, name, rows, length FROM streams WHERE run = ?", (rows[0]["id"],))
    else:
        extents = db.execute("SELECT run, name, rows, length FROM streams")
    for run, name, count, length in extents:
        if run in streams:
            streams[run][name] = Extent(count, length)
    return [Run.from_row(row, streams[row["id"]]) for row in rows]


def _update_run(db: sqlite3.Connection, key: int | None, columns: dict[str, object]) -> None:
    assignments = ", ".join(f"{name} = ?" for name in columns)
    db.execute(f"UPDATE runs SET {assignments} WHERE id = ?", (*columns.values(), key))  # noqa: S608 - names are ours


def _mark_uploaded(db: sqlite3.Connection, run: int, names: Iterable[str], now: float) -> None:
    db.executemany(
        "INSERT INTO files (run, name, uploaded, updated_at) VALUES (?, ?, 1, ?) ON CONFLICT DO UPDATE SET uploaded = 1",
        [(run, name, now) for name in names],
    )


def _write_lines(db: sqlite3.Connection, run: int, name: str, chunk: Chunk) -> None:
    """Writes a chunk and keeps the count of lines exact, whether its lines are new, old or both."""
    db.execute("INSERT OR IGNORE INTO streams (run, name) VALUES (?, ?)", (run, name))
    stream = db.execute("SELECT id, length FROM streams WHERE run = ? AND name = ?", (run, name)).fetchone()
    first = line_key(stream["id"], chunk.offset)
    end = first + len(chunk.content)
    known = 0
    if chunk.offset < stream["length"]:
        known = db.execute("SELECT count(*) FROM lines WHERE key >= ? AND key < ?", (first, end)).fetchone()[0]
    db.executemany(
        "INSERT OR REPLACE INTO lines (key, text) VALUES (?, ?)", zip(range(first, end), chunk.content, strict=True)
    )
    if chunk.content:
        db.execute(
            "UPDATE streams SET rows = rows + ?, length = max(length, ?) WHERE id = ?",
            (len(chunk.content) - known, chunk.offset + len(chunk.content), stream["id"]),
        )


def _lock_folder(root: Path) -> IO[bytes]:
    """Holds the folder for this process; the system lets go when the process ends, however it ends.

    Raises:
        BlockingIOError: another server has it.
    """
    lock = (root / "lock").open("ab")
    if os.name == "posix":
        import fcntl

        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            lock.close()
            raise BlockingIOError(f"another server is using {root}") from None
    return lock
