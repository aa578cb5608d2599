"""The SQLite file: schema, connections, and the key of a line.

Lines of all streams live in one table whose integer key is `stream << 40 | line number`. Appending is then an append to
the table's tree, a line number written again replaces its line, and a range of lines is one range scan.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Mapping
from pathlib import Path

SCHEMA_VERSION = 2
LINE_BITS = 40
MAX_LINE = (1 << LINE_BITS) - 1

SCHEMA = """
CREATE TABLE meta (key TEXT PRIMARY KEY, value BLOB NOT NULL) WITHOUT ROWID;
CREATE TABLE runs (
    id INTEGER PRIMARY KEY,
    entity TEXT NOT NULL, project TEXT NOT NULL, name TEXT NOT NULL,
    display_name TEXT NOT NULL,
    group_name TEXT, job_type TEXT, description TEXT, notes TEXT,
    tags TEXT NOT NULL DEFAULT '[]',
    host TEXT, program TEXT, git_commit TEXT, repo TEXT, sweep TEXT,
    config TEXT NOT NULL DEFAULT '{}',
    summary TEXT NOT NULL DEFAULT '{}',
    state TEXT NOT NULL DEFAULT 'running',
    exit_code INTEGER,
    created_at REAL NOT NULL, updated_at REAL NOT NULL, heartbeat_at REAL NOT NULL,
    UNIQUE (entity, project, name)
);
CREATE TABLE streams (
    id INTEGER PRIMARY KEY, run INTEGER NOT NULL, name TEXT NOT NULL,
    rows INTEGER NOT NULL DEFAULT 0,    -- lines that are there
    length INTEGER NOT NULL DEFAULT 0,  -- highest line number + 1; above `rows` where there are holes
    UNIQUE (run, name)
);
CREATE TABLE lines (key INTEGER PRIMARY KEY, text TEXT NOT NULL);
CREATE TABLE files (
    run INTEGER NOT NULL, name TEXT NOT NULL,
    blob TEXT, size INTEGER, md5 TEXT,     -- null: the client says that it uploaded it, and it never came
    uploaded INTEGER NOT NULL DEFAULT 0,   -- the client said so in its file stream
    updated_at REAL NOT NULL,
    PRIMARY KEY (run, name)
) WITHOUT ROWID;
CREATE INDEX files_blob ON files (blob);
CREATE TABLE alerts (
    id INTEGER PRIMARY KEY, run INTEGER NOT NULL,
    title TEXT NOT NULL, text TEXT NOT NULL, severity TEXT NOT NULL, created_at REAL NOT NULL
);
CREATE INDEX alerts_run ON alerts (run);
"""

SINCE_2 = """
ALTER TABLE runs ADD COLUMN preempting INTEGER NOT NULL DEFAULT 0;  -- the client said once that it would be preempted
CREATE TABLE deleted_runs (
    id INTEGER PRIMARY KEY,                     -- the run's own: signed addresses hold it, so no other run may get it
    entity TEXT NOT NULL, project TEXT NOT NULL, name TEXT NOT NULL, deleted_at REAL NOT NULL
);
CREATE INDEX deleted_runs_name ON deleted_runs (entity, project, name);
CREATE TABLE collections (
    id INTEGER PRIMARY KEY,
    entity TEXT NOT NULL, project TEXT NOT NULL, name TEXT NOT NULL, type TEXT NOT NULL,
    created_at REAL NOT NULL,
    UNIQUE (entity, project, name)
);
CREATE TABLE artifacts (
    id INTEGER PRIMARY KEY, collection INTEGER NOT NULL,
    digest TEXT NOT NULL, state TEXT NOT NULL,  -- PENDING or COMMITTED
    version INTEGER,                            -- since the commit
    description TEXT, metadata TEXT, distributed_id TEXT, ttl_s INTEGER, history_step INTEGER,
    wanted_aliases TEXT NOT NULL, tags TEXT NOT NULL,  -- JSON lists; the aliases are given at the commit
    created_by INTEGER,                         -- run
    file_count INTEGER NOT NULL DEFAULT 0, size INTEGER NOT NULL DEFAULT 0,  -- since the commit; references count, too
    created_at REAL NOT NULL, updated_at REAL NOT NULL,
    UNIQUE (collection, version)
);
CREATE INDEX artifacts_digest ON artifacts (collection, digest);
CREATE TABLE artifact_clients (client_id TEXT PRIMARY KEY, artifact INTEGER NOT NULL) WITHOUT ROWID;
CREATE TABLE artifact_aliases (
    collection INTEGER NOT NULL, alias TEXT NOT NULL, artifact INTEGER NOT NULL,
    PRIMARY KEY (collection, alias)
) WITHOUT ROWID;
CREATE TABLE artifact_runs (
    run INTEGER NOT NULL, artifact INTEGER NOT NULL, role TEXT NOT NULL,  -- 'output' or 'input'
    PRIMARY KEY (run, role, artifact)
) WITHOUT ROWID;
CREATE INDEX artifact_runs_artifact ON artifact_runs (artifact);
CREATE TABLE manifests (
    id INTEGER PRIMARY KEY, artifact INTEGER NOT NULL, name TEXT NOT NULL, run INTEGER,
    kind TEXT NOT NULL, digest TEXT NOT NULL,   -- FULL, INCREMENTAL or PATCH; base64 MD5, '' until it is known
    base INTEGER, blob TEXT, size INTEGER
);
CREATE INDEX manifests_artifact ON manifests (artifact);
CREATE INDEX manifests_blob ON manifests (blob);
CREATE TABLE contents (                         -- files that clients upload for an artifact
    artifact INTEGER NOT NULL, name TEXT NOT NULL,
    md5 TEXT NOT NULL, mimetype TEXT,           -- base64, as announced
    blob TEXT, size INTEGER,                    -- null until it came
    PRIMARY KEY (artifact, name)
) WITHOUT ROWID;
CREATE INDEX contents_md5 ON contents (md5);
CREATE INDEX contents_blob ON contents (blob);
CREATE TABLE multiparts (id TEXT PRIMARY KEY, artifact INTEGER NOT NULL, name TEXT NOT NULL) WITHOUT ROWID;
CREATE TABLE parts (
    multipart TEXT NOT NULL, number INTEGER NOT NULL, md5 TEXT NOT NULL,  -- hex, as announced
    blob TEXT, size INTEGER,
    PRIMARY KEY (multipart, number)
) WITHOUT ROWID;
CREATE INDEX parts_blob ON parts (blob);
CREATE TABLE entries (                          -- the manifests of committed artifacts
    artifact INTEGER NOT NULL, path TEXT NOT NULL, digest TEXT NOT NULL, size INTEGER NOT NULL,
    ref TEXT, birth INTEGER, blob TEXT, extra TEXT NOT NULL,
    PRIMARY KEY (artifact, path)
) WITHOUT ROWID;
CREATE INDEX entries_blob ON entries (blob);
"""
"""What the second version of the schema added: artifacts, and the names of deleted runs."""


def line_key(stream: int, line: int) -> int:
    """The key of one line in table `lines`."""
    return (stream << LINE_BITS) | line


def insert(db: sqlite3.Connection, table: str, values: Mapping[str, object]) -> int:
    """Adds a row; its key. Names of table and columns are the program's own, never a client's."""
    names, marks = ", ".join(values), ", ".join("?" * len(values))
    statement = f"INSERT INTO {table} ({names}) VALUES ({marks})"  # noqa: S608 - see above
    key = db.execute(statement, tuple(values.values())).lastrowid
    assert key is not None  # noqa: S101 - for the type checker
    return key


def connect(path: Path) -> sqlite3.Connection:
    """A connection whose commits are on the disk when they return (WAL, synchronous=FULL).

    Transactions are begun by hand. Threads may hand it on, but not share it at one time.
    """
    db = sqlite3.connect(path, isolation_level=None, check_same_thread=False, timeout=30.0)
    db.row_factory = sqlite3.Row
    db.execute("PRAGMA journal_mode=WAL")
    db.execute("PRAGMA synchronous=FULL")
    db.execute("PRAGMA journal_size_limit=67108864")
    db.execute(
        "PRAGMA wal_autocheckpoint=4000"
    )  # pages, 16 MB: what many small commits change again is written back once
    return db


def open_database(path: Path) -> sqlite3.Connection:
    """Opens the file for writing; makes its tables when it is new, and those that an older version lacked.

    Raises:
        ValueError: the file was written by a newer version.
    """
    db = connect(path)
    try:
        db.execute("PRAGMA cache_size=-32768")  # 32 MB: indexes of digests are written all over
        version = db.execute("PRAGMA user_version").fetchone()[0]
        missing = {0: SCHEMA + SINCE_2, 1: SINCE_2}.get(version)
        if missing is not None:
            db.executescript(f"BEGIN IMMEDIATE; {missing} PRAGMA user_version={SCHEMA_VERSION}; COMMIT;")
        elif version != SCHEMA_VERSION:
            raise ValueError(f"{path} has schema {version}, this version reads {SCHEMA_VERSION}; use a newer runferry")
    except BaseException:
        db.close()
        raise
    return db
