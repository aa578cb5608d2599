"""The SQLite file: schema, connections, and the key of a line.

Lines of all streams live in one table whose integer key is `stream << 40 | line number`. Appending is then an append to
the table's tree, a line number written again replaces its line, and a range of lines is one range scan.
"""

from __future__ import annotations

import sqlite3
from pathlib import Path

SCHEMA_VERSION = 1
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


def line_key(stream: int, line: int) -> int:
    """The key of one line in table `lines`."""
    return (stream << LINE_BITS) | line


def connect(path: Path) -> sqlite3.Connection:
    """A connection whose commits are on the disk when they return (WAL, synchronous=FULL).

    Transactions are begun by hand. Threads may hand it on, but not share it at one time.
    """
    db = sqlite3.connect(path, isolation_level=None, check_same_thread=False, timeout=30.0)
    db.row_factory = sqlite3.Row
    db.execute("PRAGMA journal_mode=WAL")
    db.execute("PRAGMA synchronous=FULL")
    db.execute("PRAGMA journal_size_limit=67108864")
    return db


def open_database(path: Path) -> sqlite3.Connection:
    """Opens the file for writing and makes its tables when it is new.

    Raises:
        ValueError: the file was written by a newer version.
    """
    db = connect(path)
    try:
        version = db.execute("PRAGMA user_version").fetchone()[0]
        if version == 0:
            db.executescript(f"BEGIN IMMEDIATE; {SCHEMA} PRAGMA user_version={SCHEMA_VERSION}; COMMIT;")
        elif version != SCHEMA_VERSION:
            raise ValueError(f"{path} has schema {version}, this version reads {SCHEMA_VERSION}; use a newer runferry")
    except BaseException:
        db.close()
        raise
    return db
